"""What chance alone does to a measured share: the range in which the true one lies, or an honest one falls."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binomtest

from dwac import metrics


def likely_share(hits: ArrayLike) -> tuple[float, float]:
    """Where a true share lies with 95 % confidence, from n observed hits and misses (Wilson's interval).

    >>> low, high = likely_share([True] * 9 + [False])
    >>> round(low, 2), round(high, 2)
    (0.6, 0.98)
    """
    found = np.asarray(hits, dtype=bool)
    interval = binomtest(int(found.sum()), len(found)).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def honest_coverage(epsilon: float, n_calibration: int, n_test: int) -> tuple[float, float] | None:
    """Where the coverage of honest sets falls in 99 of 100 draws of calibration and test examples.

    Coverage follows the beta-binomial law. None where there are too few calibration examples to leave a label out.

    >>> low, high = honest_coverage(0.1, 1_000, 10_000)
    >>> round(low, 3), round(high, 3)
    (0.873, 0.924)
    """
    return metrics.coverage_interval(epsilon, n_calibration, n_test, 0.99)
