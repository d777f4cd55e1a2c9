"""The nodes of the quadrature in q and t, and the contribution of each example to the integrand there.

With z = log(t w) and ζ = e^z, an example that is drawn with probability q contributes

    D = 1 - q (1 - e^-ζ)            its factor of E[e^(-tS)], S the votes of the drawn examples
    g = q ζ e^-ζ / D                what it adds to E[S e^(-tS)] t / E[e^(-tS)]
    k = q (1-q) ζ² e^-ζ / D²        the same for squares of sums
    G = (1 - e^-ζ) / D              how adding it changes e^(-tS), its own factor divided out

Integrals over q = 1 / (1 + e^-s) and t = e^u are trapezoidal sums with a step h in s and in u. The integrand is
analytic and bounded where |Im s| < π/2 and |Im u| < π/2, so the error is about e^(-π²/h): half the step squares it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

_MARGIN = 10.0  # how many times smaller than the tolerance each cut is


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


def first_of(method: str, n_players: Tensor) -> Tensor:
    """∫ (1-q)^(m-1) dq: how often a player comes first, given the numbers m of players."""
    m = n_players.double()
    return torch.exp2(1 - m) if method == "banzhaf" else 1 / m.clamp_min(1)


def first_step(tolerance: float, safety: float = 4.0) -> float:
    """The step h with which most queries are within the tolerance."""
    trapezoid = math.pi**2 / math.log(100 * safety / tolerance)
    binned = 2 * (2 * math.pi / max(0.1, math.log(0.2 / tolerance))) ** 2
    return min(trapezoid, binned)
