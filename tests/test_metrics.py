"""Metrics against values worked out by hand, scikit-learn and double loops."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from sklearn.calibration import calibration_curve

from dwac import metrics
from dwac.errors import DwacError, EpsilonError, InputError, LabelError, NonFiniteError, ShapeError
from tests.chance import Z_RARE, judged, redrawn, usual
from tests.named import refuses

relaxed = settings(max_examples=40)


def draw_probabilities(seed: int, n: int, n_classes: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Labels drawn from their own probabilities: perfectly calibrated."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n_classes), size=n)
    y = (rng.random((n, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(max=n_classes - 1)
    return y, p


# --- accuracy and log-loss


def test_accuracy_is_the_share_of_correct_labels() -> None:
    assert metrics.accuracy([0, 1, 1, 2, 0], [0, 1, 2, 2, 1]) == 0.6


def test_accuracy_and_log_loss_match_scikit_learn() -> None:
    y, p = draw_probabilities(0, 500, 4)
    assert metrics.accuracy(y, p.argmax(axis=1)) == sklearn.metrics.accuracy_score(y, p.argmax(axis=1))
    assert metrics.log_loss(y, np.log(p)) == pytest.approx(sklearn.metrics.log_loss(y, p), rel=1e-12)


def test_log_loss_by_hand() -> None:
    log_p = np.log([[0.5, 0.5], [0.2, 0.8]])
    assert metrics.log_loss([0, 0], log_p) == pytest.approx((np.log(2) + np.log(5)) / 2)


def test_log_loss_does_not_round_tiny_probabilities() -> None:
    # As a probability, exp(-1e6) would be 0; scikit-learn clips it at about exp(-36).
    assert metrics.log_loss([1], [[0.0, -1e6]]) == 1e6
    assert metrics.log_loss([1], [[0.0, -np.inf]]) == np.inf
    assert metrics.log_loss([0], [[0.0, -np.inf]]) == 0


def test_log_loss_accepts_float32_log_probabilities() -> None:
    y, p = draw_probabilities(1, 200, 10)
    assert metrics.log_loss(y, np.log(p).astype(np.float32)) == pytest.approx(metrics.log_loss(y, np.log(p)), rel=1e-5)


# --- calibration error


def naive_calibration_error(y: Any, p: Any, n_bins: int) -> float:
    """For data without ties whose number is a multiple of the bins: sort, cut, compare, bin by bin."""
    gaps = []
    for k in range(len(p[0])):
        rows = sorted(range(len(y)), key=lambda i: p[i][k])
        size = len(rows) // n_bins
        for b in range(n_bins):
            members = rows[b * size : (b + 1) * size]
            predicted = sum(p[i][k] for i in members) / size
            gaps.append(abs(predicted - sum(y[i] == k for i in members) / size))
    return float(np.mean(gaps))


def test_calibration_error_by_hand() -> None:
    # Class 0, two bins: (.1, .3) with outcomes (0, 1), (.6, .8) with (0, 1): gaps |.2 - .5| = .3 and |.7 - .5| = .2.
    # Class 1 is its mirror image.
    p0 = np.array([0.6, 0.1, 0.8, 0.3])
    assert metrics.calibration_error([1, 1, 0, 0], np.c_[p0, 1 - p0], n_bins=2) == pytest.approx(0.25)


def test_calibration_error_is_the_mean_over_classes() -> None:
    # One bin: |mean probability - share| of each class: (.5, .3, .2) against (0, 1, 0).
    assert metrics.calibration_error([1, 1], [[0.5, 0.3, 0.2]] * 2, n_bins=1) == pytest.approx((0.5 + 0.7 + 0.2) / 3)


@pytest.mark.parametrize(("n_classes", "n_bins"), [(2, 10), (3, 5), (7, 10), (20, 4)])
def test_calibration_error_matches_a_loop(n_classes: int, n_bins: int) -> None:
    y, p = draw_probabilities(n_classes, 200, n_classes)
    assert metrics.calibration_error(y, p, n_bins) == pytest.approx(naive_calibration_error(y, p, n_bins), rel=1e-12)


@pytest.mark.parametrize("n_bins", [4, 10])
def test_calibration_error_of_two_classes_matches_scikit_learns_quantile_bins(n_bins: int) -> None:
    y, p = draw_probabilities(3, 1000, 2)
    share, predicted = calibration_curve(y, p[:, 1], n_bins=n_bins, strategy="quantile")
    assert metrics.calibration_error(y, p, n_bins) == pytest.approx(np.abs(share - predicted).mean(), rel=1e-9)


def test_bins_hold_equal_counts_however_the_probabilities_crowd() -> None:
    # Nine of ten probabilities are near 0: equal-width bins would put them all in one.
    p0 = np.r_[np.linspace(0.001, 0.009, 9), 0.9]
    y = np.r_[[0] * 5, [1] * 4, 1]  # class 0 among the lowest five, where it was all but excluded
    low, high = abs(p0[:5].mean() - 1), abs(p0[5:].mean() - 0)
    assert metrics.calibration_error(y, np.c_[p0, 1 - p0], n_bins=2) == pytest.approx((low + high) / 2)


def test_uneven_bins_differ_by_at_most_one_example() -> None:
    # Five examples in two bins: three and two, each bin counting the same.
    p0 = np.array([0.1, 0.2, 0.3, 0.6, 0.8])
    mirrored = (abs(p0[:2].mean() - 0) + abs(p0[2:].mean() - 2 / 3)) / 2  # class 1 is sorted the other way round
    plain = (abs(p0[:3].mean() - 0) + abs(p0[3:].mean() - 1)) / 2
    found = metrics.calibration_error([1, 1, 1, 0, 0], np.c_[p0, 1 - p0], n_bins=2)
    assert found == pytest.approx((plain + mirrored) / 2)


def test_more_bins_than_examples_means_one_example_per_bin() -> None:
    p0 = np.array([0.1, 0.7])
    assert metrics.calibration_error([1, 0], np.c_[p0, 1 - p0], n_bins=50) == pytest.approx((0.1 + 0.3) / 2)


@pytest.mark.parametrize(("n_classes", "n_bins"), [(5, 10), (7, 10), (20, 10), (10, 10), (3, 6)])
def test_research_divisor_adds_the_factor_classes_over_bins(n_classes: int, n_bins: int) -> None:
    y, p = draw_probabilities(0, 300, n_classes)
    published = metrics.calibration_error(y, p, n_bins, research_divisor=True)
    assert published == pytest.approx(metrics.calibration_error(y, p, n_bins) * n_classes / n_bins)


def test_research_divisor_changes_nothing_for_two_classes() -> None:
    # The research code treats two classes separately: the error of one class, undivided.
    y, p = draw_probabilities(0, 300, 2)
    assert metrics.calibration_error(y, p, research_divisor=True) == metrics.calibration_error(y, p)


def test_calibration_error_ignores_row_order_even_with_ties() -> None:
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 4, size=97), rng.multinomial(8, np.ones(4) / 4, size=97) / 8  # nine values at most
    errors = {metrics.calibration_error(y[order], p[order], 10) for order in (rng.permutation(97) for _ in range(50))}
    assert len(errors) == 1


def test_a_constant_correct_forecast_has_no_error_even_if_rows_are_sorted_by_outcome() -> None:
    y = np.repeat([0, 1], 50)
    assert metrics.calibration_error(y, np.full((100, 2), 0.5)) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("n_classes", [2, 5, pytest.param(10, marks=pytest.mark.slow)])
def test_calibrated_probabilities_have_no_more_error_than_chance(n_classes: int) -> None:
    # In a bin of m, gap ~ N(0, mean p(1-p)/m); the mean of |gap| is √(2/π) times its deviation.
    n, n_bins, errors, expected, variance = 20_000, 10, [], [], []
    for seed in range(27 if n_classes == 2 else 11):
        y, p = draw_probabilities(seed, n, n_classes)
        ordered = np.sort(p, axis=0).reshape(n_bins, n // n_bins, n_classes)
        deviations = np.sqrt((ordered * (1 - ordered)).mean(axis=1) / (n // n_bins))
        errors.append(metrics.calibration_error(y, p, n_bins))
        expected.append(np.sqrt(2 / np.pi) * deviations.mean())
        variance.append((1 - 2 / np.pi) * (deviations**2).sum() / deviations.size**2)
    z = (np.mean(errors) - np.mean(expected)) / (np.sqrt(np.sum(variance)) / len(errors))
    # Two classes mirror each other: twice the variance. The gaps of more classes are less dependent.
    assert abs(z) < Z_RARE * np.sqrt(2)
    assert max(errors) < 0.02


def test_overconfident_probabilities_have_a_large_error() -> None:
    y, p = draw_probabilities(0, 5000, 4)
    sharpened = p**4 / (p**4).sum(axis=1, keepdims=True)
    assert metrics.calibration_error(y, sharpened) > 5 * metrics.calibration_error(y, p)


@relaxed
@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 5), st.integers(1, 12))
def test_calibration_error_lies_in_the_unit_interval(seed: int, n: int, n_classes: int, n_bins: int) -> None:
    y, p = draw_probabilities(seed, n, n_classes)
    assert 0 <= metrics.calibration_error(y, p, n_bins) <= 1


# --- calibration against chance


def constant_rates(n: int, n_classes: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Labels, and the shares of the classes, the same for every row."""
    y = np.random.default_rng(0).permutation(np.arange(n) % n_classes)
    return y, np.tile(np.bincount(y, minlength=n_classes) / n, (n, 1))


