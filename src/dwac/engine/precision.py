"""Decides which queries float32 cannot answer, for `dwac.engine.exact`, in a few operations per query and class.

A backend may offer the same decisions in fewer kernels as its `policy`: on a GPU, launching forty operations took
longer than the sums themselves.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from dwac.engine.backends import Backend
from dwac.engine.index import Index

TOLERANCE = 1e-4
GRADIENT_TOLERANCE = 1e-3
FAR = 1e3  # norm from which rounding exceeds 1: no float32 result is kept, not even a gradient of 0


class Scaled(NamedTuple):
    """Cotangents c (n, K) for a gradient in float32."""

    cotangent: Tensor  # (n, K): c divided by its largest; 0 for classes without references
    largest: Tensor  # (n, 1): the largest |c|
    strained: Tensor | None  # (n,): queries whose gradient float32 cannot compute; None if not requested


class Policy:
    """The decisions in plain PyTorch operations, for any device and kernel."""

    def unsure(
        self, index: Index, log_class_weights: Tensor, norms: Tensor, nearest: Tensor | None, unit: float, single: bool
    ) -> Tensor:
        """Which queries (n,) have votes that a sweep's rounding leaves in doubt.

        norms: (n,) ‖q‖². nearest: (n,) squared distance of the nearest reference; by default the votes bound it. unit:
        r u. single: whether the sweep was in float32.
        """
        if nearest is None:
            nearest = nearest_bound(index, log_class_weights)
        bound = nearest.sqrt().add_(norms.sqrt(), alpha=2).square_().add_(16).mul_(unit)
        if not index.kernel.smooth:  # √ magnifies the error of a small squared distance
            bound = bound / (nearest + bound).sqrt()
        sure = bound <= TOLERANCE  # False for NaN, where float32 overflows
        if single:
            close = log_class_weights.amax(dim=1).sub_(bound, alpha=2)  # the lead must exceed rounding
            sure &= (log_class_weights >= close[:, None]).sum(dim=1) == 1
        else:  # differences are more precise only if much of the norms cancels
            sure |= 16 * nearest >= norms
        return ~sure

    def scale(
        self, index: Index, centred: Tensor, log_class_weights: Tensor, cotangent: Tensor, unit: float | None
    ) -> Scaled:
        """Cotangents scaled so that no loss is too small for float32; with a unit, also which queries need float64."""
        if index.has_empty:
            cotangent = cotangent.masked_fill(index.empty, 0.0)  # a class without votes has no gradient
        largest: Tensor = torch.linalg.vector_norm(cotangent, math.inf, dim=1, keepdim=True)
        scaled = cotangent / largest.clamp_min(torch.finfo(largest.dtype).tiny)
        strained = None if unit is None else _strained(index, centred, log_class_weights, scaled, unit)
        return Scaled(scaled, largest, strained)


def rounding_unit(d: int, dtype: torch.dtype, backend: Backend) -> float:
    """r · u. The error of a product of length d was measured on aligned vectors: up to √d/2 units (d = 1 … 2,048)."""
    return max(backend.rounding, 2 + math.sqrt(d) / 2) * torch.finfo(dtype).eps / 2


def lost_queries(norms: Tensor, unit: float) -> Tensor:
    """Which queries are so long, ‖q‖² = norms, that float32 is not enough, wherever the references are."""
    return norms.mul(4).add_(16).mul_(unit) > TOLERANCE


def nearest_bound(index: Index, log_class_weights: Tensor) -> Tensor:
    """An upper bound on the squared distance of the nearest reference, (n,), from the votes (n, K)."""
    # The nearest member of a class has at least the average weight of the class.
    mean = log_class_weights - index.log_counts
    if index.has_empty:
        mean.nan_to_num_(nan=-torch.inf)
    return _squared(mean.amax(dim=1), index.kernel.name)


def _squared(log_w: Tensor, kernel: str) -> Tensor:
    """The squared distance at which a kernel has a given log-weight ≤ 0."""
    return {"gaussian": torch.neg, "laplace": torch.square}.get(kernel, lambda x: torch.expm1(-x))(log_w)


def _strained(index: Index, centred: Tensor, log_class_weights: Tensor, cotangent: Tensor, unit: float) -> Tensor:
    """Which queries (n,) have a gradient that float32 cannot compute within the tolerance."""
    sizes = cotangent.abs()
    if index.has_empty:
        log_class_weights = log_class_weights.masked_fill(index.empty, 0.0)
    # W ≤ m exp(-r²), r the distance to the nearest reference of the class; the class pulls in proportion to r.
    reach = (math.log(len(index.labels) + 1) - log_class_weights).sqrt_()
    norms: Tensor = torch.linalg.vector_norm(centred, dim=1, keepdim=True, dtype=torch.float64)
    errors = (2 * norms + reach).square_().add_(16).mul_(unit).clamp_max_(100).expm1_()
    pulls = sizes.mul_(reach)
    kept = (pulls * errors).sum(dim=1) <= GRADIENT_TOLERANCE * pulls.sum(dim=1)
    return ~(kept & (norms[:, 0] <= FAR))


PLAIN = Policy()
