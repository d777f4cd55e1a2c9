"""What a classifier says of examples, and how good, how honest and how wary that is where the truth is known.

said = predict(clf, X)
said.frame(epsilon=0.05)                  # label, probability, confidence, credibility and label set of each row
evaluate(said, y, epsilon=0.05).to_dict() # accuracy, log loss, calibration error, coverage, …; and by class
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac import metrics
from dwac.conformal import ConformalPrediction, nonconformity
from dwac.drawing.records import plain
from dwac.errors import InputError
from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.preparation import encode_known
from dwac.estimator.readable import Reasons, readable
from dwac.explain import privacy

_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # what a formula may begin with
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Predictions:
    """One pass over n examples: their votes, and what follows from these alone."""

    log_class_weights: Floats  # (n, K)
    classes: NDArray[Any]  # (K,)
    conformal: ConformalPrediction | None  # None for a model without calibration rows
    reasons: Reasons | None = None  # (n,): None, or why a row could not be read, and was given the classes' shares
    private: bool = False  # whether all but the votes themselves is rounded, as `dwac.explain.privacy` has it

    @property
    def readable(self) -> NDArray[np.bool_]:
        """(n,): which rows could be read."""
        return np.ones(len(self.codes), dtype=bool) if self.reasons is None else readable(self.reasons)

    def part(self, rows: Any) -> Predictions:
        """What is said of some rows: a slice, numbers or a mask."""
        trust = self.conformal
        if trust is not None:
            bad = None if trust.unreadable is None else trust.unreadable[rows]
            trust = replace(trust, p_values=trust.p_values[rows], scores=trust.scores[rows], unreadable=bad)
        reasons = None if self.reasons is None else self.reasons[rows]
        return replace(self, log_class_weights=self.log_class_weights[rows], conformal=trust, reasons=reasons)

    @property
    def codes(self) -> NDArray[np.int64]:
        """(n,): the places of the predicted labels among the classes."""
        return np.asarray(self.log_class_weights.argmax(axis=1))

    @property
    def labels(self) -> NDArray[Any]:
        """(n,): the predicted labels."""
        return np.asarray(self.classes[self.codes])

    @property
    def log_probabilities(self) -> Floats:
        """(n, K): log P(y=k given x); where private, less than a per cent counts as half of one."""
        if self.private:
            told = np.maximum(self.probabilities, 0.5 / privacy.STEPS)
            return np.asarray(np.log(told / told.sum(axis=1, keepdims=True)))
        votes = self.log_class_weights
        return np.asarray(votes - np.logaddexp.reduce(votes, axis=1, keepdims=True))

    @property
    def probabilities(self) -> Floats:
        """(n, K): P(y=k given x)."""
        exact = -nonconformity(self.log_class_weights, "probability")
        return privacy.shares(exact) if self.private else exact

    def frame(self, epsilon: float = 0.05) -> pd.DataFrame:
        """A row an example: label, probability, confidence, credibility, and the set of labels at error rate ε.

        `unreadable` says why a row could not be read, where that is so: its label is then the commonest one, its
        credibility 0 and its set empty.
        """
        found: dict[str, Any] = {"label": self.labels.tolist(), "probability": self.probabilities.max(axis=1)}
        if self.conformal is not None:
            found |= {"confidence": self.conformal.confidence, "credibility": self.conformal.credibility}
            found["set"] = [self.classes[held].tolist() for held in self.conformal.label_sets(epsilon)]
        found["unreadable"] = pd.Series([None] * len(self.codes) if self.reasons is None else self.reasons, dtype="str")
        return pd.DataFrame(found)


def predict(clf: DWACClassifier, X: Any, *, private: bool | None = None) -> Predictions:
    """What the classifier says of X; rows that cannot be read are flagged.

    private: rounded; by default so for a model saved without its examples.
    """
    return predictions_of(clf, *clf.votes(X), private=clf.private_ if private is None else private)


def predictions_of(
    clf: DWACClassifier, log_class_weights: Floats, reasons: Reasons | None = None, *, private: bool
) -> Predictions:
    """The same from votes that were counted before, (n, K)."""
    trust = clf.conformal_of(log_class_weights, reasons, private=private) if len(clf.calibration_y_) else None
    return Predictions(log_class_weights, clf.classes_, trust, reasons, private)


def as_csv(frame: pd.DataFrame, delimiter: str = ",", *, harmless: bool = False) -> str:
    """A frame of predictions as a file's text, the labels of a set joined by |.

    harmless: for a spreadsheet, which would take cells such as =1+1 for formulas.
    """
    joined = frame.map(lambda value: "|".join(map(str, value)) if isinstance(value, list) else value)
    if harmless:
        joined = joined.map(harmless_cell).rename(columns=harmless_cell)
    return str(joined.to_csv(index=False, sep=delimiter, lineterminator="\n"))


def harmless_cell(value: Any) -> Any:
    """A cell, or a column's name, that no spreadsheet takes for a formula: an apostrophe makes it a text.

    >>> harmless_cell("=HYPERLINK(1)"), harmless_cell("-3.5"), harmless_cell(-3.5)
    ("'=HYPERLINK(1)", '-3.5', -3.5)
    """
    formula = isinstance(value, str) and value.startswith(_FORMULAS) and not _NUMBER.fullmatch(value)
    return f"'{value}" if formula else value


@dataclass(frozen=True)
class Evaluation:
    """How predictions compare with the truth; what needs calibration is None where a model has none."""

    n: int  # rows that could be read
    accuracy: float
    log_loss: float
    calibration_error: float
    epsilon: float
    coverage: float | None
    mean_set_size: float | None
    credibility: float | None  # mean
    unreadable: int  # rows that could not be read, and are left out of all else
    unseen: int  # rows whose labels training did not have: wrong, missed by every set, and left out of the two errors
    by_class: pd.DataFrame  # a row a class: n, recall, precision, coverage, mean_set_size, credibility

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, ready for JSON."""
        content: dict[str, Any] = plain({**vars(self), "by_class": self.by_class.to_dict("records")})
        return content


