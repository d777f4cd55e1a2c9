"""Parquet datasets that are read in batches: folders, globs, URLs, and files larger than memory."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dwac._checks import listed
from dwac.errors import InputError
from dwac.estimator.fit.streams import Chunk, Roles, Stream, open_dataset, stream_of
from dwac.reading.places import room
from dwac.reading.roles import check_columns, looks_like_text
from dwac.reading.rows import Columns, Rows
from dwac.reading.targets import choose_task
from dwac.tasks import LABELS, NUMBERS, ORDERED

_SAMPLE = 100_000  # rows from which the task is inferred
_SHOWN = 5_000  # rows from which the column types are shown
_MOST_TEST = 100_000  # the most test rows, which stay in memory
_SUFFIXES = (".parquet", ".pq")


@dataclass(frozen=True)
class Streamed:
    """A dataset to train on, and the sample of its rows from which dwac inferred the task and columns."""

    stream: Stream
    rows: Rows  # a sample: the target of random rows, the features of the first rows
    test: Rows  # held out


def is_dataset(source: str | PathLike[str], form: str | None = None) -> bool:
    """Whether a source is a Parquet dataset to be read in batches, rather than a file to be read as a whole."""
    name = fspath(source)
    if form not in (None, "parquet") or name == "-":
        return False
    path = Path(name)
    if "://" in name or (glob.has_magic(name) and not path.exists()):
        return True
    if path.is_dir():
        return any(file.suffix.lower() in _SUFFIXES for file in path.rglob("*") if not file.name.startswith("."))
    if path.suffix.lower() not in _SUFFIXES or not path.is_file():
        return False
    try:
        facts = pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False  # reading it as a whole will report the error
    return bool(sum(facts.row_group(group).total_byte_size for group in range(facts.num_row_groups)) > room())


def read_dataset(
    source: str | PathLike[str],
    columns: Columns,
    *,
    task: str | None = None,
    order: Sequence[str] = (),
    test_size: float = 0,
    seed: int = 0,
    ignore: Sequence[str] = (),
) -> Streamed:
    """Infer the task and columns of a dataset from a sample of its rows, as `read` does for a file.

    A given task is kept. Labels stay as they are in the files. test_size: the share, or number, of rows to hold out, at
    most 100,000. ignore: columns that are not used as features.
    """
    name = str(source)
    if columns.target is None:
        names = open_dataset(source).schema.names
        raise InputError(
            f"{name}: which column holds the target? Name it with --target COLUMN; its columns are {names}"
        )
    stream = stream_of(open_dataset(source), Roles(columns.target, columns.id), name)
    if ignore:
        check_columns(pd.DataFrame(columns=stream.data.schema.names), name, columns, ignore)
        wanted = [column for column in stream.features if column not in ignore]
        if not wanted:
            raise InputError(f"{name} must have a column to learn from; {listed(ignore)} ignored; keep one of them")
        stream = replace(stream, roles=replace(stream.roles, features=tuple(wanted)))
    first = next(chunk for chunk in stream.chunks() if len(chunk)).X.head(_SHOWN)
    text = columns.text
    if text is None and first.shape[1] == 1 and looks_like_text(first.iloc[:, 0]):
        text = str(first.columns[0])
    if text is not None:
        stream = stream_of(stream.data, replace(stream.roles, features=(text,)), name)
        first = first[[text]]
    rng = np.random.default_rng(seed)
    drawn = np.sort(rng.choice(stream.n, min(stream.n, _SAMPLE), replace=False))
    some = stream.read(drawn, features=False)
    inferred = task is None
    task, why = _task(some, columns.targets, task, order)
    if inferred and len(some) < stream.n:
        why = f"{why}, in {len(some):,} rows drawn at random"
    columns = replace(columns, text=text)
    test, stream = _held_out(stream, test_size, rng)
    X: Any = first if text is None else first.iloc[:, 0].tolist()
    rows = Rows(X, _values(some.y), [], "tabular" if text is None else "text", columns, task=task, why=why)
    chunk = None if test is None else stream.read(test)
    aside = dict.fromkeys(ignore, "ignored, as you asked")
    return Streamed(stream, replace(rows, ids=[*some.ids], aside=aside), _rows(rows, chunk))


def _task(some: Chunk, targets: Sequence[str], task: str | None, order: Sequence[str]) -> tuple[str, str]:
    if order:
        raise InputError(
            "--order is for data that is read as a whole; write the labels as whole numbers in their order"
        )
    frame = some.y if isinstance(some.y, pd.DataFrame) else pd.DataFrame({targets[0]: some.y})
    task, why = choose_task(frame, targets, lambda row: f"row {some.rows[row]}", task)
    texts = any(isinstance(value, str) for value in frame.iloc[:, 0])
    if texts and task in (ORDERED, NUMBERS):
        raise InputError(f"--task {task} needs numbers in data that is read in batches; {targets[0]!r} holds texts")
    if texts and task == LABELS:
        raise InputError(f"several labels must be lists, or columns of 0 and 1; {targets[0]!r} holds texts")
    return task, why


def _held_out(stream: Stream, size: float, rng: np.random.Generator) -> tuple[NDArray[np.int64] | None, Stream]:
    """The row numbers of the test rows, and the stream without them."""
    n = min(round(size * stream.n) if size < 1 else int(size), _MOST_TEST)
    if n == 0:
        return None, stream
    if stream.n - n < max(10, stream.n // 20):
        raise InputError(f"--test-size {size:g} leaves {stream.n - n} of {stream.n} rows for training; hold out fewer")
    test = np.sort(rng.choice(stream.n, n, replace=False))
    return test, replace(stream, left_out=test)


def _rows(like: Rows, chunk: Chunk | None) -> Rows:
    """The test rows; possibly none."""
    if chunk is None:
        return replace(like, X=like.X[:0], y=like.y[:0], ids=[])
    X: Any = chunk.X if like.kind == "tabular" else chunk.X.iloc[:, 0].tolist()
    return replace(like, X=X, y=_values(chunk.y), ids=[*chunk.ids])


def _values(y: Any) -> Any:
    """The target of some rows, in the form that `Rows` holds."""
    if isinstance(y, pd.DataFrame):
        return y
    if any(isinstance(value, np.ndarray) for value in y.head(1)):
        return [value.tolist() for value in y]
    return y.to_numpy()