@pytest.mark.parametrize(
    ("n", "n_classes"),
    [(60, 20), (600, 2)]
    + [pytest.param(n, k, marks=pytest.mark.slow) for n in (60, 600, 6000) for k in (2, 5, 20) if n * k != 1200],
)
def test_calibrated_probabilities_are_almost_never_called_miscalibrated(n: int, n_classes: int) -> None:
    beyond: list[bool] = []
    for seed in range(100, 120 if n < 6000 else 112):
        y, p = draw_probabilities(seed, n, n_classes)
        test, found = metrics.calibration_test(y, p, n_draws=200), judged(np.stack([y, *redrawn(p, 40, seed)]), p)
        np.testing.assert_allclose((found.errors[0], found.top_label[0]), (test.error.value, test.top_label.value))
        assert test.miscalibrated == (test.error.beyond or test.top_label.beyond)
        for error in (test.error, test.top_label):
            assert error.beyond or error.low == 0
        beyond += ((found.errors > test.error.limit) | (found.top_label > test.top_label.limit)).tolist()
    # Labels drawn anew exceed each limit, the 199th of 200 errors, with a probability drawn from Beta(2, 199): both
    # together at most once in 50 times. A mean above .05 of 12 such probabilities comes less than once in 1e7 times.
    assert np.mean(beyond) <= 0.05


