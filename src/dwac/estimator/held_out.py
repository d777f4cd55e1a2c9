"""Rows that judge a model: held out of training or, in a cross-fitted model, judged by networks that left them out.

Held-out rows are kept as embeddings and labels, so that p-values follow every change of the references.

In a cross-fitted model every row trains, votes and calibrates. The model of fold f has the networks that left out f,
and the voters outside f. It scores the rows of f for calibration, and new rows for comparison with these
(`dwac.conformal.CrossCalibration`). In a condensed model, the model of fold f has its own representatives, chosen among
the voters outside f alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.errors import CalibrationError
from dwac.estimator.condensing import represent
from dwac.kernels import squared_distances
from dwac.reference import ReferenceSet, VoteDistribution
from dwac.reference.references import with_classes, without_members
from dwac.reference.sets import VoterSets
from dwac.reference.voters import Voters
from dwac.training.cross_fit import FOLDS, part_of, parts_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Representatives(NamedTuple):
    """The voters of the models of the folds, where the examples that they represent are not stored."""

    voters: ReferenceSet  # q different voters
    votes: Floats  # (q, F): how many votes each has in the model of each fold
    of: ReferenceSet  # the representatives in the model of all rows
    places: Ints  # (q,): the one of these whose edits each follows: the nearest with its label

    @classmethod
    def of_votes(cls, voters: ReferenceSet, votes: Floats, of: ReferenceSet) -> Representatives:
        """The voters that have votes in some fold."""
        voters, here = copy(voters), np.asarray(votes.any(axis=1))
        voters.remove(voters.voters.ids[~here].tolist())
        squared = squared_distances(voters.embeddings.double(), of.embeddings.double())
        other = voters.labels[:, None] != of.labels
        places = squared.masked_fill(other, torch.inf).argmin(dim=1).cpu().numpy()
        return cls(voters, votes[here], copy(of), places)

    def without(self, ids: pd.Index[Any]) -> Representatives:
        """The same without these ids."""
        gone = self.voters.voters.ids.isin(ids)
        if not gone.any():
            return self
        return self.of_votes(self.voters, np.where(gone[:, None], 0.0, self.votes), self.of)

    def edited(self, now: ReferenceSet) -> tuple[ReferenceSet, Floats]:
        """The voters and their votes after edits that made `of` what it is now.

        Each voter follows its representative: it is removed or reweighed with it, or votes for its new label. Added
        voters vote in the model of every fold.
        """
        new = np.flatnonzero(~now.voters.ids.isin(self.of.voters.ids))
        if self.voters.voters.ids.isin(now.voters.ids[new]).any():
            return self.without(now.voters.ids[new]).edited(now)
        owners = now.voters.ids.get_indexer(self.of.voters.ids)[self.places]
        here, names, voters = np.flatnonzero(owners >= 0), self.voters.voters.ids, copy(self.voters)
        owners, first = owners[here], self.places[here]
        if now.n_classes > voters.n_classes:
            voters = with_classes(voters, np.arange(voters.n_classes), now.n_classes)
        other = (now.labels[owners] != self.of.labels[first]).cpu().numpy()
        voters.relabel(names[here[other]].tolist(), now.labels[owners[other]])
        numbers = None
        if now.targets is not None and self.of.targets is not None:
            other, numbers = (now.targets[owners] != self.of.targets[first]).any(dim=1).cpu().numpy(), now.targets[new]
            voters.relabel(names[here[other]].tolist(), targets=now.targets[owners[other]])
        votes = np.zeros_like(self.votes)
        votes[here] = self.votes[here] * (now.weights[owners] / self.of.weights[first])[:, None]
        if len(new):
            voters.add(now.embeddings[new], now.labels[new], now.ids[new].tolist(), targets=numbers)
        return voters, np.concatenate([votes, np.repeat(now.weights[new, None], FOLDS, axis=1)])


@dataclass(frozen=True, eq=False)
class FoldVoters:
    """The m voters of the models of the folds, for one version of the references."""

    version: Voters
    voters: ReferenceSet
    votes: Floats  # (m, F): how many votes each has
    members: int  # networks

    @cached_property
    def sets(self) -> list[ReferenceSet]:
        """The voters of each fold's model."""
        if not (self.votes > 0).any(axis=0).all():
            raise CalibrationError(
                "p-values of a cross-fitted model need voters in at least two folds; all that are left are in one; "
                "call recalibrate(X, y) with rows that it was not trained on"
            )
        how = {"weighted": self.version.weighted, "few": self.version.represents}
        return [_set_of_fold(self.voters, fold, self.votes[:, fold], self.members, **how) for fold in range(FOLDS)]

    @cached_property
    def together(self) -> VoterSets:
        """The same as one object, which takes `parts_of` embeddings."""
        return VoterSets(tuple(each.voters for each in self.sets))


