"""The pictures of the first page: they need no training in statistics. Plain numbers in, a matplotlib figure out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dwac.drawing.colours import COLOURS, INK
from dwac.drawing.style import new, plain, tidy
from dwac.estimator.evaluation import amount
from dwac.report.chance import likely_share

_WIDTH, _HEIGHT = 2.75, 2.5  # inches: three side by side, and one on a phone
_EDGES = (0.0, 0.5, 0.7, 0.8, 0.9, 1.0)  # of stated probabilities
_GOOD: dict[str, Any] = {"facecolor": COLOURS[0], "edgecolor": COLOURS[0], "linewidth": 0.8}
_BAD: dict[str, Any] = {"facecolor": "none", "edgecolor": COLOURS[1], "hatch": "////", "linewidth": 0.8}
_ASKED: dict[str, Any] = {"color": INK, "linewidth": 2.0}
_RANGE: dict[str, Any] = {"ecolor": INK, "elinewidth": 0.9, "capsize": 2.5, "fmt": "none"}


class Bar(NamedTuple):
    """A bar: its name and length, its 95 % confidence interval if known, and whether it stands out as bad."""

    name: str
    value: float
    ends: tuple[float, float] | None = None
    bad: bool = False


def share_bar(name: str, hits: ArrayLike, usual: float | None = None) -> Bar:
    """How often something was right; bad if surely less often than usual."""
    found = np.asarray(hits, dtype=bool)
    low, high = likely_share(found)
    return Bar(name, float(found.mean()), (low, high), usual is not None and high < usual)


def hundred(right: float) -> Any:
    """Of 100 cases, how many are right, as 100 squares."""
    from matplotlib.patches import Rectangle

    figure, axes = new(1, 1, width=_WIDTH, height=_HEIGHT)
    panel, good = axes[0, 0], round(100 * right)
    for place in range(100):
        row, column = divmod(place, 10)
        look = _GOOD if place < good else _BAD
        panel.add_patch(Rectangle((column + 0.1, 9.1 - row), 0.8, 0.8, **look))
    panel.set(xlim=(0, 10), ylim=(0, 10), xticks=[], yticks=[], aspect="equal")
    tidy(panel, title=f"of 100: {good} right, {100 - good} wrong")
    panel.spines[:].set_visible(False)
    return figure


def said(stated: ArrayLike, right: ArrayLike) -> Any:
    """How often the model is right, by how sure it says it is; a thick line marks what it says."""
    sure, hits = np.asarray(stated, dtype=np.float64), np.asarray(right, dtype=bool)
    place = np.clip(np.searchsorted(_EDGES, sure, side="right") - 1, 0, len(_EDGES) - 2)
    found = [b for b in range(len(_EDGES) - 1) if (place == b).any()]
    names = [f"{100 * _EDGES[b]:.0f}–{100 * _EDGES[b + 1]:.0f}\n{(place == b).sum():,} ×" for b in found]
    bars = [share_bar(name, hits[place == b]) for name, b in zip(names, found, strict=True)]
    return _upright(bars, [float(sure[place == b].mean()) for b in found], "when it says … %", "it is right, of 100")


def held(asked: Sequence[float], hits: Sequence[ArrayLike]) -> Any:
    """How often ranges contain the true number, by how often they should; a thick line marks that."""
    bars = [share_bar(f"{100 * share:g}", kept) for share, kept in zip(asked, hits, strict=True)]
    return _upright(bars, asked, "a range for so many of 100 cases …", "… contains the truth, of 100")


def _upright(bars: Sequence[Bar], asked: Sequence[float], x: str, y: str) -> Any:
    figure, axes = new(1, 1, width=_WIDTH, height=_HEIGHT)
    panel, places = axes[0, 0], np.arange(len(bars))
    values = np.array([bar.value for bar in bars])
    panel.bar(places, 100 * values, width=0.7, **_GOOD | {"alpha": 0.85})
    ends = np.array([bar.ends or (bar.value, bar.value) for bar in bars]).T
    panel.errorbar(places, 100 * values, 100 * np.abs(ends - values), **_RANGE)
    for place, share in zip(places, asked, strict=True):
        panel.plot([place - 0.42, place + 0.42], [100 * share] * 2, solid_capstyle="butt", **_ASKED)
    panel.set(xticks=places, xticklabels=[bar.name for bar in bars], ylim=(0, 104), xlim=(-0.6, len(bars) - 0.4))
    tidy(panel, x=x, y=y)
    return figure


def lying(bars: Sequence[Bar], x: str, usual: float | None = None, *, percent: bool = True) -> Any:
    """Bars side on, the first on top, each with its number beside it; a dashed line marks what is usual."""
    figure, axes = new(1, 1, width=_WIDTH, height=max(1.4, 0.55 + 0.27 * len(bars)))
    panel, times = axes[0, 0], 100 if percent else 1
    longest = max((times * bar.value for bar in bars if np.isfinite(bar.value)), default=1.0) or 1.0
    for place, bar in enumerate(bars):
        value = times * bar.value
        panel.barh(place, value, height=0.7, **(_BAD if bar.bad else _GOOD | {"alpha": 0.85}))
        if bar.ends is not None:
            ends = np.abs(times * np.array(bar.ends)[:, None] - value)
            panel.errorbar([value], [place], xerr=ends, **_RANGE)
        text = f"{value:.0f}" if percent else amount(value)
        # In a column of its own, where no margin and no dashed line crosses it.
        panel.text(1.02, place, text, va="center", fontsize=7.5, color=INK, transform=panel.get_yaxis_transform())
    if usual is not None:
        panel.axvline(times * usual, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    furthest = max([times * bar.ends[1] for bar in bars if bar.ends is not None], default=longest)
    panel.set(xlim=(0, 104 if percent else 1.04 * max(longest, furthest)), ylim=(len(bars) - 0.4, -0.6))
    panel.set(yticks=range(len(bars)), yticklabels=[plain(bar.name, 20) for bar in bars])
    tidy(panel, x=x)
    if percent:
        panel.set_xticks([0, 25, 50, 75, 100])
    return figure
