"""Figure 1: accuracy against the size of the embedding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dwac import metrics
from dwac.paper import settings
from dwac.paper.cases import Case
from dwac.paper.fit import Fitted

TITLE = "Accuracy against |h| (Figure 1)"
DATASETS = ("adult", "covertype", "fashion_mnist", "stackoverflow")
SIZES = (2, 4, 8, 16, 32, 64)
QUICK_SIZES = (2, 8)
TRIALS = 3


def cases(*, quick: bool = False) -> Iterator[Case]:
    """The paper's models with other embeddings."""
    for name in DATASETS:
        for trial in range(TRIALS):
            for size in QUICK_SIZES if quick else SIZES:
                yield from (Case(name, "paper", head, trial, embedding_size=size) for head in settings.HEADS)


def measure(fitted: Fitted) -> dict[str, Any]:
    """Accuracy."""
    return {"accuracy": metrics.accuracy(fitted.trial.y_test, fitted.labels)}
