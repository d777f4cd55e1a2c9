"""The explorer of numbers and of several labels: the same numbers as in Python, exact edits, lists and refusals."""

import csv
import io
import json
import re
from collections.abc import Iterator
from copy import copy
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac import DWACClassifier, DWACRegressor
from dwac.errors import InputError
from dwac.reference.references import without_members
from dwac.report import write
from dwac.server.explorer import Explorer
from tests.named import refuses
from tests.server.data import AGES, PAID, QUICK, SIZES, TAGS
from tests.server.explored import Reader, reading

NEW, TRUE, TAGGED = SIZES[240:], PAID[240:], TAGS[240:]


@pytest.fixture(scope="module")
def page(numbers: DWACRegressor) -> Iterator[Reader]:
    yield from reading(Explorer.of(numbers, NEW, TRUE, title="pay"))


@pytest.fixture(scope="module")
def tagged(tags: DWACClassifier) -> Iterator[Reader]:
    yield from reading(Explorer.of(tags, NEW, TAGGED, title="tags"))


# Numbers


def test_a_row_is_explained_as_in_python_at_the_epsilon_asked_for(page: Reader, numbers: DWACRegressor) -> None:
    answer = page.get(f"points/{page.first_row + 2}?k=4&epsilon=0.3")
    wanted = numbers.explain(NEW[2:3], k=4, epsilon=0.3)[0]
    assert answer["explanation"] == json.loads(json.dumps(wanted.to_dict()))
    assert answer["sentences"] == wanted.sentences()
    assert answer["true"] == TRUE.iloc[2]
    named = [numbers.references_.ids[place] for place in answer["neighbor_points"]]
    assert named == [neighbor.id for neighbor in wanted.neighbors]


def test_columns_say_what_python_says_of_every_number(page: Reader, numbers: DWACRegressor) -> None:
    m, targets = len(numbers.references_), numbers.references_.targets
    assert targets is not None
    label, predicted = page.column("label", "<f8"), page.column("predicted", "<f8")
    assert label.tolist() == [*targets[:, 0].tolist(), *TRUE]
    np.testing.assert_allclose(predicted[m:], numbers.predict(NEW))
    assert np.isnan(predicted[:m]).all()
    ends = page.column("interval?epsilon=0.2", "<f8").reshape(-1, 2)
    assert ends.tolist() == numbers.predict_interval(NEW, 0.2).tolist()
    np.testing.assert_allclose(page.column("typicality", "<f4")[m:], numbers.typicality(NEW), atol=1e-6)
    assert page.ask("GET", "columns/p_values").code == "not_found"


@pytest.mark.parametrize("average", ["mean", pytest.param("median", marks=pytest.mark.slow)])
def test_edits_move_predictions_exactly_as_other_voters_would(numbers: DWACRegressor, average: str) -> None:
    model = copy(numbers)
    model.average = average
    for X, y in ((NEW, TRUE), (None, None)):
        explorer = Explorer.of(model, X, y)
        explorer.edit("s", 3, None)
        explorer.edit("s", 5, (9000.0,))
        after = explorer.view("s").predictions.shown[:, 0]
        voters, ids = copy(numbers.references_), numbers.references_.ids
        voters.relabel([ids[5]], targets=[9000.0])
        voters.remove([ids[3]])
        for row in range(12):
            others = copy(voters)
            if X is None and row != 3:  # who votes is predicted by all others
                others.remove([ids[row]])
            votes = others.distribution(explorer.examples.h[row : row + 1])
            wanted = votes.mean if average == "mean" else votes.median
            assert after[row] == pytest.approx(wanted[0, 0], rel=1e-6), row
        explorer.undo("s")
        explorer.undo("s")
        assert explorer.view("s") is explorer.first


def test_a_new_number_is_listed_with_what_it_changes_and_can_be_undone(fresh: Reader, numbers: DWACRegressor) -> None:
    place = fresh.get(f"points/{fresh.first_row}")["neighbor_points"][0]
    before = numbers.predict(NEW[:1])[0]
    changes = fresh.post("edits", action="relabel", point=place, label=99_000)
    assert changes["edits"][0]["label"] == 99_000
    assert changes["n_changed"] == len(changes["changed"]) > 0
    moves = [abs(each["after"]["label"] - each["before"]["label"]) for each in changes["changed"]]
    assert moves == sorted(moves, reverse=True)
    answer = fresh.get(f"points/{fresh.first_row}")
    assert answer["before"]["explanation"]["prediction"] == pytest.approx(before)
    assert answer["explanation"]["prediction"] > before + 10
    assert fresh.column("label", "<f8")[place] == 99_000
    assert fresh.post("edits", action="undo")["n_changed"] == 0
    for wrong in ([1.0, 2.0], [], [None], "many"):
        assert fresh.ask("POST", "edits", {"action": "relabel", "point": place, "label": wrong}).status == 422


