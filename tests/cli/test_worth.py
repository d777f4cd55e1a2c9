"""`dwac worth`: the values of Python, by id and by group, as a person and as a program reads them."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dwac import DWACClassifier
from dwac.reading import load, read
from tests.cli.helpers import EXACT, error_line, people, run
from tests.named import named


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """people.csv, test.csv with other people, and model/, which learned from the first."""
    folder = tmp_path_factory.mktemp("worth")
    people(240).iloc[:200].to_csv(folder / "people.csv", index=False)
    people(240).iloc[200:].to_csv(folder / "test.csv", index=False)
    quick = ("--epochs", 3, "--no-cross-fit", "--ensemble-size", 1, "--device", "cpu")
    run("train", folder / "people.csv", "-t", "income", "--id", "name", "-o", folder / "model", *quick)
    return folder / "model"


def test_the_file_holds_what_python_says_the_best_of_each_class_first(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "worth.csv"
    run("worth", model, model.parent / "test.csv", "-o", out)
    found = pd.read_csv(out, index_col="id", **EXACT)
    loaded = load(model)
    rows = read(str(model.parent / "test.csv"), like=loaded, labelled=True)
    table = loaded.clf.worth(rows.X, rows.y)
    assert found["relative"].is_monotonic_decreasing
    pd.testing.assert_series_equal(found["worth"].sort_index(), table["worth"].sort_index(), check_index_type=False)
    alone = loaded.clf.worth(rows.X, rows.y, method="leave_one_out")["worth"]
    pd.testing.assert_series_equal(
        found["if_removed"].sort_index(), -alone.sort_index(), check_names=False, check_index_type=False
    )


def test_rows_that_are_numbered_like_voters_are_not_taken_for_them(tmp_path: Path) -> None:
    for name, part in {"people": people(240)[:200], "test": people(240)[200:]}.items():
        part.drop(columns="name").to_csv(tmp_path / f"{name}.csv", index=False)
    quick = ("--epochs", 2, "--no-cross-fit", "--ensemble-size", 1, "--device", "cpu")
    run("train", tmp_path / "people.csv", "-t", "income", "-o", tmp_path / "model", *quick)
    found = json.loads(run("worth", tmp_path / "model", tmp_path / "test.csv", "--json").stdout)["worth"]
    loaded = load(tmp_path / "model")
    rows = read(str(tmp_path / "test.csv"), like=loaded, labelled=True)
    assert set(rows.ids) & set(loaded.clf.references_.ids)
    table = loaded.clf.worth(rows.X, rows.y)["worth"]
    assert {row["id"]: row["worth"] for row in found} == pytest.approx(table.to_dict(), abs=1e-12)


def test_rows_are_observed_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    observe, observed = DWACClassifier.observe, list[int]()

    def count(self: DWACClassifier, X: Any, **options: Any) -> Any:
        observed.append(len(X))
        return observe(self, X, **options)

    monkeypatch.setattr(DWACClassifier, "observe", count)
    run("worth", model, model.parent / "test.csv")
    assert observed == [40]


def test_a_person_sees_who_helps_and_who_harms(model: Path) -> None:
    shown = run("worth", model, model.parent / "test.csv", "--top", 3).stdout
    table = json.loads(run("worth", model, model.parent / "test.csv", "--json").stdout)
    first, last = table["worth"][0], table["worth"][-1]
    assert first["id"] in shown
    assert last["id"] in shown
    assert "most helpful" in shown
    assert "least helpful" in shown
    assert f"{first['relative']:+.1f}" in shown
    assert f"{100 * first['worth']:+.3g}" in shown
    assert "age" in shown  # the example itself
    assert f"together {100 * sum(row['worth'] for row in table['worth']):+.3g}" in shown


def test_groups_are_columns_of_the_training_data(model: Path) -> None:
    found = json.loads(run("worth", model, model.parent / "test.csv", "--by", "work", "--json").stdout)
    assert {row["group"] for row in found["worth"]} == {"private", "state", "self"}
    voters = len(load(model).clf.references_)
    assert sum(row["examples"] for row in found["worth"]) == voters
    shown = run("worth", model, model.parent / "test.csv", "--by", "work").stdout
    assert "state" in shown
    assert "if removed" in shown
    loaded = load(model)
    rows = read(str(model.parent / "test.csv"), like=loaded, labelled=True)
    alone = loaded.clf.worth(rows.X, rows.y, groups="work", method="leave_one_out")["worth"]
    assert {row["group"]: row["if_removed"] for row in found["worth"]} == pytest.approx((-alone).to_dict())


def test_wrong_options_are_explained(model: Path) -> None:
    test = model.parent / "test.csv"
    assert named(error_line("worth", model, test, "--by", "clinic"), "--by", "age", "work", "'clinic'")
    shown = run("worth", model, test, "--utility", "x", ends=2).stderr
    assert named(shown, "probability", "log_probability", "accuracy")
    assert named(error_line("worth", model, test, "-o", "worth.txt"), "worth.txt")


def test_examples_of_numbers_have_a_worth(tmp_path: Path) -> None:
    rows = people(90).assign(pay=lambda frame: frame["age"] * 11.5)[["age", "work", "pay"]]
    rows[:80].to_csv(tmp_path / "people.csv", index=False)
    rows[80:].to_csv(tmp_path / "test.csv", index=False)
    quick = ("--epochs", 2, "--no-cross-fit", "--ensemble-size", 1, "--device", "cpu")
    run("train", tmp_path / "people.csv", "-t", "pay", "-o", tmp_path / "model", *quick)
    assert named(run("worth", tmp_path / "model", tmp_path / "test.csv").stdout, "squared error")
    words = ("worth", tmp_path / "model", tmp_path / "test.csv", "--utility", "accuracy")
    assert named(error_line(*words), "--utility", "classes", "numbers")


@pytest.mark.filterwarnings("ignore:.*have no label at all:UserWarning")
def test_several_labels_are_written_as_people_do(tmp_path: Path) -> None:
    rows = people(120).assign(
        old=lambda frame: (frame["age"] > 50) * 1, state=lambda frame: (frame["work"] == "state") * 1
    )
    rows = rows[["age", "work", "old", "state"]]
    rows[:90].to_csv(tmp_path / "people.csv", index=False)
    rows[90:].to_csv(tmp_path / "test.csv", index=False)
    quick = ("--epochs", 2, "--no-cross-fit", "--ensemble-size", 1, "--device", "cpu")
    run("train", tmp_path / "people.csv", "-t", "old", "-t", "state", "-o", tmp_path / "model", *quick)
    shown = run("worth", tmp_path / "model", tmp_path / "test.csv", "--top", 50).stdout
    assert "old, state" in shown
    assert "no label" in shown
    assert "('" not in shown
