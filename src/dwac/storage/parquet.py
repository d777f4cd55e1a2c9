"""Training examples as Parquet, and Parquet with a limit on memory: kilobytes can hold gigabytes of repeated values.

table = read_parquet(data, name, most_rows=1000, most_bytes=2**30)

The file's own metadata is checked first. It may be wrong, so rows are read in batches, texts and bytes as distinct
values with indices, and the memory of the expanded values is added up before they are expanded.

Columns of training examples keep their type: numbers, booleans, text, bytes, dates, durations, categories, and pandas'
nullable and Arrow types, including missing values. Two things change on purpose:

- A column of objects whose values differ in type, or for which Parquet has no type, becomes text: `str` of each value.
  Records are shown to people, and a training run should not fail at its end because of one odd column.
- In a column of objects, every kind of missing value becomes None.

Ids (the index) are stored as JSON text in the first column and restored as the same Python values. The metadata that
pandas would write into the file is left out, and ignored on reading.
"""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dwac.errors import EncodingError, InputError, StorageError
from dwac.storage.values import decode_value, encode_value

MOST_COLUMNS = 50_000  # thousands of genes are fine, a million columns are a mistake
BATCH_ROWS = 2**16
_BATCH_BYTES = 2**27  # per batch, if the file's metadata is true
MOST_BYTES = 2**30  # memory limit for the records of a small folder
_KEY = b"dwac.examples"
_ROWS = 2**14  # per row group: limits a reader's memory if each row holds an image
_TEXT = pd.Series(["a"]).dtype  # pandas' own type for text: str since version 3, object before
_NULLABLE = {f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
_NULLABLE |= {"Float32", "Float64", "boolean", "string"}
_ONE_TYPE = {bool, int, float, bytes, date, datetime, time, timedelta, Decimal}  # objects that Arrow stores as they are
_FAILURES = (pa.ArrowException, ValueError, TypeError, OverflowError, KeyError, NotImplementedError)


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
    claimed = max(_claimed_bytes(facts), math.ceil(facts.num_rows * sum(_width(field.type) for field in schema)))
    _require_room(name, facts.num_rows, claimed, most_rows, most_bytes)
    texts = [field.name for field in schema if _is_text(field.type)]
    file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts)
    rows = min(max(_BATCH_BYTES * facts.num_rows // max(claimed, 1), 1), BATCH_ROWS)
    batches: list[pa.RecordBatch] = []
    n, size = 0, 0
    for batch in file.iter_batches(batch_size=rows, use_threads=False):
        n, size = n + len(batch), size + sum(map(_expanded_bytes, batch.columns))
        _require_room(name, n, size, most_rows, most_bytes)
        arrays = [_plain(array, field.type) for array, field in zip(batch.columns, schema, strict=True)]
        batches.append(pa.record_batch(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema)


def _claimed_bytes(facts: pq.FileMetaData) -> int:
    """The bytes that the file claims to hold: those of its pages, and at least 4 per value in a list."""
    lists = [column for column in range(facts.num_columns) if facts.schema.column(column).max_repetition_level]
    groups = [facts.row_group(group) for group in range(facts.num_row_groups)]
    in_lists = sum(4 * group.column(column).num_values for group in groups for column in lists)
    return int(max(in_lists, sum(group.total_byte_size for group in groups)))


def _require_room(name: str, rows: int, size: int, most_rows: float, most_bytes: int) -> None:
    if rows > most_rows:
        raise TooLargeError(f"{name} must have at most {most_rows:,} rows; got {rows:,} or more")
    if size > most_bytes:
        raise TooLargeError(f"{name} takes {size:,} bytes or more in memory; at most {most_bytes:,} are allowed")


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


def _expanded_bytes(array: pa.Array) -> int:
    """The bytes of the expanded values, each counted as often as it occurs."""
    if not pa.types.is_dictionary(array.type) or not _is_text(array.type.value_type):
        return int(array.nbytes)
    lengths = pc.cast(pc.binary_length(array.dictionary), pa.int64())
    return (pc.sum(lengths.take(array.indices)).as_py() or 0) + 4 * len(array)


def _plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


# Training examples


def pack_examples(examples: pd.DataFrame) -> bytes:
    """These records as the bytes of a Parquet file: ids first, then the columns."""
    if not isinstance(examples, pd.DataFrame):
        raise InputError(f"examples must be a pandas DataFrame; got {type(examples).__name__}; wrap it in one")
    names = [str(name) for name in examples.columns]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(
            f"column names of examples must be unique as text; {repeated[0]!r} appears more than once; rename it"
        )
    ids = "id"
    while ids in names:
        ids = f"_{ids}"
    arrays, columns = [_pack_ids(examples.index)], []
    for position, name in enumerate(examples.columns):
        array, facts = _pack_column(examples.iloc[:, position])
        arrays.append(array)
        columns.append({"name": encode_value(name), **facts})
    facts = {"version": 1, "columns": columns, "index": _name_of(examples.index)}
    table = pa.Table.from_arrays(arrays, [ids, *(_utf8(name) for name in names)])
    table = table.replace_schema_metadata({_KEY: json.dumps(facts, allow_nan=False)})
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd", row_group_size=_ROWS)
    return file.getvalue()


def unpack_examples(
    data: bytes, name: str, *, most_rows: float = math.inf, most_bytes: int = MOST_BYTES
) -> pd.DataFrame:
    """The records in these bytes, up to a limit of rows and of bytes in memory; `name` is the file's, for messages."""
    again = "restore it from a copy, or save the model again"
    try:
        table = read_parquet(data, name, most_rows=most_rows, most_bytes=most_bytes)
        facts = json.loads((table.schema.metadata or {})[_KEY])
        columns = facts["columns"]
        if facts["version"] != 1 or len(columns) != table.num_columns - 1:
            raise ValueError("its columns differ from those that were written")
        index = _unpack_ids(table.column(0), decode_value(facts["index"]))
        values = [_unpack_column(table.column(i + 1), column) for i, column in enumerate(columns)]
        frame = pd.DataFrame(dict(enumerate(values)), index=range(len(index)))
        frame.index = index
        frame.columns = pd.Index([decode_value(column["name"]) for column in columns])
        return frame
    except TooLargeError as error:
        raise StorageError(f"{error}; {again}") from None
    except (*_FAILURES, OSError, AttributeError, RecursionError) as error:
        raise StorageError(
            f"{name} must be a table of examples written by dwac ({type(error).__name__}: {error!s:.300}); {again}"
        ) from error


def _pack_ids(index: pd.Index) -> pa.Array:
    texts = []
    for position, value in enumerate(index):
        try:
            texts.append(json.dumps(encode_value(value), ensure_ascii=False, allow_nan=False))
        except EncodingError as error:
            raise EncodingError(f"id of row {position}: {error}") from None
    return pa.array(texts, pa.large_string())


def _unpack_ids(texts: pa.ChunkedArray, name: Any) -> pd.Index:
    """An index of exactly these values: pandas may choose a type only if it keeps them the same."""
    ids = [decode_value(json.loads(text)) for text in texts.to_pylist()]
    kinds = {type(value) for value in ids}
    dtype: Any = object
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in ids):
        dtype = np.int64
    elif kinds == {str}:
        dtype = _TEXT
    index: pd.Index = pd.Index(ids, dtype=dtype, name=name, tupleize_cols=False)
    return index


def _name_of(index: pd.Index) -> Any:
    try:
        return encode_value(index.name)
    except EncodingError:
        return None


def _pack_column(column: pd.Series) -> tuple[pa.Array, dict[str, Any]]:
    """A column as an Arrow array, and what is needed to restore it in pandas."""
    try:
        return _pack_typed(column)
    except _FAILURES:  # a type that Arrow lacks: complex numbers, periods, numbers beyond 64 bits, …
        return _pack_text(column.astype(object)), {"kind": "text"}


def _pack_typed(column: pd.Series) -> tuple[pa.Array, dict[str, Any]]:
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return _pack_categories(column.cat)
    if isinstance(dtype, pd.SparseDtype):
        return _pack_typed(column.astype(dtype.subtype))
    if isinstance(dtype, pd.ArrowDtype):
        return pa.array(column), {"kind": "arrow"}
    if str(dtype) in _NULLABLE:
        return pa.array(column), {"kind": str(dtype)}
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return _pack_objects(column)
    if dtype == _TEXT:
        return _pack_text(column.astype(object)), {"kind": "text"}
    if dtype.kind in "mM":
        return pa.array(column), {"kind": "plain", "unit": column.dt.unit}  # Parquet has no unit of seconds
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return pa.array(column.to_numpy()), {"kind": "plain"}  # an array, not a Series: NaN stays NaN
    raise TypeError(f"Arrow has no type for {dtype}")


def _pack_categories(column: Any) -> tuple[pa.Array, dict[str, Any]]:
    """Stored as values, so that any Parquet reader understands them; the list of categories is stored separately."""
    values, facts = _pack_typed(column.categories.to_series())
    facts = {"values": facts, "categories": [encode_value(value) for value in column.categories]}
    facts |= {"kind": "category", "ordered": bool(column.ordered)}
    _unpack_categories(values.dictionary_encode(), facts)  # fails if categories of several types are equal as text
    codes = column.codes.to_numpy()
    return values.take(pa.array(codes, mask=codes < 0)), facts


def _pack_objects(column: pd.Series) -> tuple[pa.Array, dict[str, Any]]:
    missing = column.isna().to_numpy()
    values = [None if gone else value for value, gone in zip(column, missing, strict=True)]
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) == 1 and kinds <= _ONE_TYPE:
        return pa.array(values, pa.large_binary() if kinds == {bytes} else None), {"kind": "object"}
    return _pack_text(column), {"kind": "object" if kinds <= {str} else "text"}


def _pack_text(column: pd.Series) -> pa.Array:
    values = [None if gone else _utf8(str(value)) for value, gone in zip(column, column.isna(), strict=True)]
    return pa.array(values, pa.large_string())


def _utf8(text: str) -> str:
    """The text, with escapes for half surrogate pairs, which UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode()


def _unpack_column(array: pa.ChunkedArray, facts: dict[str, Any]) -> pd.Series:
    kind = facts["kind"]
    if kind == "category":
        return pd.Series(_unpack_categories(array.combine_chunks().dictionary_encode(), facts))
    if kind == "plain":
        values: pd.Series = array.to_pandas(ignore_metadata=True)
        return values.dt.as_unit(facts["unit"]) if "unit" in facts else values
    if kind == "arrow":
        return pd.Series(pd.arrays.ArrowExtensionArray(array))
    if kind in _NULLABLE:
        dtype: Any = pd.api.types.pandas_dtype(kind)
        return pd.Series(dtype.__from_arrow__(array))
    return pd.Series(array.to_pylist(), dtype={"object": object, "text": _TEXT}[kind])


def _unpack_categories(array: Any, facts: dict[str, Any]) -> pd.Categorical:
    """Values to codes, via Arrow's dictionary: it has no missing values, which would change the type."""
    used = pd.Index(_unpack_column(pa.chunked_array([array.dictionary]), facts["values"]))
    categories = pd.Index([decode_value(value) for value in facts["categories"]], dtype=used.dtype)
    codes = categories.get_indexer(used) if categories.is_unique else np.array([-1])
    if (codes < 0).any():
        raise ValueError("its categories differ from those that are listed")
    places = array.indices.fill_null(len(codes)).to_numpy()
    return pd.Categorical.from_codes(np.append(codes, -1)[places], categories, ordered=facts["ordered"])
