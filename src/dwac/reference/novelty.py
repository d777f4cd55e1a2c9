"""Novelty: how unlike all voters an example is, by its embedding or its raw features; labels are not used."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dwac import _checks as checks
from dwac.reference.inputs import as_queries
from dwac.reference.references import ReferenceSet, set_of
from dwac.reference.sets import VoterSets
from dwac.reference.voters import unit

NEAREST = 5  # voters: a single one may be a coincidence, and would reveal who votes
# The smallest distance that counts. Without it, a query in the direction of a voter would be known at any distance.
LEAST = 0.01
_CANDIDATES = 6  # voters among which the nearest of each of several sets is sought first
_LATEST = 8  # sets of voters to cache: each fold of a cross-fitted model has its own


@torch.no_grad()
def novelty(
    references: ReferenceSet, h: Any, *, own: bool = False, directions: bool = False, squared: Tensor | None = None
) -> Tensor:
    """ν(h) = log (d² + ε²), d² the mean squared distance to the 5 nearest voters, ε = 0.01: (n,) float64, exact.

    With directions, ν also has the same term for u = h / ‖h‖: far from every voter, and in a direction that none has.
    In most measured pairs of images and texts, out-of-distribution rows had shorter h than test rows; there distances
    are small and directions still differ (docs/decisions/0018-typicality.md). Weights do not matter. Nothing is fitted.

    Args:
        references: the voters.
        h: (n, d) embeddings; far ones are novel, never NaN.
        own: h are the voters' own embeddings: the nearest voter, which is the row itself or a copy, is left out.
        directions: compare directions too.
        squared: (n, 5) squared distances to the nearest voters, if they are known already.

    >>> references = ReferenceSet([[0.0], [1.0], [2.0]], [0, 0, 1])
    >>> novelty(references, torch.tensor([[1.0], [9.0]])).exp()
    tensor([ 0.6668, 64.6668], dtype=torch.float64)
    """
    voters = references.voters
    queries = as_queries(checks.float_tensor(h, "h").to(voters.embeddings.device), voters.embeddings)
    k = min(NEAREST + own, len(voters.labels))
    nu = _log_mean(voters.nearest(queries, k)[1] if squared is None else squared, own)
    if not directions:
        return nu
    return nu + _log_mean(voters.directions.nearest(unit(queries), k)[1], own)


@torch.no_grad()
def novelty_by_set(sets: VoterSets, h: Tensor, *, directions: bool = False, squared: Tensor | None = None) -> Tensor:
    """(n, F) float64: `novelty` of embeddings h (F, n, d) with respect to each set of voters, in one computation.

    squared: (n, F, 5) squared distances to the nearest voters of each set, if they are known already.
    """
    if min(len(voters.labels) for voters in sets.sets) < NEAREST:
        pairs = zip(sets.sets, h, strict=True)
        return torch.stack([novelty(set_of(voters), part, directions=directions) for voters, part in pairs], dim=1)
    nu = _log_mean(sets.squared_distances(h, NEAREST) if squared is None else squared)
    if not directions:
        return nu
    return nu + _log_mean(sets.directions.squared_distances(unit(h.flatten(0, 1)).view_as(h), NEAREST))


def _log_mean(squared: Tensor, own: bool = False) -> Tensor:
    """log (d² + ε²), d² the mean of squared distances (…, k), nearest first; with `own`, without the first."""
    squared = squared[..., 1:] if own and squared.shape[-1] > 1 else squared
    return (squared.mean(dim=-1).clamp(max=torch.finfo(torch.float64).max) + LEAST**2).log()


class Known:
    """Features z (m, q) of examples, by id; immutable.

    Only voters count: an example that no longer votes is no longer known.

    >>> known = Known(torch.tensor([[0.0], [5.0]]), ["ann", "bob"])
    >>> known.distance(torch.tensor([[2.0]]), pd.Index(["ann", "bob"]))
    tensor([2.], dtype=torch.float64)
    >>> known.distance(torch.tensor([[2.0]]), pd.Index(["bob"]))
    tensor([3.], dtype=torch.float64)
    """

    def __init__(self, z: Tensor, ids: Iterable[Hashable]) -> None:
        self.z, self.ids = z.detach(), pd.Index(list(ids), tupleize_cols=False)
        self._counting: list[tuple[pd.Index[Any], ReferenceSet | None]] = []  # cache for the latest voters
        self._inside: tuple[list[pd.Index[Any]], pd.Index[Any], Tensor] | None = None  # for the latest sets of voters

    def __len__(self) -> int:
        """The number of examples, whether they vote or not."""
        return len(self.ids)

    def to(self, device: torch.device) -> Known:
        """The same features on a device."""
        return self if self.z.device == device else Known(self.z.to(device), self.ids)

    def without(self, ids: pd.Index[Any]) -> Known:
        """All examples except these."""
        stays = ~self.ids.isin(ids)
        return self if stays.all() else Known(self.z[torch.as_tensor(stays, device=self.z.device)], self.ids[stays])

    def joined(self, z: Tensor, ids: pd.Index[Any]) -> Known:
        """The examples with these added; they replace any with the same ids."""
        rest = self.without(ids)
        return Known(torch.cat([rest.z, z.to(rest.z)]), [*rest.ids, *ids])

    def of(self, ids: pd.Index[Any]) -> Known:
        """The known examples among these ids, in the order of the ids."""
        places = self.ids.get_indexer(ids)
        here = places >= 0
        return Known(self.z[torch.as_tensor(places[here], device=self.z.device)], ids[here])

    @torch.no_grad()
    def distance(self, z: Tensor, voters: pd.Index[Any], *, own: bool = False) -> Tensor:
        """(n,) float64: the distance of each z to the nearest voter; 0 if there is none.

        own: the rows are voters themselves, and are compared with the other voters.
        """
        known = self._voting(voters)
        if known is None or len(known) <= own:
            return z.new_zeros(len(z), dtype=torch.float64)
        return known.voters.nearest(as_queries(z, known.embeddings), 1 + own)[1][:, -1].sqrt()

    @torch.no_grad()
    def distances(self, z: Tensor, voters: Sequence[pd.Index[Any]]) -> Tensor:
        """(n, F) float64: the distance of each z to the nearest voter of each of F sets, in one computation.

        The nearest voters of all sets together are in most sets; only a row whose nearest are all outside a set is
        compared with that set again.
        """
        everyone, inside = self._memberships(list(voters))
        known = self._voting(everyone)
        if known is None or len(known) < _CANDIDATES:
            return torch.stack([self.distance(z, ids) for ids in voters], dim=1)
        rows, squared = known.voters.nearest(as_queries(z, known.embeddings), _CANDIDATES)
        nearest = torch.where(inside[rows], squared[:, :, None], torch.inf).amin(dim=1).sqrt_()  # of (n, k, F)
        missing = nearest.isinf()
        for place in missing.any(dim=0).nonzero()[:, 0].tolist():
            rows = missing[:, place]
            nearest[rows, place] = self.distance(z[rows], voters[place])
        return nearest

    def _memberships(self, voters: list[pd.Index[Any]]) -> tuple[pd.Index[Any], Tensor]:
        """The known examples that vote in any of F sets, and whether each votes in each set, (m, F)."""
        latest = self._inside  # a local name: other threads may query other voters meanwhile
        if latest is None or len(latest[0]) != len(voters) or any(map(operator.is_not, latest[0], voters)):
            inside = np.stack([self.ids.isin(ids) for ids in voters], axis=1)
            some = np.flatnonzero(inside.any(axis=1))
            latest = self._inside = voters, self.ids[some], torch.as_tensor(inside[some], device=self.z.device)
        return latest[1:]

    def _voting(self, voters: pd.Index[Any]) -> ReferenceSet | None:
        """The known examples that vote; None if there are none."""
        for latest, known in self._counting:
            if latest is voters:
                return known
        count = self if voters.equals(self.ids) else self.of(voters)
        labels = torch.zeros(len(count), dtype=torch.int64, device=count.z.device)
        known = ReferenceSet(count.z, labels, n_classes=1) if len(count) else None
        self._counting = [(voters, known), *self._counting[: _LATEST - 1]]
        return known
