"""The statistics of groups: a value of each measure in each group, its interval, and a test against all other rows.

A measure is a mean over rows: of 0 and 1 for a rate, of any numbers otherwise; or the area under a ROC curve. The
intervals of rates are exact (Clopper-Pearson), those of other means come from the studentised bootstrap, those of areas
from DeLong's variance on the scale of log-odds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import beta, fisher_exact, norm, ttest_ind_from_stats

from dwac.tasks.base import Bools, Floats

LEVEL = 0.95
_LEAST = 10  # rows: the bootstrap of fewer says nothing
_ENOUGH, _LARGE = 1000, 300  # rows from which a mean needs no bootstrap; from which Welch's test needs no permutations
_DRAWS = 1000  # resamples and permutations
_PAIRS = 5  # of rows with and without a label: the area under the curve of fewer has no interval


class GroupMeasure(NamedTuple):
    """A number for each of n rows, whose mean in a group is a measure of the group."""

    name: str
    values: NDArray[Any]  # (n,)
    among: Bools | None = None  # (n,): the rows that count; None for all
    is_rate: bool = True  # whether values are 0 and 1
    bounds: tuple[float, float] = (0.0, 1.0)  # where means lie


class AreaMeasure(NamedTuple):
    """Labels of n rows and their probabilities, whose area under the ROC curve is a measure of a group.

    Of several labels, each against the rest, the mean; a label that all rows of a group have, or none, is left out.
    """

    name: str
    truth: Bools  # (n, L)
    p: Floats  # (n, L)
    bounds: tuple[float, float] = (0.0, 1.0)


Measure = GroupMeasure | AreaMeasure


class Cells(NamedTuple):
    """The measures M of the groups G of one division, (G, M) each."""

    n: NDArray[np.int64]  # rows that count
    value: Floats
    low: Floats  # an interval for each group alone
    high: Floats
    lowest: Floats  # wider intervals that hold for all groups at once
    highest: Floats
    p: Floats


def measure_groups(measures: Sequence[Measure], codes: NDArray[np.int64], n_groups: int) -> Cells:
    """The measures of the groups 0 … G-1 of rows with codes (n,)."""
    averages = [each for each in measures if isinstance(each, GroupMeasure)]
    areas = [each for each in measures if isinstance(each, AreaMeasure)]
    parts = _measure_averages(averages, codes, n_groups) if averages else []
    if areas:
        parts.append(_measure_areas(areas, codes, n_groups))
    kinds = [2 if isinstance(each, AreaMeasure) else int(not each.is_rate) for each in measures]
    order = np.argsort(np.argsort(kinds, kind="stable"))  # of the columns of all parts: rates, other means, areas
    cells = Cells(*(np.concatenate(columns, axis=1)[:, order] for columns in zip(*parts, strict=True)))
    return cells if n_groups > 1 else cells._replace(p=np.full_like(cells.p, np.nan))  # nothing to compare with


# Intervals


def rate_interval(hits: Any, n: Any, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Exact confidence intervals of rates (Clopper-Pearson), from counts of any shape; 0 to 1 where n is 0.

    >>> low, high = rate_interval([0, 9], [10, 10])
    >>> low.round(3), high.round(3)
    (array([0.   , 0.555]), array([0.308, 0.997]))
    """
    k, n = np.asarray(hits, dtype=np.float64), np.asarray(n, dtype=np.float64)
    tail = (1 - level) / 2
    low = np.where(k > 0, beta.ppf(tail, np.maximum(k, 1), n - k + 1), 0.0)
    high = np.where(k < n, beta.ppf(1 - tail, k + 1, np.maximum(n - k, 1)), 1.0)
    return low, high


def _resampled_t(values: Floats, among: Bools, rng: np.random.Generator) -> Floats:
    """(draws, M): the studentised means (m* - m) / se* of rows drawn with replacement, from (n, M)."""
    n, weights = len(values), among.astype(np.float64)
    if n >= _ENOUGH:
        return rng.standard_normal((_DRAWS, values.shape[1]))
    counts = rng.multinomial(n, np.full(n, 1 / n), size=_DRAWS).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (values * weights).sum(axis=0) / weights.sum(axis=0)
        centred = (values - mean) * weights
        size = counts @ weights
        moved = (counts @ centred) / size
        spread = np.sqrt(np.maximum((counts @ centred**2) / size - moved**2, 0) / (size - 1))
        t = np.where(spread > 0, moved / spread, np.where(moved == 0, 0.0, np.inf))
    return np.asarray(np.where(np.isnan(t), np.inf, np.abs(t)) * np.sign(moved))


