"""From a file to a model, predictions, explanations and an evaluation, as a person types it."""

import errno
import inspect
import io
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from rich.console import Console
from sklearn import metrics as sk
from typer.testing import CliRunner

import dwac
from dwac.cli.app import app
from dwac.cli.output import group_tables
from dwac.encoders import TabularEncoder
from dwac.explain.rendering import percent
from dwac.reading import load, read
from dwac.tasks.by_group import compare_groups, read_groups
from dwac.tasks.group_statistics import GroupMeasure
from dwac.tasks.predictions import as_csv, harmless_cell
from tests.cli.helpers import EXACT, error_line, people, run
from tests.named import named

pytestmark = pytest.mark.usefixtures("few_steps")

DWAC = Path(sys.executable).parent / "dwac"

# typer guesses the command that was meant since 0.20.
GUESSES = "suggest_commands" in inspect.signature(typer.Typer).parameters
GUESS = "'train'" if GUESSES else "'trian'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """people.csv, new.csv with other people, and model/, which learned from the first."""
    folder = tmp_path_factory.mktemp("people")
    people(240).iloc[:200].to_csv(folder / "people.csv", index=False)
    people(240).iloc[200:].to_csv(folder / "new.csv", index=False)
    run("train", folder / "people.csv", "--target", "income", "--id", "name", "-o", folder / "model", "--epochs", "4")
    return folder


# train


def test_train_says_what_it_understood_and_how_good_it_is(folder: Path, tmp_path: Path) -> None:
    words = ("train", folder / "people.csv", "--target", "income", "-o", tmp_path / "m", "--epochs", "2")
    shown = run(*words, "--test-size", "0.2").output
    for expected in ("200 rows", "target      income", "numbers     age", "categories  work", "not used    name",
                     "<=50K", "2 epochs", "40 held-out rows", "accuracy", "coverage"):  # fmt: skip
        assert expected in shown
    assert dwac.load(tmp_path / "m").classes_.tolist() == ["<=50K", ">50K"]


def test_train_says_the_accuracy_of_the_model_that_it_wrote(folder: Path, tmp_path: Path) -> None:
    words = ("train", folder / "people.csv", "-t", "income", "--id", "name", "-o", tmp_path / "m", "--epochs", "1")
    shown = run(*words).output
    clf, rows = dwac.load(tmp_path / "m"), people(240).iloc[:200].set_index("name")
    held = rows.loc[clf.validation_ids_]
    assert named(shown, "accuracy", f"{clf.score(held[['age', 'work']], held['income']):.3f}")


def test_a_blank_category_is_a_gap_to_a_model_as_it_was_in_training(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=120), "job": rng.choice(["a", "b", ""], 120)})
    frame.assign(y=np.where(frame["job"] == "", "out", "in")).to_csv(tmp_path / "t.csv", index=False)
    run("train", tmp_path / "t.csv", "-t", "y", "-o", tmp_path / "m", "--epochs", "1")
    found = read(tmp_path / "t.csv", like=load(tmp_path / "m"))
    assert (found.X["job"].isna() == (frame["job"] == "")).all()


def test_train_for_machines_says_the_same(folder: Path, tmp_path: Path) -> None:
    words = ("train", folder / "people.csv", "-t", "income", "--id", "name", "-o", tmp_path / "m", "--epochs", "1")
    facts = json.loads(run(*words, "--test-size", "30", "--json").stdout)
    assert facts["rows"] == 200
    assert (facts["target"], facts["id"], facts["kind"]) == ("income", "name", "tabular")
    assert facts["columns"] == {"numbers": ["age"], "categories": ["work"]}
    assert facts["classes"] == people(240).iloc[:200]["income"].value_counts().to_dict()
    assert facts["voters"] + facts["validation"] + facts["calibration"] == 170
    assert facts["test"]["n"] == 30
    held = set(load(tmp_path / "m").clf.references_.ids)
    assert held < set(people(200)["name"])


def test_train_repeats_by_its_seed(folder: Path, tmp_path: Path) -> None:
    words = ("train", folder / "people.csv", "-t", "income", "--epochs", "1", "--encoder", "tabular:paper")
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        run(*words, "-o", tmp_path / name, "--seed", seed, "--device", "cpu")
    a, b, c = (run("predict", tmp_path / name, folder / "new.csv").stdout for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (None, ["--target COLUMN", "'name', 'age', 'work', 'income'"]),
        ("incom", ["'incom'", "'income'?"]),
        ("name", ["'name'", "200 different values", "200 rows"]),
        ("two in three", ["'two in three'", "134 different values", "200 rows"]),
        ("one", ["'one'", "one class, 1"]),
        ("same", ["'same'", "one class, 'x'"]),
        ("gap", ["line 5", "'gap'", "missing"]),
    ],
    ids=str,
)
def test_train_refuses_what_is_no_target(tmp_path: Path, target: str | None, expected: list[str]) -> None:
    i = np.arange(200)
    frame = people().assign(one=1, same="x", gap=["" if j == 3 else "x" for j in i])
    frame["two in three"] = [f"c{min(j, 133)}" for j in i]
    frame = frame if target in ("one", "same", "gap", "two in three") else people()
    frame.to_csv(tmp_path / "a.csv", index=False)
    line = error_line(
        "train", tmp_path / "a.csv", *([] if target is None else ["--target", target]), "-o", tmp_path / "m"
    )
    assert named(line, "a.csv", *expected)
    assert not (tmp_path / "m").exists()


def test_train_overwrites_nothing_by_default(folder: Path, tmp_path: Path) -> None:
    words = ("train", folder / "people.csv", "-t", "income", "--epochs", "1", "-o")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    assert named(error_line(*words, tmp_path / "full", "--overwrite"), tmp_path / "full", "empty", "model")
    assert named(error_line(*words, tmp_path / "full" / "thesis.tex", "--overwrite"), "thesis.tex", "file")
    run(*words, tmp_path / "m")
    before = (tmp_path / "m" / "model.json").read_bytes()
    assert named(error_line(*words, tmp_path / "m", "--seed", "1"), tmp_path / "m", "--overwrite")
    assert (tmp_path / "m" / "model.json").read_bytes() == before
    run(*words, tmp_path / "m", "--seed", "1", "--overwrite")
    assert (tmp_path / "m" / "model.json").read_bytes() != before


@pytest.mark.parametrize("batch", [0, 5])
def test_stopped_training_writes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    batches = iter(range(100))

    def interrupted(self: TabularEncoder, inputs: Any, generator: Any) -> Any:
        if next(batches) == batch:  # the library would keep what it has after some epochs
            raise KeyboardInterrupt
        return inputs

    monkeypatch.setattr(TabularEncoder, "augment", interrupted)
    shown = run("train", folder / "people.csv", "-t", "income", "-o", tmp_path / "m", "--epochs", "9", ends=130)
    assert shown.stderr.strip() == "dwac: stopped"
    assert next(batches) == batch + 1
    assert not (tmp_path / "m").exists()


def test_a_private_model_holds_no_record(folder: Path, tmp_path: Path) -> None:
    run("train", folder / "people.csv", "-t", "income", "--epochs", "1", "--private", "-o", tmp_path / "m")
    found = run("explain", tmp_path / "m", folder / "new.csv", "--row", "0", "--json").stdout
    assert {tuple(neighbor) for neighbor in json.loads(found)["neighbors"]} == {("label", "share")}
    rows = [
        json.loads(line) for line in run("predict", tmp_path / "m", folder / "new.csv", "--json").stdout.splitlines()
    ]
    assert all(row["probability"] == round(row["probability"], 2) for row in rows)
    assert "differs in" not in run("explain", tmp_path / "m", folder / "new.csv", "--row", "0").output


def test_too_much_held_out_is_refused(folder: Path, tmp_path: Path) -> None:
    words = ("train", folder / "people.csv", "-t", "income", "-o", tmp_path / "m", "--test-size")
    assert named(run(*words, "0.99", ends=1).stderr, "2 of 200")


# predict


def test_predict_gives_what_python_gives(folder: Path) -> None:
    model = load(folder / "model")
    rows = read(folder / "new.csv", like=model)
    conformal = model.clf.conformal(rows.X)
    frame = pd.read_csv(io.StringIO(run("predict", folder / "model", folder / "new.csv", "-e", "0.2").stdout))
    assert list(frame.columns) == [
        "id",
        "label",
        "probability",
        "confidence",
        "credibility",
        "typicality",
        "set",
        "epsilon",
        "unknown",
        "unreadable",
    ]
    assert (frame["epsilon"] == 0.2).all()
    assert frame[["unknown", "unreadable"]].isna().all(axis=None)
    assert frame["id"].tolist() == [f"p{i}" for i in range(200, 240)]
    assert frame["label"].tolist() == model.clf.predict(rows.X).tolist()
    np.testing.assert_allclose(frame["probability"], model.clf.predict_proba(rows.X).max(axis=1), atol=1e-12)
    np.testing.assert_allclose(frame["credibility"], conformal.credibility, atol=1e-12)
    assert conformal.typicality is not None
    np.testing.assert_allclose(frame["typicality"], conformal.typicality, atol=1e-12)
    np.testing.assert_allclose(frame["confidence"], conformal.confidence, atol=1e-12)
    sets = [set(str(cell).split("|")) if isinstance(cell, str) else set() for cell in frame["set"]]
    assert sets == [set(model.clf.classes_[held]) for held in conformal.label_sets(0.2)]


def test_predictions_are_the_same_in_every_format(folder: Path, tmp_path: Path) -> None:
    words = ("predict", folder / "model", folder / "new.csv")
    table = pd.read_csv(io.StringIO(run(*words).stdout), **EXACT)
    lines = [json.loads(line) for line in run(*words, "--json").stdout.splitlines()]
    assert [line["probability"] for line in lines] == table["probability"].tolist()
    assert all(isinstance(line["set"], list) for line in lines)
    for name in ("a.csv", "a.tsv", "a.jsonl", "a.parquet"):
        assert run(*words, "-o", tmp_path / name).stdout == ""
    assert pd.read_parquet(tmp_path / "a.parquet")["label"].tolist() == table["label"].tolist()
    assert [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()] == lines
    assert pd.read_csv(tmp_path / "a.tsv", sep="\t", **EXACT).equals(table)
    assert pd.read_csv(tmp_path / "a.csv", **EXACT).equals(table)


def test_data_can_be_piped_in(folder: Path) -> None:
    frame = pd.read_csv(folder / "new.csv")[["work", "age"]]
    piped = run("predict", folder / "model", "-", given=frame.to_json(orient="records", lines=True)).stdout
    from_file = pd.read_csv(io.StringIO(run("predict", folder / "model", folder / "new.csv").stdout))
    assert pd.read_csv(io.StringIO(piped))["label"].tolist() == from_file["label"].tolist()
    assert pd.read_csv(io.StringIO(piped))["id"].tolist() == list(range(40))


def test_decisions_and_strangers_are_those_of_python(folder: Path) -> None:
    words = ("decide", folder / "model", folder / "new.csv", "--risk", "0.4", "--strangers", "0.99")
    result = run(*words, "--json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    clf, new = dwac.load(folder / "model"), pd.read_csv(folder / "new.csv")[["age", "work"]]
    decisions, strangers = clf.decide(new, 0.4), clf.strangers(new, 0.99)["position"].tolist()
    expected = [bool(here) and row not in strangers for row, here in enumerate(decisions.decided)]
    assert [line["decided"] for line in lines] == expected
    assert [line["why"] is None for line in lines] == expected
    assert f"{sum(expected)} of 40 rows decided" in result.stderr
    assert named(error_line("decide", folder / "model", folder / "new.csv", "--label", "x"), "<=50K", ">50K", "x")


def test_predict_says_what_is_wrong(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("name,age\np1,3\n")
    words = ("predict", folder / "model", folder / "new.csv")
    assert named(error_line(*words[:2], tmp_path / "few.csv"), "few.csv", "columns", "missing: 'work'")
    assert named(error_line(*words, "-o", "a.xls"), "a.xls", ".csv")
    assert named(error_line(*words, "-o", tmp_path / "no" / "a.csv"), tmp_path / "no")
    assert named(error_line("predict", tmp_path, folder / "new.csv"), "model.json")
    for command, name in (("predict", "a.csv"), ("worth", "a.csv"), ("report", "a.html")):  # before the model is read
        found = error_line(command, tmp_path, folder / "new.csv", "-o", tmp_path / "no" / name)
        assert named(found, tmp_path / "no")
    assert named(run(*words, "-e", "1.5", ends=2).stderr, "(0, 1)", 1.5)


# explain


def test_explain_for_machines_is_the_explanation_itself(folder: Path, tmp_path: Path) -> None:
    pd.read_csv(folder / "new.csv").head(4).to_csv(tmp_path / "new.csv", index=False)
    model = load(folder / "model")
    lines = run("explain", folder / "model", tmp_path / "new.csv", "-k", "3", "--json").stdout.splitlines()
    found = model.clf.explain(read(tmp_path / "new.csv", like=model).X, k=3)
    assert [json.loads(line) for line in lines] == [explanation.to_dict() for explanation in found]


def test_explain_shows_who_voted_and_how_they_differ(folder: Path) -> None:
    model = load(folder / "model")
    (found,) = model.clf.explain(read(folder / "new.csv", like=model).X.iloc[[3]], k=60)
    assert found.few_suffice  # as many as this hold half of the vote
    by_row = run("explain", folder / "model", folder / "new.csv", "--row", "3", "-k", "60").output
    assert run("explain", folder / "model", folder / "new.csv", "--id", "p203", "-k", "60").output == by_row
    assert "p203" in by_row
    assert "new.csv line 5" in by_row
    for sentence in found.sentences():
        assert sentence in " ".join(by_row.split())
    for neighbor in found.neighbors:
        assert str(neighbor.id) in by_row
        assert percent(neighbor.share) in by_row
    other = next(n for n in found.neighbors if n.record["age"] != found.record["age"])
    assert f"age {found.record['age']} → {other.record['age']}" in by_row


def test_explain_keeps_secrets_if_asked(folder: Path) -> None:
    shown = run("explain", folder / "model", folder / "new.csv", "--row", "3", "--private").output
    assert not any(f"p{i:03}" in shown for i in range(200))
    assert "share" in shown
    exact, private = (
        json.loads(run("predict", folder / "model", folder / "new.csv", "--json", *flag).stdout.splitlines()[0])
        for flag in ([], ["--private"])
    )
    assert private["label"] == exact["label"]
    assert private["probability"] == pytest.approx(exact["probability"], abs=0.01)
    assert private["probability"] == round(private["probability"], 2)


def test_explain_names_rows_that_are_not_there(folder: Path) -> None:
    words = ("explain", folder / "model", folder / "new.csv")
    assert named(error_line(*words, "--row", "40"), "--row", 0, 39, 40)
    assert named(error_line(*words, "--id", "bob"), "'bob'", "p200")


def test_explain_writes_a_page_that_escapes_everything(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "<b>.csv"
    pd.read_csv(folder / "new.csv").assign(name=lambda f: "<script>" + f["name"]).to_csv(data, index=False)
    run("explain", folder / "model", data, "--row", "0", "--row", "1", "--html", tmp_path / "why.html")
    page = (tmp_path / "why.html").read_text()
    assert page.count('class="dwac-explanation"') == 2
    assert "<script" not in page
    assert "&lt;script&gt;p200" in page
    assert "http" not in page


def test_letter_is_about_one_row_and_takes_its_form_from_the_file(folder: Path, tmp_path: Path) -> None:
    words = ("letter", folder / "model", folder / "new.csv")
    assert named(error_line(*words), "40", "--row", "--id")
    by_id = run(*words, "--id", "p203", "--contact", "Ms Lee").stdout
    assert by_id == run(*words, "--row", "3", "--contact", "Ms Lee").stdout
    assert named(by_id, "p203", "Ms Lee")
    run(*words, "--row", "3", "--wanted", ">50K", "--frozen", "age", "-o", tmp_path / "letter.html", "--language", "de")
    assert "<h2>Die Entscheidung</h2>" in (tmp_path / "letter.html").read_text()


def test_explain_gives_reasons_and_recourse_if_asked(folder: Path, tmp_path: Path) -> None:
    model = load(folder / "model")
    X = read(folder / "new.csv", like=model).X.iloc[[3]]
    label = model.clf.predict(X)[0]
    other = next(name for name in model.clf.classes_ if name != label)
    words = ("explain", folder / "model", folder / "new.csv", "--row", "3", "--against", other, "--recourse", other)
    (line,) = run(*words, "--frozen", "work", "--json").stdout.splitlines()
    found = json.loads(line)
    assert found["reasons"] == model.clf.explain(X)[0].reasons(other).to_dict()
    assert found["recourse"] == model.clf.recourse(X, other, frozen=["work"])[0].to_dict()
    assert not any(c["column"] == "work" for way in found["recourse"]["ways"] for c in way["changes"])
    shown = " ".join(run(*words).output.split())
    assert found["reasons"]["precedents"][0]["id"] in shown
    assert found["recourse"]["wanted"] in shown
    run(*words, "--html", tmp_path / "why.html")
    assert (tmp_path / "why.html").read_text().count('class="dwac-explanation"') == 3
    private = run(*words, "--private").output
    assert not any(f"p{i:03}" in private for i in range(200))
    assert named(error_line(*words, "--frozen", "wrok"), "frozen", "wrok")
    assert named(error_line("explain", folder / "model", folder / "new.csv", "--frozen", "work"), "--recourse")
    assert named(error_line(*words[:-1], "millionaire"), "millionaire")
    precedent = found["reasons"]["precedents"][0]["id"]
    columns = [part["column"] for part in found["reasons"]["contributions"]]
    chosen = ("--example", precedent, "--recourse", other, "--tied", ",".join(columns[:2]), "--least", "--json")
    found = json.loads(run(*words[:5], *chosen).stdout)
    assert ", ".join(columns[:2]) in [part["column"] for part in found["reasons"]["contributions"]]
    assert found["recourse"] == model.clf.recourse(X, other, tied=[columns[:2]], least=True)[0].to_dict()


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in which so many vote alike that no few of them explain a prediction; and rows to ask about."""
    place = tmp_path_factory.mktemp("crowd")
    people(620).iloc[:600].to_csv(place / "people.csv", index=False)
    people(620).iloc[600:].to_csv(place / "new.csv", index=False)
    run("train", place / "people.csv", "-t", "income", "--id", "name", "-o", place / "model", "--epochs", "6")
    return place


