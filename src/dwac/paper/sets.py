"""Figure 4: label sets that may err at a rate ε: how often they do, and how large they are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dwac import metrics
from dwac.paper import figures
from dwac.paper.cases import Case, plain_cases
from dwac.paper.fit import Fitted
from dwac.paper.settings import DATASETS, SETTINGS
from dwac.paper.tables import MODELS, NOT_RUN, Draw, Found, Section, number, paragraphs, picture, table

TITLE = "Label sets against ε (Figure 4)"
EPSILONS = tuple(round(0.01 * step, 2) for step in range(1, 51))
SHOWN = 0.05
SERIES = {  # name → head and nonconformity
    "DWAC weights": ("dwac", "weights"),
    "DWAC probability": ("dwac", "probability"),
    "softmax probability": ("softmax", "probability"),
}
MEASURES = {"coverage": "coverage", "empty": "share empty", "multiple": "share multiple", "mean": "mean size"}


def cases() -> Iterator[Case]:
    """Both heads of Table 2."""
    yield from plain_cases()


def measure(fitted: Fitted) -> dict[str, Any]:
    """By nonconformity score: coverage, empty, multiple and mean size at each of `EPSILONS`; calibration rows."""
    found: dict[str, Any] = {"n_calibration": len(fitted.clf.calibration_y_)}
    for kind in fitted.kinds:
        curve = metrics.set_curve(fitted.trial.y_test, fitted.p_values(kind, fitted.votes), EPSILONS)
        found[kind] = {name: np.round(curve[name].to_numpy(), 5).tolist() for name in MEASURES}
    return found


def report(found: Found) -> Section:
    """Curves for each setting, and the numbers at one ε."""
    parts = [
        "Sets of labels that may miss the true one at a rate ε: how often they hold it (coverage, which should be 1 "
        "- ε), and how many are empty, hold several labels, and hold on average; means over trials. The score orders "
        "labels: DWAC's class weights, or a head's probabilities. With the paper's models the validation rows "
        "calibrate too, as in the paper; our best models have calibration rows of their own."
    ]
    drawn: dict[str, Draw] = {}
    for setting in SETTINGS:
        curves = {(name, series): _curves(found, name, setting, series) for name in DATASETS for series in SERIES}
        shown = [name for name in DATASETS if any(curves[name, series] for series in SERIES)]
        if not shown:
            parts.append(f"**{MODELS[setting]}**: {NOT_RUN}.")
            continue
        at = EPSILONS.index(SHOWN)
        rows = [
            [DATASETS[name].title, series, *(number(of[what][at] if of else None) for what in MEASURES)]
            for (name, series), of in curves.items()
        ]
        alt = f"Coverage, empty sets, multiple sets and mean size against ε; {MODELS[setting]}"
        parts += [
            f"**{MODELS[setting]}**, at ε = {SHOWN}:",
            table(["dataset", "score", *MEASURES.values()], rows),
            picture(f"sets-{setting}", alt),
        ]
        drawn[f"sets-{setting}"] = partial(_draw, curves, shown)
    return Section(TITLE, paragraphs(*parts), drawn)


Curves = dict[str, Any]  # by measure: the mean over trials at each ε


def _curves(found: Found, name: str, setting: str, series: str) -> Curves:
    head, kind = SERIES[series]
    trials = found.values((name, setting, head), "sets", kind)
    return {what: np.mean([of[what] for of in trials], axis=0) for what in MEASURES} if trials else {}


def _draw(curves: dict[tuple[str, str], Curves], names: list[str]) -> Any:
    figure, axes = figures.new(len(names), len(MEASURES), width=2.6, height=2.0)
    for row, name in zip(axes, names, strict=True):
        for panel, (what, title) in zip(row, MEASURES.items(), strict=True):
            for place, series in enumerate(SERIES):
                if of := curves[name, series]:  # markers take turns, so that curves on one another are told apart
                    panel.plot(EPSILONS, of[what], label=series, markevery=(2 * place, 7), **figures.style(place))
            if what == "coverage":
                panel.plot(EPSILONS, [1 - e for e in EPSILONS], color="#888888", linewidth=0.8, label="1 - ε")
            figures.tidy(panel, title=f"{DATASETS[name].title}: {title}", x="ε" if name == names[-1] else "")
    figures.legend(figure, axes, columns=4)
    return figure
