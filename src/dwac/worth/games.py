"""The worth of each player of a vote: Shapley, Banzhaf and leave-one-out values for means, squared errors and logs.

A query is a game. Its players are the examples (or groups of them) with votes w_i > 0, and each set of players has a
worth v. A player's value is the average of v(with it) - v(without it) over sets of others, each of whom is in the set
with probability q: averaged over q in (0, 1) for the *Shapley value*, at q = ½ for the *Banzhaf value*, at q = 1 for
*leave-one-out*, which has a closed form (`dwac.worth.closed`).

**Mean.** v = Σ a_i w_i / Σ w_i; with a_i = 1 for players with the true label, this is its probability. The denominator
couples the players, but 1/S = ∫ e^(-tS) dt, and e^(-tS) is a product over players. With D, g, G of
`dwac.worth.grid`, L = Π D, and integrals over q and log t, the value of player i is

    a_i ∫∫ L (Σ_j g_j) G_i - ∫∫ L (Σ_j a_j g_j) G_i + (a_i - v(∅)) / m.

The last term comes from integration by parts: a player that comes first (in 1 of m orders) is worth a_i - v(∅).

**Squared error.** v = -(Σ b_i w_i / Σ w_i)², b the difference from the truth: 1/S² = ∫ t e^(-tS) dt. Squares of sums
bring in k; differences are taken from b_i, so that a player's own term is 0.

**Log.** log S = ∫ (e^-t - e^(-tS)) dt/t, so of log((S_y + ε p W) / (S + ε W)) as well: p the prior, W all votes, ε a
small share of the vote that the prior has. Without it, players that lack the label would be worth -∞.

In every game, the values of m players take one two-dimensional quadrature, not 2^m sets.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dwac.errors import InputError, NonFiniteError, ShapeError
from dwac.worth import closed
from dwac.worth.grid import first_of
from dwac.worth.quadrature import Quadrature
from dwac.worth.solver import Values, solved

METHODS = ("shapley", "banzhaf", "leave_one_out")


def of_mean(log_w: Tensor, gains: Tensor, empty: Tensor, *, method: str = "shapley", tolerance: float = 1e-4) -> Values:
    """Values for v = Σ a_i w_i / Σ w_i.

    Args:
        log_w: (n, m) logs of votes; -inf for an absent player, whose value is 0. Only differences count.
        gains: (n, m) or (m,): a_i.
        empty: (n,): the worth of the empty set, such as the prior of the true label.
        method: "shapley", "banzhaf" or "leave_one_out".
        tolerance: the largest sum of absolute errors of a game, in units of the largest difference of gains.

    >>> log_w, has = torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([1.0, 0.0, 0.0])
    >>> of_mean(log_w, has, torch.tensor([0.5])).values.round(decimals=4)      # their sum is 1/3 - 1/2
    tensor([[ 0.4444, -0.3056, -0.3056]], dtype=torch.float64)
    """
    log_w, gains = _checked(log_w, gains, method)
    if method == "leave_one_out":
        return _exact(closed.mean(log_w, gains, empty))
    there = log_w.isfinite()
    least = gains.masked_fill(~there, torch.inf).amin(dim=1, keepdim=True)
    scale = (gains.masked_fill(~there, -torch.inf).amax(dim=1, keepdim=True) - least).clamp_min(0)
    unit = torch.where(there & (scale > 0), (gains - least) / torch.where(scale > 0, scale, 1.0), 0.0)

    def integrate(votes: Quadrature, a: Tensor) -> tuple[Tensor, Tensor]:
        ones, own = votes.spread(None, a)
        product = votes.products(ones)
        first, change = votes.integrals(product * votes.sums(ones, "g"))
        second, other = votes.integrals(product.mul_(votes.sums(own, "g")))
        one, two = votes.read(first, second)
        first_to_come = first_of(method, votes.n_players)[:, None]
        return a * (one + first_to_come) - two, a * votes.near(change) - votes.near(other)

    found = solved(log_w, unit, integrate, _mean_of(log_w, unit), method, tolerance)
    first_to_come = first_of(method, there.sum(dim=1, keepdim=True))
    return Values(
        (found.values * scale + (least - empty[:, None]) * first_to_come).masked_fill(~there, 0.0),
        found.errors * scale[:, 0],
    )


def of_squared_error(
    log_w: Tensor, differences: Tensor, empty: Tensor, *, method: str = "shapley", tolerance: float = 1e-4
) -> Values:
    """Values for v = -(Σ b_i w_i / Σ w_i)², minus the squared error of the voters' mean: a smaller error is worth more.

    differences: (n, m) or (m,): b_i, the number of each player minus the true one. empty: (n,): the same for the
    prediction without voters. The tolerance is in units of the largest b². The rest as for `of_mean`.
    """
    log_w, differences = _checked(log_w, differences, method)
    if method == "leave_one_out":
        return _exact(closed.squared_error(log_w, differences, empty))
    there = log_w.isfinite()
    scale = differences.masked_fill(~there, 0.0).abs().amax(dim=1, keepdim=True)
    unit = differences.masked_fill(~there, 0.0) / torch.where(scale > 0, scale, 1.0)

    def integrate(votes: Quadrature, b: Tensor) -> tuple[Tensor, Tensor]:
        powers = votes.spread(None, b, b * b)
        product = votes.products(powers[0])
        one, own = (votes.sums(part, "g") for part in powers[:2])
        of_ones, of_b, of_squares = (votes.sums(part, "k") for part in powers)
        inside = (one, own, own * own + of_squares, own * one + of_b, one * one + of_ones)
        tables, changes = zip(*(votes.integrals(product * each) for each in inside), strict=True)
        first = b * b * first_of(method, votes.n_players)[:, None]
        return _squared(b, *votes.read(*tables)) - first, _squared(b, *map(votes.near, changes))

    whole = -_mean_of(log_w, unit).square()
    found = solved(log_w, unit, integrate, whole, method, tolerance, safety=16.0)  # the integrand rises as t⁴
    first_to_come, square = first_of(method, there.sum(dim=1, keepdim=True)), scale.square()
    return Values(
        (found.values * square + empty[:, None].square() * first_to_come).masked_fill(~there, 0.0),
        found.errors * square[:, 0],
    )


def of_log(
    log_w: Tensor,
    log_w_true: Tensor,
    prior: Tensor,
    *,
    share: float = 0.01,
    method: str = "shapley",
    tolerance: float = 1e-4,
) -> Values:
    """Values for v = log((S_y + ε p W) / (S + ε W)), the log-probability of the true label with a share of the prior.

    Args:
        log_w: (n, m) logs of votes. log_w_true: the same for votes for the true label; -inf for players without one.
        prior: (n,): p, the prior of the true label, above 0. share: ε, the prior's share of all votes W.
        method, tolerance: as for `of_mean`; the tolerance is absolute.
    """
    log_w, log_w_true = _checked(log_w, log_w_true, method)
    if not bool((prior > 0).all()):
        raise InputError(f"prior must be above 0 for a log-probability; got {float(prior.min()):g}")
    if method == "leave_one_out":
        return _exact(closed.log(log_w, log_w_true, prior, share))
    top = log_w.amax(dim=1, keepdim=True)
    total = torch.logsumexp(log_w - top, dim=1).exp()
    base = share * total

    def part(log_votes: Tensor, votes_of_prior: Tensor) -> Values:
        """Values for log(S + votes of the prior), both in units of the heaviest."""
        there = log_votes.isfinite()
        own_top = torch.where(there.any(dim=1, keepdim=True), log_votes.amax(dim=1, keepdim=True), 0.0)
        extra = (votes_of_prior.log()[:, None] - own_top).exp()

        def integrate(votes: Quadrature, extra: Tensor) -> tuple[Tensor, Tensor]:
            product = votes.products(*votes.spread(None))
            product.mul_((-extra[:, 0] * votes.grid.nodes[:, None]).exp()[:, :, None])
            table, change = votes.integrals(product)
            return votes.read(table)[0], votes.near(change)

        whole = torch.log1p((log_votes - own_top).exp().sum(dim=1) / extra[:, 0])
        return solved(log_votes, extra, integrate, whole, method, tolerance / 2, fading=extra[:, 0])

    everyone, those = part(log_w - top, base), part(log_w_true - top, base * prior)
    return Values(those.values - everyone.values, those.errors + everyone.errors)


def _squared(b: Tensor, h_one: Tensor, h_own: Tensor, z_two: Tensor, z_one: Tensor, z_none: Tensor) -> Tensor:
    """Values for -mean², from their integrals, without the term of the first player."""
    return z_two - 2 * b * (z_one - h_own) - b * b * (2 * h_one - z_none)


def _mean_of(log_w: Tensor, a: Tensor) -> Tensor:
    """(n,): Σ a w / Σ w; 0 without votes."""
    shares = torch.softmax(log_w, dim=1).nan_to_num_(0.0)
    return (shares * a).sum(dim=1)


def _exact(values: Tensor) -> Values:
    return Values(values, torch.zeros_like(values[:, 0]))


def _checked(log_w: Tensor, values: Tensor, method: str) -> tuple[Tensor, Tensor]:
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}; got {method!r}")
    if log_w.ndim != 2:
        raise ShapeError(f"log_w must have shape (n, m), queries by players; got {tuple(log_w.shape)}")
    if bool((log_w.isnan() | (log_w == torch.inf)).any()):
        raise NonFiniteError("log_w must be finite, or -inf for players who take no part; got nan or inf")
    try:
        return log_w.double(), values.double().expand(log_w.shape)
    except RuntimeError:
        raise ShapeError(
            f"each player needs one number for each query, or one for all; log_w has shape {tuple(log_w.shape)}; got "
            f"{tuple(values.shape)}"
        ) from None
