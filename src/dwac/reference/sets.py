"""VoterSets: several sets of voters, such as the folds of a cross-fitted model, queried together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dwac import _checks as checks
from dwac.engine.stack import Stack
from dwac.errors import ShapeError
from dwac.reference.voters import Voters, nearest_of, stack_of


@dataclass(frozen=True, eq=False)
class VoterSets:
    """F sets of voters with the same classes, kernel and number of dimensions, each with its own queries.

    Answers equal `Voters.query` of each set, to the last bit. Small sets are queried together, in as many calls as a
    single one takes; larger ones one after another.

    >>> from dwac import ReferenceSet
    >>> sets = VoterSets(tuple(ReferenceSet(h, [0, 1]).voters for h in ([[0.0], [1.0]], [[3.0], [5.0]])))
    >>> sets.log_class_weights(torch.tensor([[[1.0]], [[3.0]]])).tolist()
    [[[-1.0, 0.0], [0.0, -4.0]]]
    """

    sets: tuple[Voters, ...]

    def log_class_weights(self, queries: Tensor) -> Tensor:
        """(n, F, K) float64: log votes of each set for each class, for queries (F, n, d)."""
        return self.query(queries, 0)[0]

    @torch.no_grad()
    def squared_distances(self, queries: Tensor, k: int) -> Tensor:
        """(n, F, k) float64: squared distances to the k nearest voters of each set, nearest first, ignoring weights."""
        queries, once = self._check(queries), [voters.each_once for voters in self.sets]
        stack = self._stack_of_each_once
        if stack is None or queries.shape[1] == 0 or k > self._fewest:
            pairs = zip(once, queries, strict=True)
            return torch.stack([voters.nearest(h, k)[1] for voters, h in pairs], dim=1)
        return nearest_of(stack.query(queries, k, votes=False), once, queries)

    @torch.no_grad()
    def query(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Log votes (n, F, K), and squared distances (n, F, k) to the k nearest, for queries (F, n, d).

        Voters with weights have no distances here, k = 0.
        """
        queries, first = self._check(queries), self.sets[0]
        if self._stack is None or queries.shape[1] == 0 or k > self._fewest:
            parts = [voters.query(h, k, "auto") for voters, h in zip(self.sets, queries, strict=True)]
            return torch.stack([part[0] for part in parts], dim=1), torch.stack([part[2] for part in parts], dim=1)
        result = self._stack.query(first.lifted(queries), k)
        votes = result.log_class_weights
        if first.weights is not None:
            votes += torch.stack([voters.log_factors.max() for voters in self.sets])[:, None]
        if first.look_alikes is not None:
            near = self._base_votes
            if self._narrow is not None:
                near = self._narrow.log_class_weights(first.look_alikes.factor * queries)
            votes = first.add_votes(votes, near)
        if first.class_weights is not None:
            votes += torch.as_tensor(first.log_class_factors)
        return votes, nearest_of(result, self.sets, queries)

    @cached_property
    def _fewest(self) -> int:
        return min(len(voters.labels) for voters in self.sets)

    @cached_property
    def directions(self) -> VoterSets:
        """The same sets with embeddings of length 1."""
        return VoterSets(tuple(voters.directions for voters in self.sets))

    @cached_property
    def _narrow(self) -> VoterSets | None:
        """The sets as the second kernel sees them; None for a base vote."""
        narrow = [voters.narrow for voters in self.sets if voters.narrow is not None]
        return VoterSets(tuple(narrow)) if len(narrow) == len(self.sets) else None

    @cached_property
    def _base_votes(self) -> Tensor:
        return torch.stack([voters.base_votes for voters in self.sets])

    @cached_property
    def _stack(self) -> Stack | None:
        """The layout for one pass; None if sets are queried one by one, as large ones are."""
        return stack_of(self.sets)

    @cached_property
    def _stack_of_each_once(self) -> Stack | None:
        """The same without weights."""
        return stack_of([voters.each_once for voters in self.sets]) if self.sets[0].weighted else self._stack

    def _check(self, queries: Tensor) -> Tensor:
        h, shape = checks.float_tensor(queries, "queries", ndim=3), (len(self.sets), self.sets[0].embeddings.shape[1])
        if (h.shape[0], h.shape[2]) != shape:
            raise ShapeError(f"queries must be ({shape[0]}, n, {shape[1]}), as the sets are; got {tuple(h.shape)}")
        return h
