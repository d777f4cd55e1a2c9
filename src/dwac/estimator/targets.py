"""What is predicted: classes, ordered labels, several labels at once, or numbers.

Every training example has one code, 0 … K-1, and votes for it. What differs is what codes stand for, their `outcomes`:

- a class; or a label in an order;
- several labels at once: the set of labels that an example has;
- numbers: a bin of them. The voters keep their exact numbers besides, and predictions are made of these.

And what codes mean in the loss (`dwac.nn.loss`). Numbers have a `likeness`: near ones count as votes for one another.
Ordered and several labels are `averaged`: whether a label is at most this or that (ranked probability score), whether
an example has each label (Brier score). Models are judged by averages, those of numbers too (CRPS).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import LabelError, NonFiniteError, ShapeError
from dwac.estimator.containers import native
from dwac.estimator.preparation import encode_known

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CLASSES, ORDERED, LABELS, NUMBERS = "classes", "ordered", "labels", "numbers"
_BINS, _FEWEST, _PER_BIN = 128, 24, 8  # bins of a number, or groups of several numbers; rows per bin, if they are few
_THRESHOLDS = 32  # of each of several numbers
_ALIKE = 0.03  # the difference of ranks, as a share of all, at which likeness has fallen by a factor e
_FLOOR = 1e-4  # the least likeness: one number far off is not worth any price
_SKEWED = 1.0  # skewness from which numbers above 0 are compared by their logs


@dataclass(frozen=True, eq=False)
class Target:
    """What the K codes of voters stand for."""

    kind: str  # one of the four above
    outcomes: NDArray[Any]  # (K,): classes, tuples of labels, or the mean number of each bin
    names: NDArray[Any]  # of the classes (K,), of the labels (L,), or of the numbers (T,)
    table: Floats  # (K, L) of 0 and 1, or (K, T) mean numbers; (K, 0) for classes
    scale: Floats  # (2, T): the mean of numbers and their spread; (2, 0) for labels
    listed: bool = False  # whether rows come with lists of labels, and are answered so
    single: bool = True  # whether one number is predicted, rather than a table of them

    @property
    def n_codes(self) -> int:
        """K."""
        return len(self.outcomes)

    def with_sets(self, indicators: Floats) -> Target:
        """The same with more label sets, (n, L) of 0 and 1, after those there are."""
        new = np.unique(indicators, axis=0)
        table = np.concatenate([self.table, new[[row.tobytes() not in self._places for row in new]]])
        return restored(LABELS, self.names, table, self.scale, listed=self.listed)

    @cached_property
    def _places(self) -> dict[bytes, int]:
        """The code of each label set."""
        return {row.tobytes(): code for code, row in enumerate(np.ascontiguousarray(self.table))}

    @property
    def least_size(self) -> int:
        """The least |h|, unless asked for: neither numbers nor label sets have one dimension each."""
        return 16 if self.kind in (NUMBERS, LABELS) else 1

    def answered(self, has: NDArray[np.bool_]) -> NDArray[Any]:
        """Which of several labels rows have, (n, L), in the form in which `fit` was given them."""
        if not self.listed:
            return has.astype(np.int64)
        found = np.empty(len(has), dtype=object)
        found[:] = [tuple(self.names[row].tolist()) for row in has]
        return found

    def standard(self, exact: Floats) -> Floats:
        """Numbers (n, T) in units of their spread, above their mean."""
        return np.asarray((exact - self.scale[0]) / self.scale[1])

    def averaged(self, codes: Ints) -> Tensor | None:
        """(K, B): what is averaged where a model is judged, and in the loss if there is no likeness; None for classes.

        Scaled so that the loss is 1 on average where nothing is known. codes: of the training rows.
        """
        if self.kind == CLASSES:
            return None
        if self.kind == ORDERED:
            found = np.tril(np.ones((self.n_codes, self.n_codes)))[:, 1:]
        elif self.kind == LABELS:
            found = self.table
        else:
            found = np.concatenate(
                [_cumulative(column, codes, several=self.table.shape[1] > 1) for column in self.table.T], axis=1
            )
        counts = np.bincount(codes, minlength=self.n_codes)
        mean = counts @ found / counts.sum()
        spread = counts @ np.square(found - mean).sum(axis=1) / counts.sum()
        found = found / np.sqrt(spread) if spread > 0 else np.zeros((self.n_codes, 1))
        return torch.as_tensor(found, dtype=torch.float32)

    def likeness(self, codes: Ints) -> Tensor | None:
        """(K, K): how far a vote for one number is a vote for another; None where labels are not numbers.

        By the ranks of the numbers among the training rows, whose codes these are, as shares of all: whatever the scale
        of the numbers is, errors count where numbers are many.
        """
        if self.kind != NUMBERS:
            return None
        counts = np.bincount(codes, minlength=self.n_codes)
        apart = np.zeros((self.n_codes, self.n_codes))
        for column in self.table.T:
            order = np.argsort(column, kind="stable")
            rank = np.empty(self.n_codes)
            rank[order] = np.cumsum(counts[order]) - counts[order] / 2
            apart += np.abs(rank[:, None] - rank) / counts.sum()
        return torch.as_tensor(np.exp(-apart / _ALIKE) + _FLOOR, dtype=torch.float32)

    def codes(self, exact: Floats) -> Ints:
        """(n,): the codes of numbers or label sets (n, T)."""
        if self.kind == NUMBERS and self.table.shape[1] == 1:
            middles = (self.table[1:, 0] + self.table[:-1, 0]) / 2
            return np.searchsorted(middles, exact[:, 0]).astype(np.int64)
        if self.kind == LABELS:
            found = [self._places.get(row.tobytes(), -1) for row in np.ascontiguousarray(exact)]
            return np.array(found, dtype=np.int64)
        scale = np.where(self.table.std(axis=0) > 0, self.table.std(axis=0), 1.0)
        found = [
            np.square((part[:, None] - self.table) / scale).sum(axis=2).argmin(axis=1)
            for part in np.array_split(exact, -(-len(exact) // 1024) or 1)
        ]
        return np.concatenate(found).astype(np.int64)


def classes(names: NDArray[Any], *, ordered: bool = False) -> Target:
    """Classes, or labels in their order."""
    return Target(ORDERED if ordered else CLASSES, names, names, np.zeros((len(names), 0)), np.zeros((2, 0)))


def several_labels(names: NDArray[Any], indicators: Floats, *, listed: bool = False) -> Target:
    """Several labels at once: the label sets that rows (n, L) of 0 and 1 have."""
    return restored(LABELS, names, np.unique(indicators, axis=0), np.zeros((2, 0)), listed=listed)


def numbers(exact: Floats, names: Sequence[Any], *, single: bool = True) -> Target:
    """Numbers (n, T) of the training rows: their distinct values where these are few, else bins of them."""
    distinct, n_bins = np.unique(exact, axis=0), int(np.clip(len(exact) // _PER_BIN, _FEWEST, _BINS))
    if len(distinct) > n_bins:
        distinct = _bins(exact[:, 0], n_bins)[:, None] if exact.shape[1] == 1 else _clusters(exact, n_bins)
    spread = exact.std(axis=0)
    scale = np.stack([exact.mean(axis=0), np.where(spread > 0, spread, 1.0)])
    return restored(NUMBERS, np.asarray(names, dtype=object), distinct, scale, single=single)


def restored(
    kind: str, names: NDArray[Any], table: Floats, scale: Floats, *, listed: bool = False, single: bool = True
) -> Target:
    """Several labels or numbers, from the table of what their codes stand for."""
    outcomes = np.empty(len(table), dtype=object)
    if kind == LABELS:
        outcomes[:] = [tuple(names[row > 0].tolist()) for row in table]
    else:
        outcomes[:] = table[:, 0].tolist() if table.shape[1] == 1 else [tuple(row) for row in table.tolist()]
    return Target(kind, outcomes, names, table, scale, listed, single)


def _bins(values: Floats, n_bins: int) -> Floats:
    """(K,): the means of bins that hold equally many numbers."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, n_bins + 1)[1:-1]))
    code = np.searchsorted(edges, values)
    counts = np.bincount(code)
    return np.asarray(np.bincount(code, values)[counts > 0] / counts[counts > 0])


