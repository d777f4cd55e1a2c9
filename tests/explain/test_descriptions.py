"""Groups in words: what sets them apart is said, nothing that is false of most of them, and any column can be read."""

import re
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dwac.explain.claims import RangeColumn, column
from dwac.explain.descriptions import NOTHING, describe, summary
from tests.named import named

N = 400
CODES = np.arange(N) % 4  # four groups of a hundred


def said(values: Any, name: Any = "a", *, kinds: Any = None, group: int = 0) -> str | None:
    """What is said of a group by one column, beside noise that tells nothing."""
    noise = np.random.default_rng(1).normal(size=N)
    frame = pd.DataFrame({name: pd.Series(values), "noise": noise})
    return describe(frame, CODES, 4, kinds or {})[group]


def in_first(yes: Any, no: Any) -> list[Any]:
    """One value in group 0, another elsewhere."""
    return [yes if code == 0 else no for code in CODES]


# Tables


def test_a_group_is_described_by_the_columns_that_set_it_apart_the_most_telling_first() -> None:
    rng = np.random.default_rng(0)
    first = CODES == 0
    X = pd.DataFrame(
        {
            "noise": rng.normal(size=N),
            "age": np.where(first, rng.integers(17, 30, N), rng.integers(17, 90, N)),
            "status": np.where(first, "never married", "married"),
            "constant": 1,
        }
    )
    descriptions = describe(X, CODES, 4, {})
    assert descriptions[0] is not None
    status, age = descriptions[0].split(", ")
    assert status == "status always never married"
    assert re.fullmatch(r"age (at most|17 to|18 to) 2[789]", age)
    assert all(named(each, "status always married") for each in descriptions[1:])


def test_a_column_that_repeats_another_is_not_named() -> None:
    school = np.where((CODES == 0) | (np.arange(N) % 8 == 1), "college", "none")  # also some of group 1
    X = pd.DataFrame({"school": school, "years": np.where(school == "college", 13, 9)})
    assert describe(X, CODES, 4, {})[0] == "school always college"


def test_columns_that_hold_for_the_group_alone_are_all_named() -> None:
    X = pd.DataFrame({"school": in_first("college", "none"), "job": in_first("judge", "cook")})
    assert describe(X, CODES, 4, {})[0] == "school always college, job always judge"


def test_a_second_column_is_judged_on_the_rows_that_the_first_leaves() -> None:
    rng = np.random.default_rng(0)
    colour = np.where(CODES <= 1, "red", "blue")  # groups 0 and 1 are red
    size = np.where(CODES == 0, "small", "large")  # of the red ones, group 0 is small
    shade = np.where(CODES <= 1, rng.choice(["dark", "darker"], N), "light")  # as colour
    X = pd.DataFrame({"colour": colour, "shade": shade, "size": size})
    assert describe(X, CODES, 4, {})[:2] == [
        "size always small, colour always red",
        "colour always red, size always large",
    ]


def test_columns_that_do_not_differ_are_left_out() -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 5)))
    assert describe(X, CODES, 4, {}) == [NOTHING["table"]] * 4
    assert describe(X, np.zeros(N, dtype=int), 1, {}) == [NOTHING["table"]]


def test_how_often_a_value_occurs_is_said() -> None:
    values = np.array(in_first("x", "y"), dtype=object)
    first = np.flatnonzero(CODES == 0)
    assert said(values) == "a always x"
    values[first[:3]] = "y"
    assert said(values) == "a nearly always x"
    values[first[:30]] = "y"
    assert said(values) == "a mostly x"
    values[first[:45]] = "y"
    assert said(values) == NOTHING["table"]  # x prevails, but not clearly


def test_several_values_are_named_by_frequency() -> None:
    values = np.random.default_rng(0).choice(list("uvw"), N).astype(object)
    first = np.flatnonzero(CODES == 0)
    values[first] = ["p"] * 30 + ["q"] * 50 + ["u"] * 20
    assert said(values) == "a mostly q or p"
    values[first] = ["p"] * 30 + ["q"] * 40 + ["r"] * 30
    assert said(values) == "a always q or p or r"


def test_numbers_are_given_by_a_central_range_nicely_rounded() -> None:
    rng = np.random.default_rng(0)
    low, middle, high = (np.where(CODES == 0, a, rng.normal(0, 1000, N)) for a in (-3000.4, 0, 3000.4))
    spread = np.where(CODES == 0, rng.normal(0, 100, N), 0)
    assert re.fullmatch(r"a at most -2[89]\d0", str(said(low + spread)))
    assert re.fullmatch(r"a at least 2[89]\d0", str(said(high + spread)))
    assert re.fullmatch(r"a -1\d0 to 1\d0", str(said(middle + spread)))
    assert re.fullmatch(r"a at least 0\.002[89]\d*", str(said((high + spread) / 1e6)))
    assert re.fullmatch(r"a at least 2,[89]\d\d,000", str(said((high + spread) * 1e3)))


def test_years_have_no_comma_and_large_numbers_do() -> None:
    years = np.where(CODES == 0, 1990 + CODES, 2010 + np.arange(N) % 9)
    assert said(years) == "a always 1990"
    assert said(np.where(CODES == 0, 15024, np.arange(N))) == "a always 15,024"


