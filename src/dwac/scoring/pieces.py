"""The unit of work: a piece of the data, which becomes one shard. All that engines need to know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Piece:
    """A part of one file: all of it, some rows of Parquet, or a range of bytes. Small, and safe to send to a worker."""

    number: int  # among all pieces
    shard: str  # the name of what comes of it: part-<file>-<part of the file>
    file: str  # path or URL
    name: str  # the file as seen from the data
    form: str  # "parquet", "csv", "tsv" or "jsonl"
    start: int = 0  # of Parquet: the first row; otherwise the first byte
    stop: int | None = None  # where the next piece begins; None: at the end of the file
    row: int = 0  # how many rows of the file come before it
    line: int = 0  # how many lines of the file come before it
    size: int = 0  # how much work it is, in bytes


@dataclass(frozen=True)
class Done:
    """What came of a piece. With an error there is no shard, and the next run tries again."""

    piece: int
    rows: int = 0  # in the shard
    unreadable: int = 0  # rows that could not be read, in the shard or not
    seconds: float = 0.0
    error: str | None = None  # a sentence: what is wrong with the piece, or that its workers died


def shard_name(file: int, part: int) -> str:
    """The name of a shard, without its ending: pieces of other files do not change it."""
    return f"part-{file:05d}-{part:05d}"


# An engine runs the task on every piece, in any order and anywhere, and gives what came of each as soon as it is known.
# The task raises nothing: what is wrong with a piece is in its `Done`. An engine gives a piece whose worker died to
# another worker, and after the third gives Done(piece.number, error=…). It stops its workers when it is closed.
Engine = Callable[[Callable[[Piece], Done], Iterable[Piece], int, Mapping[str, Any]], Iterator[Done]]
