"""What the model says of the rows of several requests at once, and how it is told.

The numbers are the classifier's own: the same as in Python, on the command line and in a report.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dwac.classifier import DWACClassifier
from dwac.conformal import label_sets, nonconformity, smallest_calibration
from dwac.errors import CalibrationError
from dwac.explain import plain
from dwac.server.inputs import Reader

VOTES = 0  # the key of requests that need votes alone; of explanations it is their number of neighbours


class Verdicts(NamedTuple):
    """Of the rows of one request: labels as codes, and P and p-values, (n, K); None without calibration."""

    codes: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    p_values: NDArray[np.float64] | None
    confidence: NDArray[np.float64] | None
    credibility: NDArray[np.float64] | None

    def rows(self, some: slice) -> Verdicts:
        """Those of some rows."""
        parts: Any = (None if part is None else part[some] for part in self)
        return Verdicts(*parts)


@dataclass(frozen=True)
class Answers:
    """Answers for a model, which it never changes."""

    model: DWACClassifier
    reader: Reader
    private: bool

    def run(self, k: int, requests: list[list[Any]]) -> list[Any]:
        """The answer to each request, or the exception that it leads to.

        If all together fail, halves are tried: only who is to blame is refused, in the words for him alone.
        """
        try:
            return self._together(k, requests)
        except Exception as error:
            if len(requests) == 1:
                return [error]
            half = len(requests) // 2
            return [*self.run(k, requests[:half]), *self.run(k, requests[half:])]

    def _together(self, k: int, requests: list[list[Any]]) -> list[Any]:
        X = self.reader.read([row for rows in requests for row in rows])
        ends = np.cumsum([0, *map(len, requests)]).tolist()
        if k == VOTES:
            whole = self._verdicts(X)
            return [whole.rows(slice(a, b)) for a, b in pairwise(ends)]
        told = [explanation.to_dict() for explanation in self.model.explain(X, k, private=self.private)]
        return [told[a:b] for a, b in pairwise(ends)]

    def _verdicts(self, X: Any) -> Verdicts:
        votes = self.model.log_class_weights(X)
        codes, probabilities = votes.argmax(axis=1), -nonconformity(votes, "probability")
        if not self.calibrated:
            return Verdicts(codes, probabilities, None, None, None)
        trust = self.model.conformal_of(votes)
        return Verdicts(codes, probabilities, trust.p_values, trust.confidence, trust.credibility)

    @property
    def calibrated(self) -> bool:
        """Whether there are p-values."""
        return len(self.model.calibration_y_) > 0

    @cached_property
    def labels(self) -> list[Any]:
        """The classes as JSON has them."""
        names: list[Any] = plain(self.model.classes_)
        return names

    @cached_property
    def keys(self) -> list[str]:
        """The classes as keys of JSON objects."""
        return list(plain(dict.fromkeys(self.model.classes_)))

    # How it is told

    def predictions(self, found: Verdicts, epsilon: float) -> dict[str, Any]:
        """Label, probabilities, trust and label set of each row."""
        names, keys = self.labels, self.keys
        rows: list[dict[str, Any]] = [
            {"label": names[code], "probability": row[code], "probabilities": dict(zip(keys, row, strict=True))}
            for code, row in zip(found.codes.tolist(), found.probabilities.tolist(), strict=True)
        ]
        for row, trust in zip(rows, self._trust(found, epsilon), strict=True):
            row.update(trust)
        return {"epsilon": epsilon, "note": self._note(epsilon), "predictions": rows}

    def sets(self, found: Verdicts, epsilon: float) -> dict[str, Any]:
        """Label set and p-values of each row."""
        if found.p_values is None:
            raise CalibrationError("the model has no calibration rows, so it has no label sets; see recalibrate")
        rows = self._trust(found, epsilon)
        for row, p in zip(rows, found.p_values.tolist(), strict=True):
            row["p_values"] = dict(zip(self.keys, p, strict=True))
        return {"epsilon": epsilon, "note": self._note(epsilon), "sets": rows}

    def _trust(self, found: Verdicts, epsilon: float) -> list[dict[str, Any]]:
        if found.p_values is None or found.confidence is None or found.credibility is None:
            return [{"confidence": None, "credibility": None, "label_set": None} for _ in found.codes]
        names = self.labels
        columns = zip(
            found.confidence.tolist(),
            found.credibility.tolist(),
            label_sets(found.p_values, epsilon).tolist(),
            strict=True,
        )
        return [
            {
                "confidence": confidence,
                "credibility": credibility,
                "label_set": [name for name, held in zip(names, chosen, strict=True) if held],
            }
            for confidence, credibility, chosen in columns
        ]

    def _note(self, epsilon: float) -> str | None:
        """What label sets at this ε cannot do, where calibration has too few rows for it."""
        if not self.calibrated:
            return None
        y, needed = self.model.calibration_y_, smallest_calibration(epsilon)
        by_class = np.bincount(y, minlength=len(self.model.classes_)) if self.model.class_conditional else [len(y)]
        if min(by_class) >= needed:
            return None
        return f"to leave out a label at this epsilon takes {needed} calibration rows; there are {min(by_class)}"