def test_explain_shows_groups_where_no_few_examples_explain(crowd: Path) -> None:
    model = load(crowd / "model")
    (found,) = model.clf.explain(read(crowd / "new.csv", like=model).X.iloc[[3]], k=2)
    assert not found.few_suffice
    shown = run("explain", crowd / "model", crowd / "new.csv", "--row", "3", "-k", "2").output
    words = " ".join(re.sub("[│┃]", " ", shown).split())
    for sentence in found.sentences():
        assert sentence in words
    assert len(found.shown_groups) in (2, 3)
    for group in found.shown_groups:
        assert percent(group.share) in words
        assert f"{group.size:,}" in words
        assert str(group.compared) in words
        assert f"most similar: {group.face.id}, " in words
    assert not any(
        f"most similar: {group.face.id}," in words for group in found.groups if group not in found.shown_groups
    )
    narrow = CliRunner().invoke(
        app, ["explain", str(crowd / "model"), str(crowd / "new.csv"), "--row", "3"], env={"COLUMNS": "80"}
    )
    assert max(map(len, narrow.output.splitlines())) <= 80
    assert str(found.groups[0].compared) in " ".join(re.sub("[│┃]", " ", narrow.output).split())


# condense


@pytest.mark.slow
def test_condense_writes_a_small_model_and_says_how_often_it_agrees(crowd: Path, tmp_path: Path) -> None:
    shown = run("condense", crowd / "model", "-o", tmp_path / "small", "--size", "20").stdout
    full, small = load(crowd / "model"), load(tmp_path / "small")
    assert small.columns == full.columns
    n = len(full.clf.references_)
    assert named(shown, "20 representatives", f"{n:,} training examples", small.clf.agreement_)
    assert re.search(r"folder: [\d.,]+ [kM]B, now [\d.,]+ kB", shown)
    assert len(small.clf.references_) == len(small.clf.examples_) == 20
    rows = read(crowd / "new.csv", like=small).X
    expected = full.clf.condense(20)
    np.testing.assert_array_equal(small.clf.predict_proba(rows), expected.predict_proba(rows))
    np.testing.assert_array_equal(small.clf.conformal(rows).p_values, expected.conformal(rows).p_values)
    explained = run("explain", tmp_path / "small", crowd / "new.csv", "--row", "3").output
    assert named(explained, "20 representatives", "votes for")


