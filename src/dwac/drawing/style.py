"""One style for all pictures, readable in grey and by colour-blind people: series also differ in marker and line.

figure, axes = new(1, 2)
axes[0, 0].plot(x, y, **series(0))
tidy(axes[0, 0], title="loss", x="epoch")
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac.drawing import COLOURS, DASHES, INK, MARKERS, PAPER
from dwac.errors import DwacError

_LONGEST = 24  # characters of a name in a picture


def new(n_rows: int = 1, n_columns: int = 1, width: float = 3.0, height: float = 2.4) -> tuple[Any, Any]:
    """A figure and its axes (n_rows, n_columns); sizes are per panel, in inches. No window, no global state."""
    figure = blank(width * n_columns, height * n_rows)
    figure.set_layout_engine("constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False)


def blank(width: float, height: float) -> Any:
    """A figure without axes, which a notebook can display."""
    try:
        from dwac.drawing.picture import Picture
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise DwacError("pictures need matplotlib: pip install 'dwac[report]'") from None
    return Picture(figsize=(width, height), facecolor=PAPER)


def point(series: int) -> dict[str, Any]:
    """Colour and marker of a series by its number; 56 combinations differ."""
    return {"color": COLOURS[series % len(COLOURS)], "marker": MARKERS[series % len(MARKERS)]}


def line(series: int) -> dict[str, Any]:
    """Colour, marker and line of a series by its number."""
    return {**point(series), "linestyle": DASHES[series % len(DASHES)], "markersize": 4, "linewidth": 1.2}


def scatter(
    axes: Any, points: NDArray[Any], labels: NDArray[Any], names: Sequence[Any], places: NDArray[Any], **look: Any
) -> None:
    """Draw points (n, 2) by label: each class has its own colour and marker, and its name at its place, (K, 2).

    A class whose place is NaN gets no name.
    """
    # Unless snap is off, edges are moved to whole pixels: small squares and crosses then vanish or grow fat.
    look = {"s": 7, "alpha": 0.6, "linewidths": 0, "rasterized": True, "snap": False} | look
    for label, name in enumerate(names):
        x, y = points[labels == label].T
        axes.scatter(x, y, label=plain(name), **point(label), **look)
    around = {"facecolor": PAPER, "alpha": 0.75, "edgecolor": "none", "pad": 1.0}
    for name, place in zip(names, places, strict=True):
        if np.isfinite(place).all():
            axes.text(*place, plain(name), fontsize=8, color=INK, ha="center", va="center", bbox=around, clip_on=True)
    axes.set_xticks([])
    axes.set_yticks([])


def discs(axes: Any, centres: NDArray[Any], radii: NDArray[Any]) -> None:
    """Draw outlines of discs at centres (L, 2), behind everything else; radii (L,) are in units of the axes."""
    from matplotlib.collections import EllipseCollection

    wide, look = 2 * radii, {"facecolors": "none", "edgecolors": COLOURS[-1], "linewidths": 0.4, "zorder": 0}
    outlines = EllipseCollection(
        wide, wide, 0 * wide, units="xy", offsets=centres, offset_transform=axes.transData, **look
    )
    axes.add_collection(outlines)


def medians(points: NDArray[Any], labels: NDArray[Any], n_classes: int) -> NDArray[Any]:
    """The median of each class's points (n, 2), (K, 2); NaN if it has none."""
    return pd.DataFrame(points).groupby(labels).median().reindex(range(n_classes)).to_numpy(copy=True)


def share_limits(axes: Any) -> None:
    """Give all axes of a row the same range, so that positions can be compared."""
    for limits in ("xlim", "ylim"):
        ends = [getattr(panel, f"get_{limits}")() for panel in axes]
        for panel in axes:
            getattr(panel, f"set_{limits}")(min(low for low, _ in ends), max(high for _, high in ends))


def legend(figure: Any, axes: Any, *, columns: int, **look: Any) -> None:
    """One legend for all axes, below them."""
    handles, names = axes[0, 0].get_legend_handles_labels()
    look = {"fontsize": 8, "frameon": False, "labelcolor": INK} | look
    figure.legend(handles, names, loc="outside lower center", ncols=columns, **look)


def tidy(axes: Any, *, title: str = "", x: str = "", y: str = "") -> None:
    """Set title and axis labels, and remove needless lines."""
    axes.set_title(title, fontsize=9, color=INK)
    axes.set_xlabel(x, fontsize=8, color=INK)
    axes.set_ylabel(y, fontsize=8, color=INK)
    axes.tick_params(labelsize=7, color=INK, labelcolor=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_color(INK)
    axes.patch.set_alpha(0)


def plain(text: Any, most: int = _LONGEST) -> str:
    """A text that matplotlib draws literally: $ starts no formula, _ hides no name; cut if too long.

    >>> plain("_a $x$ b")
    ' _a \\\\$x\\\\$ b'
    """
    drawn = re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+", " ", str(text))
    drawn = drawn if len(drawn) <= most else drawn[: most - 1] + "…"
    drawn = drawn.replace("$", r"\$")
    return f" {drawn}" if drawn.startswith("_") else drawn
