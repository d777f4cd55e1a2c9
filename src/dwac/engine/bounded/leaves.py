"""Leaves, or all references, summed pair by pair by a backend of the exact engine, with a bound on the rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from dwac.engine.backends import Backend
from dwac.engine.bounded.tree import Cells
from dwac.engine.index import Index

COPIED = {
    "cpu": 2**21,
    "cuda": 2**22,
}  # size of the references copied for one sweep; a sweep on a GPU takes four times that memory


def leaf_sums(
    cells: Cells, h: Tensor, leaves: Tensor, backend: Backend, largest_error: float
) -> Iterator[tuple[Tensor, Tensor]]:
    """For some of the leaves at a time, log Σ w per class (Q, K) float64, and the relative error of the sums, (Q,).

    `h` (Q, d) are centred queries. float32 is used for leaves where its error stays below `largest_error`.
    """
    lengths = h.square().sum(dim=1).sqrt()
    reach = cells.summary.centres[leaves].square().sum(dim=1).sqrt() + cells.summary.radii[leaves]
    error = _error(cells, lengths.amax(), reach, backend, torch.float32)
    single = (error <= largest_error) & cells.index.kernel.smooth
    for dtype, chosen in ((torch.float32, single), (torch.float64, ~single)):
        places = chosen.nonzero()[:, 0]
        leaf = cells.leaf_blocks * cells.index.block_size * (h.shape[1] + 5)
        step = max(1, COPIED.get(h.device.type, COPIED["cpu"]) // leaf)
        for part in (places[start : start + step] for start in range(0, len(places), step)):
            leaf_index = _leaf_index(cells, leaves[part], dtype)
            log_sums = backend.sweep(leaf_index, h.to(dtype), 0).log_class_weights
            yield log_sums, _error(cells, lengths, reach[part].amax(), backend, dtype)


def whole_sums(cells: Cells, h: Tensor, backend: Backend, largest_error: float) -> tuple[Tensor, Tensor]:
    """The same for all references at once: (Q, K) and (Q,). float32 is used for queries whose error stays below."""
    lengths, roots = h.square().sum(dim=1).sqrt(), cells.summary.at(cells.roots)
    reach = (roots.centres.square().sum(dim=1).sqrt() + roots.radii).amax()
    single, double = (_error(cells, lengths, reach, backend, dtype) for dtype in (torch.float32, torch.float64))
    few = (single <= largest_error) & (cells.index.kernel.smooth and cells.index.folded.dtype == torch.float32)
    log_sums = h.new_empty(len(h), cells.index.n_classes)
    for dtype, chosen in ((torch.float32, few), (torch.float64, ~few)):
        rows = chosen.nonzero()[:, 0]
        if len(rows):
            log_sums[rows] = backend.sweep(cells.given, h[rows].to(dtype), 0).log_class_weights
    return log_sums, torch.where(few, single, double)


def _error(cells: Cells, length: Tensor, reach: Tensor, backend: Backend, dtype: torch.dtype) -> Tensor:
    """A bound on the relative error of the sum over leaves, for queries of norm `length` and references up to `reach`.

    A product of D = d + 1 terms is off by D units of their sizes, twice that on tensor cores, which truncate; each
    vector adds a unit of its own. Then come the log-weights and the sum over a block; blocks are added in float64.
    """
    unit = torch.finfo(dtype).eps / 2
    terms = cells.index.folded.shape[1] + 6.0
    if dtype == torch.float32:
        terms *= 1 if backend.name == "torch" else 2
    squared = unit * (terms * reach * (2 * length + reach) + 2 * (length + reach).square())
    if not cells.index.kernel.smooth:
        squared = squared.sqrt()  # |√(T + e) - √T| ≤ √e
    error = torch.expm1(squared + (cells.index.block_size + 64) * unit)
    if dtype == torch.float64 or backend.name == "torch":
        return error
    return error.masked_fill(length > 300, torch.inf)  # there padding could outweigh references (`Index.split`)


def _leaf_index(cells: Cells, leaves: Tensor, dtype: torch.dtype) -> Index:
    """The references of some leaves as an index of their own."""
    index, size = cells.index, cells.index.block_size
    leaves = leaves[cells.labels[leaves].argsort(stable=True)]
    blocks = (cells.first[leaves, None] + torch.arange(cells.leaf_blocks, device=leaves.device)).flatten()
    rows = index.rows.view(-1, size)
    blocks = blocks[rows[blocks, 0] >= 0]  # the last leaf of a tree may have fewer
    labels = index.block_labels[blocks]
    leaf_index = replace(index, labels=labels.repeat_interleave(size), block_labels=labels, rows=rows[blocks].flatten())
    if dtype == index.folded.dtype:
        return replace(
            leaf_index, folded=index.folded.view(len(rows), -1).index_select(0, blocks).view(-1, len(index.centre) + 1)
        )
    if dtype == torch.float32:
        return replace(leaf_index, folded=leaf_index.fold(0, len(leaf_index.rows), dtype))
    return leaf_index
