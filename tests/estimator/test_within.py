"""Guarantees within groups of rows, named by columns or given beside X."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import dwac
from dwac import DWACClassifier, DWACRegressor
from dwac.conformal import conditional
from dwac.errors import InputError
from tests.named import refuses

pytestmark = pytest.mark.usefixtures("few_steps")

QUICK: dict[str, Any] = {"random_state": 0, "device": "cpu", "verbose": False}


def people(n: int, seed: int) -> tuple[pd.DataFrame, Any, Any]:
    """(X, classes, numbers): those of the south are hard to predict, and some regions are missing."""
    rng = np.random.default_rng(seed)
    region, sex = rng.choice(["north", "south"], n), rng.choice(["f", "m"], n)
    X = pd.DataFrame({"x": rng.normal(size=n), "region": region, "sex": sex})
    numbers = X["x"] + np.where(region == "south", 2.0, 0.2) * rng.normal(size=n)
    X.loc[rng.random(n) < 0.2, "region"] = None
    return X, np.where(numbers > 0, "yes", "no"), numbers


TRAIN, NEW = people(300, 0), people(200, 1)


SPLIT = {"cross_fit": False, "epochs": 2, "calibration_size": 120}


@pytest.fixture(autouse=True)
def few_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditional, "LEVELS", np.array([0.1, 0.3]))


@pytest.mark.parametrize(
    ("within", "split"),
    [
        ("region", {}),
        (["region", "sex"], SPLIT),
        pytest.param("region", SPLIT, marks=pytest.mark.slow),
        pytest.param(["region", "sex"], {}, marks=pytest.mark.slow),
    ],
)
def test_a_column_gives_what_separate_calibrations_and_given_groups_give(within: Any, split: Any, tmp_path) -> None:
    X, y, numbers = TRAIN
    clf = DWACClassifier(within=within, **QUICK, **split).fit(X, y)
    sets = clf.predict_set(NEW[0], 0.1)
    table = X[within].fillna("?")
    beside = DWACClassifier(**QUICK, **split).fit(X, y, within=table)
    np.testing.assert_array_equal(beside.predict_set(NEW[0], 0.1, within=NEW[0][within].fillna("?")), sets)
    assert (beside.predict_set(NEW[0], 0.1) != sets).any()
    np.testing.assert_array_equal(clf.predict_set(NEW[0].iloc[[5]], 0.1), sets[[5]])
    again = dwac.load(clf.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(again.predict_set(NEW[0], 0.1), sets)
    assert str(again.expected_sets(0.1)) == str(clf.expected_sets(0.1))
    names = clf.predict_set(NEW[0], 0.1, as_labels=True)
    explained: Any = again.explain(NEW[0].iloc[:9], epsilon=0.1)
    assert [list(e.label_set) for e in explained] == names[:9]
    reg = DWACRegressor(within=within, **QUICK, **split).fit(X, numbers)
    ends = reg.predict_interval(NEW[0], 0.1)
    np.testing.assert_array_equal(reg.predict_interval(NEW[0].iloc[[5]], 0.1), ends[[5]])
    if not split:
        expected: Any = reg.expected_intervals(0.1).groups
        widths = {name: each.median_width for name, each in expected.items()}
        group = "south" if within == "region" else "region=south"
        width = np.median(np.diff(ends[NEW[0]["region"] == "south"]))
        assert widths[group] == pytest.approx(width, rel=0.2)
        assert widths[group] > 1.1 * widths[group.replace("south", "north")]
    shown = [e.interval for e in reg.explain(NEW[0].iloc[:9], epsilon=0.1)]
    np.testing.assert_array_equal(np.array(shown, dtype=float), ends[:9])
    covered = (ends[:, 0] <= NEW[2]) & (NEW[2] <= ends[:, 1])
    assert reg.evaluate(NEW[0], NEW[2], epsilon=0.1).coverage == pytest.approx(covered.mean())
    by_group = clf.expected_sets(0.1).by_group
    own = clf.predict_set(X, 0.1).sum(axis=1)
    if within != "region" and not split:  # the sizes of rows out of fold
        found = by_group["sex=f"].mean_size
        assert found == pytest.approx(own[X["sex"] == "f"].mean(), abs=0.2)
        assert by_group["sex=f"].n_calibration == (X["sex"] == "f").sum()
    if within == "region":
        for name in ("north", "south", None):
            here = NEW[0]["region"].isna() if name is None else NEW[0]["region"] == name
            alone = clf.sets_.by_group.by_name[name].predict(**_scores(clf, NEW[0][here])).label_sets(0.1)
            np.testing.assert_array_equal(alone, sets[here])


def _scores(clf: Any, X: Any) -> dict[str, Any]:
    evidence = clf.evidence(X)
    by_fold = evidence.fold_votes
    scored = dwac.conformal.nonconformity
    return {
        "scores": scored(evidence.votes, "probability"),
        "fold_scores": None if by_fold is None else scored(by_fold, "probability"),
    }


def test_sets_of_a_class_hold_within_overlapping_groups() -> None:
    X, y, _ = TRAIN
    clf = DWACClassifier(within=["region", "sex"], class_conditional=True, **QUICK).fit(X, y)
    p = clf.conformal(NEW[0]).p_values
    groups = clf.sets_.by_group
    row = frozenset({f"region={NEW[0]['region'][3]}", f"sex={NEW[0]['sex'][3]}"})
    scores = np.median(_scores(clf, NEW[0].iloc[[3]])["fold_scores"], axis=1)[0] - 1e-6
    np.testing.assert_array_equal(p[3], [groups.thresholds(k).p_values(scores[k], row) for k in range(2)])


@pytest.mark.parametrize("kind", [DWACClassifier, DWACRegressor])
def test_groups_beside_rows_reach_explanations_and_evaluation_and_teach_nothing(kind: Any) -> None:
    X, sex = TRAIN[0][["x", "region"]], TRAIN[0]["sex"]
    new, own = NEW[0][["x", "region"]], NEW[0]["sex"]
    y, truth = (each[1 if kind is DWACClassifier else 2] for each in (TRAIN, NEW))
    beside = kind(**QUICK).fit(X, y, within=sex)
    ignored = kind(within="sex", training=dwac.Training(ignored="sex"), **QUICK).fit(TRAIN[0], y)
    np.testing.assert_array_equal(ignored.embed(NEW[0]), beside.embed(new))
    shown = [e.to_dict() for e in beside.explain(new.iloc[:9], epsilon=0.1, within=own.iloc[:9])]
    field = "label_set" if kind is DWACClassifier else "interval"
    assert [e[field] for e in shown] == [e.to_dict()[field] for e in ignored.explain(NEW[0].iloc[:9], epsilon=0.1)]
    found = [beside.evaluate(new, truth, epsilon=0.1, within=own), ignored.evaluate(NEW[0], truth, epsilon=0.1)]
    assert found[0].coverage == found[1].coverage
    if kind is DWACRegressor:
        assert [e[field] for e in shown] != [e.to_dict()[field] for e in beside.explain(new.iloc[:9], epsilon=0.1)]
    with refuses(InputError, "ignored", "'six'"):
        kind(training=dwac.Training(ignored=["six"]), **QUICK).fit(TRAIN[0], y)
    with refuses(InputError, "learn"):
        kind(training=dwac.Training(ignored=[*X]), **QUICK).fit(X, y)


def test_several_labels_are_decided_within_groups(tmp_path: Any) -> None:
    X, y, numbers = TRAIN
    Y = np.stack([y == "yes", (y == "no") | (numbers > 1)], axis=1).astype(int)
    clf: Any = DWACClassifier(within="region", **QUICK).fit(X, Y)
    again: Any = dwac.load(clf.save(tmp_path / "model"), device="cpu")
    c, sets, names = (
        again.conformal(NEW[0]),
        again.predict_set(NEW[0], 0.2),
        again.predict_set(NEW[0], 0.2, as_labels=True),
    )
    assert [list(e.label_set) for e in again.explain(NEW[0].iloc[:9], epsilon=0.2)] == names[:9]
    expected, fitted = clf.expected_sets(0.2).by_group, clf.fitted_
    p = fitted.target.probabilities(fitted.judge(fitted.references, fitted.calibration.h))
    folds = fitted.folds.numbers(fitted.calibration.ids)
    for name in ("north", "south", None):
        here, known = (
            (each["region"].isna() if name is None else each["region"] == name).to_numpy() for each in (NEW[0], X)
        )
        alone = dwac.conformal.LabelCalibration(p[known], Y[known], folds=folds[known])
        by_fold = fitted.target.probabilities(clf.evidence(NEW[0][here]).fold_votes)
        np.testing.assert_array_equal(alone.predict(by_fold[:, 0], by_fold).p_yes, c.part(here).p_yes)
        t = dwac.conformal.MissControl(p[known], Y[known]).threshold(0.2)
        np.testing.assert_array_equal(sets[here], clf.predict_proba(NEW[0][here]) >= t)
        assert expected[name].threshold == t


def test_other_calibration_rows_bring_their_own_groups() -> None:
    X, y, _ = TRAIN
    clf = DWACClassifier(within="region", **QUICK, epochs=2).fit(X, y)
    clf.recalibrate(NEW[0], NEW[1], ids=[f"new {row}" for row in range(len(NEW[0]))])
    found = {name: each.n_calibration for name, each in clf.expected_sets(0.1).by_group.items()}
    assert found == {
        **NEW[0]["region"].value_counts().to_dict(),
        None: int(NEW[0]["region"].isna().sum()),
    }
    beside = DWACClassifier(**QUICK, epochs=2).fit(X, y)
    with refuses(InputError, "within=…"):
        beside.predict_set(X, within=["a"] * len(X))


def test_groups_that_cannot_be_read_are_refused() -> None:
    X, y, _ = TRAIN
    with refuses(InputError, "within", "'regoin'", "'region'"):
        DWACClassifier(within="regoin", **QUICK).fit(X, y)
    with refuses(InputError, "within", "a name"):
        DWACClassifier(within="region", **QUICK).fit(["good", "bad"] * 20, ["a", "b"] * 20)
    with refuses(InputError, "within", "2.5"):
        DWACClassifier(within=2.5, **QUICK).fit(X, y)
    for wrong in (set(), {"a", None}, frozenset({float("nan")})):
        with refuses(InputError, "within", "row 1"):
            DWACClassifier(**QUICK, epochs=1).fit(X, y, within=[{"a"}, wrong, *[{"a", "b"}] * (len(X) - 2)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [DWACClassifier, DWACRegressor])
def test_cross_fitted_models_cover_within_overlapping_groups(kind: Any) -> None:
    covered: dict[str, list[float]] = {}
    for seed in range(16):
        (X, *known), (new, *asked) = people(300, 2 * seed + 10), people(2_000, 2 * seed + 11)
        clf = kind(within=["region", "sex"], **QUICK).fit(X, known[kind is DWACRegressor])
        if kind is DWACClassifier:
            inside = clf.predict_set(new, 0.1)[np.arange(2_000), np.searchsorted(clf.classes_, asked[0])]
        else:
            ends = clf.predict_interval(new, 0.1)
            inside = (ends[:, 0] <= asked[1]) & (asked[1] <= ends[:, 1])
        for name in ("region", "sex"):
            for value, rows in new[name].fillna("none").groupby(new[name].fillna("none")).groups.items():
                covered.setdefault(f"{name}={value}", []).append(float(np.mean(inside[rows])))
    for name, shares in covered.items():
        assert np.mean(shares) > 0.9 - 4 * np.std(shares) / 4, (name, np.mean(shares))
