"""Plots of calibration, prediction sets, typicality and training: arrays in, a matplotlib figure out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from dwac.drawing.colours import COLOURS, INK
from dwac.drawing.style import legend, line, new, plain, point, tidy
from dwac.report.chance import likely_share

_BINS = 10
_ACROSS = 4  # panels side by side
_POINTS = 4000  # drawn, at most
_GUIDE = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 3))}  # what is ideal or guaranteed


def reliability(y: ArrayLike, probabilities: ArrayLike) -> Any:
    """Share of correct predictions against their stated probability, and the share of predictions per bin.

    y: (n,) codes of the true labels. probabilities: (n, K). Error bars: 95 % confidence.
    """
    p = np.asarray(probabilities)
    figure, axes = new(1, 1, width=4.2, height=3.6)
    panel = axes[0, 0]
    _reliability(panel, p.max(axis=1), p.argmax(axis=1) == np.asarray(y))
    tidy(panel, x="stated probability", y="share that was correct")
    panel.legend(fontsize=7, frameon=False, labelcolor=INK, loc="upper left")
    return figure


def label_reliability(Y: ArrayLike, probabilities: ArrayLike, names: Sequence[Any]) -> Any:
    """The same for each of several labels: the share of examples that have it. Y, probabilities: (n, L)."""
    has, p = np.asarray(Y, dtype=bool), np.asarray(probabilities)
    columns = min(_ACROSS, len(names))
    figure, axes = new(-(-len(names) // columns), columns, width=2.3, height=2.2)
    for place, panel in enumerate(axes.ravel()):
        if place >= len(names):
            panel.set_axis_off()
            continue
        _reliability(panel, p[:, place], has[:, place])
        first = place % columns == 0
        tidy(panel, title=plain(names[place]), x="stated probability", y="share that has it" if first else "")
    legend(figure, axes, columns=3)
    return figure


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
    dotted = {"facecolor": "none", "edgecolor": COLOURS[7], "hatch": "....", "linewidth": 0.6, "zorder": 0}
    panel.bar((np.arange(_BINS) + 0.5) / _BINS, many, width=0.9 / _BINS, label="share of predictions", **dotted)
    panel.set(xlim=(0, 1.02), ylim=(0, 1.04))


def predicted(truth: ArrayLike, values: ArrayLike, intervals: ArrayLike | None, name: str = "") -> Any:
    """True against predicted numbers (n,), with intervals (n, 2) as thin lines; and errors against predictions."""
    y, p = np.asarray(truth, dtype=np.float64), np.asarray(values, dtype=np.float64)
    figure, axes = new(1, 2, width=3.9, height=3.3)
    true, errors = axes[0]
    some = np.linspace(0, len(y) - 1, min(len(y), _POINTS)).astype(np.int64)
    look = {"s": float(np.clip(2000 / len(some), 3, 18)), "alpha": 0.7, "linewidths": 0, "rasterized": True}
    if intervals is not None:
        ends = np.asarray(intervals)[some]
        outside = (y[some] < ends[:, 0]) | (y[some] > ends[:, 1])
        low, high = np.clip(ends, *_limits(y, p)).T
        faint = {"color": COLOURS[7], "linewidth": 0.5, "alpha": 0.35, "zorder": 0}
        true.vlines(p[some], low, high, label="interval", **faint)
        errors.vlines(p[some], low - p[some], high - p[some], **faint)
    else:
        outside = np.zeros(len(some), dtype=bool)
    for panel, height in ((true, y[some]), (errors, y[some] - p[some])):
        panel.scatter(p[some][~outside], height[~outside], label="test example", **point(0), **look)
        panel.scatter(p[some][outside], height[outside], label="outside its interval", **point(1), **look)
    limits = _limits(y, p)
    true.plot(limits, limits, label="perfect", **_GUIDE)
    errors.axhline(0, **_GUIDE)
    tidy(true, title=plain(name), x="predicted", y="true")
    tidy(errors, title=plain(name), x="predicted", y="true - predicted")
    legend(figure, axes, columns=4)
    return figure


def _limits(*values: NDArray[Any]) -> tuple[float, float]:
    """The range of all, with a margin."""
    low, high = min(part.min() for part in values), max(part.max() for part in values)
    margin = 0.04 * (high - low) or 1.0
    return float(low - margin), float(high + margin)


def quantiles(levels: ArrayLike, shares: Sequence[ArrayLike], names: Sequence[str]) -> Any:
    """How often numbers are at or below the quantiles of the votes: shares (Q,) against levels (Q,), per number."""
    figure, axes = new(1, 1, width=4.0, height=3.4)
    panel = axes[0, 0]
    panel.plot([0, 1], [0, 1], label="perfect", **_GUIDE)
    for series, (found, name) in enumerate(zip(shares, names, strict=True)):
        panel.plot(levels, found, label=plain(name), **line(series))
    panel.set(xlim=(0, 1), ylim=(0, 1))
    tidy(panel, x="quantile of the votes", y="share of true numbers at or below it")
    panel.legend(fontsize=7, frameon=False, labelcolor=INK, loc="upper left")
    return figure


def sets(curve: pd.DataFrame) -> Any:
    """Coverage and set sizes against the allowed error rate ε, from `dwac.metrics.set_curve`."""
    figure, axes = new(1, 3, width=2.7, height=2.5)
    covered, sizes, kinds = axes[0]
    epsilon = curve["epsilon"]
    covered.plot(epsilon, 1 - epsilon, label="guaranteed", **_GUIDE)
    covered.plot(epsilon, curve["coverage"], label="measured", **_thin(0))
    tidy(covered, title="coverage", x="allowed error rate ε", y="share")
    sizes.plot(epsilon, curve["mean"], **_thin(0))
    sizes.axhline(1, **_GUIDE)
    sizes.set_ylim(bottom=0)
    tidy(sizes, title="mean number of labels per set", x="allowed error rate ε")
    for series, (name, legend_text) in enumerate(
        (("single", "one label"), ("multiple", "several labels"), ("empty", "no label"))
    ):
        kinds.plot(epsilon, curve[name], label=legend_text, **_thin(series))
    kinds.set_ylim(-0.03, 1.03)
    tidy(kinds, title="sets with …", x="allowed error rate ε", y="share")
    for panel in (covered, kinds):
        panel.legend(fontsize=7, frameon=False, labelcolor=INK)
    return figure


def _thin(series: int) -> dict[str, Any]:
    return line(series) | {"markevery": (4 + 5 * series, 20)}


def typicality(inside: ArrayLike, outside: ArrayLike | None = None) -> Any:
    """Histogram of typicality on data like the training data, and on out-of-distribution data."""
    figure, axes = new(1, 1, width=4.6, height=2.7)
    panel, bins = axes[0, 0], np.linspace(0, 1, 21)
    shown: list[tuple[ArrayLike, str, dict[str, Any]]] = []
    if outside is not None:
        hatched = {"facecolor": "none", "edgecolor": COLOURS[1], "hatch": "////", "histtype": "stepfilled"}
        shown.append((outside, "out-of-distribution examples", hatched | {"linewidth": 0.8}))
    filled = {"color": COLOURS[0], "histtype": "step" if outside is not None else "stepfilled", "linewidth": 1.8}
    shown.append((inside, "test examples", filled))
    for values, name, look in shown:
        n = len(np.asarray(values))
        panel.hist(np.asarray(values), bins=bins, weights=np.full(n, 1 / n), label=name, **look)
    panel.set_xlim(0, 1)
    tidy(panel, x="typicality", y="share of examples")
    if outside is not None:
        panel.legend(fontsize=7, frameon=False, labelcolor=INK)
    return figure


def history(frame: pd.DataFrame) -> Any:
    """Loss and accuracy by epoch, from `clf.history_`; a line marks the epoch with the best validation loss."""
    watched, judged = "validation_loss" in frame, "validation_accuracy" in frame
    figure, axes = new(1, 1 + judged, width=3.4, height=2.4)
    loss, epoch = axes[0, 0], frame["epoch"]
    every = {"markevery": max(1, len(frame) // 12)}
    loss.plot(epoch, frame["loss"], label="training", **line(0), **every)
    tidy(loss, title="loss", x="epoch")
    if watched:
        loss.plot(epoch, frame["validation_loss"], label="validation", **line(1), **every)
        if judged:
            axes[0, 1].plot(epoch, frame["validation_accuracy"], **line(1), **every)
            tidy(axes[0, 1], title="accuracy on validation examples", x="epoch")
        best = epoch.iloc[int(frame["validation_loss"].argmin())]
        for panel in axes[0]:
            panel.axvline(best, **_GUIDE, label="best epoch" if panel is loss else None)
    legend(figure, axes, columns=3)
    for panel in axes[0]:
        panel.xaxis.get_major_locator().set_params(integer=True)
    return figure
