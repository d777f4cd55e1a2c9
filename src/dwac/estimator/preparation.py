"""Prepares X and y for training: label codes, ids, disjoint parts, weights; and keeps the training examples.

Nothing here depends on a network.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from dwac._checks import listed, suggested, warn
from dwac.encoders import TabularEncoder, choose
from dwac.encoders.columns import plain_values
from dwac.encoders.text import is_empty
from dwac.errors import IdError, InputError, LabelError, NonFiniteError, ShapeError
from dwac.estimator.containers import native
from dwac.estimator.settings import listed_columns
from dwac.tasks import Target

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_ENOUGH = 1_000  # rows: above this, a held-out part grows more slowly
_MOST_VALIDATION, _MOST_CALIBRATION = 5_000, 10_000
_RECORDS = 64  # rows of a table that become records together, and how many such blocks are kept


# X: rows


def rows_of(X: Any) -> Any:
    """X as something with rows to count and take: a DataFrame, Series, array, tensor, list, or tuple of these."""
    X = native(X)
    if isinstance(X, pd.DataFrame | pd.Series | np.ndarray | Tensor | list | tuple):
        rows = X
    elif hasattr(X, "__array__"):
        rows = np.asarray(X)
    else:
        raise InputError(f"X must hold one example per row; got a {type(X).__name__}")
    if getattr(rows, "shape", None) == ():
        raise ShapeError("X must hold one example per row; got a single number. Reshape your data")
    if count(rows) == 0:
        raise ShapeError(f"0 sample(s) (shape={getattr(rows, 'shape', (0,))}) while a minimum of 1 is required.")
    return rows


def count(X: Any) -> int:
    """The number of examples in X."""
    return len(X[0]) if isinstance(X, tuple) and len(X) else len(X)


def take(X: Any, rows: Ints) -> Any:
    """Some rows of X, in the type of X; for a tuple, of each part."""
    if isinstance(X, tuple):
        return tuple(take(part, rows) for part in X)
    if isinstance(X, pd.DataFrame | pd.Series):
        return X.iloc[rows]
    if isinstance(X, list):
        return [X[row] for row in rows]
    return X[rows]


def empty_texts(texts: Iterable[Any]) -> Ints:
    """The numbers of the texts that are missing, empty or blank."""
    return np.flatnonzero([is_empty(text) for text in texts])


def warn_of_empty(rows: Ints, n: int) -> None:
    """Warn how many of n texts are empty, and which is the first."""
    if len(rows):
        verb = "is" if len(rows) == 1 else "are"
        warn(f"{len(rows):,} of {n:,} texts {verb} empty and left out; the first is in row {rows[0]}")


class FitInput(NamedTuple):
    """The arguments of `fit`, one entry per row each."""

    X: Any
    y: Any = None
    sample_weight: Any = None
    ids: Any = None
    within: Any = None
    groups: Any = None
    apart: Any = None


def without_empty_texts(encoder: Any, rows: FitInput) -> FitInput:
    """The same without rows whose text is empty, which a warning counts; without ids, rows keep their numbers.

    Anything but texts is returned as it is.
    """
    X = rows.X
    listed = isinstance(X, list | tuple | pd.Series) or (isinstance(X, np.ndarray) and X.ndim == 1)
    column = isinstance(X, pd.DataFrame | np.ndarray) and X.ndim == 2 and X.shape[1] == 1
    if not listed and (not column or encoder == "auto"):  # a table
        return rows
    empty = empty_texts(np.asarray(X)[:, 0] if column else X)
    if len(empty) == 0 or len(empty) == len(X) or choose(encoder, X).kind not in ("text", "huggingface"):
        return rows
    n = len(X)
    numbered = rows if rows.ids is not None or hasattr(X, "iloc") else rows._replace(ids=range(n))
    sized = [
        part if part is None or hasattr(part, "iloc") or hasattr(part, "shape") else list(part) for part in numbered
    ]
    if any(part is not None and len(part) != n for part in sized):
        return rows  # later checks refuse it, and name what does not fit
    warn_of_empty(empty, n)
    kept = np.setdiff1d(np.arange(n), empty)
    return FitInput(*(None if part is None else take(part, kept) for part in sized))


def row_ids(X: Any, ids: Iterable[Hashable] | None, n: int) -> pd.Index[Any]:
    """n distinct ids: those given, else the pandas index of X, else 0 … n-1."""
    if ids is None and isinstance(X, pd.DataFrame | pd.Series):
        index = pd.Index(X.index.tolist(), tupleize_cols=False, dtype="int64" if X.index.dtype == "int64" else object)
        if index.is_unique and not index.hasnans:
            return index
        warn(
            "the index of X has repeated or missing values, so row numbers serve as ids instead; "
            "give X a unique index to use your own ids",
        )
    if ids is None:
        return pd.RangeIndex(n)
    names = list(ids)
    if len(names) != n:
        raise ShapeError(f"ids must have one entry per row; X has {n} rows; got {len(names)} ids")
    index = pd.Index(names, tupleize_cols=False, dtype=None if all(type(i) is int for i in names) else object)
    if not index.is_unique:
        repeated = index[index.duplicated()].tolist()[0]
        raise IdError(f"ids must be unique; {repeated!r} is repeated; drop or rename one of them")
    return index


def read_groups(groups: Iterable[Hashable], names: pd.Index[Any], argument: str) -> pd.Series[Any]:
    """The groups of rows, by id. argument: the caller's name for them."""
    given = list(groups)
    if len(given) != len(names):
        raise ShapeError(f"{argument} must have one name per row; X has {len(names)} rows; got {len(given)}")
    for row, group in enumerate(given):
        parts = group if isinstance(group, frozenset) else (group,)
        if not parts or any(not isinstance(p, Hashable) or p is None or p is pd.NA or p != p for p in parts):
            raise InputError(
                f"{argument} must be names that can be compared, such as texts; got {group!r:.60} at row {row}"
            )
    return pd.Series(given, index=names, dtype=object)


