"""Plots of errors, calibration, prediction sets, typicality and training: arrays in, a matplotlib figure out.

A plot of several panels is a list of painters, each of which draws on one panel. A figure has them side by side; a page
has a figure of each (`alone`), so that a phone can show one below the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_curve

from dwac.drawing.colours import COLOURS, INK
from dwac.drawing.style import legend, line, new, plain, point, tidy
from dwac.report.chance import likely_share

Painter = Callable[[Any], None]  # draws on a panel

_BINS = 10
_POINTS = 4000  # drawn, at most
_LONG = 20  # characters of a name of which a phone shows no two side by side
_GUIDE = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 3))}  # what is ideal or asked for


def alone(painter: Painter, width: float = 3.3, height: float = 2.8) -> Any:
    """A figure of one panel, with a legend below if something is named; narrow enough for a phone."""
    figure, axes = new(1, 1, width=width, height=height)
    painter(axes[0, 0])
    named = axes[0, 0].get_legend_handles_labels()[1]
    if named:
        legend(figure, axes, columns=1 if max(map(len, named)) > _LONG else 2)
    return figure


def reliability(y: ArrayLike, probabilities: ArrayLike) -> Any:
    """Share of correct predictions against their stated probability, and the share of predictions per bin.

    y: (n,) codes of the true labels. probabilities: (n, K). Error bars: 95 % confidence.
    """
    figure, axes = new(1, 1, width=4.2, height=3.6)
    reliability_panel(y, probabilities)(axes[0, 0])
    axes[0, 0].legend(fontsize=7, frameon=False, labelcolor=INK, loc="upper left")
    return figure


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
    """ROC curves: of each column of truth (n, L) against its probability (n, L)."""
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
    found = [b for b in range(_BINS) if (place == b).any()]
    stated = [sure[place == b].mean() for b in found]
    came = np.array([right[place == b].mean() for b in found])
    ends = np.array([likely_share(right[place == b]) for b in found]).T
    look = line(0) | {"linestyle": "none", "markersize": 5}
    panel.errorbar(stated, came, np.abs(ends - came), label="this model", capsize=2.5, **look)
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
        """Points, less something: nothing, or the predictions."""
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
        for series, (found, name) in enumerate(zip(shares, names, strict=True)):
            panel.plot(levels, found, label=plain(name), **line(series))
        panel.set(xlim=(0, 1), ylim=(0, 1))
        tidy(panel, x="quantile of the votes", y="share of true numbers at or below it")

    return painter


def sets(curve: pd.DataFrame) -> Any:
    """Coverage and set sizes against the allowed error rate ε, from `dwac.metrics.set_curve`."""
    figure, axes = new(1, 3, width=2.7, height=2.5)
    for panel, painter in zip(axes[0], set_panels(curve), strict=True):
        painter(panel)
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=7, frameon=False, labelcolor=INK)
    return figure


def set_panels(curve: pd.DataFrame) -> list[Painter]:
    """Coverage; mean set size; and shares of sets with one, several and no labels."""
    epsilon = curve["epsilon"]

    def covered(panel: Any) -> None:
        panel.plot(epsilon, 1 - epsilon, label="asked for", **_GUIDE)
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


def typicality(inside: ArrayLike, outside: ArrayLike | None = None) -> Any:
    """Histogram of typicality on data like the training data, and on out-of-distribution data."""
    figure, axes = new(1, 1, width=4.6, height=2.7)
    typicality_panel(inside, outside)(axes[0, 0])
    if outside is not None:
        axes[0, 0].legend(fontsize=7, frameon=False, labelcolor=INK)
    return figure


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
    """Loss and accuracy by epoch, from `clf.history_`; a line marks the epoch with the best validation loss."""
    painters = history_panels(frame)
    figure, axes = new(1, len(painters), width=3.4, height=2.4)
    for panel, painter in zip(axes[0], painters, strict=True):
        painter(panel)
    legend(figure, axes, columns=3)
    return figure


def history_panels(frame: pd.DataFrame) -> list[Painter]:
    """Loss; and accuracy, if it was measured. Of networks that were trained one by one, their means."""
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