@pytest.mark.parametrize("n_classes", [2, 5, pytest.param(20, marks=pytest.mark.slow)])
def test_overconfident_probabilities_are_called_miscalibrated_at_600_rows(n_classes: int) -> None:
    for seed in range(10):
        _, p = draw_probabilities(seed, 600, n_classes)
        sharpened = p**2 / (p**2).sum(axis=1, keepdims=True)
        test = metrics.calibration_test(usual(p, sharpened, seed), sharpened, n_draws=200)
        assert test.miscalibrated
        assert test.informative
        assert test.top_label.low > 0


@pytest.mark.parametrize("n_classes", [2, 5, 20])
def test_constant_base_rates_are_calibrated_and_uninformative(n_classes: int) -> None:
    test = metrics.calibration_test(*constant_rates(600, n_classes))
    assert not test.miscalibrated
    assert not test.informative
    assert test.resolution == pytest.approx(0, abs=1e-12)


def test_probabilities_that_vary_at_random_are_uninformative() -> None:
    informative: list[bool] = []
    for seed in range(5):
        _, p = draw_probabilities(seed, 300, 4)
        rng = np.random.default_rng(seed)
        y = rng.integers(4, size=300)
        test = metrics.calibration_test(y, p, n_draws=200)
        found = judged(np.stack([y, *rng.permuted(np.tile(y, (100, 1)), axis=1)]), p).resolution
        assert found[0] == pytest.approx(test.resolution)
        assert test.informative == (found[0] > test.chance_resolution)
        informative += (found > test.chance_resolution).tolist()
    # As above: the mean of five such probabilities is above .05 less than once in 1e7 times.
    assert np.mean(informative) <= 0.05


def test_sure_and_right_probabilities_explain_everything() -> None:
    y = np.arange(200) % 2
    test = metrics.calibration_test(y, np.eye(2)[y])
    assert test.resolution == pytest.approx(1)
    assert (test.error.value, test.error.high, test.miscalibrated, test.informative) == (0, 0, False, True)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 60), n_classes=st.integers(2, 5), n_bins=st.integers(1, 12))
@relaxed
def test_what_is_compared_with_chance_is_the_error_itself(seed: int, n: int, n_classes: int, n_bins: int) -> None:
    y, p = draw_probabilities(seed, n, n_classes)
    p = p.round(1)  # ties
    p[:, 0] += 1 - p.sum(axis=1)
    p = np.abs(p) / np.abs(p).sum(axis=1, keepdims=True)
    test = metrics.calibration_test(y, p, n_bins, n_draws=3)
    assert test.error.value == pytest.approx(metrics.calibration_error(y, p, n_bins), abs=1e-12)
    assert test.top_label.value == pytest.approx(metrics.top_label_error(y, p, n_bins), abs=1e-12)
    assert 0 <= test.resolution <= 1 + 1e-9


def test_the_errors_of_chance_are_those_of_labels_drawn_from_the_probabilities() -> None:
    _, p = draw_probabilities(0, 80, 3)
    drawn = redrawn(p, 8000, 1)
    found, test = judged(drawn, p), metrics.calibration_test(drawn[0], p, n_draws=2000)
    np.testing.assert_allclose(found.errors[:40], [metrics.calibration_error(y, p) for y in drawn[:40]])
    np.testing.assert_allclose(found.top_label[:40], [metrics.top_label_error(y, p) for y in drawn[:40]])
    for ours, theirs, most in ((test.error, found.errors, 0.03), (test.top_label, found.top_label, 0.05)):
        assert ours.expected == pytest.approx(theirs.mean(), rel=most)
        assert most * theirs.mean() > Z_RARE * theirs.std() * np.sqrt(1 / 2000 + 1 / 8000)  # more than chance may give
    # The limit, the 1,990th of 2,000 errors, is exceeded with a probability drawn from Beta(11, 1990): .02 is far off.
    assert np.mean(found.errors > test.error.limit) < 0.02


def oversure(seed: int, n: int, n_classes: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    y, p = draw_probabilities(seed, n, n_classes)
    return y, p**1.6 / (p**1.6).sum(axis=1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 5])