def test_the_largest_errors_come_first_and_the_table_has_intervals(page: Reader, numbers: DWACRegressor) -> None:
    listed = page.get("issues")["issues"]
    errors = [abs(each["label"] - each["true"]) for each in listed]
    assert errors == sorted(errors, reverse=True)
    assert len(listed) == len(NEW)
    rows = list(csv.DictReader(io.StringIO(page.ask("GET", "examples.csv?epsilon=0.2").body.decode())))
    assert [float(row["lower"]) for row in rows] == numbers.predict_interval(NEW, 0.2)[:, 0].tolist()
    assert [float(row["number"]) for row in rows] == TRUE.tolist()


def test_what_if_somebody_were_older_moves_the_number(page: Reader, numbers: DWACRegressor) -> None:
    record = page.get(f"points/{page.first_row}")["explanation"]["record"]
    asked = page.post("ask", row={**record, "age": 79}, k=3, epsilon=0.2)
    wanted = numbers.explain(NEW[:1].assign(age=79), k=3, epsilon=0.2)[0]
    assert asked["explanation"]["prediction"] == pytest.approx(wanted.prediction)
    assert asked["explanation"]["interval"] == list(wanted.interval)


def test_discs_and_their_members_have_numbers(page: Reader, numbers: DWACRegressor) -> None:
    start = page.get("start")
    groups, targets = numbers.references_.groups, numbers.references_.targets
    assert targets is not None
    for leaf, disc in enumerate(start["discs"][:5]):
        assert disc["value"][0] == pytest.approx(targets[:, 0].numpy()[groups.leaves == leaf].mean())
    members = page.get("discs/0")["members"]
    assert all(member["label"] in targets[:, 0].tolist() for member in members)


def test_a_private_page_of_numbers_names_nobody_and_takes_no_edits(numbers: DWACRegressor) -> None:
    for page in reading(Explorer.of(numbers, NEW, TRUE, private=True)):
        answer = page.get("points/1")
        assert (answer["explanation"]["neighbors"], answer["explanation"]["record"]) == ([], None)
        assert not np.isin(page.column("predicted", "<f8"), numbers.predict(NEW)).any()
        assert page.ask("POST", "edits", {"action": "relabel", "point": 0, "label": 5}).status == 409
        assert page.ask("GET", "issues").status == 409


def test_a_private_page_of_labels_explains_rows_without_their_values(tags: DWACClassifier) -> None:
    for page in reading(Explorer.of(tags, NEW, TAGGED, private=True)):
        answer = page.get("points/1?label=1")
        assert answer["explanation"]["record"] is None
        assert all(set(neighbor) == {"label", "share"} for neighbor in answer["explanation"]["neighbors"])
        assert answer["labels"]


@pytest.mark.slow
def test_several_numbers_are_shown_and_edited_together(two_numbers: DWACRegressor) -> None:
    both = pd.DataFrame({"pay": TRUE, "months": 12.0 * NEW["age"]})
    for page in reading(Explorer.of(two_numbers, NEW, both)):
        assert page.get("start")["target"]["n_numbers"] == 2
        n = page.first_row
        np.testing.assert_allclose(page.column("predicted", "<f8").reshape(-1, 2)[n:], two_numbers.predict(NEW))
        page.post("edits", action="relabel", point=4, label=[1.0, 2.0])
        assert page.column("label", "<f8").reshape(-1, 2)[4].tolist() == [1.0, 2.0]
        assert page.get("points/4")["true"] == [1.0, 2.0]
        assert page.ask("POST", "edits", {"action": "relabel", "point": 4, "label": 1.0}).status == 422


@pytest.mark.slow
def test_two_models_of_numbers_are_compared_and_of_different_targets_refused(
    numbers: DWACRegressor, tags: DWACClassifier
) -> None:
    other = DWACRegressor(**QUICK).fit(SIZES[:240], PAID[:240])
    for page in reading(Explorer.of(numbers, NEW, TRUE, rival=(other, NEW, "other"))):
        rows = page.get("disagreements")["rows"]
        gaps = [abs(row["label"] - row["rival_label"]) for row in rows]
        assert gaps == sorted(gaps, reverse=True)
        theirs = page.get(f"points/{page.first_row}")["rival"]["explanation"]["prediction"]
        assert theirs == pytest.approx(other.predict(NEW[:1])[0])
    with refuses(InputError, "numbers", "labels"):
        Explorer.of(numbers, NEW, TRUE, rival=(tags, NEW, "tags"))


