"""A figure without a window. Only this module imports matplotlib at import time."""

from __future__ import annotations

import io
import re
import threading
import warnings
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dwac.drawing import INK, PAPER

_SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "dwac", "font.family": "DejaVu Sans"}
_lock = threading.Lock()  # matplotlib's settings are global to the process
_THEME = (
    f"<style>:root{{--ink:{INK};--paper:#fff}}"
    "@media screen and (prefers-color-scheme:dark){:root{--ink:#e6e6e3;--paper:#1b1d21}}"
    "text{font-family:system-ui,'DejaVu Sans',sans-serif!important}</style>"
)


class Picture(Figure):
    """A matplotlib figure: save it with `savefig`, show it in a notebook, or get it as PNG or SVG."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        FigureCanvasAgg(self)

    def png(self, dpi: float = 110) -> bytes:
        """PNG bytes; the same for the same picture."""
        return self._save("png", dpi=dpi, metadata={"Software": None})

    def svg(self) -> str:
        """SVG for a page: transparent, with light text if the reader's screen is dark."""
        drawn = self._save("svg", dpi=160, metadata={"Date": None, "Creator": None}, transparent=True).decode()
        drawn = drawn[drawn.index("<svg") :].replace(INK, "var(--ink)").replace(PAPER, "var(--paper)")
        return re.sub(r"(<svg[^>]*>)", lambda tag: tag[0] + _THEME, drawn, count=1)

    def _save(self, form: str, **options: Any) -> bytes:
        file = io.BytesIO()
        with _lock, rc_context(_SETTINGS), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # a character missing in the font is drawn as a box
            self.savefig(file, format=form, **options)
        return file.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()
