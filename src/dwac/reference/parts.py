"""Parts: what one shard of the voters answers, small enough to send, and how two answers become one.

    part = merge(parts)     # in any order, in any tree: merging is associative and commutative, up to rounding

Every part is a tuple of tensors with a row for each query, and knows nothing of the shard that it came from. So any
engine's map and reduce will do: threads, processes, Dask, Ray, Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor

from dwac.errors import EmptyReferenceError


class Part(Protocol):
    """The answer of some of the voters."""

    def merged(self, other: Self) -> Self:
        """The answer of these voters and others together."""


P = TypeVar("P", bound=Part)


def merge(parts: Iterable[P]) -> P:
    """The answer of all shards from those of each; only two are held at a time if `parts` is an iterator."""
    try:
        return reduce(lambda one, other: one.merged(other), parts)
    except TypeError as error:
        if "empty" not in str(error):
            raise
        raise EmptyReferenceError(
            "there must be at least one part to merge; got none; ask at least one shard"
        ) from None


class VotePart(NamedTuple):
    """Votes: sums add in log space, and the nearest of all are among the nearest of each shard."""

    log_sums: Tensor  # (n, K) float64: log Σ w of each class; -inf where the shard has nobody of the class
    rows: Tensor  # (n, k) int64: the nearest, as positions in the whole set, nearest first
    squared_distances: Tensor  # (n, k) float64
    keys: Tensor  # (n, k) float64: what they are ordered by, ascending; equal ones by position
    k: int  # how many are asked for; a shard may have fewer

    def merged(self, other: VotePart) -> VotePart:
        """See `Part.merged`."""
        sums = torch.logaddexp(self.log_sums, other.log_sums)
        rows, squared, keys = (torch.cat([a, b], dim=1) for a, b in zip(self[1:4], other[1:4], strict=True))
        by_row = rows.argsort(dim=1)
        order = by_row.gather(1, keys.gather(1, by_row).argsort(dim=1, stable=True))[:, : self.k]
        return VotePart(sums, rows.gather(1, order), squared.gather(1, order), keys.gather(1, order), self.k)


class MeanPart(NamedTuple):
    """Averages of anything by the votes: targets, or whether they lie below a value or in a bin."""

    log_total: Tensor  # (n,) float64: the log of all votes of the shard
    means: Tensor  # (n, …) float64

    def merged(self, other: MeanPart) -> MeanPart:
        """See `Part.merged`."""
        log_total, own, theirs = _shares(self.log_total, other.log_total)
        # From one towards the other, so that what both say stays exactly that.
        larger = _like(own >= theirs, self.means)
        near, far = torch.where(larger, self.means, other.means), torch.where(larger, other.means, self.means)
        return MeanPart(log_total, near + _like(torch.minimum(own, theirs), near) * (far - near))


class VariancePart(NamedTuple):
    """Means and variances: those within shards, and what the means of shards differ by."""

    log_total: Tensor  # (n,)
    means: Tensor  # (n, T)
    variances: Tensor  # (n, T)

    def merged(self, other: VariancePart) -> VariancePart:
        """See `Part.merged`."""
        means = MeanPart(self.log_total, self.means).merged(MeanPart(other.log_total, other.means))
        within = MeanPart(self.log_total, self.variances).merged(MeanPart(other.log_total, other.variances)).means
        _, own, theirs = _shares(self.log_total, other.log_total)
        between = (own * theirs)[:, None] * (self.means - other.means).square()
        return VariancePart(means.log_total, means.means, within + between)


class TailPart(NamedTuple):
    """Shares of the votes ≤ and ≥ a value, as logs: a tail of e⁻¹⁰⁰⁰ is as exact as one of a half."""

    log_total: Tensor  # (n,)
    below: Tensor  # (n, C): the logs of all votes ≤ each value
    above: Tensor  # (n, C): the same for ≥

    def merged(self, other: TailPart) -> TailPart:
        """See `Part.merged`."""
        return TailPart(*(torch.logaddexp(a, b) for a, b in zip(self, other, strict=True)))


class BetweenPart(NamedTuple):
    """Targets strictly between two values, for each query and level: some of them, and how many there are."""

    values: Tensor  # (n, C, p) float64; NaN where there are fewer
    counts: Tensor  # (n, C) int64

    def merged(self, other: BetweenPart) -> BetweenPart:
        """See `Part.merged`."""
        return BetweenPart(torch.cat([self.values, other.values], dim=2), self.counts + other.counts)


def _shares(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The log of both together (n,), and the share of each; where neither has a vote at all, a half."""
    both = torch.logaddexp(one, other)
    return both, (one - both).exp().nan_to_num(nan=0.5), (other - both).exp().nan_to_num(nan=0.5)


def _like(values: Tensor, other: Tensor) -> Tensor:
    """(n,) as (n, 1, …), to go with another tensor."""
    return values.view(-1, *[1] * (other.ndim - 1))
