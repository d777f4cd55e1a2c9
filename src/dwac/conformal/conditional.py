"""Guarantees within groups that overlap: a quantile regression of scores on groups, the new example among the others.

Gibbs, Cherian and Candès (2023), "Conformal prediction with conditional guarantees", for finitely many groups. Of n + 1
examples, choose which to miss, in part if need be: a_i in [0, 1], a share ε in every group, with the largest sum of
scores:

    max Σ_i a_i S_i,  where Σ_{i in g} a_i = ε n_g  for every group g.

A new example is missed if all of it is (a = 1, in every solution). At most ε n_g examples of a group can be, and the
new one is no more likely than others to be among them: sets cover at least a share 1 - ε in every group, on average
over draws of exchangeable examples. Whether it is missed depends on its groups and its score alone, and larger scores
are missed first: each combination of groups has a threshold, the derivative of the maximum at a = 1. One linear program
gives it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from dwac import _checks as checks

Floats = NDArray[np.float64]
Groups = frozenset[Hashable]

# Thresholds of quantile regressions may cross as ε changes. Sets at ε hold those at every level above it, so that they
# grow as ε falls; they are defined at these levels, and between two of them they are those of the lower.
LEVELS = np.array([0.001, 0.002, 0.005, *np.arange(1, 21) / 100, *np.arange(5, 20) / 20])
_MISSED = 1 - 1e-6  # "all of it": just below 1, where the derivative is that from the left
_ROUNDING = 1e-9  # of the solver
_NEAR = 8  # scores on either side of where a threshold is expected


class ConditionalThresholds:
    """Thresholds of scores for every combination of groups, each computed once, when it is first needed.

    Args:
        scores: the scores of the calibration examples with each combination of groups; infinite ones are allowed.

    >>> rng = np.random.default_rng(0)
    >>> thresholds = ConditionalThresholds({frozenset("a"): rng.random(99), frozenset("ab"): 2 * rng.random(99)})
    >>> [round(float(thresholds.threshold(0.1, groups)), 2) for groups in (frozenset("a"), frozenset("ab"))]
    [0.94, 1.85]
    """

    def __init__(self, scores: Mapping[Groups, Floats]) -> None:
        combinations = sorted((groups for groups, own in scores.items() if len(own)), key=_key)
        self._names = sorted(frozenset().union(*combinations), key=_key)
        self._parts = [np.sort(_finite(scores[groups])) for groups in combinations]
        self._sums = [np.concatenate([[0.0], part.cumsum()]) for part in self._parts]
        members = [[name in groups for groups in combinations] for name in self._names]
        self._members = np.array(members, dtype=np.float64).reshape(len(self._names), len(combinations))
        self._thresholds: dict[Groups, Floats] = {}

    def threshold(self, epsilon: float, groups: Groups) -> np.float64:
        """The score up to which an example of these groups is covered at ε; inf with too few calibration examples."""
        accepted = np.flatnonzero(checks.epsilon(epsilon) >= LEVELS)
        if len(accepted) == 0:
            return np.float64(np.inf)
        t = self._at_levels(groups)[accepted[-1]] + _ROUNDING
        return np.float64(t / (1 - abs(t)) if t < 1 else np.inf)

    def p_values(self, scores: ArrayLike, groups: Groups) -> Floats:
        """The p-values of scores of examples of these groups: the level above the last at which each is covered."""
        covered = np.searchsorted(-self._at_levels(groups), -(_finite(scores) - _ROUNDING), side="right")
        return np.append(LEVELS, 1.0)[covered]

    def _at_levels(self, groups: Groups) -> Floats:
        """(levels,): the thresholds of these groups, of `_finite` scores, which fall from each level to the next."""
        if groups not in self._thresholds:
            thresholds = np.full(len(LEVELS), np.inf)
            if groups.issubset(self._names):
                near = np.array([np.quantile(part, 1 - LEVELS[-1]) for part in self._parts])
                for place in range(len(LEVELS))[::-1]:
                    thresholds[place], near = self._solve(LEVELS[place], groups, near)
            self._thresholds[groups] = np.maximum.accumulate(thresholds[::-1])[::-1]
        return self._thresholds[groups]

    def _solve(self, epsilon: float, groups: Groups, near: Floats) -> tuple[float, Floats]:
        """(the threshold of these groups, those of all combinations in the same solution).

        near: where the latter are expected. Scores far from them are summed up, as all of them are missed or none; if a
        threshold is elsewhere, the scores near it join.
        """
        new = np.array([float(name in groups) for name in self._names])
        sizes = self._members @ [len(part) for part in self._parts]
        left = epsilon * (sizes + new) - _MISSED * new  # how many of the others each group may miss
        if (left < 0).any():
            return np.inf, near
        windows = [_window(part, at, _NEAR) for part, at in zip(self._parts, near, strict=True)]
        width = _NEAR
        while True:
            pieces = [_pieces(*each) for each in zip(self._parts, self._sums, windows, strict=True)]
            means, counts = (np.concatenate(each) for each in zip(*pieces, strict=True))
            of = np.repeat(np.arange(len(pieces)), [len(each[0]) for each in pieces])
            bounds = np.stack([np.zeros(len(counts)), counts], axis=1)
            equal = {"A_eq": csr_array(self._members[:, of]), "b_eq": left}
            solution: Any = linprog(-means, **equal, bounds=bounds, options={"presolve": False})  # takes longer than it
            if not solution.success:  # the others cannot make room for the new example
                return np.inf, near
            prices = -solution.eqlin.marginals
            thresholds, width, outside = prices @ self._members, 2 * width, False
            for place, (part, at) in enumerate(zip(self._parts, thresholds, strict=True)):
                low, high = windows[place]
                if (low > 0 and part[low - 1] > at) or (high < len(part) and part[high] < at):
                    others, outside = _window(part, at, width), True
                    windows[place] = min(low, others[0]), max(high, others[1])
            if not outside:
                return float(prices @ new), thresholds


def _window(part: Floats, at: float, width: int) -> tuple[int, int]:
    """The places of the sorted scores around a threshold."""
    place = int(np.searchsorted(part, at))
    return max(place - width, 0), min(place + width, len(part))


def _pieces(part: Floats, sums: Floats, window: tuple[int, int]) -> tuple[Floats, Floats]:
    """(scores, counts) of sorted scores: in the window one by one; all lower and all higher ones by their means."""
    edges = np.unique([0, *range(window[0], window[1] + 1), len(part)])
    counts = np.diff(edges)
    return np.where(counts == 1, part[edges[:-1]], np.diff(sums[edges]) / counts), counts.astype(np.float64)


def _finite(scores: ArrayLike) -> Floats:
    """Scores in [-1, 1], in the same order: a fixed function, so that new examples are treated as all others."""
    s = np.asarray(scores, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(s), np.sign(s), s / (1 + np.abs(s)))


def _key(value: Any) -> tuple[str, ...]:
    """An order that does not depend on the order of examples."""
    return tuple(sorted(map(_named, value))) if isinstance(value, frozenset) else (_named(value),)


def _named(value: Any) -> str:
    return f"{type(value).__name__} {value}"
