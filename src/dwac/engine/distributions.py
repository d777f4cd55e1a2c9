"""The weighted distribution of a target: shares of the votes below and above a value, quantiles, and the CRPS.

    ordered = sort_targets(targets)                                       # once for each target (m,)
    below, above = log_tails(voters, queries, ordered, values)        # logs of the shares of votes ≤ and ≥ each value

References are sorted by their target and summed in blocks of 64. Each answer lies in one block per query, whose votes
are then examined one by one. Sums from below and from above are both kept as logs, so that a tail of e⁻¹⁰⁰⁰ is as exact
as one of ½. No (n, m) array is held; see `dwac.engine.votes` for the precision policy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from dwac.engine.backends import exp_
from dwac.engine.votes import LogVotes, WeightedReferences, answer_queries

BLOCK = 64
_SLACK = 1e-12  # a share reaches a level if it does so up to rounding


class SortedTargets(NamedTuple):
    """References sorted by a target, padded to whole blocks.

    >>> ordered = sort_targets(torch.tensor([90.0, 10.0, 20.0]))
    >>> ordered.rows[:3], ordered.counts(torch.tensor([20.0]))
    (tensor([1, 2, 0]), tensor([2]))
    """

    rows: Tensor  # (blocks · 64,) int64: the reference at each position, by ascending target; -1 for padding
    values: Tensor  # (blocks · 64,) float64: its target; padding repeats the largest
    size: int  # m

    def counts(self, values: Tensor, *, below: bool = False) -> Tensor:
        """How many references have a target ≤ each value, or < if below."""
        return torch.searchsorted(self.values[: self.size], values.contiguous(), right=not below)


def sort_targets(targets: Tensor) -> SortedTargets:
    """References sorted by a target (m,); ties stay in their order."""
    values, rows = targets.double().sort(stable=True)
    missing = -len(rows) % BLOCK
    padded = torch.cat([rows, rows.new_full((missing,), -1)])
    return SortedTargets(padded, torch.cat([values, values[-1:].expand(missing)]), len(rows))


@torch.no_grad()
def log_tails(
    voters: WeightedReferences, queries: Tensor, ordered: SortedTargets, values: Tensor
) -> tuple[Tensor, Tensor]:
    """Logs of the shares of votes for targets ≤ and ≥ values (n, C), which may be infinite: both (n, C), at most 0."""

    def read(sums: _CumulativeVotes, values: Tensor) -> tuple[Tensor, Tensor]:
        below = sums.log_share(ordered.counts(values))
        return below, sums.log_share(ordered.counts(values, below=True), above=True)

    below, above = _read_sums(voters, queries, ordered, read, values)
    return below, above


@torch.no_grad()
def log_shares(voters: WeightedReferences, queries: Tensor, ordered: SortedTargets, counts: Tensor) -> Tensor:
    """(n, C): logs of the shares of votes of the first `counts` (n, C) references in order."""
    return _read_sums(voters, queries, ordered, lambda sums, counts: (sums.log_share(counts),), counts)[0]


@torch.no_grad()
def weighted_quantiles(
    voters: WeightedReferences, queries: Tensor, ordered: SortedTargets, log_levels: Tensor
) -> Tensor:
    """The smallest target y with a share of votes for targets ≤ y of at least each level: (n, C), from logs (n, C)."""
    return _read_sums(voters, queries, ordered, lambda sums, levels: (sums.quantiles(levels),), log_levels)[0]


@torch.no_grad()
def weighted_ends(
    voters: WeightedReferences, queries: Tensor, ordered: SortedTargets, log_levels: Tensor
) -> tuple[Tensor, Tensor]:
    """The quantiles from below, and from above: the largest y with a share for targets ≥ y of at least each level."""

    def read(sums: _CumulativeVotes, log_levels: Tensor) -> tuple[Tensor, Tensor]:
        return sums.quantiles(log_levels), sums.quantiles(log_levels, above=True)

    lower, upper = _read_sums(voters, queries, ordered, read, log_levels)
    return lower, upper


@torch.no_grad()
def weighted_crps(voters: WeightedReferences, queries: Tensor, ordered: SortedTargets, values: Tensor) -> Tensor:
    """∫ (F(t) - 1{t ≥ y})² dt for one value y of each query (n,), F the share of votes for targets ≤ t: (n,) float64.

    Summed over the gaps between targets. Every term is positive, with F or 1 - F summed from its own end.
    """
    ascending, places = values.sort()
    scores = _read_sums(voters, queries[places], ordered, lambda sums, values: (sums.crps(values),), ascending)[0]
    return torch.empty_like(values).scatter_(0, places, scores)


def _read_sums(
    voters: WeightedReferences,
    queries: Tensor,
    ordered: SortedTargets,
    read: Callable[[_CumulativeVotes, Tensor], tuple[Tensor, ...]],
    own: Tensor,
) -> tuple[Tensor, ...]:
    """read(cumulative votes, own) for all queries (n, d); `own` has a row for each."""

    def answer(votes: LogVotes, own: Tensor) -> tuple[Tensor, ...]:
        sums = _CumulativeVotes(votes, ordered)
        return sums.log_total, *read(sums, own)

    return answer_queries(voters, queries, answer, own)[1:]


class _CumulativeVotes:
    """Votes on n queries, sorted by a target and cumulated over blocks from both ends; logs, in units of `_top`."""

    def __init__(self, votes: LogVotes, ordered: SortedTargets) -> None:
        self.votes, self.ordered = votes, ordered
        self.rows = ordered.rows.view(-1, BLOCK)
        logs, largest = self._blocks()
        self._top = largest.amax(dim=1, keepdim=True)
        logs.add_(largest.sub_(self._top))
        self._logs, self._total = logs, logs.logsumexp(dim=1, keepdim=True)
        self.log_total = (self._total + self._top)[:, 0] + votes.shift

    @cached_property
    def _up(self) -> Tensor:
        """(n, blocks + 1): the log of all votes before each block."""
        return self._cumulate(self._logs)

    @cached_property
    def _down(self) -> Tensor:
        """(n, blocks + 1): the log of all votes in the last blocks, for every number of them."""
        return self._cumulate(self._logs.flip(1))

    def _cumulate(self, logs: Tensor) -> Tensor:
        # Rounding must not make a sum smaller than one that it contains.
        sums = logs.logcumsumexp(dim=1).cummax(dim=1).values
        return torch.cat([torch.full_like(self._top, -torch.inf), sums], dim=1)

    def _blocks(self) -> tuple[Tensor, Tensor]:
        """For each block, the log of its votes in units of the largest, and the log of that unit: both (n, blocks)."""
        logs = self.votes.norms.new_empty(len(self.votes), len(self.rows))
        largest = torch.empty_like(logs)
        for here in self._tiles():
            tile = self.votes.of(self.rows[here].flatten()).view(len(logs), len(self.rows[here]), BLOCK)
            torch.amax(tile, dim=2, out=largest[:, here])
            logs[:, here] = exp_(tile.sub_(largest[:, here, None])).sum(dim=2)
        return logs.log_(), largest

    def _tiles(self) -> list[slice]:
        width = max(1, self.votes.width // BLOCK)
        return [slice(first, first + width) for first in range(0, len(self.rows), width)]

    @cached_property
    def _each_up(self) -> Tensor:
        """(n, m + 1): the log of the sum of the first votes in order, for every number of them."""
        return self._cumulate(self.votes.of(self.ordered.rows[: self.ordered.size]).sub_(self._top))

    @cached_property
    def _each_down(self) -> Tensor:
        """(n, m + 1): the same for the last votes."""
        rows = self.ordered.rows[: self.ordered.size].flip(0)
        return self._cumulate(self.votes.of(rows).sub_(self._top))

    def _single(self, blocks: Tensor) -> Tensor:
        """The votes in one block (n,) for each query: logs (n, 64)."""
        return self.votes.of(self.rows[blocks]).sub_(self._top)

    def log_share(self, counts: Tensor, *, above: bool = False) -> Tensor:
        """The log of the share of the first `counts` (n, C) votes in order; or of all others if above."""
        if BLOCK * counts.shape[1] > self.rows.numel():  # blocks would cover more votes than there are
            sums, places = (self._each_down, self.ordered.size - counts) if above else (self._each_up, counts)
            return sums.gather(1, places).sub_(self._total).clamp_max_(0)
        blocks = (counts // BLOCK).clamp_max(len(self.rows) - 1)
        rest = self._down.gather(1, len(self.rows) - 1 - blocks) if above else self._up.gather(1, blocks)
        here = torch.empty_like(rest)
        for column, (block, count) in enumerate(zip(blocks.T, counts.T, strict=True)):
            places = torch.arange(BLOCK, device=counts.device) + BLOCK * block[:, None]
            left_out = (places < count[:, None]) == above
            here[:, column] = self._single(block).masked_fill_(left_out, -torch.inf).logsumexp(dim=1)
        return torch.logaddexp(rest, here).sub_(self._total).clamp_max_(0)

    def quantiles(self, log_levels: Tensor, *, above: bool = False) -> Tensor:
        """The first target in order at which the votes reach each level (n, C); with `above`, the last, from above."""
        goals = log_levels + self._total - _SLACK
        if BLOCK * goals.shape[1] > self.rows.numel():  # blocks would cover more votes than there are
            sums, last = self._each_down if above else self._each_up, self.ordered.size - 1
            places = torch.searchsorted(sums[:, 1:].contiguous(), goals).clamp_max_(last)
            return self.ordered.values[last - places if above else places]
        sums = self._down if above else self._up
        # The blocks in which the votes reach each level, in the direction of the sums.
        blocks = torch.searchsorted(sums[:, 1:].contiguous(), goals).clamp_max_(len(self.rows) - 1)
        before = sums.gather(1, blocks)
        answer = torch.empty_like(goals)
        for column in range(goals.shape[1]):
            here = slice(column, column + 1)
            answer[:, column] = self._quantile(goals[:, here], blocks[:, column], before[:, here], above)
        return answer

    def _quantile(self, goal: Tensor, block: Tensor, before: Tensor, above: bool) -> Tensor:
        """(n,): the target within a block (n,) at which the votes reach a goal (n, 1), given those before (n, 1)."""
        block = len(self.rows) - 1 - block if above else block
        single = self._single(block)
        reached = torch.logaddexp(before, (single.flip(1) if above else single).logcumsumexp(dim=1))
        place = (reached < goal).sum(dim=1).clamp_max_(BLOCK - 1)
        place = BLOCK * block + (BLOCK - 1 - place if above else place)
        return self.ordered.values[place.clamp_max_(self.ordered.size - 1)]

    def crps(self, values: Tensor) -> Tensor:
        """(n,): see `weighted_crps`; values (n,) must ascend."""
        targets = self.ordered.values
        scores = (targets[0] - values).clamp_min(0) + (values - targets[-1]).clamp_min(0)
        starts, stops = targets.view(-1, BLOCK), torch.cat([targets[1:], targets[-1:]]).view(-1, BLOCK)
        before = (self._up[:, :-1] - self._total).exp_()
        after = (self._down[:, :-1].flip(1) - self._total).exp_()
        for here in self._tiles():
            # Ascending values lie below the targets of a tile, then among them, then above.
            first = int(torch.searchsorted(values, starts[here][0, 0], right=True))
            last = max(first, int(torch.searchsorted(values, stops[here][-1, -1])))
            shares = exp_(self.votes.of(self.rows[here].flatten()).sub_(self._top).sub_(self._total))
            shares = shares.view(len(scores), len(self.rows[here]), BLOCK)
            split = values[first:last, None, None].clamp(starts[here], stops[here])
            below = shares[first:].cumsum(dim=2).add_(before[first:, here, None]).square_().flatten(1)
            after_each = shares[:last, :, 1:].flip(2).cumsum(dim=2).flip(2)  # subtraction would lose digits
            above = torch.nn.functional.pad(after_each, (0, 1)).add_(after[:last, here, None]).square_().flatten(1)
            gaps = (stops[here] - starts[here]).flatten()
            scores[last:] += below[last - first :] @ gaps
            scores[:first] += above[:first] @ gaps
            scores[first:last] += (below[: last - first] * (split - starts[here]).flatten(1)).sum(dim=1)
            scores[first:last] += (above[first:] * (stops[here] - split).flatten(1)).sum(dim=1)
        return scores
