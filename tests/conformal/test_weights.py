"""Weighted calibration against its definition, and coverage under a shift whose density ratio is known."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from dwac.conformal import Calibration, CrossCalibration, CrossIntervalCalibration, IntervalCalibration
from dwac.conformal.weights import ExampleCalibration, ExampleWeights, effective_size

rng = np.random.default_rng(0)
SCORES, FOLDS = rng.random(40), rng.integers(0, 2, 40)
WEIGHTS = ExampleWeights(rng.exponential(size=40), rng.exponential(size=5))
RARE = 1e-4


def constant(scores: Any) -> Any:
    return lambda _: scores


@pytest.mark.parametrize("by_class", [False, True])
def test_p_values_are_shares_of_weights(by_class: bool) -> None:
    labels, new = rng.integers(0, 2, 40) if by_class else None, rng.random((5, 2, 2))
    whole = CrossCalibration(SCORES, FOLDS, labels, tolerance=1e-3)
    found = ExampleCalibration(whole, constant(SCORES), FOLDS, labels, WEIGHTS).p_values(new)
    for row, own in enumerate(WEIGHTS.new):
        for label in range(2):
            among = [i for i in range(40) if labels is None or labels[i] == label]
            hit = sum(WEIGHTS.calibration[i] for i in among if SCORES[i] >= new[row, FOLDS[i], label] - 1e-3)
            assert found[row, label] == pytest.approx((hit + own) / (WEIGHTS.calibration[among].sum() + own))
    equal = ExampleCalibration(whole, constant(SCORES), FOLDS, labels, ExampleWeights(np.ones(40), np.ones(5)))
    np.testing.assert_allclose(equal.p_values(new), whole.p_values(new))
    assert equal.n_calibration(2).tolist() == whole.n_calibration(2).tolist()


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 0.6])
def test_intervals_hold_the_numbers_with_p_values_above_epsilon(epsilon: float) -> None:
    split = IntervalCalibration(SCORES)
    ends = split.score_at(epsilon, own=[SCORES] * 5, weights=WEIGHTS)
    for end, own in zip(ends, WEIGHTS.new, strict=True):
        tried = np.append(SCORES, 9.0)
        p = [(WEIGHTS.calibration[s <= SCORES].sum() + own) / (WEIGHTS.calibration.sum() + own) for s in tried]
        kept = tried[np.array(p) > epsilon]
        assert end == (np.inf if 9.0 in kept else kept.max())
    crossed, numbers = CrossIntervalCalibration(SCORES, FOLDS), np.linspace(-6, 6, 4801)
    lows = rng.normal(size=(5, 40))
    highs = lows + rng.random((5, 40))
    found = crossed.ends(lows, highs, epsilon, weights=WEIGHTS)
    for row, own in enumerate(WEIGHTS.new):
        inside = (lows[row] <= numbers[:, None]) & (numbers[:, None] <= highs[row])
        p = (inside @ WEIGHTS.calibration + own) / (WEIGHTS.calibration.sum() + own)
        kept = numbers[p > epsilon]
        if np.isfinite(found[row]).all() and len(kept):
            assert found[row, 0] <= kept.min() <= found[row, 0] + 0.01
            assert found[row, 1] - 0.01 <= kept.max() <= found[row, 1]
        assert np.isinf(found[row]).all() == (own / (WEIGHTS.calibration.sum() + own) > epsilon)
    ones = ExampleWeights(np.ones(40), np.ones(5))
    np.testing.assert_allclose(crossed.ends(lows, highs, epsilon, weights=ones), crossed.ends(lows, highs, epsilon))


@pytest.mark.parametrize("draws", [1_500, pytest.param(30_000, marks=pytest.mark.slow)])
def test_the_true_ratio_restores_coverage_under_shift(draws: int) -> None:
    """x is uniform in calibration and has the density 2x among new rows, where scores are larger."""
    random, missed = np.random.default_rng(1), np.zeros(2)
    for _ in range(draws):
        x, new = random.random(99), np.sqrt(random.random(1))
        scores, own = x**2 + random.random(99) * x, new**2 + random.random(1) * new
        whole = Calibration(scores)
        weighted = ExampleCalibration(
            whole, constant(scores), np.zeros(99, dtype=int), None, ExampleWeights(2 * x, 2 * new)
        )
        missed += [each.p_values(own[None])[0, 0] <= 0.1 for each in (weighted, whole)]
    assert binom.sf(missed[0] - 1, draws, 0.1) > RARE
    assert binom.sf(missed[1] - 1, draws, 0.1) < RARE
    assert effective_size(np.array([2.0, 2.0, 0.0])) == 2
