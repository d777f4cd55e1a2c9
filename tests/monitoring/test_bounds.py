"""Bounds on means of losses: they hold at all times, notice a late change, and need counts alone."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from dwac.monitoring.bounds import BLOCK, Losses, bounds, cells_of, count_cells, log_evidence
from tests.chance import RARE

LAWS: dict[str, Any] = {
    "rare errors": (lambda rng, shape: (rng.random(shape) < 0.05).astype(float), 0.05),
    "shares": (lambda rng, shape: rng.beta(0.5, 1.5, shape), 0.25),
    "half": (lambda rng, shape: rng.choice([0.0, 0.3, 1.0], shape, p=[0.35, 0.3, 0.35]), 0.44),
}


def ever_wrong(law: str, streams: int, rows: int, alpha: float, looks: int) -> tuple[int, int]:
    """In how many streams the lower bound, and the upper one, excluded the true mean at some look."""
    draw, mean = LAWS[law]
    losses = draw(np.random.default_rng(0), (streams, rows))
    wrong = np.zeros((2, streams), dtype=bool)
    for stream, own in enumerate(losses):
        counts = count_cells([])
        for part in np.array_split(own, looks):
            counts += count_cells(part)
            for side, above in enumerate((True, False)):
                wrong[side, stream] |= log_evidence(counts, mean, above=above) >= np.log(2 / alpha)
    return int(wrong[0].sum()), int(wrong[1].sum())


@pytest.mark.parametrize("law", ["rare errors", "shares"])
def test_bounds_hold_at_all_times(law: str) -> None:
    for wrong in ever_wrong(law, 120, 300, 0.2, 30):
        assert wrong <= binom.isf(RARE, 120, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("law", list(LAWS))
def test_bounds_hold_at_all_times_in_long_streams(law: str) -> None:
    for wrong in ever_wrong(law, 500, 2000, 0.2, 60):
        assert wrong <= binom.isf(RARE, 500, 0.1)
    draw, mean = LAWS[law]
    for losses in draw(np.random.default_rng(1), (20, 2000)):
        low, high = bounds(count_cells(losses), 0.2)
        assert mean / 2 < low < high < 2 * mean  # they hold, and not because they are wide


def test_a_bound_is_where_the_evidence_is_enough_and_has_the_mean_inside() -> None:
    counts = count_cells([0.0] * 80 + [1.0] * 20)
    low, high = bounds(counts, 0.05)
    assert 0.08 < low < 0.2 < high < 0.36
    assert log_evidence(counts, low) == pytest.approx(np.log(40), abs=1e-3)
    assert log_evidence(counts, high, above=False) == pytest.approx(np.log(40), abs=1e-3)
    assert bounds(count_cells([]), 0.05) == (0.0, 1.0)
    assert bounds(count_cells([0.0] * 50), 0.05)[0] == 0.0
    assert log_evidence(counts, 0.0) == np.inf
    assert log_evidence(counts, 1.0) == 0.0


def test_losses_between_points_of_the_grid_count_as_the_lower_one_below_and_as_the_upper_one_above() -> None:
    assert cells_of([0.0, 1.0, 0.5, 0.5001]).tolist() == [0, 512, 256, 257]
    low, high = bounds(count_cells([0.5001] * 10_000), 0.05)
    assert low < 0.5 < 0.5 + 1 / 256 < high
    exact = bounds(count_cells([0.5] * 10_000), 0.05)
    assert low == exact[0]
    assert high > exact[1]


def feed(losses: Losses, values: Any) -> None:
    for _ in losses.add(np.asarray(values, dtype=np.float64)):
        pass


def test_later_accounts_are_few_of_all_ages_and_their_parts_are_counted_once() -> None:
    losses = Losses()
    feed(losses, np.zeros(100 * BLOCK + 7))
    accounts = losses.accounts()
    ages = [losses.n - each.first for each in accounts]
    assert ages[0] == losses.n
    assert [each.counts.sum() for each in accounts] == ages
    assert ages[-1] == 7
    assert 10 < len(accounts) < 25
    assert max(a / b for a, b in pairwise(ages[1:-1])) <= 2.1
    assert sum(0.5 / (k * (k + 1)) for k in range(1, 10_000)) + 0.5 <= 1.0
    again = Losses.from_dict(json.loads(json.dumps(losses.to_dict())))
    assert [a.counts.tolist() for a in again.accounts()] == [a.counts.tolist() for a in accounts]


def test_a_late_change_is_found_by_a_later_account() -> None:
    rng, losses = np.random.default_rng(0), Losses()
    feed(losses, rng.random(10_000) < 0.05)
    feed(losses, rng.random(400) < 0.25)
    evidence = [log_evidence(each.counts, 0.1) + np.log(each.weight) for each in losses.accounts()]
    assert evidence[0] < 0
    assert max(evidence) > np.log(1000)
