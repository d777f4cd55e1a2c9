"""Claims about the rows of a group, column by column, such as "age 17 to 29".

A column offers several claims about a group. Each is true of most of its rows and lists the rows for which it holds,
so that `dwac.explain.descriptions` can choose those that set the group apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac.drawing.legend import NO_LEGEND, Legend
from dwac.languages import message, numeral, say

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST = 0.6  # share of a group's rows for which a claim about one value must hold
WIDE = 0.75  # the same for a claim about several values or a range
_INNER = (0.1, 0.9)  # quantiles of a group between which a range lies
_STEPS = 40  # a range is rounded to about this part of the column's usual range
_VALUES = 3  # values named in a claim
MISSING = "missing"
_LONG, _SHOWN = 60, 40  # characters: columns of longer values are free text; longer values are cut
# An ideograph or kana is a word of its own; vowel signs and accents belong to their word, though \w excludes many.
_SINGLE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_MARKS = "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0e31-\u0e4e"
_ASCII = re.compile(r"\w+(?:'\w+)?[+#]*")  # don't, c++, c#
_ANY = re.compile(rf"[{_SINGLE}]|[^\W{_SINGLE}](?:[^\W{_SINGLE}]|[{_MARKS}])*(?:'\w+)?[+#]*")
_NUMERIC = {"integer", "floating", "mixed-integer-float", "decimal", "timedelta", "timedelta64"}
_DATES = {"datetime", "datetime64", "date", "period"}
_UNITS = (
    (message("days"), 86_400.0),
    (message("hours"), 3_600.0),
    (message("minutes"), 60.0),
    (message("seconds"), 1.0),
)
_NAMES = (message("missing"), message("blank"), message("true"), message("false"))  # of values that have no name


class Claim(NamedTuple):
    """A claim in words, and the rows (n,) for which it holds."""

    text: str
    holds: Bools


def column(
    series: pd.Series[Any], name: Any, kind: str | None = None, legend: Legend = NO_LEGEND
) -> RangeColumn | CategoryColumn | None:
    """A column that can be described; None if it is constant, empty, free text, ids or images.

    kind: numeric, boolean, datetime or categorical, as an encoder inferred it; by default it is inferred here. legend:
    what it and its codes are called; a column whose codes have names is described by these.
    """
    title = legend.title(name)
    dtype = pd.api.types.infer_dtype(series, skipna=True)
    if kind is None:
        kind = "numeric" if dtype in _NUMERIC else "datetime" if dtype in _DATES else "categorical"
    known = legend.names.get(name)
    if known is not None and known.codes and all(legend.meaning(name, value) for value in pd.unique(series.dropna())):
        coded = _category_column(series, title)
        return coded and CategoryColumn(title, coded.codes, coded.names, dict(known.codes))
    if kind == "datetime":
        return _date_column(series, title)
    if kind == "numeric":
        return _number_column(series, title, dtype)
    return None if kind == "empty" or dtype == "bytes" else _category_column(series, title)


# Numbers and dates


class RangeColumn:
    """Numbers (n,), NaN where missing: claims are ranges from about the 10th to the 90th percentile of a group.

    Limits are rounded to a step; a claim holds for the rows between the limits that it names. Dates are numbers of
    seconds; a date in a claim, such as 2024-05, means the whole month.
    """

    def __init__(self, title: str, x: Floats, scale: NumberScale | DateScale) -> None:
        self.title, self.x, self.scale = title, x, scale

    def claims(self, rows: slice, *, complete: bool = True) -> Iterator[Claim]:
        """ "a to b", "at most b" and "at least a"; the prevailing value, if there is one; or that it is missing."""
        gaps = np.isnan(self.x)
        inside = self.x[rows][~gaps[rows]]
        if (share := float(gaps[rows].mean())) >= MOST:
            yield Claim(f"{self.title} {adverb(share, rows, complete)}missing", gaps)
            return
        low, high = np.quantile(inside, _INNER, method="nearest")
        if low == high:
            holds = self.x == low
            share = float(holds[rows].mean())
            if share >= MOST:
                yield Claim(f"{self.title} {adverb(share, rows, complete)}{self.scale.exact(float(low))}", holds)
            return
        first, last = self.scale.start(float(low)), self.scale.start(float(high))
        after, before = self.x >= first, self.x < self.scale.end(last)
        a, b = self.scale.text(first), self.scale.text(last)
        ranges = ((self.scale.below.format(high=b), before), (self.scale.above.format(low=a), after))
        both = Claim(f"{self.title} {a} to {b}" if a != b else f"{self.title} {a}", after & before)
        for claim in (*(Claim(f"{self.title} {words}", holds) for words, holds in ranges), both):
            if claim.holds[rows].mean() >= WIDE:
                yield claim


@dataclass(frozen=True)
class NumberScale:
    """Numbers rounded to a step of 1 or 5 times a power of ten, perhaps with a unit: " days", for durations."""

    step: float
    decimals: int
    unit: str = ""
    below: ClassVar[str] = message("at most {high}")
    above: ClassVar[str] = message("at least {low}")

    def __post_init__(self) -> None:
        numbers = isinstance(self.step, int | float) and isinstance(self.decimals, int)
        if not numbers or self.unit.strip() not in {"", *dict(_UNITS)}:  # in a damaged file
            raise ValueError(f"a scale must have a step, decimals and a known unit; got {self}")

    @classmethod
    def of(cls, x: Floats, *, unit: str = "", parts: int = _STEPS, whole: bool = True) -> NumberScale:
        """The scale of numbers (n,): the step is about 1/`parts` of their usual range (5th to 95th percentile).

        whole: whether the step of whole numbers is at least 1. unit: one of days, hours, minutes and seconds.
        """
        part = _usual_range(x) / parts
        power = 10.0 ** math.floor(math.log10(part)) if part > 1e-300 else 0.0
        step = 5 * power if part >= 5 * power else power
        if whole and (x == np.round(x)).all():
            step = max(step, 1.0)
        decimals = max(0, -math.floor(math.log10(step))) if step else 300
        return cls(step, decimals, f" {unit}" if unit else "")

    def number(self, value: Any) -> float:
        """A value of the column as a number; NaN if it is missing, infinite or no number."""
        if self.unit:
            value = pd.to_timedelta(value, errors="coerce").total_seconds() / dict(_UNITS)[self.unit.strip()]
        x = float(value if isinstance(value, int | float) else pd.to_numeric(value, errors="coerce"))
        return x if math.isfinite(x) else math.nan

    def start(self, value: float) -> float:
        """Rounded to the nearest multiple of the step."""
        return round(round(value / self.step) * self.step, self.decimals) if self.step else value

    def limit(self, value: float) -> float:
        """The number that `text` prints for the rounded value: what a reader compares with."""
        return float(self.text(self.start(value)).removesuffix(self.unit).replace(",", ""))

    def end(self, value: float) -> float:
        """Just above the number: limits are inclusive."""
        return float(np.nextafter(value, math.inf))

    def text(self, value: float) -> str:
        """With as many decimals as the step has, and thousands separators from 10,000 on, so that years have none."""
        if self.decimals > 6 or abs(value) >= 1e15:
            return f"{value:.6g}{self.unit}"
        text = f"{value:,.{self.decimals}f}" if abs(value) >= 10_000 else f"{value:.{self.decimals}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return f"{'0' if text == '-0' else text}{self.unit}"

    def exact(self, value: float) -> str:
        """Up to six digits, or all of a whole number."""
        whole = value == round(value) and abs(value) < 1e15
        text = (f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.0f}") if whole else f"{value:.6g}"
        return f"{text}{self.unit}"


@dataclass(frozen=True)
class DateScale:
    """Seconds since 1970 as months ("M"), days ("D") or minutes ("m")."""

    unit: Any
    below: ClassVar[str] = message("until {high}")
    above: ClassVar[str] = message("since {low}")

    def __post_init__(self) -> None:
        if self.unit not in ("M", "D", "m"):
            raise ValueError(f"unknown unit {self.unit!r}")

    @classmethod
    def of(cls, x: Floats) -> DateScale:
        """The scale that suits the usual range of dates (n,)."""
        days = _usual_range(x) / 86_400
        return cls("M" if days > 4 * 365 else "D" if days > 4 else "m")

    def number(self, value: Any) -> float:
        """A date as seconds; NaN if it is missing or no date."""
        return _seconds_of(value) if isinstance(value, Hashable) else math.nan

    def start(self, value: float) -> float:
        """The beginning of the month, day or minute."""
        return float(self._period(value).astype("datetime64[s]").astype(np.int64))

    limit = start

    def end(self, value: float) -> float:
        """The beginning of the next one."""
        return float((self._period(value) + np.timedelta64(1, self.unit)).astype("datetime64[s]").astype(np.int64))

    def _period(self, value: float) -> Any:
        return np.datetime64(math.floor(value), "s").astype(f"datetime64[{self.unit}]")

    def text(self, value: float) -> str:
        """As in ISO 8601: 2024-05, 2024-05-31 or 2024-05-31 14:00."""
        return str(self._period(value)).replace("T", " ")

    def exact(self, value: float) -> str:
        """To the minute, or the day if that is all."""
        unit = "m" if value % 86_400 else "D"
        return str(np.datetime64(math.floor(value), "s").astype(f"datetime64[{unit}]")).replace("T", " ")


def _usual_range(x: Floats) -> float:
    """From the 5th to the 95th percentile; of numbers that are nearly all the same, from the lowest to the highest."""
    low, high = np.quantile(x, (0.05, 0.95))
    return float(high - low) or float(x.max() - x.min())


def _number_column(series: pd.Series[Any], title: str, dtype: str) -> RangeColumn | CategoryColumn | None:
    unit = ""
    if dtype.startswith("timedelta"):
        series = pd.to_timedelta(series).dt.total_seconds()
        middle = float(series.abs().median())
        unit, size = next((each for each in _UNITS if middle >= each[1]), _UNITS[-1])
        series = series / size
    elif not pd.api.types.is_numeric_dtype(series.dtype):
        series = pd.to_numeric(series.astype(object), errors="coerce")
    x: Floats = series.to_numpy(np.float64, na_value=np.nan)
    x = np.where(np.isfinite(x), x, np.nan)
    known = x[~np.isnan(x)]
    if len(known) == 0 or (known.min() == known.max() and len(known) == len(x)):
        return None
    if len(pd.unique(known)) <= 2 and not unit:  # such as 0 and 1: claims name one of them, or that it is missing
        return _category_column(pd.Series(x), title)
    return RangeColumn(title, x, NumberScale.of(known, unit=unit))


def _date_column(series: pd.Series[Any], title: str) -> RangeColumn | None:
    seconds = _seconds(series)
    known = seconds[~np.isnan(seconds)]
    if len(known) == 0 or (known.min() == known.max() and len(known) == len(seconds)):
        return None
    return RangeColumn(title, seconds, DateScale.of(known))


def _seconds(series: pd.Series[Any]) -> Floats:
    """Dates as seconds since 1970; NaN where missing."""
    if isinstance(series.dtype, pd.PeriodDtype):
        series = series.dt.to_timestamp()
    if not pd.api.types.is_datetime64_any_dtype(series.dtype):
        series = series.astype(object)
    times = pd.to_datetime(series, utc=True, errors="coerce", format="ISO8601")
    apart = (times - pd.Timestamp(0, tz="UTC").as_unit("s")).dt.total_seconds()
    return np.asarray(apart.to_numpy(np.float64, na_value=np.nan), np.float64)


@lru_cache(4096, typed=True)  # a row is compared with many groups
def _seconds_of(value: Any) -> float:
    return float(_seconds(pd.Series([value], dtype=object))[0])


# Categories


class CategoryColumn:
    """Codes (n,) into named values, the last of which means missing: claims name the values that prevail."""

    def __init__(self, title: str, codes: Ints, names: list[str], meanings: Mapping[str, str] | None = None) -> None:
        self.title, self.codes, self.names, self.meanings = title, codes, names, meanings or {}
        self.shares = np.bincount(codes, minlength=len(names)) / len(codes)

    def claims(self, rows: slice, *, complete: bool = True) -> Iterator[Claim]:
        """One, two or three values that are more frequent in the group than elsewhere."""
        shares = np.bincount(self.codes[rows], minlength=len(self.names)) / (rows.stop - rows.start)
        order = np.argsort(-shares, kind="stable")[:_VALUES]
        order = order[(shares[order] > self.shares[order]) & (shares[order] > 0.1)]
        for k in range(1, len(order) + 1):
            share = float(shares[order[:k]].sum())
            if share < (MOST if k == 1 else WIDE):
                continue
            named = [self.meanings.get(self.names[code], self.names[code]) for code in order[:k]]
            yield Claim(
                f"{self.title} {adverb(share, rows, complete)}{' or '.join(named)}", np.isin(self.codes, order[:k])
            )


def _category_column(series: pd.Series[Any], title: str) -> CategoryColumn | None:
    """A column of categories; None if it has only one value, if values hardly recur (ids, names) or are long texts."""
    try:
        codes, values = pd.factorize(series)
    except TypeError:  # lists and the like
        return None
    gaps = bool((codes < 0).any())
    if len(values) + gaps < 2 or len(values) > max(20, len(codes) // 10):
        return None
    names = [_full_name(value) for value in values]
    if float(np.median([len(name) for name in names])) > _LONG:
        return None
    return CategoryColumn(title, np.where(codes < 0, len(values), codes).astype(np.int64), [*map(_cut, names), MISSING])


def show_number(text: str) -> str:
    """A number, duration or date that a scale wrote, in the current language."""
    number, _, unit = text.partition(" ")
    return f"{numeral(number)} {say(unit)}" if unit in dict(_UNITS) else numeral(text)


def show_name(name: str) -> str:
    """The name of a category in the current language: of one that has none."""
    return say(name) if name in _NAMES else name


def value_name(value: Any) -> str:
    """A category as a claim names it."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return MISSING
    return _cut(_full_name(value))


