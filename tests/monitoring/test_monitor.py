"""The monitor of real models: quiet while rows are as before, an alarm that names what moved, and a memory on disk."""

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac import DWACClassifier, DWACRegressor, load
from dwac.errors import CalibrationError, InputError, StorageError
from dwac.estimator.evaluation import predict
from dwac.estimator.readable import Partial
from dwac.monitoring import Monitor
from dwac.monitoring.state import merge_states
from dwac.monitoring.watching import nearest_groups
from tests.monitoring.helpers import QUICK, people
from tests.named import named, refuses

pytestmark = pytest.mark.usefixtures("few_steps")


def test_rows_as_before_raise_no_alarm_and_are_counted(clf: DWACClassifier) -> None:
    monitor = Monitor(clf)
    assert monitor.state.rows == 0
    state = monitor.update(people(500, 1))
    assert state.alarm is None
    assert (state.rows, state.unreadable) == (500, 0)
    assert state.p_value > 0.01
    assert state.typicality == pytest.approx(0.5, abs=0.08)
    assert state.credibility is not None
    assert {each.name for each in state.detectors} == {
        "typicality", "certainty", "prediction", "age", "pay", "job", "member"
    }  # fmt: skip
    assert monitor.moved() == []
    assert "no alarm" in str(state)


@pytest.mark.parametrize(
    ("given", "word"),
    [({"age": 52.0}, "age: mean 5"), ({"smiths": 0.7}, "job: 'smith' 7")],
    ids=["number", "category"],
)
def test_the_column_that_moved_is_named_first(clf: DWACClassifier, given: dict[str, float], word: str) -> None:
    monitor = Monitor(clf)
    monitor.update(people(200, 1))
    state = monitor.update(people(300, 2, **given), ids=[f"p{i}" for i in range(300)])
    assert state.alarm is not None
    assert 200 <= state.alarm.row < 350
    assert state.alarm.since is not None
    assert state.alarm.between is not None
    assert state.alarm.between[0] <= 200 <= state.alarm.between[1] <= state.alarm.row
    assert state.alarm.id == f"p{state.alarm.row - 200}"
    assert state.alarm.moved
    column = next(change for change in state.alarm.moved if change.kind == "column")
    assert column.sentence.startswith(word)
    assert named(state, "ALARM", f"row {state.alarm.row:,}", column.sentence)


def test_predictions_and_groups_that_moved_are_named(clf: DWACClassifier) -> None:
    monitor = Monitor(clf)
    monitor.update(people(400, 2, age=55.0))
    found = {change.kind: change.sentence for change in reversed(monitor.moved())}
    assert found["prediction"].startswith("predictions: ")
    assert "voters for" in found["group"]


def test_an_alarm_stays_until_reset(clf: DWACClassifier) -> None:
    monitor = Monitor(clf)
    first = monitor.update(people(200, 2, age=60.0)).alarm
    assert first is not None
    assert monitor.update(people(300, 3)).alarm == first
    assert monitor.state.alarm == first
    monitor.reset()
    assert (monitor.alarm, monitor.state.rows) == (None, 0)


def test_batches_make_no_difference(clf: DWACClassifier) -> None:
    X, whole, parts = people(90, 4), Monitor(clf), Monitor(clf)
    whole.update(X)
    for start, end in ((0, 1), (1, 40), (40, 90)):
        parts.update(X[start:end])
    assert whole.state.log_evidence == parts.state.log_evidence
    assert whole.state.detectors == parts.state.detectors


