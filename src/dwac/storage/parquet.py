"""Parquet with a limit on memory: a file of kilobytes can hold gigabytes of repeated values.

table = read_parquet(data, most_rows=1000, most_bytes=2**30)

The file's own metadata is checked first. It may be wrong, so rows are read in batches, texts and bytes as distinct
values with indices, and the memory of the expanded values is added up before they are expanded.
"""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dwac.errors import InputError

MOST_COLUMNS = 50_000  # thousands of genes are fine, a million columns are a mistake
BATCH_ROWS = 2**16
_BATCH_BYTES = 2**27  # per batch, if the file's metadata is true


class TooLargeError(InputError):
    """A table has more rows, columns or bytes than allowed."""


def require_columns(count: int, name: str) -> None:
    """Raise an error for a table with too many columns."""
    if count > MOST_COLUMNS:
        raise TooLargeError(
            f"{name} has {count:,} columns; at most {MOST_COLUMNS:,} are allowed; keep those that matter"
        )


def read_parquet(data: bytes, name: str, *, most_bytes: int, most_rows: float = math.inf) -> pa.Table:
    """The table in the bytes of a Parquet file; an error if it exceeds `most_bytes` in memory or `most_rows`.

    name: the file's name, for messages.
    """
    facts = pq.read_metadata(pa.BufferReader(data))
    require_columns(facts.num_columns, name)
    schema = pq.read_schema(pa.BufferReader(data))
    claimed = max(_claimed(facts), math.ceil(facts.num_rows * sum(_width(field.type) for field in schema)))
    _require_room(name, facts.num_rows, claimed, most_rows, most_bytes)
    texts = [field.name for field in schema if _is_text(field.type)]
    file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts)
    rows = min(max(_BATCH_BYTES * facts.num_rows // max(claimed, 1), 1), BATCH_ROWS)
    batches: list[pa.RecordBatch] = []
    n, taken = 0, 0
    for batch in file.iter_batches(batch_size=rows, use_threads=False):
        n, taken = n + len(batch), taken + sum(map(_written_out, batch.columns))
        _require_room(name, n, taken, most_rows, most_bytes)
        arrays = [_plain(array, field.type) for array, field in zip(batch.columns, schema, strict=True)]
        batches.append(pa.record_batch(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema)


def _claimed(facts: pq.FileMetaData) -> int:
    """The bytes that the file claims to hold: those of its pages, and at least 4 per value in a list."""
    lists = [column for column in range(facts.num_columns) if facts.schema.column(column).max_repetition_level]
    groups = [facts.row_group(group) for group in range(facts.num_row_groups)]
    in_lists = sum(4 * group.column(column).num_values for group in groups for column in lists)
    return int(max(in_lists, sum(group.total_byte_size for group in groups)))


def _require_room(name: str, rows: int, taken: int, most_rows: float, most_bytes: int) -> None:
    if rows > most_rows:
        raise TooLargeError(f"{name} must have at most {most_rows:,} rows; got {rows:,} or more")
    if taken > most_bytes:
        raise TooLargeError(f"{name} takes {taken:,} bytes or more in memory; at most {most_bytes:,} are allowed")


def _width(kind: pa.DataType) -> float:
    """Bytes per value of a fixed-width type; for other types a lower bound."""
    try:
        return float(kind.bit_width) / 8
    except ValueError:
        return 4.0 if _is_text(kind) else 0.0


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _written_out(array: pa.Array) -> int:
    """The bytes of the expanded values, each counted as often as it occurs."""
    if not pa.types.is_dictionary(array.type) or not _is_text(array.type.value_type):
        return int(array.nbytes)
    lengths = pc.cast(pc.binary_length(array.dictionary), pa.int64())
    return (pc.sum(lengths.take(array.indices)).as_py() or 0) + 4 * len(array)


def _plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)
