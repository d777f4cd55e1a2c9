"""Log class weights within a tolerance, with guaranteed bounds: cells of references are approximated where possible.

    cells = build_cells(index)
    result = query_within(cells, queries, 1e-2)    # .log_class_weights (n, K) and .bounds (n,) on their errors

Queries near each other are answered together. They start from the largest cells. In each round every cell gets a
lower and an upper bound on its votes (`moments`). Cells whose gaps fit the tolerance are accepted; the others are
divided. What remains of a class in the end, its leaves, is summed pair by pair. If that would be most of the
references, all of them are summed at once instead. The answer is the midpoint between the logs of the lower and the
upper sum; half their difference bounds its error, rounding included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dwac.engine.bounded.leaves import leaf_sums, whole_sums
from dwac.engine.bounded.moments import cell_bounds
from dwac.engine.bounded.tree import Cells, pairs, spatial_order
from dwac.engine.choice import choose_backend
from dwac.engine.direct import by_difference
from dwac.errors import InputError, ShapeError
from dwac.kernels import full_precision


class Sizes(NamedTuple):
    """When groups are halved: a large one uses the machine well, a small one needs fewer cells divided and summed."""

    queries: int  # groups of at most this many queries are not halved, except to save memory
    bounds: int  # halved above this many bounds in a round
    pairs: int  # halved above this many pairs in the leaves to be summed
    most: int  # bounds held at once
    tile: int  # numbers in one step of the arithmetic
    whole: float  # the share of the references above which summing leaves costs more than summing all


# A step of the arithmetic holds about fifteen arrays of `tile` float64, a round two of `most`: below 150 MB in total.
SIZES = {
    "cpu": Sizes(32, 2**17, 2**20, 2**22, 2**16, 0.5),
    "cuda": Sizes(1024, 2**21, 2**27, 2**21, 2**19, 0.25),
}
ANSWERED = 2**20  # queries times classes of one search
DIRECT = 2**19  # references in one step by direct differences
_LEVELS = 2  # levels by which a cell is divided at once
_FEW_LEAVES = 8  # a cell of at most this many leaves gains little from being divided
_USED = 0.75  # the share of the tolerance that cells may use; the rest is for the rounding of pairs
_MOST_USED = 30.0  # the largest tolerance used: `moments` clips bounds that are 600 or more apart
_INNER, _LEAVES = 0.3, 1.0  # the share of the remaining tolerance for inner cells per round, and for leaves
_ADDING = 1e-10  # rounding from adding up the bounds of a million cells
_UNIT = torch.finfo(torch.float64).eps / 2


class BoundedResult(NamedTuple):
    """For n queries: `log_class_weights` (n, K) float64, and `bounds` (n,) on the errors of each query's K.

    `pairs` counts the pairs of query and reference that were summed, `cells` the pairs of query and cell bounded.
    """

    log_class_weights: Tensor
    bounds: Tensor
    pairs: int
    cells: int


@dataclass
class _Group:
    """Queries that are answered together, and their progress."""

    rows: Tensor  # (Q,): which queries
    frontier: Tensor  # (F,): cells not yet accounted for
    lower: Tensor  # (K, Q): log of the lower bounds on what is accounted for
    upper: Tensor  # (K, Q): log of the upper bounds
    scale: Tensor  # (K, Q): log of a lower bound on the whole sum, up to rounding: the unit of linear sums
    summed: int = 0  # references summed for each query

    def parts(self, size: int) -> list[_Group]:
        """The same group, split into groups of at most `size` queries."""
        columns = (x.split(size, dim=-1) for x in (self.rows, self.lower, self.upper, self.scale))
        return [
            replace(self, rows=rows, lower=lower.contiguous(), upper=upper.contiguous(), scale=scale.contiguous())
            for rows, lower, upper, scale in zip(*columns, strict=True)
        ]

    def halves(self) -> list[_Group]:
        return self.parts(-(-len(self.rows) // 2))


def query_within(cells: Cells, queries: Tensor, tolerance: float) -> BoundedResult:
    """Log class weights of queries (n, d) with errors of at most `bounds`, which are at most the tolerance.

    A bound exceeds the tolerance only if float64 can do no better: for tolerances near 1e-12 or extremely far queries.
    """
    check_tolerance(tolerance)
    if tolerance == 0:
        raise InputError("tolerance must be above 0; got 0; use query for exact answers")
    d = cells.index.embeddings.shape[1]
    if queries.shape[1] != d:
        raise ShapeError(f"queries must have {d} columns, like the references; got shape {tuple(queries.shape)}")
    if queries.device != cells.labels.device:
        raise InputError(
            f"queries must be on the device of the references, {cells.labels.device}; got {queries.device}; "
            "move one to the other"
        )
    if queries.requires_grad and torch.is_grad_enabled():
        raise InputError(
            "answers within a tolerance have no gradient; got queries that require one; "
            "use tolerance=0 or queries.detach()"
        )
    votes = cells.index.centre.new_empty(len(queries), cells.index.n_classes)
    bounds, work = votes.new_empty(len(queries)), [0, 0]
    step = max(1, ANSWERED // max(d, cells.index.n_classes))
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        search = _Search(cells, queries[part], tolerance)
        search.run(votes[part], bounds[part])
        work = [work[0] + search.n_pairs, work[1] + search.n_cells]
    return BoundedResult(votes, bounds, *work)


def check_tolerance(tolerance: Any) -> None:
    """Raise unless the tolerance is a finite number ≥ 0."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, Real) or not 0 <= float(tolerance) < math.inf:
        raise InputError(
            "tolerance must be a number ≥ 0, the largest allowed error of a log class weight (0: exact); "
            f"got {tolerance!r}; try 0.01"
        )


