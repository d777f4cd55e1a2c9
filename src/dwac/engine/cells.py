"""References in nested cells: halved along their longest axis until small, each cell summed up by its moments.

A cell knows the mean and (up to 30 dimensions) the variance of the squared distance T to any query, without looking at
its references. With g = h_i - centre and f = [2g, -‖g‖²],

    T = ‖q‖² - [q, 1] · f,

so mean and variance of T over a cell are polynomials in q, whose coefficients are the mean and the covariance of f.
`dwac.engine.bounded` turns them into bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from dwac.engine.index import LARGEST_BLOCK, Index

LEAF = {"cpu": 128, "cuda": 512}  # references of a smallest cell: more where pairs are cheap beside bounds
_MOST_DIMENSIONS = 30  # in which cells keep second moments, (d + 1)(d + 2) / 2 numbers
_PART = {"cpu": 2**20, "cuda": 2**22}  # numbers held at once while sorting


class Summary(NamedTuple):
    """What is known of c cells. D = d + 1 and f are as above."""

    counts: Tensor  # (c,) float64: how many references
    centres: Tensor  # (c, d) float64: the mean of g
    spreads: Tensor  # (c,) float64: the mean of ‖g - mean‖²
    radii: Tensor  # (c,) float64: the largest ‖g - mean‖
    covariances: Tensor  # (c, D(D + 1)/2) float64: of f, by `pairs`, those of two variables twice; (c, 0): not kept

    @property
    def folded(self) -> Tensor:
        """(c, D): the mean of f."""
        return torch.cat([2 * self.centres, -(self.centres.square().sum(dim=1) + self.spreads)[:, None]], dim=1)

    def at(self, ids: Tensor) -> Summary:
        """Some of the cells."""
        return Summary(*(field.index_select(0, ids) for field in self))


@dataclass(frozen=True)
class Cells:
    """Trees over the references of an index, each class its own; build with `build_cells`.

    The children of a cell stand after it, beside each other. A leaf holds `leaf_size` references, the last of a tree
    perhaps fewer.
    """

    index: Index  # of the same references, in the order of the leaves
    leaf_blocks: int  # blocks of that index in a leaf
    roots: Tensor  # (r,) int64, by class
    labels: Tensor  # (c,) int64
    first: Tensor  # (c,) int64: the first child; of a leaf, its first block
    n_children: Tensor  # (c,) int64: 0 (a leaf), 1 or 2
    summary: Summary


def build_cells(index: Index, leaf_size: int | None = None) -> Cells:
    """Divide the references of an index into cells: about the work of sorting them once a level."""
    leaf_size = leaf_size or LEAF.get(index.embeddings.device.type, LEAF["cpu"])
    by_class = torch.argsort(index.labels, stable=True).split(index.counts.tolist())
    classes, trees = [], []
    for k, rows in enumerate(by_class):
        for part in _parts(index, rows, leaf_size):
            classes.append(k)
            trees.append(_grow(index, part, leaf_size))
    return _plant(index, leaf_size, classes, trees)


def spatial_order(points: Tensor, leaf_size: int) -> Tensor:
    """A permutation (n,) that brings near points (n, d) together."""
    *_, (_, rows, _) = _halve(points, torch.arange(len(points), device=points.device), leaf_size)
    return rows[: len(points)]


def pairs(width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The pairs of variables, (2, c): as rows and columns of the upper triangle of a matrix."""
    a, b = torch.triu_indices(width, width, device=device)
    return a, b


# Sorting


