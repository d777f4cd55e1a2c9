"""Betting against exchangeability: wealth that stays small for ever while new rows are like the calibration rows.

Sort the n calibration scores. They leave n + 1 gaps, which are gathered into B bins of a_b gaps each. If calibration
rows and new rows are exchangeable, the next new row falls into bin b with probability

    p_b = (a_b + c_b) / (n + 1 + t)

after t new rows, c_b of which fell into bin b: every rank among all n + t scores is equally likely, and each row that
fell into a bin has divided one of its gaps. This is exact for any number of calibration rows and any distribution of
scores. (p-values against the calibration rows alone are not independent: betting on them as if they were finds a drift
that is only the chance of the calibration rows.)

A player bets on a distribution q over the bins, chosen before the row is seen, and is paid q_b / p_b. Its wealth M is a
martingale with M_0 = 1. By Ville's inequality P(sup_t M_t ≥ 1 / α) ≤ α: an alarm at M ≥ 100 is false with probability
at most 1 %, not per day but for ever.

The bets use windows of several lengths: q is the distribution of the latest rows, shrunk towards p. Wealth waits as
cash and enters bit by bit, so that some is left for a change after a long quiet time: at most a share
1 / (1 + log2(1 + t/τ)) has not entered after t rows.

Each player watches one score and knows the bins into which calibration rows divide it. Bins end at fixed ranks of the
calibration scores, whatever the scores are. Equal scores are put in a random order, by numbers drawn from a stored
seed: a repeated run makes the same draws.

References: Vovk, Nouretdinov and Gammerman, "Testing exchangeability on-line" (2003); Vovk, Gammerman and Shafer,
"Algorithmic learning in a random world" (2005), chapter 7; fixed share: Herbster and Warmuth (1998).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from dwac.errors import ShapeError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Shares of the gaps in each bin: finer towards both ends, where changes show first.
SHARES = (0.01, 0.04, 0.1, 0.15, 0.2, 0.2, 0.15, 0.1, 0.04, 0.01)
# For a private model's typicality: the typicality of ordinary rows would reveal which rows were in training.
PRIVATE_SHARES = (0.9, 0.05, 0.04, 0.01)
WINDOWS = (40.0, 200.0, 1000.0)  # rows: how far back each bet looks
_SHRINKAGE = 20.0  # weight, in rows, of the belief that nothing has changed
_ENTRY = 100.0  # τ: rows until half of the wealth has entered
_KEPT = 1000  # rows whose bins are kept, to date a change
BEFORE = 10  # rows that must come before a change
_SURE, _AFTER = 0.998, 5.0  # probability that a change is in its range; weight, in rows, of what is expected after it
MODEL, COLUMN = "model", "column"
# Scores are compared on a grid, fine for small numbers and relative for large ones: rounding, which differs between
# machines and between float32 and float64, must not order equal scores.
_MODEL_STEP, _COLUMN_STEP = 1e-3, 1e-5


def gap_counts(n: int, shares: Sequence[float] = SHARES) -> Ints:
    """a_b: how many of the n + 1 gaps between n scores each bin has; bins that would have none are left out.

    >>> gap_counts(99).tolist(), gap_counts(3).tolist()
    ([1, 4, 10, 15, 20, 20, 15, 10, 4, 1], [1, 1, 1, 1])
    """
    ends = np.unique(np.round(np.cumsum(shares) * (n + 1)).astype(np.int64))
    ends = ends[ends > 0]
    return np.diff(ends, prepend=0)


class Beginning(NamedTuple):
    """The rows between which a change began, and the likeliest of them."""

    first: int
    likeliest: int
    last: int


class Bets:
    """The wealth of D players, each betting on the bins of one stream; all arrays have D rows.

    Args:
        gaps: (D, B) a_b of each stream; 0 for bins that it does not have.
    """

    def __init__(self, gaps: ArrayLike) -> None:
        self._gaps = np.asarray(gaps, dtype=np.float64)
        if self._gaps.ndim != 2:
            raise ShapeError(f"gaps must be (D, B), one row per stream; got shape {self._gaps.shape}")
        players, bins = self._gaps.shape
        self._decay = np.exp2(-1 / np.array(WINDOWS))
        self._total = self._gaps.sum(axis=1)
        self._each = np.arange(players)
        self.rows = 0
        self.counts = np.zeros((players, bins), dtype=np.int64)  # c_b
        self.recent = np.zeros((players, len(WINDOWS), bins))  # c_b, older rows counting less
        self.log_wealth = np.full((players, len(WINDOWS)), -np.inf)  # of the wealth that has entered
        self.log_cash = 0.0
        self.kept = np.zeros((0, players), dtype=np.int8)  # the bins of the latest rows

    @property
    def log_martingale(self) -> Floats:
        """(D,): log M."""
        return np.asarray(np.logaddexp(np.logaddexp.reduce(self.log_wealth, axis=1), self.log_cash))

    def step(self, bins: Ints) -> Floats:
        """Take the bin (D,) of one more row of each stream; returns the new log M (D,)."""
        wealth: Floats = self.take(np.asarray(bins)[None])[0]
        return wealth

    def take(self, bins: Ints) -> Floats:
        """Take the bins (n, D) of more rows; returns log M after each, (n, D), the same as row by row."""
        rows = self.rows + np.arange(len(bins))
        left = 1 / (1 + np.log2(1 + (rows + 1) / _ENTRY))
        log_cash = np.log(left)
        entry = np.maximum(np.exp(np.append(self.log_cash, log_cash[:-1])) - left, np.finfo(np.float64).tiny)
        log_entry = np.log(entry / len(WINDOWS))

        one = bins[:, :, None] == np.arange(self.counts.shape[1])
        earlier = (np.cumsum(one, axis=0) - one)[one].reshape(bins.shape)
        p = (self._gaps[self._each, bins] + self.counts[self._each, bins] + earlier) / (self._total + rows[:, None])
        total = (1 - self._decay ** rows[:, None]) / (1 - self._decay)  # (n, W): the sum of `recent`
        q = (_SHRINKAGE * p[..., None] + self._count_recent(bins)) / (_SHRINKAGE + total[:, None])
        gain = np.log(q / p[..., None])

        wealth = np.empty_like(gain)
        for row, each in enumerate(gain):
            wealth[row] = self.log_wealth = np.logaddexp(self.log_wealth, log_entry[row]) + each
        if len(rows):
            self.log_cash = float(log_cash[-1])
        self.counts += one.sum(axis=0)
        self.rows += len(rows)
        self.kept = np.concatenate([self.kept, bins.astype(np.int8)])[-_KEPT:]
        return np.logaddexp(np.logaddexp.reduce(wealth, axis=2), log_cash[:, None])

    def began(self, player: int, row: int) -> Beginning | None:
        """Where the change began that a player saw by this row.

        None if that is unknown: rows that are not kept any more, or the first rows, may have changed already. Bins
        before the change follow the urn, those after it an unknown distribution with a Dirichlet prior, so the
        probability of each beginning, all equally likely at first, is known exactly.
        """
        start = self.rows - len(self.kept)
        bins = self.kept[: row + 1 - start, player]
        later = self.kept[row + 1 - start :, player]
        real = np.flatnonzero(self._gaps[player])
        one = bins[:, None] == real
        after = np.cumsum(one[::-1], axis=0)[::-1]
        before = (self.counts[player, real] - (later[:, None] == real).sum(axis=0)) - after
        gaps = self._gaps[player, real]
        log_p = _log_urn(gaps, before) + _log_urn(_AFTER * gaps / gaps.sum(), after)
        p = np.exp(log_p - np.logaddexp.reduce(log_p))
        order = np.argsort(-p, kind="stable")
        chosen = order[: int(np.searchsorted(np.cumsum(p[order]), _SURE)) + 1]
        first, last = start + int(chosen.min()), start + int(chosen.max())
        # A range that is wide is given, too: those that happen to be narrow would be wrong more often.
        if first < BEFORE or (start > 0 and first == start):
            return None
        return Beginning(first, start + int(order[0]), last)

    def _count_recent(self, bins: Ints) -> Floats:
        """(n, D, W): `recent` in the bin of each row before that row; the rows are then added to it."""
        players, windows, width = self.recent.shape
        places = (np.arange(players * windows) * width).reshape(players, windows) + bins[..., None]
        recent, decay = self.recent.ravel(), np.tile(np.repeat(self._decay, width), players)
        before = np.empty(places.shape)
        for row, place in enumerate(places):
            before[row] = recent[place]
            recent *= decay
            recent[place] += 1
        self.recent = recent.reshape(self.recent.shape)
        return before

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        wealth = [[each if np.isfinite(each) else None for each in row] for row in self.log_wealth.tolist()]
        state = {"rows": self.rows, "log_cash": self.log_cash, "log_wealth": wealth}
        kept = ["".join(map(str, bins)) for bins in self.kept.T.tolist()]
        return {**state, "counts": self.counts.tolist(), "recent": self.recent.tolist(), "kept": kept}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the result of `to_dict`; an error for a state of other streams."""
        counts = np.asarray(state["counts"], dtype=np.int64)
        recent = np.asarray(state["recent"], dtype=np.float64)
        wealth = np.array(
            [[-np.inf if each is None else each for each in row] for row in state["log_wealth"]], dtype=np.float64
        )
        if (counts.shape, recent.shape, wealth.shape) != (
            self.counts.shape,
            self.recent.shape,
            self.log_wealth.shape,
        ):
            raise ShapeError(f"the state must be of {self.counts.shape} bins; got {counts.shape}")
        self.counts, self.recent, self.log_wealth = counts, recent, wealth
        kept = [list(map(int, bins)) for bins in state.get("kept", [""] * len(counts))]  # older states have none
        self.kept = np.array(kept, dtype=np.int8).T
        if self.kept.shape[1] != len(counts):
            raise ShapeError(f"the state must have kept rows of {len(counts)} streams; got {self.kept.shape[1]}")
        self.rows, self.log_cash = int(state["rows"]), float(state["log_cash"])


