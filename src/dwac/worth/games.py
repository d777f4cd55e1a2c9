"""The worth of each player of a vote: Shapley, Banzhaf and leave-one-out values for means, squares, logs and labels.

A query is a game. Its players are the examples (or groups of them) with votes w_i > 0, and each set of players has a
worth v. A player's value is the average of v(with it) - v(without it) over sets of others, each of whom is in the set
with probability q: averaged over q in (0, 1) for the *Shapley value*, at q = ½ for the *Banzhaf value*, at q = 1 for
*leave-one-out*, which has a closed form.

**Mean.** v = Σ a_i w_i / Σ w_i; with a_i = 1 for players with the true label, this is its probability. The denominator
couples the players, but 1/S = ∫ e^(-tS) dt, and e^(-tS) is a product over players. With D, g, G of
`dwac.worth.quadrature`, L = Π D, and integrals over q and log t, the value of player i is

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
from dwac.worth.quadrature import GameValues, Quadrature, chance_of_first, solve

METHODS = ("shapley", "banzhaf", "leave_one_out")
UTILITIES = ("probability", "log_probability", "accuracy")


def of_mean(
    log_w: Tensor, gains: Tensor, empty: Tensor, *, method: str = "shapley", tolerance: float = 1e-4
) -> GameValues:
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
    log_w, gains = _check_players(log_w, gains, method)
    if method == "leave_one_out":
        return _exact(_leave_out_mean(log_w, gains, empty))
    present = log_w.isfinite()
    least = gains.masked_fill(~present, torch.inf).amin(dim=1, keepdim=True)
    scale = (gains.masked_fill(~present, -torch.inf).amax(dim=1, keepdim=True) - least).clamp_min(0)
    unit = torch.where(present & (scale > 0), (gains - least) / torch.where(scale > 0, scale, 1.0), 0.0)

    def integrate(votes: Quadrature, a: Tensor) -> tuple[Tensor, Tensor]:
        ones, own = votes.spread(None, a)
        product = votes.products(ones)
        first, change = votes.integrals(product * votes.sums(ones, "g"))
        second, other = votes.integrals(product.mul_(votes.sums(own, "g")))
        one, two = votes.read(first, second)
        first_to_come = chance_of_first(method, votes.n_players)[:, None]
        return a * (one + first_to_come) - two, a * votes.near(change) - votes.near(other)

    values, errors = solve(log_w, unit, integrate, _mean_of(log_w, unit), method, tolerance)
    first_to_come = chance_of_first(method, present.sum(dim=1, keepdim=True))
    return GameValues(
        (values * scale + (least - empty[:, None]) * first_to_come).masked_fill(~present, 0.0),
        errors * scale[:, 0],
    )


def of_squared_error(
    log_w: Tensor, differences: Tensor, empty: Tensor, *, method: str = "shapley", tolerance: float = 1e-4
) -> GameValues:
    """Values for v = -(Σ b_i w_i / Σ w_i)², minus the squared error of the voters' mean: a smaller error is worth more.

    differences: (n, m) or (m,): b_i, the number of each player minus the true one. empty: (n,): the same for the
    prediction without voters. The tolerance is in units of the largest b². The rest as for `of_mean`.

    >>> worth = of_squared_error(torch.zeros(1, 2), torch.tensor([0.0, 2.0]), torch.tensor([4.0]))
    >>> worth.values.round(decimals=3)  # from an error of 4² without voters to 1² with both
    tensor([[9.5000, 5.5000]], dtype=torch.float64)
    """
    log_w, differences = _check_players(log_w, differences, method)
    if method == "leave_one_out":
        return _exact(_leave_out_squared_error(log_w, differences, empty))
    present = log_w.isfinite()
    scale = differences.masked_fill(~present, 0.0).abs().amax(dim=1, keepdim=True)
    unit = differences.masked_fill(~present, 0.0) / torch.where(scale > 0, scale, 1.0)

    def integrate(votes: Quadrature, b: Tensor) -> tuple[Tensor, Tensor]:
        powers = votes.spread(None, b, b * b)
        product = votes.products(powers[0])
        one, own = (votes.sums(part, "g") for part in powers[:2])
        of_ones, of_b, of_squares = (votes.sums(part, "k") for part in powers)
        inside = (one, own, own * own + of_squares, own * one + of_b, one * one + of_ones)
        tables, changes = zip(*(votes.integrals(product * each) for each in inside), strict=True)
        first = b * b * chance_of_first(method, votes.n_players)[:, None]
        return _squared(b, *votes.read(*tables)) - first, _squared(b, *map(votes.near, changes))

    whole = -_mean_of(log_w, unit).square()
    values, errors = solve(log_w, unit, integrate, whole, method, tolerance, safety=16.0)  # the integrand rises as t⁴
    first_to_come, square = chance_of_first(method, present.sum(dim=1, keepdim=True)), scale.square()
    return GameValues(
        (values * square + empty[:, None].square() * first_to_come).masked_fill(~present, 0.0),
        errors * square[:, 0],
    )


def of_log(
    log_w: Tensor,
    log_w_true: Tensor,
    prior: Tensor,
    *,
    share: float = 0.01,
    method: str = "shapley",
    tolerance: float = 1e-4,
) -> GameValues:
    """Values for v = log((S_y + ε p W) / (S + ε W)), the log-probability of the true label with a share of the prior.

    Args:
        log_w: (n, m) logs of votes. log_w_true: the same for votes for the true label; -inf for players without one.
        prior: (n,): p, the prior of the true label, above 0. share: ε, the prior's share of all votes W.
        method, tolerance: as for `of_mean`; the tolerance is absolute.

    >>> log_w, log_w_true = torch.zeros(1, 2), torch.tensor([[0.0, -torch.inf]])
    >>> of_log(log_w, log_w_true, torch.tensor([0.5])).values.round(decimals=2)
    tensor([[ 2.3100, -2.3100]], dtype=torch.float64)
    """
    log_w, log_w_true = _check_players(log_w, log_w_true, method)
    if not bool((prior > 0).all()):
        raise InputError(f"prior must be above 0 for a log-probability; got {float(prior.min()):g}")
    if method == "leave_one_out":
        return _exact(_leave_out_log(log_w, log_w_true, prior, share))
    top = log_w.amax(dim=1, keepdim=True)
    base = share * torch.logsumexp(log_w - top, dim=1).exp()

    def part(log_votes: Tensor, votes_of_prior: Tensor) -> GameValues:
        """Values for log(S + votes of the prior), both in units of the heaviest."""
        present = log_votes.isfinite()
        own_top = torch.where(present.any(dim=1, keepdim=True), log_votes.amax(dim=1, keepdim=True), 0.0)
        extra = (votes_of_prior.log()[:, None] - own_top).exp()

        def integrate(votes: Quadrature, extra: Tensor) -> tuple[Tensor, Tensor]:
            product = votes.products(*votes.spread(None))
            product.mul_((-extra[:, 0] * votes.grid.nodes[:, None]).exp()[:, :, None])
            table, change = votes.integrals(product)
            return votes.read(table)[0], votes.near(change)

        whole = torch.log1p((log_votes - own_top).exp().sum(dim=1) / extra[:, 0])
        return solve(log_votes, extra, integrate, whole, method, tolerance / 2, fading=extra[:, 0])

    for_all, for_truth = part(log_w - top, base), part(log_w_true - top, base * prior)
    return GameValues(for_truth.values - for_all.values, for_truth.errors + for_all.errors)


def _squared(b: Tensor, h_one: Tensor, h_own: Tensor, z_two: Tensor, z_one: Tensor, z_none: Tensor) -> Tensor:
    """Values for -mean², from their integrals, without the term of the first player."""
    return z_two - 2 * b * (z_one - h_own) - b * b * (2 * h_one - z_none)


def _mean_of(log_w: Tensor, a: Tensor) -> Tensor:
    """(n,): Σ a w / Σ w; 0 without votes."""
    return (_shares(log_w) * a).sum(dim=1)


def _exact(values: Tensor) -> GameValues:
    return GameValues(values, torch.zeros_like(values[:, 0]))


def _check_players(log_w: Tensor, values: Tensor, method: str) -> tuple[Tensor, Tensor]:
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


def of_labels(
    log_w: Tensor,
    labels: Tensor,
    truths: Tensor,
    prior: Tensor,
    *,
    utility: str = "probability",
    method: str = "shapley",
    tolerance: float = 1e-4,
) -> GameValues:
    """The values of m voters for the true labels of n queries, (n, m).

    Args:
        log_w: (n, m) logs of the votes. labels: (m,) the voters'. truths: (n,) the true labels; -1 for a label that no
            voter has. Then all values are 0.
        prior: (K,): the probability of each label without votes.
        utility: "probability"; "log_probability", with 1 % of all votes given to the prior (`of_log`); or "accuracy",
            1 if the true label has most votes, else 0. Leave-one-out values of it are exact. The other methods give no
            Shapley or Banzhaf value, since a step is not an average of votes, but follow a rule: the worth for the
            probability, plus the remainder gained by rounding to a label, 1 - P of the true label or 0 - P, which goes
            to those who voted for the winner, in proportion to their votes. With "shapley" the values then sum to
            accuracy - prior.
        method, tolerance: as for `of_mean`.

    >>> log_w, labels = torch.zeros(1, 3), torch.tensor([0, 0, 1])
    >>> of_labels(log_w, labels, torch.tensor([0]), torch.tensor([0.5, 0.5])).values.round(decimals=4)
    tensor([[ 0.3056,  0.3056, -0.4444]], dtype=torch.float64)
    """
    if utility not in UTILITIES:
        raise InputError(f"utility must be one of {', '.join(UTILITIES)}; got {utility!r}")
    log_w, prior = log_w.double(), prior.double()
    right, before = labels == truths[:, None], _prior_of(prior, truths)
    if utility == "log_probability":
        known = before > 0
        values, errors = of_log(
            log_w,
            torch.where(right, log_w, -torch.inf),
            torch.where(known, before, 1.0),
            method=method,
            tolerance=tolerance,
        )
        return GameValues(values * known[:, None], errors * known)
    if utility == "accuracy" and method == "leave_one_out":
        return _exact(_leave_out_accuracy(log_w, labels, truths, prior))
    worth = of_mean(log_w, right.double(), before, method=method, tolerance=tolerance)
    if utility == "probability":
        return worth
    return worth._replace(values=worth.values + _rounding(log_w, labels, truths, len(prior)))


def _rounding(log_w: Tensor, labels: Tensor, truths: Tensor, n_classes: int) -> Tensor:
    """(n, m): the gain or loss of taking the label with most votes, shared by its voters."""
    shares = _shares(_log_class_sums(log_w, labels, n_classes))
    winner = shares.argmax(dim=1)
    p = torch.where(truths >= 0, shares.gather(1, truths.clamp_min(0)[:, None])[:, 0], 0.0)
    won = (winner == truths).double() - p
    own = torch.where(labels == winner[:, None], log_w, -torch.inf)
    return won[:, None] * _shares(own)


def together(log_w: Tensor, gains: Tensor, groups: Tensor, n_groups: int) -> tuple[Tensor, Tensor]:
    """(log_w, gains), (n, G) each: groups of voters as players, with all their votes and the mean of their gains.

    groups: (m,) whole numbers 0 … G-1. Their values are exact: a group is added or removed as a whole.

    >>> log_w, gains = together(torch.zeros(1, 3), torch.tensor([1.0, 0.0, 1.0]), torch.tensor([0, 0, 1]), 2)
    >>> log_w.exp(), gains
    (tensor([[2., 1.]], dtype=torch.float64), tensor([[0.5000, 1.0000]], dtype=torch.float64))
    """
    log_w, gains = log_w.double(), gains.double().expand(log_w.shape)
    sums = _log_class_sums(log_w, groups, n_groups)
    codes = groups.expand(log_w.shape)
    within = (log_w - sums.gather(1, codes)).exp().nan_to_num_(0.0)
    return sums, torch.zeros_like(sums).scatter_add_(1, codes, within * gains)


# Leave-one-out values in closed form: the worth of the vote with all players, minus the worth without one of them.
# Shares of the vote are p_i = w_i / Σ w. If one player has most of it, the shares of the others are summed without it:
# 1 - p_i would have no digits left. A player who is alone is compared with the empty set.


def _leave_out_mean(log_w: Tensor, gains: Tensor, empty: Tensor) -> Tensor:
    """(n, m): for Σ a w / Σ w. Without i it falls by p_i (a_i - mean) / (1 - p_i) = p_i (a_i - mean without i)."""
    p = _shares(log_w)
    average = (p * gains).sum(dim=1, keepdim=True)
    moves = p * (gains - average) / (1 - p).clamp_min(0.25)
    top, rest = _without_heaviest(log_w)
    others = (rest * gains).sum(dim=1, keepdim=True)
    moves.scatter_(1, top, p.gather(1, top) * (gains.gather(1, top) - others))
    return torch.where(_alone(log_w), gains - empty[:, None], moves)


def _leave_out_squared_error(log_w: Tensor, differences: Tensor, empty: Tensor) -> Tensor:
    """(n, m): for -(Σ b w / Σ w)²."""
    average = (_shares(log_w) * differences).sum(dim=1, keepdim=True)
    moves = _leave_out_mean(log_w, differences, empty)
    return -moves * (2 * average - moves)


def _leave_out_log(log_w: Tensor, log_w_true: Tensor, prior: Tensor, share: float) -> Tensor:
    """(n, m): for log((S_y + ε p W) / (S + ε W)), with W unchanged."""
    total = torch.logsumexp(log_w, dim=1, keepdim=True)
    p, p_true = ((each - total).exp().nan_to_num(0.0) for each in (log_w, log_w_true))
    of_prior = share * prior[:, None]
    return torch.log1p(-p / (1 + share)) - torch.log1p(-p_true / (p_true.sum(dim=1, keepdim=True) + of_prior))


def _leave_out_accuracy(log_w: Tensor, labels: Tensor, truths: Tensor, prior: Tensor) -> Tensor:
    """(n, m): for accuracy: 1 if the label with most votes is the true one, else 0; the first label wins a tie.

    Only removing a voter for the winner can change it: to the second label, if the winner then has fewer votes.
    """
    n_classes = len(prior)
    sums = _log_class_sums(log_w, labels, n_classes)
    best, winner = sums.max(dim=1, keepdim=True)
    second, runner_up = sums.scatter(1, winner, -torch.inf).max(dim=1, keepdim=True)
    for_winner = (labels == winner) & log_w.isfinite()
    own = torch.where(for_winner, log_w, -torch.inf)
    left = best + torch.log1p(-(own - best).exp().clamp_max(1.0))
    top = own.argmax(dim=1, keepdim=True)
    left.scatter_(1, top, torch.logsumexp(own.scatter(1, top, -torch.inf), dim=1, keepdim=True))
    lost = for_winner & ((left < second) | ((left == second) & (runner_up < winner)))
    truths = truths[:, None]
    change = (winner == truths).double() - (runner_up == truths).double()
    worth_alone = (winner == truths).double() - _prior_of(prior, truths[:, 0])[:, None]
    return torch.where(_alone(log_w), worth_alone, lost * change)


def _log_class_sums(log_w: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """(n, K): log Σ w of each class."""
    top = log_w.amax(dim=1, keepdim=True).nan_to_num(neginf=0.0)
    largest = log_w.new_full((len(log_w), n_classes), -torch.inf)
    codes = labels.expand(log_w.shape)
    largest.scatter_reduce_(1, codes, log_w - top, "amax")
    level = largest.nan_to_num(neginf=0.0)
    sums = torch.zeros_like(largest).scatter_add_(1, codes, (log_w - top - level.gather(1, codes)).exp())
    return sums.log() + level + top


def _shares(log_w: Tensor) -> Tensor:
    """(n, m): p; 0 without votes."""
    return torch.softmax(log_w, dim=1).nan_to_num_(0.0)


def _alone(log_w: Tensor) -> Tensor:
    """(n, m): whether a player is the only one."""
    present = log_w.isfinite()
    return present & (present.sum(dim=1, keepdim=True) == 1)


def _without_heaviest(log_w: Tensor) -> tuple[Tensor, Tensor]:
    """The heaviest player, (n, 1), and the shares of the others without it, (n, m)."""
    top = log_w.argmax(dim=1, keepdim=True)
    return top, _shares(log_w.scatter(1, top, -torch.inf))


def _prior_of(prior: Tensor, truths: Tensor) -> Tensor:
    """(n,): the prior (K,) of the true labels; 0 for the label -1, which no voter has."""
    return torch.where(truths >= 0, prior[truths.clamp_min(0)], 0.0)
