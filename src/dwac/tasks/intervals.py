"""Numbers that a fitted model predicts, and their intervals: quantiles of the votes at calibrated tails.

`dwac.conformal.intervals` has the arithmetic of scores and guarantees; this module computes them from the votes.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.conformal import (
    CrossIntervalCalibration,
    ExpectedIntervals,
    IntervalCalibration,
    distance_beyond,
    extended_range,
    tail_scores,
    tails_of,
)
from dwac.conformal.groups import rows_by_group
from dwac.conformal.guarantees import coverage_range
from dwac.conformal.local import LocalScores
from dwac.conformal.weights import ExampleWeights, effective_size
from dwac.errors import CalibrationWarning, InputError
from dwac.explain import NumberExplanation, explain_numbers
from dwac.explain.numbers import in_groups, unreadable_number
from dwac.reference import ReferenceSet, VoteDistribution
from dwac.tasks.base import Bools, Fitted, Floats
from dwac.tasks.local import folds_of, judged_rows, local_rows, local_scores, points_of
from dwac.tasks.predicted_numbers import NumberPredictions, as_numpy
from dwac.training.cross_fit import FOLDS, part_of

IntervalCalibrations = list[IntervalCalibration | CrossIntervalCalibration]  # one per predicted number

_ROUNDING = 1e-7  # scores closer than this may be equal: rounding differs between devices
_ENDS = 2**22  # pairs of a row and a calibration row, at once


@dataclass(frozen=True, eq=False)
class OwnScores:
    """Scores and weights of the calibration rows for each of n rows."""

    calibrations: list[LocalScores] | list[Floats]  # of each number; the same for all rows, unless local
    points: Floats  # (n, F, d): where the rows are, by fold
    weights: ExampleWeights | None  # None: all are the same

    def scores(self, t: int) -> Iterator[Floats]:
        """(n_cal,): for each row, the calibration scores of the t-th number."""
        known = self.calibrations[t]
        return map(known.of, self.points) if isinstance(known, LocalScores) else repeat(known, len(self.points))

    def part(self, rows: slice) -> OwnScores:
        """The same for some of the rows."""
        weights = None if self.weights is None else self.weights._replace(new=self.weights.new[rows])
        return OwnScores(self.calibrations, self.points[rows], weights)


@dataclass(frozen=True, eq=False)
class Intervals:
    """The predicted numbers of a fitted model, and their intervals."""

    fitted: Fitted
    average: str  # whether the "mean" or the "median" of the votes is predicted

    def calibration(self, *, by_group: bool = False) -> IntervalCalibrations:
        """The calibration of each number, against the references as they are now."""
        fitted = self.fitted

        def compute() -> IntervalCalibrations:
            within = fitted.groups() if by_group else None
            return calibrate_intervals(fitted.references, fitted.calibration, fitted.folds, within)

        calibrations: IntervalCalibrations = fitted.derive(("intervals", by_group), compute)
        return calibrations

    def ends(
        self,
        h: Tensor,
        epsilon: float,
        *,
        within: NDArray[Any] | None = None,
        local: bool = False,
        references: ReferenceSet | None = None,
    ) -> Floats:
        """(n, T, 2): the intervals at ε of rows with embeddings h (n, d); within: the groups of the rows.

        local: calibration rows near each row count more. references: the voters; by default those of the model.
        """
        voters = self.fitted.references if references is None else references
        calibrations = self.calibration(by_group=within is not None)
        own = self._own(h, calibrations, local=local)
        return intervals(voters, h, calibrations, epsilon, self.fitted.folds, within, own)

    def _own(self, h: Tensor, calibrations: IntervalCalibrations, *, local: bool) -> OwnScores | None:
        """Scores and weights of the calibration rows for each row; None if they are the same for all."""
        fitted = self.fitted
        if not local and fitted.shift is None:
            return None
        scores, points, weights = [each.scores for each in calibrations], points_of(fitted, h), None
        if local:
            scores = fitted.derive("local intervals", lambda: self._calibrate_locally(calibrations))
        if fitted.shift is not None:
            own = fitted.derive("weights", lambda: fitted.shift.calibration_weights(fitted))
            rows = local_rows(fitted) if local else np.arange(len(own))
            weights = ExampleWeights(own[rows], fitted.shift.weights(points))
        return OwnScores(scores, points, weights)

    def _calibrate_locally(self, calibrations: IntervalCalibrations) -> list[LocalScores]:
        """The scores of each number, as they are seen from other rows."""
        rows = local_rows(self.fitted)
        return [local_scores(self.fitted, each.scores[rows], rows) for each in calibrations]

    def expected(self, epsilon: float, *, widths: bool = True) -> ExpectedIntervals:
        """What to expect of the intervals at ε; if within groups, with their widths, of the first number."""
        fitted = self.fitted
        expected = self.calibration(by_group=fitted.within is not None)[0].expected(epsilon)
        if fitted.within is not None and widths:
            names = fitted.groups()
            expected = expected.of_widths(self._own_widths(epsilon, names), rows_by_group(names, len(names)))
        if fitted.shift is not None:
            size = int(effective_size(fitted.shift.calibration_weights(fitted)))
            range_, n = coverage_range(epsilon, size, crossed=fitted.folds is not None), expected.n_calibration
            expected = replace(expected, n_calibration=size, coverage_range=range_, guarantee=None, n_rows=n)
        return expected if fitted.n_groups is None else expected.of_groups(fitted.n_groups)

    def _own_widths(self, epsilon: float, names: Sequence[Hashable]) -> Floats:
        """(n_cal,): the widths of the calibration rows' own intervals; out of fold, if the model is cross-fitted."""
        fitted, calibration = self.fitted, self.calibration(by_group=True)[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)  # the result names groups that are too small
            if calibration.overlapping:
                cut = calibration.conditional_score_at(epsilon, names)
            else:
                cut = IntervalCalibration(calibration.scores, names).score_at(epsilon, names)
        widths = np.empty(len(cut))
        for here, h, voters in judged_rows(fitted.references, fitted.calibration, fitted.folds):
            low, high = _sets(voters.distribution(h), cut[here], 0, range_of(voters))
            widths[here] = high - low
        return widths

    def values(self, observed: Any) -> Floats:
        """(n, T): the predictions for observed rows; NaN for a row that cannot be read."""
        if self.average not in ("mean", "median"):  # set after fit
            raise InputError(f"average must be 'mean' or 'median'; got {self.average!r}")
        votes = self.fitted.references.distribution(observed.h)
        values: Floats = observed.spread(self.average_of(votes), self.fitted.target.table.shape[1:])
        return values

    def average_of(self, votes: VoteDistribution) -> Floats:
        """(n, T): the mean or median of votes."""
        return as_numpy(votes.median if self.average == "median" else votes.mean)

    def predict(self, observed: Any, *, private: bool) -> NumberPredictions:
        """The predictions for observed rows."""
        return NumberPredictions(
            self,
            observed.h,
            self.values(observed),
            observed.typicality(private=private) if self.fitted.calibrated else None,
            observed.reasons,
            private,
            unknown=observed.notes,
            within=observed.within,
            local=observed.local,
        )

    def explain(
        self,
        h: Any,
        references: ReferenceSet | None,
        descriptions: Sequence[str | None] | None,
        *,
        private: bool,
        epsilon: float,
        within: NDArray[Any] | None = None,
        **options: Any,
    ) -> list[NumberExplanation]:
        """The explanations of rows with embeddings h (n, d). references: the voters; by default those of the model."""
        fitted, target, ends, least = self.fitted, self.fitted.target, None, None
        voters = fitted.references if references is None else references
        h = torch.as_tensor(h, device=voters.embeddings.device)
        if fitted.calibrated:
            ends = self.ends(h, epsilon, within=within, references=voters)
            least = self.expected(epsilon, widths=False).guarantee
            least = 1 - epsilon if least is None else least
        return explain_numbers(
            voters,
            h,
            intervals=ends,
            epsilon=epsilon,
            guarantee=least,
            names=target.names.tolist(),
            single=target.single,
            average=self.average,
            private=private,
            descriptions=None if private else descriptions or self.describe_groups(voters),
            **options,
        )

    def contrast(self, h: Tensor, label: int = 0, other: int = 0, which: int = 0) -> Floats:
        """(n,): the predicted number at position `which` of rows with embeddings h (n, d)."""
        del label, other
        return self.average_of(self.fitted.references.distribution(h))[:, which]

    def given(self, h: Tensor, which: int = 0) -> float:
        """The number that the model gives the only row of h (1, d)."""
        return float(self.contrast(h, which=which)[0])

    def label_of(self, place: int, which: int = 0) -> float:
        """The number of a voter, by its place."""
        targets = self.fitted.references.targets
        return float(targets[place, which])

    def gives(self, h: Tensor, outcome: Sequence[tuple[float, float]], which: int = 0) -> Bools:
        """(n,): whether the predicted number is within one of these ranges."""
        values = self.contrast(h, which=which)
        return np.asarray(np.any([(low <= values) & (values <= high) for low, high in outcome], axis=0))

    def describe_groups(self, references: ReferenceSet) -> list[str | None] | None:
        """What sets the groups of `dwac.explain.numbers.in_groups(references)` apart, in words."""
        fitted, grouped = self.fitted, in_groups(references)
        texts: list[str | None] | None
        if references is not fitted.references:  # of other voters, nothing is kept
            texts = fitted.describe(grouped)
        else:
            texts = fitted.derive("descriptions of numbers", lambda: fitted.describe(grouped))
        return texts

    def unreadable(self, why: str, *, private: bool) -> NumberExplanation:
        """The explanation of a row that could not be read."""
        names, single = tuple(self.fitted.target.names), self.fitted.target.single
        voters = self.fitted.references
        return unreadable_number(why, voters, names=names, average=self.average, single=single, private=private)


