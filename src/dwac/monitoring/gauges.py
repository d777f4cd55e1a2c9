"""What moved, in words: compares the latest rows with training or calibration rows, by column and by group.

A gauge divides the values of one column into cells and counts them. It keeps counts and a sum, never a row.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import chi2

from dwac import _checks as checks
from dwac.encoders.columns import parts_of
from dwac.errors import InputError
from dwac.estimator.evaluation import amount
from dwac.monitoring.martingale import categories, text_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COLUMN, GROUP, PREDICTION = "column", "group", "prediction"
_CELLS = 10  # of numbers
_CATEGORIES, _RECURS = 30, 5  # with their own cells; how often each must occur
_EXPECTED = 5.0  # expected rows of a cell; smaller cells are counted together
_HUGE = 1e100  # sums of larger numbers could overflow
_FAR = 0.1  # standard deviations by which a mean must move to be worth naming
_NEW, _MUCH = 0.02, 2.0  # the least share of unseen values, and how much more frequent than expected


@dataclass(frozen=True)
class Change:
    """What moved, and how: `str` gives a sentence.

    >>> print(Change("column", "age", "age: mean 61.2, was 40.1", p_value=1e-6, nats=0.8))
    age: mean 61.2, was 40.1
    """

    kind: str  # "column", "group" or "prediction"
    name: str
    sentence: str
    p_value: float  # of "nothing moved", corrected for all columns, groups and predictions that were compared
    nats: float  # how far the latest rows are from before: Kullback-Leibler divergence

    def __str__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass
class CellCounts:
    """Values counted by cell, and a sum: of numbers, or of values that were not in training."""

    counts: Ints
    sum: float = 0.0

    def __add__(self, other: CellCounts) -> CellCounts:
        return CellCounts(self.counts + other.counts, self.sum + other.sum)

    @property
    def n(self) -> int:
        """The number of values."""
        return int(self.counts.sum())


@dataclass(eq=False)
class Gauge(ABC):
    """One column, the predictions, or the groups: the earlier counts, and how to count new values."""

    name: str
    kind: str
    before: CellCounts = field(init=False)

    @abstractmethod
    def tally(self, values: Any) -> CellCounts:
        """Count values (n,)."""

    @abstractmethod
    def sentence(self, now: CellCounts) -> str:
        """What is different, as a sentence."""

    def changes(self, now: CellCounts) -> list[tuple[str, str, float, float]]:
        """(name, sentence, p-value, divergence) of each comparison."""
        p, nats = compare_counts(self.before.counts, now.counts)
        return [(self.name, self.sentence(now), p, nats)]

    def empty(self) -> CellCounts:
        """Counts of no values."""
        return CellCounts(np.zeros_like(self.before.counts))


class NumberGauge(Gauge):
    """Numbers, booleans or times (in seconds): tenths of the earlier values are the cells; the last is for gaps."""

    def __init__(self, name: str, kind: str, values: Floats, form: str = "numeric") -> None:
        super().__init__(name, kind)
        known = values[~np.isnan(values)]
        levels = np.arange(1, _CELLS) / _CELLS
        self._form = form
        self._cuts = np.unique(np.quantile(known, levels)) if len(known) else np.zeros(0)
        self._spread = float(known.std()) if len(known) else 0.0
        self._offset = float(known.mean()) if len(known) else 0.0  # sums of numbers far from 0 would lose digits
        self.before = self.tally(values)

    def tally(self, values: Floats) -> CellCounts:
        """Count values (n,), NaN where missing."""
        gaps = np.isnan(values)
        # A value equal to a cut is below it, so that false and true have their own cells.
        cells = np.where(gaps, len(self._cuts) + 1, np.searchsorted(self._cuts, values, side="left"))
        counts = np.bincount(cells, minlength=len(self._cuts) + 2)
        known = np.clip(values[~gaps], -_HUGE, _HUGE)
        return CellCounts(counts, float((known - self._offset).sum()))

    def _mean(self, tally: CellCounts) -> float | None:
        known = tally.n - int(tally.counts[-1])
        return None if known == 0 else self._offset + tally.sum / known

    def sentence(self, now: CellCounts) -> str:
        """A sentence on gaps, the mean, or a range that became more or less frequent, whichever moved most."""
        (old, new), (was, mean) = ((t.counts[-1] / max(t.n, 1) for t in (self.before, now)),
                                   (self._mean(t) for t in (self.before, now)))  # fmt: skip
        if mean is None or was is None or abs(new - old) > max(_FAR, abs(mean - was) / (self._spread or 1.0)):
            return f"{self.name}: {_percent(new)} missing, was {_percent(old)}"
        if self._form == "boolean":
            return f"{self.name}: true for {_percent(mean)}, was {_percent(was)}"
        if abs(mean - was) > _FAR * self._spread:
            return f"{self.name}: mean {self.show(mean)}, was {self.show(was)}"
        return self._cell_sentence(now)

    def _cell_sentence(self, now: CellCounts) -> str:
        shares = [t.counts[:-1] / max(t.n, 1) for t in (self.before, now)]
        cell = int(np.abs(shares[1] - shares[0]).argmax())
        low, high = (self.show(self._cuts[i]) if 0 <= i < len(self._cuts) else None for i in (cell - 1, cell))
        range_ = f"above {low}" if high is None else f"at most {high}" if low is None else f"above {low} up to {high}"
        return f"{self.name}: {_percent(shares[1][cell])} {range_}, was {_percent(shares[0][cell])}"

    def show(self, value: float) -> str:
        """A value of the column: a number, or a date."""
        if self._form == "datetime" and abs(value) < 1e15:  # numpy has a wider range of dates than pandas
            return str(np.datetime64(math.floor(value), "s").astype("datetime64[D]"))
        return amount(value)


class CategoryGauge(Gauge):
    """Values that are not numbers: a cell for each of the most frequent, one for all others, and the last for gaps."""

    def __init__(self, name: str, kind: str, values: Sequence[Any], known: Sequence[Any] = ()) -> None:
        super().__init__(name, kind)
        texts = categories(values)
        counts = texts.value_counts()
        self._names = [str(each) for each in counts.index[counts >= _RECURS][:_CATEGORIES]]
        self._known = {*counts.index, *categories(list(known)).dropna()}
        self._cells = {name: cell for cell, name in enumerate(self._names)}
        # Good-Turing: as many new values are expected as values that occur once.
        self._expected = float((counts == 1).sum()) / max(len(texts), 1)
        self.before = self.tally(values)

    def tally(self, values: Sequence[Any]) -> CellCounts:
        """Count values (n,), None or NaN where missing."""
        cells = np.fromiter(values, dtype=object, count=len(values))
        missing = pd.isna(cells)
        counts, new = [0] * (len(self._names) + 2), 0
        for text in map(text_of, cells[~missing]):
            counts[self._cells.get(text, len(self._names))] += 1
            new += text not in self._known
        counts[-1] = int(missing.sum())
        return CellCounts(np.array(counts), float(new))

    def sentence(self, now: CellCounts) -> str:
        """A sentence on unseen values, or on the value that became more or less frequent."""
        new = now.sum / max(now.n, 1)
        if new > max(_NEW, _MUCH * self._expected):
            return f"{self.name}: {_percent(new)} have a value that training did not have"
        old, here = (t.counts / max(t.n, 1) for t in (self.before, now))
        more, less = here - old, old - here
        cell = int(more.argmax() if _MUCH * more.max() >= less.max() else less.argmax())
        what = [*(f"{name!r:.60}" for name in self._names), "any other value", "missing"][cell]
        return f"{self.name}: {what} {_percent(here[cell])}, was {_percent(old[cell])}"


class VoterGroups(Gauge):
    """The group of voters nearest to each row; every group is a separate comparison."""

    def __init__(self, names: Sequence[str], groups: Ints) -> None:
        super().__init__("groups", GROUP)
        self._names = list(names)
        self.before = self.tally(groups)

    def tally(self, values: Ints) -> CellCounts:
        """Count the groups (n,) of rows."""
        return CellCounts(np.bincount(values, minlength=len(self._names)))

    def sentence(self, now: CellCounts) -> str:
        """Not used: every group has its own sentence."""
        raise NotImplementedError

    def changes(self, now: CellCounts) -> list[tuple[str, str, float, float]]:
        """One comparison for each group."""
        comparisons = []
        for group, name in enumerate(self._names):
            pairs = [np.array([t.counts[group], t.n - t.counts[group]]) for t in (self.before, now)]
            old, new = (pair[0] / max(pair.sum(), 1) for pair in pairs)
            text = f"{name}: nearest voters of {_percent(new)} of the rows, was {_percent(old)}"
            comparisons.append((name, text, *compare_counts(*pairs)))
        return comparisons


def column_gauge(series: pd.Series[Any], name: Any, kind: str, known: Sequence[Any] = ()) -> Gauge:
    """The gauge of a column of a table."""
    if kind == "categorical":
        return CategoryGauge(str(name), COLUMN, series.tolist(), known)
    return NumberGauge(str(name), COLUMN, column_numbers(series, name, kind), kind)


def column_numbers(series: pd.Series[Any], name: Any, kind: str) -> Floats:
    """The numbers, truth values or times of a column (n,), NaN where missing; records keep some numbers as text."""
    if kind != "datetime" and pd.api.types.infer_dtype(series, skipna=True) == "string":
        series = series.replace({"True": 1.0, "False": 0.0}).pipe(pd.to_numeric, errors="coerce")
    return parts_of(series.reset_index(drop=True), name, kind)[0]


def compare_counts(before: Ints, now: Ints) -> tuple[float, float]:
    """(p-value, divergence): whether two counts by cell come from one distribution, by a likelihood-ratio (G) test.

    >>> p, nats = compare_counts(np.array([50, 50]), np.array([90, 10]))
    >>> p < 1e-6, round(nats, 2)
    (True, 0.36)
    """
    n, m = int(before.sum()), int(now.sum())
    if n == 0 or m == 0:
        return 1.0, 0.0
    small = (before + now) * m / (n + m) < _EXPECTED
    table = np.stack([before, now]).astype(np.float64)
    table = np.concatenate([table[:, ~small], table[:, small].sum(axis=1, keepdims=True)], axis=1)
    table = table[:, table.sum(axis=0) > 0]
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / (n + m)
    with np.errstate(divide="ignore", invalid="ignore"):
        g = 2 * np.nansum(table * np.log(table / expected))
    p, q = (np.asarray(counts) + 0.5 for counts in (now, before))
    p, q = p / p.sum(), q / q.sum()
    freedom = table.shape[1] - 1
    return float(chi2.sf(g, freedom)) if freedom else 1.0, float((p * np.log(p / q)).sum())


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number, so that all of them together err at most as often as one (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected, least = [0.0] * len(p_values), 0.0
    for place, index in enumerate(np.argsort(p_values, kind="stable").tolist()):
        least = max(least, min(1.0, p_values[index] * (len(p_values) - place)))
        corrected[index] = least
    return corrected


def changes(gauges: Sequence[Gauge], now: Sequence[CellCounts], level: float) -> list[Change]:
    """What moved, largest change first: comparisons whose corrected p-value is at most `level`."""
    if not 0 < level < 1:
        raise InputError(f"level must be between 0 and 1; got {level!r}")
    comparisons = [
        (gauge.kind, *each) for gauge, tally in zip(gauges, now, strict=True) for each in gauge.changes(tally)
    ]
    corrected = holm([p for *_, p, _ in comparisons])
    moved = [
        Change(kind, name, sentence, p, nats)
        for (kind, name, sentence, _, nats), p in zip(comparisons, corrected, strict=True)
        if p <= level
    ]
    return sorted(moved, key=lambda change: (-change.nats, change.name))


def _percent(share: float) -> str:
    return checks.percent(share, 0, most=3)
