"""Calibration within groups against one calibration per group, and coverage within groups in simulation."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from dwac.conformal import (
    Calibration,
    CrossCalibration,
    CrossIntervalCalibration,
    GroupCalibration,
    IntervalCalibration,
)
from dwac.errors import CalibrationWarning, InputError
from tests.named import refuses, warns

RARE = 1e-4
rng = np.random.default_rng(0)
SCORES, FOLDS, NEW = rng.normal(size=90), rng.integers(0, 5, 90), rng.normal(size=(8, 5, 3))
WITHIN = np.repeat(["a", "b", None], 30)
ASKED = ["a", None, "b", "b", "a", None, "a", "b"]


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
    overlapping = [frozenset({"a", "b"}) if name == "b" else frozenset({name}) for name in WITHIN]
    several = GroupCalibration(overlapping, lambda rows: calibrations(rows)[crossed])
    members = [np.flatnonzero((WITHIN == "a") | (WITHIN == "b")), np.flatnonzero(WITHIN == "b")]
    every = [calibrations(rows)[crossed].p_values(new) for rows in members]
    np.testing.assert_array_equal(several.of([frozenset({"a", "b"})] * len(new)).p_values(new), np.maximum(*every))


def test_intervals_of_overlapping_groups_hold_those_of_each() -> None:
    scores = np.abs(SCORES)
    within = [frozenset({"a", "b"}) if name == "b" else frozenset({name}) for name in WITHIN]
    both = [frozenset({"a", "b"})] * 4
    split, crossed = IntervalCalibration(scores, within), CrossIntervalCalibration(scores, FOLDS, within)
    assert split.score_at(0.1, both)[0] == max(split.score_at(0.1, [frozenset({name})])[0] for name in "ab")
    lows, highs = -rng.random((4, 90)), rng.random((4, 90))
    ends = [crossed.ends(lows, highs, 0.1, [frozenset({name})] * 4) for name in "ab"]
    expected = np.stack([np.minimum(ends[0][:, 0], ends[1][:, 0]), np.maximum(ends[0][:, 1], ends[1][:, 1])], axis=1)
    np.testing.assert_array_equal(crossed.ends(lows, highs, 0.1, both), expected)


def test_a_small_or_unknown_group_gets_every_label_and_is_named() -> None:
    by_group = GroupCalibration([*WITHIN, "few", "few"], lambda rows: Calibration(np.r_[SCORES, 0, 0][rows]))
    prediction = by_group.of(["a", "few", "new"]).predict(np.full((3, 2), 9.0))
    with warns(CalibrationWarning, "at least 9", "'few' has 2", "'new' has none"):
        assert prediction.label_sets(0.1).tolist() == [[False, False], [True, True], [True, True]]
    assert list(by_group.expected_sets(0.1).by_group or {}) == ["a", "b", None, "few"]
    with refuses(InputError, "within", "row 1"):
        by_group.of(["a", frozenset()]).p_values(np.zeros((2, 2)))


@pytest.mark.parametrize("draws", [2_000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_sets_cover_within_every_group_that_an_example_belongs_to(draws: int) -> None:
    random, missed = np.random.default_rng(1), {name: [0, 0] for name in ("north", "south", "old")}
    for _ in range(draws):
        south, old = random.random(60) < 0.4, random.random(60) < 0.5
        names = zip(np.where(south, "south", "north").tolist(), old.tolist(), strict=True)
        within = [frozenset({name, "old"} if elder else {name}) for name, elder in names]
        scores = random.normal(size=60) * np.where(south, 3, 1) + old
        by_group = GroupCalibration(within[:-1], lambda rows, own=scores: Calibration(own[rows]))  # type: ignore[misc]
        covered = by_group.of(within[-1:]).p_values(scores[-1:, None])[0, 0] > 0.2
        for name in within[-1]:
            missed[name][0] += not covered
            missed[name][1] += 1
    for wrong, n in missed.values():
        assert binom.sf(wrong - 1, n, 0.2) > RARE
