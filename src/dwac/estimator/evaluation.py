"""A model's predictions, and how accurate and how well calibrated they are where the truth is known.

predictions = predict(clf, X)
predictions.frame(epsilon=0.05)                  # one row per example: label, probability, typicality, set, …
evaluate(predictions, y, epsilon=0.05).to_dict() # accuracy, log loss, calibration error, coverage, …; also by class

The same for each kind of target: `ClassPredictions` of classes and of ordered labels, `LabelPredictions` of several
labels, `NumberPredictions`, all in `dwac.tasks`.
"""

from __future__ import annotations

from typing import Any

from dwac.errors import EPSILON
from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.observed import Observed
from dwac.estimator.regressor import DWACRegressor
from dwac.tasks.by_group import GroupComparison, read_groups
from dwac.tasks.predicted_classes import ClassPredictions, Evaluation
from dwac.tasks.predicted_labels import LabelEvaluation, LabelPredictions
from dwac.tasks.predicted_numbers import NumberEvaluation, NumberPredictions
from dwac.tasks.predictions import Evaluated, Fact, Predictions, amount, as_csv

__all__ = [
    "ClassPredictions",
    "Evaluated",
    "Evaluation",
    "Fact",
    "GroupComparison",
    "LabelEvaluation",
    "LabelPredictions",
    "NumberEvaluation",
    "NumberPredictions",
    "Predictions",
    "amount",
    "as_csv",
    "evaluate",
    "predict",
    "read_groups",
]


def predict(clf: DWACClassifier | DWACRegressor, X: Any, *, private: bool | None = None) -> Any:
    """The model's predictions for X, as `Predictions` of its kind of target; rows that cannot be read are flagged.

    X: rows, or the result of `clf.observe` on them.
    private: round the numbers; by default for a model that was saved without its examples.
    """
    private = clf.private_ if private is None else private
    observed = X if isinstance(X, Observed) else clf.observe(X, private=private)
    return clf.sets_.predict(observed, private=private)


def evaluate(predictions: Predictions, y: Any, epsilon: float = EPSILON, *, strict: bool = True, **options: Any) -> Any:
    """Compare with the truth y. Rows that could not be read are only counted.

    strict: refuse labels that were not in training. Otherwise their rows count as wrong and not covered, as in the
    guarantee of prediction sets; if there are no other labels, y is probably the wrong column, and an error says so.
    options: `by`, the groups of the rows, as `read_groups` returns them, and `costs` of errors.
    """
    return predictions.evaluate(y, epsilon, strict=strict, **options)
