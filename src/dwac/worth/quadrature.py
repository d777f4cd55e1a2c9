"""Sums over players at all nodes, and integrals for all players, in bins of log w, so that many players cost little.

Every sum over players is a sum of a smooth function of log w + log t, and every value is a smooth function of a
player's own log w. So players are spread over bins with the weights of Lagrange interpolation; sums are correlations
of the histogram with a table; integrals are computed for the bins and interpolated. The cost is a small multiple of m,
plus bins × nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from dwac.worth.grid import Grid

_WIDE = 256.0  # span of log-weights above which gaps are closed


class Quadrature:
    """The players of n queries, by log-weights (n, m), the largest of each query 0; -inf for an absent player."""

    def __init__(self, log_w: Tensor, grid: Grid) -> None:
        self.grid, self.there = grid, torch.isfinite(log_w)
        self.n_players = self.there.sum(dim=1)
        place = torch.where(self.there, log_w, 0.0).mul_(-1 / grid.width)
        # Not beyond the heaviest: for a heavier player, the others' factors would not bound 1 / D.
        self._start = (place.floor().long() - (grid.points // 2 - 1)).clamp_min_(0)
        self._offset = place - self._start
        self._nearest = place.round().long()

    @cached_property
    def _weights(self) -> list[Tensor]:
        """(n, m) for each of the bins from `_start` on: the weights of Lagrange interpolation, Π (x - l) / (k - l)."""
        points, found = self.grid.points, []
        above = [self.there.double()]  # products of x - l over l > k, last first
        for other in range(points - 1, 0, -1):
            above.append(above[-1] * (self._offset - other))
        below: Tensor | None = None  # over l < k
        for point in range(points):
            weight = above.pop().div_(math.prod(point - other for other in range(points) if other != point))
            found.append(weight if below is None else weight.mul_(below))
            step = self._offset - point
            below = step if below is None else below.mul_(step)
        return found

    def _stencil(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The bins (n, m) of each player, and its weight there."""
        for point, weight in enumerate(self._weights):
            yield self._start + point, weight

    def spread(self, *values: Tensor | None) -> list[Tensor]:
        """(C, n, κ) each: histograms of values (n, m) over the bins; None for ones."""
        shape = len(self.there), self.grid.n_cells * self.grid.per_cell
        found = [self._offset.new_zeros(shape) for _ in values]
        for bins, weight in self._stencil():
            for histogram, value in zip(found, values, strict=True):
                histogram.scatter_add_(1, bins, weight if value is None else weight * value)
        cells = len(self.there), self.grid.n_cells, self.grid.per_cell
        return [histogram.view(cells).transpose(0, 1).contiguous() for histogram in found]

    def sums(self, histogram: Tensor, table: str) -> Tensor:
        """(U, n, Q): Σ_j value_j · table(z_j, q) at every node."""
        found = histogram.new_zeros(self.grid.n_nodes, histogram.shape[1], len(self.grid.s))
        for cells, nodes, part in self._meetings(table):
            found[nodes].flatten(0, 1).addmm_(histogram[cells].flatten(0, 1), part)
        return found

    def products(self, histogram: Tensor) -> Tensor:
        """(U, n, Q): E[e^(-tS)] = Π D at every node."""
        log_product, grid = self.sums(histogram, "log D"), self.grid
        certain = histogram.sum(dim=2).cumsum(dim=0)[:, :, None] * grid.log_rest
        log_product[grid.last : grid.last + grid.n_cells] += certain
        log_product[grid.last + grid.n_cells :] += certain[-1]
        return log_product.exp_()

    def integrals(self, integrand: Tensor) -> tuple[Tensor, Tensor]:
        """∫∫ integrand · G dq du for every bin, (n, bins), and its change if every second node is left out."""
        integrand = integrand * self.grid.weights
        every = self._integrals(integrand, 1)
        integrand[1::2] = 0.0
        apart = 1 if self.grid.method == "banzhaf" else 2
        return every, self._integrals(integrand[:, :, ::apart], apart).mul_(2 * apart).sub_(every)

    def _integrals(self, integrand: Tensor, apart: int) -> Tensor:
        grid, integrand = self.grid, integrand.contiguous()
        found = integrand.new_zeros(grid.n_cells, integrand.shape[1], grid.per_cell)
        for cells, nodes, part in self._meetings("G"):
            found[cells].flatten(0, 1).addmm_(integrand[nodes].flatten(0, 1), part[:, ::apart].T)
        certain = integrand[grid.last :] @ (-grid.log_rest[::apart]).exp()
        found += certain.flip(0).cumsum(dim=0).flip(0)[: grid.n_cells, :, None]
        return found.transpose(0, 1).flatten(1)

    def _meetings(self, table: str) -> Iterator[tuple[slice, slice, Tensor]]:
        """Which cells meet which nodes in u, and the table (κ, Q) there."""
        grid = self.grid
        for apart, part in zip(range(grid.first, grid.last), grid.tables[table], strict=True):
            start, stop = max(0, -apart), min(grid.n_cells, grid.n_nodes - apart)
            if start < stop:
                yield slice(start, stop), slice(start + apart, stop + apart), part

    def read(self, *tables: Tensor) -> list[Tensor]:
        """(n, m) each: the values of tables (n, bins) for each player, interpolated."""
        found = [torch.zeros_like(self._offset) for _ in tables]
        for bins, weight in self._stencil():
            for values, table in zip(found, tables, strict=True):
                values.addcmul_(weight, table.gather(1, bins))
        return found

    def near(self, table: Tensor) -> Tensor:
        """(n, m): an approximation of the same, from the nearest bin, for estimates of errors."""
        return table.gather(1, self._nearest)


def compacted(log_w: Tensor, gap: float) -> Tensor:
    """Log-weights (n, m), the largest 0, with gaps cut to at most `gap`: wider gaps make no difference."""
    finite = log_w.isfinite()
    if log_w.numel() == 0 or float(log_w.masked_fill(~finite, 0).min()) > -_WIDE:
        return log_w
    ordered, places = log_w.masked_fill(~finite, -torch.inf).sort(dim=1, descending=True)
    steps = ordered.diff(dim=1, prepend=ordered[:, :1]).nan_to_num_(0.0).clamp_min_(-gap)
    moved = torch.empty_like(log_w).scatter_(1, places, steps.cumsum_(dim=1))
    return moved.masked_fill_(~finite, -torch.inf)
