"""Figure 4: label sets that may err at a rate ε: how often they do, and how large they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dwac import metrics
from dwac.paper.cases import Case, plain_cases
from dwac.paper.fit import Fitted

TITLE = "Label sets against ε (Figure 4)"
EPSILONS = tuple(round(0.01 * step, 2) for step in range(1, 51))


def cases(*, quick: bool = False) -> Iterator[Case]:
    """Both heads of Table 2."""
    del quick
    yield from plain_cases()


def measure(fitted: Fitted) -> dict[str, Any]:
    """By nonconformity score: coverage, empty, multiple and mean size at each of `EPSILONS`; calibration rows."""
    found: dict[str, Any] = {"n_calibration": len(fitted.clf.calibration_y_)}
    for kind in fitted.kinds:
        curve = metrics.set_curve(fitted.trial.y_test, fitted.p_values(kind, fitted.test_votes), EPSILONS)
        columns = ("coverage", "empty", "multiple", "mean")
        found[kind] = {name: np.round(curve[name].to_numpy(), 5).tolist() for name in columns}
    return found
