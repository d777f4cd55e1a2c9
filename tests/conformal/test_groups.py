"""Calibration within groups against one calibration per group, and coverage within groups in simulation."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import norm

from dwac.conformal import (
    Calibration,
    CrossCalibration,
    GroupCalibration,
    IntervalCalibration,
    conditional,
)
from dwac.conformal.conditional import ConditionalThresholds
from dwac.errors import CalibrationWarning, InputError
from tests.named import refuses, warns

rng = np.random.default_rng(0)
SCORES, FOLDS, NEW = rng.normal(size=90), rng.integers(0, 5, 90), rng.normal(size=(8, 5, 3))
WITHIN = np.repeat(["a", "b", None], 30)
ASKED = ["a", None, "b", "b", "a", None, "a", "b"]


@pytest.fixture(autouse=True)
def few_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditional, "LEVELS", np.array([0.05, 0.1, 0.2, 0.55]))


def calibrations(rows: Any) -> list[Any]:
    return [Calibration(SCORES[rows]), CrossCalibration(SCORES[rows], FOLDS[rows])]


@pytest.mark.parametrize("crossed", [0, 1])
def test_groups_equal_separate_calibrations(crossed: int) -> None:
    by_group = GroupCalibration(WITHIN, lambda rows: calibrations(rows)[crossed])
    new = NEW if crossed else NEW[:, 0]
    found = by_group.of(ASKED).p_values(new)
    for row, name in enumerate(ASKED):
        alone = calibrations(np.flatnonzero(name == WITHIN))[crossed]
        np.testing.assert_array_equal(found[row], alone.p_values(new[[row]])[0])


@pytest.mark.parametrize("crossed", [0, 1])
def test_overlapping_groups_have_the_p_values_of_their_thresholds(crossed: int) -> None:
    names = [frozenset({"a", "b"}) if name == "b" else frozenset({name}) for name in WITHIN]
    several = GroupCalibration(names, lambda rows: calibrations(rows)[crossed])
    thresholds = ConditionalThresholds({each: SCORES[[name == each for name in names]] for each in set(names)})
    asked = [names[30], names[0], names[30], names[60], frozenset({"a", "unknown"})]
    new = NEW[:5] if crossed else NEW[:5, 0]
    p, one = several.of(asked).p_values(new), np.median(new, axis=1) if crossed else new
    np.testing.assert_array_equal(p, [thresholds.p_values(*pair) for pair in zip(one, asked, strict=True)])
    assert (p[-1] == 1).all()
    assert p[:-1].min() < 1
    if not crossed:
        in_numbers = IntervalCalibration(SCORES, names)
        asked = asked[:-1]  # an unknown group would warn
        for k in range(3):
            covered = one[:-1, k] <= in_numbers.score_at(0.2, asked)
            np.testing.assert_array_equal(covered, p[:-1, k] > 0.2)
            np.testing.assert_array_equal(in_numbers.p_values(one[:-1, k], asked), p[:-1, k])


def test_disjoint_groups_have_the_thresholds_of_each_alone() -> None:
    parts: Any = {frozenset({name}): SCORES[name == WITHIN] for name in ("a", "b", None)}
    alone = IntervalCalibration(SCORES, WITHIN)
    together = ConditionalThresholds(parts)
    for epsilon in conditional.LEVELS:
        found = [together.threshold(epsilon, groups) for groups in parts]
        np.testing.assert_allclose(found, alone.score_at(epsilon, ["a", "b", None]), atol=1e-7)


def test_thresholds_are_those_of_all_solutions_with_the_new_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full conformal prediction by its definition: for every score, all n + 1 examples in one program."""
    random = np.random.default_rng(3)
    names = [frozenset(random.choice(list("abc"), random.integers(1, 4), replace=False).tolist()) for _ in range(24)]
    scores = random.random(24).round(1)  # with ties
    tested = 0
    for epsilon in (0.15, 0.2, 0.4):
        monkeypatch.setattr(conditional, "LEVELS", np.array([epsilon]))
        for groups in map(frozenset, ("a", "ab", "abc")):
            parts = {each: scores[[name == each for name in names]] for each in set(names)}
            t = ConditionalThresholds(parts).threshold(epsilon, groups)
            for score in (t - 0.01, t + 0.01) if np.isfinite(t) else (9.0,):
                assert _must_miss(epsilon, [*scores, score], [*names, groups]) == (score > t)
                tested += 1
    assert tested > 12


