"""DWACRegressor: means, distributions and intervals by votes; edits, folders, bad targets and the edges of numbers."""

import gc
import weakref
from copy import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import betabinom
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import dwac
import dwac.estimator.evaluation
from dwac import DWACRegressor, ReferenceSet, Training
from dwac.errors import (
    CalibrationError,
    InputError,
    LabelError,
    NonFiniteError,
    ShapeError,
    UnreadableWarning,
)
from dwac.estimator.held_out import Folds, HeldOutRows
from dwac.explain.numbers import in_groups
from dwac.tasks.intervals import calibrate_intervals, intervals
from dwac.training.cross_fit import FOLDS
from tests.chance import RARE
from tests.named import named, refuses, warns
from tests.steps import ALL, steps

pytestmark = pytest.mark.usefixtures("few_steps")

REASON = (
    "a row of weight 2 weighs twice in the loss but votes once, and two equal rows may fall into different parts, so "
    "that weighting and repeating rows differ by design"
)
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": REASON,
    "check_sample_weight_equivalence_on_sparse_data": REASON,
}
QUICK: dict[str, Any] = {
    "epochs": 6,
    "training": Training(batch_size=32, learning_rate=1e-2),
    "random_state": 0,
    "device": "cpu",
}


@pytest.mark.usefixtures("all_steps")
@pytest.mark.slow
@parametrize_with_checks([DWACRegressor(**QUICK)], expected_failed_checks=lambda _: EXPECTED)  # type: ignore[untyped-decorator]
@pytest.mark.filterwarnings("ignore")
def test_follows_the_rules_of_scikit_learn(estimator, check) -> None:
    check(estimator)