def _log_urn(gaps: Floats, counts: Ints) -> Floats:
    """(n,): log probability that rows fall into bins this often, (n, B), in one order, drawn from an urn with (B,)."""
    total = gaps.sum()
    each = gammaln(gaps + counts) - gammaln(gaps)
    return np.asarray(each.sum(axis=1) + gammaln(total) - gammaln(total + counts.sum(axis=1)))


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

    @cached_property
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
        bins = np.empty(draws.shape, dtype=np.int64)
        for player, (each, values) in enumerate(zip(self.watched, scores, strict=True)):
            cells, cuts = self._cells(each, values)[:, None], self._cuts[player]
            below = (cuts < cells) | ((cuts == cells) & (self._draws[player] < draws[:, player, None]))
            bins[:, player] = below.sum(axis=1)
        return bins

    @staticmethod
    def _cells(watched: Watched, scores: Floats) -> Floats:
        step = _MODEL_STEP if watched.kind == MODEL else _COLUMN_STEP
        return np.asarray(np.floor(np.arcsinh(scores) / step + 1 / 3))


def hash_categories(values: Any) -> Floats:
    """(n,): categories as numbers between 0 and 1, the same for equal ones; missing values are a category, too.

    Any order of the categories will do, if it does not depend on which of them the calibration rows have.
    """
    codes, distinct = pd.factorize(categories(values))
    places = [int.from_bytes(hashlib.blake2b(str(value).encode(), digest_size=7).digest(), "big") for value in distinct]
    return np.array([*(place / 2**56 for place in places), -1.0])[codes]


def categories(values: Any) -> pd.Series[Any]:
    """(n,): values as text, missing ones unchanged; 1.0 becomes 1, since a table with gaps turns 1 into 1.0."""
    return pd.Series(values, dtype=object).map(text_of, na_action="ignore").reset_index(drop=True)


def text_of(value: Any) -> str:
    """A category as text."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def scores_of(values: ArrayLike) -> Floats:
    """(n,): numbers as scores; missing ones are below all others."""
    numbers = np.asarray(values, dtype=np.float64)
    return np.where(np.isnan(numbers), -np.inf, numbers)
