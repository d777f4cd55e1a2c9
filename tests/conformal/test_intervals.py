"""Conformal intervals against loops over a grid, exact laws of coverage, and Hypothesis."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dwac._checks import percent
from dwac.conformal import (
    CrossCalibration,
    CrossIntervalCalibration,
    IntervalCalibration,
    distance_beyond,
    extended_range,
    tail_scores,
    tails_of,
)
from dwac.conformal.guarantees import allowed_misses
from dwac.errors import CalibrationWarning, EpsilonError, InputError, NonFiniteError, ShapeError
from tests.chance import Z_RARE, assert_as_often, assert_beta_binomial
from tests.conformal.helpers import Floats, first_covering_rank, relaxed
from tests.named import named, refuses, warns

epsilons = st.floats(0.001, 0.999)


def shares_of(y: Any, targets: Any, weights: Any) -> tuple[Floats, Floats]:
    """Logs of the shares of weighted votes with a target ≤ y and ≥ y, for every y; weights (m,) or (n, m)."""
    one, total = np.ravel(y)[:, None], np.sum(weights, axis=-1)
    with np.errstate(divide="ignore"):
        at_most, at_least = (np.log((held * weights).sum(axis=1) / total) for held in (targets <= one, targets >= one))
    return np.minimum(at_most, 0), np.minimum(at_least, 0)  # sums in another order differ by rounding


def scores_of(y: Any, targets: Any, weights: Any) -> Floats:
    """The scores of numbers against the votes of one row, or each against its own."""
    return tail_scores(*shares_of(y, targets, weights), distance_beyond(y, targets.min(), targets.max()))


def interval_of(score: float, targets: Any, weights: Any) -> tuple[float, float]:
    """{y : score(y) ≤ s} from the definition of `tails_of`: between two targets, or beyond all of them."""
    log_tail, beyond = tails_of(score)
    if beyond > 0 or np.isneginf(log_tail):
        low, high = extended_range(targets.min(), targets.max(), beyond)
        return float(low), float(high)
    at_most, at_least = shares_of(targets, targets, weights)
    # Sums of the same weights in another order differ by rounding.
    return float(targets[at_most >= log_tail - 1e-12].min()), float(targets[at_least >= log_tail - 1e-12].max())


# --- scores


def test_scores_grow_from_the_median_outwards_and_beyond_the_targets() -> None:
    targets, weights = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 2.0, 1.0])
    y = np.array([2.5, 3.5, 4.0, 4.3, 7.0, np.inf])
    scores = scores_of(y, targets, weights)
    t = np.log(3)  # one sixth of the votes is at 4 or above
    np.testing.assert_allclose(scores, [0, t / (1 + t), t / (1 + t), 1.1, 2.0, np.inf], rtol=1e-12)


def test_the_score_of_a_number_that_most_votes_name_is_zero_not_negative() -> None:
    assert tail_scores(np.log(0.9), np.log(0.8)) == 0
    assert tail_scores(0.0, 0.0) == 0


def test_only_the_smaller_tail_counts_and_the_distance_only_outside() -> None:
    assert tail_scores(np.log(0.1), np.log(0.95)) == tail_scores(np.log(0.99), np.log(0.1), beyond=7.0)
    assert tail_scores(0.0, -np.inf) == 1
    assert tail_scores(0.0, -np.inf, np.inf) == np.inf
    assert tail_scores(-np.inf, 0.0, 1e-30) > 1


@relaxed
@given(st.lists(st.floats(-1e9, 0), min_size=2, max_size=20))
def test_scores_keep_the_order_of_tails_and_stay_below_those_outside(logs: list[float]) -> None:
    ordered = np.sort(logs)
    scores = tail_scores(ordered, np.zeros(len(ordered)))
    assert (np.diff(scores) <= 0).all()
    assert (scores >= 0).all()
    assert (scores < 1).all()


@relaxed
@given(st.lists(st.floats(-1e12, 0), min_size=1, max_size=20))
def test_a_tail_is_inside_the_set_of_its_own_score(logs: list[float]) -> None:
    tails, beyond = tails_of(tail_scores(logs, 0.0))
    assert (tails <= np.array(logs)).all()
    assert (beyond == 0).all()
    near = np.array(logs)[np.array(logs) > -20]  # beyond that 1 - t / (1 + t) loses digits
    np.testing.assert_allclose(tails_of(tail_scores(near, 0.0))[0], np.minimum(near, -np.log(2)), rtol=1e-12)


@relaxed
@given(*[st.floats(-(2.0**99), 2.0**99, width=32)] * 3)
def test_a_number_is_inside_the_set_of_its_own_score_however_far_outside(y: float, one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    beyond = distance_beyond(y, low, high)
    assert beyond >= 0
    assert (beyond > 0) == (y < low or y > high)
    log_tail, found = tails_of(tail_scores(-np.inf, 0.0, beyond))
    start, end = extended_range(low, high, found)
    assert np.isneginf(log_tail)
    assert start <= y <= end
    if beyond == 0:
        assert [start, end] == [low, high]
    elif np.isfinite(beyond):
        assert min(abs(start - y), abs(end - y)) <= 1e-13 * max(abs(y), high - low)


def test_constant_targets_have_no_unit_so_every_other_number_is_infinitely_far() -> None:
    assert distance_beyond([3.0, 3.1, -np.inf], 3.0, 3.0).tolist() == [0, np.inf, np.inf]
    for beyond, ends in ((0.0, (3.0, 3.0)), (5.0, (3.0, 3.0)), (np.inf, (-np.inf, np.inf))):
        assert tuple(map(float, extended_range(3.0, 3.0, beyond))) == ends


def test_the_widest_targets_do_not_overflow() -> None:
    most = np.finfo(float).max
    assert distance_beyond([0.0, most, np.inf], -most, most).tolist() == [0, 0, np.inf]
    assert tuple(map(float, extended_range(-most, most, 3.0))) == (-np.inf, np.inf)


# --- the score to cut at


@pytest.mark.parametrize("n", [1, 2, 5, 19, 20, 39, 100])
@pytest.mark.parametrize("epsilon", [0.05, 0.1, 0.2, 0.5, 0.9])
@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_the_score_is_the_order_statistic_of_the_definition(n: int, epsilon: float) -> None:
    scores = np.random.default_rng(n).permutation(np.arange(1.0, n + 1))
    rank = first_covering_rank(n, str(epsilon))
    found = IntervalCalibration(scores).score_at(epsilon)
    assert found.shape == ()
    assert found == (rank if rank <= n else np.inf)


@relaxed
@given(st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0, 1.5, np.inf]), min_size=1, max_size=40), epsilons)
@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_a_score_is_in_the_set_if_and_only_if_its_p_value_is_above_epsilon(scores: Any, epsilon: float) -> None:
    for tolerance in (0.0, 0.01):
        calibration = IntervalCalibration(scores, tolerance=tolerance)
        asked = np.array([0.0, 0.05, 0.1, 0.105, 0.3, 0.5, 0.9, 0.91, 0.95, 1.0, 1.005, 1.2, 1.5, 9.0, np.inf])
        np.testing.assert_array_equal(asked <= calibration.score_at(epsilon), calibration.p_values(asked) > epsilon)


@relaxed
@given(st.integers(1, 3000), epsilons)
def test_allowed_misses_agree_with_p_values_whatever_the_rounding(n: int, epsilon: float) -> None:
    c = allowed_misses(epsilon, n)
    assert c / (n + 1) <= epsilon < (c + 1) / (n + 1)


def test_intervals_are_nested_in_epsilon() -> None:
    calibration = IntervalCalibration(np.random.default_rng(0).random(200))
    found = [float(calibration.score_at(epsilon)) for epsilon in (0.01, 0.05, 0.1, 0.3, 0.9)]
    assert found == sorted(found, reverse=True)


def test_tolerance_counts_near_scores_as_equal_but_never_leaves_the_range_of_targets() -> None:
    calibration = IntervalCalibration([0.2, 1 - 1e-9, 1.5], tolerance=1e-6)
    np.testing.assert_array_equal(calibration.scores, [0.2 + 1e-6, 1.0, 1.5 + 1e-6])
    assert calibration.p_values([1.0, 1 + 1e-7, 1.5 + 5e-7, 1.6]).tolist() == [0.75, 0.5, 0.5, 0.25]


def test_too_few_scores_give_an_infinite_score_and_say_how_many_are_needed() -> None:
    with warns(CalibrationWarning, 19, 18):
        assert IntervalCalibration(np.zeros(18)).score_at(0.05) == np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert IntervalCalibration(np.zeros(19)).score_at(0.05) == 0
        assert IntervalCalibration([0.3]).score_at(0.5) == 0.3  # one score is enough for one half


def test_the_warning_points_at_the_calling_line() -> None:
    with pytest.warns(CalibrationWarning) as by_score:
        IntervalCalibration([0.1]).score_at(0.1)
    with pytest.warns(CalibrationWarning) as by_ends:
        CrossIntervalCalibration([0.1, 0.2], [0, 1]).ends(np.zeros((1, 2)), np.ones((1, 2)), 0.1)
    assert [w.filename for w in [*by_score, *by_ends]] == [__file__, __file__]


def test_groups_have_scores_of_their_own_and_an_unknown_group_has_none() -> None:
    scores = np.concatenate([np.arange(1.0, 20), np.arange(101.0, 120), [7.0]])
    groups = ["a"] * 19 + [("b", 1)] * 19 + [3]
    calibration = IntervalCalibration(scores, groups)
    assert calibration.n_calibration == {"a": 19, ("b", 1): 19, 3: 1}
    assert calibration.score_at(0.1, ["a", ("b", 1), "a"]).tolist() == [18, 118, 18]
    assert calibration.p_values([10.0, 110.0, 1e9, 5.0], ["a", ("b", 1), 3, "?"]).tolist() == [0.55, 0.55, 0.5, 1]
    with warns(CalibrationWarning, 9, "group 3 has 1", "group '?' has none"):
        assert calibration.score_at(0.1, [3, "a", "?"]).tolist() == [np.inf, 18, np.inf]
    assert calibration.score_at(0.1, []).shape == (0,)


def test_group_names_of_numpy_and_python_are_the_same() -> None:
    calibration = IntervalCalibration(np.arange(38.0), np.repeat(np.array(["x", "y"]), 19))
    assert calibration.score_at(0.05, ["x"]) == 18
    assert IntervalCalibration(np.arange(19.0), np.zeros(19, int)).score_at(0.05, [0]) == 18


def test_expected_intervals_are_said_in_words() -> None:
    expected = IntervalCalibration(np.arange(99.0)).expected(0.1)
    low, high = stats.beta.ppf([0.05, 0.95], 90, 10)
    np.testing.assert_allclose(expected.coverage_range, (low, high))
    assert named(expected, 99, "epsilon=0.1", percent(low), percent(high))
    few = IntervalCalibration(np.arange(8.0), [0, 0, 0, 1, 1, 1, 1, 1]).expected(0.1)
    assert named(few, 3, "group", "epsilon=0.1", "infinite", 9)


# --- the guarantee


def draw_rows(rng: np.random.Generator, kind: str, n: int, m: int = 25) -> tuple[Floats, Floats, Floats]:
    """n rows: numbers y, and votes on each: the targets (m,) of one reference set with weights (n, m)."""
    draws: dict[str, Any] = {"smooth": rng.normal, "ties": lambda size: rng.poisson(1.0, size) * 1.0}
    draw = draws.get(kind, rng.standard_cauchy)
    return draw(size=n), draw(size=m), rng.exponential(size=(n, m)) ** 3


SIZES = [(5, "0.2"), (19, "0.05"), (20, "0.1"), (100, "0.1"), (100, "0.5")]


@pytest.mark.parametrize(
    ("kind", "n_cal", "epsilon"),
    [
        pytest.param(kind, *size, marks=[pytest.mark.slow] * ((place, kind) not in [(0, "smooth"), (3, "heavy")]))
        for place, size in enumerate(SIZES)
        for kind in ("smooth", "heavy")
    ],
)
def test_coverage_follows_the_beta_binomial_law(kind: str, n_cal: int, epsilon: str) -> None:
    rng, n_test = np.random.default_rng(n_cal), 60
    covered, k = np.zeros(1000, dtype=np.int64), first_covering_rank(n_cal, epsilon)
    for repetition in range(len(covered)):
        scores = scores_of(*draw_rows(rng, kind, n_cal + n_test))
        score = IntervalCalibration(scores[:n_cal]).score_at(float(epsilon))
        covered[repetition] = (scores[n_cal:] <= score).sum()
    if float(epsilon) < 0.5:  # at the median scores of 0 tie
        assert_beta_binomial(covered, n_test, k, n_cal, seed=n_cal)
    assert_as_often(covered, n_test, k, n_cal)


@pytest.mark.parametrize(
    ("n_cal", "epsilon"),
    [(5, "0.2"), (20, "0.1"), *(pytest.param(*size, marks=pytest.mark.slow) for size in [(19, "0.05"), (100, "0.2")])],
)
def test_tied_numbers_are_covered_at_least_as_often_and_intervals_hold_what_their_scores_say(
    n_cal: int, epsilon: str
) -> None:
    rng, n_test = np.random.default_rng(n_cal), 20
    covered = np.zeros(600)
    for repetition in range(len(covered)):
        y, targets, weights = draw_rows(rng, "ties", n_cal + n_test)
        scores = scores_of(y, targets, weights)
        score = float(IntervalCalibration(scores[:n_cal], tolerance=1e-9).score_at(float(epsilon)))
        covered[repetition] = (scores[n_cal:] <= score).sum()
        if repetition < 150:
            ends = np.array([interval_of(score, targets, row) for row in weights[n_cal:]])
            inside = (ends[:, 0] <= y[n_cal:]) & (y[n_cal:] <= ends[:, 1])
            np.testing.assert_array_equal(inside, scores[n_cal:] <= score)
    assert_as_often(covered, n_test, first_covering_rank(n_cal, epsilon), n_cal)


def test_every_group_is_covered_by_its_own_beta_binomial_law() -> None:
    rng, sizes, n_test, spreads = np.random.default_rng(0), (19, 60), 40, (1.0, 8.0)
    groups, asked = np.repeat(["calm", "wild"], sizes), np.repeat(["calm", "wild"], n_test)
    targets, votes = np.linspace(-6, 6, 100), np.ones(100)
    covered = np.zeros((750, 2), dtype=np.int64)
    for repetition in range(len(covered)):
        y, new = (rng.normal(size=len(g)) * np.where(g == "calm", *spreads) for g in (groups, asked))
        calibration = IntervalCalibration(scores_of(y, targets, votes), groups)
        inside = scores_of(new, targets, votes) <= calibration.score_at(0.05, asked)
        covered[repetition] = inside.reshape(2, n_test).sum(axis=1)
    assert_beta_binomial(covered[:, 1], n_test, first_covering_rank(60, "0.05"), 60, seed=1)
    # The calm group's scores are tied: shares of 100 votes.
    assert_as_often(covered[:, 0], n_test, first_covering_rank(19, "0.05"), 19)


# --- cross-conformal intervals


def p_on_a_grid(lows: Any, highs: Any, grid: Any) -> Floats:
    """(grid,): p(y) by its definition, one comparison at a time."""
    return np.array([(1 + sum(a <= y <= b for a, b in zip(lows, highs, strict=True))) / (len(lows) + 1) for y in grid])


def hull_on_a_grid(lows: Any, highs: Any, epsilon: float) -> tuple[float, float]:
    """The hull of {y : p(y) > ε}, or of those with the largest p, on a grid with every end and what is between."""
    ends = np.unique(np.concatenate([lows, highs]))
    finite = ends[np.isfinite(ends)]
    between = (finite[1:] + finite[:-1]) / 2
    outer = [finite.min() - 1, finite.max() + 1] if len(finite) else [0.0]
    grid = np.unique(np.concatenate([ends, between, outer]))
    p = p_on_a_grid(lows, highs, grid)
    held = grid[(p > epsilon) | (p == p.max())] if p.max() <= epsilon else grid[p > epsilon]
    return float(held.min()), float(held.max())


ends_of_sets = st.one_of(st.integers(-4, 4).map(float), st.sampled_from([-np.inf, np.inf]))


@settings(max_examples=80)
@given(
    st.lists(st.tuples(ends_of_sets, ends_of_sets), min_size=1, max_size=14),
    epsilons,
)
@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_ends_are_the_hull_of_the_definition(pairs: Any, epsilon: float) -> None:
    lows, highs = np.array([sorted(pair) for pair in pairs]).T
    # (inf, inf) holds no number; sets of numbers begin before inf and end after -inf.
    lows, highs = np.where(lows == np.inf, 9.0, lows), np.where(highs == -np.inf, -9.0, highs)
    n = len(lows)
    calibration = CrossIntervalCalibration(np.zeros(n), np.arange(n) % 3)
    (found,) = calibration.ends(lows[None], highs[None], epsilon)
    assert not np.isnan(found).any()
    if allowed_misses(epsilon, n) == 0:
        assert found.tolist() == [-np.inf, np.inf]
    else:
        assert tuple(found) == hull_on_a_grid(lows, highs, epsilon)


def test_rows_are_answered_alike_alone_and_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(50, 40)) * 3
    lows, highs = centres - rng.random((50, 40)), centres + rng.random((50, 40))
    calibration = CrossIntervalCalibration(rng.random(40), np.arange(40) % 5)
    together = calibration.ends(lows, highs, 0.3)
    np.testing.assert_array_equal(
        together, np.concatenate([calibration.ends(a[None], b[None], 0.3) for a, b in zip(lows, highs, strict=True)])
    )
    np.testing.assert_array_equal(together, [hull_on_a_grid(a, b, 0.3) for a, b in zip(lows, highs, strict=True)])
    monkeypatch.setattr("dwac.conformal.intervals._AT_ONCE", 120)  # three rows at a time
    np.testing.assert_array_equal(together, calibration.ends(lows, highs, 0.3))
    np.testing.assert_array_equal(together, calibration.ends(highs, lows, 0.3))  # the wrong order is put right


def test_contradicting_folds_give_the_numbers_that_most_of_them_hold_not_an_empty_interval() -> None:
    lows, highs = np.array([[0.0, 0.5, 10.0, 20.0]]), np.array([[1.0, 2.0, 11.0, 21.0]])
    calibration = CrossIntervalCalibration(np.zeros(4), [0, 1, 2, 3])
    assert calibration.ends(lows, highs, 0.6).tolist() == [[0.5, 1.0]]
    assert calibration.ends(lows, highs, 0.3).tolist() == [[0.0, 21.0]]


def test_too_few_examples_give_everything_and_say_so_by_group_too() -> None:
    lows, highs = np.zeros((3, 4)), np.ones((3, 4))
    with warns(CalibrationWarning, 9, 4):
        assert np.isinf(CrossIntervalCalibration(np.zeros(4), [0, 0, 1, 1]).ends(lows, highs, 0.1)).all()
    grouped = CrossIntervalCalibration(np.zeros(4), [0, 0, 1, 1], ["a", "a", "a", "b"])
    lows[:, 3] = -5
    with warns(CalibrationWarning, "group 'b' has 1", "group 'c' has none"):
        found = grouped.ends(lows, highs, 0.3, ["a", "b", "c"])
    assert found.tolist() == [[0, 1], [-np.inf, np.inf], [-np.inf, np.inf]]
    assert grouped.ends(lows, highs, 0.5, ["a", "b", "b"]).tolist() == [[0, 1], [-5, 1], [-5, 1]]


def test_cross_p_values_and_guarantee_are_those_of_cross_calibration() -> None:
    rng = np.random.default_rng(0)
    scores, folds, asked = rng.random(60), np.arange(60) % 5, rng.random((20, 5))
    ours, theirs = CrossIntervalCalibration(scores, folds), CrossCalibration(scores, folds)
    np.testing.assert_array_equal(ours.p_values(asked), theirs.p_values(asked))
    assert ours.guarantee(0.1) == theirs.guarantee(0.1) == ours.expected(0.1).guarantee
    assert named(ours.expected(0.1), percent(ours.guarantee(0.1)))
    groups = np.where(np.arange(60) < 20, "a", "b")
    by_group, new = CrossIntervalCalibration(scores, folds, groups), ["a", "b"] * 10
    expected = [
        CrossCalibration(scores[groups == g], folds[groups == g]).p_values(asked[[i]]) for i, g in enumerate(new)
    ]
    np.testing.assert_array_equal(by_group.p_values(asked, new), np.concatenate(expected))
    parts = [CrossCalibration(scores[some], folds[some]) for some in (slice(20), slice(20, 60))]
    assert by_group.guarantee(0.1) == min(part.guarantee(0.1) for part in parts)


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 60])
def test_cross_conformal_intervals_cover_as_they_should(n: int) -> None:
    # The model of a fold votes with the targets outside it, equally: all new rows have the same interval.
    rng, epsilon, covered = np.random.default_rng(n), 0.2, np.zeros(600)
    folds, votes = np.arange(n) % 5, np.ones(n * 4 // 5)
    for repetition in range(len(covered)):
        y, new = rng.normal(size=n), rng.normal(size=30)
        voters = [y[folds != fold] for fold in range(5)]
        own = np.array([float(scores_of(one, voters[fold], votes)[0]) for one, fold in zip(y, folds, strict=True)])
        calibration = CrossIntervalCalibration(own, folds, tolerance=1e-9)
        sets = [interval_of(s, voters[fold], votes) for s, fold in zip(calibration.scores, folds, strict=True)]
        lows, highs = np.array(sets).T
        ((low, high),) = calibration.ends(lows[None], highs[None], epsilon)
        inside = (low <= new) & (new <= high)
        covered[repetition] = inside.mean()
        # Between the whole cross-conformal set and the interval of CV+, which takes each side by itself.
        by_fold = np.stack([scores_of(new, targets, votes) for targets in voters], axis=1)
        assert inside[calibration.p_values(by_fold) > epsilon].all()
        least = allowed_misses(epsilon, n)
        assert np.sort(lows)[least - 1] <= low <= high <= np.sort(highs)[-least]
    error = covered.std(ddof=1) / np.sqrt(len(covered))
    assert covered.mean() > 1 - epsilon - Z_RARE * error
    assert covered.mean() > calibration.guarantee(epsilon)
    assert np.isfinite([low, high]).all()


# --- bad input


@pytest.mark.parametrize(
    ("call", "error", "facts"),
    [
        (lambda: tail_scores(0.5, 0.0), InputError, ["log_at_most", 0, 0.5]),
        (lambda: tail_scores(np.nan, 0.0), NonFiniteError, ["log_at_most", "NaN"]),
        (lambda: tail_scores(-np.inf, 0.0, -1.0), InputError, ["beyond", 0, -1]),
        (lambda: tail_scores(-np.inf, 0.0, np.nan), NonFiniteError, ["beyond", "NaN"]),
        (lambda: tails_of(-0.1), InputError, [0, -0.1]),
        (lambda: distance_beyond(1.0, 2.0, 1.0), InputError, [2.0, 1.0]),
        (lambda: extended_range(-np.inf, 1.0, 0.0), InputError, ["finite"]),
        (lambda: IntervalCalibration([]), InputError, ["score"]),
        (lambda: IntervalCalibration([np.nan]), NonFiniteError, ["calibration scores", "NaN"]),
        (lambda: IntervalCalibration([1.0], ["a", "b"]), ShapeError, [1, 2]),
        (lambda: IntervalCalibration([1.0], [np.nan]), InputError, ["nan", "row 0"]),
        (
            lambda: IntervalCalibration([1.0], np.array([[1]])),
            InputError,
            ["row 0"],
        ),
        (lambda: IntervalCalibration([1.0], ["a"]).score_at(0.5), InputError, ["groups"]),
        (lambda: IntervalCalibration([1.0]).score_at(0.5, ["a"]), InputError, ["group"]),
        (lambda: IntervalCalibration([1.0]).score_at(1.0), EpsilonError, ["epsilon"]),
        (lambda: IntervalCalibration([1.0], ["a"]).p_values([1.0], ["a", "b"]), ShapeError, [1, 2]),
        (lambda: CrossIntervalCalibration([1.0], [0, 1]), ShapeError, ["folds", 1, 2]),
        (
            lambda: CrossIntervalCalibration([1.0], [0]).ends(np.zeros((2, 3)), np.zeros((2, 3)), 0.5),
            ShapeError,
            [1, (2, 3)],
        ),
    ],
)
def test_bad_input_is_rejected_with_what_was_required_and_what_was_given(
    call: Any, error: type, facts: list[object]
) -> None:
    with refuses(error, *facts) as caught:
        call()
    assert type(caught.value) is error
