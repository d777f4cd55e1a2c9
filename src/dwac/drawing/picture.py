"""A figure that needs no window: the only module that imports matplotlib when it is itself imported."""

from __future__ import annotations

import io
import re
import threading
import warnings
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dwac.drawing.colours import INK, PAPER

_SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "dwac", "font.family": "DejaVu Sans"}
_lock = threading.Lock()  # matplotlib's settings belong to the process
_THEME = (
    f"<style>:root{{--ink:{INK};--paper:#fff}}"
    "@media screen and (prefers-color-scheme:dark){:root{--ink:#e6e6e3;--paper:#1b1d21}}"
    "text{font-family:system-ui,'DejaVu Sans',sans-serif!important}</style>"
)


class Picture(Figure):
    """A matplotlib figure: `savefig` it, show it in a notebook, or take it as PNG or SVG."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        FigureCanvasAgg(self)

    def png(self, dpi: float = 110) -> bytes:
        """The same bytes for the same picture."""
        return self._written("png", dpi=dpi, metadata={"Software": None})

    def svg(self) -> str:
        """For a page: no colour behind it, and ink that is light where the reader's screen is dark."""
        drawn = self._written("svg", dpi=160, metadata={"Date": None, "Creator": None}, transparent=True).decode()
        drawn = drawn[drawn.index("<svg") :].replace(INK, "var(--ink)").replace(PAPER, "var(--paper)")
        return re.sub(r"(<svg[^>]*>)", lambda tag: tag[0] + _THEME, drawn, count=1)

    def _written(self, form: str, **options: Any) -> bytes:
        file = io.BytesIO()
        with _lock, rc_context(_SETTINGS), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # a letter that the font lacks is drawn as a box
            self.savefig(file, format=form, **options)
        return file.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()
