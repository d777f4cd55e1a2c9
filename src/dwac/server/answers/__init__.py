"""Answers of a model to the requests of the service: one class per task, each with its schemas."""

from dwac.estimator.targets import LABELS, NUMBERS
from dwac.server.answers.classes import ClassAnswers
from dwac.server.answers.common import Answers, Model, Predicted
from dwac.server.answers.labels import LabelAnswers
from dwac.server.answers.numbers import NumberAnswers
from dwac.server.inputs import Reader
from dwac.server.watch import Watch

__all__ = ["Answers", "Model", "Predicted", "answers_of"]

_TASKS: dict[str, type[Answers]] = {LABELS: LabelAnswers, NUMBERS: NumberAnswers}


def answers_of(model: Model, reader: Reader, *, private: bool, watch: Watch | None = None) -> Answers:
    """The answers of a fitted model, by what it predicts."""
    return _TASKS.get(model.target_.kind, ClassAnswers)(model, reader, private, watch)
