"""Answers of a model that predicts one label per row: a class, or a label in an order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from dwac.conformal import label_sets, smallest_calibration
from dwac.errors import CalibrationError
from dwac.estimator.evaluation import Predictions
from dwac.server.answers import Answers
from dwac.server.schemas import Schemas
from dwac.server.schemas.classes import SCHEMAS


class ClassAnswers(Answers):
    """Label, probabilities, p-values and prediction sets."""

    task: ClassVar[Schemas] = SCHEMAS

    def _target(self) -> dict[str, Any]:
        return {"task": self.model.target_.kind, "classes": self._names[0]}

    def predictions(self, predicted: Predictions, ask: Any) -> dict[str, Any]:
        """Label, probabilities, confidence, credibility, typicality and prediction set of each row."""
        labels = self._names[0]
        columns = (predicted.codes.tolist(), predicted.probabilities.tolist(), self._trust(predicted, ask.epsilon))
        rows = [
            {"label": labels[code], "probability": row[code], "probabilities": self._by_label(row), **trust}
            for code, row, trust in zip(*columns, strict=True)
        ]
        return self._answered("predictions", rows, predicted, ask.epsilon)

    def sets(self, predicted: Predictions, ask: Any) -> dict[str, Any]:
        """Prediction set and p-values of each row."""
        if predicted.conformal is None:
            raise CalibrationError(
                "prediction sets need calibration rows, and the model has none; add some with recalibrate"
            )
        columns = (self._trust(predicted, ask.epsilon), predicted.conformal.p_values.tolist())
        rows = [{**trust, "p_values": self._by_label(p)} for trust, p in zip(*columns, strict=True)]
        return self._answered("sets", rows, predicted, ask.epsilon)

    def _trust(self, predicted: Predictions, epsilon: float) -> list[dict[str, Any]]:
        names, trust = ("confidence", "credibility", "typicality", "label_set"), predicted.conformal
        if trust is None:
            return [dict.fromkeys(names) for _ in predicted.codes]
        held = label_sets(trust.p_values, epsilon, ordered=trust.ordered).tolist()
        sets = [self._held(row) for row in held]
        typicality = [None] * len(sets) if trust.typicality is None else trust.typicality.tolist()
        columns = (trust.confidence.tolist(), trust.credibility.tolist(), typicality, sets)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _note(self, epsilon: float) -> str | None:
        """What to expect from sets at this ε, if calibration can exclude few labels or none."""
        if len(self.model.calibration_y_) == 0:
            return None
        expected, needed = self.model.expected_sets(epsilon), smallest_calibration(epsilon)
        there = self.count(expected.n_calibration)
        if expected.n_calibration < needed:
            return f"excluding a label at this epsilon needs {needed} calibration rows; the model has {there}"
        return str(replace(expected, n_calibration=there)) if (expected.full_share or 0) > 0.5 else None
