"""Values of many players within a tolerance: the nodes of the quadrature, the sums over players, and the steps.

With z = log(t w) and ζ = e^z, an example that is drawn with probability q contributes

    D = 1 - q (1 - e^-ζ)            its factor of E[e^(-tS)], S the votes of the drawn examples
    g = q ζ e^-ζ / D                what it adds to E[S e^(-tS)] t / E[e^(-tS)]
    k = q (1-q) ζ² e^-ζ / D²        the same for squares of sums
    G = (1 - e^-ζ) / D              how adding it changes e^(-tS), its own factor divided out

Integrals over q = 1 / (1 + e^-s) and t = e^u are trapezoidal sums with a step h in s and in u. The integrand is
analytic and bounded where |Im s| < π/2 and |Im u| < π/2, so the error is about e^(-π²/h): half the step squares it.

Every sum over players is a sum of a smooth function of log w + log t, and every value is a smooth function of a
player's own log w. So players are spread over bins with the weights of Lagrange interpolation; sums are correlations
of the histogram with a table; integrals are computed for the bins and interpolated. The cost is a small multiple of m,
plus bins × nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from dwac.errors import InputError

_MARGIN = 10.0  # how many times smaller than the tolerance each cut is
_WIDE = 256.0  # span of log-weights above which gaps are closed
_NODES = {"cpu": 2**22, "cuda": 2**26}  # numbers held at once in one array
_FINER = 0.75  # factor on the step where the tolerance is not met
_TRIES = 4


@dataclass(frozen=True)
class Grid:
    """Steps, nodes and tables for players whose log-weights have this span, the largest being 0.

    Players are put on bins of width h / κ in log w; κ bins are a cell. Node number n in u and cell number c meet at
    z = low + (n - c) h: so one table, by n - c, serves all.
    """

    method: str
    tolerance: float
    step: float  # h
    n_players: int
    reach: float  # log Σ w, the largest w being 1
    span: float  # -log of the least w
    device: torch.device
    order: int = 2  # the integrand falls as t and m q to this power where they are small
    until: float = -math.inf  # the least log t up to which the integrand is needed, even if all are certain by then

    per_cell = 8  # κ

    @property
    def points(self) -> int:
        """The number of bins between which a player is interpolated."""
        return 4 if self.tolerance >= 1e-5 else 6 if self.tolerance >= 1e-7 else 8

    @property
    def width(self) -> float:
        """The width of a bin."""
        return self.step / self.per_cell

    @property
    def _cut(self) -> float:
        return math.log(_MARGIN / self.tolerance)

    @cached_property
    def s(self) -> Tensor:
        """(Q,): the nodes in s = log(q / (1-q)); for Banzhaf values q = ½ alone."""
        if self.method == "banzhaf":
            return torch.zeros(1, dtype=torch.float64, device=self.device)
        low, high = -math.log(self.n_players) - self._cut / self.order, self._cut  # the integrand falls as 1 - q near 1
        n = math.ceil((high - low) / self.step) + 1
        return low + self.step * torch.arange(n, dtype=torch.float64, device=self.device)

    @cached_property
    def weights(self) -> Tensor:
        """(Q,): dq du at each node."""
        if self.method == "banzhaf":
            return torch.full_like(self.s, self.step)
        return self.step**2 * torch.sigmoid(self.s) * torch.sigmoid(-self.s)

    @property
    def low(self) -> float:
        """The first node in u."""
        return -self.reach - self._cut / self.order

    @property
    def first(self) -> int:
        """The least n - c that counts: lighter players make no difference."""
        return math.floor((-self._cut - math.log(self.n_players) - self.low) / self.step)

    @property
    def last(self) -> int:
        """The n - c from which a player counts as certain to be seen: e^-ζ is negligible beside 1 - q."""
        certain = math.log(float(self.s[-1].clamp_min(0)) + self._cut + 4)
        return math.ceil((certain - self.low) / self.step) + 1

    @property
    def n_cells(self) -> int:
        """C: the number of cells of players."""
        bins = math.ceil(self.span / self.width) + self.points + 1
        return -(-bins // self.per_cell)

    @property
    def n_nodes(self) -> int:
        """U: the number of nodes in u."""
        more = 0 if self.until == -math.inf else math.ceil((self.until - self.low) / self.step)
        return max(self.n_cells + self.last, more)

    @cached_property
    def tables(self) -> dict[str, Tensor]:
        """log D, g, k and G, each (J, κ, Q): by n - c from `first` to before `last`, bin within the cell, and q."""
        n = torch.arange(self.first, self.last, dtype=torch.float64, device=self.device)[:, None, None]
        bins = torch.arange(self.per_cell, dtype=torch.float64, device=self.device)[:, None]
        zeta = (self.low + n * self.step - bins * self.width).exp()
        e, q, rest = (-zeta).exp(), torch.sigmoid(self.s), torch.sigmoid(-self.s)
        change, factor = -torch.expm1(-zeta), rest + q * e
        # Each of the two is accurate where it is used.
        log_factor = torch.where(q * change < 0.5, torch.log1p(-(q * change).clamp_max(0.5)), factor.log())
        spread = q * zeta * e / factor
        return {
            "log D": log_factor,
            "g": spread,
            "k": spread * zeta * rest / factor,
            "G": change / factor,
        }

    @property
    def log_rest(self) -> Tensor:
        """(Q,): log(1 - q), the value of log D for players that are certain to be seen."""
        return -torch.nn.functional.softplus(self.s)

    @property
    def nodes(self) -> Tensor:
        """(U,): t at each node in u."""
        return (self.low + self.step * torch.arange(self.n_nodes, dtype=torch.float64, device=self.device)).exp()

    def error(self, halved: Tensor, safety: float = 4.0) -> Tensor:
        """The likely error of sums, given their change when every second node is left out.

        It has three parts. Trapezoidal sums: e^(-π²/2h) of that change, times 2^(k - ½) if the integrand rises as t^k:
        k = 2 for means, for which `safety` is enough. The cut tails. Interpolation between bins, where poles of 1 / D
        and zeros of the other factors no longer cancel: e^(-2π √(2/h)), as measured.
        """
        binned = 0.1 * math.exp(-2 * math.pi * math.sqrt(2 / self.step))
        return safety * halved * math.exp(-(math.pi**2) / (2 * self.step)) + binned + 2 / _MARGIN * self.tolerance


def chance_of_first(method: str, n_players: Tensor) -> Tensor:
    """∫ (1-q)^(m-1) dq: how often a player comes first, given the numbers m of players."""
    m = n_players.double()
    return torch.exp2(1 - m) if method == "banzhaf" else 1 / m.clamp_min(1)


def first_step(tolerance: float, safety: float = 4.0) -> float:
    """The step h with which most queries are within the tolerance."""
    trapezoid = math.pi**2 / math.log(100 * safety / tolerance)
    binned = 2 * (2 * math.pi / max(0.1, math.log(0.2 / tolerance))) ** 2
    return min(trapezoid, binned)


class Quadrature:
    """The players of n queries, by log-weights (n, m), the largest of each query 0; -inf for an absent player."""

    def __init__(self, log_w: Tensor, grid: Grid) -> None:
        self.grid, self.present = grid, torch.isfinite(log_w)
        self.n_players = self.present.sum(dim=1)
        place = torch.where(self.present, log_w, 0.0).mul_(-1 / grid.width)
        # Not beyond the heaviest: for a heavier player, the others' factors would not bound 1 / D.
        self._start = (place.floor().long() - (grid.points // 2 - 1)).clamp_min_(0)
        self._offset = place - self._start
        self._nearest = place.round().long()

    @cached_property
    def _weights(self) -> list[Tensor]:
        """(n, m) for each of the bins from `_start` on: the weights of Lagrange interpolation, Π (x - l) / (k - l)."""
        points, weights = self.grid.points, []
        above = [self.present.double()]  # products of x - l over l > k, last first
        for other in range(points - 1, 0, -1):
            above.append(above[-1] * (self._offset - other))
        below: Tensor | None = None  # over l < k
        for point in range(points):
            weight = above.pop().div_(math.prod(point - other for other in range(points) if other != point))
            weights.append(weight if below is None else weight.mul_(below))
            step = self._offset - point
            below = step if below is None else below.mul_(step)
        return weights

    def _stencil(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The bins (n, m) of each player, and its weight there."""
        for point, weight in enumerate(self._weights):
            yield self._start + point, weight

    def spread(self, *values: Tensor | None) -> list[Tensor]:
        """(C, n, κ) each: histograms of values (n, m) over the bins; None for ones."""
        shape = len(self.present), self.grid.n_cells * self.grid.per_cell
        histograms = [self._offset.new_zeros(shape) for _ in values]
        for bins, weight in self._stencil():
            for histogram, value in zip(histograms, values, strict=True):
                histogram.scatter_add_(1, bins, weight if value is None else weight * value)
        cells = len(self.present), self.grid.n_cells, self.grid.per_cell
        return [histogram.view(cells).transpose(0, 1).contiguous() for histogram in histograms]

    def sums(self, histogram: Tensor, table: str) -> Tensor:
        """(U, n, Q): Σ_j value_j · table(z_j, q) at every node."""
        sums = histogram.new_zeros(self.grid.n_nodes, histogram.shape[1], len(self.grid.s))
        for cells, nodes, part in self._meetings(table):
            sums[nodes].flatten(0, 1).addmm_(histogram[cells].flatten(0, 1), part)
        return sums

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
        stride = 1 if self.grid.method == "banzhaf" else 2
        return every, self._integrals(integrand[:, :, ::stride], stride).mul_(2 * stride).sub_(every)

    def _integrals(self, integrand: Tensor, stride: int) -> Tensor:
        grid, integrand = self.grid, integrand.contiguous()
        integrals = integrand.new_zeros(grid.n_cells, integrand.shape[1], grid.per_cell)
        for cells, nodes, part in self._meetings("G"):
            integrals[cells].flatten(0, 1).addmm_(integrand[nodes].flatten(0, 1), part[:, ::stride].T)
        certain = integrand[grid.last :] @ (-grid.log_rest[::stride]).exp()
        integrals += certain.flip(0).cumsum(dim=0).flip(0)[: grid.n_cells, :, None]
        return integrals.transpose(0, 1).flatten(1)

    def _meetings(self, table: str) -> Iterator[tuple[slice, slice, Tensor]]:
        """Which cells meet which nodes in u, and the table (κ, Q) there."""
        grid = self.grid
        for offset, part in zip(range(grid.first, grid.last), grid.tables[table], strict=True):
            start, stop = max(0, -offset), min(grid.n_cells, grid.n_nodes - offset)
            if start < stop:
                yield slice(start, stop), slice(start + offset, stop + offset), part

    def read(self, *tables: Tensor) -> list[Tensor]:
        """(n, m) each: the values of tables (n, bins) for each player, interpolated."""
        answers = [torch.zeros_like(self._offset) for _ in tables]
        for bins, weight in self._stencil():
            for values, table in zip(answers, tables, strict=True):
                values.addcmul_(weight, table.gather(1, bins))
        return answers

    def near(self, table: Tensor) -> Tensor:
        """(n, m): an approximation of the same, from the nearest bin, for estimates of errors."""
        return table.gather(1, self._nearest)


