"""The paper's experiments, end to end on small made-up data of each kind; nothing here needs a real file."""

import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from typer.testing import CliRunner

import dwac
from dwac import metrics
from dwac.encoders import TabularEncoder
from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.settings import parameters
from dwac.nn import Ensemble, SoftmaxTwin
from reproduction import (
    accuracy,
    agreement,
    datasets,
    domain,
    explanations,
    figures,
    fit,
    knn,
    peers,
    post_hoc,
    published,
    records,
    runner,
    sets,
    settings,
)
from reproduction.app import app
from reproduction.cases import Case, PaperError
from reproduction.catalogue import EXPERIMENTS, wanted_by
from reproduction.records import FIELDS, Records, default_folder
from reproduction.report import busy, commits, write_report
from reproduction.rows import Library
from reproduction.tables import NOT_HELD, NOT_RUN, STALE, Found, verdict
from reproduction.tuning import Journal, hill_climb
from reproduction.twin import Twin
from tests.named import named, refuses

WORDS = ["red", "green", "blue", "fast", "slow", "old", "new", "good", "bad", "long"]
HELD = ("lending_club", "amazon_beauty")  # nobody has these


def made_up(name: str, **options: Any) -> datasets.Dataset:
    """A dataset of the right kind, with as many classes and the same parts as the real one."""
    if name in HELD:
        raise datasets.DatasetError(f"{name}.csv is not here; `python -m reproduction data get {name}` fetches it")
    source = settings.DATASETS.get(name, settings.Source(name, "image", 10, official=True))
    rng = np.random.default_rng(len(name))
    y = rng.permutation(np.arange(24 * source.n_classes) % source.n_classes)
    X = examples(source.kind, y, rng, colour=name.startswith("cifar"))
    classes = np.array([f"class {k}" for k in range(source.n_classes)])
    data = datasets.Dataset(name, X, y, None, None, classes, "made up", "nowhere")
    return data.split(0.3) if source.official else data


def examples(kind: str, y: Any, rng: np.random.Generator, *, colour: bool) -> Any:
    if kind == "table":
        jobs = np.array(["nurse", "clerk", "cook"])[rng.integers(3, size=len(y))]
        return pd.DataFrame({"x": y + rng.normal(size=len(y)), "z": rng.normal(size=len(y)), "job": jobs})
    if kind == "text":
        return [f"{WORDS[k % 10]} {WORDS[k // 10]} {WORDS[rng.integers(10)]} thing" for k in y]
    images = rng.integers(0, 100, size=(len(y), 16, 16, *((3,) if colour else ()))).astype(np.uint8)
    images[np.arange(len(y)), y] += 150
    return images


def other_trees(X: Any, y: Any, seed: int, values: dict[str, Any], journal: Any = None) -> peers.Peer:
    """In place of XGBoost, which few have: the frequencies of the classes."""
    votes = np.log(np.bincount(y) / len(y))
    return peers.Peer(lambda X: np.full(len(X), votes.argmax()), lambda X: np.tile(votes, (len(X), 1)), {"seed": seed})


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pytest.MonkeyPatch]:
    vectors = tmp_path_factory.mktemp("glove") / "glove.txt"
    numbers = np.random.default_rng(0).normal(size=(len(WORDS), 10)).round(3).tolist()
    lines = [f"{word} {' '.join(map(str, row))}\n" for word, row in zip(WORDS, numbers, strict=True)]
    vectors.write_text("".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "load", made_up)
        patch.setattr(datasets, "glove", lambda size=100: vectors)
        for name in settings.PEERS["table"]:
            patch.setitem(peers.FITTERS, name, other_trees)
        patch.setattr(peers, "why_missing", lambda peer: None)
        patch.setitem(settings.QUICK_ROWS, "image", (24, 12))  # the images of the paper take most of the time
        patch.setattr(settings, "QUICK_SAMPLE", 12)
        patch.setitem(settings.QUICK, "table", {"epochs": 1, "ensemble_size": 2})
        for name, small in (("covertype", {"width": 64}), ("fashion_mnist", {"width": 8}), ("cifar10", {"width": 8})):
            values = settings.BEST[name]
            patch.setitem(settings.BEST, name, values | {"encoder": values["encoder"] | small})
        values = settings.PAPER["cifar10"]  # a ResNet-18 takes as long as all the others
        patch.setitem(settings.PAPER, "cifar10", values | {"encoder": values["encoder"] | {"network": "paper"}})
        yield patch


