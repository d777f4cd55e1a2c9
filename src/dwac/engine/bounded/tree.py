"""References in nested cells: halved along their longest axis until small, each cell summarised by its moments.

A cell gives the mean and (up to 30 dimensions) the variance of the squared distance T to any query, without reading
its references. With g = h_i - centre and f = [2g, -‖g‖²],

    T = ‖q‖² - [q, 1] · f,

so mean and variance of T over a cell are polynomials in q, whose coefficients are the mean and the covariance of f.
`dwac.engine.bounded.moments` turns them into bounds.

Building the cells needs little memory besides the result, however many references there are: the class counts alone
determine the layout, and the references are sorted in place, one part at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from dwac.engine.bounded.division import divide, longest_axes, part_sizes
from dwac.engine.index import LARGEST_BLOCK, Index

LEAF = {"cpu": 128, "cuda": 2048}  # references of a leaf: more where pairs are cheap compared with bounds
PART = {"cpu": 2**20, "cuda": 2**22}  # size of the references that are sorted at once
_MOST_DIMENSIONS = 30  # up to which cells keep second moments, (d + 1)(d + 2) / 2 numbers


class Summary(NamedTuple):
    """The moments of c cells. D = d + 1 and f are as above."""

    counts: Tensor  # (c,) float64: number of references
    centres: Tensor  # (c, d) float64: the mean of g
    spreads: Tensor  # (c,) float64: the mean of ‖g - mean‖²
    radii: Tensor  # (c,) float64: the largest ‖g - mean‖
    covariances: Tensor  # (c, D(D + 1)/2) float64: of f, by `pairs`, off-diagonal ones doubled; (c, 0): not kept

    @property
    def folded(self) -> Tensor:
        """(c, D): the mean of f."""
        return torch.cat([2 * self.centres, -(self.centres.square().sum(dim=1) + self.spreads)[:, None]], dim=1)

    def at(self, ids: Tensor) -> Summary:
        """Some of the cells."""
        return Summary(*(field.index_select(0, ids) for field in self))


@dataclass(frozen=True)
class Cells:
    """Trees over the references of an index, at least one per class; build with `build_cells`.

    The children of a cell are next to each other, after it. A leaf has `leaf_size` references, the last one of a tree
    perhaps fewer.
    """

    given: Index  # the original index
    index: Index  # the same references, in the order of the leaves
    leaf_blocks: int  # blocks of that index per leaf
    roots: Tensor  # (r,) int64, by class
    labels: Tensor  # (c,) int64
    first: Tensor  # (c,) int64: the first child; of a leaf, its first block
    n_children: Tensor  # (c,) int64: 0 (a leaf), 1 or 2
    summary: Summary


def build_cells(index: Index, leaf_size: int | None = None) -> Cells:
    """Divide the references of an index into cells: about as much work as sorting them once per level."""
    device = index.folded.device
    leaf_size = leaf_size or LEAF.get(device.type, LEAF["cpu"])
    most = max(leaf_size, PART.get(device.type, PART["cpu"]) // (index.embeddings.shape[1] + 4))
    trees = _plan(index.counts.tolist(), most, leaf_size)
    layout = _empty(index, trees, leaf_size)
    cells = _forest(index, layout, trees, leaf_size)
    starts = [index.block_size * start for start in index.class_starts.tolist()]
    for label, n in enumerate(index.counts.tolist()):
        own = [tree for tree in trees if tree.label == label]
        if own:
            here = slice(own[0].row, own[0].row + n)
            torch.arange(starts[label], starts[label] + n, out=layout.rows[here])  # places in `index`, until sorted
            divide(index, layout.rows[here], layout.folded[here].view(-1).view(torch.int32), most, leaf_size)
        for tree in own:
            _grow(index, tree, cells, leaf_size)
    return cells


def spatial_order(points: Tensor, leaf_size: int) -> Tensor:
    """A permutation (n,) that puts near points (n, d) next to each other."""
    *_, (_, order) = _levels(points, torch.arange(len(points), device=points.device), leaf_size)
    return order


def pairs(width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The pairs of variables, (2, c): rows and columns of the upper triangle of a matrix."""
    a, b = torch.triu_indices(width, width, device=device)
    return a, b


# Planning


class _Tree(NamedTuple):
    """Some references of a class, and the positions of these and their cells."""

    label: int
    n: int
    row: int  # the first reference
    root: int  # the first cell
    levels: list[int]  # number of cells per level, the root's level first


