"""How numbers and dates are written: decimal commas, thousands, 31/01/2020; inferred from a column, or given.

dwac infers how a column is written only if every cell agrees. Where two readings fit every cell (1,500 or
01/02/2020), it takes one, and a note names it and the option that chooses the other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

import pandas as pd

from dwac._checks import listed
from dwac.errors import InputError

KINDS = ("numbers", "categories", "dates", "booleans")
POINT, COMMA = ".", ","
DAY_FIRST, MONTH_FIRST, YEAR_FIRST = "day first", "month first", "year first"
_TABS = {"tab", "\\t", "t"}
_BLANK = {"", "nan", "NaN"}
TRUTH = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}

_EXPONENT = r"(?:[eE][+-]?\d{1,3})?"
_FORMS = {
    POINT: re.compile(rf"[+-]?(?:(?:\d+|[1-9]\d{{0,2}}(?:[,' \u00a0\u202f]\d{{3}})+)(?:\.\d*)?|\.\d+){_EXPONENT}"),
    COMMA: re.compile(rf"[+-]?(?:\d+|[1-9]\d{{0,2}}(?:[.' \u00a0\u202f]\d{{3}})+)(?:,\d+)?{_EXPONENT}"),
}
_THOUSANDS = {POINT: re.compile("[,' \u00a0\u202f]"), COMMA: re.compile("[.' \u00a0\u202f]")}
_DATE = re.compile(
    r"(?P<a>\d{4}|\d{1,2})(?P<mark>[/.-])(?P<b>\d{1,2})(?P=mark)(?P<c>\d{4}|\d{2})"
    r"(?:[T ]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:\.\d{1,6})?))?)?"
)


@dataclass(frozen=True)
class Notation:
    """How the tables of a model are written. None: inferred from each file.

    The user gave the first three. `numbers` and `dates` were learned in training: the decimal mark and the date order
    of each column. They decide where the cells of a later file are ambiguous.
    """

    separator: str | None = None
    decimal: str | None = None
    day_first: bool | None = None
    numbers: Mapping[str, str] = field(default_factory=dict)
    dates: Mapping[str, str] = field(default_factory=dict)

    def over(self, other: Notation) -> Notation:
        """This notation, with the other's value for each field that is not set."""
        return Notation(
            self.separator or other.separator,
            self.decimal or other.decimal,
            other.day_first if self.day_first is None else self.day_first,
            {**({} if self.decimal else other.numbers), **self.numbers},
            {**({} if self.day_first is not None else other.dates), **self.dates},
        )

    def decimal_of(self, column: str) -> str | None:
        """The decimal mark of a column; None: infer it."""
        return self.decimal or self.numbers.get(column)

    def order_of(self, column: str) -> str | None:
        """The date order of a column; None: infer it."""
        return _order(self) or self.dates.get(column)

    def to_dict(self) -> dict[str, Any]:
        """The known fields, to be stored; {} if nothing is known."""
        return {name: value for name, value in asdict(self).items() if value not in (None, {})}

    @classmethod
    def from_dict(cls, facts: Any) -> Notation:
        """The notation that `to_dict` stored; ValueError if the values are not valid."""
        known = {each.name for each in fields(cls)}
        if not isinstance(facts, dict) or not set(facts) <= known:
            raise ValueError(f"a notation has the keys {', '.join(sorted(known))}")
        for name, marks in (("numbers", (POINT, COMMA)), ("dates", (DAY_FIRST, MONTH_FIRST, YEAR_FIRST))):
            columns = facts.get(name, {})
            if not isinstance(columns, dict) or not all(value in marks for value in columns.values()):
                raise ValueError(f"{name} of a notation must be among {', '.join(marks)}")
        notation = check_notation(facts.get("separator"), facts.get("decimal"), facts.get("day_first"))
        return replace(notation, numbers=facts.get("numbers", {}), dates=facts.get("dates", {}))


def check_notation(separator: str | None = None, decimal: str | None = None, day_first: bool | None = None) -> Notation:
    """The given options on how a table is written, checked.

    >>> check_notation("tab", ",").separator
    '\\t'
    """
    if separator is not None:
        separator = "\t" if separator in _TABS else separator
        if not isinstance(separator, str) or len(separator) != 1 or separator in '"\r\n' or ord(separator) > 127:
            raise InputError(f"the separator must be one plain character, such as ; or , or tab; got {separator!r}")
    if decimal is not None and decimal not in (POINT, COMMA):
        raise InputError(f"the decimal mark must be a point or a comma; got {decimal!r}")
    if separator is not None and separator == decimal:
        raise InputError(f"separator and decimal mark must differ; both are {decimal!r}")
    return Notation(separator, decimal, day_first)


