"""A sheet of text, drawn line by line: words can be highlighted, and columns are cut at their width."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from dwac.drawing.colours import INK
from dwac.drawing.style import blank, plain

LEADING, MARGIN, WIDTH = 16, 14, 560  # line spacing, margin and total width, in points
MARK = "#F2C14E"  # the highlight
_SIZE = 8.5


class Sheet:
    """A figure with a given number of lines. `y` is the middle of the current line; `x` starts at the margin."""

    def __init__(self, lines: float) -> None:
        height = 2 * MARGIN + lines * LEADING
        self.figure = blank(WIDTH / 72, height / 72)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(-MARGIN, WIDTH - MARGIN), ylim=(height - MARGIN, -MARGIN))
        self.axes.set_axis_off()
        self.y = LEADING / 2
        self.width = WIDTH - 2 * MARGIN

    def down(self, lines: float = 1) -> None:
        """Move to the next line."""
        self.y += lines * LEADING

    def write(self, text: Any, x: float = 0, *, width: float | None = None, bold: bool = False) -> None:
        """Write a text, cut to `width`."""
        drawn = fitted(plain(text, 400), self.width - x if width is None else width, bold)
        look = {"fontsize": _SIZE, "color": INK, "va": "center", "weight": "bold" if bold else "normal"}
        self.axes.text(x, self.y, drawn, **look)

    def mark(self, x: float, width: float, alpha: float = 0.6) -> None:
        """Highlight a part of the line."""
        self.box(x - 2, width, LEADING - 2, facecolor=MARK, linewidth=0, alpha=alpha)

    def box(self, x: float, width: float, height: float, **look: Any) -> None:
        """Draw a box in the middle of the line."""
        from matplotlib.patches import Rectangle

        self.axes.add_patch(Rectangle((x, self.y - height / 2), width, height, **look))


def fitted(text: str, width: float, bold: bool = False) -> str:
    """A text, cut to a width in points."""
    if wide(text, bold) <= width:
        return text
    n = bisect_right(range(len(text)), width, key=lambda n: wide(f"{text[:n]}…", bold)) - 1
    return text[: max(n, 0)].removesuffix("\\") + "…"


def wide(text: str, bold: bool = False) -> float:
    """The width of a drawn text, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Sans", size=_SIZE, weight="bold" if bold else "normal")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a character missing in the font has the width of a box
        return float(text_to_path.get_text_width_height_descent(text.replace(r"\$", "$"), font, ismath=False)[0])


def placed(words: list[str]) -> Iterator[tuple[int, float, float]]:
    """The line, x and width of each word of a text."""
    line, x = 0, 0.0
    for word in words:
        width = wide(plain(word, 400))
        if x and x + width > WIDTH - 2 * MARGIN:
            line, x = line + 1, 0.0
        yield line, x, width
        x += width + 5