def test_booleans_dates_durations_and_codes() -> None:
    assert said(in_first(True, False)) == "a always true"
    assert said(in_first(1, 0), group=0) == "a always 1"
    assert said(in_first(1.0, 0.0)) == "a always 1"
    steps = np.arange(N) % 90
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.where(CODES == 0, steps + 200, steps), unit="D")
    assert str(said(days)).startswith("a since 2024-07-")
    assert str(said(days.tz_localize("UTC"))).startswith("a since 2024-07-")
    assert str(said(days.astype(str), kinds={"a": "datetime"})).startswith("a since 2024-07-")
    months = pd.Timestamp("2000-01-01") + pd.to_timedelta(np.where(CODES == 0, steps, steps + 99) * 99, unit="D")
    assert re.fullmatch(r"a until 20\d\d-\d\d", str(said(months)))
    hours = pd.to_timedelta(np.where(CODES == 0, steps + 500, steps + 60), unit="min")
    assert re.fullmatch(r"a at least [89](\.\d+)? hours", str(said(hours)))
    assert said(in_first(pd.Timestamp("2024-05-31"), None)) == "a always 2024-05-31"


def test_gaps_are_said_and_do_not_count_as_values() -> None:
    assert said(in_first(None, "x")) == "a always missing"
    steps = np.arange(N, dtype=float)
    assert said(np.where(CODES == 0, np.nan, steps)) == "a always missing"
    assert said(pd.Series(np.where(CODES == 0, np.nan, 1.0))) == "a always missing"
    values = np.where(CODES == 0, 1000 + steps, steps)
    values[np.arange(N) % 8 == 0] = np.nan  # half of the group
    assert said(values) == NOTHING["table"]


def test_columns_of_any_type_are_read() -> None:
    assert said(in_first("x", "y"), name=7) == "column 7 always x"
    assert said(pd.Series(in_first("x", "y"), dtype="category")) == "a always x"
    assert said(pd.Series(in_first(1, None), dtype="Int64")) == "a always 1"
    assert said(pd.Series(in_first(True, None), dtype="boolean")) == "a always true"
    assert said(pd.Series(in_first(Decimal(3), Decimal(5)), dtype=object)) == "a always 3"
    assert said(pd.Series(pd.PeriodIndex(in_first("2024-01", "2023-01"), freq="M"))) == "a always 2024-01-01"
    assert said(in_first("a\n b " + "c" * 50, "y")) == "a always a b " + "c" * 35 + "…"
    infinite = np.where(CODES == 0, np.inf, np.arange(N))
    assert said(infinite) == "a always missing"


def test_ids_free_texts_lists_and_empty_columns_are_left_out() -> None:
    columns: list[Any] = [
        [f"id {i}" for i in range(N)],
        in_first("x " * 80, "y " * 80),
        [[1], [2]] * (N // 2),
        [None] * N,
        ["same"] * N,
        [1.0] * N,
        [pd.Timestamp("2024-01-01")] * N,
    ]
    for values in columns:
        assert said(values) == NOTHING["table"]
    assert said(in_first("x", "y"), kinds={"a": "text"}) == NOTHING["table"]


def test_kinds_that_are_given_count() -> None:
    codes = in_first(7, 3)
    codes[1] = 4
    assert said(codes, kinds={"a": "categorical"}) == "a always 7"
    assert said([str(code) for code in codes], kinds={"a": "numeric"}) == "a always 7"
    assert said(codes, kinds={"a": "empty"}) == NOTHING["table"]


def test_single_rows_and_empty_groups_are_described() -> None:
    codes = np.array([0] + [2] * 30)
    X = pd.DataFrame({"age": [37, *range(40, 70)], "job": ["nurse", *["clerk", "cook", "judge"] * 10]})
    only, nobody, many = describe(X, codes, 3, {})
    assert only == "age 37, job nurse"
    assert nobody == NOTHING["table"]
    assert many
    big = pd.DataFrame({"age": np.arange(1000)})
    assert describe(big, (np.arange(1000) > 0).astype(int), 2, {})[0] == "age 0"
    assert describe(X.iloc[:0], codes[:0], 2, {}) == [nobody] * 2


@pytest.mark.parametrize("form", ["frame", "array", "list", "tensor"])
def test_tables_of_every_form_are_described_alike(form: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3)) + 9 * (CODES == 0)[:, None] * [0, 1, 0]
    forms: dict[str, Any] = {
        "frame": pd.DataFrame,
        "array": np.asarray,
        "list": np.ndarray.tolist,
        "tensor": torch.as_tensor,
    }
    given = forms[form](X)
    assert str(describe(given, CODES, 4, {})[0]).startswith("column 1 at least 7")


def test_descriptions_repeat_and_do_not_depend_on_the_order_of_rows_when_all_are_read() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=N) + CODES, "b": rng.choice(list("xyz"), N)})
    order = rng.permutation(N)
    descriptions = describe(X, CODES, 4, {})
    assert descriptions == describe(X, CODES, 4, {}) == describe(X.iloc[order], CODES[order], 4, {})


