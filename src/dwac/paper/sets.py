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
from dwac.paper.tables import NOT_RUN, Draw, Found, Section, paragraphs, picture, table

TITLE = "Label sets against ε (Figure 4)"
EPSILONS = tuple(round(0.01 * step, 2) for step in range(1, 51))


def cases(*, quick: bool = False) -> Iterator[Case]:
    """Both heads of Table 2."""
    del quick
    yield from plain_cases()


def measure(fitted: Fitted) -> dict[str, Any]:
    """By nonconformity score: coverage, empty, multiple and mean size at each of `EPSILONS`; calibration rows."""
    found: dict[str, Any] = {"n_calibration": len(fitted.clf.calibration_y_)}
    for kind in fitted.kinds:
        curve = metrics.set_curve(fitted.trial.y_test, fitted.p_values(kind, fitted.test_votes), EPSILONS)
        columns = ("coverage", "empty", "multiple", "mean")
        found[kind] = {name: np.round(curve[name].to_numpy(), 5).tolist() for name in columns}
    return found


def report(found: Found) -> Section:
    """Curves for each setting, and the numbers at one ε."""
    parts = [
        "Sets of labels that may miss the true one at a rate ε: how often they hold it (coverage, which should be 1 "
        "- ε), and how many are empty, hold several labels, and hold on average; means over trials. With the "
        "paper's models the validation rows calibrate too, as in the paper; our best models have calibration rows "
        "of their own."
    ]
    drawn: dict[str, Draw] = {}
    for setting in SETTINGS:
        shown = [name for name in DATASETS if found.of(name, setting, "dwac") or found.of(name, setting, "softmax")]
        title = "The paper's models" if setting == "paper" else "Our best models"
        if not shown:
            parts.append(f"**{title}**: {NOT_RUN}.")
            continue
        parts.append(f"**{title}**, at ε = {SHOWN}:")
        rows = [_row(found, name, setting, series) for name in DATASETS for series in SERIES]
        parts.append(table(["dataset", "score", "coverage", "empty", "multiple", "mean size"], rows))
        parts.append(
            picture(f"sets-{setting}", f"Coverage, empty sets, multiple sets and mean size against ε; {title}")
        )
        drawn[f"sets-{setting}"] = partial(_draw, found, setting, shown)
    return Section(TITLE, paragraphs(*parts), drawn)


SHOWN = 0.05
SERIES = {  # name → head and nonconformity
    "DWAC weights": ("dwac", "weights"),
    "DWAC probability": ("dwac", "probability"),
    "softmax probability": ("softmax", "probability"),
}
_MEASURES = {"coverage": "coverage", "empty": "share empty", "multiple": "share multiple", "mean": "mean size"}


def _curve(found: Found, name: str, setting: str, series: str, measure: str) -> list[float] | None:
    """Mean over trials at each ε."""
    head, kind = SERIES[series]
    curves = [record["metrics"]["sets"][kind][measure] for record in found.of(name, setting, head)
              if "sets" in record["metrics"]]  # fmt: skip
    return np.mean(curves, axis=0).tolist() if curves else None


def _row(found: Found, name: str, setting: str, series: str) -> list[str]:
    curves = [_curve(found, name, setting, series, measure) for measure in _MEASURES]
    at = EPSILONS.index(SHOWN)
    return [DATASETS[name].title, series, *(NOT_RUN if curve is None else f"{curve[at]:.3f}" for curve in curves)]


def _draw(found: Found, setting: str, names: list[str]) -> Any:
    figure, axes = figures.new(len(names), len(_MEASURES), width=2.6, height=2.0)
    for row, name in zip(axes, names, strict=True):
        for panel, (measure, title) in zip(row, _MEASURES.items(), strict=True):
            for number, series in enumerate(SERIES):
                curve = _curve(found, name, setting, series, measure)
                if curve is not None:
                    panel.plot(EPSILONS, curve, label=series, markevery=7, **figures.style(number))
            if measure == "coverage":
                panel.plot(EPSILONS, [1 - e for e in EPSILONS], color="#888888", linewidth=0.8, label="1 - ε")
            figures.tidy(panel, title=f"{DATASETS[name].title}: {title}", x="ε" if name == names[-1] else "")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure
