"""Prediction sets of a fitted model: calibrated with held-out rows, with the predictions and explanations beside them.

`ClassSets` for one label per row, `LabelSets` for several; `dwac.tasks.intervals.Intervals` is the same for numbers.
Everything is computed from the references as they are now.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.conformal import (
    Calibration,
    ConformalPrediction,
    CrossCalibration,
    GroupCalibration,
    LabelCalibration,
    LabelPrediction,
    MissControl,
    nonconformity,
    true_label_scores,
)
from dwac.conformal.weights import ExampleCalibration, ExampleWeights
from dwac.errors import InputError
from dwac.explain import Explanation, LabelExplanations, explain, explain_labels, privacy
from dwac.explain.classes import unreadable
from dwac.explain.labels import has_it, has_it_not, unreadable_labels
from dwac.reference import ReferenceSet
from dwac.tasks.base import LABELS, NUMBERS, Bools, Evidence, Fitted, Floats, readable, zero_nan
from dwac.tasks.intervals import Intervals
from dwac.tasks.local import folds_of, local_rows, local_scores, points_of
from dwac.tasks.predicted_classes import ClassPredictions
from dwac.tasks.predicted_labels import LabelPredictions

P = TypeVar("P", ConformalPrediction, LabelPrediction)
# Scores closer than this may be equal: rounding differs between devices.
_ROUNDING = {"weights": 1e-5, "probability": 1e-6, "tails": 1e-6}


def sets_of(fitted: Fitted, settings: Any) -> ClassSets | LabelSets | Intervals:
    """The sets, or intervals, of a fitted model; settings: the estimator, or its settings."""
    if fitted.target.kind == NUMBERS:
        return Intervals(fitted, settings.average)
    if fitted.target.kind == LABELS:
        return LabelSets(fitted)
    score = settings.nonconformity
    if score == "auto":
        # Differs from the paper, whose sets use weights: which labels fit is one question, whether anything similar to
        # the row is known is another (typicality).
        score = fitted.target.nonconformity
    return ClassSets(fitted, score, settings.class_conditional)


@dataclass(frozen=True, eq=False)
class VotedSets(ABC):
    """Sets of labels, from votes for outcomes that have codes."""

    fitted: Fitted

    @abstractmethod
    def predictions(self, evidence: Evidence, *, private: bool) -> Any:
        """Predictions from what a model observed of rows; no typicality without novelty."""

    def predict(self, observed: Any, *, private: bool) -> Any:
        """The predictions for observed rows."""
        return replace(self.predictions(observed.evidence(), private=private), unknown=observed.notes, h=observed.h)

    def complete(self, prediction: P, evidence: Evidence, *, private: bool) -> P:
        """A conformal prediction with typicality, if novelty is known, and without the rows that could not be read."""
        if evidence.novelty is not None:
            typicality = self.fitted.typicality(evidence.novelty, private=private)
            prediction = replace(prediction, typicality=typicality)
        return prediction if evidence.reasons is None else prediction.without(~readable(evidence.reasons))

    def fold_votes(self, h: Any, references: ReferenceSet | None, fold_votes: Floats | None) -> Any:
        """(n, F, K): the votes by fold, if they are needed; those given, or else computed."""
        if fold_votes is not None or not self.fitted.calibrated:
            return fold_votes
        return self.fitted.fold_votes(h, references=references)


@dataclass(frozen=True, eq=False)
class ClassSets(VotedSets):
    """Sets of classes or ordered labels, one of which is true."""

    score: str  # the nonconformity
    class_conditional: bool  # whether each class is calibrated separately

    @property
    def calibration(self) -> Calibration:
        """The scores of the true labels of the calibration rows."""
        key = "calibration", self.score, self.class_conditional
        every = np.arange(len(self.fitted.calibration.y))
        calibration: Calibration = self.fitted.derive(key, lambda: self._calibrate_with(self._scores(), every))
        return calibration

    def calibration_of(
        self, within: NDArray[Any] | None, h: Tensor | None = None, *, local: bool = False
    ) -> Calibration:
        """The calibration of rows of these groups (n,), each by rows of its own groups; by all rows if None.

        h: their embeddings, for a model that is calibrated for rows from elsewhere. local: rows near them count more.
        """
        if local or self.fitted.shift is not None:
            return self._calibration_at(h, local=local)
        return self.calibration if within is None else self.by_group.of(within)

    def _calibration_at(self, h: Tensor | None, *, local: bool) -> Calibration:
        if h is None:
            raise InputError(
                "a model that is calibrated for rows from elsewhere needs the embeddings of rows; give the rows "
                "themselves: clf.conformal(X)"
            )
        key = "local calibration" if local else "calibration by rows", self.score, self.class_conditional
        at: Callable[[Floats], Calibration] = self.fitted.derive(key, lambda: self._calibrate_at(local=local))
        return at(points_of(self.fitted, h))

    @property
    def by_group(self) -> GroupCalibration:
        """The calibration within each group."""
        key = "calibration by group", self.score, self.class_conditional
        groups: GroupCalibration = self.fitted.derive(key, self._calibrate_by_group)
        return groups

    def _calibrate_by_group(self) -> GroupCalibration:
        scores, y = self._scores(), self.fitted.calibration.y

        def calibrate(rows: NDArray[np.int64]) -> Calibration | None:
            comparable = not self.class_conditional or (y[rows] >= 0).any()
            return self._calibrate_with(scores, rows) if comparable else None

        return GroupCalibration(self.fitted.groups(), calibrate)

    def _calibrate_at(self, *, local: bool) -> Callable[[Floats], Calibration]:
        """A function from where rows are, (n, F, d), to their calibration."""
        fitted, shift, scores = self.fitted, self.fitted.shift, self._scores()
        rows = local_rows(fitted) if local else np.arange(len(fitted.calibration.y))
        own, kept, labels = self._own_scores(scores, rows)
        whole, folds = self._calibrate_with(scores, rows), folds_of(fitted.calibration, fitted.folds)[rows[kept]]
        seen = local_scores(fitted, own, rows[kept], labels) if local else None
        known = None if shift is None else shift.calibration_weights(fitted)[rows[kept]]

        def at(points: Floats) -> Calibration:
            weights = None if known is None else ExampleWeights(known, shift.weights(points))
            return ExampleCalibration(
                whole, lambda row: own if seen is None else seen.of(points[row]), folds, labels, weights
            )

        return at

    def _scores(self) -> Floats:
        """(n_cal, K): the scores of all labels of the calibration rows."""
        rows = self.fitted.calibration
        rows.require()
        return nonconformity(self.fitted.judge(self.fitted.references, rows.h), self.score)

    def _calibrate_with(self, scores: Floats, part: NDArray[np.int64]) -> Calibration:
        """The calibration with some rows."""
        rows, folds = self.fitted.calibration, self.fitted.folds
        own, kept, labels = self._own_scores(scores, part)
        options: dict[str, Any] = {"tolerance": _ROUNDING[self.score], "table": scores[part]}
        if folds is None:
            return Calibration(own, labels, **options)
        return CrossCalibration(own, folds.numbers(rows.ids)[part][kept], labels, **options)

    def _own_scores(self, scores: Floats, part: NDArray[np.int64]) -> tuple[Floats, Bools, NDArray[np.int64] | None]:
        """The scores of the true labels of some rows, which rows these are, and the labels if each is calibrated alone.

        A label that was not in training scores worse than any other; by class, it is compared with nothing.
        """
        y = self.fitted.calibration.y[part]
        known = y >= 0
        own = np.full(len(y), np.inf)
        own[known] = true_label_scores(scores[part][known], y[known])
        by_class = self.class_conditional and known.any()
        kept = known if by_class else np.full(len(known), True)
        return own[kept], kept, y[kept] if by_class else None

    def conformal(self, evidence: Evidence, *, private: bool = False) -> ConformalPrediction:
        """p-values, sets and typicality from what a model observed of rows; no typicality without novelty."""
        target, votes, by_fold = self.fitted.target, zero_nan(evidence.votes), evidence.fold_votes
        calibration = self.calibration_of(evidence.within, evidence.h, local=evidence.local)
        by_fold = None if by_fold is None else zero_nan(by_fold)
        options = {"ordered": target.ordered}
        if private:
            args = votes, self.score, target.names, by_fold
            prediction: ConformalPrediction = privacy.conformal(calibration, *args, **options)
        else:
            by_fold = None if by_fold is None else nonconformity(by_fold, self.score)
            scores = nonconformity(votes, self.score)
            prediction = calibration.predict(scores, classes=target.names, fold_scores=by_fold, **options)
        return self.complete(prediction, evidence, private=private)

    def label_sets(self, observed: Any, epsilon: float) -> Bools:
        """(n, K): prediction sets of observed rows; empty for a row that cannot be read."""
        evidence = observed.evidence(novelty=False)
        return self.conformal(evidence).label_sets(epsilon)

    def expected(self, epsilon: float) -> Any:
        """What to expect of the sets at ε."""
        calibration: Any = self.calibration if self.fitted.within is None else self.by_group
        if self.fitted.shift is not None:
            calibration = self.calibration_of(None, self.fitted.calibration.h[:0])
        expected = calibration.expected_sets(epsilon, ordered=self.fitted.target.ordered)
        n_groups = self.fitted.n_groups
        return expected if n_groups is None else expected.of_groups(n_groups)

    def predictions(self, evidence: Evidence, *, private: bool) -> ClassPredictions:
        """The same for this kind of target."""
        conformal = self.conformal(evidence, private=private) if self.fitted.calibrated else None
        return ClassPredictions(evidence.votes, self.fitted.target, conformal, evidence.reasons, private)

    def explain(
        self,
        h: Any,
        references: ReferenceSet | None,
        descriptions: Sequence[str | None] | None,
        *,
        private: bool,
        fold_votes: Floats | None = None,
        within: NDArray[Any] | None = None,
        **options: Any,
    ) -> list[Explanation]:
        """The explanations of rows with embeddings h (n, d). references: the voters; by default those of the model."""
        fitted, voters = self.fitted, self.fitted.references if references is None else references
        return explain(
            voters,
            h,
            calibration=self.calibration_of(within, h) if fitted.calibrated else None,
            nonconformity_kind=self.score,
            fold_votes=self.fold_votes(h, references, fold_votes),
            classes=fitted.target.plain_names,
            ordered=fitted.target.ordered,
            descriptions=None if private else fitted.descriptions if references is None else descriptions,
            private=private,
            **options,
        )

    def contrast(self, h: Tensor, label: int, other: int, which: int = 0) -> Floats:
        """(n,): log-odds of one label against another, by code, of rows with embeddings h (n, d)."""
        del which
        votes = self.fitted.votes(h)
        return np.asarray(votes[:, label] - votes[:, other])

    def given(self, h: Tensor, which: int = 0) -> Any:
        """The label that the model gives the only row of h (1, d)."""
        del which
        return self.fitted.target.plain_names[int(self.fitted.votes(h).argmax())]

    def label_of(self, place: int, which: int = 0) -> Any:
        """The label of a voter, by its place."""
        del which
        return self.fitted.target.plain_names[int(self.fitted.references.labels[place])]

    def gives(self, h: Tensor, outcome: int, which: int = 0) -> Bools:
        """(n,): whether the label with this code has the most votes."""
        del which
        return np.asarray(self.fitted.votes(h).argmax(axis=1) == outcome)

    def unreadable(self, why: str, *, private: bool) -> Explanation:
        """The explanation of a row that could not be read."""
        return unreadable(why, self.fitted.references, private=private)


class LabelCalibrations(NamedTuple):
    """Calibration by held-out rows: of the decision on each label, and of sets that miss few labels."""

    labels: LabelCalibration
    misses: MissControl


@dataclass(frozen=True, eq=False)
class LabelSets(VotedSets):
    """Decisions on several labels, and sets that miss few of them."""

    @property
    def calibration(self) -> LabelCalibrations:
        """The calibration with rows of known labels; folds of a cross-fitted model judge the rows they left out."""
        return self.calibration_of(None)

    def calibration_of(self, within: Any) -> LabelCalibrations:
        """The same for rows of these groups, each by rows of its own groups; by all rows if None."""
        by_group = within is not None
        calibrations: LabelCalibrations = self.fitted.derive((LABELS, by_group), lambda: self._calibrate(by_group))
        return calibrations

    def _calibrate(self, by_group: bool) -> LabelCalibrations:
        rows, folds = self.fitted.calibration, self.fitted.folds
        rows.require()
        p = self.fitted.target.probabilities(self.fitted.judge(self.fitted.references, rows.h))
        numbers = None if folds is None else folds_of(rows, folds)
        within = self.fitted.groups() if by_group else None
        return LabelCalibrations(
            LabelCalibration(p, rows.exact, folds=numbers, within=within),
            MissControl(p, rows.exact, certain=folds is None, within=within),
        )

    def conformal(self, evidence: Evidence, *, private: bool = False) -> LabelPrediction:
        """Decisions and typicality from what a model observed of rows; no typicality without novelty."""
        target = self.fitted.target
        p, by_fold = target.probabilities(zero_nan(evidence.votes)), evidence.fold_votes
        by_fold = None if by_fold is None else target.probabilities(zero_nan(by_fold))
        predict = privacy.labels if private else LabelCalibration.predict
        within = evidence.within
        prediction = predict(self.calibration_of(within).labels, p, by_fold, target.names, within)
        return self.complete(prediction, evidence, private=private)

    def label_sets(self, observed: Any, epsilon: float) -> Bools:
        """(n, L): prediction sets of observed rows; empty for a row that cannot be read."""
        p = self.fitted.target.probabilities(zero_nan(observed.votes))
        within = observed.within
        return np.asarray(self.calibration_of(within).misses.sets(p, epsilon, within) & observed.readable[:, None])

    def expected(self, epsilon: float) -> Any:
        """What to expect of the sets at ε."""
        return self.calibration_of(self.fitted.within).misses.expected(epsilon)

    def predictions(self, evidence: Evidence, *, private: bool) -> LabelPredictions:
        """The same for this kind of target."""
        target, conformal, misses = self.fitted.target, None, None
        p = target.predict_proba(evidence.votes)
        p = np.round(p * privacy.STEPS) / privacy.STEPS if private else p  # as explanations show them
        if self.fitted.calibrated:
            conformal = self.conformal(evidence, private=private)
            misses = self.calibration_of(evidence.within).misses
        return LabelPredictions(p, target, conformal, misses, evidence.reasons, private, within=evidence.within)

    def explain(
        self,
        h: Any,
        references: ReferenceSet | None,
        descriptions: Sequence[str | None] | None,
        *,
        private: bool,
        epsilon: float,
        fold_votes: Floats | None = None,
        label: Any = None,
        within: NDArray[Any] | None = None,
        **options: Any,
    ) -> list[Any]:
        """The explanations of rows with embeddings h (n, d), as in `ClassSets`; label: of this one alone."""
        del descriptions  # of one label's groups, they are made here
        fitted, voters = self.fitted, self.fitted.references if references is None else references
        fold_votes = self.fold_votes(h, references, fold_votes)
        h = torch.as_tensor(h, device=voters.embeddings.device)
        votes = fitted.votes(h) if references is None else references.log_class_weights(h).cpu().numpy()
        p, sets, conformal = fitted.target.probabilities(votes), None, None
        if fitted.calibrated:
            # Rounding may only add labels to a set.
            shown = np.minimum((np.round(p * privacy.STEPS) + 0.5) / privacy.STEPS, 1) if private else p
            misses = self.calibration_of(within).misses
            sets = np.asarray(shown >= misses.thresholds(epsilon, within, len(p)))
            conformal = self.conformal(Evidence(votes, fold_votes=fold_votes, within=within), private=private)
        explanations = explain_labels(
            voters,
            h,
            fitted.target.table,
            names=fitted.target.plain_names,
            probabilities=p,
            sets=sets,
            prediction=conformal,
            descriptions=self._describe_label if references is None else None,
            private=private,
            epsilon=epsilon,
            **options,
        )
        return explanations if label is None else [each[label] for each in explanations]

    def contrast(self, h: Tensor, label: int, other: int, which: int = 0) -> Floats:
        """(n,): log-odds of having (label 0) or not having (1) the label at position `which`."""
        del other
        votes, has = self.fitted.votes(h), self.fitted.target.table[:, which] > 0
        yes, no = (np.logaddexp.reduce(votes[:, codes], axis=1) for codes in (has, ~has))
        return np.asarray(yes - no if label == 0 else no - yes)

    def given(self, h: Tensor, which: int = 0) -> str:
        """Whether the model gives the only row of h (1, d) a label, in words as in explanations."""
        name = self.fitted.target.plain_names[which]
        return has_it(name) if self.gives(h, 0, which)[0] else has_it_not(name)

    def label_of(self, place: int, which: int = 0) -> str:
        """Whether a voter, by its place, has a label, in words as in explanations."""
        target, code = self.fitted.target, int(self.fitted.references.labels[place])
        name = target.plain_names[which]
        return has_it(name) if target.table[code, which] else has_it_not(name)

    def gives(self, h: Tensor, outcome: int, which: int = 0) -> Bools:
        """(n,): whether rows get this label (outcome 0), or do not (1)."""
        has = self.fitted.target.probabilities(self.fitted.votes(h))[:, which] >= 0.5
        return np.asarray(has == (outcome == 0))

    def _describe_label(self, label: int, references: ReferenceSet) -> list[str | None] | None:
        """What sets the groups of one label's vote apart; computed once per set of groups."""
        texts: list[str | None] | None = self.fitted.derive(
            ("descriptions", label), lambda: self.fitted.describe(references)
        )
        return texts

    def unreadable(self, why: str, *, private: bool, label: Any = None) -> Explanation | LabelExplanations:
        """The explanation of a row that could not be read."""
        explanations = unreadable_labels(why, self.fitted.target.plain_names, self.fitted.references, private=private)
        return explanations if label is None else explanations[label]
