"""Recourse: every way is checked with the model, keeps the limits, and goes towards a real precedent."""

import json
import math
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from dwac import DWACClassifier
from dwac.errors import InputError, LabelError
from dwac.explain import Recourse
from dwac.explain.hybrids import Part, is_same
from dwac.explain.recourse import Constraints
from tests.explain.helpers import held
from tests.explain.test_reasons import classifier, regressor, settings, table
from tests.named import refuses


def away(clf: DWACClassifier, label: str) -> pd.DataFrame:
    """Rows that do not get this label."""
    rows = table(40, seed=3)
    others: pd.DataFrame = rows[clf.predict(rows) != label]
    return others


def changed(row: pd.DataFrame, way: Any) -> pd.DataFrame:
    """The row with the changes of a way, made by hand."""
    other = row.copy()
    for change in way.changes:
        assert other[change.column].tolist()[0] == change.value or pd.isna(change.value)
        other[change.column] = pd.Series([change.to], index=other.index).astype(other[change.column].dtype)
    return other


def test_every_way_gives_the_label_and_comes_from_its_precedent() -> None:
    clf = classifier()
    rows = away(clf, "good")[:4]
    found = clf.recourse(rows, "good")
    assert all(found)
    for place, recourse in enumerate(found):
        row = rows.iloc[place : place + 1]
        assert recourse.label == clf.predict(row)[0]
        assert recourse.ways
        for way in recourse.ways:
            other = changed(row, way)
            assert clf.predict(other)[0] == "good"
            assert clf.predict_proba(other)[0, clf.classes_.tolist().index("good")] == pytest.approx(way.value)
            assert way.precedent is not None
            assert way.precedent.label == "good"
            precedent = clf.examples_.rows([way.precedent.id])
            assert all(precedent[change.column].tolist()[0] == change.to for change in way.changes)
            typicality = clf.conformal(other).typicality
            assert typicality is not None
            assert way.typicality == pytest.approx(typicality[0])
        assert len({way.columns for way in recourse.ways}) > 1 or len(recourse.ways) == 1
        assert len({str(way.changes) for way in recourse.ways}) == len(recourse.ways)
        atypical = [way.atypical for way in recourse.ways]
        assert atypical == sorted(atypical)


def test_no_part_of_the_smallest_way_is_enough() -> None:
    clf = classifier()
    rows = away(clf, "good")[:4]
    for place, recourse in enumerate(clf.recourse(rows, "good")):
        row, way = rows.iloc[place : place + 1], min(recourse.ways, key=lambda way: len(way.changes))
        for some in combinations(way.changes, len(way.changes) - 1):
            smaller = row.copy()
            for change in some:
                smaller[change.column] = pd.Series([change.to], index=row.index).astype(row[change.column].dtype)
            assert clf.predict(smaller)[0] != "good"


def test_frozen_only_and_bounds_are_kept() -> None:
    clf = classifier()
    rows = away(clf, "good")[:5]
    bounds = {"income": "grow", "years": (0, 15)}
    for recourse in clf.recourse(rows, "good", frozen=["owner", "since"], bounds=bounds, k=5):
        for way in recourse.ways:
            assert not {"owner", "since"} & set(way.columns)
            to = {change.column: change for change in way.changes}
            if "income" in to:
                assert to["income"].to >= to["income"].value
            if "years" in to:
                assert 0 <= to["years"].to <= 15
    for recourse in clf.recourse(rows, "good", only=["records", "years"]):
        assert {name for way in recourse.ways for name in way.columns} <= {"records", "years"}


def test_tied_columns_change_together_or_not_at_all() -> None:
    clf = classifier()
    rows = away(clf, "good")[:4]
    tied = [["records", "years", "income"]]
    for place, recourse in enumerate(clf.recourse(rows, "good", tied=tied)):
        assert recourse.ways
        for way in recourse.ways:
            assert way.precedent is not None
            precedent = clf.examples_.rows([way.precedent.id]).iloc[0]
            differing = {name for name in tied[0] if not is_same(rows[name].iloc[place], precedent[name])}
            assert set(way.columns) & set(tied[0]) in (set(), differing)
            assert clf.predict(changed(rows.iloc[place : place + 1], way))[0] == "good"
    for recourse in clf.recourse(rows, "good", tied=tied, frozen=["years"]):
        assert not any({"records", "income"} & set(way.columns) and "years" in way.columns for way in recourse.ways)
    with refuses(InputError, "tied", "incom", "income"):
        clf.recourse(rows, "good", tied=[["incom"]])


