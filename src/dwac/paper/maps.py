"""Figure 2: embeddings in the plane, |h| = 2: training examples and where test examples fall among them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dwac.paper import figures
from dwac.paper.cases import Case
from dwac.paper.fit import Fitted
from dwac.paper.settings import DATASETS as DATA
from dwac.paper.tables import NOT_RUN, Draw, Found, Section, paragraphs, picture

TITLE = "Maps (Figure 2)"
DATASETS = ("fashion_mnist", "covertype", "stackoverflow", "amazon_beauty")
MOST = 2000  # points of each kind


def cases(*, quick: bool = False) -> Iterator[Case]:
    """The paper's model with |h| = 2, once a dataset."""
    del quick
    yield from (Case(name, "paper", "dwac", embedding_size=2) for name in DATASETS)


def measure(fitted: Fitted) -> dict[str, Any]:
    """Points x, y and labels of test rows and of references, and the accuracy on all test rows."""
    references, trial = fitted.clf.references_, fitted.trial
    shown = fitted.library.sample(np.arange(len(trial.y_test)), MOST, 0)
    voters = fitted.library.sample(np.arange(len(references)), MOST, 0)
    test = _points(fitted.test_h[shown], trial.y_test[shown])
    training = _points(references.embeddings.cpu().numpy()[voters], references.labels.cpu().numpy()[voters])
    return {"accuracy": float(np.mean(fitted.labels == trial.y_test)), "test": test, "references": training}


def _points(h: Any, labels: Any) -> dict[str, list[Any]]:
    return {"x": h[:, 0].round(3).tolist(), "y": h[:, 1].round(3).tolist(), "label": labels.tolist()}


def report(found: Found) -> Section:
    """A map a dataset."""
    parts = [
        "With |h| = 2 the embedding is a map: on the left training examples, which vote; on the right test examples, "
        f"by their true class. Up to {MOST:,} points each, of the paper's model."
    ]
    drawn: dict[str, Draw] = {}
    for case in cases():
        title, record = DATA[case.dataset].title, found.get(case)
        if record is None or "maps" not in record["metrics"]:
            parts.append(f"**{title}**: {NOT_RUN}.")
            continue
        name = f"map-{case.dataset}"
        parts.append(f"**{title}**, accuracy {record['metrics']['maps']['accuracy']:.4f}:")
        parts.append(picture(name, f"Two-dimensional embeddings of {title}: training and test examples by class"))
        drawn[name] = partial(_draw, record)
    return Section(TITLE, paragraphs(*parts), drawn)


def _draw(record: dict[str, Any]) -> Any:
    points = record["metrics"]["maps"]
    figure, axes = figures.new(1, 2, width=4.2, height=4.2)
    for panel, part, title in zip(axes[0], ("references", "test"), ("training examples", "test examples"), strict=True):
        figures.scatter(panel, points[part], record["classes"])
        figures.tidy(panel, title=title)
    figures.share_limits(axes[0])
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=5, fontsize=7, markerscale=2, frameon=False)
    return figure
