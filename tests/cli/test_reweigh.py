"""`dwac reweigh`: another folder, what it cost, and whose weight changed."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dwac.reading import load
from tests.cli.helpers import error_line, people, run
from tests.named import named


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that does not know who is a manager, and new rows that do."""
    folder, rows = tmp_path_factory.mktemp("reweigh"), people(500)
    manager = np.where(rows["age"] + np.random.default_rng(1).normal(0, 25, 500) > 50, "yes", "no")
    rows.iloc[:200].to_csv(folder / "people.csv", index=False)
    rows.assign(manager=manager).iloc[200:].to_csv(folder / "new.csv", index=False)
    quick = ("--epochs", 2, "--device", "cpu")
    run("train", folder / "people.csv", "-t", "income", "--id", "name", "-o", folder / "model", *quick)
    return folder


def test_reweigh_writes_a_folder_and_says_what_changed(folder: Path, tmp_path: Path) -> None:
    options = ("--by", "manager", "--at-most", 0.1, "-o", tmp_path / "new", "--changed", tmp_path / "who.csv")
    shown = run("reweigh", folder / "model", folder / "new.csv", *options)
    assert named(shown.stdout, "demographic parity", ">50K", "accuracy", "log loss", tmp_path / "new")
    who, weights = pd.read_csv(tmp_path / "who.csv"), load(tmp_path / "new").clf.references_
    np.testing.assert_allclose(weights.weights[weights.voters.positions(who["id"])], who["factor"])
    other = ("--by", "manager", "--measure", "equal opportunity", "--json", "-o", tmp_path / "other")
    found = json.loads(run("reweigh", folder / "model", folder / "new.csv", *other).stdout)
    assert found["measure"] == "equal opportunity"
    assert set(found["price"]["after"]) == {"accuracy", "log_loss"}


def test_rows_that_vote_are_judged_without_their_votes_and_groups_may_be_told_apart(tmp_path: Path) -> None:
    people(150).assign(manager=["yes", "no"] * 75).to_csv(tmp_path / "people.csv", index=False)
    groups = ("-t", "income", "--id", "name", "--apart", "manager")
    shown = run("train", tmp_path / "people.csv", *groups, "-o", tmp_path / "model", "--device", "cpu")
    assert named(shown.stdout, "not used", "manager", "to tell apart")
    clf = load(tmp_path / "model").clf
    assert "manager" not in clf.feature_names_in_
    options = ("--by", "manager", "--at-most", 0.1, "--json", "-o", tmp_path / "new")
    found = json.loads(run("reweigh", tmp_path / "model", tmp_path / "people.csv", *options).stdout)
    assert clf.out_of_fold_ is not None
    right = clf.out_of_fold_.argmax(axis=1) == clf.calibration_y_
    assert found["price"]["before"]["accuracy"] == pytest.approx(right.mean())


def test_reweigh_says_what_is_missing(folder: Path, tmp_path: Path) -> None:
    rows = (folder / "model", folder / "new.csv")
    assert named(error_line("reweigh", *rows, "--by", "manager"), "-o FOLDER")
    assert named(error_line("reweigh", *rows, "-o", tmp_path / "new"), "--by COLUMN")
    assert named(error_line("reweigh", *rows, "-o", tmp_path / "new", "--by", "rank"), "rank")
