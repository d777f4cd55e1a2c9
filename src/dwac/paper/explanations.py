"""Figure 3: a typical, a doubtful and a mistaken prediction, each with the training examples that voted most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dwac.paper import settings
from dwac.paper.cases import Case
from dwac.paper.fit import Fitted
from dwac.paper.rows import Ints, rows

TITLE = "Explanations (Figure 3)"
DATASETS = ("adult", "fashion_mnist", "cifar10", "subjectivity", "stackoverflow")
K = 5


def cases(*, quick: bool = False) -> Iterator[Case]:
    """The first trial of each vote."""
    del quick
    yield from (Case(name, setting, "dwac") for name in DATASETS for setting in settings.SETTINGS)


def measure(fitted: Fitted) -> dict[str, Any]:
    """The explanations as plain values; labels are places in the record's classes."""
    found = {}
    for kind, row in examples(fitted).items():
        explained = fitted.clf.explain(rows(fitted.trial.X_test, np.array([row])), k=K)[0].to_dict()
        del explained["attention"], explained["private"]
        found[kind] = {"row": row, "truth": int(fitted.trial.y_test[row]), **explained}
    return found


def examples(fitted: Fitted) -> dict[str, int]:
    """Test rows: typical, right and of middling credibility; doubtful, the least credible; mistaken, the surest error.

    A kind that no row is of is left out.
    """
    votes, right = fitted.test_votes, fitted.labels == fitted.trial.y_test
    credibility = fitted.p_values("weights", votes).max(axis=1)
    chosen = {}
    if right.any():
        chosen["typical"] = _first(right, np.abs(credibility - 0.5))
    # Its votes break ties, for many may have the least credibility there is.
    chosen["doubtful"] = _first(np.ones_like(right), votes.max(axis=1))
    if not right.all():
        chosen["mistaken"] = _first(~right, -credibility)
    return chosen


def _first(mask: Any, order: Any) -> int:
    """The row under the mask that comes first in the order."""
    found: Ints = np.flatnonzero(mask)
    return int(found[np.argmin(order[found])])
