"""HTML in which everything is escaped except what `tag` has made.

>>> tag("p", "1 < 2", tag("b", "&"), class_="note")
'<p class="note">1 &lt; 2<b>&amp;</b></p>'
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

_SHORT = 12  # rows of a table that paper should show on one page
_VOID = {"meta", "img", "br"}
# Not allowed in HTML: control characters, lone surrogates, and characters that reverse the reading order.
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\u202a-\u202e\u2066-\u2069]")


class Html(str):
    """Text that is already HTML."""

    __slots__ = ()


def safe(value: Any) -> Html:
    """Any value as HTML: HTML is kept, everything else is escaped."""
    return value if isinstance(value, Html) else Html(html.escape(UNSEEN.sub("\ufffd", str(value))))


def tag(name: str, /, *parts: Any, **attributes: Any) -> Html:
    """An element with parts inside; `class_` means class; None and False omit an attribute."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{safe(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    end = "" if name in _VOID else f"</{name}>"
    return Html(f"<{name}{written}>{joined(parts)}{end}")


def joined(parts: Iterable[Any]) -> Html:
    """Parts concatenated."""
    return Html("".join(safe(part) for part in parts if part is not None))


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]], *, caption: str, numbers: Iterable[int] = ()) -> Html:
    """A table whose first column names its rows; `numbers` are the right-aligned columns."""
    look = dict.fromkeys(numbers, "number")
    heads = [tag("th", cell, scope="col", class_=look.get(place)) for place, cell in enumerate(head)]
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row", class_=look.get(0)),
            *(cell if _is_cell(cell) else tag("td", cell, class_=look.get(i)) for i, cell in enumerate(row[1:], 1)),
        )
        for row in rows
    ]
    made = tag("table", tag("caption", caption), tag("thead", tag("tr", *heads)), tag("tbody", *body))
    look_of_all = "wide short" if len(body) <= _SHORT else "wide"
    return tag("div", made, class_=look_of_all, tabindex="0", role="region", aria_label=caption)


def _is_cell(value: Any) -> bool:
    return isinstance(value, Html) and value.startswith("<td")