def test_the_interval_holds_the_true_error(n_classes: int) -> None:
    true = metrics.calibration_error(*oversure(1, 100_000, n_classes))
    tests = [metrics.calibration_test(*oversure(seed, 800, n_classes), n_draws=200).error for seed in range(2, 302)]
    # About 94 % hold it: of 300, fewer than 250 come less than once in 1e7 times.
    assert sum(test.low <= true <= test.high for test in tests) >= 250


def test_the_interval_is_around_the_true_error() -> None:
    true = metrics.calibration_error(*oversure(1, 100_000, 2))
    test = metrics.calibration_test(*oversure(2, 4000, 2), n_draws=200).error
    width = test.high - test.low  # 3.9 deviations: a width beyond the interval is nearly six
    assert 0.001 < width < 0.05
    assert test.low - width < true < test.high + width


def test_a_calibration_test_is_the_same_every_time() -> None:
    y, p = draw_probabilities(3, 100, 3)
    assert metrics.calibration_test(y, p) == metrics.calibration_test(y, p)
    assert metrics.calibration_test(y, p) != metrics.calibration_test(y, p, random_state=1)


def test_top_label_error_by_hand() -> None:
    p = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    # Two bins: of .6 and .7 one is correct, of .8 and .9 both.
    assert metrics.top_label_error([0, 1, 0, 0], p, n_bins=2) == pytest.approx((0.15 + 0.15) / 2)


def test_coverage_falls_into_its_interval_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    limits = rng.random((100_000, 19)).max(axis=1)  # ε = .05: the 19th of 19 calibration scores
    covered = rng.binomial(50, limits) / 50
    for level in (0.9, 0.999):
        low, high = metrics.coverage_interval(0.05, 19, 50, level) or (1, 0)
        # 95.58 % and 99.959 % lie in them: the nearest bound, .9999, is reached once in 5e8 times.
        assert level - 0.005 <= np.mean((low <= covered) & (covered <= high)) <= level + (1 - level) * 0.9
    assert metrics.coverage_interval(0.05, 18, 50) is None
    assert metrics.coverage_interval(0.05, 19, 0) is None


# --- coverage, set sizes


def test_coverage_finds_labels_among_the_names_of_columns() -> None:
    sets = pd.DataFrame({"b": [True, False, True], "a": [False, False, True]}, index=[7, 8, 9])
    assert metrics.coverage(pd.Series(["b", "a", "a"]), sets) == pytest.approx(2 / 3)
    with refuses(LabelError, "y", "'b', 'a'", "'c'"):
        metrics.coverage(["b", "a", "c"], sets)


def test_coverage_is_the_share_of_sets_that_contain_the_true_label() -> None:
    sets = [[True, False, True], [False, False, False], [True, True, True], [False, True, False]]
    assert metrics.coverage([0, 1, 2, 0], sets) == 0.5


def test_set_sizes_by_hand() -> None:
    sets = [[True, False, True], [False, False, False], [True, True, True], [False, True, False], [False, True, False]]
    sizes = metrics.set_sizes(sets)
    assert sizes == (7 / 5, 1 / 5, 2 / 5, 2 / 5)
    assert (sizes.mean, sizes.empty, sizes.single, sizes.multiple) == sizes


def test_set_curve_by_hand() -> None:
    p = [[0.9, 0.04], [0.3, 0.2], [0.02, 0.01]]
    curve = metrics.set_curve([0, 1, 0], p, [0.01, 0.05, 0.25])
    assert curve.columns.tolist() == ["epsilon", "coverage", "mean", "empty", "single", "multiple"]
    np.testing.assert_allclose(
        curve.to_numpy(),
        [
            [0.01, 1, 5 / 3, 0, 1 / 3, 2 / 3],
            [0.05, 2 / 3, 1, 1 / 3, 1 / 3, 1 / 3],
            [0.25, 1 / 3, 2 / 3, 1 / 3, 2 / 3, 0],
        ],
    )


@relaxed
@given(st.integers(0, 10_000), st.lists(st.floats(0.01, 0.99), min_size=1, max_size=8))
def test_along_the_set_curve_coverage_and_size_only_fall(seed: int, epsilons: list[float]) -> None:
    rng = np.random.default_rng(seed)
    curve = metrics.set_curve(rng.integers(0, 3, 20), rng.random((20, 3)), iter(sorted(epsilons)))
    assert len(curve) == len(epsilons)
    assert (np.diff(curve["coverage"]) <= 0).all()
    assert (np.diff(curve["mean"]) <= 0).all()
    assert (np.diff(curve["empty"]) >= 0).all()
    np.testing.assert_allclose(curve[["empty", "single", "multiple"]].sum(axis=1), 1)


def test_a_curve_of_no_epsilon_has_no_rows_and_all_columns() -> None:
    curve = metrics.set_curve([0], [[0.5, 0.5]], [])
    assert len(curve) == 0
    assert "coverage" in curve.columns


# --- out of distribution


