"""Tables in files, as a whole or in parts: CSV, TSV, JSON Lines and Parquet.

A file that is read as a whole must be readable throughout. In a part, rows that cannot be parsed are set aside with the
reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dwac.errors import InputError
from dwac.reading.layouts import (
    HEAD,
    INDEX,
    LONGEST,
    Cut,
    FileLayout,
    Places,
    check_names,
    cuts,
    decimal_comma,
    encoding_name,
    ends_of,
    infer_layout,
    spans,
)
from dwac.reading.notation import is_text
from dwac.reading.parsing import LESS, Wanted, parse_csv, parse_json
from dwac.reading.places import place, room
from dwac.storage.parquet import TooLargeError, read_parquet

_ENDLESS = f"a quote that opens in this row is not closed within {LONGEST // 2**20} MiB; close or double it"
_KEPT = 2**16  # characters of a bad row that are kept


# Whole files


class Table(NamedTuple):
    """A frame, and where each of its rows came from, for messages."""

    frame: pd.DataFrame
    where: Callable[[int], str]


class Marks(NamedTuple):
    """The field separator of CSV, and whether it has decimal commas; (None, False) for other files."""

    separator: str | None = None
    commas: bool = False


NO_MARKS = Marks()


def read_table(
    data: bytes,
    name: str,
    form: str,
    wanted: Wanted,
    *,
    encoding: str,
    lists: Collection[str] | None = (),
    separator: str | None = None,
    decimal: str | None = None,
) -> tuple[Table, Marks]:
    """(the table in the bytes of a file of this form: "csv", "tsv", "jsonl" or "parquet", how CSV is written).

    lists: columns whose cells may be lists in JSON; None: cells may be anything, and are checked later, row by row.
    separator, decimal: of CSV; by default inferred from the file.
    """
    marks = NO_MARKS
    if form == "parquet":
        table = Table(_whole_parquet(data, name), lambda row: f"{name} row {row}")
    elif form == "jsonl":
        table = _whole_json(decode(data, name, encoding), name, wanted, lists)
    else:
        table, marks = _whole_csv(decode(data, name, encoding), name, form, wanted, separator, decimal)
    if len(table.frame) == 0:
        raise InputError(f"{name} must have at least one row; it has columns but no rows")
    return table, marks


def decode(data: bytes, name: str, encoding: str) -> str:
    """The bytes as text, without a byte order mark."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    codec = encoding_name(encoding)
    try:
        text = data.decode("utf-8-sig" if codec == "utf-8" else codec)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{name} line {line} is not {encoding}: it has the byte 0x{data[error.start]:02x}; save the file as UTF-8, "
            "or name its encoding: --encoding cp1252 (Windows) or latin-1"
        ) from None
    if not text.strip():
        raise InputError(f"{name} is empty; give a file with data")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(
            f"{name} line {line} contains a zero byte, so it is not text; name its format if it is another one"
        )
    return text


def _whole_csv(
    text: str, name: str, form: str, wanted: Wanted, separator: str | None, decimal: str | None
) -> tuple[Table, Marks]:
    text = text if "\n" in text else text.replace("\r", "\n")  # line endings of the old Mac OS
    data = text.encode()
    layout = infer_layout(lambda size: data[:size], name, form, "utf-8", separator, decimal)
    comma = decimal_comma(text, layout.delimiter) if decimal is None else decimal == ","
    layout, body = replace(layout, comma=comma), data[layout.start :]
    data, text = b"", ""  # frees memory: a file may be large
    rows, where = _parse_all(body, layout, wanted, "; repair that line, and quote values that contain the delimiter")
    return Table(rows.to_pandas(date_as_object=False), where), Marks(layout.delimiter, comma)


def _whole_json(text: str, name: str, wanted: Wanted, lists: Collection[str] | None) -> Table:
    """All lines of JSON. lists: columns whose cells may be lists; None: any cells, and dates are inferred later."""
    frame, where = _parse_all(text.encode(), FileLayout(name, "jsonl", "utf-8"), wanted)
    if lists is None:
        return Table(frame, where)
    changed = {}
    for column in frame.columns:
        for row, value in enumerate(frame[column]) if frame[column].dtype == object else ():
            if isinstance(value, dict) or (isinstance(value, list) and column not in lists):
                raise InputError(f"{where(row)}: {column!r} must be a single value; got {json.dumps(value)[:40]}")
        if column in wanted.texts or not is_text(frame[column]):
            continue
        first = frame[column].dropna().iloc[0]
        if first[:4].isdigit() and first[4:5] == "-":
            with suppress(ValueError, TypeError, OverflowError):  # ISO dates become dates, as in CSV
                changed[column] = pd.to_datetime(frame[column], format="ISO8601")
    if changed:  # all at once: setting columns one by one fragments the frame
        frame = pd.DataFrame({column: changed.get(column, frame[column]) for column in frame.columns})
    return Table(frame, where)