def _clusters(exact: Floats, n_bins: int) -> Floats:
    """(K, T): the means of groups of rows with like numbers."""
    from sklearn.cluster import KMeans  # late: only several numbers need it

    spread = np.where(exact.std(axis=0) > 0, exact.std(axis=0), 1.0)
    found = KMeans(n_bins, n_init=1, random_state=0).fit(exact / spread)
    return np.asarray(found.cluster_centers_ * spread)


def _cumulative(column: Floats, codes: Ints, *, several: bool) -> Floats:
    """(K, B): 1 where a code's number is at most a threshold, times the root of the width to the next threshold."""
    distinct = np.unique(column)
    if several and len(distinct) > _THRESHOLDS:
        distinct = np.unique(np.quantile(column[codes], np.linspace(0, 1, _THRESHOLDS + 1)))
    widths = np.diff(_scaled(distinct, column[codes]))
    return np.asarray((column[:, None] <= distinct[:-1]) * np.sqrt(widths))


def _scaled(values: Floats, among: Floats) -> Floats:
    """Numbers as errors in them are counted: their logs where those among whom they are, all above 0, are skewed."""
    spread = among.std()
    skewed = spread > 0 and np.mean(((among - among.mean()) / spread) ** 3) > _SKEWED
    return np.log(values) if skewed and among.min() > 0 and values.min() > 0 else values


