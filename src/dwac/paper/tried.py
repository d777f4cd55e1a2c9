"""What was tried: settings with a change, beside the settings as they are frozen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dwac import metrics
from dwac.paper.cases import Case
from dwac.paper.fit import Fitted
from dwac.paper.settings import DATASETS
from dwac.paper.tables import NOT_RUN, Found, Section, mean, paragraphs, spread, table
from dwac.paper.variants import TRIED

TITLE = "What was tried"


def cases(*, quick: bool = False) -> Iterator[Case]:
    """Each variant on its datasets; of a quick run on the first."""
    for variant, of in TRIED.items():
        for name in of.datasets[:1] if quick else of.datasets:
            yield from (Case(name, of.setting, "dwac", trial, variant=variant) for trial in range(of.trials))


def measure(fitted: Fitted) -> dict[str, Any]:
    """Accuracy on rows held out of training, by which settings are chosen, and on the test rows."""
    accuracy = metrics.accuracy(fitted.trial.y_test, fitted.labels)
    return {"held_out": fitted.held_out_accuracy, "accuracy": accuracy}


def report(found: Found) -> Section:
    """A row a variant and dataset, with how much better the frozen setting is on the same trials."""
    how = (
        "Changes to the frozen settings of DWAC, and what became of accuracy on rows held out of training (by which "
        "settings are chosen) and on test rows; the last columns compare with the setting as it is, on the same trials."
    )
    rows = [_row(found, name, variant) for variant, of in TRIED.items() for name in of.datasets]
    head = ["dataset", "setting", "change", "held-out accuracy", "test accuracy"]
    head += ["held-out, points above the setting", "test, points above the setting"]
    return Section(TITLE, paragraphs(how, table(head, rows)))


def _row(found: Found, name: str, variant: str) -> list[str]:
    of = TRIED[variant]
    records = found.of(name, of.setting, "dwac", variant=variant)
    cells = []
    for what in ("held_out", "accuracy"):
        cells.append(spread([record["metrics"]["tried"][what] for record in records]))
    for what in ("held_out", "accuracy"):
        gaps = [record["metrics"]["tried"][what] - frozen for record in records
                if (frozen := _frozen(found, name, of.setting, record["seed"], what)) is not None]  # fmt: skip
        above = mean(gaps)
        cells.append(NOT_RUN if above is None else f"{100 * above:+.2f}")
    return [DATASETS[name].title, of.setting, of.what, *cells]


def _frozen(found: Found, name: str, setting: str, trial: int, what: str) -> float | None:
    record = found.get(Case(name, setting, "dwac", trial))
    value = None if record is None else record["metrics"].get("accuracy", {}).get(what)
    return None if value is None else float(value)
