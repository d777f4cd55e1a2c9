"""Measures of a report: scores of classes, labels and groups, how much chance moves a share, and which rows are new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest
from sklearn.metrics import precision_recall_fscore_support

from dwac import _checks as checks
from dwac.estimator import DWACClassifier, DWACRegressor
from dwac.estimator.evaluation import amount
from dwac.metrics import roc_auc

Estimator = DWACClassifier | DWACRegressor

MEASURES = {"precision": "precision", "recall": "recall", "f1": "F1", "roc_auc": "ROC AUC"}  # with their titles
CLOSE = 1e-3  # relative difference of embeddings between batches or machines

# Numbers as text


def percent(share: float) -> str:
    """A share in per cent, with as many digits as are useful, on one line."""
    return checks.percent(share, most=3).replace(" ", "\u00a0")


def on_one_line(interval: str) -> str:
    """The same text, such as "0.88 to 0.94", that a narrow page does not break at "to"."""
    return interval.replace(" to ", "\u00a0to\u00a0")


def share(value: float | None) -> str:
    """A share in per cent; a dash if there is none."""
    return percent(value) if value is not None and value == value else "–"


def number(value: float, digits: int = 3) -> str:
    """A number; a dash if there is none."""
    return f"{value:.{digits}f}" if value == value else "–"


def of_100(share: float) -> str:
    """A share as "n of 100"; "more than 99" or "less than 1" if nearly all or none.

    >>> of_100(0.934), of_100(0.998), of_100(1), of_100(0.002)
    ('93 of 100', 'more than 99 of 100', '100 of 100', 'less than 1 of 100')
    """
    if np.isnan(share):
        return "an unknown number"  # none was tested
    if 0.995 <= share < 1:
        return "more than 99 of 100"
    return "less than 1 of 100" if 0 < share < 0.005 else f"{100 * share:.0f} of 100"


# Scores of each class or label


class Scores(NamedTuple):
    """One row per class with n and MEASURES, NaN where undefined; and their means over classes, and over decisions."""

    each: pd.DataFrame
    macro: dict[str, float]
    micro: dict[str, float]


def scores(truth: ArrayLike, predicted: ArrayLike, probabilities: ArrayLike) -> Scores:
    """Compare (n, L): which labels rows have, which are predicted, and their probabilities. ROC AUC is one-vs-rest.

    The measures are those of scikit-learn.

    >>> result = scores([[1, 0], [0, 1]], [[1, 0], [1, 0]], [[0.9, 0.1], [0.6, 0.4]])
    >>> result.each["recall"].tolist(), result.macro["roc_auc"]
    ([1.0, 0.0], 1.0)
    """
    has, predicts, p = np.asarray(truth, dtype=bool), np.asarray(predicted, dtype=bool), np.asarray(probabilities)
    each = pd.DataFrame(_three_scores(has, predicts, None)).assign(roc_auc=roc_auc(has, p))
    each.insert(0, "n", has.sum(axis=0))
    defined = each["roc_auc"].dropna()
    macro = _three_scores(has, predicts, "macro") | {"roc_auc": float(defined.mean()) if len(defined) else float("nan")}
    return Scores(
        each,
        macro,
        _three_scores(has, predicts, "micro") | {"roc_auc": float(roc_auc(has.reshape(-1, 1), p.reshape(-1, 1))[0])},
    )


def one_hot(codes: ArrayLike, n_classes: int) -> NDArray[np.bool_]:
    """(n, K): which class each row has."""
    return np.asarray(np.asarray(codes)[:, None] == np.arange(n_classes))


def _three_scores(has: NDArray[Any], predicts: NDArray[Any], average: str | None) -> dict[str, Any]:
    """Precision, recall and F1."""
    values = precision_recall_fscore_support(has, predicts, average=average, zero_division=np.nan)
    return dict(zip(MEASURES, values[:3], strict=False))


# How well the examples that rely on a group are predicted


class Measure(NamedTuple):
    """A name, a value of each example (n,), and how to write a mean."""

    name: str
    values: NDArray[Any]
    say: Callable[[float], str]

    @classmethod
    def of_labels(cls, predicted: NDArray[Any], truth: NDArray[Any]) -> Measure:
        """How often the label is right, (n,), or all of several labels are, (n, L)."""
        right = predicted == truth
        if right.ndim == 1:
            return cls("correct", right, percent)
        return cls("every label right", right.all(axis=1), percent)

    @classmethod
    def of_numbers(cls, predicted: NDArray[Any], truth: NDArray[Any], spread: NDArray[Any]) -> Measure:
        """The error of numbers (n, T), in units of their spread (T,) in training."""
        return cls("mean absolute error, in spreads", (np.abs(predicted - truth) / spread).mean(axis=1), amount)


# Chance


def likely_share(hits: ArrayLike) -> tuple[float, float]:
    """95 % confidence interval of a share, from n hits and misses (Wilson's interval).

    >>> low, high = likely_share([True] * 9 + [False])
    >>> round(low, 2), round(high, 2)
    (0.6, 0.98)
    """
    outcomes = np.asarray(hits, dtype=bool)
    interval = binomtest(int(outcomes.sum()), len(outcomes)).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


# Test examples that were used in training


def used_in_training(clf: Estimator, ids: pd.Index[Any], h: NDArray[Any]) -> NDArray[np.bool_]:
    """(n,): whether each example, by its id and embedding (n, d), was used for training, validation or calibration.

    Ids alone prove nothing: rows of any file may be numbered from 0. So the data count as training data only if most
    ids that voters have too come with the same embeddings; then ids decide which rows are new.

    >>> X = pd.DataFrame({"age": range(20, 80)})
    >>> clf = DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X[5:], X["age"][5:] < 50)
    >>> used_in_training(clf, X.index[:8], clf.embed(X[:8]))
    array([False, False, False, False, False,  True,  True,  True])
    """
    references = clf.references_.members or clf.references_
    voters: pd.Index[Any] = pd.Index(list(references.ids), tupleize_cols=False)
    where = voters.get_indexer(pd.Index(list(ids), tupleize_cols=False))
    known = where >= 0
    if not known.any():
        return known
    ref_h = references.embeddings.cpu().numpy()[where[known]].astype(np.float64)
    apart = np.linalg.norm(h[known] - ref_h, axis=1)
    same = apart <= CLOSE * (1 + np.linalg.norm(ref_h, axis=1))
    if same.mean() <= 0.5:
        return np.zeros(len(known), dtype=bool)
    return np.asarray(known | ids.isin(clf.validation_ids_) | ids.isin(clf.calibration_ids_))
