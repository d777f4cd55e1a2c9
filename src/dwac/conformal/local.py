"""Local calibration: prediction sets and intervals in which calibration examples near an example count more.

Let w_ij be the weight of example j in the neighbourhood of example i, and s_i the score of i. The local rank of i is
the share of its neighbourhood that fits no better, R_i = Σ_j w_ij 1{s_j ≥ s_i} / Σ_j w_ij, where calibration examples
and the new one are treated alike. R does not depend on the order of the examples, so the p-value of a label,

    p = #{i : R_i ≤ R_new} / (n + 1), the new example included,

is valid for exchangeable examples, whatever the weights are (localized conformal prediction, Guan 2023, in ranks). It
falls as the score s of the new example grows; so each calibration example i has a largest s with R_i ≤ R_new, its score
in the neighbourhood of the new example. Everything else is ordinary calibration with these scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from dwac import _checks as checks
from dwac.conformal.classes import Floats

Ints = NDArray[np.int64]
LogWeights = Callable[[Floats], Floats]

MOST = 5_000  # calibration examples: every pair of them is compared
_FEWEST, _SHARE = 50, 0.1  # of the calibration examples that count in a neighbourhood
_WIDTHS = np.geomspace(1 / 64, 16, 24)  # squared bandwidths that are tried, in units of a squared distance
_ROUNDING = 1e-11  # of ranks


class LocalScores:
    """Calibration scores as seen from a point: neighbours count more, with a finite-sample guarantee.

    The width of a neighbourhood is chosen for each point, so that about a tenth of the examples, and at least 50, count
    in it. The probes decide how wide that is: points that do not calibrate, such as voters.

    Args:
        scores: (n,) the score of each calibration example.
        points: (n, d) where they are, as seen by the model of their own fold.
        probes: points (m, d) of the same space, for the model of each fold; one array without folds.
        log_weights: the kernel: log-weights of squared distances.
        folds: (n,) the fold of each example; examples of different folds are never compared.
        labels: (n,) their labels; if given, each label is calibrated separately.
    """

    def __init__(
        self,
        scores: ArrayLike,
        points: ArrayLike,
        probes: Iterable[ArrayLike],
        log_weights: LogWeights = np.negative,
        *,
        folds: ArrayLike | None = None,
        labels: ArrayLike | None = None,
    ) -> None:
        values = checks.scores(scores, "calibration scores", ndim=1)
        where, around = np.asarray(points, dtype=np.float64), [np.asarray(of, dtype=np.float64) for of in probes]
        none = np.zeros(len(values), dtype=np.int64)
        self.folds = none if folds is None else np.asarray(folds)
        parts = np.stack([self.folds, none if labels is None else np.asarray(labels)], axis=1)
        self._parts = []
        for fold, label in np.unique(parts, axis=0):
            rows = np.flatnonzero((parts == [fold, label]).all(axis=1))
            rows = rows[np.argsort(values[rows], kind="stable")]
            self._parts.append((rows, int(fold), _Part(values[rows], where[rows], around[fold], log_weights)))

    def of(self, points: ArrayLike) -> Floats:
        """(n,): the scores of the calibration examples, as seen from one new point; by fold (F, d)."""
        by_fold = np.asarray(points, dtype=np.float64)
        scores = np.empty(len(self.folds))
        for rows, fold, part in self._parts:
            scores[rows] = part.of(by_fold[fold])
        return scores


class _Part:
    """Calibration examples that are compared with one another, in the order of their scores (n,)."""

    def __init__(self, scores: Floats, points: Floats, probes: Floats, log_weights: LogWeights) -> None:
        self._scores, self._points, self._probes, self._log_weights = scores, points, probes, log_weights
        n = len(scores)
        self._share = min(max(_FEWEST, _SHARE * n) / n, 1.0)
        first = np.searchsorted(scores, scores)  # examples from here on have a score at least as high
        self._widths, self._at_least, self._all = (np.empty(n) for _ in range(3))
        for i in range(n):
            self._widths[i] = self._width(points[i])
            weights = self._weights(points[i], self._widths[i])
            self._at_least[i], self._all[i] = weights[first[i] :].sum(), weights.sum()

    def _width(self, point: Floats) -> float:
        """The squared bandwidth with which the requested share of the probes counts around a point."""
        squared = cdist(point[None], self._probes, "sqeuclidean")[0]
        wanted = self._share * len(squared)
        typical = float(np.partition(squared, int(np.ceil(wanted)) - 1)[int(np.ceil(wanted)) - 1])
        if self._share == 1 or typical == 0:
            return np.inf
        weights = np.exp(self._log_weights(squared / (typical * _WIDTHS[:, None])))
        counting = np.square(weights.sum(axis=1)) / np.maximum(np.square(weights).sum(axis=1), np.finfo(float).tiny)
        return typical * float(_WIDTHS[min(int(np.searchsorted(counting, wanted)), len(_WIDTHS) - 1)])

    def _weights(self, point: Floats, width: float | Floats) -> Floats:
        """(n,): the weights between a point and the examples."""
        squared = cdist(point[None], self._points, "sqeuclidean")[0]
        return np.asarray(np.exp(self._log_weights(squared / width)))

    def of(self, point: Floats) -> Floats:
        """(n,): for each example, the largest score of a new example at this point that still ranks no lower."""
        n = len(self._scores)
        to, own = self._weights(point, self._widths), self._weights(point, self._width(point))
        # A score between the (k-1)-th and the k-th: examples from k on fit no better than the new one.
        rank = 1 + np.append(np.cumsum(own[::-1])[::-1], 0.0)
        rank /= rank[0]
        # Below its own score, an example does not count the new one among those that fit no better; above, it does.
        below, above = (
            np.searchsorted(-rank, -(1 - _ROUNDING) * (self._at_least + more) / (self._all + to), side="right") - 1
            for more in (0.0, to)
        )
        places = np.arange(n)
        last = np.where(below <= places, below, np.maximum(places, above))
        return np.asarray(np.append(self._scores, np.inf)[last])
