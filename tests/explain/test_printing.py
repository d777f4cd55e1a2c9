"""How explanations look where they are printed: in a terminal, in a notebook, one or many at once."""

import copy
import pickle
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac import ReferenceSet
from dwac.conformal import Calibration
from dwac.drawing.legend import Legend
from dwac.errors import ShapeError
from dwac.explain import Explanation, Explanations, explain, explain_labels, explain_numbers
from tests.explain.helpers import COLUMNS, IDS, RECORDS, REFS, explained_by_groups, explained_by_voters
from tests.named import named, refuses

# One


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("groups", [False, True])
def test_no_line_is_wider_than_asked(width: int, groups: bool) -> None:
    words = ["column 7 of the table at least 12, column 3 of the table always a value with quite a long name"]
    e = explained_by_groups(words) if groups else explained_by_voters()
    assert e.few_suffice != groups
    assert max(map(len, e.to_text(width).splitlines())) <= width


def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (70, 110):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert str(explained_by_voters()) == explained_by_voters().to_text(columns)
    monkeypatch.setenv("COLUMNS", "3")  # nobody can read that
    assert str(explained_by_voters()) == explained_by_voters().to_text(60)


def test_the_first_line_says_what_matters_and_the_last_how_many_columns_are_left_out() -> None:
    lines = explained_by_voters().to_text(120).splitlines()
    assert named(lines[0], "Predicted no", f"{100 * explained_by_voters().probability:.1f} %")
    head = next(line for line in lines if line.lstrip().startswith("share"))
    shown = head.count("column ")
    assert 0 < shown < 30
    assert any(named(line, f"{30 - shown} more columns", "to_frame(") for line in lines)
    narrow = explained_by_voters().to_text(60)
    assert "more columns" in narrow
    assert "more column" not in explained_by_voters().to_text(10_000)


def test_beside_groups_the_last_line_counts_the_columns_that_the_example_does_not_show() -> None:
    lines = explained_by_groups(["column 7 of the table at least 12"]).to_text(120).splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("This example: "))
    mine, last = lines[place : place + 2]
    shown = mine.count(" of the table ")
    assert 0 < shown < 30
    assert named(last, f"{30 - shown} more columns", "to_frame(")


def test_the_example_stands_above_those_who_voted() -> None:
    lines = explained_by_voters().to_text(120).splitlines()
    place = next(i for i, line in enumerate(lines) if "this example" in line)
    assert lines[place - 1].split()[:4] == ["share", "label", "id", "distance"]
    assert [line.split()[3] for line in lines[place + 1 : place + 4]] == ["ann", "bob", "eve"]
    page = explained_by_voters().to_html()
    assert page.index("this example") < page.index('<th scope="col">ann')
    few = {"records": RECORDS[COLUMNS[:4]], "shown": [{"record": dict.fromkeys(COLUMNS[:4], 1)}]}
    page = explained_by_voters(**few).to_html()
    assert page.index("this example") < page.index("ann")
    assert page.count('<tr class="dwac-example">') == 1
    for shown in ({}, few):
        assert "this example" not in explained_by_voters(**shown).to_html(example=False)


def test_many_columns_of_a_page_are_lines_and_few_records_beside_each_other() -> None:
    page = explained_by_voters().to_html()
    names = re.findall(r'<th scope="row">(.*?)</th>', page)
    assert names == list(COLUMNS)
    assert [html.count("<td") for html in re.findall(r"<tr><th scope=\"row\">.*?</tr>", page)] == [4] * 30
    assert "@media print" in page
    records = pd.DataFrame({name: range(20) for name in COLUMNS})
    many = explain(ReferenceSet(np.arange(20.0)[:, None], [0, 1] * 10), [[0.5]], k=20, records=records)[0].to_html()
    assert all(line.count("<td") <= 6 for line in re.findall(r"<tr>.*?</tr>", many))
    assert len(re.findall(r'<th scope="row">', many)) == 30 * 4


