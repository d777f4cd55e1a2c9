"""Calibration in which each new example has its own scores, or weights, of the calibration examples: local or shifted.

If calibration example i has weight v_i and the new example v, the p-value of a label with score s is

    p = (Σ_i v_i 1{s_i ≥ s} + v) / (Σ_i v_i + v).

Where new examples come from another source, and labels given an example do not change, this is valid for weights that
are the ratio of the densities of both sources (Tibshirani, Barber, Candès and Ramdas 2019). If all weights are 1, it is
the ordinary p-value.

>>> effective_size(np.array([1.0, 1.0, 0.0, 0.0]))
2.0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dwac import _checks as checks
from dwac.conformal.classes import Calibration, CrossCalibration, ExpectedSets, Floats, label_sets
from dwac.conformal.guarantees import coverage_range

Ints = NDArray[np.int64]
_ROWS = 500  # calibration examples whose sets are counted, to say what to expect


class ExampleWeights(NamedTuple):
    """Weights of the calibration examples, (n_cal,), and of new examples, (n,)."""

    calibration: Floats
    new: Floats


def effective_size(weights: Floats) -> float:
    """How many examples of equal weight say as much as these: (Σv)² / Σv²."""
    return float(np.square(weights.sum()) / max(np.square(weights).sum(), np.finfo(float).tiny))


def weighted_score(scores: Floats, weights: Floats, own: float, epsilon: float) -> float:
    """The least s so that every larger score has a p-value of at most ε; inf if the own weight alone exceeds it."""
    order = np.argsort(-scores, kind="stable")
    p = (np.append(0.0, np.cumsum(weights[order])) + own) / (weights.sum() + own)
    first = int(np.argmax(p > epsilon))  # of the smallest number of largest scores with which p exceeds ε; p ends at 1
    return np.inf if first == 0 else float(scores[order[first - 1]])


class ExampleCalibration(Calibration):
    """The calibration of n new examples, each with its own scores, or weights, of the calibration examples.

    Args:
        whole: the ordinary calibration with the same examples.
        scores_of: the scores of the calibration examples (n_cal,) for the i-th new example.
        folds: (n_cal,) the fold of each calibration example; 0 without folds.
        labels: (n_cal,) their labels, if each label is calibrated separately.
        weights: of the calibration examples and of the new ones; by default all are the same.
    """

    def __init__(
        self,
        whole: Calibration,
        scores_of: Callable[[int], Floats],
        folds: Ints,
        labels: Ints | None = None,
        weights: ExampleWeights | None = None,
    ) -> None:
        self._whole, self._scores_of, self._folds, self._labels = whole, scores_of, folds, labels
        self._weights, self.class_conditional, self.tolerance = weights, whole.class_conditional, whole.tolerance

    def n_calibration(self, n_classes: int) -> Ints:
        """(K,): how many calibration examples each label is compared with; with weights, their effective number."""
        if self._weights is None:
            return self._whole.n_calibration(n_classes)
        own = np.ones((len(self._folds), n_classes), dtype=bool) if self._labels is None else self._are(n_classes)
        sizes = [effective_size(self._weights.calibration[column]) if column.any() else 0 for column in own.T]
        return np.array(sizes).astype(np.int64)

    def _are(self, n_classes: int) -> NDArray[np.bool_]:
        """(n_cal, K): whether each label is that of a calibration example."""
        assert self._labels is not None
        return np.asarray(self._labels[:, None] == np.arange(n_classes))

    def p_values(self, scores: ArrayLike, **options: Any) -> Floats:
        """(n, K): the p-values of scores (n, K), or by fold (n, F, K)."""
        del options
        values = checks.scores(scores, "scores")
        by_fold, n_classes = values[:, None] if values.ndim == 2 else values, values.shape[-1]
        among = np.ones((len(self._folds), n_classes)) if self._labels is None else self._are(n_classes).astype(float)
        if self._weights is not None:
            among *= self._weights.calibration[:, None]
        every, p = among.sum(axis=0), np.empty((len(values), n_classes))
        for row, new in enumerate(by_fold):
            own = 1.0 if self._weights is None else self._weights.new[row]
            fits_no_better = self._scores_of(row)[:, None] >= new[self._folds] - self.tolerance
            p[row] = ((among * fits_no_better).sum(axis=0) + own) / (every + own)
        return p

    def expected_sets(self, epsilon: float, *, ordered: bool = False) -> ExpectedSets:
        """The prediction sets to expect: those of the calibration examples, with their weights."""
        expected, table = self._whole.expected_sets(epsilon, ordered=ordered), self._whole._table
        if self._weights is None or table is None:
            return expected
        n_rows, weights = len(self._folds), self._weights.calibration
        rows = np.linspace(0, len(table) - 1, min(len(table), _ROWS)).astype(np.int64)
        own = weights[rows] if len(table) == n_rows else np.full(len(rows), weights.mean())  # some have no known label
        as_new = ExampleCalibration(
            self._whole, lambda _: self._scores_of(0), self._folds, self._labels, ExampleWeights(weights, own)
        )
        p = as_new.p_values(np.repeat(table[rows, None], int(self._folds.max()) + 1, axis=1))
        sizes, n = label_sets(p, epsilon, ordered=ordered).sum(axis=1), int(self.n_calibration(table.shape[1]).min())
        return replace(
            expected,
            n_calibration=n,
            coverage_range=coverage_range(epsilon, n, crossed=isinstance(self._whole, CrossCalibration)),
            mean_size=float(np.average(sizes, weights=own)),
            full_share=float(np.average(sizes == table.shape[1], weights=own)),
            guarantee=None,
            n_rows=n_rows,
        )
