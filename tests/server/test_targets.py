"""The service for numbers, several labels and ordered labels: the numbers of Python, and a schema that is right."""

import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dwac import DWACClassifier, DWACRegressor, load
from dwac.server import Limits, create_app
from tests.named import named
from tests.server.client import Client, served, until
from tests.server.data import PAID, QUICK, SIZES, TAGS

NEW = SIZES[240:]


def asked(n: int, start: int = 0) -> list[Any]:
    return json.loads(NEW[start : start + n].to_json(orient="records"))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def client(numbers: DWACRegressor) -> Iterator[Client]:
    with served(create_app(numbers)) as found:
        yield found


@pytest.fixture(scope="module")
def tagging(tags: DWACClassifier) -> Iterator[Client]:
    with served(create_app(tags)) as found:
        yield found


# Numbers


def test_numbers_intervals_and_quantiles_are_those_of_python(client: Client, numbers: DWACRegressor) -> None:
    body = {"rows": asked(6), "epsilon": 0.2, "quantiles": [0.25, 0.5]}
    answer = client.post("/v1/predict", body).json
    assert (answer["epsilon"], answer["note"]) == (0.2, None)
    rows = answer["predictions"]
    X = NEW[:6]
    assert [row["prediction"] for row in rows] == pytest.approx(numbers.predict(X))
    ends = [[row["interval"]["lower"], row["interval"]["upper"]] for row in rows]
    assert ends == numbers.predict_interval(X, 0.2).tolist()
    assert [list(row["quantiles"].values()) for row in rows] == numbers.predict_quantiles(X, [0.25, 0.5]).tolist()
    assert list(rows[0]["quantiles"]) == ["0.25", "0.5"]
    assert [row["typicality"] for row in rows] == pytest.approx(numbers.typicality(X))


def test_a_number_is_explained_as_in_python(client: Client, numbers: DWACRegressor) -> None:
    answers = client.post("/v1/explain", {"rows": asked(2), "k": 3, "epsilon": 0.3}).json["explanations"]
    wanted = [e.to_dict() for e in numbers.explain(NEW[:2], k=3, epsilon=0.3)]
    for answer, one in zip(answers, json.loads(json.dumps(wanted)), strict=True):
        assert answer["record"].pop("age") == one["record"].pop("age")
        assert {**answer, "record": 0} == {**one, "record": 0}
    assert answers[0]["neighbors"][0]["label"] in PAID.to_numpy()
    assert answers[0]["epsilon"] == 0.3


def test_the_card_and_the_schema_of_numbers_say_that_they_are(client: Client, numbers: DWACRegressor) -> None:
    card, described = client.get("/v1/model").json, client.get("/openapi.json").json
    assert card["task"] == "numbers"
    assert card["n_references"] == len(numbers.references_)
    assert "classes" not in card
    assert "/v1/sets" not in described["paths"]
    assert client.post("/v1/sets", {"rows": asked(1)}).code == "not_found"
    names = set(described["components"]["schemas"])
    assert {"NumberPredictions", "NumberPrediction", "NumberExplanations", "NumberCard", "Interval"} <= names
    assert not names & {"Prediction", "LabelsPrediction", "NumbersPrediction"}


def test_an_epsilon_too_small_to_bound_a_number_gives_an_unbounded_interval_and_a_note(client: Client) -> None:
    answer = client.post("/v1/predict", {"rows": asked(1), "epsilon": 1e-4}).json
    assert answer["predictions"][0]["interval"] == {"lower": None, "upper": None}
    assert named(answer["note"], 9999, 60)
    (why,) = client.post("/v1/explain", {"rows": asked(1), "epsilon": 1e-4}).json["explanations"]
    assert why["interval"] == [None, None]


def test_a_row_that_cannot_be_read_gets_no_number_and_changes_no_other(client: Client) -> None:
    good = asked(2)
    both = client.post("/v1/predict", {"rows": [good[0], {**good[1], "age": "old"}, good[1]]}).json["predictions"]
    alone = [client.post("/v1/predict", {"rows": [row]}).json["predictions"][0] for row in good]
    assert [both[0]["prediction"], both[2]["prediction"]] == pytest.approx([row["prediction"] for row in alone])
    assert named(both[1]["unreadable"], "'age'", "'old'")
    assert (both[1]["typicality"], both[1]["interval"], both[1]["prediction"]) == (None, None, None)
    strict = client.post("/v1/predict", {"rows": [{**good[1], "age": "old"}], "strict": True})
    assert (strict.status, strict.code) == (422, "invalid_input")