def _parts(index: Index, rows: Tensor, leaf_size: int) -> Iterator[Tensor]:
    """The rows of a class, halved until each part can be sorted in little memory."""
    most = _PART.get(rows.device.type, _PART["cpu"]) // (index.embeddings.shape[1] + 4)
    if len(rows) <= max(leaf_size, most):
        if len(rows):
            yield rows
        return
    axis = _axes(_points(index, rows[:: -(-len(rows) // 8192)])[None])[0].to(index.embeddings.dtype)
    key = torch.cat([index.embeddings[part] @ axis for part in rows.split(most)])
    rows = rows[key.argsort()]
    middle = -(-len(rows) // (2 * leaf_size)) * leaf_size
    yield from _parts(index, rows[:middle], leaf_size)
    yield from _parts(index, rows[middle:], leaf_size)


def _points(index: Index, rows: Tensor) -> Tensor:
    return index.embeddings[rows].double() - index.centre


def _halve(points: Tensor, rows: Tensor, leaf_size: int) -> Iterator[tuple[Tensor, Tensor, int]]:
    """The points (n, d) in 1, 2, 4, … cells: (c, s, d), the rows in that order, and n.

    Padding repeats the last point as row -1 and stays at the end; a cell of nothing else is left out.
    """
    n, d = points.shape
    size = leaf_size << (-(-n // leaf_size) - 1).bit_length()
    missing = size - n
    points = torch.cat([points, points[-1:].expand(missing, d)])
    rows = torch.cat([rows, rows.new_full((missing,), -1)])
    while True:
        cells = points.view(-1, size, d)
        yield cells, rows, n
        if size == leaf_size:
            return
        key = (cells @ _axes(cells)[:, :, None]).float().flatten().nan_to_num_(0.0)
        key[n:] = torch.inf  # whatever overflows, only padding sorts last
        order = key.view(-1, size).argsort(dim=1, stable=True)
        order += torch.arange(0, len(points), size, device=order.device)[:, None]
        size //= 2
        kept = order.flatten()[: -(-n // size) * size]
        points, rows = points.index_select(0, kept), rows.index_select(0, kept)


def _axes(cells: Tensor) -> Tensor:
    """About the longest axis (c, d) of each cell (c, s, d): a high power of its covariance has hardly another."""
    centred = cells - cells.mean(dim=1, keepdim=True)
    power = centred.mT @ centred
    tiny = torch.finfo(power.dtype).tiny
    for _ in range(5):
        power = power / power.diagonal(dim1=1, dim2=2).sum(dim=1).clamp_min(tiny)[:, None, None]
        power = power @ power
    longest = power.diagonal(dim1=1, dim2=2).argmax(dim=1)
    axes = power[torch.arange(len(cells), device=cells.device), longest]
    return axes / axes.abs().amax(dim=1, keepdim=True).clamp_min(tiny)


# Summing up


def _grow(index: Index, rows: Tensor, leaf_size: int) -> tuple[Tensor, list[Summary]]:
    """One tree: the rows by leaf, and its cells level by level, the root first."""
    levels = []
    for cells, rows, n in _halve(_points(index, rows), rows, leaf_size):  # noqa: B020
        valid = (torch.arange(len(rows), device=rows.device) < n).view(*cells.shape[:2], 1)
        counts = valid.sum(dim=1).double()
        centres = (cells * valid).sum(dim=1) / counts
        offsets = (cells - centres[:, None]).mul_(valid)
        squared = offsets.square().sum(dim=2)
        summary = Summary(
            counts[:, 0], centres, squared.sum(dim=1) / counts[:, 0], squared.amax(dim=1).sqrt(), centres[:, :0]
        )
        levels.append(summary._replace(covariances=_covariances(summary, offsets, squared, valid)))
    return rows, levels


def _covariances(summary: Summary, offsets: Tensor, squared: Tensor, valid: Tensor) -> Tensor:
    """Of f = [2g, -‖g‖²] over each cell, from g less its mean and the square of that."""
    if offsets.shape[2] > _MOST_DIMENSIONS:
        return summary.covariances
    last = squared + 2 * (offsets @ summary.centres[:, :, None])[:, :, 0] - summary.spreads[:, None]
    f = torch.cat([2 * offsets, -last[:, :, None]], dim=2).mul_(valid)
    a, b = pairs(f.shape[2], f.device)
    return (f.mT @ f)[:, a, b] * torch.where(a == b, 1.0, 2.0) / summary.counts[:, None]


def _plant(index: Index, leaf_size: int, classes: list[int], trees: list[tuple[Tensor, list[Summary]]]) -> Cells:
    """All trees as one forest."""
    block_size = min(leaf_size, LARGEST_BLOCK)
    roots, first, n_children = [], [], []
    n_cells = n_blocks = 0
    for rows, levels in trees:
        roots.append(n_cells)
        for level, below in pairwise(levels):
            n_cells += len(level.counts)
            children = torch.arange(0, len(below.counts), 2)
            first.append(n_cells + children)
            n_children.append((len(below.counts) - children).clamp_max(2))
        n_cells += len(levels[-1].counts)
        blocks = torch.arange(n_blocks, n_blocks + len(rows) // block_size, leaf_size // block_size)
        first.append(blocks)
        n_children.append(torch.zeros_like(blocks))
        n_blocks += len(rows) // block_size
    device, labels = index.labels.device, torch.tensor(classes)
    cell_labels = labels.repeat_interleave(
        torch.tensor([sum(len(level.counts) for level in tree) for _, tree in trees])
    )
    block_labels = labels.repeat_interleave(torch.tensor([len(rows) // block_size for rows, _ in trees]))
    return Cells(
        index=_reordered(index, torch.cat([rows for rows, _ in trees]), block_labels.to(device)),
        leaf_blocks=leaf_size // block_size,
        roots=torch.tensor(roots, device=device),
        labels=cell_labels.to(device),
        first=torch.cat(first).to(device),
        n_children=torch.cat(n_children).to(device),
        summary=Summary(
            *(torch.cat(field) for field in zip(*(level for _, tree in trees for level in tree), strict=True))
        ),
    )


def _reordered(index: Index, rows: Tensor, block_labels: Tensor) -> Index:
    """The index with its references in another order, and so in other blocks."""
    places = torch.empty_like(index.labels)
    padding = index.rows < 0
    places[index.rows[~padding]] = (~padding).nonzero()[:, 0]
    folded = index.folded.index_select(0, places[rows.clamp_min(0)])
    folded[rows < 0] = torch.tensor([0.0] * len(index.centre) + [-torch.inf], dtype=folded.dtype, device=rows.device)
    size = len(rows) // len(block_labels)
    return replace(index, rows=rows, block_labels=block_labels, block_size=size, folded=folded)
