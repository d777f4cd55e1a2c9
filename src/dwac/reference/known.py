"""Known: features of examples, to compare others with as they are: the distance to the nearest that votes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from dwac.reference.references import ReferenceSet

_LATEST = 8  # sets of voters to keep: each fold of a cross-fitted model has its own


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
        nearest = known.nearest(z, 1 + own).squared_distances[:, -1]
        return torch.as_tensor(nearest, device=z.device).sqrt()

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
