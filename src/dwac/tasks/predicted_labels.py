"""Predictions of several labels at once: decisions, prediction sets, and how they compare with the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from dwac import metrics
from dwac.conformal import LabelPrediction, MissControl
from dwac.errors import EPSILON
from dwac.explain import privacy
from dwac.tasks.base import Bools, Floats, Reasons, zero_nan
from dwac.tasks.by_group import GroupComparison, label_measures, typicality_measures
from dwac.tasks.costs import CostEvaluation, label_costs
from dwac.tasks.group_statistics import AreaMeasure, GroupMeasure, Measure
from dwac.tasks.labels import Labels
from dwac.tasks.predictions import GAP, TYPICALITY, Evaluated, Fact, Predictions, mean, share


@dataclass(frozen=True, eq=False)
class LabelPredictions(Predictions):
    """One pass over n examples: the probability of each of L labels, and everything that follows."""

    probabilities: Floats  # (n, L)
    target: Labels
    conformal: LabelPrediction | None  # None for a model without calibration rows
    misses: MissControl | None  # the same
    reasons: Reasons | None = None
    private: bool = False
    unknown: Reasons | None = None  # (n,): the values of a row that were not in training, if it has any
    h: Tensor | None = None
    within: NDArray[Any] | None = None  # (n,): the groups of the rows, for a guarantee within each
    _by_row = ("probabilities", "reasons", "unknown", "within")

    def __len__(self) -> int:
        return len(self.probabilities)

    @property
    def names(self) -> NDArray[Any]:
        """(L,): the labels."""
        return self.target.names

    @property
    def typicality(self) -> Floats | None:
        """(n,): near 0, unlike anything known; None if it was not measured."""
        return None if self.conformal is None else self.conformal.typicality

    @property
    def has(self) -> Bools:
        """(n, L): the predicted labels: those with at least half of the votes; none for an unreadable row."""
        return np.asarray(self.probabilities >= 0.5)

    def decisions(self, epsilon: float) -> NDArray[np.int8] | None:
        """(n, L): 1 has the label, 0 does not, -1 undecided, at error rate ε; None without calibration."""
        return None if self.conformal is None else self.conformal.decisions(epsilon)

    def sets(self, epsilon: float) -> Bools | None:
        """(n, L): sets that miss at most a share ε of a row's labels on average; empty for unreadable rows."""
        if self.misses is None:
            return None
        p = zero_nan(self.probabilities)
        up = np.minimum(p + 0.5 / privacy.STEPS, 1) if self.private else p  # rounding only adds labels
        return np.asarray(self.misses.sets(up, epsilon, self.within) & self.readable[:, None])

    def answer(self, epsilon: float = EPSILON, quantiles: Sequence[float] = ()) -> dict[str, Any]:
        """The values of the columns; labels and sets as masks, decisions as codes."""
        del quantiles
        values: dict[str, Any] = {"labels": self.has, "probabilities": self.probabilities}
        if self.conformal is None:
            return values
        return {
            **values,
            "typicality": self.typicality,
            "label_set": self.sets(epsilon),
            "decisions": self.decisions(epsilon),
            "p_yes": self.conformal.p_yes,
            "p_no": self.conformal.p_no,
        }

    def _truth(self, y: Any, *, strict: bool) -> Bools:
        """(n, L): the true labels; those that were not in training are always refused."""
        return np.asarray(super()._truth(y, strict=strict) > 0)

    def _compare(self, truth: Bools, epsilon: float, *, unreadable: int) -> LabelEvaluation:
        decided, sets, has, typicality = self.decisions(epsilon), self.sets(epsilon), self.has, self.typicality
        by_label = _by_label(self, truth, decided)
        shares = None if decided is None else metrics.decision_shares(truth, decided)
        right, wrong = int((has & truth).sum()), int((has != truth).sum())
        auc = metrics.roc_auc(truth, self.probabilities)
        return LabelEvaluation(
            n=len(truth),
            micro_f1=_f1(right, wrong),
            macro_f1=mean(by_label["f1"].dropna().to_numpy()),
            hamming_loss=float((has != truth).mean()),
            subset_accuracy=float((has == truth).all(axis=1).mean()),
            calibration_error=float(by_label["calibration_error"].mean()),
            epsilon=epsilon,
            wrong_of_having=None if shares is None else shares.wrong_of_having,
            wrong_of_lacking=None if shares is None else shares.wrong_of_lacking,
            undecided=None if shares is None else shares.undecided,
            missed_share=None if sets is None else metrics.missed_share(truth, sets),
            mean_set_size=None if sets is None else float(sets.sum(axis=1).mean()),
            typicality=None if typicality is None else float(typicality.mean()),
            unreadable=unreadable,
            without_label=int((~truth.any(axis=1)).sum()),
            by_label=by_label,
            roc_auc=mean(auc[~np.isnan(auc)]),
        )

    def measures(self, truth: Bools, epsilon: float) -> list[Measure]:
        """How many labels are right, ROC AUC, each label, the share that sets miss, their size, and typicality."""
        has, sets = self.has, self.sets(epsilon)
        measures: list[Measure] = [
            GroupMeasure("every label right", (has == truth).all(axis=1)),
            GroupMeasure("wrong labels", (has != truth).mean(axis=1), is_rate=False),
            AreaMeasure("ROC AUC", truth, self.probabilities),
        ]
        for place, name in enumerate(self.names.tolist()):
            measures += label_measures(name, truth[:, place], has[:, place], self.probabilities[:, place])
        if sets is not None:
            missed = (truth & ~sets).sum(axis=1) / np.maximum(truth.sum(axis=1), 1)
            measures += [
                GroupMeasure("missed share", missed, is_rate=False),
                GroupMeasure("set size", sets.sum(axis=1), is_rate=False, bounds=(0.0, float(len(self.names)))),
            ]
        return measures + typicality_measures(self.typicality)

    def _cost(self, truth: Bools, costs: Any) -> tuple[CostEvaluation | None, list[GroupMeasure]]:
        if costs is None:
            return None, []
        spent, decided = label_costs(costs, self.names, truth, self.has, self.probabilities)
        return spent, [
            GroupMeasure(f"decided {name}", decided[:, place]) for place, name in enumerate(self.names.tolist())
        ]


