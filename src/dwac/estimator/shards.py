"""The rows of a sharded model: which network sees which rows, and what is needed to retrain it.

The role of a row follows from its id and the seed alone, by a keyed hash. It does not change when other rows go.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import InputError, StorageError
from dwac.estimator.certificate import hashed, id_text
from dwac.estimator.preparation import Parts, take
from dwac.storage import encode_value
from dwac.storage.parquet import pack_examples, unpack_examples

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TRAINING, VALIDATION, CALIBRATION = range(3)
SHARE = 0.1  # of the rows for validation, and for calibration, by default
FEWEST = 50  # training rows of a shard


@dataclass(frozen=True, eq=False)
class Rows:
    """n rows of fit: first the training rows, then those for validation, then those for calibration."""

    X: Any  # a DataFrame, or an array of images, as stored in a file
    ids: pd.Index[Any]
    codes: Ints  # (n,) of classes; 0 for other targets
    exact: Floats  # (n, T) numbers, or (n, L) labels as 0 and 1; (n, 0) for classes
    weights: Floats  # (n,) as given
    shard: Ints  # (n,)
    role: Ints  # (n,)

    def __len__(self) -> int:
        return len(self.ids)

    def at(self, places: Ints) -> Rows:
        """The rows at these positions."""
        return Rows(
            _trimmed(take(self.X, places)),
            self.ids[places],
            self.codes[places],
            self.exact[places],
            self.weights[places],
            self.shard[places],
            self.role[places],
        )

    def without(self, ids: pd.Index[Any]) -> Rows:
        """All rows except these."""
        return self.at(np.flatnonzero(~self.ids.isin(ids)))

    def of(self, shard: int) -> Rows:
        """The rows that the network of a shard sees: for training, or for early stopping."""
        return self.at(np.flatnonzero((self.shard == shard) & (self.role != CALIBRATION)))

    @property
    def parts(self) -> Parts:
        """The positions of the rows of each role."""
        return Parts(*(np.flatnonzero(self.role == role) for role in (TRAINING, VALIDATION, CALIBRATION)))

    def seen_by(self, ids: pd.Index[Any]) -> set[int]:
        """The shards whose networks saw these rows."""
        here = self.ids.isin(ids) & (self.role != CALIBRATION)
        return set(self.shard[here].tolist())

    def digest(self) -> str:
        """SHA-256 of ids, contents, targets and weights."""
        found = hashlib.sha256()
        for name in self.ids.tolist():
            found.update(_text(name))
        if isinstance(self.X, pd.DataFrame):
            found.update(json.dumps([encode_value(name) for name in self.X.columns]).encode())
            found.update(pd.util.hash_pandas_object(self.X, index=False).to_numpy().tobytes())
        else:
            found.update(np.ascontiguousarray(self.X).tobytes())
        for part in (self.codes, self.exact, self.weights):
            found.update(np.ascontiguousarray(part).tobytes())
        return found.hexdigest()


@dataclass(frozen=True, eq=False)
class Shards:
    """How a model was sharded; never changed, only replaced."""

    n: int
    seed: int
    threads: int
    device: str
    rows: Rows | None  # None if the model was saved without its examples
    stale: frozenset[int] = frozenset()  # networks that saw rows that were forgotten since
    pending: tuple[str, ...] = ()  # the ids of those rows, hashed, for the next certificate

    def seed_of(self, shard: int) -> int:
        """The seed of a shard's network."""
        return int.from_bytes(_keyed(self.seed, b"network", shard.to_bytes(8, "little"))[:4], "little") >> 1

    def forgot(self, ids: pd.Index[Any]) -> Shards:
        """The same without these rows, which some networks saw."""
        if self.rows is None:
            return self
        return replace(
            self,
            rows=self.rows.without(ids),
            stale=self.stale | self.rows.seen_by(ids),
            pending=(*self.pending, *(hashed(name) for name in ids[ids.isin(self.rows.ids)])),
        )


def deal(ids: pd.Index[Any], seed: int, n_shards: int, validation: float, calibration: float) -> tuple[Ints, Ints]:
    """(shard (n,), role (n,)) of each row, by a hash of its id that is keyed with the seed.

    >>> some, fewer = pd.Index(["a", "b", "c", "d"]), pd.Index(["d", "b"])
    >>> [part[[3, 1]].tolist() for part in deal(some, 0, 2, 0.1, 0.1)]
    [[1, 1], [0, 1]]
    >>> [part.tolist() for part in deal(fewer, 0, 2, 0.1, 0.1)]
    [[1, 1], [0, 1]]
    """
    drawn = [_keyed(seed, b"row", _text(name)) for name in ids.tolist()]
    shard = np.array([int.from_bytes(found[:8], "little") % n_shards for found in drawn], dtype=np.int64)
    share = np.array([int.from_bytes(found[8:16], "little") / 2**64 for found in drawn])
    role = np.where(share < calibration, CALIBRATION, np.where(share < calibration + validation, VALIDATION, TRAINING))
    return shard, role.astype(np.int64)