def naive_fpr95(inside: Any, outside: Any) -> float:
    """The highest threshold that at least 95 % of the inside reach; the share of the outside that reaches it."""
    for threshold in sorted(set(inside), reverse=True):
        if 100 * sum(s >= threshold for s in inside) >= 95 * len(inside):
            return float(np.mean([s >= threshold for s in outside]))
    raise AssertionError("the lowest inside score lets all of them pass")


def test_ood_scores_by_hand() -> None:
    # Twenty inside scores 1 … 20: the threshold 2 lets 19 of them pass, exactly 95 %.
    inside, outside = np.arange(1, 21), np.array([0.5, 1.5, 1.9, 2.0])
    scores = metrics.ood_scores(inside, outside)
    assert scores.fpr95 == 0.25
    # Of 80 pairs, outside 0.5 loses 20, 1.5 and 1.9 lose 19 each, 2.0 loses 18 and ties once.
    assert scores.auroc == pytest.approx((20 + 19 + 19 + 18.5) / 80)


def test_perfect_useless_and_reversed_scores() -> None:
    assert metrics.ood_scores([2.0, 3.0], [0.0, 1.0]) == (1.0, 1.0, 0.0)
    assert metrics.ood_scores([1.0] * 3, [1.0] * 5) == (0.5, 3 / 8, 1.0)
    # The same data on both sides: the curve is straight, and its middle points must not be dropped.
    assert metrics.ood_scores(np.arange(20), np.arange(20)).fpr95 == 0.95
    worst = metrics.ood_scores([0.0, 1.0], [2.0, 3.0])
    assert (worst.auroc, worst.fpr95) == (0.0, 1.0)


@pytest.mark.parametrize("decimals", [1, 12])  # many ties, none
def test_ood_scores_match_scikit_learn(decimals: int) -> None:
    rng = np.random.default_rng(decimals)
    inside, outside = rng.normal(1, 1, 300).round(decimals), rng.normal(0, 1, 170).round(decimals)
    truth, values = np.repeat([1, 0], [300, 170]), np.r_[inside, outside]
    scores = metrics.ood_scores(inside, outside)
    assert scores.auroc == pytest.approx(sklearn.metrics.roc_auc_score(truth, values), rel=1e-12)
    assert scores.aupr == pytest.approx(sklearn.metrics.average_precision_score(truth, values), rel=1e-12)
    assert scores.fpr95 == naive_fpr95(inside, outside)


def test_infinite_scores_are_ordered_like_any_other() -> None:
    inside, outside = [0.0, 1.0, np.inf], [-np.inf, -np.inf, 0.5]
    finite = metrics.ood_scores([0.0, 1.0, 9.0], [-9.0, -9.0, 0.5])
    assert metrics.ood_scores(inside, outside) == finite


@relaxed
@given(
    st.lists(st.integers(-4, 4).map(float) | st.just(np.inf), min_size=1, max_size=30),
    st.lists(st.integers(-4, 4).map(float) | st.just(-np.inf), min_size=1, max_size=30),
)
def test_any_ood_scores_match_the_loops(inside: list[float], outside: list[float]) -> None:
    scores = metrics.ood_scores(inside, outside)
    wins = sum((i > o) + (i == o) / 2 for i in inside for o in outside)
    assert scores.auroc == pytest.approx(wins / (len(inside) * len(outside)), abs=1e-12)
    assert scores.fpr95 == pytest.approx(naive_fpr95(inside, outside), abs=1e-12)


# --- top-k agreement


def naive_agreement(labels: Any, near: Any, log_w: Any, k: int) -> float:
    right = 0
    for label, names, logs in zip(labels, near, log_w, strict=True):
        votes: dict[int, float] = {}
        for name, log in list(zip(names, logs, strict=True))[:k]:
            votes[name] = votes.get(name, 0.0) + float(np.exp(log))
        right += max(sorted(votes), key=lambda name: votes[name]) == label
    return right / len(labels)


def test_top_k_agreement_by_hand() -> None:
    near = [[0, 1, 1, 0], [2, 2, 1, 1]]
    log_w = np.log([[0.5, 0.3, 0.3, 0.2], [0.4, 0.1, 0.1, 0.1]])
    # First row: 0 leads with one vote and two, 1 with three (.6 to .5), 0 again with all (.7 to .6).
    agreement = metrics.top_k_agreement([0, 1], near, log_w, ks=[1, 2, 3, 4])
    assert agreement == {1: 0.5, 2: 0.5, 3: 0.0, 4: 0.5}


def test_top_k_agreement_matches_a_loop() -> None:
    rng = np.random.default_rng(0)
    near, labels = rng.integers(0, 4, size=(200, 12)), rng.integers(0, 4, size=200)
    log_w = -np.sort(rng.gamma(2, size=(200, 12)), axis=1)
    expected = {k: naive_agreement(labels, near, log_w, k) for k in range(1, 13)}
    assert metrics.top_k_agreement(labels, near, log_w, range(1, 13)) == expected


