"""Several labels at once: from votes for label sets to the labels themselves, and their calibration."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dwac.conformal import LabelCalibration, MissControl
from dwac.estimator.folds import Folds
from dwac.estimator.held_out import HeldOutRows
from dwac.estimator.targets import Target
from dwac.nn import WeightedAverage, batches

Floats = NDArray[np.float64]


class Calibrations(NamedTuple):
    """What the calibration rows allow: a decision on each label, and sets that miss few labels."""

    labels: LabelCalibration
    misses: MissControl


def label_probabilities(votes: Floats, target: Target) -> Floats:
    """(…, L): P(label given x), the share of the votes of those who have it, from votes (…, K) for label sets.

    The same numbers as if each label was voted on alone.
    """
    shares = np.exp(votes - votes.max(axis=-1, keepdims=True))
    found = shares @ target.table / shares.sum(axis=-1, keepdims=True)
    return np.asarray(np.clip(found, 0.0, 1.0))


def calibrate(model: WeightedAverage, rows: HeldOutRows, target: Target, folds: Folds | None) -> Calibrations:
    """The calibration by rows with known labels; those of a cross-fitted model are judged by what left them out."""
    rows.require()
    if folds is None:
        votes = batches.votes(model, rows.h).cpu().numpy()
    else:
        votes = folds.judged(model.references, rows.h, rows.ids)
    p = label_probabilities(votes, target)
    numbers = None if folds is None else np.maximum(folds.numbers(rows.ids), 0)
    return Calibrations(
        LabelCalibration(p, rows.exact, folds=numbers), MissControl(p, rows.exact, certain=folds is None)
    )
