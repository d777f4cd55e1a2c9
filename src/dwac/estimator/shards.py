"""The rows of a sharded model: which network sees which rows, and what is needed to retrain it.

The role of a row follows from its id and the seed alone, by a keyed hash. It does not change when other rows go.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac.errors import InputError
from dwac.estimator.certificate import hash_id, id_text
from dwac.estimator.preparation import Parts, take
from dwac.storage import encode_value
from dwac.storage.parquet import pack_examples, unpack_examples

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TRAINING, VALIDATION, CALIBRATION = range(3)
SHARE = 0.1  # of the rows for validation, and for calibration, by default
FEWEST = 50  # training rows of a shard


@dataclass(frozen=True, eq=False)
class ShardRows:
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

    def at(self, places: Ints) -> ShardRows:
        """The rows at these positions."""
        return ShardRows(
            _trimmed(take(self.X, places)),
            self.ids[places],
            self.codes[places],
            self.exact[places],
            self.weights[places],
            self.shard[places],
            self.role[places],
        )

    def without(self, ids: pd.Index[Any]) -> ShardRows:
        """All rows except these."""
        return self.at(np.flatnonzero(~self.ids.isin(ids)))

    def of(self, shard: int) -> ShardRows:
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
        digest = hashlib.sha256()
        for name in self.ids.tolist():
            digest.update(_text(name))
        if isinstance(self.X, pd.DataFrame):
            digest.update(json.dumps([encode_value(name) for name in self.X.columns]).encode())
            digest.update(pd.util.hash_pandas_object(self.X, index=False).to_numpy().tobytes())
        else:
            digest.update(np.ascontiguousarray(self.X).tobytes())
        for part in (self.codes, self.exact, self.weights):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Shards:
    """How a model was sharded; never changed, only replaced."""

    n: int
    seed: int
    threads: int
    device: str
    rows: ShardRows | None  # None if the model was saved without its examples
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
            pending=(*self.pending, *(hash_id(name) for name in ids[ids.isin(self.rows.ids)])),
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
    shard = np.array([int.from_bytes(drawn_bytes[:8], "little") % n_shards for drawn_bytes in drawn], dtype=np.int64)
    share = np.array([int.from_bytes(drawn_bytes[8:16], "little") / 2**64 for drawn_bytes in drawn])
    role = np.where(share < calibration, CALIBRATION, np.where(share < calibration + validation, VALIDATION, TRAINING))
    return shard, role.astype(np.int64)


def _keyed(seed: int, *parts: bytes) -> bytes:
    digest = hashlib.blake2b(key=seed.to_bytes(8, "little"), digest_size=16)
    for part in parts:
        digest.update(part + b"\0")
    return digest.digest()


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


def require_rows(rows: ShardRows, n_shards: int) -> None:
    """Raise an error if a shard has too few rows to train a network."""
    counts = np.bincount(rows.shard[rows.parts.training], minlength=n_shards)
    if counts.min() < FEWEST:
        raise InputError(
            f"each of {n_shards} shards needs at least {FEWEST} training rows; shard {int(counts.argmin())} has "
            f"{int(counts.min())} of {len(rows)}; use fewer shards"
        )
