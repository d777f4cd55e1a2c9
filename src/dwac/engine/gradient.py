"""Gradients of log class weights in the queries, in tiles of plain PyTorch operations, for every kernel.

With W_k = Σ_{i in k} w_i, a cotangent c_k of each log W_k, and s(d²) = ∂ log w / ∂ d²,

    ∂/∂q Σ_k c_k log W_k = 2 Σ_i p_i (g_i - q),   p_i = -c_k s(d_i²) w_i / W_k,   k the class of i.

For the gaussian s is -1. No share w_i / W_k exceeds 1, so nothing overflows. The whole (n, m) matrix is never held.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dwac.engine.index import Index
from dwac.kernels import Kernel, full_precision

_TILE = {"cpu": 2**19, "cuda": 2**22}  # size of an array; about three are held at once
_QUERIES = {"cpu": 256, "cuda": 4096}


def tiled_gradient(index: Index, queries: Tensor, log_class_weights: Tensor, cotangent: Tensor) -> Tensor:
    """See `Backend.gradient`."""
    answer = torch.empty_like(queries)
    step = _QUERIES.get(queries.device.type, 256)
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        answer[part] = _chunk(index, queries[part], log_class_weights[part], cotangent[part])
    return answer


def _chunk(index: Index, queries: Tensor, log_class_weights: Tensor, cotangent: Tensor) -> Tensor:
    n, d = queries.shape
    norms = queries.double().square().sum(dim=1, keepdim=True)
    gaussian = index.kernel.name == "gaussian"  # ‖q‖² cancels in every share, so it is left out
    level, weight = levels(log_class_weights + norms if gaussian else log_class_weights, cotangent, queries.dtype)
    ones = torch.cat([queries, torch.ones_like(queries[:, :1])], dim=1)
    smallest = math.log(torch.finfo(queries.dtype).tiny) + 1  # below this, exp is slow on a CPU; see `backends.exp_`
    pull, total = torch.zeros_like(queries), queries.new_zeros(n, 1)
    width = max(1, _TILE.get(queries.device.type, 2**19) // (max(ones.shape) * index.block_size))
    for first in range(0, len(index.block_labels), width):
        labels = index.block_labels[first : first + width]
        rows = index.fold(first * index.block_size, (first + width) * index.block_size, queries.dtype)
        with full_precision(queries.device):
            tile = (ones @ rows.mT).view(n, -1, index.block_size)  # ‖q‖² - ‖q - g‖²
        slope = None
        if not gaussian:
            tile, slope = _slopes(index.kernel, (norms[:, :, None] - tile).clamp_min_(0))
        pulls = tile.sub_(level[:, labels, None]).clamp_(smallest, 0).exp_().mul_(weight[:, labels, None])
        pulls = (pulls if slope is None else pulls.mul_(slope).neg_()).flatten(1)
        with full_precision(queries.device):
            pull.addmm_(pulls, rows[:, :d])  # the folded rows are 2g
        total.add_(pulls.sum(dim=1, keepdim=True))
    return pull.addcmul_(total, queries, value=-2)


def levels(log_sums: Tensor, cotangent: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Logs of the class sums (n, K) rounded to a dtype, and cotangents that compensate for the rounding.

    c · exp(s - log W) = c exp(rounded - log W) · exp(s - rounded): a log of any size costs no accuracy, until rounding
    exceeds 1. The clamp keeps 0 · ∞ from occurring there. Classes without references have nan, which no block uses.
    """
    rounded = log_sums.to(dtype)
    return rounded, (cotangent * (rounded - log_sums).clamp_max_(1).exp_()).to(dtype)


def _slopes(kernel: Kernel, squared: Tensor) -> tuple[Tensor, Tensor]:
    """log w and ∂ log w / ∂ d², both in the shape of `squared`."""
    with torch.enable_grad():
        log_w = kernel.log_weights(squared.requires_grad_())
    return log_w.detach(), torch.autograd.grad(log_w, squared, torch.ones_like(log_w))[0]
