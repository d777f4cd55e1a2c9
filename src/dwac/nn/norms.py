"""Batch normalisation over all ranks: mean and variance are those of the whole batch, as in one process.

torch's SyncBatchNorm does this on GPUs alone, and not for ranks without rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dwac.nn.ranks import Ranks, Share, each_rank


class SharedNorms:
    """Inside this context, the batch normalisation of a network in training mode is that of the whole batch.

    `share` must be set before each batch.
    """

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        self.ranks = ranks
        self.share: Share | None = None
        self.norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]

    def __enter__(self) -> SharedNorms:
        for norm in self.norms:
            norm.forward = _Shared(norm, self)  # type: ignore[method-assign,assignment]  # of this one
        return self

    def __exit__(self, *_: object) -> None:
        for norm in self.norms:
            del norm.forward


class _Shared:
    """The forward pass of one such layer."""

    def __init__(self, norm: _BatchNorm, shared: SharedNorms) -> None:
        self.norm, self.shared = norm, shared

    def __call__(self, x: Tensor) -> Tensor:
        norm, share = self.norm, self.shared.share
        if not norm.training or share is None or share.n < getattr(norm, "fewest", 0):
            return type(norm).forward(norm, x)
        norm._check_input_dim(x)
        mean, variance, n = self._statistics(x.to(torch.promote_types(x.dtype, torch.float32)), share)
        self._remember(mean.detach(), variance.detach() * n / (n - 1).clamp_min(1))
        shape = (1, -1, *[1] * (x.ndim - 2))
        scale = (variance + norm.eps).rsqrt()
        scale = scale * norm.weight if norm.affine else scale
        shift = norm.bias - mean * scale if norm.affine else -mean * scale
        return torch.addcmul(shift.view(shape), x, scale.view(shape)).to(x.dtype)

    def _statistics(self, x: Tensor, share: Share) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and variance of each channel, and of how many numbers."""
        dims = [0, *range(2, x.ndim)]
        variance, mean = torch.var_mean(x, dim=dims, correction=0)
        n = x.new_full((1,), x.numel() // x.shape[1])
        squares = variance * n
        n = torch.zeros_like(n) if share.empty else n
        every = each_rank(torch.cat([mean, squares, n]), self.shared.ranks)
        means, all_squares, counts = every.split([len(mean), len(mean), 1], dim=1)
        total = counts.sum()
        whole = (counts * means).sum(dim=0) / total
        # Of a stand-in neither counts.
        within = (all_squares * (counts > 0)).sum(dim=0)
        return whole, (within + (counts * (means - whole).square()).sum(dim=0)) / total, total.detach()

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        norm = self.norm
        if not norm.track_running_stats or norm.running_mean is None or norm.running_var is None:
            return
        seen: Any = norm.num_batches_tracked
        seen.add_(1)
        momentum = 1 / float(seen) if norm.momentum is None else norm.momentum
        norm.running_mean.lerp_(mean.to(norm.running_mean), momentum)
        norm.running_var.lerp_(variance.to(norm.running_var), momentum)