# Reading y


def read_known(target: Target, y: Any, n: int, *, strict: bool) -> tuple[Ints, Floats]:
    """(codes (n,), exact (n, T)) of the outcomes of n new rows; if not `strict`, an unknown outcome has code -1."""
    y = native(y, "y")
    if target.kind == NUMBERS:
        exact, width = read_numbers(y, n)[0], target.table.shape[1]
        if exact.shape[1] != width:
            raise ShapeError(f"y must have {width} numbers per row, as in fit; got {exact.shape[1]}")
        return target.codes(exact), exact
    if target.kind == LABELS:
        table = read_labels(y, n, target.names, listed=target.listed)[0]
        return target.codes(table), table
    return encode_known(y, n, target.names, strict=strict), np.zeros((n, 0))


def read_numbers(y: Any, n: int) -> tuple[Floats, list[Any], bool]:
    """(exact (n, T), names (T,), whether y had one column alone): y as finite numbers."""
    if y is None:
        raise LabelError("DWACRegressor requires y to be passed, but the target y is None")
    if isinstance(y, Tensor):
        y = y.detach().cpu().numpy()
    if _holds_times(y):
        raise LabelError(
            "y must be numbers; got dates or durations; turn them into numbers of a unit of your choice first, "
            "e.g. (dates - dates.min()) / pandas.Timedelta(days=1)"
        )
    names: list[Any] = list(y.columns) if isinstance(y, pd.DataFrame) else [getattr(y, "name", None)]
    try:
        exact = np.array(_frame_numbers(y) if isinstance(y, pd.Series | pd.DataFrame) else y, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise LabelError(
            f"y must be numbers; got {_first_text(y)}; for labels use DWACClassifier, or turn texts into numbers, "
            "e.g. with pandas.to_numeric"
        ) from None
    if np.iscomplexobj(np.asarray(y)):
        raise LabelError("Complex data not supported: y must be real numbers")
    alone = exact.ndim == 1
    exact = exact[:, None] if alone else exact
    if exact.ndim != 2 or exact.shape[1] == 0:
        raise ShapeError(f"y must be one number per row, or a table of them; got shape {exact.shape}")
    if len(exact) != n:
        raise ShapeError(f"y must have one entry per row of X; X has {n} rows; got {len(exact)}")
    if not np.isfinite(exact).all():
        row = int(np.argmin(np.isfinite(exact).all(axis=1)))
        what = "missing (NaN)" if np.isnan(exact[row]).any() else "infinite"
        raise NonFiniteError(f"y must be finite numbers; row {row} is {what}; drop the rows whose target is not known")
    if np.abs(exact).max(initial=0) > checks.LARGEST:
        row = int((np.abs(exact) > checks.LARGEST).any(axis=1).argmax())
        raise NonFiniteError(f"y must be at most {checks.LARGEST:g} in size; row {row} is not; use a larger unit")
    return exact, names if len(names) == exact.shape[1] else list(range(exact.shape[1])), alone


def _frame_numbers(y: pd.Series[Any] | pd.DataFrame) -> Floats:
    values = y.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(values)


def _holds_times(y: Any) -> bool:
    """Whether y is dates or durations, which NumPy would count in some unit of its own."""
    dtypes = y.dtypes.tolist() if isinstance(y, pd.DataFrame) else [getattr(y, "dtype", None)]
    return any(getattr(dtype, "kind", None) in ("m", "M") for dtype in dtypes)


def _first_text(y: Any) -> str:
    values: Iterable[Any] = np.asarray(y, dtype=object).ravel()
    for value in values:
        try:
            float(value)
        except (TypeError, ValueError, OverflowError):
            return f"{value!r:.60}"
    return type(y).__name__


def is_several(y: Any) -> bool:
    """Whether y is several labels at once: a table of 0 and 1, or a list of lists of labels."""
    if isinstance(y, pd.DataFrame):
        return y.shape[1] > 1
    if isinstance(y, pd.Series | np.ndarray) and y.ndim == 1:
        y = y.tolist() if y.dtype == object else []
    if isinstance(y, np.ndarray | Tensor) or hasattr(y, "toarray"):
        return bool(y.ndim == 2 and y.shape[1] > 1)
    if not isinstance(y, list) or len(y) == 0:
        return False
    return all(isinstance(row, list | set | frozenset) or getattr(row, "ndim", 0) == 1 for row in y)


def holds_lists(y: Any) -> bool:
    """Whether several labels are given as lists of them."""
    rows = _rows(y)
    return isinstance(rows, list) and not _indicates(rows)


def _rows(y: Any) -> Any:
    """A list with a list of each row, where y is rows of labels; a table as it is."""
    if isinstance(y, pd.Series | np.ndarray) and y.ndim == 1:
        y = y.tolist()
    if not isinstance(y, list):
        return y
    return [row.tolist() if isinstance(row, np.ndarray | Tensor) else row for row in y]


def read_labels(
    y: Any, n: int, known: NDArray[Any] | None = None, *, listed: bool = True
) -> tuple[Floats, NDArray[Any]]:
    """(indicators (n, L) of 0 and 1, names of the labels (L,)).

    known: the labels of a fitted model, which y must have; others are an error. listed: whether that model was given
    lists of labels; to one that was not, [0, 1] is a row without its first label, and not one with labels 0 and 1.
    """
    if hasattr(y, "toarray"):
        y = y.toarray()
    if isinstance(y, Tensor):
        y = y.detach().cpu().numpy()
    y = _rows(y)
    if len(y) != n:
        raise ShapeError(f"y must have one row of labels per row of X; X has {n} rows; got {len(y)}")
    if isinstance(y, list):
        meant = known is not None and not listed and all(_answers(row, len(known)) for row in y)
        if not meant and not _indicates(y):
            return _from_lists(y, known)
        y = np.asarray([list(row) for row in y])
    given = np.asarray(y)
    if given.ndim != 2:
        raise ShapeError(
            f"y must be several labels per row, a table (n, L) of 0 and 1 or lists of labels; got shape {given.shape}"
        )
    names = np.asarray(y.columns, dtype=object) if isinstance(y, pd.DataFrame) else np.arange(given.shape[1])
    try:
        table = given.astype(np.float64)
    except (TypeError, ValueError):
        table = np.array([[_float(value) for value in row] for row in given.tolist()])
    if not np.isin(table, (0.0, 1.0)).all():
        row, column = np.argwhere(~np.isin(table, (0.0, 1.0)))[0]
        raise LabelError(
            "y with several columns must hold 0 and 1 alone, 1 where a row has the label; "
            f"row {row} of column {names.tolist()[column]!r} is {given[row].tolist()[column]!r}; "
            "for several numbers use DWACRegressor"
        )
    if known is not None and len(names) != len(known):
        raise ShapeError(f"y must have {len(known)} columns, one per label; got {len(names)}")
    if known is not None and isinstance(y, pd.DataFrame) and names.tolist() != known.tolist():
        raise LabelError(f"the columns of y must be the labels {known.tolist()}; got {names.tolist()}")
    return table, names if known is None else known


def _float(value: Any) -> float:
    """A number, or NaN for what is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _answer(value: Any) -> bool:
    return isinstance(value, int | float | np.generic) and value in (0, 1)


def _answers(row: Any, n_labels: int) -> bool:
    """Whether a row is 0 or 1 for each of so many labels."""
    return isinstance(row, list | tuple) and len(row) == n_labels and all(map(_answer, row))


def _indicates(y: list[Any]) -> bool:
    """Whether rows are 0 or 1 for each label, rather than the labels that they have: no row could have one twice."""
    ordered = all(isinstance(row, list | tuple) for row in y)
    if not ordered or len({len(row) for row in y}) != 1 or len(y[0]) < 2:
        return False
    return all(_answers(row, len(y[0])) for row in y) and (len(y[0]) > 2 or any(len(set(row)) < len(row) for row in y))


def _from_lists(y: list[Any], known: NDArray[Any] | None) -> tuple[Floats, NDArray[Any]]:
    for number, held in enumerate(y):
        _check_held(held, number)
    labels = sorted({label for row in y for label in row}, key=lambda label: (type(label).__name__, label))
    if known is not None:
        unknown = [label for label in labels if label not in known.tolist()]
        if unknown:
            raise LabelError(f"y must hold labels seen in training; {unknown[0]!r} is not one of {known.tolist()[:10]}")
        labels = known.tolist()
    if not labels:
        raise LabelError("y must have at least one label in some row; every list is empty")
    names = np.empty(len(labels), dtype=object)
    names[:] = labels
    if all(isinstance(label, str) for label in labels):
        names = names.astype(str)
    place = {label: column for column, label in enumerate(labels)}
    table = np.zeros((len(y), len(labels)))
    for row, held in enumerate(y):
        table[row, [place[label] for label in held]] = 1.0
    return table, names


def _check_held(held: Any, row: int) -> None:
    """Refuse what is no list of labels."""
    if not isinstance(held, list | tuple | set | frozenset):
        raise LabelError(f"y must be a list of labels for each row; row {row} is {held!r:.60}; write [] for no label")
    for label in held:
        if not isinstance(label, Hashable) or label is None or label is pd.NA or label != label:
            raise LabelError(
                f"the labels of a row must be texts, numbers or the like; row {row} has {label!r:.60}; leave it out"
            )


def check_several(table: Floats, names: NDArray[Any]) -> list[str]:
    """What to say of several labels before training: an error where nothing can be learned, else sentences."""
    shares = table.mean(axis=0)
    constant = np.flatnonzero((shares == 0) | (shares == 1))
    if len(constant) == table.shape[1]:
        raise LabelError("y must have a label that some rows have and others have not; every column of y is constant")
    said = []
    if len(constant):
        one = constant[0]
        who = "no row has" if shares[one] == 0 else "every row has"
        more = (
            f", and {len(constant) - 1} other label{'s are' if len(constant) > 2 else ' is'} as constant"
            if len(constant) > 1
            else ""
        )
        said.append(
            f"{who} the label {names[one]!r}{more}: it is predicted so for everyone, and nothing about it is learned; "
            "drop the column, or add rows that differ"
        )
    none = int((table.sum(axis=1) == 0).sum())
    if none:
        said.append(f"{none:,} of {len(table):,} rows have no label at all; they vote for none")
    return said


def ordered_names(y: Any) -> NDArray[Any] | None:
    """The categories of an ordered pandas Categorical, in their order, as far as they occur; None for anything else."""
    dtype = getattr(y, "dtype", None)
    if not isinstance(dtype, pd.CategoricalDtype) or not dtype.ordered:
        return None
    present = pd.unique(pd.Series(y).dropna())
    kept = [name for name in dtype.categories if name in set(present)]
    names = np.empty(len(kept), dtype=object)
    names[:] = kept
    return names.astype(str) if all(isinstance(name, str) for name in kept) else np.asarray(kept)
