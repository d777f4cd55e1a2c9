"""Numbers and dates are read as they are written, or as it was said."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dwac.errors import InputError
from dwac.reading.notation import (
    COMMA,
    DAY_FIRST,
    MONTH_FIRST,
    POINT,
    YEAR_FIRST,
    Notation,
    as_dates,
    as_numbers,
    category,
    check_notation,
    read_columns,
)
from tests.named import named, refuses


def column(*cells: Any) -> "pd.Series[Any]":
    return pd.Series(list(cells), dtype=object)


@pytest.mark.parametrize(
    ("cells", "numbers", "mark", "doubtful"),
    [
        (["1,5", "2"], [1.5, 2.0], COMMA, False),
        (["1.5", "2,000"], [1.5, 2000.0], POINT, False),
        (["1.234,5", "7"], [1234.5, 7.0], COMMA, False),
        (["1,234,567", "8"], [1234567.0, 8.0], POINT, False),
        (["1 234,5", "-0,25"], [1234.5, -0.25], COMMA, False),
        (["1'500", "2'000"], [1500.0, 2000.0], POINT, False),
        (["1,500", "2,250"], [1500.0, 2250.0], POINT, True),
        (["1,5e3", None, " "], [1500.0, np.nan, np.nan], COMMA, False),
    ],
)
def test_decimals_and_thousands_are_told_apart(cells: list[Any], numbers: Any, mark: str, doubtful: bool) -> None:
    found = as_numbers(column(*cells))
    np.testing.assert_array_equal(found.column.to_numpy(), numbers)
    assert (found.how, found.doubtful) == (mark, doubtful)


def test_what_is_said_decides_where_both_fit_and_only_there() -> None:
    said = as_numbers(column("1,500"), COMMA)
    assert (said.column.tolist(), said.doubtful) == ([1.5], False)
    assert as_numbers(column("1.25"), COMMA).column.tolist() == [1.25]
    assert as_numbers(column("1.25"), COMMA, judge=False).column.isna().all()


@pytest.mark.parametrize("cell", [".", ",", "+.", "-", "+", "e5", "1e", ".-", ".e5", "²", "1e999", "-9,5e999", "inf"])
def test_a_cell_that_is_no_number_is_missing_and_the_others_are_read(cell: str) -> None:
    found = as_numbers(column("2", cell, "4"))
    np.testing.assert_array_equal(found.column.to_numpy(), [2, np.nan, 4])


@given(st.lists(st.text("0123456789.,+-eE' \u00a0\u202f٣²∞nif", max_size=8), min_size=1, max_size=4))
@example(["."])
@example([","])
@example(["-.e1", ".5", "٣", "1e999"])
@settings(max_examples=60, deadline=None)
def test_any_cell_is_a_finite_number_or_missing(cells: list[str]) -> None:
    for decimal in (None, POINT, COMMA):
        found = as_numbers(column(*cells), decimal).column
        assert not np.isinf(found.to_numpy()).any()
    assert len(read_columns(pd.DataFrame({"x": column(*cells)}), Notation())[0]) == len(cells)


@given(
    st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 2)), min_size=1, max_size=8).filter(
        lambda values: any(value * 10 % 1 for value in values)
    )
)
@settings(max_examples=40, deadline=None)
def test_numbers_with_two_decimals_survive_any_way_of_writing(values: list[float]) -> None:
    for text in ("{:.2f}", "{:,.2f}"):
        english = [text.format(value) for value in values]
        german = [cell.translate(str.maketrans(",.", ".,")) for cell in english]
        for cells, mark in ((english, POINT), (german, COMMA)):
            found = as_numbers(column(*cells))
            assert (found.column.tolist(), found.how, found.doubtful) == (values, mark, False)


@pytest.mark.parametrize(
    ("cells", "dates", "order", "doubtful"),
    [
        (["31/01/2020", "01/02/2020"], ["2020-01-31", "2020-02-01"], DAY_FIRST, False),
        (["01/31/2020", "01/02/2020"], ["2020-01-31", "2020-01-02"], MONTH_FIRST, False),
        (["01/02/2020"], ["2020-01-02"], MONTH_FIRST, True),
        (["1.2.2020 14:30"], ["2020-02-01 14:30"], DAY_FIRST, False),
        (["2020/01/02"], ["2020-01-02"], YEAR_FIRST, False),
        (["31-12-99", "01-12-20"], ["1999-12-31", "2020-12-01"], DAY_FIRST, False),
        (["31/02/2020", "x", None], [None, None, None], DAY_FIRST, False),
        (["1.2.20"], [None], YEAR_FIRST, False),  # a version rather than a date
    ],
)
def test_days_and_months_are_told_apart(cells: list[Any], dates: list[Any], order: str, doubtful: bool) -> None:
    found = as_dates(column(*cells))
    assert [None if pd.isna(date) else date for date in found.column] == [
        None if date is None else pd.Timestamp(date) for date in dates
    ]
    assert (found.how, found.doubtful) == (order, doubtful)


def test_one_column_decides_for_another_that_could_be_either() -> None:
    frame = pd.DataFrame({"a": ["31/01/2020", "02/01/2020"], "b": ["01/02/2020", "03/04/2020"]})
    read, notation, (note,) = read_columns(frame, Notation())
    assert read["b"].tolist() == [pd.Timestamp("2020-02-01"), pd.Timestamp("2020-04-03")]
    assert notation.dates == {"a": DAY_FIRST, "b": DAY_FIRST}
    assert named(note, "'b'", "day first", "01/02/2020", "1 February", "--month-first")
    read, _, notes = read_columns(frame[["b"]], check_notation(day_first=False))
    assert (read["b"].tolist()[0], notes) == (pd.Timestamp("2020-01-02"), [])


def test_a_column_with_other_cells_stays_as_it_is() -> None:
    frame = pd.DataFrame({"a": ["1,5", "many"], "b": ["31/01/2020", "soon"], "c": ["31/01/2020", "01/31/2020"]})
    read, notation, notes = read_columns(frame, Notation())
    pd.testing.assert_frame_equal(read, frame)
    assert (notation.to_dict(), notes) == ({}, [])


def test_kinds_are_as_was_said_and_a_cell_that_does_not_fit_is_named() -> None:
    frame = pd.DataFrame({"code": [7.0, None], "on": ["yes", "no"], "x": ["1,5", ""], "d": ["2020-01-31", "1.2.2020"]})
    kinds = {"code": "categories", "on": "booleans", "x": "numbers", "d": "dates"}
    found = read_columns(frame, Notation(), kinds=kinds)[0]
    assert found["code"].tolist()[0] == "7"
    assert found["code"].isna().tolist() == [False, True]
    assert found["on"].tolist() == [True, False]
    assert found["x"].tolist()[0] == 1.5
    assert found["d"].tolist() == [pd.Timestamp("2020-01-31"), pd.Timestamp("2020-02-01")]
    with refuses(InputError, "row 1", "on", "--kind", "no"):
        read_columns(pd.DataFrame({"on": ["1", "no"]}), Notation(), kinds={"on": "numbers"})


def test_a_notation_is_stored_and_what_is_said_goes_before_it() -> None:
    kept = Notation(";", ",", None, {"x": COMMA}, {"d": DAY_FIRST})
    assert Notation.from_dict(kept.to_dict()) == kept
    assert Notation().to_dict() == {}
    said = check_notation(decimal=POINT, day_first=False).over(kept)
    assert (said.separator, said.decimal_of("x"), said.order_of("d")) == (";", POINT, MONTH_FIRST)
    assert Notation().over(kept) == kept
    wrong: list[Any] = [{"x": 1}, {"dates": {"d": "soon"}}, [], {"numbers": 3}]
    for damaged in wrong:
        with refuses(ValueError, "notation"):
            Notation.from_dict(damaged)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"separator": "ab"}, ["separator", "one", "ab"]),
        ({"separator": '"'}, ["separator", "one"]),
        ({"decimal": "'"}, ["decimal", "point", "comma"]),
        ({"separator": ",", "decimal": ","}, ["separator", "decimal", "differ"]),
    ],
)
def test_what_cannot_be_is_refused(options: Any, facts: list[str]) -> None:
    with refuses(InputError, *facts):
        check_notation(**options)


def test_categories_are_written_as_people_write_them() -> None:
    assert [category(value) for value in (3.0, 2.5, True, "x", 4)] == ["3", "2.5", "true", "x", "4"]
