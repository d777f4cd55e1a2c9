"""Measures of a report: scores of classes, labels and groups, and how much chance moves a share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest
from sklearn.metrics import precision_recall_fscore_support, roc_auc_score

from dwac import _checks as checks
from dwac import metrics
from dwac.estimator.evaluation import amount

MEASURES = ("precision", "recall", "f1", "roc_auc")

# Numbers as text


def percent(share: float) -> str:
    """A share in per cent, with as many digits as are useful, on one line."""
    return checks.percent(share, most=3).replace(" ", "\u00a0")


def share(value: float | None) -> str:
    """A share in per cent; a dash if there is none."""
    return percent(value) if value is not None and value == value else "–"


def number(value: float, digits: int = 3) -> str:
    """A number; a dash if there is none."""
    return f"{value:.{digits}f}" if value == value else "–"


# Scores of each class or label


class Scores(NamedTuple):
    """One row per class with n and MEASURES, NaN where undefined; and their means over classes, and over decisions."""

    each: pd.DataFrame
    macro: dict[str, float]
    micro: dict[str, float]


def scores(truth: ArrayLike, predicted: ArrayLike, probabilities: ArrayLike) -> Scores:
    """Compare (n, L): which labels rows have, which are predicted, and their probabilities. ROC AUC is one-vs-rest.

    The measures are those of scikit-learn.

    >>> result = scores([[1, 0], [0, 1]], [[1, 0], [1, 0]], [[0.9, 0.1], [0.6, 0.4]])
    >>> result.each["recall"].tolist(), result.macro["roc_auc"]
    ([1.0, 0.0], 1.0)
    """
    has, said, p = np.asarray(truth, dtype=bool), np.asarray(predicted, dtype=bool), np.asarray(probabilities)
    each = pd.DataFrame(_three_scores(has, said, None)).assign(
        roc_auc=[_auc(*pair) for pair in zip(has.T, p.T, strict=True)]
    )
    each.insert(0, "n", has.sum(axis=0))
    defined = each["roc_auc"].dropna()
    macro = _three_scores(has, said, "macro") | {"roc_auc": float(defined.mean()) if len(defined) else float("nan")}
    return Scores(each, macro, _three_scores(has, said, "micro") | {"roc_auc": _auc(has.ravel(), p.ravel())})


def one_hot(codes: ArrayLike, n_classes: int) -> NDArray[np.bool_]:
    """(n, K): which class each row has."""
    return np.asarray(np.asarray(codes)[:, None] == np.arange(n_classes))


def _three_scores(has: NDArray[Any], said: NDArray[Any], average: str | None) -> dict[str, Any]:
    """Precision, recall and F1."""
    values = precision_recall_fscore_support(has, said, average=average, zero_division=np.nan)
    return dict(zip(MEASURES, values[:3], strict=False))


def _auc(has: NDArray[Any], p: NDArray[Any]) -> float:
    """ROC AUC; NaN if all rows have the label, or none."""
    return float(roc_auc_score(has, p)) if has.any() and not has.all() else float("nan")


# How well the examples that rely on a group are predicted


class Measure(NamedTuple):
    """A name, a value of each example (n,), and how to write a mean."""

    name: str
    values: NDArray[Any]
    say: Callable[[float], str]

    @classmethod
    def of_labels(cls, predicted: NDArray[Any], truth: NDArray[Any]) -> Measure:
        """How often the label is right, (n,), or all of several labels are, (n, L)."""
        right = predicted == truth
        if right.ndim == 1:
            return cls("correct", right, percent)
        return cls("every label right", right.all(axis=1), percent)

    @classmethod
    def of_numbers(cls, predicted: NDArray[Any], truth: NDArray[Any], spread: NDArray[Any]) -> Measure:
        """The error of numbers (n, T), in units of their spread (T,) in training."""
        return cls("mean absolute error, in spreads", (np.abs(predicted - truth) / spread).mean(axis=1), amount)


# Chance


def likely_share(hits: ArrayLike) -> tuple[float, float]:
    """95 % confidence interval of a share, from n hits and misses (Wilson's interval).

    >>> low, high = likely_share([True] * 9 + [False])
    >>> round(low, 2), round(high, 2)
    (0.6, 0.98)
    """
    seen = np.asarray(hits, dtype=bool)
    interval = binomtest(int(seen.sum()), len(seen)).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def valid_coverage(epsilon: float, n_calibration: int, n_test: int) -> tuple[float, float] | None:
    """The range of the coverage of valid sets in 99 of 100 draws of calibration and test examples.

    Coverage follows the beta-binomial law. None if there are too few calibration examples to leave a label out.

    >>> low, high = valid_coverage(0.1, 1_000, 10_000)
    >>> round(low, 3), round(high, 3)
    (0.873, 0.924)
    """
    return metrics.coverage_interval(epsilon, n_calibration, n_test, 0.99)
