"""Records of benchmarks name the code that made them, and which are stale follows from that."""

import json
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import record
from reproduction import sources
from tests.named import named


def test_a_record_names_its_commit_and_goes_stale_with_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(record, "commit", lambda: "0123abc")
    for name in ("conformal", "engine_cpu", "worth"):
        record.write(name, "A claim.", {"rows": 3}, pd.DataFrame({"seconds": [0.5]}))
    text = (tmp_path / "worth.json").read_text()
    before = {key: value for key, value in json.loads(text).items() if key not in {"date", "code", "commit"}}
    (tmp_path / "worth.json").write_text(json.dumps(before))
    record.page("worth")
    assert not named((tmp_path / "worth.md").read_text(), "commit")
    assert named((tmp_path / "engine_cpu.md").read_text(), "commit 0123abc", f"stamp {record.stamp('engine_cpu')}")
    found = benchmarks.overview().set_index("record")
    assert found["stale"].to_dict() == {"conformal": "", "engine_cpu": "", "worth": "stale"}
    monkeypatch.setattr(record, "stamp", lambda name: "changed")
    assert set(benchmarks.overview()["stale"]) == {"stale"}


CODE = """def f(x: int) -> int:
    '''One.'''
    # more
    if x < 0:
        raise ValueError(f"got {x}")
    return x
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [("One.", "Two."), ("    # more\n", ""), ("got ", "no "), (": int", ""), ("    return", "\n    return")],
)
def test_a_stamp_stays_if_texts_change(old: str, new: str) -> None:
    assert old in CODE
    assert sources.meaning(CODE.replace(old, new)) == sources.meaning(CODE)


@pytest.mark.parametrize(
    ("old", "new"), [("return x", "return -x"), ("x < 0", "x < 1"), ("ValueError", "TypeError"), ("{x}", "{-x}")]
)
def test_a_stamp_changes_with_what_is_computed(old: str, new: str) -> None:
    assert old in CODE
    assert sources.meaning(CODE.replace(old, new)) != sources.meaning(CODE)


def test_a_stamp_covers_what_the_script_can_import() -> None:
    def packages(script: str) -> set[str]:
        names = sources.reached(f"benchmarks.{script}")
        return {name.split(".")[1] for name in names if name.startswith("dwac.")}

    assert packages("engine") == {"_machine", "engine", "errors", "kernels"}
    assert packages("conformal") == {"_checks", "conformal", "errors", "languages"}
    assert {"engine", "training", "estimator", "explain"} <= packages("small_tables")
    assert not {"cli", "drawing", "report", "scoring", "server", "worth"} & packages("small_tables")
    assert {"cli", "server", "monitoring"} <= packages("service")
    assert {"reading", "scoring"} <= packages("scoring")
    assert "report" in packages("label_issues")
    assert "dwac.cli.train" in sources.reached("benchmarks.start")
    assert "reproduction.datasets.adult" in sources.reached("benchmarks.latency")


def test_every_record_has_a_plan_and_every_script_a_record() -> None:
    assert set(benchmarks.PLANS) == {path.stem for path in record.RESULTS.glob("*.json")}
    made = {commands[0][2].removeprefix("benchmarks.") for commands in map(benchmarks.commands, benchmarks.PLANS)}
    scripts = {path.stem for path in Path(benchmarks.__file__).parent.glob("*.py")}
    assert made == scripts - {"__init__", "__main__", "record", "engine_peers"}


def test_stale_records_are_made_anew_the_cheapest_first_while_there_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def make(command: list[str], timeout: float) -> subprocess.CompletedProcess[bytes]:
        name = command[2].removeprefix("benchmarks.")
        order.append(name)
        if name != "broken":
            record.write(name, "A claim.", {}, pd.DataFrame({"seconds": [0.5]}))
        return subprocess.CompletedProcess(command, int(name == "broken"))

    plans = {"slow": benchmarks.Plan(9, ""), "quick": benchmarks.Plan(1, "a; b"), "broken": benchmarks.Plan(2, "")}
    plans["huge"] = benchmarks.Plan(60, "")
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(benchmarks, "PLANS", plans)
    monkeypatch.setattr(benchmarks, "WORK", tmp_path)
    monkeypatch.setattr(subprocess, "run", make)
    for name in plans:
        (tmp_path / f"{name}.json").write_text("{}")
    fates = benchmarks.renew(list(plans), minutes=10)
    assert order == ["quick", "quick", "broken", "slow"]
    assert [fates[name].split(":")[0] for name in plans] == ["made", "made", "failed", "not begun"]
