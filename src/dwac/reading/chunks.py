"""Read the rows of a part of a file in batches; rows that cannot be parsed are set aside with the reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dwac.errors import InputError
from dwac.reading.layouts import HEAD, Layout, named
from dwac.reading.parsing import Wanted, parse_csv, parse_json
from dwac.reading.places import place
from dwac.reading.records import LONGEST, Cut, cuts, spans

_ENDLESS = f"a quote that opens in this row is not closed within {LONGEST // 2**20} MiB; close or double it"
_KEPT = 2**16  # characters of a bad row that are kept


class Bad(NamedTuple):
    """A row that could not be read."""

    row: int  # in its file, from 0
    line: int | None  # from 1; None for Parquet
    why: str
    text: str | None  # as it was written


class Part(NamedTuple):
    """A part of a file: all of it, some rows of Parquet, or a range of bytes."""

    file: str  # path or URL
    form: str  # "parquet", "csv", "tsv" or "jsonl"
    start: int = 0  # of Parquet: the first row; otherwise the first byte
    stop: int | None = None  # where the next part begins; None: at the end of the file
    row: int = 0  # number of rows of the file before it
    line: int = 0  # number of lines of the file before it


@dataclass(frozen=True)
class Chunk:
    """Some rows of a part: those that could be parsed, and those that could not."""

    rows: pa.RecordBatch | pd.DataFrame
    numbers: NDArray[np.int64]  # row numbers in the file, of the parsed rows
    bad: list[Bad] = field(default_factory=list)
    written: Callable[[int], tuple[int | None, str | None]] = lambda _: (None, None)  # place in rows → (line, text)


def chunks(part: Part, layout: Layout | None, rows: int, wanted: Wanted) -> Iterator[Chunk]:
    """The rows of a part in order, at most `rows` at once; layout: of its file, unless that is Parquet."""
    if layout is None:
        yield from _parquet(part, rows, wanted.needed)
        return
    for cut in _cuts(part, layout):
        if cut.whole or cut.rows:
            yield from _parse(cut, layout, wanted, rows)
        else:
            beginning = cut.data.partition(b"\n")[0].decode(layout.stored, errors="replace")
            raise InputError(f"{part.file} line {cut.line + 1}: {_ENDLESS}; it begins {beginning[:60]!r}")


def first_rows(layout: Layout, wanted: Wanted) -> pa.RecordBatch | pd.DataFrame | None:
    """The rows at the beginning of a file, to infer how it is written; None if there are none."""
    head = next(layout.blocks(HEAD), b"")
    parts = cuts([head], layout.mark, start=layout.start, line=layout.line)
    cut = next(parts, None)  # a second cut would be an incomplete record
    if cut is None or not (cut.whole and cut.rows) or (len(head) == HEAD and not cut.data.endswith(b"\n")):
        return None
    chunk = next(_parse(cut, layout, wanted, cut.rows), None)
    return None if chunk is None or len(chunk.numbers) == 0 else chunk.rows


def _cuts(part: Part, layout: Layout) -> Iterator[Cut]:
    if not layout.divisible:
        yield from cuts(layout.blocks(), layout.mark, line=layout.line)
        return
    start, line = max(part.start, layout.start), max(part.line, layout.line)  # for a file that could not be divided
    to_the_end = replace(layout, start=start).blocks  # may be long
    blocks = to_the_end() if part.stop is None else [place(part.file).read(start, part.stop)]
    for cut in cuts(blocks, layout.mark, start=start, line=line):
        yield cut._replace(row=part.row + cut.row)


def _parse(cut: Cut, layout: Layout, wanted: Wanted, rows: int) -> Iterator[Chunk]:
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
        table, kept, reasons = parse(cut, layout, wanted, starts[some], stops[some])
        table = table if isinstance(table, pd.DataFrame) else _one_batch(table)
        bad = []
        for row, why in reasons.items():
            line, text = written(base + row)
            bad.append(Bad(cut.row + base + row, line, why, text))
        yield from _cut_up(table, kept + base, bad, cut, rows, written)


def _cut_up(
    table: Any, kept: NDArray[np.int64], bad: list[Bad], cut: Cut, rows: int, written: Callable[[int], tuple[int, str]]
) -> Iterator[Chunk]:
    """Parsed rows, at most `rows` at once; kept: their record numbers in the cut."""
    for first in range(0, max(len(kept), 1), rows):
        some = kept[first : first + rows]
        part = table.iloc[first : first + rows] if isinstance(table, pd.DataFrame) else table.slice(first, rows)
        yield Chunk(part, cut.row + some, bad if first == 0 else [], lambda i, some=some: written(int(some[i])))  # type: ignore[misc]


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    columns = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, names=table.column_names)


# Parquet


def _parquet(part: Part, rows: int, needed: Collection[str] | None) -> Iterator[Chunk]:
    """Rows start … stop of a Parquet file, from the row groups that hold them."""
    there = place(part.file)
    try:
        with there.fs.open(there.path, "rb") as raw, pq.ParquetFile(raw) as file:
            counts = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
            ends = np.cumsum([0, *counts])
            stop = int(ends[-1]) if part.stop is None else part.stop
            groups = [g for g in range(len(counts)) if ends[g] < stop and ends[g + 1] > part.start]
            row = int(ends[groups[0]]) if groups else stop
            names = file.schema_arrow.names
            plain = named(names, part.file)
            used = list(needed) if needed is not None and set(needed) <= set(names) else None
            size = _batch_rows(file, groups, rows)
            reader = file.iter_batches(batch_size=size, row_groups=groups, columns=used, use_threads=False)
            for batch in reader if groups else ():
                if used is None and plain != names:
                    batch = pa.RecordBatch.from_arrays(batch.columns, names=plain)
                skip, end = max(part.start - row, 0), min(stop - row, batch.num_rows)
                if end > skip:
                    yield Chunk(batch.slice(skip, end - skip), np.arange(row + skip, row + end))
                row += batch.num_rows
                if row >= stop:
                    return
    except FileNotFoundError:
        raise InputError(f"{part.file} is gone since the run was planned; put it back, or start a new run") from None
    except (pa.ArrowException, OSError, EOFError) as error:
        raise InputError(
            f"{part.file} is not a readable Parquet file ({error!s:.200}); repair or replace it, and run again"
        ) from None


def _batch_rows(file: pq.ParquetFile, groups: list[int], rows: int) -> int:
    """How many rows to read at once: fewer where rows are large."""
    n = sum(file.metadata.row_group(group).num_rows for group in groups)
    size = sum(file.metadata.row_group(group).total_byte_size for group in groups)
    return max(1, min(rows, int(LONGEST * n / max(size, 1)))) if n else rows
