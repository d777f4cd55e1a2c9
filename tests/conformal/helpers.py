"""Exact laws of coverage, and how often chance may break them."""

from fractions import Fraction

import numpy as np
from hypothesis import settings
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]

# Statistical tests draw from fixed seeds and fail outside what the law allows 99.9 % of the time.
RARE = 0.001
Z_RARE = float(stats.norm.isf(RARE / 2))

relaxed = settings(max_examples=40)


def first_covering_rank(n: int, epsilon: str) -> int:
    """k = ⌈(1-ε)(n+1)⌉ without rounding: the truth is covered if its score is among the k lowest of n+1."""
    return int(-(-(1 - Fraction(epsilon)) * (n + 1) // 1))


def assert_beta_binomial(covered: NDArray[np.int64], n_test: int, k: int, n: int, seed: int) -> None:
    """Counts of covered true labels, one per repetition, follow BetaBinomial(n_test, k, n+1-k) in mean and in shape."""
    law = stats.betabinom(n_test, k, n + 1 - k)
    z = (covered.mean() - law.mean()) / (law.std() / np.sqrt(len(covered)))
    assert abs(z) < Z_RARE
    # The randomised probability transform of a discrete law is uniform.
    below, at = law.cdf(covered - 1), law.pmf(covered)
    assert stats.kstest(below + np.random.default_rng(seed).random(len(covered)) * at, "uniform").pvalue > RARE
