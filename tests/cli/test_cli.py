"""The command line as a person meets it."""

import importlib
import inspect
import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import dwac
from dwac import reading, worth
from dwac.cli import demo as demo_module
from dwac.cli import main, options, write_any_character
from dwac.cli.app import COMMANDS, app, command
from dwac.errors import InputError
from dwac.reading.layouts import FORMS
from dwac.scoring.engines import ENGINES
from dwac.storage.folder import MANIFEST
from tests.named import missing, named, refuses

DWAC = Path(sys.executable).parent / "dwac"


def test_demo_shows_every_promised_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def some(held_out: int, seed: int) -> demo_module.Digits:
        data = load(held_out, seed)
        return replace(data, training=data.training[:300], test=data.test[:60], outside=data.outside[:30])

    load = demo_module.load
    monkeypatch.setattr("dwac.cli.demo.load", some)
    monkeypatch.setattr("dwac.cli.demo.EPOCHS", 2)
    shown = CliRunner().invoke(app, ["demo", "--held-out", "3"], env={"COLUMNS": "120"})
    assert shown.exit_code == 0, shown.output
    for expected in ("accuracy", "calibration error", "coverage", "mean set size", "0.05", "0.1", "test digits",
                     "digit left out", "DWAC", "softmax", "Predicted", "training examples", "share"):  # fmt: skip
        assert expected in shown.output
    assert "images of 3" in shown.output


def test_demo_parts_are_disjoint_and_hold_no_outside_digit() -> None:
    data = demo_module.load(held_out=4, seed=0)
    rows = np.concatenate([data.training, data.test, data.outside])
    assert sorted(rows) == list(range(1797))
    assert 4 not in data.digits[np.concatenate([data.training, data.test])]


def test_demo_draws_pictures() -> None:
    drawn = demo_module.pictures(np.array([[[0, 16], [8, 0]], [[16, 16], [0, 0]]]), ["7", "12"])
    assert drawn.splitlines() == ["7                  12", "  ██   ████", "▒▒"]


def test_the_installed_command_says_its_version() -> None:
    result = subprocess.run([DWAC, "--version"], capture_output=True, text=True, check=True)
    same = subprocess.run([sys.executable, "-m", "dwac", "--version"], capture_output=True, text=True, check=True)
    assert same.stdout == result.stdout
    assert result.stdout.strip() == f"dwac {dwac.__version__}"


def test_the_list_of_commands_does_not_wait_for_the_library() -> None:
    lists = "import sys; sys.argv = ['dwac', '--help']; from dwac.cli import main\ntry: main()\n"
    lists += "except SystemExit: print({'torch', 'pandas', 'sklearn'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", lists], capture_output=True, text=True, check=True).stdout
    assert named(shown, *COMMANDS)
    assert shown.rstrip().endswith("set()")


