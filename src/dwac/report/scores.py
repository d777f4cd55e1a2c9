"""Precision, recall, F1 and ROC AUC of each class or label, as scikit-learn measures them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import precision_recall_fscore_support, roc_auc_score

MEASURES = ("precision", "recall", "f1", "roc_auc")


class Scores(NamedTuple):
    """One row per class with n and MEASURES, NaN where undefined; and their means over classes, and over decisions."""

    each: pd.DataFrame
    macro: dict[str, float]
    micro: dict[str, float]


def scores(truth: ArrayLike, predicted: ArrayLike, probabilities: ArrayLike) -> Scores:
    """Compare (n, L): which labels rows have, which are predicted, and their probabilities. ROC AUC is one-vs-rest.

    >>> found = scores([[1, 0], [0, 1]], [[1, 0], [1, 0]], [[0.9, 0.1], [0.6, 0.4]])
    >>> found.each["recall"].tolist(), found.macro["roc_auc"]
    ([1.0, 0.0], 1.0)
    """
    has, told, p = np.asarray(truth, dtype=bool), np.asarray(predicted, dtype=bool), np.asarray(probabilities)
    each = pd.DataFrame(_measured(has, told, None)).assign(
        roc_auc=[_auc(*pair) for pair in zip(has.T, p.T, strict=True)]
    )
    each.insert(0, "n", has.sum(axis=0))
    defined = each["roc_auc"].dropna()
    macro = _measured(has, told, "macro") | {"roc_auc": float(defined.mean()) if len(defined) else float("nan")}
    return Scores(each, macro, _measured(has, told, "micro") | {"roc_auc": _auc(has.ravel(), p.ravel())})


def one_hot(codes: ArrayLike, n_classes: int) -> NDArray[np.bool_]:
    """(n, K): which class each row has."""
    return np.asarray(np.asarray(codes)[:, None] == np.arange(n_classes))


def _measured(has: NDArray[Any], told: NDArray[Any], average: str | None) -> dict[str, Any]:
    found = precision_recall_fscore_support(has, told, average=average, zero_division=np.nan)
    return dict(zip(MEASURES, found[:3], strict=False))


def _auc(has: NDArray[Any], p: NDArray[Any]) -> float:
    """NaN if all rows have the label, or none."""
    return float(roc_auc_score(has, p)) if has.any() and not has.all() else float("nan")