def read_within(given: Any, columns: Any, X: Any, names: pd.Index[Any]) -> pd.Series[Any] | None:
    """The groups of rows, by id, for guarantees within each; those given, else those in columns of X; None if neither.

    given: a name per row, or a set of names; a table has a group in each of its columns. A row of several columns
    belongs to several groups: a frozenset of texts such as "region=north". A missing value is a group of its own.
    """
    if given is None and columns is None:
        return None
    if given is None:
        given = _columns_of(X, columns)
    elif isinstance(given, np.ndarray) and given.ndim == 2:
        given = pd.DataFrame(given)
    if isinstance(given, pd.DataFrame):
        if given.shape[1] == 1 and not isinstance(columns, list | tuple):
            values: list[Any] = plain_values(given.iloc[:, 0], "within")
            if len(values) != len(names):
                raise ShapeError(f"within must have one name per row; X has {len(names)} rows; got {len(values)}")
            return pd.Series(values, index=names, dtype=object)
        texts = [[f"{name}={_shown(v)}" for v in plain_values(column, str(name))] for name, column in given.items()]
        given = [frozenset(each) for each in zip(*texts, strict=True)]
    given = [frozenset(name) if isinstance(name, set) else name for name in given]
    return read_groups(given, names, "within")


def _columns_of(X: Any, columns: Any) -> pd.DataFrame:
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X) if getattr(X, "ndim", 0) == 2 else None
    if frame is None:
        raise InputError(
            f"within={columns!r} names a column of a table; X is no table; give the groups to fit: within=[…], a name "
            "per row"
        )
    wanted = listed_columns(columns)
    for name in wanted:
        if name not in frame:
            raise InputError(
                f"within must name columns of X; X has no column {name!r}; {suggested(name, frame.columns)}its "
                f"columns are {listed(frame.columns, 20)}; or give the groups to fit: within=[…], a name per row"
            )
    return frame[list(dict.fromkeys(wanted))]


def _shown(value: Any) -> str:
    """A value in the name of a group; 2 and 2.0 are the same."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def number_groups(groups: Iterable[Hashable], names: pd.Index[Any], at_least: int) -> Ints:
    """(n,): the number of each row's group; its rows stay together in folds, validation and calibration."""
    codes = pd.factorize(read_groups(groups, names, "groups"))[0].astype(np.int64)
    n_groups = int(codes.max()) + 1
    if n_groups < at_least:
        raise InputError(
            f"groups must be at least {at_least}, so that some train and others judge; got {n_groups}; leave groups "
            "out if rows of one group are as different as rows of several"
        )
    return codes


