"""One label per row: a class, or a label in an order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dwac.drawing.records import plain
from dwac.errors import InputError
from dwac.estimator.evaluation import ClassPredictions
from dwac.reference import ReferenceSet
from dwac.report.measures import Measure
from dwac.server.explorer.tasks import NONE, Floats, Ints, VotedTask
from dwac.tasks import ORDERED

UNKNOWN = -1


class ClassTask(VotedTask):
    """Codes of classes."""

    columns: ClassVar[Mapping[str, str]] = {"label": "<u2", "predicted": "<u2", "p_values": "<f8"}

    def unknown(self, n: int) -> Ints:
        """-1, as for a label that training did not have."""
        return np.full(n, UNKNOWN)

    def of_voters(self, references: ReferenceSet) -> Ints:
        """(m,): their codes."""
        return references.labels.cpu().numpy()

    def known(self, truth: NDArray[Any]) -> NDArray[np.bool_]:
        """(n,)."""
        return np.asarray(truth != UNKNOWN)

    def named(self, value: Any) -> Any:
        """The label."""
        return None if value in (UNKNOWN, NONE) else self._names[int(value)]

    def predictions(self, clf: Any, votes: Floats, examples: Any, *, private: bool) -> ClassPredictions:
        """Probabilities, p-values and typicality."""
        if len(votes) == 0:
            return ClassPredictions(votes, clf.target_, None, private=private)
        found: ClassPredictions = clf.sets_.predictions(self.evidence(clf, votes, examples), private=private)
        return found

    def measure(self, predictions: ClassPredictions, truth: NDArray[Any]) -> Measure:
        """Accuracy."""
        return Measure.of_labels(predictions.codes, truth)

    def codes(self, predictions: ClassPredictions) -> Ints:
        """(n,): the codes of the predicted classes."""
        return predictions.codes

    def column(self, name: str, points: Any, view: Any, epsilon: float) -> NDArray[Any]:
        """Labels and predictions of all points; p-values of those with predictions."""
        del epsilon
        trust = view.predictions.conformal
        match name:
            case "label":
                labels = points.values(view)
                return np.where(labels < 0, NONE, labels).astype("<u2")
            case "predicted":
                return np.asarray(points.spread(view.predictions.codes, NONE, "<u2"))
            case _:
                return np.zeros(0) if trust is None else trust.p_values.astype("<f8")

    def start(self, explorer: Any) -> dict[str, Any]:
        """Whether labels have an order, and the keys that JSON objects have for them."""
        del explorer
        return {"ordered": self.clf.target_.kind == ORDERED, "keys": list(plain(dict.fromkeys(self.clf.classes_)))}

    def changed_rows(self, before: ClassPredictions, after: ClassPredictions) -> Ints:
        """Rows whose label changes."""
        return np.flatnonzero(before.codes != after.codes)

    def summary(self, predictions: ClassPredictions, row: int) -> dict[str, Any]:
        """Label, probability and credibility."""
        trust = None if predictions.conformal is None else float(predictions.conformal.credibility[row])
        probability = float(predictions.probabilities[row].max())
        return {"label": plain(predictions.labels[row]), "probability": probability, "credibility": trust}

    def disagreeing_rows(self, ours: ClassPredictions, theirs: ClassPredictions) -> Ints:
        """Rows with different labels, those where both are most confident first."""
        mine, other = np.array(ours.labels.tolist(), dtype=object), np.array(theirs.labels.tolist(), dtype=object)
        rows = np.flatnonzero(mine != other)
        both = np.minimum(ours.probabilities.max(axis=1), theirs.probabilities.max(axis=1))
        return rows[np.argsort(-both[rows], kind="stable")]

    def discs_of(self, group: Any, references: ReferenceSet) -> list[int]:
        """The discs of the group, without those of other labels, which hold relabelled members."""
        discs, names = super().discs_of(group, references), self.clf.classes_.tolist()
        return [disc for disc in discs if names[references.groups.leaf_labels[disc]] == group.label]

    def subject(self, scores: Floats, label: int) -> int:
        """The predicted label."""
        del label
        return int(scores.argmax())

    def predicted_code(self, explanation: Any) -> int:
        """The code of the predicted class."""
        return int(self.clf.classes_.tolist().index(explanation.label))

    def goal(self, other: Any, label: int) -> Any:
        """The label with this code."""
        del label
        return None if other.code is None else self._name(other.code)

    def counted(self, code: int | None, label: int) -> Any:
        """The label with this code; the second of two."""
        del label
        if code is None and len(self._names) != 2:
            return None
        return self._name(1 if code is None else code)

    def _name(self, code: int) -> Any:
        if not 0 <= code < len(self._names):
            raise InputError(f"the label must be one of the {len(self._names)} codes, from 0; got {code}")
        return self._names[code]
