"""Figure 1: accuracy against the size of the embedding."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from dwac import metrics
from reproduction import figures, settings
from reproduction.cases import Case
from reproduction.fit import Fitted
from reproduction.tables import NAMES, NOT_RUN, Found, Section, paragraphs, picture, spread, table

TITLE = "Accuracy against |h| (Figure 1)"
DATASETS = ("adult", "covertype", "fashion_mnist", "stackoverflow")
SIZES = (2, 4, 8, 16, 32, 64)
TRIALS = 3
SPAN = 0.04  # smallest range of accuracy per panel, so that small differences do not look large


def cases() -> Iterator[Case]:
    """The paper's models with other embedding sizes."""
    for name, trial, size in product(DATASETS, range(TRIALS), SIZES):
        yield from (Case(name, "paper", head, trial, embedding_size=size) for head in settings.HEADS)


def measure(fitted: Fitted) -> dict[str, Any]:
    """Accuracy."""
    return {"accuracy": metrics.accuracy(fitted.trial.y_test, fitted.labels)}


# The report


def report(found: Found) -> Section:
    """Accuracy by |h|, as a table and as curves."""
    values = {
        (name, head): [found.values((name, "paper", head), "dimension", "accuracy", embedding_size=h) for h in SIZES]
        for name in DATASETS
        for head in settings.HEADS
    }
    if not any(any(by_size) for by_size in values.values()):
        return Section(TITLE, f"{NOT_RUN}.")
    how = (
        "Accuracy of the paper's models on test rows with embeddings of each size (number of trials in parentheses). "
        "In the figure, DWAC is solid with circles, softmax dashed with squares."
    )
    shown = picture("dimension", "Accuracy against the size of the embedding, one panel per dataset")
    rows = [[settings.DATASETS[name].title, NAMES[head], *map(spread, row)] for (name, head), row in values.items()]
    text = paragraphs(how, shown, table(["dataset", "head", *(f"|h| = {size}" for size in SIZES)], rows))
    return Section(TITLE, text, {"dimension": partial(_draw, values)})


def _draw(values: dict[tuple[str, str], list[list[float]]]) -> Any:
    figure, axes = figures.new(1, len(DATASETS))
    for panel, name in zip(axes[0], DATASETS, strict=True):
        panel.set_xscale("log", base=2)  # before anything is drawn: a panel without records has no other limits
        for series, head in enumerate(settings.HEADS):
            curve = {h: sum(of) / len(of) for h, of in zip(SIZES, values[name, head], strict=True) if of}
            panel.plot(list(curve), list(curve.values()), label=NAMES[head], **figures.style(series))
        low, high = panel.get_ylim()
        spare = max(0, SPAN - (high - low)) / 2
        panel.set_ylim(low - spare, high + spare)
        panel.set_xticks(SIZES, [str(size) for size in SIZES])
        figures.tidy(panel, title=settings.DATASETS[name].title, x="|h|", y="accuracy")
    axes[0, 0].legend(fontsize=7)
    return figure
