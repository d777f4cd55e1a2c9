"""Figures with matplotlib, readable in grey and by the colour-blind: every series has its own marker and line too."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dwac.paper.cases import PaperError

# Okabe and Ito's colours.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.")


def new(n_rows: int = 1, n_columns: int = 1, width: float = 3.0, height: float = 2.4) -> tuple[Any, Any]:
    """A figure and its axes, (n_rows, n_columns), drawn to files alone."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise PaperError("figures need matplotlib: pip install 'dwac[report]'") from None
    figure = Figure(figsize=(width * n_columns, height * n_rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(n_rows, n_columns, squeeze=False)


def save(figure: Any, path: Path) -> None:
    """Write a figure as PNG, the same bytes for the same figure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110, metadata={"Software": None})
    except OSError as error:
        raise PaperError(
            f"{path} cannot be written: {error.strerror}; choose another folder or free this one"
        ) from None


def style(series: int) -> dict[str, Any]:
    """Colour, marker and line of the series of that number."""
    return {"color": COLOURS[series % len(COLOURS)], "marker": MARKERS[series % len(MARKERS)],
            "linestyle": DASHES[series % len(DASHES)], "markersize": 4, "linewidth": 1.2}  # fmt: skip


def scatter(axes: Any, points: dict[str, Any], classes: Sequence[str], named: dict[str, Any]) -> None:
    """Points x, y by label, each class with a colour and marker of its own, and its name at the median of `named`."""
    for label, name in enumerate(classes):
        x, y = _of(points, label)
        look = {"color": COLOURS[label % len(COLOURS)], "marker": MARKERS[label % len(MARKERS)]}
        axes.scatter(x, y, s=7, alpha=0.6, linewidths=0, label=name, **look)
    for label, name in enumerate(classes):
        place = _of(named, label)
        if place.size:
            around = {"facecolor": "white", "alpha": 0.65, "edgecolor": "none", "pad": 0.5}
            axes.text(*np.median(place, axis=1), name, fontsize=6, ha="center", va="center", bbox=around)
    axes.set_xticks([])
    axes.set_yticks([])


def _of(points: dict[str, Any], label: int) -> Any:
    return np.array([points["x"], points["y"]])[:, np.asarray(points["label"]) == label]


def share_limits(axes: Any) -> None:
    """Give all axes of a row the same range, so that a place means the same in each."""
    for limits in ("xlim", "ylim"):
        ends = [getattr(panel, f"get_{limits}")() for panel in axes]
        for panel in axes:
            getattr(panel, f"set_{limits}")(min(low for low, _ in ends), max(high for _, high in ends))


def legend(figure: Any, axes: Any, *, columns: int, **look: Any) -> None:
    """One legend for all axes, below them."""
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=8, frameon=False, **look)


def tidy(axes: Any, *, title: str = "", x: str = "", y: str = "") -> None:
    """Names of axes, and no more lines than needed."""
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def image(axes: Any, data_url: str, title: str) -> None:
    """A picture that an explanation holds, with a title."""
    from matplotlib.image import imread

    pixels = imread(io.BytesIO(base64.b64decode(data_url.partition(",")[2])), format="png")
    axes.imshow(pixels, cmap="gray", interpolation="nearest")
    axes.set_title(title, fontsize=7)
    axes.set_axis_off()
