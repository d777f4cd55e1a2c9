"""The folds of a cross-fitted classifier: how each row is judged by networks and voters that know nothing of it.

Every row trains, votes and calibrates. The model of fold f has the networks that left out f, and the voters outside f.
It scores the rows of f for calibration, and new rows for comparison with these (`dwac.conformal.CrossCalibration`).
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.errors import CalibrationError
from dwac.reference import ReferenceSet, VoteDistribution
from dwac.training.cross_fit import FOLDS, part_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(eq=False)
class Folds:
    """Which fold each row was in; a row without a fold, added later, votes in the model of every fold."""

    ids: pd.Index[Any]
    of: Ints  # (n,)
    members: int  # networks
    outside: pd.DataFrame | None = None  # by id: the votes of representatives outside each fold, without their members
    _sets: tuple[Any, list[ReferenceSet]] | None = field(default=None, repr=False)

    def numbers(self, ids: pd.Index[Any]) -> Ints:
        """(n,): the fold of each id, -1 if it has none."""
        places = self.ids.get_indexer(ids)
        return np.where(places >= 0, self.of[places], -1) if len(self.ids) else np.full(len(ids), -1)

    def without(self, ids: pd.Index[Any]) -> Folds:
        """The same without these: whoever has such an id later is new, and votes in every fold's model."""
        stays = ~self.ids.isin(ids)
        outside = None if self.outside is None else self.outside[~self.outside.index.isin(ids)]
        return Folds(self.ids[stays], self.of[stays], self.members, outside)

    def alone(self, references: ReferenceSet) -> Folds:
        """The same for representatives without those whom they represent."""
        votes = pd.DataFrame(self.votes_outside(references), index=references.index_of_ids)
        return Folds(self.ids, self.of, self.members, votes)

    def votes_outside(self, references: ReferenceSet) -> Floats:
        """(m, F): how many votes each reference has in the model of each fold."""
        everybody = references.members or references
        numbers = self.numbers(everybody.index_of_ids)
        votes: Floats = (numbers[:, None] != np.arange(FOLDS)).astype(np.float64)
        if references.members is not None:
            leaves = everybody.groups.leaves
            votes = np.stack([np.bincount(leaves, column, len(references)) for column in votes.T], axis=1)
            return np.asarray(votes * everybody.leaf_factors[:, None])
        if self.outside is None or not references.weighted:
            return np.asarray(votes)
        known = self.outside.reindex(references.index_of_ids).to_numpy()
        return np.asarray(np.where(np.isnan(known), references.weights[:, None], known))

    def sets(self, references: ReferenceSet) -> list[ReferenceSet]:
        """The voters of each fold's model."""
        known = self._sets  # a local name: other threads may ask about other references meanwhile
        if known is None or known[0] is not references.version:
            votes = self.votes_outside(references)
            if not (votes > 0).any(axis=0).all():
                raise CalibrationError(
                    "p-values of a cross-fitted model need voters in at least two folds; all that are left are in one; "
                    "call recalibrate(X, y) with rows that it was not trained on"
                )
            known = references.version, [self._set(references, fold, votes[:, fold]) for fold in range(FOLDS)]
            self._sets = known
        return known[1]

    def _set(self, references: ReferenceSet, fold: int, votes: Floats) -> ReferenceSet:
        here = np.flatnonzero(votes > 0)
        rows = torch.as_tensor(here, device=references.embeddings.device)
        return ReferenceSet(
            part_of(references.embeddings[rows], fold, self.members),
            references.labels[rows],
            list(references.ids[here]),
            references.n_classes,
            references.kernel,
            references.class_weights,
            votes[here] if references.weighted else None,
            look_alikes=references.look_alikes,
            targets=None if references.targets is None else references.targets[rows],
        )

    def votes(self, references: ReferenceSet, h: Tensor) -> Floats:
        """(n, F, K): log class weights of rows h (n, d) by the model of each fold."""
        found = [
            voters.log_class_weights(part_of(h, fold, self.members)).cpu().numpy()
            for fold, voters in enumerate(self.sets(references))
        ]
        return np.stack(found, axis=1)

    def judged(self, references: ReferenceSet, h: Tensor, ids: pd.Index[Any]) -> Floats:
        """(n, K): log class weights of rows h (n, d), each by the model without its fold: `own` of `votes`, faster."""
        numbers, found = np.maximum(self.numbers(ids), 0), np.empty((len(h), references.n_classes))
        for fold, voters in enumerate(self.sets(references)):
            rows = np.flatnonzero(numbers == fold)
            if len(rows):
                part = part_of(h[torch.as_tensor(rows, device=h.device)], fold, self.members)
                found[rows] = voters.log_class_weights(part).cpu().numpy()
        return found

    def out_of_fold(self, references: ReferenceSet) -> Floats:
        """(m, K): log class weights of each reference by the model without its fold, so that it never votes on itself.

        Those added later are judged by the first fold's model, without the votes of any that were added.
        """
        h, ids = references.embeddings, references.index_of_ids
        found, new = self.judged(references, h, ids), self.numbers(ids) < 0
        if new.any():
            first = copy(self.sets(references)[0])
            added = self.numbers(first.index_of_ids) < 0
            found[new] = -np.inf  # unless others are left, nobody can judge them
            if not added.all():
                first.remove(first.index_of_ids[added].tolist())
                asked = part_of(h[torch.as_tensor(new, device=h.device)], 0, self.members)
                found[new] = first.log_class_weights(asked).cpu().numpy()
        return found

    def out_of_fold_votes(self, references: ReferenceSet) -> Iterator[tuple[Ints, VoteDistribution]]:
        """Places of references, and the votes on their numbers by the model without their fold; not of those added."""
        numbers = self.numbers(references.index_of_ids)
        for fold, voters in enumerate(self.sets(references)):
            rows = np.flatnonzero(numbers == fold)
            if len(rows):
                h = references.embeddings[torch.as_tensor(rows, device=references.embeddings.device)]
                yield rows, voters.distribution(part_of(h, fold, self.members))

    def own(self, by_fold: Floats, ids: pd.Index[Any]) -> Floats:
        """Of answers by fold, (n, F, …), those of each row's own fold; of a row without one, those of the first."""
        return np.asarray(by_fold[np.arange(len(by_fold)), np.maximum(self.numbers(ids), 0)])

    def repeated(self, by_fold: Floats, ids: pd.Index[Any]) -> Floats:
        """(n, F, …): of rows that vote, the answers of their own fold stand for those of all."""
        return np.repeat(self.own(by_fold, ids)[:, None], FOLDS, axis=1)
