"""Pictures of reasons: bars of contributions, patches of images, and the importance of columns over many rows."""

from __future__ import annotations

import io
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd

from dwac.drawing import COLOURS, INK
from dwac.drawing.records import image_of
from dwac.drawing.style import new, plain, tidy
from dwac.languages import say

_BARS = 20  # columns drawn
_CATEGORIES = 20  # distinct values up to which a number is drawn like a category


def draw_reasons(reasons: Any) -> Any:
    """A bar per contribution; for images the row and the precedent, with the patches marked."""
    pictures = [image_of(reasons.record)] if image_of(reasons.record) is not None else []
    if pictures and reasons.precedent is not None:
        pictures.append(image_of(reasons.precedent.record))
    if pictures:
        return _patches(reasons, pictures)
    parts = reasons.deciding[:_BARS]
    names = [f"{reasons.title(part)} = {reasons.cell(part, part.value)}" for part in parts]
    return _bars(names, [part.contribution for part in parts], plain(reasons.headline, 80))


def draw_importance(importance: Any) -> Any:
    """A bar per column, the most important first."""
    frame = importance.to_frame()[:_BARS]
    names = frame["column"].map(importance.legend.title).tolist()
    return _bars(names, frame["importance"].tolist(), say("mean size of contributions"))


def _bars(names: list[str], sizes: list[float], title: str) -> Any:
    figure, axes = new(1, 1, width=5.2, height=0.8 + 0.24 * max(len(names), 1))
    panel = axes[0, 0]
    for place, size in enumerate(sizes):
        look = {"color": COLOURS[0]} if size >= 0 else {"facecolor": "none", "edgecolor": COLOURS[1], "hatch": "////"}
        panel.barh(place, size, height=0.7, **look)
    panel.axvline(0, color=INK, linewidth=0.8)
    panel.set_yticks(range(len(names)), [plain(name, 40) for name in names])
    panel.invert_yaxis()
    tidy(panel, title=title, x=say("contribution"))
    return figure


def _patches(reasons: Any, pictures: list[Any]) -> Any:
    from matplotlib.image import imread
    from matplotlib.patches import Rectangle

    figure, axes = new(1, len(pictures), width=1.9, height=2.5)  # legible on a phone
    figure.suptitle(fill(plain(reasons.headline, 80), 44), fontsize=9, color=INK)
    titles = [say("this example"), "" if reasons.precedent is None else plain(reasons.precedent.id, 24)]
    for panel, png, title in zip(axes[0], pictures, titles[: len(pictures)], strict=True):
        panel.imshow(imread(io.BytesIO(png), format="png"), cmap="gray", interpolation="nearest")
        panel.set(xticks=[], yticks=[])
        panel.set_title(title, fontsize=8, color=INK)
    most = max((abs(part.contribution) for part in reasons.deciding), default=1.0)
    for part in reasons.deciding:
        box, colour = part.value, COLOURS[0] if part.contribution > 0 else COLOURS[1]
        corner, size = (box.left - 0.5, box.top - 0.5), (box.right - box.left, box.bottom - box.top)
        strength = 0.6 * abs(part.contribution) / most
        axes[0, 0].add_patch(Rectangle(corner, *size, facecolor=colour, edgecolor=colour, alpha=strength))
    return figure


def draw_column(importance: Any, column: Any, width: float = 4.6, height: float = 3.2) -> Any:
    """The contribution of one column against its value, a point per row; categories side by side."""
    values, contributions = importance.inputs[column], importance.contributions[column].to_numpy()
    numeric = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    dates = pd.api.types.is_datetime64_any_dtype(values)
    figure, axes = new(1, 1, width=width, height=height)
    panel = axes[0, 0]
    panel.axhline(0, color=INK, linewidth=0.8)
    if numeric or dates:
        x: Any = values.to_numpy()
        panel.plot(x, contributions, linestyle="none", marker="o", markersize=3, alpha=0.6, color=COLOURS[0])
    else:
        texts = values.map(lambda value: importance.legend.value(column, value))
        names = sorted(texts.unique().tolist())[:_CATEGORIES]
        shift = np.random.default_rng(0).uniform(-0.2, 0.2, len(texts))
        x = texts.map({name: place for place, name in enumerate(names)}).to_numpy(dtype=np.float64) + shift
        panel.plot(x, contributions, linestyle="none", marker="o", markersize=3, alpha=0.6, color=COLOURS[0])
        panel.set_xticks(range(len(names)), [plain(name, 16) for name in names])
    y = say("contribution") if importance.label is None else say("contribution to {label}", label=importance.label)
    tidy(panel, x=plain(importance.legend.title(column), 40), y=plain(y, 40))
    return figure
