"""A classifier's predictions, and how accurate and how well calibrated they are where the truth is known.

predictions = predict(clf, X)
predictions.frame(epsilon=0.05)                  # one row per example: label, probability, typicality, set, …
evaluate(predictions, y, epsilon=0.05).to_dict() # accuracy, log loss, calibration error, coverage, …; also by class
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

_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # the first characters of a formula
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_CHANCE, _NAMED = 0.01, 3  # p-value below which a class falls short; so many are named

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Predictions:
    """One pass over n examples: their votes, and everything that follows from these."""

    log_class_weights: Floats  # (n, K)
    classes: NDArray[Any]  # (K,)
    conformal: ConformalPrediction | None  # None for a model without calibration rows
    reasons: Reasons | None = None  # (n,): None, or why a row could not be read; it then has the classes' shares
    private: bool = False  # whether everything except the votes is rounded as in `dwac.explain.privacy`

    @property
    def readable(self) -> NDArray[np.bool_]:
        """(n,): which rows could be read."""
        return np.ones(len(self.codes), dtype=bool) if self.reasons is None else readable(self.reasons)

    def part(self, rows: Any) -> Predictions:
        """The predictions for some rows: a slice, row numbers or a mask."""
        trust = None if self.conformal is None else self.conformal.part(rows)
        reasons = None if self.reasons is None else self.reasons[rows]
        return replace(self, log_class_weights=self.log_class_weights[rows], conformal=trust, reasons=reasons)

    @property
    def codes(self) -> NDArray[np.int64]:
        """(n,): the positions of the predicted labels among the classes."""
        return np.asarray(self.log_class_weights.argmax(axis=1))

    @property
    def labels(self) -> NDArray[Any]:
        """(n,): the predicted labels."""
        return np.asarray(self.classes[self.codes])

    @property
    def log_probabilities(self) -> Floats:
        """(n, K): log P(y=k given x); if private, a rounded share of 0 counts as half a per cent."""
        if self.private:
            rounded = np.maximum(self.probabilities, 0.5 / privacy.STEPS)
            return np.asarray(np.log(rounded / rounded.sum(axis=1, keepdims=True)))
        votes = self.log_class_weights
        return np.asarray(votes - np.logaddexp.reduce(votes, axis=1, keepdims=True))

    @property
    def probabilities(self) -> Floats:
        """(n, K): P(y=k given x)."""
        exact = -nonconformity(self.log_class_weights, "probability")
        return privacy.shares(exact) if self.private else exact

    def frame(self, epsilon: float = 0.05) -> pd.DataFrame:
        """One row per example: label, probability, confidence, credibility, typicality, and the prediction set at ε.

        `unreadable` gives the reason if a row could not be read: its label is then the most common one, its
        credibility and typicality 0 and its prediction set empty.
        """
        found: dict[str, Any] = {"label": self.labels.tolist(), "probability": self.probabilities.max(axis=1)}
        if self.conformal is not None:
            found |= {"confidence": self.conformal.confidence, "credibility": self.conformal.credibility}
            if self.conformal.typicality is not None:
                found["typicality"] = self.conformal.typicality
            found["set"] = [self.classes[held].tolist() for held in self.conformal.label_sets(epsilon)]
        found["unreadable"] = pd.Series([None] * len(self.codes) if self.reasons is None else self.reasons, dtype="str")
        return pd.DataFrame(found)


def predict(clf: DWACClassifier, X: Any, *, private: bool | None = None) -> Predictions:
    """The classifier's predictions for X; rows that cannot be read are flagged.

    private: round the numbers; the default for a model that was saved without its examples.
    """
    return predictions_of(clf, *clf.evidence(X), private=clf.private_ if private is None else private)


def predictions_of(
    clf: DWACClassifier,
    log_class_weights: Floats,
    reasons: Reasons | None = None,
    novelty: Floats | None = None,
    fold_votes: Floats | None = None,
    *,
    private: bool,
) -> Predictions:
    """The same from existing evidence: votes (n, K), novelty, and votes by fold."""
    calibrated = len(clf.calibration_y_) > 0
    trust = clf.conformal_of(log_class_weights, reasons, novelty, fold_votes, private=private) if calibrated else None
    return Predictions(log_class_weights, clf.classes_, trust, reasons, private)


def as_csv(frame: pd.DataFrame, delimiter: str = ",", *, harmless: bool = False) -> str:
    """A frame of predictions as CSV text; the labels of a prediction set are joined by |.

    harmless: make it safe for spreadsheets, which would take cells such as =1+1 for formulas.
    """
    joined = frame.map(lambda value: "|".join(map(str, value)) if isinstance(value, list) else value)
    if harmless:
        joined = joined.map(harmless_cell).rename(columns=harmless_cell)
    return str(joined.to_csv(index=False, sep=delimiter, lineterminator="\n"))


def harmless_cell(value: Any) -> Any:
    """A cell or column name that no spreadsheet takes for a formula: a leading apostrophe makes it text.

    >>> harmless_cell("=HYPERLINK(1)"), harmless_cell("-3.5"), harmless_cell(-3.5)
    ("'=HYPERLINK(1)", '-3.5', -3.5)
    """
    formula = isinstance(value, str) and value.startswith(_FORMULAS) and not _NUMBER.fullmatch(value)
    return f"'{value}" if formula else value


@dataclass(frozen=True)
class Evaluation:
    """How predictions compare with the truth; values that need calibration are None if the model has none."""

    n: int  # rows that could be read
    accuracy: float
    log_loss: float
    calibration_error: float
    epsilon: float
    coverage: float | None
    mean_set_size: float | None
    credibility: float | None  # mean
    typicality: float | None  # mean; None also for a softmax
    unreadable: int  # rows that could not be read; all other numbers leave them out
    unseen: int  # rows with labels unseen in training: wrong, in no prediction set, left out of the two errors
    by_class: pd.DataFrame  # one row per class: n, recall, precision, coverage, mean_set_size, credibility, typicality
    undercovered: tuple[Any, ...] = ()  # classes whose sets hold the true label less often than chance explains

    @property
    def advice(self) -> str | None:
        """Which classes fall short of the promise that holds over all of them, and what helps; None if none does."""
        if not self.undercovered:
            return None
        columns = (self.by_class[name] for name in ("label", "n", "coverage"))
        short = [
            f"{coverage:.1%} of the {n:,} rows of class {label}"
            for label, n, coverage in zip(*columns, strict=True)
            if label in self.undercovered
        ]
        more = f" and {len(short) - _NAMED} more classes" if len(short) > _NAMED else ""
        return (
            f"The sets hold the true label for {', '.join(short[:_NAMED])}{more}: less than chance explains, as "
            f"{1 - self.epsilon:g} is promised over all rows, not for each class; class_conditional=True (dwac train "
            "--class-conditional) calibrates each class separately"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, ready for JSON."""
        kept = {**vars(self), "by_class": self.by_class.to_dict("records"), "undercovered": list(self.undercovered)}
        content: dict[str, Any] = plain({**kept, "advice": self.advice})
        return content