def test_scores_far_from_a_threshold_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    parts: Any = {frozenset(name): random.normal(size=150) * (1 + len(name)) for name in ("a", "ab", "bc", "c")}
    found: list[Any] = []
    for width in (1, 1_000):
        monkeypatch.setattr(conditional, "_NEAR", width)
        found.append([ConditionalThresholds(parts)._at_levels(frozenset(name)) for name in ("b", "abc")])
    np.testing.assert_allclose(found[0], found[1], atol=1e-9)


def _must_miss(epsilon: float, scores: list[float], names: list[frozenset[str]]) -> bool:
    """Whether the last example is missed in every solution of the program of `conditional`."""
    s = np.array(scores)
    s = s / (1 + np.abs(s))
    members = np.array([[group in name for name in names] for group in "abc"], dtype=float)
    equal: dict[str, Any] = {"A_eq": members, "b_eq": epsilon * members.sum(axis=1), "bounds": (0, 1)}
    best = linprog(-s, **equal).fun
    least = linprog(np.eye(len(s))[-1], A_ub=[-s], b_ub=[best + 1e-9], **equal)
    return bool(least.fun > 1 - 1e-5)


def test_a_small_or_unknown_group_gets_every_label_and_is_named() -> None:
    by_group = GroupCalibration([*WITHIN, "few", "few"], lambda rows: Calibration(np.r_[SCORES, 0, 0][rows]))
    prediction = by_group.of(["a", "few", "new"]).predict(np.full((3, 2), 9.0))
    with warns(CalibrationWarning, "at least 9", "'few' has 2", "'new' has none"):
        assert prediction.label_sets(0.1).tolist() == [[False, False], [True, True], [True, True]]
    assert list(by_group.expected_sets(0.1).by_group or {}) == ["a", "b", None, "few"]
    with refuses(InputError, "within", "row 1"):
        by_group.of(["a", frozenset()]).p_values(np.zeros((2, 2)))


@pytest.mark.parametrize("draws", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_sets_cover_within_every_group_that_an_example_belongs_to(draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coverage given the thresholds is exact, and its mean over draws is at least 1 - ε in every group."""
    monkeypatch.setattr(conditional, "LEVELS", np.array([0.2]))
    random, combinations = np.random.default_rng(1), [frozenset({a, *b}) for a in "ns" for b in ("", "o", "op")]
    shares = np.array([0.3, 0.2, 0.1, 0.15, 0.05, 0.2])
    spread = np.array([3.0 if "s" in each else 1.0 for each in combinations])
    middle = np.array([1.0 * ("o" in each) + 2.0 * ("p" in each) for each in combinations])
    covered = np.empty((draws, 4))
    for draw in range(draws):
        kinds = random.choice(6, 79, p=shares)
        scores = middle[kinds] + spread[kinds] * random.normal(size=79)
        thresholds = ConditionalThresholds({each: scores[kinds == kind] for kind, each in enumerate(combinations)})
        up_to = np.array([thresholds.threshold(0.2, each) for each in combinations])
        each = norm.cdf((up_to - middle) / spread)
        here = np.array([[name in each for each in combinations] for name in "nsop"]) * shares
        covered[draw] = here @ each / here.sum(axis=1)
    mean, error = covered.mean(axis=0), covered.std(axis=0) / np.sqrt(draws)
    assert (mean > 0.8 - 4 * error).all()
    assert (mean < 0.8 + 4 / 16 + 4 * error).all()  # four groups, of 16 examples at least
