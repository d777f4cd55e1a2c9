"""`python -m reproduction` as a person meets it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reproduction import datasets
from reproduction.app import PROGRAM, app
from tests.named import named

ROOT = Path(__file__).parents[2]


def test_every_command_helps_with_an_example() -> None:
    for name in ("list", "run", "report", "data", "data list", "data get"):
        shown = CliRunner().invoke(app, [*name.split(), "--help"]).output
        assert "Example" in shown
        assert re.search(rf"python\s+-m\s+reproduction\s+{name}\b", shown), name


def test_wrong_usage_is_one_line_with_exit_code_2() -> None:
    shown = CliRunner().invoke(app, ["data", "gett"], prog_name=PROGRAM)
    assert shown.exit_code == 2
    (line,) = shown.output.strip().splitlines()
    assert line.startswith("reproduction: ")
    assert named(line, "'gett'", "python -m reproduction data --help")


def test_help_does_not_wait_for_the_library() -> None:
    lists = "import runpy, sys; sys.argv = ['reproduction', '--help']\n"
    lists += "try: runpy.run_module('reproduction', run_name='__main__')\n"
    lists += "except SystemExit: print({'torch', 'pandas', 'sklearn'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", lists], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert named(shown, "list", "run", "report", "data")
    assert shown.rstrip().endswith("set()")


def test_data_list_says_what_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DWAC_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult.data").write_text("39, State-gov\n")
    (tmp_path / "adult" / "adult.test").touch()
    shown = CliRunner().invoke(app, ["data", "list"], env={"COLUMNS": "120"})
    assert shown.exit_code == 0
    assert "1 of 2" in shown.output
    assert str(tmp_path) in shown.output
    for name in datasets.NAMES:
        assert f" {name} " in shown.output
    assert named(shown.output, "by hand", "Kaggle")
    wrong = CliRunner().invoke(app, ["data", "get", "nosuch"])
    assert wrong.exit_code == 1
    assert "fashion_mnist" in wrong.output


def test_data_list_says_which_word_vectors_are_unpacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DWAC_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "glove").mkdir()
    (tmp_path / "glove" / "glove.6B.50d.txt").write_text("the" + " 0.5" * 50 + "\n")
    shown = CliRunner().invoke(app, ["data", "list", "--check"], env={"COLUMNS": "120"})
    assert shown.exit_code == 0, shown.output
    assert "50d" in shown.output


def test_data_list_finds_damaged_files_if_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DWAC_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult.test").write_text("<html>")
    (tmp_path / "imdb" / "aclImdb_v1.tar.gz").mkdir(parents=True)
    shown = CliRunner().invoke(app, ["data", "list", "--check"], env={"COLUMNS": "120"})
    assert shown.exit_code == 1
    assert shown.output.count("│ damaged ") == 2
    faults = [line for line in shown.output.splitlines() if line.startswith("reproduction: ")]
    assert named(faults[0], "adult.test", "python -m reproduction data get adult")
    assert named(faults[1], "aclImdb_v1.tar.gz", "folder")


def test_data_that_needs_an_account_is_got_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DWAC_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shown = CliRunner().invoke(app, ["data", "get", "lending_club"])
    assert shown.exit_code == 1
    (line,) = shown.output.strip().splitlines()
    assert line.startswith("reproduction: ")
    assert named(line, "loan.csv", "Kaggle", tmp_path / "lending-club")
