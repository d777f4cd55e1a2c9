"""Blocks: parts of a reference set that are queried separately, here or on another machine.

    part = merge(block.votes(queries, k) for block in blocks)     # in any order, in any tree, up to rounding

A part is the answer of one block: a tuple of tensors with a row for each query. It is small enough to send and holds no
reference to its block, so any map and reduce will do: threads, processes, Dask, Ray, Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from itertools import pairwise
from operator import methodcaller
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import pandas as pd
import torch
from torch import Tensor

from dwac import engine
from dwac.errors import EmptyReferenceError, InputError
from dwac.kernels import get_kernel
from dwac.reference.distribution import VoteDistribution
from dwac.reference.groups import Floats, Ints
from dwac.reference.inputs import LookAlikes
from dwac.reference.voters import Voters, unit
from dwac.storage import FileRows

_GOLDEN = 0.6180339887498949  # so that similar blocks propose different targets
_SLACK = 1e-12  # a share reaches a level if it does so up to rounding, as in `dwac.engine.distributions`
_TRIED = 128  # targets tried in each round of the search for a quantile
_QUERIES = 512  # queries per search


class MergeablePart(Protocol):
    """The answer of some of the voters."""

    def merge(self, other: Self) -> Self:
        """The combined answer of these voters and others."""


P = TypeVar("P", bound=MergeablePart)


def merge(parts: Iterable[P]) -> P:
    """Merge the answers of all blocks into one; if `parts` is an iterator, only two are held at a time."""
    try:
        return reduce(lambda one, other: one.merge(other), parts)
    except TypeError as error:
        if "empty" not in str(error):
            raise
        raise EmptyReferenceError("merge needs at least one part; got none; ask at least one block") from None


class VotePart(NamedTuple):
    """Votes: class sums add up in log space, and the overall nearest are among the nearest of each block."""

    log_sums: Tensor  # (n, K) float64: log Σ w of each class; -inf where the block has no voter of the class
    rows: Tensor  # (n, k) int64: the nearest, as positions in the whole set, nearest first
    squared_distances: Tensor  # (n, k) float64
    keys: Tensor  # (n, k) float64: sort keys, ascending; ties are ordered by position
    k: int  # how many were requested; a block may have fewer

    def merge(self, other: VotePart) -> VotePart:
        """See `MergeablePart.merge`."""
        sums = torch.logaddexp(self.log_sums, other.log_sums)
        rows, squared, keys = (torch.cat([a, b], dim=1) for a, b in zip(self[1:4], other[1:4], strict=True))
        by_row = rows.argsort(dim=1)
        order = by_row.gather(1, keys.gather(1, by_row).argsort(dim=1, stable=True))[:, : self.k]
        return VotePart(sums, rows.gather(1, order), squared.gather(1, order), keys.gather(1, order), self.k)


class MeanPart(NamedTuple):
    """Vote-weighted averages: of targets, or of whether they lie below a value or in a bin."""

    log_total: Tensor  # (n,) float64: the log of all votes of the block
    means: Tensor  # (n, …) float64

    def merge(self, other: MeanPart) -> MeanPart:
        """See `MergeablePart.merge`."""
        log_total, own, theirs = _shares(self.log_total, other.log_total)
        # Interpolate from one to the other, so that equal values stay exactly equal.
        larger = _like(own >= theirs, self.means)
        near, far = torch.where(larger, self.means, other.means), torch.where(larger, other.means, self.means)
        return MeanPart(log_total, near + _like(torch.minimum(own, theirs), near) * (far - near))


class VariancePart(NamedTuple):
    """Means and variances: merging adds the variance within blocks and that between their means."""

    log_total: Tensor  # (n,)
    means: Tensor  # (n, T)
    variances: Tensor  # (n, T)

    def merge(self, other: VariancePart) -> VariancePart:
        """See `MergeablePart.merge`."""
        means = MeanPart(self.log_total, self.means).merge(MeanPart(other.log_total, other.means))
        within = MeanPart(self.log_total, self.variances).merge(MeanPart(other.log_total, other.variances)).means
        _, own, theirs = _shares(self.log_total, other.log_total)
        between = (own * theirs)[:, None] * (self.means - other.means).square()
        return VariancePart(means.log_total, means.means, within + between)


class TailPart(NamedTuple):
    """Shares of the votes ≤ and ≥ a value, as logs: a tail of e⁻¹⁰⁰⁰ is as exact as one of a half."""

    log_total: Tensor  # (n,)
    below: Tensor  # (n, C): log of all votes ≤ each value
    above: Tensor  # (n, C): the same for ≥

    def merge(self, other: TailPart) -> TailPart:
        """See `MergeablePart.merge`."""
        return TailPart(*(torch.logaddexp(a, b) for a, b in zip(self, other, strict=True)))


class BetweenPart(NamedTuple):
    """Targets strictly between two values, for each query and level: a sample, and how many there are."""

    targets: Tensor  # (n, C, p) float64; NaN where there are fewer
    counts: Tensor  # (n, C) int64

    def merge(self, other: BetweenPart) -> BetweenPart:
        """See `MergeablePart.merge`."""
        return BetweenPart(torch.cat([self.targets, other.targets], dim=2), self.counts + other.counts)


def _shares(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The log of the sum of both (n,), and the share of each; ½ where neither has any votes."""
    both = torch.logaddexp(one, other)
    return both, (one - both).exp().nan_to_num(nan=0.5), (other - both).exp().nan_to_num(nan=0.5)


