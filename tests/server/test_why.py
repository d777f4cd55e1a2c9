"""Reasons and recourse of the service: those of Python, for every target, within limits, and private if need be."""

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from dwac import DWACClassifier, DWACRegressor, load
from dwac.server import Limits, create_app
from dwac.server.answers import ExplainJob
from tests.named import named
from tests.server.client import Client, served
from tests.server.data import PEOPLE, SIZES

NEW = SIZES[240:]


def asked(X: pd.DataFrame) -> list[Any]:
    return json.loads(X.to_json(orient="records", date_format="iso"))  # type: ignore[no-any-return]


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value.to_dict()))


@pytest.fixture(scope="module")
def client(table: DWACClassifier) -> Iterator[Client]:
    with served(create_app(table)) as found:
        yield found


@pytest.fixture
def rows(table: DWACClassifier) -> pd.DataFrame:
    """A young and an old person."""
    label = table.predict(PEOPLE[200:]).tolist()
    return PEOPLE[200:].iloc[[label.index("young"), label.index("old")]]


def test_reasons_are_given_on_request_against_a_label_a_training_example_or_the_next(
    client: Client, table: DWACClassifier, rows: pd.DataFrame
) -> None:
    def ask(**options: Any) -> list[Any]:
        return client.post("/v1/explain", {"rows": asked(rows), **options}).json["explanations"]  # type: ignore[no-any-return]

    young, old = table.explain(rows)
    assert all("reasons" not in answer for answer in ask())
    first = as_json(young.reasons())
    given = ask(reasons=True)[0]["reasons"]
    assert given["total"] == pytest.approx(first["total"], abs=1e-6)
    assert [part["column"] for part in given["contributions"]] == [part["column"] for part in first["contributions"]]
    assert given["precedents"] == first["precedents"]
    assert [answer["reasons"] is None for answer in ask(against="young")] == [True, False]
    precedent = old.reasons().precedent
    assert precedent is not None
    own = ask(against=precedent.id)[1]["reasons"]["precedents"]
    assert [each["id"] for each in own] == [precedent.id]
    assert ask(example=precedent.id)[1]["reasons"]["precedents"] == own
    assert {len(answer["reasons"]["precedents"]) for answer in ask(precedents=3)} == {3}
    assert ask(precedents="random")[0]["reasons"]["total"] == pytest.approx(young.reasons(precedents="random").total)


def test_recourse_keeps_to_columns_numbers_and_dates(client: Client, table: DWACClassifier, rows: pd.DataFrame) -> None:
    def ask(**options: Any) -> list[Any]:
        answer = client.post("/v1/recourse", {"rows": [*asked(rows), 7], "label": "old", **options})
        return answer.json["recourse"]  # type: ignore[no-any-return]

    young, old, unreadable = ask(frozen=["pay"], bounds={"age": [None, 60], "since": ["2020-06-01", "2021-06-01"]})
    assert (old["reached"], old["ways"], unreadable["ways"]) == (True, [], [])
    assert named(unreadable["unreadable"], "object")
    assert young["ways"]
    for way in young["ways"]:
        changed = {change["column"]: change["to"] for change in way["changes"]}
        assert "pay" not in changed
        assert changed.get("age", 0) <= 60
        assert "2020-06-01" <= changed.get("since", "2021")[:10] <= "2021-06-01"
        assert table.predict(pd.DataFrame([way["record"]])).tolist() == ["old"]
    tied: Any = {"tied": [["age", "job"]], "least": True, "k": 1}
    (shortest,) = as_json(table.recourse(rows[:1], "old", **tied)[0])["ways"]
    assert [way["changes"] for way in ask(**tied)[0]["ways"]] == [shortest["changes"]]
    assert shortest["shortened"]
    none = ask(only=["job"])[0]
    assert (none["ways"], none["obstacle"]) == ([], ["age"])


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("explain", {"against": "nobody7"}, ["against", "nobody7"]),
        ("explain", {"precedents": 6}, ["precedents", 5, 6]),
        ("explain", {"rows": 9, "reasons": True}, ["rows", 8, 9]),
        ("recourse", {}, ["label"]),
        ("recourse", {"label": "wise"}, ["label", "wise", "old"]),
        ("recourse", {"label": "old", "frozen": ["aeg"]}, ["frozen", "aeg", "age"]),
        ("recourse", {"label": "old", "bounds": {"job": "grow"}}, ["job", "frozen"]),
        ("recourse", {"label": "old", "bounds": {"age": "up"}}, ["age", "up", "grow"]),
        ("recourse", {"label": "old", "bounds": {"age": ["a", 3]}}, ["age", "'a'", "null"]),
        ("recourse", {"label": "old", "bounds": {"since": ["soon", None]}}, ["since", "soon", "dates"]),
        ("recourse", {"label": "old", "tied": [["age", "aeg"]]}, ["tied", "aeg"]),
        ("recourse", {"label": "old", "rows": 9}, ["rows", 8, 9]),
        ("decide", {"tolerance": 3}, ["tolerance", "numbers"]),
        ("decide", {"label": "wise"}, ["label", "wise", "old"]),
    ],
)
def test_what_cannot_be_asked_is_refused_in_words(
    client: Client, path: str, options: dict[str, Any], words: list[Any]
) -> None:
    body = {**options, "rows": asked(PEOPLE[200:201]) * options.get("rows", 1)}
    refused = client.post(f"/v1/{path}", body)
    assert refused.status == 422
    assert named(refused.json["error"]["message"], *words)


