"""Backends: each sweeps all references once and reduces them block by block.

A backend computes; it does not judge. Whether float32 was good enough for a query, and which candidates are
truly the nearest, is decided once for all backends in `dwac.engine.exact`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from dwac.engine.gradient import tiled_gradient
from dwac.engine.index import Index
from dwac.kernels import full_precision

# Elements of one tile: large enough to keep the product efficient, small enough to stay in a core's cache.
_TILE = {"cpu": 2**20, "cuda": 2**26}
_QUERIES = {"cpu": 256, "cuda": 4096}
_BLOCK_RESULTS = 2**22


class Sweep(NamedTuple):
    """What one pass over the references gives, for n queries and K classes."""

    log_class_weights: Tensor  # (n, K) float64; -inf for classes without references
    nearest: Tensor  # (n,) float64: squared distance of the nearest reference, up to rounding
    blocks: Tensor  # (n, b) int64: the b blocks that hold the nearest references, nearest first
    next_block: Tensor  # (n,) float64: squared distance of the nearest reference outside them; inf if none


class Backend(Protocol):
    """What the engine asks of a backend. Every backend passes the one shared test suite."""

    name: str
    rounding: float  # how many times the error of an IEEE product its float32 products may have

    def sweep(self, index: Index, queries: Tensor, n_blocks: int) -> Sweep:
        """One pass over all references; `queries` are centred and in the precision to compute in."""

    def gradient(self, index: Index, queries: Tensor, log_class_weights: Tensor, cotangent: Tensor) -> Tensor:
        """∂/∂queries of Σ cotangent · log_class_weights, (n, d) in the precision of the centred `queries`.

        log_class_weights: (n, K) float64, as a sweep gave them. cotangent: (n, K) float64, within ±1; 0 for classes
        without references.
        """


class TorchBackend:
    """Tiles of plain PyTorch operations, on any device.

    Each tile is one product of queries and folded references. The maximum over each block is taken before
    exponentiating, so nothing underflows, and the same maxima say which blocks the neighbours lie in.
    """

    name = "torch"
    rounding = 1.0
    gradient = staticmethod(tiled_gradient)

    def sweep(self, index: Index, queries: Tensor, n_blocks: int) -> Sweep:
        """See `Backend.sweep`."""
        step = min(_QUERIES.get(queries.device.type, 256), _BLOCK_RESULTS // len(index.block_labels))
        return in_parts(self._chunk, index, queries, n_blocks, step)

    def _chunk(self, index: Index, queries: Tensor, n_blocks: int) -> Sweep:
        norms = queries.double().square().sum(dim=1)
        # [q, 1]: the folded references carry their own norms.
        ones = torch.cat([queries, torch.ones_like(queries[:, :1])], dim=1)
        gaussian = index.kernel.name == "gaussian"
        # For few queries the references of a tile, folded anew in float64, would outgrow its products.
        tile_rows = _TILE.get(queries.device.type, 2**20) // max(ones.shape)
        width = max(1, tile_rows // index.block_size)
        sums = queries.new_empty(len(queries), len(index.block_labels))
        best = torch.empty_like(sums)
        for first in range(0, len(index.block_labels), width):
            here = slice(first, min(first + width, len(index.block_labels)))
            rows = index.fold(here.start * index.block_size, here.stop * index.block_size, queries.dtype)
            with full_precision(queries.device):
                product = ones @ rows.mT  # ‖q‖² - ‖q - g‖²
            tile = product.view(len(queries), -1, index.block_size)
            best[:, here] = tile.amax(dim=2)
            if gaussian:  # ‖q‖² cancels in every difference, so it is left out until the end
                sums[:, here] = exp_(tile.sub_(best[:, here, None])).sum(dim=2).log_().add_(best[:, here])
            else:
                sums[:, here] = _block_sums(index, tile, best[:, here], norms)
        log_sums = sums.double()
        if gaussian:
            log_sums.sub_(norms[:, None])
        return Sweep(merge(log_sums, index.block_labels, index), *nearest_blocks(best, norms, n_blocks))


def in_parts(
    chunk: Callable[[Index, Tensor, int], Sweep], index: Index, queries: Tensor, n_blocks: int, step: int
) -> Sweep:
    """A sweep made of sweeps of at most `step` queries each."""
    n, n_blocks = len(queries), min(n_blocks, len(index.block_labels))
    floats = index.centre.new_empty
    result = Sweep(floats(n, index.n_classes), floats(n), index.block_labels.new_empty(n, n_blocks), floats(n))
    # Filled in place: small results kept between large tiles would scatter the heap and keep it from shrinking.
    for start in range(0, n, max(1, step)):
        part = slice(start, start + max(1, step))
        for field, values in zip(result, chunk(index, queries[part], n_blocks), strict=True):
            field[part] = values
    return result


def nearest_blocks(best: Tensor, norms: Tensor, n_blocks: int) -> tuple[Tensor, Tensor, Tensor]:
    """`Sweep`'s nearest, blocks and next_block, from the largest ‖q‖² - ‖q - g‖² of each block, (n, all blocks)."""
    top = best.topk(min(n_blocks + 1, best.shape[1]), dim=1)
    squared = (norms[:, None] - top.values.double()).clamp_min_(0)
    outside = squared[:, n_blocks] if squared.shape[1] > n_blocks else torch.full_like(norms, torch.inf)
    return squared[:, 0], top.indices[:, :n_blocks], outside


def _block_sums(index: Index, tile: Tensor, best: Tensor, norms: Tensor) -> Tensor:
    """log Σ w over each block, for a kernel that needs the distance itself."""
    squared_norms = norms.to(tile.dtype)[:, None]
    largest = index.kernel.log_weights((squared_norms - best).clamp_min(0))
    log_w = index.kernel.log_weights((squared_norms[:, :, None] - tile).clamp_min_(0))
    return exp_(log_w - largest[:, :, None]).sum(dim=2).log_().add_(largest)


def merge(log_sums: Tensor, labels: Tensor, index: Index) -> Tensor:
    """Log-sum-exp over the columns (n, c) of each class, whose labels (c,) are given: (n, K) float64."""
    where = labels.expand(len(log_sums), -1)
    empty = torch.full((len(log_sums), index.n_classes), -torch.inf, dtype=torch.float64, device=log_sums.device)
    largest = empty.scatter_reduce(1, where, log_sums, "amax")
    scaled = exp_(log_sums - largest.gather(1, where))
    log_class_weights = torch.zeros_like(empty).scatter_add_(1, where, scaled).log_().add_(largest)
    # No weight exceeds 1 (d² ≥ 0), so no class exceeds its count; rounding may not either.
    return torch.minimum(log_class_weights, index.counts.double().log())


def exp_(log_share: Tensor) -> Tensor:
    """exp in place, of logs ≤ 0 whose largest is about 0. A share too small for a float becomes the smallest one.

    Beside a 1 the two are the same, but underflow makes exp on a CPU some 20 times slower (measured with MKL).
    """
    return log_share.clamp_min_(math.log(torch.finfo(log_share.dtype).tiny) + 1).exp_()
