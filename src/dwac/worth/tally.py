"""Values over many queries: votes as many at a time as fit into memory, and the mean worth of each voter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.reference import ReferenceSet
from dwac.worth.quadrature import GameValues

Floats = NDArray[np.float64]

VOTES = {"cpu": 2**21, "cuda": 2**25}  # in memory at once; computing values takes about 15 arrays of that size


def vote_blocks(
    references: ReferenceSet, h: Tensor, own: NDArray[np.int64] | None = None
) -> Iterator[tuple[slice, Tensor]]:
    """The rows of each block of queries h (n, d), and the log of every vote on them, (b, m).

    own: (n,) which of the references a query is, -1 for none: a reference's vote on itself is -inf.

    >>> references = ReferenceSet([[0.0], [1.0]], [0, 1])
    >>> for rows, log_w in vote_blocks(references, torch.tensor([[0.0], [3.0]])):
    ...     print(rows, log_w.tolist())
    slice(0, 2, None) [[0.0, -1.0], [-9.0, -4.0]]
    """
    device = references.embeddings.device
    size = max(1, VOTES.get(device.type, 2**21) // len(references))
    for start in range(0, len(h), size):
        rows = slice(start, min(start + size, len(h)))
        log_w = references.voters.every_vote(h[rows].to(device))
        if own is not None:
            known = np.flatnonzero(own[rows] >= 0)
            log_w[known, own[rows][known]] = -torch.inf
        yield rows, log_w


class Tally:
    """Sums over queries of the values of m players, and of their squares; nothing of a single query is kept.

    >>> tally = Tally(2)
    >>> tally.add(GameValues(torch.tensor([[1.0, 0.0], [3.0, 0.0]]).double(), torch.zeros(2).double()))
    >>> tally.mean.tolist(), tally.deviation.round(3).tolist()
    ([2.0, 0.0], [1.414, 0.0])
    """

    def __init__(self, n_players: int, device: torch.device | str = "cpu") -> None:
        self.n, self.error = 0, 0.0  # queries; the largest estimated sum of errors of one query
        self._mean = torch.zeros(n_players, dtype=torch.float64, device=device)
        self._squares = torch.zeros_like(self._mean)

    def add(self, worth: GameValues) -> None:
        """Add the values (n, m) of some queries, by Chan's update of mean and squares, which avoids cancellation."""
        n = len(worth.values)
        if n == 0:
            return
        mean = worth.values.mean(dim=0)
        difference = mean - self._mean
        self._squares += (worth.values - mean).square_().sum(dim=0) + difference.square() * (self.n * n / (self.n + n))
        self._mean += difference * (n / (self.n + n))
        self.n += n
        self.error = max(self.error, float(worth.errors.amax()))

    @property
    def mean(self) -> Floats:
        """(m,): the average worth for a query. Times `n`, the sum over the queries."""
        return self._mean.cpu().numpy()

    @property
    def deviation(self) -> Floats:
        """(m,): the standard deviation over queries; nan for a single one."""
        if self.n < 2:
            return np.full(len(self._mean), np.nan)
        return (self._squares / (self.n - 1)).sqrt().cpu().numpy()

    @property
    def standard_error(self) -> Floats:
        """(m,): the standard error of the mean, for queries drawn at random."""
        return np.asarray(self.deviation / np.sqrt(max(self.n, 1)))
