"""How explanations are written: lines of text, cells and rows of pages, shares and numbers with their digits."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac import _checks as checks
from dwac.drawing.legend import Legend
from dwac.drawing.records import data_url, is_png, shorten
from dwac.explain import privacy
from dwac.explain.claims import NumberScale
from dwac.languages import count, message, numeral, say

Floats = NDArray[np.float64]
Interval = tuple[float, float]

NARROWEST, USUAL, WIDEST = 60, 100, 160  # characters of a printed line; USUAL without a terminal
_GAP = 2  # between columns
_NARROWEST = 12  # characters of a column that fills the line
_LONGEST = 24  # characters of a cell, except where a column fills the line
_FINE = 2000  # a shown number is rounded to about this part of the usual range
_PRIVATE_BINS = 8  # bins of a private histogram, at most
_STEPS = 50  # private numbers are rounded to at most this many steps of the usual range

# Text


def line_width() -> int:
    """The width of a printed line: that of the terminal (or COLUMNS), within limits."""
    return min(max(shutil.get_terminal_size((USUAL, 24)).columns, NARROWEST), WIDEST)


class Rendered:
    """What people read: printed as wide as the terminal, and a page in a notebook."""

    def to_text(self, width: int | None = None, *, language: str | None = None) -> str:
        """In lines of at most `width` characters, by default as wide as the terminal; language: such as "de"."""
        raise NotImplementedError

    def to_html(self, *, language: str | None = None) -> str:
        """A self-contained HTML fragment; every value escaped. language: of its texts, such as "de"."""
        raise NotImplementedError

    def __str__(self) -> str:
        """As `to_text`, as wide as the terminal."""
        return self.to_text()

    def _repr_html_(self) -> str:
        return self.to_html()


def wrap(sentences: Iterable[str], width: int | None = None) -> list[str]:
    """Sentences as lines of at most `width` characters; all but the first of each are indented."""
    options: dict[str, Any] = {"subsequent_indent": "  ", "break_on_hyphens": False}
    width = line_width() if width is None else width
    return [line for sentence in sentences for line in textwrap.wrap(sentence, width, **options) or [""]]


def table_lines(
    frame: pd.DataFrame,
    width: int,
    *,
    always: int,
    filling: Any = None,
    least: int = 28,
    deepest: int = 3,
    heads: Sequence[Any] | None = None,
) -> tuple[list[str], list[Any]]:
    """(lines of at most `width` characters, heads of the columns that did not fit) of a table.

    The first `always` columns are always shown, then as many as fit. filling: a column of texts that takes the rest of
    the line, at least `least` characters if the others allow it, and up to `deepest` lines. heads: of the columns, by
    default their names.

    >>> frame = pd.DataFrame({"id": ["ann", "bob"], "age": [30, 41.5], "town": ["Ulm", "Bonn"]})
    >>> lines, left_out = table_lines(frame, 12, always=1)
    >>> print("\\n".join(lines), left_out)
    id    age
    ann    30
    bob  41.5 ['town']
    """
    shown: list[list[str]] = []
    left_out: list[Any] = []
    room = width - (least + _GAP if filling is not None else 0)
    used = -_GAP
    heads = list(frame.columns) if heads is None else heads
    for place, (name, head) in enumerate(zip(frame.columns, heads, strict=True)):
        if name == filling:
            continue
        column = _cells(frame.iloc[:, place], name, head)
        size = len(column[0]) + _GAP
        if left_out or (place >= always and used + size > room):
            left_out.append(head)
        else:
            shown.append(column)
            used += size
    if filling is not None:
        head = heads[list(frame.columns).index(filling)]
        return _fill(shown, frame[filling], head, max(width - used - _GAP, _NARROWEST), deepest), left_out
    return [(" " * _GAP).join(cells).rstrip() for cells in zip(*shown, strict=True)], left_out


def _cells(values: pd.Series[Any], name: Any, head: Any) -> list[str]:
    """A column as texts of one length, its head first: numbers right-aligned, anything else left-aligned."""
    known = [value for value in values if value is not None and not (isinstance(value, str) and value == "")]
    numbers = name in ("share", "distance", "number") or all(map(_is_number, known))
    texts = [shorten(head, _LONGEST), *(shorten(value, _LONGEST).replace("\n", " ") for value in values)]
    size = max(map(len, texts))
    return [text.rjust(size) if numbers else text.ljust(size) for text in texts]


def _is_number(value: Any) -> bool:
    return value.endswith(" %") if isinstance(value, str) else isinstance(value, Real) and not isinstance(value, bool)


def _fill(shown: list[list[str]], values: pd.Series[Any], name: Any, room: int, most: int) -> list[str]:
    """The lines of a table whose last column is wrapped."""
    lines = []
    for row, text in enumerate([str(name), *map(str, values)]):
        parts = textwrap.wrap(text, room, max_lines=most, placeholder=" …", break_on_hyphens=False) or [""]
        for number, part in enumerate(parts):
            cells = [column[row] if number == 0 else " " * len(column[row]) for column in shown]
            lines.append((" " * _GAP).join([*cells, part]).rstrip())
    return lines


def distance(value: float) -> str:
    """A distance as text; rounding errors around 0 become 0."""
    return numeral(f"{value:.3g}") if value >= 1e-4 else "0"


def more_columns(names: Sequence[Any], width: int) -> list[str]:
    """A line that says how many columns are not shown, and which; empty if all are.

    >>> more_columns(["age", "town"], 60), more_columns([], 60)
    (['2 more columns, in to_frame(): age, town'], [])
    """
    if not names:
        return []
    listed = ", ".join(map(str, names))
    line = count(
        "{n} more column, in to_frame(): {names}", "{n} more columns, in to_frame(): {names}", len(names), names=listed
    )
    return [textwrap.shorten(line, width, placeholder=" …")]


# Pages


class Cell(NamedTuple):
    """A value on a page: a text, a picture (a data URL), or a text beside a bar for a share of the vote."""

    text: str
    picture: str = ""
    share: float | None = None
    is_long: bool = False


class Row(NamedTuple):
    """A row of a table: its cells, its class, and its name if it begins with one."""

    cells: list[Cell]
    kind: str = ""
    name: str | None = None


class VoterTable(NamedTuple):
    """A table on a page: the names of its columns, its rows, and its class."""

    head: Sequence[Any]
    rows: list[Row]
    kind: str = ""


def cell_of(name: str, value: Any, *, private: bool = False) -> Cell:
    """A value of a column as a cell; a share is a percentage, with a bar."""
    if is_png(value):
        return Cell("", picture=data_url(value))
    if name == "distance" and isinstance(value, float):
        return Cell(distance(value))
    if name == "share" and not isinstance(value, str):
        return Cell(percent(value, private=private), share=value)
    return Cell(shorten(value, most=sys.maxsize), is_long=isinstance(value, str) and len(value) > _LONGEST)


def rows_of(frame: pd.DataFrame, kind: str = "", *, private: bool = False) -> list[Row]:
    """The rows of a frame."""
    names = [str(name) for name in frame.columns]
    return [
        Row([cell_of(name, value, private=private) for name, value in zip(names, values, strict=True)], kind)
        for values in frame.itertuples(index=False, name=None)
    ]


NOT_SHOWN = {"words": None, "record": None}  # no example


def example_values(record: Any, attention: Any, legend: Legend) -> dict[str, Any]:
    """The explained example for a page: the words of a text with the attention to each, or the values of a record."""
    items = record.items() if isinstance(record, Mapping) else [("", record)]
    shown = None
    if record and not attention:
        shown = [
            (name and legend.head(name), cell_of("", legend.meaning(name, value) or value)) for name, value in items
        ]
    return {"words": attention, "record": shown}


def about(n: int) -> str:
    """A rounded count as text.

    >>> about(10), about(45), about(12_000)
    ('10 or fewer', '45', 'about 12,000')
    """
    number = numeral(f"{n:,}")
    if n == privacy.FEWEST:
        return say("{n} or fewer", n=number)
    return say("about {n}", n=number) if n >= 100 else number


OWN_HEADS = (
    message("share"),
    message("label"),
    message("id"),
    message("size"),
    message("distance"),
    message("examples"),
    message("most alike"),
    message("group"),
    message("number"),
    message("range"),
    message("name"),
)  # the columns of tables of voters that do not come from records


def percent(share: float, *, private: bool = False) -> str:
    """A share or probability as text.

    >>> percent(0.0), percent(0.123), percent(0.9999)
    ('< 0.1 %', '12.3 %', '> 99.9 %')
    """
    if private:
        return privacy.percent(share)
    return numeral("< 0.1 %" if share < 0.001 else "> 99.9 %" if share > 0.999 else checks.percent(share))


# Predicted numbers


class Numerals:
    """Writes and rounds the numbers of a reference set: the digits follow from their usual range.

    >>> numerals = Numerals(np.linspace(100_000, 500_000, 50))
    >>> numerals.text(213_437.2), numerals.text(-12.345), numerals.text(1e-9), numerals.exact(1_234.5)
    ('213,400', '-12.3', '0', '1234.5')
    >>> numerals.interval((171_000.0, math.inf)), numerals.step
    ('at least 171,000', 10000.0)
    """

    def __init__(self, x: Floats) -> None:
        self._fine = NumberScale.of(x, parts=_FINE, whole=False)
        low, high = map(float, np.quantile(x, (0.05, 0.95)))
        low, high = (low, high) if low < high else (float(x.min()), float(x.max()))
        whole = bool((x == np.round(x)).all())
        self.step = step_of(high - low, _STEPS, whole=whole)  # private numbers are rounded to this
        self.edges = edges_of(low, high, _PRIVATE_BINS, whole=whole)  # of a private histogram

    def text(self, value: float) -> str:
        """A predicted number, rounded to the digits worth reading; at least three."""
        step = self._fine.step
        if abs(value) < step / 100:
            return "0"
        if abs(value) < 100 * step:
            return numeral(self._fine.exact(float(f"{value:.3g}")))
        return numeral(self._fine.text(self._fine.start(value)))

    def exact(self, value: float) -> str:
        """The number of a training example, with all its digits."""
        return numeral(self._fine.exact(value))

    def interval(self, ends: Interval) -> str:
        """An interval in words; "at least" or "at most" if one end is infinite."""
        low, high = ends
        if math.isinf(low) and math.isinf(high):
            return say("any number")
        if math.isinf(low):
            return say("at most {high}", high=self.text(high))
        if math.isinf(high):
            return say("at least {low}", low=self.text(low))
        return say("{low} to {high}", low=self.text(low), high=self.text(high))


def step_of(span: float, parts: int, *, whole: bool) -> float:
    """1, 2 or 5 times a power of ten, such that at most `parts` steps make the span; at least 1 for whole numbers.

    >>> step_of(220.0, 50, whole=False), step_of(9.0, 50, whole=False), step_of(9.0, 50, whole=True)
    (5.0, 0.2, 1.0)
    """
    if not 1e-290 < span / parts < 1e290:
        return 0.0
    exponent = math.floor(math.log10(span / parts))
    step = next(
        size
        for size in (float(f"{m}e{e}") for e in (exponent, exponent + 1) for m in (1, 2, 5))
        if size * parts >= span * (1 - 1e-9)
    )
    return max(step, 1.0) if whole else step


def edges_of(low: float, high: float, most: int, *, whole: bool) -> Floats:
    """Edges of about `most` bins at most, at round numbers; a few whole numbers get one bin each.

    >>> edges_of(0.0, 3.0, 8, whole=True).tolist(), edges_of(0.3, 1.7, 8, whole=False).tolist()
    ([-0.5, 0.5, 1.5, 2.5, 3.5], [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8])
    """
    step = step_of(high - low, most, whole=whole)
    if step <= 8 * np.spacing(max(abs(low), abs(high))):  # one number, up to rounding
        return np.array([low - 0.5, high + 0.5]) if abs(low) < 1e15 else np.sort(np.array([low / 2, low * 2]))
    shift = step / 2 if whole and step == 1 else 0.0
    first = math.floor((low + shift) / step + 1e-9)
    last = max(math.ceil((high + shift) / step - 1e-9), first + 1)
    if whole and step == 1:
        last = math.floor(high + shift) + 1
    digits = max(0, -math.floor(math.log10(step)))
    return np.round(np.arange(first, last + 1) * step, digits) - shift


def coverage(share: float) -> str:
    """A coverage in per cent, with no more digits than it needs; rounded down.

    >>> coverage(0.9), coverage(0.995), coverage(1 - 0.1)
    ('90 %', '99.5 %', '90 %')
    """
    return numeral(f"{math.floor(share * 1000 + 1e-9) / 10:g} %")
