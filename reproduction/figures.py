"""The paper's figures, in the same style as all figures of dwac."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dwac.drawing import COLOURS
from dwac.drawing.style import legend, medians, new, share_limits, tidy
from dwac.drawing.style import line as style
from dwac.drawing.style import scatter as draw_scatter
from reproduction.cases import PaperError

__all__ = ["COLOURS", "image", "legend", "new", "save", "scatter", "share_limits", "style", "tidy"]


def save(figure: Any, path: Path) -> None:
    """Write a figure as PNG. The same figure gives the same bytes."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110, metadata={"Software": None})
    except OSError as error:
        raise PaperError(f"{path} cannot be written: {error.strerror}; free space or choose another folder") from None


def scatter(axes: Any, points: dict[str, Any], classes: Sequence[str], named: dict[str, Any]) -> None:
    """Points x, y. Each class has its own colour and marker, and its name is at the median of its points in `named`."""
    places = medians(_xy(named), np.asarray(named["label"]), len(classes))
    draw_scatter(axes, _xy(points), np.asarray(points["label"]), classes, places)


def _xy(points: dict[str, Any]) -> Any:
    return np.array([points["x"], points["y"]]).T


def image(axes: Any, data_url: str, title: str) -> None:
    """A picture from an explanation, with a title."""
    from matplotlib.image import imread

    pixels = imread(io.BytesIO(base64.b64decode(data_url.partition(",")[2])), format="png")
    axes.imshow(pixels, cmap="gray", interpolation="nearest")
    axes.set_title(title, fontsize=7)
    axes.set_axis_off()
