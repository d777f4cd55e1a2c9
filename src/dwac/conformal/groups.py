"""Calibration within groups of examples: prediction sets whose guarantee holds in each group, which may overlap."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dwac import _checks as checks
from dwac.conformal.classes import Calibration, ConformalPrediction, CrossCalibration, ExpectedSets, Floats, label_sets
from dwac.conformal.conditional import ConditionalThresholds, Groups
from dwac.errors import InputError, ShapeError

Rows = NDArray[np.int64]


def rows_by_group(within: Iterable[Hashable] | None, n: int) -> dict[Hashable, Rows]:
    """The rows of each group, in order; without groups, all n rows belong to the group None.

    within: (n,) the group of each row, any hashable name; or a frozenset of the groups that it belongs to.

    >>> rows_by_group([frozenset({"young"}), frozenset({"young", "poor"})], 2)["young"]
    array([0, 1])
    """
    if within is None:
        return {None: np.arange(n)}
    rows: dict[Hashable, list[int]] = {}
    names = list(within)
    if len(names) != n:
        raise ShapeError(f"within must have one entry per example: {n} required, got {len(names)}")
    for row, name in enumerate(names):
        if not isinstance(name, Hashable) or name != name or name == frozenset():  # NaN is not equal to itself
            raise InputError(f"within must be names that can be compared, such as texts; got {name!r} at row {row}")
        for each in sorted(name, key=str) if isinstance(name, frozenset) else (name,):
            rows.setdefault(each, []).append(row)
    return {name: np.array(some, dtype=np.int64) for name, some in rows.items()}


def rows_by_combination(within: Iterable[Hashable], n: int) -> dict[Groups, Rows]:
    """The rows of each combination of groups, in order; within: as for `rows_by_group`.

    >>> rows_by_combination([frozenset({"young"}), frozenset({"young", "poor"}), "young"], 3)[frozenset({"young"})]
    array([0, 2])
    """
    names = list(within)
    rows_by_group(names, n)
    combinations = [name if isinstance(name, frozenset) else frozenset({name}) for name in names]
    rows: dict[Groups, list[int]] = {}
    for row, combination in enumerate(combinations):
        rows.setdefault(combination, []).append(row)
    return {combination: np.array(some, dtype=np.int64) for combination, some in rows.items()}


def overlap(within: Iterable[Hashable]) -> bool:
    """Whether an example belongs to several groups."""
    return any(isinstance(name, frozenset) and len(name) > 1 for name in within)


def middle(by_fold: Floats) -> Floats:
    """(n, …): the median over folds of scores (n, F, …); the lower of two, which covers more."""
    return np.asarray(np.sort(by_fold, axis=1)[:, (by_fold.shape[1] - 1) // 2])


class GroupCalibration:
    """Calibration within groups: prediction sets miss a share ε within each of them.

    If groups are disjoint, labels of an example are compared with calibration examples of its own group alone
    (Mondrian). If some examples belong to several groups, p-values are those of `ConditionalThresholds`, which take all
    groups into account at once; scores by fold are then replaced by their median, and the guarantee is measured, not
    proved. An example of a group without calibration examples has p-values of 1.

    Args:
        within: (n_cal,) the group of each calibration example, or a frozenset of its groups.
        calibrate: makes the `Calibration` with some of these examples, by number; None if these are of no use.
        union: the p-value of an example of several groups is the largest of their p-values: also valid within each, and
            larger than by thresholds, but at once.

    >>> scores, within = np.array([0.1, 0.2, 0.7, 0.9]), ["a", "a", "b", "b"]
    >>> calibration = GroupCalibration(within, lambda rows: Calibration(scores[rows]))
    >>> calibration.of(["a", "b"]).p_values(np.array([[0.5], [0.5]])).ravel().round(2)
    array([0.33, 1.  ])
    """

    def __init__(
        self, within: Iterable[Hashable], calibrate: Callable[[Rows], Calibration | None], *, union: bool = False
    ) -> None:
        names = list(within)
        made = {name: calibrate(rows) for name, rows in rows_by_group(names, len(names)).items()}
        self.by_name = {name: calibration for name, calibration in made.items() if calibration is not None}
        self.by_combination: dict[Groups, Calibration] = {}  # the same with the examples of each combination of groups
        if overlap(names) and not union:
            parts = {groups: calibrate(rows) for groups, rows in rows_by_combination(names, len(names)).items()}
            self.by_combination = {groups: part for groups, part in parts.items() if part is not None}
        self._thresholds: dict[int, ConditionalThresholds] = {}

    def thresholds(self, k: int = 0) -> ConditionalThresholds:
        """The thresholds of label k, if calibration is class-conditional; otherwise all labels share them."""
        if k not in self._thresholds:
            parts = {groups: each._for(k) for groups, each in self.by_combination.items()}
            self._thresholds[k] = ConditionalThresholds(parts)
        return self._thresholds[k]

    def conditional_p_values(self, scores: Floats, groups: Groups) -> Floats:
        """(n, K): the p-values of scores (n, K) of examples of the same, overlapping groups."""
        some = next(iter(self.by_combination.values()))
        scores = scores - some.tolerance
        if not some.class_conditional:
            return self.thresholds().p_values(scores, groups)
        columns = [self.thresholds(k).p_values(column, groups) for k, column in enumerate(scores.T)]
        return np.stack(columns, axis=1)

    def of(self, within: Iterable[Hashable]) -> Calibration:
        """The calibration of new examples of these groups, (n,)."""
        return _OfExamples(self, list(within))

    def expected_sets(self, epsilon: float, *, ordered: bool = False) -> ExpectedSets:
        """The prediction sets to expect in the smallest group; `by_group` has those of each.

        If groups overlap, sizes are those of the calibration examples by the thresholds of all their groups.
        """
        by_group = {name: each.expected_sets(epsilon, ordered=ordered) for name, each in self.by_name.items()}
        if self.by_combination:
            sizes = self._own_sizes(checks.epsilon(epsilon), ordered=ordered)
            by_group = {name: self._expected(each, sizes[name]) for name, each in by_group.items()}
        smallest = min(by_group.values(), key=lambda each: each.n_calibration)
        return replace(smallest, by_group=by_group)

    def _own_sizes(self, epsilon: float, *, ordered: bool) -> dict[Hashable, list[int]]:
        """The sizes of the sets of the calibration examples of each group; none if their scores are unknown."""
        sizes: dict[Hashable, list[int]] = {name: [] for name in self.by_name}
        for groups, calibration in self.by_combination.items():
            if calibration._table is not None:
                p = self.conditional_p_values(calibration._table, groups)
                own = label_sets(p, epsilon, ordered=ordered).sum(axis=1).tolist()
                for name in groups & sizes.keys():
                    sizes[name] += own
        return sizes

    def _expected(self, alone: ExpectedSets, sizes: list[int]) -> ExpectedSets:
        """What to expect in one of several overlapping groups; no bound is proved for cross-fitted models."""
        crossed = any(isinstance(each, CrossCalibration) for each in self.by_name.values())
        expected = replace(alone, guarantee=0.0 if crossed else None)
        if not sizes:
            return expected
        full = float(np.mean(np.array(sizes) == alone.n_labels)) if alone.n_labels != 1 else 0.0
        return replace(expected, mean_size=float(np.mean(sizes)), full_share=full)


class _OfExamples(Calibration):
    """The calibration of n examples, each by the calibration of its groups."""

    def __init__(self, groups: GroupCalibration, within: list[Hashable]) -> None:
        self._groups, self._within = groups, within

    def p_values(self, scores: ArrayLike, **options: Any) -> Floats:
        """(n, K): the p-values of scores (n, K), or by fold (n, F, K)."""
        values = np.asarray(scores, dtype=np.float64)
        if self._groups.by_combination:
            return self._conditional(values, **options)
        p = np.zeros((len(values), values.shape[-1]))
        for name, rows in rows_by_group(self._within, len(values)).items():
            calibration = self._groups.by_name.get(name)
            p[rows] = 1.0 if calibration is None else np.maximum(p[rows], calibration.p_values(values[rows], **options))
        return p

    def _conditional(self, values: Floats, **options: Any) -> Floats:
        if options:
            raise InputError(f"p-values within groups that overlap have no options; got {', '.join(options)}")
        values, p = middle(values) if values.ndim == 3 else values, np.empty((len(values), values.shape[-1]))
        for groups, rows in rows_by_combination(self._within, len(values)).items():
            p[rows] = self._groups.conditional_p_values(values[rows], groups)
        return p

    def predict(
        self,
        scores: ArrayLike,
        *,
        classes: NDArray[Any] | None = None,
        fold_scores: ArrayLike | None = None,
        ordered: bool = False,
        **options: Any,
    ) -> ConformalPrediction:
        """p-values of scores (n, K), and everything derived from them; see `Calibration.predict`."""
        values = np.asarray(scores, dtype=np.float64)
        known, k = self._groups.by_name, values.shape[1]
        names = rows_by_group(self._within, len(values))
        sizes = {name: int(known[name].n_calibration(k).min()) if name in known else 0 for name in names}
        p = self.p_values(values if fold_scores is None else fold_scores, **options)
        return ConformalPrediction(p, values, sizes, classes, self, ordered=ordered)

    def expected_sets(self, epsilon: float, *, ordered: bool = False) -> ExpectedSets:
        """The prediction sets to expect in the smallest group."""
        return self._groups.expected_sets(epsilon, ordered=ordered)
