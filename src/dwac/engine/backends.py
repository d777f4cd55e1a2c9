"""Backends: each sweeps all references once and reduces them block by block.

A backend only computes. Whether float32 was precise enough for a query, and which candidates are really the nearest,
is decided for all backends in `dwac.engine.exact`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from dwac.engine.index import Index
from dwac.kernels import Kernel, full_precision

# Elements of one tile, per thread on a CPU: large enough to keep the product efficient, small enough to stay in
# a core's cache. `_LARGEST_TILE` limits the total.
_TILE = {"cpu": 2**18, "cuda": 2**26}
_LARGEST_TILE = {"cpu": 2**22, "cuda": 2**26}
# Queries per product on a CPU. Rounding depends on the shape of a product, so its number of rows is always the same;
# everything else is computed row by row. So the answer to a query does not depend on the other queries.
ROWS = 16
_QUERIES = {"cpu": 256, "cuda": 4096}
_BLOCK_RESULTS = 2**22
_MANY_BLOCKS = 32  # blocks per class from which summing class by class is faster
_MOST_BLOCKS = 16  # up to this ratio of all blocks to needed ones, one product with all is faster than copying
_GATHERED = {"cpu": 2**18, "cuda": 2**24}  # numbers copied at once for products of queries with their own blocks
_GRADIENT_TILE = {"cpu": 2**19, "cuda": 2**22}  # size of an array; about three are held at once


class Sweep(NamedTuple):
    """The result of one pass over the references, for n queries and K classes."""

    log_class_weights: Tensor  # (n, K) float64; -inf for classes without references
    norms: Tensor  # (n,) float64: ‖q‖², of the centred queries
    nearest: Tensor | None  # (n,) float64: squared distance of the nearest reference, up to rounding; None if unknown
    blocks: Tensor  # (n, b) int64: the b blocks that contain the nearest references, nearest first
    next_block: Tensor | None  # (n,) float64: squared distance of the nearest reference outside them; inf if none


class Backend(Protocol):
    """The interface of a backend. Every backend passes the same test suite.

    >>> from dwac.engine import BACKENDS, build_index
    >>> from dwac.kernels import get_kernel
    >>> index = build_index(torch.tensor([[0.0], [2.0]]), torch.tensor([0, 1]), 2, get_kernel("gaussian"))
    >>> backend: Backend = BACKENDS["torch"]
    >>> sweep: Sweep = backend.sweep(index, torch.tensor([[0.0]]), n_blocks=0)  # the centre, 1, was subtracted
    >>> sweep.log_class_weights, sweep.norms
    (tensor([[-1., -1.]], dtype=torch.float64), tensor([0.], dtype=torch.float64))
    """

    name: str
    rounding: float  # units of error in its float32 products, if more than in IEEE products

    def sweep(self, index: Index, queries: Tensor, n_blocks: int) -> Sweep:
        """One pass over all references; `queries` are centred and in the precision to compute in.

        n_blocks: how many blocks to return; 0 if no neighbours are wanted: `blocks` is then (n, 0).
        """

    def products(self, index: Index, queries: Tensor, blocks: Tensor) -> Tensor:
        """‖q‖² - ‖q - g‖² for each query and every member of its own blocks (n, b): (n, b · block_size)."""

    def gradient(self, index: Index, queries: Tensor, log_class_weights: Tensor, cotangent: Tensor) -> Tensor:
        """∂/∂queries of Σ cotangent · log_class_weights, (n, d) in the precision of the centred `queries`.

        log_class_weights: (n, K) float64, as returned by a sweep. cotangent: (n, K) float64, within ±1; 0 for classes
        without references.
        """

    # A backend may also have a `policy`, see `dwac.engine.precision`, and a shorter way for `few` queries, not centred.


def tiled_gradient(index: Index, queries: Tensor, log_class_weights: Tensor, cotangent: Tensor) -> Tensor:
    """See `Backend.gradient`. With W_k = Σ_{i in k} w_i, a cotangent c_k of each log W_k, and s(d²) = ∂ log w / ∂ d²,

        ∂/∂q Σ_k c_k log W_k = 2 Σ_i p_i (g_i - q),   p_i = -c_k s(d_i²) w_i / W_k,   k the class of i.

    For the gaussian s is -1. No share w_i / W_k exceeds 1, so nothing overflows. The whole (n, m) matrix is never held.
    """
    answer = torch.empty_like(queries)
    step = _QUERIES.get(queries.device.type, 256)
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        answer[part] = _gradient_chunk(index, queries[part], log_class_weights[part], cotangent[part])
    return answer


def _gradient_chunk(index: Index, queries: Tensor, log_class_weights: Tensor, cotangent: Tensor) -> Tensor:
    n, d = queries.shape
    norms = queries.double().square().sum(dim=1, keepdim=True)
    gaussian = index.kernel.name == "gaussian"  # ‖q‖² cancels in every share, so it is left out
    level, weight = levels(log_class_weights + norms if gaussian else log_class_weights, cotangent, queries.dtype)
    ones = torch.cat([queries, torch.ones_like(queries[:, :1])], dim=1)
    smallest = math.log(torch.finfo(queries.dtype).tiny) + 1  # below this, exp is slow on a CPU; see `exp_`
    pull, total = torch.zeros_like(queries), queries.new_zeros(n, 1)
    width = max(1, _GRADIENT_TILE.get(queries.device.type, 2**19) // (max(ones.shape) * index.block_size))
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


class TorchBackend:
    """Tiles of plain PyTorch operations, on any device.

    Each tile is one product of queries and folded references. Before exponentiating, a value near its maximum is
    subtracted, so nothing underflows. The maximum of each block shows which blocks contain the neighbours.
    """

    name = "torch"
    rounding = 1.0
    gradient = staticmethod(tiled_gradient)

    def sweep(self, index: Index, queries: Tensor, n_blocks: int) -> Sweep:
        """See `Backend.sweep`."""
        step = _QUERIES.get(queries.device.type, 256)
        if queries.dtype != index.folded.dtype and index.doubled is index:
            step *= 4  # the references are folded again for each part
        step = min(step, _BLOCK_RESULTS // len(index.block_labels))
        many = len(index.block_labels) >= _MANY_BLOCKS * index.n_classes
        by_class = many and index.kernel.name == "gaussian"
        return in_parts(self._by_class if by_class else self._by_block, index, queries, n_blocks, step)

    def _by_class(self, index: Index, queries: Tensor, n_blocks: int) -> Sweep:
        """Gaussian weights, in units of the largest weight in the first block of the class.

        This avoids one maximum per block. Later weights may be larger: if one is more than e⁸⁸ times as large, too
        large for float32, the query is computed again block by block.
        """
        norms = squared_norms(queries)
        best = queries.new_empty(len(queries), len(index.block_labels)) if n_blocks else None
        log_sums = norms.new_full((len(queries), index.n_classes), -torch.inf)
        starts = index.class_starts.tolist()
        tiles = _Tiles(index, queries)
        for label, (begin, end) in enumerate(pairwise(starts)):
            total = torch.zeros_like(norms)
            for here in tiles.between(begin, end):
                tile = tiles.products(here)
                if here.start == begin:
                    unit = tile[:, :1].amax(dim=2, keepdim=True)
                if best is not None:
                    torch.amax(tile, dim=2, out=best[:, here])
                total += exp_(tile.sub_(unit)).sum(dim=2).sum(dim=1, dtype=torch.float64)
            if begin < end:
                log_sums[:, label] = total.log_().add_(unit[:, 0, 0])
        # ‖q‖² cancels in every difference of logs, so it is only subtracted here.
        log_class_weights = torch.minimum(log_sums.sub_(norms[:, None]), index.log_counts)
        lost = (~(log_sums < torch.inf).all(dim=1)).nonzero()[:, 0]
        if len(lost):
            log_class_weights[lost] = self._by_block(index, queries[lost], n_blocks).log_class_weights
        if best is None:
            return without_neighbours(log_class_weights, norms, index)
        return Sweep(log_class_weights, norms, *nearest_blocks(best, norms, n_blocks))

    def _by_block(self, index: Index, queries: Tensor, n_blocks: int) -> Sweep:
        """Weights of any kernel, in units of the largest weight of the block."""
        norms = squared_norms(queries)
        gaussian = index.kernel.name == "gaussian"
        best = queries.new_empty(len(queries), len(index.block_labels))
        units = torch.empty_like(best)  # Σ w of each block, in units of its largest
        largest = best if gaussian else torch.empty_like(best)  # the log of that unit
        tiles = _Tiles(index, queries)
        for here in tiles.between(0, len(index.block_labels)):
            tile = tiles.products(here)
            torch.amax(tile, dim=2, out=best[:, here])
            if not gaussian:
                tile, largest[:, here] = _log_weights(index.kernel, tile, best[:, here], norms)
            torch.sum(exp_(tile.sub_(largest[:, here, None])), dim=2, out=units[:, here])
        log_sums = units.log_().add_(largest).double()
        if gaussian:  # ‖q‖² cancels in every difference of logs, so it is only subtracted here
            log_sums.sub_(norms[:, None])
        return Sweep(merge(log_sums, index.block_labels, index), norms, *nearest_blocks(best, norms, n_blocks))

    def products(self, index: Index, queries: Tensor, blocks: Tensor) -> Tensor:
        """See `Backend.products`."""
        ones = torch.cat([queries, torch.ones_like(queries[:, :1])], dim=1)
        index = index.doubled if queries.dtype == torch.float64 else index
        if index.folded.dtype == queries.dtype and len(index.block_labels) <= _MOST_BLOCKS * blocks.shape[1]:
            return _chosen(index, ones, blocks)
        answer = queries.new_empty(len(queries), blocks.shape[1] * index.block_size)
        step = max(1, _GATHERED.get(queries.device.type, 2**18) // (answer.shape[1] * ones.shape[1]))
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            chosen = blocks[part].flatten()
            if index.folded.dtype == queries.dtype:  # copying whole blocks is faster than copying their rows
                folded = index.folded.view(len(index.block_labels), -1).index_select(0, chosen)
            else:  # exact float64 copies of the few rows needed
                rows = index.rows.view(-1, index.block_size)[chosen].flatten()
                folded = replace(index, rows=rows).fold(0, len(rows), queries.dtype)
            with full_precision(queries.device):
                folded = folded.view(-1, answer.shape[1], ones.shape[1])
                answer[part] = torch.bmm(folded, ones[part, :, None])[:, :, 0]
        return answer


class _Tiles:
    """The products of queries and references, one tile at a time, all in the same memory."""

    def __init__(self, index: Index, queries: Tensor) -> None:
        self.index = index.doubled if queries.dtype == torch.float64 else index
        self.n, self.rows = len(queries), ROWS if queries.device.type == "cpu" else len(queries)
        # [q, 1]: the folded references carry their own norms.
        ones = torch.cat([queries, torch.ones_like(queries[:, :1])], dim=1)
        self.ones = torch.nn.functional.pad(ones, (0, 0, 0, -self.n % max(self.rows, 1)))
        # For few queries, the references of a tile, folded again in float64, would take more memory than its products.
        self.width = max(1, _tile(queries.device) // (max(self.ones.shape) * index.block_size))
        self.memory = queries.new_empty(len(self.ones) * min(self.width, len(index.block_labels)) * index.block_size)

    def between(self, begin: int, end: int) -> Iterator[slice]:
        """Blocks begin … end, one tile at a time."""
        return (slice(first, min(first + self.width, end)) for first in range(begin, end, self.width))

    def products(self, blocks: slice) -> Tensor:
        """‖q‖² - ‖q - g‖², (n, blocks, block_size); the next call overwrites them."""
        size = self.index.block_size
        columns = self.index.fold(blocks.start * size, blocks.stop * size, self.ones.dtype).mT
        product = self.memory[: len(self.ones) * columns.shape[1]].view(len(self.ones), -1)
        with full_precision(columns.device):
            multiply(self.ones, columns, product, self.rows)
        return product[: self.n].view(self.n, -1, size)


def multiply(ones: Tensor, columns: Tensor, product: Tensor, rows: int) -> None:
    """Store ones @ columns in `product`, so many rows at a time."""
    for start in range(0, len(ones), max(rows, 1)):
        part = slice(start, start + rows)
        torch.mm(ones[part], columns, out=product[part])


def in_parts(
    chunk: Callable[[Index, Tensor, int], Sweep], index: Index, queries: Tensor, n_blocks: int, step: int
) -> Sweep:
    """Sweep in parts of at most `step` queries each."""
    n, n_blocks = len(queries), min(n_blocks, len(index.block_labels))
    if n <= step:
        return chunk(index, queries, n_blocks)
    step = max(1, step)
    first = chunk(index, queries[:step], n_blocks)
    result = Sweep(*(None if field is None else field.new_empty(n, *field.shape[1:]) for field in first))  # type: ignore[arg-type]
    # Filled in place: small results allocated between large tiles would fragment the heap and keep it from shrinking.
    for start in range(0, n, step):
        part = slice(start, start + step)
        sweep = chunk(index, queries[part], n_blocks) if start else first
        for field, values in zip(result, sweep, strict=True):
            if field is not None and values is not None:
                field[part] = values
    return result


def squared_norms(x: Tensor) -> Tensor:
    """‖x‖² of rows (n, d): (n,) float64."""
    norms: Tensor = torch.linalg.vector_norm(x, dim=1, dtype=torch.float64)
    return norms.square_()


def nearest_blocks(best: Tensor, norms: Tensor, n_blocks: int) -> tuple[Tensor, Tensor, Tensor]:
    """`Sweep`'s nearest, blocks and next_block, from the largest ‖q‖² - ‖q - g‖² of each block, (n, all blocks)."""
    top = best.topk(min(n_blocks + 1, best.shape[1]), dim=1)
    squared = (norms[:, None] - top.values.double()).clamp_min_(0)
    outside = squared[:, n_blocks] if squared.shape[1] > n_blocks else torch.full_like(norms, torch.inf)
    return squared[:, 0], top.indices[:, :n_blocks], outside