def test_far_neighbours_still_vote() -> None:
    # exp(-1e8) is 0: only the weights relative to each other can decide.
    log_w = np.array([[-1.0, -1.5, -1.6]]) - 1e8
    assert metrics.top_k_agreement([1], [[0, 1, 1]], log_w, [1, 3]) == {1: 0.0, 3: 1.0}


def test_a_label_that_no_neighbour_has_is_never_agreed_with() -> None:
    assert metrics.top_k_agreement([7], [[0, 1]], [[-1.0, -2.0]], [1, 2]) == {1: 0.0, 2: 0.0}


def test_a_neighbour_infinitely_far_away_has_no_vote() -> None:
    assert metrics.top_k_agreement([0], [[0, 1]], [[-1.0, -np.inf]], [2]) == {2: 1.0}


@relaxed
@given(st.integers(0, 10_000), st.floats(-1e6, 700))
def test_a_common_offset_of_log_weights_changes_no_agreement(seed: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    near, labels = rng.integers(0, 3, size=(9, 5)), rng.integers(0, 3, size=9)
    log_w = -np.sort(rng.integers(0, 64, size=(9, 5)), axis=1) / 8  # exact when shifted by a whole number
    shifted = metrics.top_k_agreement(labels, near, log_w + np.round(offset), [1, 3, 5])
    assert shifted == metrics.top_k_agreement(labels, near, log_w, [1, 3, 5])


# --- bad input

half = [[0.5, 0.5]]


@pytest.mark.parametrize(
    ("call", "error", "facts"),
    [
        (lambda: metrics.accuracy([], []), InputError, ["at least one example"]),
        (lambda: metrics.accuracy([0, 1], [0]), ShapeError, ["labels", "2", "1"]),
        (lambda: metrics.accuracy([[0, 1]], [0]), ShapeError, ["y", "1-D", "(1, 2)"]),
        (lambda: metrics.accuracy(["cat"], [0]), LabelError, ["y", "0 … n_classes-1", "<U3", "row 0", "LabelEncoder"]),
        (lambda: metrics.accuracy([0], [-1]), LabelError, ["labels", "0 … n_classes-1", "-1", "row 0"]),
        (lambda: metrics.log_loss([0], half), InputError, ["log_probabilities", "0", "0.5"]),
        (
            lambda: metrics.log_loss([0], [[-5.0, -7.0]]),
            InputError,
            ["log_probabilities", "sum to 1", "row 0", "0.00764983", "log-sum-exp"],
        ),
        (lambda: metrics.log_loss([2], np.log(half)), LabelError, ["y", "0 … 1", "2", "row 0"]),
        (lambda: metrics.log_loss([0, 1], np.log(half)), ShapeError, ["y", "1", "2"]),
        (lambda: metrics.log_loss([0], [-0.7, -0.7]), ShapeError, ["log_probabilities", "2-D", "(2,)"]),
        (
            lambda: metrics.log_loss([0], [[np.nan, 0]]),
            NonFiniteError,
            ["log_probabilities", "NaN", "row 0", "column 0"],
        ),
        (lambda: metrics.log_loss([], np.zeros((0, 2))), InputError, ["at least one example"]),
        (
            lambda: metrics.calibration_error([0], [[0.5, 0.6]]),
            InputError,
            ["probabilities", "sum to 1", "row 0", "1.1"],
        ),
        (
            lambda: metrics.calibration_error([0], [[-0.7, -0.7]]),
            InputError,
            ["probabilities", "[0, 1]", "-0.7", "row 0", "column 0"],
        ),
        (
            lambda: metrics.calibration_error([0], [[1.5, -0.5]]),
            InputError,
            ["probabilities", "[0, 1]", "1.5", "row 0", "column 0"],
        ),
        (
            lambda: metrics.calibration_error([0], [[np.nan, 1]]),
            NonFiniteError,
            ["probabilities", "NaN", "row 0", "column 0"],
        ),
        (lambda: metrics.calibration_error([0], [0.5, 0.5]), ShapeError, ["probabilities", "2-D", "(2,)"]),
        (lambda: metrics.calibration_error([2], half), LabelError, ["y", "0 … 1", "2", "row 0"]),
        (lambda: metrics.calibration_error([0, 1], half), ShapeError, ["y", "1", "2"]),
        (lambda: metrics.calibration_error([], np.zeros((0, 2))), InputError, ["at least one example"]),
        (lambda: metrics.calibration_error([0], half, n_bins=0), InputError, ["n_bins", "1", "0"]),
        (lambda: metrics.calibration_error([0], half, n_bins=2.0), InputError, ["n_bins", "1", "2.0"]),  # type: ignore[arg-type]
        (
            lambda: metrics.coverage([0], half),
            ShapeError,
            ["prediction sets", "(n, K)", "booleans", "float64", "(1, 2)"],
        ),
        (
            lambda: metrics.coverage([0], [[1, 0]]),
            ShapeError,
            ["prediction sets", "(n, K)", "booleans", "int64", "(1, 2)"],
        ),
        (
            lambda: metrics.coverage([0], [True, False]),
            ShapeError,
            ["prediction sets", "(n, K)", "booleans", "bool", "(2,)"],
        ),
        (lambda: metrics.coverage([2], [[True, False]]), LabelError, ["y", "0 … 1", "2", "row 0"]),
        (lambda: metrics.coverage([0, 1], [[True, False]]), ShapeError, ["y", "1", "2"]),
        (
            lambda: metrics.set_sizes(np.zeros((0, 3), bool)),
            ShapeError,
            ["prediction sets", "(n, K)", "booleans", "bool", "(0, 3)"],
        ),
        (lambda: metrics.set_curve([0], half, [0.1, 1.0]), EpsilonError, ["epsilon", "(0, 1)", "1.0", "0.05", "5"]),
        (lambda: metrics.set_curve([2], half, [0.1]), LabelError, ["y", "0 … 1", "2", "row 0"]),
        (lambda: metrics.ood_scores([], [1.0]), InputError, ["both kinds", "0 inside", "1 outside"]),
        (lambda: metrics.ood_scores([1.0], []), InputError, ["both kinds", "1 inside", "0 outside"]),
        (lambda: metrics.ood_scores([np.nan], [1.0]), NonFiniteError, ["inside scores", "NaN", "row 0"]),
        (lambda: metrics.ood_scores([1.0], [[1.0]]), ShapeError, ["outside scores", "1-D", "(1, 1)"]),
        (
            lambda: metrics.top_k_agreement([0], [[0, 1]], [[-1.0]], [1]),
            ShapeError,
            ["neighbor_labels", "neighbor_log_weights", "(1, 2)", "(1, 1)"],
        ),
        (
            lambda: metrics.top_k_agreement([0], [[0]], [[-1.0]], [2]),
            InputError,
            ["each k", "1", "2"],
        ),
        (lambda: metrics.top_k_agreement([0], [[0]], [[-1.0]], [0]), InputError, ["each k", "1", "0"]),
        (lambda: metrics.top_k_agreement([0, 1], [[0]], [[-1.0]], [1]), ShapeError, ["y", "1", "2"]),
        (
            lambda: metrics.top_k_agreement([0], [[-1]], [[-1.0]], [1]),
            LabelError,
            ["neighbor_labels", "0 … n_classes-1", "-1", "row 0"],
        ),
        (
            lambda: metrics.top_k_agreement([0], [[0]], [[np.nan]], [1]),
            NonFiniteError,
            ["neighbor_log_weights", "NaN", "row 0", "column 0"],
        ),
        (
            lambda: metrics.top_k_agreement([0], [[0]], [[-np.inf]], [1]),
            NonFiniteError,
            ["neighbor_log_weights", "finite", "row 0", "-inf"],
        ),
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


# --- numbers and intervals


def test_interval_coverage_counts_both_ends_and_infinite_intervals_in_any_shape() -> None:
    intervals = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [-np.inf, np.inf], [2.0, 2.0]])
    assert metrics.interval_coverage([0, 1, 1.1, 1e300, 2], intervals) == 0.8
    both = np.stack([intervals, intervals + 1], axis=1)  # (n, T, 2): two numbers per row
    assert metrics.interval_coverage(np.array([[0, 1], [1, 0], [1.1, 1], [5, 5], [2, 2]]), both) == 0.7


def test_interval_widths_count_infinite_intervals_apart() -> None:
    found = metrics.interval_widths([[0.0, 1.0], [0.0, 3.0], [0.0, np.inf], [-np.inf, np.inf]])
    assert found == (2.0, 2.0, 0.5)
    assert metrics.interval_widths([[-np.inf, 0.0]]) == (np.inf, np.inf, 1.0)
    assert metrics.interval_widths([[4.0, 4.0]]) == (0.0, 0.0, 0.0)


def crps_by_integration(y: float, targets: Any, shares: Any) -> float:
    """∫ (F(t) - 1{t ≥ y})² dt, piece by piece: the integrand is constant between targets and y."""
    points = np.unique([*targets, y])
    middles = (points[1:] + points[:-1]) / 2
    values = [(sum(p for t, p in zip(targets, shares, strict=True) if t <= m) - (m >= y)) ** 2 for m in middles]
    return float(np.sum(np.array(values) * np.diff(points)))


@relaxed
@given(st.integers(1, 7), st.booleans(), st.integers(0, 2**32 - 1))
def test_crps_is_the_integral_of_its_definition(m: int, shared: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, targets, shares = (
        rng.integers(-3, 4, 5),
        rng.integers(-3, 4, m if shared else (5, m)),
        rng.dirichlet(np.ones(m), 5),
    )
    rows = np.broadcast_to(targets, (5, m))
    expected = [crps_by_integration(*row) for row in zip(y, rows, shares, strict=True)]
    np.testing.assert_allclose(metrics.crps(y, targets, shares), expected, atol=1e-12)


def test_crps_of_a_single_target_is_the_absolute_error_and_an_honest_spread_is_best() -> None:
    assert metrics.crps([3.0, -1.0], [1.0], [[1.0], [1.0]]).tolist() == [2.0, 2.0]
    # The mean absolute difference of draws of one distribution: half of it is the best expected score.
    y, grid = (stats.norm.ppf((np.arange(n) + 0.5) / n) for n in (1000, 200))
    honest, sure = (metrics.crps(y, scale * grid, np.full((1000, 200), 1 / 200)).mean() for scale in (1.0, 0.3))
    assert honest == pytest.approx(1 / np.sqrt(np.pi), rel=0.03)
    assert honest < sure


# --- ordered labels


def test_ranked_probability_score_matches_a_double_loop_and_the_crps() -> None:
    y, p = draw_probabilities(3, 50, 5)
    loop = [sum((p[i, : k + 1].sum() - (y[i] <= k)) ** 2 for k in range(4)) / 4 for i in range(50)]
    assert metrics.ranked_probability_score(y, p) == pytest.approx(np.mean(loop))
    assert metrics.ranked_probability_score(y, p) == pytest.approx(metrics.crps(y, np.arange(5), p).mean() / 4)


def test_ranked_probability_score_is_zero_if_right_and_one_at_the_other_end() -> None:
    assert metrics.ranked_probability_score([0, 2], [[1, 0, 0], [0, 0, 1]]) == 0
    assert metrics.ranked_probability_score([0], [[0, 0, 1]]) == 1
    assert metrics.ranked_probability_score([0, 0], [[1.0], [1.0]]) == 0


def test_the_curve_of_ordered_sets_is_that_of_intervals() -> None:
    p = np.array([[0.5, 0.01, 0.3], [0.5, 0.2, 0.01]])
    plain, ordered = (metrics.set_curve([1, 0], p, [0.1], ordered=either) for either in (False, True))
    assert plain["coverage"].tolist() == [0.5]
    assert ordered["coverage"].tolist() == [1.0]
    assert ordered["mean"].tolist() == [2.5]


# --- several labels


def test_decision_shares_by_hand_and_without_any_row_of_a_kind() -> None:
    Y = np.array([[1, 0, 1], [1, 0, 0]], dtype=bool)
    assert metrics.decision_shares(Y, [[1, 0, 0], [-1, 1, 1]]) == (1 / 3, 2 / 3, 1 / 6)
    assert metrics.decision_shares([[1, 1]], [[1, 0]]) == (0.5, 0.0, 0.0)
    assert metrics.decision_shares([[0, 0]], [[-1, -1]]) == (0.0, 0.0, 1.0)


def test_missed_share_averages_over_rows_and_a_row_without_labels_misses_none() -> None:
    Y, sets = [[1, 1, 1], [0, 1, 0], [0, 0, 0]], np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0]], dtype=bool)
    assert metrics.missed_share(Y, sets) == pytest.approx((2 / 3 + 0 + 0) / 3)


