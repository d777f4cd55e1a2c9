"""Labels in an order: nonconformity by tails, and prediction sets that are intervals."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from dwac.conformal import Calibration, CrossCalibration, label_sets, nonconformity, true_label_scores
from dwac.errors import CalibrationWarning, NonFiniteError
from tests.chance import assert_as_often, assert_beta_binomial
from tests.conformal.helpers import Floats, first_covering_rank, relaxed
from tests.named import refuses

votes = st.one_of(st.integers(-6, 3).map(float), st.floats(-800, 800), st.just(-np.inf))


def gaps(sets: Any) -> int:
    """How many times a set of the rows (n, K) ends and begins again."""
    edges = np.diff(np.pad(np.asarray(sets).astype(int), ((0, 0), (1, 1))), axis=1)
    return int(((edges == 1).sum(axis=1) > 1).sum())


def draw_rows(rng: np.random.Generator, n: int, n_labels: int = 7, y: Any = None) -> tuple[Floats, Any]:
    """Log class weights of n rows, ragged around a place near the true label."""
    y = rng.integers(0, n_labels, n) if y is None else y
    centre = y + rng.normal(scale=1.5, size=n)
    return -((np.arange(n_labels) - centre[:, None]) ** 2) / 4 + rng.normal(scale=0.7, size=(n, n_labels)), y


@pytest.mark.parametrize("n_labels", [1, 2, 6])
def test_tails_are_those_of_the_definition(n_labels: int) -> None:
    w = np.random.default_rng(0).normal(-3, 3, size=(40, n_labels))
    p = special.softmax(w, axis=1)
    expected = [[-min(row[: k + 1].sum(), row[k:].sum()) for k in range(n_labels)] for row in p]
    np.testing.assert_allclose(nonconformity(w, "tails"), expected, rtol=1e-12)
    by_fold = w.reshape(10, 4, n_labels)
    np.testing.assert_array_equal(nonconformity(by_fold, "tails").reshape(40, n_labels), nonconformity(w, "tails"))


def test_small_tails_keep_their_digits_on_both_sides() -> None:
    w = np.array([[-300.0, -200.0, 0.0, -200.0, -300.0]])
    np.testing.assert_allclose(-nonconformity(w, "tails"), np.exp([[-300.0, -200.0, 0.0, -200.0, -300.0]]), rtol=1e-13)


def test_a_label_without_voters_scores_as_what_is_beyond_it() -> None:
    w = np.log([[0.1, 0.0, 0.4, 0.5, 0.0]], where=np.array([[1, 0, 1, 1, 0]], dtype=bool), out=np.full((1, 5), -np.inf))
    np.testing.assert_allclose(nonconformity(w, "tails"), [[-0.1, -0.1, -0.5, -0.5, 0]])


@pytest.mark.parametrize("offset", [-1e8, 0.0, 1e8])
def test_far_queries_keep_finite_tails(offset: float) -> None:
    found = nonconformity(offset + np.array([[0.0, -1.0, -2.0]]), "tails")
    np.testing.assert_allclose(found, nonconformity([[0.0, -1.0, -2.0]], "tails"), rtol=1e-7)


def test_tails_of_a_row_without_votes_are_refused_not_nan() -> None:
    with refuses(NonFiniteError, "row 0", "-inf"):
        nonconformity([[-np.inf, -np.inf]], "tails")


@relaxed
@given(
    st.lists(st.tuples(*[votes] * 5), min_size=1, max_size=8),
    st.lists(st.floats(-1, 0), min_size=1, max_size=20),
    st.floats(0.01, 0.99),
)
@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_one_calibration_set_and_tails_leave_no_gap_to_fill(rows: Any, scores: list[float], epsilon: float) -> None:
    w = np.array(rows)
    w[:, 2] = np.where(np.isneginf(w).all(axis=1), 0.0, w[:, 2])  # somebody votes
    prediction = Calibration(scores).predict(nonconformity(w, "tails"), ordered=True)
    sets = prediction.label_sets(epsilon)
    assert gaps(sets) == 0
    np.testing.assert_array_equal(sets, label_sets(prediction.p_values, epsilon))


@relaxed
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 0.99), st.sampled_from(["by class", "by fold", "both"]))
@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_ordered_sets_are_the_smallest_intervals_around_the_plain_ones(seed: int, epsilon: float, how: str) -> None:
    rng = np.random.default_rng(seed)
    w, y = draw_rows(rng, 30)
    own, labels = true_label_scores(nonconformity(w, "tails"), y), None if how == "by fold" else y
    folds, asked = np.arange(30) % 3, rng.normal(scale=2, size=(12, 3, 7))
    scores = nonconformity(asked, "tails")
    calibration = Calibration(own, labels) if how == "by class" else CrossCalibration(own, folds, labels)
    prediction = calibration.predict(scores[:, 0], fold_scores=None if how == "by class" else scores, ordered=True)
    plain, sets = prediction.p_values > epsilon, prediction.label_sets(epsilon)
    assert gaps(sets) == 0
    for found, row in zip(sets, plain, strict=True):
        held = np.flatnonzero(row)
        expected = np.zeros(7, dtype=bool)
        if len(held):
            expected[held[0] : held[-1] + 1] = True
        np.testing.assert_array_equal(found, expected)
    assert prediction.part([0, 3]).ordered


def test_gaps_are_real_where_sets_are_not_ordered() -> None:
    p = np.array([[0.5, 0.01, 0.3, 0.01], [0.01, 0.01, 0.01, 0.01]])
    assert label_sets(p, 0.05).tolist() == [[True, False, True, False], [False] * 4]
    assert label_sets(p, 0.05, ordered=True).tolist() == [[True, True, True, False], [False] * 4]


@pytest.mark.parametrize(
    ("n_cal", "epsilon"),
    [(9, "0.1"), (100, "0.2"), *(pytest.param(*each, marks=pytest.mark.slow) for each in [(19, "0.05"), (20, "0.1")])],
)
def test_coverage_follows_the_beta_binomial_law(n_cal: int, epsilon: str) -> None:
    rng, n_test = np.random.default_rng(n_cal), 60
    covered, sizes = np.zeros(1000, dtype=np.int64), np.zeros(1000)
    for repetition in range(len(covered)):
        w, y = draw_rows(rng, n_cal + n_test)
        scores = nonconformity(w, "tails")
        calibration = Calibration(true_label_scores(scores[:n_cal], y[:n_cal]))
        sets = calibration.predict(scores[n_cal:], ordered=True).label_sets(float(epsilon))
        covered[repetition] = sets[np.arange(n_test), y[n_cal:]].sum()
        sizes[repetition] = sets.sum(axis=1).mean()
    assert_beta_binomial(covered, n_test, first_covering_rank(n_cal, epsilon), n_cal, seed=n_cal)
    assert sizes.mean() < 6.5  # scores of the wrong sign would cover as often, with the tails and not the middle


def test_class_conditional_intervals_cover_every_label_as_often_as_they_should() -> None:
    rng, epsilon, n_test = np.random.default_rng(0), 0.2, 240
    covered, y = np.zeros((450, 4)), np.arange(120 + n_test) % 4
    for repetition in range(len(covered)):
        w, _ = draw_rows(rng, 120 + n_test, 4, y)
        scores = nonconformity(w, "tails")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            calibration = Calibration(true_label_scores(scores[:120], y[:120]), y[:120])
            sets = calibration.predict(scores[120:], ordered=True).label_sets(epsilon)
        assert gaps(sets) == 0
        hits = sets[np.arange(n_test), y[120:]]
        covered[repetition] = [hits[y[120:] == k].sum() for k in range(4)]
    for counts in covered.T:  # gaps that are filled cover more
        assert_as_often(counts, 60, first_covering_rank(30, "0.2"), 30)


def test_expected_sets_have_the_size_of_intervals() -> None:
    rng = np.random.default_rng(0)
    w, y = draw_rows(rng, 60)
    table = -special.softmax(w, axis=1)  # by probability, so that there are gaps
    for calibration in (
        Calibration(true_label_scores(table, y), table=table),
        CrossCalibration(true_label_scores(table, y), np.arange(60) % 5, table=table),
    ):
        plain, ordered = (calibration.expected_sets(0.1, ordered=either).mean_size for either in (False, True))
        assert plain is not None
        assert ordered is not None
        assert ordered > plain
        folds = None if type(calibration) is Calibration else np.repeat(table[:, None], 5, axis=1)
        sets = calibration.predict(table, fold_scores=folds, ordered=True).label_sets(0.1)
        assert ordered == sets.sum(axis=1).mean()
