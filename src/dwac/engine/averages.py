"""Vote-weighted averages of targets: Σ w y / Σ w, the variance, and the references that move the mean most.

    voters = WeightedReferences(embeddings, get_kernel("gaussian"))
    log_total, means = weighted_means(voters, queries, targets)     # (n,), (n, T)

All are exact, in float64, and no (n, m) array is held; see `dwac.engine.votes` for the precision policy.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from dwac.engine.backends import exp_
from dwac.engine.direct import smallest
from dwac.engine.votes import LogVotes, WeightedReferences, answered


class WeightedMeans(NamedTuple):
    """For n queries: the log of all votes, log Σ w (n,), and Σ w y / Σ w of each target (n, T). Both are float64."""

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
    log_total, means = answered(voters, queries, lambda votes: _means(votes, targets))
    return WeightedMeans(log_total, means)


@torch.no_grad()
def weighted_variances(voters: WeightedReferences, queries: Tensor, targets: Tensor) -> Tensor:
    """Σ w (y - mean)² / Σ w of targets (m, T), (n, T) float64: about the mean, so that no digit cancels."""
    return answered(voters, queries, lambda votes: _variances(votes, targets))[1]


@torch.no_grad()
def influence(voters: WeightedReferences, queries: Tensor, targets: Tensor, k: int) -> RowInfluence:
    """The k references whose removal moves the weighted mean of each target (m, T) most, with the largest move first.

    With p the share of a reference, mean without it - mean = p (mean - y) / (1 - p). The mean of the others exists
    however small their votes are. If there are no others, the move is 0.
    """
    columns = answered(voters, queries, lambda votes: _influence(votes, targets, min(k, len(voters))))
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
    sums = _summed(votes, targets)
    return sums.absolute(votes), sums.means


def _summed(votes: LogVotes, targets: Tensor, without: Tensor | None = None) -> _Sums:
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
    sums = _summed(votes, targets)
    variances = torch.zeros_like(sums.means)
    for rows in votes.tiles():
        shares = sums.shares(votes.of(rows))
        for column, y in enumerate(targets[rows].T):
            variances[:, column] += (y - sums.means[:, column, None]).square_().mul_(shares).sum(dim=1)
    return sums.absolute(votes), variances


def _influence(votes: LogVotes, targets: Tensor, k: int) -> tuple[Tensor, ...]:
    """The log of all votes, and rows, shares and moves (n, T, k)."""
    sums, heaviest = _summed(votes, targets), _heaviest(votes)
    without = _move_of_heaviest(votes, targets, sums, heaviest)
    nobody = sums.means[:, :0]
    found = [RowInfluence(nobody.long(), nobody, nobody)] * targets.shape[1]
    for rows in votes.tiles():
        shares = (votes.of(rows) - sums.top - sums.log_total).exp()  # the smallest may be 0
        by_others = (rows == heaviest[:, None]) & (shares > 0.5)
        odds = shares / (1 - shares)
        for column, y in enumerate(targets[rows].T):
            moves = torch.where(by_others, without[:, column, None], (sums.means[:, column, None] - y) * odds)
            found[column] = _leading(found[column], RowInfluence(rows.expand_as(shares), shares, moves), k)
    return sums.absolute(votes), *(torch.stack(field, dim=1) for field in zip(*found, strict=True))


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
    others = _summed(votes, targets, without=heaviest).means
    return (others - targets[heaviest]) * sums.shares(votes.of(heaviest[:, None]))


def _leading(known: RowInfluence, more: RowInfluence, k: int) -> RowInfluence:
    """The k largest moves of both (n, ·), largest first; ties in the order of the references."""
    rows, shares, moves = (torch.cat([a, b], dim=1) for a, b in zip(known, more, strict=True))
    chosen = smallest(-moves.abs(), min(k, moves.shape[1]))
    return RowInfluence(*(field.gather(1, chosen) for field in (rows, shares, moves)))
