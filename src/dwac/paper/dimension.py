"""Figure 1: accuracy against the size of the embedding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dwac import metrics
from dwac.paper import figures, settings
from dwac.paper.cases import Case
from dwac.paper.fit import Fitted
from dwac.paper.tables import NOT_RUN, Found, Section, mean, paragraphs, picture, spread, table

TITLE = "Accuracy against |h| (Figure 1)"
DATASETS = ("adult", "covertype", "fashion_mnist", "stackoverflow")
SIZES = (2, 4, 8, 16, 32, 64)
QUICK_SIZES = (2, 8)
TRIALS = 1


def cases(*, quick: bool = False) -> Iterator[Case]:
    """The paper's models with other embeddings."""
    for name in DATASETS:
        for trial in range(TRIALS):
            for size in QUICK_SIZES if quick else SIZES:
                yield from (Case(name, "paper", head, trial, embedding_size=size) for head in settings.HEADS)


def measure(fitted: Fitted) -> dict[str, Any]:
    """Accuracy."""
    return {"accuracy": metrics.accuracy(fitted.trial.y_test, fitted.labels)}


def report(found: Found) -> Section:
    """Accuracy by |h|, as a table and as curves."""
    if not any("dimension" in record["metrics"] for record in found.all):
        return Section(TITLE, f"{NOT_RUN}.")
    rows = []
    for name in DATASETS:
        for head in settings.HEADS:
            values = [found.values((name, "paper", head), "dimension", "accuracy", embedding_size=h) for h in SIZES]
            rows.append([settings.DATASETS[name].title, _NAMES[head], *(spread(of_size) for of_size in values)])
    how = (
        "Accuracy of the paper's models on test rows, mean ± standard deviation over trials (number of trials). In the "
        "figure, solid with circles: DWAC; dashed with squares: softmax."
    )
    shown = picture("dimension", "Accuracy against the size of the embedding, a panel a dataset")
    text = paragraphs(how, shown, table(["dataset", "head", *(f"|h| = {size}" for size in SIZES)], rows))
    return Section(TITLE, text, {"dimension": lambda: _draw(found)})


_NAMES = {"dwac": "DWAC", "softmax": "softmax"}


def _draw(found: Found) -> Any:
    figure, axes = figures.new(1, len(DATASETS))
    for panel, name in zip(axes[0], DATASETS, strict=True):
        for series, head in enumerate(settings.HEADS):
            values = {h: found.values((name, "paper", head), "dimension", "accuracy", embedding_size=h) for h in SIZES}
            sizes = [h for h in SIZES if values[h]]
            means = [mean(values[h]) for h in sizes]
            panel.plot(sizes, means, label=_NAMES[head], **figures.style(series))
        panel.set_xscale("log", base=2)
        panel.set_xticks(SIZES, [str(size) for size in SIZES])
        figures.tidy(panel, title=settings.DATASETS[name].title, x="|h|", y="accuracy")
    axes[0, 0].legend(fontsize=7)
    return figure