def _parse_all(body: bytes, layout: FileLayout, wanted: Wanted, remedy: str = "") -> tuple[Any, Callable[[int], str]]:
    """(all records, where each of them is); an error names the line of the first that cannot be read."""
    starts, stops = spans(body, layout.mark)
    cut = Cut(body, layout.start, 0, layout.line, len(starts), whole=not ends_of(body, layout.mark)[1])

    def line(record: int) -> str:
        before = body.count(b"\n", 0, int(starts[record]))
        return f"{layout.url} line {layout.line + before + 1}"

    parse = parse_json if layout.form == "jsonl" else parse_csv
    rows, records, reasons = parse(cut, layout, wanted, starts, stops)
    for record, why in reasons.items():
        raise InputError(f"{line(record)}: {why}{remedy}")
    return rows, lambda row: line(int(records[row]))


def _whole_parquet(data: bytes, name: str) -> pd.DataFrame:
    try:
        table = read_parquet(data, name, most_bytes=room())
        check_names(table.column_names, name)
        frame: pd.DataFrame = table.to_pandas(date_as_object=False)
    except TooLargeError as error:
        raise InputError(f"{error}; {LESS}") from None
    except InputError:
        raise
    except Exception as error:  # a damaged file, or pandas' metadata in it, may make Arrow raise anything
        raise InputError(f"{name} must be a readable Parquet file: {error!s:.200}") from None
    if not isinstance(frame.index, pd.RangeIndex) or frame.index.start != 0:
        frame = frame.reset_index(names=[INDEX if level is None else str(level) for level in frame.index.names])
    frame.columns = pd.Index(check_names([str(column) for column in frame.columns], name))
    return frame


# Parts of files


class BadRow(NamedTuple):
    """A row that could not be read."""

    row: int  # in its file, from 0
    line: int | None  # from 1; None for Parquet
    why: str
    text: str | None  # as it was written


class FilePart(NamedTuple):
    """A part of a file: all of it, some rows of Parquet, or a range of bytes."""

    file: str  # path or URL
    form: str  # "parquet", "csv", "tsv" or "jsonl"
    start: int = 0  # of Parquet: the first row; otherwise the first byte
    stop: int | None = None  # where the next part begins; None: at the end of the file
    row: int = 0  # number of rows of the file before it
    line: int = 0  # number of lines of the file before it


@dataclass(frozen=True)
class ParsedRows:
    """Some rows of a part: those that could be parsed, and those that could not."""

    rows: pa.RecordBatch | pd.DataFrame
    numbers: Places  # row numbers in the file, of the parsed rows
    bad: list[BadRow] = field(default_factory=list)
    written: Callable[[int], tuple[int | None, str | None]] = lambda _: (None, None)  # place in rows → (line, text)


def read_part(part: FilePart, layout: FileLayout | None, rows: int, wanted: Wanted) -> Iterator[ParsedRows]:
    """The rows of a part in order, at most `rows` at once; layout: of its file, unless that is Parquet."""
    if layout is None:
        yield from _parquet_part(part, rows, wanted.needed)
        return
    for cut in _cuts(part, layout):
        if cut.whole or cut.rows:
            yield from _parse(cut, layout, wanted, rows)
        else:
            beginning = cut.data.partition(b"\n")[0].decode(layout.stored, errors="replace")
            raise InputError(f"{part.file} line {cut.line + 1}: {_ENDLESS}; it begins {beginning[:60]!r}")


def first_rows(layout: FileLayout, wanted: Wanted) -> pa.RecordBatch | pd.DataFrame | None:
    """The rows at the beginning of a file, to infer how it is written; None if there are none."""
    head = next(layout.blocks(HEAD), b"")
    parts = cuts([head], layout.mark, start=layout.start, line=layout.line)
    cut = next(parts, None)  # a second cut would be an incomplete record
    if cut is None or not (cut.whole and cut.rows) or (len(head) == HEAD and not cut.data.endswith(b"\n")):
        return None
    chunk = next(_parse(cut, layout, wanted, cut.rows), None)
    return None if chunk is None or len(chunk.numbers) == 0 else chunk.rows


