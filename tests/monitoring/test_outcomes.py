"""Outcomes that arrive later: risk and calibration of every target, by group, few false alarms, and a memory."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta, binom

from dwac import DWACClassifier, DWACRegressor, load
from dwac.conformal.guarantees import coverage_range
from dwac.errors import InputError, ShapeError
from dwac.monitoring import Monitor
from dwac.monitoring.measures import WatchedMean, Yardstick
from dwac.monitoring.outcomes import OutcomeWatch
from tests.chance import RARE
from tests.monitoring.helpers import QUICK, old, people
from tests.named import named, refuses

pytestmark = pytest.mark.usefixtures("few_steps")


def risk_of(state: Any, measure: str, group: str | None = None) -> Any:
    (risk,) = (each for each in state.risks if (each.measure, each.group) == (measure, group))
    return risk


def test_risk_and_calibration_are_those_of_evaluate(clf: DWACClassifier) -> None:
    X, monitor = people(120, 1), Monitor(clf)
    assert monitor.update(X, [f"p{i}" for i in range(120)]).outcomes is None
    order = np.random.default_rng(0).permutation(120)[:90]  # any order, and a part of the rows
    state = monitor.outcomes([f"p{i}" for i in order], old(X)[order], by=X["job"].iloc[order])
    evaluated = clf.evaluate(X.iloc[order], old(X)[order], by="job")
    table = evaluated.groups.to_frame().set_index(["group", "measure"])["value"]
    for group, name in ((None, "all rows"), ("nurse", "nurse"), ("smith", "smith")):
        assert risk_of(state, "error", group).mean == pytest.approx(1 - table[name, "accuracy"])
        assert risk_of(state, "missed", group).mean == pytest.approx(1 - table[name, "coverage"])
        assert risk_of(state, "overconfidence", group).mean == pytest.approx(table[name, "overconfidence"], abs=1e-6)
    assert all(each.low <= each.mean <= each.high for each in state.risks)
    assert (state.n, state.waiting, state.alarm) == (90, 30, None)
    parts = [each for each in state.risks if each.measure.startswith("overconfidence at")]
    assert sum(each.n for each in parts) == 90
    assert {each.by for each in parts} == {None}
    frame = state.to_frame()
    assert len(frame) == len(state.risks)
    assert "no alarm" in str(state)
    assert str(state) in str(monitor.state)


def test_calls_make_no_difference(clf: DWACClassifier) -> None:
    X, whole, parts = people(60, 4), Monitor(clf), Monitor(clf)
    whole.update(X)
    parts.update(X)
    for row in range(40, -1, -20):
        state = parts.outcomes(range(row, row + 20), old(X)[row : row + 20], by=X["job"][row : row + 20])
    expected = whole.outcomes(range(60), old(X))
    for each in expected.risks:
        risk = risk_of(state, each.measure)
        assert (risk.n, risk.low, risk.high, risk.allowed) == (each.n, each.low, each.high, each.allowed)
        assert risk.mean == pytest.approx(each.mean)


def test_an_alarm_is_raised_where_the_risk_exceeds_what_was_expected(clf: DWACClassifier) -> None:
    X = people(400, 2)
    y = np.where((X["job"] == "nurse") & (np.arange(400) % 3 > 0), np.where(old(X) == "old", "young", "old"), old(X))
    monitor = Monitor(clf)
    monitor.update(X)
    state = monitor.outcomes(range(400), y, by={"job": X["job"]})
    alarm = state.alarm
    assert monitor.alarm is None  # the rows are as before
    assert alarm is not None
    assert alarm.risk.exceeded
    assert named(state, "ALARM", "outcomes", alarm.risk.measure)
    exceeded = {each.group for each in state.risks if each.measure == "error" and each.exceeded}
    assert "nurse" in exceeded
    assert "clerk" not in exceeded
    assert monitor.outcomes([], []).alarm == alarm
    monitor.reset()
    assert monitor.state.outcomes is None


def test_levels_of_ones_own_replace_those_of_the_calibration_rows(clf: DWACClassifier) -> None:
    X, monitor = people(300, 2), Monitor(clf, levels={"error": 0.01, "overconfidence": 0.5})
    monitor.update(X)
    state = monitor.outcomes(range(300), np.where(np.arange(300) % 8 == 0, "nobody", old(X)))  # a label never seen
    assert risk_of(state, "error").allowed == (None, pytest.approx(0.01))
    assert risk_of(state, "overconfidence").allowed == (pytest.approx(-0.5), pytest.approx(0.5))
    assert state.alarm is not None
    with refuses(InputError, "levels", "erorr", "error"):
        Monitor(clf, levels={"erorr": 0.1})


def test_each_prediction_has_one_outcome_and_unknown_ids_are_counted(clf: DWACClassifier) -> None:
    X, monitor = people(20, 3), Monitor(clf)
    bad = X.astype({"age": object})
    bad.loc[3, "age"] = "?"
    monitor.update(bad, list("abcdefghijklmnopqrst"))
    monitor.outcomes(["a", "b"], ["old", "old"])
    for ids in (["c", "b"], ["c", "c"]):
        with refuses(InputError, repr(ids[1]), "one outcome"):
            monitor.outcomes(ids, ["old", "old"])
    state = monitor.outcomes(["c", "d", "z"], ["old"] * 3)  # d was unreadable, z is nobody
    assert (state.n, state.unmatched, state.waiting) == (3, 2, 16)
    monitor.update(X[:1], ["a"])  # predicted anew
    assert monitor.outcomes(["a"], ["old"]).n == 4
    with refuses(ShapeError, "by", "2", "1"):
        monitor.outcomes(["e", "f"], ["old", "old"], by=["north"])


def test_memory_is_bounded_and_the_oldest_predictions_are_forgotten(clf: DWACClassifier) -> None:
    X, monitor = people(50, 3), Monitor(clf, remember=30)
    monitor.update(X[:25])
    monitor.update(X[25:])
    state = monitor.outcomes(range(50), old(X))
    assert (state.n, state.unmatched) == (30, 20)
    kept = Monitor(clf, remember=0)
    kept.update(X[:5])
    assert kept.outcomes(range(5), old(X[:5])).unmatched == 5


def test_outcomes_go_on_after_a_restart_and_older_files_load(clf: DWACClassifier, folder: Path, tmp_path: Path) -> None:
    X, first, path = people(80, 3), Monitor(clf, levels={"error": 0.2}, remember=70), tmp_path / "state.json"
    first.update(X, [float(row) for row in range(80)])
    first.outcomes(range(10, 40), old(X)[10:40], by={"member": X["member"][10:40]})
    first.save(path)
    second = Monitor.load(path, load(folder))
    assert second.state.outcomes == first.state.outcomes
    with refuses(InputError, "12", "one outcome"):
        second.outcomes([12], ["old"])
    for monitor in (first, second):
        monitor.outcomes(range(40, 80), old(X)[40:], by={"job": X["job"][40:]})
    assert second.state.outcomes == first.state.outcomes
    state = json.loads(path.read_text())
    for name in ("outcomes", "remember", "epsilon", "levels"):
        del state[name]
    del state["bets"]["kept"]
    path.write_text(json.dumps({**state, "format": 1}))
    older = Monitor.load(path, clf)
    assert older.state.rows == 80
    assert older.outcomes([1], ["old"]).unmatched == 1


def test_a_private_monitor_keeps_neither_ids_nor_exact_numbers(clf: DWACClassifier, tmp_path: Path) -> None:
    monitor = Monitor(clf, private=True)
    monitor.update(people(5, 3), [f"patient-{i}" for i in range(5)])
    monitor.save(tmp_path / "state.json")
    text = (tmp_path / "state.json").read_text()
    assert "patient" not in text
    for forecast in json.loads(text)["outcomes"]["known"].values():
        assert round(forecast[1], 2) == forecast[1]


# Every kind of target


def test_numbers_have_errors_bias_and_misses_in_their_units() -> None:
    X = people(400, 0)
    y = pd.DataFrame({"weeks": 10.0 * X["age"], "days": 70.0 * X["age"]})
    reg = DWACRegressor(**QUICK, calibration_size=120).fit(X, y)
    new, monitor = people(100, 1), Monitor(reg, epsilon=0.1)
    monitor.update(new)
    truth = pd.DataFrame({"weeks": 10.0 * new["age"], "days": 70.0 * new["age"]})
    state = monitor.outcomes(range(100), truth)
    by_number = reg.evaluate(new, truth, epsilon=0.1).by_number.set_index("number")
    for name in ("weeks", "days"):
        risk = risk_of(state, f"absolute error of {name}")
        assert risk.mean == pytest.approx(by_number.loc[name, "mae"], rel=0.05)  # rare large errors are cut
        assert risk.low <= risk.mean <= risk.high
        assert risk_of(state, f"missed of {name}").mean == pytest.approx(1 - by_number.loc[name, "coverage"])
        least, most = risk_of(state, f"bias of {name}").allowed
        assert least < 0 < most
    assert state.alarm is None
    monitor.update(people(200, 2), [f"n{i}" for i in range(200)])
    later = people(200, 2)
    state = monitor.outcomes(
        [f"n{i}" for i in range(200)], pd.DataFrame({"weeks": 10 * later["age"] + 150, "days": 70 * later["age"]})
    )
    assert state.alarm is not None
    assert state.alarm.risk.measure.endswith("of weeks")


def traits(X: pd.DataFrame) -> list[list[str]]:
    """Two labels per row."""
    return [[str(age), str(job)] for age, job in zip(old(X), X["job"], strict=True)]


def test_ordered_labels_have_a_distance_and_several_labels_shares() -> None:
    X = people(300, 0)
    grades = pd.Series(pd.cut(X["age"], [-99, 33, 45, 999], labels=["low", "mid", "high"], ordered=True))
    ordered = DWACClassifier(**QUICK, calibration_size=100).fit(X, grades)
    monitor = Monitor(ordered)
    monitor.update(X[:50])
    state = monitor.outcomes(range(50), grades[:50].astype(str))
    wrong = ordered.predict(X[:50]) != grades[:50].astype(str)
    assert risk_of(state, "error").mean == pytest.approx(wrong.mean())
    assert risk_of(state, "distance").mean >= risk_of(state, "error").mean
    new = people(80, 3)
    several = DWACClassifier(**QUICK, calibration_size=100).fit(X, traits(X))
    monitor, truth = Monitor(several), traits(new)
    monitor.update(new)
    state, evaluated = monitor.outcomes(range(80), truth), several.evaluate(new, truth, epsilon=0.2)
    assert risk_of(state, "wrong labels").mean == pytest.approx(evaluated.hamming_loss)
    assert risk_of(state, "missed").n == 80


# Guarantees


def false_alarms(clf: Any, alpha: float, times: int, n: int, rows: int, calls: int) -> int:
    """How many of so many watches raise an alarm, whose calibration rows and outcomes have the same law."""
    rng, raised = np.random.default_rng(0), 0
    measures = [
        WatchedMean("error"),
        WatchedMean("missed", promised=0.1),
        WatchedMean("gap", (-1.0, 1.0), two_sided=True),
    ]
    for _ in range(times):
        scores, new = rng.random(n), rng.random(rows)
        cut = np.sort(scores)[int(np.ceil(0.9 * (n + 1))) - 1]  # as of prediction sets that miss 10 %
        p = rng.beta(5, 1, n + rows)
        gap = p - (rng.random(n + rows) < p)
        values = np.column_stack([rng.random(n + rows) < 0.15, np.append(np.zeros(n), new > cut), gap]).astype(float)
        watch = OutcomeWatch(clf, alpha, 0, 0.1, {}, private=False)
        watch.__dict__["_yardstick"] = Yardstick(measures, lambda *_: np.zeros((0, 3)), values[:n])
        group = rng.integers(0, 3, rows)
        for part in np.array_split(np.arange(n, n + rows), calls):
            watch._open_accounts({("group", str(each)) for each in group[part - n]})
            watch._count((None, None), values[part], 0.0)
            for each in range(3):
                watch._count(("group", str(each)), values[part][group[part - n] == each], 0.0)
        raised += watch.state().alarm is not None
    return raised


def test_the_level_of_misses_is_the_coverage_that_sets_are_expected_to_have(
    clf: DWACClassifier, crossed: DWACClassifier
) -> None:
    missed = WatchedMean("missed", promised=0.1)
    for model in (clf, crossed):
        watch = OutcomeWatch(model, 0.1, 0, 0.1, {}, private=False)
        watch.__dict__["_yardstick"] = Yardstick([missed], lambda *_: np.zeros((0, 1)), np.zeros((99, 1)))
        low, _ = coverage_range(0.1, 99, crossed=model.cross_fitted_)
        assert watch._allowed[0][1] == pytest.approx(1 - low)


def test_after_calibrate_for_calibration_rows_count_as_fewer_in_the_level_of_misses(crossed: DWACClassifier) -> None:
    missed = WatchedMean("missed", promised=0.1)
    X = people(300, 5)
    moved = crossed.calibrate_for(X[X["age"] > X["age"].median()])
    watch = OutcomeWatch(moved, 0.1, 0, 0.1, {}, private=False)
    assert moved.shift_ is not None
    n = int(moved.shift_.effective_size)
    assert n < moved.shift_.n_calibration
    watch.__dict__["_yardstick"] = Yardstick([missed], lambda *_: np.zeros((0, 1)), np.zeros((999, 1)))
    assert watch._allowed[0][1] == pytest.approx(beta.isf(0.05, 0.1 * (n + 1) / 3, 0.9 * (n + 1) / 3))


def test_false_alarms_of_outcomes_are_rare_though_calibration_rows_are_few(clf: DWACClassifier) -> None:
    assert false_alarms(clf, 0.02, 20, 60, 300, 4) <= binom.isf(RARE, 20, 0.02)


@pytest.mark.slow
def test_false_alarms_of_outcomes_are_rare_in_long_streams(clf: DWACClassifier) -> None:
    assert false_alarms(clf, 0.05, 150, 100, 4000, 20) <= binom.isf(RARE, 150, 0.05)
