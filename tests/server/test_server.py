"""The service, asked over a real socket: by its own documentation, by many at once, and by those who mean harm."""

import asyncio
import base64
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi import APIRouter
from starlette.responses import Response
from typer.testing import CliRunner

from dwac import DWACClassifier, fingerprint, load
from dwac.cli.app import app as dwac_command
from dwac.errors import InputError
from dwac.server import Limits, create_app
from dwac.server import run as running
from dwac.server.answers import Ask, PredictJob, Responder
from dwac.server.batching import Batcher
from dwac.server.gate import HEADERS
from dwac.server.limits import RefusalError
from dwac.server.service import json_response, parse_json
from tests.named import named, posix, refuses
from tests.server.client import HANG, TOKEN, Answer, Client, served, until
from tests.server.data import DIGITS, PEOPLE, fitted, people, pixels, png


@pytest.fixture(scope="module")
def guarded(digits: DWACClassifier) -> Iterator[Client]:
    with served(create_app(digits, token=TOKEN, limits=Limits(body_bytes=10_000))) as asked:
        yield asked


@pytest.fixture(scope="module")
def client(digits: DWACClassifier) -> Iterator[Client]:
    with served(create_app(digits)) as asked:
        yield asked


@pytest.fixture(scope="module")
def table_client(table: DWACClassifier) -> Iterator[Client]:
    with served(create_app(table)) as asked:
        yield asked


@pytest.fixture(scope="module")
def picture_client(pictures: DWACClassifier) -> Iterator[Client]:
    with served(create_app(pictures)) as asked:
        yield asked


def rows_of(n: int, start: int = 700) -> list[Any]:
    return DIGITS.images[start : start + n].tolist()  # type: ignore[no-any-return]


# The same numbers as in Python


@pytest.mark.parametrize("n", [1, 7])
def test_predictions_are_those_of_python(client: Client, digits: DWACClassifier, n: int) -> None:
    X = DIGITS.images[700 : 700 + n]
    answers = client.post("/v1/predict", {"rows": X.tolist(), "epsilon": 0.1}).json
    trust: Any = digits.conformal(X)
    probabilities, sets = digits.predict_proba(X), digits.predict_set(X, epsilon=0.1)
    assert answers["epsilon"] == 0.1
    assert [row["label"] for row in answers["predictions"]] == digits.predict(X).tolist()
    for i, row in enumerate(answers["predictions"]):
        assert list(row["probabilities"].values()) == probabilities[i].tolist()
        assert list(row["probabilities"]) == [str(label) for label in digits.classes_]
        assert row["probability"] == probabilities[i].max()
        assert row["confidence"] == trust.confidence[i]
        assert row["credibility"] == trust.credibility[i]
        assert row["typicality"] == trust.typicality[i]
        assert row["label_set"] == digits.classes_[sets[i]].tolist()


def test_explanations_are_those_of_python(client: Client, digits: DWACClassifier) -> None:
    X = DIGITS.images[710:713]
    answers = client.post("/v1/explain", {"rows": X.tolist(), "k": 3}).json["explanations"]
    assert answers == json.loads(json.dumps([e.to_dict() for e in digits.explain(X, k=3)]))
    assert answers[0]["neighbors"][0]["record"]["image"].startswith("data:image/png;base64,")


@pytest.fixture(scope="module")
def models() -> dict[str, DWACClassifier]:
    """A model in which everybody votes, and the same with few voters."""
    X = people(300).drop(columns="since")
    full = fitted(X, np.where(X["age"] + 10 * X["member"] > 55, "old", "young"), epochs=20)
    return {"full": full, "condensed": full.condense(12)}


@pytest.mark.parametrize("which", [pytest.param("full", marks=pytest.mark.slow), "condensed"])
@pytest.mark.parametrize("members", [pytest.param(False, marks=pytest.mark.slow), True], ids=["alone", "with members"])
def test_groups_are_the_same_in_python_folder_command_and_service(
    which: str, members: bool, models: dict[str, DWACClassifier], tmp_path: Path
) -> None:
    model, rows = models[which], people(306)[300:].drop(columns="since")
    folder = model.save(tmp_path / "model", include_members=members)
    rows.to_csv(tmp_path / "rows.csv", index_label="who")
    in_python = [json.loads(json.dumps(e.to_dict())) for e in model.explain(rows, k=3)]
    loaded = load(folder, device="cpu")
    assert [json.loads(json.dumps(e.to_dict())) for e in loaded.explain(rows, k=3)] == in_python
    words = ["explain", folder, tmp_path / "rows.csv", "--id-column", "who", "-k", 3, "--json", "--device", "cpu"]
    shown = CliRunner().invoke(dwac_command, list(map(str, words)))
    assert [json.loads(line) for line in shown.stdout.splitlines()] == in_python, shown.output
    with served(create_app(loaded)) as client:
        sent = rows.astype(object).where(rows.notna(), None).to_dict("records")
        assert client.post("/v1/explain", {"rows": sent, "k": 3}).json["explanations"] == in_python
        card = client.get("/v1/model").json
    p_values = loaded.conformal(rows).p_values.tolist()
    for why, probabilities, p in zip(in_python, loaded.predict_proba(rows).tolist(), p_values, strict=True):
        assert list(why["probabilities"].values()) == probabilities
        assert list(why["p_values"].values()) == p
    for why, e in zip(in_python, loaded.explain(rows, k=3), strict=True):
        assert [group["share"] for group in why["groups"]] == [group.share for group in e.shown_groups]
        assert len(why["groups"]) >= 3
        assert sum(group.share for group in e.groups) == pytest.approx(1, abs=1e-9)
        assert sum(group.size for group in e.groups) == why["n_examples"]
        assert 1 <= why["deciding_groups"] <= why["n_groups"] == len(e.groups)
        assert all(group["description"] for group in why["groups"])
    few, n = which == "condensed", len(models["full"].references_)
    assert (card["n_references"], card["n_examples"]) == (12 if few else n, n)
    assert card["agreement"] == in_python[0]["agreement"] == (model.agreement_ and model.agreement_._asdict())
    assert (card["agreement"] is not None) == few


def test_sets_are_those_of_python(client: Client, digits: DWACClassifier) -> None:
    X = DIGITS.images[720:724]
    answers = client.post("/v1/sets", {"rows": X.tolist(), "epsilon": 0.3}).json["sets"]
    trust = digits.conformal(X)
    assert [list(row["p_values"].values()) for row in answers] == trust.p_values.tolist()
    assert [row["label_set"] for row in answers] == [digits.classes_[held].tolist() for held in trust.label_sets(0.3)]


def test_whole_numbers_are_accepted_for_columns_of_fractions(client: Client) -> None:
    whole = [[int(x) for x in line] for line in DIGITS.images[700]]
    assert client.post("/v1/predict", {"rows": [whole]}).json == client.post("/v1/predict", {"rows": rows_of(1)}).json


