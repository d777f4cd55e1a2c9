"""Figure 2: embeddings in the plane, |h| = 2: training examples and where test examples fall among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dwac.paper.cases import Case
from dwac.paper.fit import Fitted

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
