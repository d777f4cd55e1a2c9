"""Novelty: how unlike all voters an example is, by its embedding or its raw features; no label is looked at."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from dwac import _checks as checks
from dwac.reference.inputs import as_queries
from dwac.reference.references import ReferenceSet
from dwac.reference.voters import Voters, unit

NEAREST = 5  # voters: one alone may be a coincidence, and would give away who votes
# The least distance that counts. Without it, one that has the direction of a voter would be known however far away.
_LEAST = 0.01
_LATEST = 8  # sets of voters to keep: each fold of a cross-fitted model has its own


@torch.no_grad()
def novelty(references: ReferenceSet, h: Any, *, own: bool = False, directions: bool = False) -> Tensor:
    """ν(h) = log (d² + ε²), d² the mean squared distance to the 5 nearest voters, ε = 0.01: (n,) float64, exact.

    With directions, ν also has the same term for u = h / ‖h‖: far from every voter, and in a direction that none has.
    In most measured pairs of images and texts the h of strangers was shorter than that of test rows, where distances
    are small and directions still differ (docs/notes/novelty-scores.md). Weights do not matter. Nothing is fitted.

    Args:
        references: the voters.
        h: (n, d) embeddings; far ones are novel, never NaN.
        own: h are the voters' own: the nearest, which is the voter or a copy of it, is left out.
        directions: compare directions too.

    >>> references = ReferenceSet([[0.0], [1.0], [2.0]], [0, 0, 1])
    >>> novelty(references, torch.tensor([[1.0], [9.0]])).exp()
    tensor([ 0.6668, 64.6668], dtype=torch.float64)
    """
    voters = references.voters
    queries = as_queries(checks.float_tensor(h, "h").to(voters.embeddings.device), voters.embeddings)
    found = (_near(voters.each_once, queries, own) + _LEAST**2).log()
    return found + (_near(voters.directions, unit(queries), own) + _LEAST**2).log() if directions else found


def _near(voters: Voters, queries: Tensor, own: bool) -> Tensor:
    """(n,) float64: the mean squared distance to the nearest voters; where `own`, to those after the first."""
    k = min(NEAREST + own, len(voters.labels))
    squared = voters.query(queries, k, "auto").squared_distances
    squared = squared[:, 1:] if own and k > 1 else squared
    return squared.mean(dim=1).clamp(max=torch.finfo(torch.float64).max)


class Known:
    """Features z (m, q) of examples, by id; never changed, only replaced.

    Only examples that vote count: an example that was removed from the vote is no longer known.

    >>> known = Known(torch.tensor([[0.0], [5.0]]), ["ann", "bob"])
    >>> known.distance(torch.tensor([[2.0]]), pd.Index(["ann", "bob"]))
    tensor([2.], dtype=torch.float64)
    >>> known.distance(torch.tensor([[2.0]]), pd.Index(["bob"]))
    tensor([3.], dtype=torch.float64)
    """

    def __init__(self, z: Tensor, ids: Iterable[Hashable]) -> None:
        self.z, self.ids = z.detach(), pd.Index(list(ids), tupleize_cols=False)
        self._counting: list[tuple[pd.Index[Any], ReferenceSet | None]] = []  # for the latest voters

    def __len__(self) -> int:
        """The number of examples, whether they vote or not."""
        return len(self.ids)

    def to(self, device: torch.device) -> Known:
        """The same on a device."""
        return self if self.z.device == device else Known(self.z.to(device), self.ids)

    def without(self, ids: pd.Index[Any]) -> Known:
        """All except these."""
        stays = ~self.ids.isin(ids)
        return self if stays.all() else Known(self.z[torch.as_tensor(stays, device=self.z.device)], self.ids[stays])

    def joined(self, z: Tensor, ids: pd.Index[Any]) -> Known:
        """These added; they replace any of the same ids."""
        rest = self.without(ids)
        return Known(torch.cat([rest.z, z.to(rest.z)]), [*rest.ids, *ids])

    def of(self, ids: pd.Index[Any]) -> Known:
        """Those of these ids that are known, in their order."""
        places = self.ids.get_indexer(ids)
        here = places >= 0
        return Known(self.z[torch.as_tensor(places[here], device=self.z.device)], ids[here])

    @torch.no_grad()
    def distance(self, z: Tensor, voters: pd.Index[Any], *, own: bool = False) -> Tensor:
        """(n,) float64: the distance of each z to the nearest that votes; 0 if none votes.

        own: the examples vote themselves, and are compared with the others.
        """
        known = self._voting(voters)
        if known is None or len(known) <= own:
            return z.new_zeros(len(z), dtype=torch.float64)
        return known.voters.query(as_queries(z, known.embeddings), 1 + own, "auto").squared_distances[:, -1].sqrt()

    def _voting(self, voters: pd.Index[Any]) -> ReferenceSet | None:
        """Those who are known and vote; None if there are none."""
        for latest, known in self._counting:
            if latest is voters:
                return known
        count = self if voters.equals(self.ids) else self.of(voters)
        labels = torch.zeros(len(count), dtype=torch.int64, device=count.z.device)
        found = ReferenceSet(count.z, labels, n_classes=1) if len(count) else None
        self._counting = [(voters, found), *self._counting[: _LATEST - 1]]
        return found