class Read(NamedTuple):
    """A column of texts as numbers or dates, missing where a cell is neither, and how dwac read it."""

    column: pd.Series[Any]
    how: str  # the decimal mark, or the date order
    doubtful: bool  # whether another reading fits every cell too


def is_text(values: pd.Series[Any]) -> bool:
    """Whether a column holds only strings and missing values."""
    return values.dtype.kind not in "biufMm" and pd.api.types.infer_dtype(values, skipna=True) == "string"


def missing(values: pd.Series[Any]) -> pd.Series[Any]:
    """Which values are missing: blank or NaN, also as text."""
    return values.isna() | values.map(lambda value: isinstance(value, str) and value.strip() in _BLANK).astype(bool)


def _cells(values: pd.Series[Any]) -> pd.Series[Any]:
    """The texts of a column that are not missing, without surrounding spaces."""
    texts = values[values.map(lambda value: isinstance(value, str)).astype(bool)].str.strip()
    return texts[~texts.isin(_BLANK)]


# Numbers


def as_numbers(values: pd.Series[Any], decimal: str | None = None, usual: str = POINT, *, judge: bool = True) -> Read:
    """Texts as numbers. decimal: the decimal mark; usual: the mark if both fit; judge: try other marks too.

    >>> as_numbers(pd.Series(["1,5", "2"])).column.tolist(), as_numbers(pd.Series(["1,500"])).doubtful
    ([1.5, 2.0], True)
    """
    cells = _cells(values)
    distinct = cells.unique().tolist()
    fits = {mark: sum(form.fullmatch(cell) is not None for cell in distinct) for mark, form in _FORMS.items()}
    mark = decimal or usual
    other = COMMA if mark == POINT else POINT
    if fits[other] > fits[mark] and judge:
        mark, other = other, mark
    doubtful = decimal is None and fits[mark] == fits[other] > 0 and any("," in c or "." in c for c in distinct)
    form, thousands = _FORMS[mark], _THOUSANDS[mark]
    known = {cell: float(thousands.sub("", cell).replace(mark, ".")) for cell in distinct if form.fullmatch(cell)}
    known = {cell: value for cell, value in known.items() if math.isfinite(value)}  # 1e999 is not a number
    return Read(cells.map(known).astype("float64").reindex(values.index), mark, doubtful)


# Dates


def as_dates(values: pd.Series[Any], order: str | None = None, usual: str = MONTH_FIRST) -> Read:
    """Texts such as 31/01/2020, 31.1.2020 14:30 or 2020/01/31 as dates; anything else is missing.

    order: what comes first; by default inferred: 13 or more is a day, and points mean that the day is first. usual:
    what comes first if both orders fit.

    >>> as_dates(pd.Series(["31/01/2020"])).how, as_dates(pd.Series(["01/02/2020"])).doubtful
    ('day first', True)
    """
    cells = _cells(values)
    parts = cells.str.extract(re.compile(f"^{_DATE.pattern}$"))
    parts = parts[parts["a"].notna()]
    year_first = parts["a"].str.len() == 4
    short = ~year_first & (parts["c"].str.len() == 2) & ((parts["a"].str.len() == 1) | (parts["b"].str.len() == 1))
    parts = parts[~short & (year_first | (parts["c"].str.len() >= 2))]
    year_first = parts["a"].str.len() == 4
    numbers = parts.drop(columns="mark").astype("float64")
    rest = numbers[~year_first]
    day, month = bool((rest["a"] > 12).any()), bool((rest["b"] > 12).any())
    points = bool(len(rest)) and bool((parts["mark"][~year_first] == ".").all())
    if order in (DAY_FIRST, MONTH_FIRST):
        how = order
    elif not len(rest):
        how = YEAR_FIRST
    else:
        how = DAY_FIRST if day or (points and not month) else MONTH_FIRST if month else usual
    doubtful = order in (None, YEAR_FIRST) and len(rest) > 0 and not (day or month or points)
    swapped = how == MONTH_FIRST
    dates = pd.DataFrame(
        {
            "year": numbers["a"].where(year_first, _whole_years(numbers["c"])),
            "month": numbers["b"].where(year_first, numbers["a"] if swapped else numbers["b"]),
            "day": numbers["c"].where(year_first, numbers["b"] if swapped else numbers["a"]),
            **{unit: numbers[unit].fillna(0) for unit in ("hour", "minute", "second")},
        }
    )
    times = pd.to_datetime(dates, errors="coerce") if len(dates) else pd.Series([], dtype="datetime64[ns]")
    return Read(times.reindex(values.index), how, doubtful)


