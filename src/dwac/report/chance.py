"""How much chance moves a measured share: intervals for a true share, and for the coverage of valid sets."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binomtest

from dwac import metrics


def likely_share(hits: ArrayLike) -> tuple[float, float]:
    """95 % confidence interval of a share, from n hits and misses (Wilson's interval).

    >>> low, high = likely_share([True] * 9 + [False])
    >>> round(low, 2), round(high, 2)
    (0.6, 0.98)
    """
    found = np.asarray(hits, dtype=bool)
    interval = binomtest(int(found.sum()), len(found)).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def valid_coverage(epsilon: float, n_calibration: int, n_test: int) -> tuple[float, float] | None:
    """Where the coverage of valid sets lies in 99 of 100 draws of calibration and test examples.

    Coverage follows the beta-binomial law. None if there are too few calibration examples to leave a label out.

    >>> low, high = valid_coverage(0.1, 1_000, 10_000)
    >>> round(low, 3), round(high, 3)
    (0.873, 0.924)
    """
    return metrics.coverage_interval(epsilon, n_calibration, n_test, 0.99)
