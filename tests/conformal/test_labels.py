"""Decisions and sets for several labels: loops, brute force over thresholds, and laws of coverage."""

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dwac._checks import percent
from dwac.conformal import Calibration, LabelCalibration, MissControl
from dwac.errors import CalibrationWarning, EpsilonError, InputError, LabelError, NonFiniteError, ShapeError
from tests.chance import Z_RARE, assert_beta_binomial
from tests.conformal.helpers import Floats, first_covering_rank, relaxed
from tests.named import named, refuses, warns

Bools = NDArray[np.bool_]


def draw_rows(rng: np.random.Generator, n: int, decimals: int = 12) -> tuple[Floats, Bools]:
    """Probabilities of four labels, and labels that follow them roughly; many rows have none, or several."""
    p = rng.random((n, 4)) * [0.9, 0.6, 0.3, 1.0]
    return p.round(decimals), rng.random((n, 4)) < p


# --- label-wise p-values


@pytest.mark.parametrize("decimals", [1, 12])  # many ties, none
def test_p_values_match_a_double_loop(decimals: int) -> None:
    rng = np.random.default_rng(0)
    (p, Y), (new, _) = draw_rows(rng, 60, decimals), draw_rows(rng, 15, decimals)
    found = LabelCalibration(p, Y, tolerance=1e-9).predict(new)
    for i in range(len(new)):
        for label in range(4):
            has, has_not = p[Y[:, label], label], p[~Y[:, label], label]
            yes = sum(one <= new[i, label] + 1e-9 for one in has)
            no = sum(one >= new[i, label] - 1e-9 for one in has_not)
            assert found.p_yes[i, label] == (1 + yes) / (1 + len(has))
            assert found.p_no[i, label] == (1 + no) / (1 + len(has_not))


def test_p_values_by_fold_match_a_double_loop() -> None:
    rng = np.random.default_rng(1)
    p, Y = draw_rows(rng, 40, 1)
    folds, new = rng.choice([0, 1, 3], 40), rng.random((12, 4, 4)).round(1)  # fold 2 is empty
    found = LabelCalibration(p, Y, folds=folds, tolerance=1e-9).predict(new[:, 0], new)
    for i in range(len(new)):
        for label in range(4):
            own, asked, has = p[:, label], new[i, folds, label], Y[:, label]
            yes, no = np.sum(has & (own <= asked + 1e-9)), np.sum(~has & (own >= asked - 1e-9))
            assert found.p_yes[i, label] == pytest.approx((1 + yes) / (1 + has.sum()))
            assert found.p_no[i, label] == pytest.approx((1 + no) / (1 + (~has).sum()))


def test_one_label_is_a_class_conditional_problem_of_two_classes() -> None:
    rng = np.random.default_rng(2)
    p, y = rng.random(50), rng.integers(0, 2, 50)
    scores = -np.where(y == 1, p, 1 - p)
    new = rng.random((20, 1))
    expected = Calibration(scores, y).p_values(np.concatenate([new - 1, -new], axis=1))
    found = LabelCalibration(p[:, None], y[:, None], tolerance=0.0).predict(new)
    np.testing.assert_array_equal(np.concatenate([found.p_no, found.p_yes], axis=1), expected)


def test_decisions_by_hand() -> None:
    p = np.concatenate([np.full((9, 1), 0.8), np.full((9, 1), 0.2)])
    Y = np.repeat([[True], [False]], 9, axis=0)
    prediction = LabelCalibration(p, Y).predict([[0.9], [0.1], [0.5], [0.8], [0.2]])
    assert prediction.decisions(0.1).tolist() == [[1], [0], [-1], [1], [0]]  # 0.5: worse than all, both are rejected
    assert prediction.decisions(0.1).dtype == np.int8
    with pytest.warns(CalibrationWarning):
        assert (prediction.decisions(0.05) == -1).all()  # nothing can be rejected
    assert prediction.part([1, 2]).decisions(0.1).tolist() == [[0], [-1]]


def test_a_label_that_nobody_has_or_everybody_is_said_once_and_never_rejected() -> None:
    p, Y = np.full((30, 3), 0.5), np.zeros((30, 3), dtype=bool)
    Y[:, 1], Y[::2, 2] = True, True
    calibration = LabelCalibration(p, Y)
    with warns(CalibrationWarning, "'a' (0)", "'b' (0)") as told:
        found = calibration.predict(np.array([[0.0, 1.0, 0.5]]), labels=np.array(["a", "b", "c"]))
    assert [w.filename for w in told] == [__file__]
    assert found.p_yes[0, 0] == found.p_no[0, 1] == 1
    with warns(CalibrationWarning, 19, "'a' (0), 'c' (15)", "'b' (0), 'c' (15)") as told:
        assert found.decisions(0.05).tolist() == [[-1, -1, -1]]
    assert [w.filename for w in told] == [__file__]