def _set_of_fold(
    voters: ReferenceSet, fold: int, votes: Floats, members: int, *, weighted: bool, few: bool
) -> ReferenceSet:
    """The voters with votes (m,) in the model of a fold. few: whether they stand for others."""
    here = np.flatnonzero(votes > 0)
    rows = torch.as_tensor(here, device=voters.embeddings.device)
    return ReferenceSet(
        part_of(voters.embeddings[rows], fold, members),
        voters.labels[rows],
        list(voters.ids[here]),
        voters.n_classes,
        voters.kernel,
        voters.class_weights,
        votes[here] if weighted else None,
        np.ones(len(here)) if weighted and not few else None,
        voters.voters.base_vote if few else voters.voters.look_alikes,
        targets=None if voters.targets is None else voters.targets[rows],
    )


@dataclass(eq=False)
class Folds:
    """Which fold each row was in; a row without a fold, added later, votes in the model of every fold."""

    ids: pd.Index[Any]
    of: Ints  # (n,)
    members: int  # networks
    few: Representatives | None = None  # of a condensed model that does not hold the represented examples
    _known: tuple[FoldVoters, ...] = field(default=(), repr=False)  # the most recent

    def numbers(self, ids: pd.Index[Any]) -> Ints:
        """(n,): the fold of each id, -1 if it has none."""
        places = self.ids.get_indexer(ids)
        return np.where(places >= 0, self.of[places], -1) if len(self.ids) else np.full(len(ids), -1)

    def without(self, ids: pd.Index[Any]) -> Folds:
        """The same without these ids: a row added later with one of them is new, and votes in every fold's model."""
        stays = ~self.ids.isin(ids)
        few = None if self.few is None else self.few.without(ids)
        return Folds(self.ids[stays], self.of[stays], self.members, few)

    def alone(self, references: ReferenceSet) -> Folds:
        """The same for representatives without the examples that they represent."""
        now = self.voters(references)
        few = Representatives.of_votes(now.voters, now.votes, without_members(references))
        return Folds(self.ids, self.of, self.members, few)

    def knowing(self, references: ReferenceSet, votes: Floats) -> Folds:
        """The same, with known votes (m, F) of the represented examples."""
        known = FoldVoters(references.voters, references.members or references, votes, self.members)
        return Folds(self.ids, self.of, self.members, self.few, (known,))

    def sets(self, references: ReferenceSet) -> list[ReferenceSet]:
        """The voters of each fold's model."""
        return self.voters(references).sets

    def together(self, references: ReferenceSet) -> VoterSets:
        """The same as one object, which takes `parts_of` embeddings."""
        return self.voters(references).together

    def voters(self, references: ReferenceSet) -> FoldVoters:
        """The voters of the models of the folds."""
        known = self._known  # a local name: another thread may replace it meanwhile
        for voting in known:
            if voting.version is references.voters:
                return voting
        now, voters, votes = references.voters, references, self._outside(references) * references.weights[:, None]
        if references.members is not None:
            voters, votes = references.members, self.condensed(references, references.members)
        elif self.few is not None and now.weighted:
            voters, votes = self.few.edited(references)
            votes *= self._outside(voters)  # for rows that were added with the id of a calibration row
        voting = FoldVoters(now, voters, votes, self.members)
        self._known = (voting, *known[:1])  # two: a condensed model is compared with the one of all voters
        return voting

    def _outside(self, references: ReferenceSet) -> NDArray[np.bool_]:
        """(m, F): whether each reference is outside each fold."""
        return np.asarray(self.numbers(references.voters.ids)[:, None] != np.arange(FOLDS))

    def condensed(self, references: ReferenceSet, every_row: ReferenceSet) -> Floats:
        """(m, F): the votes of all rows in each fold's model, where few represent the rows outside the fold.

        Rows of the fold take no part in leaves, representatives or weights, so that they calibrate like rows that the
        model has not seen. The share of representatives is that of the model of all rows.
        """
        outside, votes = self._outside(every_row), np.zeros((len(every_row), FOLDS))
        for fold in np.flatnonzero(outside.any(axis=0)).tolist():
            own = outside[:, fold] * every_row.weights
            whole = _set_of_fold(every_row, fold, own, self.members, weighted=every_row.voters.weighted, few=False)
            few = represent(whole, max(1, round(len(references) * len(whole) / len(every_row))))
            votes[every_row.voters.positions(few.ids), fold] = few.weights
        return votes

    def votes(self, references: ReferenceSet, h: Tensor) -> Floats:
        """(n, F, K): log class weights of rows h (n, d) by the model of each fold."""
        return np.asarray(self.together(references).log_class_weights(parts_of(h, self.members)).cpu())

    def judge(self, references: ReferenceSet, h: Tensor, ids: pd.Index[Any]) -> Floats:
        """(n, K): log class weights of rows h (n, d), each by the model without its fold."""
        numbers, votes = np.maximum(self.numbers(ids), 0), np.empty((len(h), references.n_classes))
        for fold, voters in enumerate(self.sets(references)):
            rows = np.flatnonzero(numbers == fold)
            if len(rows):
                part = part_of(h[torch.as_tensor(rows, device=h.device)], fold, self.members)
                votes[rows] = voters.log_class_weights(part).cpu().numpy()
        return votes

    def out_of_fold(self, references: ReferenceSet) -> Floats:
        """(m, K): log class weights of each reference by the model without its fold, so that it never votes on itself.

        Examples added later are judged by the first fold's model, without the votes of added examples.
        """
        h, ids = references.embeddings, references.voters.ids
        votes, new = self.judge(references, h, ids), self.numbers(ids) < 0
        if new.any():
            first = copy(self.sets(references)[0])
            added = self.numbers(first.voters.ids) < 0
            votes[new] = -np.inf  # without other voters, there is no vote on them
            if not added.all():
                first.remove(first.voters.ids[added].tolist())
                added_h = part_of(h[torch.as_tensor(new, device=h.device)], 0, self.members)
                votes[new] = first.log_class_weights(added_h).cpu().numpy()
        return votes

    def out_of_fold_votes(self, references: ReferenceSet) -> Iterator[tuple[Ints, VoteDistribution]]:
        """Positions of references, and the votes on their numbers by the model without their fold; skips added ones."""
        numbers = self.numbers(references.voters.ids)
        for fold, voters in enumerate(self.sets(references)):
            rows = np.flatnonzero(numbers == fold)
            if len(rows):
                h = references.embeddings[torch.as_tensor(rows, device=references.embeddings.device)]
                yield rows, voters.distribution(part_of(h, fold, self.members))

    def repeat(self, by_fold: Floats, ids: pd.Index[Any]) -> Floats:
        """(n, F, …): for rows that vote, the answers of their own fold (or the first), repeated for every fold."""
        own = by_fold[np.arange(len(by_fold)), np.maximum(self.numbers(ids), 0)]
        return np.repeat(own[:, None], FOLDS, axis=1)


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """n rows held out of training or, cross-fitted, of some networks; never changed, only replaced."""

    h: Tensor  # (n, d): their embeddings, which the references vote on
    z: Tensor  # (n, q): raw features of a table, or (n, 0)
    y: NDArray[np.int64]  # (n,): codes of their labels; -1 for a label that was not in training
    ids: pd.Index[Any]
    exact: NDArray[np.float64]  # (n, T) their numbers, or (n, L) labels as 0 and 1; (n, 0) for classes

    def at(self, places: NDArray[Any]) -> HeldOutRows:
        """Some of the rows, by a mask or by position."""
        rows = torch.as_tensor(places, device=self.h.device)
        return HeldOutRows(self.h[rows], self.z[rows], self.y[places], self.ids[places], self.exact[places])

    def without(self, ids: pd.Index[Any]) -> HeldOutRows:
        """The rows without these ids."""
        return self.at(~self.ids.isin(ids))

    def of_fold(self, folds: Folds, fold: int) -> HeldOutRows:
        """The rows of a fold, as the model that left them out embeds them."""
        rows = self.at(folds.numbers(self.ids) == fold)
        return replace(rows, h=part_of(rows.h, fold, folds.members))

    def require(self) -> None:
        """Raise an error if there are no rows to calibrate with."""
        if len(self.y) == 0:
            raise CalibrationError(
                "the model has no calibration rows (fit set none aside, or all were forgotten); "
                "call recalibrate(X, y) with rows that it was not trained on"
            )