def without_neighbours(log_class_weights: Tensor, norms: Tensor, index: Index) -> Sweep:
    """A sweep without neighbours; `precision.nearest_bound` bounds their distance."""
    return Sweep(log_class_weights, norms, None, index.block_labels.new_empty(len(norms), 0), None)


def _chosen(index: Index, ones: Tensor, blocks: Tensor) -> Tensor:
    """Products with the requested blocks (n, b), taken from those with all references: (n, b · block_size)."""
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
    """The number of products in a tile."""
    threads = torch.get_num_threads() if device.type == "cpu" else 1
    return min(_LARGEST_TILE.get(device.type, 2**22), threads * _TILE.get(device.type, 2**18))


def _log_weights(kernel: Kernel, tile: Tensor, best: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
    """log w of a tile's products and of the maximum of each block, for a kernel that needs the distance itself."""
    squared_norms = norms.to(tile.dtype)[:, None]
    log_w = kernel.log_weights(tile.neg_().add_(squared_norms[:, :, None]).clamp_min_(0))
    return log_w, kernel.log_weights((squared_norms - best).clamp_min_(0))


def merge(log_sums: Tensor, labels: Tensor, index: Index) -> Tensor:
    """Log-sum-exp over the columns (n, c) of each class, given their labels (c,): (n, K) float64."""
    # No weight exceeds 1 (d² ≥ 0), so no class sum may exceed its count, not even by rounding.
    return torch.minimum(sum_by_label(log_sums, labels, index.n_classes), index.log_counts)


def sum_by_label(log_w: Tensor, labels: Tensor, n_labels: int) -> Tensor:
    """Log-sum-exp over the columns (n, c) of each label (c,): (n, n_labels) float64; -inf for a label without any."""
    where = labels.expand(len(log_w), -1)
    empty = torch.full((len(log_w), n_labels), -torch.inf, dtype=torch.float64, device=log_w.device)
    largest = empty.scatter_reduce(1, where, log_w.detach(), "amax")
    scaled = exp_(log_w - largest.gather(1, where))
    return torch.zeros_like(empty).scatter_add_(1, where, scaled).log_().add_(largest)


def exp_(log_share: Tensor) -> Tensor:
    """exp in place, of logs whose maximum is about 0 or more. A share too small for a float becomes the smallest float.

    The difference vanishes when added to 1, but underflow makes exp about 20 times slower on a CPU (measured with MKL).
    """
    return log_share.clamp_min_(math.log(torch.finfo(log_share.dtype).tiny) + 1).exp_()
