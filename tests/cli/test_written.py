"""Awkward files on the command line: what is said of them, and that every command reads them alike."""

import gzip
import json
import logging
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac import DWACClassifier
from dwac.cli import predict as predicting
from dwac.cli import tasks
from dwac.cli.output import at_work, progress_printed
from dwac.errors import InputError
from dwac.estimator import load as load_estimator
from dwac.estimator.observed import Observed
from dwac.reading import Rows, load
from dwac.training import progress
from tests.cli.helpers import error_line, run
from tests.named import named


def sales(n: int = 160) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    price = np.round(rng.gamma(3, 40, n), 2)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D")
    frame = pd.DataFrame({"price": price, "day": days.strftime("%d/%m/%Y"), "shop": rng.choice(["north", "south"], n)})
    frame = frame.assign(who=[f"c{i}" for i in range(n)], land="DE", gone=None, secret=rng.integers(0, 9, n))
    return frame.assign(bought=np.where(price > 110, "yes", "no"))


def written(frame: pd.DataFrame) -> str:
    return frame.to_csv(sep=";", decimal=",", index=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sales.csv, compressed, with blank labels; new.csv; and model/, with what training said in said.txt."""
    folder = tmp_path_factory.mktemp("sales")
    frame = sales()
    frame.loc[[2, 5], "bought"] = ""
    (folder / "sales.csv.gz").write_bytes(gzip.compress(written(frame).encode()))
    (folder / "new.csv").write_text(written(sales().head(6)))
    words = ("train", folder / "sales.csv.gz", "-t", "bought", "-o", folder / "model", "--epochs", 2)
    said = run(*words, "--unlabelled", "drop", "--ignore", "secret", "--class-weight", "yes=3", "--fast")
    (folder / "said.txt").write_text(said.stdout)
    (folder / "notes.txt").write_text(said.stderr)
    return folder


def test_groups_stay_together_in_every_part_and_are_not_learned_from(tmp_path: Path) -> None:
    frame = sales().assign(who=[f"c{i // 4}" for i in range(160)], secret="x")
    (tmp_path / "sales.csv").write_text(written(frame))
    words = ("train", tmp_path / "sales.csv", "-t", "bought", "-o", tmp_path / "model")
    said = run(*words, "--groups", "who", "--test-size", 0.25, "--epochs", 1, "--fast")
    assert named(said.stdout, "who", "together")
    clf = load(tmp_path / "model").clf
    assert "who" not in clf.feature_names_in_
    parts = [{row // 4 for row in ids} for ids in (clf.references_.ids, clf.validation_ids_, clf.calibration_ids_)]
    assert len(set.union(*parts)) == sum(map(len, parts)) == 30  # of 40, of which ten are held out
    assert "'nobody'" in error_line(*words, "--overwrite", "--groups", "nobody")
    assert "'who'" in error_line(*words, "--overwrite", "--groups", "who", "--ignore", "who")


def test_train_says_why_each_column_is_left_aside(folder: Path) -> None:
    said = (folder / "said.txt").read_text()
    for expected in (
        "numbers     price",
        "dates       day",
        "not used    secret (ignored",
        "            who (different",
        "            land (the same",
        "            gone (",
        "--fast:",
    ):
        assert expected in said
    assert named((folder / "notes.txt").read_text(), "dwac: note: 2 of 160", "target")


def test_no_column_hides_behind_dots(tmp_path: Path) -> None:
    frame = pd.DataFrame({f"column number {i}": np.arange(60) % (i + 2) for i in range(30)})
    frame.assign(y=["a", "b"] * 30).to_csv(tmp_path / "a.csv", index=False)
    said = run("train", tmp_path / "a.csv", "-t", "y", "-o", tmp_path / "m", "--epochs", 1).stdout
    assert "…" not in said
    assert all(f"column number {i}" in " ".join(said.split()) for i in range(30))


def test_weights_and_notation_are_kept_with_the_model(folder: Path) -> None:
    model = load(folder / "model")
    assert isinstance(model.clf, DWACClassifier)
    assert model.clf.class_weight == {"yes": 3.0}
    assert model.clf.references_.class_weights.tolist() == [1.0, 3.0]
    assert (model.notation.numbers, model.notation.dates) == ({"price": ","}, {"day": "day first"})


def test_every_command_reads_a_lone_doubtful_row_as_in_training(folder: Path, tmp_path: Path) -> None:
    row = sales().head(1).assign(day="01/02/2020")
    (tmp_path / "german.csv").write_text(written(row))
    row.assign(day="2020-02-01").to_csv(tmp_path / "plain.csv", index=False)
    row.assign(day="2020-01-02").to_csv(tmp_path / "other.csv", index=False)
    german, plain, other = (
        json.loads(run("predict", folder / "model", tmp_path / f"{name}.csv", "--json").stdout)["probability"]
        for name in ("german", "plain", "other")
    )
    assert german == plain != other
    said = run("predict", folder / "model", tmp_path / "german.csv", "--json", "--month-first").stdout
    assert json.loads(said)["probability"] == other
    out = tmp_path / "scores"
    run("score", folder / "model", tmp_path / "german.csv", "-o", out, "--workers", 1, "--probabilities")
    assert pd.read_parquet(out)["probability"].tolist() == pytest.approx([plain])
    explained = json.loads(run("explain", folder / "model", tmp_path / "german.csv", "--json").stdout)
    assert explained["probability"] == pytest.approx(plain)


@pytest.mark.parametrize("command", ["report", "explore"])
def test_pages_are_of_a_file_read_as_is_said(
    command: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[pd.DataFrame] = []

    def noted(_: Any, X: Any, *__: Any, **___: Any) -> None:
        seen.append(X.rows.X if isinstance(X, Observed) else X)
        raise InputError("enough")

    monkeypatch.setattr("dwac.report.write", noted)
    monkeypatch.setattr("dwac.server.explorer.Explorer.of", noted)
    new = sales().head(2).assign(price="1,500", day="01/02/2020").drop(columns="secret")
    (tmp_path / "new.csv").write_text(new.to_csv(sep="~", index=False))
    words = (command, folder / "model", tmp_path / "new.csv", "--separator", "~", "--decimal", ".", "--month-first")
    assert error_line(*words) == "dwac: enough"
    assert seen[0]["price"].tolist() == [1500, 1500]
    assert seen[0]["day"].tolist() == [pd.Timestamp("2020-01-02")] * 2


def test_other_data_of_a_report_are_read_as_is_said_with_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = pd.DataFrame({"text": ["a good film", "a bad film"] * 30, "label": ["good", "bad"] * 30})
    words.to_csv(tmp_path / "train.csv", index=False)
    run("train", tmp_path / "train.csv", "-t", "label", "-o", tmp_path / "m", "--epochs", "1")
    words.head(8).rename(columns={"text": "review"}).assign(other="unread").to_csv(tmp_path / "new.csv", index=False)
    strange: list[str] = []
    noted: list[Any] = []

    def write(*_: Any, unlike: Observed, **__: Any) -> None:
        strange.extend(unlike.rows.X)
        raise InputError("enough")

    monkeypatch.setattr("dwac.report.write", write)
    monkeypatch.setattr("dwac.cli.rows.print_notes", noted.append)
    run("report", tmp_path / "m", tmp_path / "new.csv", "--text", "review", "--unlike", tmp_path / "new.csv", ends=1)
    assert strange == ["a good film", "a bad film"] * 4
    assert len(noted) == 2


def test_a_column_per_class_is_written_in_the_order_of_the_classes(folder: Path, tmp_path: Path) -> None:
    words = ("predict", folder / "model", folder / "new.csv", "-o", tmp_path / "p.csv", "--probabilities")
    run(*words)
    found = pd.read_csv(tmp_path / "p.csv")
    assert found.columns.tolist()[-4:] == ["probability_no", "probability_yes", "unknown", "unreadable"]
    clf = load_estimator(folder / "model")
    X = sales().head(6)[list(clf.feature_names_in_)].assign(day=lambda f: pd.to_datetime(f["day"], dayfirst=True))
    np.testing.assert_allclose(found[["probability_no", "probability_yes"]], clf.predict_proba(X), atol=1e-6)
    run("score", folder / "model", folder / "new.csv", "-o", tmp_path / "s", "--workers", 1, "--probabilities")
    scored = pd.read_parquet(tmp_path / "s")
    assert [name for name in scored.columns if name != "file"] == found.columns.drop("epsilon").tolist()


def test_rows_are_predicted_alike_at_once_and_in_parts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("predict", folder / "model", folder / "new.csv", "--probabilities", "--json")
    whole = [json.loads(line) for line in run(*words).stdout.splitlines()]
    monkeypatch.setattr(predicting, "AT_ONCE", 4)
    parts = [json.loads(line) for line in run(*words).stdout.splitlines()]
    assert [row["id"] for row in parts] == [row["id"] for row in whole]
    assert [row["set"] for row in parts] == [row["set"] for row in whole]
    np.testing.assert_allclose(
        [row["probability_yes"] for row in parts], [row["probability_yes"] for row in whole], rtol=1e-6
    )


def test_evaluate_leaves_out_rows_without_a_target_on_demand(folder: Path) -> None:
    words = ("evaluate", folder / "model", folder / "sales.csv.gz")
    assert named(error_line(*words), "line 4", "'bought'", "missing", "2 rows")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the rows were used in training
        shown = run(*words, "--unlabelled", "drop", "--json")
    assert json.loads(shown.stdout)["n"] == 158


def test_few_rows_and_a_class_of_one_row_are_warned_of(tmp_path: Path, recwarn: Any) -> None:
    frame = pd.DataFrame({"x": range(10), "y": ["a"] * 6 + ["b"] * 3 + ["c"]})
    frame.to_csv(tmp_path / "ten.csv", index=False)
    said = run("train", tmp_path / "ten.csv", "-t", "y", "-o", tmp_path / "m", "--epochs", 1)
    assert named(said.stderr, "10 rows", "class c", "1 row for validation")


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--kind", "price=money"], ["--kind", "COLUMN=KIND", "numbers", "categories", "dates", "booleans"]),
        (["--kind", "prise=numbers"], ["'prise'", "'price'?"]),
        (["--kind", "shop=numbers"], ["line 2", "'shop'", "numbers", "--kind", "'north'"]),
        (["--ignore", "bought"], ["'bought'", "ignored"]),
        (["--class-weight", "maybe=2"], ["'maybe'", "'no'", "'yes'"]),
        (["--class-weight", "yes=much"], ["balanced", "LABEL=N", "'yes=much'"]),
        (["--class-weight", "yes"], ["balanced", "LABEL=N", "'yes'"]),
        (["--separator", "ab"], ["separator", "one"]),
        (["--decimal", ";"], ["decimal", "point", "comma"]),
        (["--sheet", "A"], ["--sheet", "Excel"]),
        (["--task", "labels", "--class-weight", "balanced"], ["--class-weight", "one label"]),
    ],
)
def test_train_says_what_is_wrong_with_its_options(tmp_path: Path, words: list[str], facts: list[str]) -> None:
    (tmp_path / "a.csv").write_text(written(sales(30)))
    line = error_line("train", tmp_path / "a.csv", "-t", "bought", "-o", tmp_path / "m", *words)
    assert named(line, *facts)


def test_options_of_whole_files_are_refused_for_batches(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    sales(40).to_parquet(tmp_path / "rows" / "a.parquet")
    words = ("train", tmp_path / "rows", "-t", "bought", "-o", tmp_path / "m")
    for option in (("--decimal", ","), ("--month-first",), ("--unlabelled", "drop")):
        assert named(error_line(*words, *option), option[0], "batches")
    said = run(*words, "--ignore", "secret", "--epochs", 1).stdout
    assert "not used    secret (ignored" in said
    assert "secret" not in load(tmp_path / "m").clf.feature_names_in_


def test_fast_is_one_network_and_few_epochs_where_that_saves_time() -> None:
    small = Rows(pd.DataFrame({"x": [1]}), None, [0], "tabular")
    assert tasks.fast_settings(small, 3_999, "tabular") == {}
    assert tasks.fast_settings(small, 4_000, "tabular") == {"ensemble_size": 1, "epochs": 10}
    texts = tasks.fast_settings(Rows(["a"], None, [0], "text"), 10, "text")
    assert texts["ensemble_size"] == 1
    assert "one network" in tasks.describe_fast(texts)
    assert "3 networks, one epoch" in tasks.describe_fast(texts | {"ensemble_size": 3, "epochs": 1})
    assert "changes nothing" in tasks.describe_fast({})


def test_work_of_unknown_length_says_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    said, lines, before = threading.Event(), [], threading.active_count()

    class Errors:
        def write(self, line: str) -> None:
            lines.append(line)
            said.set()

        def flush(self) -> None: ...

    monkeypatch.setattr(progress, "EVERY", 0.001)
    monkeypatch.setattr("dwac.cli.output.time", SimpleNamespace(perf_counter=lambda: 0.0))
    monkeypatch.setattr("sys.stderr", Errors())
    with at_work("condensing 20 voters"):
        assert said.wait(600)
    assert lines[0].startswith("condensing 20 voters: ")
    assert named(lines[0], "1 second", "Ctrl-C")
    assert threading.active_count() == before


def test_progress_is_printed_with_what_one_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    before = progress.logger.level
    with progress_printed("a remedy"):
        progress.logger.info("an estimate", extra={"estimate": True})
        progress.logger.info("training: 50 %")
    progress.logger.warning("unseen here")
    assert capsys.readouterr().err.splitlines()[:2] == [
        "an estimate; a remedy",
        "training: 50 %",
    ]
    assert (progress.logger.level, progress.logger.propagate) == (before, True)
    assert not [each for each in progress.logger.handlers if each.level == logging.INFO]