def _whole_years(years: pd.Series[Any]) -> pd.Series[Any]:
    """Two-digit years in full, as other programs read them: 19 as 2019, 75 as 1975."""
    return years.where(years >= 100, years + 1900 + 100 * (years < 69))


# A table for training


def read_columns(
    frame: pd.DataFrame,
    notation: Notation,
    *,
    leave: Collection[str] = (),
    kinds: Mapping[str, str] | None = None,
    semicolons: bool = False,
    where: Callable[[int], str] = "row {}".format,
    known: Mapping[str, str] | None = None,
) -> tuple[pd.DataFrame, Notation, list[str]]:
    """(the table with texts as numbers or dates if every cell is one, or as `kinds` says; how it is written; notes).

    leave: columns to leave unchanged. semicolons: whether the file has decimal commas or semicolons between fields,
    as in countries that write the day first. known: columns already read as numbers, and their decimal marks.
    """
    kinds = kinds or {}
    texts = [name for name in frame.columns if name not in leave and name not in kinds and is_text(frame[name])]
    codes = {str(name): code for name in texts if (code := _code(frame[name]))}
    texts = [name for name in texts if name not in codes]
    numbers = {name: read for name in texts if (read := _all_numbers(frame[name], notation.decimal)) is not None}
    dates = {name: read for name in texts if name not in numbers and (read := _all_dates(frame[name], notation))}
    european = semicolons or any(not each.doubtful and each.how == COMMA for each in numbers.values())
    if european and notation.decimal is None:
        numbers |= {name: as_numbers(frame[name], None, COMMA) for name, each in numbers.items() if each.doubtful}
    sure = {each.how for each in dates.values() if not each.doubtful} - {YEAR_FIRST}
    usual = sure.pop() if len(sure) == 1 else DAY_FIRST if european else MONTH_FIRST
    dates |= {name: as_dates(frame[name], None, usual) for name, each in dates.items() if each.doubtful}
    changed = {name: each.column for name, each in (numbers | dates).items()}
    notes = [*_notes(numbers, dates), *_note_of_codes(codes)]
    for name, kind in kinds.items():
        column = _as_kind(frame[name], name, kind, notation, COMMA if european else POINT, usual, where)
        changed[name] = column.column if isinstance(column, Read) else column
        if isinstance(column, Read):
            (numbers if kind == "numbers" else dates)[name] = column
            notes += _notes({name: column} if kind == "numbers" else {}, {name: column} if kind == "dates" else {})
    if changed:  # all at once: setting columns one by one fragments the frame
        frame = pd.DataFrame({name: changed.get(name, frame[name]) for name in frame.columns})
    learned = replace(
        notation,
        numbers={**(known or {}), **{name: each.how for name, each in numbers.items()}},
        dates={name: each.how for name, each in dates.items()},
    )
    return frame, learned, notes


def _code(values: pd.Series[Any]) -> str:
    """The first code with leading zeros, such as 00123, if every cell of the column is digits; else ""."""
    cells = _cells(values).unique().tolist()
    digits = all(cell.isascii() and cell.isdecimal() for cell in cells)
    return next((cell for cell in cells if len(cell) > 1 and cell[0] == "0"), "") if digits else ""


def _note_of_codes(codes: Mapping[str, str]) -> list[str]:
    if not codes:
        return []
    columns, first = listed(codes, len(codes)), next(iter(codes))
    return [
        f"{columns}: codes such as {codes[first]} are read as categories, because a number would lose the zeros; to "
        f"read numbers: --kind {first}=numbers"
    ]


def begins_like_number(values: pd.Series[Any]) -> bool:
    """Whether the first text of a column is a number in any notation: a quick check before a slow one."""
    first = next((v.strip() for v in values if isinstance(v, str) and v.strip() not in _BLANK), "")
    return any(form.fullmatch(first) for form in _FORMS.values()) and first != ""