@pytest.mark.slow
def test_condense_chooses_by_validation_rows_and_tells_programs(crowd: Path, tmp_path: Path) -> None:
    facts = json.loads(run("condense", crowd / "model", "-o", tmp_path / "small", "--json").stdout)
    model, small = load(crowd / "model").clf, load(tmp_path / "small").clf
    assert facts["voters"] == len(small.references_) == len(model.condense().references_) < facts["voters_before"]
    assert facts["voters_before"] == facts["examples"] == len(model.references_)
    assert small.agreement_ is not None
    assert facts["agreement"] == small.agreement_._asdict()
    assert facts["bytes"] == sum(path.stat().st_size for path in (tmp_path / "small").iterdir()) < facts["bytes_before"]
    assert facts["mean_set_size"] == small.expected_sets(0.05).mean_size
    assert facts["mean_set_size_before"] == model.expected_sets(0.05).mean_size


def test_condense_keeps_members_if_asked(crowd: Path, tmp_path: Path) -> None:
    run("condense", crowd / "model", "-o", tmp_path / "a", "--size", "20", "--include-members")
    clf = load(tmp_path / "a").clf
    assert len(clf.references_) == 20
    assert clf.references_.members is not None
    clf.forget(clf.references_.members.ids[:1].tolist())
    assert clf.references_.sizes.sum() == len(load(crowd / "model").clf.references_) - 1
    run("condense", tmp_path / "a", "-o", tmp_path / "b", "--size", "10")  # again, from its members
    assert len(load(tmp_path / "b").clf.references_) == 10