def evaluate(predictions: Predictions, y: Any, epsilon: float = 0.05, *, strict: bool = True) -> Evaluation:
    """Compare with true labels y (n,). Rows that could not be read are only counted.

    strict: refuse labels that were not in training. Otherwise their rows count as wrong and not covered, as in the
    guarantee of prediction sets; if there are no other labels, y is probably the wrong column, and an error says so.
    """
    truth = encode_known(y, len(predictions.log_class_weights), predictions.classes, strict=strict)
    if not (truth >= 0).any():
        encode_known(y, len(truth), predictions.classes)  # raises an error that names the first
    readable = predictions.readable
    if predictions.reasons is not None and not readable.any():
        raise InputError(f"at least one row must be readable to evaluate; none is; row 0: {predictions.reasons[0]}")
    predictions, truth = predictions.part(readable), truth[readable]
    seen = truth >= 0
    trust = predictions.conformal
    sets = None if trust is None else trust.label_sets(epsilon)
    by_class = _by_class(predictions, truth, sets)
    typicality = None if trust is None else trust.typicality
    return Evaluation(
        n=len(truth),
        accuracy=_mean(predictions.codes == truth),
        log_loss=metrics.log_loss(truth[seen], predictions.log_probabilities[seen]),
        calibration_error=metrics.calibration_error(truth[seen], predictions.probabilities[seen]),
        epsilon=epsilon,
        coverage=None if sets is None else float(sets[seen, truth[seen]].sum() / len(truth)),
        mean_set_size=None if sets is None else metrics.set_sizes(sets).mean,
        credibility=None if trust is None else float(trust.credibility.mean()),
        typicality=None if typicality is None else float(typicality.mean()),
        unreadable=int((~readable).sum()),
        unseen=int((~seen).sum()),
        by_class=by_class,
        undercovered=_undercovered(by_class, epsilon, None if trust is None else trust.n_calibration),
    )


def _undercovered(by_class: pd.DataFrame, epsilon: float, n_calibration: Any) -> tuple[Any, ...]:
    """Labels of classes with less coverage than chance explains, where calibration is not by class already."""
    if not isinstance(n_calibration, int) or "coverage" not in by_class:
        return ()
    present = by_class[by_class["n"] > 0]
    covered = (present["n"] * present["coverage"]).round().astype(int)
    rows = zip(present["label"], present["n"], covered, strict=True)
    least = _CHANCE / max(len(present), 1)  # Bonferroni: all classes are looked at
    return tuple(label for label, n, hits in rows if metrics.undercoverage(epsilon, n_calibration, n, hits) < least)


def _by_class(predictions: Predictions, truth: NDArray[np.int64], sets: NDArray[np.bool_] | None) -> pd.DataFrame:
    rows = []
    for code, label in enumerate(predictions.classes.tolist()):
        own, named = truth == code, predictions.codes == code
        row = {"label": label, "n": int(own.sum()), "recall": _mean(named[own]), "precision": _mean(own[named])}
        if sets is not None and predictions.conformal is not None:
            row |= {"coverage": _mean(sets[own, code]), "mean_set_size": _mean(sets[own].sum(axis=1))}
            row["credibility"] = _mean(predictions.conformal.credibility[own])
            if predictions.conformal.typicality is not None:
                row["typicality"] = _mean(predictions.conformal.typicality[own])
        rows.append(row)
    return pd.DataFrame(rows)


def _mean(values: NDArray[Any]) -> float:
    """The mean; NaN without a warning if there are no values."""
    return float(values.mean()) if len(values) else float("nan")
