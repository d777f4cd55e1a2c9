"""Backends: each sweeps all references once and reduces them block by block.

A backend computes; it does not judge. Whether float32 was good enough for a query, and which candidates are
truly the nearest, is decided once for all backends in `dwac.engine.exact`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from dwac.engine.index import Index
from dwac.errors import BackendError
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

    def sweep(self, index: Index, queries: Tensor, n_blocks: int) -> Sweep:
        """One pass over all references; `queries` are centred and in the precision to compute in."""


class TorchBackend:
    """Tiles of plain PyTorch operations, on any device.

    Each tile is one product of queries and folded references. The maximum over each block is taken before
    exponentiating, so nothing underflows, and the same maxima say which blocks the neighbours lie in.
    """

    name = "torch"

    def sweep(self, index: Index, queries: Tensor, n_blocks: int) -> Sweep:
        """See `Backend.sweep`."""
        n_all = len(index.block_labels)
        step = max(1, min(_QUERIES.get(queries.device.type, 256), _BLOCK_RESULTS // n_all))
        parts = [self._chunk(index, part, min(n_blocks, n_all)) for part in queries.split(step)]
        return Sweep(*(torch.cat(field) for field in zip(*parts, strict=True)))

    def _chunk(self, index: Index, queries: Tensor, n_blocks: int) -> Sweep:
        norms = queries.double().square().sum(dim=1)
        # [q, 1]: the folded references carry their own norms.
        ones = torch.cat([queries, torch.ones_like(queries[:, :1])], dim=1)
        gaussian = index.kernel.name == "gaussian"
        width = max(1, _TILE.get(queries.device.type, 2**20) // (len(queries) * index.block_size))
        sums, bests = [], []
        for first in range(0, len(index.block_labels), width):
            last = min(first + width, len(index.block_labels))
            rows = index.fold(first * index.block_size, last * index.block_size, queries.dtype)
            with full_precision(queries.device):
                product = ones @ rows.mT  # ‖q‖² - ‖q - g‖²
            tile = product.view(len(queries), -1, index.block_size)
            best = tile.amax(dim=2)
            if gaussian:  # ‖q‖² cancels in every difference, so it is left out until the end
                sums.append(tile.sub_(best[:, :, None]).exp_().sum(dim=2).log_().add_(best))
            else:
                sums.append(_block_sums(index, tile, best, norms))
            bests.append(best)
        log_sums, best = torch.cat(sums, dim=1).double(), torch.cat(bests, dim=1)
        if gaussian:
            log_sums.sub_(norms[:, None])
        log_class_weights = _merge(log_sums, index)
        top = best.topk(min(n_blocks + 1, best.shape[1]), dim=1)
        squared = (norms[:, None] - top.values.double()).clamp_min_(0)
        outside = squared[:, n_blocks] if squared.shape[1] > n_blocks else torch.full_like(norms, torch.inf)
        return Sweep(log_class_weights, squared[:, 0], top.indices[:, :n_blocks], outside)


def _block_sums(index: Index, tile: Tensor, best: Tensor, norms: Tensor) -> Tensor:
    """log Σ w over each block, for a kernel that needs the distance itself."""
    squared_norms = norms.to(tile.dtype)[:, None]
    largest = index.kernel.log_weights((squared_norms - best).clamp_min(0))
    log_w = index.kernel.log_weights((squared_norms[:, :, None] - tile).clamp_min_(0))
    return (log_w - largest[:, :, None]).exp_().sum(dim=2).log_().add_(largest)


def _merge(log_sums: Tensor, index: Index) -> Tensor:
    """Log-sum-exp of the blocks (n, n_blocks) of each class: (n, K) float64."""
    where = index.block_labels.expand(len(log_sums), -1)
    empty = torch.full((len(log_sums), index.n_classes), -torch.inf, dtype=torch.float64, device=log_sums.device)
    largest = empty.scatter_reduce(1, where, log_sums, "amax")
    scaled = (log_sums - largest.gather(1, where)).exp_()
    log_class_weights = torch.zeros_like(empty).scatter_add_(1, where, scaled).log_().add_(largest)
    # No weight exceeds 1 (d² ≥ 0), so no class exceeds its count; rounding may not either.
    return torch.minimum(log_class_weights, index.counts.double().log())


BACKENDS: dict[str, Backend] = {backend.name: backend for backend in (TorchBackend(),)}


def choose_backend(name: str) -> Backend:
    """The backend of that name; "auto" is the fastest exact one for the input."""
    if name == "auto":
        return BACKENDS["torch"]
    try:
        return BACKENDS[name]
    except (KeyError, TypeError):
        raise BackendError(f"unknown backend {name!r}; choose auto, {', '.join(BACKENDS)}") from None
