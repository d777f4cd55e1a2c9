"""Conformal prediction against double loops, exact laws of coverage, and Hypothesis."""

import tracemalloc
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special, stats

from dwac import conformal
from dwac._checks import percent
from dwac.conformal import (
    Calibration,
    CrossCalibration,
    label_sets,
    nonconformity,
    p_values,
)
from dwac.errors import (
    CalibrationWarning,
    DwacError,
    EpsilonError,
    InputError,
    LabelError,
    NonFiniteError,
    ShapeError,
)
from tests.chance import RARE, assert_beta_binomial, total
from tests.conformal.helpers import Floats, first_covering_rank, relaxed
from tests.named import named, refuses, warns

# Few distinct values, so that ties are common; infinities are scores like any other.
tied_scores = st.one_of(st.integers(-3, 3).map(float), st.sampled_from([-np.inf, np.inf]))
any_scores = st.one_of(tied_scores, st.floats(allow_nan=False, width=32))
epsilons = st.floats(0.001, 0.999)


def naive_p_value(calibration: Any, score: float, finite_sample: bool = True, share: float = 1.0) -> float:
    """By definition, one comparison at a time; `share` is how much of the ties counts."""
    above = tied = 0
    for other in calibration:
        above += bool(other > score)
        tied += bool(other == score)
    own = 1 if finite_sample else 0
    return (above + share * (tied + own)) / (len(calibration) + own)


# --- p-values by hand and loop


def test_p_values_by_hand_count_ties_and_the_example_itself() -> None:
    p = p_values([1, 2, 2, 5], [0, 1, 2, 3, 5, 6])
    np.testing.assert_array_equal(p, np.array([5, 5, 4, 2, 2, 1]) / 5)


def test_the_papers_formula_is_the_plain_share_of_scores_at_least_as_high() -> None:
    p = p_values([1, 2, 2, 5], [0, 1, 2, 3, 5, 6], finite_sample=False)
    np.testing.assert_array_equal(p, np.array([4, 4, 3, 1, 1, 0]) / 4)


def test_a_high_score_has_a_low_p_value_and_a_low_score_a_high_one() -> None:
    strange, ordinary = p_values(np.arange(99), [1000.0, -1000.0])
    assert (strange, ordinary) == (0.01, 1.0)


@pytest.mark.parametrize("finite_sample", [True, False])
@pytest.mark.parametrize("decimals", [0, 1, 12])  # many ties, some, none
def test_p_values_match_a_double_loop(finite_sample: bool, decimals: int) -> None:
    rng = np.random.default_rng(decimals)
    calibration, scores = rng.normal(size=83).round(decimals), rng.normal(size=(40, 6)).round(decimals)
    expected = [[naive_p_value(calibration, s, finite_sample) for s in row] for row in scores]
    np.testing.assert_array_equal(p_values(calibration, scores, finite_sample=finite_sample), expected)


@pytest.mark.parametrize("finite_sample", [True, False])
def test_smoothed_p_values_match_a_double_loop_on_the_same_random_numbers(finite_sample: bool) -> None:
    rng = np.random.default_rng(0)
    calibration, scores = rng.integers(0, 9, size=50), rng.integers(-1, 10, size=(30, 4))
    shares = np.random.default_rng(7).random(scores.shape)
    expected = [
        [naive_p_value(calibration, s, finite_sample, u) for s, u in zip(row, us, strict=True)]
        for row, us in zip(scores, shares, strict=True)
    ]
    p = p_values(calibration, scores, finite_sample=finite_sample, smoothed=True, random_state=7)
    np.testing.assert_allclose(p, expected, rtol=1e-15)


@pytest.mark.parametrize("finite_sample", [True, False])
def test_class_conditional_p_values_match_a_double_loop(finite_sample: bool) -> None:
    rng = np.random.default_rng(1)
    calibration, labels = rng.normal(size=90).round(1), rng.integers(0, 4, size=90)
    scores = rng.normal(size=(25, 4)).round(1)
    expected = [[naive_p_value(calibration[labels == k], row[k], finite_sample) for k in range(4)] for row in scores]
    p = Calibration(calibration, labels).p_values(scores, finite_sample=finite_sample)
    np.testing.assert_array_equal(p, expected)


def test_smoothed_class_conditional_p_values_match_a_double_loop() -> None:
    rng = np.random.default_rng(2)
    calibration, labels, scores = rng.integers(0, 5, 60), rng.integers(0, 3, 60), rng.integers(0, 5, (20, 3))
    shares = np.random.default_rng(3).random(scores.shape)
    expected = [
        [naive_p_value(calibration[labels == k], scores[i, k], share=shares[i, k]) for k in range(3)] for i in range(20)
    ]
    p = Calibration(calibration, labels).p_values(scores, smoothed=True, random_state=3)
    np.testing.assert_allclose(p, expected, rtol=1e-15)


def test_smoothing_is_repeatable_with_a_seed_and_moves_with_a_generator() -> None:
    calibration, scores = [0.0, 1.0, 1.0], np.ones((4, 2))
    first = p_values(calibration, scores, smoothed=True, random_state=5)
    np.testing.assert_array_equal(first, p_values(calibration, scores, smoothed=True, random_state=5))
    assert (first != p_values(calibration, scores, smoothed=True, random_state=6)).all()
    generator = np.random.default_rng(5)
    np.testing.assert_array_equal(first, p_values(calibration, scores, smoothed=True, random_state=generator))
    assert (first != p_values(calibration, scores, smoothed=True, random_state=generator)).all()


