"""Rows that do not fit into memory: an Arrow dataset, or batches from anywhere, read as often as needed.

stream = open_stream(pyarrow.dataset.dataset("rows/"), Roles("income"), folder)
for chunk in stream.chunks():
    chunk.X, chunk.y, chunk.ids          # as `fit` takes them

Batches that can be read only once are written to a file first.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from dwac._checks import listed, suggested
from dwac.encoders.base import array_of
from dwac.errors import InputError, ShapeError
from dwac.estimator.containers import native
from dwac.estimator.preparation import empty_texts, warn_of_empty

Ints = NDArray[np.int64]

_CELLS, _MOST_ROWS, _FEWEST_ROWS = 2**20, 2**16, 2**10  # of a batch
_TARGET = "__target__"  # the column to which the y of pairs (X, y) is written
_INDEX = "__index_level_0__"  # the column to which pandas writes an unnamed index: not a feature
_HELD = (pd.DataFrame, pa.RecordBatch, pa.Table)


@dataclass(frozen=True)
class Roles:
    """The columns of a stream with a special role; all others are features, unless features are named."""

    target: str | Sequence[str] | None = None
    ids: str | None = None
    weights: str | None = None
    within: str | None = None
    features: Sequence[str] | None = None

    @property
    def targets(self) -> list[str]:
        """The columns of the target."""
        return [] if self.target is None else [self.target] if isinstance(self.target, str) else list(self.target)

    @property
    def named(self) -> list[str]:
        """All columns with a role other than that of a feature."""
        return [*self.targets, *(name for name in (self.ids, self.weights, self.within) if name is not None)]


@dataclass(frozen=True)
class Chunk:
    """Some rows of a stream."""

    rows: Ints  # (n,): their numbers in the stream
    X: pd.DataFrame
    y: Any  # Series, or DataFrame of several columns
    ids: pd.Index[Any]  # from a column, or else the row numbers
    weights: pd.Series[Any] | None
    within: pd.Series[Any] | None

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, places: Any) -> Chunk:
        """Some of the rows, by a mask or by position in the chunk."""
        return Chunk(
            self.rows[places],
            self.X.iloc[places],
            self.y.iloc[places],
            self.ids[places],
            None if self.weights is None else self.weights.iloc[places],
            None if self.within is None else self.within.iloc[places],
        )


def join_chunks(chunks: Sequence[Chunk]) -> Chunk:
    """Join chunks into one."""
    first = chunks[0]
    if len(chunks) == 1:
        return first
    ids = [chunk.ids for chunk in chunks]
    return Chunk(
        np.concatenate([chunk.rows for chunk in chunks]),
        pd.concat([chunk.X for chunk in chunks], ignore_index=True),
        pd.concat([chunk.y for chunk in chunks], ignore_index=True),
        ids[0].append(ids[1:]),
        None if first.weights is None else pd.concat([chunk.weights for chunk in chunks], ignore_index=True),
        None if first.within is None else pd.concat([chunk.within for chunk in chunks], ignore_index=True),
    )


@dataclass(frozen=True)
class Stream:
    """Rows of a dataset, with the roles of their columns.

    left_out: sorted numbers of rows that `fit` must not see, such as test rows.
    """

    data: pads.Dataset
    roles: Roles
    n: int  # rows in the dataset
    names: Mapping[str, Any] = field(default_factory=dict)  # original names of columns whose names were not text
    texts: bool = False  # whether batches were lists of texts
    left_out: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def features(self) -> list[str]:
        """The columns to learn from."""
        if self.roles.features is not None:
            return list(self.roles.features)
        return [name for name in self.data.schema.names if name not in {*self.roles.named, _INDEX}]

    def chunks(self, *, features: bool = True) -> Iterator[Chunk]:
        """All rows in order, in chunks. features: False reads only the other columns."""
        roles = self.roles
        columns = list(dict.fromkeys([*(self.features if features else []), *roles.named]))
        size = int(np.clip(_CELLS // max(1, len(columns)), _FEWEST_ROWS, _MOST_ROWS))
        start = 0
        for batch in _scanned(self.data, columns, size):
            frame: pd.DataFrame = batch.to_pandas(date_as_object=False, ignore_metadata=True)
            rows = np.arange(start, start + len(frame))
            start += len(frame)
            y = frame[roles.targets].rename(columns=self.names)
            yield Chunk(
                rows,
                frame[self.features if features else []].rename(columns=self.names),
                y
                if len(roles.targets) != 1
                else y.iloc[:, 0].rename(None if y.columns[0] == _TARGET else y.columns[0]),
                pd.Index(rows if roles.ids is None else frame[roles.ids].tolist(), tupleize_cols=False),
                None if roles.weights is None else frame[roles.weights],
                None if roles.within is None else frame[roles.within],
            )
        if start != self.n:
            raise InputError(f"the rows must not change while they are read: {self.n:,} before, {start:,} now")

    def read(self, rows: Ints, *, features: bool = True) -> Chunk:
        """The rows with these sorted numbers, in one pass over all rows."""
        chunks = [chunk.take(np.isin(chunk.rows, rows)) for chunk in self.chunks(features=features)]
        return join_chunks([chunk for chunk in chunks if len(chunk)] or chunks[:1])

    def read_all(self) -> Chunk:
        """All rows except those left out, in memory."""
        return join_chunks([chunk.take(~np.isin(chunk.rows, self.left_out)) for chunk in self.chunks()])

    def without_empty_texts(self) -> Stream:
        """The rows whose text, their only column, is not empty; a warning counts the others."""
        empty = np.concatenate([chunk.rows[empty_texts(chunk.X.iloc[:, 0])] for chunk in self.chunks()])
        empty = np.setdiff1d(empty, self.left_out)
        warn_of_empty(empty, self.n - len(self.left_out))
        return replace(self, left_out=np.union1d(self.left_out, empty))


def is_stream(X: Any) -> bool:
    """Whether X is read in batches: an Arrow dataset, the path of one, or an iterable of batches."""
    if isinstance(X, Stream | pads.Dataset | pa.RecordBatchReader | str | PathLike):
        return True
    if isinstance(X, list):
        return len(X) > 0 and all(isinstance(part, _HELD) or hasattr(part, "to_pandas") for part in X)
    held = (tuple, pd.DataFrame, pd.Series, np.ndarray, Tensor, Dataset, Mapping, bytes, set, frozenset)
    arrays = any(hasattr(X, name) for name in ("to_pandas", "__array__", "toarray", "__getitem__", "shape"))
    return isinstance(X, Iterable) and not isinstance(X, held) and not arrays


def open_stream(X: Any, roles: Roles, folder: Path) -> Stream:
    """The rows of X as a stream; folder: where to write batches that cannot be read twice."""
    if isinstance(X, Stream):
        return X
    if isinstance(X, str | PathLike):
        X = open_dataset(X)
    if isinstance(X, pads.Dataset):
        return stream_of(X, roles)
    data, roles, names, texts = _spooled(X, roles, folder)
    return replace(stream_of(data, roles), names=names, texts=texts)


def stream_of(data: pads.Dataset, roles: Roles, name: str = "the data") -> Stream:
    """A dataset as a stream; an error if it lacks a column or has no rows. name: names the data in messages."""
    if not roles.targets:
        raise InputError(f"which column holds the target? y must name it; {_columns(data)}")
    if not all(isinstance(column, str) for column in roles.named):
        raise InputError(
            "for rows that are read in batches, y, sample_weight, ids and within must be names of columns; got "
            f"{next(column for column in roles.named if not isinstance(column, str))!r:.60}"
        )
    for column in [*roles.named, *(roles.features or ())]:
        if column not in data.schema.names:
            near = suggested(column, data.schema.names)
            raise InputError(f"{name} has no column {column!r}; {near}{_columns(data)}")
    for column in roles.targets:
        kind = data.schema.field(column).type
        if pa.types.is_dictionary(kind) and kind.ordered:  # the file does not keep the order
            raise InputError(f"{column!r} holds ordered categories; write them as whole numbers, and set ordered=True")
    try:
        _require_alike(data)
        n = data.count_rows()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{name} cannot be read: {error!s:.300}") from None
    stream = Stream(data, roles, n)
    if not stream.features:
        raise InputError(f"{name} must have a column to learn from besides {listed(roles.named)}; add at least one")
    if n == 0:
        raise ShapeError(f"{name} must have at least one row; it has columns but no rows")
    return stream


def open_dataset(source: str | PathLike[str]) -> pads.Dataset:
    """A Parquet file, a folder of them, a glob such as data/*.parquet, or a URL of these that fsspec can open."""
    name = fspath(source)
    try:
        if "://" in name:
            from fsspec.core import url_to_fs  # late: only for URLs

            files, path = url_to_fs(name)
            paths: Any = sorted(files.glob(path)) if glob.has_magic(path) else path
            return _parquet(paths, name, filesystem=files)
        if glob.has_magic(name) and not Path(name).exists():
            return _parquet(sorted(glob.glob(name, recursive=True)), name)
        if not Path(name).exists():
            raise InputError(f"there is no file or folder {name!r}; check the path")
        return _parquet(name, name)
    except ImportError as error:
        raise InputError(f"{name} needs a package that is not installed: {error}; install it") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{name} must be a dataset of readable Parquet files: {error!s:.300}") from None


def _parquet(paths: Any, name: str, **options: Any) -> pads.Dataset:
    if isinstance(paths, list) and not paths:
        raise InputError(f"no file matches {name!r}; check the pattern, and quote it for the shell")
    dataset = pads.dataset(paths, format="parquet", partitioning="hive", **options)
    if not dataset.files:
        raise InputError(f"{name} must hold Parquet files; it holds none")
    return dataset


def _require_alike(data: pads.Dataset) -> None:
    """Raise an error that names the first file with other columns: Arrow would fill them with gaps."""
    if not isinstance(data, pads.FileSystemDataset):
        return
    first: tuple[str, set[str]] | None = None
    for part in data.get_fragments():
        names = set(part.physical_schema.names)
        first = first or (part.path, names)
        missing, more = sorted(first[1] - names), sorted(names - first[1])
        if missing or more:
            what = f"lacks {listed(missing)}" if missing else f"has {listed(more)} besides"
            raise InputError(
                f"all files must have the columns of {first[0]}; {part.path} {what}; leave it out or repair it"
            )


def _scanned(data: pads.Dataset, columns: list[str], size: int) -> Iterator[pa.RecordBatch]:
    """The batches of a dataset in order, at most one row group of Parquet in memory.

    A scan of a whole file reads ahead of a slow reader without limit, and keeps its buffers until the end.
    """
    options: dict[str, Any] = {"schema": data.schema, "columns": columns, "batch_size": size, "batch_readahead": 1}
    try:
        for part in data.get_fragments():
            pieces = [part]
            if isinstance(part, pads.ParquetFileFragment):
                pieces = part.split_by_row_group()
                options["fragment_scan_options"] = pads.ParquetFragmentScanOptions(pre_buffer=False)
            for piece in pieces:
                yield from piece.to_batches(**options)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"the rows cannot be read: {error!s:.300}; repair or leave out that file") from None


def _columns(data: pads.Dataset) -> str:
    return f"its columns are {listed(data.schema.names, 20)}"


# Batches that can be read only once


def _spooled(batches: Any, roles: Roles, folder: Path) -> tuple[pads.Dataset, Roles, dict[str, Any], bool]:
    """Write batches to files, a new one whenever types differ: (dataset, roles, names of columns, whether texts)."""
    schemas: list[pa.Schema] = []
    names: dict[str, Any] = {}
    paths: list[str] = []
    texts, given = False, roles
    writer: pq.ParquetWriter | None = None
    try:
        for number, batch in enumerate(batches):
            table, columns, roles = _as_table(batch, given, number)
            texts = isinstance(batch, tuple | list) and isinstance(batch[0], list) and columns.get("text") == "text"
            if number and list(columns) != list(names):
                wrong = f"batch {number} has {listed(list(columns))}"
                raise InputError(f"all batches must have the columns {listed(list(names))}; {wrong}")
            names = columns
            if not schemas or not table.schema.equals(schemas[-1], check_metadata=False):
                schemas.append(table.schema.remove_metadata())
                if writer is not None:
                    writer.close()
                paths.append(str(folder / f"batches-{len(paths)}.parquet"))
                writer = pq.ParquetWriter(paths[-1], schemas[-1])
            assert writer is not None
            writer.write_table(table.cast(schemas[-1]))
    finally:
        if writer is not None:
            writer.close()
    if not paths:
        raise ShapeError("at least one batch of rows is needed; the iterable gave none")
    try:
        schema = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(f"all batches must have columns of the same types: {error!s:.300}; convert them") from None
    kept = {written: given for written, given in names.items() if written != given}
    return pads.dataset(paths, format="parquet", schema=schema), roles, kept, texts


def _as_table(batch: Any, roles: Roles, number: int) -> tuple[pa.Table, dict[str, Any], Roles]:
    """(table, original names by column, roles) of a batch."""
    y = None
    if isinstance(batch, tuple | list) and len(batch) == 2 and not isinstance(batch[0], str):
        batch, y = batch
        if roles.target is not None:
            raise InputError("the target is in the pairs (X, y) of the batches; leave y out, or give batches of rows")
    if not isinstance(batch, pa.RecordBatch | pa.Table):
        batch, y = native(batch), native(y, "y")
    if isinstance(batch, pa.RecordBatch):
        batch = pa.Table.from_batches([batch])
    if isinstance(batch, pa.Table):
        frame, names = None, {name: name for name in batch.column_names}
    else:
        frame = _as_frame(batch, number)
        names = {str(name): name for name in frame.columns}
        if len(names) < frame.shape[1]:
            raise InputError(f"column names must be unique; batch {number} has {listed(frame.columns.tolist())}")
    try:
        table = batch if frame is None else pa.Table.from_pandas(frame.set_axis([*names], axis=1), preserve_index=False)
        if y is not None:
            targets = _target_columns(y, table.num_rows, number)
            for name, values in targets.items():
                table = table.append_column(name, pa.array(values, from_pandas=True))
            numbered = {f"{_TARGET}{place}": place for place in range(len(targets))}
            names |= {name: numbered.get(name, name) for name in targets}
            roles = replace(roles, target=next(iter(targets)) if len(targets) == 1 else [*targets])
    except (pa.ArrowException, OverflowError) as error:
        raise InputError(f"batch {number} must hold columns of one type each: {error!s:.300}; convert them") from None
    return table, names, roles


def _as_frame(batch: Any, number: int) -> pd.DataFrame:
    if isinstance(batch, pd.DataFrame):
        return batch
    if isinstance(batch, list | pd.Series) and all(isinstance(text, str) for text in batch):
        return pd.DataFrame({"text": list(batch)})
    array = array_of(batch) if isinstance(batch, Tensor) else np.asarray(batch) if hasattr(batch, "__array__") else None
    if array is None or array.ndim != 2:
        what = type(batch).__name__ if array is None else f"an array of shape {array.shape}"
        raise InputError(
            f"batches must be record batches, DataFrames, or pairs (X, y) of a table or a list of texts and labels; "
            f"batch {number} is {what}; images must be given as a whole: fit(X, y)"
        )
    return pd.DataFrame(array)


def _target_columns(y: Any, n: int, number: int) -> dict[str, Any]:
    """The columns that hold the y of a pair."""
    y = array_of(y) if isinstance(y, Tensor) else y
    if isinstance(y, pd.DataFrame):
        columns: dict[str, Any] = {str(name): y[name].to_numpy() for name in y.columns}
    elif getattr(y, "ndim", 1) == 2:
        columns = {f"{_TARGET}{place}": np.asarray(y)[:, place] for place in range(y.shape[1])}
    else:
        columns = {_TARGET: y if isinstance(y, pd.Series | np.ndarray) else list(y)}
    if any(len(values) != n for values in columns.values()):
        raise ShapeError(f"y must have one entry per row of X; batch {number} has {n} rows")
    return columns
