"""Known: raw features of examples, and the distance of others to the nearest of those that vote."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from dwac import engine
from dwac.kernels import get_kernel


class Known:
    """Raw features z (m, p) of examples, by id; never changed, only replaced.

    Only examples that vote count: an example that was removed from the vote is no longer known.

    >>> known = Known(torch.tensor([[0.0], [5.0]]), ["ann", "bob"])
    >>> known.distance(torch.tensor([[2.0]]), pd.Index(["ann", "bob"]))
    tensor([2.], dtype=torch.float64)
    >>> known.distance(torch.tensor([[2.0]]), pd.Index(["bob"]))
    tensor([3.], dtype=torch.float64)
    """

    def __init__(self, z: Tensor, ids: Iterable[Hashable], *, always: pd.Index[Any] | None = None) -> None:
        self.z, self.ids = z.detach(), pd.Index(list(ids), tupleize_cols=False)
        self._always = always
        self._counting: tuple[pd.Index[Any], engine.Index | None] | None = None

    def __len__(self) -> int:
        """The number of examples, whether they vote or not."""
        return len(self.ids)

    def to(self, device: torch.device) -> Known:
        """The same on a device."""
        return self if self.z.device == device else Known(self.z.to(device), self.ids, always=self._always)

    def fixed(self, voters: pd.Index[Any]) -> Known:
        """The same, but these examples count whoever votes."""
        return Known(self.z, self.ids, always=voters)

    def without(self, ids: pd.Index[Any]) -> Known:
        """All except these."""
        stays = ~self.ids.isin(ids)
        return Known(self.z[torch.as_tensor(stays, device=self.z.device)], self.ids[stays])

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
    def distance(self, z: Tensor, voters: pd.Index[Any], *, others: bool = False) -> Tensor:
        """(n,) float64: the distance of each z to the nearest that votes; 0 if none votes. others: except itself."""
        voters = voters if self._always is None else self._always
        if self._counting is None or self._counting[0] is not voters:
            count = self if voters.equals(self.ids) else self.of(voters)
            labels = torch.zeros(len(count), dtype=torch.int64, device=count.z.device)
            index = engine.build_index(count.z, labels, 1, get_kernel("gaussian")) if len(count) else None
            self._counting = voters, index
        index = self._counting[1]
        if index is None or len(index.labels) <= others:
            return z.new_zeros(len(z), dtype=torch.float64)
        return engine.query(index, z, k=1 + others).squared_distances[:, -1].sqrt()

    def apart(self, ids: pd.Index[Any], voters: pd.Index[Any]) -> Tensor:
        """(n,) float64: the distance of examples, by id, to the nearest other that votes; 0 if not known."""
        voters = voters if self._always is None else self._always
        held, answer = self.of(ids), self.z.new_zeros(len(ids), dtype=torch.float64)
        own = torch.as_tensor(held.ids.isin(voters), device=self.z.device)
        found = answer.new_zeros(len(held))
        for votes in (True, False):
            if (own == votes).any():
                found[own == votes] = self.distance(held.z[own == votes], voters, others=votes)
        answer[torch.as_tensor(ids.isin(self.ids), device=answer.device)] = found
        return answer