def test_the_least_change_is_valid_and_no_longer_than_needed() -> None:
    clf = classifier()
    rows = away(clf, "good")[:4]
    shorter = 0
    whole = clf.recourse(rows, "good", only=["income", "years"])
    for place, recourse in enumerate(clf.recourse(rows, "good", only=["income", "years"], least=True)):
        row = rows.iloc[place : place + 1]
        assert bool(recourse.ways) == bool(whole[place].ways)
        assert len({str(way.changes) for way in recourse.ways}) == len(recourse.ways)
        for way in recourse.ways:
            other = changed(row, way)
            assert clf.predict(other)[0] == "good"
            assert clf.predict_proba(other)[0, clf.classes_.tolist().index("good")] == pytest.approx(way.value)
            assert way.precedent is not None
            precedent = clf.examples_.rows([way.precedent.id]).iloc[0]
            for name, now, to in way.changes:
                assert pd.isna(now) or min(now, precedent[name]) <= to <= max(now, precedent[name])
                assert float(to).is_integer()
            shorter += way.shortened
            assert ("towards" in way.words(str)) == way.shortened
    assert shorter


def test_limits_of_a_value() -> None:
    limits = Constraints(bounds={"debt": "fall", "income": "grow", "age": (18, 30)})
    assert limits.allow(Part("debt", 5, 4))
    assert not limits.allow(Part("debt", 5, 6))
    assert limits.allow(Part("income", 5.0, 6.0))
    assert not limits.allow(Part("income", math.nan, 6.0))
    assert not limits.allow(Part("age", 20, 31))
    assert not limits.allow(Part("age", 20, None))
    with refuses(InputError, "debt", "yes"):
        limits.allow(Part("debt", "yes", 4))


def test_where_there_is_no_way_the_columns_in_the_way_are_named() -> None:
    clf = classifier()
    rows = away(clf, "good")
    rows = rows[rows["records"] == "yes"][:6]
    found = clf.recourse(rows, "good", only=["since"])
    none = [recourse for recourse in found if not recourse.ways]
    assert none
    for recourse in none:
        assert recourse.obstacle
        assert "since" not in recourse.obstacle
        assert all(str(name) in str(recourse) for name in recourse.obstacle)
        assert recourse.closest is not None
        assert recourse.closest < 0.5
    surely = clf.recourse(rows[:1], "good", probability=1 - 1e-12)[0]
    assert surely.closest is not None
    assert not surely.obstacle
    assert 0.5 < surely.closest < 1 - 1e-12


def test_a_row_that_has_the_label_needs_no_change() -> None:
    clf = classifier()
    rows = table(40, seed=3)
    row = rows[clf.predict(rows) == "good"][:1]
    recourse = clf.recourse(row, "good")[0]
    assert recourse.reached
    assert recourse.ways == ()
    assert "good" in str(recourse)


@pytest.mark.slow
def test_a_stated_probability_or_a_set_with_the_label_alone() -> None:
    clf = classifier()
    rows = away(clf, "good")[:5]
    for recourse in clf.recourse(rows, "good", probability=0.6):
        assert all(way.value >= 0.6 for way in recourse.ways)
    for place, recourse in enumerate(clf.recourse(rows, "good", alone=True, epsilon=0.3)):
        for way in recourse.ways:
            sets = clf.predict_set(changed(rows.iloc[place : place + 1], way), 0.3, as_labels=True)
            assert sets == [["good"]]


def test_a_number_reaches_a_range() -> None:
    reg = regressor()
    rows = table(40, seed=3)
    rows = rows[reg.predict(rows) > 900][:5]
    for place, recourse in enumerate(reg.recourse(rows, (-math.inf, 700))):
        assert recourse.label == pytest.approx(reg.predict(rows.iloc[place : place + 1])[0])
        assert recourse.ways
        for way in recourse.ways:
            assert reg.predict(changed(rows.iloc[place : place + 1], way))[0] == pytest.approx(way.value)
            assert way.value <= 700
    sure = reg.recourse(rows[:1], (-math.inf, 900), probability=0.7)[0]
    assert all(way.value <= 900 for way in sure.ways)
    several = regressor(2).recourse(rows[:1], {"gain": (-1000, math.inf)})[0]
    assert all(way.value >= -1000 for way in several.ways)
    for wrong in ("low", (5, 1), 7, {"los": (0, 1)}):
        with refuses(InputError, "range"):
            regressor().recourse(rows[:1], wrong)


def test_one_of_several_labels_is_won_or_lost() -> None:
    clf = classifier("labels")
    rows = table(40, seed=3)
    late = clf.predict(rows)[:, 0] == 1
    recourse = clf.recourse(rows[late][:1], "not late")[0]
    assert recourse.label == "late"
    assert recourse.ways
    for way in recourse.ways:
        assert clf.predict(changed(rows[late][:1], way))[0, 0] == 0
    back = clf.recourse(rows[~late][:1], "late")[0]
    for way in back.ways:
        assert clf.predict(changed(rows[~late][:1], way))[0, 0] == 1