def _plan(counts: list[int], most: int, leaf_size: int) -> list[_Tree]:
    """Trees of at most `most` references: larger ones could not be sorted in little memory."""
    trees, row, root = [], 0, 0
    for label, count in enumerate(counts):
        for n in part_sizes(count, most, leaf_size):
            n_leaves = -(-n // leaf_size)
            sizes = (1 << level for level in reversed(range((n_leaves - 1).bit_length() + 1)))
            trees.append(_Tree(label, n, row, root, [-(-n_leaves // size) for size in sizes]))
            row += n_leaves * leaf_size
            root += sum(trees[-1].levels)
    return trees


def _empty(index: Index, trees: list[_Tree], leaf_size: int) -> Index:
    """The index with space for its references in another order, and so in other blocks."""
    device, size = index.folded.device, min(leaf_size, LARGEST_BLOCK)
    n_blocks = torch.tensor([tree.levels[-1] * leaf_size // size for tree in trees])
    labels = torch.tensor([tree.label for tree in trees]).repeat_interleave(n_blocks).to(device)
    rows = index.rows.new_empty(len(labels) * size)
    folded = index.folded.new_empty(len(rows), index.folded.shape[1])
    return replace(index, rows=rows, block_labels=labels, block_size=size, folded=folded)


def _forest(given: Index, layout: Index, trees: list[_Tree], leaf_size: int) -> Cells:
    """The structure of all trees; the summary is allocated but not filled."""
    device, leaf_blocks = layout.rows.device, leaf_size // layout.block_size
    first, n_children = [], []
    for tree in trees:
        cell = tree.root
        for here, below in pairwise(tree.levels):
            cell += here
            children = torch.arange(0, below, 2)
            first.append(cell + children)
            n_children.append((below - children).clamp_max(2))
        leaves = torch.arange(tree.levels[-1])
        first.append(tree.row // layout.block_size + leaf_blocks * leaves)
        n_children.append(torch.zeros_like(leaves))
    n_cells = torch.tensor([sum(tree.levels) for tree in trees])
    d, c = len(layout.centre), int(n_cells.sum())
    width = (d + 1) * (d + 2) // 2 if d <= _MOST_DIMENSIONS else 0
    number = layout.centre.new_empty
    return Cells(
        given=given,
        index=layout,
        leaf_blocks=leaf_blocks,
        roots=torch.tensor([tree.root for tree in trees], device=device),
        labels=torch.tensor([tree.label for tree in trees]).repeat_interleave(n_cells).to(device),
        first=torch.cat(first).to(device),
        n_children=torch.cat(n_children).to(device),
        summary=Summary(number(c), number(c, d), number(c), number(c), number(c, width)),
    )


# Growing


def _grow(index: Index, tree: _Tree, cells: Cells, leaf_size: int) -> None:
    """Sort the references of one tree, whose places in `index` are in `cells.index.rows`, and compute the moments."""
    rows, folded = cells.index.rows, cells.index.folded
    here = slice(tree.row, tree.row + tree.n)
    points = index.embeddings[index.rows[rows[here]]].double() - index.centre
    cell, order = tree.root, rows[here]
    for level, order in _levels(points, order, leaf_size):  # noqa: B007, B020
        for field, values in zip(cells.summary, level, strict=True):
            field[cell : cell + len(values)] = values
        cell += len(level.counts)
    torch.index_select(index.folded, 0, order, out=folded[here])
    rows[here] = index.rows[order]
    padding = slice(here.stop, tree.row + tree.levels[-1] * leaf_size)
    rows[padding], folded[padding, :-1], folded[padding, -1] = -1, 0, -torch.inf


def _levels(points: Tensor, order: Tensor, leaf_size: int) -> Iterator[tuple[Summary, Tensor]]:
    """The points (n, d) in 1, 2, 4, … cells, the last one perhaps not full: their summary and the new order (n,)."""
    n, d = points.shape
    size = leaf_size << (-(-n // leaf_size) - 1).bit_length()
    points = torch.cat([points, points.new_zeros(size - n, d)])
    while True:
        cells = points.view(-1, size, d)
        summary, offsets, products = _sum_up(cells, n)
        yield summary, order
        if size == leaf_size:
            return
        key = (offsets @ longest_axes(products)[:, :, None]).float().flatten().nan_to_num_(0.0)
        del offsets
        key[n:] = torch.inf  # padding sorts last, even if another key overflows
        sorting = key.view(-1, size).argsort(dim=1, stable=True)
        sorting += torch.arange(0, len(points), size, device=order.device)[:, None]
        size //= 2
        kept = sorting.flatten()[: -(-n // size) * size]  # drops cells that contain only padding
        points, order = points.index_select(0, kept), order.index_select(0, kept[:n])


def _sum_up(cells: Tensor, n: int) -> tuple[Summary, Tensor, Tensor]:
    """Cells (c, s, d) of n points, padded with zeros: their summary, the centred points, and the products of these.

    With second moments, the products are those of f minus its mean.
    """
    c, s, d = cells.shape
    counts = cells.new_full((c,), s)
    counts[-1] = n - (c - 1) * s
    centres = cells.sum(dim=1) / counts[:, None]
    f = cells.new_empty(c, s, d + 1 if d <= _MOST_DIMENSIONS else d)
    offsets = torch.sub(cells, centres[:, None], out=f[:, :, :d])
    padding = f.view(c * s, -1)[n:].zero_()
    squared = offsets.square().sum(dim=2)
    spreads, radii = squared.sum(dim=1) / counts, squared.amax(dim=1).sqrt()
    if f.shape[2] == d:
        return Summary(counts, centres, spreads, radii, centres[:, :0]), offsets, offsets.mT @ offsets
    # f is [2g, -‖g‖²]; its factors 2 and -1 are applied at the end.
    squared += 2 * (offsets @ centres[:, :, None])[:, :, 0] - spreads[:, None]
    f[:, :, d] = squared
    padding.zero_()
    products = f.mT @ f
    a, b = pairs(d + 1, f.device)
    factors = torch.tensor([2.0] * d + [-1.0], dtype=f.dtype, device=f.device)
    factors = factors[a] * factors[b] * torch.where(a == b, 1.0, 2.0)
    covariances = products[:, a, b].mul_(factors).div_(counts[:, None])
    return Summary(counts, centres, spreads, radii, covariances), offsets, products[:, :d, :d]
