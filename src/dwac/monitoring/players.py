"""The players of the bets: each watches one score and knows the bins into which calibration rows divide it.

Bins end at fixed ranks of the calibration scores, whatever the scores are. Equal scores are put in a random order, by
numbers drawn from a stored seed: a repeated run makes the same draws.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from dwac.monitoring.martingale import SHARES, gap_counts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MODEL, COLUMN = "model", "column"
# Scores are compared on a grid, fine for small numbers and relative for large ones: rounding, which differs between
# machines and between float32 and float64, must not order equal scores.
_MODEL_STEP, _COLUMN_STEP = 1e-3, 1e-5


@dataclass(frozen=True)
class Watched:
    """A score of calibration rows (n,), to compare with that of new rows."""

    name: str
    kind: str  # MODEL or COLUMN
    scores: Floats
    fold: int | None = None  # cross-fitted: scores of this fold's rows by the model without it
    shares: tuple[float, ...] = SHARES  # of the bins


class Players:
    """D players: their bins, and the share of the error rate that each may spend.

    Half of it is for scores of the model, half for columns, and within each half all players have equal shares. Their
    wealth is not averaged: each is a martingale given its own score alone, but given the other scores, or stopped by
    them, the average may exceed 1. The union bound holds: player d raises an alarm at M ≥ 1 / (α w_d), which is false
    with probability at most α w_d, and Σ w_d = 1.
    """

    def __init__(self, watched: Sequence[Watched], seed: int) -> None:
        self.watched, self.seed = list(watched), int(seed)
        draws = np.random.Generator(np.random.PCG64([self.seed, 1]))
        most = len(SHARES)
        self.gaps = np.zeros((len(watched), most), dtype=np.int64)
        self._cuts = np.full((len(watched), most - 1), np.inf)
        self._draws = np.full((len(watched), most - 1), 2.0)  # above every draw: marks a missing cut
        for player, each in enumerate(watched):
            cells, chance = self._cells(each, each.scores), draws.random(len(each.scores))
            order = np.lexsort((chance, cells))
            gaps = gap_counts(len(cells), each.shares)
            places = order[np.cumsum(gaps)[:-1] - 1]
            self.gaps[player, : len(gaps)] = gaps
            self._cuts[player, : len(places)] = cells[places]
            self._draws[player, : len(places)] = chance[places]

    def __len__(self) -> int:
        return len(self.watched)

    @property
    def weights(self) -> Floats:
        """(D,): w_d, which sum to 1. The folds of one score divide its share."""
        names = [(each.kind, each.name) for each in self.watched]
        kinds = [kind for kind, _ in set(names)]
        shares = [1 / (len(set(kinds)) * kinds.count(kind) * names.count((kind, name))) for kind, name in names]
        return np.array(shares)

    def draws(self, start: int, n: int) -> Floats:
        """(n, D): the numbers that order equal scores of the rows start … start + n - 1."""
        source = np.random.PCG64(self.seed)
        source.advance(start * len(self))
        return np.random.Generator(source).random((n, len(self)))

    def bins(self, scores: Sequence[Floats], draws: Floats) -> Ints:
        """(n, D): the bin of each row for each player, from D scores (n,)."""
        found = np.empty(draws.shape, dtype=np.int64)
        for player, (each, values) in enumerate(zip(self.watched, scores, strict=True)):
            cells, cuts = self._cells(each, values)[:, None], self._cuts[player]
            below = (cuts < cells) | ((cuts == cells) & (self._draws[player] < draws[:, player, None]))
            found[:, player] = below.sum(axis=1)
        return found

    @staticmethod
    def _cells(watched: Watched, scores: Floats) -> Floats:
        step = _MODEL_STEP if watched.kind == MODEL else _COLUMN_STEP
        return np.asarray(np.floor(np.arcsinh(scores) / step + 1 / 3))


def hashed(values: Any) -> Floats:
    """(n,): categories as numbers between 0 and 1, the same for equal ones; missing values are a category, too.

    Any order of the categories will do, if it does not depend on which of them the calibration rows have.
    """
    codes, distinct = pd.factorize(categories(values))
    places = [int.from_bytes(hashlib.blake2b(str(value).encode(), digest_size=7).digest(), "big") for value in distinct]
    return np.array([*(place / 2**56 for place in places), -1.0])[codes]


def categories(values: Any) -> pd.Series[Any]:
    """(n,): values as text, missing ones unchanged; 1.0 becomes 1, since a table with gaps turns 1 into 1.0."""
    said = pd.Series(values, dtype=object).map(_said, na_action="ignore")
    return said.reset_index(drop=True)


def _said(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def numbered(values: ArrayLike) -> Floats:
    """(n,): numbers as scores; missing ones are below all others."""
    found = np.asarray(values, dtype=np.float64)
    return np.where(np.isnan(found), -np.inf, found)
