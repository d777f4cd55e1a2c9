"""Predictions of classes and of ordered labels, and how accurate and how well calibrated they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from dwac import metrics
from dwac._checks import percent
from dwac.conformal import ConformalPrediction
from dwac.errors import EPSILON
from dwac.explain import privacy
from dwac.tasks.base import Floats, Reasons, set_nan, set_none, zero_nan
from dwac.tasks.by_group import GroupComparison, label_measures, typicality_measures
from dwac.tasks.classes import Classes
from dwac.tasks.costs import CostEvaluation, class_costs, read_costs, threshold_table
from dwac.tasks.group_statistics import AreaMeasure, GroupMeasure, Measure
from dwac.tasks.predictions import GAP, LEVEL, TYPICALITY, Evaluated, Fact, Predictions, by_chance, mean, share

_CHANCE, _NAMED = 0.01, 3  # p-value below which a class falls short; how many are named


@dataclass(frozen=True)
class ClassPredictions(Predictions):
    """One pass over n examples: their votes, and everything that follows from these."""

    log_class_weights: Floats  # (n, K)
    target: Classes
    conformal: ConformalPrediction | None  # None for a model without calibration rows
    reasons: Reasons | None = None  # (n,): None, or why a row could not be read; its votes are then NaN
    private: bool = False  # whether everything except the votes is rounded as in `dwac.explain.privacy`
    unknown: Reasons | None = None  # (n,): the values of a row that were not in training, if it has any
    h: Tensor | None = None
    _by_row = ("log_class_weights", "reasons", "unknown")

    def __len__(self) -> int:
        return len(self.log_class_weights)

    @property
    def classes(self) -> NDArray[Any]:
        """(K,): the labels that can be predicted."""
        return self.target.names

    @property
    def typicality(self) -> Floats | None:
        """(n,): near 0, unlike anything known; None if it was not measured."""
        return None if self.conformal is None else self.conformal.typicality

    @property
    def codes(self) -> NDArray[np.int64]:
        """(n,): the positions of the predicted labels among the classes; -1 for rows that could not be read."""
        return np.where(self.readable, self.log_class_weights.argmax(axis=1), -1)

    @property
    def labels(self) -> NDArray[Any]:
        """(n,): the predicted labels; None for rows that could not be read."""
        return set_none(np.asarray(self.classes[self.codes]), self.readable)

    @property
    def log_probabilities(self) -> Floats:
        """(n, K): log P(y=k given x); if private, a rounded share of 0 counts as half a per cent."""
        if self.private:
            rounded = np.maximum(self.probabilities, 0.5 / privacy.STEPS)
            return np.asarray(np.log(rounded / rounded.sum(axis=1, keepdims=True)))
        votes = zero_nan(self.log_class_weights)
        return set_nan(votes - np.logaddexp.reduce(votes, axis=1, keepdims=True), self.readable)

    @property
    def probabilities(self) -> Floats:
        """(n, K): P(y=k given x); NaN for rows that could not be read."""
        exact = self.target.probabilities(zero_nan(self.log_class_weights))
        return set_nan(privacy.shares(exact) if self.private else exact, self.readable)

    def answer(self, epsilon: float = EPSILON, quantiles: Sequence[float] = ()) -> dict[str, Any]:
        """The values of the columns; labels as codes, sets as masks."""
        del quantiles
        probabilities, trust = self.probabilities, self.conformal
        values = {"label": self.codes, "probability": probabilities.max(axis=1), "probabilities": probabilities}
        if trust is None:
            return values
        return {
            **values,
            "confidence": trust.confidence,
            "credibility": trust.credibility,
            "typicality": trust.typicality,
            "label_set": trust.label_sets(epsilon),
            "p_values": trust.p_values,
        }

    def _truth(self, y: Any, *, strict: bool) -> NDArray[np.int64]:
        """(n,): the codes of true labels y; -1 for a label that was not in training.

        strict: refuse labels that were not in training. Otherwise their rows count as wrong and not covered, as in the
        guarantee of prediction sets; if there are no other labels, y is probably the wrong column: an error says so.
        """
        truth, _ = self.target.read(y, len(self), strict=strict)
        if not (truth >= 0).any():
            self.target.read(y, len(self), strict=True)  # raises an error that names the first
        return truth

    def _compare(self, truth: NDArray[np.int64], epsilon: float, *, unreadable: int) -> Evaluation:
        seen, names = truth >= 0, self.classes
        trust, probabilities, typicality = self.conformal, self.probabilities, self.typicality
        sets = None if trust is None else trust.label_sets(epsilon)
        by_class = _by_class(self, truth, sets)
        auc = metrics.roc_auc(truth[:, None] == np.arange(len(names)), probabilities)
        measures: dict[str, Any] = {
            "n": len(truth),
            "accuracy": mean(self.codes == truth),
            "log_loss": metrics.log_loss(truth[seen], self.log_probabilities[seen]),
            "calibration_error": metrics.calibration_error(truth[seen], probabilities[seen]),
            "epsilon": epsilon,
            "coverage": None if sets is None else float(sets[seen, truth[seen]].sum() / len(truth)),
            "mean_set_size": None if sets is None else metrics.set_sizes(sets).mean,
            "credibility": None if trust is None else float(trust.credibility.mean()),
            "typicality": None if typicality is None else float(typicality.mean()),
            "unreadable": unreadable,
            "unseen": int((~seen).sum()),
            "by_class": by_class,
            "coverage_range": _range(trust, epsilon, len(truth)),
            "undercovered": undercovered_classes(by_class, epsilon, None if trust is None else trust.n_calibration),
            "roc_auc": mean(auc[~np.isnan(auc)]),
            "thresholds": threshold_table(truth == 1, probabilities[:, 1]) if len(names) == 2 else None,
        }
        if not self.target.ordered:
            return Evaluation(**measures)
        return OrderedEvaluation(
            **measures,
            mean_distance=mean(np.abs(self.codes - truth)[seen]),
            ranked_probability_score=metrics.ranked_probability_score(truth[seen], probabilities[seen]),
        )

    def measures(self, truth: NDArray[np.int64], epsilon: float) -> list[Measure]:
        """Accuracy, ROC AUC, overconfidence, distance in an order, each label (the second of two), sets, typicality."""
        p, right, names = self.probabilities, self.codes == truth, self.classes.tolist()
        measures: list[Measure] = [
            GroupMeasure("accuracy", right),
            AreaMeasure("ROC AUC", truth[:, None] == np.arange(len(names)), p),
            GroupMeasure("overconfidence", p.max(axis=1) - right, is_rate=False, bounds=(-1.0, 1.0)),
        ]
        if self.target.ordered:
            measures.append(
                GroupMeasure("distance", np.abs(self.codes - truth), truth >= 0, is_rate=False, bounds=(0.0, np.inf))
            )
        for code in range(int(len(names) == 2), len(names)):
            measures += label_measures(names[code], truth == code, self.codes == code, p[:, code])
        if self.conformal is not None:
            sets = self.conformal.label_sets(epsilon)
            covered = sets[np.arange(len(truth)), truth] & (truth >= 0)
            measures += [
                GroupMeasure("coverage", covered),
                GroupMeasure("set size", sets.sum(axis=1), is_rate=False, bounds=(0.0, float(len(names)))),
            ]
        return measures + typicality_measures(self.typicality)

    def _cost(self, truth: NDArray[np.int64], costs: Any) -> tuple[CostEvaluation | None, list[GroupMeasure]]:
        if costs is None:
            return None, []
        matrix = read_costs(costs, self.classes)
        spent, decided = class_costs(matrix, self.classes, truth, self.codes, self.probabilities)
        names = self.classes.tolist()
        chosen = [GroupMeasure(f"decided {names[code]}", decided == code)
                  for code in range(int(len(names) == 2), len(names))]  # fmt: skip
        paid = GroupMeasure(
            "cost", matrix[truth, decided], truth >= 0, is_rate=False, bounds=(float(matrix.min()), float(matrix.max()))
        )
        return spent, [*chosen, paid]


@dataclass(frozen=True, repr=False)
class Evaluation(Evaluated):
    """How predicted classes compare with the truth; values that need calibration are None if the model has none."""

    n: int
    accuracy: float
    log_loss: float
    calibration_error: float
    epsilon: float
    coverage: float | None
    mean_set_size: float | None
    credibility: float | None  # mean
    typicality: float | None  # mean
    unreadable: int
    unseen: int  # rows with labels unseen in training: wrong, in no prediction set, left out of the two errors
    by_class: pd.DataFrame  # one row per class: n, recall, precision, coverage, mean_set_size, credibility, typicality
    coverage_range: tuple[float, float] | None = None  # where chance puts it 99 times in 100; None if by class
    undercovered: tuple[Any, ...] = ()  # classes whose sets contain the true label less often than chance explains
    roc_auc: float | None = None  # of each class against the others, their mean; of two classes, that of the second
    thresholds: pd.DataFrame | None = None  # of two classes: what each threshold for the second gives
    groups: GroupComparison | None = None
    costs: CostEvaluation | None = None

    @property
    def advice(self) -> str | None:
        """A note if coverage is lower than chance explains, over all rows or in some classes; None otherwise."""
        if self.coverage is not None and self.coverage_range is not None and self.coverage < self.coverage_range[0]:
            return (
                f"The sets hold the true label for {percent(self.coverage)} of the rows: less than chance explains, so "
                "these rows differ from those that the model was calibrated with; calibrate it with rows like these: "
                "clf.recalibrate(X, y)"
            )
        if not self.undercovered:
            return None
        columns = (self.by_class[name] for name in ("label", "n", "coverage"))
        short = [
            f"{percent(coverage)} of the {n:,} rows of class {label}"
            for label, n, coverage in zip(*columns, strict=True)
            if label in self.undercovered
        ]
        n_others = len(short) - _NAMED
        others = f" and {n_others} more class{'es' * (n_others > 1)}" if n_others > 0 else ""
        return (
            f"The sets hold the true label for {', '.join(short[:_NAMED])}{others}: less than chance explains, as "
            f"{1 - self.epsilon:g} is promised over all rows, not for each class; class_conditional=True (dwac train "
            "--class-conditional) calibrates each class separately"
        )

    @property
    def parts(self) -> pd.DataFrame:
        """The numbers by class."""
        return self.by_class

    @property
    def facts(self) -> list[Fact]:
        """Each number with its meaning, for people."""
        law = by_chance(self.coverage_range)
        promise = f"share of prediction sets with the true label; ε={self.epsilon:g} asks for {1 - self.epsilon:g}{law}"
        facts = [
            Fact("accuracy", share(self.accuracy), "share of correct predictions"),
            *self._distances,
            Fact("log loss", share(self.log_loss), "mean of -log P(true label); 0 is perfect"),
            Fact(
                "ROC AUC",
                share(self.roc_auc),
                "how often a row of a class gets a higher probability of it than a row of another class",
            ),
            Fact("calibration error", share(self.calibration_error), GAP),
            Fact("coverage", share(self.coverage), promise),
            Fact("mean set size", share(self.mean_set_size, 2), "labels per prediction set; 1 is decisive"),
            Fact("credibility", share(self.credibility), "mean; how well the best label fits"),
            Fact("typicality", share(self.typicality), TYPICALITY),
        ]
        if self.unseen:
            unknown = "rows whose label did not occur in training: always errors"
            facts.append(Fact("unknown labels", f"{self.unseen:,}", unknown))
        return facts

    @property
    def _distances(self) -> list[Fact]:
        """How far off predictions are: nothing here, because classes have no distance."""
        return []


@dataclass(frozen=True, kw_only=True, repr=False)
class OrderedEvaluation(Evaluation):
    """The same for ordered labels, with how far off predictions are. Labels unseen in training are left out of that."""

    mean_distance: float  # places in the order between the predicted and the true label
    ranked_probability_score: float

    @property
    def _distances(self) -> list[Fact]:
        score = "squared error of P(at most this label), mean over labels; 0 is perfect"
        return [
            Fact("mean distance", share(self.mean_distance), "places in the order between predicted and true label"),
            Fact("ranked probability score", share(self.ranked_probability_score), score),
        ]


def _range(trust: ConformalPrediction | None, epsilon: float, n: int) -> tuple[float, float] | None:
    """The range of coverage of n rows by chance; None without calibration, and if calibration is by class."""
    known = None if trust is None else trust.n_calibration
    return metrics.coverage_interval(epsilon, known, n, LEVEL) if isinstance(known, int) else None


def undercovered_classes(by_class: pd.DataFrame, epsilon: float, n_calibration: Any) -> tuple[Any, ...]:
    """Labels of classes with less coverage than chance explains, unless calibration is by class already."""
    if not isinstance(n_calibration, int) or "coverage" not in by_class:
        return ()
    present = by_class[by_class["n"] > 0]
    covered = (present["n"] * present["coverage"]).round().astype(int)
    rows = zip(present["label"], present["n"], covered, strict=True)
    least = _CHANCE / max(len(present), 1)  # Bonferroni: all classes are tested
    return tuple(label for label, n, hits in rows if metrics.undercoverage(epsilon, n_calibration, n, hits) < least)


def _by_class(predictions: ClassPredictions, truth: NDArray[np.int64], sets: NDArray[np.bool_] | None) -> pd.DataFrame:
    rows = []
    for code, label in enumerate(predictions.classes.tolist()):
        own, predicted = truth == code, predictions.codes == code
        row = {"label": label, "n": int(own.sum()), "recall": mean(predicted[own]), "precision": mean(own[predicted])}
        if sets is not None and predictions.conformal is not None:
            row |= {"coverage": mean(sets[own, code]), "mean_set_size": mean(sets[own].sum(axis=1))}
            row["credibility"] = mean(predictions.conformal.credibility[own])
            if predictions.conformal.typicality is not None:
                row["typicality"] = mean(predictions.conformal.typicality[own])
        rows.append(row)
    return pd.DataFrame(rows)
