"""The answers of a file against Python's.

Probabilities, shares and numbers are compared as they are. p-values, sets and intervals jump where a score crosses a
calibration score, so rounding may move them by a step: they are compared with Python's answers to scores that are a
little larger, and a little smaller.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from dwac.conformal import label_sets, nonconformity
from dwac.tasks.base import LABELS, NUMBERS, ORDERED
from dwac.tasks.intervals import intervals

_SLACK = 1e-5  # of scores
_NOVEL = 1e-3  # of novelty, whose logs magnify the rounding of small distances


def compare(outputs: list[str], answers: list[Any], estimator: Any, X: Any, epsilon: float) -> tuple[float, str]:
    """The largest difference between answers and those of the estimator for rows X, and the output that has it."""
    observed, values = estimator.observe(X), dict(zip(outputs, answers, strict=True))
    rows = observed.readable
    readable = np.array_equal(values.get("readable", rows), rows)
    values = {name: np.asarray(value)[rows] for name, value in values.items()}
    fitted, sets = estimator.fitted_, estimator.sets_
    apart = {"voter_shares": _of_voters(values, fitted, observed), "readable": 0.0 if readable else 1.0}
    if "typicality" in values:
        scores, novelty = fitted.typical_scores(), observed.novelty[rows]
        apart["typicality"] = _outside(values["typicality"], *(scores.p_values(novelty + s) for s in (_NOVEL, -_NOVEL)))
    kind = fitted.target.kind
    measure = _of_numbers if kind == NUMBERS else _of_labels if kind == LABELS else _of_classes
    apart |= measure(values, sets, observed, epsilon)
    worst = max(apart, key=lambda name: np.nan_to_num(apart[name], nan=np.inf))
    return apart[worst], worst


def _outside(value: Any, low: Any, high: Any) -> float:
    """How far values are outside [low, high]; infinite ends must be equal."""
    with np.errstate(invalid="ignore"):
        gaps = np.where((value >= low) & (value <= high), 0.0, np.maximum(low - value, value - high))
    return float(np.max(gaps, initial=0.0))


def _of_voters(values: dict[str, Any], fitted: Any, observed: Any) -> float:
    log_votes = fitted.references.voters.every_vote(observed.h).cpu().numpy()
    shares = np.exp(log_votes - np.logaddexp.reduce(log_votes, axis=1, keepdims=True))
    named = np.take_along_axis(shares, values["voter_ids"], axis=1)
    heaviest = -np.sort(-shares, axis=1)[:, : named.shape[1]]
    own = values["voter_shares"]
    return float(np.max([np.abs(own - named), np.abs(own - heaviest)], initial=0.0))


def _of_classes(values: dict[str, Any], sets: Any, observed: Any, epsilon: float) -> dict[str, float]:
    votes, target, rows = observed.votes[observed.readable], sets.fitted.target, observed.readable
    p = target.probabilities(votes)
    chosen = np.take_along_axis(p, values["label"][:, None], axis=1)[:, 0]
    apart = {
        "label": float((p.max(axis=1) - chosen).max(initial=0.0)),
        "probabilities": float(np.abs(values["probabilities"] - p).max(initial=0.0)),
    }
    if "prediction_set" not in values:
        return apart
    each = votes if observed.fold_votes is None else observed.fold_votes[rows]
    scores = nonconformity(each, sets.score)
    low, high = (sets.calibration.p_values(scores + s) for s in (_SLACK, -_SLACK))
    inner, outer = (label_sets(p, epsilon, ordered=target.kind == ORDERED) for p in (low, high))
    within = (values["prediction_set"] >= inner) & (values["prediction_set"] <= outer)
    apart["prediction_set"] = 0.0 if within.all() else 1.0
    apart["credibility"] = _outside(values["credibility"], low.max(axis=1), high.max(axis=1))
    return apart


def _of_labels(values: dict[str, Any], sets: Any, observed: Any, epsilon: float) -> dict[str, float]:
    p = sets.fitted.target.probabilities(observed.votes[observed.readable])
    apart = {"probabilities": float(np.abs(values["probabilities"] - p).max(initial=0.0))}
    limits = {"labels": 0.5}
    if "prediction_set" in values:
        limits["prediction_set"] = sets.calibration.misses.threshold(epsilon)
    for name, limit in limits.items():
        same = (values[name] == (p >= limit)) | (np.abs(p - limit) <= _SLACK)
        apart[name] = 0.0 if same.all() else 1.0
    return apart


def _of_numbers(values: dict[str, Any], sets: Any, observed: Any, epsilon: float) -> dict[str, float]:
    fitted, h = sets.fitted, observed.h
    spread = np.maximum(fitted.references.targets.double().std(dim=0, correction=0).cpu().numpy(), 1e-300)
    if sets.average == "median":
        low, high = np.moveaxis(fitted.references.distribution(h).quantiles([0.5 - _SLACK, 0.5 + _SLACK]).numpy(), 2, 0)
        apart = {"prediction": _outside(values["prediction"] / spread, low / spread, high / spread)}
    else:
        own = sets.average_of(fitted.references.distribution(h))
        apart = {"prediction": float((np.abs(values["prediction"] - own) / spread).max(initial=0.0))}
    if "interval" not in values:
        return apart
    sides = []
    for shift in (-_SLACK, _SLACK):
        shifted = [copy(each) for each in sets.calibration()]
        for each in shifted:
            each.scores = np.where(each.scores < 1, np.clip(each.scores + shift, 0, 1), each.scores + shift)
        sides.append(intervals(fitted.references, h, shifted, epsilon, fitted.folds, None))
    (narrow_low, narrow_high), (wide_low, wide_high) = (np.moveaxis(ends, 2, 0) for ends in sides)
    low, high = values["interval"][..., 0], values["interval"][..., 1]
    ends = [
        _outside(low / spread, wide_low / spread, narrow_low / spread),
        _outside(high / spread, narrow_high / spread, wide_high / spread),
    ]
    apart["interval"] = float(np.max(ends))  # NaN if one of them is
    return apart
