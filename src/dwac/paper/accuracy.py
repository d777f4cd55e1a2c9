"""Table 2: accuracy and calibration of both heads, beside the published numbers and the peers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dwac import metrics
from dwac.paper.cases import Case, plain_cases
from dwac.paper.fit import Fitted

TITLE = "Accuracy and calibration (Table 2)"


def cases(*, quick: bool = False) -> Iterator[Case]:
    """Every dataset, setting, head and trial, and the peers."""
    del quick
    yield from plain_cases(peers=True)


def measure(fitted: Fitted) -> dict[str, Any]:
    """Accuracy, and where there are probabilities calibration error and log-loss."""
    y = fitted.trial.y_test
    found: dict[str, Any] = {"accuracy": metrics.accuracy(y, fitted.labels)}
    if fitted.votes is not None:
        log_p = fitted.votes - np.logaddexp.reduce(fitted.votes, axis=1, keepdims=True)
        p = np.exp(log_p)
        found["calibration_error"] = metrics.calibration_error(y, p)
        found["calibration_error_research"] = metrics.calibration_error(y, p, research_divisor=True)
        found["log_loss"] = metrics.log_loss(y, log_p)
    return found