@dataclass(frozen=True, repr=False)
class LabelEvaluation(Evaluated):
    """How predicted labels compare with the truth; values that need calibration are None if the model has none."""

    n: int
    micro_f1: float  # of all decisions on all labels together
    macro_f1: float  # the mean over labels that some row has or is predicted to have
    hamming_loss: float
    subset_accuracy: float
    calibration_error: float  # the mean over labels
    epsilon: float
    wrong_of_having: float | None  # the share of rows with a label that are predicted not to have it
    wrong_of_lacking: float | None
    undecided: float | None
    missed_share: float | None  # the share of a row's labels that its set misses
    mean_set_size: float | None
    typicality: float | None  # mean
    unreadable: int
    without_label: int  # rows that have no label at all
    by_label: pd.DataFrame  # one row per label: n, precision, recall, f1, calibration_error and shares of decisions
    roc_auc: float | None = None  # of each label, their mean
    groups: GroupComparison | None = None
    costs: CostEvaluation | None = None

    @property
    def parts(self) -> pd.DataFrame:
        """The numbers by label."""
        return self.by_label

    @property
    def facts(self) -> list[Fact]:
        """Each number with its meaning, for people."""
        limit = f"ε={self.epsilon:g} allows {self.epsilon:g} for each label"
        return [
            Fact("micro F1", share(self.micro_f1), "precision and recall of all labels together; 1 is perfect"),
            Fact("macro F1", share(self.macro_f1), "the same for each label alone, then the mean"),
            Fact("Hamming loss", share(self.hamming_loss), "share of wrong entries in the table of rows and labels"),
            Fact("subset accuracy", share(self.subset_accuracy), "share of rows with every label right"),
            Fact(
                "ROC AUC",
                share(self.roc_auc),
                "how often a row with a label gets a higher probability of it than a row without",
            ),
            Fact("calibration error", share(self.calibration_error), GAP),
            Fact("wrongly told no", share(self.wrong_of_having), f"of those who have a label; {limit}"),
            Fact("wrongly told yes", share(self.wrong_of_lacking), f"of those who lack a label; {limit}"),
            Fact("undecided", share(self.undecided), "share of labels on which there is no decision at this ε"),
            Fact("missed share", share(self.missed_share), f"of a row's labels, by its set; at most {self.epsilon:g} "
                 "on average"),
            Fact("mean set size", share(self.mean_set_size, 2), f"labels per set, of {len(self.by_label):,}"),
            Fact("typicality", share(self.typicality), TYPICALITY),
            *([Fact("no label", f"{self.without_label:,}", "rows that have no label at all")]
              if self.without_label else []),
        ]  # fmt: skip


def _by_label(predictions: LabelPredictions, truth: Bools, decided: NDArray[np.int8] | None) -> pd.DataFrame:
    rows = []
    for place, label in enumerate(predictions.names.tolist()):
        own, predicted, p = truth[:, place], predictions.has[:, place], predictions.probabilities[:, place]
        row = {"label": label, "n": int(own.sum()), "precision": mean(own[predicted]), "recall": mean(predicted[own])}
        row["f1"] = _f1(int((own & predicted).sum()), int((own != predicted).sum()))
        row["calibration_error"] = metrics.calibration_error(own.astype(np.int64), np.stack([1 - p, p], axis=1))
        if decided is not None:
            decisions = decided[:, place]
            row["wrongly_told_no"], row["wrongly_told_yes"] = mean(decisions[own] == 0), mean(decisions[~own] == 1)
            row["undecided"] = mean(decisions == -1)
        rows.append(row)
    return pd.DataFrame(rows)


def _f1(right: int, wrong: int) -> float:
    """2 · right / (2 · right + wrong), where right counts true positives; NaN if both are 0."""
    return 2 * right / (2 * right + wrong) if right + wrong else float("nan")
