"""Plots of errors, calibration, prediction sets, typicality and training: arrays in, a matplotlib figure out.

A plot of several panels is a list of painters, each of which draws on one panel. A figure has them side by side; a page
has one figure for each (`alone`), so that a phone can show one below the other.

The plots of the summary, from `Bar` on, need no knowledge of statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_curve

from dwac.drawing import COLOURS, INK
from dwac.drawing.style import legend, line, new, plain, point, tidy
from dwac.estimator.evaluation import amount
from dwac.report.measures import likely_share

Painter = Callable[[Any], None]  # draws on a panel

_BINS = 10
_POINTS = 4000  # points drawn, at most
_LONG = 20  # characters: longer names do not fit side by side on a phone
_GUIDE = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 3))}  # marks the ideal or the target
_WIDTH, _HEIGHT = 2.75, 2.5  # inches: three side by side, and one on a phone
_EDGES = (0.0, 0.5, 0.7, 0.8, 0.9, 1.0)  # edges of bins of stated probabilities
_GOOD: dict[str, Any] = {"facecolor": COLOURS[0], "edgecolor": COLOURS[0], "linewidth": 0.8}
_BAD: dict[str, Any] = {"facecolor": "none", "edgecolor": COLOURS[1], "hatch": "////", "linewidth": 0.8}
_TARGET: dict[str, Any] = {"color": INK, "linewidth": 2.0}
_RANGE: dict[str, Any] = {"ecolor": INK, "elinewidth": 0.9, "capsize": 2.5, "fmt": "none"}


def alone(painter: Painter, width: float = 3.3, height: float = 2.8) -> Any:
    """A figure of one panel, with a legend below if anything has a name; narrow enough for a phone."""
    figure, axes = new(1, 1, width=width, height=height)
    painter(axes[0, 0])
    names = axes[0, 0].get_legend_handles_labels()[1]
    if names:
        legend(figure, axes, columns=1 if max(map(len, names)) > _LONG else 2)
    return figure


def _side_by_side(
    painters: Sequence[Painter], width: float, height: float, *, legends: bool = True, **look: Any
) -> Any:
    """A figure of several panels; each has a legend if anything on it has a name."""
    figure, axes = new(1, len(painters), width=width, height=height)
    for panel, painter in zip(axes[0], painters, strict=True):
        painter(panel)
        if legends and panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=7, frameon=False, labelcolor=INK, **look)
    return figure


def reliability(y: ArrayLike, probabilities: ArrayLike) -> Any:
    """Share of correct predictions against their stated probability, and the share of predictions per bin.

    y: (n,) codes of the true labels. probabilities: (n, K). Error bars: 95 % confidence.

    >>> reliability([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]).axes[0].get_xlabel()
    'stated probability'
    """
    return _side_by_side([reliability_panel(y, probabilities)], 4.2, 3.6, loc="upper left")


def reliability_panel(y: ArrayLike, probabilities: ArrayLike) -> Painter:
    """The same on a panel."""
    p = np.asarray(probabilities)

    def painter(panel: Any) -> None:
        _reliability(panel, p.max(axis=1), p.argmax(axis=1) == np.asarray(y))
        tidy(panel, x="stated probability", y="share that was correct")

    return painter


def label_panels(Y: ArrayLike, probabilities: ArrayLike, names: Sequence[Any]) -> list[Painter]:
    """The same for each of several labels: the share of examples that have it. Y, probabilities: (n, L)."""
    has, p = np.asarray(Y, dtype=bool), np.asarray(probabilities)

    def painter(panel: Any, place: int) -> None:
        _reliability(panel, p[:, place], has[:, place])
        tidy(panel, title=plain(names[place]), x="stated probability", y="share that has it")

    return [partial(painter, place=place) for place in range(len(names))]


def roc_panel(truth: ArrayLike, probabilities: ArrayLike, names: Sequence[str]) -> Painter:
    """ROC curves, one per column of truth (n, L) and its probability (n, L)."""
    has, p = np.asarray(truth, dtype=bool), np.asarray(probabilities)

    def painter(panel: Any) -> None:
        panel.plot([0, 1], [0, 1], label="chance", **_GUIDE)
        for series, name in enumerate(names):
            false, true, _ = roc_curve(has[:, series], p[:, series])
            panel.plot(false, true, label=plain(name), **line(series) | {"markevery": 0.25, "markersize": 3})
        panel.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        tidy(panel, x="false positive rate", y="true positive rate")

    return painter


def _reliability(panel: Any, sure: NDArray[Any], right: NDArray[Any]) -> None:
    """Observed against stated probability, with 95 % intervals, and the share of examples per bin."""
    place = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    panel.plot([0, 1], [0, 1], label="perfect", **_GUIDE)
    bins = np.unique(place)
    stated = [sure[place == b].mean() for b in bins]
    observed = np.array([right[place == b].mean() for b in bins])
    ends = np.array([likely_share(right[place == b]) for b in bins]).T
    look = line(0) | {"linestyle": "none", "markersize": 5}
    panel.errorbar(stated, observed, np.abs(ends - observed), label="this model", capsize=2.5, **look)
    many = np.bincount(place, minlength=_BINS) / len(sure)
    pale = {"facecolor": COLOURS[7], "edgecolor": COLOURS[7], "alpha": 0.35, "linewidth": 0.6, "zorder": 0}
    panel.bar((np.arange(_BINS) + 0.5) / _BINS, many, width=0.9 / _BINS, label="share of predictions", **pale)
    panel.set(xlim=(0, 1.02), ylim=(0, 1.04))


def number_panels(truth: ArrayLike, values: ArrayLike, intervals: ArrayLike | None, name: str = "") -> list[Painter]:
    """True against predicted numbers (n,), with intervals (n, 2) as thin lines; and errors against predictions."""
    some = np.linspace(0, len(np.asarray(truth)) - 1, min(len(np.asarray(truth)), _POINTS)).astype(np.int64)
    y, p = (np.asarray(part, dtype=np.float64)[some] for part in (truth, values))
    limits = _limits(y, p)
    ends = None if intervals is None else np.asarray(intervals)[some]
    outside = np.zeros(len(y), dtype=bool) if ends is None else (y < ends[:, 0]) | (y > ends[:, 1])
    look = {"s": float(np.clip(2000 / len(some), 3, 18)), "alpha": 0.7, "linewidths": 0, "rasterized": True}

    def cloud(panel: Any, less: NDArray[Any]) -> None:
        """Draw the true numbers minus `less`: 0, or the predictions."""
        if ends is not None:
            low, high = np.clip(ends, *limits).T
            faint = {"color": COLOURS[7], "linewidth": 0.5, "alpha": 0.35, "zorder": 0}
            panel.vlines(p, low - less, high - less, label="interval", **faint)
        panel.scatter(p[~outside], (y - less)[~outside], label="test example", **point(0), **look)
        if outside.any():
            panel.scatter(p[outside], (y - less)[outside], label="outside its interval", **point(1), **look)

    def true(panel: Any) -> None:
        cloud(panel, 0 * p)
        panel.plot(limits, limits, label="perfect", **_GUIDE)
        tidy(panel, title=plain(name), x="predicted", y="true")

    def errors(panel: Any) -> None:
        cloud(panel, p)
        panel.axhline(0, label="perfect", **_GUIDE)
        tidy(panel, title=plain(name), x="predicted", y="true - predicted")

    return [true, errors]


def _limits(*values: NDArray[Any]) -> tuple[float, float]:
    """The range of all, with a margin."""
    low, high = min(part.min() for part in values), max(part.max() for part in values)
    margin = 0.04 * (high - low) or 1.0
    return float(low - margin), float(high + margin)


def quantile_panel(levels: ArrayLike, shares: Sequence[ArrayLike], names: Sequence[str]) -> Painter:
    """How often numbers are at or below the quantiles of the votes: shares (Q,) against levels (Q,), per number."""

    def painter(panel: Any) -> None:
        panel.plot([0, 1], [0, 1], label="perfect", **_GUIDE)
        for series, (share, name) in enumerate(zip(shares, names, strict=True)):
            panel.plot(levels, share, label=plain(name), **line(series))
        panel.set(xlim=(0, 1), ylim=(0, 1))
        tidy(panel, x="quantile of the votes", y="share of true numbers at or below it")

    return painter


def sets(curve: pd.DataFrame) -> Any:
    """Coverage and set sizes against the allowed error rate ε, from `dwac.metrics.set_curve`.

    >>> from dwac.metrics import set_curve
    >>> len(sets(set_curve([0, 1], [[0.9, 0.1], [0.6, 0.3]], [0.05, 0.2, 0.5])).axes)
    3
    """
    return _side_by_side(set_panels(curve), 2.7, 2.5)


def set_panels(curve: pd.DataFrame) -> list[Painter]:
    """Coverage; mean set size; and shares of sets with one, several and no labels."""
    epsilon = curve["epsilon"]

    def covered(panel: Any) -> None:
        panel.plot(epsilon, 1 - epsilon, label="requested", **_GUIDE)
        panel.plot(epsilon, curve["coverage"], label="measured", **_thin(0))
        tidy(panel, title="coverage", x="allowed error rate ε", y="share")

    def sizes(panel: Any) -> None:
        panel.plot(epsilon, curve["mean"], **_thin(0))
        panel.axhline(1, **_GUIDE)
        panel.set_ylim(bottom=0)
        tidy(panel, title="mean number of labels per set", x="allowed error rate ε")

    def kinds(panel: Any) -> None:
        names = {"single": "one label", "multiple": "several labels", "empty": "no label"}
        for series, (name, text) in enumerate(names.items()):
            panel.plot(epsilon, curve[name], label=text, **_thin(series))
        panel.set_ylim(-0.03, 1.03)
        tidy(panel, title="sets with …", x="allowed error rate ε", y="share")

    return [covered, sizes, kinds]


def _thin(series: int) -> dict[str, Any]:
    return line(series) | {"markevery": (4 + 5 * series, 20)}


def risk_panels(
    risks: Sequence[float], shares: ArrayLike, known: Sequence[float], errors: ArrayLike, ends: ArrayLike
) -> list[Painter]:
    """The share decided at each risk; and errors among decided rows at risks that decide any, with ends (R, 2)."""

    def decided(panel: Any) -> None:
        panel.plot(risks, shares, **line(0))
        panel.set(xlim=(0, 1.04 * max(risks)), ylim=(0, 1.04))
        tidy(panel, title="decided", x="allowed risk", y="share of test examples")

    def erred(panel: Any) -> None:
        y = np.asarray(errors)
        panel.plot([0, max(risks)], [0, max(risks)], label="allowed", **_GUIDE)
        panel.errorbar(known, y, np.abs(np.asarray(ends).T - y), label="measured", capsize=2.5, **line(0))
        panel.set(xlim=(0, 1.04 * max(risks)), ylim=(0, 1.04 * max(float(np.max(ends)), max(risks))))
        tidy(panel, title="errors among decided", x="allowed risk", y="share of decided examples")

    return [decided, erred]


def typicality(inside: ArrayLike, outside: ArrayLike | None = None) -> Any:
    """Histogram of typicality on data like the training data, and on out-of-distribution data.

    >>> typicality([0.2, 0.5, 0.9], outside=[0.01, 0.02]).axes[0].get_xlabel()
    'typicality'
    """
    return _side_by_side([typicality_panel(inside, outside)], 4.6, 2.7, legends=outside is not None)


def typicality_panel(inside: ArrayLike, outside: ArrayLike | None = None) -> Painter:
    """The same on a panel."""
    bins = np.linspace(0, 1, 21)
    shown: list[tuple[ArrayLike, str, dict[str, Any]]] = []
    if outside is not None:
        hatched = {"facecolor": "none", "edgecolor": COLOURS[1], "hatch": "////", "histtype": "stepfilled"}
        shown.append((outside, "out-of-distribution examples", hatched | {"linewidth": 0.8}))
    filled = {"color": COLOURS[0], "histtype": "step" if outside is not None else "stepfilled", "linewidth": 1.8}
    shown.append((inside, "test examples", filled))

    def painter(panel: Any) -> None:
        for values, name, look in shown:
            n = len(np.asarray(values))
            panel.hist(np.asarray(values), bins=bins, weights=np.full(n, 1 / n), label=name, **look)
        panel.set_xlim(0, 1)
        tidy(panel, x="typicality", y="share of examples")

    return painter


def history(frame: pd.DataFrame) -> Any:
    """Loss and accuracy by epoch, from `clf.history_`; a line marks the epoch with the best validation loss.

    >>> frame = pd.DataFrame({"epoch": [1, 2], "loss": [1.0, 0.5], "validation_loss": [1.1, 0.7]})
    >>> len(history(frame).axes)
    1
    """
    figure = _side_by_side(history_panels(frame), 3.4, 2.4, legends=False)
    legend(figure, np.array([figure.axes]), columns=3)
    return figure


def history_panels(frame: pd.DataFrame) -> list[Painter]:
    """Loss; and accuracy, if measured. For networks trained one by one, their means."""
    frame = frame.groupby("epoch", as_index=False).mean() if "shard" in frame else frame
    watched, epoch = "validation_loss" in frame, frame["epoch"]
    every = {"markevery": max(1, len(frame) // 12)}

    def best(panel: Any, name: str | None) -> None:
        if watched:
            panel.axvline(epoch.iloc[int(frame["validation_loss"].argmin())], **_GUIDE, label=name)
        panel.xaxis.get_major_locator().set_params(integer=True)

    def loss(panel: Any) -> None:
        panel.plot(epoch, frame["loss"], label="training", **line(0), **every)
        tidy(panel, title="loss", x="epoch")
        if watched:
            panel.plot(epoch, frame["validation_loss"], label="validation", **line(1), **every)
        best(panel, "best epoch")

    def accuracy(panel: Any) -> None:
        panel.plot(epoch, frame["validation_accuracy"], **line(1), **every)
        tidy(panel, title="accuracy on validation examples", x="epoch")
        best(panel, None)

    return [loss, accuracy] if watched and "validation_accuracy" in frame else [loss]


# The pictures of the summary


class Bar(NamedTuple):
    """A bar: its name and length, its 95 % confidence interval if known, and whether it stands out as bad."""

    name: str
    value: float
    ends: tuple[float, float] | None = None
    bad: bool = False


def share_bar(name: str, hits: ArrayLike, usual: float | None = None) -> Bar:
    """How often something was right; bad if significantly less often than usual."""
    low, high = likely_share(hits)
    return Bar(name, float(np.mean(np.asarray(hits, dtype=bool))), (low, high), usual is not None and high < usual)


def hundred(right: float) -> Any:
    """How many of 100 cases are right, as 100 squares."""
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


def bars_by_confidence(stated: ArrayLike, right: ArrayLike) -> Any:
    """How often the model is right, by stated confidence, which a thick line marks."""
    sure, hits = np.asarray(stated, dtype=np.float64), np.asarray(right, dtype=bool)
    place = np.clip(np.searchsorted(_EDGES, sure, side="right") - 1, 0, len(_EDGES) - 2)
    bins = np.unique(place)
    names = [f"{100 * _EDGES[b]:.0f}–{100 * _EDGES[b + 1]:.0f}\n{(place == b).sum():,} ×" for b in bins]
    bars = [share_bar(name, hits[place == b]) for name, b in zip(names, bins, strict=True)]
    return _upright(bars, [float(sure[place == b].mean()) for b in bins], "when it says … %", "it is right, of 100")


def bars_by_coverage(shares: Sequence[float], hits: Sequence[ArrayLike]) -> Any:
    """How often ranges contain the true number, by how often they should, which a thick line marks."""
    bars = [share_bar(f"{100 * share:g}", each) for share, each in zip(shares, hits, strict=True)]
    return _upright(bars, shares, "a range meant for … of 100 cases", "contains the truth, of 100")


def _upright(bars: Sequence[Bar], targets: Sequence[float], x: str, y: str) -> Any:
    figure, axes = new(1, 1, width=_WIDTH, height=_HEIGHT)
    panel, places = axes[0, 0], np.arange(len(bars))
    values = np.array([bar.value for bar in bars])
    panel.bar(places, 100 * values, width=0.7, **_GOOD | {"alpha": 0.85})
    ends = np.array([bar.ends or (bar.value, bar.value) for bar in bars]).T
    panel.errorbar(places, 100 * values, 100 * np.abs(ends - values), **_RANGE)
    for place, share in zip(places, targets, strict=True):
        panel.plot([place - 0.42, place + 0.42], [100 * share] * 2, solid_capstyle="butt", **_TARGET)
    panel.set(xticks=places, xticklabels=[bar.name for bar in bars], ylim=(0, 104), xlim=(-0.6, len(bars) - 0.4))
    tidy(panel, x=x, y=y)
    return figure


def bars_across(bars: Sequence[Bar], x: str, usual: float | None = None, *, percent: bool = True) -> Any:
    """Horizontal bars, the first on top, each with its number beside it; a dashed line marks what is usual."""
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
