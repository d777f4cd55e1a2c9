"""The explorer behind its page: the same numbers as in Python, exact edits, privacy, and refusals."""

import csv
import io
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dwac import DWACClassifier, ReferenceSet, Training, load
from dwac.cli.app import app
from dwac.errors import InputError
from dwac.explain import explain
from dwac.kernels import get_kernel
from dwac.report import label_issues, label_noise, leave_one_out
from dwac.report.wrong_labels import LEARNED
from dwac.server.explorer import Explorer
from dwac.server.explorer.edits import edit_model, edit_voters
from dwac.server.explorer.split import division_names, first_division, split
from dwac.server.explorer.tasks import NONE
from dwac.server.explorer.views import LoadedExamples, first_view, view_after
from tests.named import named, refuses
from tests.server.client import DWAC, HANG, TOKEN, Client
from tests.server.data import AGED, DIGITS, PEOPLE, fitted
from tests.server.explored import Reader, reading

STATIC = Path(__file__).parents[2] / "src" / "dwac" / "server" / "static" / "explorer"


@pytest.fixture(scope="module")
def page(table: DWACClassifier) -> Iterator[Reader]:
    yield from reading(Explorer.of(table, PEOPLE[200:], AGED[200:], title="people"))


# The same numbers


def test_a_row_of_data_is_explained_as_in_python(page: Reader, table: DWACClassifier) -> None:
    for row in range(5):
        answer = page.get(f"points/{page.first_row + row}?k=4")
        wanted = table.explain(PEOPLE[200 + row : 201 + row], k=4)[0]
        assert answer["explanation"] == json.loads(json.dumps(wanted.to_dict()))
        assert answer["sentences"] == wanted.sentences()
        assert answer["id"] == f"person{200 + row}"
        assert answer["true"] == AGED[200 + row]
        named = [table.references_.ids[place] for place in answer["neighbor_points"]]
        assert named == [neighbor.id for neighbor in wanted.neighbors]


def test_a_training_example_is_asked_without_its_own_vote(page: Reader, table: DWACClassifier) -> None:
    refs = table.references_
    keep = np.arange(len(refs)) != 7
    near = refs.voters.look_alikes
    others = ReferenceSet(refs.embeddings[keep], refs.labels[keep], refs.ids[keep].tolist(), 2, look_alikes=near)
    wanted = explain(others, refs.embeddings[7:8], classes=["old", "young"])[0]
    answer = page.get("points/7")["explanation"]
    assert answer["probability"] == pytest.approx(wanted.probability, rel=1e-6)
    assert [n["id"] for n in answer["neighbors"]] == [n.id for n in wanted.neighbors]
    assert answer["record"] == json.loads(json.dumps(table.examples_[refs.ids[7]], default=str))


def test_columns_say_what_python_says_of_every_point(page: Reader, table: DWACClassifier) -> None:
    n, m = 60, len(table.references_)
    trust: Any = table.conformal(PEOPLE[200:])
    predicted, typicality = page.column("predicted", "<u2"), page.column("typicality", "<f4")
    assert (table.classes_[predicted[m:]] == table.predict(PEOPLE[200:])).all()
    assert (predicted[:m] == NONE).all()
    assert np.allclose(typicality[m:], trust.typicality)
    assert np.isnan(typicality[:m]).all()
    assert (page.column("p_values", "<f8").reshape(n, 2) == trust.p_values).all()
    assert (page.column("label", "<u2")[:m] == table.references_.labels.numpy()).all()
    assert (page.column("state", "u1") == np.r_[np.zeros(m), np.ones(n)]).all()
    layout, refs, h = page.explorer.points.layout, table.references_, table.embed(PEOPLE[200:])
    placed = np.r_[layout.place(refs.embeddings.numpy(), refs.groups.leaves), layout.place(h, labels=predicted[m:])]
    assert np.allclose(page.column("xy", "<f4").reshape(-1, 2), placed, atol=1e-4)


def test_asking_the_unchanged_row_gives_the_same_numbers(page: Reader, table: DWACClassifier) -> None:
    for row in (200, 203, 231):  # with gaps, dates and booleans among them
        known = page.get(f"points/{page.first_row + row - 200}")
        asked = page.post("ask", row=known["explanation"]["record"], k=5)
        assert asked["explanation"]["probabilities"] == known["explanation"]["probabilities"]
        assert asked["xy"] == pytest.approx(known["xy"], abs=1e-5)


def test_measures_are_split_by_a_column_as_evaluate_splits_them(page: Reader, table: DWACClassifier) -> None:
    found = page.get(f"split/{page.get('start')['divisions'].index('job')}?epsilon=0.1")
    wanted = table.evaluate(PEOPLE[200:], AGED[200:], by="job", epsilon=0.1).groups
    places = [wanted.measures.index(name) for name in found["measures"]]
    assert found["measures"] == ["accuracy", "coverage", "set size"]
    for (name, rows, cells), told in zip(wanted.cells("job"), found["rows"], strict=True):
        assert told[:2] == [name, rows]
        assert [each[:2] for each in told[2]] == [list(cells[place][:2]) for place in places]
    people = [*table.references_.ids, *PEOPLE.index[200:]]
    assert [found["names"][code] for code in found["codes"]] == PEOPLE.loc[people, "job"].tolist()
    assert page.ask("GET", "split/99").status == 422


