"""Edits of who votes: training examples that are taken out or get another label, and what that changes. All exact.

other = edited(clf, {7: None, 9: 2})     # without example 7, and 9 with the label of code 2; clf stays as it was
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from dwac.estimator.classifier import DWACClassifier
from dwac.kernels import log_weights
from dwac.nn import WeightedAverage
from dwac.reference import ReferenceSet
from dwac.server.refusals import RefusalError

Floats = NDArray[np.float64]
Edits = Mapping[int, int | None]  # by place among the references: the code of the new label, None for taken out

_MOST = 10_000  # edits of one page
_CELLS = 2**22  # weights in memory at once
_LEAST = 0.25  # share of a class's votes that must stay for a difference to be exact to some 1e-4
_NEAR = 1e-3  # lead of a label, in log, below which its votes are counted afresh


@dataclass(frozen=True)
class Edit:
    """One example's place among the references, its label before, and its new one; None: it is taken out."""

    place: int
    before: int
    label: int | None


@dataclass(frozen=True)
class History:
    """What was done, and what was undone and can be done again."""

    done: tuple[Edit, ...] = ()
    undone: tuple[Edit, ...] = field(default=())

    @property
    def net(self) -> dict[int, int | None]:
        """Where all of it leads."""
        return {edit.place: edit.label for edit in self.done}

    def add(self, place: int, label: int | None, labels: NDArray[np.int64]) -> History:
        """One more; `labels` are those before any edit."""
        now = self.net.get(place, int(labels[place]))
        if now is None:
            raise RefusalError(409, "removed", "this example was removed; undo that first")
        if now == label:
            raise RefusalError(409, "same_label", "the example has this label already; choose another one")
        if len(self.done) >= _MOST:
            raise RefusalError(409, "too_many_edits", f"{_MOST:,} edits are enough; export them and begin anew")
        return History((*self.done, Edit(place, now, label)))

    def undo(self) -> History:
        """Without the last one."""
        if not self.done:
            raise RefusalError(409, "nothing_to_undo", "there is nothing to undo")
        return replace(self, done=self.done[:-1], undone=(*self.undone, self.done[-1]))

    def redo(self) -> History:
        """With the one that was undone last."""
        if not self.undone:
            raise RefusalError(409, "nothing_to_redo", "there is nothing to do again")
        return replace(self, done=(*self.done, self.undone[-1]), undone=self.undone[:-1])


def edited(clf: DWACClassifier, edits: Edits) -> DWACClassifier:
    """The same classifier with other voters: all but the reference set is shared, and nothing of it changed.

    How strange an example is stays as it was: an edit takes votes away, and leaves known what is known.
    """
    other, model = copy(clf), copy(clf.model_)
    assert isinstance(model, WeightedAverage)
    if model.known is not None:
        model.known = model.known.fixed(clf.references_.index_of_ids)
    model.references = voters(clf.references_, edits)
    other.model_ = model
    return other


def voters(references: ReferenceSet, edits: Edits) -> ReferenceSet:
    """The references after the edits; the set itself stays as it is."""
    changed, ids = copy(references), references.ids
    relabelled = {place: label for place, label in edits.items() if label is not None}
    removed = [place for place, label in edits.items() if label is None]
    if relabelled:
        changed.relabel([ids[place] for place in relabelled], list(relabelled.values()))
    if removed:
        changed.remove([ids[place] for place in removed])
    return changed


def votes_after(
    votes: Floats,
    h: Floats,
    own: NDArray[np.int64],
    references: ReferenceSet,
    edits: Edits,
    afresh: Callable[[NDArray[np.int64]], Floats],
) -> Floats:
    """Log class weights (n, K) after edits, from those before: only what changes is counted.

    Args:
        votes: before, against `references`.
        h: (n, d) embeddings of the queries.
        own: (n,) places of the queries among the references, whose own vote does not count; -1 where it is none.
        references: before.
        edits: what changes.
        afresh: (r,) rows → (r, K) votes, counted in full: where hardly anything of a class stays, or labels nearly tie.
    """
    if not edits:
        return votes
    gone, come = _changes(h, own, references, edits)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.exp(np.where(np.isfinite(votes), gone - votes, -np.inf))
        stays = votes + np.log1p(-np.minimum(share, 1.0))
    after = np.logaddexp(stays, come)
    ordered = np.sort(after, axis=1)
    tied = ordered[:, -1] - ordered[:, -2] < _NEAR if after.shape[1] > 1 else np.zeros(len(after), dtype=bool)
    doubtful = np.flatnonzero((share > 1 - _LEAST).any(axis=1) | tied)
    if len(doubtful):
        after[doubtful] = afresh(doubtful)
    return np.asarray(after)


def _changes(h: Floats, own: NDArray[np.int64], references: ReferenceSet, edits: Edits) -> tuple[Floats, Floats]:
    """(n, K) logs of the weights that each class loses and gains."""
    places = np.fromiter(edits, dtype=np.int64)
    before = references.labels.cpu().numpy()[places]
    after = np.array([-1 if label is None else label for label in edits.values()])
    ref_h = references.embeddings[torch.as_tensor(places, device=references.embeddings.device)].cpu().double()
    gone, come = np.full((2, len(h), references.n_classes), -np.inf)
    factors = np.log(references.class_weights)
    step = max(1, _CELLS // len(places))
    for start in range(0, len(h), step):
        part = slice(start, start + step)
        log_w = log_weights(torch.as_tensor(h[part]).double(), ref_h, references.kernel).numpy()
        log_w = np.where(own[part, None] == places, -np.inf, log_w)
        for code in range(references.n_classes):
            gone[part, code] = _summed(log_w[:, before == code]) + factors[code]
            come[part, code] = _summed(log_w[:, after == code]) + factors[code]
    return gone, come


def _summed(log_w: Floats) -> Floats:
    return np.asarray(np.logaddexp.reduce(log_w, axis=1)) if log_w.shape[1] else np.full(len(log_w), -np.inf)