@pytest.mark.parametrize(
    ("call", "error", "facts"),
    [
        (lambda: metrics.interval_coverage([1.0], [[0.0, 1.0]] * 2), ShapeError, ["y", "(2,)", "(1,)"]),
        (lambda: metrics.interval_coverage([1.0], [[2.0, 1.0]]), InputError, ["interval", "2", "1"]),
        (lambda: metrics.interval_coverage([np.nan], [[0.0, 1.0]]), NonFiniteError, ["y", "NaN", "row 0"]),
        (lambda: metrics.interval_widths(np.zeros((0, 2))), ShapeError, ["intervals", "(n, 2)", "(0, 2)"]),
        (lambda: metrics.interval_widths([0.0, 1.0]), ShapeError, ["intervals", "(n, 2)", "(2,)"]),
        (
            lambda: metrics.crps([1.0], [1.0, 2.0], [[1.0]]),
            ShapeError,
            ["(1, 1)", "(n,)", "(m,)", "(n, m)", "(1,)", "(2,)"],
        ),
        (lambda: metrics.crps([1.0], [1.0], [[0.4]]), InputError, ["shares", "sum to 1", "row 0", "0.4"]),
        (lambda: metrics.crps([np.inf], [1.0], [[1.0]]), NonFiniteError, ["y", "targets", "finite"]),
        (lambda: metrics.ranked_probability_score([3], [[0.5, 0.5]]), LabelError, ["y", "0 … 1", "3", "row 0"]),
        (lambda: metrics.decision_shares([[1]], [[2]]), ShapeError, ["decisions", "1, 0", "-1", "(1, 1)", "int64"]),
        (
            lambda: metrics.decision_shares([[3]], [[1]]),
            ShapeError,
            ["Y", "(n, L)", "booleans", "0", "1", "int64", "(1, 1)"],
        ),
        (lambda: metrics.missed_share([[1]], [[1, 0]]), ShapeError, ["Y", "sets", "same shape", "(1, 1)", "(1, 2)"]),
    ],
)
def test_bad_targets_are_rejected_with_what_was_required(call: Any, error: type, facts: list[object]) -> None:
    with refuses(error, *facts) as caught:
        call()
    assert type(caught.value) is error
