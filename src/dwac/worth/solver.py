"""Solves games within a tolerance: decides which games to compute together, with which steps, and which to repeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dwac.errors import InputError
from dwac.worth.grid import Grid, first_step
from dwac.worth.quadrature import Quadrature, compacted

_NODES = {"cpu": 2**22, "cuda": 2**26}  # numbers held at once in one array
_FINER = 0.75  # factor on the step where the tolerance is not met
_TRIES = 4


class Values(NamedTuple):
    """The values of m players in n games, (n, m), and an estimate (n,) of the sum of their absolute errors."""

    values: Tensor
    errors: Tensor


# From the players and the own values of each game, to the values (n, m) and their change if nodes are left out.
Integrate = Callable[[Quadrature, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class _Games:
    """n games: log-weights (n, m), the largest of each 0, and facts about each game (n,)."""

    log_w: Tensor
    spans: Tensor
    reaches: Tensor  # log Σ w
    n_players: Tensor
    method: str
    tolerance: float
    fading: Tensor | None  # in games of logs: the votes of the prior, in units of the heaviest

    @classmethod
    def of(cls, log_w: Tensor, method: str, tolerance: float, fading: Tensor | None) -> _Games:
        there = log_w.isfinite()
        n_players = there.sum(dim=1)
        # Log-weights further apart than this count as infinitely far.
        gap = 10.0 + math.log(max(1, log_w.shape[1]) / tolerance)
        log_w = compacted(log_w - log_w.amax(dim=1, keepdim=True), gap)
        spans = -torch.where(there, log_w, 0.0).amin(dim=1)
        return cls(log_w, spans, torch.logsumexp(log_w, dim=1), n_players, method, tolerance, fading)

    def grid(self, rows: Tensor, step: float) -> Grid:
        """A grid with nodes for all these games."""
        until = -math.inf
        if self.fading is not None:  # e^(-t · votes of the prior) is the last to fall
            until = math.log(math.log(1e3 / self.tolerance)) - math.log(float(self.fading[rows].amin()))
        return Grid(
            self.method,
            self.tolerance,
            step,
            int(self.n_players[rows].amax()),
            float(self.reaches[rows].amax()),
            float(self.spans[rows].amax()),
            self.log_w.device,
            2 if self.fading is None else 1,
            until,
        )

    def chunks(self, rows: Tensor, step: float) -> Iterator[tuple[Tensor, Grid]]:
        """The rows in parts that fit into memory; rows with similar spans of log-weights are together."""
        rows, most = rows[self.spans[rows].argsort()], _NODES.get(self.log_w.device.type, 2**22)
        while len(rows):
            widest = self.grid(rows[-1:], step)
            size = max(1, most // max(widest.n_nodes * len(widest.s), self.log_w.shape[1]))
            part, rows = rows[-size:], rows[:-size]
            yield part, self.grid(part, step)


@torch.no_grad()
def solved(
    log_w: Tensor,
    own: Tensor,
    integrate: Integrate,
    whole: Tensor,
    method: str,
    tolerance: float,
    *,
    fading: Tensor | None = None,
    safety: float = 4.0,
) -> Values:
    """Values of all games; those whose errors exceed the tolerance are computed again, with smaller steps.

    own: (n, …) what `integrate` needs of each game besides the votes. whole: (n,) the sum of the Shapley values: if
    they miss it by more than the estimated error, that gap becomes the estimate. fading: (n,) the votes of the prior in
    games of logs, in units of the heaviest. safety: of the estimates, see `Grid.error`.
    """
    if not 1e-11 <= tolerance <= 0.1:
        raise InputError(f"tolerance must be between 1e-10 and 0.1; got {tolerance:g}")
    games, step = _Games.of(log_w, method, tolerance, fading), first_step(tolerance, safety)
    values, errors = torch.zeros_like(log_w), torch.zeros_like(whole)
    left = games.n_players.nonzero()[:, 0]
    for _ in range(_TRIES):
        for rows, grid in games.chunks(left, step):
            votes = Quadrature(games.log_w[rows], grid)
            found, change = integrate(votes, own[rows])
            found.mul_(votes.there)
            estimate = grid.error((change.abs_().mul_(votes.there)).sum(dim=1), safety)
            if method == "shapley":
                estimate = torch.maximum(estimate, (found.sum(dim=1) - whole[rows]).abs())
            values[rows], errors[rows] = found, estimate
        left = left[errors[left] > tolerance]
        if len(left) == 0:
            break
        step *= _FINER
    return Values(values, errors)
