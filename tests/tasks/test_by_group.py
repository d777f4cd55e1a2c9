"""Measures by group: equal to the mean of each group, with intervals and tests that hold what they say."""

import json
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, binomtest, fisher_exact, norm

from dwac import DWACClassifier, DWACRegressor
from dwac.errors import InputError, ShapeError
from dwac.metrics import roc_auc
from dwac.tasks import by_group, group_statistics
from dwac.tasks.by_group import GroupComparison, compare_groups, read_groups
from dwac.tasks.group_statistics import AreaMeasure, GroupMeasure, holm, rate_interval
from dwac.tasks.predictions import mean
from tests.estimator.helpers import fit_once
from tests.named import named, refuses


def people(n: int, seed: int) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"x": rng.normal(size=n), "sex": rng.choice(["f", "m"], n), "region": rng.choice(list("abc"), n)}
    )
    frame.loc[rng.random(n) < 0.1, "region"] = None
    return frame, np.where(frame["x"] + rng.normal(size=n) > 0, "yes", "no")


X, Y = people(300, 0)
NEW, TRUE = people(240, 1)


@pytest.fixture(scope="module")
def clf() -> DWACClassifier:
    model: DWACClassifier = fit_once(DWACClassifier(epochs=3, random_state=0, device="cpu"), X, Y)
    return model


# Values


def test_measures_are_those_of_each_group_and_intersection(clf: DWACClassifier) -> None:
    result = clf.evaluate(NEW, TRUE, by=["sex", "region"], epsilon=0.2)
    groups, predicted, p = result.groups, clf.predict(NEW), clf.predict_proba(NEW)[:, 1]
    sets = clf.predict_set(NEW, 0.2)
    typicality = clf.conformal(NEW).typicality
    regions = NEW["region"].fillna("missing")
    assert groups.divisions == ["sex", "region", "sex × region"]
    divisions = {"sex": NEW["sex"], "region": regions, "sex × region": NEW["sex"] + ", " + regions}
    table = groups.to_frame().set_index(["by", "group", "measure"])
    for by, names in divisions.items():
        for name in names.unique():
            mine = (names == name).to_numpy()
            yes, said = TRUE[mine] == "yes", predicted[mine] == "yes"
            expected = {
                "accuracy": (yes == said).mean(),
                "ROC AUC": roc_auc(yes[:, None], p[mine, None])[0],
                "rate of yes": said.mean(),
                "true rate of yes": yes.mean(),
                "false positives of yes": mean(said[~yes]),
                "false negatives of yes": mean((~said)[yes]),
                "bias of yes": (p[mine] - yes).mean(),
                "overconfidence": (np.maximum(p, 1 - p)[mine] - (yes == said)).mean(),
                "coverage": np.where(yes, sets[mine, 1], sets[mine, 0]).mean(),
                "set size": sets[mine].sum(axis=1).mean(),
                "typicality": typicality[mine].mean(),
            }
            for measure, value in expected.items():
                row: Any = table.loc[(by, name, measure)]
                assert row["value"] == pytest.approx(value, abs=1e-12, nan_ok=True), (by, name, measure)
                assert row["rows"] == mine.sum()
    assert table.loc[("all", "all rows", "accuracy"), "value"] == result.accuracy
    assert table.loc[("all", "all rows", "ROC AUC"), "value"] == pytest.approx(result.roc_auc, abs=1e-12)
    for row in groups.differences.to_dict("records"):
        values = table.loc[row["by"]].xs(row["measure"], level="measure")["value"]
        assert row["difference"] == values.max() - values.min()
        assert (row["lowest"], row["highest"]) == (values.idxmin(), values.idxmax())


def test_numbers_have_error_bias_coverage_and_width() -> None:
    reg = fit_once(DWACRegressor(epochs=2, random_state=0, device="cpu"), X[["x"]], X["x"].to_numpy())
    groups = reg.evaluate(NEW[["x"]], NEW["x"], by=NEW["sex"], epsilon=0.2).groups
    ends, wrong = reg.predict_interval(NEW[["x"]], 0.2), reg.predict(NEW[["x"]]) - NEW["x"]
    table = groups.to_frame().set_index(["group", "measure"])["value"]
    for name in ("f", "m"):
        mine = (NEW["sex"] == name).to_numpy()
        assert table[name, "absolute error"] == pytest.approx(wrong[mine].abs().mean())
        assert table[name, "bias"] == pytest.approx(wrong[mine].mean())
        assert table[name, "coverage"] == ((ends[:, 0] <= NEW["x"]) & (NEW["x"] <= ends[:, 1]))[mine].mean()
        assert table[name, "width"] == pytest.approx((ends[:, 1] - ends[:, 0])[mine].mean())
    with refuses(InputError, "costs", "predict_quantiles"):
        reg.evaluate(NEW[["x"]], NEW["x"], costs={})