@pytest.mark.slow
def test_reasons_recourse_and_importance_of_a_number_are_those_of_python(
    page: Reader, numbers: DWACRegressor, two_numbers: DWACRegressor
) -> None:
    row, own = NEW[2:3], float(numbers.predict(NEW[2:3])[0])
    number = page.get(f"points/{page.first_row + 2}")["answer"]
    wanted = numbers.explain(row)[0].reasons((own + 100, np.inf))
    assert page.post(f"answers/{number}/reasons", low=own + 100)["total"] == wanted.total
    ways = page.post(f"answers/{number}/recourse", high=own - 200)
    assert ways == json.loads(json.dumps(numbers.recourse(row, (-np.inf, own - 200))[0].to_dict()))
    told = page.get("importance?start=4")
    rows = np.random.default_rng(0).permutation(60)[4:8]
    assert told["points"] == (page.first_row + rows).tolist()
    for place, point, parts in zip(rows, told["points"], told["contributions"], strict=True):
        known = numbers.importance(NEW[place : place + 1], random_state=point).contributions[told["columns"]]
        np.testing.assert_allclose(parts, known.to_numpy()[0])
    for other in reading(Explorer.of(two_numbers, NEW)):
        months = two_numbers.explain(row)[0].reasons(name="months")
        number = other.get(f"points/{other.first_row + 2}?label=1")["answer"]
        assert other.post(f"answers/{number}/reasons")["total"] == months.total
        assert other.post(f"answers/{number}/recourse", low=0)["reached"]


# Several labels


def test_reasons_and_recourse_of_a_label_are_those_of_python(tagged: Reader, tags: DWACClassifier) -> None:
    row = NEW[1:2]
    number = tagged.get(f"points/{tagged.first_row + 1}?label=1")["answer"]
    wanted = tags.explain(row)[0]["smith"].reasons()
    assert tagged.post(f"answers/{number}/reasons")["total"] == wanted.total
    for code, name in enumerate(("not smith", "smith")):
        ways = tagged.post(f"answers/{number}/recourse", code=code)
        assert ways == json.loads(json.dumps(tags.recourse(row, name)[0].to_dict()))
    assert tagged.get("importance?label=1")["label"] == "smith"


@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_columns_say_what_python_says_of_every_label(tagged: Reader, tags: DWACClassifier) -> None:
    m, trust = len(tags.references_), tags.conformal(NEW)
    label, predicted = tagged.column("label", "<u1").reshape(-1, 3), tagged.column("predicted", "<f4").reshape(-1, 3)
    assert label[m:].tolist() == TAGGED.to_numpy().tolist()
    np.testing.assert_allclose(predicted[m:], tags.predict_proba(NEW), atol=1e-6)
    assert np.isnan(predicted[:m]).all()
    assert tagged.column("p_yes", "<f8").reshape(-1, 3).tolist() == trust.p_yes.tolist()
    assert tagged.column("p_no", "<f8").reshape(-1, 3).tolist() == trust.p_no.tolist()


def test_each_label_has_its_own_vote(tagged: Reader, tags: DWACClassifier) -> None:
    wanted = tags.explain(NEW[1:2], k=3)[0]
    for place, label in enumerate(TAGS):
        answer = tagged.get(f"points/{tagged.first_row + 1}?k=3&label={place}")
        assert answer["explanation"] == json.loads(json.dumps(wanted[label].to_dict()))
        assert {each["name"]: each["probability"] for each in answer["labels"]} == wanted.probabilities
        assert answer["predicted"] == list(wanted.labels)
    assert tagged.ask("GET", f"points/{tagged.first_row}?label=3").status == 422


def test_labels_of_a_training_example_become_those_of_another_and_back(tagged: Reader, tags: DWACClassifier) -> None:
    sets = tagged.get("start")["target"]["label_sets"]
    code, now = int(tags.references_.labels[6]), tagged.column("label", "<u1").reshape(-1, 3)[6].tolist()
    assert sets[code] == now
    other = next(i for i in range(len(sets)) if i != code)
    changes = tagged.post("edits", action="relabel", point=6, label=other)
    assert changes["edits"][0]["before"] == [name for name, has in zip(TAGS, now, strict=True) if has]
    assert tagged.column("label", "<u1").reshape(-1, 3)[6].tolist() == sets[other]
    voters = copy(tags.references_)
    voters.relabel([voters.ids[6]], [other])
    shares = voters.probabilities(tags.embed(NEW)) @ tags.target_.table
    m = len(voters)
    np.testing.assert_allclose(tagged.column("predicted", "<f4").reshape(-1, 3)[m:], shares, atol=1e-5)
    assert tagged.post("edits", action="undo")["edits"] == []
    refused = tagged.ask("POST", "edits", {"action": "relabel", "point": 6, "label": len(sets)})
    assert (refused.status, refused.code) == (422, "invalid_input")