def test_a_table_is_asked_by_records_in_any_order_of_columns(table_client: Client, table: DWACClassifier) -> None:
    X = people(6)
    X.loc["person1", "pay"] = np.nan
    records = json.loads(X.to_json(orient="records", date_format="iso"))
    records = [dict(reversed(record.items())) for record in records]
    assert records[1]["pay"] is None
    answers = table_client.post("/v1/predict", {"rows": records}).json["predictions"]
    why = table_client.post("/v1/explain", {"rows": records[:2], "k": 2}).json["explanations"]
    assert [row["label"] for row in answers] == table.predict(X).tolist()
    shown = [list(row["probabilities"].values()) for row in answers]
    np.testing.assert_array_equal(shown, table.predict_proba(X))
    expected = [json.loads(json.dumps(e.to_dict())) for e in table.explain(X[:2], k=2)]
    for one, other in zip(why, expected, strict=True):
        assert one.pop("record")["age"] == other.pop("record")["age"]  # dates come back as they were sent
        assert one == other
    assert why[0]["neighbors"][0]["id"].startswith("person")


def test_a_table_without_names_is_asked_by_lists() -> None:
    X = np.random.default_rng(0).normal(size=(100, 3))
    model = fitted(X, X[:, 0] > 0)
    with served(create_app(model)) as client:
        answers = client.post("/v1/predict", {"rows": X[:4].tolist()}).json["predictions"]
        short = client.post("/v1/predict", {"rows": [[1, 2]], "strict": True})
    assert [list(row["probabilities"].values()) for row in answers] == model.predict_proba(X[:4]).tolist()
    assert [row["label"] for row in answers] == model.predict(X[:4]).tolist()
    assert short.code == "invalid_input"


def test_texts_are_asked_as_strings(texts: DWACClassifier) -> None:
    X = ["red apple 3", "a green plum"]
    with served(create_app(texts)) as client:
        explained = client.post("/v1/explain", {"rows": X}).json["explanations"]
        empty = client.post("/v1/predict", {"rows": ["fine", " "], "strict": True})
        told = client.post("/v1/predict", {"rows": ["fine", " ", 7]}).json
        answers, n_unreadable = told["predictions"], told["n_unreadable"]
        (fine,) = client.post("/v1/predict", {"rows": ["fine"]}).json["predictions"]
        sets = client.post("/v1/sets", {"rows": ["fine", " "]}).json["sets"]
        why = client.post("/v1/explain", {"rows": [" "]}).json["explanations"]
    assert answers[0] == fine
    assert answers[0]["unreadable"] is None
    blank = answers[1]["unreadable"]
    assert named(answers[2]["unreadable"], "string", "number")
    for unread in (answers[1], answers[2], sets[1]):
        assert {name for name, value in unread.items() if value is not None} == {"unreadable"}
    assert (n_unreadable, sets[1]["unreadable"], sets[1]["label_set"]) == (2, blank, None)
    assert (why[0]["label"], why[0]["probability"], why[0]["probabilities"]) == (None, None, {})
    assert why == [e.to_dict() for e in texts.explain([" "])]
    assert (why[0]["neighbors"], why[0]["deciding"], why[0]["unreadable"]) == ([], None, blank)
    assert explained == json.loads(json.dumps([e.to_dict() for e in texts.explain(X)]))
    assert [word for word, _ in explained[0]["attention"]] == ["red", "apple", "3"]
    assert named(empty.json["error"]["message"], "row 1", blank)


def test_images_are_asked_as_pictures_or_numbers(picture_client: Client, pictures: DWACClassifier) -> None:
    X = pixels(3)
    coded = [base64.b64encode(png(image)).decode() for image in X]
    asked = ({"rows": X.tolist()}, {"rows": coded}, {"rows": [f"data:image/png;base64,{text}" for text in coded]})
    answers = [picture_client.post("/v1/predict", body).json["predictions"] for body in asked]
    assert answers[0] == answers[1] == answers[2]
    assert [list(row["probabilities"].values()) for row in answers[0]] == pictures.predict_proba(X).tolist()


def test_the_card_says_what_the_model_is_and_takes(table_client: Client, table: DWACClassifier) -> None:
    card = table_client.get("/v1/model").json
    assert table_client.post("/v1/predict", {"rows": [card["example"]]}).status == 200
    assert card["kind"] == "tabular"
    assert card["kernel"] == "gaussian"
    assert card["classes"] == ["old", "young"]
    assert card["n_references"] == card["n_examples"] == len(table.references_)
    assert card["agreement"] is None
    assert {c["name"]: c["kind"] for c in card["columns"]} == {
        "age": "numeric", "pay": "numeric", "job": "categorical", "since": "datetime", "member": "boolean"
    }  # fmt: skip
    assert card["columns"][2]["categories"] == ["clerk", "nurse", "smith"]
    assert card["row"]["required"] == ["age", "pay", "job", "since", "member"]


def test_without_calibration_there_is_no_trust_but_a_label() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = fitted(X, X[:, 0] > 0, validation_size=0, calibration_size=0)
    with served(create_app(model)) as client:
        (row,) = client.post("/v1/predict", {"rows": X[:1].tolist()}).json["predictions"]
        sets = client.post("/v1/sets", {"rows": X[:1].tolist()})
    assert row["label"] == bool(model.predict(X[:1])[0])
    assert row["confidence"] is row["credibility"] is row["typicality"] is row["label_set"] is None
    assert (sets.status, sets.code) == (409, "not_available")


def test_an_epsilon_too_small_for_the_calibration_is_noted(client: Client) -> None:
    assert client.post("/v1/sets", {"rows": rows_of(1)}).json["note"] is None
    answers = client.post("/v1/sets", {"rows": rows_of(1), "epsilon": 1e-6}).json
    assert "999999 calibration rows" in answers["note"]
    assert len(answers["sets"][0]["label_set"]) == 10


# Privacy


def test_every_answer_names_the_folder_that_the_model_came_from(
    table: DWACClassifier, table_client: Client, tmp_path: Path
) -> None:
    path = table.save(tmp_path / "model")
    row, mark = json.loads(people(1).to_json(orient="records", date_format="iso")), fingerprint(path)
    token = "a token of 16 and more".replace(" ", "-")
    with served(create_app(load(path, expect=mark), token=token)) as client:
        right = {"authorization": f"Bearer {token}"}
        answers = [client.ask("POST", "/v1/predict", {"rows": row}, right), client.ask("GET", "/v1/model", None, right)]
        refused = client.ask("POST", "/v1/predict", {"rows": []}, right)
        strangers = [client.get("/v1/model"), client.get("/v1/health/live")]
    assert [answer.headers["dwac-fingerprint"] for answer in (*answers, refused)] == [mark] * 3
    assert answers[1].json["fingerprint"] == mark
    assert not any("dwac-fingerprint" in answer.headers for answer in strangers)
    answer = table_client.get("/v1/model")
    assert (answer.json["fingerprint"], "dwac-fingerprint" in answer.headers) == (None, False)


@pytest.mark.parametrize("asked", [True, None])
def test_a_private_service_and_one_without_examples_tell_labels_and_shares_only(
    table: DWACClassifier, tmp_path: Path, asked: bool | None
) -> None:
    row = json.loads(people(1).to_json(orient="records", date_format="iso"))
    model = table if asked else load(table.save(tmp_path / "bare", include_examples=False))
    with served(create_app(model, private=asked)) as client:
        (why,) = client.post("/v1/explain", {"rows": row}).json["explanations"]
        card, described = client.get("/v1/model"), client.get("/openapi.json")
    assert why["private"] is True
    assert {tuple(neighbor) for neighbor in why["neighbors"]} == {("label", "share")}
    assert (why["groups"], why["n_groups"], why["deciding_groups"]) == ([], 0, None)
    for text in (json.dumps(why["neighbors"]), card.body.decode(), described.body.decode()):
        assert not re.search(r"person\d|smith|clerk|nurse", text)


