"""Records of benchmarks name the code that made them, and which are stale follows from that."""

import json
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import record, stale
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
    found = stale.overview().set_index("record")
    assert found["stale"].to_dict() == {"engine_cpu": "", "old": "stale", "service": ""}
    assert found["stamp"].nunique() == 3  # that of the service covers the server
    monkeypatch.setattr(record, "code", lambda *also: "changed" if "server" in also else records.code(*also))
    assert stale.overview().set_index("record")["stale"]["service"] == "stale"


def test_the_parts_that_benchmarks_add_to_the_stamp_are_otherwise_apart_from_it() -> None:
    names = [path.stem for path in record.RESULTS.glob("*.json")]
    assert [start for start in record.PARTS if not any(name.startswith(start) for name in names)] == []
    assert {part for parts in record.PARTS.values() for part in parts} <= set(records.APART)