def test_a_sample_of_a_large_group_never_says_always() -> None:
    n = 60_000
    codes = (np.arange(n) % 100 == 0).astype(int)
    X = pd.DataFrame({"a": np.where(codes == 1, "x", "y"), "b": np.arange(n) % 7})
    many, few = describe(X, codes, 2, {})
    assert named(many, "a nearly always y")
    assert named(few, "a always x")


@given(st.integers(0, 10_000), st.sampled_from([1e-8, 1e-3, 1, 1e4, 1e12]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_claim_about_a_number_is_true_of_most_of_the_group_as_it_is_worded(
    seed: int, scale: float, whole: bool
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.choice([rng.normal(size=N), rng.lognormal(size=N), rng.integers(0, 9, N) / 2]) * scale
    x = np.round(x) if whole else x
    found = column(pd.Series(x), "a")
    here = slice(50, 50 + int(rng.integers(1, 90)))
    for claim in found.claims(here) if isinstance(found, RangeColumn) else ():
        inside = x[here]
        numbers = [
            float(number.replace(",", "")) for number in re.findall(r"-?[\d,]+(?:\.\d+)?(?:e[+-]?\d+)?", claim.text)
        ]
        if "at most" in claim.text:
            true = inside <= numbers[0]
        elif "at least" in claim.text:
            true = inside >= numbers[0]
        elif " to " in claim.text:
            true = (inside >= numbers[0]) & (inside <= numbers[1])
        else:
            true = np.isclose(inside, numbers[0], rtol=1e-5)
        assert true.mean() >= 0.6, claim.text
        np.testing.assert_array_equal(claim.holds[here], true)


# Texts


@pytest.mark.parametrize("form", ["list", "array", "series", "frame"])
def test_texts_are_described_by_their_most_distinctive_words(form: str) -> None:
    rng = np.random.default_rng(0)
    filler = ["how", "to", "the", "a", "use", "get", "2008", "of"]
    topics = [["python", "pandas"], ["c++", "qt"], ["sql", "join"], ["java", "maven"]]
    texts = [" ".join([*rng.choice(filler, 5), rng.choice(topics[code])]) + f" {i}" for i, code in enumerate(CODES)]
    X = {
        "list": texts,
        "array": np.array(texts),
        "series": pd.Series(texts),
        "frame": pd.DataFrame({"text": texts}),
    }[form]
    found = describe(X, CODES, 4, "text")
    for words, description in zip(topics, found, strict=True):
        assert any(named(description, f"words: {a}, {b}") for a, b in (words, words[::-1]))


def test_texts_without_distinctive_words_and_groups_without_texts() -> None:
    texts = ["same words here", "same words there"] * 20
    assert describe(pd.DataFrame({"text": texts}), np.zeros(40, dtype=int), 2, "text") == [NOTHING["text"]] * 2
    assert describe(pd.DataFrame({"text": texts}), np.array([0, 0, 1, 1] * 10), 2, "text") == [NOTHING["text"]] * 2
    more = pd.DataFrame({"text": ["new 我 words", *texts]})
    assert describe(more, np.array([0] + [1] * 40), 2, "text")[0] == "words: new, 我"


def test_one_column_of_categories_is_a_table_and_one_of_texts_is_not() -> None:
    frame = pd.DataFrame({"a": in_first("red fox", "blue jay")})
    assert describe(frame, CODES, 4, {})[0] == "a always red fox"
    assert describe(frame, CODES, 4, {"a": "text"})[0] in ("words: fox, red", "words: red, fox")
    assert describe(frame, CODES, 4, "text")[0] in ("words: fox, red", "words: red, fox")


# A whole vote


def test_a_vote_is_summarised_by_its_heaviest_groups() -> None:
    described = ["never married, age 17 to 29", "age at least 50", "divorced, age 30 to 45", "job always nurse", None]

    def told(shares: list[float]) -> list[list[str]]:
        """Each group that is named: its share, and its description."""
        parts = [part.split(": ") for part in str(summary(described.__getitem__, shares)).split("; ")]
        return [[f"{share.split(' %')[0]} %", rest] for share, rest in parts]

    married, divorced, nurse = described[0], described[2], described[3]
    *heaviest, rest = told([0.62, 0.05, 0.21, 0.12, 0])
    assert heaviest == [["62 %", married], ["21 %", divorced], ["12 %", nurse]]
    assert rest[0] == "5 %"
    first, _, _, others = told([0.3, 0.1, 0.25, 0.15, 0.2])
    assert first == ["30 %", married]
    assert others[0] == "30 %"
    assert named(others[1], 2)
    assert told([0.004, 0, 0.996, 0, 0]) == [["100 %", divorced]]


def test_a_vote_of_texts_names_their_words_and_one_of_images_has_no_summary() -> None:
    first, second = str(summary(["words: python, list", "words: java"].__getitem__, [0.4, 0.6])).split("; ")
    assert named(first, "60 %", "java")
    assert named(second, "40 %", "python, list")
    assert summary(lambda _: None, [0.5, 0.5]) is None
    assert summary(lambda _: None, []) is None