def test_condense_stores_the_network_in_half_precision_if_new_rows_allow_it(crowd: Path, tmp_path: Path) -> None:
    options = ("condense", crowd / "model", "--size", "20", "-o", tmp_path / "small")
    assert named(error_line(*options, "--half", crowd / "people.csv"), "--half", "600")
    facts = json.loads(run(*options, "--half", crowd / "new.csv", "--json").stdout)
    small = load(tmp_path / "small").clf
    assert facts["half"] is small.fitted_.half is True
    assert facts["calibration_rows"] == len(small.calibration_y_) == 20


def test_condense_says_what_it_cannot_do(crowd: Path, tmp_path: Path) -> None:
    frame = people()
    options: dict[str, Any] = {"epochs": 1, "random_state": 0, "device": "cpu", "verbose": False}
    unchecked = dwac.DWACClassifier(**options, validation_size=0, calibration_size=0)
    unchecked.fit(frame[["age"]], frame["income"]).save(tmp_path / "unchecked")
    run("condense", crowd / "model", "-o", tmp_path / "small", "--size", "20")
    to = ("-o", tmp_path / "out")
    assert named(error_line("condense", tmp_path / "small", *to), tmp_path / "small", "condensed")
    assert named(error_line("condense", tmp_path / "unchecked", *to), "validation rows", "--size N")
    n = len(load(crowd / "model").clf.references_)
    assert named(error_line("condense", crowd / "model", *to, "--size", "5000"), "--size", n, "5,000")
    assert not (tmp_path / "out").exists()
    shown = run("condense", tmp_path / "unchecked", *to, "--size", "6").stdout
    assert named(shown, "not known")
    before = (tmp_path / "small" / "model.json").read_bytes()
    line = error_line("condense", crowd / "model", "-o", tmp_path / "small", "--size", "9")
    assert named(line, tmp_path / "small", "--overwrite")
    assert (tmp_path / "small" / "model.json").read_bytes() == before
    run("condense", crowd / "model", "-o", tmp_path / "small", "--size", "9", "--overwrite")
    assert len(load(tmp_path / "small").clf.references_) == 9


def test_a_private_model_stays_private_when_condensed(folder: Path, tmp_path: Path) -> None:
    run("train", folder / "people.csv", "-t", "income", "--epochs", "1", "--private", "-o", tmp_path / "m")
    run("condense", tmp_path / "m", "-o", tmp_path / "small", "--size", "6")
    found = json.loads(run("explain", tmp_path / "small", folder / "new.csv", "--row", "0", "--json").stdout)
    assert found["private"]
    assert (found["groups"], found["n_references"]) == ([], 6)
    assert {tuple(neighbor) for neighbor in found["neighbors"]} == {("label", "share")}