def _all_numbers(values: pd.Series[Any], decimal: str | None) -> Read | None:
    if not begins_like_number(values):
        return None
    read = as_numbers(values, decimal)
    return read if read.column.notna().sum() == len(_cells(values)) else None


def _all_dates(values: pd.Series[Any], notation: Notation) -> Read | None:
    cells = _cells(values)
    if not len(cells) or not _DATE.fullmatch(cells.iloc[0]):
        return None
    # The given order decides where both fit; if it does not fit a column, the order is inferred.
    readings = (as_dates(values, order) for order in dict.fromkeys((_order(notation), None)))
    return next((read for read in readings if read.column.notna().sum() == len(cells)), None)


def _order(notation: Notation) -> str | None:
    return None if notation.day_first is None else DAY_FIRST if notation.day_first else MONTH_FIRST


def doubt_of_number(columns: str, read: Read, why: str = "because every cell could be either") -> str:
    """A note on how 1,500 was read, and how to choose the other reading."""
    if read.how == COMMA:
        how, other = "decimal commas (1,500 is 1.5; 1.500 is 1500)", POINT
    else:
        how, other = "commas between thousands (1,500 is 1500; 1.500 is 1.5)", COMMA
    return f"{columns}: read with {how}, {why}; to change: --decimal {other}"


def doubt_of_date(columns: str, read: Read) -> str:
    """A note on how 01/02/2020 was read, and how to choose the other reading."""
    date, other = ("1 February", "--month-first") if read.how == DAY_FIRST else ("2 January", "--day-first")
    how = f"the {read.how} (01/02/2020 is {date})"
    return f"{columns}: read with {how}, because every date could be either; to change: {other}"


def _notes(numbers: Mapping[str, Read], dates: Mapping[str, Read]) -> list[str]:
    """Notes for the user: one sentence for all columns that were read the same way."""
    notes = []
    for columns, note in ((numbers, doubt_of_number), (dates, doubt_of_date)):
        for how in dict.fromkeys(each.how for each in columns.values()):
            unsure = {column: each for column, each in columns.items() if each.doubtful and each.how == how}
            if unsure:
                notes.append(note(listed(unsure, len(unsure)), next(iter(unsure.values()))))
    return notes


def _as_kind(
    values: pd.Series[Any],
    name: str,
    kind: str,
    notation: Notation,
    mark: str,
    usual: str,
    where: Callable[[int], str],
) -> Read | pd.Series[Any]:
    """A column as the requested kind; an error names the first cell that does not fit."""
    if kind == "categories":
        return values.map(category, na_action="ignore").astype(object)
    if kind == "booleans":
        if values.dtype == bool:
            return values
        truth = values.map(lambda value: TRUTH.get(str(value).strip().lower().removesuffix(".0")), na_action="ignore")
        _refuse_lost(values, truth, name, "true or false, yes or no, 1 or 0", where)
        return truth.astype(object)
    if kind == "numbers":
        if values.dtype.kind in "iuf":
            return values.astype(float)  # whole numbers might be ids
        read = as_numbers(_as_texts(values), notation.decimal, mark)
        _refuse_lost(values, read.column, name, "numbers", where)
        return read
    if values.dtype.kind == "M":
        return values
    texts = _as_texts(values)
    read = as_dates(texts, _order(notation), usual)
    iso = pd.to_datetime(texts.where(read.column.isna()), format="ISO8601", errors="coerce", utc=True)
    read = read._replace(column=read.column.fillna(iso.dt.tz_localize(None)))
    _refuse_lost(values, read.column, name, "dates, such as 31/01/2020 or 2020-01-31", where)
    return read


def _as_texts(values: pd.Series[Any]) -> pd.Series[Any]:
    return values.map(category, na_action="ignore").astype(object)


def category(value: Any) -> str:
    """A cell as the text of a category: 3 for 3.0, true for True, a date without its midnight.

    >>> category(3.0), category(True), category(pd.Timestamp("2020-01-31"))
    ('3', 'true', '2020-01-31')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).removesuffix("T00:00:00")
    return str(value)


def _refuse_lost(
    values: pd.Series[Any], read: pd.Series[Any], name: str, wanted: str, where: Callable[[int], str]
) -> None:
    lost = (read.isna() & ~missing(values)).to_numpy()
    if lost.any():
        row = int(lost.argmax())
        raise InputError(
            f"{where(row)}: {name!r} must hold {wanted}, as --kind says; got {str(values.iloc[row])[:60]!r}; repair "
            "the cell, or leave it empty"
        )
