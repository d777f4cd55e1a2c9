"""Leave-one-out values in closed form: the worth of the vote with all players, minus the worth without one of them.

Shares of the vote are p_i = w_i / Σ w. If one player has most of it, the shares of the others are summed without it:
1 - p_i would have no digits left. A player who is alone is compared with the empty set.
"""

from __future__ import annotations

import torch
from torch import Tensor


def mean(log_w: Tensor, gains: Tensor, empty: Tensor) -> Tensor:
    """(n, m): for Σ a w / Σ w. Without i it falls by p_i (a_i - mean) / (1 - p_i) = p_i (a_i - mean without i)."""
    p = shares(log_w)
    average = (p * gains).sum(dim=1, keepdim=True)
    moves = p * (gains - average) / (1 - p).clamp_min(0.25)
    top, rest = without_heaviest(log_w)
    others = (rest * gains).sum(dim=1, keepdim=True)
    moves.scatter_(1, top, p.gather(1, top) * (gains.gather(1, top) - others))
    single = log_w.isfinite().sum(dim=1, keepdim=True) == 1
    return torch.where(single & log_w.isfinite(), gains - empty[:, None], moves)


def squared_error(log_w: Tensor, differences: Tensor, empty: Tensor) -> Tensor:
    """(n, m): for -(Σ b w / Σ w)²."""
    average = (shares(log_w) * differences).sum(dim=1, keepdim=True)
    moves = mean(log_w, differences, empty)
    return -moves * (2 * average - moves)


def log(log_w: Tensor, log_w_true: Tensor, prior: Tensor, share: float) -> Tensor:
    """(n, m): for log((S_y + ε p W) / (S + ε W)), with W unchanged."""
    total = torch.logsumexp(log_w, dim=1, keepdim=True)
    p, p_true = ((each - total).exp().nan_to_num(0.0) for each in (log_w, log_w_true))
    of_prior = share * prior[:, None]
    return torch.log1p(-p / (1 + share)) - torch.log1p(-p_true / (p_true.sum(dim=1, keepdim=True) + of_prior))


def accuracy(log_w: Tensor, labels: Tensor, truths: Tensor, prior: Tensor) -> Tensor:
    """(n, m): for accuracy: 1 if the label with most votes is the true one, else 0; the first label wins a tie.

    Only removing a voter for the winner can change it: to the second label, if the winner then has fewer votes.
    """
    n_classes = len(prior)
    sums = log_class_sums(log_w, labels, n_classes)
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
    single = (log_w.isfinite().sum(dim=1, keepdim=True) == 1) & log_w.isfinite()
    alone = (winner == truths).double() - known(prior, truths[:, 0])[:, None]
    return torch.where(single, alone, lost * change)


def log_class_sums(log_w: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """(n, K): log Σ w of each class."""
    top = log_w.amax(dim=1, keepdim=True).nan_to_num(neginf=0.0)
    largest = log_w.new_full((len(log_w), n_classes), -torch.inf)
    codes = labels.expand(log_w.shape)
    largest.scatter_reduce_(1, codes, log_w - top, "amax")
    level = largest.nan_to_num(neginf=0.0)
    sums = torch.zeros_like(largest).scatter_add_(1, codes, (log_w - top - level.gather(1, codes)).exp())
    return sums.log() + level + top


def shares(log_w: Tensor) -> Tensor:
    """(n, m): p; 0 without votes."""
    return torch.softmax(log_w, dim=1).nan_to_num_(0.0)


def without_heaviest(log_w: Tensor) -> tuple[Tensor, Tensor]:
    """The heaviest player, (n, 1), and the shares of the others without it, (n, m)."""
    top = log_w.argmax(dim=1, keepdim=True)
    return top, shares(log_w.scatter(1, top, -torch.inf))


def known(prior: Tensor, truths: Tensor) -> Tensor:
    """(n,): the prior (K,) of the true labels; 0 for the label -1, which no voter has."""
    return torch.where(truths >= 0, prior[truths.clamp_min(0)], 0.0)