# y


def read_known(target: Target, y: Any, n: int, *, strict: bool) -> tuple[Ints, Floats]:
    """(codes (n,), exact (n, T)) of the outcomes of n new rows; if not `strict`, an unknown outcome has code -1."""
    return target.read(native(y, "y"), n, strict=strict)


# Parts


@dataclass(frozen=True)
class Parts:
    """Row numbers of three disjoint parts."""

    training: Ints
    validation: Ints
    calibration: Ints


def all_rows(n: int) -> Parts:
    """All rows train: no part is held out."""
    return Parts(np.arange(n), np.arange(0), np.arange(0))


def split(
    codes: Ints,
    validation_size: float | None,
    calibration_size: float | None,
    rng: np.random.RandomState,
    groups: Ints | None = None,
) -> Parts:
    """Split rows into training, validation and calibration.

    Sizes are shares below 1, or numbers of rows. By default each held-out part gets a tenth of the rows, up to 1,000;
    or a twentieth if that is more, up to 5,000 for validation and 10,000 for calibration. Calibration gets at least
    100 rows if these are at most a fifth.

    Calibration rows are drawn at random, regardless of class: the coverage guarantee requires them to be like new
    rows, some of which have labels that no training row has. Validation rows are stratified by class, and leave two
    rows per class for training.

    groups: (n,) the group of each row, 0 … G-1. Then the sizes are shares of the groups, which are drawn at random; all
    rows of a group are in one part, and validation rows with a label that no training row has are left out.
    """
    n = len(codes)
    n_validation, n_calibration = part_sizes(n, validation_size, calibration_size)
    if groups is not None:
        return _split_groups(codes, groups, n_validation / n, n_calibration / n, rng)
    order = rng.permutation(n)
    calibration, rest = order[:n_calibration], order[n_calibration:]
    by_class = rest[np.argsort(codes[rest], kind="stable")]
    spare = by_class[_rank(codes[by_class]) >= 2]
    chosen = np.linspace(0, len(spare) - 1, min(n_validation, len(spare))).round().astype(np.int64)
    validation = spare[np.unique(chosen)] if len(spare) else spare
    return Parts(np.setdiff1d(rest, validation), np.sort(validation), np.sort(calibration))


def _split_groups(
    codes: Ints, groups: Ints, validation: float, calibration: float, rng: np.random.RandomState
) -> Parts:
    n_groups = int(groups.max()) + 1
    place = rng.permutation(n_groups)[groups]
    first = max(round(calibration * n_groups), int(calibration > 0))
    second = first + max(round(validation * n_groups), int(validation > 0))
    held, training = np.flatnonzero(place < first), np.flatnonzero(place >= second)
    if len(training) < 2:
        raise InputError(
            f"at least 2 rows must remain for training; validation_size and calibration_size leave {len(training)}, as "
            f"rows of one group stay together; reduce one of them"
        )
    return Parts(training, np.flatnonzero((place >= first) & (place < second) & np.isin(codes, codes[training])), held)