@pytest.mark.filterwarnings("ignore:.*have no label at all:UserWarning")
def test_several_labels_are_compared_label_by_label() -> None:
    truth = pd.DataFrame({"up": X["x"] > 0, "far": X["x"].abs() > 1}).astype(int)
    model = fit_once(DWACClassifier(epochs=2, random_state=0, device="cpu"), X[["x"]], truth)
    result = model.evaluate(X[["x"]], truth, by=X["sex"], costs={"far": (1, 4)})
    table, has = result.groups.to_frame().set_index(["group", "measure"])["value"], model.predict(X[["x"]])
    mine, far = (X["sex"] == "f").to_numpy(), truth["far"].to_numpy(dtype=bool)
    assert table["f", "false negatives of far"] == pytest.approx(1 - has[mine & far, 1].mean())
    assert table["f", "every label right"] == (has == truth.to_numpy())[mine].all(axis=1).mean()
    chosen = model.predict_proba(X[["x"]])[:, 1] > 0.2
    assert table["f", "decided far"] == chosen[mine].mean()
    assert result.costs.mean == pytest.approx((1.0 * (chosen & ~far) + 4.0 * (~chosen & far)).mean())


# Groups


def test_groups_are_columns_or_one_value_per_row() -> None:
    frame = pd.DataFrame({"a": ["x", None, "x"], "b": [True, False, True]})
    read = read_groups(["a", "b"], frame, 3)
    assert read["a"].tolist() == ["x", "missing", "x"]
    assert read["b"].tolist() == ["True", "False", "True"]
    for by in (np.array(["x", "y", "x"]), ["x", "y", "x"], pd.Series(["x", "y", "x"], index=[7, 8, 9])):
        assert read_groups(by, None, 3)["group"].tolist() == ["x", "y", "x"]
    assert list(read_groups({"p": [1, 2, 2], "q": [1, np.nan, 2]}, None, 3)["q"]) == ["1", "missing", "2"]
    ordered = pd.Series(pd.Categorical(["low", "high", "low"], ["low", "mid", "high"], ordered=True), name="level")
    assert read_groups(ordered, None, 3)["level"].cat.categories.tolist() == ["low", "mid", "high"]


def test_many_numbers_and_dates_are_cut_at_their_quartiles() -> None:
    numbers = pd.Series(np.arange(100.0), name="age")
    groups = read_groups(numbers, None, 100)["age"]
    assert groups.cat.categories.tolist() == ["up to 24.75", "over 24.75 to 49.5", "over 49.5 to 74.25", "over 74.25"]
    assert groups.value_counts().tolist() == [25, 25, 25, 25]
    days = pd.Series(pd.date_range("2024-01-01", periods=99), name="day")
    assert read_groups(days, None, 99)["day"].cat.categories.tolist()[0] == "up to 2024-01-25 12:00:00"


def test_wrong_groups_are_refused(clf: DWACClassifier) -> None:
    with refuses(InputError, "'Sex'", "'sex'"):
        clf.evaluate(NEW, TRUE, by="Sex")
    with refuses(ShapeError, 240, 3):
        clf.evaluate(NEW, TRUE, by=np.array([1, 2, 3]))
    with refuses(InputError, "name", "60", "pandas.cut"):
        read_groups(pd.Series([f"n{i}" for i in range(60)], name="name"), None, 60)
    with refuses(InputError, "ndarray", "one value per row"):
        read_groups("sex", np.zeros((3, 2)), 3)


# Intervals and tests


def test_intervals_of_rates_are_exact() -> None:
    for n in (1, 7, 40):
        low, high = rate_interval(np.arange(n + 1), n)
        for k in range(n + 1):
            exact = binomtest(k, n).proportion_ci(0.95, "exact")
            assert (low[k], high[k]) == pytest.approx((exact.low, exact.high), abs=1e-9)
        for p in np.linspace(0.01, 0.99, 50):  # no simulation: all outcomes
            covered = binom.pmf(np.arange(n + 1), n, p)[(low <= p) & (p <= high)].sum()
            assert covered >= 0.95


def rates(sizes: list[int], hits: list[int]) -> GroupComparison:
    values = np.concatenate([np.arange(n) < k for n, k in zip(sizes, hits, strict=True)])
    names = np.repeat([f"g{place}" for place in range(len(sizes))], sizes)
    return compare_groups([GroupMeasure("rate", values)], read_groups(names, None, len(names)))


