"""Answers of the model to several requests at once, and their form as JSON.

The numbers are those of `dwac.estimator.evaluation.predict` and `Explanation.to_dict`: the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from dwac.conformal import label_sets, smallest_calibration
from dwac.drawing.records import plain
from dwac.errors import CalibrationError
from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.evaluation import Predictions, predict
from dwac.explain import privacy
from dwac.server.inputs import Reader

VOTES = 0  # key of requests that need votes only; for explanations the key is the number of neighbours


@dataclass(frozen=True)
class Answers:
    """Answers requests with a model, which is never changed."""

    model: DWACClassifier
    reader: Reader
    private: bool

    def run(self, k: int, requests: list[list[Any]]) -> list[Any]:
        """The answer to each request, or the exception that it raised.

        If the requests fail together, each half is tried separately: only the request at fault is refused.
        """
        try:
            return self._together(k, requests)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in native code is not an Exception
            if len(requests) == 1:
                return [error]
            half = len(requests) // 2
            return [*self.run(k, requests[:half]), *self.run(k, requests[half:])]

    def _together(self, k: int, requests: list[list[Any]]) -> list[Any]:
        X = self.reader.sift([row for rows in requests for row in rows])
        parts = [slice(a, b) for a, b in pairwise(np.cumsum([0, *map(len, requests)]).tolist())]
        if k == VOTES:
            predictions = predict(self.model, X, private=self.private)
            return [predictions.part(rows) for rows in parts]
        explained = [explanation.to_dict() for explanation in self.model.explain(X, k, private=self.private)]
        return [explained[rows] for rows in parts]

    # The form of answers

    @cached_property
    def labels(self) -> list[Any]:
        """The classes as JSON values."""
        names: list[Any] = plain(self.model.classes_)
        return names

    @cached_property
    def keys(self) -> list[str]:
        """The classes as keys of JSON objects."""
        return list(plain(dict.fromkeys(self.model.classes_)))

    def predictions(self, predictions: Predictions, epsilon: float) -> dict[str, Any]:
        """Label, probabilities, confidence, credibility, typicality and prediction set of each row."""
        columns = (predictions.codes.tolist(), predictions.probabilities.tolist(), self._trust(predictions, epsilon))
        rows = [
            {"label": self.labels[code], "probability": row[code], "probabilities": self._by_class(row), **trust}
            for code, row, trust in zip(*columns, strict=True)
        ]
        return {"epsilon": epsilon, "note": self._note(epsilon), "predictions": rows}

    def sets(self, predictions: Predictions, epsilon: float) -> dict[str, Any]:
        """Prediction set and p-values of each row."""
        if predictions.conformal is None:
            raise CalibrationError(
                "prediction sets need calibration rows, and the model has none; add some with recalibrate"
            )
        columns = (self._trust(predictions, epsilon), predictions.conformal.p_values.tolist())
        rows = [{**trust, "p_values": self._by_class(p)} for trust, p in zip(*columns, strict=True)]
        return {"epsilon": epsilon, "note": self._note(epsilon), "sets": rows}

    def _by_class(self, row: list[float]) -> dict[str, float]:
        return dict(zip(self.keys, row, strict=True))

    def _trust(self, predictions: Predictions, epsilon: float) -> list[dict[str, Any]]:
        names, trust = ("unreadable", "confidence", "credibility", "typicality", "label_set"), predictions.conformal
        reasons: list[str | None] = [None] * len(predictions.codes)
        if predictions.reasons is not None:
            reasons = predictions.reasons.tolist()
        if trust is None:
            return [{**dict.fromkeys(names), "unreadable": why} for why in reasons]
        held = label_sets(trust.p_values, epsilon).tolist()
        sets = [[label for label, there in zip(self.labels, row, strict=True) if there] for row in held]
        typicality = [None] * len(reasons) if trust.typicality is None else trust.typicality.tolist()
        columns = (reasons, trust.confidence.tolist(), trust.credibility.tolist(), typicality, sets)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _note(self, epsilon: float) -> str | None:
        """What to expect of sets at this ε, if calibration can exclude few labels or none."""
        if len(self.model.calibration_y_) == 0:
            return None
        expected, needed = self.model.expected_sets(epsilon), smallest_calibration(epsilon)
        there = self.count(expected.n_calibration)
        if expected.n_calibration < needed:
            return f"excluding a label at this epsilon needs {needed} calibration rows; the model has {there}"
        return str(replace(expected, n_calibration=there)) if (expected.full_share or 0) > 0.5 else None

    def agreement(self) -> dict[str, Any] | None:
        """How often few voters give the label of all, rounded if private; None if all vote."""
        found = self.model.agreement_
        if found is None:
            return None
        return (privacy.agreement(found) if self.private else found)._asdict()

    def count(self, n: int) -> int:
        """A number of examples; rounded if private."""
        return privacy.count(n) if self.private else int(n)
