"""VoterSets: several sets of voters, such as the folds of a cross-fitted model, queried together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from dwac import _checks as checks
from dwac import engine
from dwac.errors import ShapeError
from dwac.reference.voters import MATRIX, Voters


class _Stack(NamedTuple):
    """F sets side by side, each padded to the M voters of the largest."""

    embeddings: Tensor  # (F, M, d) float64
    padding: Tensor  # (F, M) bool
    codes: Tensor  # (F · M,) int64: set · K + label; F · K for padding
    log_factors: Tensor  # (F · M,) float64
    most: Tensor  # (F · K,) float64: the largest possible log-weight of each class


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
        queries, first = self._check(queries), self.sets[0]
        if not self._together:
            pairs = zip(self.sets, queries, strict=True)
            return torch.stack([voters.query(h, 0, "auto").log_class_weights for voters, h in pairs], dim=1)
        stack, answers = self._stack, []
        for _, squared in self._parts(queries):
            log_w = first.log_weights_at(squared.transpose(0, 1).flatten(1)) + stack.log_factors
            sums = engine.sum_by_label(log_w, stack.codes, len(stack.most) + 1)[:, :-1]
            answers.append(torch.minimum(sums, stack.most))
        sums = torch.cat(answers).view(-1, len(self.sets), first.n_classes)
        return sums if first.class_weights is None else sums + torch.as_tensor(first.log_class_factors)

    @torch.no_grad()
    def squared_distances(self, queries: Tensor, k: int) -> Tensor:
        """(n, F, k) float64: squared distances to the k nearest voters of each set, nearest first, ignoring weights."""
        queries = self._check(queries)
        if not self._together or k > min(len(voters.labels) for voters in self.sets):
            pairs = zip(self.sets, queries, strict=True)
            return torch.stack([voters.each_once.query(h, k, "auto").squared_distances for voters, h in pairs], dim=1)
        stack, answers = self._stack, []
        each = torch.arange(len(self.sets))[:, None, None]
        for part, squared in self._parts(queries):
            keys = squared.masked_fill(stack.padding[:, None], torch.inf)
            rows = engine.smallest(keys.flatten(0, 1), k).view(*keys.shape[:2], k)
            answers.append((part[:, :, None] - stack.embeddings[each, rows]).square().sum(dim=3).transpose(0, 1))
        return torch.cat(answers)

    @cached_property
    def directions(self) -> VoterSets:
        """The same sets with embeddings of length 1."""
        return VoterSets(tuple(voters.directions for voters in self.sets))

    @cached_property
    def _together(self) -> bool:
        return all(voters.are_few for voters in self.sets)

    @cached_property
    def _stack(self) -> _Stack:
        n_sets, n_classes = len(self.sets), self.sets[0].n_classes
        size, width = max(len(voters.labels) for voters in self.sets), self.sets[0].embeddings.shape[1]
        embeddings = torch.zeros(n_sets, size, width, dtype=torch.float64)
        codes = torch.full((n_sets, size), n_sets * n_classes)
        log_factors = torch.zeros(n_sets, size, dtype=torch.float64)
        for place, voters in enumerate(self.sets):
            rows = slice(len(voters.labels))
            embeddings[place, rows] = voters.embeddings.double()
            codes[place, rows] = voters.labels + place * n_classes
            log_factors[place, rows] = voters.log_factors
        most = torch.cat([voters.log_most for voters in self.sets])
        return _Stack(embeddings, codes == n_sets * n_classes, codes.flatten(), log_factors.flatten(), most)

    def _parts(self, queries: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Chunks of queries (F, c, d) in float64, and their squared distances (F, c, M), computed by differences."""
        ref_h = self._stack.embeddings
        for part in queries.double().split(max(1, MATRIX // ref_h.shape[1]), dim=1):
            yield part, torch.cdist(part, ref_h, compute_mode="donot_use_mm_for_euclid_dist").square()

    def _check(self, queries: Tensor) -> Tensor:
        h, shape = checks.float_tensor(queries, "queries", ndim=3), (len(self.sets), self.sets[0].embeddings.shape[1])
        if (h.shape[0], h.shape[2]) != shape:
            raise ShapeError(f"queries must be ({shape[0]}, n, {shape[1]}), as the sets are; got {tuple(h.shape)}")
        return h
