"""Records of benchmarks name the code that made them, and which are stale follows from that."""

import ast
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import record, summary
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


def test_a_stamp_is_the_same_where_python_splits_formats_otherwise() -> None:
    text = 'f"{name:<{width}}"'
    tree = ast.parse(text)  # Python 3.12 adds an empty part to the inner format
    *_, inner = (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr))
    inner.values.append(ast.Constant(""))  # noqa: PD011 - of a node, not of a table
    assert sources._dump(tree) == sources.meaning(text)


@pytest.mark.parametrize("path", sorted(record.RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_page_is_what_its_record_says_and_names_commit_date_and_machine(path: Path) -> None:
    kept, text = json.loads(path.read_text()), path.with_suffix(".md").read_text()
    assert text == record.paged(path.stem, kept)
    badge = text.splitlines()[3]
    assert badge.startswith("*Made ")
    assert all(str(part) in badge for part in (kept.get("commit") or "", kept["machine"]["processor"]))
    assert "code" not in kept or kept["date"][:10] in badge


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
    assert made == scripts - {"__init__", "__main__", "record", "summary", "engine_peers"}


def test_what_is_done_of_a_record_is_not_done_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    def make() -> dict[str, float]:
        done.append(1)
        return {"accuracy": np.float64(0.5), "lost": float("nan")}

    alone = [record.part("adult/seed 0", make) for _ in range(2)]
    assert len(done) == 2
    monkeypatch.setenv("DWAC_PARTS", str(tmp_path))
    kept = [record.part("adult/seed 0", make) for _ in range(2)]
    assert len(done) == 3
    assert [part["accuracy"] for part in (*alone, *kept)] == [0.5] * 4


SCRIPT = """
import os, sys, time
from pathlib import Path

folder, name = Path(sys.argv[1]), sys.argv[2]
part = Path(os.environ["DWAC_PARTS"]) / "part.json"
if not part.exists():
    part.write_text("1")
    with (folder / "done.txt").open("a") as file:
        file.write(name + " ")
if name == "broken":
    raise ValueError("no such data")
if name == "endless" and not (folder / "stop").exists():
    time.sleep(600)
(folder / f"{name}.json").touch()
"""


def test_stale_records_are_made_anew_the_cheapest_first_while_there_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = {"slow": 3, "quick": 1, "broken": 2, "huge": 60, "endless": 4}
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-I", str(tmp_path / "script.py"), str(tmp_path)]
    making, limits = benchmarks.made, iter([9e9, 9e9, 9e9, 0.0, 9e9])  # no time is left for the fourth
    monkeypatch.setattr(benchmarks, "PLANS", {name: benchmarks.Plan(minutes, "") for name, minutes in plans.items()})
    monkeypatch.setattr(benchmarks, "WORK", tmp_path / "work")
    monkeypatch.setattr(benchmarks, "commands", lambda name: [[*command, name]])
    monkeypatch.setattr(benchmarks, "stale", lambda name: not (tmp_path / f"{name}.json").exists())
    monkeypatch.setattr(benchmarks, "made", lambda name, end: making(name, next(limits)))
    fates = benchmarks.renew(list(plans), minutes=10)
    assert list(fates) == ["quick", "broken", "slow", "endless", "huge"]
    assert [fate.split(":")[0] for fate in fates.values()] == ["made", "failed", "made", "interrupted", "not begun"]
    assert named(fates["broken"], "ValueError: no such data", "errors.txt")
    (tmp_path / "stop").touch()
    assert benchmarks.renew(["quick", "endless"], minutes=10) == {"quick": "made with another", "endless": "made"}
    assert (tmp_path / "done.txt").read_text().split() == ["quick", "broken", "slow", "endless"]


@pytest.mark.parametrize("path", summary.PAGES, ids=lambda path: path.name)
def test_the_block_of_a_page_is_what_the_records_give(path: Path, judged: list[summary.Line]) -> None:
    assert path.read_text() == summary.written(path, judged), "run python -m benchmarks --summary"
    assert set(summary.VERDICTS) == {line.verdict for line in judged}
    assert path.read_text().count("Where we lose") == 1


@pytest.fixture(scope="module")
def judged() -> list[summary.Line]:
    return summary.lines()


@pytest.mark.parametrize(
    ("ours", "theirs", "kind", "verdict"),
    [
        ([0.90, 0.91, 0.92], [0.88, 0.89, 0.90], "share", "best"),
        ([0.90, 0.91, 0.92], [0.80, 0.89, 0.98], "share", "level"),  # by less than two standard errors
        ([0.903], [0.900], "share", "level"),  # by less than half a point
        ([0.90], [0.91], "share", "behind"),
        ([0.88, 0.90, 0.87], [0.90, 0.90, 0.90], "share", "behind"),  # by more than one standard error
        ([2.0], [2.5], "time", "best"),
        ([2.0], [2.1], "time", "level"),
        ([2.0, 3.0], [1.0, 1.5], "time", "behind"),
        ([1.0, np.nan], [1.05, 0.1], "error", "best"),  # what both have counts
    ],
)
def test_the_verdict_follows_from_the_rule(ours: list[float], theirs: list[float], kind: str, verdict: str) -> None:
    easy = np.full(len(ours), 0.1 if kind == "share" else 99.0)
    cases = pd.DataFrame({"dwac": ours, "peer": theirs, "easily beaten": easy})
    line = summary.judged(summary.Comparison("what", "record", kind, cases))
    assert (line.peer, line.verdict) == ("peer", verdict)
