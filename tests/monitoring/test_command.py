"""`dwac monitor` day after day: what it says, what it remembers, and its exit codes."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from dwac import DWACClassifier
from dwac.cli.app import app
from tests.monitoring.helpers import old, people
from tests.named import named


def ran(*words: Any) -> Any:
    return CliRunner().invoke(app, ["monitor", *map(str, words)], env={"COLUMNS": "200"})


@pytest.fixture
def days(tmp_path: Path) -> list[Path]:
    """An ordinary day, one with older people, and one with an age that is none."""
    frames = [people(100, 1), people(150, 2, age=60.0), people(5, 3).astype({"age": object})]
    frames[2].loc[1, "age"] = "old"
    paths = [tmp_path / f"day{place}.csv" for place in range(3)]
    for path, frame in zip(paths, frames, strict=True):
        frame.to_csv(path, index=False)
    return paths


def test_days_follow_one_another_until_an_alarm_which_stays(folder: Path, days: list[Path], tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    first = ran(folder, days[0], "-o", state)
    assert first.exit_code == 0, first.output
    assert named(first.output, "100 rows", "no alarm", "typicality")
    second = ran(folder, days[1], "-o", state)
    assert second.exit_code == 4, second.output
    assert named(second.output, "250 rows", "ALARM")
    assert "age: mean 60" in second.output
    again = ran(folder, days[0], "-o", state)
    assert again.exit_code == 4
    assert named(again.output, "350 rows", "ALARM")
    anew = ran(folder, days[0], "-o", state, "--restart")
    assert anew.exit_code == 0
    assert named(anew.output, "100 rows", "no alarm")


def test_programs_get_json(folder: Path, days: list[Path]) -> None:
    found = json.loads(ran(folder, days[1], "--json", "--false-alarms", "0.001").stdout)
    assert found["limit"] == pytest.approx(1000)
    assert found["alarm"]["row"] < 150
    assert found["moved"][0]["kind"] in ("column", "prediction", "group")
    assert {each["name"] for each in found["detectors"]} >= {"typicality", "age", "job"}


def test_rows_that_cannot_be_read_have_their_exit_code(folder: Path, days: list[Path]) -> None:
    found = ran(folder, days[2])
    assert found.exit_code == 3
    assert named(found.output, "5 rows", "1 of", "unreadable", "no alarm")
    assert named(found.stderr, "1 of 5", "day2.csv line 3")
    strict = ran(folder, days[2], "--strict")
    assert strict.exit_code == 1
    assert "day2.csv line 3" in strict.output


def test_a_state_begun_with_other_options_is_not_mixed_up(folder: Path, days: list[Path], tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    assert ran(folder, days[0], "-o", state, "--ignore", "job", "--ignore", "pay").exit_code == 0
    assert ran(folder, days[0], "-o", state, "--ignore", "pay", "--ignore", "job").exit_code == 0
    other = ran(folder, days[0], "-o", state, "--ignore", "age")
    assert other.exit_code == 1
    assert named(other.output, "--restart")
    assert "--false-alarms 0.01" in ran(folder, days[0], "-o", state, "--false-alarms", "0.1").output
    unknown = ran(folder, days[0], "--ignore", "height")
    assert unknown.exit_code == 1
    assert named(unknown.output, "ignore", "'height'")


def test_a_state_that_is_none_is_refused(folder: Path, days: list[Path], tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text("[]")
    found = ran(folder, days[0], "-o", state)
    assert found.exit_code == 1
    assert named(found.output, "state.json")
    assert state.read_text() == "[]"


def test_columns_may_come_in_any_order_beside_others_and_in_another_notation(
    folder: Path, days: list[Path], clf: DWACClassifier
) -> None:
    frame = pd.read_csv(days[0])
    frame[["job", "age", "member", "pay"]].assign(extra=1).to_csv(days[2], index=False, sep=";", decimal=",")
    first, second = (
        json.loads(ran(folder, day, "--json", *more).stdout)["evidence"]
        for day, more in ((days[0], ()), (days[2], ("--separator", ";", "--decimal", ",")))
    )
    assert first == second


def test_outcomes_of_earlier_days_are_watched_by_group(folder: Path, tmp_path: Path) -> None:
    state, X = tmp_path / "state.json", people(200, 1).assign(id=[f"p{i}" for i in range(200)])
    X.to_csv(tmp_path / "day.csv", index=False)
    assert ran(folder, tmp_path / "day.csv", "-o", state, "--id", "id").exit_code == 0
    known = pd.DataFrame({"id": X["id"], "result": old(X), "job": X["job"]})
    known[:80].to_csv(tmp_path / "known.csv", index=False)
    words = ("-o", state, "--outcomes", tmp_path / "known.csv", "--target", "result", "--by", "job")
    first = ran(folder, *words, "--id", "id")
    assert first.exit_code == 0, first.output
    assert named(first.output, "200 rows", "80 outcomes", "120 awaited", "no alarm", "error")
    assert named(first.output, *(f"where job is {job}" for job in ("nurse", "clerk", "smith")))  # those asked for
    assert named(ran(folder, *words).output, "--id")
    assert named(ran(folder, *words, "--id", "id").output, "p0", "one outcome")
    known[80:].assign(result="young").to_csv(tmp_path / "known.csv", index=False)
    later = ran(folder, *words, "--id", "id", "--json")
    assert later.exit_code == 4
    found = json.loads(later.stdout)
    assert found["alarm"] is None
    assert found["outcomes"]["alarm"]["risk"]["measure"]
    assert {each["group"] for each in found["outcomes"]["risks"]} == {None, "nurse", "clerk", "smith"}
    assert ran(folder).exit_code == 1