def test_wrong_arguments_are_refused_before_the_library_is_imported(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.json").touch()
    cases: list[tuple[list[str], list[Any]]] = [
        (["train", "x.csv", "-t", "y", "-o", "model"], ["model", "--overwrite"]),
        (["train", "x.csv", "-t", "y", "-o", "new"], ["'x.csv'"]),
        (["train", "x.csv", "-t", "y", "-o", "new", "--task", "clases"], ["classes", "ordered", "labels", "numbers"]),
        (["train", "model", "-t", "y", "-o", "new", "--kind", "a=b"], ["--kind", "COLUMN=KIND"]),
        (["condense", "model", "-o", "model"], ["model", "--overwrite"]),
        (["predict", "gone", "x.csv"], ["gone", "model folder"]),
        (["predict", "model", "model", "-o", "a.xls"], ["a.xls", ".csv"]),
        (["predict", "model", "x.csv", "--epsilon", "2"], ["(0, 1)", 2]),
        (["decide", "gone", "x.csv"], ["gone", "model folder"]),
        (["evaluate", "model", "x.csv", "--format", "xml"], ["'xml'", "csv"]),
        (["explain", "model", "x.csv"], ["'x.csv'"]),
        (["explain", "model", "model", "--frozen", "age"], ["--frozen", "--recourse"]),
        (["explore", "model", "x.csv"], ["'x.csv'"]),
        (["monitor", "model", "model", "--colour"], ["--colour"]),
        (["score", "model", "model", "-o", "out", "--engine", "ford"], ["'ford'", "local"]),
        (["serve", "gone"], ["gone", "model folder"]),
        (["report", "model", "model", "--unlike", "x.csv"], ["'x.csv'"]),
        (["worth", "model", "model", "--method", "guess"], ["shapley", "banzhaf", "leave_one_out", "'guess'"]),
        (["worth", "model", "model", "-o", "a.xls"], ["a.xls", ".csv"]),
        (["forget", "model", "7", "-o", "model"], ["model", "--overwrite"]),
        (["forget", "model", "7"], ["-o FOLDER"]),
        (["demo", "--held-out", "12"], ["--held-out", 9]),
    ]
    code = "import sys; from dwac.cli import main\nfor words in eval(sys.argv[1]):\n"
    code += "    try: main(words)\n    except SystemExit as end: assert end.code in (1, 2)\n"
    code += "print({'torch', 'pandas', 'sklearn', 'numpy'} & set(sys.modules))"
    words = repr([words for words, _ in cases])
    shown = subprocess.run(
        [sys.executable, "-c", code, words], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert shown.stdout.strip() == "set()"
    for line, (_, facts) in zip(shown.stderr.splitlines(), cases, strict=True):
        assert not missing(line, *facts), line


def test_names_that_are_checked_early_are_those_of_the_library() -> None:
    assert (options.FORMATS, options.KINDS, options.UNLABELLED) == (reading.FORMATS, reading.KINDS, reading.UNLABELLED)
    assert (options.TASKS, options.MANIFEST) == (reading.TASKS, MANIFEST)
    assert (tuple(ENGINES), FORMS) == (options.ENGINES, options.SCORED_FORMATS)
    assert (options.METHODS, options.UTILITIES) == (worth.games.METHODS, worth.games.UTILITIES)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_one_file_with_its_options_and_its_work(name: str) -> None:
    asked = {parameter.name for parameter in getattr(command(name), "params", ())}
    function = getattr(importlib.import_module(f"dwac.cli.{name}"), name)
    assert asked == set(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_reads_a_model_can_demand_its_fingerprint(name: str) -> None:
    asked = {parameter.name for parameter in getattr(command(name), "params", ())}
    assert ("model" in asked) == ("expect" in asked)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_their_own_help_says(name: str) -> None:
    assert command(name).help.split("\n\n")[0].replace("\n", " ") == COMMANDS[name]


def test_a_wrong_option_exits_with_2_and_says_why() -> None:
    shown = CliRunner().invoke(app, ["demo", "--held-out", "12"])
    assert shown.exit_code == 2
    assert "held-out" in shown.output


def test_an_error_raised_on_purpose_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise InputError("epochs must be 1 or more; got 0")

    monkeypatch.setattr("dwac.cli.demo.load", fail)
    shown = CliRunner().invoke(app, ["demo"])
    assert shown.exit_code == 1
    assert shown.output.startswith("dwac: ")
    assert len(shown.output.splitlines()) == 1
    assert named(shown.output, "epochs", 0)


def test_without_its_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "dwac.cli.app")
    with refuses(SystemExit, "pip install 'dwac[cli]'"):
        main()


@pytest.mark.parametrize(("chosen", "written"), [("", "ε → ü".encode()), ("cp1252", b"? ? \xfc")], ids=["none", "own"])
def test_any_character_can_be_written_where_the_system_has_another_encoding(
    chosen: str, written: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Windows, what goes to a file or a pipe is cp1252 unless the program says otherwise."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="cp1252") for _ in range(2)]
    monkeypatch.setenv("PYTHONIOENCODING", chosen)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        write_any_character()
    for stream in streams:
        stream.write("ε → ü")
        stream.flush()
        assert stream.buffer.getvalue() == written