class _Search:
    """One call of `query_within`."""

    def __init__(self, cells: Cells, queries: Tensor, tolerance: float) -> None:
        self.cells, self.index = cells, cells.index
        self.queries, self.tolerance = queries, tolerance
        self.h = queries.double() - cells.index.centre
        self.size = SIZES.get(queries.device.type, SIZES["cpu"])
        self.counts = cells.index.counts.double()
        self.backend = choose_backend("auto", queries)
        self.given_up: list[Tensor] = []
        self.n_pairs = self.n_cells = 0

    @torch.no_grad()
    def run(self, votes: Tensor, bounds: Tensor) -> None:
        """Fill in the votes (n, K) and their bounds (n,)."""
        groups = [self._begin()]
        with full_precision(self.h.device):
            while groups:
                group = groups.pop()
                if self._too_large(group):
                    groups += group.halves()
                elif len(group.frontier):
                    groups += self._refined(group)
                else:
                    votes[group.rows], bounds[group.rows] = _middle(group.lower, group.upper, self.counts > 0)
            if self.given_up:
                rows = torch.cat(self.given_up)
                votes[rows], bounds[rows] = self._whole(rows)
        self._fall_back(votes, bounds)
        torch.minimum(votes, self.counts.log(), out=votes)

    def _too_large(self, group: _Group) -> bool:
        # Products of a query's coordinates take memory too.
        n, cells = len(group.rows), max(len(group.frontier), 4 * self.cells.summary.covariances.shape[1])
        return (n > self.size.queries and n * len(group.frontier) > self.size.bounds) or (
            n > 1 and n * cells > self.size.most
        )

    def _begin(self) -> _Group:
        """All queries with the largest cells; the first scale assumes that each cell is concentrated at its mean."""
        rows = spatial_order(self.h, 16)
        roots, labels = self.cells.summary.at(self.cells.roots), self.cells.labels[self.cells.roots, None]
        nothing = self.h.new_full((self.index.n_classes, len(rows)), -torch.inf)
        scale, step = nothing.clone(), max(1, self.size.tile // len(roots.counts))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            h = self.h[rows[part]]
            squared = (h.square().sum(dim=1) - roots.folded @ _with_one(h).T).clamp_min_(0)
            log_votes = self.index.kernel.log_weights(squared) + roots.counts.log()[:, None]
            scale[:, part] = scale[:, part].scatter_reduce(0, labels.expand_as(log_votes), log_votes, "amax")
        return _Group(rows, self.cells.roots, nothing, nothing.clone(), scale)

    def _refined(self, group: _Group) -> list[_Group]:
        """One round: accept cells within the tolerance, divide the rest; sum leaves once nothing else is left."""
        self._accept(group)
        ids, n = group.frontier, len(group.rows)
        if self._hopeless(group):
            if n > self.size.queries:
                return group.parts(self.size.queries)  # each may have less left
            self.given_up.append(group.rows)
            return []
        ready = (self.cells.n_children[ids] == 0) & ~self._divisible(ids)[self.cells.labels[ids]]
        leaves = ids[ready]
        if len(leaves):
            references = int(self.cells.summary.counts[leaves].sum())
            if n > self.size.queries and n * references > self.size.pairs:
                return group.halves()  # each may need fewer
            self._sum_leaves(group, leaves)
            self.n_pairs += n * references
            group.summed += references
            group.frontier = ids[~ready]
        for _ in range(_LEVELS):
            group.frontier = self._divided(group.frontier)
        return [group]

    def _hopeless(self, group: _Group) -> bool:
        """Whether so much is left, in cells little larger than leaves, that summing all references costs less."""
        left, leaf = (
            int(self.cells.summary.counts[group.frontier].sum()),
            self.cells.leaf_blocks * self.index.block_size,
        )
        share = (left + group.summed) / len(self.index.labels)
        return share > self.size.whole and left <= _FEW_LEAVES * leaf * len(group.frontier)

    def _divided(self, ids: Tensor) -> Tensor:
        """The children of these cells; leaves are kept."""
        n_children, first = self.cells.n_children[ids], self.cells.first[ids]
        return torch.cat([ids[n_children == 0], first[n_children > 0], first[n_children == 2] + 1])

    def _divisible(self, ids: Tensor) -> Tensor:
        """(K,): which classes have a cell among these that is not a leaf."""
        labels = self.cells.labels[ids[self.cells.n_children[ids] > 0]]
        return torch.bincount(labels, minlength=self.index.n_classes) > 0

    def _accept(self, group: _Group) -> None:
        """Account for the cells whose gaps fit the tolerance."""
        labels = self.cells.labels[group.frontier]
        low, gap = self._bounds(group, labels)
        nothing = torch.zeros_like(group.scale)
        known, spent = _linear(group.lower, group.scale), _linear(group.upper, group.scale)
        whole = nothing.index_add(0, labels, low) + known
        budget = (math.expm1(2 * _USED * min(self.tolerance, _MOST_USED)) * whole - (spent - known)).clamp_min_(1e-300)
        costs = low.new_empty(len(labels))
        for part in self._tiles(low):
            costs[part] = (gap[part] / budget.index_select(0, labels[part])).amax(dim=1)
        taken = _affordable(costs, labels, torch.where(self._divisible(group.frontier), _INNER, _LEAVES))
        added, widened = nothing, torch.zeros_like(nothing)
        for total, values in ((added, low), (widened, gap)):
            for some in taken.nonzero()[:, 0].split(max(1, self.size.tile // values.shape[1])):
                total.index_add_(0, labels[some], values.index_select(0, some))
        for total, values in ((group.lower, added), (group.upper, added + widened)):
            total.copy_(torch.logaddexp(total, group.scale + values.log()))
        group.scale = group.scale + whole.log().clamp_min_(0)
        group.frontier = group.frontier[~taken]

    def _bounds(self, group: _Group, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Lower bounds (F, Q) on the votes of the cells, in units of exp(scale), and the gaps to the upper bounds."""
        h = self.h[group.rows]
        features = [_with_one(h).T.contiguous()]
        if self.cells.summary.covariances.shape[1]:
            a, b = pairs(len(features[0]), h.device)
            features.append(features[0][a].mul_(features[0][b]))
        norms = h.square().sum(dim=1)
        low, gap = (h.new_empty(len(labels), len(h)) for _ in range(2))
        for part in self._tiles(low):
            summary = self.cells.summary.at(group.frontier[part])
            shift = summary.counts.log()[:, None] - group.scale.index_select(0, labels[part])
            low[part], high = cell_bounds(self.index.kernel, summary, features, norms, shift)
            torch.sub(high, low[part], out=gap[part])
        self.n_cells += low.numel()
        return low, gap

    def _tiles(self, values: Tensor) -> Iterator[slice]:
        """Some of the rows (F, Q) at a time, limited by the size of the cells' moments too."""
        step = max(1, self.size.tile // max(values.shape[1], self.cells.summary.covariances.shape[1], 1))
        return (slice(start, start + step) for start in range(0, len(values), step))

    def _sum_leaves(self, group: _Group, leaves: Tensor) -> None:
        """Account for leaves pair by pair."""
        for log_sums, error in leaf_sums(
            self.cells, self.h[group.rows], leaves, self.backend, (1 - _USED) * self.tolerance
        ):
            for total, factor in ((group.lower, torch.log1p(-error.clamp_max(1))), (group.upper, torch.log1p(error))):
                total.copy_(torch.logaddexp(total, log_sums.T + factor))

    def _whole(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Votes (Q, K) and bounds (Q,) of queries by summing over all references."""
        log_sums, error = whole_sums(self.cells, self.h[rows], self.backend, 0.9 * self.tolerance)
        lower, upper = (log_sums + torch.log1p(e)[:, None] for e in (-error.clamp_max(1), error))
        self.n_pairs += len(rows) * len(self.index.labels)
        return _middle(lower.T, upper.T, self.counts > 0)

    def _fall_back(self, votes: Tensor, bounds: Tensor) -> None:
        """Direct differences in float64, with bounds, for the queries whose products rounded too much."""
        left = (~(bounds <= self.tolerance)).nonzero()[:, 0]
        if len(left) == 0:
            return
        votes[left], m = -torch.inf, len(self.index.labels)
        for start in range(0, m, DIRECT):
            part = slice(start, start + DIRECT)
            index = replace(self.index, embeddings=self.index.embeddings[part], labels=self.index.labels[part])
            votes[left] = torch.logaddexp(votes[left], by_difference(index, self.queries[left], 0)[0])
        # The error of log w is proportional to it, and its mean over the votes is at most log count - log votes.
        depth = (self.counts.log() - votes[left]).masked_fill_(self.counts == 0, 0).amax(dim=1)
        bounds[left] = _UNIT * ((self.h.shape[1] + 8 + 20 * (m / DIRECT)) * (1 + depth) + m + 64)
        self.n_pairs += len(left) * m


def _middle(lower: Tensor, upper: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
    """The midpoint (Q, K) of logs (K, Q), and a bound (Q,) on its error over the classes that have references."""
    present = present[:, None]
    votes = torch.where(present, (lower + upper) / 2, -torch.inf)
    half = (upper - lower) / 2 + _ADDING + 64 * _UNIT * votes.abs()
    return votes.T, torch.where(present, half, 0).amax(dim=0)


def _affordable(costs: Tensor, labels: Tensor, share: Tensor) -> Tensor:
    """Which cells (F,) to accept: the cheapest of each class, as long as their total cost is within its share."""
    costs = costs.nan_to_num(2).clamp_max_(2)
    order = costs.argsort()
    order = order[labels[order].argsort(stable=True)]
    running = costs[order].cumsum(0)
    counts = torch.bincount(labels, minlength=len(share))
    before = torch.cat([running.new_zeros(1), running])[(counts.cumsum(0) - counts)[labels[order]]]
    taken = torch.empty_like(labels, dtype=torch.bool)
    taken[order] = running - before <= share[labels[order]]
    return taken


def _linear(log: Tensor, scale: Tensor) -> Tensor:
    """exp(log - scale); 0 where log is -inf."""
    return torch.where(log > -torch.inf, log - scale, -torch.inf).exp_()


def _with_one(h: Tensor) -> Tensor:
    return torch.cat([h, torch.ones_like(h[:, :1])], dim=1)
