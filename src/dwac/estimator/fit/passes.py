"""The two passes over a stream: a survey of its columns and outcomes, and all training rows, encoded, in files.

The survey also keeps the rows that stay in memory. The files are memory-mapped, and training reads them as if they were
tensors. Rows are dealt like cards into piles, one after the other, and a file holds one pile after another. So rows
that came together, such as all of one class, are spread over the file, and each block of it holds rows from everywhere.
"""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.encoders.summary import TableSummary
from dwac.errors import InputError, LabelError
from dwac.estimator.fit.streams import Chunk, Stream, join_chunks
from dwac.estimator.preparation import finite_weights, part_sizes
from dwac.nn.batches import Inputs

Ints = NDArray[np.int64]

SAMPLE, _CELLS = 200_000, 2 * 10**7  # rows, and cells, of the sample
_MOST_HELD = 100_000  # rows for validation, and as many for calibration: they stay in memory
_RARE, _MOST_RARE = 20, 20_000  # rows that are kept of each outcome, and of all outcomes together
_OUTCOMES = 2**16
_PILES = 256
SPARE = 2**28  # bytes that stay free on the disk
_BLOCK = 2**24  # bytes that are read together
_FEWEST, _MOST = 1024, 2**16  # rows that are read together


@dataclass(frozen=True)
class StreamParts:
    """Numbers of the rows of a stream that are held out, each sorted; all others train."""

    n: int
    validation: Ints
    calibration: Ints
    left_out: Ints
    notes: list[str] = field(default_factory=list)

    @property
    def n_training(self) -> int:
        """How many rows train."""
        return self.n - len(self.held)

    @cached_property
    def held(self) -> Ints:
        """All held-out rows."""
        return np.sort(np.concatenate([self.validation, self.calibration, self.left_out]))

    def training_numbers(self, rows: Ints) -> Ints:
        """The numbers of these training rows, counting training rows only."""
        return np.asarray(rows - np.searchsorted(self.held, rows))

    @classmethod
    def draw(
        cls, stream: Stream, validation_size: float | None, calibration_size: float | None, rng: np.random.Generator
    ) -> StreamParts:
        """Draw held-out rows at random over the whole stream.

        As many as for rows in memory, but at most 100,000 for each part. Unlike there, validation rows are not
        stratified: the classes are not known yet, and rows are many.
        """
        kept = stream.n - len(stream.left_out)
        wanted = part_sizes(kept, validation_size, calibration_size)
        sizes = [min(size, _MOST_HELD) for size in wanted]
        notes = [
            f"{size:,} of the {requested:,} requested rows are held out for {part}, because they stay in memory"
            for part, size, requested in zip(("validation", "calibration"), sizes, wanted, strict=True)
            if size < requested
        ]
        places = rng.choice(kept, sum(sizes), replace=False)
        skipped = stream.left_out - np.arange(len(stream.left_out))
        rows = places + np.searchsorted(skipped, places, side="right")
        return cls(stream.n, np.sort(rows[: sizes[0]]), np.sort(rows[sizes[0] :]), stream.left_out, notes)


class Outcomes:
    """The different outcomes of a stream of labels, and how many training rows have each."""

    def __init__(self) -> None:
        self.counts: dict[Hashable, int] = {}
        self.dtype: Any = None

    def update(self, chunk: Chunk, training: NDArray[np.bool_], each: int = _RARE) -> NDArray[np.bool_]:
        """Count more rows; returns (n,): whether each is among the first training rows of its outcome."""
        keys = keys_of(chunk.y)
        self.dtype = getattr(chunk.y, "dtype", None) if self.dtype is None else self.dtype
        codes, outcomes = pd.factorize(keys)
        before = np.array([self.counts.get(key, 0) for key in outcomes])
        first = np.zeros(len(chunk), dtype=bool)
        if (before < each).any():
            mine = pd.Series(codes[training])
            first[training] = mine.groupby(mine).cumcount().to_numpy() + before[mine] < each
        more = np.bincount(codes[training], minlength=len(outcomes)).tolist()
        self.counts.update({key: int(before[code]) + more[code] for code, key in enumerate(outcomes)})
        if len(self.counts) > _OUTCOMES:
            raise LabelError(f"y has more than {_OUTCOMES:,} different labels; is it a column of classes?")
        return first

    def values(self, y: Any) -> Any:
        """Every outcome twice, in the form of y: enough to learn the target."""
        keys = [*self.counts] * 2
        if isinstance(y, pd.DataFrame):
            return pd.DataFrame(keys, columns=y.columns)
        if any(isinstance(key, tuple) for key in keys):
            return [list(key) for key in keys]  # type: ignore[call-overload]
        return pd.Series(keys, dtype=None if isinstance(self.dtype, pd.CategoricalDtype) else self.dtype)


