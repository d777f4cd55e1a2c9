"""Figure 4: prediction sets with error rate ε: their coverage and size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac import metrics
from dwac._checks import percent
from dwac.conformal import label_sets
from reproduction import figures
from reproduction.cases import Case, plain_cases
from reproduction.fit import Fitted
from reproduction.settings import DATASETS, SETTINGS
from reproduction.tables import (
    MODELS,
    NONE,
    NOT_HELD,
    NOT_RUN,
    STALE,
    Draw,
    Found,
    Section,
    Value,
    number,
    paragraphs,
    picture,
    table,
    verdict,
)

TITLE = "Prediction sets against ε (Figure 4)"
EPSILONS = tuple(round(0.01 * step, 2) for step in range(1, 51))
SHOWN = 0.05
JUDGED = (0.05, 0.1, 0.2)  # at which the guarantee is checked, per trial and per class
LEVEL = 0.999
SERIES = {  # name → head and nonconformity
    "DWAC weights": ("dwac", "weights"),
    "DWAC probability": ("dwac", "probability"),
    "softmax probability": ("softmax", "probability"),
}
MEASURES = ("coverage", "empty", "multiple", "mean")


def cases() -> Iterator[Case]:
    """Both heads of Table 2."""
    yield from plain_cases()


def measure(fitted: Fitted) -> dict[str, Any]:
    """By nonconformity score: coverage, empty, multiple and mean size at each of `EPSILONS`; calibration rows.

    And of class-conditional sets at each of `JUDGED`: how many rows of each class they cover, and their mean size.
    """
    y, classes = fitted.trial.y_test, np.arange(len(fitted.trial.classes))
    by_class = {name: np.bincount(of, minlength=len(classes)).tolist()
                for name, of in (("n_test", y), ("n_calibration", fitted.network.calibration_y_))}  # fmt: skip
    found: dict[str, Any] = {"n_calibration": len(fitted.network.calibration_y_), "by_class": by_class}
    for kind in fitted.kinds:
        curve = metrics.set_curve(y, fitted.p_values(kind, fitted.votes), EPSILONS)
        found[kind] = {name: np.round(curve[name].to_numpy(), 5).tolist() for name in MEASURES}
        p_values = fitted.p_values(kind, fitted.votes, by_class=True)
        found[kind]["by_class"] = {epsilon: _by_class(y, label_sets(p_values, epsilon)) for epsilon in JUDGED}
    return found


def _by_class(y: NDArray[np.int64], sets: NDArray[np.bool_]) -> dict[str, Any]:
    covered = sets[np.arange(len(y)), y]
    return {"covered": np.bincount(y[covered], minlength=sets.shape[1]).tolist(), "mean": metrics.set_sizes(sets).mean}


# The report

PANELS = {"coverage": "coverage", "empty": "share empty", "multiple": "share multiple", "size": "size if not empty"}


def report(found: Found) -> Section:
    """Curves per setting, and the numbers at one ε; then whether the guarantee holds."""
    parts = [
        "Prediction sets that may miss the true label at a rate ε: how often they contain it (coverage, which should "
        "be 1 - ε), how many are empty or hold several labels, and how many labels those that are not empty hold on "
        "average, as in the paper's Figure 4d; means over trials. The score that orders labels is the class weights "
        "of DWAC, or the probabilities of a head. With the paper's models the validation rows are also the calibration "
        "rows, as in the paper; our best models have separate calibration rows."
    ]
    drawn: dict[str, Draw] = {}
    for setting in SETTINGS:
        curves = {(name, series): curves_of(found, name, setting, series) for name in DATASETS for series in SERIES}
        shown = [name for name in DATASETS if any(curves[name, series] for series in SERIES)]
        if not shown:
            parts.append(f"**{MODELS[setting]}**: {NOT_RUN}.")
            continue
        at = EPSILONS.index(SHOWN)
        rows = [
            [
                DATASETS[name].title,
                series,
                *(number(_at(found, name, setting, series, of, what, at)) for what in PANELS),
            ]
            for (name, series), of in curves.items()
        ]
        alt = f"Coverage, empty sets, multiple sets and mean size against ε; {MODELS[setting]}"
        parts += [
            f"**{MODELS[setting]}**, at ε = {SHOWN}:",
            table(["dataset", "score", *PANELS.values()], rows),
            picture(f"sets-{setting}", alt),
        ]
        drawn[f"sets-{setting}"] = partial(_draw, curves, shown)
        parts.append(_promises(found, setting))
    return Section(TITLE, paragraphs(*parts), drawn)


Curves = dict[str, Any]  # by measure: the mean over trials at each ε


def curves_of(found: Found, name: str, setting: str, series: str) -> Curves:
    """Mean coverage, size and the like over the trials, for each error rate."""
    head, kind = SERIES[series]
    trials = [
        {what: np.array(of[what]) for what in MEASURES} for of in found.values((name, setting, head), "sets", kind)
    ]
    for of in trials:  # if every set is empty, none is left to measure
        filled = 1 - of["empty"]
        of["size"] = np.divide(of["mean"], filled, out=np.full_like(filled, np.nan), where=filled > 0)
    return {what: np.mean([of[what] for of in trials], axis=0) for what in (*PANELS, "mean")} if trials else {}


def _at(found: Found, name: str, setting: str, series: str, of: Curves, what: str, at: int) -> float | None:
    return Value.of(of[what][at], found.is_stale((name, setting, SERIES[series][0]))) if of else None


def _promises(found: Found, setting: str) -> str:
    """Whether coverage agrees with the law for exchangeable rows, per trial and per class."""
    how = (
        "The guarantee: with exchangeable rows, coverage follows the beta-binomial law. *Inside*: at ε = "
        f"{', '.join(map(str, JUDGED))}, how many of all trials lie in its {percent(LEVEL)} interval, and how many of "
        "all classes of all trials do with class-conditional sets, which guarantee it for each class. Then the mean "
        "number of labels per set, including empty ones; if weights order the labels, also with the probabilities of "
        "the same votes."
    )
    if setting == "paper":
        how += " These models' calibration rows stopped training too, so that strictly nothing is promised."
    head = ["dataset", "score", "trials inside", "claimed: all", "classes inside", "claimed: all"]
    head += [f"labels per set, ε = {SHOWN}", "by probability"]
    rows = [promise_row(found, name, setting, series) for name in DATASETS for series in SERIES]
    return paragraphs(how, table(head, rows))


def promise_row(found: Found, name: str, setting: str, series: str) -> list[str]:
    """The cells of one row: how many trials and classes have the coverage that is promised."""
    head, kind = SERIES[series]
    records, old = found.of((name, setting, head)), found.is_stale((name, setting, head))
    measured = [
        (record["rows"]["test"], record["metrics"]["sets"]) for record in records if "sets" in record["metrics"]
    ]
    if not measured:
        return [DATASETS[name].title, series, *[NOT_RUN] * 6]
    whole = len(measured) == DATASETS[name].trials
    trials = [within_law(epsilon, of["n_calibration"], n, of[kind]["coverage"][EPSILONS.index(epsilon)] * n)
              for n, of in measured for epsilon in JUDGED]  # fmt: skip
    classes = [within_law(epsilon, *counts) for _, of in measured if "by_class" in of for epsilon in JUDGED
               for counts in zip(of["by_class"]["n_calibration"], of["by_class"]["n_test"],
                                 of[kind]["by_class"][str(epsilon)]["covered"], strict=True)]  # fmt: skip
    sizes = [_mean_size(measured, of) for of in dict.fromkeys((kind, "probability"))]
    return [
        DATASETS[name].title,
        series,
        *_judged(trials, whole, old),
        *_judged(classes, whole, old),
        *(number(Value.of(size, old)) for size in sizes),
        *([NONE] if kind == "probability" else []),
    ]


def _mean_size(measured: list[tuple[int, Any]], kind: str) -> float:
    return float(np.mean([of[kind]["mean"][EPSILONS.index(SHOWN)] for _, of in measured]))


def within_law(epsilon: float, n_calibration: int, n_test: int, covered: float) -> bool | None:
    """Whether the number of covered rows agrees with the law; None if it says nothing."""
    interval = metrics.coverage_interval(epsilon, n_calibration, n_test, LEVEL)
    if interval is None:
        return None
    return round(interval[0] * n_test) <= round(covered) <= round(interval[1] * n_test)


def _judged(inside: list[bool | None], whole: bool, stale: bool) -> list[str]:
    """How many are inside, and whether that is all."""
    known = [one for one in inside if one is not None]
    if not known:
        return [NOT_HELD, NOT_HELD]
    return [f"{sum(known)} of {len(known)}{STALE * stale}", verdict(all(known), whole=whole, stale=stale)]


def _draw(curves: dict[tuple[str, str], Curves], names: list[str]) -> Any:
    figure, axes = figures.new(len(names), len(PANELS), width=2.6, height=2.0)
    for row, name in zip(axes, names, strict=True):
        for panel, (what, title) in zip(row, PANELS.items(), strict=True):
            for place, series in enumerate(SERIES):
                if of := curves[name, series]:  # staggered markers, so that overlapping curves can be distinguished
                    panel.plot(EPSILONS, of[what], label=series, markevery=(2 * place, 7), **figures.style(place))
            if what == "coverage":
                panel.plot(EPSILONS, [1 - e for e in EPSILONS], color="#888888", linewidth=0.8, label="1 - ε")
            figures.tidy(panel, title=f"{DATASETS[name].title}: {title}", x="ε" if name == names[-1] else "")
    figures.legend(figure, axes, columns=4)
    return figure
