"""Calibration rows as the models that left them out see them, and where rows are, for guarantees that are local.

In a local guarantee, calibration rows near a row count more (`dwac.conformal.local`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.conformal.local import MOST, LocalScores
from dwac.kernels import get_kernel
from dwac.reference import ReferenceSet
from dwac.tasks.base import Fitted, Floats, Ints
from dwac.training.cross_fit import part_of, parts_of

_PROBES = 256  # voters that decide how wide a neighbourhood is


def folds_of(rows: Any, folds: Any) -> Ints:
    """(n_cal,): the fold whose model judges each calibration row; 0 without folds, and for a row that has none."""
    return np.zeros(len(rows.y), dtype=np.int64) if folds is None else np.maximum(folds.numbers(rows.ids), 0)


def judged_rows(references: ReferenceSet, rows: Any, folds: Any) -> Iterator[tuple[Any, Tensor, ReferenceSet]]:
    """The calibration rows by the voters that judge them: for each fold, positions, embeddings and voters."""
    if folds is None:
        yield slice(None), rows.h, references
        return
    numbers = folds_of(rows, folds)
    for fold, voters in enumerate(folds.sets(references)):
        here = np.flatnonzero(numbers == fold)
        if len(here):
            h = rows.h[torch.as_tensor(here, device=rows.h.device)]
            yield here, part_of(h, fold, folds.members), voters


def local_rows(fitted: Fitted) -> Ints:
    """The calibration rows that local guarantees compare with, by number: all, or as many as can be compared."""
    n = len(fitted.calibration.y)
    return spaced(n, MOST if fitted.folds is None else n)


def points_of(fitted: Fitted, h: Any) -> Floats:
    """(n, F, d): where the models of the folds see rows with embeddings h; F is 1 unless a model is cross-fitted."""
    h, folds = torch.as_tensor(h), fitted.folds
    points = h[:, None] if folds is None else parts_of(h, folds.members).transpose(0, 1)
    return np.asarray(points.double().cpu().numpy())


def calibration_points(fitted: Fitted) -> tuple[Floats, Ints]:
    """(n_cal, d), (n_cal,): where the networks that left out a calibration row see it; and the folds."""
    rows = fitted.calibration
    numbers = folds_of(rows, fitted.folds)
    return points_of(fitted, rows.h)[np.arange(len(numbers)), numbers], numbers


def local_scores(fitted: Fitted, scores: Floats, rows: Ints, labels: NDArray[Any] | None = None) -> LocalScores:
    """The scores (n,) of these calibration rows, as they are seen from other rows; labels: to compare each separately.

    Voters say how dense rows are: they do not calibrate.
    """
    folds, kernel = fitted.folds, get_kernel(fitted.references.kernel)
    sets = [fitted.references] if folds is None else folds.sets(fitted.references)
    probes = [each.embeddings[torch.as_tensor(spaced(len(each), _PROBES))].double().cpu().numpy() for each in sets]
    points, numbers = calibration_points(fitted)
    return LocalScores(
        scores,
        points[rows],
        probes,
        lambda squared: kernel.log_weights(torch.from_numpy(squared)).numpy(),
        folds=numbers[rows],
        labels=labels,
    )


def spaced(n: int, most: int) -> Ints:
    """All of n places, or `most` of them at equal distances."""
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.int64)
