"""Calibration of several labels at once: by rows whose labels are known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dwac.conformal import LabelCalibration, MissControl
from dwac.estimator.folds import Folds
from dwac.estimator.held_out import HeldOutRows
from dwac.nn import WeightedAverage, batches
from dwac.tasks import Labels

Floats = NDArray[np.float64]


class Calibrations(NamedTuple):
    """Calibration by held-out rows: of the decision on each label, and of sets that miss few labels."""

    labels: LabelCalibration
    misses: MissControl


def calibrate(model: WeightedAverage, rows: HeldOutRows, target: Labels, folds: Folds | None) -> Calibrations:
    """Calibrate with rows of known labels; a cross-fitted model judges each row by the networks that left it out."""
    rows.require()
    if folds is None:
        votes = batches.votes(model, rows.h).cpu().numpy()
    else:
        votes = folds.judged(model.references, rows.h, rows.ids)
    p = target.probabilities(votes)
    numbers = None if folds is None else np.maximum(folds.numbers(rows.ids), 0)
    return Calibrations(
        LabelCalibration(p, rows.exact, folds=numbers), MissControl(p, rows.exact, certain=folds is None)
    )
