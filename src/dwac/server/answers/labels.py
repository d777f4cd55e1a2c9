"""Answers of a model that predicts several labels per row."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dwac.conformal import smallest_calibration
from dwac.drawing.records import plain
from dwac.errors import CalibrationError
from dwac.estimator.evaluation import LabelPredictions
from dwac.estimator.evaluation.labels import DECISIONS
from dwac.server.answers import Answers, Why, silent
from dwac.server.limits import RefusalError
from dwac.server.schemas import Schemas
from dwac.server.schemas.labels import SCHEMAS


class LabelAnswers(Answers):
    """Probabilities of labels, decisions on each, and sets that miss few of them."""

    task: ClassVar[Schemas] = SCHEMAS

    def why(self, ask: Any) -> Why:
        """The request, with the labels to explain."""
        if ask.labels is None:
            return Why(ask.k, ask.epsilon)
        known = dict(zip(map(str, self._names[1]), self.model.classes_.tolist(), strict=True))
        unknown = [label for label in ask.labels if str(plain(label)) not in known]
        if unknown:
            raise RefusalError(
                422,
                "invalid_request",
                f"labels must be among those of the model (GET /v1/model); got {unknown[0]!r:.60}",
            )
        return Why(ask.k, ask.epsilon, tuple(dict.fromkeys(known[str(plain(label))] for label in ask.labels)))

    def _explain(self, X: Any, asked: Why) -> list[dict[str, Any]]:
        return [self._why_labels(each, asked) for each in self._explained(X, asked)]

    def _why_labels(self, each: Any, asked: Why) -> dict[str, Any]:
        """`LabelExplanations.to_dict` for the requested labels only: each costs a separate vote."""
        likeliest = max(each.probabilities, key=each.probabilities.__getitem__)
        labels = asked.settings or each.labels or (likeliest,)
        found: dict[str, Any] = each.to_dict(labels)
        return found

    def _target(self) -> dict[str, Any]:
        return {"task": self.model.target_.kind, "labels": self._names[0]}

    def predictions(self, predicted: LabelPredictions, ask: Any) -> dict[str, Any]:
        """Labels, probabilities, decisions, typicality and set of each row."""
        columns = (predicted.probabilities.tolist(), self._trust(predicted, ask.epsilon))
        rows = [
            {"labels": self._held([p >= 0.5 for p in row]), "probabilities": self._by_label(row), **trust}
            for row, trust in zip(*columns, strict=True)
        ]
        return self._answered("predictions", rows, predicted, ask.epsilon)

    def sets(self, predicted: LabelPredictions, ask: Any) -> dict[str, Any]:
        """Decisions, p-values and set of each row."""
        trust = predicted.conformal
        if trust is None:
            raise CalibrationError("decisions need calibration rows, and the model has none; add some with recalibrate")
        columns = (self._trust(predicted, ask.epsilon), trust.p_yes.tolist(), trust.p_no.tolist())
        rows = [
            {**row, "p_yes": self._by_label(yes), "p_no": self._by_label(no)}
            for row, yes, no in zip(*columns, strict=True)
        ]
        return self._answered("sets", rows, predicted, ask.epsilon)

    def _trust(self, predicted: LabelPredictions, epsilon: float) -> list[dict[str, Any]]:
        trust = predicted.conformal
        if trust is None:
            return [dict.fromkeys(("typicality", "decisions", "label_set")) for _ in range(len(predicted))]
        with silent():
            decided, sets = (
                np.asarray(found).tolist() for found in (predicted.decisions(epsilon), predicted.sets(epsilon))
            )
        typicality = [None] * len(sets) if trust.typicality is None else trust.typicality.tolist()
        return [
            {
                "typicality": typical,
                "decisions": self._by_label([DECISIONS[code] for code in row]),
                "label_set": self._held(held),
            }
            for typical, row, held in zip(typicality, decided, sets, strict=True)
        ]

    def _note(self, epsilon: float) -> str | None:
        """Which labels can hardly be decided at this ε, or why sets hold every label."""
        n, needed = len(self.model.calibration_y_), smallest_calibration(epsilon)
        if n == 0:
            return None
        if n < needed:
            there = self.count(n)
            return f"deciding on a label at this epsilon needs {needed} calibration rows; the model has {there}"
        expected = self.model._label_calibration().labels.expected(epsilon, self.model.classes_)
        if not expected.rare:
            return None
        rare = ", ".join(map(str, expected.rare[:5])) + (" and others" if len(expected.rare) > 5 else "")
        return f"fewer than {needed} calibration rows have, or lack, {rare}: decisions on these are rare"