def test_shares_are_percentages_everywhere() -> None:
    e = explained_by_voters()
    percentages = [f"{100 * n.share:.1f} %" for n in e.neighbors[:2]]
    for text in (str(e), e.to_html()):
        assert all(share in text for share in percentages)
        assert f"{e.neighbors[0].share:.4g}" not in text
    assert repr(e).startswith(f"<Explanation: no, {100 * e.probability:.1f} %")
    assert f"{100 * e.probability:.1f} %" in repr(Explanations([e]))
    assert e.to_frame()["share"].tolist() == [n.share for n in e.neighbors]  # to compute with


def test_columns_that_set_groups_apart_come_first() -> None:
    e = explained_by_groups(["column 12 of the table at least 3, column 1 of the table at most 2"])
    text = e.to_text(100)
    assert named(text, f"{COLUMNS[12]} at least 3")
    assert f"This example: {COLUMNS[12]} 12, {COLUMNS[1]} 1, {COLUMNS[0]} 0" in text
    assert "In words" not in text  # the table says it
    assert any(sentence.startswith("In words") for sentence in e.sentences())


def test_columns_without_names_are_told_by_number_and_ordered_alike() -> None:
    printed = explained_by_groups(["column 21 at least 12, column 3 at most 4"], columns=range(30)).to_text(70)
    assert "This example: column 21 21, column 3 3, column 0 0" in printed


def test_a_day_is_shown_without_the_time() -> None:
    days = pd.DataFrame({"day": pd.Timestamp("2024-05-01")}, index=IDS)
    e = explained_by_voters(records=days, shown=[{"record": {"day": pd.Timestamp("2024-05-02")}}])
    for shown in (str(e), e.to_html()):
        assert "2024-05-02" in shown
        assert "00:00:00" not in shown


def test_large_numbers_are_written_out_in_pages_too() -> None:
    pay = pd.DataFrame({"pay": 123456.5}, index=IDS)
    assert "<td>123456.5</td>" in explained_by_voters(records=pay).to_html()


def test_a_record_may_have_columns_of_our_names() -> None:
    names = ["share", "label", "id", "group", "examples", "number", "distance", "most alike"]
    points = np.random.default_rng(0).normal(size=(300, 2))
    records = pd.DataFrame(np.arange(2400).reshape(300, 8), columns=names)
    refs = ReferenceSet(points, np.arange(300) % 2, targets=points[:, 0])
    mine: list[dict[str, Any]] = [{"record": dict.fromkeys(names, 7777)}]
    words = ["far"] * len(refs.groups)
    for k in (5, 300):  # by groups, and one by one
        e = explain(refs, [[0.1, 0.0]], k=k, records=records, shown=mine, descriptions=words)[0]
        assert e.few_suffice == (k == 300)
        number = explain_numbers(refs, [[0.1, 0.0]], k=k, records=records, shown=mine)[0]
        for each in (e, number):
            assert "record.share" in each.to_frame()
            page = each.to_html()
            assert page.count("7777") == 8 * page.count('<table class="dwac-records')
            assert "7777" in page
            assert "7777" in each.to_text(300)
        if not e.few_suffice:
            assert "This example: share 7777, label 7777, id 7777" in e.to_text(300)
        town = replace(e, legend=Legend.read({"label": {"title": "town", "codes": {7777: "Ulm"}}}))
        for text in (town.to_text(300), town.to_html()):
            assert "town" in text
            assert "Ulm" in text
            assert "record.label" not in text


def test_a_reply_in_a_terminal_is_one_line() -> None:
    picture = {"image": b"\x89PNG\r\n\x1a\n" + bytes(2000)}
    e = explain(REFS, [[0.1]], records=dict.fromkeys(IDS, picture))[0]
    number = explain_numbers(ReferenceSet([[0.0], [1.0]], [0, 0], targets=[2.0, 4.0]), [[0.5]])[0]
    labels = explain_labels(REFS, [[0.0]], [[1, 0], [1, 1]], names=["calm", "sad"], probabilities=[[1.0, 0.3]])[0]
    for each in (e, number, labels, e.neighbors[0]):
        assert len(repr(each)) < 200
        assert "\n" not in repr(each)
    assert "calm (> 99.9 %)" in repr(labels)


# Many


