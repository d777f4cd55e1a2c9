"""How often chance may break a statistical test, and the exact laws that its bounds come from.

Statistical tests draw from fixed seeds. On other seeds, a right program fails such a test at most once in a million
times: each of its comparisons with a law fails with a probability of at most `RARE`, and no test makes more than ten.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft, stats

RARE = 1e-7
# For means of so many repetitions that they are nearly normal; the skewness that is left makes 1e-7 at most 1e-6.
Z_RARE = float(stats.norm.isf(RARE / 2))


def total(*laws: Any, times: int = 1) -> tuple[int, int]:
    """(low, high): the sum of counts, so many of each law, is below or above with a probability of RARE together.

    laws: distributions of scipy, or the probabilities of 0, 1, …
    """
    pmfs = [law.pmf(np.arange(law.support()[1] + 1)) if hasattr(law, "pmf") else np.asarray(law) for law in laws]
    size = times * sum(len(pmf) - 1 for pmf in pmfs) + 1
    padded = fft.next_fast_len(size, real=True)
    transform = np.prod([fft.rfft(pmf, padded) for pmf in pmfs], axis=0) ** times
    summed = fft.irfft(transform, padded)[:size]  # exact to 1e-12
    low, high = (int(np.searchsorted(each.cumsum(), RARE / 2)) for each in (summed, summed[::-1]))
    return low, size - 1 - high


def covering(n_test: int, k: int, n: int) -> Any:
    """How many of n_test rows have a score among the k lowest of n + 1: BetaBinomial(n_test, k, n + 1 - k)."""
    return stats.betabinom(n_test, k, n + 1 - k)


def assert_beta_binomial(covered: NDArray[np.int64], n_test: int, k: int, n: int, seed: int) -> None:
    """Counts of covered true labels, one per repetition, follow their law in mean and in shape."""
    law = covering(n_test, k, n)
    low, high = total(law, times=len(covered))
    assert low <= covered.sum() <= high
    # The randomised probability transform of a discrete law is uniform.
    below, at = law.cdf(covered - 1), law.pmf(covered)
    assert stats.kstest(below + np.random.default_rng(seed).random(len(covered)) * at, "uniform").pvalue > RARE


def assert_as_often(covered: ArrayLike, n_test: int, k: int, n: int) -> None:
    """Counts, one per repetition, are in sum not below their law. Scores that tie are covered together: more often."""
    counts = np.asarray(covered)
    assert counts.sum() >= total(covering(n_test, k, n), times=len(counts))[0]


# Labels, and what their calibration is judged by


class Judged(NamedTuple):
    """Numbers of several draws of labels, (draws,) each."""

    errors: NDArray[np.float64]
    top_label: NDArray[np.float64]
    resolution: NDArray[np.float64]


def judged(y: NDArray[np.int64], p: NDArray[np.float64], n_bins: int = 10) -> Judged:
    """What `calibration_test` judges, for labels (draws, n), bin by bin, where no two probabilities are equal."""
    hits = [(p[:, k], y == k) for k in range(p.shape[1])] + [(p.max(axis=1), y == p.argmax(axis=1))]
    parts = [(part, stated, hit) for stated, hit in hits for part in np.array_split(np.argsort(stated), n_bins)]
    shares = np.array([hit[:, part].mean(axis=1) for part, _, hit in parts])
    gaps = np.abs(shares - np.array([[stated[part].mean()] for part, stated, _ in parts]))
    of_all = np.repeat([hit.mean(axis=1) for _, hit in hits[:-1]], n_bins, axis=0)
    explained = ((shares[:-n_bins] - of_all) ** 2).sum(axis=0) / (of_all * (1 - of_all)).sum(axis=0)
    return Judged(gaps[:-n_bins].mean(axis=0), gaps[-n_bins:].mean(axis=0), explained)


def redrawn(p: NDArray[np.float64], draws: int, seed: int) -> NDArray[np.int64]:
    """(draws, n): labels drawn from their probabilities."""
    chosen = np.random.default_rng(seed).random((draws, len(p), 1))
    return np.asarray((chosen > p.cumsum(axis=1)[:, :-1]).sum(axis=2))


def usual(p: NDArray[np.float64], stated: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
    """(n,): of 21 draws of labels, the one nearest to the median in both errors of the stated probabilities.

    At least 5 other draws have a larger error of each kind, and 5 a smaller one: what happens to one draw in a hundred
    happens to this one less than once in 1e6 times.
    """
    draws = redrawn(p, 21, seed)
    found = judged(draws, stated)
    ranks = np.argsort(np.argsort([found.errors, found.top_label], axis=1), axis=1)
    return np.asarray(draws[np.abs(ranks - 10).max(axis=0).argmin()])
