"""ShardedDistribution: the distribution of targets by the votes of all shards, merged exactly."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from dwac import engine
from dwac.reference.distribution import VoteDistribution
from dwac.reference.divided import Divided
from dwac.reference.parts import BetweenPart, MeanPart, TailPart, VariancePart

_SLACK = 1e-12  # a share that reaches a level up to rounding reaches it, as in `dwac.engine.distributions`
_TRIED = 128  # targets at which the votes are summed in each round of the search for a quantile
_QUERIES = 512  # searched for at a time


class ShardedDistribution(VoteDistribution):
    """A `VoteDistribution` whose voters are asked shard by shard.

    Means, variances, shares and tails are merged from one question to every shard. A quantile takes a few: each
    narrows down between which targets it lies, to one of 128 parts, until it is found. The CRPS, and whose removal
    moves the mean, need every vote beside all others: they are computed from the whole set, where this process is.
    """

    _state: Divided

    def _asked(self, method: str, *arguments: Any) -> Any:
        return self._state.asked(method, self._queries, *arguments)

    @cached_property
    def _means(self) -> engine.WeightedMeans:
        return engine.WeightedMeans(*self._asked("means"))

    @cached_property
    def _variances(self) -> Tensor:
        found: VariancePart = self._asked("variances")
        return found.variances

    def _log_below(self, target: int, values: Tensor) -> Tensor:
        return self.log_tails(target, values)[0]

    def log_tails(self, target: int, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `VoteDistribution.log_tails`."""
        found: TailPart = self._asked("tails", values, target)
        below, above = (tail.sub(found.log_total[:, None]).clamp_max_(0) for tail in (found.below, found.above))
        return below, above

    def _histogram(self, edges: Tensor) -> Tensor:
        found: MeanPart = self._asked("histogram", edges)
        return found.means

    def _quantiles(self, target: int, log_levels: Tensor) -> Tensor:
        return self._searched(target, log_levels, above=False)

    def _ends(self, target: int, log_levels: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = (self._searched(target, log_levels, above=above) for above in (False, True))
        return lower, upper

    def _searched(self, target: int, log_levels: Tensor, *, above: bool) -> Tensor:
        """(n, C): the first target at which the votes reach each level (n, C); the last from above."""
        if len(self) == 0 or log_levels.shape[1] == 0:
            return torch.empty_like(log_levels)
        queries = zip(self._queries.split(_QUERIES), log_levels.split(_QUERIES), strict=True)
        parts = [(ShardedDistribution(self._state, some, tensors=True), levels) for some, levels in queries]
        return torch.cat([part._narrowed(target, levels, above) for part, levels in parts])

    def _narrowed(self, target: int, log_levels: Tensor, above: bool) -> Tensor:
        """The same, for queries that are searched for together.

        `reached` is a target whose tail has the votes, `short` a value whose tail has not, and the answer is `reached`
        or lies between the two.
        """
        ends = self._state.target_range[:, target]
        reached = torch.full_like(log_levels, float(ends[0 if above else 1]))
        short = torch.full_like(log_levels, torch.inf if above else -torch.inf)
        while True:
            lower, upper = (reached, short) if above else (short, reached)
            tried = self._between(target, lower, upper)
            if tried.shape[2] == 0:
                return reached
            tails = self.log_tails(target, tried.flatten(1))[1 if above else 0].view_as(tried)
            enough = tails >= (log_levels - _SLACK)[:, :, None]
            best, worst = (-torch.inf, torch.inf) if above else (torch.inf, -torch.inf)
            extreme = (torch.amax, torch.amin) if above else (torch.amin, torch.amax)
            nearer = extreme[0](tried.masked_fill(~enough, best), dim=2)
            reached = torch.where(nearer == best, reached, nearer)
            further = extreme[1](tried.masked_fill(enough, worst), dim=2)
            short = torch.where(further == worst, short, further)

    def _between(self, target: int, lower: Tensor, upper: Tensor) -> Tensor:
        """(n, C, p): targets strictly between (n, C) and (n, C), evenly spread; p is 0 if there are none for any.

        Where there are fewer, the first is repeated; where there are none, the upper or lower end.
        """
        each = max(2, -(-_TRIED // len(self._state.shards)))
        found: BetweenPart = self._state.asked("between", lower, upper, each, target)
        if not bool(found.counts.any()):
            return found.values[:, :, :0]
        values = found.values.sort(dim=2).values  # NaN comes last
        known = (~values.isnan()).sum(dim=2, keepdim=True)
        size = min(_TRIED, values.shape[2])
        steps = torch.arange(size, device=values.device, dtype=torch.float64) / max(1, size - 1)
        places = torch.where(known <= size, torch.arange(size, device=values.device), (steps * (known - 1)).long())
        chosen = values.gather(2, places.clamp_max((known - 1).clamp_min(0)))
        ends = torch.where(upper.isfinite(), upper, lower)[:, :, None]
        return torch.where(known == 0, ends, chosen)
