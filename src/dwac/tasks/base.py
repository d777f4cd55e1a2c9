"""The common base of all kinds of targets: the codes that training examples vote for, and their meaning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.errors import InputError
from dwac.tasks.answers import AnswerColumn

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reasons = NDArray[np.object_]  # (n,): None, or why a row could not be read
Fitted = Any  # a `dwac.estimator.fitted.Fitted`, which is one floor above

CLASSES, ORDERED, LABELS, NUMBERS = "classes", "ordered", "labels", "numbers"


class Loss(NamedTuple):
    """What codes mean in the loss of a network (`dwac.nn.loss`)."""

    likeness: Tensor | None  # (K, K): how much a vote for one code counts for another
    averaged: Tensor | None  # (K, B): the values to average when judging a model, and in the loss without likeness


class VoteSummary(NamedTuple):
    """Two numbers for each of n predictions, (n,) or by fold (n, F)."""

    uncertainty: Floats
    prediction: Floats


class Evidence(NamedTuple):
    """The outputs of a model for n rows, from which p-values, sets and typicality are computed."""

    votes: Floats  # (n, K) log class weights; NaN where a row could not be read
    reasons: Reasons | None = None  # (n,): None, or why a row could not be read
    novelty: Floats | None = None  # (n,), or by fold (n, F); without it there is no typicality
    fold_votes: Floats | None = None  # (n, F, K), of a cross-fitted model
    within: NDArray[Any] | None = None  # (n,): the groups of the rows, for a guarantee within each
    h: Tensor | None = None  # (n, d): embeddings, for a local guarantee or one for rows from elsewhere
    local: bool = False  # whether calibration rows near a row count more


@dataclass(frozen=True, eq=False)
class Target(ABC):
    """The meaning of the K codes of voters."""

    outcomes: NDArray[Any]  # (K,): classes, tuples of labels, or the mean number of each bin
    names: NDArray[Any]  # of the classes (K,), of the labels (L,), or of the numbers (T,)
    table: Floats  # (K, L) of 0 and 1, or (K, T) mean numbers; (K, 0) for classes
    scale: Floats  # (2, T): the mean of numbers and their spread; (2, 0) for labels

    kind: ClassVar[str]  # one of the four above
    noun: ClassVar[str] = "label"  # the word for a prediction in sentences
    cross_entropy: ClassVar[bool] = False  # whether the loss needs a voter for every outcome, and nothing is averaged
    linear_start: ClassVar[bool] = True  # whether cross-fitted networks start from a linear model
    listed: bool = False  # whether rows come with lists of labels, and predictions are lists
    single: bool = True  # whether one number is predicted, rather than a table of them

    @property
    def plain_names(self) -> list[Any]:
        """The names as Python values."""
        names: list[Any] = self.names.tolist()
        return names

    @property
    def n_codes(self) -> int:
        """K."""
        return len(self.outcomes)

    @property
    def has_codes(self) -> bool:
        """Whether an outcome is its code, without further values."""
        return bool(self.table.shape[1] == 0)

    @property
    def n_outputs(self) -> int:
        """How many classes, labels or numbers there are."""
        return self.n_codes if self.has_codes else self.table.shape[1]

    @property
    def least_size(self) -> int:
        """The least |h|, unless a setting gives it: neither numbers nor label sets have one dimension each."""
        return 1 if self.has_codes else 16

    def read(self, y: Any, n: int, *, strict: bool) -> tuple[Ints, Floats]:
        """(codes (n,), exact (n, T)) of n new rows; if not `strict`, an unknown class has code -1.

        So has a label set without a voter.
        """
        del strict
        exact = self.values(y, n)
        return self.codes(exact), exact

    def values(self, y: Any, n: int) -> Floats:
        """(n, T): the numbers of n new rows, or their labels as 0 and 1; classes have no values besides their codes."""
        del y
        return np.zeros((n, 0))

    def codes(self, exact: Floats) -> Ints:
        """(n,): the codes of numbers or label sets (n, T)."""
        raise TypeError(f"{self.kind} have no values besides their codes; got some of shape {exact.shape}")

    def numbers_of_voters(self, exact: Floats) -> Floats | None:
        """(m, T): the numbers that voters vote for; None if they vote for their codes."""
        return exact if self.kind == NUMBERS else None

    @abstractmethod
    def loss(self, codes: Ints) -> Loss:
        """The loss of a network; codes: of the training rows."""

    @abstractmethod
    def same(self, log_p: Floats, full: Floats) -> Bools:
        """(n,): whether two log probabilities (n, K) of outcomes lead to the same prediction."""

    @abstractmethod
    def summarise(self, votes: Floats) -> VoteSummary:
        """The uncertainty of a prediction and the prediction, from votes (…, K)."""

    def require_label(self, label: Any) -> None:
        """Raise an error unless this is one of several labels."""
        del label
        raise InputError("label=… is for models of several labels; this one predicts a single label; leave it out")

    def of_part(self, exact: Floats, training: Ints) -> Target:
        """The same target, learned from some rows: exact (n, T), of which `training` are for training."""
        del exact, training
        return self

    @abstractmethod
    def remaining(self, codes: Ints, exact: Floats, training: Ints) -> tuple[Target, Ints, Floats]:
        """The target that fit would learn from these rows, and their codes and values, after others were deleted."""

    @abstractmethod
    def columns(self, levels: Sequence[float] = ()) -> tuple[AnswerColumn, ...]:
        """The columns of an answer; levels: of the quantiles of numbers to answer with."""

    def holds(self, exact: Floats) -> bool:
        """Whether these are valid values of rows, (n, T)."""
        return bool(np.isfinite(exact).all())


def narrow_strings(names: NDArray[Any]) -> NDArray[Any]:
    """Names; strings in an array that is only as wide as the longest of them."""
    return names.astype(object).astype(str) if names.dtype.kind == "U" else names


def averaged_table(values: Floats, codes: Ints) -> Tensor:
    """(K, B): scaled so that the loss of an uninformed prediction is 1 on average. codes: of the training rows."""
    counts = np.bincount(codes, minlength=len(values))
    mean = counts @ values / counts.sum()
    spread = counts @ np.square(values - mean).sum(axis=1) / counts.sum()
    values = values / np.sqrt(spread) if spread > 0 else np.zeros((len(values), 1))
    return torch.as_tensor(values, dtype=torch.float32)


def log_probabilities(votes: Floats) -> Floats:
    """Votes (…, K) as logs of their shares."""
    return np.asarray(votes - np.logaddexp.reduce(votes, axis=-1, keepdims=True))


def finite(scores: Floats) -> Floats:
    """Scores that scikit-learn can compare: no infinities."""
    most = float(np.finfo(np.float32).max)
    return np.clip(scores, -most, most)


# Rows that could not be read


def readable(reasons: Reasons) -> Bools:
    """(n,): which rows can be read."""
    return np.asarray(np.equal(reasons, None))  # type: ignore[call-overload]  # None is an object, too


def set_none(labels: NDArray[Any], rows: Bools) -> NDArray[Any]:
    """Labels (n,), None where a row could not be read."""
    return labels if rows.all() else np.where(rows, labels.astype(object), np.array(None, dtype=object))


def set_nan(values: NDArray[Any], rows: Bools) -> Floats:
    """Numbers (n, …), NaN where a row could not be read."""
    return values if rows.all() else np.where(rows.reshape(-1, *[1] * (values.ndim - 1)), values, np.nan)


def complete_rows(values: Floats) -> Bools:
    """(n,): which rows of numbers (n, …) contain no NaN."""
    return np.asarray(~np.isnan(values.reshape(len(values), -1)).any(axis=1))


def zero_nan(votes: Floats) -> Floats:
    """Votes (n, …) to compute with, 0 for rows that could not be read; their answers are masked afterwards."""
    return np.where(np.isnan(votes), 0.0, votes)
