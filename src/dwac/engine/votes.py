"""Votes in float64, one tile at a time, and averages by them: Σ w y / Σ w, the variance, and what moves the mean most.

    voters = WeightedReferences(embeddings, get_kernel("gaussian"))
    log_total, means = weighted_means(voters, queries, targets)     # (n,), (n, T)

All are exact, in float64, and no (n, m) array is held, except by `every_vote`.

Precision policy. Every vote counts in a mean, and a quantile jumps to another target when a share crosses a level. So
votes are always computed in float64, which on a CPU takes about twice as long as float32. Gaussian votes are

    log w = 2q·g - ‖g‖² - ‖q‖²,   q and g the query and the reference, centred,

and ‖q‖² is left out of every comparison of votes, so distant queries lose no precision. If rounding of the product
could exceed `_TOLERANCE`, because norms are many times the distances, distances are computed by difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from dwac._machine import few_threads
from dwac.engine.backends import exp_
from dwac.engine.exact import check_queries, smallest
from dwac.kernels import Kernel, full_precision

QUERIES = {"cpu": 512, "cuda": 4096}
MOST_VOTES = 2**31  # of one chunk of queries: sums over blocks of 64 votes take 256 MiB
TILE = {"cpu": 2**19, "cuda": 2**25}  # votes held at once
_GATHERED = {"cpu": 2**12, "cuda": 2**18}  # references copied at once if each query has its own
_TOLERANCE = 1e-10  # error in the log of a vote
_SMALL = 2**26  # multiplications: fewer are done by one thread
_CENTRED_ON = 10_000  # references whose median is the centre
_NEGLIGIBLE = 40.0  # a vote this far below the largest, in logs, is lost in rounding


@dataclass(frozen=True, eq=False)
class WeightedReferences:
    """m references, and the weight of each vote: w = factor_i · (k(d) + weight · k(factor · d)).

    `log_factors` are the logs of factor_i, None for 1; `second` is (factor, weight), None for no second kernel.
    """

    embeddings: Tensor  # (m, d)
    kernel: Kernel
    log_factors: Tensor | None = None  # (m,) float64
    second: tuple[float, float] | None = None

    def __len__(self) -> int:
        """The number of references m."""
        return len(self.embeddings)

    @cached_property
    def centre(self) -> Tensor:
        """(d,) float64: a median, which is robust to outliers."""
        some = self.embeddings[:: -(-len(self) // _CENTRED_ON)]
        return some.double().T.contiguous().median(dim=1).values

    @cached_property
    def radius(self) -> float:
        """The largest distance of a reference from the centre."""
        parts = self.embeddings.split(65_536)
        return math.sqrt(max(float((part.double() - self.centre).square().sum(dim=1).amax()) for part in parts))

    @cached_property
    def log_most(self) -> float:
        """The log of all votes on a query that coincides with every reference."""
        factors = 0.0 if self.second is None else math.log1p(self.second[1])
        return factors + (
            math.log(len(self)) if self.log_factors is None else float(torch.logsumexp(self.log_factors, dim=0))
        )


class LogVotes:
    """The votes of references on n queries, as logs up to `shift` (n,): log w = `of(rows)` + shift."""

    def __init__(self, voters: WeightedReferences, queries: Tensor, *, by_difference: bool = False) -> None:
        self.voters, self.queries = voters, queries.double()
        self.by_difference = by_difference or not voters.kernel.smooth
        centred = self.queries - voters.centre
        self.norms = centred.square().sum(dim=1)
        self._ones = torch.cat([centred, torch.ones_like(centred[:, :1])], dim=1)  # [q, 1]: see `Index`
        self._gaussian = voters.kernel.name == "gaussian"
        # Subtract this from products to get -‖q - g‖².
        self._level = torch.zeros_like(self.norms) if self.by_difference else self.norms
        self.shift = -self._level if self._gaussian else torch.zeros_like(self.norms)

    def __len__(self) -> int:
        """The number of queries n."""
        return len(self.queries)

    @property
    def width(self) -> int:
        """The number of votes per query in a tile."""
        return max(64, TILE.get(self.queries.device.type, 2**19) // max(self._ones.shape))

    def tiles(self) -> Iterator[Tensor]:
        """All references, `width` at a time."""
        yield from torch.arange(len(self.voters), device=self.queries.device).split(self.width)

    def of(self, rows: Tensor) -> Tensor:
        """Logs of the votes of references `rows` (c,) on all queries, or of (n, c) per query: (n, c) float64.

        Row -1 is padding and has no vote, -inf.
        """
        log_w = self._log_weights(self._products(rows))
        if self.voters.log_factors is not None:
            log_w.add_(self.voters.log_factors[rows.clamp_min(0)])
        padding = rows < 0
        return log_w.masked_fill_(padding, -torch.inf) if bool(padding.any()) else log_w

    def _products(self, rows: Tensor) -> Tensor:
        """‖q‖² - ‖q - g‖², or without the first term if by difference: (n, c)."""
        with full_precision(rows.device):
            if rows.ndim == 1:
                return self._product(self.queries, self._ones, rows)
            answer, step = (
                self.norms.new_empty(rows.shape),
                max(1, _GATHERED.get(rows.device.type, 2**12) // rows.shape[1]),
            )
            for start in range(0, len(rows), step):
                part = slice(start, start + step)
                answer[part] = self._product(self.queries[part, None], self._ones[part, None], rows[part])[:, 0]
            return answer

    def _product(self, queries: Tensor, ones: Tensor, rows: Tensor) -> Tensor:
        points = self.voters.embeddings[rows.clamp_min(0)].double()
        if self.by_difference:
            return torch.cdist(queries, points, compute_mode="donot_use_mm_for_euclid_dist").square_().neg_()
        points.sub_(self.voters.centre)
        folded = torch.cat([2 * points, -points.square().sum(dim=-1, keepdim=True)], dim=-1)
        return ones @ folded.mT

    def _log_weights(self, products: Tensor) -> Tensor:
        """log w without the factor of each reference, less `shift`."""
        second, level = self.voters.second, self._level[:, None]
        if self._gaussian:  # stays shifted: a common term costs no precision
            if second is None:
                return products
            return torch.logaddexp(
                products, second[0] ** 2 * products + ((1 - second[0] ** 2) * level + math.log(second[1]))
            )
        squared = (level - products).clamp_min_(0)
        log_w = self.voters.kernel.log_weights(squared)
        if second is None:
            return log_w
        return torch.logaddexp(log_w, self.voters.kernel.log_weights(second[0] ** 2 * squared) + math.log(second[1]))

    def doubtful(self, log_total: Tensor) -> Tensor:
        """Which queries (n,) need votes by difference, given the logs of all their votes.

        The votes bound the distance of the references that matter, and so their distance from the centre: at most that
        bound plus the query's own. Differences are more precise only if much of the norms cancels.
        """
        if self.by_difference:
            return torch.zeros_like(self.norms, dtype=torch.bool)
        d, norms = self.queries.shape[1], self.norms.sqrt()
        unit = (2 + math.sqrt(d) / 2) * torch.finfo(torch.float64).eps / 2
        if not self._gaussian:
            return unit * (2 * norms + 1).square() > _TOLERANCE
        nearest = (self.voters.log_most - log_total).clamp_min(0)  # upper bound: the nearest has at least the mean vote
        reach = (norms + (nearest + _NEGLIGIBLE).sqrt()).clamp_max(self.voters.radius)
        return (unit * (2 * norms + reach) * reach > _TOLERANCE) & (16 * nearest < self.norms)


def answer_queries(
    voters: WeightedReferences, queries: Tensor, answer: Callable[..., tuple[Tensor, ...]], *own: Tensor
) -> tuple[Tensor, ...]:
    """answer(votes, *own) for any number of queries (n, d), in chunks; `own` have a row for each query.

    The first part of an answer is the log of all votes (n,), which shows whether the chunk was precise enough.
    """
    check_queries(voters.embeddings, queries)
    small = queries.device.type == "cpu" and len(queries) * voters.embeddings.numel() <= _SMALL
    with few_threads(1 if small else None):
        return _answer_chunks(voters, queries, answer, *own)


def _answer_chunks(
    voters: WeightedReferences, queries: Tensor, answer: Callable[..., tuple[Tensor, ...]], *own: Tensor
) -> tuple[Tensor, ...]:
    answers, step = [], max(1, min(QUERIES.get(queries.device.type, 512), MOST_VOTES // len(voters)))
    for part in zip(queries.detach().split(step), *(values.split(step) for values in own), strict=True):
        votes = LogVotes(voters, part[0])
        fields = answer(votes, *part[1:])
        doubt = votes.doubtful(fields[0])
        if bool(doubt.any()):
            exact = LogVotes(voters, part[0][doubt], by_difference=True)
            for field, better in zip(fields, answer(exact, *(values[doubt] for values in part[1:])), strict=True):
                field[doubt] = better
        answers.append(fields)
    return tuple(torch.cat(column) for column in zip(*answers, strict=True))


@torch.no_grad()
def every_vote(voters: WeightedReferences, queries: Tensor) -> Tensor:
    """(n, m) float64: the log of every vote on each of the queries (n, d), all held at once: pass few at a time.

    >>> from dwac.kernels import get_kernel
    >>> voters = WeightedReferences(torch.tensor([[0.0], [1.0]]), get_kernel("gaussian"))
    >>> every_vote(voters, torch.tensor([[3.0]]))
    tensor([[-9., -4.]], dtype=torch.float64)
    """

    def answer(votes: LogVotes) -> tuple[Tensor, ...]:
        log_w = torch.cat([votes.of(rows) for rows in votes.tiles()], dim=1).add_(votes.shift[:, None])
        return torch.logsumexp(log_w, dim=1), log_w

    return answer_queries(voters, queries, answer)[1]


# Averages


class WeightedMeans(NamedTuple):
    """For n queries: the log of all votes, log Σ w (n,), and Σ w y / Σ w of each target (n, T). Both are float64.

    >>> from dwac.kernels import get_kernel
    >>> voters = WeightedReferences(torch.tensor([[0.0], [1.0]]), get_kernel("gaussian"))
    >>> weighted_means(voters, torch.tensor([[0.5]]), torch.tensor([[10.0], [20.0]]).double()).means.round(decimals=6)
    tensor([[15.]], dtype=torch.float64)
    """

    log_total: Tensor
    means: Tensor


class RowInfluence(NamedTuple):
    """For n queries and T targets, the k references whose removal moves the mean most; each field is (n, T, k)."""

    rows: Tensor  # int64
    shares: Tensor  # their shares of all votes
    moves: Tensor  # mean without the reference - mean


@torch.no_grad()
def weighted_means(voters: WeightedReferences, queries: Tensor, targets: Tensor) -> WeightedMeans:
    """The mean of targets (m, T), weighted by the votes on each of the queries (n, d)."""
    log_total, means = answer_queries(voters, queries, lambda votes: _means(votes, targets))
    return WeightedMeans(log_total, means)


@torch.no_grad()
def weighted_variances(voters: WeightedReferences, queries: Tensor, targets: Tensor) -> Tensor:
    """Σ w (y - mean)² / Σ w of targets (m, T), (n, T) float64: about the mean, so that no digit cancels."""
    return answer_queries(voters, queries, lambda votes: _variances(votes, targets))[1]


@torch.no_grad()
def influence(voters: WeightedReferences, queries: Tensor, targets: Tensor, k: int) -> RowInfluence:
    """The k references whose removal moves the weighted mean of each target (m, T) most, with the largest move first.

    With p the share of a reference, mean without it - mean = p (mean - y) / (1 - p). The mean of the others exists
    however small their votes are. If there are no others, the move is 0.
    """
    columns = answer_queries(voters, queries, lambda votes: _influence(votes, targets, min(k, len(voters))))
    return RowInfluence(*columns[1:])


class _Sums(NamedTuple):
    """Sums over all votes on n queries, in units of the largest vote, whose log is `top` (n, 1)."""

    top: Tensor
    log_total: Tensor  # (n, 1)
    means: Tensor  # (n, C)

    def absolute(self, votes: LogVotes) -> Tensor:
        """(n,): the log of all votes."""
        return (self.top + self.log_total)[:, 0] + votes.shift

    def shares(self, log_votes: Tensor) -> Tensor:
        """Turn votes into shares of all votes, in place."""
        return exp_(log_votes.sub_(self.top).sub_(self.log_total))


def _means(votes: LogVotes, targets: Tensor) -> tuple[Tensor, Tensor]:
    sums = _sum_votes(votes, targets)
    return sums.absolute(votes), sums.means


def _sum_votes(votes: LogVotes, targets: Tensor, without: Tensor | None = None) -> _Sums:
    """Sum all votes in one pass, except those of one reference for each query, `without` (n,).

    Targets are centred on their median: a common offset costs no precision, and neither does an outlier.
    """
    centre = targets.median(dim=0).values
    top = votes.norms.new_full((len(votes), 1), -torch.inf)
    total, sums = torch.zeros_like(top), targets.new_zeros(len(votes), targets.shape[1])
    for rows in votes.tiles():
        log_votes = votes.of(rows)
        if without is not None:
            log_votes.masked_fill_(rows == without[:, None], -torch.inf)
        above = torch.maximum(top, log_votes.amax(dim=1, keepdim=True))
        smaller, top = (top - above).exp_(), above
        weights = exp_(log_votes.sub_(top))
        total = total * smaller + weights.sum(dim=1, keepdim=True)
        sums = sums * smaller + weights @ (targets[rows] - centre)
    return _Sums(top, total.log(), centre + sums / total)


def _variances(votes: LogVotes, targets: Tensor) -> tuple[Tensor, Tensor]:
    sums = _sum_votes(votes, targets)
    variances = torch.zeros_like(sums.means)
    for rows in votes.tiles():
        shares = sums.shares(votes.of(rows))
        for column, y in enumerate(targets[rows].T):
            variances[:, column] += (y - sums.means[:, column, None]).square_().mul_(shares).sum(dim=1)
    return sums.absolute(votes), variances


def _influence(votes: LogVotes, targets: Tensor, k: int) -> tuple[Tensor, ...]:
    """The log of all votes, and rows, shares and moves (n, T, k)."""
    sums, heaviest = _sum_votes(votes, targets), _heaviest(votes)
    without = _move_of_heaviest(votes, targets, sums, heaviest)
    empty = sums.means[:, :0]
    leading = [RowInfluence(empty.long(), empty, empty)] * targets.shape[1]
    for rows in votes.tiles():
        shares = (votes.of(rows) - sums.top - sums.log_total).exp()  # the smallest may be 0
        by_others = (rows == heaviest[:, None]) & (shares > 0.5)
        odds = shares / (1 - shares)
        for column, y in enumerate(targets[rows].T):
            moves = torch.where(by_others, without[:, column, None], (sums.means[:, column, None] - y) * odds)
            leading[column] = _lead(leading[column], RowInfluence(rows.expand_as(shares), shares, moves), k)
    return sums.absolute(votes), *(torch.stack(field, dim=1) for field in zip(*leading, strict=True))


def _heaviest(votes: LogVotes) -> Tensor:
    """(n,): the reference with the largest vote."""
    top, row = torch.full_like(votes.norms, -torch.inf), torch.zeros_like(votes.norms, dtype=torch.int64)
    for rows in votes.tiles():
        here, place = votes.of(rows).max(dim=1)
        row, top = torch.where(here > top, rows[place], row), torch.maximum(here, top)
    return row


def _move_of_heaviest(votes: LogVotes, targets: Tensor, sums: _Sums, heaviest: Tensor) -> Tensor:
    """(n, T): p (mean of the others - y), from the mean of the others, for use where 1 - p would lose digits."""
    if len(votes.voters) == 1:
        return torch.zeros_like(sums.means)
    others = _sum_votes(votes, targets, without=heaviest).means
    return (others - targets[heaviest]) * sums.shares(votes.of(heaviest[:, None]))


def _lead(known: RowInfluence, others: RowInfluence, k: int) -> RowInfluence:
    """The k largest moves of both (n, ·), largest first; ties in the order of the references."""
    rows, shares, moves = (torch.cat([a, b], dim=1) for a, b in zip(known, others, strict=True))
    chosen = smallest(-moves.abs(), min(k, moves.shape[1]))
    return RowInfluence(*(field.gather(1, chosen) for field in (rows, shares, moves)))