def test_numbers_have_reasons_and_recourse_by_name(numbers: DWACRegressor, two_numbers: DWACRegressor) -> None:
    X, rows = NEW[:1], asked(NEW[:1])
    with served(create_app(numbers)) as client:
        (why,) = client.post("/v1/explain", {"rows": rows, "against": [1500, None]}).json["explanations"]
        (way,) = client.post("/v1/recourse", {"rows": rows, "label": [None, 900]}).json["recourse"]
        decided = client.post("/v1/decide", {"rows": rows, "tolerance": 400, "risk": 0.2}).json
        assert decided["decided"][0]["decided"] == numbers.decide(X, 0.2, tolerance=400).decided[0]
        refused = client.post("/v1/recourse", {"rows": rows, "label": [900, 100]})
    assert why["reasons"]["total"] == pytest.approx(numbers.explain(X)[0].reasons((1500, float("inf"))).total)
    assert all(each["value"] <= 900 for each in way["ways"])
    assert (refused.status, way["wanted"]) == (422, [None, 900])
    with served(create_app(two_numbers)) as client:
        (every,) = client.post("/v1/explain", {"rows": rows, "reasons": True}).json["explanations"]
        (one,) = client.post("/v1/explain", {"rows": rows, "against": {"months": [800, None]}}).json["explanations"]
        (way,) = client.post("/v1/recourse", {"rows": rows, "label": {"months": [0, 400]}}).json["recourse"]
    assert (list(every["reasons"]), list(one["reasons"])) == (["pay", "months"], ["months"])
    assert every["reasons"]["pay"]["unit"] == "pay"
    assert all(each["value"] <= 400 for each in way["ways"])


def test_several_labels_have_reasons_each_and_recourse_with_or_without_one(tags: DWACClassifier) -> None:
    rows = asked(NEW[:1])
    with served(create_app(tags)) as client:
        body = {"rows": rows, "labels": ["smith", "old"], "reasons": True}
        (why,) = client.post("/v1/explain", body).json["explanations"]
        both = [
            client.post("/v1/recourse", {"rows": rows, "label": name}).json["recourse"] for name in ("old", "not old")
        ]
    wanted = tags.explain(NEW[:1])[0]
    for name in ("smith", "old"):
        assert why["explanations"][name]["reasons"]["total"] == pytest.approx(wanted[name].reasons().total)
    assert sorted(answer["reached"] for (answer,) in both) == [False, True]


def test_texts_have_reasons_and_no_recourse(texts: DWACClassifier) -> None:
    with served(create_app(texts)) as client:
        (why,) = client.post("/v1/explain", {"rows": ["red apple nine"], "reasons": True}).json["explanations"]
        assert "/v1/recourse" not in client.get("/openapi.json").json["paths"]
        assert client.post("/v1/recourse", {"rows": ["red apple"], "label": "green"}).code == "not_found"
    assert why["reasons"]["contributions"][0]["value"] == "red"


def test_a_private_service_names_columns_and_shows_no_precedent(
    table: DWACClassifier, rows: pd.DataFrame, tmp_path: Any
) -> None:
    body = {"rows": asked(rows[:1])}
    with served(create_app(table, private=True)) as client:
        (why,) = client.post("/v1/explain", {**body, "reasons": True}).json["explanations"]
        (way,) = client.post("/v1/recourse", {**body, "label": "old"}).json["recourse"]
        chosen = client.post("/v1/explain", {**body, "against": "person3"})
        bounded = client.post("/v1/recourse", {**body, "label": "old", "bounds": {"age": [51, 51]}})
    reasons = why["reasons"]
    assert (reasons["precedents"], {"other_value", "spread"} & {*reasons["contributions"][0]}) == ([], set())
    assert all(round(10 * part["contribution"], 6) % 1 == 0 for part in reasons["contributions"])
    columns = [[change["column"] for change in each["changes"]] for each in way["ways"]]
    assert columns
    assert len({*map(tuple, columns)}) == len(columns)  # no set of columns twice, which would tell two precedents apart
    assert all(
        (each["precedent"], each["record"], each["changes"][0]["to"]) == (None, None, None) for each in way["ways"]
    )
    assert (chosen.status, bounded.status) == (409, 409)
    assert "person" not in json.dumps([reasons, way])
    bare = load(table.save(tmp_path / "bare", include_examples=False), device="cpu")
    with served(create_app(bare)) as client:
        for path, options in (("explain", {"reasons": True}), ("recourse", {"label": "old"})):
            refused = client.post(f"/v1/{path}", {**body, **options})
            assert (refused.status, refused.code) == (409, "not_available")


def test_requests_with_reasons_are_not_joined_and_have_their_own_limits(table: DWACClassifier) -> None:
    plain, why = ExplainJob(5, 0.05), ExplainJob(5, 0.05, precedents=1)
    assert plain.call == ExplainJob(5, 0.05).call
    assert why.call != why.call
    assert Limits(rows=4).rows_to_compare == 4
    with served(create_app(table, limits=Limits(compared=2))) as client:
        assert client.post("/v1/explain", {"rows": asked(PEOPLE[200:203]), "reasons": True}).code == "too_many_rows"
        assert client.post("/v1/explain", {"rows": asked(PEOPLE[200:203])}).status == 200
