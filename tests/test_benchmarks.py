"""Records of benchmarks name the code that made them, and which are stale follows from that."""

import json
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import record
from reproduction import records
from tests.named import named


def test_a_record_names_its_commit_and_goes_stale_with_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(record, "commit", lambda: "0123abc")
    for name in ("service", "engine_cpu", "old"):
        record.write(name, "A claim.", {"rows": 3}, pd.DataFrame({"seconds": [0.5]}))
    text = (tmp_path / "old.json").read_text()
    before = {key: value for key, value in json.loads(text).items() if key not in {"date", "code", "commit"}}
    (tmp_path / "old.json").write_text(json.dumps(before))
    record.page("old")
    assert not named((tmp_path / "old.md").read_text(), "commit")
    assert named((tmp_path / "engine_cpu.md").read_text(), "commit 0123abc", f"stamp {records.code()}")
    found = benchmarks.overview().set_index("record")
    assert found["stale"].to_dict() == {"engine_cpu": "", "old": "stale", "service": ""}
    assert found["stamp"].nunique() == 3  # that of the service covers the server
    monkeypatch.setattr(record, "code", lambda *also: "changed" if "server" in also else records.code(*also))
    assert benchmarks.overview().set_index("record")["stale"]["service"] == "stale"


def test_the_parts_that_benchmarks_add_to_the_stamp_are_otherwise_apart_from_it() -> None:
    names = [path.stem for path in record.RESULTS.glob("*.json")]
    assert [start for start in record.PARTS if not any(name.startswith(start) for name in names)] == []
    assert {part for parts in record.PARTS.values() for part in parts} <= set(records.APART)


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
