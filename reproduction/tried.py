"""What was tried: changed settings compared with the frozen settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dwac import metrics
from reproduction.cases import Case
from reproduction.fit import Fitted
from reproduction.settings import DATASETS
from reproduction.tables import NONE, Found, Section, Value, mark, paragraphs, points, spread, table
from reproduction.variants import TRIED

TITLE = "What was tried"
Measured = dict[int, dict[str, float]]  # by trial


def cases() -> Iterator[Case]:
    """Each variant on its datasets."""
    for variant, of in TRIED.items():
        for name in of.datasets:
            yield from (Case(name, of.setting, "dwac", trial, variant=variant) for trial in range(of.trials))


def measure(fitted: Fitted) -> dict[str, Any]:
    """Accuracy on held-out rows, by which settings are chosen, and on test rows; p-values of the test rows."""
    y = fitted.trial.y_test
    p_values = fitted.p_values(fitted.kinds[0], fitted.votes)
    return {
        "held_out": fitted.held_out_accuracy,
        "accuracy": metrics.accuracy(y, fitted.labels),
        "true_label": p_values[np.arange(len(y)), y].mean(),
    }


# The report


def report(found: Found) -> Section:
    """One row per variant and dataset, with its gain over the frozen setting in the same trials."""
    how = (
        "Changes to the frozen settings of DWAC, with the accuracy on held-out rows (by which settings are chosen) and "
        "on test rows, and the gain over the unchanged setting in the same trials. "
        "The mean p-value of the true labels of the test rows should be ½."
    )
    rows = [_row(found, name, variant) for variant, of in TRIED.items() for name in of.datasets]
    head = ["question", "dataset", "setting", "change", "held-out accuracy", "test accuracy"]
    head += ["held-out gain, points", "test gain, points", "p-value of the true label"]
    return Section(TITLE, paragraphs(how, table(head, rows)))


def effects(found: Found, name: str, setting: str) -> str:
    """Table cell: every change to the setting of a dataset, with its gain in test accuracy, in points (trials)."""
    effects = []
    for variant, of in TRIED.items():
        if of.setting == setting and name in of.datasets:
            changed, frozen = _measured(found, name, variant)
            effects.append(f"{of.what} {_gain(changed, frozen, 'accuracy')} ({len(changed.keys() & frozen.keys())})")
    return "; ".join(effects) or NONE


def gain(found: Found, name: str, variant: str) -> str:
    """How many points of test accuracy a change gains over the setting, in the same trials."""
    return _gain(*_measured(found, name, variant), "accuracy")


def _row(found: Found, name: str, variant: str) -> list[str]:
    of, kinds = TRIED[variant], ("held_out", "accuracy")
    changed, frozen = _measured(found, name, variant)
    spreads = [spread([measured[what] for measured in changed.values()]) for what in kinds]
    gaps = [_gain(changed, frozen, what) for what in kinds]
    p_values = [measured["true_label"] for measured in changed.values() if "true_label" in measured]
    return [of.asks, DATASETS[name].title, of.setting, of.what, *spreads, *gaps, spread(p_values)]


def _measured(found: Found, name: str, variant: str) -> tuple[Measured, Measured]:
    """Measurements by trial, with the change and without."""
    changed, frozen = (
        {
            record["seed"]: _marked(record["metrics"][experiment], Case(**record["case"]) in found.stale)
            for record in found.of((name, TRIED[variant].setting, "dwac"), variant=which)
            if "held_out" in record["metrics"].get(experiment, {})
        }
        for experiment, which in (("tried", variant), ("accuracy", None))
    )
    return changed, frozen


def _marked(measured: dict[str, Any], stale: bool) -> dict[str, float]:
    return {what: Value.of(value, stale) for what, value in measured.items() if isinstance(value, float | int)}


def _gain(changed: Measured, frozen: Measured, what: str) -> str:
    """Gain in points, over the trials that both have."""
    both = sorted(changed.keys() & frozen.keys())
    sides = [[by[trial][what] for trial in both] for by in (changed, frozen)]
    ours, theirs = (Value.of(sum(of) / max(len(of), 1), bool(mark(*of))) for of in sides)
    return points(ours, theirs if both else None)