def close_gaps(log_w: Tensor, gap: float) -> Tensor:
    """Log-weights (n, m), the largest 0, with gaps cut to `gap` at most: wider gaps make no difference."""
    finite = log_w.isfinite()
    if log_w.numel() == 0 or float(log_w.masked_fill(~finite, 0).min()) > -_WIDE:
        return log_w
    ordered, places = log_w.masked_fill(~finite, -torch.inf).sort(dim=1, descending=True)
    steps = ordered.diff(dim=1, prepend=ordered[:, :1]).nan_to_num_(0.0).clamp_min_(-gap)
    moved = torch.empty_like(log_w).scatter_(1, places, steps.cumsum_(dim=1))
    return moved.masked_fill_(~finite, -torch.inf)


class GameValues(NamedTuple):
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
        present = log_w.isfinite()
        n_players = present.sum(dim=1)
        # Log-weights further apart than this count as infinitely far.
        gap = 10.0 + math.log(max(1, log_w.shape[1]) / tolerance)
        log_w = close_gaps(log_w - log_w.amax(dim=1, keepdim=True), gap)
        spans = -torch.where(present, log_w, 0.0).amin(dim=1)
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
def solve(
    log_w: Tensor,
    own: Tensor,
    integrate: Integrate,
    whole: Tensor,
    method: str,
    tolerance: float,
    *,
    fading: Tensor | None = None,
    safety: float = 4.0,
) -> GameValues:
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
            part, change = integrate(votes, own[rows])
            part.mul_(votes.present)
            estimate = grid.error((change.abs_().mul_(votes.present)).sum(dim=1), safety)
            if method == "shapley":
                estimate = torch.maximum(estimate, (part.sum(dim=1) - whole[rows]).abs())
            values[rows], errors[rows] = part, estimate
        left = left[errors[left] > tolerance]
        if len(left) == 0:
            break
        step *= _FINER
    return GameValues(values, errors)