def test_measures_are_split_by_groups_that_the_model_does_not_know(table: DWACClassifier) -> None:
    X, town = PEOPLE[200:].astype({"age": object}), np.where(np.arange(60) < 20, "a", "b")
    X.loc[X.index[3], "age"] = "unreadable"
    explorer = Explorer.of(table, X, AGED[200:], by={"town": town})
    found = split(explorer, "page", division_names(explorer).index("town"), 0.1, 0)
    assert [row[:2] for row in found["rows"]] == [("all rows", "59"), ("a (small)", "19"), ("b", "40")]
    assert found["codes"] == [-1] * explorer.points.n_training + [0] * 19 + [1] * 40
    hidden = Explorer.of(table, X, by={"town": town}, private=True)
    assert division_names(hidden) == []
    assert (first_division(explorer), first_division(hidden)) == (0, None)


def test_what_if_someone_were_older(page: Reader, table: DWACClassifier) -> None:
    row = int(np.flatnonzero(AGED[200:] == "young")[0])
    record = page.get(f"points/{page.first_row + row}")["explanation"]["record"]
    asked = page.post("ask", row={**record, "age": 79}, k=3)
    changed = PEOPLE[200 + row : 201 + row].assign(age=79)
    assert asked["explanation"]["probabilities"] == table.explain(changed)[0].to_dict()["probabilities"]
    assert asked["xy"] != page.get(f"points/{page.first_row + row}")["xy"]
    assert any(column["differs"] for column in asked["compared"])


def test_reasons_and_recourse_are_those_of_python_with_the_edits_of_the_page(
    fresh: Reader, table: DWACClassifier
) -> None:
    row, first = PEOPLE[201:202], fresh.first_row
    fresh.post("edits", action="remove", point=3)
    edited = edit_model(table, {3: None})
    wanted, label = edited.explain(row)[0], edited.predict(row)[0]
    code = [name != label for name in table.classes_].index(True)
    number = fresh.get(f"points/{first + 1}")["answer"]
    others: list[tuple[dict[str, int], Any]] = [({}, None), ({"code": code}, table.classes_[code])]
    for other, against in [*others, ({"point": 9}, table.references_.ids[9])]:
        told, known = fresh.post(f"answers/{number}/reasons", **other), wanted.reasons(against)
        assert {name: told[name] for name in known.to_dict()} == json.loads(json.dumps(known.to_dict()))
        assert [table.references_.ids[place] for place in told["points"]] == [each.id for each in known.precedents]
    ways = fresh.post(f"answers/{number}/recourse", code=code, frozen=[1])
    assert ways == json.loads(json.dumps(edited.recourse(row, table.classes_[code], frozen=["pay"])[0].to_dict()))
    own = fresh.get("points/5")["answer"]  # a training example, without its own vote
    alone = edit_model(table, {3: None, 5: None})
    known = alone.explain(PEOPLE.loc[[table.references_.ids[5]]])[0].reasons()
    assert fresh.post(f"answers/{own}/reasons")["total"] == pytest.approx(known.total, abs=1e-6)
    refused: list[tuple[str, dict[str, Any]]] = [
        ("reasons", {"code": 2}),
        ("reasons", {"point": first}),
        ("reasons", {"point": 3}),
        ("recourse", {}),
        ("recourse", {"code": code, "frozen": [5]}),
    ]
    for path, body in refused:
        assert fresh.ask("POST", f"answers/{number}/{path}", body).status in (404, 422), (path, body)


