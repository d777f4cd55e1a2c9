"""A row compared with groups: every condition holds for the row as it is printed, and for nearly all of the group."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dwac
from dwac import ReferenceSet
from dwac.explain import Explanation, explain, explain_labels, explain_numbers
from dwac.explain.claims import value_name
from dwac.explain.descriptions import NO_CONDITION, NOTHING, GroupTexts, describe
from dwac.explain.profiles import NEARLY_ALL, pack_profile, read_profile

N = 240
_NUMBER = r"-?[\d,]+(?:\.\d+)?(?:e[+-]?\d+)?"


def table(rng: np.random.Generator, codes: Any) -> pd.DataFrame:
    """Numbers of several sizes, categories, dates, durations and gaps; most depend on the group."""
    n, shift = len(codes), codes * rng.normal()
    X = pd.DataFrame(
        {
            "tiny": (rng.normal(size=n) + shift) * 1e-8,
            "plain": rng.normal(size=n) + shift,
            "whole": rng.integers(0, 9, n) + 3 * codes,
            "large": np.round(rng.lognormal(size=n) * 1e5) * (1 + codes),
            "close": 1000 + 1e-8 * rng.integers(0, 50, n) * (1 + codes),
            "spike": np.where(rng.random(n) < 0.8, 0.0, rng.normal(size=n)),
            "town": np.where(rng.random(n) < 0.9, np.array(["Ulm", "Bonn", "Rome"])[codes % 3], "Oslo"),
            "flag": (rng.random(n) < 0.3 + 0.3 * codes),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 3000, n) + 900 * codes, unit="D"),
            "wait": pd.to_timedelta(rng.integers(0, 600, n) + 90 * codes, unit="min"),
        }
    )
    for name in ("plain", "town", "day"):
        X.loc[rng.random(n) < 0.1, name] = None
    X.loc[codes == 2, "spike"] = np.nan
    return X


def holds(text: str, name: str, value: Any) -> bool:
    """Whether a condition, as a person reads it, holds for a value; an oracle that shares no code with the library."""
    words = text.removeprefix(f"{name} ")
    if pd.isna(value):
        return "missing" in words.split(" or ")
    if words == "missing":
        return False
    if name in ("town", "flag"):
        return str(value).lower() in (each.lower() for each in words.split(" or "))
    if name == "day":
        shown: str = str(value.date())
        ends = re.findall(r"\d{4}-\d\d(?:-\d\d)?", words)
        cut = [shown[: len(end)] for end in ends]
        if words.startswith("until"):
            return bool(cut[0] <= ends[0])
        if words.startswith("since"):
            return bool(cut[0] >= ends[0])
        return bool(ends[0] <= cut[0] and cut[-1] <= ends[-1])
    if name == "wait":
        unit = re.findall("days|hours|minutes|seconds", words)[0]
        value = value / pd.Timedelta(1, unit=unit)
    numbers = [float(number.replace(",", "")) for number in re.findall(_NUMBER, words)]
    if words.startswith("at most"):
        return bool(value <= numbers[0])
    if words.startswith("at least"):
        return bool(value >= numbers[0])
    return bool(numbers[0] <= value <= numbers[-1])


@given(st.integers(0, 10_000))
@example(3380)  # a group with gaps, whose usual range held for less than nine tenths of its known values
@settings(max_examples=12, deadline=None)
def test_a_row_meets_every_condition_that_it_is_said_to_share_as_printed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 4, N)
    X = table(rng, codes)
    texts = describe(X, codes, 4, {})
    row = X.iloc[int(rng.integers(N))].to_dict()
    row = {**row, "plain": row["plain"] * 3, "town": rng.choice(["Ulm", "Lima"])} if seed % 2 else row
    for group in range(4):
        compared = texts.compare(row, np.eye(4)[group])
        assert compared is not None
        for condition in compared.shared:
            name = condition.column
            assert holds(condition.text, name, row[name]), (condition.text, row[name])
            members = X.loc[codes == group, name]
            met = np.mean([holds(condition.text, name, value) for value in members])
            assert met == pytest.approx(condition.share)
            assert met >= NEARLY_ALL
        for difference in compared.different:
            usual = re.findall(r"\(in the group (.*)\)$", difference.text)[0]
            name = difference.column
            assert not holds(f"{name} {usual}", name, row[name]), (difference.text, row[name])
            members = X.loc[codes == group, name]
            members = members if "missing" in usual else members.dropna()
            assert np.mean([holds(f"{name} {usual}", name, value) for value in members]) >= NEARLY_ALL - 1e-9


@pytest.mark.parametrize("kind", ["table", "text"])
def test_a_profile_survives_its_folder_and_a_choice_of_groups(kind: str) -> None:
    rng = np.random.default_rng(0)
    codes = np.arange(N) % 4
    X: Any = table(rng, codes) if kind == "table" else [f"word{code} and {i % 7}" for i, code in enumerate(codes)]
    texts = describe(X, codes, 4, {} if kind == "table" else "text")
    row = X.iloc[1].to_dict() if kind == "table" else {"text": X[1]}
    assert texts.profile is not None
    again = GroupTexts(texts, read_profile(*pack_profile(texts.profile)))
    some = texts.take([None, 1, 3])
    for group in range(4):
        own = texts.compare(row, np.eye(4)[group])
        assert own is not None
        other = again.compare(row, np.eye(4)[group])
        assert other is not None
        assert (other.text, other.columns) == (own.text, own.columns)
    assert some[1:] == [texts[1], texts[3]]
    assert some.compare(row, np.eye(3)[0]) is None
    assert some.compare(row, np.eye(3)[1]) is not None
    damaged = pack_profile(texts.profile)
    with pytest.raises(ValueError, match="numbers per group"):
        read_profile(damaged[0], damaged[1][:, :-1])


def test_a_difference_names_the_value_and_what_is_usual_in_the_group() -> None:
    codes = np.repeat([0, 1], 100)
    income = np.concatenate([np.linspace(75, 195, 100), np.linspace(60, 500, 100)])
    X = pd.DataFrame({"income": income, "records": ["no"] * 100 + ["yes"] * 100})
    compared = describe(X, codes, 2, {}).compare({"income": 295, "records": "no"}, np.array([1.0, 0.0]))
    assert compared is not None
    assert [each.text for each in compared.shared] == ["records no"]
    assert re.fullmatch(r"income 295 \(in the group [78]\d to 1[89]\d\)", compared.different[0].text)
    assert compared.text.startswith("shares records no; differs in income 295")


def test_values_that_print_alike_are_one_and_unknown_ones_are_never_shared() -> None:
    codes = np.repeat([0, 1], 50)
    X = pd.DataFrame({"code": [1.0, "1"] * 25 + ["2", "3"] * 25, "x": np.arange(100.0)})
    texts = describe(X, codes, 2, {"code": "categorical"})
    for value in (1, 1.0, "1"):
        compared = texts.compare({"code": value}, np.array([1.0, 0.0]))
        assert compared is not None
        assert [each.text for each in compared.shared] == ["code 1"]
    compared = texts.compare({"code": "never seen"}, np.array([1.0, 0.0]))
    assert compared is not None
    assert compared.shared == ()
    assert compared.different[0].text == "code never seen (in the group 1)"
    assert value_name(None) == "missing"


def test_columns_that_repeat_each_other_are_named_once() -> None:
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1], 100)
    radius = rng.normal(size=200) + 5 * codes
    X = pd.DataFrame({"radius": radius, "area": np.exp(radius), "depth": rng.normal(size=200) + 5 * codes})
    compared = describe(X, codes, 2, {}).compare(dict.fromkeys(X, 5.0) | {"area": 148.0}, np.array([0.0, 1.0]))
    assert compared is not None
    assert len(compared.shared) == 2
    assert {each.column for each in compared.shared} & {"depth"}


# Explanations


def mortgage(n: int = 300) -> tuple[ReferenceSet, pd.DataFrame, GroupTexts]:
    """Applicants: `dmi` is yes for nearly all that were denied, and hardly for others."""
    rng = np.random.default_rng(0)
    denied = np.arange(n) % 5 == 0
    X = pd.DataFrame(
        {
            "ratio": rng.normal(0.3, 0.05, n).round(3),
            "dmi": np.where(denied, "yes", np.where(rng.random(n) < 0.01, "yes", "no")),
        }
    )
    h = np.column_stack([denied * 3.0, X["ratio"] * 4 + rng.normal(size=n) * 0.3])
    refs = ReferenceSet(h, denied.astype(int), ids=X.index.tolist(), targets=denied * 10.0 + X["ratio"])
    return refs, X, describe(X, refs.groups.of, len(refs.groups), {})


def explained(k: int = 5, **record: Any) -> Explanation:
    refs, X, texts = mortgage()
    row = {"ratio": 0.3, "dmi": "yes", **record}
    return explain(
        refs, [[3.0, 1.2]], k=k, classes=["granted", "denied"], records=X, shown=[{"record": row}], descriptions=texts
    )[0]


@pytest.mark.parametrize("k", [5, 100])
def test_what_row_and_voters_share_and_others_lack_is_said_first(k: int) -> None:
    e = explained(k)
    assert e.label == "denied"
    assert e.shared[0].text == "dmi yes"
    assert e.shared[0].elsewhere < 0.05
    assert "dmi yes" in e.sentences()[1]
    assert "dmi yes" in e.to_text(200)
    assert "dmi yes" in e.to_html()


def test_a_group_is_never_described_by_a_condition_that_the_row_does_not_meet() -> None:
    e = explained(dmi="no")
    assert not e.few_suffice
    assert all("dmi yes" not in (group.in_common or "") for group in e.groups)
    heaviest = e.groups[0]
    assert heaviest.label == "denied"
    assert "dmi no (in the group yes)" in str(heaviest.compared)
    assert heaviest.to_dict()["different"] == ["dmi no (in the group yes)"]
    assert "dmi yes" not in " ".join(e.sentences())


def test_nothing_sets_a_group_apart_only_where_no_column_does() -> None:
    e = explained(dmi=None, ratio=None)
    for group in e.groups:
        if group.compared in NOTHING.values():
            assert group.words in NOTHING.values()
        assert group.compared in (*NOTHING.values(), NO_CONDITION) or group.comparison


def test_numbers_and_several_labels_are_compared_too() -> None:
    refs, X, _ = mortgage()
    row: dict[str, Any] = {"record": {"ratio": 0.3, "dmi": "yes"}}
    from dwac.explain.numbers import in_groups

    groups = in_groups(refs).groups
    texts = describe(X, groups.of, len(groups), {})
    number = explain_numbers(refs, [[3.0, 1.2]], records=X, shown=[row], descriptions=texts)[0]
    assert [each.text for each in number.shared] == ["dmi yes"]
    assert any("dmi yes" in sentence for sentence in number.sentences())
    both = explain_labels(
        refs,
        [[3.0, 1.2]],
        [[0, 1], [1, 1]],
        names=["late", "any"],
        probabilities=[[0.99, 1.0]],
        records=X,
        shown=[row],
        descriptions=lambda _, voters: describe(X, voters.groups.of, len(voters.groups), {}),
    )[0]
    assert [each.text for each in both["late"].shared] == ["dmi yes"]


def test_texts_share_words_and_lack_others() -> None:
    words = [["goal", "team", "coach"], ["soup", "salt", "oven"]]
    rng = np.random.default_rng(0)
    texts = [" ".join([*rng.choice(words[i % 2], 2), "the", "of"]) for i in range(200)]
    h = np.arange(200) % 2 * 3.0 + rng.normal(size=200) * 0.1
    refs = ReferenceSet(h[:, None], np.arange(200) % 2)
    found = describe(texts, refs.groups.of, len(refs.groups), "text")
    record = {"record": {"text": "A goal for the team"}}
    records = pd.DataFrame({"text": texts})
    e = explain(refs, [[0.0]], records=records, shown=[record], descriptions=found)[0]
    assert {each.text for each in e.shared} == {"goal", "team"}
    assert "coach" in str(e.groups[0].compared)
    assert any("goal" in sentence and "coach" not in sentence for sentence in e.sentences())


def test_private_explanations_share_nothing() -> None:
    refs, X, texts = mortgage()
    row: dict[str, Any] = {"record": {"ratio": 0.3, "dmi": "yes"}}
    e = explain(refs, [[3.0, 1.2]], records=X, shown=[row], descriptions=texts, private=True)[0]
    assert e.shared == ()
    assert "shared" not in str(e.to_dict()).lower()


@pytest.mark.parametrize("condensed", [False, True])
def test_a_loaded_model_compares_as_before(condensed: bool, tmp_path: Any) -> None:
    _, X, _ = mortgage(200)
    y = np.where(X["dmi"] == "yes", "denied", "granted")
    clf = dwac.DWACClassifier(random_state=0, verbose=False, epochs=3, cross_fit=False).fit(X, y)
    clf = clf.condense(20) if condensed else clf
    clf.save(tmp_path / "model")
    rows = X.iloc[:3]
    again = dwac.load(tmp_path / "model")
    for one, other in zip(clf.explain(rows), again.explain(rows), strict=True):
        assert [group.compared for group in one.groups] == [group.compared for group in other.groups]
        assert [each.text for each in one.shared] == [each.text for each in other.shared]
        assert one.shared or one.label == "granted"
