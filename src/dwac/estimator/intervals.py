"""Intervals of a fitted regressor: quantiles of the votes, with tails chosen by the calibration rows.

`dwac.conformal.intervals` has the arithmetic of scores and guarantees; this module computes them from the votes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.conformal import (
    CrossIntervalCalibration,
    IntervalCalibration,
    distance_beyond,
    extended_range,
    tail_scores,
    tails_of,
)
from dwac.estimator.distribution import as_numpy
from dwac.estimator.folds import Folds
from dwac.estimator.held_out import HeldOutRows
from dwac.reference import ReferenceSet, VoteDistribution
from dwac.training.cross_fit import FOLDS, part_of

Floats = NDArray[np.float64]
IntervalCalibrations = list[IntervalCalibration | CrossIntervalCalibration]  # one per predicted number

_ROUNDING = 1e-7  # scores closer than this may be equal: rounding differs between devices
_ENDS = 2**22  # pairs of a row and a calibration row, at once


def scores_of(voters: ReferenceSet, h: Tensor, exact: Floats) -> Floats:
    """(n, T): how badly the numbers (n, T) of rows with embeddings h (n, d) fit the votes.

    A number outside all of these voters' numbers is measured against their range. In a cross-fitted model they are the
    voters of the row's own fold: a row that sets the range of all could not be beyond it, and new rows can be.
    """
    at_most, at_least = map(as_numpy, voters.distribution(h).tails(exact))
    return tail_scores(at_most, at_least, distance_beyond(exact, *range_of(voters)))


def calibrated(
    references: ReferenceSet, rows: HeldOutRows, folds: Folds | None, within: Sequence[Hashable] | None
) -> IntervalCalibrations:
    """The calibration of each predicted number; within: the groups of the rows, for a guarantee within each."""
    rows.require()
    if folds is None:
        scores = scores_of(references, rows.h, rows.exact)
        return [IntervalCalibration(column, within, tolerance=_ROUNDING) for column in scores.T]
    scores, of = np.empty_like(rows.exact), np.maximum(folds.numbers(rows.ids), 0)
    for fold, voters in enumerate(folds.sets(references)):
        here = np.flatnonzero(of == fold)
        if len(here):
            h = part_of(rows.h[torch.as_tensor(here, device=rows.h.device)], fold, folds.members)
            scores[here] = scores_of(voters, h, rows.exact[here])
    return [CrossIntervalCalibration(column, of, within, tolerance=_ROUNDING) for column in scores.T]


def range_of(references: ReferenceSet) -> Floats:
    """(2, T): the lowest and the highest number of all voters."""
    assert references.targets is not None
    found = torch.stack([references.targets.amin(dim=0), references.targets.amax(dim=0)])
    return np.asarray(found.cpu().numpy())


def intervals(
    references: ReferenceSet,
    h: Tensor,
    calibrations: IntervalCalibrations,
    epsilon: float,
    folds: Folds | None,
    within: Sequence[Hashable] | None,
) -> Floats:
    """(n, T, 2): the intervals at ε of rows with embeddings h (n, d). within: the groups of the rows."""
    if folds is None:
        votes, ends = references.distribution(h), range_of(references)
        found = []
        for t, calibration in enumerate(calibrations):
            assert isinstance(calibration, IntervalCalibration)
            scores = np.broadcast_to(calibration.score_at(epsilon, within), (len(h),))
            found.append(np.stack(_sets(votes, scores, t, ends), axis=1))
        return np.stack(found, axis=1)
    n_calibration = len(calibrations[0].scores)
    size = max(1, _ENDS // n_calibration)
    parts = []
    for start in range(0, len(h), size):
        named = None if within is None else within[start : start + size]
        parts.append(_crossed(references, h[start : start + size], calibrations, epsilon, folds, named))
    return np.concatenate(parts) if parts else np.empty((0, len(calibrations), 2))


def _crossed(
    references: ReferenceSet,
    h: Tensor,
    calibrations: IntervalCalibrations,
    epsilon: float,
    folds: Folds,
    within: Sequence[Hashable] | None,
) -> Floats:
    """The same for a cross-fitted model: each calibration row gives an interval by the model that left it out."""
    sets = folds.sets(references)
    votes = [voters.distribution(part_of(h, fold, folds.members)) for fold, voters in enumerate(sets)]
    found = []
    for t, calibration in enumerate(calibrations):
        assert isinstance(calibration, CrossIntervalCalibration)
        lows, highs = (np.empty((len(h), len(calibration.scores))) for _ in range(2))
        for fold in range(FOLDS):
            here = np.flatnonzero(calibration.folds == fold)
            scores = np.broadcast_to(calibration.scores[here], (len(h), len(here)))
            lows[:, here], highs[:, here] = _sets(votes[fold], scores, t, range_of(sets[fold]))
        found.append(calibration.ends(lows, highs, epsilon, within))
    return np.stack(found, axis=1)


def _sets(votes: VoteDistribution, scores: Floats, t: int, ends: Floats) -> tuple[Floats, Floats]:
    """The ends of {y : score(y) ≤ s} for the t-th number of each row, in the shape of the scores: (n,) or (n, C)."""
    log_tail, beyond = tails_of(scores)
    inside = np.isfinite(log_tail)
    low, high = map(as_numpy, votes.ends(np.where(inside, log_tail, -1.0)))
    outer_low, outer_high = extended_range(ends[0, t], ends[1, t], np.where(inside, 0.0, beyond))
    return np.where(inside, low[:, t], outer_low), np.where(inside, high[:, t], outer_high)
