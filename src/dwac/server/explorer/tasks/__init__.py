"""The task of a page: how votes are counted, which columns the map has, what edits change, what lists show."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from dwac.drawing.records import plain
from dwac.errors import InputError
from dwac.estimator.preparation import read_within
from dwac.reference import ReferenceSet
from dwac.report.measures import Measure
from dwac.report.wrong_labels import leave_one_out
from dwac.server.answers import silent
from dwac.server.explorer.edits import Edits, votes_after
from dwac.tasks.base import Evidence

NONE = 65535  # a code for "no label"
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Recount = Callable[[Ints], Floats]  # rows -> their votes, counted in full


@dataclass(frozen=True)
class PageTask(ABC):
    """The parts of the page that depend on what the model predicts."""

    clf: Any  # before any edit
    columns: ClassVar[Mapping[str, str]]  # of the map, besides those of all tasks, and their number types

    # Labels and numbers of examples

    def truth(self, y: Any, n: int) -> NDArray[Any]:
        """The labels or numbers of rows of data: codes (n,), or indicators of several labels or numbers (n, T)."""
        codes, exact = self.clf.target_.read(y, n, strict=False)
        return np.asarray(exact if exact.shape[1] else codes)

    @abstractmethod
    def unknown(self, n: int) -> NDArray[Any]:
        """(n, …): placeholders for unknown labels or numbers."""

    @abstractmethod
    def of_voters(self, references: ReferenceSet) -> NDArray[Any]:
        """(m, …): the labels or numbers that training examples vote for."""

    @abstractmethod
    def known(self, truth: NDArray[Any]) -> NDArray[np.bool_]:
        """(n,): which of these are known."""

    @abstractmethod
    def named(self, value: Any) -> Any:
        """A label or number, as in `truth` or in an edit, as a JSON value; None if it is not known."""

    def value_of(self, references: ReferenceSet, place: int) -> Any:
        """The vote of a training example, in the form of edits."""
        return int(references.labels[place])

    @abstractmethod
    def new_value(self, step: Any) -> Any:
        """The new label or number that an edit gives a training example, checked; hashable."""

    # Votes

    @abstractmethod
    def no_votes(self) -> Floats:
        """The votes for an empty set of examples."""

    @abstractmethod
    def count_votes(self, references: ReferenceSet, examples: Any, rows: Ints, edits: Edits) -> Floats:
        """(r, …): votes on some examples, counted in full; without the own vote of a training example."""

    @abstractmethod
    def update_votes(
        self, votes: Floats, examples: Any, references: ReferenceSet, edits: Edits, recount: Recount
    ) -> Floats:
        """(n, …): votes after edits, from those before (of `references`) and the changes only, where that is exact."""

    @abstractmethod
    def predictions(self, clf: Any, votes: Floats, examples: Any, *, private: bool) -> Any:
        """The predictions from the votes; with `typicality` (n,) or None."""

    @abstractmethod
    def codes(self, predictions: Any) -> Ints:
        """(n,): the outcomes whose groups place the examples on the map."""

    # The page

    @abstractmethod
    def column(self, name: str, points: Any, view: Any, epsilon: float) -> NDArray[Any]:
        """One of `columns`, for all points or for those with predictions."""

    @abstractmethod
    def start(self, explorer: Any) -> dict[str, Any]:
        """What the page needs at the start, besides the part common to all tasks."""

    def disc(self, references: ReferenceSet) -> dict[str, list[Any]]:
        """The values that the discs of the map show: a list per name, one entry per disc."""
        return {"label": references.groups.leaf_labels.tolist()}

    def named_disc(self, references: ReferenceSet, disc: int) -> Any:
        """What the members of a disc vote for, as a JSON value."""
        return self.named(references.groups.leaf_labels[disc])

    @abstractmethod
    def changed_rows(self, before: Any, after: Any) -> Ints:
        """The rows whose predictions the edits change; the largest changes first where they can be compared."""

    @abstractmethod
    def summary(self, predictions: Any, row: int) -> dict[str, Any]:
        """One prediction in short, for a list."""

    @abstractmethod
    def frame(self, predictions: Any, truth: NDArray[Any], epsilon: float) -> pd.DataFrame:
        """All loaded examples: their labels or numbers and predictions."""

    @abstractmethod
    def disagreeing_rows(self, ours: Any, theirs: Any) -> Ints:
        """The rows on which two models disagree, the most striking first."""

    def errors(self, predictions: Any, truth: NDArray[Any]) -> list[dict[str, Any]]:
        """The examples whose labels or numbers are furthest from what the others vote for: row and difference."""
        del predictions, truth
        raise InputError("this model has labels to check instead")

    # Two models

    predicts: ClassVar[str] = "one label per row"

    def comparable(self, other: PageTask) -> bool:
        """Whether a second model predicts the same."""
        return type(self) is type(other)

    # One example

    def vote(self, explanation: Any, label: int) -> Any:
        """The vote that the page shows; with several labels, the vote on one, by its position among the names."""
        del label
        return explanation

    @abstractmethod
    def goal(self, other: Any, label: int) -> Any:
        """What a page compares an example with or wants it to get, as `reasons` and `recourse` take it; None: nothing.

        label: which of several labels or numbers is in question.
        """

    def which(self, label: int) -> dict[str, Any]:
        """Which of several numbers is in question, as `reasons` takes it."""
        del label
        return {}

    def counted(self, code: int | None, label: int) -> Any:
        """The label to which contributions are counted over many examples, by its code; None: what each gets."""
        del code, label

    def more(self, explanation: Any) -> dict[str, Any]:
        """What the page shows besides the vote."""
        del explanation
        return {}

    def without_record(self, explanation: Any) -> Any:
        """An explanation that does not show the example itself."""
        return replace(explanation, record=None, attention=None)

    def discs_of(self, group: Any, references: ReferenceSet) -> list[int]:
        """The discs of the map that a group of an explanation is made of: leaves are the same in any grouping."""
        places = references.voters.ids.get_indexer(pd.Index(group.ids, tupleize_cols=False))
        discs: list[int] = np.unique(references.groups.leaves[places[places >= 0]]).tolist()
        return discs

    @abstractmethod
    def measure(self, predictions: Any, truth: NDArray[Any]) -> Measure:
        """How well examples are predicted, as in the report."""

    def explain(self, clf: Any, X: Any, k: int, epsilon: float, *, private: bool) -> Any:
        """The explanation of one row of data."""
        with silent():
            return clf.explain(X, k, epsilon=epsilon, private=private)[0]

    def explain_voter(self, clf: Any, h: Any, k: int, epsilon: float, **options: Any) -> Any:
        """The explanation of a training example by the others."""
        with silent():
            return clf.explain_of(h, k, epsilon=epsilon, **options)[0]

    def scores(self, clf: Any, X: Any) -> Floats:
        """(n, S): the outputs that depend on X: probabilities, or numbers."""
        return np.asarray(clf.predict_proba(X), dtype=np.float64)

    def subject(self, scores: Floats, label: int) -> int:
        """The index of the score of one example (S,) that the page shows; label: the chosen one of several."""
        return min(max(label, 0), len(scores) - 1)

    @property
    def subjects(self) -> list[Any]:
        """The names of the scores."""
        return list(self.clf.classes_)

    def predicted_code(self, explanation: Any) -> int:
        """The outcome whose groups place an explained example on the map."""
        raise NotImplementedError


class VotedTask(PageTask):
    """Tasks whose outcomes have codes: examples vote for codes, and votes are log class weights (n, K)."""

    outcome: ClassVar[str] = "a class"

    @cached_property
    def _names(self) -> list[Any]:
        names: list[Any] = plain(self.clf.classes_)
        return names

    def no_votes(self) -> Floats:
        """(0, K)."""
        return np.zeros((0, self.clf.target_.n_codes))

    def count_votes(self, references: ReferenceSet, examples: Any, rows: Ints, edits: Edits) -> Floats:
        """(r, K)."""
        h = torch.as_tensor(examples.h[rows]).to(references.embeddings)
        if not examples.of_training:
            return np.asarray(references.log_class_weights(h).cpu().numpy())
        own, voting = places_after(examples.own[rows], edits)
        votes = np.empty((len(rows), references.n_classes))
        if voting.any():
            votes[voting] = leave_one_out(references, own[voting])
        if not voting.all():
            out = torch.as_tensor(~voting, device=h.device)
            votes[~voting] = references.log_class_weights(h[out]).cpu().numpy()
        return votes

    def update_votes(
        self, votes: Floats, examples: Any, references: ReferenceSet, edits: Edits, recount: Recount
    ) -> Floats:
        """(n, K)."""
        return votes_after(votes, examples.h, examples.own, references, edits, recount)

    def new_value(self, step: Any) -> int:
        """The code of another outcome."""
        most = self.clf.target_.n_codes - 1
        if not isinstance(step.label, int) or not 0 <= step.label <= most:
            raise InputError(f"label must be the code of {self.outcome}, 0 … {most}; got {step.label}")
        return step.label

    def frame(self, predictions: Any, truth: NDArray[Any], epsilon: float) -> pd.DataFrame:
        """Their labels first, and then the columns of an answer."""
        with silent():  # the page explains next to the slider what a very small ε cannot do
            frame: pd.DataFrame = predictions.frame(epsilon).drop(columns="unreadable")  # all rows can be read
        name = str(frame.columns[0])
        frame = frame.rename(columns={name: "predicted"})
        frame.insert(0, name, [self.named(value) for value in truth])
        return frame

    def evidence(self, clf: Any, votes: Floats, examples: Any) -> Evidence:
        """The same as `clf.evidence`, for rows that can all be read."""
        names = examples.ids if examples.of_training else None
        by_fold = clf.fitted_.fold_votes(examples.h, names)
        return Evidence(votes, None, examples.novelty, by_fold, groups_of(clf, examples), examples.h)


def groups_of(clf: Any, examples: Any) -> NDArray[Any] | None:
    """(n,): the groups of rows of data, for guarantees within each; None for a model without them."""
    columns = clf.fitted_.settings.within
    if columns is None or examples.of_training or clf.fitted_.within is None:
        return None
    names = read_within(None, columns, examples.X, examples.ids)
    return None if names is None else np.asarray(names.to_numpy())


def places_after(own: Ints, edits: Edits) -> tuple[Ints, NDArray[np.bool_]]:
    """(positions (n,) of training examples among the voters after edits, whether each still votes)."""
    removed = np.sort([place for place, value in edits.items() if value is None]).astype(np.int64)
    return own - np.searchsorted(removed, own), ~np.isin(own, removed)
