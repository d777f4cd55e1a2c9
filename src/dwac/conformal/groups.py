"""Calibration within groups of examples: prediction sets whose guarantee holds in each group, which may overlap."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dwac.conformal.classes import Calibration, ConformalPrediction, ExpectedSets, Floats
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


class GroupCalibration:
    """Calibration in each group: labels of an example are compared with calibration examples of its own group alone.

    The p-value of a label is then valid within the group (Mondrian). For an example of several groups it is the largest
    of their p-values: the prediction set is the union of the groups' sets, and valid within each of them. An example of
    a group without calibration examples has p-values of 1.

    Args:
        within: (n_cal,) the group of each calibration example, or a frozenset of its groups.
        calibrate: makes the `Calibration` with some of these examples, by number; None if these are of no use.

    >>> scores, within = np.array([0.1, 0.2, 0.7, 0.9]), ["a", "a", "b", "b"]
    >>> calibration = GroupCalibration(within, lambda rows: Calibration(scores[rows]))
    >>> calibration.of(["a", "b"]).p_values(np.array([[0.5], [0.5]])).ravel().round(2)
    array([0.33, 1.  ])
    """

    def __init__(self, within: Iterable[Hashable], calibrate: Callable[[Rows], Calibration | None]) -> None:
        names = list(within)
        made = {name: calibrate(rows) for name, rows in rows_by_group(names, len(names)).items()}
        self.by_name = {name: calibration for name, calibration in made.items() if calibration is not None}

    def of(self, within: Iterable[Hashable]) -> Calibration:
        """The calibration of new examples of these groups, (n,)."""
        return _OfExamples(self, list(within))

    def expected_sets(self, epsilon: float, *, ordered: bool = False) -> ExpectedSets:
        """The prediction sets to expect in the smallest group; `by_group` has those of each.

        For examples of several groups sets may be larger: these are the sets of one group.
        """
        by_group = {name: each.expected_sets(epsilon, ordered=ordered) for name, each in self.by_name.items()}
        smallest = min(by_group.values(), key=lambda each: each.n_calibration)
        return replace(smallest, by_group=by_group)


class _OfExamples(Calibration):
    """The calibration of n examples, each by the calibration of its groups."""

    def __init__(self, groups: GroupCalibration, within: list[Hashable]) -> None:
        self._groups, self._within = groups, within

    def p_values(self, scores: ArrayLike, **options: Any) -> Floats:
        """(n, K): the p-values of scores (n, K), or by fold (n, F, K)."""
        values = np.asarray(scores, dtype=np.float64)
        p = np.zeros((len(values), values.shape[-1]))
        for name, rows in rows_by_group(self._within, len(values)).items():
            calibration = self._groups.by_name.get(name)
            p[rows] = 1.0 if calibration is None else np.maximum(p[rows], calibration.p_values(values[rows], **options))
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