@pytest.mark.parametrize("body", [{"quantiles": [1.5]}, {"quantiles": [0.5] * 100}, {"epsilon": 0}, {"levels": [0.5]}])
def test_what_cannot_be_asked_of_numbers_is_refused(client: Client, body: dict[str, Any]) -> None:
    refused = client.post("/v1/predict", {"rows": asked(1), **body})
    assert (refused.status, refused.code) == (422, "invalid_request")


def test_requests_at_several_epsilons_that_arrive_together_each_get_their_own(numbers: DWACRegressor) -> None:
    bodies = [{"rows": asked(1, i), "epsilon": 0.1 + 0.1 * (i % 3)} for i in range(12)]
    with served(create_app(numbers, limits=Limits(gather_seconds=1))) as client, ThreadPoolExecutor(12) as pool:
        asking = [pool.submit(client.post, "/v1/predict", body) for body in bodies]
        until(lambda: "dwac_waiting_requests 12" in client.get("/v1/metrics").body.decode())
        client.skip(1)
        answers = [each.result().json["predictions"][0] for each in asking]
        calls = client.get("/v1/metrics").body.decode()
    for i, answer in enumerate(answers):
        low, high = numbers.predict_interval(NEW[i : i + 1], 0.1 + 0.1 * (i % 3))[0]
        assert answer["interval"] == {"lower": low, "upper": high}
    assert int(calls.partition("dwac_batch_rows_count ")[2].split()[0]) == 2  # the first, then one for all ε


def test_several_numbers_are_answered_by_name(two_numbers: DWACRegressor) -> None:
    with served(create_app(two_numbers)) as client:
        rows = client.post("/v1/predict", {"rows": asked(3), "quantiles": [0.5]}).json["predictions"]
        (why,) = client.post("/v1/explain", {"rows": asked(1)}).json["explanations"]
        names = set(client.get("/openapi.json").json["components"]["schemas"])
        assert client.get("/v1/model").json["numbers"] == ["pay", "months"]
    assert {"NumbersPrediction", "WhyNumbers"} <= names
    found = [[row["numbers"][name]["prediction"] for name in ("pay", "months")] for row in rows]
    np.testing.assert_allclose(found, two_numbers.predict(NEW[:3]))
    intervals = two_numbers.predict_interval(NEW[:3])
    assert rows[0]["numbers"]["months"]["interval"] == dict(zip(("lower", "upper"), intervals[0, 1], strict=True))
    assert why["prediction"] == pytest.approx(found[0])


@pytest.mark.parametrize("way", ["asked", "saved without examples"])
def test_a_private_service_of_numbers_rounds_them_and_shows_nobody(
    numbers: DWACRegressor, way: str, tmp_path: Path
) -> None:
    model: Any = numbers
    if way != "asked":
        model = load(numbers.save(tmp_path / "bare", include_examples=False), device="cpu")
    with served(create_app(model, private=True if way == "asked" else None)) as client:
        rows = client.post("/v1/predict", {"rows": asked(8), "quantiles": [0.5]}).json["predictions"]
        (why,) = client.post("/v1/explain", {"rows": asked(1)}).json["explanations"]
    assert (why["neighbors"], why["groups"], why["influential"], why["quantiles"]) == ([], [], [], None)
    exact, ends = numbers.predict(NEW[:8]), numbers.predict_interval(NEW[:8])
    assert [row["prediction"] for row in rows] != exact.tolist()
    for row, (low, high) in zip(rows, ends, strict=True):
        assert row["interval"]["lower"] <= low  # outwards: so it still holds the true number
        assert row["interval"]["upper"] >= high
        assert row["typicality"] in (*np.round(np.arange(11) / 100, 2), 1.0)
    assert not any("person" in json.dumps(part) for part in (rows, {**why, "record": None}))


def test_numbers_without_calibration_have_no_interval() -> None:
    model = DWACRegressor(**QUICK, validation_size=0, calibration_size=0).fit(SIZES[:100], PAID[:100])
    with served(create_app(model)) as client:
        (row,) = client.post("/v1/predict", {"rows": asked(1)}).json["predictions"]
    assert (row["interval"], row["typicality"]) == (None, None)
    assert math.isfinite(row["prediction"])


# Several labels


