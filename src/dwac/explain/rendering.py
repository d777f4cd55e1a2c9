"""The HTML and text fragments that make up an explanation; in HTML, every value is escaped."""

from __future__ import annotations

import html
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import pandas as pd

from dwac import _checks as checks
from dwac.drawing.records import data_url, is_png, written
from dwac.explain import privacy

NARROWEST, USUAL, WIDEST = 60, 100, 160  # characters of a printed line; the usual ones where there is no terminal
_GAP = 2  # between columns
_NARROWEST = 12  # characters of a column that fills the line
_LONGEST = 24  # characters of a cell, except where a column fills the line

# Text


def line_width() -> int:
    """How many characters a printed line may have: those of the terminal (or COLUMNS), within reason."""
    return min(max(shutil.get_terminal_size((USUAL, 24)).columns, NARROWEST), WIDEST)


def wrapped(sentence: str, width: int) -> list[str]:
    """A sentence as lines of at most `width` characters; all but the first are indented."""
    return textwrap.wrap(sentence, width, subsequent_indent="  ", break_on_hyphens=False) or [""]


def table_lines(
    frame: pd.DataFrame, width: int, *, always: int, filling: Any = None, least: int = 28, deepest: int = 3
) -> tuple[list[str], list[Any]]:
    """(lines of at most `width` characters, columns that did not fit) of a table.

    The first `always` columns are shown whatever they take, then as many as fit. filling: a column of texts that takes
    what is left of the line, at least `least` characters if the others allow it, and up to `deepest` lines.

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
    """A column as texts of one length, its name first: numbers to the right, other things to the left."""
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
    """A distance as text; what rounding leaves of 0 is 0."""
    return f"{value:.3g}" if value >= 1e-4 else "0"


def more_columns(names: Sequence[Any], width: int) -> list[str]:
    """How many columns are not shown, and which; nothing if all are.

    >>> more_columns(["age", "town"], 60), more_columns([], 60)
    (['2 more columns, in to_frame(): age, town'], [])
    """
    if not names:
        return []
    said = f"{len(names):,} more column{'s' * (len(names) > 1)}, in to_frame(): {', '.join(map(str, names))}"
    return [textwrap.shorten(said, width, placeholder=" …")]


# HTML


STYLE = f"<style>{Path(__file__).with_name('style.css').read_text(encoding='utf-8')}</style>"


def attention(words: Sequence[tuple[str, float]]) -> str:
    """The words of a text, each shaded by the network's attention to it."""
    most = max(weight for _, weight in words) or 1.0
    marked = (
        f'<span style="background:rgba(255,165,0,{weight / most:.2f})" title="{weight:.3f}">{html.escape(word)}</span>'
        for word, weight in words
    )
    return f"<p>{' '.join(marked)}</p>"


def shown(record: Any) -> str:
    """The explained example, shown above the sentences."""
    if not record:
        return ""
    parts = record.items() if isinstance(record, Mapping) else [("", record)]
    return "<p>" + ", ".join((f"{html.escape(str(name))} " if name else "") + _value(v) for name, v in parts) + "</p>"


_TEXT = ' class="dwac-text"'


def _value(value: Any) -> str:
    if is_png(value):
        return f'<img src="{data_url(value)}" alt="the image" height="64" style="image-rendering:pixelated">'
    return html.escape(written(value, most=sys.maxsize))


def cell(name: str, value: Any, private: bool) -> str:
    """A cell of the table of voters; a share is a percentage, with a bar."""
    if name == "distance" and isinstance(value, float):
        return f"<td>{distance(value)}</td>"
    if name != "share" or isinstance(value, str):
        return f"<td{_TEXT if isinstance(value, str) and len(value) > _LONGEST else ''}>{_value(value)}</td>"
    text = html.escape(privacy.percent(value) if private else percent(value))
    return f'<td><meter value="{value:.6f}" aria-label="share of the vote"></meter>{text}</td>'


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
