"""Guarantees within groups of rows, named by columns or given beside X."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import dwac
from dwac import DWACClassifier, DWACRegressor
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


@pytest.mark.parametrize("split", [{}, {"cross_fit": False, "epochs": 2, "calibration_size": 120}])
@pytest.mark.parametrize("within", ["region", ["region", "sex"]])
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
    shown = [e.interval for e in reg.explain(NEW[0].iloc[:9], epsilon=0.1)]
    np.testing.assert_array_equal(np.array(shown, dtype=float), ends[:9])
    covered = (ends[:, 0] <= NEW[2]) & (NEW[2] <= ends[:, 1])
    assert reg.evaluate(NEW[0], NEW[2], epsilon=0.1).coverage == pytest.approx(covered.mean())
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
    with refuses(InputError, "within", "several labels"):
        DWACClassifier(within="region", **QUICK).fit(X, np.stack([y == "yes", y == "no"], axis=1).astype(int))
    with refuses(InputError, "within", "a name"):
        DWACClassifier(within="region", **QUICK).fit(["good", "bad"] * 20, ["a", "b"] * 20)
    with refuses(InputError, "within", "2.5"):
        DWACClassifier(within=2.5, **QUICK).fit(X, y)