def test_an_answer_that_is_replaced_makes_room_for_the_next(fresh: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dwac.server.explorer.state._ANSWERS", 2)
    number, changed = fresh.get(f"points/{fresh.first_row}")["answer"], None
    for age in range(30, 34):
        row = json.loads(PEOPLE[201:202].assign(age=age).to_json(orient="records", date_format="iso"))[0]
        changed = fresh.post("ask", row=row, replaces=changed)["answer"]
    assert fresh.post(f"answers/{number}/reasons")["contributions"]


def test_a_saved_model_of_images_compares_with_its_pictures(digits: DWACClassifier, tmp_path: Path) -> None:
    saved = load(digits.save(tmp_path / "model"), device="cpu")
    one, other = (clf.explain(DIGITS.images[400:401])[0].reasons() for clf in (digits, saved))
    assert one.precedent is not None
    assert other.precedent is not None
    assert other.precedent.id == one.precedent.id
    assert other.total == pytest.approx(one.total, rel=0.05)  # up to 256 shades


def test_a_search_finds_ids_first_then_words(page: Reader) -> None:
    found = page.get("search?q=person205")["found"]
    assert found[0]["id"] == "person205"
    assert found[0]["point"] == page.first_row + 5
    smiths = page.get("search?q=JOB=smith")["found"]
    assert smiths
    assert all("job=smith" in each["text"] for each in smiths)
    assert page.get("search?q=nobody")["found"] == page.get("search?q=")["found"] == []


def test_suspicious_labels_are_those_of_the_report(page: Reader, table: DWACClassifier) -> None:
    answer, wanted = page.get("issues"), label_issues(table)
    assert answer["judged"] == LEARNED  # in sample
    assert answer["n"] == len(wanted)
    assert [each["id"] for each in answer["issues"]] == wanted["id"].tolist()
    assert [table.references_.ids[each["point"]] for each in answer["issues"]] == wanted["id"].tolist()


def test_some_training_examples_can_be_asked_about_their_labels(table: DWACClassifier) -> None:
    refs, rows = table.references_, np.arange(0, len(table.references_), 3)
    votes, labels = leave_one_out(refs)[rows], refs.labels.cpu().numpy()[rows]
    some = label_issues(table, rows=rows)
    noise = label_noise(votes, labels)  # of these rows alone
    assert some["id"].tolist() == refs.ids[rows][noise.issues].tolist()
    assert np.allclose(some["log_odds"], (votes.max(axis=1) - votes[np.arange(len(rows)), labels])[noise.issues])
    assert some.attrs["checked"] == len(rows)


# Edits


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_edits_give_what_a_set_without_them_would_give(data: st.DataObject) -> None:
    seed, training = data.draw(st.integers(0, 10**6)), data.draw(st.booleans())
    kernel = data.draw(st.sampled_from(["gaussian", "laplace", "inverse_quadratic"]))
    scale = data.draw(st.sampled_from([0.05, 1.0, 20.0]))
    rng = np.random.default_rng(seed)
    h = (rng.normal(size=(40, 3)) * scale).astype(np.float32)
    refs = ReferenceSet(h, rng.integers(3, size=40), n_classes=3, kernel=kernel, class_weights=[1.0, 4.0, 0.3])
    places = rng.permutation(40)[: data.draw(st.integers(1, 12))].tolist()
    edits = {place: data.draw(st.sampled_from([None, 0, 1, 2])) for place in places}
    clf = _holding(refs)
    queries = (rng.normal(size=(15, 3)) * scale).astype(np.float32)
    own = np.arange(40) if training else np.full(15, -1)
    asked = h if training else queries
    examples = LoadedExamples(
        pd.RangeIndex(len(asked)),
        asked,
        np.zeros(len(asked), int),
        own,
        np.zeros(len(asked)),
        None if training else queries,
    )
    found = view_after(first_view(clf, examples), examples, edits).predictions.log_class_weights
    wanted = np.array([_slow_votes(refs, edits, row, place) for row, place in zip(asked, own.tolist(), strict=True)])
    assert (np.isinf(found) == np.isinf(wanted)).all()
    finite = np.isfinite(wanted)
    assert np.allclose(found[finite], wanted[finite], rtol=1e-5, atol=1e-3)


def _holding(refs: ReferenceSet) -> DWACClassifier:
    """A classifier with these voters and no calibration."""
    X, y = np.random.default_rng(0).normal(size=(30, 2)), [0, 1, 2] * 10
    clf = fitted(X, y, epochs=1, training=Training(embedding_size=3), validation_size=0, calibration_size=0)
    clf.model_.references = refs
    return clf


def _slow_votes(refs: ReferenceSet, edits: dict[int, int | None], h: Any, own: int) -> list[float]:
    votes = [-np.inf] * refs.n_classes
    squared = (refs.embeddings.double() - torch.as_tensor(h).double()).square().sum(1)
    log_w = get_kernel(refs.kernel).log_weights(squared).numpy()
    for place, label in enumerate(refs.labels.tolist()):
        now = edits.get(place, label)
        if place != own and now is not None:
            votes[now] = float(np.logaddexp(votes[now], log_w[place] + np.log(refs.class_weights[now])))
    return votes


def test_removing_an_example_changes_what_it_voted_on(fresh: Reader, table: DWACClassifier) -> None:
    point = fresh.first_row + 2
    before = fresh.get(f"points/{point}")
    nearest = before["neighbor_points"][0]
    changes = fresh.post("edits", action="remove", point=nearest)
    after = fresh.get(f"points/{point}")
    assert changes["n_references"] == len(table.references_) - 1
    assert after["before"]["explanation"]["probability"] == before["explanation"]["probability"]
    assert nearest not in after["neighbor_points"]
    assert [n["id"] for n in after["explanation"]["neighbors"]][:4] == [
        n["id"] for n in before["explanation"]["neighbors"]
    ][1:]
    wanted = edit_voters(table.references_, {nearest: None}).probabilities(table.embed(PEOPLE[202:203]))[0]
    assert list(after["explanation"]["probabilities"].values()) == pytest.approx(wanted, rel=1e-6)


def test_removing_the_deciding_example_changes_the_label_and_undo_restores_it(
    fresh: Reader, table: DWACClassifier
) -> None:
    row = int(table.predict_proba(PEOPLE[200:]).max(axis=1).argmin())
    point = fresh.first_row + row
    before = fresh.get(f"points/{point}")["explanation"]
    for name in table.explain(PEOPLE[200 + row : 201 + row])[0].flip_set() or []:
        place = int(np.flatnonzero(table.references_.ids == name)[0])
        changes = fresh.post("edits", action="remove", point=place)
    assert fresh.get(f"points/{point}")["explanation"]["label"] != before["label"]
    assert f"person{200 + row}" in [each["id"] for each in changes["changed"]]
    assert changes["n_changed"] == len(changes["changed"])
    predicted = fresh.column("predicted", "<u2")
    n_edits = len(changes["edits"])
    for left in range(n_edits - 1, -1, -1):
        changes = fresh.post("edits", action="undo")
        assert len(changes["edits"]) == left
    assert changes["n_changed"] == 0
    assert fresh.get(f"points/{point}")["explanation"] == before
    for _ in range(n_edits):
        changes = fresh.post("edits", action="redo")
    assert (fresh.column("predicted", "<u2") == predicted).all()


def test_relabelling_moves_a_vote(fresh: Reader, table: DWACClassifier) -> None:
    before = fresh.get(f"points/{fresh.first_row}")
    nearest, voter = before["neighbor_points"][0], before["explanation"]["neighbors"][0]
    other = 1 - table.classes_.tolist().index(voter["label"])
    fresh.post("edits", action="relabel", point=nearest, label=other)
    after = fresh.get(f"points/{fresh.first_row}")["explanation"]
    moved = (
        after["probabilities"][table.classes_[other]] - before["explanation"]["probabilities"][table.classes_[other]]
    )
    assert moved == pytest.approx(voter["share"], rel=1e-4)
    assert fresh.column("label", "<u2")[nearest] == other
    assert fresh.column("state", "u1")[nearest] == 4
    assert fresh.get(f"points/{nearest}")["true"] == table.classes_[other]


def test_edits_belong_to_their_page_and_never_to_the_model(fresh: Reader, table: DWACClassifier) -> None:
    held = table.references_.labels.clone(), table.references_.ids.tolist()
    fresh.post("edits", action="remove", point=0)
    fresh.post("edits", action="relabel", point=1, label=int(1 - held[0][1]))
    assert len(Reader(fresh.client, fresh.explorer, "f" * 32).get("edits.json")["edits"]) == 0
    assert len(fresh.get("edits.json")["edits"]) == 2
    assert (table.references_.labels == held[0]).all()
    assert table.references_.ids.tolist() == held[1]
    again = fresh.client.post("/v1/explain", {"rows": [PEOPLE.iloc[200].to_dict() | {"since": "2020-01-01"}]},
                              authorization=f"Bearer {TOKEN}").json  # fmt: skip
    assert again["explanations"][0]["n_references"] == len(table.references_)


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([{"action": "undo"}], "nothing_to_undo"),
        ([{"action": "redo"}], "nothing_to_redo"),
        ([{"action": "remove", "point": 3}, {"action": "remove", "point": 3}], "removed"),
        ([{"action": "remove", "point": 3}, {"action": "relabel", "point": 3, "label": 0}], "removed"),
        ([{"action": "remove", "point": 199}], "invalid_input"),  # a row of data
        ([{"action": "remove", "point": 10**9}], "invalid_input"),
        ([{"action": "relabel", "point": 3, "label": 2}], "invalid_input"),
        ([{"action": "explode"}], "invalid_request"),
        ([{"action": "remove", "point": "3"}], "invalid_request"),
    ],
)
def test_an_edit_that_cannot_be_is_refused_and_changes_nothing(fresh: Reader, steps: list[Any], code: str) -> None:
    for step in steps[:-1]:
        fresh.post("edits", **step)
    before = fresh.get("edits.json")
    refused = fresh.ask("POST", "edits", steps[-1])
    assert refused.code == code
    assert refused.status in (409, 422)
    assert fresh.get("edits.json") == before


