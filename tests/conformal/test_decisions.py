"""Decisions with few errors among them keep their bound, and strangers their rate, whatever the probabilities."""

import numpy as np
import pytest
from scipy import stats

from dwac.conformal import RiskControl, strange
from dwac.conformal.decisions import smallest_decided
from dwac.errors import EpsilonError, InputError
from tests.chance import RARE
from tests.named import refuses

# P(loss) given the expected loss e: as expected, higher, and higher in the middle alone.
TRUTHS = {
    "calibrated": lambda e: e,
    "too sure": lambda e: np.minimum(1.8 * e + 0.01, 1.0),
    "not monotone": lambda e: np.where((e > 0.05) & (e < 0.15), 0.25, 0.1 * e),
}


def broken(truth: str, runs: int, n: int, risk: float) -> int:
    """How often the true risk among decided rows is above the allowed one."""
    rng = np.random.default_rng(0)
    grid = np.sort(rng.beta(0.4, 2.5, 100_000))
    mean_risk = np.cumsum(TRUTHS[truth](grid)) / np.arange(1, len(grid) + 1)
    count = 0
    for _ in range(runs):
        e = rng.beta(0.4, 2.5, n)
        rule = RiskControl(e, rng.random(n) < TRUTHS[truth](e)).rule(risk)
        decided = int(np.searchsorted(grid, rule.threshold, side="right"))
        count += decided > 0 and mean_risk[decided - 1] > risk
    return count


@pytest.mark.parametrize("truth", TRUTHS)
def test_the_risk_is_kept_as_often_as_promised(truth: str) -> None:
    assert broken(truth, 300, 400, 0.1) <= stats.binom.isf(RARE, 300, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize(("n", "risk"), [(150, 0.1), (400, 0.05), (2000, 0.05)])
def test_the_risk_is_kept_as_often_as_promised_with_any_number_of_rows(truth: str, n: int, risk: float) -> None:
    assert broken(truth, 3000, n, risk) <= stats.binom.isf(RARE, 3000, 0.1)


def test_most_rows_are_decided_where_errors_can_be_expected() -> None:
    rng = np.random.default_rng(0)
    e = rng.beta(0.4, 2.5, 2000)
    rule = RiskControl(e, rng.random(2000) < e).rule(0.1)
    possible = int((np.cumsum(np.sort(e)) / np.arange(1, 2001) <= 0.1).sum())  # if all were known
    assert 0.9 * possible < rule.decided < possible
    assert rule.losses / rule.decided < rule.bound <= 0.1


def test_a_rule_decides_the_rows_up_to_its_threshold() -> None:
    e, lost = np.repeat([0.01, 0.4], 200), np.repeat([0, 1], [380, 20])
    rule = RiskControl(e, lost).rule(0.05)
    assert (rule.decided, rule.losses) == (200, 0)
    assert 0.01 <= rule.threshold < 0.4
    assert rule.share == 0.5


def test_as_many_rows_as_are_needed_are_enough() -> None:
    n = smallest_decided(0.05)
    assert RiskControl(np.zeros(n), np.zeros(n)).rule(0.05).decided == n
    none = RiskControl(np.zeros(n - 1), np.zeros(n - 1)).rule(0.05)
    assert none.decided == 0
    assert none.threshold == -np.inf
    assert f"at least {n}" in str(none)


def test_ties_are_decided_together_and_all_or_none() -> None:
    assert RiskControl(np.full(300, 0.2), np.arange(300) < 3).rule(0.05).decided == 300
    assert RiskControl(np.full(300, 0.2), np.arange(300) < 30).rule(0.05).decided == 0


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InputError, match="calibration rows"):
        RiskControl([], [])
    for risk in (1.5, "5 %"):
        with refuses(EpsilonError, "risk", risk, "(0, 1)", "decided") as caught:
            RiskControl([0.1], [0]).rule(risk)  # type: ignore[arg-type]
        assert "sets" not in str(caught.value)


def test_strangers_are_those_of_benjamini_and_hochberg() -> None:
    p = np.array([0.9, 0.001, np.nan, 0.03, 0.02, 0.5])
    known = np.sort(p[~np.isnan(p)])
    passed = known <= 0.1 * np.arange(1, 6) / 5
    assert strange(p, 0.1).tolist() == (p <= known[np.flatnonzero(passed)[-1]]).tolist()
    assert not strange([np.nan], 0.1).any()


def test_familiar_rows_are_rarely_called_strange() -> None:
    """Without strangers, the chance of a list that is not empty is at most the rate."""
    rng, runs = np.random.default_rng(0), 400
    listed = 0
    for _ in range(runs):
        calibration, rows = np.sort(rng.random(99)), rng.random(20)
        listed += bool(strange((100 - np.searchsorted(calibration, rows)) / 100, 0.2).any())
    assert 0 < listed <= stats.binom.isf(RARE, runs, 0.2)