def _like(values: Tensor, other: Tensor) -> Tensor:
    """Reshape (n,) to (n, 1, …), to broadcast with another tensor."""
    return values.view(-1, *[1] * (other.ndim - 1))


@dataclass(frozen=True, eq=False)
class Block:
    """The voters at positions start … stop of a set. Send it to a worker once, and query it there.

    A query reads its rows from files, except those changed in memory. It computes in float64, whatever type its rows
    are stored in, so that answers do not depend on how a set is divided.
    """

    start: int
    stop: int
    rows: Mapping[str, Tensor | FileRows]  # embeddings and labels; weights, sizes and targets if any
    n_classes: int
    kernel: str
    class_weights: tuple[float, ...] | None
    look_alikes: LookAlikes | None
    normalised: bool = False  # whether embeddings are scaled to length 1

    def __len__(self) -> int:
        """The number of voters."""
        return self.stop - self.start

    @property
    def voters(self) -> Voters:
        """Its voters as a separate set, read from the files again."""
        columns = {name: self._column(name) for name in self.rows}
        embeddings = unit(columns["embeddings"]) if self.normalised else columns["embeddings"]
        return Voters(
            embeddings.double(),
            columns["labels"].long(),
            pd.RangeIndex(self.start, self.stop),
            None,
            self.n_classes,
            get_kernel(self.kernel),
            self.class_weights,
            columns.get("weights"),
            columns.get("sizes"),
            self.look_alikes,
            targets=columns.get("targets"),
        )

    def _column(self, name: str) -> Tensor:
        rows = self.rows[name]
        return rows if isinstance(rows, Tensor) else rows.read()

    # Queries

    def votes(self, queries: Tensor, k: int = 0, backend: str = "auto") -> VotePart:
        """The votes for each class, and the k nearest."""
        voters = self.voters
        sums, rows, squared = voters.query(queries.double(), min(k, len(self)), backend)
        keys = squared
        if voters.weights is not None:
            keys = -(voters.kernel.log_weights(squared) + voters.log_factors[rows])
        return VotePart(sums, rows + self.start, squared, keys, k)

    def single_votes(self, query: Tensor) -> Tensor:
        """(stop - start,): log w of each voter for one query (d,)."""
        return self.voters.log_votes(query)

    def means(self, queries: Tensor) -> MeanPart:
        """The means of the targets."""
        votes = self._distribution(queries)
        return MeanPart(votes.log_total, votes.mean)

    def variances(self, queries: Tensor) -> VariancePart:
        """The means and variances of the targets."""
        votes = self._distribution(queries)
        return VariancePart(votes.log_total, votes.mean, votes.variance)

    def histogram(self, queries: Tensor, edges: Tensor) -> MeanPart:
        """Shares of the votes between edges (T, B + 1)."""
        votes = self._distribution(queries)
        return MeanPart(votes.log_total, votes.histogram(edges.cpu().numpy()))

    def tails(self, queries: Tensor, values: Tensor, target: int) -> TailPart:
        """The votes for targets ≤ and ≥ values (n, C)."""
        votes = self._distribution(queries, target)
        return TailPart(votes.log_total, *(tail + votes.log_total[:, None] for tail in votes.log_tails(0, values)))

    def between(self, lower: Tensor, upper: Tensor, size: int, target: int) -> BetweenPart:
        """Up to `size` of the targets strictly between values (n, C) and (n, C), spread evenly over them."""
        ordered = self._column("targets")[:, target].sort()[0]
        first = torch.searchsorted(ordered, lower.contiguous(), right=True)
        counts = (torch.searchsorted(ordered, upper.contiguous()) - first).clamp_min_(0)
        offset = (self.start * _GOLDEN) % 1
        spread = (torch.arange(size, device=ordered.device, dtype=torch.float64) + offset) / size
        few = torch.arange(size, device=ordered.device)
        places = torch.where(counts[:, :, None] <= size, few, (spread * counts[:, :, None]).long())
        values = ordered[(first[:, :, None] + places).clamp_max_(len(ordered) - 1)]
        return BetweenPart(values.masked_fill_(places >= counts[:, :, None], torch.nan), counts)

    def _distribution(self, queries: Tensor, target: int | None = None) -> VoteDistribution:
        """The distribution of all targets, or of one."""
        voters = self.voters
        if target is not None and voters.targets is not None and voters.targets.shape[1] > 1:
            voters = replace(voters, targets=voters.targets[:, target : target + 1])
        return VoteDistribution(voters, queries.double(), tensors=True)