def test_the_last_voters_cannot_be_removed() -> None:
    refs = ReferenceSet([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]], [0, 1, 1], n_classes=3)
    explorer = Explorer.of(_holding(refs), private=False)
    explorer.edit("a", 0, None)
    with refuses(InputError, 2):
        explorer.edit("a", 1, None)
    assert len(explorer.history("a").done) == 1


# Groups


@pytest.fixture(scope="module")
def crowded(crowd: DWACClassifier) -> Iterator[Reader]:
    yield from reading(Explorer.of(crowd, PEOPLE[200:220], AGED[200:220]))


def test_groups_are_those_of_the_explanation_and_open_into_their_subgroups(
    crowded: Reader, crowd: DWACClassifier
) -> None:
    answer = crowded.get(f"points/{crowded.first_row}?k=4")
    wanted = crowd.explain(PEOPLE[200:201], k=4)[0]
    assert not wanted.few_suffice
    assert answer["few_suffice"] is False
    assert answer["explanation"] == json.loads(json.dumps(wanted.to_dict()))
    assert answer["facts"]["decided"] == wanted.lead()[-3:]
    assert {group["label"] for group in answer["explanation"]["groups"]} == {"old", "young"}
    refs = crowd.references_
    for number, (group, placed) in enumerate(zip(wanted.shown_groups, answer["groups"], strict=True)):
        assert [refs.ids[place] for place in placed["member_points"]] == [member.id for member in group.members]
        assert set(refs.ids[np.isin(refs.groups.leaves, placed["discs"])]) == set(group.ids)
        opened = crowded.get(f"answers/{answer['answer']}/groups/{number}")
        assert opened["n"] == len(group.subgroups)
        assert [part["share"] for part in opened["subgroups"]] == [part.share for part in group.subgroups[:12]]
        if group.subgroups:
            assert sum(part.share for part in group.subgroups) == pytest.approx(group.share)
        for part, found in zip(group.subgroups, opened["subgroups"], strict=False):
            assert refs.ids[refs.groups.leaves == found["discs"][0]].tolist() == part.ids


def test_a_training_example_has_groups_with_descriptions_without_itself(crowded: Reader, crowd: DWACClassifier) -> None:
    answer = crowded.get("points/7")["explanation"]
    known = crowd.descriptions_
    assert known is not None
    without_size = [group["description"].rpartition(", ")[0] for group in answer["groups"]]
    assert all(words in known for words in without_size)
    assert crowd.references_.ids[7] not in [member["id"] for group in answer["groups"] for member in group["members"]]