def test_a_private_service_rounds_what_it_says_of_few_voters(models: dict[str, DWACClassifier]) -> None:
    row = json.loads(people(1).drop(columns="since").to_json(orient="records"))
    with served(create_app(models["condensed"], private=True)) as client:
        (why,) = client.post("/v1/explain", {"rows": row}).json["explanations"]
        card = client.get("/v1/model").json
    exact = models["condensed"].agreement_
    assert exact is not None
    rounded = {name: round(getattr(exact, name), 2) for name in ("share", "low", "high")}
    assert why["agreement"] == card["agreement"] == {**rounded, "n": exact.n}
    assert rounded != {name: getattr(exact, name) for name in rounded}  # so the test can fail
    assert (why["groups"], why["n_groups"], why["deciding_groups"]) == ([], 0, None)


def test_no_request_can_ask_a_private_service_for_more(digits: DWACClassifier) -> None:
    with served(create_app(digits, private=True)) as client:
        asked = client.post("/v1/explain", {"rows": rows_of(1), "private": False})
    assert (asked.status, asked.code) == (422, "invalid_request")


# Many at once


def test_concurrent_requests_share_a_call_and_each_gets_its_own_answer(digits: DWACClassifier) -> None:
    with served(create_app(digits, limits=Limits(gather_seconds=1))) as client:
        with ThreadPoolExecutor(16) as pool:
            asked = [pool.submit(client.post, "/v1/predict", {"rows": rows_of(1, 700 + i)}) for i in range(16)]
            until(lambda: "dwac_waiting_requests 16" in client.get("/v1/metrics").body.decode())
            client.skip(1)
            answers = [each.result() for each in asked]
        calls = re.search(r"dwac_batch_rows_count (\d+)", client.get("/v1/metrics").body.decode())
    rows = [answer.json["predictions"][0] for answer in answers]
    expected = digits.predict_proba(DIGITS.images[700:716])
    np.testing.assert_allclose([list(row["probabilities"].values()) for row in rows], expected, atol=1e-5)
    assert calls is not None
    assert int(calls[1]) == 2  # 16 requests, after the first call that warms up


def test_a_bad_row_in_a_batch_is_flagged_and_changes_no_other(table: DWACClassifier) -> None:
    good = json.loads(people(8).to_json(orient="records", date_format="iso"))
    bad = {**good[3], "age": "old"}
    asked = [[row] for row in good[:3]] + [[good[0], bad]] + [[row] for row in good[4:]]
    answers = create_app(table).state.service.responder.run([Ask(PredictJob(0.05), rows) for rows in asked])
    assert answers[3][0]["unreadable"] is None
    assert named(answers[3][1]["unreadable"], "'age'", "'old'")
    rows = [row for answer in answers for row in answer if row["unreadable"] is None]
    probabilities = [list(row["probabilities"].values()) for row in rows]
    expected = table.predict_proba(people(8).iloc[[0, 1, 2, 0, 4, 5, 6, 7]])
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)