def test_train_lets_few_vote_for_all(folder: Path, tmp_path: Path) -> None:
    words = ("train", folder / "people.csv", "-t", "income", "--epochs", "1", "--encoder", "tabular:paper", "-o")
    shown = run(*words, tmp_path / "few", "--voters", "8").output
    clf = load(tmp_path / "few").clf
    n = len(load(folder / "model").clf.references_)  # all of as many rows
    assert named(shown, "8 representatives", f"{n} rows", clf.agreement_)
    facts = json.loads(run(*words, tmp_path / "json", "--voters", "8", "--json").stdout)
    assert (facts["voters"], facts["examples"]) == (8, n)
    assert clf.agreement_ is not None
    assert facts["agreement"] == clf.agreement_._asdict()
    for voters in ("all", "auto"):  # auto: so few rows all vote
        assert named(run(*words, tmp_path / voters, "--voters", voters).output, f"{n} rows vote")
        assert not load(tmp_path / voters).clf.references_.voters.weighted


# evaluate


def test_evaluate_gives_what_the_metrics_give(folder: Path) -> None:
    model = load(folder / "model")
    rows = read(folder / "new.csv", like=model, labelled=True)
    codes = np.searchsorted(model.clf.classes_, np.asarray(rows.y, dtype=str))
    p, sets = model.clf.predict_proba(rows.X), model.clf.predict_set(rows.X, 0.1)
    found = json.loads(run("evaluate", folder / "model", folder / "new.csv", "--json", "-e", "0.1").stdout)
    trust: Any = model.clf.conformal(rows.X)
    expected = {
        "n": 40,
        "accuracy": model.clf.score(rows.X, rows.y),
        "log_loss": dwac.metrics.log_loss(codes, np.log(p)),
        "calibration_error": dwac.metrics.calibration_error(codes, p),
        "epsilon": 0.1,
        "coverage": dwac.metrics.coverage(codes, sets),
        "mean_set_size": sets.sum(axis=1).mean(),
        "credibility": model.clf.conformal(rows.X).credibility.mean(),
        "typicality": trust.typicality.mean(),
        "unreadable": 0,
        "unseen": 0,
        "roc_auc": sk.roc_auc_score(rows.y, p[:, 1]),
    }
    by_class, short, advice = (found.pop(name) for name in ("by_class", "undercovered", "advice"))
    assert [row["threshold"] for row in found.pop("thresholds")] == pytest.approx(np.arange(1, 10) / 10)
    law = dwac.metrics.coverage_interval(0.1, model.clf.conformal(rows.X).n_calibration, 40, 0.99)
    assert law is not None
    assert found.pop("coverage_range") == pytest.approx(law)
    assert (advice is None) == (short == [])
    assert found == pytest.approx(expected)
    assert [row["label"] for row in by_class] == ["<=50K", ">50K"]
    assert sum(row["n"] for row in by_class) == 40
    right = sum(row["n"] * row["recall"] for row in by_class) / 40
    assert right == pytest.approx(found["accuracy"])
    shown = run("evaluate", folder / "model", folder / "new.csv", "-e", "0.1").output
    assert f"{expected['accuracy']:.3f}" in shown
    assert named(shown.replace("│", " "), "0.9", *(f"{bound:.3f}" for bound in law))
    assert all(name in shown for name in ("precision", "credibility", "typicality"))  # not cut off at 80 characters


def test_tables_of_groups_with_long_names_break_no_word_in_80_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rng, people = np.random.default_rng(0), ["Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other", "White"]
    by = pd.DataFrame({"sex": rng.choice(["Female", "Male"], 400), "race": rng.choice(people, 400)})
    measures = [GroupMeasure(name, rng.random(400) < 0.5) for name in ("overconfidence", "false positives of >50K")]
    console = Console(width=80)
    with console.capture() as shown:
        console.print(*group_tables(compare_groups(measures, read_groups(by, None, 400))))
    words = set(shown.get().split())
    assert {"overconfidence", "positives", "Amer-Indian-", "Eskimo", "Asian-Pac-", "Islander"} <= words
    assert not words & {"overconfidenc", "e", "overconfiden", "ce", "skimo", "mo", "ander", "lander", "r"}
    assert re.search(r"\d\.\d{3} to \d\.\d{3}", shown.get())  # an interval on one line


def test_evaluate_compares_groups_of_any_column_and_decides_by_cost(folder: Path, tmp_path: Path) -> None:
    new = pd.read_csv(folder / "new.csv").assign(region=["north", "south"] * 20)
    new.to_csv(tmp_path / "new.csv", index=False)
    words = ("evaluate", folder / "model", tmp_path / "new.csv", "--by", "region", "--by", "age")
    costs = ("--cost", "<=50K/>50K=3", "--cost", ">50K/<=50K=1")
    found = json.loads(run(*words, *costs, "--json").stdout)
    model = load(folder / "model").clf
    expected = model.evaluate(
        new[["age", "work"]],
        new["income"],
        by=new[["region", "age"]],
        costs={("<=50K", ">50K"): 3, (">50K", "<=50K"): 1},
    ).to_dict()  # fmt: skip
    assert found["groups"] == expected["groups"]
    assert found["costs"] == expected["costs"]
    assert {row["by"] for row in found["groups"]["differences"]} == {"region", "age", "region × age"}
    shown = run(*words, *costs).output
    assert all(word in shown for word in ("north", "up to", "(small)", "0.75"))
    assert named(error_line(*words, "--by", "Region"), "'Region'", "'region'?")
    assert named(error_line(*words, "--cost", "<=50K/more=1"), "--cost", "TRUE/DECIDED=COST", "<=50K/more=1")