def test_discs_are_the_leaves_and_list_their_members_page_by_page(crowded: Reader, crowd: DWACClassifier) -> None:
    start, groups, layout = crowded.get("start"), crowd.references_.groups, crowded.explorer.points.layout
    assert [disc["size"] for disc in start["discs"]] == groups.leaf_sizes.tolist()
    assert [disc["label"] for disc in start["discs"]] == groups.leaf_labels.tolist()
    assert [[disc["x"], disc["y"]] for disc in start["discs"]] == layout.centres.tolist()
    assert [disc["r"] for disc in start["discs"]] == layout.radii.tolist()
    assert [group["description"] for group in start["groups"]] == crowd.descriptions_
    biggest = int(groups.leaf_sizes.argmax())
    found = crowded.get(f"discs/{biggest}")
    mine = crowd.references_.ids[groups.leaves == biggest]
    assert len(mine) <= 30
    assert {member["id"] for member in found["members"]} == set(mine)
    assert found["members"][0]["id"] == crowd.references_.ids[groups.leaf_representatives[biggest]]
    assert found["label"] == crowd.classes_[groups.leaf_labels[biggest]]
    whole, page_by_page = groups.members(int(groups.sizes.argmax())), []
    disc = int(groups.leaves[whole[0]])
    for first in range(0, len(whole), 30):
        part = crowded.get(f"discs/{disc}?whole=1&start={first}")
        assert part["n"] == len(whole)
        page_by_page += [member["point"] for member in part["members"]]
    assert sorted(page_by_page) == whole.tolist()
    job = str(crowd.examples_[mine[0]]["job"])
    assert job in next(member["text"] for member in found["members"] if member["id"] == mine[0])
    point = crowded.get(f"points/{crowded.first_row + 3}")
    assert start["discs"][point["disc"]]["label"] == crowd.classes_.tolist().index(point["explanation"]["label"])


def test_a_group_that_is_not_there_is_refused(crowded: Reader) -> None:
    assert crowded.ask("GET", "discs/100000").status == 422
    assert crowded.ask("GET", "answers/100000/groups/0").status == 410
    answer = crowded.get(f"points/{crowded.first_row}")["answer"]
    assert crowded.ask("GET", f"answers/{answer}/groups/99").status == 422
    other = Reader(crowded.client, crowded.explorer, "e" * 32)
    assert other.ask("GET", f"answers/{answer}/groups/0").status == 410  # another page's


def test_edits_keep_descriptions_with_their_groups(crowd: DWACClassifier) -> None:
    refs, known = crowd.references_, crowd.descriptions_
    assert known is not None
    smallest = int(refs.groups.sizes.argmin())
    edits: dict[int, int | None] = {int(place): None for place in refs.groups.members(smallest)}
    other = edit_model(crowd, edits | {int(refs.groups.members((smallest + 1) % len(known))[0]): None})
    assert other.descriptions_ == [text for group, text in enumerate(known) if group != smallest]


def test_a_private_explorer_has_no_groups(crowd: DWACClassifier) -> None:
    for page in reading(Explorer.of(crowd, PEOPLE[200:210], private=True)):
        start = page.get("start")
        assert start["discs"] == start["groups"] == []
        answer = page.get("points/0")
        assert answer["few_suffice"]
        assert answer["explanation"]["groups"] == []
        assert not answer["groups"]
        assert page.ask("GET", "discs/0").status == 409
        assert page.ask("GET", f"answers/{answer['answer']}/groups/0").status == 409


# Few vote for all


@pytest.fixture(scope="module")
def represented(condensed: DWACClassifier) -> Iterator[Reader]:
    yield from reading(Explorer.of(condensed, PEOPLE[200:220], AGED[200:220]))


def test_a_condensed_model_says_who_votes_for_how_many(represented: Reader, condensed: DWACClassifier) -> None:
    start, known, refs = represented.get("start"), condensed.agreement_, condensed.references_
    assert known is not None
    total = round(float(refs.sizes.sum()))
    assert named(start["represented"], "14 representatives", f"{total} training examples", known)
    assert start["sizes"] == refs.sizes.tolist()
    assert start["card"]["agreement"] == known._asdict()
    answer = represented.get(f"points/{represented.first_row}?k=4")
    wanted = condensed.explain(PEOPLE[200:201], k=4)[0]
    assert answer["explanation"] == json.loads(json.dumps(wanted.to_dict()))
    assert answer["facts"]["agreed"] == wanted.sentences()[-1]
    assert answer["facts"]["flipped"] in wanted.details()
    assert answer["facts"]["flipped"].startswith("Removing")
    assert answer["lead"] == [each for each in wanted.lead() if "prediction set" not in each]


def test_the_disc_of_a_representative_lists_all_it_stands_for(represented: Reader, condensed: DWACClassifier) -> None:
    refs, members = condensed.references_, condensed.references_.members
    assert members is not None
    for disc in range(len(refs)):
        found = represented.get(f"discs/{disc}")
        assert found["n"] == found["n_examples"] == refs.sizes[disc]
        mine = members.ids[members.groups.leaves == disc]
        assert {member["id"] for member in found["members"]} <= set(mine)
        points = [member for member in found["members"] if member["point"] is not None]
        assert [(member["id"], member["size"]) for member in points] == [(refs.ids[disc], refs.sizes[disc])]