class Slow:
    """A model that answers only when it is let."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.busy, self.go = threading.Event(), threading.Event()
        self.go.set()
        asked = Responder.together

        def together(responder: Responder, requests: Any) -> Any:
            if not self.go.is_set():
                self.busy.set()
                self.go.wait(HANG)
            return asked(responder, requests)

        monkeypatch.setattr(Responder, "together", together)


def test_a_full_queue_refuses_at_once_and_recovers(digits: DWACClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)
    with served(create_app(digits, limits=Limits(waiting=2))) as client, ThreadPoolExecutor(3) as pool:
        slow.go.clear()
        first = pool.submit(client.post, "/v1/predict", {"rows": rows_of(1)})
        assert slow.busy.wait(HANG)
        others = [pool.submit(client.post, "/v1/predict", {"rows": rows_of(1)}) for _ in range(2)]
        until(lambda: "dwac_waiting_requests 2" in client.get("/v1/metrics").body.decode())
        refused = client.post("/v1/predict", {"rows": rows_of(1)})
        ready, live = client.get("/v1/health/ready"), client.get("/v1/health/live")
        slow.go.set()
        assert [each.result().status for each in (first, *others)] == [200, 200, 200]
        assert client.post("/v1/predict", {"rows": rows_of(1)}).status == 200
        assert client.get("/v1/health/ready").json == {"status": "ready"}
    for answer in (refused, ready):
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "busy", "1")
    assert live.status == 200


def test_an_answer_that_takes_too_long_is_given_up(digits: DWACClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)
    with served(create_app(digits)) as client, ThreadPoolExecutor(1) as pool:
        slow.go.clear()
        asked = pool.submit(client.post, "/v1/predict", {"rows": rows_of(1)})
        assert slow.busy.wait(HANG)
        client.skip(Limits().seconds)
        late = asked.result()
        slow.go.set()
        assert (late.status, late.code) == (504, "timeout")
        assert client.post("/v1/predict", {"rows": rows_of(1)}).status == 200


# Hostile requests

DEEP = b'{"rows": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
ONE = json.dumps(rows_of(1)[0]).encode()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "not_json"),
        (b"{", 400, "not_json"),
        (b"\xff\xfe", 400, "not_json"),
        (b"\x00", 400, "not_json"),
        (DEEP, 400, "not_json"),
        (b'{"rows": [NaN]}', 400, "not_json"),
        (b'{"rows": [' + ONE + b'], "epsilon": Infinity}', 400, "not_json"),
        (b'{"rows": [1' + b"0" * 5000 + b"]}", 400, "not_json"),
        (b'{"rows": ["\\ud800"]}', 400, "not_json"),
        (b'{"rows": [], "rows": [' + ONE + b"]}", 400, "not_json"),
        (b"null", 422, "invalid_request"),
        (b"[]", 422, "invalid_request"),
        (b"{}", 422, "invalid_request"),
        (b'{"rows": []}', 422, "invalid_request"),
        (b'{"rows": {}}', 422, "invalid_request"),
        (b'{"rows": "abc"}', 422, "invalid_request"),
        (b'{"rows": [' + ONE + b'], "epsilon": 0}', 422, "invalid_request"),
        (b'{"rows": [' + ONE + b'], "epsilon": "0.1"}', 422, "invalid_request"),
        (b'{"rows": [' + ONE + b'], "epsilon": 1e400}', 422, "invalid_request"),
        (b'{"rows": [' + ONE + b'], "__class__": 1}', 422, "invalid_request"),
        (b'{"rows": [null], "strict": true}', 422, "invalid_input"),
        (b'{"rows": [[1, 2]], "strict": true}', 422, "invalid_input"),
        (b'{"rows": [[[1], [1, 2]]], "strict": true}', 422, "invalid_input"),
        (b'{"rows": ["/etc/passwd"], "strict": true}', 422, "invalid_input"),
        (b'{"rows": [{"a": 1}], "strict": true}', 422, "invalid_input"),
        (b'{"rows": [' + ONE.replace(b"0.0", b"true", 1) + b'], "strict": true}', 422, "invalid_input"),
        (b'{"rows": [' + ONE.replace(b"0.0", b"1e300", 1) + b'], "strict": true}', 422, "invalid_input"),
        (b'{"rows": [' + ONE.replace(b"0.0", b"1" + b"0" * 400, 1) + b'], "strict": true}', 422, "invalid_input"),
        (b'{"rows": [' + ONE.replace(b"0.0", b'"\\u0000"', 1) + b'], "strict": true}', 422, "invalid_input"),
        (b'{"rows": [' + b",".join([ONE] * 257) + b"]}", 422, "too_many_rows"),
        (b'{"rows": ["' + b"x" * (4 * 2**20) + b'"]}', 413, "too_large"),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, bytes) else None,
)  # fmt: skip
def test_a_malformed_body_is_refused_in_words(client: Client, body: bytes, status: int, code: str) -> None:
    for path in ("/v1/predict", "/v1/sets"):
        answer = client.post(path, body)
        assert (answer.status, answer.code) == (status, code)
        assert "\n" not in answer.json["error"]["message"]
        assert len(answer.body) < 500
    assert client.post("/v1/predict", {"rows": rows_of(1)}).status == 200


def test_explanations_have_limits_of_their_own(client: Client) -> None:
    assert client.post("/v1/explain", {"rows": rows_of(33)}).code == "too_many_rows"
    assert client.post("/v1/explain", {"rows": rows_of(1), "k": 101}).code == "invalid_request"
    assert client.post("/v1/explain", {"rows": rows_of(1), "k": 0}).code == "invalid_request"
    assert client.post("/v1/explain", {"rows": rows_of(1), "k": True}).code == "invalid_request"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_another_content_type_is_refused(client: Client, kind: str) -> None:
    answer = client.ask("POST", "/v1/predict", b'{"rows": []}', {"content-type": kind})
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nosuch", 404), ("GET", "/v1/predict", 405), ("DELETE", "/v1/model", 405),
     ("GET", "/static/../app.py", 404), ("GET", "/static/%2e%2e/app.py", 404), ("GET", "/static/docs.html%00", 404)],
)  # fmt: skip
def test_what_is_not_there_is_refused_in_the_same_form(client: Client, method: str, path: str, status: int) -> None:
    answer = client.ask(method, path)
    assert answer.status == status
    assert answer.code in ("not_found", "method_not_allowed")


GOOD = {"age": 40, "pay": 3000, "job": "nurse", "since": "2021-05-01", "member": True}


@pytest.mark.parametrize(
    "row",
    [{}, {"age": 1}, "age", 7, [1, 2, 3, 4, 5],
     {"age": {"$gt": 0}, "pay": 1, "job": "x", "since": None, "member": True},
     {"age": 1, "pay": 1, "job": ["x"], "since": None, "member": True},
     {"age": 1, "pay": 1, "job": "x", "since": "yesterday", "member": True},
     {"age": 1, "pay": "1", "job": "x", "since": None, "member": True},
     {"age": 1, "pay": 1, "job": "x", "since": 5, "member": True},
     {"age": 1, "pay": 1, "job": "x", "since": None, "member": True, "extra": 1}],
)  # fmt: skip
def test_a_row_that_does_not_fit_the_table_is_named(table_client: Client, row: Any) -> None:
    answer = table_client.post("/v1/predict", {"rows": [row], "strict": True})
    beside = table_client.post("/v1/predict", {"rows": [GOOD, row, GOOD]}).json["predictions"]
    alone = table_client.post("/v1/predict", {"rows": [row]}).json["predictions"]
    assert (answer.status, answer.code) == (422, "invalid_input")
    assert named(answer.json["error"]["message"], "row 0", beside[1]["unreadable"])
    assert alone == [beside[1]]
    assert beside[0] == beside[2]
    assert beside[0]["unreadable"] is None


def test_strange_but_possible_values_of_a_table_are_answered(table_client: Client) -> None:
    rows = [
        {"age": 1e308, "pay": -1e308, "job": "\x00", "since": "0001-01-01", "member": None},
        {"age": 10**300, "pay": None, "job": 2**70, "since": "9999-12-31T23:59:59Z", "member": 1},
        {"age": None, "pay": None, "job": None, "since": None, "member": None},
    ]
    answer = table_client.post("/v1/predict", {"rows": rows})
    assert answer.status == 200, answer.body
    assert all(0.5 <= row["probability"] <= 1 for row in answer.json["predictions"])


def test_a_category_that_training_never_had_is_named_and_read_as_missing(table: DWACClassifier) -> None:
    rows = [GOOD, {**GOOD, "job": "pilot"}, {**GOOD, "job": None}]
    with served(create_app(table)) as client:
        asked = {"predictions": "predict", "sets": "sets", "explanations": "explain"}
        answers = {name: client.post(f"/v1/{route}", {"rows": rows}).json[name] for name, route in asked.items()}
    for answer in answers.values():
        assert [row["unknown"] for row in answer] == [None, "job=pilot", None]
    _, new, gap = answers["predictions"]
    assert (new["probabilities"], new["label_set"]) == (gap["probabilities"], gap["label_set"])
    assert new["typicality"] <= gap["typicality"]


def bomb() -> bytes:
    """A PNG of a few bytes that claims 50,000 × 50,000 pixels."""
    return png(np.zeros((1, 1), dtype=np.uint8)).replace(b"\0\0\0\1\0\0\0\1\x08", b"\0\0\xc3\x50\0\0\xc3\x50\x08", 1)


@pytest.mark.parametrize(
    "picture",
    ["", "!!!", "AAAA", "/etc/passwd", "data:image/png;base64", "../../x.png", "a" * 1001,
     base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 50).decode(), base64.b64encode(png(pixels(1)[0])[:-40]).decode(),
     base64.b64encode(b"GIF89a" + b"\0" * 50).decode(), base64.b64encode(bomb()).decode()],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_a_picture_that_is_none_is_refused(picture_client: Client, picture: str) -> None:
    answer = picture_client.post("/v1/predict", {"rows": [pixels(1)[0].tolist(), picture], "strict": True})
    alone = picture_client.post("/v1/predict", {"rows": [picture], "strict": True})
    good = base64.b64encode(png(pixels(1)[0])).decode()
    beside = picture_client.post("/v1/predict", {"rows": [pixels(1)[0].tolist(), picture, good]}).json["predictions"]
    assert (answer.status, answer.code) == (alone.status, alone.code) == (422, "invalid_input")
    assert [row["unreadable"] is None for row in beside] == [True, False, True]
    assert beside[0] == beside[2]
    assert (beside[1]["label"], beside[1]["probability"], beside[1]["credibility"]) == (None, None, None)
    assert beside[1]["label_set"] is None


def test_a_picture_with_too_many_pixels_is_refused_by_its_header(pictures: DWACClassifier) -> None:
    big = base64.b64encode(png(np.zeros((300, 300), dtype=np.uint8))).decode()
    with served(create_app(pictures, limits=Limits(pixels=89_999))) as client:
        (first,) = client.post("/v1/predict", {"rows": [big]}).json["predictions"]
        (bombed,) = client.post("/v1/predict", {"rows": [base64.b64encode(bomb()).decode()]}).json["predictions"]
    assert named(first["unreadable"], "89,999", "300×300")
    assert named(bombed["unreadable"], "PNG", "JPEG")


HEAD = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def test_a_body_without_a_length_is_measured_while_it_arrives(digits: DWACClassifier) -> None:
    with served(create_app(digits, limits=Limits(body_bytes=10_000))) as client:
        sock = client.raw(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        for _ in range(11):  # and never the end
            sock.sendall(b"3e8\r\n" + b" " * 1000 + b"\r\n")
        assert client.get("/v1/health/live").status == 200  # after them
        client.skip(1)  # the rest is ignored for a moment only
        assert sock.recv(12) == b"HTTP/1.1 413"
        sock.close()
        assert client.post("/v1/predict", {"rows": rows_of(1)}).status == 200


def test_all_bodies_together_are_bounded(digits: DWACClassifier) -> None:
    with served(create_app(digits, limits=Limits(buffered_bytes=20_000))) as client:
        held = [client.raw(HEAD + b"content-length: 9000\r\n\r\n" + b" " * 8999) for _ in range(2)]
        until(lambda: "dwac_buffered_bytes 17998" in client.get("/v1/metrics").body.decode())
        refused = client.post("/v1/predict", b" " * 9000)
        assert (refused.status, refused.code) == (503, "busy")
        for sock in held:
            sock.close()
        until(lambda: "dwac_buffered_bytes 0" in client.get("/v1/metrics").body.decode())
        assert client.post("/v1/predict", {"rows": rows_of(1)}).status == 200


def test_slow_bodies_and_slow_heads_are_let_go(digits: DWACClassifier) -> None:
    with served(create_app(digits)) as client:
        slow = [client.raw(HEAD + b"content-length: 100\r\n\r\n{") for _ in range(20)]
        headless = [client.raw(start) for start in (b"", b"POST /v1/pre", HEAD) for _ in range(10)]
        assert client.post("/v1/predict", {"rows": rows_of(1)}).status == 200  # meanwhile, and after them
        client.skip(max(running.HEAD_SECONDS, Limits().seconds))
        for sock in slow:
            assert sock.recv(12) == b"HTTP/1.1 408"
        for sock in headless[:10]:
            assert sock.recv(100) == b""  # no request, no answer
        for sock in headless[10:]:
            assert sock.recv(12) == b"HTTP/1.1 408"
        for sock in (*slow, *headless):
            sock.close()
        again = client.raw(b"GET /v1/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert again.recv(12) == b"HTTP/1.1 200"
        again.sendall(b"GET /v1/health")  # a second head on the same connection has a clock too
        idle = client.raw(b"GET /v1/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert idle.recv(12) == b"HTTP/1.1 200"
        idle.sendall(b"\r\n")  # and what is no head wins no time
        assert client.get("/v1/health/live").status == 200
        for _ in range(2):  # refused, then closed
            client.skip(running.HEAD_SECONDS)
        for sock in (again, idle):
            while sock.recv(1000):
                pass
            sock.close()


def read_raw(sock: socket.socket) -> Answer:
    """What a client that speaks no proper HTTP receives, until the connection ends."""
    response = http.client.HTTPResponse(sock)
    response.begin()
    answer = Answer(response.status, dict(response.getheaders()), response.read())
    sock.close()
    return answer


LAST = b"GET /v1/health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


def statuses(sock: socket.socket, received: bytes = b"") -> list[int]:
    """Those of all answers until the connection ends."""
    with suppress(ConnectionError):
        while more := sock.recv(2**16):
            received += more
    sock.close()
    return [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize("expect", [b"", b"expect: 100-continue\r\n"])
@pytest.mark.parametrize(
    ("line", "headers", "status"),
    [
        (b"POST /v1/predict", b"", 401),
        (b"POST /v1/predict", b"authorization: Bearer " + TOKEN.encode() + b"\r\ncontent-type: text/plain\r\n", 415),
        (b"POST /v1/nosuch", b"authorization: Bearer " + TOKEN.encode() + b"\r\n", 404),
        (b"PUT /v1/predict", b"authorization: Bearer " + TOKEN.encode() + b"\r\n", 405),
        (b"GET /v1/health/live", b"", 200),
    ],
)
def test_a_body_after_its_answer_is_never_taken_for_a_request(
    guarded: Client, line: bytes, headers: bytes, status: int, expect: bytes
) -> None:
    head = line + b" HTTP/1.1\r\nhost: localhost\r\n" + headers + expect
    sock = guarded.raw(head + b"content-length: 200000\r\n\r\n")
    received = sock.recv(2**16)
    with suppress(ConnectionError):  # the service may close at any time now, if the client expects a go-ahead
        sock.sendall(LAST * 4000 if expect else b" " * 200_000 + LAST)
    assert (b"connection: close" in received) == bool(expect)  # nobody could tell a body from a request
    assert statuses(sock, received) == ([status] if expect else [status, 200])


@pytest.mark.parametrize("length", [b"content-length: 400000\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n61a80\r\n"])
def test_a_body_that_is_too_large_is_refused_once_and_ignored(guarded: Client, length: bytes) -> None:
    sock = guarded.raw(HEAD + b"authorization: Bearer " + TOKEN.encode() + b"\r\n" + length + b" " * 20_000)
    assert sock.recv(12) == b"HTTP/1.1 413"
    sock.sendall(b" " * 380_000 + (b"\r\n0\r\n\r\n" if b"chunked" in length else b"") + LAST)
    assert statuses(sock) == [200]


def test_an_endless_body_is_ignored_for_a_while_only(guarded: Client) -> None:
    sock = guarded.raw(HEAD + b"transfer-encoding: chunked\r\n\r\nfffffff\r\n" + b" " * 20_000)
    assert sock.recv(12) == b"HTTP/1.1 401"
    sock.sendall(b" " * 20_000)
    guarded.skip(running.HEAD_SECONDS)
    assert statuses(sock) == []


def test_a_body_that_came_with_its_refused_head_does_not_end_the_connection(guarded: Client) -> None:
    head = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}"
    sock = guarded.raw(head + b"GET /v1/health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    received = b""
    while more := sock.recv(2**16):
        received += more
    sock.close()
    assert [part[:3] for part in received.split(b"HTTP/1.1 ")] == [b"", b"401", b"200"]


def test_every_refusal_has_one_form_and_keeps_a_browser_safe(
    digits: DWACClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_slow(client: Client, sock: socket.socket) -> Answer:
        assert client.get("/v1/health/live").status == 200  # after it
        client.skip(max(running.HEAD_SECONDS, Limits().seconds))
        return read_raw(sock)

    with served(create_app(digits, token=TOKEN, limits=Limits(body_bytes=1000))) as client:
        right = {"authorization": f"Bearer {TOKEN}"}
        head = HEAD + f"authorization: Bearer {TOKEN}\r\n".encode()
        refused = {
            "not_found": client.ask("GET", "/nosuch", None, right),
            "method_not_allowed": client.ask("PUT", "/v1/predict", None, right),
            "unauthorized": client.get("/v1/model"),
            "wrong_host": client.get("/v1/model", host="evil.example"),
            "unsupported_media_type": client.ask("POST", "/v1/predict", b"{}", {**right, "content-type": "text/plain"}),
            "not_json": client.ask("POST", "/v1/predict", b"{", right | {"content-type": "application/json"}),
            "too_large": client.ask("POST", "/v1/predict", {"rows": ["x" * 2000]}, right),
            "invalid_request": client.ask("POST", "/v1/predict", {}, right),
            "invalid_input": client.ask("POST", "/v1/predict", {"rows": [7], "strict": True}, right),
            "slow_body": too_slow(client, client.raw(head + b"content-length: 100\r\n\r\n{")),
            "slow_head": too_slow(client, client.raw(b"GET /v1/health")),
            "not_http": read_raw(client.raw(b"\x16\x03\x01 no HTTP at all\r\n\r\n")),
            "head_too_large": read_raw(client.raw(b"GET / HTTP/1.1\r\nx: " + b"x" * 2**17)),
        }
        monkeypatch.setattr(running, "CONNECTIONS", 0)
        refused["busy"] = read_raw(client.raw(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"))
        monkeypatch.setattr(running, "CONNECTIONS", 512)
        slow = Slow(monkeypatch)
        slow.go.clear()
        asked = {"rows": [[[0] * 8] * 8]}
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(client.ask, "POST", "/v1/predict", asked, right)
            assert slow.busy.wait(HANG)
            client.skip(Limits().seconds)
            refused["timeout"] = late.result()
        slow.go.set()
        monkeypatch.setattr("dwac.server.service.Service.card", lambda *_: 1 / 0)
        refused["internal"] = client.ask("GET", "/v1/model", None, right)
    for code, answer in refused.items():
        assert answer.code == code
        assert answer.status >= 400
        assert answer.headers["content-type"] == "application/json", code
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, (code, name)


@pytest.mark.slow
def test_clients_that_never_read_do_not_hold_up_the_end(
    digits: DWACClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = APIRouter()
    extra.add_api_route("/large", lambda: Response(b"x" * 2**26))
    ended: list[object] = []
    lost = running.Connection.connection_lost

    def connection_lost(self: running.Connection, error: Exception | None) -> None:
        ended.append(self)
        lost(self, error)

    monkeypatch.setattr(running.Connection, "connection_lost", connection_lost)
    with served(create_app(digits, routers=[extra]), grace=False) as client:
        socks = [client.raw(b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n") for _ in range(3)]
        for sock in socks:
            assert sock.recv(12) == b"HTTP/1.1 200"  # and no more
        assert not ended
    assert len(ended) == 3
    for sock in socks:
        sock.close()


def test_a_client_that_does_not_read_its_answer_is_let_go(digits: DWACClassifier) -> None:
    extra = APIRouter()
    extra.add_api_route("/large", lambda: Response(b"x" * 2**26))
    with served(create_app(digits, routers=[extra])) as client:
        sock = client.raw(b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert sock.recv(12) == b"HTTP/1.1 200"
        client.skip(running.STALL_SECONDS)
        received = 0
        with suppress(ConnectionError):
            while more := sock.recv(2**20):
                received += len(more)
        sock.close()
    assert received < 2**26


def test_a_call_that_does_not_come_back_does_not_hold_up_the_end(
    digits: DWACClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, finished = Slow(monkeypatch), threading.Event()
    asked = Responder.run
    monkeypatch.setattr(Responder, "run", lambda *given: (asked(*given), finished.set())[0])  # type: ignore[func-returns-value]
    with ThreadPoolExecutor(1) as pool:
        with served(create_app(digits), grace=False) as client:
            slow.go.clear()
            finished.clear()
            waiting = pool.submit(client.post, "/v1/predict", {"rows": rows_of(1)})
            assert slow.busy.wait(HANG)
        assert not finished.is_set()  # the service has ended, and the call has not
        slow.go.set()
        answer = waiting.result()
    assert (answer.status, answer.code, answer.headers["connection"]) == (503, "stopping", "close")
    assert answer.headers["x-frame-options"] == "DENY"
    assert finished.wait(HANG)


def test_an_endless_head_is_cut_off(client: Client) -> None:
    with client.raw(HEAD) as sock, suppress(OSError):
        for _ in range(200):  # far more than the buffers of the system hold
            sock.sendall((b"x-long: " + b"x" * 1000 + b"\r\n") * 1000)
        pytest.fail("200 MB of headers were taken")
    assert client.get("/v1/health/live").status == 200


def test_noise_and_clients_that_leave_do_no_harm(client: Client) -> None:
    for noise in (b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 50, b"A" * 100_000):
        client.raw(noise + b"\r\n\r\n").close()
    for sent in (HEAD, HEAD + b"content-length: 50\r\n\r\n{", HEAD + b"content-length: -1\r\n\r\n", HEAD[:30]):
        client.raw(sent).close()
    assert client.post("/v1/predict", {"rows": rows_of(1)}).status == 200


def test_an_unexpected_error_is_logged_and_not_shown(
    digits: DWACClassifier, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with served(create_app(digits)) as client:
        monkeypatch.setattr(Responder, "together", lambda *_: 1 / 0)
        failed = client.post("/v1/predict", {"rows": rows_of(1)})
        monkeypatch.undo()
        monkeypatch.setattr("dwac.server.service.Service.card", lambda *_: 1 / 0)
        other = client.get("/v1/model")
        monkeypatch.undo()
        assert client.post("/v1/predict", {"rows": rows_of(1)}).status == 200
    for answer in (failed, other):
        assert (answer.status, answer.code) == (500, "internal")
        assert "division" not in answer.body.decode()
    assert caplog.text.count("ZeroDivisionError") == 2


class PanicException(BaseException):
    """What pyo3 makes of a panic in Rust."""


def test_a_panic_below_python_is_one_refusal_and_the_worker_goes_on(
    digits: DWACClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Responder.together

    def together(responder: Responder, requests: Any) -> Any:
        if any(row == rows_of(2)[1] for request in requests for row in request.rows):
            raise PanicException("index out of bounds")
        return asked(responder, requests)

    with served(create_app(digits)) as client, ThreadPoolExecutor(6) as pool:
        monkeypatch.setattr(Responder, "together", together)
        bodies = [{"rows": rows_of(2)[i == 3 :][:1]} for i in range(6)]
        answers = list(pool.map(lambda body: client.post("/v1/predict", body), bodies))
        assert [answer.status for answer in answers] == [200, 200, 200, 500, 200, 200]
        assert answers[3].code == "internal"
        assert client.get("/v1/health/ready").status == 200
        monkeypatch.setattr(Responder, "together", lambda *_: (_ for _ in ()).throw(PanicException("for ever")))
        assert client.post("/v1/predict", {"rows": rows_of(1)}).status == 500
        failing = client.get("/v1/health/ready")
        assert (failing.status, failing.code) == (503, "failing")
        monkeypatch.undo()
        assert client.get("/v1/health/ready").status == 200  # it was asked, and answered
        assert client.post("/v1/predict", {"rows": rows_of(1)}).status == 200


def test_a_worker_that_fails_is_restarted(digits: DWACClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    app, take = create_app(digits), Batcher.take
    with served(app) as client:
        failed: list[str] = []

        def broken(batcher: Batcher) -> Any:
            jobs = take(batcher)
            if not failed:
                failed.append("once")
                for job in jobs:
                    job.answer.set_exception(RuntimeError("lost"))
                raise RuntimeError("the worker itself")
            return jobs

        monkeypatch.setattr(Batcher, "take", broken)
        assert client.post("/v1/predict", {"rows": rows_of(1)}).status == 500
        assert client.post("/v1/predict", {"rows": rows_of(1)}).status == 200
        app.state.service.batcher.serving = False  # ended for good
        for answer in (client.get("/v1/health/ready"), client.post("/v1/predict", {"rows": rows_of(1)})):
            assert (answer.status, answer.code) == (503, "failed")


def test_a_worker_that_always_fails_does_not_hold_up_the_service(
    digits: DWACClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(batcher: Batcher) -> bool:
        raise RuntimeError("the worker itself")

    with served(create_app(digits)) as client:
        monkeypatch.setattr(Batcher, "_some", failing)
        client.post("/v1/predict", {"rows": rows_of(1)})  # the worker fails before this or after it
        until(lambda: client.get("/v1/health/ready").status == 503)
        assert client.get("/v1/health/ready").code == "failed"
        assert client.get("/v1/health/live").status == 200
        monkeypatch.undo()
        until(lambda: client.get("/v1/health/ready").status == 200)


def test_requests_that_arrive_during_a_call_are_answered_without_the_event_loop() -> None:
    began, go, calls = threading.Event(), threading.Event(), []

    def run(payloads: list[Any]) -> list[Any]:
        calls.append(list(payloads))
        began.set()
        assert go.wait(HANG)
        return payloads

    async def ask() -> list[int]:
        batcher = Batcher(run, Limits(gather_seconds=0), lambda rows: None)
        worker = asyncio.create_task(batcher.serve())
        await asyncio.sleep(0)
        asked = [asyncio.create_task(batcher.submit("votes", 0, size=1))]
        assert await asyncio.to_thread(began.wait, HANG)
        asked += [asyncio.create_task(batcher.submit("votes", number, size=1)) for number in (1, 2)]
        await asyncio.sleep(0)
        go.set()
        until(lambda: len(calls) == 2)  # the loop is held up here, and the model goes on
        batcher.stop()
        await worker
        return [*await asyncio.gather(*asked)]

    assert asyncio.run(ask()) == [0, 1, 2]
    assert calls == [[0], [1, 2]]


def test_a_model_that_never_comes_back_is_not_ready(digits: DWACClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)
    with served(create_app(digits)) as client, ThreadPoolExecutor(1) as pool:
        slow.go.clear()
        asked = pool.submit(client.post, "/v1/predict", {"rows": rows_of(1)})
        assert slow.busy.wait(HANG)
        client.skip(Limits().seconds)
        assert asked.result().code == "timeout"
        assert client.get("/v1/health/ready").status == 200  # slow, but not yet stuck
        client.skip(Limits().seconds)
        ready = client.get("/v1/health/ready")
        slow.go.set()
        assert (ready.status, ready.code) == (503, "stuck")
        until(lambda: client.get("/v1/health/ready").status == 200)


def test_the_root_leads_to_the_documentation(client: Client) -> None:
    answer = client.get("/")
    assert (answer.status, answer.headers["location"]) == (307, "/docs")
    assert client.get("/docs").status == 200


# Who may ask


def test_with_a_token_only_health_and_pages_are_open(digits: DWACClassifier) -> None:
    with served(create_app(digits, token=TOKEN)) as client:
        for path in ("/v1/model", "/v1/metrics", "/openapi.json", "/nosuch", "/v1/health/live/x"):
            refused = client.get(path)
            assert (refused.status, refused.code) == (401, "unauthorized"), path
            assert refused.headers["www-authenticate"] == "Bearer"
        for given in ("Bearer", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"bearer {TOKEN}", TOKEN, "Bearer é"):
            headers = {"authorization": given.encode("latin-1").decode("latin-1")}
            assert client.ask("POST", "/v1/predict", {"rows": rows_of(1)}, headers).status == 401
        right = {"authorization": f"Bearer {TOKEN}"}
        assert client.ask("POST", "/v1/predict", {"rows": rows_of(1)}, right).status == 200
        described = client.ask("GET", "/openapi.json", None, right).json
        assert [client.get(path).status for path in ("/v1/health/live", "/v1/health/ready", "/docs")] == [200] * 3
        assert client.get("/static/docs.js").status == 200
    assert described["paths"]["/v1/predict"]["post"]["security"] == [{"token": []}]
    assert described["paths"]["/v1/health/live"]["get"]["security"] == []


@pytest.mark.parametrize(
    "token", ["", "short", "has spaces in the middle", "a-line-and-its-end\n", "ümlaut-ümlaut-ümlaut"]
)
def test_a_weak_token_is_refused(digits: DWACClassifier, token: str) -> None:
    with refuses(InputError, "token", 16):
        create_app(digits, token=token)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]", "localhost@x"])
def test_on_loopback_a_foreign_name_is_refused(client: Client, host: str) -> None:
    for name in ("host", "origin"):
        answer = client.get("/v1/model", **{name: host if name == "host" else f"http://{host}"})
        assert (answer.status, answer.code) == (421, "wrong_host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:8000", "[::1]:8000"])
def test_on_loopback_its_own_names_are_served(client: Client, host: str) -> None:
    assert client.get("/v1/model", host=host, origin=f"http://{host}").status == 200


def test_elsewhere_any_name_is_served(digits: DWACClassifier) -> None:
    with served(create_app(digits, hosts=None, token=TOKEN)) as client:
        assert client.get("/v1/health/live", host="models.example").status == 200


# What else is shown


def test_every_answer_has_the_headers_that_keep_a_browser_safe(client: Client) -> None:
    for path in ("/docs", "/", "/static/docs.js", "/openapi.json", "/v1/model", "/nosuch", "/v1/predict"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers
    assert "default-src" in client.get("/v1/model", host="evil.example").headers["content-security-policy"]


def test_the_documentation_needs_no_other_host(client: Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    links = re.findall(r'(?:src|href)="([^"]*)"', page.body.decode())
    assert set(links) == {"/static/docs.css", "/static/docs.js", "/openapi.json", "data:,"}
    for path, kind in (("/static/docs.css", "text/css"), ("/static/docs.js", "javascript")):
        file = client.get(path)
        assert kind in file.headers["content-type"]
        assert b"http:" not in file.body
        assert b"https:" not in file.body
        assert b"innerHTML" not in file.body
    assert client.get("/").headers["location"] == "/docs"


def test_metrics_count_every_request_under_known_names(digits: DWACClassifier) -> None:
    with served(create_app(digits)) as client:
        client.post("/v1/predict", {"rows": rows_of(3)})
        client.post("/v1/predict", b"{")
        client.get('/"} 1\ninvented'.replace("\n", "%0A").replace(" ", "%20"))
        answer = client.get("/v1/metrics")
    lines = answer.body.decode().splitlines()
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'dwac_requests_total{path="/v1/predict",status="200"} 1' in lines
    assert 'dwac_requests_total{path="/v1/predict",status="400"} 1' in lines
    assert 'dwac_requests_total{path="other",status="404"} 1' in lines
    assert "dwac_request_seconds_count 3" in lines
    assert "dwac_batch_rows_sum 4" in lines  # with the one that warms up
    assert all(re.fullmatch(r"(# .*|[a-z_]+(\{[^{}]*\})? [0-9.e+-]+)", line) for line in lines)


def test_threads_that_ask_at_once_get_the_numbers_of_one_that_asks_alone(
    digits: DWACClassifier, table: DWACClassifier
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)  # each call changes the count for its own work
    try:
        for clf, X in ((digits, DIGITS.images[400:424]), (table, PEOPLE[200:224])):
            expected, clf = clf.conformal(X).p_values, deepcopy(clf)
            with ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(lambda row: clf.conformal(X[row : row + 1]).p_values[0], range(24)))  # noqa: B023
            np.testing.assert_array_equal(answers, expected)
    finally:
        torch.set_num_threads(before)


def test_a_further_router_answers_before_the_service_does(digits: DWACClassifier) -> None:
    router = APIRouter()

    @router.post("/v1/{name}")
    async def answer(name: str) -> dict[str, str]:
        return {"answered": name}

    with served(create_app(digits, token=TOKEN, routers=[router])) as client:
        assert client.post("/v1/predict", {}).status == 401
        assert client.post("/v1/predict", {}, authorization=f"Bearer {TOKEN}").json == {"answered": "predict"}


def test_further_routers_stand_behind_the_same_gate(digits: DWACClassifier) -> None:
    router = APIRouter()

    @router.get("/")
    async def own() -> dict[str, str]:
        return {"page": "mine"}

    with served(create_app(digits, token=TOKEN, routers=[router])) as client:
        assert client.get("/").json == {"page": "mine"}
        assert client.get("/v1/model").status == 401


def test_requests_to_the_model_pass_through_middleware_that_was_added(digits: DWACClassifier) -> None:
    class Mark:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            async def mark(message: Any) -> None:
                if message["type"] == "http.response.start":
                    message["headers"] = [*message["headers"], (b"x-mark", b"here")]
                await send(message)

            await self.app(scope, receive, mark if scope["type"] == "http" else send)

    plain, marked = create_app(digits), create_app(digits)
    marked.add_middleware(Mark)
    answers = []
    for app in (plain, marked):
        with served(app) as client:
            answers.append(client.post("/v1/predict", {"rows": rows_of(2)}))
            assert client.post("/v1/predict", {"rows": []}).code == "invalid_request"
    assert "x-mark" not in answers[0].headers
    assert answers[1].headers.pop("x-mark") == "here"
    for name in ("date", "server"):
        assert answers[0].headers.pop(name, None) is None or answers[1].headers.pop(name)
    assert answers[0].headers == answers[1].headers
    assert answers[0].body == answers[1].body


@pytest.mark.parametrize(
    "body",
    [
        {"rows": [{"a": 1, "b": "x:y"}, {"a": None, "b": "é"}]},
        {"rows": [[1.5, -0.0, 1e-300, 2**70]], "epsilon": 0.1, "strict": True},
        {"rows": [{"a": {"b": 1}}]},
        {"labels": ["NaN", "Infinity"]},
        [1, 2],
    ],
)
def test_json_is_read_and_written_as_by_python(body: Any) -> None:
    data = json.dumps(body).encode()
    assert repr(parse_json(data)) == repr(json.loads(data))
    assert json.loads(bytes(json_response({"answer": body}).body)) == {"answer": body}


@pytest.mark.parametrize(
    "body", [b'{"rows": [{"a": 1, "a": 2}]}', b'{"rows": [], "rows": []}', b'{"rows": [{"a": "\\ud800"}]}']
)
def test_repeated_keys_and_half_characters_are_refused(body: bytes) -> None:
    with pytest.raises(RefusalError) as caught:
        parse_json(body)
    assert (caught.value.status, caught.value.code) == (400, "not_json")


def test_an_answer_never_has_a_number_that_json_has_not() -> None:
    with pytest.raises(ValueError, match="JSON"):
        json_response({"answer": float("nan")})


@pytest.mark.parametrize("limits", [{"rows": 0}, {"waiting": 1.5}, {"seconds": float("inf")}, {"body_bytes": True}])
def test_limits_that_cannot_be_are_refused(limits: dict[str, Any]) -> None:
    with refuses(InputError, *next(iter(limits.items()))):
        Limits(**limits)


def test_only_a_fitted_model_is_served() -> None:
    with refuses(InputError, "fitted", "DWACClassifier", "DWACRegressor"):
        create_app(DWACClassifier())


# The command


@pytest.fixture(scope="module")
def folder(digits: DWACClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits.save(tmp_path_factory.mktemp("served") / "model")


# The command, with more patience at its end than a busy machine needs.
SERVE = "from dwac.server import run; run.GRACE_SECONDS = 600; from dwac.cli import main; main()"


def no_longer_listens(client: Client) -> bool:
    """Whether it no longer listens."""
    try:
        client.raw(b"").close()
    except OSError as error:
        return "refused" in str(error)
    return False


@contextmanager
def command(folder: Path, *options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, "serve", folder, "--port", "0", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/docs", line)
        assert found, line
        yield process, Client(int(found[1]))
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("sign", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
@posix
def test_a_signal_ends_the_service_when_those_in_flight_are_answered(folder: Path, sign: signal.Signals) -> None:
    with command(folder, "--private", "--rows", "7", DWAC_TOKEN=TOKEN) as (process, client):
        right = {"authorization": f"Bearer {TOKEN}"}
        assert client.get("/v1/model").status == 401
        asked = {"rows": rows_of(1)}
        (why,) = client.ask("POST", "/v1/explain", asked, right).json["explanations"]
        assert "record" not in why["neighbors"][0]
        assert client.ask("GET", "/v1/model", None, right).json["limits"]["rows"] == 7
        body = json.dumps(asked).encode()
        head = HEAD + f"authorization: Bearer {TOKEN}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        flying = client.raw(head + body[:100])
        idle = client.raw(b"")
        until(lambda: "dwac_buffered_bytes 100" in client.ask("GET", "/v1/metrics", None, right).body.decode())
        process.send_signal(sign)
        until(lambda: no_longer_listens(client))
        flying.sendall(body[100:])
        assert flying.recv(12) == b"HTTP/1.1 200"
        flying.close()
        out, err = process.communicate(timeout=HANG)
        idle.close()
    assert process.returncode == 0
    assert out == ""
    assert err == ""


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        (["--host", "0.0.0.0"], "token"),
        pytest.param(["--host", "192.0.2.1", "--token-file", "{token}"], "192.0.2.1", marks=pytest.mark.slow),
        (["--token-file", "{empty}"], "{empty}"),
        (["--token-file", "{nosuch}"], "{nosuch}"),
        (["--port", "{taken}"], "--port"),
    ],
)
def test_what_cannot_be_served_is_reported_in_one_line(
    folder: Path, tmp_path: Path, options: list[str], fact: str
) -> None:
    from typer.testing import CliRunner

    from dwac.cli.app import app

    (tmp_path / "token").write_text(TOKEN + "\n")
    (tmp_path / "empty").write_text("\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        places = {name: str(tmp_path / name) for name in ("token", "empty", "nosuch")}
        places["taken"] = str(taken.getsockname()[1])
        filled = [option.format(**places) for option in options]
        shown = CliRunner().invoke(app, ["serve", str(folder), *filled], env={"DWAC_TOKEN": ""})
    assert shown.exit_code != 0
    (line,) = shown.output.strip().splitlines()
    assert line.startswith("dwac: ")
    assert named(line, fact.format(**places))