def _cut(name: str) -> str:
    return name if len(name) <= _SHOWN else name[: _SHOWN - 1] + "…"


def _full_name(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return " ".join(str(value).split()) or "blank"


def adverb(share: float, rows: slice, complete: bool) -> str:
    """The adverb for the share of these rows for which a claim holds; "always" only if they are the whole group.

    >>> adverb(1.0, slice(0, 9), complete=True), adverb(1.0, slice(0, 9), complete=False)
    ('always ', 'nearly always ')
    >>> adverb(0.7, slice(0, 9), complete=True), adverb(1.0, slice(0, 1), complete=True)
    ('mostly ', '')
    """
    if rows.stop - rows.start == 1 and complete:
        return ""
    return "always " if share == 1 and complete else "nearly always " if share >= 0.95 else "mostly "


def worth(inside: Any, n: Any, rest: Any, n_rest: Any) -> Any:
    """The divergence, in nats, of a share inside/n from rest/n_rest, each shrunk a little towards a half.

    0 where the share is no larger in the group than in the rest, or where there is no rest.
    """
    c, r = (inside + 0.5) / (n + 1), (rest + 0.5) / (n_rest + 1)
    nats = c * np.log(c / r) + (1 - c) * np.log((1 - c) / (1 - r))
    return np.where((c > r) & (n_rest > 0), nats, 0.0)


# Texts


def usable_words(text: Any) -> set[str]:
    """The words of a text that descriptions may use: no numbers and no single letters, but c++ and c#."""
    known = words(text) if isinstance(text, str) else set()
    return {word for word in known if not word[0].isdigit() and (len(word) > 1 or not word.isascii())}


def words(text: str) -> set[str]:
    """The distinct words of a text, in lower case; punctuation is left out.

    >>> sorted(words("Don't sort C++, sort C#!"))
    ['c#', 'c++', "don't", 'sort']
    """
    text = text.lower()
    return set(_ASCII.findall(text) if text.isascii() else _ANY.findall(text.replace("’", "'")))