def scores_of(voters: ReferenceSet, h: Tensor, exact: Floats) -> Floats:
    """(n, T): how badly the numbers (n, T) of rows with embeddings h (n, d) fit the votes.

    A number outside all of these voters' numbers is measured against their range. In a cross-fitted model they are the
    voters of the row's own fold: a row that sets the range of all could not be beyond it, and new rows can be.
    """
    at_most, at_least = map(as_numpy, voters.distribution(h).tails(exact))
    return tail_scores(at_most, at_least, distance_beyond(exact, *range_of(voters)))


def calibrate_intervals(
    references: ReferenceSet, rows: Any, folds: Any, within: Sequence[Hashable] | None
) -> IntervalCalibrations:
    """The calibration of each predicted number; within: the groups of the rows, for a guarantee within each."""
    rows.require()
    scores = np.empty_like(rows.exact)
    for here, h, voters in judged_rows(references, rows, folds):
        scores[here] = scores_of(voters, h, rows.exact[here])
    if folds is None:
        return [IntervalCalibration(column, within, tolerance=_ROUNDING) for column in scores.T]
    of = folds_of(rows, folds)
    return [CrossIntervalCalibration(column, of, within, tolerance=_ROUNDING) for column in scores.T]


def range_of(references: ReferenceSet) -> Floats:
    """(2, T): the lowest and the highest number of all voters."""
    assert references.targets is not None
    return np.asarray(torch.stack([references.targets.amin(dim=0), references.targets.amax(dim=0)]).cpu().numpy())