@pytest.fixture(scope="module")
def quick(patched: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> tuple[runner.Outcome, Path]:
    """A whole quick run, and the folder of its records."""
    folder = tmp_path_factory.mktemp("paper")
    return runner.run(quick=True, device="cpu", records=folder), folder


@pytest.fixture(scope="module")
def report(quick: tuple[runner.Outcome, Path]) -> str:
    folder = quick[1]
    return write_report(folder, folder / "paper.md").read_text()


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take most of the time of a report. Those of `report` are drawn: it is made before this."""
    monkeypatch.setattr(figures, "save", lambda figure, path: None)


# A whole run


@pytest.mark.slow
def test_every_experiment_leaves_records_and_a_section_with_its_figures(quick: Any, report: str) -> None:
    records = list(Records(quick[1]))
    assert {name for record in records for name in record["metrics"]} == set(EXPERIMENTS)
    for experiment in EXPERIMENTS.values():
        assert f"## {experiment.TITLE}" in report
    pictures = re.findall(r"!\[[^]]+\]\((\S+\.png)\)", report)
    assert len(pictures) == len(set(pictures)) == 10
    for picture in pictures:
        assert (quick[1] / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_each_record_holds_what_every_experiment_wants_and_its_circumstances(quick: Any) -> None:
    for record in Records(quick[1]):
        case = Case(**record["case"])
        assert list(record["metrics"]) == wanted_by(case)
        assert {"settings", "seed", "versions", "device", "rows", "seconds", "epochs", "accuracy"} <= set(record)
        assert record["quick"] is True
        assert 0 <= record["accuracy"] <= 1


@pytest.mark.slow
def test_a_second_run_fits_and_loads_nothing(quick: Any, patched: pytest.MonkeyPatch) -> None:
    outcome, folder = quick
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "DWACClassifier", None)
        again = runner.run(quick=True, device="cpu", records=folder)
    assert (again.fitted, again.kept) == ([], len(outcome.fitted))


@pytest.mark.slow
def test_missing_datasets_are_not_run_and_say_so(quick: Any, report: str) -> None:
    outcome = quick[0]
    assert set(outcome.missing) == set(HELD)
    assert "python -m reproduction data get lending_club" in outcome.missing["lending_club"]
    assert not outcome.failed  # nobody asked for them by name
    lines = report.splitlines()
    row = next(line for line in lines if line.startswith("| Lending Club | 0.956 / 0.955 |"))
    assert row.count(NOT_RUN) == 6
    assert any(named(line, "**Amazon Beauty**", NOT_RUN) for line in lines)
    assert any(line.startswith("- ") and named(line, "Lending Club", "Amazon Beauty") for line in lines)


@pytest.mark.slow
def test_the_report_says_that_a_run_was_quick(report: str) -> None:
    assert named(report.split("##")[0], "quick run")


def numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from numbers_in(part)
    elif isinstance(value, float | int):
        yield value


@pytest.mark.slow
def test_every_mean_over_trials_in_the_report_is_in_the_records(quick: Any, report: str) -> None:
    # With one trial a mean is the number itself.
    known = {f"{number:.4f}" for record in Records(quick[1]) for number in numbers_in(record["metrics"])}
    shown = re.findall(r"(-?\d+\.\d{4}) \(1\)", report)
    assert len(shown) > 60
    assert set(shown) <= known


@pytest.mark.slow
def test_published_numbers_stand_in_the_report(report: str) -> None:
    for cells in (published.ACCURACY, published.CALIBRATION):
        for cell in cells.values():
            assert f"{cell['softmax']:.3f} / {cell['dwac']:.3f}" in report


def test_a_report_on_nothing_has_every_row_not_run(tmp_path: Path) -> None:
    text = write_report(tmp_path / "none", tmp_path / "paper.md").read_text()
    assert named(text.split("##")[0], "No records", NOT_RUN)
    assert "**met**" not in text
    assert "**missed**" not in text
    assert not (tmp_path / "none").exists()


# Resuming


def test_an_interrupted_run_resumes_where_it_stopped(patched: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stop(case: Case, record: dict[str, Any], done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    asked: dict[str, Any] = {"datasets": ["adult"], "quick": True, "device": "cpu", "records": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        runner.run(["dimension"], **asked, on_done=stop)
    first = {path.name: path.read_bytes() for path in tmp_path.glob("*/*.json")}
    assert len(first) == 2
    outcome = runner.run(["dimension"], **asked)
    assert (outcome.kept, len(outcome.fitted)) == (2, 2)
    for name, data in first.items():
        assert (tmp_path / "adult" / name).read_bytes() == data


def test_half_a_training_is_no_record(patched: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Interrupted(DWACClassifier):
        def fit(self, *args: Any, **options: Any) -> Any:
            super().fit(*args, **options)
            self.history_.attrs["ended"] = "interrupted"
            return self

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "DWACClassifier", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            runner.run(["dimension"], datasets=["adult"], quick=True, device="cpu", records=tmp_path)
    assert not list(tmp_path.rglob("*.json"))


def test_a_record_of_other_settings_is_repeated_and_named_in_the_report(
    patched: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {"datasets": ["adult"], "heads": ["dwac"], "settings": ["best"], "quick": True}
    asked |= {"device": "cpu", "records": tmp_path}
    assert runner.run(["accuracy"], **asked).fitted == ["adult-best-dwac-0"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(settings.BEST, "adult", settings.BEST["adult"] | {"batch_size": 32})
        text = write_report(tmp_path, tmp_path / "paper.md").read_text().split("##")[0]
        assert named(text, "1 records", "settings", "adult-best-dwac-0")
        assert runner.run(["accuracy"], **asked).fitted == ["adult-best-dwac-0"]
        assert runner.run(["accuracy"], **asked).fitted == []


@pytest.mark.slow
def test_a_record_of_another_recipe_is_repeated(patched: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Keener(TabularEncoder):
        def fit(self, X: Any, y: Any = None) -> Any:
            super().fit(X, y)
            self.recipe = replace(self.recipe, learning_rate=0.01, auxiliary_weight=0.5)
            return self

    asked: dict[str, Any] = {"datasets": ["adult"], "quick": True, "device": "cpu", "records": tmp_path}
    best = asked | {"settings": ["best"], "heads": ["dwac", "softmax"]}
    runner.run(["accuracy"], **best)
    runner.run(["accuracy"], **asked, settings=["paper"], heads=["dwac"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fit.ENCODERS, "tabular", Keener)
        fit.recipe_of.cache_clear()
        stale = [Case(**record["case"]).key for record in Records(tmp_path) if not fit.current(record)]
        assert stale == ["adult-best-dwac-0", "adult-best-softmax-0"]  # the paper's settings leave nothing to a recipe
        assert runner.run(["accuracy"], **best).fitted == stale
        assert runner.run(["accuracy"], **best).fitted == []
    fit.recipe_of.cache_clear()


@pytest.mark.slow
def test_a_stale_record_is_marked_next_to_its_number(quick: Any, report: str, tmp_path: Path) -> None:
    assert "stale" not in report
    assert STALE not in report
    kept = Records(tmp_path)
    for record in Records(quick[1]):
        if Case(**record["case"]).plain and record["case"]["dataset"] == "adult":
            old = record["case"]["setting"] == "best" and record["case"]["head"] == "dwac"
            kept.write(Case(**record["case"]), {**record, "code": "of yesterday"} if old else record)
    text = write_report(tmp_path, tmp_path / "paper.md").read_text()
    assert named(text, "1 of", "**stale**", "python -m reproduction run --stale")
    row = next(line for line in text.splitlines() if line.startswith("| Adult | 0.851 / 0.850"))
    marked = [STALE in cell for cell in row.split("|")[3:-1]]  # four models, the peer, the target, the verdict
    assert marked == [False, False, False, True, False, False, True]


def test_the_report_says_which_commit_made_how_many_records() -> None:
    first, second, peer = ({"commit": commit} for commit in ("a" * 40, "b" * 40, None))
    assert named(commits([{}, {}]), "no commit")
    assert named(commits([first, first]), f"commit {'a' * 40}")
    mixed = commits([first, second, first, peer])
    assert re.findall(r"(\w+) \((\d)\)", mixed) == [("a" * 40, "2"), ("b" * 40, "1"), ("named", "1")]


@pytest.mark.slow
def test_a_record_names_its_commit_and_its_device(quick: Any, report: str) -> None:
    made = {record["commit"] for record in Records(quick[1])}
    assert made == {records.commit()}
    assert named(report, f"commit {records.commit()}" if records.commit() else "no commit")
    assert named(report.split("##")[0], "CPU")


def test_the_commit_is_that_of_the_checkout_or_the_given_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(given: str = "") -> str | None:
        monkeypatch.setenv("DWAC_COMMIT", given)
        return records.commit.__wrapped__()

    assert commit("0123abc") == "0123abc"
    with refuses(PaperError, "DWAC_COMMIT", 7, 40, "main"):
        commit("main")
    module = tmp_path / "reproduction" / "records.py"
    module.parent.mkdir(parents=True)
    module.touch()
    monkeypatch.setattr(records, "__file__", str(module))
    assert commit() is None
    if shutil.which("git") is None:
        pytest.skip("needs git")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "All"]):
        subprocess.run([*git, *words], check=True)
    head = commit()
    assert head is not None
    assert len(head) == 40
    module.write_text("# changed")
    assert commit() == f"{head}-dirty"


@pytest.mark.slow
def test_only_stale_records_are_repeated(quick: Any, patched: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = Records(tmp_path)
    cases = [Case("adult", "paper", head, embedding_size=2) for head in settings.HEADS]
    for case, code in zip(cases, ("of yesterday", records.code()), strict=True):
        record = Records(quick[1]).read(case)
        assert record is not None
        kept.write(case, {**record, "code": code})
    asked = ["run", "--stale", "--datasets", "adult", "--quick", "--device", "cpu", "--records", str(tmp_path)]
    shown = CliRunner().invoke(app, asked, env={"COLUMNS": "120"})
    assert shown.exit_code == 0, shown.output
    assert "1 of 1  adult-paper-dwac-h2-0" in shown.output
    made = kept.read(cases[0])
    assert made is not None
    assert made["code"] == records.code()
    assert [Case(**record["case"]) for record in kept] == cases  # what has no record still has none
    assert "0 fits recorded" in CliRunner().invoke(app, asked, env={"COLUMNS": "120"}).output


def test_the_stamp_covers_every_source_that_can_change_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (dwac, records):
        assert module.__file__ is not None
        package = Path(module.__file__).parent
        copied = tmp_path / package.name
        shutil.copytree(package, copied, ignore=shutil.ignore_patterns("__pycache__", "static"))
        monkeypatch.setattr(module, "__file__", str(copied / Path(module.__file__).name))

    def path(name: str) -> Path:
        return tmp_path / name if name.startswith("reproduction/") else tmp_path / "dwac" / name

    def changed(name: str, line: str = "changed = 1", *, peer: bool = False) -> bool:
        before = records.code(peer=peer)
        file = path(name)
        text = file.read_text()
        file.write_text(f"{line}\n{text}")
        after = records.code.__wrapped__(peer=peer)
        file.write_text(text)
        return bool(before != after)

    records.code.cache_clear()

    matters = {
        "estimator/classifier.py",
        "conformal/classes.py",
        "metrics.py",
        "engine/exact.py",
        "encoders/text.py",
        "reproduction/datasets/adult.py",
    }
    matters |= {
        "reproduction/fit.py",
        "reproduction/peers.py",
        "reproduction/tuning.py",
        "reproduction/rows.py",
        "reproduction/sets.py",
        "explain/classes.py",
    }
    tells = {"cli/app.py", "report/card.py", "server/app.py"}
    tells |= {f"reproduction/{name}.py" for name in ("commands/run", "report", "published")}
    tells |= {"reproduction/settings.py"}  # compared by value
    tells |= {"__init__.py", "worth/__init__.py", "monitoring/__init__.py", "drawing/style.py"}
    assert {name for name in matters | tells if changed(name)} == matters
    of_peers = {"metrics.py", "reproduction/datasets/adult.py"}
    of_peers |= {f"reproduction/{name}.py" for name in ("fit", "peers", "tuning", "rows")}
    assert {name for name in matters | tells if changed(name, peer=True)} == of_peers
    assert not changed("metrics.py", "# a comment")
    assert all(path(part).exists() for part in (*records.APART, *records.OF_PEERS))
    for name in ("accuracy", "agreement", "dimension", "domain", "explanations", "maps", "sets", "tried"):
        text = (tmp_path / "reproduction" / f"{name}.py").read_text()
        measured, reported = text.split(records.REPORT_BELOW)
        assert "\ndef measure(" in measured
        assert "\ndef report(" in reported
    records.code.cache_clear()


@pytest.mark.slow
def test_no_function_that_a_fit_runs_is_apart_from_the_stamp(patched: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called: set[str] = set()

    def note(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # not the body of a class
            called.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        runner.run(datasets=["adult", "stackoverflow"], trials=1, quick=True, device="cpu", records=tmp_path)
    finally:
        sys.setprofile(None)
    package, own = (Path(module.__file__ or "").parent for module in (dwac, records))
    ran = {
        Path(name).relative_to(place).as_posix()
        for name in called
        for root, place in ((package, package), (own, own.parent))
        if Path(name).is_relative_to(root)
    }
    assert {"estimator/classifier.py", "reproduction/accuracy.py"} <= ran
    compared = {
        f"reproduction/{name}.py" for name in ("published", "settings", "sources", "variants")
    }  # or they report
    assert {name for name in ran if records._within(name, records.APART)} - compared <= {"__init__.py"}


@pytest.mark.slow
def test_quick_and_full_records_never_mix(quick: Any, patched: pytest.MonkeyPatch) -> None:
    with refuses(PaperError, "quick", "full"):
        runner.run(["accuracy"], records=quick[1])
    assert default_folder(quick=True) != default_folder()


def test_time_that_fits_shared_is_counted_once() -> None:
    ends = ["2026-01-01T00:01:40+00:00", "2026-01-01T00:02:10+00:00", "2026-01-01T00:05:00+00:00"]
    taken = [{"fit": 90.0, "measure": 10.0}, {"fit": 80.0}, {"fit": 20.0}]
    made = [{"date": end, "seconds": seconds} for end, seconds in zip(ends, taken, strict=True)]
    assert busy(made) == busy(made[::-1]) == 150.0


@pytest.mark.slow
def test_a_report_on_quick_and_full_records_is_refused(quick: Any, tmp_path: Path) -> None:
    copied = list(Records(quick[1]))[:2]
    for record, kind in zip(copied, (True, False), strict=True):
        Records(tmp_path).write(Case(**record["case"]), record | {"quick": kind})
    with refuses(PaperError, "quick", "full"):
        write_report(tmp_path, tmp_path / "paper.md")
    for kind in (True, False):
        with refuses(PaperError):
            Records(tmp_path).require(quick=kind)


# Names


@pytest.mark.parametrize(
    ("wrong", "facts"),
    [
        ({"experiments": ["acuracy"]}, ["experiment 'acuracy'", *EXPERIMENTS]),
        ({"datasets": ["adlt"]}, ["dataset 'adlt'", "adult", "covertype"]),
        ({"settings": ["ours"]}, ["setting 'ours'", "paper", "best"]),
        ({"heads": ["linear"]}, ["head 'linear'", "dwac", "softmax", "xgboost", "lightgbm", "catboost", "svm"]),
    ],
)
def test_an_unknown_name_is_met_with_the_known_ones(wrong: Any, facts: list[str], tmp_path: Path) -> None:
    with refuses(PaperError, *facts):
        runner.run(**wrong, records=tmp_path)


def test_keys_are_readable_and_distinct() -> None:
    cases = runner.select()
    assert len({case.key for case in cases}) == len(cases)
    assert Case("adult", "paper", "dwac", embedding_size=2).key == "adult-paper-dwac-h2-0"
    assert Case("covertype", "paper", "softmax", without=6).key == "covertype-without7-paper-softmax-0"
    keys = {case.key for case in cases}
    assert {"covertype-best-xgboost-2", "imdb-best-svm-0", "covertype-without7-best-dwac-2"} <= keys
    assert not {"cifar10-paper-dwac-3", "adult-paper-xgboost-0", "fashion_mnist-best-svm-0"} & keys


@pytest.mark.parametrize("name", settings.DATASETS)
def test_frozen_settings_are_settings_of_the_estimator(name: str, patched: pytest.MonkeyPatch) -> None:
    for setting in settings.SETTINGS:
        values = settings.estimator_settings(name, setting)
        encoder = fit.build_encoder(values["encoder"], Library())
        DWACClassifier(**parameters(values | {"encoder": encoder})).check_settings()
        json.dumps(values)


# What could not run


def test_a_dataset_asked_for_by_name_must_be_there(patched: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = ["dimension", "--datasets", "adult", "--quick", "--device", "cpu", "--records", str(tmp_path)]
    assert CliRunner().invoke(app, ["run", *asked]).exit_code == 0
    shown = CliRunner().invoke(app, ["run", "accuracy", "--datasets", "lending-club", *asked[3:]])
    assert shown.exit_code == 1
    assert "python -m reproduction data get lending_club" in shown.output


def test_without_out_of_distribution_data_the_other_experiments_still_run(
    patched: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_digits(name: str) -> datasets.Dataset:
        if name == "mnist":
            raise datasets.DatasetError("train-images is cut; `python -m reproduction data get mnist` fetches it again")
        return made_up(name)

    asked: dict[str, Any] = {"datasets": ["fashion_mnist"], "heads": ["dwac"], "settings": ["paper"], "quick": True}
    asked |= {"device": "cpu", "records": tmp_path}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "load", no_digits)
        outcome = runner.run(["accuracy", "domain"], **asked)
        assert outcome.failed
        assert "python -m reproduction data get mnist" in outcome.missing["domain of fashion_mnist"]
        assert outcome.fitted == ["fashion_mnist-paper-dwac-0"]
        assert runner.run(["accuracy", "domain"], **asked).fitted == []  # still no digits: nothing to gain
    assert runner.run(["accuracy", "domain"], **asked).fitted == ["fashion_mnist-paper-dwac-0"]


def test_without_vectors_the_peers_of_texts_still_run(patched: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_vectors(size: int = 100) -> Path:
        raise datasets.DatasetError("glove.6B.zip is not here; `python -m reproduction data get glove` fetches it")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "glove", no_vectors)
        outcome = runner.run(["accuracy"], datasets=["subjectivity", "imdb"], quick=True, records=tmp_path)
    assert outcome.fitted == ["subjectivity-best-svm-0", "imdb-best-svm-0"]
    assert list(outcome.missing) == ["models with glove 100d"]  # reported once
    assert outcome.failed


def test_without_xgboost_the_others_run(patched: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peers, "why_missing", lambda peer: "install dwac[bench]" if peer == "xgboost" else None)
        outcome = runner.run(["accuracy"], datasets=["adult"], settings=["best"], quick=True, records=tmp_path)
    assert outcome.missing == {"xgboost": "install dwac[bench]"}
    assert outcome.fitted == [f"adult-best-{head}-0" for head in ("dwac", "softmax", "lightgbm", "catboost")]


# Rows


def test_all_models_of_a_trial_have_the_same_rows_and_trials_differ(patched: pytest.MonkeyPatch) -> None:
    library = Library()
    trials = [library.trial(Case("covertype", "paper", "dwac", 0)), library.trial(Case("covertype", "best", "svm", 0))]
    assert trials[0] is trials[1]
    other = library.trial(Case("covertype", "paper", "dwac", 1))
    assert len(other.y_test) == len(trials[0].y_test) == round(0.1 * 24 * 7)
    assert not other.X_test["x"].equals(trials[0].X_test["x"])


def test_vectors_can_be_cut_short(patched: pytest.MonkeyPatch) -> None:
    library = Library()
    whole, cut = (library.vectors(name).read_text().splitlines() for name in ("glove 100d", "glove 100d, 3 kept"))
    assert [line.split()[:4] for line in whole] == [line.split(" ") for line in cut]
    with refuses(PaperError, "glove 100d, 50 kept", "fasttext"):
        library.vectors("fasttext")


def test_official_test_rows_are_the_same_in_all_trials(patched: pytest.MonkeyPatch) -> None:
    library = Library()
    assert library.trial(Case("adult", "paper", "dwac", 0)) is library.trial(Case("adult", "paper", "dwac", 3))


def test_a_class_left_out_is_neither_learned_nor_tested(patched: pytest.MonkeyPatch) -> None:
    whole, part = (Library().trial(Case("covertype", "paper", "dwac", without=left)) for left in (None, 2))
    assert set(part.y) == set(part.y_test) == set(range(6))
    assert part.classes == [name for name in whole.classes if name != "class 2"]
    assert len(part.left_out) == 24
    assert len(part.y) + len(part.y_test) + 24 == len(whole.y) + len(whole.y_test)
    kept = whole.X_test["x"][whole.y_test != 2].to_numpy()
    np.testing.assert_array_equal(part.X_test["x"], kept)
    np.testing.assert_array_equal(np.delete(np.arange(7), 2)[part.y_test], whole.y_test[whole.y_test != 2])


# Measures, against plain loops


@pytest.fixture(scope="module")
def fitted(patched: pytest.MonkeyPatch) -> dict[str, fit.Fitted]:
    """Both heads on tables without a class."""
    library = Library(quick=True)
    return {head: fit.fit(Case("covertype", "paper", head, without=6), library, device="cpu")[0]
            for head in settings.HEADS}  # fmt: skip


def test_votes_from_embeddings_are_the_estimators(fitted: dict[str, fit.Fitted]) -> None:
    for one in fitted.values():
        network = one.network
        of_estimator = network.logits if isinstance(network, Twin) else network.log_class_weights
        np.testing.assert_allclose(one.votes, of_estimator(one.trial.X_test), rtol=1e-5, atol=1e-5)
        p = network.conformal(one.trial.X_test).p_values
        np.testing.assert_array_equal(one.p_values(one.kinds[0], one.votes), p)


def test_agreement_is_that_of_a_plain_loop(fitted: dict[str, fit.Fitted]) -> None:
    one = fitted["dwac"]
    found = agreement.measure(one)
    refs = one.clf.references_
    h, y = refs.embeddings.double().numpy(), refs.labels.numpy()
    chosen = one.library.sample(np.arange(len(one.trial.y_test)), agreement.MOST, 0)
    for k, share in found["share"].items():
        agreed = 0
        for query, label in zip(one.test_h[chosen].astype(np.float64), one.labels[chosen], strict=True):
            squared = ((h - query) ** 2).sum(axis=1)
            near = np.argsort(squared, kind="stable")[:k]
            log_w = refs.voters.log_weights_at(torch.tensor(squared[near])).numpy()
            votes = np.bincount(y[near], np.exp(log_w - log_w.max()), minlength=6)
            agreed += int(votes.argmax() == label)
        assert share == pytest.approx(agreed / len(chosen), abs=1.5 / len(chosen))


def auroc(inside: Any, outside: Any) -> float:
    pairs = [(a > b) + 0.5 * (a == b) for a in inside for b in outside]
    return float(np.mean(pairs))


def test_auroc_of_every_distance_is_that_of_a_plain_loop(fitted: dict[str, fit.Fitted]) -> None:
    for one in fitted.values():
        scores = domain.measure(one)["scores"]
        h, y = (part.cpu().double().numpy() for part in one.training_h())
        inside = one.test_h[domain.inside_rows(one)]
        outside = one.embed(domain.out_of_distribution(one))
        k = min(domain.K, len(h)) - 1
        near = [[-np.sort(((h - q) ** 2).sum(axis=1))[k] for q in part] for part in (inside, outside)]
        assert scores["nearest_neighbour"]["auroc"] == pytest.approx(auroc(*near), abs=2e-3)
        means = np.array([h[y == c].mean(axis=0) for c in range(6)])
        centred = h - means[y.astype(int)]
        inverse = np.linalg.inv(centred.T @ centred / len(h))
        far = [[-min((q - m) @ inverse @ (q - m) for m in means) for q in part] for part in (inside, outside)]
        assert scores["mahalanobis"]["auroc"] == pytest.approx(auroc(*far), abs=5e-3)
        if one.case.head == "dwac":
            votes = [one.votes_of(part).max(axis=1) for part in (inside, outside)]
            assert scores["class_weight"]["auroc"] == pytest.approx(auroc(*votes))


def test_post_hoc_scores_are_those_of_their_definitions(fitted: dict[str, fit.Fitted]) -> None:
    model = fitted["softmax"].network.model_
    for twin in (model, SoftmaxTwin(Ensemble([torch.nn.Linear(4, 6) for _ in range(2)]), 3, n_features=6)):
        assert isinstance(twin, SoftmaxTwin)
        weight, bias = post_hoc.last_layer(twin, twin.logits)
        f = torch.randn(40, weight.shape[1], generator=torch.Generator().manual_seed(0))
        scorer = post_hoc.PostHoc(f[:30], weight, bias)
        logits = twin.logits(post_hoc.embeddings(twin, f)).detach().double().numpy()
        np.testing.assert_allclose(scorer.logits(f).detach().numpy(), logits, atol=1e-5)
        found, energy = scorer.scores(f[30:]), np.log(np.exp(logits).sum(axis=1))
        F, W, b = (part.detach().double().numpy() for part in (f, weight, bias))
        unit = F / np.linalg.norm(F, axis=1, keepdims=True)
        origin = -np.linalg.pinv(W) @ b
        values, vectors = np.linalg.eigh((F[:30] - origin).T @ (F[:30] - origin))
        rest = np.linalg.norm((F - origin) @ vectors[:, np.argsort(-values)[F.shape[1] // 2 :]], axis=1)
        alpha = logits[:30].max(axis=1).mean() / rest[:30].mean()
        for i, q in enumerate(range(30, 40)):
            top = logits[q].argmax()
            others = [k for k in range(len(b)) if k != top]
            gaps = [(logits[q, top] - logits[q, k]) / np.linalg.norm(W[top] - W[k]) for k in others]
            expected = {
                "msp": logits[q, top] - energy[q],
                "energy": energy[q],
                "knn": -max(((unit[:30] - unit[q]) ** 2).sum(axis=1)),  # fewer than 50: the farthest
                "vim": energy[q] - alpha * rest[q],
                "fdbd": np.mean(gaps) / np.linalg.norm(F[q] - F[:30].mean(axis=0)),
                "nnguide": energy[q] * np.sort(unit[:30] @ unit[q] * energy[:30])[-10:].mean(),
            }
            for name, value in expected.items():
                assert found[name][i] == pytest.approx(value, rel=1e-3, abs=1e-4), name


def test_neighbours_by_the_same_embeddings_are_those_of_scikit_learn(fitted: dict[str, fit.Fitted]) -> None:
    one = fitted["dwac"]
    found, refs = knn.measure(one), one.clf.references_
    held = np.asarray(one.clf.validation_ids_)
    h_held, y_held = one.embed(one.trial.X.iloc[held]), one.trial.y[held]
    ks = [k for k in knn.KS if k <= len(refs)]
    models = [KNeighborsClassifier(k).fit(refs.embeddings.numpy(), refs.labels.numpy()) for k in ks]
    scores = [model.score(h_held, y_held) for model in models]
    assert found["k_accuracy"] == ks[int(np.argmax(scores))]
    assert found["accuracy"] == models[int(np.argmax(scores))].score(one.test_h, one.trial.y_test)
    p = models[ks.index(found["k_log_loss"])].predict_proba(one.test_h)
    smooth = (p * found["k_log_loss"] + 1 / 6) / (found["k_log_loss"] + 1)
    assert found["log_loss"] == pytest.approx(-np.log(smooth[np.arange(len(p)), one.trial.y_test]).mean(), rel=1e-6)


def test_mahalanobis_takes_a_direction_without_spread() -> None:
    h = torch.tensor([[0.0, 1.0], [1.0, 1.0], [4.0, 1.0], [5.0, 1.0]])
    scores = domain.mahalanobis(h, torch.tensor([0, 0, 1, 1]), np.array([[0.5, 1.0], [2.5, 1.0]], dtype=np.float32))
    np.testing.assert_allclose(scores, [0.0, -16.0], rtol=1e-4, atol=1e-6)


def test_the_twins_training_rows_are_those_it_learned_from(fitted: dict[str, fit.Fitted]) -> None:
    one = fitted["softmax"]
    h, y = one.training_h()
    held = len(one.network.validation_ids_)
    assert len(h) == len(y) == len(one.trial.y) - held


def test_domain_reports_the_credibility_of_out_of_distribution_rows(fitted: dict[str, fit.Fitted]) -> None:
    one = fitted["dwac"]
    found = domain.measure(one)
    p = one.p_values("weights", one.votes_of(one.embed(domain.out_of_distribution(one))))
    trust = found["credibility_weights"]
    assert trust["mean"]["outside"] == pytest.approx(p.max(axis=1).mean())
    assert trust["empty"]["outside"] == pytest.approx((p <= domain.EPSILON).all(axis=1).mean())
    assert sum(trust["histogram"]["outside"]) == found["rows"]["outside"] == len(p)


def test_explanations_show_a_right_a_doubtful_and_a_wrong_one(fitted: dict[str, fit.Fitted]) -> None:
    one = fitted["dwac"]
    rows, y = {kind: order[0] for kind, order in explanations.examples(one).items()}, one.trial.y_test
    assert one.labels[rows["typical"]] == y[rows["typical"]]
    assert one.labels[rows["mistaken"]] != y[rows["mistaken"]]
    assert one.votes[rows["doubtful"]].max() == one.votes.max(axis=1).min()
    found = explanations.measure(one)
    assert len(found["typical"]["neighbors"]) == explanations.K
    assert set(found["typical"]["record"]) == {"x", "z", "job"}


def test_an_example_with_a_slur_is_passed_over(fitted: dict[str, fit.Fitted], monkeypatch: pytest.MonkeyPatch) -> None:
    one = fitted["dwac"]
    first = explanations.measure(one)["typical"]
    job = str(first["record"]["job"])
    monkeypatch.setattr(explanations, "UNPRINTED", (job[1:3],))  # part of a word is enough
    found = explanations.measure(one)
    assert "typical" not in found or found["typical"]["row"] != first["row"]
    assert not explanations.quotable(first)
    for kind in found.values():
        assert all(job not in str(shown["record"]) for shown in (kind, *kind["neighbors"]))


@pytest.mark.slow
def test_the_report_quotes_no_slur_of_an_old_record(
    quick: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = Records(quick[1]).read(Case("subjectivity", "best", "dwac"))
    assert record is not None
    Records(tmp_path).write(Case(**record["case"]), record)
    monkeypatch.setattr(explanations, "UNPRINTED", ("thing",))  # in every made-up text
    text = write_report(tmp_path, tmp_path / "paper.md").read_text()
    assert named(text, "not quoted", "slur")
    assert "thing |" not in text


def test_sizes_are_those_of_sets_that_are_not_empty(fitted: dict[str, fit.Fitted]) -> None:
    one = fitted["dwac"]
    record = {"case": one.case.to_dict() | {"without": None}, "metrics": {"sets": sets.measure(one)}}
    curves = sets.curves_of(Found([record]), "covertype", "paper", "DWAC probability")
    for place, epsilon in enumerate(sets.EPSILONS):
        sizes = (one.p_values("probability", one.votes) > epsilon).sum(axis=1)
        if (sizes > 0).any():
            assert curves["size"][place] == pytest.approx(sizes[sizes > 0].mean(), abs=1e-3)


def test_class_conditional_coverage_is_that_of_a_plain_loop(fitted: dict[str, fit.Fitted]) -> None:
    one = fitted["dwac"]
    found, y = sets.measure(one), one.trial.y_test
    held, labels = one.calibration_votes, one.clf.calibration_y_
    for epsilon in sets.JUDGED:
        covered = np.zeros(6, dtype=int)
        for votes, label in zip(one.votes, y, strict=True):
            own = held[labels == label, label]
            covered[label] += ((own <= votes[label]).sum() + 1) / (len(own) + 1) > epsilon
        assert found["weights"]["by_class"][epsilon]["covered"] == covered.tolist()
    assert found["by_class"]["n_test"] == np.bincount(y, minlength=6).tolist()


@pytest.mark.slow
def test_coverage_is_judged_by_its_law_trial_by_trial_and_class_by_class(quick: Any, report: str) -> None:
    assert "Adult | DWAC weights" in report
    record = Records(quick[1]).read(Case("adult", "best", "dwac"))
    assert record is not None
    assert sets.within_law(0.1, 1000, 10_000, 8647) is True
    assert sets.within_law(0.1, 1000, 10_000, 8646) is False
    assert sets.within_law(0.1, 1000, 10_000, 9301) is False
    assert sets.within_law(0.05, 18, 100, 100) is None  # nothing is promised
    low = {**record["metrics"]["sets"], "n_calibration": 10_000}
    low["weights"] = {**low["weights"], "coverage": [0.1] * len(sets.EPSILONS)}
    changed = {**record, "metrics": {**record["metrics"], "sets": low}}
    row = sets.promise_row(Found([changed]), "adult", "best", "DWAC weights")
    assert row[2:4] == ["0 of 3", verdict(False, whole=False)]
    del low["by_class"]
    assert sets.promise_row(Found([changed]), "adult", "best", "DWAC weights")[4] == NOT_HELD


@pytest.mark.slow
def test_verdicts_that_answered_test_rows_are_called_not_blind(report: str) -> None:
    for name in ("covertype", "cifar10"):
        start = f"| {settings.DATASETS[name].title} | {published.ACCURACY[name]['softmax']:.3f}"
        row = next(line for line in report.splitlines() if line.startswith(start))
        assert row.endswith(", not blind |")
    assert named(report, "after seeing", "test rows")


@pytest.mark.slow
def test_published_deviations_are_used_once_they_are_there(quick: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Found(Records(quick[1]))
    assert "not available" in accuracy.report(found).text
    monkeypatch.setattr(published, "ACCURACY_DEVIATIONS", {"adult": {"softmax": 0.002, "dwac": 0.123}})
    text = accuracy.report(found).text
    assert "not available" not in text
    assert "| 12.30 |" in text


@pytest.mark.slow
def test_accuracy_of_a_case_is_that_of_its_labels(quick: Any) -> None:
    record = Records(quick[1]).read(Case("imdb", "best", "svm"))
    assert record is not None
    assert record["metrics"]["accuracy"] == {"accuracy": record["accuracy"]}  # an SVM has no probabilities


@pytest.mark.slow
def test_a_variant_is_shown_next_to_its_setting(quick: Any, report: str) -> None:
    kept = Records(quick[1])
    frozen, changed = (kept.read(Case("adult", "paper", "dwac", variant=name)) for name in (None, "no_penalty"))
    assert frozen is not None
    assert changed is not None
    assert (frozen["trained_with"]["penalty"], changed["trained_with"]["penalty"]) == (1e-3, 0.0)
    ours, theirs = frozen["metrics"]["accuracy"], changed["metrics"]["tried"]
    gaps = [f"{100 * (theirs[what] - ours[what]):+.2f}" for what in ("held_out", "accuracy")]
    assert re.search(rf"\| Adult \| paper \| no penalty .* \| {re.escape(' | '.join(gaps))} \|", report)


def test_mixed_rows_are_drawn_anew_from_both_official_parts(patched: pytest.MonkeyPatch) -> None:
    library = Library(quick=False)
    official, mixed = (library.trial(Case("imdb", "best", "dwac", variant=name)) for name in (None, "mixed"))
    again = library.trial(Case("imdb", "best", "dwac", trial=1, variant="mixed"))
    assert sorted(mixed.X + mixed.X_test) == sorted(official.X + official.X_test) == sorted(again.X + again.X_test)
    assert len(mixed.X_test) == len(official.X_test)
    assert set(mixed.X_test) & set(official.X)
    assert set(mixed.X_test) != set(again.X_test)


def test_every_tenth_row_is_tested_in_every_trial(patched: pytest.MonkeyPatch) -> None:
    library, whole = Library(quick=False), made_up("subjectivity")
    for trial in range(2):
        rows = library.trial(Case("subjectivity", "paper", "dwac", trial, variant="every_tenth"))
        assert rows.X_test == whole.X[::10]
        np.testing.assert_array_equal(rows.y_test, whole.y[::10])
        assert [text for i, text in enumerate(whole.X) if i % 10] == rows.X


@pytest.mark.slow
def test_records_hold_no_path_of_the_machine(quick: Any, tmp_path: Path) -> None:
    for path in quick[1].glob("*/*.json"):
        assert str(tmp_path.parents[1]) not in path.read_text()


# Peers


def test_the_svm_chooses_its_setting_on_training_rows(patched: pytest.MonkeyPatch) -> None:
    data = made_up("stackoverflow").split(0.2)
    model = peers.svm(data.X_train, data.y_train, 0, settings.SVM)
    assert model.chosen["C"] in settings.SVM["grid"]["C"]
    assert {"C": model.chosen["C"]}.items() <= min(model.tried, key=lambda tried: tried["loss"]).items()
    assert data.y_test is not None
    assert metrics.accuracy(data.y_test, model.predict(data.X_test)) > 0.9


@pytest.mark.parametrize("peer", settings.PEERS["table"])
@pytest.mark.parametrize("name", ["adult", "covertype"])
def test_boosted_trees_give_margins_for_all_classes(name: str, peer: str) -> None:
    pytest.importorskip(peer)
    data = made_up(name) if settings.DATASETS[name].official else made_up(name).split()
    parts: list[Any] = [data.X_train, data.X_test]
    X, X_test = (part.astype({"job": "category"}) for part in parts)
    X.loc[X.index[:9], "job"] = None  # as in Adult with all rows
    model = getattr(peers, peer)(X, data.y_train, 0, settings.peer_settings(name, peer, quick=True))
    assert model.margins is not None
    assert model.margins(X_test).shape == (len(X_test), settings.DATASETS[name].n_classes)
    np.testing.assert_array_equal(model.margins(X_test).argmax(axis=1), model.predict(X_test))
    assert "n_estimators" in model.edges  # a quick run may have five rounds and wants more


@pytest.mark.parametrize(
    ("name", "peer"), [(name, peer) for name in ("adult", "covertype", "imdb") for peer in settings.SOURCES[name].peers]
)
def test_every_peer_has_room_on_both_sides_of_where_it_starts(name: str, peer: str) -> None:
    values = settings.peer_settings(name, peer)
    for setting, of in values["grid"].items():
        assert of == sorted(of)
        assert values["start"][setting] in of
        if "one" not in setting:  # one-hot for all categories is a limit
            assert of[0] < values["start"][setting] < of[-1]


def test_climbing_finds_the_best_and_names_an_edge() -> None:
    def loss(values: dict[str, Any]) -> dict[str, Any]:
        return {"loss": (values["x"] - 3) ** 2 + (values["y"] - 9) ** 2}

    found = hill_climb({"x": [0, 1, 2, 3, 4, 5], "y": [1, 2, 3, 4]}, {"x": 1, "y": 2}, loss)
    assert found.best == {"x": 3, "y": 4}
    assert found.edges == ["y"]  # it would be better beyond
    points = [(tried["x"], tried["y"]) for tried in found.tried]
    assert len(set(points)) == len(points)
    assert {(2, 4), (4, 4), (3, 3)} <= set(points)
    columns = hill_climb(
        {"colsample_bytree": [0.5, 1.0]},
        {"colsample_bytree": 0.5},
        lambda values: {"loss": -values["colsample_bytree"]},
    )
    assert (columns.best, columns.edges) == ({"colsample_bytree": 1.0}, [])  # there is no more than all


def test_an_interrupted_search_resumes_where_it_stopped(tmp_path: Path) -> None:
    asked: list[int] = []

    def measure(values: dict[str, Any]) -> dict[str, Any]:
        if len(asked) == 3:
            raise KeyboardInterrupt
        asked.append(values["x"])
        return {"loss": abs(values["x"] - 5)}

    def search(stamp: str = "now") -> Any:
        journal = Journal(tmp_path / "a.tuning.jsonl", stamp)
        return hill_climb(
            {"x": list(range(9))}, {"x": 2}, lambda values: journal.score(values, lambda: measure(values))
        )

    with pytest.raises(KeyboardInterrupt):
        search()
    with (tmp_path / "a.tuning.jsonl").open("a") as file:
        file.write('{"stamp": "now", "val')  # as a kill leaves it
    first, asked[:] = asked[:], []
    assert search().best == {"x": 5}
    assert not set(first) & set(asked)
    asked[:] = []
    with pytest.raises(KeyboardInterrupt):  # other code: nothing is known
        search("later")


def test_the_record_of_a_peer_holds_what_it_tried_and_no_journal_stays(
    patched: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reported: list[Any] = []
    runner.run(
        ["accuracy"],
        datasets=["imdb"],
        heads=["svm"],
        quick=True,
        records=tmp_path,
        on_tried=lambda *one: reported.append(one),
    )
    record = Records(tmp_path).read(Case("imdb", "best", "svm"))
    assert record is not None
    assert [tried["C"] for tried in record["tuning"]["tried"]] == [values["C"] for _, values, _ in reported] == [0.3]
    assert record["tuning"]["edges"] == ["C"]  # a quick run has but one to choose from
    assert not list(tmp_path.rglob("*.jsonl"))
    text = write_report(tmp_path, tmp_path / "paper.md").read_text()
    assert "| IMDB | svm | C 0.3 | 1.0 | C |" in text


def test_single_trials_can_be_chosen() -> None:
    some = runner.select(["accuracy"], datasets=["adult"], heads=["xgboost"], trials=[1, 3])
    assert [case.trial for case in some] == [1, 3]


# Records


WHOLE = {name: {} for name in FIELDS} | {"case": Case("adult", "paper", "dwac").to_dict(), "quick": True}


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ('{"case": {"dataset"', ["char 19"]),
        ("[1, 2]", ["object"]),
        ('{"case": {}}', ["quick", "settings"]),
        (json.dumps(WHOLE | {"case": {"planet": "mars"}}), ["'planet'"]),
        (json.dumps(WHOLE | {"case": Case("mars", "paper", "dwac").to_dict()}), ["dataset 'mars'", "adult"]),
        (json.dumps(WHOLE | {"case": Case("adult", "paper", "dwac", variant="x").to_dict()}), ["variant 'x'"]),
        (json.dumps(WHOLE | {"case": Case("adult", "paper", "dwac", 1).to_dict()}), ["adult-paper-dwac-1.json"]),
    ],
)
def test_a_damaged_or_foreign_record_is_named(text: str, facts: list[str], tmp_path: Path) -> None:
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult-paper-dwac-0.json").write_text(text)
    with refuses(PaperError, "adult-paper-dwac-0.json", *facts, "remove"):
        list(Records(tmp_path))


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_fitted(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with refuses(PaperError, tmp_path / "file", "folder"):
        runner.run(["accuracy"], datasets=["adult"], quick=True, records=tmp_path / "file")
    with refuses(PaperError, tmp_path / "file" / "paper.md", "folder"):
        write_report(tmp_path / "none", tmp_path / "file" / "paper.md")


def test_merging_takes_the_later_of_two_records(tmp_path: Path) -> None:
    case, other = Case("adult", "paper", "dwac"), Case("adult", "paper", "dwac", 1)
    here, there = Records(tmp_path / "here"), Records(tmp_path / "there")
    for kept, name, date in ((here, case, "2026-01-02"), (there, case, "2026-01-01"), (there, other, "2026-01-01")):
        kept.write(name, WHOLE | {"case": name.to_dict(), "date": date, "metrics": {"x": {"y": np.float64(0.1)}}})
    assert here.merge(there.folder) == 1
    assert [record["date"] for record in here] == ["2026-01-02", "2026-01-01"]


def test_means_are_over_the_trials_of_one_cell() -> None:
    def record(trial: int, accuracy: float, **fields: Any) -> dict[str, Any]:
        case = Case("adult", "paper", "dwac", trial, **fields)
        return {"case": case.to_dict(), "metrics": {"accuracy": {"accuracy": accuracy}}}

    found = Found([record(1, 0.9), record(0, 0.8), record(0, 0.1, embedding_size=2)])
    assert found.values(("adult", "paper", "dwac"), "accuracy", "accuracy") == [0.8, 0.9]
    assert found.values(("adult", "paper", "dwac"), "accuracy", "accuracy", embedding_size=2) == [0.1]
    assert found.values(("adult", "best", "dwac"), "accuracy", "accuracy") == []


# The command


@pytest.mark.slow
def test_the_command_lists_and_reports(quick: Any, patched: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options = ["--records", str(quick[1])]
    shown = CliRunner().invoke(app, ["list", "--quick", *options], env={"COLUMNS": "120"})
    assert shown.exit_code == 0, shown.output
    for name in (*EXPERIMENTS, *settings.DATASETS):
        assert name in shown.output
    assert re.search(r"dimension .* 16 of 16", shown.output)
    shutil.copytree(quick[1] / "adult", tmp_path / "few" / "adult")  # a report on all is the fixture
    options = ["--records", str(tmp_path / "few")]
    written = CliRunner().invoke(app, ["report", *options, "--output", str(tmp_path / "R.md")])
    assert written.exit_code == 0, written.output
    assert (tmp_path / "R.md").read_text() == write_report(tmp_path / "few", tmp_path / "S.md").read_text()


def test_the_command_shows_each_fit_and_where_it_was_stopped(patched: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = ["run", "dimension", "--datasets", "adult", "--quick", "--device", "cpu", "--records"]
    shown = CliRunner().invoke(app, [*asked, str(tmp_path / "a")], env={"COLUMNS": "120"})
    assert shown.exit_code == 0, shown.output
    assert re.search(r"4 of 4  adult-paper-softmax-h8-0  accuracy 0\.\d{4}  \d+\.\d s", shown.output)

    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Twin, "fit", stop)
        shown = CliRunner().invoke(app, [*asked, str(tmp_path / "b")], env={"COLUMNS": "120"})
    assert shown.exit_code == 130
    assert named(shown.output, "stopped", "1 records")


def test_the_command_reports_on_no_empty_folder(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["report", "--records", str(tmp_path / "none")])
    assert shown.exit_code == 1
    assert named(shown.output, "no records", "python -m reproduction run", "--records")
    assert not (tmp_path / "none").exists()


def test_the_command_says_unknown_names_in_one_line() -> None:
    shown = CliRunner().invoke(app, ["run", "nonsense"])
    assert shown.exit_code == 1
    assert shown.output.startswith("reproduction: ")
    assert named(shown.output, "experiment 'nonsense'", *EXPERIMENTS)
    assert len(shown.output.strip().splitlines()) == 1
