"""A model's predictions, and how accurate and how well calibrated they are where the truth is known.

predictions = predict(clf, X)
predictions.frame(epsilon=0.05)                  # one row per example: label, probability, typicality, set, …
evaluate(predictions, y, epsilon=0.05).to_dict() # accuracy, log loss, calibration error, coverage, …; also by class

The same for each kind of target: `Predictions` of classes and of ordered labels, `LabelPredictions` of several labels,
`NumberPredictions`.
"""

from __future__ import annotations

from typing import Any

from dwac.errors import EPSILON
from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.evaluation.classes import (
    Evaluation,
    OrderedEvaluation,
    Predictions,
    predict_classes,
    predictions_of,
)
from dwac.estimator.evaluation.common import Answers, Evaluated, Fact, amount, share
from dwac.estimator.evaluation.labels import LabelEvaluation, LabelPredictions, predict_labels
from dwac.estimator.evaluation.numbers import NumberEvaluation, NumberPredictions, predict_numbers
from dwac.estimator.evaluation.tables import as_csv, harmless_cell
from dwac.estimator.regressor import DWACRegressor
from dwac.tasks import CLASSES, LABELS, NUMBERS, ORDERED

__all__ = [
    "Answers",
    "Evaluated",
    "Evaluation",
    "Fact",
    "LabelEvaluation",
    "LabelPredictions",
    "NumberEvaluation",
    "NumberPredictions",
    "OrderedEvaluation",
    "Predictions",
    "amount",
    "as_csv",
    "evaluate",
    "harmless_cell",
    "predict",
    "predictions_of",
    "share",
]

_BY_TARGET = {CLASSES: predict_classes, ORDERED: predict_classes, LABELS: predict_labels, NUMBERS: predict_numbers}


def predict(clf: DWACClassifier | DWACRegressor, X: Any, *, private: bool | None = None) -> Any:
    """The model's predictions for X, as `Answers` of its kind of target; rows that cannot be read are flagged.

    X: rows, or the result of `clf.observe` on them.
    private: round the numbers; by default for a model that was saved without its examples.
    """
    rule: Any = _BY_TARGET[clf.target_.kind]
    return rule(clf, X, private=clf.private_ if private is None else private)


def evaluate(predictions: Answers, y: Any, epsilon: float = EPSILON, *, strict: bool = True) -> Any:
    """Compare with the truth y. Rows that could not be read are only counted.

    strict: refuse labels that were not in training. Otherwise their rows count as wrong and not covered, as in the
    guarantee of prediction sets; if there are no other labels, y is probably the wrong column, and an error says so.
    """
    return predictions.evaluate(y, epsilon, strict=strict)
