"""Plots of calibration, prediction sets, typicality and training: arrays in, a matplotlib figure out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from dwac.drawing.colours import COLOURS, INK
from dwac.drawing.style import legend, line, new, tidy
from dwac.report.chance import likely_share

_BINS = 10
_GUIDE = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 3))}  # what is ideal or guaranteed


def reliability(y: ArrayLike, probabilities: ArrayLike) -> Any:
    """Share of correct predictions against their stated probability, and the share of predictions per bin.

    y: (n,) codes of the true labels. probabilities: (n, K). Error bars: 95 % confidence.
    """
    p = np.asarray(probabilities)
    right, sure = p.argmax(axis=1) == np.asarray(y), p.max(axis=1)
    place = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    figure, axes = new(1, 1, width=4.2, height=3.6)
    panel = axes[0, 0]
    panel.plot([0, 1], [0, 1], label="perfect", **_GUIDE)
    found = [b for b in range(_BINS) if (place == b).any()]
    stated = [sure[place == b].mean() for b in found]
    came = np.array([right[place == b].mean() for b in found])
    ends = np.array([likely_share(right[place == b]) for b in found]).T
    look = line(0) | {"linestyle": "none", "markersize": 5}
    panel.errorbar(stated, came, np.abs(ends - came), label="this model", capsize=2.5, **look)
    many = np.bincount(place, minlength=_BINS) / len(p)
    dotted = {"facecolor": "none", "edgecolor": COLOURS[7], "hatch": "....", "linewidth": 0.6, "zorder": 0}
    panel.bar((np.arange(_BINS) + 0.5) / _BINS, many, width=0.9 / _BINS, label="share of predictions", **dotted)
    panel.set(xlim=(0, 1.02), ylim=(0, 1.04))
    tidy(panel, x="stated probability", y="share that was correct")
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
    watched = "validation_loss" in frame
    figure, axes = new(1, 1 + watched, width=3.4, height=2.4)
    loss, epoch = axes[0, 0], frame["epoch"]
    every = {"markevery": max(1, len(frame) // 12)}
    loss.plot(epoch, frame["loss"], label="training", **line(0), **every)
    tidy(loss, title="loss", x="epoch")
    if watched:
        loss.plot(epoch, frame["validation_loss"], label="validation", **line(1), **every)
        axes[0, 1].plot(epoch, frame["validation_accuracy"], **line(1), **every)
        tidy(axes[0, 1], title="accuracy on validation examples", x="epoch")
        best = epoch.iloc[int(frame["validation_loss"].argmin())]
        for panel in axes[0]:
            panel.axvline(best, **_GUIDE, label="best epoch" if panel is loss else None)
    legend(figure, axes, columns=3)
    for panel in axes[0]:
        panel.xaxis.get_major_locator().set_params(integer=True)
    return figure