@pytest.mark.slow
def test_classes_are_calibrated_separately_on_demand_and_offered_where_one_falls_short(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rare = rng.random(3000) < 0.15
    x = rng.normal(size=(3000, 2)) + 1.2 * rare[:, None]
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(y=np.where(rare, "rare", "common"))
    frame[:1200].to_csv(tmp_path / "known.csv", index=False)
    frame[1200:].to_csv(tmp_path / "new.csv", index=False)
    words = ("train", tmp_path / "known.csv", "--target", "y", "--epochs", "4", "--ensemble-size", "1", "-o")
    run(*words, tmp_path / "plain")
    run(*words, tmp_path / "by_class", "--class-conditional")
    assert load(tmp_path / "by_class").clf.class_conditional
    shown, other = (
        " ".join(run("evaluate", tmp_path / name, tmp_path / "new.csv", "-e", "0.1").output.split())
        for name in ("plain", "by_class")
    )
    assert named(shown, "class rare", "--class-conditional")
    assert "--class-conditional" not in other


def test_within_calibrates_each_value_of_a_column(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=500), "region": rng.choice([1, 2], 500)})
    frame["y"] = np.where(frame["x"] + frame["region"] * rng.normal(size=500) > 0, "yes", "no")
    frame[:300].to_csv(tmp_path / "known.csv", index=False)
    frame[300:].to_csv(tmp_path / "new.csv", index=False)
    words = ("train", tmp_path / "known.csv", "--target", "y", "--epochs", "2", "--ensemble-size", "1", "-o")
    shown = run(*words, tmp_path / "model", "--within", "region").output
    assert named(" ".join(shown.split()), "smallest group", "1:", "2:")
    for wrong in ("town", "y"):
        assert named(error_line(*words, tmp_path / "no", "--within", wrong), "--within", wrong, "'region'")
    run("predict", tmp_path / "model", tmp_path / "new.csv", "-e", "0.1", "-o", tmp_path / "out.jsonl")
    written = pd.read_json(tmp_path / "out.jsonl", lines=True)
    sets = load(tmp_path / "model").clf.predict_set(frame[300:][["x", "region"]], 0.1, as_labels=True)
    assert written["set"].tolist() == sets
    shown = run(*words, tmp_path / "blind", "--within", "region", "--ignore", "region").output
    assert named(" ".join(shown.split()), "not used region", "--within")
    blind = load(tmp_path / "blind").clf
    frame["other"] = 3 - frame["region"]
    swapped = frame[300:].assign(region=frame["other"])
    np.testing.assert_array_equal(
        blind.predict_proba(frame[300:][["x", "region"]]), blind.predict_proba(swapped[["x", "region"]])
    )
    assert (
        blind.predict_set(frame[300:][["x", "region"]], 0.1) != blind.predict_set(swapped[["x", "region"]], 0.1)
    ).any()
    frame[300:][["x", "y"]].to_csv(tmp_path / "without.csv", index=False)
    assert named(error_line("predict", tmp_path / "blind", tmp_path / "without.csv"), "'region'")


