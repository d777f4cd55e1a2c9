"""Backends: each sweeps all references once and reduces them block by block.

A backend computes; it does not judge. Whether float32 was good enough for a query, and which candidates are
truly the nearest, is decided once for all backends in `dwac.engine.exact`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from dwac.engine.gradient import tiled_gradient
from dwac.engine.index import Index
from dwac.kernels import Kernel, full_precision

# Elements of one tile, for each thread of a CPU: large enough to keep the product efficient, small enough to stay in
# a core's cache. No tile is larger than the largest.
_TILE = {"cpu": 2**18, "cuda": 2**26}
_LARGEST_TILE = {"cpu": 2**22, "cuda": 2**26}
_QUERIES = {"cpu": 256, "cuda": 4096}
_BLOCK_RESULTS = 2**22
_MANY_BLOCKS = 32  # so many blocks a class are faster merged class by class
_MOST_BLOCKS = 16  # of so many, one product with all is faster than copies of the one needed
_GATHERED = {"cpu": 2**18, "cuda": 2**24}  # numbers of references copied at once for products with their own queries


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

    def products(self, index: Index, queries: Tensor, blocks: Tensor) -> Tensor:
        """‖q‖² - ‖q - g‖² of each query and every member of its own blocks (n, b): (n, b · block_size)."""

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
        width = max(1, _tile(queries.device) // (max(ones.shape) * index.block_size))
        best = queries.new_empty(len(queries), len(index.block_labels))
        units = torch.empty_like(best)  # Σ w of each block, in units of its largest
        largest = best if gaussian else torch.empty_like(best)  # the log of that
        memory = queries.new_empty(len(queries) * width * index.block_size)
        for first in range(0, len(index.block_labels), width):
            here = slice(first, min(first + width, len(index.block_labels)))
            rows = index.fold(here.start * index.block_size, here.stop * index.block_size, queries.dtype)
            product = memory[: len(queries) * len(rows)].view(len(queries), len(rows))
            with full_precision(queries.device):
                torch.mm(ones, rows.mT, out=product)  # ‖q‖² - ‖q - g‖²
            tile = product.view(len(queries), -1, index.block_size)
            torch.amax(tile, dim=2, out=best[:, here])
            if not gaussian:
                tile, largest[:, here] = _log_weights(index.kernel, tile, best[:, here], norms)
            torch.sum(exp_(tile.sub_(largest[:, here, None])), dim=2, out=units[:, here])
        # ‖q‖² cancels in every difference of a gaussian's logs, so it was left out until here.
        shift = norms if gaussian else torch.zeros_like(norms)
        return Sweep(_merge_blocks(largest, units, shift, index), *nearest_blocks(best, norms, n_blocks))

    def products(self, index: Index, queries: Tensor, blocks: Tensor) -> Tensor:
        """See `Backend.products`."""
        ones = torch.cat([queries, torch.ones_like(queries[:, :1])], dim=1)
        if index.folded.dtype == queries.dtype and len(index.block_labels) <= _MOST_BLOCKS * blocks.shape[1]:
            return _chosen(index, ones, blocks)
        answer = queries.new_empty(len(queries), blocks.shape[1] * index.block_size)
        step = max(1, _GATHERED.get(queries.device.type, 2**18) // (answer.shape[1] * ones.shape[1]))
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            chosen = blocks[part].flatten()
            if index.folded.dtype == queries.dtype:  # whole blocks are copied faster than their rows
                folded = index.folded.view(len(index.block_labels), -1).index_select(0, chosen)
            else:  # exact float64 copies of the few places needed
                rows = index.rows.view(-1, index.block_size)[chosen].flatten()
                folded = replace(index, rows=rows).fold(0, len(rows), queries.dtype)
            with full_precision(queries.device):
                folded = folded.view(-1, answer.shape[1], ones.shape[1])
                answer[part] = torch.bmm(folded, ones[part, :, None])[:, :, 0]
        return answer


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


def _chosen(index: Index, ones: Tensor, blocks: Tensor) -> Tensor:
    """The products with all references, and of them those with the blocks (n, b) asked for: (n, b · block_size)."""
    answer = ones.new_empty(*blocks.shape, index.block_size)
    step, n_blocks = max(1, _LARGEST_TILE.get(ones.device.type, 2**22) // len(index.rows)), len(index.block_labels)
    for start in range(0, len(ones), step):
        part = slice(start, start + step)
        with full_precision(ones.device):
            products = (ones[part] @ index.folded.mT).view(-1, index.block_size)
        own = torch.arange(0, len(products), n_blocks, device=blocks.device)[:, None]
        answer[part] = products.index_select(0, (own + blocks[part]).flatten()).view_as(answer[part])
    return answer.flatten(1)


def _tile(device: torch.device) -> int:
    """How many products a tile holds."""
    threads = torch.get_num_threads() if device.type == "cpu" else 1
    return min(_LARGEST_TILE.get(device.type, 2**22), threads * _TILE.get(device.type, 2**18))


def _log_weights(kernel: Kernel, tile: Tensor, best: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
    """log w of a tile's products and of the largest of each block, for a kernel that needs the distance itself."""
    squared_norms = norms.to(tile.dtype)[:, None]
    log_w = kernel.log_weights(tile.neg_().add_(squared_norms[:, :, None]).clamp_min_(0))
    return log_w, kernel.log_weights((squared_norms - best).clamp_min_(0))


def _merge_blocks(largest: Tensor, units: Tensor, shift: Tensor, index: Index) -> Tensor:
    """Σ units · exp(largest - shift) over the blocks (n, b) of each class, as a log: (n, K) float64. Spends `units`."""
    if len(index.block_labels) < _MANY_BLOCKS * index.n_classes:
        return merge(units.log_().add_(largest).double().sub_(shift[:, None]), index.block_labels, index)
    log_sums = torch.full((len(units), index.n_classes), -torch.inf, dtype=torch.float64, device=units.device)
    starts = index.class_starts.tolist()
    for label, here in enumerate(map(slice, starts, starts[1:])):
        if here.start < here.stop:
            top = largest[:, here].amax(dim=1, keepdim=True)
            shares = exp_(largest[:, here] - top).mul_(units[:, here])
            log_sums[:, label] = shares.sum(dim=1, dtype=torch.float64).log_().add_(top[:, 0]).sub_(shift)
    return torch.minimum(log_sums, index.counts.double().log())


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
