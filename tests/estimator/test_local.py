"""Sets and intervals with a local guarantee: each row alone and among others, saved, recorded, and refused."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import dwac
from dwac import DWACClassifier, DWACRegressor
from dwac.cli.app import app
from dwac.errors import CalibrationError, InputError
from tests.estimator.helpers import fit_once
from tests.named import refuses

pytestmark = pytest.mark.usefixtures("few_steps")

QUICK: dict[str, Any] = {"random_state": 0, "device": "cpu", "verbose": False}
SPLIT: dict[str, Any] = {"cross_fit": False, "epochs": 2, "calibration_size": 160}


def rows(n: int, seed: int) -> tuple[pd.DataFrame, Any, Any]:
    """(X, classes, numbers): hard to predict where x is positive."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"x": rng.normal(size=n), "z": rng.normal(size=n)})
    numbers = X["z"] + np.where(X["x"] > 0, 2.0, 0.1) * rng.normal(size=n)
    return X, np.where(numbers > 0, "yes", "no"), numbers


TRAIN, NEW = rows(320, 0), rows(60, 1)


@pytest.mark.parametrize("split", [{}, pytest.param(SPLIT | {"class_conditional": True}, marks=pytest.mark.slow)])
def test_sets_of_a_row_alone_are_those_among_others_and_after_saving(split: Any, tmp_path) -> None:
    clf = fit_once(DWACClassifier(**QUICK, **split), TRAIN[0], TRAIN[1])
    local = clf.conformal(NEW[0], local=True)
    assert (local.p_values != clf.conformal(NEW[0]).p_values).any()
    again = dwac.load(clf.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(again.conformal(NEW[0], local=True).p_values, local.p_values)
    np.testing.assert_array_equal(clf.conformal(NEW[0].iloc[[7]], local=True).p_values, local.p_values[[7]])
    np.testing.assert_array_equal(clf.predict_set(NEW[0], 0.2, local=True), local.label_sets(0.2))
    evaluated = clf.evaluate(clf.observe(NEW[0], local=True), NEW[1], epsilon=0.2)
    assert evaluated.mean_set_size == pytest.approx(local.label_sets(0.2).sum(axis=1).mean())


@pytest.mark.parametrize("split", [SPLIT, pytest.param({}, marks=pytest.mark.slow)])
def test_intervals_of_a_row_alone_are_those_among_others_and_after_saving(split: Any, tmp_path) -> None:
    reg = fit_once(DWACRegressor(**QUICK, **split), TRAIN[0], TRAIN[2])
    ends = reg.predict_interval(NEW[0], 0.2, local=True)
    np.testing.assert_array_equal(reg.predict_interval(NEW[0].iloc[[7]], 0.2, local=True), ends[[7]])
    again = dwac.load(reg.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(again.predict_interval(NEW[0], 0.2, local=True), ends)
    assert (ends != reg.predict_interval(NEW[0], 0.2)).any()
    covered = (ends[:, 0] <= NEW[2]) & (NEW[2] <= ends[:, 1])
    assert reg.evaluate(reg.observe(NEW[0], local=True), NEW[2], epsilon=0.2).coverage == pytest.approx(covered.mean())


def test_the_command_and_records_give_the_same_sets(tmp_path) -> None:
    clf = fit_once(DWACClassifier(**QUICK), TRAIN[0], TRAIN[1])
    folder, new, record = clf.save(tmp_path / "model"), tmp_path / "new.csv", tmp_path / "record"
    NEW[0].to_csv(new, index=False)
    options = ["--local", "--epsilon", "0.2", "--record", str(record), "-o", str(tmp_path / "out.jsonl"), "--json"]
    result = CliRunner().invoke(app, ["predict", str(folder), str(new), *options])
    assert result.exit_code == 0, result.output
    found = pd.read_json(tmp_path / "out.jsonl", lines=True)["set"].tolist()
    assert found == clf.predict_set(NEW[0], 0.2, local=True, as_labels=True)
    ids = dwac.records.read(record)["id"].tolist()
    assert len(dwac.records.replay(record, dwac.load(folder, device="cpu"), NEW[0], ids).differences) == 0


def test_what_has_no_local_guarantee_is_refused() -> None:
    X, y, numbers = TRAIN
    labels = np.stack([numbers > 0, numbers <= 0], axis=1).astype(int)
    several = fit_once(DWACClassifier(**QUICK, **SPLIT), X, labels)
    with refuses(InputError, "several labels", "local"):
        several.predict_set(NEW[0], local=True)
    within = fit_once(DWACClassifier(**QUICK), X, y, within=(X["x"] > 0).tolist())
    with refuses(InputError, "within groups", "local"):
        within.predict_set(NEW[0], local=True, within=[True] * len(NEW[0]))
    with refuses(InputError, "private", "local"):
        within.observe(NEW[0], local=True, private=True)
    none = fit_once(DWACClassifier(**QUICK, cross_fit=False, epochs=2, calibration_size=0, validation_size=0), X, y)
    with refuses(CalibrationError, "recalibrate"):
        none.predict_set(NEW[0], local=True)


def test_folds_may_differ_in_size() -> None:
    clf = fit_once(DWACClassifier(**QUICK), TRAIN[0][:303], TRAIN[1][:303])
    p_values = clf.conformal(NEW[0], local=True).p_values
    assert (p_values != clf.conformal(NEW[0]).p_values).any()


@pytest.mark.slow
def test_local_sets_and_intervals_of_cross_fitted_models_cover_about_as_promised() -> None:
    covered = np.zeros((24, 2))
    for seed, means in enumerate(covered):
        (X, classes, numbers), (new, truth, values) = rows(300, 100 + seed), rows(300, 200 + seed)
        clf = DWACClassifier(**QUICK | {"random_state": seed}).fit(X, classes)
        reg = DWACRegressor(**QUICK | {"random_state": seed}).fit(X, numbers)
        sets, ends = clf.predict_set(new, 0.2, local=True), reg.predict_interval(new, 0.2, local=True)
        means[0] = sets[np.arange(300), np.searchsorted(clf.classes_, truth)].mean()
        means[1] = ((ends[:, 0] <= values) & (values <= ends[:, 1])).mean()
    assert (covered.mean(axis=0) >= 0.8 - 2 * covered.std(axis=0) / np.sqrt(len(covered))).all(), covered.mean(axis=0)