def line(n: int = 300, seed: int = 0, noise: float = 0.3) -> tuple[pd.DataFrame, pd.Series]:
    """A number that follows two columns, with more noise where x is large."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"x": rng.uniform(0, 3, n), "z": rng.normal(size=n)}, index=[f"row{i}" for i in range(n)])
    return X, pd.Series(2 * X["x"] + X["z"] + noise * X["x"] * rng.normal(size=n), index=X.index)


@pytest.fixture(scope="module")
def crossed() -> DWACRegressor:
    with steps(ALL):
        return DWACRegressor(random_state=0, device="cpu").fit(*line())


@pytest.fixture(scope="module")
def split() -> DWACRegressor:
    training = Training(learning_rate=1e-2)
    reg = DWACRegressor(cross_fit=False, random_state=0, device="cpu", epochs=10, training=training)
    return reg.fit(*line(600))


def test_predicts_numbers_better_than_their_mean(crossed, split) -> None:
    X, y = line(200, seed=1)
    for reg in (crossed, split):
        assert reg.score(X, y) > 0.85
    assert [reg.cross_fitted_ for reg in (crossed, split)] == [True, False]


def test_the_prediction_is_the_weighted_mean_of_the_voters_own_numbers(split) -> None:
    X, _ = line(5, seed=1)
    h, refs = split.embed(X), split.references_
    squared = np.square(h[:, None].astype(float) - refs.embeddings.numpy()).sum(axis=2)
    w = np.exp(refs.voters.log_weights_at(torch.as_tensor(squared)).numpy())
    y = refs.targets.numpy()[:, 0]
    np.testing.assert_allclose(split.predict(X), w @ y / w.sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(split.predict_distribution(X).mean, split.predict(X))


def test_quantiles_cdf_and_crps_are_of_one_distribution(split) -> None:
    X, y = line(20, seed=2)
    votes = split.predict_distribution(X)
    quantiles = split.predict_quantiles(X, [0.1, 0.5, 0.9])
    assert quantiles.shape == (20, 3)
    assert (np.diff(quantiles) >= 0).all()
    assert (votes.cdf(quantiles[:, 1]) >= 0.5).all()
    np.testing.assert_array_equal(votes.median, quantiles[:, 1])
    grid = np.linspace(y.min() - 20, y.max() + 20, 20_001)
    row = 3
    one = split.predict_distribution(X.iloc[[row]])
    cdf = np.array([one.cdf(t)[0] for t in grid[::100]])
    integral = np.sum((cdf - (y.iloc[row] <= grid[::100])) ** 2) * (grid[100] - grid[0])
    assert votes.crps(y)[row] == pytest.approx(integral, abs=0.3)
    assert len(votes) == 20
    with refuses(ShapeError, "y"):
        votes.crps(y[:3])


def test_settings_of_the_average_apply_without_training(crossed) -> None:
    X, _ = line(10, seed=3)
    before = crossed.predict(X)
    crossed.average = "median"
    try:
        np.testing.assert_array_equal(crossed.predict(X), crossed.predict_distribution(X).median)
        crossed.average = "medain"
        with refuses(InputError, "mean", "median", "medain"):
            crossed.predict(X)
    finally:
        crossed.average = "mean"
    np.testing.assert_array_equal(crossed.predict(X), before)


@pytest.mark.parametrize("heavy", [False, True])
def test_intervals_cover_as_often_as_promised(split, heavy) -> None:
    """Within the beta-binomial law of as many calibration rows, by rows like these: heavy tails or not."""
    rng = np.random.default_rng(5)
    X, y = line(3300, seed=4)
    y = y + rng.standard_t(1.2, len(y)) if heavy else y
    cal, new = np.arange(len(y)) < 1100, np.arange(len(y)) >= 1100
    reg = copy(split).recalibrate(X[cal], y[cal], ids=[f"new{i}" for i in range(1100)])
    for epsilon in (0.1, 0.3):
        found = reg.predict_interval(X[new], epsilon)
        covered = int(((found[:, 0] <= y[new]) & (y[new] <= found[:, 1])).sum())
        missed = int(np.floor(epsilon * 1101))
        law = betabinom(new.sum(), 1101 - missed, missed)
        assert law.ppf(RARE) <= covered <= law.isf(RARE)


def test_cross_fitted_intervals_hold_most_numbers_and_say_what_is_certain(crossed) -> None:
    X, y = line(400, seed=6)
    found, guarantee = crossed.predict_interval(X, 0.1), crossed.expected_intervals(0.1).guarantee
    assert 0.7 < guarantee < 0.8
    assert 0.7 < ((found[:, 0] <= y) & (y <= found[:, 1])).mean() < 1  # .9 is expected, give or take .033
    wide, narrow = found[X["x"] > 2.5], found[X["x"] < 0.5]
    assert np.mean(wide[:, 1] - wide[:, 0]) > 1.5 * np.mean(narrow[:, 1] - narrow[:, 0])


def test_intervals_by_group_are_calibrated_within_each() -> None:
    X, y = line(900, seed=7, noise=0.0)
    groups = np.where(np.arange(900) % 3 == 0, "noisy", "calm")
    y = y + np.where(groups == "noisy", 3.0, 0.2) * np.random.default_rng(0).normal(size=900)
    reg = DWACRegressor(cross_fit=False, calibration_size=400, epochs=8, random_state=0, device="cpu")
    reg.fit(X[:700], y[:700], within=groups[:700])
    by_group = reg.predict_interval(X[700:], 0.2, within=groups[700:])
    width = by_group[:, 1] - by_group[:, 0]
    assert width[groups[700:] == "noisy"].mean() > 1.3 * width[groups[700:] == "calm"].mean()
    with pytest.warns(dwac.errors.CalibrationWarning):
        assert np.isinf(reg.predict_interval(X[:1], 0.2, within=["unknown"])).all()
    with refuses(ShapeError, "within", 3, 1):
        reg.predict_interval(X[:3], 0.2, within=["calm"])


def cross_fitted_coverage(rng: np.random.Generator, n: int, epsilon: float, kinds: int = 1) -> tuple[Any, Any, Any]:
    """Numbers (n, 2), intervals of 100 new rows and whether they hold the truth, by votes that need no training."""
    h = torch.as_tensor(np.repeat(2 * rng.normal(size=(n + 100, 1)), FOLDS, axis=1))
    y = h.numpy()[:, :2] + rng.normal(size=(n + 100, 2))
    ids, groups = pd.Index(np.arange(n)), np.arange(n + 100) % kinds
    voters = ReferenceSet(h[:n], np.zeros(n, dtype=int), ids.tolist(), targets=y[:n])
    folds = Folds(ids, rng.permutation(np.arange(n) % FOLDS), FOLDS)
    rows = HeldOutRows(h[:n], h[:n, :0], np.zeros(n, dtype=np.int64), ids, y[:n])
    found = intervals(
        voters, h[n:], calibrate_intervals(voters, rows, folds, groups[:n].tolist()), epsilon, folds, groups[n:]
    )
    return y[:n], found, (found[..., 0] <= y[n:]) & (y[n:] <= found[..., 1])


def test_cross_fitted_intervals_can_leave_the_range_of_training_numbers() -> None:
    y, found, _ = cross_fitted_coverage(np.random.default_rng(0), 21, 0.05)
    for t in range(2):  # at so small an ε one row decides, and the row with the largest number is beyond all others
        low, high = y[:, t].min(), y[:, t].max()
        assert found[:, t, 0].min() < low - 0.01 * (high - low)
        assert found[:, t, 1].max() > high + 0.01 * (high - low)


@pytest.mark.usefixtures("all_steps")
@pytest.mark.slow
def test_cross_fitted_intervals_hold_nine_of_ten_numbers_on_average() -> None:
    covered = []
    for seed in range(12):
        X, y = line(400, seed=100 + seed)
        found = DWACRegressor(random_state=0, device="cpu").fit(*line(seed=seed)).predict_interval(X, 0.1)
        covered.append(((found[:, 0] <= y) & (y <= found[:, 1])).mean())
    assert 0.84 <= np.mean(covered) <= 0.97  # 6 deviations of the mean below .9


@pytest.mark.usefixtures("all_steps")
@pytest.mark.slow
@pytest.mark.parametrize(("n", "epsilon", "kinds"), [(21, 0.05, 1), (63, 0.05, 3), (100, 0.01, 1)])
def test_cross_fitted_intervals_cover_as_asked_however_few_rows_may_be_missed(n, epsilon, kinds) -> None:
    rng = np.random.default_rng(0)
    covered = [cross_fitted_coverage(rng, n, epsilon, kinds)[2].mean() for _ in range(320)]
    assert np.mean(covered) > 1 - epsilon - 0.3 * np.std(covered)  # 5.4 deviations of the mean


def test_groups_need_groups_in_fit(split) -> None:
    with refuses(InputError, "within=…"):
        split.predict_interval(line(3)[0], within=["a", "b", "c"])
    with refuses(ShapeError, "within", 50, 1):
        DWACRegressor(**QUICK).fit(*line(50), within=["a"])


def test_settings_of_the_next_fit_do_not_change_what_is_measured() -> None:
    X, y = line(120)
    reg = DWACRegressor(cross_fit=False, epochs=3, random_state=0, device="cpu").fit(X[:80], y[:80])
    before = dwac.estimator.evaluation.predict(reg, X[80:]).evaluate(y[80:], 0.3)
    after = dwac.estimator.evaluation.predict(reg.set_params(kernel="laplace"), X[80:]).evaluate(y[80:], 0.3)
    assert (after.crps, after.typicality) == (before.crps, before.typicality)
    assert before.crps < before.mae
    assert named(repr(reg.condense(40)), "# 40 representatives", "number")


def test_calibration_keeps_its_own_numbers() -> None:
    X, y = line(120)
    reg = DWACRegressor(cross_fit=False, epochs=3, random_state=0, device="cpu").fit(X[:80], y[:80])
    given = y[80:].to_numpy(copy=True)
    before = reg.recalibrate(X[80:], given).predict_interval(X[:3], 0.2)
    given[:] = 1e6
    reg.forget(["row0"]).add_references(X[:1], y[:1])  # calibration follows
    after = reg.predict_interval(X[:3], 0.2)
    assert np.abs(after).max() < 2 * np.abs(before).max() + 1


def test_groups_are_those_of_the_rows_that_calibrate(tmp_path) -> None:
    X, y = line(400)
    reg = DWACRegressor(cross_fit=False, calibration_size=60, epochs=3, random_state=0, device="cpu")
    reg.fit(X[:200], y[:200], within=["a", "b"] * 100)
    gone = reg.calibration_ids_[:3].tolist()
    kept: Any = reg.forget(gone).fitted_.within
    assert not kept.index.isin(gone).any()
    reg.recalibrate(X[200:], y[200:])
    with refuses(InputError, "recalibrate", "within=…"):
        reg.predict_interval(X[:2], 0.2, within=["a", "b"])
    with refuses(ShapeError, "within", 200, 1):
        reg.recalibrate(X[200:], y[200:], within=["a"])
    reg.recalibrate(X[200:], y[200:], within=["a"] * 195 + ["b"] * 5)
    with warns(dwac.errors.CalibrationWarning, "group 'b'", 9, 5):
        found = reg.predict_interval(X[:2], 0.1, within=["a", "b"])
    assert np.isfinite(found).all(axis=1).tolist() == [True, False]
    again = dwac.load(reg.save(tmp_path / "model"), device="cpu")
    with warns(dwac.errors.CalibrationWarning, "group 'b'", 9, 5):
        np.testing.assert_array_equal(again.predict_interval(X[:2], 0.1, within=["a", "b"]), found)
    with refuses(InputError, "nan", "row 0"):
        DWACRegressor(**QUICK).fit(*line(2), within=[np.nan, "a"])


@pytest.mark.parametrize(
    "times",
    [
        pd.Series(pd.date_range("2024-01-01", periods=30)),
        pd.Series(pd.date_range("2024-01-01", periods=30, tz="UTC")),
        pd.date_range("2024-01-01", periods=30).to_numpy(),
        pd.DataFrame({"a": range(30), "b": pd.to_timedelta(np.arange(30), "D")}),
    ],
)
def test_dates_are_no_numbers(times) -> None:
    with refuses(LabelError, "dates"):
        DWACRegressor(**QUICK).fit(line(30)[0], times)


def test_numbers_whose_squares_overflow_are_refused_before_training() -> None:
    X, y = line(30)
    y.iloc[4] = -1e200
    with refuses(NonFiniteError, "1e+150", "row 4"):
        DWACRegressor(**QUICK).fit(X, y)


def test_few_calibration_rows_give_infinite_intervals_and_say_so() -> None:
    X, y = line(40)
    reg = DWACRegressor(cross_fit=False, calibration_size=5, epochs=3, device="cpu", random_state=0).fit(X, y)
    with warns(dwac.errors.CalibrationWarning, "epsilon=0.1", 9, 5):
        assert np.isinf(reg.predict_interval(X[:2], 0.1)).all()
    assert "infinite" in str(reg.expected_intervals(0.1))
    reg.forget(reg.calibration_ids_)
    with refuses(CalibrationError, "recalibrate(X, y"):
        reg.predict_interval(X[:2])
    with refuses(CalibrationError, "recalibrate(X, y"):
        reg.typicality(X[:2])


def test_unlike_rows_are_atypical(crossed) -> None:
    X, _ = line(200, seed=8)
    assert 0.3 < crossed.typicality(X).mean() < 0.7
    assert crossed.typicality(pd.DataFrame({"x": [50.0], "z": [-40.0]})).max() < 0.05


def test_a_saved_regressor_predicts_the_same(crossed, split, tmp_path) -> None:
    X, y = line(30, seed=9)
    for name, reg in (("crossed", crossed), ("split", split)):
        again = dwac.load(reg.save(tmp_path / name), device="cpu")
        assert isinstance(again, DWACRegressor)
        np.testing.assert_array_equal(again.predict(X), reg.predict(X))
        np.testing.assert_array_equal(again.predict_interval(X), reg.predict_interval(X))
        np.testing.assert_allclose(again.typicality(X), reg.typicality(X))
        np.testing.assert_array_equal(again.predict_distribution(X).crps(y), reg.predict_distribution(X).crps(y))
    private = dwac.load(crossed.save(tmp_path / "private", include_examples=False), device="cpu")
    assert private.private_
    np.testing.assert_array_equal(private.predict(X), crossed.predict(X))


def test_voters_come_and_go_without_training(tmp_path) -> None:
    X, y = line(120)
    reg = DWACRegressor(random_state=0, device="cpu").fit(X, y)
    before = reg.predict(X[:5])
    other, numbers = line(3, seed=9)
    reg.add_references(other.set_axis(["a", "b", "c"]), numbers.to_numpy() + 100)
    assert abs(reg.predict(other)[0] - numbers.iloc[0]) > 1
    reg.forget(["a", "b", "c"])
    np.testing.assert_allclose(reg.predict(X[:5]), before, rtol=1e-9)
    again = dwac.load(reg.forget(["row3", "row7"]).save(tmp_path / "model"), device="cpu")
    assert len(again.references_) == 118
    np.testing.assert_array_equal(again.predict(X[:5]), reg.predict(X[:5]))


def test_few_voters_predict_nearly_what_all_do(split) -> None:
    X, _ = line(100, seed=10)
    few = split.condense(120)
    assert len(few.references_) == 120
    assert few.references_.targets.shape == (120, 1)
    assert np.abs(few.predict(X) - split.predict(X)).mean() < 0.3
    assert few.agreement_.share > 0.2
    assert named(repr(few), "# 120 representatives")
    assert few.predict_interval(X[:3], 0.2).shape == (3, 2)


def test_representatives_calibrate_too_as_no_fold_has_its_own_rows(crossed) -> None:
    few = crossed.condense(60)
    assert len(few.sets_.calibration()[0].scores) == len(crossed.calibration_ids_)
    X, y = line(400, seed=12)
    found = few.predict_interval(X, 0.1)
    assert ((found[:, 0] <= y) & (y <= found[:, 1])).mean() > 0.85


@pytest.mark.usefixtures("all_steps")
def test_several_numbers_are_predicted_at_once(tmp_path) -> None:
    X, y = line(240)
    both = pd.DataFrame({"up": y, "down": -3 * y + 1})
    reg = DWACRegressor(random_state=0, device="cpu").fit(X, both)
    new, truth = line(60, seed=11)
    found = reg.predict(new)
    assert found.shape == (60, 2)
    assert np.corrcoef(found[:, 1], -3 * truth + 1)[0, 1] > 0.9
    intervals = reg.predict_interval(new, 0.2)
    assert intervals.shape == (60, 2, 2)
    assert reg.predict_quantiles(new, [0.5]).shape == (60, 2, 1)
    assert reg.predict_distribution(new).crps(np.stack([truth, -3 * truth + 1], axis=1)).shape == (60, 2)
    again = dwac.load(reg.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(again.predict_interval(new, 0.2), intervals)
    assert list(again.target_.names) == ["up", "down"]
    with refuses(ShapeError, 2):
        reg.recalibrate(new, truth)


UNUSUAL = [
    np.full(60, 7.25),  # constant
    np.repeat([1.0, 2.0, 5.0], 20),  # exactly repeated
    np.concatenate([np.arange(59.0), [1e9]]),  # one far outside
    np.random.default_rng(0).standard_cauchy(60),  # heavy tails
    1e-200 * np.arange(1, 61.0),
    1e120 * np.arange(1, 61.0),
]


@pytest.mark.parametrize(
    ("numbers", "cross_fit"),
    [
        *((numbers, place in (0, 2, 5)) for place, numbers in enumerate(UNUSUAL)),
        *(pytest.param(numbers, place in (1, 3, 4), marks=pytest.mark.slow) for place, numbers in enumerate(UNUSUAL)),
    ],
)
def test_any_finite_numbers_can_be_predicted(numbers, cross_fit) -> None:
    X = pd.DataFrame({"x": np.arange(60.0)})
    settings: dict[str, Any] = {} if cross_fit else {"epochs": 3}
    reg = DWACRegressor(cross_fit=cross_fit, random_state=0, device="cpu", **settings).fit(X, numbers)
    found = reg.predict(X)
    assert np.isfinite(found).all()
    assert (found >= numbers.min() * (1 - 1e-12)).all() or numbers.min() < 0
    intervals = reg.predict_interval(X, 0.2)
    assert not np.isnan(intervals).any()
    assert (intervals[:, 0] <= intervals[:, 1]).all()
    if np.ptp(numbers) == 0:
        np.testing.assert_allclose(found, numbers)
        np.testing.assert_array_equal(intervals, numbers[0])
    else:
        covered = (intervals[:, 0] <= numbers) & (numbers <= intervals[:, 1])
        assert covered.mean() > 0.6


@pytest.mark.parametrize(
    ("y", "error", "facts"),
    [
        (["1", "two", "3"] * 10, LabelError, ["y", "'two'", "DWACClassifier", "pandas.to_numeric"]),
        ([1.0, np.nan, 3.0] * 10, NonFiniteError, ["y", "row 1", "NaN", "drop"]),
        ([1.0, 2.0, np.inf] * 10, NonFiniteError, ["y", "row 2", "infinite", "drop"]),
        ([1.0, 2.0], ShapeError, ["30 rows", "2"]),
        (None, LabelError, ["DWACRegressor", "y", "None"]),
        (np.ones((30, 2, 2)), ShapeError, ["y", "(30, 2, 2)"]),
    ],
)
def test_targets_that_are_no_numbers_are_refused_in_a_sentence(y, error, facts) -> None:
    reg = DWACRegressor(**QUICK)
    with refuses(error, *facts):
        reg.fit(pd.DataFrame({"x": np.arange(30.0)}), y)
    assert not hasattr(reg, "model_")


def test_gaps_of_nullable_columns_are_named() -> None:
    y = pd.Series([1, 2, None] * 10, dtype="Int64")
    with refuses(NonFiniteError, "row 2"):
        DWACRegressor(**QUICK).fit(pd.DataFrame({"x": np.arange(30.0)}), y)


@pytest.mark.slow
def test_texts_images_and_networks_of_ones_own_predict_numbers() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 6, 80)
    texts = [" ".join(["very"] * int(k) + ["good", "bad"]) for k in counts]
    unread = DWACRegressor(**QUICK).fit(texts, counts)
    assert unread.predict(texts[:3]).shape == (3,)
    with warns(UnreadableWarning, "1 of 2", "row 0"):
        found = unread.predict(["", texts[0]])
    with warns(UnreadableWarning, "1 of 2", "row 0"):
        interval = unread.predict_interval(["", texts[0]], epsilon=0.1)
    assert np.isnan(found).tolist() == [True, False]
    assert np.isnan(interval).tolist() == [[True, True], [False, False]]
    pictures = rng.integers(0, 255, (60, 8, 8)).astype(np.uint8)
    brightness = pictures.mean(axis=(1, 2))
    assert np.isfinite(DWACRegressor(**QUICK).fit(pictures, brightness).predict(pictures[:2])).all()
    own = DWACRegressor(nn.Linear(2, 4), **QUICK).fit(line(60)[0].to_numpy(np.float32), line(60)[1])
    assert np.isfinite(own.predict(line(3)[0].to_numpy(np.float32))).all()


@pytest.mark.usefixtures("all_steps")
def test_works_in_a_pipeline_and_in_cross_validation() -> None:
    X, y = load_diabetes(return_X_y=True)
    pipe = make_pipeline(StandardScaler(), DWACRegressor(random_state=0, device="cpu"))
    assert cross_val_score(pipe, X[:200], y[:200], cv=2).mean() > 0.2


def test_sample_weights_count_in_the_loss() -> None:
    X, y = line(200)
    weights = np.where(X["x"] > 1.5, 1.0, 1e-6)
    reg = DWACRegressor(random_state=0, device="cpu").fit(X, y, sample_weight=weights)
    assert np.isfinite(reg.predict(X)).all()
    with refuses(ShapeError, "1D"):
        DWACRegressor(**QUICK).fit(X, y, sample_weight=np.ones((200, 2)))


def test_fits_with_one_seed_are_the_same() -> None:
    X, y = line(60)
    first, second = (DWACRegressor(random_state=3, device="cpu").fit(X, y).predict(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_explanations_by_other_voters_leave_nothing_behind() -> None:
    X, y = line(120)
    reg = DWACRegressor(random_state=0, device="cpu").fit(X, y)
    kept = len(reg.sets_.describe_groups(reg.references_) or [])
    others = copy(reg.references_)
    others.remove(others.ids[:1].tolist())
    assert reg.sets_.describe_groups(others) is not None
    gone = weakref.ref(in_groups(others).groups)
    del others
    gc.collect()
    assert gone() is None
    assert len(reg.sets_.describe_groups(reg.references_) or []) == kept > 0
