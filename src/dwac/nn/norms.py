"""Batch normalisation over all ranks: mean and variance are those of the whole batch, as in one process.

torch's SyncBatchNorm does this on GPUs only, and not for ranks without rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from dwac.nn.ranks import Ranks, Share


class SharedNorms:
    """Inside this context, a network in training mode normalises by the statistics of the whole batch.

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
    """The forward pass of one batch normalisation layer."""

    def __init__(self, norm: _BatchNorm, shared: SharedNorms) -> None:
        self.norm, self.shared = norm, shared

    def __call__(self, x: Tensor) -> Tensor:
        norm, share = self.norm, self.shared.share
        if not norm.training or share is None or share.n < getattr(norm, "fewest", 0):
            return type(norm).forward(norm, x)
        norm._check_input_dim(x)
        found, mean, variance, n = _Normalise.apply(x, norm.weight, norm.bias, norm.eps, share)  # type: ignore[no-untyped-call]
        self._remember(mean, variance * n / (n - 1).clamp_min(1))
        return found  # type: ignore[no-any-return]

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


class _Normalise(torch.autograd.Function):
    """x̂ = (x - μ) / √(σ² + ε), times weight plus bias, where μ and σ² of each channel are those of all ranks' rows.

        ∂ loss / ∂ x = weight / √(σ² + ε) (g - Σ g / n - x̂ Σ g x̂ / n),    g = ∂ loss / ∂ (x̂ · weight + bias)

    Both sums are over all n numbers of a channel on all ranks. The gradients of weight and bias are this rank's parts.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, share: Share
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean, variance = torch.ops.aten.batch_norm_update_stats(wide, None, None, 0.0)
        count = mean.new_full((1,), 0 if share.empty else x.numel() // x.shape[1])  # a stand-in does not count
        means, variances, counts = share.ranks.gathered(torch.cat([mean, variance, count])).split(
            [len(mean), len(mean), 1], dim=1
        )
        n = counts.sum()
        mean = (counts * means).sum(dim=0) / n
        variance = (counts * (variances + (means - mean).square())).sum(dim=0) / n
        ctx.save_for_backward(x, weight, mean, variance, n)
        ctx.eps, ctx.share = eps, share
        found = functional.batch_norm(wide, mean, variance, weight, bias, training=False, eps=eps).to(x.dtype)
        ctx.mark_non_differentiable(mean, variance, n)
        return found, mean, variance, n

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance, n = ctx.saved_tensors
        wide = x.to(mean.dtype)
        last = x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
        grad = (
            grads[0].to(mean.dtype).contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
        )
        shape = (1, -1, *[1] * (x.ndim - 2))
        inverse = (variance + ctx.eps).rsqrt()
        # A CPU reads mean and variance, a GPU the mean and the inverse deviation that a forward pass would have kept.
        _, by_weight, by_bias = torch.ops.aten.native_batch_norm_backward(
            grad, wide, weight, mean, variance, mean, inverse, False, ctx.eps, [False, True, True]
        )
        sums, sums_x = ctx.share.ranks.total(torch.cat([by_bias, by_weight])).view(2, -1) / n
        if ctx.share.empty:  # the statistics do not depend on a stand-in
            sums, sums_x = torch.zeros_like(sums), torch.zeros_like(sums_x)
        scale = inverse if weight is None else inverse * weight
        slope = -scale * inverse * sums_x
        found = torch.addcmul((-scale * sums - slope * mean).view(shape), grad, scale.view(shape))
        found = found.addcmul_(wide, slope.view(shape)).to(x.dtype)
        return found, None if weight is None else by_weight, None if weight is None else by_bias, None, None
