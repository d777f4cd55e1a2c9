"""The examples that a page shows, and their predictions with the current voters: before and after edits.

examples = LoadedExamples.of(clf, X, y)        # without X: the training examples, each predicted without its own vote
view = first_view(clf, examples); later = view_after(view, examples, {7: None})
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac.estimator.preparation import count, row_ids, take
from dwac.server.answers import Model
from dwac.server.explorer.edits import Edits, edit_model
from dwac.server.explorer.tasks import PageTask
from dwac.server.explorer.tasks.classes import ClassTask
from dwac.server.explorer.tasks.labels import LabelTask
from dwac.server.explorer.tasks.numbers import NumberTask
from dwac.tasks import LABELS, NUMBERS

NO_VOTER = -1  # the position of a row of data among the references
MOST = 20_000  # training examples to predict if no data is given

Ints = NDArray[np.int64]

_TASKS: dict[str, type[PageTask]] = {LABELS: LabelTask, NUMBERS: NumberTask}


def task_of(model: Any) -> PageTask:
    """The task of a page, by what a fitted model predicts."""
    return _TASKS.get(model.target_.kind, ClassTask)(model)


@dataclass(frozen=True, eq=False)
class LoadedExamples:
    """The examples to predict: rows of data, or training examples."""

    ids: pd.Index[Any]
    h: NDArray[Any]  # (n, d)
    truth: NDArray[Any]  # (n, …): their labels or numbers in the task's form, or placeholders for unknown ones
    own: Ints  # (n,) positions among the references; NO_VOTER for rows of data
    novelty: NDArray[np.float64]  # (n,) how unlike all voters they are; for training examples, all others
    X: Any = None  # the rows of data

    def __len__(self) -> int:
        return len(self.truth)

    @property
    def of_training(self) -> bool:
        """Whether these are training examples."""
        return self.X is None

    def row(self, i: int) -> Any:
        """A row of data as an X with one example."""
        return take(self.X, np.array([i]))

    @classmethod
    def of(
        cls,
        clf: Model,
        X: Any = None,
        y: Any = None,
        *,
        ids: Iterable[Hashable] | None = None,
        most: int = MOST,
    ) -> LoadedExamples:
        """Rows of X with labels y, if known; without X, training examples, evenly sampled if there are many."""
        references, task = clf.references_, task_of(clf)
        if X is None:
            m = len(references)
            own = np.arange(m) if m <= most else np.linspace(0, m - 1, most).astype(np.int64)
            h = references.embeddings.cpu().numpy()[own]
            names: pd.Index[Any] = pd.Index(list(references.ids[own]), tupleize_cols=False)
            novelty = clf.fitted_.novelty_of_voters(references, own)
            return cls(names, h, task.of_voters(references)[own], own, novelty)
        n = count(X)
        truth = task.unknown(n) if y is None else task.truth(y, n)
        h, novelty = clf.embed_with_novelty(X)
        return cls(row_ids(X, ids, n), h, truth, np.full(n, NO_VOTER), novelty, X)

    @classmethod
    def none(cls, clf: Model) -> LoadedExamples:
        """No examples: for a private model without data."""
        task: PageTask = task_of(clf)
        empty = np.zeros(0, dtype=np.int64)
        width = clf.references_.embeddings.shape[1]
        return cls(pd.Index([]), np.zeros((0, width)), task.unknown(0), empty, np.zeros(0))


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


def first_view(
    clf: Model, examples: LoadedExamples, progress: Progress | None = None, *, private: bool = False
) -> View:
    """The view before any edit. private: predictions are rounded."""
    task, votes = task_of(clf), []
    for start in range(0, len(examples), _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(examples)))
        votes.append(task.count_votes(clf.references_, examples, rows, {}))
        if progress is not None:
            progress(int(rows[-1]) + 1, len(examples))
    all_votes = np.concatenate(votes) if votes else task.no_votes()
    return View(clf, all_votes, task.predictions(clf, all_votes, examples, private=private), {}, private)


def view_after(first: View, examples: LoadedExamples, edits: Edits) -> View:
    """The view after edits, computed from the changes only, where that is exact."""
    task, clf = task_of(first.clf), edit_model(first.clf, edits)

    def recount(rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return task.count_votes(clf.references_, examples, rows, edits)

    votes = task.update_votes(first.votes, examples, first.clf.references_, edits, recount)
    return View(clf, votes, task.predictions(clf, votes, examples, private=first.private), edits, first.private)