@pytest.mark.parametrize("shape", [(), (3,), (3, 2), (3, 2, 2), (0,), (0, 4)])
def test_p_values_keep_the_shape_of_the_scores(shape: tuple[int, ...]) -> None:
    for smoothed in (False, True):
        assert p_values([1.0, 2.0], np.zeros(shape), smoothed=smoothed, random_state=0).shape == shape


def test_lists_integers_and_float32_are_accepted() -> None:
    expected = p_values([1.0, 2.0, 3.0], [[2.0, 4.0]])
    for kind in (np.int64, np.float32, np.float64):
        np.testing.assert_array_equal(p_values(np.array([1, 2, 3], kind), np.array([[2, 4]], kind)), expected)


def test_inputs_are_not_changed() -> None:
    calibration, labels, scores = np.array([3.0, 1.0, 2.0]), np.array([1, 0, 1]), np.array([[2.0, 0.0]])
    Calibration(calibration, labels).predict(scores, smoothed=True, random_state=0)
    assert calibration.tolist() == [3.0, 1.0, 2.0]
    assert scores.tolist() == [[2.0, 0.0]]


def test_later_changes_of_the_calibration_array_do_not_reach_the_calibration() -> None:
    scores = np.array([1.0, 2.0, 3.0])
    calibration = Calibration(scores)
    scores[:] = 100
    assert calibration.p_values(2.5) == 0.5


@pytest.mark.parametrize("class_conditional", [False, True])
def test_a_hundred_thousand_rows_against_fifty_thousand_scores_need_little_memory(class_conditional: bool) -> None:
    # An (n, K, n_cal) array would take 50 GB as booleans.
    rng = np.random.default_rng(0)
    calibration, scores = rng.normal(size=50_000), rng.normal(size=(100_000, 10))
    labels = rng.integers(0, 10, size=50_000) if class_conditional else None
    tracemalloc.start()
    try:
        p = Calibration(calibration, labels).p_values(scores)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * 2**20
    for i, k in rng.integers(0, (100_000, 10), size=(20, 2)):
        peers = calibration if labels is None else calibration[labels == k]
        assert p[i, k] == (np.sum(peers >= scores[i, k]) + 1) / (len(peers) + 1)


# --- nonconformity


def test_nonconformity_weights_is_minus_the_log_class_weights() -> None:
    votes = np.array([[-1.0, -5.0], [-np.inf, 0.3]])
    np.testing.assert_array_equal(nonconformity(votes), -votes)
    np.testing.assert_array_equal(nonconformity(votes, "weights"), -votes)


def test_nonconformity_weights_orders_as_the_papers_own_score() -> None:
    votes = np.random.default_rng(0).normal(-3, 2, size=(30, 4))
    papers_own = -np.exp(votes)
    for finite_sample in (True, False):
        np.testing.assert_array_equal(
            p_values(nonconformity(votes)[:, 0], nonconformity(votes), finite_sample=finite_sample),
            p_values(papers_own[:, 0], papers_own, finite_sample=finite_sample),
        )


def test_nonconformity_probability_is_minus_the_softmax() -> None:
    votes = np.random.default_rng(0).normal(-3, 4, size=(50, 5))
    np.testing.assert_allclose(nonconformity(votes, "probability"), -special.softmax(votes, axis=1), rtol=1e-13)


@pytest.mark.parametrize("offset", [-1e8, -800.0, 0.0, 800.0, 1e8])
def test_far_query_keeps_finite_probabilities(offset: float) -> None:
    probabilities = -nonconformity(offset + np.array([[0.0, -1.0, -2.0]]), "probability")
    np.testing.assert_allclose(probabilities, special.softmax([[0.0, -1.0, -2.0]], axis=1), rtol=1e-7)
    assert probabilities.sum() == pytest.approx(1, abs=1e-15)


def test_far_query_has_the_least_credibility_and_no_label_at_a_usual_epsilon() -> None:
    rng = np.random.default_rng(0)
    calibration = Calibration(nonconformity(rng.normal(-2, 1, size=(200, 3)))[:, 0])
    far = calibration.predict(nonconformity([[-1e8, -1.1e8, -2e8]]))
    assert far.credibility == pytest.approx(1 / 201)
    assert not far.label_sets(0.05).any()
    assert far.labels.tolist() == [0]
    # The probability of the same query is high: that score ignores distance.
    assert nonconformity([[-1e8, -1.1e8, -2e8]], "probability").tolist() == [[-1, 0, 0]]


def test_far_query_has_credibility_zero_by_the_papers_formula() -> None:
    calibration = Calibration(nonconformity([[-1.0], [-2.0]])[:, 0])
    assert calibration.predict([[1e8, 1e9]], finite_sample=False).credibility.tolist() == [0.0]


def test_an_empty_class_scores_infinity_and_fits_worst() -> None:
    votes = np.array([[-1.0, -np.inf]])
    prediction = Calibration(np.arange(19.0)).predict(nonconformity(votes))
    assert prediction.p_values.tolist() == [[0.95, 0.05]]
    assert prediction.labels.tolist() == [0]
    assert prediction.label_sets(0.05).tolist() == [[True, False]]
    np.testing.assert_array_equal(nonconformity(votes, "probability"), [[-1, 0]])


def test_infinite_calibration_scores_tie_with_infinite_scores() -> None:
    # A calibration example whose class has no references fits infinitely badly, like the query.
    assert p_values([0.0, np.inf, np.inf], [np.inf, 1e300, -np.inf]).tolist() == [0.75, 0.75, 1.0]


