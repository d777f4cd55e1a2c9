"""Goals of recourse: the label or the range of numbers that a changed row is to get, and how certainly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dwac import _checks as checks
from dwac.errors import CalibrationError, InputError, LabelError
from dwac.tasks.base import LABELS, NUMBERS, Bools, Floats


@dataclass(frozen=True, eq=False)
class Goal(ABC):
    """What a changed row is to get.

    outcome: the code of a label; 0 for having one of several labels, 1 for not having it; or ranges of numbers.
    probability: at least this much; None: the outcome only has to be predicted. epsilon: at this error rate, the
    prediction set must hold nothing else; None: it may.
    """

    sets: Any
    name: Any
    outcome: Any
    which: int
    probability: float | None
    epsilon: float | None

    def reached(self, observed: Any) -> Bools:
        """(n,): whether observed rows reach the goal."""
        reached = self._wins(observed)
        if self.probability is not None:
            reached = reached & (self.probabilities(observed) >= self.probability)
        if self.epsilon is not None and reached.any():
            reached = reached & self._alone(observed, self.epsilon)
        return reached

    @abstractmethod
    def voters(self) -> Bools:
        """(m,): which voters have the outcome themselves."""

    @abstractmethod
    def margin(self, observed: Any) -> Floats:
        """(n,): how far the rows are beyond the outcome; negative: how much is missing."""

    @abstractmethod
    def probabilities(self, observed: Any) -> Floats:
        """(n,): the share of the vote for the outcome."""

    def value(self, observed: Any) -> Floats:
        """(n,): what people read of a changed row: the probability of the label, or the number."""
        return self.probabilities(observed)

    @abstractmethod
    def _wins(self, observed: Any) -> Bools:
        """(n,): whether the model predicts the outcome."""

    @abstractmethod
    def _alone(self, observed: Any, epsilon: float) -> Bools:
        """(n,): whether the prediction set holds nothing but the outcome."""


class ClassGoal(Goal):
    """A label of classes or ordered labels."""

    def voters(self) -> Bools:
        """(m,): which voters have the label."""
        return np.asarray(self.sets.fitted.references.labels.cpu().numpy() == self.outcome)

    def margin(self, observed: Any) -> Floats:
        """(n,): the log-odds of the label against the strongest other one."""
        others = np.delete(observed.votes, self.outcome, axis=1)
        return np.asarray(observed.votes[:, self.outcome] - others.max(axis=1))

    def probabilities(self, observed: Any) -> Floats:
        """(n,): the probability of the label."""
        return np.asarray(self.sets.fitted.target.predict_proba(observed.votes)[:, self.outcome])

    def _wins(self, observed: Any) -> Bools:
        return np.asarray(observed.votes.argmax(axis=1) == self.outcome)

    def _alone(self, observed: Any, epsilon: float) -> Bools:
        sets = self.sets.label_sets(observed, epsilon)
        return np.asarray(sets[:, self.outcome] & (sets.sum(axis=1) == 1))


class LabelGoal(Goal):
    """To have, or not to have, one of several labels."""

    def voters(self) -> Bools:
        """(m,): which voters have the label, or do not."""
        has = self.sets.fitted.target.table[:, self.which] > 0
        return np.asarray(has[self.sets.fitted.references.labels.cpu().numpy()] == (self.outcome == 0))

    def margin(self, observed: Any) -> Floats:
        """(n,): the log-odds of having it, or of not having it."""
        return np.asarray(self.sets.contrast(observed.h, self.outcome, 1 - self.outcome, self.which))

    def probabilities(self, observed: Any) -> Floats:
        """(n,): the probability of having it, or of not having it."""
        p = self._having(observed)
        return p if self.outcome == 0 else 1 - p

    def _having(self, observed: Any) -> Floats:
        return np.asarray(self.sets.fitted.target.predict_proba(observed.votes)[:, self.which])

    def _wins(self, observed: Any) -> Bools:
        return np.asarray((self._having(observed) >= 0.5) == (self.outcome == 0))

    def _alone(self, observed: Any, epsilon: float) -> Bools:
        decisions = self.sets.conformal(observed.evidence(novelty=False)).decisions(epsilon)[:, self.which]
        return np.asarray(decisions == (1 if self.outcome == 0 else 0))


class NumberGoal(Goal):
    """A range of a predicted number."""

    def voters(self) -> Bools:
        """(m,): which voters have a number in the range."""
        numbers = self.sets.fitted.references.targets[:, self.which].cpu().numpy()
        low, high = self.outcome[0]
        return np.asarray((low <= numbers) & (numbers <= high))

    def margin(self, observed: Any) -> Floats:
        """(n,): 0 in the range, otherwise minus the distance from it."""
        values, (low, high) = self.value(observed), self.outcome[0]
        return np.asarray(-np.maximum(np.maximum(low - values, values - high), 0.0))

    def probabilities(self, observed: Any) -> Floats:
        """(n,): the share of the vote for numbers in the range."""
        votes, (low, high) = self.sets.fitted.references.distribution(observed.h), self.outcome[0]
        upper, lower = (votes.cdf(end)[:, self.which] for end in (high, np.nextafter(low, -np.inf)))
        return np.asarray((upper - lower).cpu().numpy())

    def value(self, observed: Any) -> Floats:
        """(n,): the predicted number."""
        return np.asarray(self.sets.contrast(observed.h, which=self.which))

    def _wins(self, observed: Any) -> Bools:
        return np.asarray(self.margin(observed) == 0)

    def _alone(self, observed: Any, epsilon: float) -> Bools:
        low, high = self.outcome[0]
        ends = self.sets.ends(observed.h, epsilon, within=observed.within)[:, self.which]
        return np.asarray((low <= ends[:, 0]) & (ends[:, 1] <= high))


def goal_of(sets: Any, label: Any, probability: float | None, epsilon: float | None) -> Goal:
    """The goal to get this label, or a number in this range.

    label: a class; one of several labels, or "not …" for being without it; a range (low, high), or {name: range} for
    one of several numbers.
    """
    if probability is not None and not (isinstance(probability, int | float) and 0 < probability < 1):
        raise InputError(f"probability must be a number between 0 and 1; got {probability!r}")
    if epsilon is not None and not sets.fitted.calibrated:
        raise CalibrationError("alone=True needs prediction sets, and this model has no calibration rows; leave it out")
    target, sure = sets.fitted.target, (probability, epsilon)
    names = target.plain_names
    if target.kind == NUMBERS:
        name, ends = next(iter(label.items())) if isinstance(label, Mapping) and len(label) == 1 else (names[0], label)
        if name not in names:
            raise InputError(f"a range must be for one of the numbers {checks.listed(names)}; got {name!r}")
        return NumberGoal(sets, ends, (_read_range(ends),), names.index(name), *sure)
    if label in names:
        place = names.index(label)
        if target.kind == LABELS:
            return LabelGoal(sets, label, 0, place, *sure)
        return ClassGoal(sets, label, place, 0, *sure)
    without = {f"not {name}": place for place, name in enumerate(names)} if target.kind == LABELS else {}
    if label in without:
        return LabelGoal(sets, label, 1, without[label], *sure)
    raise LabelError(f"label must be one of {checks.listed([*names, *without])}; got {label!r}")


def _read_range(ends: Any) -> tuple[float, float]:
    """(low, high) of numbers, which may be infinite."""
    if isinstance(ends, tuple | list) and len(ends) == 2:
        low, high = (float("nan") if isinstance(end, str) else end for end in ends)
        if isinstance(low, int | float) and isinstance(high, int | float) and low <= high:
            return float(low), float(high)
    raise InputError(
        f"for a number the goal must be a range (low, high), such as (0, 100) or (100, float('inf')); got {ends!r}"
    )
