"""The worth of voters for labels: for the probability of the true label, its log, or whether it has most votes."""

from __future__ import annotations

import torch
from torch import Tensor

from dwac.errors import InputError
from dwac.worth import closed
from dwac.worth.games import of_log, of_mean
from dwac.worth.solver import Values

UTILITIES = ("probability", "log_probability", "accuracy")


def of_labels(
    log_w: Tensor,
    labels: Tensor,
    truths: Tensor,
    prior: Tensor,
    *,
    utility: str = "probability",
    method: str = "shapley",
    tolerance: float = 1e-4,
) -> Values:
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
    right, before = labels == truths[:, None], closed.known(prior, truths)
    if utility == "log_probability":
        someone = before > 0
        found = of_log(
            log_w,
            torch.where(right, log_w, -torch.inf),
            torch.where(someone, before, 1.0),
            method=method,
            tolerance=tolerance,
        )
        return Values(found.values * someone[:, None], found.errors * someone)
    if utility == "accuracy" and method == "leave_one_out":
        values = closed.accuracy(log_w, labels, truths, prior)
        return Values(values, torch.zeros_like(values[:, 0]))
    found = of_mean(log_w, right.double(), before, method=method, tolerance=tolerance)
    if utility == "probability":
        return found
    return found._replace(values=found.values + _rounding(log_w, labels, truths, len(prior)))


def _rounding(log_w: Tensor, labels: Tensor, truths: Tensor, n_classes: int) -> Tensor:
    """(n, m): the gain or loss of taking the label with most votes, shared by its voters."""
    shares = closed.shares(closed.log_class_sums(log_w, labels, n_classes))
    winner = shares.argmax(dim=1)
    p = torch.where(truths >= 0, shares.gather(1, truths.clamp_min(0)[:, None])[:, 0], 0.0)
    won = (winner == truths).double() - p
    own = torch.where(labels == winner[:, None], log_w, -torch.inf)
    return won[:, None] * closed.shares(own)


def together(log_w: Tensor, gains: Tensor, groups: Tensor, n_groups: int) -> tuple[Tensor, Tensor]:
    """(log_w, gains), (n, G) each: groups of voters as players, with all their votes and the mean of their gains.

    groups: (m,) whole numbers 0 … G-1. Their values are exact: a group is added or removed as a whole.
    """
    log_w, gains = log_w.double(), gains.double().expand(log_w.shape)
    sums = closed.log_class_sums(log_w, groups, n_groups)
    codes = groups.expand(log_w.shape)
    within = (log_w - sums.gather(1, codes)).exp().nan_to_num_(0.0)
    return sums, torch.zeros_like(sums).scatter_add_(1, codes, within * gains)
