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

from dwac.tasks.answers import AnswerColumn

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CLASSES, ORDERED, LABELS, NUMBERS = "classes", "ordered", "labels", "numbers"


class Loss(NamedTuple):
    """What codes mean in the loss of a network (`dwac.nn.loss`)."""

    likeness: Tensor | None  # (K, K): how much a vote for one code counts for another
    averaged: Tensor | None  # (K, B): the values to average when judging a model, and in the loss without likeness


class Summary(NamedTuple):
    """Two numbers for each of n predictions, (n,) or by fold (n, F)."""

    uncertainty: Floats
    prediction: Floats


@dataclass(frozen=True, eq=False)
class Target(ABC):
    """The meaning of the K codes of voters."""

    outcomes: NDArray[Any]  # (K,): classes, tuples of labels, or the mean number of each bin
    names: NDArray[Any]  # of the classes (K,), of the labels (L,), or of the numbers (T,)
    table: Floats  # (K, L) of 0 and 1, or (K, T) mean numbers; (K, 0) for classes
    scale: Floats  # (2, T): the mean of numbers and their spread; (2, 0) for labels

    kind: ClassVar[str]  # one of the four above
    noun: ClassVar[str] = "label"  # the word for a prediction in sentences
    listed: bool = False  # whether rows come with lists of labels, and predictions are lists
    single: bool = True  # whether one number is predicted, rather than a table of them

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

    @abstractmethod
    def read(self, y: Any, n: int, *, strict: bool) -> tuple[Ints, Floats]:
        """(codes (n,), exact (n, T)) of the outcomes of n new rows; if not `strict`, an unknown outcome has code -1."""

    def codes(self, exact: Floats) -> Ints:
        """(n,): the codes of numbers or label sets (n, T)."""
        raise TypeError(f"{self.kind} have no values besides their codes; got some of shape {exact.shape}")

    @abstractmethod
    def loss(self, codes: Ints) -> Loss:
        """The loss of a network; codes: of the training rows."""

    @abstractmethod
    def same(self, log_p: Floats, full: Floats) -> Bools:
        """(n,): whether two log probabilities (n, K) of outcomes lead to the same prediction."""

    @abstractmethod
    def summarise(self, votes: Floats) -> Summary:
        """The uncertainty of a prediction and the prediction, from votes (…, K)."""

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


def named_anew(names: NDArray[Any]) -> NDArray[Any]:
    """Strings in an array as wide as the longest of them."""
    return names.astype(object).astype(str) if names.dtype.kind == "U" else names


def averaged_table(found: Floats, codes: Ints) -> Tensor:
    """(K, B): scaled so that the loss of an uninformed prediction is 1 on average. codes: of the training rows."""
    counts = np.bincount(codes, minlength=len(found))
    mean = counts @ found / counts.sum()
    spread = counts @ np.square(found - mean).sum(axis=1) / counts.sum()
    found = found / np.sqrt(spread) if spread > 0 else np.zeros((len(found), 1))
    return torch.as_tensor(found, dtype=torch.float32)


def log_probabilities(votes: Floats) -> Floats:
    """Votes (…, K) as logs of their shares."""
    return np.asarray(votes - np.logaddexp.reduce(votes, axis=-1, keepdims=True))