def part_sizes(n: int, validation_size: float | None, calibration_size: float | None) -> tuple[int, int]:
    """How many of n rows are for validation and for calibration; at least 2 must remain for training."""
    if n < 2:
        raise ShapeError(f"at least 2 rows are needed to vote on one another; got {n} sample")
    usual = max(min(n // 10, _ENOUGH), n // 20)
    n_validation = _size(validation_size, n, min(usual, _MOST_VALIDATION), "validation_size")
    most = min(max(usual, min(100, n // 5)), _MOST_CALIBRATION)
    n_calibration = _size(calibration_size, n, most, "calibration_size")
    if n_validation + n_calibration >= n - 1:
        raise InputError(
            f"at least 2 rows must remain for training; validation_size and calibration_size leave "
            f"{n - n_validation - n_calibration} of {n}; reduce one of them"
        )
    return n_validation, n_calibration


def _rank(codes: Ints) -> Ints:
    """How many rows of the same class come before each row."""
    by_class = np.argsort(codes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(codes))[:-1]]) if len(codes) else np.zeros(1, dtype=np.int64)
    rank = np.empty(len(codes), dtype=np.int64)
    rank[by_class] = np.arange(len(codes)) - starts[codes[by_class]]
    return rank


def _size(size: Any, n: int, default: int, name: str) -> int:
    if size is None:
        return default
    if isinstance(size, int | np.integer) and not isinstance(size, bool) and size >= 0:
        return int(size)
    if isinstance(size, float | np.floating) and 0 <= size < 1:
        return round(float(size) * n)
    raise InputError(f"{name} must be a share in [0, 1) or a whole number of rows; got {size!r}")


# Weights


def row_weights(sample_weight: Any, n: int) -> Floats:
    """(n,) weights of the rows, scaled to a mean of 1: only their ratios matter."""
    if sample_weight is None:
        return np.ones(n)
    weights = finite_weights(sample_weight)
    if weights.ndim == 0:
        weights = np.full(n, float(weights))
    if weights.shape != (n,):
        raise ShapeError(
            f"Sample weights must be 1D, one per row: sample_weight.shape == {weights.shape}, expected ({n},)"
        )
    if not (weights > 0).any():
        raise InputError("sample_weight must be positive for at least one row; all weights are zero")
    return np.asarray(weights / weights.mean())


def finite_weights(sample_weight: Any) -> Floats:
    """Weights as numbers, which must be finite and not negative."""
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight must be numbers: {error}") from None
    bad = np.ravel(~(np.isfinite(weights) & (weights >= 0)))
    if bad.any():
        row = int(bad.argmax())
        why = f"sample_weight must be finite and not negative; it is {np.ravel(weights)[row]}"
        raise NonFiniteError(f"{why} in row {row}", rows={row: why})
    return weights


def class_weights(class_weight: Any, codes: Ints, classes: NDArray[Any]) -> Floats | None:
    """(K,) weights of the classes, from a dict or "balanced" (equal total weight per class); or None.

    codes: labels of the training rows only, because nothing may be fitted to calibration rows.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, Mapping):
        unknown = [label for label in class_weight if label not in set(classes.tolist())]
        if unknown:
            known = listed(classes.tolist(), most=10)
            raise LabelError(f"class_weight must have classes as keys; {unknown[0]!r} is not one of {known}")
        try:
            by_class = np.array([float(class_weight.get(label, 1.0)) for label in classes.tolist()])
        except (TypeError, ValueError):
            by_class = np.zeros(1)
        if not (np.isfinite(by_class) & (by_class > 0)).all():
            raise InputError(f"class_weight must hold positive numbers; got {dict(class_weight)}")
        return by_class
    if isinstance(class_weight, str) and class_weight == "balanced":
        return balanced(np.bincount(codes, minlength=len(classes)))
    raise InputError(f"class_weight must be None, 'balanced' or a dict of weights by label; got {class_weight!r}")


def balanced(counts: Ints) -> Floats:
    """(K,): weights that give equal total weight to classes with these numbers of rows.

    >>> balanced(np.array([6, 2, 0]))
    array([0.66666667, 2.        , 1.        ])
    """
    here, by_class = counts > 0, np.ones(len(counts))  # a class without rows has no votes to weight
    by_class[here] = counts.sum() / (np.count_nonzero(here) * counts[here])
    return by_class


# The training examples


class Examples(Mapping[Any, dict[Any, Any]]):
    """Training examples by id, kept as given and turned into records only when read.

    `describe` turns an X into a frame of records; a frame that holds records already needs none.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[pd.Index[Any], Any, Callable[[Any], pd.DataFrame] | None]] = []
        self._forget_made()

    def _forget_made(self) -> None:
        """Drop everything computed from the parts, because they change."""
        self._values: dict[Any, frozenset[str]] = {}
        self._distances: tuple[dict[Any, int], Callable[[Any], Floats]] | None = None
        self._records: dict[tuple[int, int], list[dict[Any, Any]]] = {}  # by part and block of rows

    def __copy__(self) -> Examples:
        """A copy that can be edited separately; the rows themselves are shared."""
        other = Examples()
        other._parts = list(self._parts)
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Without what is computed from the parts, such as functions."""
        return {"_parts": self._parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._parts = state["_parts"]
        self._forget_made()

    def add(self, ids: pd.Index[Any], X: Any, describe: Callable[[Any], pd.DataFrame] | None = None) -> None:
        """Keep the rows of X under these ids."""
        self._parts.append((ids, X, describe))
        self._forget_made()

    def remove(self, ids: Iterable[Any]) -> None:
        """Drop these examples; unknown ids are ignored."""
        gone = set(ids)
        kept = []
        for index, X, describe in self._parts:
            stays = np.array([name not in gone for name in index], dtype=bool)
            part = (index[stays], take(X, np.flatnonzero(stays)), describe)
            kept.append((index, X, describe) if stays.all() else part)
        self._parts = [part for part in kept if len(part[0])]
        self._forget_made()

    def frame(self) -> pd.DataFrame | None:
        """All records, by id; None if there are none."""
        frames = []
        for index, X, describe in self._parts:
            made = X if describe is None else describe(X)
            frames.append(made.set_axis(_whole(index), axis=0))
        return pd.concat(frames) if frames else None

    def values_of(self, name: Any) -> frozenset[str]:
        """The distinct values of a column, as text; computed once."""
        if name not in self._values:
            frame = self.frame()
            column = [] if frame is None or name not in frame else frame[name].dropna().unique()
            self._values[name] = frozenset(map(str, column))
        return self._values[name]

    def distances(self, encoder: TabularEncoder) -> tuple[dict[Any, int], Callable[[Any], Floats]]:
        """(the place of each id, how different all are from a row of a table, as a function of it); read once."""
        if self._distances is None:
            frame = self.frame()
            assert frame is not None
            places = {name: place for place, name in enumerate(self)}
            self._distances = places, encoder.distances_to(frame)
        return self._distances

    def rows(self, ids: Iterable[Any]) -> Any:
        """The rows with these ids, in their order, as given or as records; None unless all are here."""
        names = _whole(ids)
        places = [index.get_indexer(names) for index, _, _ in self._parts]
        for place, (_, X, _) in zip(places, self._parts, strict=True):
            if (place >= 0).all():
                return take(X, place)
        if not places or (np.stack(places) < 0).all(axis=0).any():
            return None
        frames = []
        for place, (index, X, describe) in zip(places, self._parts, strict=True):
            part = take(X, place[place >= 0])
            frames.append((part if describe is None else describe(part)).set_axis(index[place[place >= 0]], axis=0))
        joined = pd.concat(frames)
        return joined.iloc[joined.index.get_indexer(names)]

    def __getitem__(self, name: Any) -> dict[Any, Any]:
        for part, (index, _, _) in enumerate(self._parts):
            try:
                row = index.get_loc(name)
            except (KeyError, TypeError, pd.errors.InvalidIndexError):
                continue
            return self._record(part, cast(int, row))  # ids are unique
        raise KeyError(name)

    def _record(self, part: int, row: int) -> dict[Any, Any]:
        """The record of a row, made together with its neighbours: in a table, one takes as long as many."""
        _, X, describe = self._parts[part]
        size = _RECORDS if isinstance(X, pd.DataFrame) or getattr(X, "ndim", 0) == 2 else 1
        block = self._records.get((part, row // size))
        if block is None:
            rows = take(X, np.arange(row - row % size, min(row - row % size + size, count(X))))
            block = (rows if describe is None else describe(rows)).to_dict("records")
            if len(self._records) >= _RECORDS:
                self._records.clear()
            self._records[part, row // size] = block
        return dict(block[row % size]) if block else {}  # pandas 2 has no records of rows without columns

    def __iter__(self) -> Iterator[Any]:
        for index, _, _ in self._parts:
            yield from index

    def __len__(self) -> int:
        return sum(len(index) for index, _, _ in self._parts)


def _whole(names: Iterable[Any]) -> pd.Index[Any]:
    """Ids as an index that keeps tuples whole."""
    index: pd.Index[Any] = pd.Index(list(names), tupleize_cols=False)
    return index
