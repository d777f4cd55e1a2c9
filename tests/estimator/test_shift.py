"""Calibration for rows from elsewhere: coverage, the effective number of rows, saving, and what is refused."""

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dwac
from dwac import DWACClassifier, DWACRegressor
from dwac.errors import CalibrationError, InputError
from tests.estimator.helpers import fit_once
from tests.named import refuses

pytestmark = pytest.mark.usefixtures("few_steps")

QUICK: dict[str, Any] = {"random_state": 0, "device": "cpu", "verbose": False}
SPLIT: dict[str, Any] = {"cross_fit": False, "epochs": 2, "calibration_size": 200}


def rows(n: int, seed: int, shift: float = 0.0) -> tuple[pd.DataFrame, Any, Any]:
    """(X, classes, numbers): hard to predict where x is large; x is larger elsewhere."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"x": rng.normal(size=n) + shift, "z": rng.normal(size=n)})
    numbers = X["z"] + 2 * X["x"] + np.exp(X["x"]) * rng.normal(size=n) / 2
    return X, np.where(numbers > 0, "yes", "no"), numbers


TRAIN, NEW = rows(400, 0), rows(300, 1, shift=1.0)


@pytest.mark.parametrize("split", [{}, pytest.param(SPLIT, marks=pytest.mark.slow)])
def test_sets_under_shift(split: Any, tmp_path) -> None:
    clf = fit_once(DWACClassifier(**QUICK, **split), TRAIN[0], TRAIN[1])
    other = clf.calibrate_for(NEW[0])
    report = other.shift_
    assert clf.shift_ is None
    assert 19 <= report.effective_size < report.n_calibration
    assert other.expected_sets(0.1).n_calibration == int(report.effective_size)
    assert f"count as {int(report.effective_size):,}," in repr(other)
    assert "count as 59," in str(report._replace(effective_size=59.7))  # no more than there are, as expected_sets
    assert f"{report.n_calibration:,}" in str(other.expected_sets(0.1))
    p = other.conformal(NEW[0]).p_values
    assert (p != clf.conformal(NEW[0]).p_values).any()
    again = dwac.load(other.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(again.conformal(NEW[0]).p_values, p)
    np.testing.assert_array_equal(other.conformal(NEW[0].iloc[[3]]).p_values, p[[3]])
    assert again.shift_ == report
    local = other.conformal(NEW[0].iloc[:5], local=True).p_values
    assert (local != p[:5]).any()
    explained: Any = other.explain(NEW[0].iloc[:5], epsilon=0.1)
    assert [list(e.label_set) for e in explained] == other.predict_set(NEW[0].iloc[:5], 0.1, as_labels=True)
    with refuses(CalibrationError, "recalibrate(X, y)"):
        other.decide(NEW[0])
    X, y, _ = rows(300, 2)
    assert other.recalibrate(X, y, ids=[f"n{i}" for i in range(300)]).shift_ is None


@pytest.mark.parametrize("split", [SPLIT, pytest.param({}, marks=pytest.mark.slow)])
def test_intervals_under_shift(split: Any) -> None:
    reg = fit_once(DWACRegressor(**QUICK, **split), TRAIN[0], TRAIN[2])
    moved = reg.calibrate_for(NEW[0])
    ends, before = moved.predict_interval(NEW[0], 0.1), reg.predict_interval(NEW[0], 0.1)
    np.testing.assert_array_equal(moved.predict_interval(NEW[0].iloc[[3]], 0.1), ends[[3]])
    np.testing.assert_array_equal(
        np.array([e.interval for e in moved.explain(NEW[0].iloc[:5], epsilon=0.1)], dtype=float), ends[:5]
    )
    assert moved.expected_intervals(0.1).n_rows == moved.shift_.n_calibration
    covered = [np.mean((low <= NEW[2]) & (NEW[2] <= high)) for low, high in (ends.T, before.T)]
    assert covered[0] > covered[1]


def test_rows_that_are_the_same_keep_their_weights_equal() -> None:
    clf = fit_once(DWACClassifier(**QUICK), TRAIN[0], TRAIN[1])
    report = clf.calibrate_for(rows(400, 5)[0]).shift_
    assert report.effective_size > 0.9 * report.n_calibration
    assert report.overlap == 1


def test_too_little_in_common_is_refused() -> None:
    clf = fit_once(DWACClassifier(**QUICK), TRAIN[0], TRAIN[1])
    with refuses(CalibrationError, "recalibrate(X, y)", "of 400", "at least 19", "at most 50 %"):
        clf.calibrate_for(rows(400, 1, shift=9.0)[0])
    with refuses(InputError, "at least 20", "got 5"):
        clf.calibrate_for(NEW[0].iloc[:5])
    X, _, numbers = TRAIN
    within = copy(clf)
    within.fitted_ = replace(clf.fitted_, within=X["x"] > 0)
    with refuses(InputError, "groups", "recalibrate(X, y)"):
        within.calibrate_for(NEW[0])
    labels = np.stack([numbers > 0, numbers <= 0], axis=1).astype(int)
    several = fit_once(DWACClassifier(**QUICK, **SPLIT), X, labels)
    with refuses(InputError, "several labels"):
        several.calibrate_for(NEW[0])


@pytest.mark.slow
@pytest.mark.parametrize("split", [{}, {"cross_fit": False, "calibration_size": 400, "epochs": 10}])
def test_an_estimated_ratio_restores_coverage(split: Any) -> None:
    before: list[float] = []
    after: list[float] = []
    for seed in range(4):
        X, _, y = rows(900, 10 + seed)
        new, _, truth = rows(2000, 50 + seed, shift=1.0)
        reg = DWACRegressor(**{**QUICK, **split}).fit(X, y)
        for model, found in ((reg, before), (reg.calibrate_for(new.iloc[:1000]), after)):
            low, high = model.predict_interval(new.iloc[1000:], 0.1).T
            found.append(float(np.mean((low <= truth[1000:]) & (truth[1000:] <= high))))
    assert np.mean(before) < 0.85
    assert np.mean(after) > 0.87
