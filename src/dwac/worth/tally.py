"""Tally: the worth of each voter over many queries, block by block."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from dwac.worth.solver import Values

Floats = NDArray[np.float64]


class Tally:
    """Sums over queries of the values of m players, and of their squares; nothing of a single query is kept.

    >>> tally = Tally(2)
    >>> tally.add(Values(torch.tensor([[1.0, 0.0], [3.0, 0.0]]).double(), torch.zeros(2).double()))
    >>> tally.mean.tolist(), tally.deviation.round(3).tolist()
    ([2.0, 0.0], [1.414, 0.0])
    """

    def __init__(self, n_players: int, device: torch.device | str = "cpu") -> None:
        self.n, self.error = 0, 0.0  # queries; the largest estimated sum of errors of one query
        self._mean = torch.zeros(n_players, dtype=torch.float64, device=device)
        self._squares = torch.zeros_like(self._mean)

    def add(self, found: Values) -> None:
        """Add the values (n, m) of some queries, by Chan's update of mean and squares, which avoids cancellation."""
        n = len(found.values)
        if n == 0:
            return
        mean = found.values.mean(dim=0)
        apart = mean - self._mean
        self._squares += (found.values - mean).square_().sum(dim=0) + apart.square() * (self.n * n / (self.n + n))
        self._mean += apart * (n / (self.n + n))
        self.n += n
        self.error = max(self.error, float(found.errors.amax()))

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
