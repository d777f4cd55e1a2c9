"""All that the report says of numbers, computed once."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac.drawing.records import written
from dwac.errors import CalibrationWarning
from dwac.estimator import DWACRegressor
from dwac.estimator.evaluation import NumberEvaluation, NumberPredictions
from dwac.estimator.targets import read_numbers
from dwac.report.findings import Findings

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NumberFindings(Findings):
    """Predicted numbers, and how they compare with the true ones (n, T)."""

    clf: DWACRegressor
    truth: Floats
    predictions: NumberPredictions
    outside: NumberPredictions | None
    result: NumberEvaluation

    @staticmethod
    def _truth(clf: Any, y: Any, n: int) -> Floats:
        del clf
        return np.asarray(read_numbers(y, n)[0])

    @property
    def names(self) -> list[str]:
        """(T,): the names of the numbers; that of a single one may not be known."""
        return ["the number" if name is None else written(name) for name in self.predictions.names]

    @property
    def values(self) -> Floats:
        """(n, T): what is predicted; rounded if private."""
        return self.predictions.shown

    @property
    def errors(self) -> Floats:
        """(n,): absolute errors, in units of the spread of each number; the largest of a row."""
        return np.asarray((np.abs(self.values - self.truth) / self.clf.target_.scale[1]).max(axis=1))

    @property
    def calibrated(self) -> bool:
        """Whether there are intervals."""
        return self.result.coverage is not None

    def intervals(self, epsilon: float) -> Floats | None:
        """(n, T, 2): intervals at any ε; None without calibration."""
        with warnings.catch_warnings():  # nobody asked for these ε: too few rows for one are seen on the page
            warnings.simplefilter("ignore", CalibrationWarning)
            return self.predictions.intervals(epsilon)

    def cases(self, most: int) -> dict[str, list[int]]:
        """Rows of typical, doubtful and wrong predictions, each once."""
        wrong = np.argsort(-self.errors, kind="stable")[:most].tolist()
        doubtful = [row for row in self.unusual if row not in wrong][:most]
        trust = -self.errors if self.typicality is None else self.typicality
        usual = np.argsort(np.abs(trust - np.median(trust)), kind="stable").tolist()
        return {
            "typical": [row for row in usual if row not in (*wrong, *doubtful)][:most],
            "doubtful": doubtful,
            "wrong": wrong,
        }