def evaluate(said: Predictions, y: Any, epsilon: float = 0.05, *, strict: bool = True) -> Evaluation:
    """Compare with true labels y (n,). Rows that could not be read are counted, no more.

    strict: refuse labels that training did not have. Otherwise their rows are wrong and missed, as the promise of
    prediction sets counts them; where there are no other labels, y is not the right column, and an error says so.
    """
    truth = encode_known(y, len(said.log_class_weights), said.classes, strict=strict)
    if not (truth >= 0).any():
        encode_known(y, len(truth), said.classes)  # an error names the first
    readable = said.readable
    if said.reasons is not None and not readable.any():
        raise InputError(f"no row could be read, so there is nothing to compare; row 0: {said.reasons[0]}")
    said, truth = said.part(readable), truth[readable]
    seen = truth >= 0
    trust = said.conformal
    sets = None if trust is None else trust.label_sets(epsilon)
    return Evaluation(
        n=len(truth),
        accuracy=_mean(said.codes == truth),
        log_loss=metrics.log_loss(truth[seen], said.log_probabilities[seen]),
        calibration_error=metrics.calibration_error(truth[seen], said.probabilities[seen]),
        epsilon=epsilon,
        coverage=None if sets is None else float(sets[seen, truth[seen]].sum() / len(truth)),
        mean_set_size=None if sets is None else metrics.set_sizes(sets).mean,
        credibility=None if trust is None else float(trust.credibility.mean()),
        unreadable=int((~readable).sum()),
        unseen=int((~seen).sum()),
        by_class=_by_class(said, truth, sets),
    )


def _by_class(said: Predictions, truth: NDArray[np.int64], sets: NDArray[np.bool_] | None) -> pd.DataFrame:
    rows = []
    for code, label in enumerate(said.classes.tolist()):
        own, named = truth == code, said.codes == code
        row = {"label": label, "n": int(own.sum()), "recall": _mean(named[own]), "precision": _mean(own[named])}
        if sets is not None and said.conformal is not None:
            row |= {"coverage": _mean(sets[own, code]), "mean_set_size": _mean(sets[own].sum(axis=1))}
            row["credibility"] = _mean(said.conformal.credibility[own])
        rows.append(row)
    return pd.DataFrame(rows)


def _mean(values: NDArray[Any]) -> float:
    """NaN where there is nothing to average, without a warning."""
    return float(values.mean()) if len(values) else float("nan")
