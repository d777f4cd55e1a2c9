"""Helpers that render explanations: lines of text, and the cells and rows of pages."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import pandas as pd

from dwac import _checks as checks
from dwac.drawing.records import data_url, is_png, written
from dwac.explain import privacy

NARROWEST, USUAL, WIDEST = 60, 100, 160  # characters of a printed line; USUAL without a terminal
_GAP = 2  # between columns
_NARROWEST = 12  # characters of a column that fills the line
_LONGEST = 24  # characters of a cell, except where a column fills the line

# Text


def line_width() -> int:
    """The width of a printed line: that of the terminal (or COLUMNS), within limits."""
    return min(max(shutil.get_terminal_size((USUAL, 24)).columns, NARROWEST), WIDEST)


def wrapped(sentence: str, width: int) -> list[str]:
    """A sentence as lines of at most `width` characters; all but the first are indented."""
    return textwrap.wrap(sentence, width, subsequent_indent="  ", break_on_hyphens=False) or [""]


def table_lines(
    frame: pd.DataFrame, width: int, *, always: int, filling: Any = None, least: int = 28, deepest: int = 3
) -> tuple[list[str], list[Any]]:
    """(lines of at most `width` characters, columns that did not fit) of a table.

    The first `always` columns are always shown, then as many as fit. filling: a column of texts that takes the rest of
    the line, at least `least` characters if the others allow it, and up to `deepest` lines.

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
    for place, name in enumerate(frame.columns):
        if name == filling:
            continue
        column = _cells(frame.iloc[:, place], name)
        size = len(column[0]) + _GAP
        if left_out or (place >= always and used + size > room):
            left_out.append(name)
        else:
            shown.append(column)
            used += size
    if filling is not None:
        return _filled(shown, frame[filling], filling, max(width - used - _GAP, _NARROWEST), deepest), left_out
    return [(" " * _GAP).join(cells).rstrip() for cells in zip(*shown, strict=True)], left_out


def _cells(values: pd.Series[Any], name: Any, most: int = _LONGEST) -> list[str]:
    """A column as texts of one length, its name first: numbers right-aligned, anything else left-aligned."""
    there = [value for value in values if value is not None and not (isinstance(value, str) and value == "")]
    numbers = name in ("share", "distance", "number") or all(map(_numeral, there))
    texts = [written(name, most), *(written(value, most).replace("\n", " ") for value in values)]
    size = max(map(len, texts))
    return [text.rjust(size) if numbers else text.ljust(size) for text in texts]


def _numeral(value: Any) -> bool:
    return value.endswith(" %") if isinstance(value, str) else isinstance(value, Real) and not isinstance(value, bool)


def _filled(shown: list[list[str]], values: pd.Series[Any], name: Any, room: int, most: int) -> list[str]:
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
    return f"{value:.3g}" if value >= 1e-4 else "0"


def more_columns(names: Sequence[Any], width: int) -> list[str]:
    """A line that says how many columns are not shown, and which; empty if all are.

    >>> more_columns(["age", "town"], 60), more_columns([], 60)
    (['2 more columns, in to_frame(): age, town'], [])
    """
    if not names:
        return []
    said = f"{len(names):,} more column{'s' * (len(names) > 1)}, in to_frame(): {', '.join(map(str, names))}"
    return [textwrap.shorten(said, width, placeholder=" …")]


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
        return Cell(privacy.percent(value) if private else percent(value), share=value)
    return Cell(written(value, most=sys.maxsize), is_long=isinstance(value, str) and len(value) > _LONGEST)


def rows_of(frame: pd.DataFrame, kind: str = "", *, private: bool = False) -> list[Row]:
    """The rows of a frame."""
    names = [str(name) for name in frame.columns]
    return [
        Row([cell_of(name, value, private=private) for name, value in zip(names, values, strict=True)], kind)
        for values in frame.itertuples(index=False, name=None)
    ]


def example_values(record: Any, attention: Any) -> dict[str, Any]:
    """The explained example for a page: the words of a text with the attention to each, or the values of a record."""
    items = record.items() if isinstance(record, Mapping) else [("", record)]
    shown = [(name, cell_of("", value)) for name, value in items] if record and not attention else None
    return {"words": attention, "record": shown}


def about(n: int) -> str:
    """A rounded count as text.

    >>> about(10), about(45), about(12_000)
    ('10 or fewer', '45', 'about 12,000')
    """
    return f"{n:,} or fewer" if n == privacy.FEWEST else f"about {n:,}" if n >= 100 else f"{n:,}"


def percent(share: float) -> str:
    """A share or probability as text.

    >>> percent(0.0), percent(0.123), percent(0.9999)
    ('< 0.1 %', '12.3 %', '> 99.9 %')
    """
    return "< 0.1 %" if share < 0.001 else "> 99.9 %" if share > 0.999 else checks.percent(share)