@pytest.mark.parametrize("saved", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("training", [False, True])
def test_edits_of_representatives_equal_a_recount_from_scratch(
    condensed: DWACClassifier, saved: bool, training: bool, tmp_path: Path
) -> None:
    clf = condensed
    if saved:
        condensed.save(tmp_path / "few")
        clf = load(tmp_path / "few", device="cpu")
        assert clf.references_.members is None
    rows: dict[str, Any] = {} if training else {"X": PEOPLE[200:230], "y": AGED[200:230]}
    explorer, refs = Explorer.of(clf, **rows, private=False), clf.references_
    edits: dict[int, int | None] = {0: None, 3: 1 - int(refs.labels[3]), 5: None, 9: 1 - int(refs.labels[9])}
    for place, label in edits.items():
        explorer.edit("a", place, label)
    view = explorer.view("a")
    h = refs.embeddings.numpy() if training else clf.embed(PEOPLE[200:230])
    own = range(len(refs)) if training else [-1] * 30
    wanted = np.array([_slow_weighted(refs, edits, row, place) for row, place in zip(h, own, strict=True)])
    assert np.allclose(view.predictions.log_class_weights, wanted, rtol=1e-5, atol=1e-3)
    for row in (0, 1, 5):  # one by one, too, with and without an example's own votes
        point = row if training else row + explorer.points.n_training
        answer = explorer.point("a", point, 4)["explanation"]
        p = np.exp(wanted[row] - np.logaddexp.reduce(wanted[row]))
        assert list(answer["probabilities"].values()) == pytest.approx(p.tolist(), abs=1e-4)
        assert answer["n_references"] == len(refs) - 2 - (training and row not in (0, 5))
        assert answer["agreement"] is None  # that was measured before the edits
    assert clf.references_ is refs
    assert len(refs) == 14


def _slow_weighted(refs: ReferenceSet, edits: dict[int, int | None], h: Any, own: int) -> list[float]:
    votes = [-np.inf] * refs.n_classes
    for place, label in enumerate(refs.labels.tolist()):
        now = edits.get(place, label)
        if place != own and now is not None:
            squared = float(((refs.embeddings[place].double().numpy() - np.asarray(h, dtype=np.float64)) ** 2).sum())
            log_w = -squared + np.log(refs.weights[place]) + np.log(refs.class_weights[now])
            votes[now] = float(np.logaddexp(votes[now], log_w))
    return votes


# Exports


def test_the_table_has_every_loaded_example(fresh: Reader, table: DWACClassifier) -> None:
    rows = list(csv.DictReader(io.StringIO(fresh.ask("GET", "examples.csv?epsilon=0.2").body.decode())))
    sets = table.predict_set(PEOPLE[200:], epsilon=0.2)
    assert [row["id"] for row in rows] == PEOPLE.index[200:].tolist()
    assert [row["label"] for row in rows] == AGED[200:].tolist()
    assert [row["predicted"] for row in rows] == table.predict(PEOPLE[200:]).tolist()
    assert [row["set"] for row in rows] == ["|".join(table.classes_[held]) for held in sets]
    first: Any = table.conformal(PEOPLE[200:201])
    assert float(rows[0]["typicality"]) == pytest.approx(first.typicality[0])
    assert float(rows[0]["credibility"]) == pytest.approx(table.conformal(PEOPLE[200:201]).credibility[0])


def test_the_table_holds_no_formula(table: DWACClassifier) -> None:
    X = PEOPLE[200:203].set_axis(["=1+1", "-3.5", "@x"])
    for page in reading(Explorer.of(table, X)):
        rows = list(csv.DictReader(io.StringIO(page.ask("GET", "examples.csv?epsilon=0.2").body.decode())))
        assert [row["id"] for row in rows] == ["'=1+1", "-3.5", "'@x"]


def test_rows_that_cannot_be_read_are_left_out_and_counted(table: DWACClassifier) -> None:
    X = PEOPLE[200:210].astype({"age": object})
    X.iloc[4, 0] = "old"
    explorer = Explorer.of(table, X, AGED[200:210], note="Look.", rival=(table, X, "twin"))
    assert list(explorer.unreadable) == [4]
    assert named(explorer.unreadable[4], "'age'", "'old'")
    assert named(explorer.note, "Look.", "1 row", "row 4", explorer.unreadable[4])
    assert "old" not in Explorer.of(table, X, private=True).note
    whole = Explorer.of(table, PEOPLE[200:210].drop(X.index[4]), np.delete(AGED[200:210], 4))
    assert explorer.examples.ids.tolist() == whole.examples.ids.tolist()
    assert explorer.examples.truth.tolist() == whole.examples.truth.tolist()
    np.testing.assert_array_equal(explorer.first.predictions.codes, whole.first.predictions.codes)
    for page in reading(explorer):
        assert page.get("start")["n_data"] == 9
        refused = page.ask("POST", "ask", {"row": {"age": "old"}})
        assert (refused.status, refused.code) == (422, "invalid_input")
    with refuses(InputError, "X", "row 0"):
        Explorer.of(table, X.iloc[[4, 4]].assign(age=[np.inf, np.inf]))


def test_edits_are_exported_by_id_with_what_they_change(fresh: Reader, table: DWACClassifier) -> None:
    fresh.post("edits", action="remove", point=4)
    content = fresh.get("edits.json")
    name, label = table.references_.ids[4], table.classes_[table.references_.labels[4]]
    assert content["model"] == "people"
    assert content["edits"] == [{"point": 4, "id": name, "before": label, "label": None}]
    assert content["n_asked"] == 60


# Every kind of data


def test_without_data_the_training_examples_are_loaded(table: DWACClassifier) -> None:
    explorer = Explorer.of(table, most=50)
    for page in reading(explorer):
        predicted = page.column("predicted", "<u2")
        assert (predicted != NONE).sum() == 50
        assert page.get("start")["with_prediction"] == explorer.examples.own.tolist()
        point = int(explorer.examples.own[3])
        assert table.classes_[predicted[point]] == page.get(f"points/{point}")["explanation"]["label"]
        assert page.get(f"points/{point}")["editable"]


@pytest.mark.slow
def test_images_can_be_moved_and_made_brighter(digits: DWACClassifier) -> None:
    for page in reading(Explorer.of(digits, DIGITS.images[400:450], DIGITS.target[400:450])):
        point = page.first_row + 3
        known = page.get(f"points/{point}")
        assert known["kind"] == "image"
        same = page.post("ask", point=point)
        assert same["explanation"]["probabilities"] == known["explanation"]["probabilities"]
        moved = page.post("ask", point=point, right=1, down=-2, brightness=0.5)["explanation"]
        image = DIGITS.images[403]
        wanted = np.pad(image, ((0, 2), (1, 0)), mode="edge")[2:, :8] * 0.5
        assert moved["probabilities"] == digits.explain(wanted[None])[0].to_dict()["probabilities"]
        assert page.ask("POST", "ask", {"point": point, "right": 8}).code == "invalid_input"
        assert page.get("points/0")["editable"]  # a training image, from the picture of it


def test_texts_show_the_words_that_were_read(texts: DWACClassifier) -> None:
    for page in reading(Explorer.of(texts, ["a red plum", "some Green pear"])):
        known = page.get(f"points/{page.first_row}")
        assert [word for word, _ in known["explanation"]["attention"]] == ["a", "red", "plum"]
        assert known["true"] is None
        assert page.get("points/0")["explanation"]["attention"]
        assert page.post("ask", row="a green plum")["explanation"]["label"] == texts.predict(["a green plum"])[0]
        found = page.get("search?q=gREEN%20pear")["found"][-1]
        assert (found["id"], found["text"]) == (1, "some Green pear")  # shown as it is written


def test_two_models_are_compared_on_the_same_rows(table: DWACClassifier, rival: DWACClassifier) -> None:
    other, rows = rival, PEOPLE[200:]
    for page in reading(Explorer.of(table, rows, AGED[200:], rival=(other, rows, "other"))):
        found = page.get("disagreements")
        apart = np.flatnonzero(table.predict(rows) != other.predict(rows))
        assert found["n"] == len(apart) > 0
        assert {each["id"] for each in found["rows"]} == set(PEOPLE.index[200 + apart])
        sure = [min(each["probability"], each["rival_probability"]) for each in found["rows"]]
        assert sure == sorted(sure, reverse=True)
        rival = page.get(f"points/{page.first_row + 1}")["rival"]["explanation"]
        assert rival == json.loads(json.dumps(other.explain(PEOPLE[201:202])[0].to_dict()))
    with refuses(InputError, "X"):
        Explorer.of(table, rival=(other, None, "other"))


# Privacy


def private_pages(table: DWACClassifier, tmp_path: Path) -> Iterator[tuple[Reader, bool]]:
    table.save(tmp_path / "model", include_examples=False)
    loaded = load(tmp_path / "model", device="cpu")
    for with_data in (True, False):
        for clf, private in ((table, True), (loaded, None)):
            X = PEOPLE[200:] if with_data else None
            for page in reading(Explorer.of(clf, X, private=private)):
                yield page, with_data


def test_a_private_explorer_shows_only_labels_and_shares_of_training_examples(
    table: DWACClassifier, tmp_path: Path
) -> None:
    voter_ids = set(table.references_.ids)
    for page, with_data in private_pages(table, tmp_path):
        answers = [page.ask("GET", path).body.decode() for path in ("start", "edits.json", "examples.csv")]
        answers.append(page.ask("GET", "search?q=person1").body.decode())
        answers.append(page.ask("GET", "search?q=smith").body.decode())
        row = PEOPLE.iloc[3].to_dict() | {"since": "2020-05-05", "member": True, "age": 33}
        answers.append(json.dumps(page.post("ask", row={**row, "pay": 3000.0}, k=100)))
        if with_data:
            number = page.get(f"points/{page.first_row + 1}")["answer"]
            for path, body in (("reasons", {}), ("reasons", {"point": 3}), ("recourse", {"code": 0})):
                answers.append(page.ask("POST", f"answers/{number}/{path}", body).body.decode())
            answers.append(page.ask("GET", "importance").body.decode())
            assert '"value":"' not in "".join(answers[-4:])
            answers.append(json.dumps(page.get(f"points/{page.first_row + 1}?k=100")))
            assert page.get("points/1")["explanation"]["record"] is None
        named = set(re.findall(r"person\d+", " ".join(answers)))
        assert not named & voter_ids
        assert "smith" not in answers[-1] or not with_data
        neighbor = page.post("ask", row={**row, "pay": 3000.0})["explanation"]["neighbors"][0]
        assert set(neighbor) == {"label", "share"}
        assert len(page.column("label", "<u2")) == len(page.column("xy", "<f4")) // 2 == 60 * with_data
        for refused in (
            page.ask("POST", "edits", {"action": "remove", "point": 0}),
            page.ask("GET", "issues"),
        ):
            assert (refused.status, refused.code) == (409, "not_available")


# The gate


def test_the_page_is_open_and_everything_else_needs_the_token(page: Reader) -> None:
    shown = page.client.get("/")
    assert shown.status == 200
    policy = shown.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert "http" not in policy
    for path in ("start", "columns/xy", "points/0", "search?q=a", "issues", "edits.json", "examples.csv"):
        assert page.client.get(f"/explorer/{path}").status == 401
        assert page.ask("GET", path, authorization="Bearer wrong-token-of-mine").status == 401
    for path in ("ask", "edits"):
        assert page.client.post(f"/explorer/{path}", {}).status == 401
    assert page.ask("GET", "start", host="evil.example").status == 421
    assert page.ask("GET", "start", origin="http://evil.example").status == 421


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("columns/secrets", 404),
        ("points/-1", 404),
        ("points/999999", 422),
        ("points/x", 404),
        ("points/0?k=0", 422),
        ("points/0?k=1e9", 422),
        ("points/0?k=nan", 422),
        ("examples.csv?epsilon=0", 422),
        ("examples.csv?epsilon=many", 422),
    ],
)
def test_what_makes_no_sense_is_refused(page: Reader, path: str, status: int) -> None:
    assert page.ask("GET", path).status == status


