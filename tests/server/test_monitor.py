"""The monitor of the service: fed by predictions alone, shown to whoever asks, and never in the way of an answer."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dwac import DWACClassifier, load
from dwac.errors import InputError
from dwac.monitoring import Monitor
from dwac.server import create_app
from dwac.server.limits import RefusalError
from dwac.server.watch import AskOutcomes, Metrics, Watch, prepare_folder
from tests.named import named, refuses
from tests.server.client import TOKEN, Client, served
from tests.server.data import fitted, pixels, watched, watched_rows


@pytest.fixture
def client(watched_model: DWACClassifier) -> Iterator[Client]:
    with served(create_app(watched_model)) as asked:
        yield asked


def test_the_monitor_of_the_service_is_that_of_python(client: Client, watched_model: DWACClassifier) -> None:
    assert client.get("/v1/monitor").json["rows"] == 0  # the example that warms up is nobody's row
    X, rows, monitor = watched(90, 1), watched_rows(90, 1), Monitor(watched_model)
    for start in range(0, 90, 30):
        client.post("/v1/predict" if start else "/v1/sets", {"rows": rows[start : start + 30]})
    monitor.update(X)  # the service, too, observes the rows of several requests together
    client.post("/v1/explain", {"rows": rows[:3]})
    found, state = client.get("/v1/monitor").json, monitor.state.to_dict()
    for name in ("rows", "unreadable", "evidence", "peak", "typicality", "credibility", "detectors", "alarm"):
        assert found[name] == state[name], name
    assert found["workers"] == 1


def test_an_alarm_names_what_moved_in_monitor_metrics_and_log(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    assert "dwac_monitor_rows" not in client.get("/v1/metrics").body.decode()
    with caplog.at_level(logging.WARNING, "dwac.server"):
        client.post("/v1/predict", {"rows": watched_rows(200, 2, age=60.0)})
    found = client.get("/v1/monitor").json
    assert found["alarm"]["by"] in {each["name"] for each in found["detectors"]}
    assert any(named(each["sentence"], "age", "mean") for each in found["alarm"]["moved"])
    assert found["p_value"] <= 0.01
    metrics = client.get("/v1/metrics").body.decode()
    assert "\ndwac_monitor_alarm 1\n" in metrics
    assert "\ndwac_monitor_rows 200\n" in metrics
    assert "ALARM" in caplog.text


def test_a_private_service_tells_nothing_of_training_rows(watched_model: DWACClassifier) -> None:
    with served(create_app(watched_model, private=True)) as client:
        client.post("/v1/predict", {"rows": watched_rows(200, 2, age=60.0)})
        found = client.get("/v1/monitor").json
    assert {each["kind"] for each in found["detectors"]} == {"model"}
    assert {each["kind"] for each in found["alarm"]["moved"]} <= {"group", "prediction"}
    assert not any(word in json.dumps(found["alarm"]) for word in ("age", "nurse"))
    assert found["typicality"] == round(found["typicality"], 2)


def test_rows_that_cannot_be_read_are_counted(client: Client) -> None:
    answer = client.post("/v1/predict", {"rows": [*watched_rows(5, 1), {"age": "?"}]})
    assert answer.status == 200
    found = client.get("/v1/monitor").json
    assert (found["rows"], found["unreadable"]) == (6, 1)


def test_a_number_in_a_column_of_truth_values_is_unreadable_and_the_monitor_goes_on(client: Client) -> None:
    rows = watched_rows(60, 1)
    answer = client.post("/v1/predict", {"rows": [{**row, "member": -5} for row in rows]}).json["predictions"]
    assert all("member" in each["unreadable"] and "-5" in each["unreadable"] for each in answer)
    client.post("/v1/predict", {"rows": [{**row, "member": int(row["member"])} for row in rows]})
    found = client.get("/v1/monitor").json
    assert (found["rows"], found["unreadable"]) == (120, 60)
    assert found["alarm"]["since"] is None


def test_numbers_beyond_all_bounds_do_not_stop_the_monitor(client: Client) -> None:
    rows = [{"age": 1e308, "pay": -1e308, "job": "\x00", "member": None}] * 3
    assert client.post("/v1/predict", {"rows": rows}).status == 200
    assert client.get("/v1/monitor").json["rows"] == 3


def test_a_monitor_needs_the_token_and_can_be_left_out(watched_model: DWACClassifier) -> None:
    with served(
        create_app(watched_model, token=TOKEN, watch=Watch(watched_model, private=False, monitored=False))
    ) as client:
        assert client.get("/v1/monitor").status == 401
        right = {"authorization": f"Bearer {TOKEN}"}
        assert client.ask("POST", "/v1/predict", {"rows": watched_rows(3, 1)}, right).status == 200
        answer = client.ask("GET", "/v1/monitor", None, right)
        assert (answer.status, answer.code) == (409, "not_available")


def test_a_model_with_nothing_to_compare_with_is_served_without_a_monitor() -> None:
    bare = fitted(pixels(40), ["light", "dark"] * 20, epochs=1, calibration_size=0, validation_size=0)
    with served(create_app(bare)) as client:
        assert client.post("/v1/predict", {"rows": pixels(1).tolist()}).status == 200
        answer = client.get("/v1/monitor")
        assert (answer.status, answer.code) == (409, "not_available")
        assert "recalibrate" in answer.json["error"]["message"]


def test_a_monitor_that_fails_does_not_stop_predictions(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Monitor, "observe_all", fail)
    assert client.post("/v1/predict", {"rows": watched_rows(3, 1)}).status == 200
    assert client.get("/v1/monitor").status == 409
    assert named(caplog.text, "monitor", "RuntimeError: broken")
    assert client.post("/v1/predict", {"rows": watched_rows(3, 1)}).status == 200


# Files and workers


def test_a_restarted_service_goes_on(watched_model: DWACClassifier, tmp_path: Path) -> None:
    for rows in (40, 80):
        with served(create_app(watched_model, watch=Watch(watched_model, private=False, folder=tmp_path))) as client:
            client.post("/v1/predict", {"rows": watched_rows(40, rows)})
            assert client.get("/v1/monitor").json["rows"] == rows
    assert [path.name for path in tmp_path.iterdir()] == ["monitor-0-of-1.json"]
    with refuses(InputError, "--ignore", "folder"):
        Watch(watched_model, private=False, folder=tmp_path, ignore=["age"]).begin()


def test_workers_add_up_what_they_see(watched_model: DWACClassifier, tmp_path: Path) -> None:
    first, second = (
        Watch(watched_model, private=False, folder=tmp_path, counters=tmp_path, worker=worker, workers=2)
        for worker in (0, 1)
    )
    counted = Metrics(["/v1/predict"])
    counted.request("/v1/predict", 200, 0.002)
    counted.batch_rows.add(7)
    for place, watch in enumerate((first, second)):
        watch.begin().update(watched(30 + place, place))
        watch.write(counted)
    assert first.answer()["rows"] == second.answer()["rows"] == 61
    assert first.answer()["workers"] == 2
    assert first.gauges()["monitor_rows"] == 61
    text = counted.plus(first.other_metrics()).text()
    assert 'dwac_requests_total{path="/v1/predict",status="200"} 2' in text
    assert "dwac_batch_rows_sum 14" in text
    assert counted.requests["/v1/predict", 200] == 1  # what is shown is not counted again
    with refuses(InputError, tmp_path, 2, "--workers"):
        prepare_folder(tmp_path, 3)
    prepare_folder(tmp_path / "new" / "one", 3)
    assert (tmp_path / "new" / "one").is_dir()


def test_outcomes_of_recorded_decisions_are_watched(watched_model: DWACClassifier, tmp_path: Path) -> None:
    model = load(watched_model.save(tmp_path / "model"))
    record, folder = str(tmp_path / "record"), tmp_path / "monitor"
    folder.mkdir()
    X = watched(150, 1)
    with served(create_app(model, record=record, watch=Watch(model, private=False, folder=folder))) as client:
        answer = client.post("/v1/predict", {"rows": [*watched_rows(150, 1), {"age": "?"}]}).json
        names, labels = answer["decisions"], [each["label"] for each in answer["predictions"]]
        assert names[150] is None
        known = [
            {"decision": name, "outcome": label, "groups": {"job": job}}
            for name, label, job in zip(names[:100], labels[:100], X["job"][:100], strict=True)
        ]
        answer = client.post("/v1/outcomes", {"outcomes": [*known, {"decision": "nobody", "outcome": "old"}]}).json
        assert answer == {"taken": 100, "unmatched": 1, "alarm": None}
        state = client.get("/v1/monitor").json["outcomes"]
        assert (state["n"], state["waiting"], state["unmatched"]) == (100, 50, 1)
        assert {each["mean"] for each in state["risks"] if each["measure"] == "error"} == {0.0}
        assert {each["group"] for each in state["risks"]} == {None, *X["job"]}
        again = client.post("/v1/outcomes", {"outcomes": known[:1]})
        assert (again.status, "one outcome" in again.json["error"]["message"]) == (422, True)
        wrongs = [{"decision": name, "outcome": "nobody"} for name in names[100:150]]
        assert client.post("/v1/outcomes", {"outcomes": wrongs}).json["alarm"] is not None
        assert "\ndwac_monitor_outcome_alarm 1\n" in client.get("/v1/metrics").body.decode()
        assert client.post("/v1/outcomes", {"outcomes": []}).status == 422
    with refuses(RefusalError, "--workers 1"):
        Watch(model, private=False, workers=2).outcomes(AskOutcomes.model_validate({"outcomes": known[:1]}))
    restarted = Watch(model, private=False, folder=folder).begin()
    assert restarted.state.outcomes is not None
    assert restarted.state.outcomes.n == 150


def test_a_service_without_a_record_takes_no_outcomes(client: Client) -> None:
    assert client.post("/v1/outcomes", {"outcomes": [{"decision": "a", "outcome": "old"}]}).status == 404
