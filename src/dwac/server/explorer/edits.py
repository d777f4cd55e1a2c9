"""Edits of the voters: training examples removed or relabelled, and what that changes. All results are exact.

other = edit_model(clf, {7: None, 9: 2})     # without example 7, and 9 with the label of code 2; clf stays as it was
other = edit_model(reg, {9: (71.5,)})        # where numbers are predicted, 9 with another number

In a condensed model, an edit acts on a representative with the votes of all examples that it represents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dwac.estimator.fitted import Descriptions
from dwac.explain.descriptions import GroupTexts
from dwac.kernels import squared_distances
from dwac.reference import ReferenceSet
from dwac.reference.references import without_members
from dwac.server.answers import Model
from dwac.server.limits import RefusalError

Floats = NDArray[np.float64]
New = int | tuple[float, ...]  # the code of a label, or numbers
Edits = Mapping[int, New | None]  # by position among the references: the new vote, or None if removed

_MOST = 10_000  # edits per page
_CELLS = 2**22  # weights in memory at once
_LEAST = 0.25  # share of the votes of a class that must remain for a difference to be exact to about 1e-4
_NEAR = 1e-3  # lead of a label, in log, below which votes are counted again in full


@dataclass(frozen=True)
class Edit:
    """The position of an example among the references, its old vote and its new vote; None if removed."""

    place: int
    before: New
    label: New | None


@dataclass(frozen=True)
class History:
    """The edits made, and those undone that can be redone."""

    done: tuple[Edit, ...] = ()
    undone: tuple[Edit, ...] = ()

    @property
    def net(self) -> dict[int, New | None]:
        """The net effect of all edits."""
        return {edit.place: edit.label for edit in self.done}

    def add(self, place: int, label: New | None, first: New) -> History:
        """The history with one more edit; `first`: the vote of the example before any edit."""
        now = self.net.get(place, first)
        if now is None:
            raise RefusalError(409, "removed", "this example was removed; undo that first")
        if now == label:
            raise RefusalError(409, "same_label", "the example already votes for this; choose something else")
        if len(self.done) >= _MOST:
            raise RefusalError(
                409, "too_many_edits", f"at most {_MOST:,} edits are allowed; export them and reload the page"
            )
        return History((*self.done, Edit(place, now, label)))

    def undo(self) -> History:
        """The history without the last edit."""
        if not self.done:
            raise RefusalError(409, "nothing_to_undo", "there is nothing to undo")
        return replace(self, done=self.done[:-1], undone=(*self.undone, self.done[-1]))

    def redo(self) -> History:
        """The history with the edit that was undone last."""
        if not self.undone:
            raise RefusalError(409, "nothing_to_redo", "there is nothing to redo")
        return replace(self, done=(*self.done, self.undone[-1]), undone=self.undone[:-1])


def edit_model(clf: Model, edits: Edits) -> Model:
    """The same model with other voters: everything except the reference set is shared and unchanged.

    Novelty is still measured against the original voters: an edit changes votes, not what the model has seen.
    """
    changed = edit_voters(clf.references_, edits)
    novelty = clf.fitted_.novelty.fixed(clf.references_)
    return _voting(clf, changed, descriptions_after(clf, changed), novelty=novelty)


def without_represented(clf: Model) -> Model:
    """The same model; if it is condensed, without the represented examples.

    If those stayed, another example would replace a removed representative, and the page would show no change.
    """
    references, folds = clf.references_, clf.fitted_.folds
    if references.members is None:
        return clf
    folds = None if folds is None else folds.alone(references)
    other = _voting(clf, without_members(references), clf.descriptions_, folds=folds)
    other.fitted_ = replace(other.fitted_, stored_agreement=clf.agreement_)
    return other


def _voting(clf: Model, references: ReferenceSet, descriptions: list[str | None] | None, **changes: Any) -> Model:
    """A copy of a model with other voters and these descriptions of their groups."""
    other, described = copy(clf), Descriptions(descriptions, references.groups)
    other.fitted_ = clf.fitted_.edited(references, stored_descriptions=described, **changes)
    return other


def descriptions_after(clf: Model, changed: ReferenceSet) -> GroupTexts | None:
    """Descriptions of the groups of edited voters: each group keeps its own; a new one has none."""
    known, before, after = clf.descriptions_, clf.references_.groups, changed.groups
    if known is None:
        return None
    rows = clf.references_.voters.ids.get_indexer(changed.voters.ids)
    same = np.flatnonzero((clf.references_.labels.cpu().numpy()[rows] == changed.labels.cpu().numpy()) & (rows >= 0))
    groups, first = np.unique(after.of[same], return_index=True)
    old = dict(zip(groups.tolist(), before.of[rows[same[first]]].tolist(), strict=True))
    return known.take([old.get(group) for group in range(len(after))])


def edit_voters(references: ReferenceSet, edits: Edits) -> ReferenceSet:
    """The references after the edits; the original set is not changed."""
    references.groups  # noqa: B018 - computed once, and kept by edits
    changed, ids = copy(references), references.ids
    relabelled = {place: value for place, value in edits.items() if value is not None}
    removed = [place for place, value in edits.items() if value is None]
    if relabelled:
        values = list(relabelled.values())
        changes = {"labels": values} if references.targets is None else {"targets": np.array(values, dtype=np.float64)}
        changed.relabel([ids[place] for place in relabelled], **changes)
    if removed:
        changed.remove([ids[place] for place in removed])
    return changed


def votes_after(
    votes: Floats,
    h: Floats,
    own: NDArray[np.int64],
    references: ReferenceSet,
    edits: Edits,
    recount: Callable[[NDArray[np.int64]], Floats],
) -> Floats:
    """Log class weights (n, K) after edits, computed from those before and the changes only.

    Args:
        votes: before, against `references`.
        h: (n, d) embeddings of the queries.
        own: (n,) positions of the queries among the references, whose own vote does not count; -1 for other queries.
        references: before.
        edits: the changes.
        recount: (r,) rows → (r, K) votes, counted in full; used if little of a class remains, or labels nearly tie.
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
        after[doubtful] = recount(doubtful)
    return np.asarray(after)


def _changes(h: Floats, own: NDArray[np.int64], references: ReferenceSet, edits: Edits) -> tuple[Floats, Floats]:
    """(n, K) logs of the weights that each class loses and gains."""
    places = np.fromiter(edits, dtype=np.int64)
    before = references.labels.cpu().numpy()[places]
    after = np.array([-1 if label is None else label for label in edits.values()])
    ref_h = references.embeddings[torch.as_tensor(places, device=references.embeddings.device)].cpu().double()
    gone, come = np.full((2, len(h), references.n_classes), -np.inf)
    factors, votes = np.log(references.class_weights), np.log(references.weights[places])
    step = max(1, _CELLS // len(places))
    for start in range(0, len(h), step):
        part = slice(start, start + step)
        squared = squared_distances(torch.as_tensor(h[part]).double(), ref_h)
        log_w = references.voters.log_weights_at(squared).numpy() + votes
        log_w = np.where(own[part, None] == places, -np.inf, log_w)
        for code in range(references.n_classes):
            gone[part, code] = np.logaddexp.reduce(log_w[:, before == code], axis=1) + factors[code]
            come[part, code] = np.logaddexp.reduce(log_w[:, after == code], axis=1) + factors[code]
    return gone, come