def _cuts(part: FilePart, layout: FileLayout) -> Iterator[Cut]:
    if not layout.divisible:
        yield from cuts(layout.blocks(), layout.mark, line=layout.line)
        return
    start, line = max(part.start, layout.start), max(part.line, layout.line)  # for a file that could not be divided
    to_the_end = replace(layout, start=start).blocks  # may be long
    blocks = to_the_end() if part.stop is None else [place(part.file).read(start, part.stop)]
    for cut in cuts(blocks, layout.mark, start=start, line=line):
        yield cut._replace(row=part.row + cut.row)


def _parse(cut: Cut, layout: FileLayout, wanted: Wanted, rows: int) -> Iterator[ParsedRows]:
    starts, stops = spans(cut.data, layout.mark)

    def written(place: int) -> tuple[int, str]:
        start = int(starts[place])
        raw = cut.data[start : int(stops[place])].rstrip(b"\r").decode(layout.stored, errors="backslashreplace")
        return cut.line + cut.data.count(b"\n", 0, start) + 1, raw[:_KEPT]

    # JSON objects take much memory, so they are parsed as they are used; types in CSV are inferred from many rows.
    step = rows if layout.form == "jsonl" else max(len(starts), 1)
    for base in range(0, len(starts), step):
        some = slice(base, base + step)
        parse = parse_json if layout.form == "jsonl" else parse_csv
        table, records, reasons = parse(cut, layout, wanted, starts[some], stops[some])
        if isinstance(table, pa.Table):
            columns = [column.combine_chunks() for column in table.columns]
            table = pa.RecordBatch.from_arrays(columns, names=table.column_names)
        bad = []
        for row, why in reasons.items():
            line, text = written(base + row)
            bad.append(BadRow(cut.row + base + row, line, why, text))
        for first in range(0, max(len(records), 1), rows):
            places = base + records[first : first + rows]
            part = table.iloc[first : first + rows] if isinstance(table, pd.DataFrame) else table.slice(first, rows)
            written_there = partial(lambda places, i: written(int(places[i])), places)
            yield ParsedRows(part, cut.row + places, bad if first == 0 else [], written_there)


def _parquet_part(part: FilePart, rows: int, needed: Collection[str] | None) -> Iterator[ParsedRows]:
    """Rows start … stop of a Parquet file, from the row groups that hold them."""
    path = place(part.file)
    try:
        with path.fs.open(path.path, "rb") as raw, pq.ParquetFile(raw) as file:
            counts = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
            ends = np.cumsum([0, *counts])
            stop = int(ends[-1]) if part.stop is None else part.stop
            groups = [g for g in range(len(counts)) if ends[g] < stop and ends[g + 1] > part.start]
            row = int(ends[groups[0]]) if groups else stop
            names = file.schema_arrow.names
            plain = check_names(names, part.file)
            used = list(needed) if needed is not None and set(needed) <= set(names) else None
            size = _batch_rows(file, groups, rows)
            reader = file.iter_batches(batch_size=size, row_groups=groups, columns=used, use_threads=False)
            for batch in reader if groups else ():
                if used is None and plain != names:
                    batch = pa.RecordBatch.from_arrays(batch.columns, names=plain)
                skip, end = max(part.start - row, 0), min(stop - row, batch.num_rows)
                if end > skip:
                    yield ParsedRows(batch.slice(skip, end - skip), np.arange(row + skip, row + end))
                row += batch.num_rows
                if row >= stop:
                    return
    except FileNotFoundError:
        raise InputError(f"{part.file} is no longer there; put it back, or start a new run") from None
    except (pa.ArrowException, OSError, EOFError) as error:
        raise InputError(
            f"{part.file} is not a readable Parquet file ({error!s:.200}); repair or replace it, and run again"
        ) from None


def _batch_rows(file: pq.ParquetFile, groups: list[int], rows: int) -> int:
    """How many rows to read at once: fewer where rows are large."""
    n = sum(file.metadata.row_group(group).num_rows for group in groups)
    size = sum(file.metadata.row_group(group).total_byte_size for group in groups)
    return max(1, min(rows, int(LONGEST * n / max(size, 1)))) if n else rows
