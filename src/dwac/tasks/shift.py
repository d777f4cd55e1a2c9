"""Calibration for rows from elsewhere: calibration rows count by how likely they are among new, unlabelled rows.

Under covariate shift, rows x come from another source, and labels depend on x as before. If v(x) is the ratio of the
two densities, p-values in which calibration row i has weight v(x_i) and the new row v(x) are valid
(`dwac.conformal.weights`). The ratio is not known: a logistic regression on embeddings estimates it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from dwac import _checks as checks
from dwac.conformal import smallest_calibration
from dwac.conformal.weights import effective_size
from dwac.errors import EPSILON, CalibrationError, InputError
from dwac.tasks.base import LABELS, Fitted, Floats, Ints
from dwac.tasks.local import calibration_points, points_of, spaced

_FEWEST, _MOST = 20, 5_000  # rows of each source, for the regression
_STRENGTHS = np.geomspace(1e-4, 1e-1, 4)  # inverse penalties
_PARTS = 3  # of the rows, to choose among them
_LARGEST = 100.0  # the weight of a calibration row, in units of their mean
_OVERLAP = 0.5  # the least share of new rows that some calibration rows are like
_LIMIT = 30.0  # of the log of a ratio


@dataclass(frozen=True, eq=False)
class Shift:
    """The density ratio of new rows to calibration rows, as the networks of each fold see them; 1 on average."""

    coefficients: Floats  # (F, d + 1): its log is linear in the embedding; the last is the constant
    n_new: int  # rows it was estimated from
    overlap: float  # the share of these that calibration rows say anything about at the usual ε

    def ratios(self, points: Floats) -> Floats:
        """(n, F): the ratio at points (n, F, d), by fold."""
        logs = (points * self.coefficients[:, :-1]).sum(axis=-1) + self.coefficients[:, -1]
        return np.asarray(np.exp(np.clip(logs, -_LIMIT, _LIMIT)))

    def calibration_weights(self, fitted: Fitted) -> Floats:
        """(n_cal,): the weights of the calibration rows."""
        points, folds = calibration_points(fitted)
        return self._of_calibration(points, folds)

    def _of_calibration(self, points: Floats, folds: Ints) -> Floats:
        ratios = self.ratios(np.repeat(points[:, None], len(self.coefficients), axis=1))
        return np.minimum(ratios[np.arange(len(folds)), folds], _LARGEST)

    def weights(self, points: Floats) -> Floats:
        """(n,): the weights of new rows; not limited, so that a row unlike all calibration rows gets every label."""
        return np.asarray(self.ratios(points).mean(axis=1))


class ShiftReport(NamedTuple):
    """How the calibration rows are weighted; `str` says it in words."""

    n_new: int  # rows for which they are weighted
    n_calibration: int
    effective_size: float  # how many calibration rows of equal weight say as much
    overlap: float  # the share of the new rows that are like some calibration rows

    def __str__(self) -> str:
        return (
            f"calibrated for rows like {self.n_new:,} new ones: {self.n_calibration:,} calibration rows count as "
            f"{int(self.effective_size):,}, and {checks.percent(self.overlap, 0)} of the new rows are like some of them"
        )


def shift_report(fitted: Fitted) -> ShiftReport | None:
    """How the calibration rows of a model are weighted; None if they all count the same."""
    shift: Shift | None = fitted.shift
    if shift is None:
        return None
    weights = shift.calibration_weights(fitted)
    return ShiftReport(shift.n_new, len(weights), effective_size(weights), shift.overlap)


def estimate_shift(fitted: Fitted, h: Any) -> Shift:
    """The shift from calibration rows to rows with embeddings h (n, d); an error if they have too little in common."""
    _require(fitted, len(h))
    new = points_of(fitted, h[torch.as_tensor(spaced(len(h), _MOST))])
    points, folds = calibration_points(fitted)
    each = [_log_ratio(points[folds == fold], new[:, fold]) for fold in range(new.shape[1])]
    shift = Shift(np.stack(each), len(h), 1.0)
    weights, own = shift._of_calibration(points, folds), shift.weights(new)
    overlap, effective = float(np.mean(own / (weights.sum() + own) <= EPSILON)), effective_size(weights)
    if effective < (needed := smallest_calibration(EPSILON)) or overlap < _OVERLAP:
        raise CalibrationError(
            f"too few calibration rows are like the new rows: they count as {effective:.1f} of {len(weights):,} (at "
            f"least {needed} are needed), and {checks.percent(1 - overlap, 0)} of the new rows are unlike all of them "
            f"(at most {checks.percent(1 - _OVERLAP, 0)} may be); label some of the new rows and call recalibrate(X, y)"
        )
    return Shift(shift.coefficients, len(h), overlap)


def _require(fitted: Fitted, n: int) -> None:
    fitted.calibration.require()
    if fitted.target.kind == LABELS:
        raise InputError("calibrate_for is for one label per row, or for numbers; this model predicts several labels")
    if fitted.within is not None:
        raise InputError(
            "a guarantee is within groups, or for rows from elsewhere; this model has groups; recalibrate(X, y) with "
            "labelled rows from there"
        )
    if n < _FEWEST:
        raise InputError(f"calibrate_for needs at least {_FEWEST} new rows that can be read; got {n}; give more")


def _log_ratio(old: Floats, new: Floats) -> Floats:
    """(d + 1,): coefficients of the log of the ratio of densities, 1 on average over the old points."""
    if len(old) < _FEWEST:  # of this fold: all count the same
        return np.zeros(old.shape[1] + 1)
    old = old[spaced(len(old), _MOST)]
    X, y = np.concatenate([old, new]), np.repeat([0, 1], [len(old), len(new)])
    centre, spread = X.mean(axis=0), X.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    scaled = (X - centre) / spread
    losses = [
        -cross_val_score(_regression(strength), scaled, y, cv=_PARTS, scoring="neg_log_loss").mean()
        for strength in _STRENGTHS
    ]
    model = _regression(float(_STRENGTHS[int(np.argmin(losses))])).fit(scaled, y)
    slopes = model.coef_[0] / spread
    logs = old @ slopes
    return np.append(slopes, -np.logaddexp.reduce(logs) + np.log(len(logs)))


def _regression(strength: float) -> LogisticRegression:
    return LogisticRegression(C=strength, max_iter=1000)