def many(n: int = 3) -> Explanations[Explanation]:
    calibration = Calibration(np.linspace(-1, 1, 19))
    found = explain(
        REFS, np.linspace(0, 4, n)[:, None], classes=["no", "yes"], calibration=calibration, typicality=np.full(n, 0.5)
    )
    return Explanations(found, [f"row{i}" for i in range(n)])


@pytest.mark.parametrize("width", [80, 120])
def test_many_print_as_a_table(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = repr(many()).splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].split() == ["id", "label", "probability", "confidence", "typicality", "heaviest", "voter"]
    assert [line.split()[:2] for line in lines[1:4]] == [["row0", "no"], ["row1", "yes"], ["row2", "yes"]]
    assert lines[3].endswith("  > 99.9 %: joe")
    assert named(lines[-1], "3 explanations")
    assert str(many()) == repr(many())


def test_long_lists_are_cut_and_say_so() -> None:
    assert named(repr(many(50)), "50 explanations", "30 more rows")
    assert len(repr(many(50)).splitlines()) == 22
    assert many(50)._repr_html_().count("<tr>") == 21
    assert repr(Explanations()) == "no explanations"
    assert "no explanations" in Explanations()._repr_html_()


def test_they_are_a_list_with_ids() -> None:
    found = many()
    assert isinstance(found, list)
    assert [*found] == list(found)
    assert found[:2].ids == ["row0", "row1"]
    assert found[::-1].ids == ["row2", "row1", "row0"]
    assert found[-1] is list(found)[-1]
    assert Explanations(found).ids == [0, 1, 2]
    assert pickle.loads(pickle.dumps(Explanations([1, 2], "ab"))).ids == ["a", "b"]
    assert copy.copy(found).ids == found.ids
    found.append(found[0])  # whose id nobody knows
    assert found.ids == [0, 1, 2, 3]
    with refuses(ShapeError, 3, 2):
        Explanations(many(), ["a", "b"])


def test_the_table_is_a_frame_to_compute_with() -> None:
    found = many()
    frame = found.to_frame()
    assert frame.index.tolist() == found.ids
    assert list(frame) == ["label", "probability", "confidence", "typicality", "share", "heaviest voter"]
    assert frame["probability"].tolist() == [e.probability for e in found]
    assert found.to_dict() == [e.to_dict() for e in found]


def test_pages_of_many_are_escaped() -> None:
    refs = ReferenceSet([[0.0], [1.0]], [0, 1], ids=["<script>", "b"])
    found = explain(refs, [[0.1]], classes=["<b>no</b>", "yes"])
    page = Explanations(found, ["<i>"])._repr_html_()
    assert "&lt;script&gt;" in page
    assert not any(tag in page for tag in ("<script>", "<b>", "<i>"))


def test_private_ones_name_nobody() -> None:
    calibration = Calibration(np.linspace(-1, 1, 19))
    found = Explanations(explain(REFS, [[0.1]], private=True, calibration=calibration, typicality=np.array([0.5])))
    text = repr(found) + found._repr_html_() + str(found.to_dict()) + found.to_frame().to_string() + repr(found[0])
    assert not any(name in text for name in IDS)
    assert "over 10 %" in repr(found)


def test_numbers_have_intervals_and_several_labels_probabilities() -> None:
    refs = ReferenceSet([[0.0], [1.0]], [0, 0], targets=[2.0, 4.0])
    numbers = Explanations(explain_numbers(refs, [[0.5]], intervals=[[[1.0, 50_000.5]]])).to_frame()
    assert numbers[["prediction", "low", "high"]].to_numpy().tolist() == [[pytest.approx(3.0), 1.0, 50_000.5]]
    both = ReferenceSet([[0.0], [1.0]], [0, 0], targets=[[2.0, 1.0], [4.0, 1.0]])
    assert list(Explanations(explain_numbers(both, [[0.5]], names=["a", "b"])).to_frame())[:2] == [
        "a prediction",
        "b prediction",
    ]
    several = explain_labels(REFS, [[0.0]], [[1, 0], [1, 1]], names=["calm", "sad"], probabilities=[[1.0, 0.3]])
    assert Explanations(several).to_frame().iloc[0].to_dict() == {"labels": "calm", "P(calm)": 1.0, "P(sad)": 0.3}