def keys_of(y: Any) -> pd.Series[Any]:
    """A key for the outcome of each row; an error for a row without one."""
    if isinstance(y, pd.DataFrame):
        gaps = y.isna().any(axis=1)
        keys = pd.Series(list(y.itertuples(index=False, name=None)), dtype=object)
    elif y.dtype == object and any(isinstance(value, list | tuple | np.ndarray) for value in y):
        gaps = y.isna()
        lists = [() if gone else np.asarray(value, dtype=object).tolist() for value, gone in zip(y, gaps, strict=True)]
        keys = pd.Series([tuple(sorted(labels)) for labels in lists], dtype=object)
    else:
        gaps, keys = y.isna(), y.astype(object).reset_index(drop=True)
    if gaps.any():
        row = int(np.argmax(gaps.to_numpy()))
        raise LabelError(f"y must not have missing labels; row {row} has none", rows={row: "y has no label"})
    return keys


@dataclass
class Survey:
    """The results of one pass over a stream, and the rows that it kept."""

    rows: int  # training rows
    table: TableSummary | None  # of the features of training rows; None for texts
    outcomes: Outcomes | None  # None for numbers, for which the sample is enough
    sample: Chunk  # training rows, drawn at random
    rare: Chunk | None  # some training rows of every outcome
    validation: Chunk
    calibration: Chunk
    mean_weight: float

    @property
    def complete(self) -> bool:
        """Whether the sample holds every training row."""
        return len(self.sample) == self.rows


def survey(stream: Stream, parts: StreamParts, rng: np.random.Generator, *, table: bool, labels: bool) -> Survey:
    """Make one pass over all rows. table: summarise the features. labels: y holds labels rather than numbers."""
    most = max(2, min(SAMPLE, _CELLS // len(stream.features)))
    n = parts.n_training
    numbers = np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))
    summary, outcomes = TableSummary() if table else None, Outcomes() if labels else None
    kept: dict[str, list[Chunk]] = {"sample": [], "rare": [], "validation": [], "calibration": []}
    total, n_rare = 0.0, 0
    for chunk, training in parts_of(stream, parts):
        trains, first = chunk.take(training), np.zeros(len(chunk), dtype=bool)
        with located(trains.rows):
            if summary is not None:
                summary.update(trains.X.reset_index(drop=True))
            if trains.weights is not None:
                total += float(finite_weights(trains.weights).sum())
        with located(chunk.rows):
            if outcomes is not None:
                first = outcomes.update(chunk, training, _RARE if n_rare < _MOST_RARE else 1)
        sampled = np.isin(parts.training_numbers(trains.rows), numbers, assume_unique=True)
        kept["sample"].append(trains.take(sampled))
        if n > most:
            kept["rare"].append(chunk.take(first))
            n_rare += len(kept["rare"][-1])
        kept["validation"].append(chunk.take(np.isin(chunk.rows, parts.validation)))
        kept["calibration"].append(chunk.take(np.isin(chunk.rows, parts.calibration)))
    rows_of = {name: join_chunks(_some(chunks)) for name, chunks in kept.items() if chunks}
    return Survey(
        n,
        summary,
        outcomes,
        rows_of["sample"],
        rows_of.get("rare"),
        rows_of["validation"],
        rows_of["calibration"],
        total / n if stream.roles.weights is not None else 1.0,
    )


def _some(chunks: list[Chunk]) -> list[Chunk]:
    """The chunks that have rows, or else one empty chunk."""
    return [chunk for chunk in chunks if len(chunk)] or chunks[:1]


