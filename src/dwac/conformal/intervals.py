"""Intervals for numbers: the tails of the votes to cut off so that the rest contains the true number 1 - ε of the time.

The votes on x are a distribution over the voters' own targets. A number y lies in its lower tail by the share of votes
with a target ≤ y, and in its upper tail by the share with a target ≥ y. The nonconformity of y is high if the smaller
of the two is small; the set {y : score ≤ s} is then an interval between two quantiles of the votes. Calibration chooses
s, as for classes: the set misses the true number of at most a share ε of exchangeable examples.

>>> import numpy as np
>>> shares = np.array([0.5, 0.2, 0.1, 0.05, 0.01])  # the smaller tail of five calibration numbers
>>> calibration = IntervalCalibration(tail_scores(np.log(shares), np.log(1 - shares)))
>>> log_tail, beyond = tails_of(calibration.score_at(0.4))
>>> round(float(np.exp(log_tail)), 3), float(beyond)  # the set lies between the 5 % and the 95 % quantile of the votes
(0.05, 0.0)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dwac import _checks as checks
from dwac.conformal.classes import Calibration, CrossCalibration, Floats, counted, groups_of_sizes, list_groups
from dwac.conformal.conditional import ConditionalThresholds
from dwac.conformal.groups import middle, overlap, rows_by_combination, rows_by_group
from dwac.conformal.guarantees import (
    allowed_misses,
    coverage_range,
    cross_guarantee,
    describe_bound,
    smallest_calibration,
)
from dwac.conformal.weights import ExampleWeights, weighted_score
from dwac.errors import CalibrationWarning, InputError, ShapeError

_AT_ONCE = 2_000_000  # ends sorted at a time, so that memory stays small


def tail_scores(log_at_most: ArrayLike, log_at_least: ArrayLike, beyond: ArrayLike = 0.0) -> Floats:
    """The nonconformity of numbers y, from the logs of the shares of votes with a target ≤ y and ≥ y; any shape.

    t = -log(2 min(share ≤ y, share ≥ y)), or 0 if negative, as where many targets equal y, is mapped to t / (1 + t)
    in [0, 1): the order is that of the smaller tail, from 0 at the median of the votes. A number outside all targets
    (one share is 0, its log -inf) scores 1 + beyond.

    Args:
        log_at_most: logs of the shares of votes with a target ≤ y.
        log_at_least: logs of the shares with a target ≥ y.
        beyond: how far y is outside the range of all targets (`distance_beyond`); read only where a share is 0.

    >>> tail_scores(np.log([0.5, 0.1]), np.log([0.5, 0.9])).round(3), tail_scores(-np.inf, 0.0, beyond=0.25)
    (array([0.   , 0.617]), array(1.25))
    """
    logs = [checks.scores(x, name) for x, name in ((log_at_most, "log_at_most"), (log_at_least, "log_at_least"))]
    for log, name in zip(logs, ("log_at_most", "log_at_least"), strict=True):
        if (log > 1e-6).any():
            raise InputError(f"{name} must be logs of shares, at most 0; got {log.max():.6g}; divide by all votes")
    out = checks.scores(beyond, "beyond")
    if (out < 0).any():
        raise InputError(f"beyond must be a distance, at least 0; got {out.min():.6g}")
    smaller = np.minimum(*logs)
    outside = np.isneginf(smaller)
    t = np.maximum(-np.log(2) - np.where(outside, 0.0, smaller), 0.0)
    further = np.maximum(1 + out, np.where(out > 0, np.nextafter(1, 2), 1.0))  # rounded up: outside is beyond the end
    return np.asarray(np.where(outside, further, t / (1 + t)))


def tails_of(score: ArrayLike) -> tuple[Floats, Floats]:
    """The inverse of `tail_scores`: the set {y : score(y) ≤ s} in terms of the votes, as (log_tail, beyond).

    For s < 1 these are the y with a share of at least exp(log_tail) of the votes on either side, y included, and beyond
    is 0. For s ≥ 1 log_tail is -inf, and the set is the range of all targets, extended on both sides by s - 1 times its
    length (`extended_range`); for s = inf, every number. Rounded so that a number with exactly this score is inside.

    >>> tails_of(np.array([0.0, 1.25, np.inf]))
    (array([-0.69314718,        -inf,        -inf]), array([0.  , 0.25,  inf]))
    """
    s = checks.scores(score, "score")
    if (s < 0).any():
        raise InputError(f"scores of numbers are at least 0; got {s.min():.6g}; take them from tail_scores")
    inside = s < 1
    up = np.nextafter(np.nextafter(np.where(inside, s, 0.0), 2), 2)  # t / (1 + t) was rounded by up to one step
    with np.errstate(divide="ignore"):
        t = np.where(up < 1, up / np.maximum(1 - up, 0), np.inf)
    log_tail = np.where(inside, -np.log(2) - np.nextafter(t, np.inf), -np.inf)
    beyond = np.where(s > 1, np.nextafter(np.nextafter(s, np.inf) - 1, np.inf), 0.0)
    return np.asarray(np.nextafter(log_tail, -np.inf)), np.asarray(beyond)


def distance_beyond(y: ArrayLike, lowest: ArrayLike, highest: ArrayLike) -> Floats:
    """How far numbers y lie outside the range of all targets, in units of that range; 0 inside.

    If all targets are equal there is no unit: every other number is infinitely far.

    >>> distance_beyond([1.0, 5.0, 7.0], 1.0, 5.0), distance_beyond([3.0, 4.0], 3.0, 3.0)
    (array([0. , 0. , 0.5]), array([ 0., inf]))
    """
    value, low, high = _range(y, lowest, highest)
    # Halves, so that the range of very large numbers does not overflow.
    outside = np.maximum(np.maximum(low / 2 - value / 2, value / 2 - high / 2), 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(np.where(outside > 0, outside / (high / 2 - low / 2), 0.0))


def extended_range(lowest: ArrayLike, highest: ArrayLike, beyond: ArrayLike) -> tuple[Floats, Floats]:
    """The range of all targets, extended on both sides by `beyond` times its length; everything for inf. Never NaN.

    >>> extended_range(1.0, 5.0, [0.0, 0.5, np.inf])
    (array([  1.,  -1., -inf]), array([ 5.,  7., inf]))
    """
    out, low, high = _range(beyond, lowest, highest)
    endless = np.isinf(out)
    with np.errstate(over="ignore"):
        # Extend by more than rounding, so that a number at this distance is inside.
        margin = 2 * (np.where(endless, 0.0, out) * (1 + 1e-15) * (high / 2 - low / 2))
        low, high = (
            np.where(margin > 0, np.nextafter(end, side), end)
            for end, side in ((low - margin, -np.inf), (high + margin, np.inf))
        )
    return np.where(endless, -np.inf, low), np.where(endless, np.inf, high)


def _range(value: ArrayLike, lowest: ArrayLike, highest: ArrayLike) -> tuple[Floats, Floats, Floats]:
    numbers, low, high = (
        checks.scores(x, name) for x, name in ((value, "numbers"), (lowest, "lowest"), (highest, "highest"))
    )
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise InputError(f"the range of all targets must be finite, lowest ≤ highest; got {low} and {high}")
    return numbers, low, high


@dataclass(frozen=True)
class ExpectedIntervals:
    """The intervals to expect at error rate ε; `str` describes them in words. `ExpectedSets` explains the range.

    >>> print(IntervalCalibration(np.arange(99) / 100).expected(0.1))
    99 calibration examples: at epsilon=0.1 expect a coverage between 84.7 % and 94.4 %
    """

    epsilon: float
    n_calibration: int  # in the smallest group, if by group
    by_group: bool
    coverage_range: tuple[float, float]
    guarantee: float | None = None  # cross-conformal: the theoretical minimum of mean coverage; otherwise it is 1 - ε
    n_groups: int | None = None  # groups of related examples: nothing is certain for new groups
    groups: Mapping[Hashable, ExpectedIntervals] | None = None  # those of each group, if by group; this is the smallest
    median_width: float | None = None  # of the calibration examples' own intervals, if by group and known
    n_rows: int | None = None  # of weighted calibration examples, whose effective number is n_calibration

    def of_groups(self, n_groups: int) -> ExpectedIntervals:
        """The expected intervals for new examples of other groups, given calibration examples of `n_groups` groups."""
        range_ = coverage_range(self.epsilon, min(n_groups, self.n_calibration), crossed=self.guarantee is not None)
        return replace(self, coverage_range=range_, guarantee=None, n_groups=n_groups)

    def of_widths(self, widths: Floats, rows: Mapping[Hashable, NDArray[np.int64]]) -> ExpectedIntervals:
        """The same with the median width in each group: widths (n_cal,), and the rows of the groups."""
        medians = {name: float(np.median(widths[some])) for name, some in rows.items()}
        each = {name: replace(one, median_width=medians[name]) for name, one in (self.groups or {}).items()}
        smallest = min(each, key=lambda name: each[name].n_calibration)
        return replace(self, groups=each, median_width=medians[smallest])

    def __str__(self) -> str:
        low, high = self.coverage_range
        where = " in the smallest group" if self.by_group else ""
        where += "" if self.n_groups is None else f", of {self.n_groups:,} groups"
        text = f"{counted(self.n_calibration, self.n_rows)}{where}: at epsilon={self.epsilon:g} "
        if self.n_calibration < (needed := smallest_calibration(self.epsilon)):
            text += f"intervals are infinite; at least {needed:,} examples are needed"
        else:
            bound = describe_bound(self.guarantee)
            width = "" if self.median_width is None else f"a median width of {self.median_width:.3g} and "
            text += f"expect {width}a coverage between {checks.percent(low)} and {checks.percent(high)}{bound}"
        return text + list_groups(self.groups)


class _CalibrationScores:
    """Scores of calibration numbers, optionally by group, with the tolerance added."""

    _crossed = False  # whether every training example calibrates

    def __init__(self, scores: ArrayLike, within: Iterable[Hashable] | None = None, *, tolerance: float = 0.0) -> None:
        values = checks.scores(scores, "calibration scores", ndim=1)
        if len(values) == 0:
            raise InputError("calibration needs at least one score; got none; hold out some examples for calibration")
        self.tolerance = float(tolerance)
        # Rounding never moves a number from inside the range of all targets to the outside.
        self.scores: Floats = np.where(values < 1, np.minimum(values + tolerance, 1.0), values + tolerance)
        names = None if within is None else list(within)
        self.by_group = names is not None
        self._rows = rows_by_group(names, len(values))
        self._thresholds: ConditionalThresholds | None = None  # if groups overlap
        if names is not None and overlap(names):
            rows = rows_by_combination(names, len(values))
            self._thresholds = ConditionalThresholds({groups: self.scores[some] for groups, some in rows.items()})

    @property
    def n_calibration(self) -> dict[Hashable, int]:
        """How many calibration examples each group has; the group is None if there are no groups."""
        return {name: len(rows) for name, rows in self._rows.items()}

    def expected(self, epsilon: float) -> ExpectedIntervals:
        """The intervals to expect at error rate ε, in the smallest group if calibration is by group.

        `ExpectedSets` explains the range.
        """
        epsilon, each = checks.epsilon(epsilon), dict[Hashable, ExpectedIntervals]()
        for name, rows in self._rows.items():
            range_ = coverage_range(epsilon, len(rows), crossed=self._crossed)
            each[name] = ExpectedIntervals(epsilon, len(rows), False, range_, self._guarantee(epsilon, rows))
        smallest = min(each.values(), key=lambda one: one.n_calibration)
        return replace(smallest, by_group=True, groups=each) if self.by_group else smallest

    def _guarantee(self, epsilon: float, rows: NDArray[np.int64]) -> float | None:
        """The theoretical minimum of mean coverage, calibrated with these rows; None: it is 1 - ε."""
        del epsilon, rows
        return None

    def _new_rows(self, within: Iterable[Hashable] | None, n: int) -> dict[Hashable, NDArray[np.int64]]:
        """The rows of each group of n new examples."""
        if (within is not None) != self.by_group:
            raise InputError(
                "calibration is by group, so the groups of new examples are required; got none"
                if self.by_group
                else "calibration is not by group, so new examples have no groups; calibrate with them, or give none"
            )
        return rows_by_group(within, n)

    def _own(self, name: Hashable) -> NDArray[np.int64]:
        """The calibration examples of a group."""
        return self._rows.get(name, np.zeros(0, dtype=np.int64))

    @property
    def overlapping(self) -> bool:
        """Whether examples belong to several groups, so that each combination of groups has a threshold."""
        return self._thresholds is not None

    def conditional_score_at(self, epsilon: float, within: Iterable[Hashable]) -> Floats:
        """(n,): the s for which {y : score(y) ≤ s} misses at most a share ε in each group (`ConditionalThresholds`)."""
        assert self._thresholds is not None
        names = list(within)
        _warn_if_infinite(self, checks.epsilon(epsilon), list(rows_by_group(names, len(names))))
        scores = np.empty(len(names))
        for groups, rows in rows_by_combination(names, len(names)).items():
            scores[rows] = self._thresholds.threshold(epsilon, groups)
        return scores

    def _p_values(self, scores: Floats, within: Iterable[Hashable] | None) -> Floats:
        """(n,): the p-values of numbers with scores (n,), or by fold (n, F); 1 in a group without examples."""
        names, p = None if within is None else list(within), np.zeros(len(scores))
        groups = self._new_rows(names, len(scores))
        if self._thresholds is not None and names is not None:
            values = middle(scores) if scores.ndim == 2 else scores
            for combination, rows in rows_by_combination(names, len(values)).items():
                p[rows] = self._thresholds.p_values(values[rows], combination)
            return p
        for name, rows in groups.items():
            own = self._own(name)
            p[rows] = np.maximum(p[rows], self._calibration(own).p_values(scores[rows])) if len(own) else 1.0
        return p

    def _calibration(self, rows: NDArray[np.int64]) -> Calibration:
        """The calibration with these examples, at least one."""
        return Calibration(self.scores[rows])


class IntervalCalibration(_CalibrationScores):
    """Scores of calibration numbers (`tail_scores`); then the score at which to cut new intervals, for any ε.

    Args:
        scores: (n_cal,) the score of each calibration example's true number.
        within: (n_cal,) the group of each example, any hashable name, or a frozenset of its groups. If given, an
            interval is calibrated with examples of its own group only (Mondrian), so that the guarantee holds in each
            group; if groups overlap, with all examples, by `ConditionalThresholds`.
        tolerance: scores that differ by no more than this count as equal, as for `Calibration`.

    >>> calibration = IntervalCalibration([0.1, 0.2, 0.3, 0.4])
    >>> float(calibration.score_at(0.2)), calibration.p_values([0.2, 0.45])
    (0.4, array([0.8, 0.2]))
    """

    def score_at(
        self,
        epsilon: float,
        within: Iterable[Hashable] | None = None,
        own: Iterable[Floats] | None = None,
        weights: ExampleWeights | None = None,
    ) -> Floats:
        """The s for which {y : score(y) ≤ s} misses the true number with probability at most ε.

        The ⌈(1 - ε)(n_cal + 1)⌉-th smallest calibration score; inf if there are too few. A single number, of shape (),
        or (n,) for the groups (n,) of new examples, if calibration is by group.

        own: for each of n new examples, the calibration scores as seen from it (`LocalScores`); then (n,). weights: of
        the calibration examples and of the new ones, if `own` is given.
        """
        epsilon = checks.epsilon(epsilon)
        if own is not None:
            _warn_if_infinite(self, epsilon, [None])
            if weights is None:
                return np.array([_score_at(scores, epsilon) for scores in own])
            each = zip(own, weights.new.tolist(), strict=True)
            return np.array([weighted_score(scores, weights.calibration, new, epsilon) for scores, new in each])
        names = None if within is None else list(within)
        if names is not None and self.overlapping:
            return self.conditional_score_at(epsilon, names)
        n = 1 if names is None else len(names)
        groups = self._new_rows(names, n)
        _warn_if_infinite(self, epsilon, list(groups))
        scores = np.full(n, -np.inf)
        for name, rows in groups.items():
            least = _score_at(self.scores[self._own(name)], epsilon)
            scores[rows] = np.maximum(scores[rows], least)
        return scores if names is not None else scores.reshape(())

    def p_values(self, scores: ArrayLike, within: Iterable[Hashable] | None = None) -> Floats:
        """(#{calibration scores ≥ score} + 1) / (n_cal + 1), in the shape of `scores`; (n,) if by group.

        A group without calibration examples has p-values of 1.
        """
        values = checks.scores(scores, "scores", ndim=1 if self.by_group else None)
        return self._p_values(values.ravel(), within).reshape(values.shape)


class CrossIntervalCalibration(_CalibrationScores):
    """Cross-conformal intervals: every training example calibrates, scored by a model that left out its fold.

    p(y) = (1 + #{i : score_f(i)(x, y) ≤ score_i}) / (n + 1), where score_f is by the model without fold f, as for
    `CrossCalibration`. Each comparison holds on an interval [low_i, high_i]; `ends` combines these (CV+).

    Args:
        scores: (n_cal,) the score of each example's true number by the model without its fold.
        folds: (n_cal,) the fold of each example, from 0.
        within, tolerance: as for `IntervalCalibration`. `scores` are stored with the tolerance added: these define the
            sets {y : score_f(i)(x, y) ≤ score_i} for `ends`.

    >>> calibration = CrossIntervalCalibration([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1])
    >>> calibration.p_values([[0.25, 0.25], [0.5, 0.5]])
    array([0.6, 0.2])
    """

    _crossed = True

    def __init__(
        self,
        scores: ArrayLike,
        folds: ArrayLike,
        within: Iterable[Hashable] | None = None,
        *,
        tolerance: float = 0.0,
    ) -> None:
        super().__init__(scores, within, tolerance=tolerance)
        self.folds = checks.class_labels(folds, "folds", n=len(self.scores))

    def guarantee(self, epsilon: float) -> float:
        """The minimum coverage of intervals, on average over draws of the data; that of the worst group.

        0 if groups overlap: no bound is proved.
        """
        return min(self._guarantee(epsilon, rows) for rows in self._rows.values())

    def _guarantee(self, epsilon: float, rows: NDArray[np.int64]) -> float:
        return 0.0 if self.overlapping else cross_guarantee(epsilon, self.folds[rows])

    def expected(self, epsilon: float) -> ExpectedIntervals:
        """The intervals to expect at error rate ε; `ExpectedSets` explains the range."""
        return replace(super().expected(epsilon), guarantee=self.guarantee(epsilon))

    def p_values(self, scores: ArrayLike, within: Iterable[Hashable] | None = None) -> Floats:
        """(n,): the p-values of numbers with scores (n, F), by the model without each fold."""
        return self._p_values(checks.scores(scores, "scores", ndim=2), within)

    def _calibration(self, rows: NDArray[np.int64]) -> Calibration:
        return CrossCalibration(self.scores[rows], self.folds[rows])

    @staticmethod
    def middle_ends(lows: Floats, highs: Floats) -> Floats:
        """(n, 2): the ends of what most models contain, from those of each fold, (n, F): the median score is within."""
        return _hull(np.minimum(lows, highs), np.maximum(lows, highs), (lows.shape[1] + 1) // 2)

    def ends(
        self,
        lows: ArrayLike,
        highs: ArrayLike,
        epsilon: float,
        within: Iterable[Hashable] | None = None,
        weights: ExampleWeights | None = None,
    ) -> Floats:
        """(n, 2): the ends of the smallest interval that contains {y : p(y) > ε}; (-inf, inf) with too few examples.

        If no number has a p-value above ε, as when the models of the folds contradict one another, the numbers with the
        largest p-value are used instead: an interval is never empty.

        Args:
            lows, highs: (n, n_cal) ends of {y : score_f(i)(x, y) ≤ score_i}, ±inf allowed. Ends in the wrong order, as
                rounding may give at the median, are swapped.
            epsilon: error rate.
            within: (n,) the groups of the new examples, if calibration is by group, and these do not overlap.
            weights: of the calibration examples and of the new ones; not by group.
        """
        low, high = (checks.scores(x, name, ndim=2) for x, name in ((lows, "lows"), (highs, "highs")))
        if low.shape != high.shape or low.shape[1] != len(self.scores):
            raise ShapeError(
                f"lows and highs must have one column for each of the {len(self.scores)} calibration examples; "
                f"got {low.shape} and {high.shape}"
            )
        epsilon = checks.epsilon(epsilon)
        if weights is not None:
            return _weighted_hull(np.minimum(low, high), np.maximum(low, high), weights, epsilon)
        groups = self._new_rows(within, len(low))
        _warn_if_infinite(self, epsilon, list(groups))
        ends = np.tile([np.inf, -np.inf], (len(low), 1))
        for name, rows in groups.items():
            own = self._own(name)
            least = allowed_misses(epsilon, len(own))  # p(y) > ε: at least this many sets contain y
            size = max(1, _AT_ONCE // max(len(own), 1))
            if least == 0:
                ends[rows] = [-np.inf, np.inf]
            for some in (rows[start : start + size] for start in range(0, len(rows), size) if least):
                a, b = low[np.ix_(some, own)], high[np.ix_(some, own)]
                hull = _hull(np.minimum(a, b), np.maximum(a, b), least)
                ends[some, 0] = np.minimum(ends[some, 0], hull[:, 0])
                ends[some, 1] = np.maximum(ends[some, 1], hull[:, 1])
        return ends


def _score_at(scores: Floats, epsilon: float) -> float:
    """The ⌈(1 - ε)(n + 1)⌉-th smallest of n scores; inf if there are too few."""
    missed = allowed_misses(epsilon, len(scores))
    return float(np.partition(scores, len(scores) - missed)[len(scores) - missed]) if missed else np.inf


def _hull(lows: Floats, highs: Floats, least: int) -> Floats:
    """(n, 2): the lowest and highest number in at least `least` of the intervals (n, m), or else in the most.

    >>> _hull(np.array([[0.0, 1.0, 5.0]]), np.array([[2.0, 3.0, 6.0]]), least=2)
    array([[1., 2.]])
    """
    return np.stack([_lowest_common(lows, highs, least), -_lowest_common(-highs, -lows, least)], axis=1)


def _weighted_hull(lows: Floats, highs: Floats, weights: ExampleWeights, epsilon: float) -> Floats:
    """(n, 2): the lowest and highest number whose p-value exceeds ε; intervals (n, m) count by their weights."""
    ends, every = np.tile([-np.inf, np.inf], (len(lows), 1)), weights.calibration.sum()
    for row, own in enumerate(weights.new.tolist()):
        least = (epsilon * (every + own) - own) * (1 + 1e-12)  # of the weights of the intervals that contain a number
        if least >= 0:
            low, high, own = lows[row, None], highs[row, None], weights.calibration
            ends[row] = _lowest_inside(low, high, own, least)[0], -_lowest_inside(-high, -low, own, least)[0]
    return ends


def _lowest_inside(lows: Floats, highs: Floats, weights: Floats, least: float) -> Floats:
    """(n,): the lowest number in intervals (n, m) of more than this weight, or else in those of the most."""
    ends = np.concatenate([lows, highs], axis=1)
    order = np.argsort(ends, axis=1, kind="stable")  # where one begins and another ends, both contain the number
    heavy = np.concatenate([weights, -weights])[order].cumsum(axis=1)  # of the intervals that contain each end
    enough = heavy > least
    place = np.where(enough.any(axis=1), enough.argmax(axis=1), heavy.argmax(axis=1))[:, None]
    return np.asarray(np.take_along_axis(ends, np.take_along_axis(order, place, axis=1), axis=1)[:, 0])


def _lowest_common(lows: Floats, highs: Floats, least: int) -> Floats:
    """(n,): the lowest number in at least `least` of the intervals (n, m), or else in the most."""
    first = np.partition(lows, least - 1, axis=1)[:, least - 1]
    # `least` intervals have begun there; if none has ended, all of these contain it.
    some = np.flatnonzero(highs.min(axis=1) < first)
    if len(some):
        first[some] = _lowest_inside(lows[some], highs[some], np.ones(lows.shape[1], dtype=np.int64), least - 1)
    return np.asarray(first)


def _warn_if_infinite(calibration: _CalibrationScores, epsilon: float, groups: list[Hashable]) -> None:
    needed, sizes = smallest_calibration(epsilon), calibration.n_calibration
    small = [name for name in groups if sizes.get(name, 0) < needed]
    if not small:
        return
    if calibration.by_group:
        examples = "calibration examples of its group, and "
        examples += groups_of_sizes(small, sizes)
    else:
        examples = f"calibration examples, and the calibration set has {sizes[None]}"
    checks.warn(
        f"at epsilon={epsilon:g} an interval is finite only with at least {needed} {examples}: the affected intervals "
        "are infinite. Calibrate with more examples or use a larger epsilon",
        CalibrationWarning,
    )
