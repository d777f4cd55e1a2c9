"""Guarantees of calibration sets of a given size: how many misses ε allows, and the coverage to expect."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from dwac import _checks as checks

CROSSED = 3.0  # the variance of coverage of cross-fitted models, in units of that of a beta law


def allowed_misses(epsilon: float, n: int) -> int:
    """The largest c with c / (n + 1) ≤ ε: how many of n + 1 exchangeable examples may be missed.

    The comparison is that of p-values with ε, so that c / (n + 1) equals a decimal ε of the same value.

    >>> [allowed_misses(0.05, n) for n in (18, 19, 38, 39)]
    [0, 1, 1, 2]
    """
    c = int(np.floor(epsilon * (n + 1)))
    if (c + 1) / (n + 1) <= epsilon:
        return c + 1
    return c if c / (n + 1) <= epsilon else c - 1


def smallest_calibration(epsilon: float) -> int:
    """The fewest calibration scores with which a label can be rejected at ε: the smallest n with 1/(n+1) ≤ ε.

    >>> smallest_calibration(0.05)
    19
    """
    epsilon = checks.epsilon(epsilon)
    n = max(int(np.floor(1 / epsilon)) - 1, 1)
    return n if 1 / (n + 1) <= epsilon else n + 1


def coverage_range(epsilon: float, n: int, *, crossed: bool = False) -> tuple[float, float]:
    """The range of coverage with one calibration set of n scores, with probability 0.9, whatever the data.

    Coverage ~ Beta(n + 1 - c, c), c = `allowed_misses`, if scores are distinct; with ties it may be higher.

    crossed: every example both trains and calibrates. No law is known: the models of the folds learn from the rows that
    calibrate the others, so that chance moves all thresholds together. In simulations the variance of coverage is up to
    CROSSED times that of the law above (benchmarks/coverage_ranges.py), and the range is Beta's with this variance.
    """
    c, fewer = allowed_misses(epsilon, n), CROSSED if crossed else 1.0
    low, high = beta.ppf([0.05, 0.95], (n + 1 - c) / fewer, c / fewer) if c else (1.0, 1.0)
    return float(low), float(high)


def describe_bound(guarantee: float | None) -> str:
    """What theory says of the minimum coverage, after a semicolon; "" if it is the coverage that was asked for."""
    if not guarantee:
        return "" if guarantee is None else "; no bound is proved"
    return f"; at least {checks.percent(guarantee)} in theory"


def cross_guarantee(epsilon: float, folds: NDArray[np.int64]) -> float:
    """The theoretical minimum coverage of cross-conformal sets, on average over draws of the data.

    The theory assumes models that know nothing of the fold they left out (`CrossCalibration`).

    1 - 2ε - min{2 (1 - 1/F) / (n/F + 1), (1 - F/n) / (F + 1)} for n examples in F folds (Vovk 2015; Barber, Candès,
    Ramdas and Tibshirani 2021, theorem 4). folds: (n,) the fold of each example; if p-values compare within a class or
    a group, of its examples only.

    >>> [round(cross_guarantee(0.1, np.arange(n) % 5), 3) for n in (14, 200)]
    [0.693, 0.761]
    """
    n, n_folds = len(folds), len(np.unique(folds))
    less = min(2 * (1 - 1 / n_folds) / (n / n_folds + 1), (1 - n_folds / n) / (n_folds + 1))
    return max(0.0, 1 - 2 * checks.epsilon(epsilon) - less)