@pytest.mark.parametrize("row", [[-np.inf, -np.inf], [np.inf, 0.0]])
def test_probability_of_a_row_without_finite_largest_vote_is_refused_not_nan(row: list[float]) -> None:
    with refuses(NonFiniteError, "row 1"):
        nonconformity([[0.0, -1.0], row], "probability")


def test_true_label_scores_pick_the_true_label_of_each_example() -> None:
    assert conformal.true_label_scores([[1, 2, 3], [4, 5, 6]], [2, 0]).tolist() == [3, 4]


# --- prediction sets, labels, confidence, credibility


def test_prediction_set_contains_labels_with_p_values_strictly_above_epsilon() -> None:
    assert label_sets([[0.05, 0.0500001, 0.9, 0.01]], 0.05).tolist() == [[False, True, True, False]]


@pytest.mark.parametrize("epsilon", [0.01, 0.05, 0.1, 0.15, 0.2, 0.3, 0.7, 1 / 3, 1 / 7])
def test_a_p_value_that_equals_epsilon_is_rejected_whatever_the_rounding(epsilon: float) -> None:
    # p = c/(n+1) and a decimal epsilon of the same value must round alike.
    exact = Fraction(epsilon).limit_denominator(100)
    for multiple in range(1, 200):
        n = exact.denominator * multiple - 1
        worst = exact.numerator * multiple - 1  # how many calibration scores are at least as high
        p = p_values(np.arange(n), np.array([[n - worst]], dtype=float)) if n else np.ones((1, 1))
        assert not label_sets(p, epsilon).any()


def test_confidence_and_credibility_by_hand() -> None:
    p = [[0.2, 0.9, 0.6], [0.5, 0.5, 0.1], [0.01, 0.02, 0.03]]
    np.testing.assert_allclose(conformal.confidence(p), [0.4, 0.5, 0.98], rtol=1e-15)
    assert conformal.credibility(p).tolist() == [0.9, 0.5, 0.03]


def test_one_label_alone_has_full_confidence() -> None:
    assert conformal.confidence([[0.3], [1.0]]).tolist() == [1.0, 1.0]


def test_no_examples_give_empty_answers() -> None:
    prediction = Calibration(np.arange(30)).predict(np.zeros((0, 3)))
    assert prediction.label_sets(0.1).shape == (0, 3)
    for part in (prediction.labels, prediction.confidence, prediction.credibility):
        assert part.shape == (0,)


def test_label_is_the_lowest_score_even_where_p_values_tie() -> None:
    prediction = Calibration([1.0, 2.0]).predict([[9.0, 8.0, 10.0], [0.0, -1.0, 5.0], [7.0, 7.0, 7.0]])
    assert prediction.labels.tolist() == [1, 1, 0]


def test_label_has_the_largest_p_value_even_with_an_infinite_score() -> None:
    # Class 1 has neither references (score inf) nor calibration examples (p = 1).
    with warns(CalibrationWarning, "class 1"):
        prediction = Calibration([1.0, 2.0, 3.0], [0, 0, 0]).predict([[5.0, np.inf]])
    assert prediction.p_values.tolist() == [[0.25, 1.0]]
    assert prediction.labels.tolist() == [1]


def test_prediction_agrees_with_the_functions() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(20, 4))
    prediction = Calibration(rng.normal(size=60)).predict(scores)
    p = prediction.p_values
    np.testing.assert_array_equal(prediction.confidence, conformal.confidence(p))
    np.testing.assert_array_equal(prediction.credibility, conformal.credibility(p))
    np.testing.assert_array_equal(prediction.label_sets(0.1), label_sets(p, 0.1))
    np.testing.assert_array_equal(prediction.labels, scores.argmin(axis=1))


def test_a_class_without_calibration_examples_is_never_rejected() -> None:
    labels, scores = [0] * 30 + [2] * 30, np.full((1, 4), 1e9)
    p = Calibration(np.arange(60), labels).p_values(scores)
    np.testing.assert_array_equal(p, [[1 / 31, 1, 1 / 31, 1]])  # absent in the middle and at the end
    paper = Calibration(np.arange(60), labels).p_values(scores, finite_sample=False)
    np.testing.assert_array_equal(paper, [[0, 1, 0, 1]])


# --- the guarantee: coverage and size

N_CLASSES, APART, N_TEST, REPETITIONS = 10, 4.0, 100, 1000


def draw_votes(rng: np.random.Generator, n: int) -> tuple[Floats, NDArray[np.int64]]:
    """Log class weights of n examples: N(0, 1) for the true label, N(-4, 1) for each of the nine others."""
    labels = rng.integers(0, N_CLASSES, size=n)
    votes = rng.normal(-APART, 1, size=(n, N_CLASSES))
    votes[np.arange(n), labels] += APART
    return votes, labels