def parts_of(stream: Stream, parts: StreamParts) -> Iterator[tuple[Chunk, NDArray[np.bool_]]]:
    """The chunks of a stream without the rows left out, each with a mask (n,) of those that train."""
    held = parts.held
    for chunk in stream.chunks():
        kept = chunk.take(~np.isin(chunk.rows, parts.left_out)) if len(parts.left_out) else chunk
        if len(kept):
            yield kept, ~np.isin(kept.rows, held)


@contextmanager
def located(rows: Ints) -> Iterator[None]:
    """Translate row positions in errors, which count from 0, into these row numbers of the data."""
    try:
        yield
    except InputError as error:
        if error.rows:
            place = min(error.rows)
            why = f"{error.rows[place]} in row {rows[place]:,} of the data; drop or repair such rows"
            raise type(error)(why, rows={int(rows[place]): error.rows[place]}) from None
        if len(rows) and rows[0] > 0:
            raise type(error)(f"{error} (counting from row {rows[0]:,} of the data)") from None
        raise


# The second pass


@contextmanager
def workspace(checkpoint: str | PathLike[str] | None) -> Iterator[Path]:
    """A folder that exists during a fit: beside the checkpoint, or among the temporary files."""
    beside = None if checkpoint is None else Path(checkpoint).absolute().parent
    with _ended_in_order(), TemporaryDirectory(prefix="dwac-", dir=beside, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Make SIGTERM end the process like an exception, so that its files are removed."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Spool:
    """n encoded rows in files, filled in order; afterwards each part is one tensor.

    Args:
        folder: where the files are.
        n: the number of rows.
        parts: tensors of some rows, by name, which give the types and shapes for all rows.
        written: whether another process has written the files.
    """

    def __init__(self, folder: Path, n: int, parts: dict[str, Tensor], *, written: bool = False) -> None:
        self.n, self.filled = n, 0
        self.row_bytes = sum(part[:1].numel() * part.element_size() for part in parts.values())
        if not written:
            require_room(folder, n * self.row_bytes)
        self._files: dict[str, Any] = {}
        for name, part in parts.items():
            shape = (n, *part.shape[1:])
            kind = part.numpy().dtype
            # A file cannot be empty, and neither can a map of it.
            self._files[name] = (
                np.memmap(folder / f"{name}.rows", kind, "r+" if written else "w+", shape=shape)
                if np.prod(shape)
                else np.zeros(shape, kind)
            )
        sizes = np.array([len(range(pile, n, _PILES)) for pile in range(_PILES)])
        self._starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])

    def places(self, numbers: Ints) -> Ints:
        """The positions of rows in the files, given their numbers in the order of arrival."""
        return np.asarray(self._starts[numbers % _PILES] + numbers // _PILES)

    def write(self, parts: dict[str, Tensor]) -> None:
        """Write the next rows."""
        count = len(next(iter(parts.values())))
        places = self.places(np.arange(self.filled, self.filled + count))
        for name, part in parts.items():
            self._files[name][places] = part.numpy()
        self.filled += count

    def tensor(self, name: str) -> Tensor:
        """One part of all rows, in the order of the files; it stays on disk."""
        return torch.from_numpy(self._files[name])

    def tensors(self, prefix: str) -> Inputs:
        """All parts whose names begin with the prefix, in order."""
        return tuple(self.tensor(name) for name in self._files if name.startswith(prefix))

    def counts(self, name: str, most: int) -> Ints:
        """(most,): how often each of the numbers 0 … most-1 occurs in a part."""
        part = self.tensor(name)
        counts = sum(torch.bincount(part[block], minlength=most) for block in self.blocks())
        return np.asarray(counts)

    @property
    def block_rows(self) -> int:
        """How many rows to read together."""
        return int(np.clip(_BLOCK // max(1, self.row_bytes), _FEWEST, _MOST))

    def blocks(self) -> Iterator[slice]:
        """Slices that cover all rows, in the order of the files."""
        for start in range(0, self.n, self.block_rows):
            yield slice(start, start + self.block_rows)


def require_room(folder: Path, needed: int) -> None:
    """Raise an error unless the disk has room for the needed bytes."""
    free = shutil.disk_usage(folder).free
    if needed + SPARE > free:
        raise InputError(
            f"training on rows that are read in batches writes {needed / 1e9:,.1f} GB to {folder.parent}, where "
            f"{free / 1e9:,.1f} GB are free; free some, or set TMPDIR to a folder on a larger disk"
        )
