"""How well the examples that rely on a group are predicted: one measure per kind of target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dwac.estimator.evaluation import amount
from dwac.report.words import percent


class Measure(NamedTuple):
    """A name, a value of each example (n,), and how to write a mean."""

    name: str
    values: NDArray[Any]
    say: Callable[[float], str]

    @classmethod
    def of_labels(cls, predicted: NDArray[Any], truth: NDArray[Any]) -> Measure:
        """How often a label is right, (n,), or every one of several, (n, L)."""
        right = predicted == truth
        if right.ndim == 1:
            return cls("correct", right, percent)
        return cls("every label right", right.all(axis=1), percent)

    @classmethod
    def of_numbers(cls, predicted: NDArray[Any], truth: NDArray[Any], spread: NDArray[Any]) -> Measure:
        """By how much numbers (n, T) are off, in units of their spread (T,) in training."""
        return cls("mean absolute error, in spreads", (np.abs(predicted - truth) / spread).mean(axis=1), amount)