def test_labels_that_others_vote_against_are_listed_the_most_improbable_first(tagged: Reader) -> None:
    found = tagged.get("issues")
    wrong = [1 - each["probability"] if each["has"] else each["probability"] for each in found["issues"]]
    assert wrong == sorted(wrong, reverse=True)
    assert all(value > 0.5 for value in wrong)
    rows = list(csv.DictReader(io.StringIO(tagged.ask("GET", "examples.csv").body.decode())))
    assert set(rows[0]) >= {"labels", "predicted", "probability_old", "decision_old", "set"}


@pytest.mark.slow
def test_ordered_labels_keep_their_order_on_the_page(ordered: DWACClassifier) -> None:
    for page in reading(Explorer.of(ordered)):
        start = page.get("start")
        assert start["target"] == {"ordered": True, "keys": ["young", "adult", "older", "ancient"]}
        assert start["card"]["task"] == "ordered"


def test_a_page_of_numbers_tells_of_numbers_not_of_labels(page: Reader) -> None:
    guide: dict[str, Any] = page.get("start")["guide"]
    for name in ("lead", "map", "typicality", "edits", "training", "issues", "groups", "disc", "sets"):
        assert "label" not in guide[name], name


def test_discs_of_a_group_are_those_of_its_members(page: Reader, tagged: Reader, numbers: DWACRegressor) -> None:
    for reader in (page, tagged):
        references = reader.explorer.points.references
        for point in (3, reader.first_row):  # a training example, and a row of data
            answer = reader.get(f"points/{point}?k=10")
            number = answer["answer"]
            explanation = reader.explorer.answer(reader.session, number).vote
            for group, where in zip(explanation.shown_groups, answer["groups"] or [], strict=False):
                leaves = references.groups.leaves[references.voters.positions(group.ids)]
                assert where["discs"] == sorted(set(leaves.tolist()))
                assert where["representative_point"] in references.voters.positions(group.ids)
    groups = page.get("start")["groups"]
    assert sum(group["size"] for group in groups) == len(numbers.references_)
    assert len(groups) < numbers.target_.n_codes  # of those who vote alike, not of bins


@pytest.mark.slow
def test_representatives_of_numbers_are_explained_listed_and_removed(numbers: DWACRegressor) -> None:
    few = numbers.condense(30)
    for page in reading(Explorer.of(few, NEW, TRUE)):
        start = page.get("start")
        assert sum(start["sizes"]) == len(numbers.references_)
        assert "representatives" in start["represented"]
        answer = page.get(f"points/{page.first_row}?k=4")["explanation"]
        assert answer["prediction"] == pytest.approx(few.predict(NEW[:1])[0])
        assert answer["n_examples"] == len(numbers.references_)
        whole = page.get("discs/0?whole=1")
        assert whole["n_examples"] == whole["group"]["size"]
        page.post("edits", action="remove", point=0)
        voters = without_members(few.references_)
        voters.remove([voters.ids[0]])
        wanted = voters.distribution(few.embed(NEW)).mean[:, 0]
        np.testing.assert_allclose(page.column("predicted", "<f8")[page.first_row :], wanted, rtol=1e-6)


# Groups


@pytest.mark.parametrize(
    ("name", "y"),
    [
        ("numbers", TRUE),
        pytest.param("tags", TAGGED, marks=pytest.mark.slow),
        pytest.param("ordered", AGES[240:].astype(str), marks=pytest.mark.slow),
    ],
)
def test_groups_have_the_figures_of_the_report(
    name: str, y: Any, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clf = request.getfixturevalue(name)
    monkeypatch.setattr("dwac.drawing.picture.Picture.svg", lambda _: "")  # drawing takes most of the time
    text = write(clf, NEW, y, tmp_path / "report.html").read_text()
    section = text[text.index("Typical groups") :]
    rows = re.findall(r"<tr>(.*?)</tr>", section[: section.index("</table>")], re.DOTALL)
    cells = [[unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)] for row in rows]
    reported = {(row[0], row[3], row[4]) for row in cells if row and row[3] != "0"}
    for page in reading(Explorer.of(clf, NEW, y)):
        start, fared = page.get("start"), page.get("groups")
        assert len(start["groups"]) == len(fared["groups"])
        assert sum(group["n"] for group in fared["groups"]) == len(NEW)
        shown = {
            (f"{group['size']:,}", f"{each['n']:,}", each["said"])
            for group, each in zip(start["groups"], fared["groups"], strict=True)
        }
        assert reported
        assert reported <= shown
        assert fared["measure"] in section
        assert f"{len(start['discs']):,} discs" in start["map"]
        assert f"{len(start['groups']):,} groups" in start["map"]


def test_training_examples_fare_in_their_own_groups(tags: DWACClassifier) -> None:
    for page in reading(Explorer.of(tags)):
        sizes = [group["size"] for group in page.get("start")["groups"]]
        assert [group["n"] for group in page.get("groups")["groups"]] == sizes
