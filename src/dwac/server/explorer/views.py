"""Predictions for all loaded examples with the current voters: before and after edits.

examples = Examples.of(clf, X, y)        # without X: the training examples, each predicted without its own vote
view = first_view(clf, examples); later = view_after(view, examples, {7: None})
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac.server.answers import Model
from dwac.server.explorer.edits import Edits, edited
from dwac.server.explorer.examples import Examples
from dwac.server.explorer.tasks import task_of

_ROWS = 4096  # predicted at once

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class View:
    """A model with its current voters, the votes that it counted, and the predictions that follow."""

    clf: Any  # a `Model`
    votes: NDArray[np.float64]  # (n, …), as the task counts them
    predictions: Any
    edits: Edits
    private: bool


def first_view(clf: Model, examples: Examples, progress: Progress | None = None, *, private: bool = False) -> View:
    """Before any edit. private: predictions are rounded."""
    task, votes = task_of(clf), []
    for start in range(0, len(examples), _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(examples)))
        votes.append(task.counted(clf.references_, examples, rows, {}))
        if progress is not None:
            progress(int(rows[-1]) + 1, len(examples))
    counted = np.concatenate(votes) if votes else task.nobody()
    return View(clf, counted, task.predictions(clf, counted, examples, private=private), {}, private)


def view_after(first: View, examples: Examples, edits: Edits) -> View:
    """After edits, computed from the changes only, as far as that is exact."""
    task, clf = task_of(first.clf), edited(first.clf, edits)

    def recount(rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return task.counted(clf.references_, examples, rows, edits)

    votes = task.after(first.votes, examples, first.clf.references_, edits, recount)
    return View(clf, votes, task.predictions(clf, votes, examples, private=first.private), edits, first.private)
