"""`dwac forget`: votes at once, or every trace with --exact, as a person and as a program reads it."""

import json
from pathlib import Path
from typing import Any

import pytest

import dwac
from dwac.estimator.certificate import Certificate
from dwac.reading import load
from tests.cli.helpers import error_line, people, run
from tests.named import named


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with two shards, whose rows have names."""
    folder = tmp_path_factory.mktemp("forget")
    people(240).to_csv(folder / "people.csv", index=False)
    quick = ("--epochs", 2, "--shards", 2, "--device", "cpu")
    shown = run("train", folder / "people.csv", "-t", "income", "--id", "name", "-o", folder / "model", *quick).stdout
    assert named(shown, "2 networks")
    return folder / "model"


def test_forget_removes_votes_and_says_that_the_networks_saw_the_row(model: Path, tmp_path: Path) -> None:
    gone = str(load(model).clf.references_.ids[0])
    shown = run("forget", model, gone, "-o", tmp_path / "less").stdout
    assert named(shown, "networks saw", "smallest", "largest")
    assert gone not in set(load(tmp_path / "less").clf.references_.ids)
    assert gone in set(load(model).clf.references_.ids)


def test_exact_forgetting_writes_a_certificate_that_holds(model: Path, tmp_path: Path) -> None:
    gone = [str(name) for name in load(model).clf.references_.ids[:2]]
    file = tmp_path / "certificate.json"
    found = json.loads(
        run("forget", model, *gone, "-o", tmp_path / "less", "--exact", "--certificate", file, "--json").stdout
    )
    certificate, clf = Certificate.read(file), load(tmp_path / "less").clf
    assert certificate.verify(clf)
    assert clf.deletions_ == [certificate]
    assert all(certificate.covers(name) for name in gone)
    assert found["forgotten"] == 2
    assert found["certificate"] == certificate.to_dict()
    assert named(run("forget", tmp_path / "less", "-o", tmp_path / "same", "--exact").stdout, "2 networks", "none")


def test_forget_says_what_is_wrong(model: Path, tmp_path: Path) -> None:
    to = ("-o", tmp_path / "less")
    assert named(error_line("forget", model, "ann"), "-o FOLDER")
    assert named(error_line("forget", model, "nobody", *to), "'nobody'")
    assert named(error_line("forget", model, *to), "id")
    assert named(error_line("forget", model, "ann", *to, "--certificate", tmp_path / "c.json"), "--exact")
    exact = (*to, "--exact", "--certificate")
    assert named(error_line("forget", model, "ann", *exact, tmp_path / "none" / "c.json"), tmp_path / "none")
    assert named(error_line("forget", model, "ann", *exact, tmp_path), tmp_path, "folder")
    assert not (tmp_path / "less").exists()


def test_a_certificate_may_be_written_into_the_new_folder(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "less" / "certificate.json"
    run("forget", model, "-o", tmp_path / "less", "--exact", "--certificate", file)
    assert Certificate.read(file).verify(load(tmp_path / "less").clf)


def test_forget_says_what_remains(model: Path, tmp_path: Path) -> None:
    """Nothing of a calibration row; and of a model without its rows, that it cannot forget exactly."""
    loaded = load(model)
    held, voter = (str(ids[0]) for ids in (loaded.clf.calibration_ids_, loaded.clf.references_.ids))
    shown = run("forget", model, held, "-o", tmp_path / "less").stdout
    assert named(shown, "no network")
    assert not named(shown, "networks saw")
    loaded.save(tmp_path / "private", include_examples=False)
    shown = run("forget", tmp_path / "private", voter, "-o", tmp_path / "fewer").stdout
    assert named(shown, "networks saw", "all its rows")


@pytest.mark.parametrize(
    "option", [("--cross-fit",), ("--voters", "auto"), ("--ensemble-size", 2), ("--checkpoint", "c")]
)
def test_shards_refuse_other_options_before_rows_are_read(model: Path, tmp_path: Path, option: tuple[object]) -> None:
    asked = ("train", model.parent / "people.csv", "-t", "income", "-o", tmp_path / "new", "--shards", 2)
    assert named(error_line(*asked, *option), "--shards", option[0])


def test_shards_want_ids_that_last(model: Path, tmp_path: Path) -> None:
    asked = ("train", model.parent / "people.csv", "-t", "income", "--shards", 2, "--epochs", 1, "--device", "cpu")
    assert "row numbers" in run(*asked, "-o", tmp_path / "numbered").stderr
    assert "row numbers" not in run(*asked, "--id", "name", "-o", tmp_path / "named").stderr


def test_shards_of_a_private_model_are_refused(model: Path, tmp_path: Path) -> None:
    asked = ("train", model.parent / "people.csv", "-t", "income", "-o", tmp_path / "new", "--shards", 2)
    assert named(error_line(*asked, "--private"), "--private")


def test_silence_takes_votes_away_and_keeps_calibration(model: Path, tmp_path: Path) -> None:
    clf = load(model).clf
    gone = str(clf.references_.ids[0])
    found = json.loads(run("silence", model, gone, "-o", tmp_path / "less", "--json").stdout)
    less = load(tmp_path / "less").clf
    assert gone not in set(less.references_.ids)
    assert less.calibration_ids_.tolist() == clf.calibration_ids_.tolist()
    assert (found["silenced"], found["calibration"]) == (1, len(clf.calibration_ids_))
    assert named(run("silence", model, gone, "-o", tmp_path / "again").stdout, "calibration keeps")
    run("forget", tmp_path / "less", gone, "-o", tmp_path / "deleted")
    deleted: Any = load(tmp_path / "deleted").clf
    assert gone not in set(deleted.fitted_.shards.rows.ids)
    mark = found["fingerprint"]
    assert mark == dwac.fingerprint(tmp_path / "less")
    assert mark in error_line("forget", model, gone, "-o", tmp_path / "none", "--expect", mark)  # that of another
    assert named(error_line("silence", model, gone), "-o FOLDER")
    assert named(error_line("silence", model, "nobody", "-o", tmp_path / "none"), "'nobody'")
    assert not (tmp_path / "none").exists()