def test_each_session_has_its_own_name(page: Reader) -> None:
    for name in ("", "short", "../../etc/passwd", "g" * 16, "a" * 65):
        assert page.ask("GET", "start", **{"x-session": name}).code == "no_session"


@pytest.mark.parametrize("body", [{}, {"row": {"age": 3}}, {"row": [[[]]]}, {"point": 0}, {"row": 1, "k": 1000}, []])
def test_questions_that_cannot_be_answered_are_refused(page: Reader, body: Any) -> None:
    assert page.ask("POST", "ask", body).status == 422


def test_the_page_loads_nothing_from_other_hosts_and_runs_nothing_inline() -> None:
    for path in STATIC.iterdir():
        content = path.read_text()
        assert not re.search(r"https?://|//\w+\.\w+/|@import|url\(", content), path
        assert "innerHTML" not in content, path
        assert "eval(" not in content, path
    html = (STATIC / "index.html").read_text()
    assert not re.search(r"<script>|<style|\son\w+=|\sstyle=", html)
    for name in re.findall(r'"/static/explorer/([^"]+)"', html):
        assert (STATIC / name).exists()


def test_every_module_it_imports_is_there() -> None:
    for path in STATIC.glob("*.js"):
        for name in re.findall(r'from "\./([^"]+)"', path.read_text()):
            assert (STATIC / name).exists(), (path, name)


