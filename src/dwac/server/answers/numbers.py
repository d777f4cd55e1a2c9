"""Answers of a model that predicts numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from dwac.conformal import smallest_calibration
from dwac.drawing.records import plain
from dwac.estimator.evaluation import NumberPredictions
from dwac.estimator.readable import Reasons
from dwac.server.answers import Answers, Votes
from dwac.server.schemas import Schemas
from dwac.server.schemas.numbers import SCHEMAS, SEVERAL

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NumberVotes:
    """What is known about the T numbers of n rows."""

    prediction: Floats  # (n, T)
    intervals: Floats | None  # (n, T, 2); None without calibration rows
    quantiles: Floats  # (n, T, Q)
    typicality: Floats | None  # (n,)
    reasons: Reasons | None
    unknown: Reasons | None

    def part(self, rows: Any) -> Self:
        """The same for some rows."""
        return replace(
            self,
            prediction=self.prediction[rows],
            intervals=None if self.intervals is None else self.intervals[rows],
            quantiles=self.quantiles[rows],
            typicality=None if self.typicality is None else self.typicality[rows],
            reasons=None if self.reasons is None else self.reasons[rows],
            unknown=None if self.unknown is None else self.unknown[rows],
        )


class NumberAnswers(Answers):
    """Numbers, intervals and quantiles."""

    task: ClassVar[Schemas] = SCHEMAS

    @property
    def schemas(self) -> Schemas:
        """One number, or several by name."""
        return SCHEMAS if self.model.target_.single else SEVERAL

    def votes_for(self, ask: Any) -> Votes:
        """The request, with ε and the levels of quantiles."""
        return Votes((ask.epsilon, tuple(ask.quantiles)))

    def _predict(self, X: Any, asked: Votes) -> NumberVotes:
        epsilon, levels = cast("tuple[float, tuple[float, ...]]", asked.settings)
        return number_votes(super()._predict(X, asked), epsilon, levels)

    def _target(self) -> dict[str, Any]:
        return {"task": self.model.target_.kind, "numbers": plain(self.model.target_.names)}

    def predictions(self, predicted: NumberVotes, ask: Any) -> dict[str, Any]:
        """Number, interval, quantiles and typicality of each row."""
        n = len(predicted.prediction)
        typicality = [None] * n if predicted.typicality is None else predicted.typicality.tolist()
        rows = [
            {**self._numbers(predicted, row, ask.quantiles), "typicality": typical}
            for row, typical in zip(range(n), typicality, strict=True)
        ]
        return self._answered("predictions", rows, predicted, ask.epsilon)

    def _numbers(self, predicted: NumberVotes, row: int, levels: list[float]) -> dict[str, Any]:
        each = [_estimate(predicted, row, t, levels) for t in range(predicted.prediction.shape[1])]
        if self.model.target_.single:
            return each[0]
        return {"numbers": dict(zip(map(str, plain(self.model.target_.names)), each, strict=True))}

    def _note(self, epsilon: float) -> str | None:
        """Why intervals are unbounded at this ε, if they are."""
        n, needed = len(self.model.calibration_y_), smallest_calibration(epsilon)
        if n == 0 or n >= needed:
            return None
        return f"bounding a number at this epsilon needs {needed} calibration rows; the model has {self.count(n)}"


def _estimate(predicted: NumberVotes, row: int, t: int, levels: list[float]) -> dict[str, Any]:
    interval = None
    if predicted.intervals is not None:
        lower, upper = (end if math.isfinite(end) else None for end in predicted.intervals[row, t].tolist())
        interval = {"lower": lower, "upper": upper}
    quantiles = dict(zip(map(_level, levels), predicted.quantiles[row, t].tolist(), strict=True))
    return {"prediction": float(predicted.prediction[row, t]), "interval": interval, "quantiles": quantiles}


def _level(level: float) -> str:
    """A level as a key: 0.5, and not 0.50 or 5e-1."""
    return f"{level:.15g}"


def number_votes(found: NumberPredictions, epsilon: float, levels: tuple[float, ...] = ()) -> NumberVotes:
    """Everything requested from the votes, counted now; rounded if the predictions are private."""
    intervals = found.intervals(epsilon)
    quantiles = found.quantiles(levels) if levels else np.empty((*found.values.shape, 0))
    return NumberVotes(found.shown, intervals, quantiles, found.typicality, found.reasons, found.unknown)
