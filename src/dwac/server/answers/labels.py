"""Answers of a model that predicts several labels per row."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dwac.conformal import LabelPrediction, smallest_calibration
from dwac.drawing.records import plain
from dwac.errors import CalibrationError, CalibrationWarning
from dwac.estimator.readable import Reasons, readable
from dwac.estimator.several import probabilities_of
from dwac.explain import privacy
from dwac.server.answers.common import Answers, Votes, Why, names_of, reasons_of
from dwac.server.refusals import RefusalError
from dwac.server.schemas import Schemas
from dwac.server.schemas.labels import SCHEMAS

Floats = NDArray[np.float64]
_DECISIONS = {1: "yes", 0: "no", -1: "undecided"}


@dataclass(frozen=True)
class LabelVotes:
    """What is known about the labels of n rows."""

    probabilities: Floats  # (n, L); rounded if private
    exact: Floats  # (n, L), for sets
    trust: LabelPrediction | None  # None without calibration rows
    reasons: Reasons | None

    def part(self, rows: Any) -> Self:
        """The same for some rows."""
        return replace(
            self,
            probabilities=self.probabilities[rows],
            exact=self.exact[rows],
            trust=None if self.trust is None else self.trust.part(rows),
            reasons=None if self.reasons is None else self.reasons[rows],
        )


class LabelAnswers(Answers):
    """Probabilities of labels, decisions on each, and sets that miss few of them."""

    task: ClassVar[Schemas] = SCHEMAS

    def _predict(self, X: Any, asked: Votes) -> LabelVotes:
        del asked
        return label_votes(self.model, self.model.evidence(X), private=self.private)

    def why(self, ask: Any) -> Why:
        """Which labels are explained is part of the question."""
        if ask.labels is None:
            return Why(ask.k)
        known = dict(zip(map(str, self._names[1]), self.model.classes_.tolist(), strict=True))
        unknown = [label for label in ask.labels if str(plain(label)) not in known]
        if unknown:
            raise RefusalError(
                422, "invalid_request", f"labels must be among those of the model (GET /v1/model); got {unknown[0]!r:.60}"
            )
        return Why(ask.k, tuple(dict.fromkeys(known[str(plain(label))] for label in ask.labels)))

    def _explain(self, X: Any, asked: Why) -> list[dict[str, Any]]:
        found = []
        for each in self.model.explain(X, asked.k, private=self.private):
            labels = asked.settings or tuple(each.labels) or (max(each, key=lambda name: _yes(each[name])),)
            explained = {label: each[label].to_dict() for label in labels}
            why = {"labels": plain(list(each.labels)), "unreadable": next(iter(explained.values()))["unreadable"]}
            found.append({**why, "explanations": {str(plain(label)): one for label, one in explained.items()}})
        return found

    @cached_property
    def _names(self) -> tuple[list[Any], list[str]]:
        return names_of(self.model.classes_)

    def _target(self) -> dict[str, Any]:
        return {"task": self.model.target_.kind, "labels": self._names[0]}

    def predictions(self, predicted: LabelVotes, ask: Any) -> dict[str, Any]:
        """Labels, probabilities, decisions, typicality and set of each row."""
        columns = (predicted.probabilities.tolist(), self._trust(predicted, ask.epsilon))
        rows = [
            {"labels": self._held([p >= 0.5 for p in row]), "probabilities": self._by_label(row), **trust}
            for row, trust in zip(*columns, strict=True)
        ]
        return {"epsilon": ask.epsilon, "note": self._note(ask.epsilon), "predictions": rows}

    def sets(self, predicted: LabelVotes, ask: Any) -> dict[str, Any]:
        """Decisions, p-values and set of each row."""
        trust = predicted.trust
        if trust is None:
            raise CalibrationError("decisions need calibration rows, and the model has none; add some with recalibrate")
        columns = (self._trust(predicted, ask.epsilon), trust.p_yes.tolist(), trust.p_no.tolist())
        rows = [
            {**row, "p_yes": self._by_label(yes), "p_no": self._by_label(no)}
            for row, yes, no in zip(*columns, strict=True)
        ]
        return {"epsilon": ask.epsilon, "note": self._note(ask.epsilon), "sets": rows}

    def _held(self, row: list[bool]) -> list[Any]:
        return [label for label, there in zip(self._names[0], row, strict=True) if there]

    def _by_label(self, row: list[Any]) -> dict[str, Any]:
        return dict(zip(self._names[1], row, strict=True))

    def _trust(self, predicted: LabelVotes, epsilon: float) -> list[dict[str, Any]]:
        reasons, trust = reasons_of(predicted, len(predicted.probabilities)), predicted.trust
        if trust is None:
            nothing = dict.fromkeys(("typicality", "decisions", "label_set"))
            return [{**nothing, "unreadable": why} for why in reasons]
        decided = decisions(trust, epsilon).tolist()
        sets = label_sets(self.model, predicted, epsilon).tolist()
        typicality = [None] * len(reasons) if trust.typicality is None else trust.typicality.tolist()
        return [
            {
                "unreadable": why,
                "typicality": typical,
                "decisions": self._by_label([_DECISIONS[code] for code in row]),
                "label_set": self._held(held),
            }
            for why, typical, row, held in zip(reasons, typicality, decided, sets, strict=True)
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


def label_votes(clf: Any, evidence: Any, *, private: bool) -> LabelVotes:
    """What is known about the labels of rows, from the result of `evidence`."""
    exact = probabilities_of(clf.model_, evidence[0], clf.target_)
    shown = np.round(exact * privacy.STEPS) / privacy.STEPS if private else exact
    trust = None
    if len(clf.calibration_y_):
        with warnings.catch_warnings():  # the note of an answer says which labels are rare
            warnings.simplefilter("ignore", CalibrationWarning)
            trust = clf.labels_of(*evidence, private=private)
    return LabelVotes(shown, exact, trust, evidence[1])


def decisions(trust: LabelPrediction, epsilon: float) -> NDArray[np.int8]:
    """(n, L): 1 has the label, 0 has it not, -1 undecided."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return trust.decisions(epsilon)


def label_sets(clf: Any, predicted: LabelVotes, epsilon: float) -> NDArray[np.bool_]:
    """(n, L): sets that miss at most a share ε of a row's labels, on average; none of rows that could not be read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        sets = clf._label_calibration().misses.sets(predicted.exact, epsilon)
    return sets if predicted.reasons is None else np.asarray(sets & readable(predicted.reasons)[:, None])


def _yes(explanation: Any) -> float:
    return float(list(explanation.probabilities.values())[-1])