@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_labels_probabilities_decisions_and_sets_are_those_of_python(tagging: Client, tags: DWACClassifier) -> None:
    answer = tagging.post("/v1/predict", {"rows": asked(9), "epsilon": 0.1}).json
    X, trust = NEW[:9], tags.conformal(NEW[:9])
    rows = answer["predictions"]
    assert [list(row["probabilities"].values()) for row in rows] == tags.predict_proba(X).tolist()
    assert [[int(name in row["labels"]) for name in TAGS] for row in rows] == tags.predict(X).tolist()
    told = {1: "yes", 0: "no", -1: "undecided"}
    wanted = [[told[code] for code in row] for row in trust.decisions(0.1).tolist()]
    assert [list(row["decisions"].values()) for row in rows] == wanted
    sets = tags.predict_set(X, 0.1)
    assert [[name in row["label_set"] for name in TAGS] for row in rows] == sets.tolist()
    assert [row["typicality"] for row in rows] == trust.typicality.tolist()
    detail = tagging.post("/v1/sets", {"rows": asked(9), "epsilon": 0.1}).json["sets"]
    assert [list(row["p_yes"].values()) for row in detail] == trust.p_yes.tolist()
    assert [list(row["p_no"].values()) for row in detail] == trust.p_no.tolist()
    assert [row["decisions"] for row in detail] == [row["decisions"] for row in rows]


def test_the_labels_asked_for_are_explained_as_in_python(tagging: Client, tags: DWACClassifier) -> None:
    (why,) = tagging.post("/v1/explain", {"rows": asked(1), "k": 2, "labels": ["smith", "old"]}).json["explanations"]
    wanted = tags.explain(NEW[:1], k=2)[0]
    assert list(why["explanations"]) == ["smith", "old"]
    assert why["labels"] == list(wanted.labels)
    assert why["probabilities"] == wanted.probabilities
    one = json.loads(json.dumps(wanted["smith"].to_dict()))
    assert why["explanations"]["smith"]["neighbors"] == one["neighbors"]
    assert why["explanations"]["smith"]["p_values"] == one["p_values"]
    usual = tagging.post("/v1/explain", {"rows": asked(4)}).json["explanations"]
    assert all(list(each["explanations"]) == each["labels"] or len(each["explanations"]) == 1 for each in usual)
    refused = tagging.post("/v1/explain", {"rows": asked(1), "labels": ["pilot"]})
    assert (refused.status, refused.code) == (422, "invalid_request")


def test_the_card_and_the_schema_of_several_labels_say_that_they_are(tagging: Client) -> None:
    card, names = tagging.get("/v1/model").json, set(tagging.get("/openapi.json").json["components"]["schemas"])
    assert (card["task"], card["labels"]) == ("labels", list(TAGS))
    assert {"LabelsPredictions", "LabelsSets", "LabelsExplanations", "LabelsCard"} <= names
    assert "NumberPrediction" not in names


def test_an_unreadable_row_has_no_decision_on_any_label(tagging: Client) -> None:
    bad, good = tagging.post("/v1/predict", {"rows": [7, asked(1)[0]]}).json["predictions"]
    assert named(bad.pop("unreadable"), "object", "number")
    assert set(bad.values()) == {None}
    assert good["unreadable"] is None


def test_a_private_service_of_several_labels_shows_whole_per_cent_and_nobody(tags: DWACClassifier) -> None:
    with served(create_app(tags, private=True)) as client:
        rows = client.post("/v1/predict", {"rows": asked(8)}).json["predictions"]
        (why,) = client.post("/v1/explain", {"rows": asked(1), "labels": list(TAGS)}).json["explanations"]
    shares = np.array([list(row["probabilities"].values()) for row in rows])
    assert np.allclose(shares * 100, np.round(shares * 100))
    assert np.abs(shares - tags.predict_proba(NEW[:8])).max() <= 0.01
    for label in TAGS:
        assert {tuple(voter) for voter in why["explanations"][label]["neighbors"]} == {("label", "share")}
    assert "person" not in json.dumps({**why, "record": None})


# Ordered labels


@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_sets_of_ordered_labels_have_no_gaps_and_classes_keep_their_order(ordered: DWACClassifier) -> None:
    names = ["young", "adult", "older", "ancient"]
    with served(create_app(ordered)) as client:
        card = client.get("/v1/model").json
        rows = client.post("/v1/predict", {"rows": asked(30), "epsilon": 0.1}).json["predictions"]
    assert (card["task"], card["classes"]) == ("ordered", names)
    wanted = ordered.predict_set(NEW[:30], 0.1)
    assert [[name in row["label_set"] for name in names] for row in rows] == wanted.tolist()
    for row in rows:
        places = [names.index(name) for name in row["label_set"]]
        assert places == list(range(places[0], places[0] + len(places))) if places else True