def test_rows_that_come_one_by_one_are_counted_together(clf: DWACClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dwac.monitoring.monitor.PART", 8)
    X, whole, single = people(12, 4, age=52.0), Monitor(clf), Monitor(clf)
    asked: list[int] = []

    def nearest(clf: Any, h: Any) -> Any:
        asked.append(len(h))
        return nearest_groups(clf, h)

    monkeypatch.setattr("dwac.monitoring.watching.nearest_groups", nearest)
    whole.update(X)
    for row in range(len(X)):
        single.update(X[row : row + 1])
    assert single.moved(0.999) == whole.moved(0.999) != []
    assert asked == [12, 8, 4]


def test_rows_that_wait_may_hold_the_same_column_in_different_types(clf: DWACClassifier, tmp_path: Path) -> None:
    X, single, one_by_one = people(6, 4), Monitor(clf), Monitor(clf)
    other: dict[str, Any] = {"age": int, "job": "category", "member": object}
    for row in range(len(X)):
        some = X[row : row + 1]
        single.update(some.astype(other) if row % 2 else some)
        one_by_one.update(some)
        one_by_one.moved()  # nothing waits after this
    single.update(X[:1].assign(age="many"))
    assert (single.alarm, single.state.rows, single.state.unreadable) == (None, 7, 1)
    assert _counts(single, tmp_path) == _counts(one_by_one, tmp_path)


def _counts(monitor: Monitor, folder: Path) -> list[Any]:
    """What the gauges have counted, by gauge."""
    monitor.save(folder / "state.json")
    ((_, _, tallies),) = json.loads((folder / "state.json").read_text())["latest"]
    assert tallies
    return [counts for counts, _ in tallies]


def test_a_batch_without_rows_changes_nothing(clf: DWACClassifier) -> None:
    monitor = Monitor(clf)
    assert monitor.update(people(0, seed=1)).rows == 0
    before = monitor.update(people(30, seed=1))
    without: list[Any] = [people(0, seed=1), np.empty((0, 2)), []]
    for nothing in without:
        assert monitor.update(nothing) == monitor.update(nothing, []) == before
    with refuses(InputError, "ids"):
        monitor.update(people(2, seed=1), [7])


def test_one_pass_gives_the_predictions_of_predict(clf: DWACClassifier) -> None:
    X = people(20, 5)
    pd.testing.assert_frame_equal(predict(clf, clf.observe(X)).frame(), predict(clf, X).frame())


def test_rows_that_cannot_be_read_are_strange(clf: DWACClassifier) -> None:
    bad = people(60, 6).astype({"age": object})
    bad.loc[:, "age"] = ["?" if i % 2 else 40.0 for i in range(60)]
    monitor = Monitor(clf)
    state = monitor.update(bad)
    assert state.unreadable == 30
    assert state.alarm is not None
    assert state.alarm.by == "readability"  # no column is to blame
    some, singly = Monitor(clf), Monitor(clf)
    for row in range(8):
        singly.update(bad.iloc[[row]])
    assert singly.state.log_evidence == some.update(bad[:8]).log_evidence


def test_unreadable_rows_alone_do_not_tell_since_when(clf: DWACClassifier) -> None:
    bad = people(30, 6).assign(age="?")
    monitor = Monitor(clf)
    for row in range(30):
        state = monitor.update(Partial(None, {0: "unreadable"}) if row % 2 else Partial(bad.iloc[[row]], {}))
    assert state.alarm is not None
    assert state.alarm.since is None
    assert state.to_dict()["alarm"]["since"] is None
    assert "unknown" in str(state)


def test_a_change_from_the_first_row_on_may_be_older_than_the_monitor(clf: DWACClassifier, tmp_path: Path) -> None:
    monitor = Monitor(clf)
    alarm = monitor.update(people(300, 8, age=80.0)).alarm
    assert alarm is not None
    assert (alarm.since, alarm.between) == (None, None)
    assert alarm.moved
    monitor.save(tmp_path / "monitor.json")
    assert Monitor.load(tmp_path / "monitor.json", clf).alarm == alarm


def test_truth_values_that_are_none_are_unreadable_and_the_monitor_goes_on(clf: DWACClassifier) -> None:
    monitor, X = Monitor(clf), people(60, 9).astype({"member": object})
    X.loc[::2, "member"] = -5
    state = monitor.update(X)
    assert (state.rows, state.unreadable) == (60, 30)
    assert monitor.update(people(20, 10)).rows == 80
    assert monitor.moved() is not None


def test_a_column_can_be_ignored(clf: DWACClassifier) -> None:
    monitor = Monitor(clf, ignore=["member"])
    state = monitor.update(people(300, 7).assign(member=True))
    assert "member" not in {each.name for each in state.detectors}
    assert not any(change.name == "member" for change in monitor.moved())
    with refuses(InputError, "ignore", "height"):
        Monitor(clf, ignore=["height"])


# Models of every kind


def test_a_cross_fitted_model_compares_rows_fold_by_fold(crossed: DWACClassifier) -> None:
    monitor = Monitor(crossed)
    folds = {each.fold for each in monitor._players.watched if each.name == "typicality"}
    assert folds == set(range(5))
    assert monitor._players.gaps[0].sum() == 150 / 5 + 1  # its own rows alone
    assert monitor.update(people(300, 1)).alarm is None
    assert monitor.update(people(200, 2, age=60.0)).alarm is not None


def test_a_private_model_has_no_columns_to_compare_and_says_so(clf: DWACClassifier, tmp_path: Path) -> None:
    private = load(clf.save(tmp_path / "private", include_examples=False))
    monitor = Monitor(private)
    state = monitor.update(people(200, 2, age=60.0))
    assert {each.kind for each in state.detectors} == {"model"}
    assert state.alarm is not None
    assert {change.kind for change in state.alarm.moved or ()} <= {"group", "prediction"}
    assert state.alarm.moved
    assert named(state.notes[0], "private")
    assert monitor._players.gaps[0, 0] > 0.8 * 200  # ordinary rows are not told apart: that would tell who trained
    shown = state.to_dict()
    assert round(shown["typicality"], 2) == shown["typicality"]
    assert not any("age" in change["name"] for change in shown["alarm"]["moved"])


def test_a_condensed_model_is_watched_by_its_scores_alone_where_members_are_gone(
    clf: DWACClassifier, tmp_path: Path
) -> None:
    few = load(clf.condense(20).save(tmp_path / "few"))
    state = Monitor(few).update(people(100, 1))
    assert named(state.notes[0], "representatives")
    assert {each.kind for each in state.detectors} == {"model"}
    assert state.alarm is None


def test_numbers_are_watched_too() -> None:
    X = people(400, 0)
    reg = DWACRegressor(**QUICK, calibration_size=120).fit(X, 10.0 * X["age"])
    monitor = Monitor(reg)
    state = monitor.update(people(150, 1))
    assert state.alarm is None
    assert state.credibility is None
    state = monitor.update(people(200, 2, age=60.0))
    assert state.alarm is not None
    assert any(change.sentence.startswith("predictions: mean") for change in monitor.moved())


def test_texts_are_watched_by_what_they_have() -> None:
    rng = np.random.default_rng(0)
    words = rng.choice(["red", "green", "apple", "pear", "plum"], (240, 4))
    lines = [" ".join(row) for row in words]
    texts = DWACClassifier(**QUICK, calibration_size=80).fit(lines[:200], [line.split()[0] for line in lines[:200]])
    assert {each.name for each in Monitor(texts).update(lines[200:]).detectors} == {
        "typicality", "certainty", "prediction"
    }  # fmt: skip


def test_a_model_without_anything_to_compare_with_is_refused(clf: DWACClassifier) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (60, 6, 6), dtype=np.uint8)
    bare = DWACClassifier(**{**QUICK, "epochs": 1}, calibration_size=0, validation_size=0).fit(images, ["a", "b"] * 30)
    with refuses(CalibrationError, "recalibrate(X, y"):
        Monitor(bare)
    with refuses(InputError, "DWACClassifier"):
        Monitor(DWACClassifier())
    with refuses(InputError, "false_alarms"):
        Monitor(clf, false_alarms=1.5)