def test_enough_rows_of_both_kinds_do_not_warn() -> None:
    calibration = LabelCalibration(np.tile([[0.9], [0.1]], (19, 1)), np.tile([[1], [0]], (19, 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibration.predict([[0.5]]).decisions(0.05)


@relaxed
@given(st.integers(1, 20), st.integers(0, 2**32 - 1), st.floats(0.01, 0.99))
@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_decisions_follow_p_values_which_grow_with_the_probability(n: int, seed: int, epsilon: float) -> None:
    rng = np.random.default_rng(seed)
    prediction = LabelCalibration(*draw_rows(rng, n, 1)).predict(np.linspace(0, 1, 11)[:, None].repeat(4, axis=1))
    assert (np.diff(prediction.p_yes, axis=0) >= 0).all()
    assert (np.diff(prediction.p_no, axis=0) <= 0).all()
    decisions = prediction.decisions(epsilon)
    np.testing.assert_array_equal(decisions == 1, (prediction.p_yes > epsilon) & (prediction.p_no <= epsilon))
    np.testing.assert_array_equal(decisions == 0, (prediction.p_yes <= epsilon) & (prediction.p_no > epsilon))


@pytest.mark.parametrize(
    ("n_each", "epsilon"),
    [
        ((9, 19), "0.1"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [((20, 100), "0.05"), ((50, 50), "0.3")]),
    ],
)
def test_wrong_decisions_of_both_kinds_follow_their_own_laws(n_each: tuple[int, int], epsilon: str) -> None:
    rng, n_test, kept = np.random.default_rng(0), 60, np.zeros((1000, 2), dtype=np.int64)
    y, new = np.repeat([1, 0], n_each)[:, None], np.repeat([1, 0], n_test)[:, None]
    for repetition in range(len(kept)):
        p, asked = (rng.beta(2 + 2 * one, 4 - 2 * one) for one in (y, new))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            found = LabelCalibration(p, y, tolerance=0.0).predict(asked)
            wrong = found.decisions(float(epsilon)) == 1 - new
        true = np.where(new == 1, found.p_yes, found.p_no) > float(epsilon)
        assert not (wrong & true).any()  # wrong only if the truth was rejected
        kept[repetition] = true.reshape(2, n_test).sum(axis=1)
    for place, n in enumerate(n_each):
        assert_beta_binomial(kept[:, place], n_test, first_covering_rank(n, epsilon), n, seed=place)


def test_expected_decisions_are_said_in_words() -> None:
    rng = np.random.default_rng(0)
    p, Y = draw_rows(rng, 200)
    Y[:, 2] = np.arange(200) < 4
    expected = LabelCalibration(p, Y).expected(0.1, labels=np.array(list("abcd")))
    with pytest.warns(CalibrationWarning):
        decided = (LabelCalibration(p, Y).predict(p).decisions(0.1) >= 0).mean()
    assert expected.decided == decided
    assert expected.rare == ("c",)
    assert named(expected, 200, "epsilon=0.1", percent(decided), "10.0 %", 9, "'c'")
    crossed = LabelCalibration(p, Y, folds=np.arange(200) % 5).expected(0.1)
    assert crossed.decided == decided
    assert crossed.guarantee is not None
    assert 0 < crossed.guarantee < 0.8
    assert named(crossed, percent(1 - crossed.guarantee))


# --- conformal risk control


def exact_loss(p: Any, Y: Any, t: float) -> Fraction:
    """Σ_i share of row i's labels with P < t, without rounding."""
    lost = Fraction(0)
    for row, has in zip(p, Y, strict=True):
        mine = row[has]
        if len(mine):
            lost += Fraction(int((mine < t).sum()), len(mine))
    return lost


@settings(max_examples=60)
@given(st.integers(1, 25), st.integers(1, 99), st.sampled_from([1, 12]), st.integers(0, 2**32 - 1))
@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_the_threshold_is_the_largest_that_qualifies(n: int, percent: int, decimals: int, seed: int) -> None:
    p, Y = draw_rows(np.random.default_rng(seed), n, decimals)
    t, alpha = MissControl(p, Y, tolerance=0.0).threshold(percent / 100), Fraction(percent, 100)

    def qualifies(t: float) -> bool:
        return (exact_loss(p, Y, t) + 1) / (n + 1) <= alpha

    good = [candidate for candidate in (*p[Y], np.inf) if qualifies(candidate)]
    assert t == max(good, default=0.0)
    assert np.isinf(t) or not qualifies(np.nextafter(t, 2))  # nor does anything between two probabilities


@relaxed
@given(st.integers(0, 2**32 - 1), st.lists(st.floats(0.02, 0.98), min_size=2, max_size=6))
@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_a_larger_share_of_misses_never_gives_larger_sets(seed: int, alphas: list[float]) -> None:
    control = MissControl(*draw_rows(np.random.default_rng(seed), 30, 1))
    found = [control.threshold(alpha) for alpha in sorted(alphas)]
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("n", "alpha"),
    [
        (9, 0.1),
        *(pytest.param(*size, marks=pytest.mark.slow) for size in [(10, 0.1), (19, 0.3), (60, 0.1), (200, 0.05)]),
    ],
)
def test_the_mean_share_of_missed_labels_is_at_most_alpha_and_not_far_below(n: int, alpha: float) -> None:
    rng, lost = np.random.default_rng(n), np.zeros(1400)
    for repetition in range(len(lost)):
        p, Y = draw_rows(rng, n + 40)
        sets = MissControl(p[:n], Y[:n], tolerance=0.0).sets(p[n:], alpha)
        missed, labels = (Y[n:] & ~sets).sum(axis=1), Y[n:].sum(axis=1)
        lost[repetition] = np.mean(missed / np.maximum(labels, 1))
    error = lost.std(ddof=1) / np.sqrt(len(lost))
    assert lost.mean() <= alpha + Z_RARE * error
    assert lost.mean() >= alpha - 2 / (n + 1) - Z_RARE * error  # theorem 2: no two probabilities are equal


def test_too_few_rows_for_alpha_give_every_label_and_say_how_many_are_needed() -> None:
    control = MissControl(np.full((8, 2), 0.9), np.ones((8, 2)))
    with warns(CalibrationWarning, "alpha=0.1", 9, 8) as told:
        assert control.threshold(0.1) == 0.0
    assert told[0].filename == __file__
    with warns(CalibrationWarning) as told:
        assert control.sets([[0.0, 0.3]], 0.1).all()
    assert told[0].filename == __file__
    assert named(control.expected(0.1), 8, "alpha=0.1", "every label", 9)
    assert MissControl(np.full((9, 2), 0.9), np.ones((9, 2)), tolerance=0.0).threshold(0.1) == 0.9


def test_rows_without_labels_lose_nothing_and_may_leave_no_label_in_any_set() -> None:
    Y = np.zeros((30, 2), dtype=bool)
    control = MissControl(np.full((30, 2), 0.4), Y)
    assert control.threshold(0.1) == np.inf
    assert not control.sets([[1.0, 0.5]], 0.1).any()
    assert named(control.expected(0.1), "0 of 2 labels", "no label")


def test_tolerance_keeps_probabilities_that_rounding_lowered() -> None:
    p, Y = np.full((30, 1), 0.4), np.ones((30, 1))
    lowered = np.array([[0.4 - 1e-7], [0.3]])
    assert MissControl(p, Y).sets(lowered, 0.1).tolist() == [[True], [False]]
    assert MissControl(p, Y, tolerance=0.0).sets(lowered, 0.1).tolist() == [[False], [False]]


def test_expected_misses_are_said_in_words() -> None:
    p, Y = draw_rows(np.random.default_rng(0), 200)
    control = MissControl(p, Y)
    expected = control.expected(0.1)
    assert expected.mean_size == control.sets(p, 0.1).sum(axis=1).mean()
    size, threshold = f"{expected.mean_size:.2g} of 4 labels", f"{control.threshold(0.1):.2g}"
    assert named(expected, 200, "alpha=0.1", size, threshold, "10.0 %")


# --- bad input

HALF = np.full((4, 2), 0.5)
NONE = np.zeros((4, 2))


@pytest.mark.parametrize(
    ("call", "error", "facts"),
    [
        (lambda: LabelCalibration(HALF, NONE[:3]), ShapeError, [(4, 2), (3, 2)]),
        (lambda: LabelCalibration(HALF, NONE + 2), LabelError, ["booleans", 0, 1]),
        (lambda: LabelCalibration(HALF, np.full((4, 2), "a")), LabelError, ["booleans", 0, 1]),
        (lambda: LabelCalibration(HALF - 3, NONE), InputError, [[0, 1], -2.5, "probabilities"]),
        (lambda: LabelCalibration(HALF * np.nan, NONE), NonFiniteError, ["NaN"]),
        (lambda: LabelCalibration(np.ones((4, 0)), np.ones((4, 0))), ShapeError, [(4, 0)]),
        (lambda: LabelCalibration(HALF[:0], NONE[:0]), InputError, ["row"]),
        (lambda: LabelCalibration(HALF, NONE, folds=[0, 1]), ShapeError, ["folds", 4, 2]),
        (lambda: LabelCalibration(HALF, NONE).predict(np.ones((1, 3))), ShapeError, [2, (1, 3)]),
        (lambda: LabelCalibration(HALF, NONE).predict(HALF, HALF), InputError, ["folds"]),
        (lambda: LabelCalibration(HALF, NONE, folds=[0, 0, 1, 1]).predict(HALF), InputError, ["fold"]),
        (
            lambda: LabelCalibration(HALF, NONE, folds=[0, 0, 1, 1]).predict(HALF, np.ones((3, 2, 2))),
            ShapeError,
            [4, 3],
        ),
        (
            lambda: LabelCalibration(HALF, NONE).predict(HALF, labels=np.array(["a"])),
            ShapeError,
            ["name", 2, 1],
        ),
        (lambda: LabelCalibration(HALF, NONE).expected(1.5), EpsilonError, ["epsilon"]),
        (lambda: MissControl(HALF, NONE).threshold(0.0), EpsilonError, ["alpha"]),
        (lambda: MissControl(HALF, NONE).sets([[0.5]], 0.3), ShapeError, [2, (1, 1)]),
    ],
)
def test_bad_input_is_rejected_with_what_was_required_and_what_was_given(
    call: Any, error: type, facts: list[object]
) -> None:
    with refuses(error, *facts) as caught:
        call()
    assert type(caught.value) is error


def test_groups_have_the_calibration_of_their_own_rows_and_rows_of_several_the_most_careful() -> None:
    rng = np.random.default_rng(5)
    (p, Y), (new, _) = draw_rows(rng, 90, 1), draw_rows(rng, 6, 1)
    within = np.repeat(["a", "b", "c"], 30)
    labels, misses = LabelCalibration(p, Y, within=within), MissControl(p, Y, within=within)
    alone = {name: (p[within == name], Y[within == name]) for name in "abc"}
    p_values = {name: LabelCalibration(*rows).predict(new) for name, rows in alone.items()}
    both = labels.predict(new, within=[frozenset("ab")] * 6)
    np.testing.assert_array_equal(both.p_no, np.maximum(p_values["a"].p_no, p_values["b"].p_no))
    np.testing.assert_array_equal(labels.predict(new, within=["c"] * 6).p_yes, p_values["c"].p_yes)
    thresholds = [MissControl(*alone[name]).threshold(0.2) for name in "ab"]
    np.testing.assert_array_equal(misses.sets(new, 0.2, [frozenset("ab")] * 6), new >= min(thresholds))
    with warns(CalibrationWarning, "'d' has none"):
        assert misses.sets(new, 0.2, ["d"] * 6).all()
    with refuses(InputError, "groups"):
        labels.predict(new)


@pytest.mark.parametrize("draws", [150, pytest.param(3_000, marks=pytest.mark.slow)])
def test_sets_and_decisions_hold_within_each_of_overlapping_groups(draws: int) -> None:
    rng = np.random.default_rng(6)
    missed, wrong = np.empty((draws, 2)), np.full((draws, 2), np.nan)
    for draw in range(draws):
        p = rng.random((160, 3))
        a, b = rng.random(160) < 0.7, rng.random(160) < 0.6
        a |= ~b  # every row has a group
        Y = rng.random((160, 3)) < np.where(b[:, None], p, 0.5)  # probabilities mislead outside b
        within = [frozenset([*"a" * bool(one), *"b" * bool(other)]) for one, other in zip(a, b, strict=True)]
        known, asked = slice(0, 60), slice(60, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            sets = MissControl(p[known], Y[known], within=within[known]).sets(p[asked], 0.2, within[asked])
            labels = LabelCalibration(p[known], Y[known], within=within[known])
            decisions = labels.predict(p[asked], within=within[asked]).decisions(0.2)
        loss = (Y[asked] & ~sets).sum(axis=1) / np.maximum(Y[asked].sum(axis=1), 1)
        for place, group in enumerate((a[asked], b[asked])):
            missed[draw, place] = loss[group].mean()
            wrong[draw, place] = (decisions[group] == 0)[Y[asked][group]].mean()
    for values in (missed, wrong):
        assert (values.mean(axis=0) < 0.2 + 4 * values.std(axis=0) / np.sqrt(draws)).all()
