"""Warnings point at the line of the user, however deep in the package their reason is."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac import DWACClassifier, DWACRegressor
from tests.named import warns

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(40, 2)), columns=["a", "b"])
Y = np.where(X["a"] > 0, "high", "low")
MANY = pd.concat([X] * 5, ignore_index=True)
SEVERAL = [["x", "y"] if a > 2 else ["x"] if a > 0 else [] for a in X["a"]]
REPEATED = X.set_axis([0] * 40)
FAST: dict[str, Any] = {"epochs": 1, "random_state": 0, "device": "cpu", "verbose": False}
UNREADABLE = X.assign(a=X["a"].astype(object).where(X.index > 0, "abc"))


@pytest.fixture(scope="module")
def clf() -> DWACClassifier:
    return DWACClassifier(**FAST).fit(X, Y)


@pytest.fixture(scope="module")
def reg() -> DWACRegressor:
    return DWACRegressor(**FAST).fit(X, X["a"])


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        (lambda clf, reg: DWACClassifier(**FAST).fit(REPEATED, Y), ["index of X"]),
        (lambda clf, reg: DWACRegressor(**FAST).fit(REPEATED, REPEATED["a"]), ["index of X"]),
        (lambda clf, reg: DWACClassifier(**FAST).fit(X, SEVERAL), ["of 40", "no label"]),
        (lambda clf, reg: clf.predict(UNREADABLE), ["row 0", "'a'", "'abc'", "unreadable(X"]),
        (lambda clf, reg: clf.predict_proba(UNREADABLE), ["row 0", "'a'", "'abc'", "unreadable(X"]),
        (lambda clf, reg: clf.score(UNREADABLE, Y), ["row 0", "'a'", "'abc'", "unreadable(X"]),
        (lambda clf, reg: clf.predict_set(X, 0.001), ["epsilon=0.001", 999]),
        (lambda clf, reg: clf.label_next(UNREADABLE, 1), ["row 0", "'a'", "'abc'", "unreadable(X"]),
        (lambda clf, reg: clf.worth(UNREADABLE, Y), ["row 0", "'a'", "'abc'", "unreadable(X"]),
        (lambda clf, reg: reg.predict(UNREADABLE), ["row 0", "'a'", "'abc'", "unreadable(X"]),
        (lambda clf, reg: reg.predict_interval(X, 0.001), ["epsilon=0.001", 999]),
        (lambda clf, reg: reg.explain(X, epsilon=0.001), ["epsilon=0.001", 999]),
        (
            lambda clf, reg: DWACClassifier(**FAST, shards=2).fit(MANY, list(Y) * 5).forget(range(20)),
            ["2 networks", "exact=True"],
        ),
        (
            lambda clf, reg: DWACClassifier(**FAST).fit(iter([X.assign(x=Y == "high", y=1)]), ["x", "y"]),
            ["label 'y'", "drop"],
        ),
    ],
)
def test_a_warning_points_at_the_line_of_the_user(
    call: Callable[..., Any], facts: list[object], clf: Any, reg: Any
) -> None:
    with warns(UserWarning, *facts) as told:
        call(clf, reg)
    assert {each.filename for each in told} == {__file__}