def _measure_averages(measures: Sequence[GroupMeasure], codes: NDArray[np.int64], n_groups: int) -> list[Cells]:
    """The cells of rates, then those of other means, if there are any."""
    among = np.stack([np.ones(len(codes), bool) if m.among is None else m.among for m in measures], axis=1)
    values = np.where(among, np.stack([np.asarray(m.values, dtype=np.float64) for m in measures], axis=1), 0.0)
    rates = np.array([m.is_rate for m in measures])
    n = np.stack([among[codes == g].sum(axis=0) for g in range(n_groups)])
    sums = np.stack([values[codes == g].sum(axis=0) for g in range(n_groups)])
    with np.errstate(invalid="ignore"):
        value = sums / n
    parts = []
    if rates.any():
        parts.append(_rate_cells(sums[:, rates], n[:, rates], value[:, rates]))
    if not rates.all():
        bounds = np.array([m.bounds for m in measures if not m.is_rate])
        parts.append(_mean_cells(values[:, ~rates], among[:, ~rates], codes, value[:, ~rates], bounds))
    return parts


def _rate_cells(hits: Floats, n: NDArray[np.int64], value: Floats) -> Cells:
    """The cells of rates, from (G, M) each."""
    p = np.stack([_fisher(*column) for column in zip(hits.T, n.T, strict=True)], axis=1)
    low, high = rate_interval(hits, n)
    lowest, highest = rate_interval(hits, n, 1 - (1 - LEVEL) / len(n))
    for end in (low, high, lowest, highest):
        end[n == 0] = np.nan
    return Cells(n, value, low, high, lowest, highest, p)


def _mean_cells(values: Floats, among: Bools, codes: NDArray[np.int64], value: Floats, bounds: Floats) -> Cells:
    """The cells of means, from values (n, M), their means by group (G, M) and bounds (M, 2); NaN for small groups."""
    n_groups, (least, most), rng = len(value), bounds.T, np.random.default_rng(0)
    n, error, p = np.empty(value.shape, dtype=np.int64), np.empty(value.shape), np.full(value.shape, np.nan)
    t = np.zeros((n_groups, _DRAWS, len(bounds)))
    for g in range(n_groups):
        mine = codes == g
        n[g] = among[mine].sum(axis=0)
        centred = (values[mine] - value[g]) * among[mine]
        spread = np.sqrt(np.square(centred).sum(axis=0) / np.maximum(n[g] - 1, 1) / np.maximum(n[g], 1))
        error[g] = np.where((n[g] >= _LEAST) & (spread > 0), spread, np.nan)
        t[g] = np.where(np.isnan(error[g]), 0.0, np.abs(_resampled_t(values[mine], among[mine], rng)))
        if n_groups > 1:
            p[g] = np.where(np.isnan(error[g]), np.nan, _unlike(values, among, mine, rng))
    # No interpolation: where resamples have no spread, t* is infinite, and the interval all that is possible.
    alone, together = (np.quantile(each, LEVEL, axis=-2, method="higher") for each in (t, t.max(axis=0)))
    with np.errstate(invalid="ignore"):  # inf · NaN
        near, far = alone * error, together * error
    low, high = np.maximum(value - near, least), np.minimum(value + near, most)
    lowest, highest = np.maximum(value - far, least), np.minimum(value + far, most)
    return Cells(n, value, low, high, lowest, highest, p)


def _fisher(hits: Floats, n: NDArray[np.int64]) -> Floats:
    """(G,): Fisher's exact test of each group's rate against that of all other rows; NaN without any."""
    p = np.full(len(n), np.nan)
    for g in range(len(n)):
        k, rest = hits[g], (hits.sum() - hits[g], n.sum() - n[g])
        if n[g] and rest[1]:
            table = [[int(k), int(n[g] - k)], [int(rest[0]), int(rest[1] - rest[0])]]
            p[g] = fisher_exact(table).pvalue
    return p


def _unlike(values: Floats, among: Bools, mine: Bools, rng: np.random.Generator) -> Floats:
    """(M,): p-values of the means in a group against those of all other rows, from (n, M).

    They come from the permutations of Welch's statistic; for large groups, and below what that many permutations can
    show, from Student's distribution of it.
    """
    scaled = values - values.sum(axis=0) / np.maximum(among.sum(axis=0), 1)  # centred: squares keep their digits
    sums = np.concatenate([among, scaled * among, scaled**2 * among], axis=1)
    whole, part, k = sums.sum(axis=0), sums[mine].sum(axis=0), int(min(mine.sum(), (~mine).sum()))
    t, p = _welch(part, whole)
    if k >= _LARGE:
        return p
    drawn = np.array([sums[rng.choice(len(sums), k, replace=False, shuffle=False)].sum(axis=0) for _ in range(_DRAWS)])
    with np.errstate(invalid="ignore"):
        above = (np.nan_to_num(np.abs(_welch(drawn, whole)[0]), nan=np.inf) >= np.abs(t)).sum(axis=0)
    return np.asarray(np.where(above > 0, (above + 1) / (_DRAWS + 1), np.minimum(p, 1 / (_DRAWS + 1))))