def simulate(
    n_cal: int, epsilons: list[str], score: Any, seed: int, **options: Any
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """For each ε: how many true labels were covered, and how many labels all sets held, in each repetition."""
    rng = np.random.default_rng(seed)
    counts = np.zeros((len(epsilons), 2, REPETITIONS), dtype=np.int64)
    for repetition in range(REPETITIONS):
        votes, labels = draw_votes(rng, n_cal + N_TEST)
        scores = score(votes)
        calibration = Calibration(conformal.true_label_scores(scores[:n_cal], labels[:n_cal]))
        prediction = calibration.predict(scores[n_cal:], **options)
        for place, epsilon in enumerate(epsilons):
            sets = prediction.label_sets(float(epsilon))
            counts[place, :, repetition] = sets[np.arange(N_TEST), labels[n_cal:]].sum(), sets.sum()
    return [(covered, sizes) for covered, sizes in counts]


def size_law(k: int, n: int) -> Floats:
    """Probabilities of how many labels the sets of a repetition hold. A threshold t, the k-th of n numbers of N(0, 1),
    is passed by each true label with probability Φ(t) and by each wrong one with probability Φ(t - 4)."""
    t, width = (8.5 * each for each in np.polynomial.legendre.leggauss(400))
    true, wrong = special.ndtr(t), special.ndtr(t - APART)
    log_density = (k - 1) * np.log(true) + (n - k) * special.log_ndtr(-t) - special.betaln(k, n + 1 - k)
    z = np.exp(-2j * np.pi * np.arange(513) / 1024)[:, None]
    transform = (1 - true + true * z) ** N_TEST * (1 - wrong + wrong * z) ** (N_TEST * (N_CLASSES - 1))
    pmf = np.fft.irfft(transform @ (np.exp(log_density) * stats.norm.pdf(t) * width), 1024)
    return np.asarray(np.trim_zeros(np.where(pmf > 1e-16, pmf, 0), "b"))


SIZES = [(9, ["0.1"]), (19, ["0.05"]), (20, ["0.05"]), (50, ["0.05", "0.3"]), (200, ["0.05"]), (1000, ["0.05", "0.1"])]
QUICK = [(9, "weights"), (200, "probability")]


@pytest.mark.parametrize(
    ("n_cal", "epsilons", "kind"),
    [
        pytest.param(n_cal, epsilons, kind, marks=[pytest.mark.slow] * ((n_cal, kind) not in QUICK))
        for n_cal, epsilons in SIZES
        for kind in ("weights", "probability")
    ],
)
def test_coverage_follows_the_beta_binomial_law_with_sets_of_the_right_size(
    n_cal: int, epsilons: list[str], kind: str
) -> None:
    found = simulate(n_cal, epsilons, lambda votes: nonconformity(votes, kind), seed=n_cal)
    for epsilon, (covered, sizes) in zip(epsilons, found, strict=True):
        k = first_covering_rank(n_cal, epsilon)
        assert_beta_binomial(covered, N_TEST, k, n_cal, seed=n_cal)
        # Reversed comparisons cover just as often, with nearly all labels in each set: only the size differs.
        if kind == "weights":
            low, high = total(size_law(k, n_cal), times=REPETITIONS)
            assert low <= sizes.sum() <= high
        assert sizes.mean() < 2 * N_TEST


@pytest.mark.slow
def test_reversed_comparisons_would_be_caught_by_set_size_alone() -> None:
    # A deliberate mistake: scores of the wrong sign. Coverage follows the law, but the sets contain nearly every label.
    [(covered, sizes)] = simulate(50, ["0.05"], lambda votes: votes, seed=0)
    assert_beta_binomial(covered, N_TEST, first_covering_rank(50, "0.05"), 50, seed=0)
    assert sizes.mean() > 9 * N_TEST


def test_too_few_calibration_scores_cover_always_because_every_set_holds_every_label() -> None:
    calibration = Calibration(np.zeros(18))
    with pytest.warns(CalibrationWarning):
        sets = calibration.predict(np.full((5, 4), 1e9)).label_sets(0.05)
    assert sets.all()


@pytest.mark.parametrize(
    ("n_cal", "epsilon"),
    [(20, "0.05"), *(pytest.param(*each, marks=pytest.mark.slow) for each in [(50, "0.05"), (1000, "0.1")])],
)
def test_the_papers_formula_follows_its_own_law_which_covers_less_than_requested(n_cal: int, epsilon: str) -> None:
    # #/n > ε needs one calibration score more than ⌊εn⌋ at least as high: k = n - ⌊εn⌋, no correction.
    k = n_cal - int(Fraction(epsilon) * n_cal // 1)
    [(covered, _)] = simulate(n_cal, [epsilon], nonconformity, seed=n_cal + 1, finite_sample=False)
    assert_beta_binomial(covered, N_TEST, k, n_cal, seed=1)
    assert k / (n_cal + 1) < 1 - float(epsilon)


def smoothed_law(n: int, epsilon: str) -> Floats:
    """Probabilities of how many of N_TEST rows smoothed sets cover. With ε(n + 1) = m + f, a row is covered if more
    than m of n numbers are above its own, and with probability 1 - f if m are; the shares of both kinds of rows and
    of all others are drawn from Dirichlet(n - m, 1, m)."""
    m, f = divmod(Fraction(epsilon) * (n + 1), 1)
    node, weight = np.polynomial.legendre.leggauss(80)  # exact for polynomials up to degree 159
    node, weight = (node + 1) / 2, weight / 2
    held, density = (node, stats.beta.pdf(node, n - m + 1, int(m)) * weight) if m else (np.ones(1), np.ones(1))
    chance = held[:, None] * (1 - float(f) * node)
    pmf = stats.binom.pmf(np.arange(N_TEST + 1)[:, None, None], N_TEST, chance)
    return np.asarray(density @ pmf @ (stats.beta.pdf(node, 1, n - m) * weight))


@pytest.mark.parametrize("n_cal", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_smoothed_sets_cover_exactly_as_requested_even_with_too_few_scores(n_cal: int) -> None:
    generator, law = np.random.default_rng(n_cal), smoothed_law(n_cal, "0.05")
    assert law @ np.arange(N_TEST + 1) == pytest.approx(0.95 * N_TEST)
    [(covered, _)] = simulate(n_cal, ["0.05"], nonconformity, seed=n_cal, smoothed=True, random_state=generator)
    low, high = total(law, times=REPETITIONS)
    assert low <= covered.sum() <= high


def draw_classes(conditional: bool, times: int = 900, n_test: int = 100) -> NDArray[np.int64]:
    """(repetitions, 3): how many of n_test examples of each class are covered at ε = .05; 19, 60 and 400 calibrate."""
    spreads = (1.0, 3.0, 9.0)
    labels, test_labels = np.repeat(np.arange(3), (19, 60, 400)), np.repeat(np.arange(3), n_test)
    rng, covered = np.random.default_rng(0), np.zeros((times, 3), dtype=np.int64)
    for repetition in range(times):
        # Classes differ in how badly their examples fit; each wrong label fits worse by 5 standard deviations.
        own, test_own = (rng.normal(size=len(y)) * np.take(spreads, y) for y in (labels, test_labels))
        scores = rng.normal(5, 1, size=(len(test_labels), 3)) * spreads
        scores[np.arange(len(test_labels)), test_labels] = test_own
        sets = Calibration(own, labels if conditional else None).predict(scores).label_sets(0.05)
        covered[repetition] = sets[np.arange(len(test_labels)), test_labels].reshape(3, n_test).sum(axis=1)
        if conditional:
            assert sets.sum(axis=1).mean() < 1.6  # or one of 19 numbers of N(0, 1) is above 6
    return covered


def test_class_conditional_sets_cover_each_class_by_its_own_beta_binomial_law() -> None:
    for c, (n, covered) in enumerate(zip((19, 60, 400), draw_classes(conditional=True).T, strict=True)):
        assert_beta_binomial(covered, 100, first_covering_rank(n, "0.05"), n, seed=c)


@pytest.mark.slow
def test_without_classes_the_easy_ones_are_covered_at_the_cost_of_the_hard_one() -> None:
    covered = draw_classes(conditional=False)
    assert covered[:, 0].mean() > 99.9
    # The law's mean is 94.006, and the deviation of one repetition 2.65: the bound is 5.6 deviations of the mean away.
    assert covered[:, 2].mean() < 94.5


def draw_p_values(n_cal: int, discrete: bool, seed: int, **options: Any) -> Floats:
    """p-values of true labels, each with its own calibration set, so that they are independent."""
    rng = np.random.default_rng(seed)
    shape = (10_500, n_cal + 1)
    pool = rng.integers(0, 6, size=shape) if discrete else rng.normal(size=shape)
    return np.array([p_values(row[1:], row[0], random_state=rng, **options) for row in pool])


DRAWN: list[Any] = [(4, False), (60, True)]
DRAWN += [pytest.param(*each, marks=pytest.mark.slow) for each in [(1, False), (1, True), (4, True), (60, False)]]


@pytest.mark.parametrize(("n_cal", "discrete"), DRAWN)
def test_smoothed_p_values_of_exchangeable_data_are_exactly_uniform(n_cal: int, discrete: bool) -> None:
    p = draw_p_values(n_cal, discrete, seed=n_cal, smoothed=True)
    assert stats.kstest(p, "uniform").pvalue > RARE


@pytest.mark.parametrize(("n_cal", "discrete"), DRAWN)
def test_p_values_of_exchangeable_data_are_stochastically_larger_than_uniform(n_cal: int, discrete: bool) -> None:
    p = draw_p_values(n_cal, discrete, seed=n_cal)
    assert stats.kstest(p, "uniform", alternative="greater").pvalue > RARE


def test_the_papers_p_value_is_not_because_it_is_zero_once_in_n_plus_one_times() -> None:
    p = draw_p_values(4, discrete=False, seed=4, finite_sample=False)
    assert stats.kstest(p, "uniform", alternative="greater").pvalue < RARE
    assert stats.binomtest(int(np.sum(p == 0)), len(p), 1 / 5).pvalue > RARE


def test_p_values_without_ties_are_uniform_on_their_grid() -> None:
    p = draw_p_values(4, discrete=False, seed=0)
    counts = np.bincount(np.rint(p * 5).astype(int), minlength=6)
    assert counts[0] == 0
    assert stats.chisquare(counts[1:]).pvalue > RARE


# --- calibration sets too small


@pytest.mark.parametrize(
    ("epsilon", "needed"),
    [
        (0.9, 1),
        (0.5, 1),
        (0.3, 3),
        (1 / 3, 2),
        (0.1, 9),
        (0.07, 14),
        (0.05, 19),
        (0.01, 99),
        (1 / 49, 48),
        (0.001, 999),
    ],
)
def test_one_score_too_few_warns_and_enough_scores_do_not(epsilon: float, needed: int) -> None:
    assert conformal.smallest_calibration(epsilon) == needed
    enough = Calibration(np.zeros(needed)).predict([[1.0, -1.0]])
    assert enough.label_sets(epsilon).tolist() == [[False, True]]
    if needed > 1:
        with warns(CalibrationWarning, needed, needed - 1):
            sets = Calibration(np.zeros(needed - 1)).predict([[1.0, -1.0]]).label_sets(epsilon)
        assert sets.all()


def test_smallest_calibration_is_exact_for_every_unit_fraction() -> None:
    assert [conformal.smallest_calibration(1 / (n + 1)) for n in range(1, 3000)] == list(range(1, 3000))


def test_the_warning_says_what_is_required_what_was_given_and_what_to_do() -> None:
    with pytest.warns(CalibrationWarning) as caught:
        Calibration(np.zeros(18)).predict([[1.0]]).label_sets(0.05)
    (message,) = [str(w.message) for w in caught]
    assert named(message, "epsilon=0.05", 19, 18, "more examples", "larger epsilon")


def test_the_warning_points_at_the_calling_line() -> None:
    prediction = Calibration(np.zeros(3)).predict([[1.0]])
    with pytest.warns(CalibrationWarning) as by_method:
        prediction.label_sets(0.05)
    with pytest.warns(CalibrationWarning) as by_function:
        label_sets(prediction.p_values, 0.05, n_calibration=3)
    assert [w.filename for w in [*by_method, *by_function]] == [__file__, __file__]


def test_rare_classes_are_named_with_their_counts() -> None:
    labels = [0] * 30 + [1] * 5 + [2] * 19 + [4] * 18
    with warns(CalibrationWarning, "class 3"):
        prediction = Calibration(np.zeros(len(labels)), labels).predict(np.ones((2, 6)))
    with warns(CalibrationWarning, "class 1 has 5", "class 3 has 0", "class 4 has 18", "class 5"):
        sets = prediction.label_sets(0.05)
    assert sets.tolist() == [[False, True, False, True, True, True]] * 2


def test_classes_that_are_all_rare_are_not_called_the_whole_calibration_set() -> None:
    # 24 examples in total would be enough; 12 per class are not.
    prediction = Calibration(np.zeros(24), [0, 1] * 12).predict([[0.0, 0.0]])
    with warns(CalibrationWarning, "class 0 has 12", "class 1 has 12"):
        prediction.label_sets(0.05)


def test_many_rare_classes_are_counted_not_listed() -> None:
    with warns(CalibrationWarning, "class 4 has 1", 95):
        label_sets(np.ones((1, 100)), 0.05, n_calibration=[1] * 100)


@pytest.mark.parametrize("options", [{"finite_sample": False}, {"smoothed": True, "random_state": 0}])
@pytest.mark.parametrize("labels", [None, [0, 0, 1]])
def test_the_papers_formula_and_smoothing_do_not_warn_because_they_can_reject(options: Any, labels: Any) -> None:
    prediction = Calibration([1.0, 2.0, 3.0], labels).predict(np.full((500, 2), 1e9), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sets = prediction.label_sets(0.05)
    assert not sets.all()


def test_p_values_of_unknown_origin_do_not_warn() -> None:
    assert label_sets([[0.5, 0.5]], 0.01).all()


# --- bad input


@pytest.mark.parametrize("epsilon", [0, 1, -0.1, 1.5, 0.0, 1.0, np.nan, np.inf, "0.05", None, True, [0.05]])
def test_epsilon_outside_the_open_unit_interval_is_refused(epsilon: Any) -> None:
    prediction = Calibration(np.arange(30)).predict([[1.0]])
    for ask in (prediction.label_sets, conformal.smallest_calibration, lambda e: label_sets([[0.5]], e)):
        with refuses(EpsilonError, "epsilon", (0, 1)):
            ask(epsilon)


@pytest.mark.parametrize("epsilon", [np.float64(0.05), np.float32(0.5)])
def test_numpy_numbers_are_epsilons(epsilon: Any) -> None:
    assert label_sets([[0.9]], epsilon).all()


@pytest.mark.parametrize(
    ("call", "error", "facts"),
    [
        (lambda: Calibration([]), InputError, []),
        (lambda: Calibration([[1.0, 2.0]]), ShapeError, ["calibration scores", "1-D", (1, 2)]),
        (lambda: Calibration(1.0), ShapeError, ["1-D", ()]),
        (
            lambda: Calibration([1.0, np.nan]),
            NonFiniteError,
            ["calibration scores", "NaN", "row 1"],
        ),
        (lambda: Calibration(["a"]), InputError, ["calibration scores"]),
        (lambda: Calibration([1.0, 2.0], [0]), ShapeError, ["calibration labels", 2, 1]),
        (lambda: Calibration([1.0, 2.0], [[0, 1]]), ShapeError, ["calibration labels", "1-D"]),
        (lambda: Calibration([1.0, 2.0], [0, -1]), LabelError, ["calibration labels", 0, -1, "row 1"]),
        (lambda: Calibration([1.0, 2.0], [0, 0.5]), LabelError, ["calibration labels", "whole"]),
        (lambda: Calibration([1.0, 2.0], ["cat", "dog"]), LabelError, ["encode"]),
        (lambda: p_values([1.0], [np.nan]), NonFiniteError, ["scores", "NaN", "row 0"]),
        (lambda: p_values([1.0], "far"), InputError, ["scores"]),
        (lambda: Calibration([1.0]).predict([1.0, 2.0]), ShapeError, ["scores", "2-D", "(2,)"]),
        (lambda: Calibration([1.0]).predict(np.ones((2, 0))), ShapeError, [(2, 0)]),
        (
            lambda: Calibration([1.0], [0]).p_values([1.0]),
            ShapeError,
            ["(n, K)", "(1,)"],
        ),
        (
            lambda: Calibration([1.0, 2.0], [0, 3]).p_values([[1.0, 2.0]]),
            ShapeError,
            ["column", 4, 2],
        ),
        (lambda: nonconformity([1.0, 2.0]), ShapeError, ["log_class_weights", "2-D"]),
        (
            lambda: nonconformity([[np.nan]]),
            NonFiniteError,
            ["log_class_weights", "NaN", "row 0", "column 0"],
        ),
        (
            lambda: nonconformity([[1.0]], "wieghts"),
            InputError,
            ["wieghts", "weights", "probability", "tails"],
        ),
        (lambda: nonconformity(np.ones((2, 0)), "probability"), ShapeError, [(2, 0)]),
        (
            lambda: conformal.true_label_scores([[1.0, 2.0]], [2]),
            LabelError,
            ["labels", "0 … 1", 2, "row 0"],
        ),
        (lambda: conformal.true_label_scores([[1.0, 2.0]], [0, 1]), ShapeError, [1, 2]),
        (lambda: label_sets([0.1, 0.2], 0.05), ShapeError, ["p_values", "2-D"]),
        (lambda: label_sets([[0.1, np.nan]], 0.05), NonFiniteError, ["p_values", "NaN"]),
        (lambda: label_sets([[0.1, 0.2]], 0.05, n_calibration=[9, 9, 9]), ShapeError, [2, 3]),
        (lambda: conformal.confidence([0.1, 0.2]), ShapeError, ["p_values", "2-D"]),
        (lambda: conformal.confidence(np.ones((2, 0))), ShapeError, [(2, 0)]),
        (lambda: conformal.credibility([0.1, 0.2]), ShapeError, ["p_values", "2-D"]),
        (lambda: conformal.credibility(np.ones((2, 0))), ShapeError, [(2, 0)]),
    ],
)
def test_bad_input_is_rejected_with_what_was_required_and_what_was_given(
    call: Any, error: type, facts: list[object]
) -> None:
    with refuses(error, *facts) as caught:
        call()
    assert type(caught.value) is error
    assert isinstance(caught.value, DwacError)
    assert isinstance(caught.value, ValueError)


# --- properties

calibrations = st.lists(any_scores, min_size=1, max_size=30)


@relaxed
@given(calibrations, st.lists(any_scores, max_size=10), st.booleans())
def test_any_p_values_match_the_loop(calibration: list[float], scores: list[float], finite_sample: bool) -> None:
    expected = [naive_p_value(calibration, s, finite_sample) for s in scores]
    assert p_values(calibration, scores, finite_sample=finite_sample).tolist() == expected


@relaxed
@given(st.lists(tied_scores, min_size=1, max_size=25))
def test_at_most_a_share_epsilon_of_any_scores_is_rejected_by_the_others(scores: list[float]) -> None:
    # The heart of the guarantee, without chance: among n+1 numbers at most j have a p-value of at most j/(n+1).
    n = len(scores)
    if n == 1:
        return
    p = np.array([p_values(scores[:i] + scores[i + 1 :], scores[i]) for i in range(n)])
    assert all(np.sum(p <= j / n) <= j for j in range(1, n + 1))


@relaxed
@given(calibrations, any_scores, any_scores, st.booleans())
def test_a_higher_score_never_has_a_higher_p_value(
    calibration: list[float], one: float, other: float, finite_sample: bool
) -> None:
    low, high = sorted((one, other))
    p_low, p_high = p_values(calibration, [low, high], finite_sample=finite_sample)
    assert p_low >= p_high


@relaxed
@given(st.lists(st.tuples(any_scores, st.integers(0, 2)), min_size=1, max_size=30), st.randoms(), st.booleans())
def test_the_order_of_calibration_examples_does_not_matter(pairs: Any, random: Any, class_conditional: bool) -> None:
    scores = np.arange(-6.0, 6).reshape(4, 3)
    before = Calibration([s for s, _ in pairs], [y for _, y in pairs] if class_conditional else None)
    random.shuffle(pairs)
    after = Calibration([s for s, _ in pairs], [y for _, y in pairs] if class_conditional else None)
    np.testing.assert_array_equal(before.p_values(scores), after.p_values(scores))


@relaxed
@given(calibrations, st.lists(st.tuples(any_scores, any_scores), min_size=1, max_size=6), epsilons, epsilons)
@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_label_sets_are_nested_in_epsilon(calibration: list[float], rows: Any, one: float, other: float) -> None:
    prediction = Calibration(calibration).predict(rows)
    low, high = sorted((one, other))
    assert (prediction.label_sets(low) >= prediction.label_sets(high)).all()


@relaxed
@given(calibrations, st.lists(st.tuples(any_scores, any_scores, any_scores), min_size=1, max_size=6), epsilons)
@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_confidence_credibility_and_label_agree_with_the_sets(calibration: Any, rows: Any, epsilon: float) -> None:
    prediction = Calibration(calibration).predict(rows)
    sets = prediction.label_sets(epsilon)
    np.testing.assert_array_equal(sets.any(axis=1), prediction.credibility > epsilon)
    np.testing.assert_array_equal(sets.sum(axis=1) > 1, np.sort(prediction.p_values, axis=1)[:, -2] > epsilon)
    np.testing.assert_array_equal(prediction.confidence, 1 - np.sort(prediction.p_values, axis=1)[:, -2])
    best = prediction.p_values[np.arange(len(rows)), prediction.labels]
    np.testing.assert_array_equal(best, prediction.credibility)
    np.testing.assert_array_equal(prediction.labels, np.argmin(rows, axis=1))


@relaxed
@given(calibrations, any_scores)
def test_p_values_lie_between_one_over_n_plus_one_and_one(calibration: list[float], score: float) -> None:
    n = len(calibration)
    p, paper = p_values(calibration, score), p_values(calibration, score, finite_sample=False)
    assert 1 / (n + 1) <= p <= 1
    assert 0 <= paper <= p
    assert p == pytest.approx((n * paper + 1) / (n + 1), rel=1e-12)


@relaxed
@given(calibrations, st.lists(any_scores, max_size=8), st.integers(0, 2**32 - 1))
def test_smoothing_only_lowers_a_p_value_and_only_by_the_ties(calibration: Any, scores: Any, seed: int) -> None:
    smoothed = p_values(calibration, scores, smoothed=True, random_state=seed)
    least = [naive_p_value(calibration, s, share=0.0) for s in scores]
    assert (smoothed <= p_values(calibration, scores)).all()
    assert (smoothed >= np.array(least)).all()


@relaxed
@given(calibrations, st.lists(st.tuples(any_scores), min_size=1, max_size=8))
def test_one_class_alone_is_the_marginal_case(calibration: list[float], rows: Any) -> None:
    labels = [0] * len(calibration)
    np.testing.assert_array_equal(Calibration(calibration, labels).p_values(rows), p_values(calibration, rows))


@relaxed
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30), st.lists(st.integers(-50, 50), max_size=8))
def test_only_the_order_of_scores_matters(calibration: list[int], scores: list[int]) -> None:
    cubed = p_values(np.array(calibration) ** 3 + 7, np.array(scores, dtype=int) ** 3 + 7)
    np.testing.assert_array_equal(p_values(calibration, scores), cubed)


@relaxed
@given(calibrations, st.lists(st.tuples(any_scores, any_scores), min_size=1, max_size=8))
def test_a_row_has_the_same_p_values_alone_and_among_others(calibration: list[float], rows: Any) -> None:
    together = p_values(calibration, rows)
    np.testing.assert_array_equal(together, np.concatenate([p_values(calibration, [row]) for row in rows]))


@relaxed
@given(calibrations, st.lists(any_scores, max_size=8), st.integers(1, 4))
def test_repeating_the_calibration_set_leaves_the_papers_share_alone(calibration: Any, scores: Any, times: int) -> None:
    once = p_values(calibration, scores, finite_sample=False)
    np.testing.assert_array_equal(p_values(calibration * times, scores, finite_sample=False), once)


@relaxed
@given(st.lists(st.tuples(*[st.floats(-1e6, 1e3)] * 3), min_size=1, max_size=5), st.floats(-1e6, 1e6))
def test_probability_ignores_a_common_offset_and_weights_does_not(rows: Any, offset: float) -> None:
    votes = np.array(rows)
    probabilities = -nonconformity(votes, "probability")
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(-nonconformity(votes + offset, "probability"), probabilities, atol=1e-8)
    np.testing.assert_array_equal(nonconformity(votes + offset), -(votes + offset))


# Cross-conformal p-values


def by_definition(scores: Any, folds: Any, asked: Any) -> Any:
    """(n,): a double loop; asked: (n, F)."""
    return np.array(
        [
            (1 + sum(own >= row[fold] for own, fold in zip(scores, folds, strict=True))) / (len(scores) + 1)
            for row in asked
        ]
    )


def test_cross_conformal_p_values_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    scores, folds, asked = rng.integers(0, 9, 40), rng.choice([0, 1, 3], 40), rng.integers(0, 9, (25, 4, 3))
    labels = rng.integers(0, 3, 40)  # fold 2 is empty
    whole, by_class = CrossCalibration(scores, folds), CrossCalibration(scores, folds, labels)
    for k in range(3):
        np.testing.assert_allclose(whole.p_values(asked)[:, k], by_definition(scores, folds, asked[:, :, k]))
        own = labels == k
        expected = by_definition(scores[own], folds[own], asked[:, :, k])
        np.testing.assert_allclose(by_class.p_values(asked)[:, k], expected)
    np.testing.assert_allclose(whole.p_values(asked[:, :, 0]), by_definition(scores, folds, asked[:, :, 0]))


def test_cross_conformal_sets_say_what_theory_has() -> None:
    calibration = CrossCalibration(np.arange(100.0), np.arange(100) % 5, table=np.arange(300.0).reshape(100, 3))
    assert calibration.guarantee(0.05) == pytest.approx(1 - 0.1 - min(2 * 0.8 / 21, 0.95 / 6))
    assert calibration.expected_sets(0.05).guarantee == calibration.guarantee(0.05)
    assert named(calibration.expected_sets(0.05), percent(calibration.guarantee(0.05)))
    few = CrossCalibration([0.1, 0.2, 0.3], [0, 1, 4])  # the others were forgotten
    assert few.guarantee(0.1) <= 1 - 2 * 0.1


def test_what_theory_has_for_each_class_is_what_the_examples_of_the_worst_class_allow() -> None:
    folds, labels = np.arange(200) % 5, np.arange(200) >= 186  # 186 examples of one class, 14 of the other
    all_together = CrossCalibration(np.arange(200.0), folds)
    by_class = CrossCalibration(np.arange(200.0), folds, labels.astype(int))
    assert all_together.guarantee(0.1) == pytest.approx(0.761, abs=5e-4)
    assert by_class.guarantee(0.1) == CrossCalibration(np.arange(14.0), folds[labels]).guarantee(0.1)
    assert by_class.guarantee(0.1) == pytest.approx(0.693, abs=5e-4)
    assert named(by_class.expected_sets(0.1), percent(by_class.guarantee(0.1)))


@pytest.mark.parametrize(
    ("asked", "options"), [(np.zeros(4), {}), (np.zeros((4, 1)), {}), (np.zeros((4, 2)), {"smoothed": True})]
)
def test_cross_conformal_p_values_need_scores_by_fold(asked: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        CrossCalibration([0.1, 0.2], [0, 1]).p_values(asked, **options)


def test_typicality_that_was_not_measured_is_not_judged() -> None:
    found = Calibration(np.arange(40.0)).predict(np.zeros((2, 3)))
    assert found.typicality is None
    with refuses(InputError, "typicality", "clf.conformal(X)"):
        found.atypical(0.1)
