"""Numbers: voters have exact numbers; codes are bins of numbers, used to train a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import LabelError, NonFiniteError, ShapeError
from dwac.tasks.answers import TYPICALITY, AnswerColumn, ValueKind
from dwac.tasks.base import NUMBERS, Bools, Floats, Ints, Loss, Target, VoteSummary, averaged_table, log_probabilities

WITHIN = 0.1  # standard deviations of its votes within which a number counts as the same
_BINS, _FEWEST, _PER_BIN = 128, 24, 8  # bins of a number, or groups of several numbers; rows per bin, if they are few
_THRESHOLDS = 32  # for each of several numbers
_ALIKE = 0.03  # the difference of ranks, as a share of all, at which likeness has fallen by a factor e
_FLOOR = 1e-4  # the least likeness: limits the cost of a single outlier
_SKEWED = 1.0  # skewness from which positive numbers are compared by their logs


class Numbers(Target):
    """One number or several: near numbers share votes in the loss; models are judged by averages (CRPS)."""

    kind, noun = NUMBERS, "number"

    def values(self, y: Any, n: int) -> Floats:
        """(n, T): the numbers of rows."""
        numbers, width = read_numbers(y, n)[0], self.table.shape[1]
        if numbers.shape[1] != width:
            raise ShapeError(f"y must have {width} numbers per row, as in fit; got {numbers.shape[1]}")
        return numbers

    def codes(self, exact: Floats) -> Ints:
        """(n,): the nearest bins of numbers (n, T)."""
        if self.table.shape[1] == 1:
            middles = (self.table[1:, 0] + self.table[:-1, 0]) / 2
            return np.searchsorted(middles, exact[:, 0]).astype(np.int64)
        scale = np.where(self.table.std(axis=0) > 0, self.table.std(axis=0), 1.0)
        nearest = [
            np.square((part[:, None] - self.table) / scale).sum(axis=2).argmin(axis=1)
            for part in np.array_split(exact, -(-len(exact) // 1024) or 1)
        ]
        return np.concatenate(nearest).astype(np.int64)

    def loss(self, codes: Ints) -> Loss:
        """Likeness by the ranks of numbers; averages whether a number is at most each threshold."""
        several = self.table.shape[1] > 1
        steps = np.concatenate([_cumulative(column, codes, several=several) for column in self.table.T], axis=1)
        return Loss(self._likeness(codes), averaged_table(steps, codes))

    def _likeness(self, codes: Ints) -> Tensor:
        """(K, K): how much a vote for one number counts for another.

        Uses the ranks of the numbers among the training rows, given their codes, as shares of all: whatever the scale
        of the numbers, errors count most where numbers are dense.
        """
        counts = np.bincount(codes, minlength=self.n_codes)
        apart = np.zeros((self.n_codes, self.n_codes))
        for column in self.table.T:
            order = np.argsort(column, kind="stable")
            rank = np.empty(self.n_codes)
            rank[order] = np.cumsum(counts[order]) - counts[order] / 2
            apart += np.abs(rank[:, None] - rank) / counts.sum()
        return torch.as_tensor(np.exp(-apart / _ALIKE) + _FLOOR, dtype=torch.float32)

    def same(self, log_p: Floats, full: Floats) -> Bools:
        """(n,): whether two log probabilities (n, K) of bins have means within a tenth of the spread of the votes."""
        p = np.exp(full)
        mean = p @ self.table
        spread = np.sqrt(np.maximum(p @ np.square(self.table) - np.square(mean), 0))
        return np.asarray((np.abs(np.exp(log_p) @ self.table - mean) <= WITHIN * spread + 1e-12).all(axis=1))

    def summarise(self, votes: Floats) -> VoteSummary:
        """-log of the largest share of a bin, and the mean of the (first) number."""
        log_p = log_probabilities(votes)
        return VoteSummary(-log_p.max(axis=-1), np.exp(log_p) @ self.table[:, 0])

    def of_part(self, exact: Floats, training: Ints) -> Numbers:
        """The same numbers, with bins from these training rows."""
        return number_target(exact[training], self.names.tolist(), single=self.single)

    def remaining(self, codes: Ints, exact: Floats, training: Ints) -> tuple[Numbers, Ints, Floats]:
        """The target with bins from the remaining training rows."""
        return self.of_part(exact, training), codes, exact

    def columns(self, levels: Sequence[float] = ()) -> tuple[AnswerColumn, ...]:
        """The number, its interval, the quantiles of the votes at these levels, and typicality."""
        number = ValueKind.NUMBER
        several: dict[str, Any] = {}
        if not self.single:
            several = {"names": tuple(self.names.tolist()), "per_name": True, "within": "numbers"}
        return (
            AnswerColumn("prediction", number, "The mean of the votes, or their median.", **several),
            AnswerColumn(
                "interval",
                number,
                "Misses the true number at a rate of at most ε; a null end is unbounded. Null for a model without "
                "calibration rows.",
                parts=("lower", "upper"),
                in_tables=("lower", "upper"),
                calibrated=True,
                **several,
            ),
            AnswerColumn(
                "quantiles",
                number,
                "Of the votes, by the levels asked for; they have no guarantee.",
                parts=tuple(f"{level:.15g}" for level in levels),
                in_tables=tuple(f"quantile_{level:g}" for level in levels),
                **several,
            ),
            TYPICALITY,
        )


def number_target(exact: Floats, names: Sequence[Any], *, single: bool = True) -> Numbers:
    """The target for numbers (n, T) of the training rows: their distinct values if these are few, else bins."""
    distinct, n_bins = np.unique(exact, axis=0), int(np.clip(len(exact) // _PER_BIN, _FEWEST, _BINS))
    if len(distinct) > n_bins:
        distinct = _bins(exact[:, 0], n_bins)[:, None] if exact.shape[1] == 1 else _clusters(exact, n_bins)
    spread = exact.std(axis=0)
    scale = np.stack([exact.mean(axis=0), np.where(spread > 0, spread, 1.0)])
    return number_bins(names, distinct, scale, single=single)


def number_bins(names: Sequence[Any], table: Floats, scale: Floats, *, single: bool = True) -> Numbers:
    """The target whose codes are bins with these means (K, T)."""
    outcomes = np.empty(len(table), dtype=object)
    outcomes[:] = table[:, 0].tolist() if table.shape[1] == 1 else [tuple(row) for row in table.tolist()]
    return Numbers(outcomes, np.asarray(names, dtype=object), table, scale, single=single)


def _bins(values: Floats, n_bins: int) -> Floats:
    """(K,): the means of bins that hold equally many numbers."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, n_bins + 1)[1:-1]))
    code = np.searchsorted(edges, values)
    counts = np.bincount(code)
    return np.asarray(np.bincount(code, values)[counts > 0] / counts[counts > 0])


