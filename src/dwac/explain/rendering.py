"""The HTML and text fragments that make up an explanation; every value is escaped."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from dwac.drawing.records import data_url, is_png, written
from dwac.explain import privacy


def brief(value: Any) -> Any:
    """A value, shortened to fit into a column of text."""
    return written(value) if isinstance(value, str) or is_png(value) else value


STYLE = (
    "<style>.dwac-explanation{font-family:system-ui,sans-serif;max-width:60em}"
    ".dwac-explanation table{border-collapse:collapse}"
    ".dwac-explanation th,.dwac-explanation td{padding:.2em .8em;text-align:left;border-bottom:1px solid #8884}"
    ".dwac-explanation meter{width:6em;margin-right:.5em}</style>"
)


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


def _value(value: Any) -> str:
    if is_png(value):
        return f'<img src="{data_url(value)}" alt="the image" height="64" style="image-rendering:pixelated">'
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))


def cell(name: str, value: Any, private: bool) -> str:
    """A cell of the table of neighbours; a share that is a number also gets a bar."""
    share = name == "share" and not isinstance(value, str)
    text = html.escape(privacy.percent(value)) if private and share else _value(value)
    bar = f'<meter value="{value:.6f}" aria-label="share of the vote"></meter>' if share else ""
    return f"<td>{bar}{text}</td>"


def about(n: int) -> str:
    """A rounded count as text.

    >>> about(10), about(45), about(12_000)
    ('10 or fewer', '45', 'about 12,000')
    """
    return f"{n:,} or fewer" if n == privacy.FEWEST else f"about {n:,}" if n >= 100 else f"{n:,}"


def percent(share: float) -> str:
    """A group's share as text.

    >>> percent(0.0), percent(0.123), percent(0.9999)
    ('< 0.1 %', '12.3 %', '> 99.9 %')
    """
    return "< 0.1 %" if share < 0.001 else "> 99.9 %" if share > 0.999 else f"{share:.1%}".replace("%", " %")
