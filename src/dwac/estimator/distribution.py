"""The distribution that `DWACRegressor` predicts: the voters' weighted numbers, computed on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import ShapeError
from dwac.reference import ReferenceSet, VoteDistribution

Floats = NDArray[np.float64]


class PredictedDistribution:
    """The weighted distribution of the voters' numbers, for each of n rows; exact, and computed on request.

    Everything is (n,), or (n, T) where several numbers are predicted. No matrix of rows and voters is kept. A row that
    could not be read has NaN.

    references: the voters. h: (r, d) embeddings of the readable rows; `readable` (n,) says which these are.
    single: whether a single number is predicted, without an axis T.
    """

    def __init__(self, references: ReferenceSet, h: Tensor, readable: NDArray[np.bool_], *, single: bool) -> None:
        self._votes: VoteDistribution = references.distribution(h)
        self._readable, self._single = readable, single

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._readable)

    def __repr__(self) -> str:
        """The available methods, in one line."""
        return f"<PredictedDistribution of {len(self):,} rows: mean, median, std, quantiles, cdf, crps, histogram>"

    def _asked(self, ask: Callable[[VoteDistribution, Any], Any], rows: Floats | None = None) -> Any:
        """The result of `ask` on the votes, NaN for rows that could not be read. rows: (n, T) values per row."""
        found = as_numpy(ask(self._votes, None if rows is None else rows[self._readable]))
        if not self._readable.all():
            full = np.full((len(self), *found.shape[1:]), np.nan)
            full[self._readable] = found
            found = full
        return found[:, 0] if self._single else found

    @property
    def mean(self) -> Floats:
        """Σ_i w_i y_i / Σ_i w_i."""
        return np.asarray(self._asked(lambda votes, _: votes.mean))

    @property
    def median(self) -> Floats:
        """The smallest number with half of the votes at or below it."""
        return np.asarray(self._asked(lambda votes, _: votes.median))

    @property
    def std(self) -> Floats:
        """The standard deviation of the votes."""
        return np.asarray(np.sqrt(self._asked(lambda votes, _: votes.variance)))

    def quantiles(self, levels: ArrayLike) -> Floats:
        """(n, Q), or (n, T, Q): the smallest numbers with at least these shares of the votes at or below them."""
        return np.asarray(self._asked(lambda votes, _: votes.quantiles(levels)))

    def cdf(self, y: ArrayLike) -> Floats:
        """The share of votes at or below y: one number, or one per row."""
        return np.asarray(self._asked(lambda votes, rows: votes.cdf(rows), self._per_row(y, "y")))

    def crps(self, y: ArrayLike) -> Floats:
        """The continuous ranked probability score of each row's true number: ∫ (F(t) - 1{y ≤ t})² dt."""
        return np.asarray(self._asked(lambda votes, rows: votes.crps(rows), self._per_row(y, "y")))

    def histogram(self, edges: ArrayLike) -> Floats:
        """(n, B), or (n, T, B): the shares of the votes in bins between B + 1 edges; the last holds its upper edge."""
        return np.asarray(self._asked(lambda votes, _: votes.histogram(edges)))

    def _per_row(self, y: ArrayLike, name: str) -> Floats:
        """(n, T): y, one number per row."""
        given = checks.scores(y, name)
        width = self._votes.n_targets
        if given.ndim == 0:
            return np.full((len(self), width), float(given))
        wide = given[:, None] if given.ndim == 1 and width == 1 else given
        if wide.shape != (len(self), width):
            raise ShapeError(f"{name} must have one number per row, and {width} per row if several; got {given.shape}")
        return wide


def as_numpy(answer: Any) -> Floats:
    """An answer about tensors as an array."""
    return np.asarray(answer.cpu().numpy() if isinstance(answer, Tensor) else answer)