def _welch(part: Floats, whole: Floats) -> tuple[Floats, Floats]:
    """(…, M): Welch's statistic and its p-value, from counts, sums and sums of squares (…, 3 M) of one side and all."""
    sides = []
    for side in (part, whole - part):
        n, total, squares = np.split(side, 3, axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = total / n
            sides += [mean, np.sqrt(np.maximum(squares - n * mean**2, 0) / (n - 1)), n]
    with np.errstate(invalid="ignore", divide="ignore"):
        t, p = ttest_ind_from_stats(*sides, equal_var=False)
    return np.asarray(t), np.asarray(p)


# Areas


class Area(NamedTuple):
    """An area under a ROC curve, or the mean of several; NaN if there is none."""

    value: float
    variance: float  # DeLong's
    pairs: int  # of a row with a label and one without, no row twice: the fewest of all labels


def area_of(truth: Bools, p: Floats) -> Area:
    """The mean area over the labels that some rows have and others lack, from (n, L) each.

    >>> area = area_of(np.array([[1], [0], [1], [0]], dtype=bool), np.array([[0.9], [0.6], [0.5], [0.1]]))
    >>> area.value, round(area.variance, 3), area.pairs
    (0.75, 0.125, 2)
    """
    n, moves, areas, fewest = len(truth), np.zeros(len(truth)), list[float](), len(truth)
    for has, own in zip(truth.T, p.T, strict=True):
        n_with, n_without = int(has.sum()), int(n - has.sum())
        if not n_with or not n_without:
            continue
        above, below = _shares_below(own[has], own[~has]), 1 - _shares_below(own[~has], own[has])
        areas.append(float(above.mean()))
        fewest = min(fewest, n_with, n_without)
        with np.errstate(invalid="ignore", divide="ignore"):  # one row has no variance
            moves[has] += (above - areas[-1]) / np.sqrt(n_with * (n_with - 1))
            moves[~has] += (below - areas[-1]) / np.sqrt(n_without * (n_without - 1))
    if not areas:
        return Area(np.nan, np.nan, 0)
    return Area(float(np.mean(areas)), float(moves @ moves) / len(areas) ** 2, fewest)


def _shares_below(values: Floats, others: Floats) -> Floats:
    """The share of others below each value; a tie counts half."""
    known = np.sort(others)
    return (np.searchsorted(known, values, "left") + np.searchsorted(known, values, "right")) / (2 * len(known))


def _log_odds(area: Area) -> tuple[float, float]:
    """The log-odds of an area, and their standard error by DeLong's variance: closer to normal than the area itself."""
    return float(logit(area.value)), float(np.sqrt(area.variance) / (area.value * (1 - area.value)))


def _area_interval(area: Area, level: float) -> tuple[float, float]:
    """A confidence interval: DeLong's on the scale of log-odds; without any variance, from disjoint pairs (exact)."""
    if area.pairs < _PAIRS:
        return np.nan, np.nan
    if area.variance == 0:
        low, high = rate_interval(area.value * area.pairs, area.pairs, level)
        return float(low), float(high)
    middle, error = _log_odds(area)
    away = norm.ppf((1 + level) / 2) * error
    return float(expit(middle - away)), float(expit(middle + away))


def _areas_differ(own: Area, rest: Area) -> float:
    """The p-value of two areas: by their log-odds, or by disjoint pairs if one of them has no variance."""
    if min(own.pairs, rest.pairs) < _PAIRS:
        return np.nan
    if not own.variance or not rest.variance:
        counts = [[round(each.value * each.pairs), round((1 - each.value) * each.pairs)] for each in (own, rest)]
        return float(fisher_exact(counts).pvalue)
    (left, error), (right, other) = _log_odds(own), _log_odds(rest)
    return float(2 * norm.sf(abs(left - right) / np.hypot(error, other)))


def _measure_areas(measures: Sequence[AreaMeasure], codes: NDArray[np.int64], n_groups: int) -> Cells:
    cells = [[_area_cell(each, codes == g, n_groups) for each in measures] for g in range(n_groups)]
    n, *columns = np.moveaxis(np.array(cells, dtype=np.float64), -1, 0)
    return Cells(n.astype(np.int64), *columns)


def _area_cell(measure: AreaMeasure, mine: Bools, n_groups: int) -> tuple[float, ...]:
    """The fields of `Cells` for one group."""
    own, rest = (area_of(measure.truth[rows], measure.p[rows]) for rows in (mine, ~mine))
    ends = _area_interval(own, LEVEL), _area_interval(own, 1 - (1 - LEVEL) / n_groups)
    return (mine.sum(), own.value, *ends[0], *ends[1], _areas_differ(own, rest))


# Tests


def holm(p: Any) -> Floats:
    """p-values corrected for how many there are (Holm): any below α is right about all with probability 1 - α.

    >>> holm([0.01, 0.04, 0.03]).round(3)
    array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p, dtype=np.float64)
    corrected, known = np.full(p.shape, np.nan), np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1)
    return corrected