def _keyed(seed: int, *parts: bytes) -> bytes:
    found = hashlib.blake2b(key=seed.to_bytes(8, "little"), digest_size=16)
    for part in parts:
        found.update(part + b"\0")
    return found.digest()


def _text(name: Any) -> bytes:
    return id_text(name).encode() + b"\n"


def as_stored(X: Any) -> Any:
    """Rows as a model folder restores them, so that training does not depend on whether they were stored."""
    if not isinstance(X, pd.DataFrame):
        return X
    for name in X.columns:
        _require_one_type(X[name])
    return _trimmed(unpack_examples(pack_examples(X.reset_index(drop=True)), "X"))


def _require_one_type(column: pd.Series[Any]) -> None:
    """Refuse a column that one value turns into text: a single row must not decide how the others are read."""
    kinds = {type(value).__name__ for value in column.dropna()} if column.dtype == object else set()
    if len(kinds) > 1:
        raise InputError(
            f"with shards, a column must hold values of one type; {column.name!r} holds {' and '.join(sorted(kinds))}; "
            f"convert it first, e.g. X[{column.name!r}].astype(str)"
        )


def _trimmed(X: Any) -> Any:
    """X without the names of categories that no row has: a deleted row must not leave one behind."""
    if not isinstance(X, pd.DataFrame):
        return X
    named = [name for name in X.columns if isinstance(X[name].dtype, pd.CategoricalDtype)]
    return X.assign(**{name: X[name].cat.remove_unused_categories() for name in named}) if named else X


def require_rows(rows: Rows, n_shards: int) -> None:
    """Raise an error if a shard has too few rows to train a network."""
    counts = np.bincount(rows.shard[rows.parts.training], minlength=n_shards)
    if counts.min() < FEWEST:
        raise InputError(
            f"each of {n_shards} shards needs at least {FEWEST} training rows; shard {int(counts.argmin())} has "
            f"{int(counts.min())} of {len(rows)}; use fewer shards"
        )


# On disk


def pack(shards: Shards | None, *, include_rows: bool) -> tuple[dict[str, Any] | None, dict[str, Tensor]]:
    """(config, tensors) for a model folder, which also stores `frame_of`."""
    if shards is None:
        return None, {}
    rows = shards.rows if include_rows else None
    config = {name: getattr(shards, name) for name in ("n", "seed", "threads", "device")}
    config |= {"stale": sorted(shards.stale), "pending": list(shards.pending), "rows": rows is not None}
    if rows is None:
        return config, {}
    table = isinstance(rows.X, pd.DataFrame)
    names = ("codes", "exact", "weights", "shard", "role")
    tensors = {f"shard_{name}": torch.as_tensor(getattr(rows, name)) for name in names}
    if not table:
        tensors["shard_images"] = torch.as_tensor(rows.X)
    return config, tensors


def frame_of(shards: Shards) -> pd.DataFrame | None:
    """The rows by id, as a table; for images the ids alone."""
    if shards.rows is None:
        return None
    X, ids = shards.rows.X, shards.rows.ids
    return X.set_axis(ids, axis=0) if isinstance(X, pd.DataFrame) else pd.DataFrame(index=ids)


def unpack(
    config: Mapping[str, Any] | None, tensors: Mapping[str, Tensor], frame: pd.DataFrame | None
) -> Shards | None:
    """Restore the shards; an error for inconsistent contents."""
    if config is None:
        return None
    n = checks.positive_int(config["n"], "shards", minimum=2)
    stale, pending = config["stale"], config["pending"]
    whole = all(type(config[name]) is int and config[name] >= 0 for name in ("seed", "threads"))
    if not isinstance(pending, list) or not all(isinstance(each, str) for each in pending):
        raise StorageError("the ids that its next certificate is for must be a list of hashes; they are not")
    if not whole or not isinstance(stale, list) or not all(type(s) is int and 0 <= s < n for s in stale):
        raise StorageError("its shards must have a seed, threads and numbers of shards; they do not")
    rows = _unpack_rows(n, tensors, frame) if config["rows"] else None
    return Shards(
        n, config["seed"], max(1, config["threads"]), str(config["device"]), rows, frozenset(stale), tuple(pending)
    )


def _unpack_rows(n: int, tensors: Mapping[str, Tensor], frame: pd.DataFrame | None) -> Rows:
    if frame is None:
        raise StorageError("the file of the rows that its networks were trained on is missing")
    codes, exact, weights, shard, role = (
        tensors[f"shard_{name}"].numpy() for name in ("codes", "exact", "weights", "shard", "role")
    )
    images = tensors.get("shard_images")
    parts: list[Any] = [frame, codes, exact, weights, shard, role, *([] if images is None else [images])]
    counts = {len(part) for part in parts}
    inside = len(counts) == 1 and ((shard >= 0) & (shard < n)).all() and np.isin(role, range(3)).all()
    if not inside or (np.diff(role) < 0).any() or not frame.index.is_unique:
        raise StorageError("the rows that its networks were trained on do not fit together")
    X = frame.reset_index(drop=True) if images is None else images.numpy()
    return Rows(X, frame.index.rename(None), codes, exact, weights, shard, role)
