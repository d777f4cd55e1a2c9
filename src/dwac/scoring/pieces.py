"""Divide data into pieces, the unit of work: each becomes one shard.

The division depends only on the data: not on workers, engines or an earlier run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dwac._checks import listed
from dwac.errors import InputError
from dwac.reading.layouts import BLOCK, FORMS, cuts, layout_of
from dwac.reading.places import File, compression_of, form_of, place
from dwac.reading.tables import FilePart

# Seconds of work each: enough pieces to keep workers busy to the end, and little to redo if a worker dies.
ROWS, _MOST_ROWS = 2**15, 2**20  # rows of Parquet in a piece
_BYTES = 2**26  # the same, if that is fewer rows
_MOST_BYTES = 2**26  # of CSV and JSON Lines in a piece, which is read at once; the minimum is one block
_PIECES = 2**12  # beyond this number, pieces get larger
_AT_ONCE = 16  # files whose footers are read at the same time


@dataclass(frozen=True)
class Piece:
    """A part of one file: all of it, some rows of Parquet, or a range of bytes. Small, and safe to send to a worker."""

    number: int  # its position among all pieces
    shard: str  # the name of its output: part-<file>-<part of the file>
    file: str  # path or URL
    name: str  # the file relative to the data folder
    form: str  # "parquet", "csv", "tsv" or "jsonl"
    start: int = 0  # of Parquet: the first row; otherwise the first byte
    stop: int | None = None  # where the next piece begins; None: at the end of the file
    row: int = 0  # number of rows of the file before it
    line: int = 0  # number of lines of the file before it
    size: int = 0  # the amount of work, in bytes

    @property
    def part(self) -> FilePart:
        """The part of the file that it covers."""
        return FilePart(self.file, self.form, self.start, self.stop, self.row, self.line)


@dataclass(frozen=True)
class Done:
    """The result of a piece. With an error there is no shard, and the next run tries again."""

    piece: int
    rows: int = 0  # in the shard
    unreadable: int = 0  # rows that could not be read, in the shard or not
    seconds: float = 0.0
    error: str | None = None  # a sentence: the error in the piece, or that its workers died


def shard_name(file: int, part: int) -> str:
    """The name of a shard, without its suffix; it does not depend on the pieces of other files."""
    return f"part-{file:05d}-{part:05d}"


# An engine runs the task on every piece, in any order and anywhere, and yields each result as soon as it is known.
# The task never raises: `Done` holds the error of a piece. If a worker dies, the engine gives its piece to another
# worker; after the third it yields Done(piece.number, error=…). It stops its workers when it is closed.
Engine = Callable[[Callable[[Piece], Done], Iterable[Piece], int, Mapping[str, Any]], Iterator[Done]]


# Planning


def choose_forms(files: Sequence[File], form: str | None, data: str) -> list[tuple[File, str]]:
    """The data files, each with its format; form: the format of all of them, if given."""
    if form is not None and form not in FORMS:
        raise InputError(f"unknown format {form!r}; choose {', '.join(FORMS)}")
    all_files = [(file, form or form_of(file.name) or "") for file in files]
    readable = [(file, each) for file, each in all_files if each and file.size]
    if not readable and any(each for _, each in all_files):
        raise InputError(f"every file of {data} is empty; give a file with data")
    if not readable:
        names = listed([file.name for file, _ in all_files], 5) if all_files else "no file"
        raise InputError(
            f"{data} must hold Parquet, CSV, TSV or JSON Lines files (.parquet, .csv, .tsv, .jsonl, also .gz or .zst); "
            f"got {names}; name the format with --format if file names do not"
        )
    for file, each in readable:
        if each == "parquet" and compression_of(file.name):
            raise InputError(f"{file.url}: Parquet is compressed within; decompress the file and give it as .parquet")
    return readable


def plan(
    files: Sequence[tuple[File, str]],
    encoding: str,
    announce: Callable[[str], None] = lambda _: None,
    separator: str | None = None,
) -> list[list[Piece]]:
    """The pieces of each file. A file that cannot be read is one piece; reading it then reports the error."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        footers = list(pool.map(lambda each: _groups(each[0]) if each[1] == "parquet" else None, files))
    n = sum(rows for groups in footers if groups for rows, _ in groups)
    most_rows = min(max(ROWS, n // _PIECES), _MOST_ROWS)
    most_bytes = min(max(BLOCK, sum(file.size for file, _ in files) // _PIECES), _MOST_BYTES)
    pieces = []
    for index, ((file, form), groups) in enumerate(zip(files, footers, strict=True)):
        whole = Piece(0, "", file.url, file.name, form, size=file.size)
        if form == "parquet":
            parts = [whole] if groups is None else list(_of_groups(whole, groups, most_rows))
        else:
            if file.size > 2**30:
                announce(f"looking for where records end in {file.name}: {file.size / 1e9:,.1f} GB")
            parts = _of_text(whole, encoding, most_bytes, separator)
        pieces.append([replace(part, shard=shard_name(index, number)) for number, part in enumerate(parts)])
    return pieces


def number_pieces(pieces: Sequence[Sequence[Piece]]) -> list[Piece]:
    """All pieces in order, each with its number."""
    return [replace(piece, number=number) for number, piece in enumerate(chain.from_iterable(pieces))]


# Parquet


def _groups(file: File) -> list[tuple[int, int]] | None:
    """(rows, bytes) of each row group; None if the file cannot be read."""
    location = place(file.url)
    try:
        with location.fs.open(location.path, "rb") as raw:
            facts = pq.read_metadata(raw)
        groups = (facts.row_group(group) for group in range(facts.num_row_groups))
        return [(group.num_rows, group.total_byte_size) for group in groups]
    except (pa.ArrowException, OSError, EOFError):
        return None


def _of_groups(whole: Piece, groups: list[tuple[int, int]], most: int) -> Iterator[Piece]:
    """Runs of row groups; a row group that is too large is divided among several pieces."""
    n, size = 0, 0
    start = row = 0
    for rows, volume in groups:
        if n and (n + rows > most or size + volume > _BYTES):
            yield _rows(whole, start, row, size)
            start, n, size = row, 0, 0
        parts = int(np.ceil(max(rows / most, min(volume / _BYTES, rows), 1)))
        if parts > 1:
            edges = np.linspace(row, row + rows, parts + 1).astype(int).tolist()
            yield from (_rows(whole, *ends, volume // parts) for ends in pairwise(edges))
            start = row + rows
        else:
            n, size = n + rows, size + volume
        row += rows
    if n:
        yield _rows(whole, start, row, size)


def _rows(whole: Piece, start: int, stop: int, size: int) -> Piece:
    return replace(whole, start=start, stop=stop, row=start, size=size)


# CSV and JSON Lines


def _of_text(whole: Piece, encoding: str, most: int, separator: str | None) -> list[Piece]:
    """Ranges of bytes that end where records end; the whole file if it cannot be divided."""
    try:
        layout = layout_of(whole.file, whole.form, encoding, separator)
        if not layout.divisible:
            return [whole]
        pieces: list[Piece] = []
        for cut in cuts(layout.blocks(), layout.mark, start=layout.start, line=layout.line):
            stop = cut.start + len(cut.data) if cut.whole else None
            part = replace(whole, start=cut.start, stop=stop, row=cut.row, line=cut.line, size=len(cut.data))
            last = pieces[-1] if pieces else None
            if last is not None and last.stop is not None and stop is not None and stop - last.start <= most:
                pieces[-1] = replace(last, stop=stop, size=stop - last.start)
            else:
                pieces.append(part)
        return pieces
    except (InputError, OSError, EOFError, pa.ArrowException):
        return [whole]


def columns_of(file: File, form: str, encoding: str, separator: str | None = None) -> dict[str, Any]:
    """The columns of a file, with their types if it has types; none if it cannot be read."""
    location = place(file.url)
    try:
        if form == "parquet":
            with location.fs.open(location.path, "rb") as raw:
                return {field.name: field.type for field in pq.read_schema(raw)}
        layout = layout_of(file.url, form, encoding, separator)
        return dict.fromkeys(layout.names)
    except (InputError, OSError, EOFError, pa.ArrowException):
        return {}
