"""Bounds on the votes of a cell, from the first moments of its squared distances T to a query.

Each kernel's weight φ(T) is completely monotone: its derivatives alternate in sign. Among all distributions on
[near, far] with the same mean, or the same mean and variance, the mean of such a φ is smallest and largest for two
distributions of one or two points each (Chebyshev, Markov, Krein: the nodes of the Gauss, Lobatto and Radau rules).
So it lies between two sums:

    from the mean              lower: φ at the mean (Jensen)           upper: near and far (the chord)
    from mean and variance     lower: far, and mean - variance/b       upper: near, and mean - variance/a

with a < 0 < b the offsets of near and far from the mean. No tighter bounds follow from these moments.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dwac.engine.bounded.tree import Summary
from dwac.kernels import Kernel

LARGEST_LOG = 600.0  # of a lower bound; upper bounds may be larger, so that clipped values still have a gap
_UNIT = torch.finfo(torch.float64).eps / 2
_LEAST = 1e-10  # smallest distance of near and far from the mean: avoids division by 0 if all references coincide


def cell_bounds(
    kernel: Kernel, summary: Summary, features: list[Tensor], norms: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor]:
    """Lower and upper bounds (c, Q) on the mean of φ over c cells, times exp(shift), for Q queries.

    `features` are [q, 1] (D, Q) and, if cells have the variance, its products in `pairs`; `norms` (Q,) are ‖q‖².
    """
    slack, rounding = _rounding(summary, features, norms)
    mean = (summary.folded @ features[0]).neg_().add_(norms).clamp_min_(2 * _LEAST)
    distance = (mean - summary.spreads[:, None]).clamp_min_(0).sqrt_()
    reach = summary.radii[:, None] + slack.sqrt()
    a = (distance - reach).clamp_min_(0).square_().sub_(mean).clamp_max_(-_LEAST)
    b = distance.add_(reach).square_().sub_(mean).clamp_min_(_LEAST)
    concentrated = shift - mean

    def weigh(node: Tensor) -> Tensor:
        gaussian = kernel.name == "gaussian"
        log_w = concentrated - node if gaussian else kernel.log_weights(mean + node).add_(shift)
        # Not below the smallest float: underflow is slow, and negligible in the whole sum.
        return log_w.clamp_(-700, LARGEST_LOG + 100).exp_()

    nearest, farthest = weigh(a), weigh(b)
    low, high = weigh(slack), torch.lerp(farthest, nearest, (b - a).reciprocal_().mul_(b + slack).clamp_max_(1))
    if len(features) == 2:
        variance = (summary.covariances @ features[1]).clamp_min_(0).minimum((a * b).neg_())
        error = rounding * nearest if kernel.smooth else rounding * nearest * _steepness(mean + a)

        def two_points(edge: Tensor, at_edge: Tensor) -> Tensor:
            share = variance / (edge * edge).add_(variance)
            return torch.lerp(weigh((variance / edge).neg_()), at_edge, share)

        low = torch.maximum(low, two_points(b, farthest).sub_(error), out=low)
        high = torch.minimum(high, two_points(a, nearest).add_(error), out=high)
    return low.clamp_max_(math.exp(LARGEST_LOG)), high


def _rounding(summary: Summary, features: list[Tensor], norms: Tensor) -> tuple[Tensor, Tensor]:
    """Rounding errors of float64: of the mean of T (absolute), of the bounds from two moments (relative to φ(near)).

    A bound from two moments is the mean of a parabola that meets φ at the nodes. An error in a moment changes it by
    that error times a derivative of the parabola, at most 2 φ(near) times the range of T. Both are (c, 1), for the
    longest query.
    """
    length = (1 + norms.amax()).sqrt()
    terms = sum(len(f) for f in features) + 256  # products in one sum, and those behind the moments
    centres = summary.centres.square().sum(dim=1).sqrt()
    slack = 2 * (len(features[0]) + 8) * _UNIT * ((length + centres).square() + summary.spreads)
    reach = length * summary.radii * (2 + 2 * centres + summary.radii)  # bounds the distance of [q, 1] · f to its mean
    rounding = 8 * (1 + 2 * reach) * (slack + terms * _UNIT * reach) + 16 * _LEAST
    slack += 2 * _LEAST
    return slack[:, None], rounding[:, None]


def _steepness(near: Tensor) -> Tensor:
    """For exp(-√T): a factor by which its first two derivatives at `near` exceed it at most."""
    return near.clamp_min(1e-60).pow(-1.5).add_(1)