def test_the_interval_of_the_largest_difference_holds_for_all_groups_at_once() -> None:
    sizes, p = [6, 9, 14], np.array([0.2, 0.5, 0.6])
    low, high = (np.empty([n + 1 for n in sizes]) for _ in range(2))
    law = np.ones([n + 1 for n in sizes])
    every = [rate_interval(np.arange(n + 1), n, 1 - 0.05 / 3) for n in sizes]
    for place in np.ndindex(law.shape):  # no simulation: all 1,050 outcomes
        ends = [(each[0][k], each[1][k]) for each, k in zip(every, place, strict=True)]
        law[place] = np.prod([binom.pmf(k, n, q) for k, n, q in zip(place, sizes, p, strict=True)])
        pairs = [(a, b) for a, b in combinations(ends, 2)]
        low[place] = max(0, *(max(a[0] - b[1], b[0] - a[1]) for a, b in pairs))
        high[place] = max(max(a[1] - b[0], b[1] - a[0]) for a, b in pairs)
    assert law.sum() == pytest.approx(1)
    assert law[(low <= 0.4) & (high >= 0.4)].sum() >= 0.95
    for place in ((0, 9, 7), (1, 5, 8), (6, 0, 3)):
        row = rates(sizes, list(place)).differences.iloc[0]
        assert (row["low"], row["high"]) == pytest.approx((low[place], max(high[place], row["difference"])), abs=1e-9)
        assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]


def test_a_rate_is_tested_against_all_other_rows_and_every_comparison_counts() -> None:
    result = rates([20, 30, 25], [10, 3, 12])
    p = [
        fisher_exact([[k, n - k], [25 - k, 75 - n - 25 + k]]).pvalue
        for n, k in ((20, 10), (30, 3), (25, 12))
    ]  # fmt: skip
    assert result.table["p_value"].tolist()[1:] == pytest.approx(holm(p).tolist())
    assert result.differences["p_value"][0] == holm(p).min()
    assert result.n_tests == 3
    assert rates([20, 30], [10, 3]).n_tests == 1  # two groups are one comparison


def simulate(sizes: list[int], times: int, seed: int, skewed: bool) -> tuple[float, float, float]:
    """(coverage of means, coverage of the largest difference, how often a test errs) of groups that are alike."""
    rng, names = np.random.default_rng(seed), np.repeat([f"g{place}" for place in range(len(sizes))], sizes)
    groups, held, largest, wrong = read_groups(names, None, len(names)), [], [], []
    for _ in range(times):
        values = rng.exponential(size=len(names)) if skewed else rng.random(len(names)) * 2
        result = compare_groups([GroupMeasure("mean", values, None, False, (0.0, np.inf))], groups)
        part = result.table.iloc[1:]
        held.append(((part["low"] <= 1) & (part["high"] >= 1)).mean())
        row = result.differences.iloc[0]
        largest.append(row["low"] == 0)
        wrong.append(row["p_value"] < 0.05)
    return float(np.mean(held)), float(np.mean(largest)), float(np.mean(wrong))


def test_intervals_of_means_hold_in_a_few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_statistics, "_DRAWS", 250)
    held, largest, wrong = simulate([15, 40], 40, 0, skewed=True)
    assert held >= 0.85  # 80 intervals: .93 less three deviations
    assert largest >= 0.9
    assert wrong <= 0.15


@pytest.mark.slow
@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("sizes", [[12, 60], [20, 40, 100]])
def test_intervals_of_means_hold_and_tests_seldom_err(sizes: list[int], skewed: bool) -> None:
    held, largest, wrong = simulate(sizes, 500, 1, skewed)
    assert held >= 0.91
    assert largest >= 0.93
    assert wrong <= 0.08  # .05 and three deviations


def areas(sizes: list[int], runs: int, seed: int, apart: float) -> tuple[float, float]:
    """How often the area of three classes is in its interval, and how often a group is wrongly called unlike."""
    rng = np.random.default_rng(seed)
    groups, n = read_groups(np.repeat(np.arange(len(sizes)), sizes), None, sum(sizes)), sum(sizes)

    def draw(n: int) -> AreaMeasure:
        truth = rng.integers(3, size=n)[:, None] == np.arange(3)
        return AreaMeasure("area", truth, rng.normal(size=(n, 3)) + apart * truth)

    true = norm.cdf(apart / np.sqrt(2))
    held, wrong = [], []
    for _ in range(runs):
        table = compare_groups([draw(n)], groups).table.iloc[1:]
        known = table.dropna(subset="low")
        held += ((known["low"] <= true) & (true <= known["high"])).tolist()
        wrong.append(bool((table["p_value"] < 0.05).any()))
    return float(np.mean(held)), float(np.mean(wrong))


def test_intervals_of_areas_hold_in_a_few_draws() -> None:
    held, wrong = areas([40, 80], 60, 0, 1.0)
    assert held >= 0.88  # 120 intervals: .95 less three deviations
    assert wrong <= 0.14


