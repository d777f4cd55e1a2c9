"""What is measured when an outcome arrives: the loss of a prediction, for each kind of target."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dwac.errors import CalibrationWarning
from dwac.tasks import LABELS, NUMBERS
from dwac.tasks.decisions import judged_votes
from dwac.tasks.predicted_classes import ClassPredictions
from dwac.tasks.predicted_labels import LabelPredictions

Floats = NDArray[np.float64]
Forecast = list[Any]  # of one row: what was predicted, as numbers for JSON

_PARTS = 4  # parts of the stated probabilities, with as many calibration rows each
_FAR = 0.99  # numbers: errors count up to twice the one that this share of calibration rows does not exceed


class WatchedMean(NamedTuple):
    """A number for each row with an outcome; its mean is watched."""

    name: str
    ends: tuple[float, float] = (0.0, 1.0)  # its least and its greatest value; others count as these
    two_sided: bool = False  # whether a mean that is too low is an alarm, too
    promised: float | None = None  # the mean that the guarantee of sets allows
    by_group: bool = True

    def scale(self, values: Any) -> Any:
        """Values as losses between 0 and 1."""
        return (np.asarray(values, dtype=np.float64) - self.ends[0]) / (self.ends[1] - self.ends[0])

    def unscale(self, loss: float) -> float:
        """A mean loss as a mean value."""
        return float(self.ends[0] + loss * (self.ends[1] - self.ends[0]))


class Yardstick(NamedTuple):
    """The measures of a model, how to compute them, and what they are for its calibration rows."""

    measures: list[WatchedMean]
    values: Callable[[Sequence[Any], Any, Floats], Floats]  # (n, M) from forecasts, codes (n,) and exact values
    calibration: Floats  # (n_cal, M); NaN where a measure does not apply


def base_measures(clf: Any, epsilon: float, far: Sequence[float] | None = None) -> list[WatchedMean]:
    """The measures of a model for all rows and for groups; far: how far off a number counts at most."""
    target = clf.target_
    missed = [WatchedMean("missed", promised=epsilon)] if clf.fitted_.calibrated else []
    gap = WatchedMean("overconfidence", (-1.0, 1.0), two_sided=True)
    if target.kind == LABELS:
        return [WatchedMean("wrong labels"), *missed, gap]
    if target.kind != NUMBERS:
        distance = [WatchedMean("distance", (0.0, target.n_codes - 1.0))] if target.ordered else []
        return [WatchedMean("error"), *distance, *missed, gap]
    measures = []
    for name, most in zip(target.names, far or [1.0] * len(target.names), strict=True):
        of = "" if target.single else f" of {name}"
        measures += [
            WatchedMean(f"absolute error{of}", (0.0, most)),
            WatchedMean(f"bias{of}", (-most, most), two_sided=True),
        ]
        measures += [each._replace(name=f"missed{of}") for each in missed]
    return measures


def yardstick_of(clf: Any, epsilon: float) -> Yardstick:
    """The yardstick of a model, with what its calibration rows say about it."""
    target, rows = clf.target_, clf.fitted_.calibration
    forecasts = _calibration_forecasts(clf) if clf.fitted_.calibrated else []
    if target.kind == NUMBERS:
        measures, values = base_measures(clf, epsilon), _number_values(clf.fitted_.calibrated)
        if forecasts:
            errors = np.abs(np.array(forecasts) - rows.exact)
            measures = base_measures(clf, epsilon, [_round_up(2 * np.quantile(each, _FAR)) for each in errors.T])
    elif target.kind == LABELS:
        measures = base_measures(clf, epsilon)
        values = _label_values(measures)
    else:
        p = [forecast[1] for forecast in forecasts]
        cuts = np.unique(np.round(np.quantile(p, np.arange(1, _PARTS) / _PARTS), 2)).tolist() if p else []
        cuts = [cut for cut in cuts if 0 < cut < 1]
        measures = base_measures(clf, epsilon)
        values = _class_values(measures, [0.0, *cuts, 1.0])
        parts = [
            f"overconfidence at {100 * low:.0f} to {100 * high:.0f} %" for low, high in pairwise([0.0, *cuts, 1.0])
        ]
        measures = [*measures, *(measures[-1]._replace(name=name, by_group=False) for name in parts if len(parts) > 1)]
    known = np.zeros((0, len(measures)))
    return Yardstick(measures, values, values(forecasts, rows.y, rows.exact) if forecasts else known)


def _round_up(value: float) -> float:
    """To two digits; 1 if it is 0."""
    if value <= 0:
        return 1.0
    step = 10.0 ** (np.floor(np.log10(value)) - 1)
    return float(np.ceil(value / step) * step)


# Forecasts


def forecasts_of(predicted: Any, epsilon: float, *, private: bool) -> list[Forecast]:
    """The predictions of rows, all of which could be read: what their measures need, rounded if private.

    Classes: the code, its probability, then the codes of the set. Several labels: the probability of each, then 0 or 1
    for each, whether it is in the set. Numbers: each, then the lower ends and the upper ends, None without bound.
    """
    predicted = replace(predicted, private=True) if private else predicted
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # fit and predict_set warn of few calibration rows
        if isinstance(predicted, ClassPredictions):
            p, sets = predicted.probabilities.max(axis=1).tolist(), predicted.conformal
            members = (
                [[]] * len(p) if sets is None else [np.flatnonzero(row).tolist() for row in sets.label_sets(epsilon)]
            )
            return [[code, p[row], *members[row]] for row, code in enumerate(predicted.codes.tolist())]
        if isinstance(predicted, LabelPredictions):
            shares, chosen = predicted.probabilities, predicted.sets(epsilon)
            if private:  # rounding must not change what is predicted
                rounded = np.round(shares, 2)
                shares = np.where(shares >= 0.5, np.maximum(rounded, 0.5), np.minimum(rounded, 0.49))
            parts = [shares, np.zeros_like(shares) if chosen is None else chosen]
        else:
            ends = predicted.intervals(epsilon)
            parts = [predicted.shown, *([] if ends is None else [ends[..., 0], ends[..., 1]])]
    table = np.concatenate(parts, axis=1)
    return [list(row) for row in np.where(np.isfinite(table), table.astype(object), np.array(None))]


def _calibration_forecasts(clf: Any) -> list[Forecast]:
    """The same for calibration rows, without sets, each by votes that know nothing of it."""
    target, sets = clf.target_, clf.sets_
    forecasts: list[Any] = [None] * len(clf.fitted_.calibration.y)
    for here, votes in judged_votes(clf.fitted_):
        if target.kind == NUMBERS:
            rows = sets.average_of(votes).tolist()
        else:
            p = target.probabilities(votes)
            rows = [[*each, *[0] * len(each)] for each in p.tolist()]
            if target.kind != LABELS:
                rows = list(zip(votes.argmax(axis=1).tolist(), p.max(axis=1).tolist(), strict=True))
        for place, row in zip(np.arange(len(forecasts))[here].tolist(), rows, strict=True):
            forecasts[place] = row
    return forecasts


# Values


def _class_values(measures: Sequence[WatchedMean], ends: Sequence[float]) -> Any:
    names = [measure.name for measure in measures]

    def values(forecasts: Sequence[Any], codes: Any, exact: Floats) -> Floats:
        del exact
        said, p = (np.array([each[place] for each in forecasts], dtype=np.float64) for place in (0, 1))
        wrong = said != codes
        distance = np.where(codes < 0, np.inf, np.abs(said - codes))  # a label that was not in training: the greatest
        missed = [code not in each[2:] for code, each in zip(codes.tolist(), forecasts, strict=True)]
        gap = p - ~wrong
        known = {"error": wrong, "distance": distance, "missed": missed, "overconfidence": gap}
        part = np.clip(np.searchsorted(ends, p, side="right") - 1, 0, len(ends) - 2)
        parts = [np.where(part == place, gap, np.nan) for place in range(len(ends) - 1)] if len(ends) > 2 else []
        return np.stack([*(np.asarray(known[name], dtype=np.float64) for name in names), *parts], axis=1)

    return values


def _label_values(measures: Sequence[WatchedMean]) -> Any:
    def values(forecasts: Sequence[Any], codes: Any, exact: Floats) -> Floats:
        del codes
        p, sets = np.split(np.array(forecasts, dtype=np.float64), 2, axis=1)
        truth = exact > 0
        right = (p >= 0.5) == truth
        missed = (truth & (sets == 0)).sum(axis=1) / np.maximum(truth.sum(axis=1), 1)
        gap = (np.maximum(p, 1 - p) - right).mean(axis=1)
        known = [(~right).mean(axis=1), missed, gap]
        return np.stack(known if len(measures) == len(known) else known[::2], axis=1)

    return values


def _number_values(calibrated: bool) -> Any:
    def values(forecasts: Sequence[Any], codes: Any, exact: Floats) -> Floats:
        del codes
        width, table = exact.shape[1], np.array(forecasts, dtype=np.float64)  # no end (None) becomes NaN
        wrong = table[:, :width] - exact
        columns = [np.abs(wrong), wrong]
        if calibrated:
            low, high = np.split(table[:, width:], 2, axis=1) if table.shape[1] > width else (exact, exact)
            columns.append(((exact < low) | (exact > high)).astype(np.float64))
        return np.stack(columns, axis=2).reshape(len(table), -1)  # by number, then by measure

    return values