# Commands and notebooks


@pytest.mark.slow
def test_the_command_serves_the_page_until_it_is_stopped(table: DWACClassifier, tmp_path: Path) -> None:
    table.save(tmp_path / "people")
    PEOPLE[200:].to_csv(tmp_path / "new.csv", index_label="who")
    command = [str(DWAC), "explore", str(tmp_path / "people"), str(tmp_path / "new.csv"), "--id", "who", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/#token=(\S+)", line)
        assert found is not None, (line, process.stderr)
        known = {"authorization": f"Bearer {found[2]}", "x-session": "a" * 16}
        start = Client(int(found[1])).ask("GET", "/explorer/start", None, known).json
        assert (start["title"], start["n_data"]) == ("people", 60)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=HANG) == 0
        process.communicate()


def test_a_comparison_without_data_is_refused(table: DWACClassifier, tmp_path: Path) -> None:
    table.save(tmp_path / "model")
    result = CliRunner().invoke(app, ["explore", str(tmp_path / "model"), "--compare", str(tmp_path / "model")])
    assert result.exit_code == 1
    assert named(result.output, "--compare")


def test_explore_opens_the_page_from_python(table: DWACClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    page = table.explore(PEOPLE[200:], AGED[200:], title="mine")
    try:
        assert opened == [page.url]
        port, token = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/#token=(\S+)", page.url).groups()  # type: ignore[union-attr]
        known = {"authorization": f"Bearer {token}", "x-session": "a" * 16}
        assert Client(int(port)).ask("GET", "/explorer/start", None, known).json["title"] == "mine"
        assert f'<iframe src="{page.url}"' in page._repr_html_()
        framed = Client(int(port)).get("/").headers["content-security-policy"]
        assert named(framed, "frame-ancestors http://localhost:*", "script-src 'self'")
    finally:
        page.stop()
    with pytest.raises(ConnectionRefusedError):
        Client(int(port)).get("/")


def test_explanations_and_pictures_show_themselves_in_a_notebook(table: DWACClassifier) -> None:
    explanation = table.explain(PEOPLE[200:201])[0]
    assert explanation._repr_html_().startswith("<div")
    assert explanation.plot()._repr_png_().startswith(b"\x89PNG")
