"""Bounds on the mean of losses that hold at any time: a bet against every mean that is possible.

Losses x lie between 0 and 1. A player who believes that their mean exceeds m bets a share u of its wealth on the next
loss: a loss x multiplies the wealth by 1 - u + u x / m. If the mean is at most m, given all earlier losses, wealth is a
supermartingale: it ever reaches 1 / α with probability at most α (Ville). So the means m at which wealth is below 1 / α
are a confidence sequence: at all times together, they hold the true mean with probability 1 - α (Waudby-Smith and
Ramdas, "Estimating means of bounded random variables by betting"). Wealth is divided among bets of many sizes u. So it
depends on how often each loss occurred and not on their order, and counts are all that has to be kept.

Losses are counted on a grid: for a lower bound a loss between two of its points counts as the lower one, for an upper
bound as the upper one. Losses of 0 and 1 are exact.

After a long time with few losses, new losses would hardly change the overall mean. So a new account begins every 200
losses, each with a part of α that shrinks with its number, and few of the old ones are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_STEPS = 256  # of the grid
_BETS = np.geomspace(2.0**-11, 0.98, 24)  # u
_HALVINGS = 32
BLOCK = 200  # losses until a new account begins


def cells_of(losses: ArrayLike) -> Ints:
    """Losses as cells: even if on the grid, odd if between its points."""
    scaled = np.clip(np.asarray(losses, dtype=np.float64), 0.0, 1.0) * _STEPS
    below = np.floor(scaled)
    return (2 * below + (scaled > below)).astype(np.int64)


def count_cells(losses: ArrayLike) -> Ints:
    """How often each cell occurs."""
    return np.bincount(cells_of(losses), minlength=2 * _STEPS + 1).astype(np.int64)


def log_evidence(counts: Ints, level: float, *, above: bool = True) -> float:
    """The log of the wealth of a bet that the mean is above (or below) a level."""
    losses, n = _losses(counts, above=above)
    return _log_wealth(losses, n, level if above else 1 - level)


def bounds(counts: Ints, alpha: float) -> tuple[float, float]:
    """A lower and an upper bound of the mean, each wrong at some time with probability at most α / 2.

    >>> low, high = bounds(count_cells([0] * 90 + [1] * 10), 0.05)
    >>> round(low, 3), round(high, 3)
    (0.029, 0.236)
    """
    low, high = (_lower_bound(*_losses(counts, above=above), np.log(2 / alpha)) for above in (True, False))
    return low, 1 - high


def _losses(counts: Ints, *, above: bool) -> tuple[Floats, Ints]:
    """The different losses, and how often each occurs; mirrored, if the bet is on a low mean."""
    cells = np.flatnonzero(counts)
    losses = cells // 2 / _STEPS if above else 1 - (cells + 1) // 2 / _STEPS
    return losses, counts[cells]


def _log_wealth(losses: Floats, n: Ints, level: float) -> float:
    if level <= 0 or level >= 1:
        return np.inf if level <= 0 and losses.any() else 0.0
    each = np.log1p(_BETS[:, None] * (losses / level - 1)) @ n
    return float(np.logaddexp.reduce(each) - np.log(len(_BETS)))


def _lower_bound(losses: Floats, n: Ints, limit: float) -> float:
    """The mean below which a bet on a higher one would have won."""
    low, high = 0.0, float(losses @ n / max(n.sum(), 1))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _log_wealth(losses, n, middle) >= limit:
            low = middle
        else:
            high = middle
    return low


class Account(NamedTuple):
    """The losses since some time, and the part of α for bounds on them."""

    first: int  # the number of its first loss, from 0
    counts: Ints
    weight: float


class Losses:
    """The losses of one stream, counted since its beginning and since later times."""

    def __init__(self) -> None:
        self.n, self.sum = 0, 0.0
        self._counts = {0: count_cells([])}  # by the number of the account, from 0

    def add(self, losses: Floats) -> Iterator[None]:
        """Count losses (n,); pauses when an account may be looked at: before each new one, and at the end."""
        while len(losses):
            part, losses = np.split(losses, [BLOCK - self.n % BLOCK])
            counts = count_cells(part)
            for each in self._counts.values():
                each += counts
            self.n, self.sum = self.n + len(part), self.sum + float(part.sum())
            yield
            if self.n % BLOCK == 0:
                new = self.n // BLOCK
                # Account k lives for 4 blocks, times the largest power of 2 that divides k: few are kept, of all ages.
                kept = {k: each for k, each in self._counts.items() if k == 0 or new - k < 4 * (k & -k)}
                self._counts = {**kept, new: count_cells([])}

    def accounts(self) -> list[Account]:
        """Those that are kept; their weights, with those of all that ever were, sum to at most 1."""
        return [Account(k * BLOCK, each, 0.5 if k == 0 else 0.5 / (k * (k + 1))) for k, each in self._counts.items()]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        counts = {k: {int(cell): int(each[cell]) for cell in np.flatnonzero(each)} for k, each in self._counts.items()}
        return {"n": self.n, "sum": self.sum, "counts": counts}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Losses:
        """From `to_dict`."""
        losses = cls()
        losses.n, losses.sum = int(state["n"]), float(state["sum"])
        for k, cells in state["counts"].items():
            counts = count_cells([])
            counts[[int(cell) for cell in cells]] = list(cells.values())
            losses._counts[int(k)] = counts
        return losses
