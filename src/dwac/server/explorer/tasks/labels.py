"""Several labels per row: the same examples vote yes or no on each."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dwac.drawing.records import plain
from dwac.errors import InputError
from dwac.estimator.evaluation import LabelPredictions
from dwac.reference import ReferenceSet
from dwac.report.measures import Measure
from dwac.server.answers import silent
from dwac.server.explorer.tasks import Floats, Ints, VotedTask

_UNKNOWN = 255


class LabelTask(VotedTask):
    """Codes of label sets; the page shows each label separately."""

    columns: ClassVar[Mapping[str, str]] = {"label": "<u1", "predicted": "<f4", "p_yes": "<f8", "p_no": "<f8"}
    outcome: ClassVar[str] = "a label set of the training examples"

    predicts: ClassVar[str] = "several labels per row"

    def comparable(self, other: Any) -> bool:
        """Whether both have the same labels."""
        return isinstance(other, LabelTask) and self._names == other._names

    @cached_property
    def _table(self) -> NDArray[np.uint8]:
        return np.asarray(self.clf.target_.table, dtype=np.uint8)

    def unknown(self, n: int) -> NDArray[np.uint8]:
        """255."""
        return np.full((n, len(self._names)), _UNKNOWN, dtype=np.uint8)

    def of_voters(self, references: ReferenceSet) -> NDArray[np.uint8]:
        """(m, L)."""
        return np.asarray(self._table[references.labels.cpu().numpy()])

    def known(self, truth: NDArray[Any]) -> NDArray[np.bool_]:
        """(n,)."""
        return np.asarray((truth != _UNKNOWN).all(axis=1))

    def named(self, value: Any) -> Any:
        """The labels; for a code in an edit, those of its label set."""
        row = self._table[value] if np.ndim(value) == 0 else np.asarray(value)
        return None if (row == _UNKNOWN).any() else self._listed(row > 0)

    def _listed(self, has: Any) -> list[Any]:
        return [name for name, here in zip(self._names, has, strict=True) if here]

    def predictions(self, clf: Any, votes: Floats, examples: Any, *, private: bool) -> LabelPredictions:
        """Probabilities, p-values and typicality."""
        if len(votes) == 0:
            return LabelPredictions(np.zeros((0, len(self._names))), clf.target_, None, None, None, private)
        with silent():
            found: LabelPredictions = clf.sets_.predictions(self.evidence(clf, votes, examples), private=private)
        return found

    def measure(self, predictions: LabelPredictions, truth: NDArray[Any]) -> Measure:
        """The share of rows with every label right."""
        return Measure.of_labels(predictions.has, truth > 0)

    def codes(self, predictions: LabelPredictions) -> Ints:
        """(n,): the code of the label set nearest to the probabilities."""
        return np.asarray(
            (predictions.probabilities @ (1 - 2.0 * self._table.T) + self._table.sum(axis=1)).argmin(axis=1)
        )

    def column(self, name: str, points: Any, view: Any, epsilon: float) -> NDArray[Any]:
        """Labels and probabilities of all points, p-values of those with predictions."""
        del epsilon
        predictions, width = view.predictions, len(self._names)
        match name:
            case "label":
                return np.asarray(points.values(view), dtype="<u1")
            case "predicted":
                return np.asarray(points.spread(predictions.probabilities, np.nan, "<f4", width))
            case _:
                trust = predictions.conformal
                return np.zeros(0) if trust is None else np.asarray(getattr(trust, name), dtype="<f8")

    def start(self, explorer: Any) -> dict[str, Any]:
        """The label sets of training examples, to choose from when relabelling one."""
        del explorer
        return {"label_sets": self._table.tolist()}

    def changed_rows(self, before: LabelPredictions, after: LabelPredictions) -> Ints:
        """Rows that gain or lose a label."""
        return np.flatnonzero((before.has != after.has).any(axis=1))

    def summary(self, predictions: LabelPredictions, row: int) -> dict[str, Any]:
        """The predicted labels, and the least certain probability among all."""
        p = predictions.probabilities[row]
        return {"label": self._listed(predictions.has[row]), "probability": float(np.maximum(p, 1 - p).min())}

    def disagreeing_rows(self, ours: LabelPredictions, theirs: LabelPredictions) -> Ints:
        """Rows with different labels, those whose probabilities differ most first."""
        gap = np.abs(ours.probabilities - theirs.probabilities).max(axis=1)
        rows = np.flatnonzero((ours.has != theirs.has).any(axis=1))
        return rows[np.argsort(-gap[rows], kind="stable")]

    def errors(self, predictions: LabelPredictions, truth: NDArray[Any]) -> list[dict[str, Any]]:
        """Labels on which the others disagree with the example itself, the most improbable first."""
        rows = np.flatnonzero(self.known(truth))
        p = predictions.probabilities[rows]
        wrong = np.where(truth[rows] > 0, 1 - p, p)
        order = np.argsort(-wrong, axis=None, kind="stable")
        order = order[wrong.ravel()[order] > 0.5]
        return [
            {
                "row": int(rows[i]),
                "label": self._names[j],
                "has": bool(truth[rows[i], j]),
                "probability": float(p[i, j]),
            }
            for i, j in zip(*np.unravel_index(order, wrong.shape), strict=True)
        ]

    def vote(self, explanation: Any, label: int) -> Any:
        """The vote on one label."""
        if not 0 <= label < len(self._names):
            raise InputError(f"label must be the place of a label, 0 … {len(self._names) - 1}; got {label}")
        return explanation[self.clf.classes_.tolist()[label]]

    def more(self, explanation: Any) -> dict[str, Any]:
        """The probabilities of all labels."""
        labels = [{"name": plain(name), "probability": p} for name, p in explanation.probabilities.items()]
        return {"labels": labels, "predicted": plain(list(explanation.labels))}

    def without_record(self, explanation: Any) -> Any:
        """The explanation of each label's vote without the example itself."""
        bare = copy(explanation)
        bare.record = bare.attention = None
        bare._made = {name: super(LabelTask, self).without_record(vote) for name, vote in explanation.items()}
        return bare

    def predicted_code(self, explanation: Any) -> int:
        """The code of the label set nearest to the probabilities."""
        p = np.array([list(explanation.probabilities.values())])
        return int(self.codes(LabelPredictions(p, self.clf.target_, None, None))[0])

    def goal(self, other: Any, label: int) -> Any:
        """To have the label, 1, or not to have it, 0."""
        if other.code is None:
            return None
        return self._names[label] if other.code else f"not {self._names[label]}"

    def counted(self, code: int | None, label: int) -> Any:
        """The label in question."""
        del code
        return self._names[label]