@pytest.mark.slow
@pytest.mark.parametrize("apart", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("sizes", [[30, 100], [40, 60, 200]])
def test_intervals_of_areas_hold_and_tests_seldom_err(sizes: list[int], apart: float) -> None:
    held, wrong = areas(sizes, 400, 1, apart)
    assert held >= 0.92
    assert wrong <= 0.09  # .05 and three deviations


def test_an_area_without_a_mistake_has_the_interval_of_disjoint_pairs() -> None:
    truth = np.arange(40) < 8
    table = compare_groups(
        [AreaMeasure("area", truth[:, None], truth[:, None].astype(np.float64))], read_groups(truth, None, 40)
    )
    row = table.table.iloc[0]
    assert (row["value"], row["high"]) == (1.0, 1.0)
    assert row["low"] == pytest.approx(0.025 ** (1 / 8))
    assert table.table["value"].iloc[1:].isna().all()  # all rows of a group have the label, or none


def test_a_private_comparison_joins_small_groups_and_rounds() -> None:
    names = np.repeat(["many", "some", "few", "tiny"], [151, 60, 20, 4])
    by = pd.DataFrame({"group": names, "half": np.arange(235) % 2})
    right = np.random.default_rng(0).random(235) < 0.7
    result = compare_groups([GroupMeasure("accuracy", right)], read_groups(by, None, 235), private=True)
    table = result.table[result.table["by"] == "group"]
    assert table["group"].tolist() == ["many", "small groups together"]  # with the next larger one: 24 are too few
    assert table["rows"].tolist() == [150, 84]
    assert result.divisions == ["group", "half"]  # no intersections
    values = result.table[["value", "low", "high"]].to_numpy()
    assert np.allclose(values * 100, np.round(values * 100))
    assert not result.small


def test_small_groups_say_so_and_tiny_ones_have_no_interval_of_a_mean() -> None:
    names = np.repeat(["many", "few", "tiny"], [100, 20, 4])
    values = np.random.default_rng(0).random(124)
    result = compare_groups([GroupMeasure("mean", values, None, False)], read_groups(names, None, 124))
    table = result.table.set_index("group")
    assert table["small"].to_dict() == {"all rows": False, "few": True, "many": False, "tiny": True}
    assert table["low"].isna().to_dict() == {"all rows": False, "few": False, "many": False, "tiny": True}
    assert result.differences["low"].isna().all()
    assert any(named(note, 30, "few (20)", "tiny (4)") for note in result.notes)


def test_means_of_few_values_have_intervals_within_what_is_possible() -> None:
    sizes = np.r_[np.ones(28), 2, 2, np.ones(200), np.full(60, 2)]
    names = np.repeat(["few", "many"], [30, 260])
    table = compare_groups(
        [GroupMeasure("size", sizes, None, False, (0.0, 2.0))], read_groups(names, None, 290)
    ).table.set_index("group")  # fmt: skip
    assert ((table["low"] >= 0) & (table["low"] < table["value"]) & (table["high"] <= 2)).all()


# The value


def test_a_comparison_is_text_html_json_a_frame_and_a_picture(clf: DWACClassifier) -> None:
    result = clf.evaluate(NEW, TRUE, by="sex")
    text = repr(result)
    assert named(text, "accuracy", "rate of yes", "f", "m", "p")
    assert "<script" not in result.to_html()
    assert result.to_html().count("<table") == 3
    content = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert len(content["groups"]["groups"]) == len(result.to_frame()) == 33
    assert "groups" not in clf.evaluate(NEW, TRUE).to_dict()
    assert result.groups.plot("coverage").svg().startswith("<svg")
    with refuses(InputError, "'coverage'", "'cover'"):
        result.groups.plot("cover")
    escaped = clf.evaluate(NEW, TRUE, by=np.where(NEW["sex"] == "f", "<b>", "m")).to_html()
    assert "<b>" not in escaped


def test_groups_of_rows_that_cannot_be_read_are_left_out(clf: DWACClassifier) -> None:
    broken = NEW.astype(object)
    broken.loc[[0, 1], "x"] = "?"
    result = clf.evaluate(broken, TRUE, by="sex")
    table = result.groups.to_frame().drop_duplicates("group").set_index("group")
    assert (result.unreadable, table.loc["all rows", "rows"]) == (2, 238)
    assert table.loc[["f", "m"], "rows"].tolist() == NEW["sex"][2:].value_counts().loc[["f", "m"]].tolist()


def test_a_comparison_is_the_same_each_time(clf: DWACClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = (clf.evaluate(NEW, TRUE, by="region").groups for _ in range(2))
    pd.testing.assert_frame_equal(first.table, again.table)
    monkeypatch.setattr(by_group, "_MOST_GROUPS", 2)
    with refuses(InputError, "region", 3):
        clf.evaluate(NEW, TRUE, by="region")