# Memory


def test_a_monitor_goes_on_after_a_restart_as_if_never_stopped(
    clf: DWACClassifier, folder: Path, tmp_path: Path
) -> None:
    X, first = people(300, 8), Monitor(clf, ignore=["pay"])
    first.update(X[:170])
    first.save(tmp_path / "state.json")
    kept = json.loads((tmp_path / "state.json").read_text())
    assert kept["state"]["rows"] == 170
    second = Monitor.load(tmp_path / "state.json", load(folder))
    assert second.state == first.state
    first.update(X[170:])
    second.update(X[170:])
    assert second.state.log_peak == pytest.approx(first.state.log_peak, abs=1e-9)
    assert [c.sentence for c in second.moved(0.5)] == [c.sentence for c in first.moved(0.5)]


def test_an_alarm_is_remembered(clf: DWACClassifier, tmp_path: Path) -> None:
    monitor = Monitor(clf)
    monitor.update(people(200, 2, age=60.0))
    monitor.save(tmp_path / "state.json")
    assert Monitor.load(tmp_path / "state.json", clf).alarm == monitor.alarm


def test_the_state_of_another_model_and_damage_are_refused(
    clf: DWACClassifier, crossed: DWACClassifier, tmp_path: Path
) -> None:
    path = tmp_path / "state.json"
    Monitor(clf).save(path)
    with refuses(InputError, "state.json", "another model"):
        Monitor.load(path, crossed)
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, "bets": {**state["bets"], "counts": [[1]]}}))
    with refuses(StorageError, "state.json", "damaged"):
        Monitor.load(path, clf)
    path.write_text("{}")
    with refuses(StorageError, "state.json"):
        Monitor.load(path, clf)


def test_an_edited_model_needs_a_new_monitor(clf: DWACClassifier, folder: Path) -> None:
    edited = load(folder)
    monitor = Monitor(edited)
    monitor.update(people(10, 1))
    edited.references_.remove([edited.references_.ids[0]])
    with refuses(InputError, "Monitor"):
        monitor.update(people(10, 1))
    assert monitor.moved() == []


# Several at once


def test_many_threads_lose_no_row(clf: DWACClassifier) -> None:
    monitor, parts = Monitor(clf), [people(20, seed) for seed in range(6)]
    threads = [threading.Thread(target=monitor.update, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert monitor.state.rows == 120
    assert sum(each.rows for each in monitor.state.history) == 120


def test_several_monitors_of_one_stream_share_the_error_rate(clf: DWACClassifier) -> None:
    alone, halves = Monitor(clf), [Monitor(clf, share=0.5) for _ in range(2)]
    X = people(100, 1)
    alone.update(X[::2])
    for place, half in enumerate(halves):
        half.update(X[place::2])
    assert halves[0].state.log_peak == pytest.approx(alone.state.log_peak - np.log(2))
    found = merge_states([half.state.to_dict() for half in halves])
    assert found["rows"] == 100
    assert found["peak"] == max(half.state.to_dict()["peak"] for half in halves)
    assert found["alarm"] is None
    halves[1].update(people(200, 2, age=60.0))
    found = merge_states([half.state.to_dict() for half in halves])
    assert found["alarm"]["row"] >= 50
    assert found["rows"] == 300
