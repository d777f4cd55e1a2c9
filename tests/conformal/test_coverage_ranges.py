"""The range that `expected_sets` gives for a cross-fitted model holds nine of ten fits, and 5 % fall below it."""

import numpy as np
import pytest

from dwac.conformal.guarantees import coverage_range
from tools.coverage_ranges import EPSILONS, Source, coverages


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_range_of_rows_that_train_as_well_is_wider(epsilon: float) -> None:
    (low, high), (lower, higher) = coverage_range(epsilon, 100), coverage_range(epsilon, 100, crossed=True)
    assert lower < low < 1 - epsilon < high < higher


def test_simulation_repeats_itself() -> None:
    first, again = (coverages(Source(60, 5, 1.0), seed=3) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (np.diff(first) <= 0).all()
    assert first[0] > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("source", [Source(60, 10, 0.0), Source(60, 3, 3.0), Source(200, 5, 0.0), Source(200, 10, 1.0)])
def test_few_fits_fall_below_the_range(source: Source) -> None:
    found = np.array([coverages(source, seed) for seed in range(350)])
    low = np.array([coverage_range(epsilon, source.n, crossed=True)[0] for epsilon in EPSILONS])
    assert (found.mean(axis=0) > 1 - np.array(EPSILONS) - 0.01).all()
    # 17.5 of 350 are expected, more than 42 once in ten million simulations.
    assert ((found < low).sum(axis=0) <= 42).all()
