"""Predictions for all loaded examples with the current voters: before and after edits.

examples = Examples.of(clf, X, y)        # without X: the training examples, each predicted without its own vote
view = first_view(clf, examples); later = view_after(view, examples, {7: None})
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.evaluation import Predictions, predictions_of
from dwac.estimator.preparation import count, encode_known, row_ids, rows_of, take
from dwac.report.label_issues import leave_one_out
from dwac.server.explorer.edits import Edits, edited, votes_after

UNKNOWN = -1
MOST = 20_000  # training examples to predict if no data is given
_ROWS = 4096  # predicted at once

Ints = NDArray[np.int64]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Examples:
    """The examples to predict: rows of data, or training examples."""

    ids: pd.Index[Any]
    h: NDArray[Any]  # (n, d)
    truth: Ints  # (n,) codes of their labels, or UNKNOWN
    own: Ints  # (n,) positions among the references; UNKNOWN for rows of data
    novelty: NDArray[np.float64]  # (n,) how unlike all voters they are; of training examples, unlike all others
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
        clf: DWACClassifier,
        X: Any = None,
        y: Any = None,
        *,
        ids: Iterable[Hashable] | None = None,
        most: int = MOST,
    ) -> Examples:
        """Rows of X with labels y, if known; without X, training examples, evenly sampled if there are many."""
        references = clf.references_
        if X is None:
            m = len(references)
            own = np.arange(m) if m <= most else np.linspace(0, m - 1, most).astype(np.int64)
            h = references.embeddings.cpu().numpy()[own]
            names: pd.Index[Any] = pd.Index(list(references.ids[own]), tupleize_cols=False)
            novelty = clf.novelty_of_voters(references, own)
            return cls(names, h, references.labels.cpu().numpy()[own], own, novelty)
        X = rows_of(list(X) if isinstance(X, tuple) and clf.encoder_.kind != "module" else X)
        n = count(X)
        truth = np.full(n, UNKNOWN) if y is None else encode_known(y, n, clf.classes_, strict=False)
        h, novelty = clf.embed_with_novelty(X)
        return cls(row_ids(X, ids, n), h, truth, np.full(n, UNKNOWN), novelty, X)

    @classmethod
    def none(cls, clf: DWACClassifier) -> Examples:
        """No examples: for a private model without data."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(pd.Index([]), np.zeros((0, clf.references_.embeddings.shape[1])), empty, empty, np.zeros(0))


@dataclass(frozen=True, eq=False)
class View:
    """A classifier with its current voters, and its predictions."""

    clf: DWACClassifier
    predictions: Predictions
    edits: Edits


def first_view(
    clf: DWACClassifier, examples: Examples, progress: Progress | None = None, *, private: bool = False
) -> View:
    """Before any edit. private: predictions are rounded."""
    votes = [np.zeros((0, len(clf.classes_)))]
    for start in range(0, len(examples), _ROWS):
        votes.append(_votes(clf, examples, np.arange(start, min(start + _ROWS, len(examples))), {}))
        if progress is not None:
            progress(min(start + _ROWS, len(examples)), len(examples))
    return _view(clf, np.concatenate(votes), examples, {}, private)


def view_after(first: View, examples: Examples, edits: Edits) -> View:
    """After edits, computed from the changes only, as far as that is exact."""
    clf = edited(first.clf, edits)

    def recount(rows: Ints) -> NDArray[np.float64]:
        return _votes(clf, examples, rows, edits)

    votes = votes_after(
        first.predictions.log_class_weights, examples.h, examples.own, first.clf.references_, edits, recount
    )
    return _view(clf, votes, examples, edits, first.predictions.private)


def _view(clf: DWACClassifier, votes: NDArray[np.float64], examples: Examples, edits: Edits, private: bool) -> View:
    if len(votes) == 0:
        return View(clf, Predictions(votes, clf.classes_, None, private=private), edits)
    by_fold = clf.fold_votes(examples.h, examples.ids if examples.of_training else None)
    given = {"novelty": examples.novelty, "fold_votes": by_fold}
    return View(clf, predictions_of(clf, votes, **given, private=private), edits)


def _votes(clf: DWACClassifier, examples: Examples, rows: Ints, edits: Edits) -> NDArray[np.float64]:
    """Votes on some examples, counted in full; without the own vote of a training example."""
    references = clf.references_
    h = torch.as_tensor(examples.h[rows]).to(references.embeddings)
    if not examples.of_training:
        return np.asarray(references.log_class_weights(h).cpu().numpy())
    removed = np.sort([place for place, label in edits.items() if label is None]).astype(np.int64)
    own = examples.own[rows]
    voting = ~np.isin(own, removed)
    votes = np.empty((len(rows), references.n_classes))
    if voting.any():
        votes[voting] = leave_one_out(references, own[voting] - np.searchsorted(removed, own[voting]))
    if not voting.all():
        out = torch.as_tensor(~voting, device=h.device)
        votes[~voting] = references.log_class_weights(h[out]).cpu().numpy()
    return votes
