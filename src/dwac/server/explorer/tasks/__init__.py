"""What the page does differently by what the model predicts: one label, several labels or numbers."""

from typing import Any

from dwac.estimator.targets import LABELS, NUMBERS
from dwac.server.explorer.tasks.classes import ClassTask
from dwac.server.explorer.tasks.common import NONE, Task
from dwac.server.explorer.tasks.labels import LabelTask
from dwac.server.explorer.tasks.numbers import NumberTask

__all__ = ["NONE", "Task", "task_of"]

_TASKS: dict[str, type[Task]] = {LABELS: LabelTask, NUMBERS: NumberTask}


def task_of(model: Any) -> Task:
    """The task of a fitted model."""
    return _TASKS.get(model.target_.kind, ClassTask)(model)