@pytest.mark.slow
def test_many_columns_are_changed_step_by_step() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(150, 40)), columns=[f"x{i}" for i in range(40)])
    y = np.where(X.iloc[:, :30].sum(axis=1) > 0, "up", "down")
    clf = DWACClassifier(**settings()).fit(X, y)
    rows = X[clf.predict(X) == "down"]
    rows = rows.iloc[np.argsort(clf.predict_proba(rows)[:, 1])[:2]]
    for place, recourse in enumerate(clf.recourse(rows, "up", alone=False, probability=0.55)):
        for way in recourse.ways:
            assert clf.predict(changed(rows.iloc[place : place + 1], way))[0] == "up"


def test_private_recourse_names_columns_alone() -> None:
    clf = classifier()
    rows = away(clf, "good")[:1]
    exact, private = (clf.recourse(rows, "good", private=private)[0] for private in (False, True))
    assert [way.columns for way in private.ways]
    ids = {way.precedent.id for way in exact.ways if way.precedent is not None}
    for text in (str(private), repr(private), private.to_html(), json.dumps(private.to_dict())):
        assert not any(name in text for name in ids)
    for path, value in held(private):
        assert not isinstance(value, torch.Tensor | np.ndarray | pd.DataFrame), path
        assert not (isinstance(value, float) and abs(value * 100 - round(value * 100)) > 1e-9), (path, value)
    assert all(change.to is None for way in private.ways for change in way.changes)


def test_what_cannot_be_asked_is_refused() -> None:
    clf = classifier()
    rows = away(clf, "good")[:1]
    with refuses(LabelError, "label", "goood", "good"):
        clf.recourse(rows, "goood")
    with refuses(InputError, "frozen", "incom", "income"):
        clf.recourse(rows, "good", frozen=["incom"])
    with refuses(InputError, "frozen", "income"):
        clf.recourse(rows, "good", frozen="income")
    with refuses(InputError, "bounds", "up", "grow"):
        clf.recourse(rows, "good", bounds={"income": "up"})
    with refuses(InputError, "probability", 2):
        clf.recourse(rows, "good", probability=2)
    texts = [f"{word} film number {i}" for i in range(20) for word in ("good", "bad")]
    reader = DWACClassifier(**settings()).fit(texts, ["up", "down"] * 20)
    row = [next(text for text, label in zip(texts, reader.predict(texts), strict=True) if label == "up")]
    with refuses(InputError, "columns", "texts"):
        reader.recourse(row, "down")


def test_text_page_frame_and_json() -> None:
    clf = classifier()
    rows = away(clf, "good")[:2]
    found = clf.recourse(rows, "good")
    recourse = found[0]
    assert isinstance(recourse, Recourse)
    first = recourse.ways[0]
    assert first.precedent is not None
    for text in (str(recourse), recourse.to_html()):
        assert str(first.precedent.id) in text
        assert str(first.changes[0].column) in text
    assert max(map(len, recourse.to_text(70).splitlines())) <= 70
    assert recourse.to_frame()["way"].max() == len(recourse.ways)
    assert json.loads(json.dumps(recourse.to_dict()))["ways"][0]["changes"][0]["column"] == first.changes[0].column
    assert str(rows.index[0]) in repr(found)
    assert found.to_frame()["ways"].tolist() == [len(each.ways) for each in found]


@pytest.mark.parametrize("model", [classifier, regressor])
def test_a_row_that_cannot_be_read_says_so(model: Any) -> None:
    clf, wanted = model(), "good" if model is classifier else (-5000, 5000)
    rows = table(3, seed=3).assign(years=[math.inf, 3.0, 4.0])
    found = clf.recourse(rows, wanted)
    assert found[0].unreadable is not None
    assert "years" in str(found[0])
    assert all(each.ways or each.reached for each in found[1:])


def test_codes_of_a_category_have_no_order() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(1, 7, size=300)
    X = pd.DataFrame({"code": pd.Categorical(codes), "a": rng.normal(size=300)})
    clf = DWACClassifier(**settings()).fit(X, np.where(np.isin(codes, [3, 5, 6]), "yes", "no"))
    row = X[codes == 1][:1]
    given = clf.recourse(row, "yes", k=5, frozen=["a"])[0]
    assert {way.changes[0].to for way in given.ways} == {3, 5, 6}  # each its own way, not one that rises
    least = clf.recourse(row, "yes", k=5, frozen=["a"], least=True)[0]
    assert {way.changes[0].to for way in least.ways} <= {3, 5, 6}


def test_ways_of_the_same_columns_and_direction_are_one() -> None:
    clf = classifier()
    for recourse in clf.recourse(away(clf, "good")[:6], "good", k=5):
        moves = [
            str([(c.column, c.to > c.value if is_number(c) else c.to) for c in way.changes]) for way in recourse.ways
        ]
        assert len(set(moves)) == len(moves)


def is_number(change: Any) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in (change.value, change.to))