def intervals(
    references: ReferenceSet,
    h: Tensor,
    calibrations: IntervalCalibrations,
    epsilon: float,
    folds: Any,
    within: NDArray[Any] | None,
    own: OwnScores | None = None,
) -> Floats:
    """(n, T, 2): the intervals at ε of rows with embeddings h (n, d).

    within: the groups of the rows. own: scores and weights of the calibration rows for each of them.
    """
    if folds is None:
        votes, ends = references.distribution(h), range_of(references)
        by_number = []
        for t, calibration in enumerate(calibrations):
            assert isinstance(calibration, IntervalCalibration)
            if own is None:
                scores = np.broadcast_to(calibration.score_at(epsilon, within), (len(h),))
            else:
                scores = calibration.score_at(epsilon, None, own.scores(t), own.weights)
            by_number.append(np.stack(_sets(votes, scores, t, ends), axis=1))
        return np.stack(by_number, axis=1)
    n_calibration = len(calibrations[0].scores)
    size = max(1, _ENDS // n_calibration)
    parts = []
    for start in range(0, len(h), size):
        named = None if within is None else within[start : start + size]
        some = None if own is None else own.part(slice(start, start + size))
        parts.append(_crossed(references, h[start : start + size], calibrations, epsilon, folds, named, some))
    return np.concatenate(parts) if parts else np.empty((0, len(calibrations), 2))


def _crossed(
    references: ReferenceSet,
    h: Tensor,
    calibrations: IntervalCalibrations,
    epsilon: float,
    folds: Any,
    within: NDArray[Any] | None,
    own: OwnScores | None,
) -> Floats:
    """The same for a cross-fitted model: each calibration row gives an interval by the model that left it out."""
    sets = folds.sets(references)
    votes = [voters.distribution(part_of(h, fold, folds.members)) for fold, voters in enumerate(sets)]
    by_number = []
    for t, calibration in enumerate(calibrations):
        assert isinstance(calibration, CrossIntervalCalibration)
        if within is not None and calibration.overlapping:
            score = calibration.conditional_score_at(epsilon, within)
            each = [_sets(votes[fold], score, t, range_of(sets[fold])) for fold in range(FOLDS)]
            by_number.append(calibration.middle_ends(*(np.stack(ends, axis=1) for ends in zip(*each, strict=True))))
            continue
        lows, highs = (np.empty((len(h), len(calibration.scores))) for _ in range(2))
        scores = np.broadcast_to(calibration.scores, lows.shape) if own is None else np.stack([*own.scores(t)])
        for fold in range(FOLDS):
            here = np.flatnonzero(calibration.folds == fold)
            some = np.ascontiguousarray(scores[:, here])
            lows[:, here], highs[:, here] = _sets(votes[fold], some, t, range_of(sets[fold]))
        by_number.append(calibration.ends(lows, highs, epsilon, within, None if own is None else own.weights))
    return np.stack(by_number, axis=1)


def _sets(votes: VoteDistribution, scores: Floats, t: int, ends: Floats) -> tuple[Floats, Floats]:
    """The ends of {y : score(y) ≤ s} for the t-th number of each row, in the shape of the scores: (n,) or (n, C)."""
    log_tail, beyond = tails_of(scores)
    inside = np.isfinite(log_tail)
    low, high = map(as_numpy, votes.ends(np.where(inside, log_tail, -1.0)))
    outer_low, outer_high = extended_range(ends[0, t], ends[1, t], np.where(inside, 0.0, beyond))
    return np.where(inside, low[:, t], outer_low), np.where(inside, high[:, t], outer_high)