# Applies a function to every block, like the built-in map: the `map` of a thread pool, process pool or cluster.
Ask = Callable[[Callable[[Block], Any], Sequence[Block]], Iterable[Any]]


@dataclass(frozen=True, eq=False)
class BlockVoters(Voters):
    """References in `files`: rows cuts[i] … cuts[i + 1] form a block, and `ask` queries all blocks.

    The tensors of the state are mapped from the files, and blocks read their rows for each query. Columns changed in
    memory, such as labels, are held as tensors.
    """

    cuts: tuple[int, ...] = ()
    ask: Ask = map
    files: tuple[FileRows, ...] = ()
    normalised: bool = False  # blocks scale embeddings to length 1

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks in order."""
        return tuple(self._block(*ends) for ends in pairwise(self.cuts))

    def _block(self, start: int, stop: int) -> Block:
        columns = ("embeddings", "labels", "weights", "sizes", "targets")
        rows = {name: self.source(name)[start:stop] for name in columns if getattr(self, name) is not None}
        weights, near = self.class_weights, self.look_alikes
        return Block(start, stop, rows, self.n_classes, self.kernel.name, weights, near, self.normalised)

    def source(self, name: str) -> Any:
        """A tensor of the state, or the file rows that it is mapped from."""
        column = getattr(self, name)
        return next((file for file in self.files if file.mapped is column), column)

    @cached_property
    def are_few(self) -> bool:
        """See `Voters.are_few`: blocks decide for themselves."""
        return False

    @property
    def points(self) -> Any:
        """See `Voters.points`."""
        return self.source("embeddings")

    def ask_all(self, method: str, *arguments: Any) -> Any:
        """The merged answer of all blocks to a method of `Block`."""
        return merge(self.ask(methodcaller(method, *arguments), self.blocks))

    # Votes

    def query(self, h: Tensor, k: int, backend: str) -> engine.QueryResult:
        """See `Voters.query`."""
        if not 0 <= k <= len(self.labels):
            raise InputError(f"k must lie in 0 … {len(self.labels)}, the number of references; got {k}")
        part: VotePart = self.ask_all("votes", h, k, backend)
        return engine.QueryResult(part.log_sums, part.rows, part.squared_distances)

    @torch.no_grad()
    def log_votes(self, h: Tensor) -> Tensor:
        """See `Voters.log_votes`."""
        return torch.cat(list(self.ask(methodcaller("single_votes", h), self.blocks)))

    @cached_property
    def directions(self) -> Voters:
        """See `Voters.directions`. Embeddings in files are normalised by the blocks only."""
        bare: dict[str, Any] = {"look_alikes": None, "members": None, "division": None}
        if self.source("embeddings") is self.embeddings:
            return replace(self.each_once, embeddings=unit(self.embeddings), **bare)
        assert isinstance(self.each_once, BlockVoters)
        return replace(self.each_once, normalised=True, **bare)

    @cached_property
    def target_range(self) -> Tensor:
        """See `Voters.target_range`."""
        ends = [torch.stack(part.aminmax(dim=0)) for part in self.source("targets").split(2**20)]
        lowest, highest = torch.stack(ends).unbind(1)
        return torch.stack([lowest.amin(dim=0), highest.amax(dim=0)])

    # Other voters

    @property
    def whole(self) -> Voters:
        """The same references, undivided."""
        return Voters(**{field.name: getattr(self, field.name) for field in fields(Voters)})

    def condensed(self, leaves: Ints | None = None, factors: Floats | None = None) -> Voters:
        """See `Voters.condensed`. The representatives are not divided into blocks."""
        few = super().condensed(leaves, factors)
        assert isinstance(few, BlockVoters)
        return few.whole

    # Voters cannot be added or removed: others may be using the files.

    def added(self, *_: Any, **__: Any) -> Voters:
        """See `Voters.added`: refused."""
        raise _refusal("added to")

    def removed(self, _: Ints) -> Voters:
        """See `Voters.removed`: refused."""
        raise _refusal("removed from")


def _refusal(what: str) -> InputError:
    return InputError(
        f"examples cannot be {what} a set that is read from its files, which many may be using; load it into memory, "
        "edit it and save it: dwac.load(path) without mapped=True, or dwac.reference.in_memory(references); if it is "
        "too large for that, write it again without them, with dwac.reference.ReferenceWriter"
    )


class BlockDistribution(VoteDistribution):
    """A `VoteDistribution` whose voters are queried block by block.

    Means, variances, shares and tails take one query per block. A quantile takes a few: each narrows the interval that
    holds it to one of 128 parts. The CRPS and the influence of voters compare every vote with all others, so they are
    computed from the whole set, in this process.
    """

    _voters: BlockVoters

    def _ask_all(self, method: str, *arguments: Any) -> Any:
        return self._voters.ask_all(method, self._queries, *arguments)

    @cached_property
    def _means(self) -> engine.WeightedMeans:
        return engine.WeightedMeans(*self._ask_all("means"))

    @cached_property
    def _variances(self) -> Tensor:
        part: VariancePart = self._ask_all("variances")
        return part.variances

    def _log_below(self, target: int, values: Tensor) -> Tensor:
        return self.log_tails(target, values)[0]

    def log_tails(self, target: int, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `VoteDistribution.log_tails`."""
        part: TailPart = self._ask_all("tails", values, target)
        below, above = (tail.sub(part.log_total[:, None]).clamp_max_(0) for tail in (part.below, part.above))
        return below, above

    def _histogram(self, edges: Tensor) -> Tensor:
        part: MeanPart = self._ask_all("histogram", edges)
        return part.means

    def _quantiles(self, target: int, log_levels: Tensor) -> Tensor:
        return self._search(target, log_levels, above=False)

    def _ends(self, target: int, log_levels: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = (self._search(target, log_levels, above=above) for above in (False, True))
        return lower, upper

    def _search(self, target: int, log_levels: Tensor, *, above: bool) -> Tensor:
        """(n, C): the first target at which the votes reach each level (n, C); with `above`, the last, from above."""
        if len(self) == 0 or log_levels.shape[1] == 0:
            return torch.empty_like(log_levels)
        queries = zip(self._queries.split(_QUERIES), log_levels.split(_QUERIES), strict=True)
        parts = [(BlockDistribution(self._voters, some, tensors=True), levels) for some, levels in queries]
        return torch.cat([part._narrow(target, levels, above) for part, levels in parts])

    def _narrow(self, target: int, log_levels: Tensor, above: bool) -> Tensor:
        """`_search` for one batch of queries.

        The tail of the target `reached` has enough votes, that of the value `short` has not; the answer is `reached` or
        lies between the two.
        """
        ends = self._voters.target_range[:, target]
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

        If there are fewer, the first is repeated; if there are none, the upper or lower end.
        """
        each = max(2, -(-_TRIED // len(self._voters.blocks)))
        part: BetweenPart = self._voters.ask_all("between", lower, upper, each, target)
        if not bool(part.counts.any()):
            return part.targets[:, :, :0]
        values = part.targets.sort(dim=2)[0]  # NaN comes last
        known = (~values.isnan()).sum(dim=2, keepdim=True)
        size = min(_TRIED, values.shape[2])
        steps = torch.arange(size, device=values.device, dtype=torch.float64) / max(1, size - 1)
        places = torch.where(known <= size, torch.arange(size, device=values.device), (steps * (known - 1)).long())
        chosen = values.gather(2, places.clamp_max((known - 1).clamp_min(0)))
        ends = torch.where(upper.isfinite(), upper, lower)[:, :, None]
        return torch.where(known == 0, ends, chosen)
