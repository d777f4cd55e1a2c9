"""Converts X and y from other libraries for the estimators: polars, Arrow, sparse matrices, a DataLoader.

pandas, NumPy, tensors, lists and streams stay as they are. Answers are NumPy arrays; `transform` follows `set_output`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import torch
from scipy import sparse
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler

from dwac._machine import memory
from dwac.encoders import ModuleEncoder
from dwac.errors import InputError, ShapeError

_ROOM = 0.25  # the share of memory that a sparse table may take once it is dense: encoding it takes as much again
_ROWS = 1_000  # the size to which small batches of a table are joined
_AS_THEY_ARE = (pd.DataFrame, pd.Series, np.ndarray, Tensor, list, tuple, str, pads.Dataset, pa.RecordBatchReader)


def native(X: Any, name: str = "X") -> Any:
    """Rows of another library as pandas or NumPy; everything else unchanged.

    Converts polars frames (also lazy ones) and Series, Arrow tables, objects with an Arrow stream, sparse matrices and
    arrays, and the sparse columns of a frame.
    """
    if isinstance(X, pd.DataFrame) and any(isinstance(dtype, pd.SparseDtype) for dtype in X.dtypes):
        return _dense_frame(X, name)
    if isinstance(X, _AS_THEY_ARE):
        return X
    if sparse.issparse(X):
        return _dense(X, name)
    if type(X).__module__.partition(".")[0] == "polars" and hasattr(X, "collect"):
        X = X.collect()
    if hasattr(X, "to_pandas"):
        return X.to_pandas()
    if hasattr(X, "__arrow_c_stream__"):
        return pa.table(X).to_pandas()
    return X


def _dense(X: Any, name: str) -> np.ndarray[Any, Any]:
    """A sparse table of numbers as an array, if it fits into memory: networks read every number of a row."""
    if X.ndim != 2:
        raise ShapeError(f"{name} must be a table; got sparse data of shape {X.shape}")
    _require_room(X.shape, X.dtype.itemsize, name)
    return np.asarray(X.toarray())


def _dense_frame(X: pd.DataFrame, name: str) -> pd.DataFrame:
    _require_room(X.shape, 8, name)
    columns: list[Any] = [X.iloc[:, i] for i in range(X.shape[1])]
    kept = [part.sparse.to_dense() if isinstance(part.dtype, pd.SparseDtype) else part for part in columns]
    return pd.concat(kept, axis=1) if kept else X


def _require_room(shape: tuple[int, ...], size: int, name: str) -> None:
    n, p = shape
    needed, room = float(n) * p * max(size, 4), _ROOM * memory()
    if needed > room:
        raise InputError(
            f"{name} is sparse, and {n:,} rows of {p:,} columns would take {needed / 1e9:,.1f} GB as numbers; at most "
            f"{room / 1e9:,.1f} GB are allowed here; reduce the columns, e.g. with TruncatedSVD, or predict fewer rows "
            "at a time; texts can be given as they are: fit(texts, y)"
        )


def receive(encoder: Any, X: Any, y: Any, ids: Any) -> tuple[Any, Any]:
    """X and y of fit as pandas, NumPy, tensors, lists or a stream."""
    if not isinstance(X, DataLoader):
        return native(X), native(y, "y")
    if ids is not None and not isinstance(ids, str):
        require_order(X, "ids name rows in the order of the dataset")
    batches, tables = batches_of(X)
    if tables and not isinstance(encoder, torch.nn.Module | ModuleEncoder):
        return batches, y  # a stream
    rows, labels = gather_batches(batches)
    if labels is None and y is not None:
        require_order(X, "y has labels in the order of the dataset")
    if labels is not None and y is not None:
        raise InputError("the batches of the DataLoader have labels, and y was given besides; leave y out")
    return rows, native(y, "y") if labels is None else labels


# DataLoader


def batches_of(loader: DataLoader[Any]) -> tuple[Iterator[Any], bool]:
    """(all batches of a DataLoader, once; whether they are tables of numbers with labels)."""
    batches = iter(loader)
    first = next(batches, None)
    if first is None:
        raise ShapeError("the DataLoader must have at least one batch; it gave none")
    x, y = _pair(first)
    tables = isinstance(x, Tensor) and x.ndim == 2 and y is not None
    every = chain([first], batches)
    return _join_small(every) if tables else every, tables


def _join_small(batches: Iterable[Any]) -> Iterator[Any]:
    """Join small batches: reading one takes about as long as reading a large one, and a DataLoader's default is 1."""
    held: list[Any] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += len(_pair(batch)[0])
        if rows >= _ROWS:
            yield gather_batches(held)
            held, rows = [], 0
    if held:
        yield gather_batches(held)


def gather_batches(batches: Iterable[Any]) -> tuple[Any, Any]:
    """(X, y) of all batches, in memory; y is None if they have no labels. A batch is x, (x, y) or ((x1, x2, …), y)."""
    pairs = [_pair(batch) for batch in batches]
    labels = [y for _, y in pairs]
    return _join([x for x, _ in pairs]), None if labels[0] is None else _join(labels)


def require_order(loader: DataLoader[Any], why: str) -> None:
    """Raise an error for a DataLoader that shuffles."""
    if isinstance(loader.sampler, RandomSampler) and not isinstance(loader.dataset, IterableDataset):
        raise InputError(f"{why}, but this DataLoader shuffles; use one with shuffle=False")


def _pair(batch: Any) -> tuple[Any, Any]:
    """x and y of a batch."""
    if isinstance(batch, list | tuple) and not all(isinstance(part, str) for part in batch):
        if len(batch) > 2:
            raise InputError(f"a batch of the DataLoader must be x, (x, y) or ((x1, x2, …), y); got {len(batch)} parts")
        return (batch[0], batch[1]) if len(batch) == 2 else (batch[0], None)
    return batch, None


def _join(parts: list[Any]) -> Any:
    """Join the same part of all batches."""
    first = parts[0]
    if isinstance(first, Tensor):
        try:
            return torch.cat(parts)
        except RuntimeError as error:
            raise ShapeError(f"all batches of the DataLoader must have rows of one shape: {error}") from None
    if isinstance(first, list | tuple) and len(first) and isinstance(first[0], Tensor):
        return tuple(_join([part[i] for part in parts]) for i in range(len(first)))
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    if isinstance(first, Iterable) and not isinstance(first, str | bytes | dict):
        return [row for part in parts for row in part]
    raise InputError(f"batches of the DataLoader must be tensors, arrays or lists; got {type(first).__name__}")
