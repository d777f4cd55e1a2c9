"""The rows of a piece, a batch at a time; rows that cannot be parsed are set aside with the reason."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dwac.errors import InputError
from dwac.reading.tables import named
from dwac.scoring.layouts import Layout, layout_of
from dwac.scoring.pieces import Piece
from dwac.scoring.places import place
from dwac.scoring.records import LONGEST, Cut, cuts, spans

_NULLS = pa.csv.ConvertOptions().null_values  # how Arrow's CSV writes a missing number
_ENDLESS = f"a quote that opens in this row is not closed within {LONGEST // 2**20} MiB; close or double it"
_KEPT = 2**16  # characters of a bad row that are kept
_MARKS = r"[.' \x{00a0}\x{202f}]"  # between thousands, where decimals have a comma
_COMMA = rf"^\s*[+-]?(\d+|[1-9]\d{{0,2}}({_MARKS}\d{{3}})+)(,\d+)?([eE][+-]?\d+)?\s*$"
csv.field_size_limit(max(csv.field_size_limit(), LONGEST))  # texts may be long; Arrow has no limit


class Bad(NamedTuple):
    """A row that could not be read."""

    row: int  # in its file, from 0
    line: int | None  # from 1; None for Parquet
    why: str
    text: str | None  # as it was written


@dataclass(frozen=True)
class Chunk:
    """Some rows of a piece: those that could be parsed, and those that could not."""

    rows: pa.RecordBatch | pd.DataFrame
    numbers: NDArray[np.int64]  # of the parsed rows: which row of the file each is
    bad: list[Bad] = field(default_factory=list)
    written: Callable[[int], tuple[int | None, str | None]] = lambda _: (None, None)  # place in rows → (line, text)


def chunks(
    piece: Piece,
    encoding: str,
    rows: int,
    *,
    texts: Collection[str] = (),
    needed: Collection[str] | None = None,
    separator: str | None = None,
    decimal: str | None = None,
) -> Iterator[Chunk]:
    """The rows of a piece in order, at most so many at once.

    texts: columns of CSV and JSON that stay as they are written. needed: the columns that are used; None: all.
    separator, decimal: of CSV; by default judged from its beginning.
    """
    if piece.form == "parquet":
        yield from _parquet(piece, rows, needed)
        return
    layout = layout_of(piece.file, piece.form, encoding, separator, decimal)
    for cut in _cuts(piece, layout):
        if cut.whole or cut.rows:
            yield from _parsed(cut, layout, _Wanted(frozenset(texts), needed), rows)
        else:
            beginning = cut.data.partition(b"\n")[0].decode(layout.stored, errors="replace")
            raise InputError(f"{piece.file} line {cut.line + 1}: {_ENDLESS}; it begins {beginning[:60]!r}")


class _Wanted(NamedTuple):
    texts: frozenset[str]
    needed: Collection[str] | None


def _cuts(piece: Piece, layout: Layout) -> Iterator[Cut]:
    if not layout.divisible:
        yield from cuts(layout.blocks(), layout.mark, line=layout.line)
        return
    start, line = max(piece.start, layout.start), max(piece.line, layout.line)  # a file that could not be planned
    to_the_end = replace(layout, start=start).blocks  # may be long
    blocks = to_the_end() if piece.stop is None else [place(piece.file).read(start, piece.stop)]
    for cut in cuts(blocks, layout.mark, start=start, line=line):
        yield cut._replace(row=piece.row + cut.row)


def _parsed(cut: Cut, layout: Layout, wanted: _Wanted, rows: int) -> Iterator[Chunk]:
    starts, stops = spans(cut.data, layout.mark)

    def written(place: int) -> tuple[int, str]:
        start = int(starts[place])
        raw = cut.data[start : int(stops[place])].rstrip(b"\r").decode(layout.stored, errors="backslashreplace")
        return cut.line + cut.data.count(b"\n", 0, start) + 1, raw[:_KEPT]

    # Objects of JSON take much memory, so they are parsed as they are used; types in CSV are found from many rows.
    step = rows if layout.form == "jsonl" else max(len(starts), 1)
    for base in range(0, len(starts), step):
        part = slice(base, base + step)
        parse = _json if layout.form == "jsonl" else _csv
        table, kept, reasons = parse(cut, layout, wanted, starts[part], stops[part])
        bad = [_bad(cut.row + base + row, *written(base + row), why) for row, why in reasons.items()]
        yield from _cut_up(table, kept + base, bad, cut, rows, written)


def _cut_up(
    table: Any, kept: NDArray[np.int64], bad: list[Bad], cut: Cut, rows: int, written: Callable[[int], tuple[int, str]]
) -> Iterator[Chunk]:
    """Parsed rows, at most so many at once; kept: which records of the cut they are."""
    for first in range(0, max(len(kept), 1), rows):
        some = kept[first : first + rows]
        part = table.iloc[first : first + rows] if isinstance(table, pd.DataFrame) else table.slice(first, rows)
        yield Chunk(part, cut.row + some, bad if first == 0 else [], lambda i, some=some: written(int(some[i])))  # type: ignore[misc]


def _bad(row: int, line: int, text: str, why: str) -> Bad:
    return Bad(row, line, why, text)


Parsed = tuple[Any, NDArray[np.int64], dict[int, str]]  # rows, which records they are, and why others are not


# CSV


def _csv(cut: Cut, layout: Layout, wanted: _Wanted, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Parsed:
    reasons: dict[int, str] = {}
    try:
        if not cut.whole or b"\0" in cut.data:
            raise UnicodeError
        table = _arrow(_utf8(cut.data, layout.stored), layout, wanted)
        if len(table) == len(starts):
            return _one_batch(table, wanted, layout), np.arange(len(starts)), {}
    except (pa.ArrowInvalid, UnicodeError):
        pass
    good = []
    for row, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        why = _fault(cut.data[start:stop], layout, last=not cut.whole and row == len(starts) - 1)
        if why is None:
            good.append(row)
        else:
            reasons[row] = why
    kept = np.array(good, dtype=np.int64)
    data = b"".join(cut.data[int(starts[row]) : int(stops[row])] + b"\n" for row in good)
    try:
        table = _arrow(_utf8(data, layout.stored), layout, wanted)
        if len(table) != len(kept):
            raise pa.ArrowInvalid(f"{len(kept)} records give {len(table)} rows")
    except pa.ArrowInvalid as error:
        raise InputError(f"{layout.url} from line {cut.line + 1} on must be readable CSV: {error!s:.200}") from None
    return _one_batch(table, wanted, layout), kept, reasons


def _utf8(data: bytes, encoding: str) -> bytes:
    if encoding == "utf-8":
        data.decode()  # an error, where Arrow's would not say which row
        return data
    return data.decode(encoding).encode()


def _fault(record: bytes, layout: Layout, *, last: bool) -> str | None:
    """Why a record of CSV cannot be read; None if it can. last: it has a quote that is never closed."""
    if last:
        return "a quote that opens in this row is never closed; close or double it"
    try:
        text = record.decode(layout.stored)
    except UnicodeDecodeError as error:
        return f"it is not {layout.stored}: it has the byte 0x{record[error.start]:02x}"
    if "\0" in text:
        return "it contains a zero byte"
    try:
        fields = next(csv.reader(io.StringIO(text, newline=""), delimiter=layout.delimiter), [])
    except csv.Error as error:
        return f"it is not CSV: {error}"
    if len(fields) != len(layout.names):
        return f"it has {len(fields)} fields, but the first line names {len(layout.names)} columns"
    return None


def _arrow(data: bytes, layout: Layout, wanted: _Wanted) -> pa.Table:
    """Records of CSV as a table. A column is of numbers, dates or truth if all its cells here are, else of text."""
    if not data:
        return pa.table({name: pa.array([], pa.string()) for name in layout.names})
    names = list(layout.names)
    types = {name: pa.string() for name in names if name in wanted.texts}
    used = names if wanted.needed is None or not set(wanted.needed) <= set(names) else sorted(wanted.needed)
    while True:
        table = pa.csv.read_csv(
            io.BytesIO(data),
            # One block, because Arrow infers a column's type from the first. No threads: workers are many already.
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            parse_options=pa.csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=types, decimal_point="," if layout.comma else ".", include_columns=used
            ),
        )
        clocks = [column.name for column in table.schema if pa.types.is_time(column.type)]
        if not clocks:
            return table
        types |= dict.fromkeys(clocks, pa.string())  # a time of day is a category


def _one_batch(table: pa.Table, wanted: _Wanted, layout: Layout) -> pa.RecordBatch:
    """A table as one batch; empty cells are missing, and so are other ways to write that in columns of numbers."""
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
        if pa.types.is_string(values.type):
            nulls = pa.array([""] if name in wanted.texts else _NULLS, pa.string())
            values = pc.if_else(pc.is_in(values, value_set=nulls), pa.scalar(None, pa.string()), values)
            if layout.comma and name not in wanted.texts:  # one bad cell made the whole column text
                plain = pc.replace_substring(pc.replace_substring_regex(values, _MARKS, ""), ",", ".")
                values = pc.if_else(pc.match_substring_regex(values, _COMMA), plain, values)
        columns.append(values)
    return pa.RecordBatch.from_arrays(columns, names=table.column_names)


# JSON Lines


def _json(cut: Cut, layout: Layout, wanted: _Wanted, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> Parsed:
    rows: list[dict[str, Any]] = []
    good, reasons = [], {}
    for number, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        raw = cut.data[start:stop]
        found = _object(raw, layout.stored)
        if isinstance(found, str):
            reasons[number] = found
        elif found is not None:
            rows.append(found)
            good.append(number)
    frame = _frame(rows, layout.url, wanted.texts)
    # A key that some rows lack is a missing value; one that none has is a missing column, which is refused later.
    for name in set(wanted.needed or ()).difference(frame.columns):
        if name in layout.names or any(key in cut.data for key in _written_keys(name)):
            frame[name] = None
    return frame, np.array(good, dtype=np.int64), reasons


def _written_keys(name: str) -> set[bytes]:
    return {json.dumps(name, ensure_ascii=plain).encode() for plain in (True, False)}


def _object(raw: bytes, encoding: str) -> dict[str, Any] | str | None:
    """A line of JSON as an object, or why it is none; None if it is blank."""
    try:
        text = raw.decode(encoding)
        if not text.strip():
            return None
        found = json.loads(text)
        if "\\u" in text:
            json.dumps(found, ensure_ascii=False).encode()  # fails on half of a surrogate pair, which is not text
    except UnicodeDecodeError as error:
        return f"it is not {encoding}: it has the byte 0x{raw[error.start]:02x}"
    except (ValueError, RecursionError) as error:
        return f"it is not JSON ({error!s:.100}); write one object per line"
    return found if isinstance(found, dict) else f"it must be one JSON object, {{…}}; got {text.strip()[:40]!r}"


def _frame(rows: list[dict[str, Any]], url: str, texts: Collection[str]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    keys = [str(key) for key in frame.columns]
    for key in frame.columns:
        if str(key).strip() in texts:  # pandas would turn 3 into 3.0 where some rows lack it
            frame[key] = pd.Series([row.get(key) for row in rows], dtype=object)
    frame.columns = pd.Index(named(keys, url) if keys else [])
    return frame


# Parquet


def _parquet(piece: Piece, rows: int, needed: Collection[str] | None) -> Iterator[Chunk]:
    """Rows start … stop of a Parquet file, from the row groups that hold them."""
    there = place(piece.file)
    try:
        with there.fs.open(there.path, "rb") as raw, pq.ParquetFile(raw) as file:
            counts = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
            ends = np.cumsum([0, *counts])
            stop = int(ends[-1]) if piece.stop is None else piece.stop
            groups = [g for g in range(len(counts)) if ends[g] < stop and ends[g + 1] > piece.start]
            row = int(ends[groups[0]]) if groups else stop
            names = file.schema_arrow.names
            plain = named(names, piece.file)
            used = list(needed) if needed is not None and set(needed) <= set(names) else None
            size = _batch_rows(file, groups, rows)
            reader = file.iter_batches(batch_size=size, row_groups=groups, columns=used, use_threads=False)
            for batch in reader if groups else ():
                if used is None and plain != names:
                    batch = pa.RecordBatch.from_arrays(batch.columns, names=plain)
                skip, end = max(piece.start - row, 0), min(stop - row, batch.num_rows)
                if end > skip:
                    yield Chunk(batch.slice(skip, end - skip), np.arange(row + skip, row + end))
                row += batch.num_rows
                if row >= stop:
                    return
    except FileNotFoundError:
        raise InputError(f"{piece.file} is gone since the run was planned; put it back, or start a new run") from None
    except (pa.ArrowException, OSError, EOFError) as error:
        raise InputError(
            f"{piece.file} is not a readable Parquet file ({error!s:.200}); repair or replace it, and run again"
        ) from None


def _batch_rows(file: pq.ParquetFile, groups: list[int], rows: int) -> int:
    """How many rows to read at once: fewer where rows are large."""
    n = sum(file.metadata.row_group(group).num_rows for group in groups)
    size = sum(file.metadata.row_group(group).total_byte_size for group in groups)
    return max(1, min(rows, int(LONGEST * n / max(size, 1)))) if n else rows