def _clusters(exact: Floats, n_bins: int) -> Floats:
    """(K, T): the means of groups of rows with similar numbers."""
    from sklearn.cluster import KMeans  # late: only several numbers need it

    spread = np.where(exact.std(axis=0) > 0, exact.std(axis=0), 1.0)
    clusters = KMeans(n_bins, n_init=1, random_state=0).fit(exact / spread)
    return np.asarray(clusters.cluster_centers_ * spread)


def _cumulative(column: Floats, codes: Ints, *, several: bool) -> Floats:
    """(K, B): 1 where a code's number is at most a threshold, times the root of the width to the next threshold."""
    distinct = np.unique(column)
    if several and len(distinct) > _THRESHOLDS:
        distinct = np.unique(np.quantile(column[codes], np.linspace(0, 1, _THRESHOLDS + 1)))
    widths = np.diff(_scaled(distinct, column[codes]))
    return np.asarray((column[:, None] <= distinct[:-1]) * np.sqrt(widths))


def _scaled(values: Floats, among: Floats) -> Floats:
    """Numbers on the scale on which errors count: their logs if the numbers in `among` are positive and skewed."""
    spread = among.std()
    skewed = spread > 0 and np.mean(((among - among.mean()) / spread) ** 3) > _SKEWED
    return np.log(values) if skewed and among.min() > 0 and values.min() > 0 else values


# Reading y


def read_numbers(y: Any, n: int) -> tuple[Floats, list[Any], bool]:
    """(exact (n, T), names (T,), whether y is a single column): y as finite numbers."""
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
    """Whether y holds dates or durations, which NumPy would convert to numbers in an arbitrary unit."""
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