def test_evaluate_says_that_rows_were_trained_on(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        shown = run("evaluate", folder / "model", folder / "people.csv")
        assert run("evaluate", folder / "model", folder / "new.csv").stderr == ""
    assert shown.stderr.startswith("dwac: note: ")
    assert named(shown.stderr, "200 of the 200 rows", "training")


def test_evaluate_needs_labels(folder: Path, tmp_path: Path) -> None:
    pd.read_csv(folder / "new.csv").drop(columns="income").to_csv(tmp_path / "a.csv", index=False)
    line = error_line("evaluate", folder / "model", tmp_path / "a.csv")
    assert named(line, "a.csv", "no column 'income'", "target")


def test_names_that_are_nearly_right_are_suggested(folder: Path, tmp_path: Path) -> None:
    line = error_line("train", folder / "new.csv", "-t", "INCOME", "-o", tmp_path / "m")
    assert named(line, "'INCOME'", "'income'?")
    new = pd.read_csv(folder / "new.csv")
    new.rename(columns={"age": "AGE", "income": "Income"}).to_csv(tmp_path / "a.csv", index=False)
    assert named(error_line("predict", folder / "model", tmp_path / "a.csv"), "'age'", "'AGE'?")
    assert named(error_line("evaluate", folder / "model", tmp_path / "a.csv"), "'income'", "'Income'?")
    if GUESSES:
        assert named(error_line("trian", "a.csv", ends=2), "'trian'", "'train'?")


def test_a_column_that_the_model_does_not_use_is_mentioned_once(folder: Path, tmp_path: Path) -> None:
    pd.read_csv(folder / "new.csv").assign(extra=1).to_csv(tmp_path / "a.csv", index=False)
    for command in ("predict", "evaluate"):
        assert run(command, folder / "model", tmp_path / "a.csv").stderr.count("'extra'") == 1


def test_infinity_is_named_with_its_line_and_column(folder: Path, tmp_path: Path) -> None:
    frame = people()
    frame.assign(age=frame["age"].astype(float).where(frame.index != 5, np.inf)).to_csv(tmp_path / "a.csv", index=False)
    line = error_line("train", tmp_path / "a.csv", "-t", "income", "-o", tmp_path / "m")
    assert "a.csv line 7" in line
    assert "'age'" in line


@pytest.mark.slow
def test_a_file_of_texts_under_another_name_asks_for_its_format(tmp_path: Path) -> None:
    lines = "".join(f"{label}\ta {label} film {i}\n" for i in range(30) for label in ("pos", "neg"))
    (tmp_path / "a.tsv").write_text(lines)
    assert "--format text" in error_line("train", tmp_path / "a.tsv", "-o", tmp_path / "m")
    run("train", tmp_path / "a.tsv", "--format", "text", "-o", tmp_path / "m", "--epochs", "1")
    assert "--format text" in error_line("evaluate", tmp_path / "m", tmp_path / "a.tsv")


def test_a_model_that_never_had_a_table_asks_which_column_is_the_target(folder: Path, tmp_path: Path) -> None:
    frame = people()
    dwac.DWACClassifier(epochs=1).fit(frame[["age"]], frame["income"].to_numpy()).save(tmp_path / "m")
    line = error_line("evaluate", tmp_path / "m", folder / "new.csv")
    assert named(line, "new.csv", "--target COLUMN")


# Texts and images


def test_from_sentences_to_predictions(tmp_path: Path) -> None:
    lines = [
        f"{label}\ta {word} film number {i}" for i in range(60) for label, word in (("pos", "good"), ("neg", "bad"))
    ]
    (tmp_path / "reviews.txt").write_text("\n".join(lines))
    run("train", tmp_path / "reviews.txt", "-o", tmp_path / "m", "--epochs", "5")
    (tmp_path / "new.txt").write_text("what a good film\nwhat a bad film\n")
    found = pd.read_csv(io.StringIO(run("predict", tmp_path / "m", tmp_path / "new.txt").stdout))
    assert found["label"].tolist() == ["pos", "neg"]
    shown = run("explain", tmp_path / "m", "-", given="so good\n").output
    assert "so good" in shown
    assert "a good film number" in shown
    (tmp_path / "known.txt").write_text("pos\twhat a good film\nneg\twhat a bad film\n")
    found = json.loads(run("evaluate", tmp_path / "m", tmp_path / "known.txt", "--json").stdout)
    assert (found["n"], found["accuracy"]) == (2, 1.0)


def test_from_a_folder_of_images_to_predictions(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for label, level in (("dark", 20), ("light", 180)):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for i in range(60):
            image = rng.integers(level, level + 50, (8, 8), dtype=np.uint8)
            pillow.fromarray(image).save(tmp_path / "photos" / label / f"{i}.png")
    shown = run("train", tmp_path / "photos", "-o", tmp_path / "m", "--epochs", "3").output
    assert "120 images" in shown
    assert "dark: 60 (50 %)" in shown
    picture = tmp_path / "photos" / "light" / "7.png"
    one = json.loads(run("predict", tmp_path / "m", picture, "--json").stdout)
    assert (one["id"], one["label"]) == (str(picture), "light")
    loose = run("predict", tmp_path / "m", tmp_path / "photos" / "dark").stdout
    assert {line.split(",")[1] for line in loose.splitlines()[1:]} == {"dark"}
    piped = run("predict", tmp_path / "m", "-", "--json", given=picture.read_bytes()).stdout
    assert json.loads(piped)["probability"] == one["probability"]
    assert "light/" in run("explain", tmp_path / "m", picture, "-k", "1").output


def test_a_category_that_training_never_had_is_named_or_refused(folder: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(folder / "new.csv").head(3).astype(object)
    frame.loc[1, "work"] = "pilot"
    frame.to_csv(tmp_path / "new.csv", index=False)
    frame.assign(work=frame["work"].replace("pilot", None)).to_csv(tmp_path / "gap.csv", index=False)
    shown = run("predict", folder / "model", tmp_path / "new.csv")
    found = pd.read_csv(io.StringIO(shown.stdout))
    gap = pd.read_csv(io.StringIO(run("predict", folder / "model", tmp_path / "gap.csv").stdout))
    assert found["unknown"].fillna("").tolist() == ["", "work=pilot", ""]
    assert found[["label", "probability", "set"]].equals(gap[["label", "probability", "set"]])
    assert found["typicality"][1] <= gap["typicality"][1]
    assert "work=pilot" in shown.stderr
    assert "--unknown refuse" in shown.stderr
    lines = run("predict", folder / "model", tmp_path / "new.csv", "--unknown", "refuse", "--json", ends=3).stdout
    assert [row["label"] is None for row in map(json.loads, lines.splitlines())] == [False, True, False]
    assert "refuse" in error_line("predict", folder / "model", tmp_path / "new.csv", "--unknown", "drop", ends=2)


# Rows that cannot be read


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_cell_that_does_not_fit_costs_no_other_row_its_answer(folder: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(folder / "new.csv")[["name", "age", "work", "income"]].astype(object)
    bad = frame.copy()
    bad.loc[3, "age"] = "old"
    bad.to_csv(tmp_path / "bad.csv", index=False)
    whole = pd.read_csv(io.StringIO(run("predict", folder / "model", folder / "new.csv").stdout))
    shown = run("predict", folder / "model", tmp_path / "bad.csv", ends=3)
    found = pd.read_csv(io.StringIO(shown.stdout))
    assert found.drop(index=3).equals(whole.drop(index=3).astype({"unreadable": found["unreadable"].dtype}))
    assert named(found["unreadable"][3], "'age'", "numbers", "'old'")
    assert found.drop(columns=["id", "epsilon", "unreadable"]).loc[3].isna().all()
    assert named(shown.stderr, "1 of 40", f"{tmp_path}/bad.csv line 5")
    lines = run("predict", folder / "model", tmp_path / "bad.csv", "--json", ends=3).stdout.splitlines()
    (unread,) = [row for row in map(json.loads, lines) if row["unreadable"]]
    assert (unread["id"], unread["label"], unread["probability"], unread["set"]) == ("p203", None, None, None)
    strict = error_line("predict", folder / "model", tmp_path / "bad.csv", "--strict")
    assert named(strict, f"{tmp_path}/bad.csv line 5", found["unreadable"][3])
    why = run("explain", folder / "model", tmp_path / "bad.csv", "--row", "3", "--row", "4", ends=3)
    assert named(why.stdout, found["unreadable"][3], "decide")
    alone = run("explain", folder / "model", tmp_path / "bad.csv", "--id", "p203", "--json", ends=3)
    assert json.loads(alone.stdout)["unreadable"] == found["unreadable"][3]
    assert "line 5" in error_line("explain", folder / "model", tmp_path / "bad.csv", "--strict")
    measured = json.loads(run("evaluate", folder / "model", tmp_path / "bad.csv", "--json", ends=3).stdout)
    assert (measured["n"], measured["unreadable"]) == (39, 1)
    shown = run("evaluate", folder / "model", tmp_path / "bad.csv", ends=3).stdout
    assert named(shown, "39 rows", 1)
    short = ("--cases", "1", "-k", "2")
    page = run("report", folder / "model", tmp_path / "bad.csv", "-o", tmp_path / "report.html", *short, ends=3)
    assert named(page.stderr, "39 rows")
    assert page.stderr.count("1 of 40") == 1
    card = run("report", folder / "model", tmp_path / "bad.csv", "-o", tmp_path / "card.md", *short, ends=3)
    assert re.search(r"39 rows, [1-9]\d* kB", card.stderr)
    assert named((tmp_path / "report.html").read_text(), "1 of 40", f"{tmp_path}/bad.csv")
    for command in ("evaluate", "report"):
        assert "line 5" in error_line(command, folder / "model", tmp_path / "bad.csv", "--strict")


def test_data_that_is_wrong_throughout_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "words.csv").write_text("name,age,work\np1,old,state\np2,young,self\n")
    line = error_line("predict", folder / "model", tmp_path / "words.csv")
    assert named(line, "words.csv line 2", "'age'", "numbers", "'old'")


def test_blank_texts_and_nested_cells_are_reported_row_by_row(tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": [f"a {word} film {i}" for i in range(60) for word in ("good", "bad")]})
    frame["label"] = ["pos", "neg"] * 60
    frame.to_csv(tmp_path / "films.csv", index=False)
    run("train", tmp_path / "films.csv", "-t", "label", "--text", "text", "-o", tmp_path / "m", "--epochs", "3")
    (tmp_path / "new.csv").write_text("id,text\na,a good film\nb,\nc,a bad film\n")
    table = run("predict", tmp_path / "m", tmp_path / "new.csv", ends=3).stdout
    assert ["empty" in line.split(",")[-1] for line in table.splitlines()[1:]] == [False, True, False]
    lines = '{"text": "a good film"}\n{"text": ["nested"]}\n{"text": null}\n{"text": 7}\n'
    answers = run("predict", tmp_path / "m", "-", "--json", given=lines, ends=3).stdout.splitlines()
    reasons = [json.loads(line)["unreadable"] for line in answers]
    assert (reasons[0], reasons[3]) == (None, None)
    assert named(reasons[1], "list", "['nested']")
    assert named(reasons[2], "empty")


def test_a_damaged_picture_is_reported_with_the_others(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for label, level in (("dark", 20), ("light", 180)):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for i in range(30):
            image = rng.integers(level, level + 50, (8, 8), dtype=np.uint8)
            pillow.fromarray(image).save(tmp_path / "photos" / label / f"{i}.png")
    run("train", tmp_path / "photos", "-o", tmp_path / "m", "--epochs", "2")
    bad = tmp_path / "photos" / "dark" / "3.png"
    bad.write_bytes(bad.read_bytes()[:60])
    shown = run("predict", tmp_path / "m", tmp_path / "photos", "--json", "-e", "0.2", ends=3)
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [row["id"] for row in rows if row["unreadable"]] == ["dark/3.png"]
    assert named(shown.stderr, "1 of 60", bad)


# In a spreadsheet


@pytest.mark.parametrize(
    ("cell", "safe"),
    [("=1+1", "'=1+1"), ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"), ("-2+3", "'-2+3"), ("@SUM(A1)", "'@SUM(A1)"),
     ("\t=1", "'\t=1"), ("\r=1", "'\r=1"), ("\n=1", "'\n=1"), ("＝1+1", "'＝1+1"), ("-3.5", "-3.5"), ("+1e-3", "+1e-3"),
     ("-.5", "-.5"), ("-", "'-"), ("- 5", "'- 5"), ("a=b", "a=b"), ("", ""), (-3.5, -3.5), (None, None), (True, True)],
)  # fmt: skip
def test_a_cell_that_begins_like_a_formula_is_made_a_text(cell: Any, safe: Any) -> None:
    assert harmless_cell(cell) == safe


def test_exports_for_a_spreadsheet_hold_no_formula(folder: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(folder / "new.csv").head(3).assign(name=["=1+1", "-3.5", "@x"])
    frame.to_csv(tmp_path / "new.csv", index=False)
    words = ("predict", folder / "model", tmp_path / "new.csv")
    assert [line.split(",")[0] for line in run(*words).stdout.splitlines()] == ["id", "=1+1", "-3.5", "@x"]
    plain, safe = run(*words).stdout, run(*words, "--spreadsheet-safe").stdout
    assert safe == plain.replace("=1+1", "'=1+1").replace("@x", "'@x")
    run(*words, "--spreadsheet-safe", "-o", tmp_path / "safe.tsv")
    assert (tmp_path / "safe.tsv").read_text().splitlines()[1].startswith("'=1+1\t")
    assert named(error_line(*words, "--spreadsheet-safe", "--json"), "--spreadsheet-safe", "CSV", "TSV")
    content = as_csv(pd.DataFrame({"=head": [["=a", "b"]], "n": [-1.5]}), harmless=True)
    assert content == "'=head,n\n'=a|b,-1.5\n"


# As other programs meet it


def test_every_command_helps_with_an_example() -> None:
    for name in ("train", "predict", "explain", "evaluate", "condense", "report", "explore", "serve", "demo"):
        shown = run(name, "--help").output
        assert "Example" in shown
        assert re.search(rf"(?<!Usage: )dwac\s+{name}\b", shown), name
    assert "dwac train people.csv" in run("--help").output


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["train", "a.csv"], ["--output", "-o", "dwac train --help"]),
        (["predict", "m", "a.csv", "--jsno"], ["--jsno"]),
        (["fly"], ["'fly'", "dwac --help"]),
        (["--fly"], ["--fly"]),
        (["trian"], [GUESS, "dwac --help"]),
        (["explain", "m", "a.csv", "-k", "0"], ["'-k'"]),
        (["train", "a.csv", "-o", "m", "--voters", "few"], ["all", "auto", 1, "'few'"]),
        (["condense", "m", "-o", "s", "--size", "0"], ["'--size'"]),
    ],
)
def test_wrong_usage_is_reported_in_one_line_with_exit_code_2(words: list[str], facts: list[str]) -> None:
    assert named(error_line(*words, ends=2), *facts)


def test_a_command_without_arguments_helps() -> None:
    shown = CliRunner().invoke(app, [])
    assert "Commands" in shown.output
    assert "Commands" not in run("fly", ends=2).output


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is full")
def test_a_full_disk_behind_the_pipe_is_reported_in_one_line(folder: Path) -> None:
    words: list[Path | str] = [DWAC, "predict", folder / "model", folder / "new.csv"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.decode().strip().splitlines()
    assert line.startswith("dwac: ")
    assert named(line, os.strerror(errno.ENOSPC))


def installed(*words: Any, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([DWAC, *map(str, words)], input=given, capture_output=True, check=True, env=environment)


@pytest.mark.slow
def test_the_installed_command_pipes(folder: Path) -> None:
    done = installed("predict", folder / "model", "-", "--json", given=(folder / "new.csv").read_bytes())
    assert done.stderr == b""
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()][:2] == ["p200", "p201"]


@pytest.mark.slow
def test_too_few_calibration_rows_are_noted_in_one_line(tmp_path: Path) -> None:
    people(40).to_csv(tmp_path / "a.csv", index=False)
    words = ("train", tmp_path / "a.csv", "-t", "income", "-o", tmp_path / "m", "--epochs", "1", "--test-size", "8")
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as in a process of its own
        shown = run(*words)
    (note,) = [line for line in shown.stderr.splitlines() if "epsilon" in line]
    assert note.startswith("dwac: note: ")
    assert named(note, "epsilon=0.05", 19)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        shown = run("report", tmp_path / "m", tmp_path / "a.csv", "-o", tmp_path / "report.html")
    assert shown.stderr.count("epsilon=0.05") == 1
