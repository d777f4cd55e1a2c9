"""Figure 2: embeddings in the plane, |h| = 2: training examples and test examples among them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dwac import metrics
from reproduction import figures
from reproduction.cases import Case
from reproduction.fit import Fitted
from reproduction.settings import DATASETS as DATA
from reproduction.tables import NOT_RUN, STALE, Draw, Found, Section, paragraphs, picture

TITLE = "Maps (Figure 2)"
DATASETS = ("fashion_mnist", "covertype", "stackoverflow", "amazon_beauty")
MOST = 2000  # points per panel


def cases() -> Iterator[Case]:
    """The paper's model with |h| = 2, once per dataset."""
    yield from (Case(name, "paper", "dwac", embedding_size=2) for name in DATASETS)


def measure(fitted: Fitted) -> dict[str, Any]:
    """Points x, y and labels of test rows and of references, and the accuracy on all test rows."""
    references, trial = fitted.clf.references_, fitted.trial
    shown = fitted.library.sample(np.arange(len(trial.y_test)), MOST, 0)
    voters = fitted.library.sample(np.arange(len(references)), MOST, 0)
    test = _points(fitted.test_h[shown], trial.y_test[shown])
    training = _points(references.embeddings.cpu().numpy()[voters], references.labels.cpu().numpy()[voters])
    return {"accuracy": metrics.accuracy(trial.y_test, fitted.labels), "test": test, "references": training}


def _points(h: Any, labels: Any) -> dict[str, list[Any]]:
    return {"x": h[:, 0].round(3).tolist(), "y": h[:, 1].round(3).tolist(), "label": labels.tolist()}


# The report


def report(found: Found) -> Section:
    """One map per dataset."""
    parts = [
        "With |h| = 2 the embedding is a map: training examples, which vote, on the left; test examples by true class "
        f"on the right. Up to {MOST:,} points each, from the paper's model; the name of a class is at the median of "
        "its training examples."
    ]
    drawn: dict[str, Draw] = {}
    for case in cases():
        title, measured, name = DATA[case.dataset].title, found.get(case, "maps"), f"map-{case.dataset}"
        if measured is None:
            parts.append(f"**{title}**: {NOT_RUN}.")
            continue
        parts.append(f"**{title}**, accuracy {measured['accuracy']:.4f}{STALE * (case in found.stale)}:")
        parts.append(picture(name, f"Two-dimensional embeddings of {title}: training and test examples by class"))
        drawn[name] = partial(_draw, measured, found.by_case[case]["classes"])
    return Section(TITLE, paragraphs(*parts), drawn)


def _draw(measured: dict[str, Any], classes: list[str]) -> Any:
    figure, axes = figures.new(1, 2, width=4.2, height=4.2)
    for panel, part, title in zip(axes[0], ("references", "test"), ("training examples", "test examples"), strict=True):
        figures.scatter(panel, measured[part], classes, measured["references"])
        figures.tidy(panel, title=title)
    figures.share_limits(axes[0])
    figures.legend(figure, axes, columns=5, markerscale=2)
    return figure
