"""Groups of references within a class: k-means of the embeddings, and a tree that merges them into larger groups.

    tree = divide(embeddings, labels, n_classes, n_leaves=200)
    tree.leaves        # (m,): the leaf of each reference; a leaf never mixes classes
    tree.cut(12)       # (n_leaves,): the group of each leaf when leaves are merged until 12 groups are left

A group's share of a vote is the sum of its members' weights, so it is exact for any choice of groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.kernels import full_precision

Ints = NDArray[np.int64]

SAMPLED = 128  # members per group used to learn the centres; then all members join the nearest centre
FEWEST_SAMPLED = 8192
_ROUNDS = 10
TILE = {"cpu": 2**21, "cuda": 2**27}  # distances held at once
_PART = 2**16  # points held in float64 at once


class EmbeddingRows(Protocol):
    """Embeddings (m, d): a tensor, or rows that are read from a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(m, d)."""

    def split(self, size: int, /) -> Iterable[Tensor]:
        """All rows in order, `size` at a time."""


@dataclass(frozen=True)
class Tree:
    """Leaves, and the order in which they merge: the pair with the smallest spread comes first (Ward)."""

    leaves: Ints  # (m,)
    labels: Ints  # (L,): the class of each leaf
    merges: Ints  # (L - number of classes present, 2): leaves whose groups are joined, cheapest first

    def cut(self, n_groups: int | Ints) -> Ints:
        """(L,): the group of each leaf after merging down to `n_groups`, or to one per class if that is more.

        n_groups: in total, or (K,) for each class.
        """
        merges = self.merges
        if isinstance(n_groups, np.ndarray):
            of = self.labels[merges[:, 0]] if len(merges) else np.zeros(0, dtype=np.int64)
            counts = np.bincount(self.labels, minlength=len(n_groups))
            merges = np.sort(
                np.concatenate(
                    [np.flatnonzero(of == label)[: max(0, counts[label] - most)] for label, most in enumerate(n_groups)]
                )
            )
            merges = self.merges[merges]
        else:
            merges = merges[: max(0, len(self.labels) - n_groups)]
        parent = np.arange(len(self.labels))
        for a, b in merges:
            parent[parent == parent[b]] = parent[a]
        return np.asarray(np.unique(parent, return_inverse=True)[1], dtype=np.int64)


@torch.no_grad()
def divide(embeddings: Tensor, labels: Tensor, n_classes: int, n_leaves: int) -> Tree:
    """Divide references (m, d) into `n_leaves` leaves within their classes (m,); the same result every time.

    Each class gets leaves in proportion to the root of its size, and at least one: a rare class needs more of them than
    its share (docs/notes/few-voters.md). There are fewer leaves if fewer references are distinct: identical ones are
    never divided.
    """
    leaves = torch.zeros_like(labels)
    generator, first = torch.Generator().manual_seed(0), 0
    for label, size in enumerate(apportion_leaves(n_leaves, torch.bincount(labels, minlength=n_classes).cpu().numpy())):
        rows = (labels == label).nonzero()[:, 0]
        if len(rows) == 0:
            continue
        points = embeddings[rows].double()
        points = (points - points.mean(dim=0)).float()  # float32 distances are precise near the centre
        if size >= len(rows):  # each distinct one is a leaf, however near it is to another
            used, codes = embeddings[rows].unique(dim=0, return_inverse=True)
        else:
            used, codes = nearest_centres(points, _centres(points, int(size), generator)).unique(return_inverse=True)
        leaves[rows] = first + codes
        first += len(used)
    return tree_of(embeddings, labels, leaves)


@torch.no_grad()
def tree_of(embeddings: EmbeddingRows, labels: Tensor, leaves: Tensor) -> Tree:
    """The tree above given leaves (m,), numbered 0 … L-1 without gaps; each must be within a class."""
    n_leaves = int(leaves.max()) + 1
    leaf_labels = torch.zeros(n_leaves, dtype=torch.int64, device=labels.device).scatter_(0, leaves, labels)
    sizes = torch.bincount(leaves, minlength=n_leaves).cpu().numpy()
    means, of = _means(embeddings, leaves, n_leaves).cpu().numpy(), leaf_labels.cpu().numpy()
    merges, costs = [np.zeros((0, 2), dtype=np.int64)], [np.zeros(0)]
    for label in np.unique(of):
        rows = np.flatnonzero(of == label)
        pairs, cost = ward(means[rows] - means[rows].mean(axis=0), sizes[rows])
        merges.append(rows[pairs])
        costs.append(cost)
    order = np.argsort(np.concatenate(costs), kind="stable")
    return Tree(leaves.cpu().numpy(), of, np.concatenate(merges)[order])


def central(embeddings: EmbeddingRows, codes: Tensor, n_groups: int, weights: Tensor | None = None) -> Tensor:
    """(n_groups,): the row of each group's most central member: the one nearest to the mean of the group.

    Groups must not be empty. weights: (m,) how much each member counts in the mean. Ties go to the first.
    """
    w = torch.ones_like(codes, dtype=torch.float64) if weights is None else weights.double().to(codes.device)
    totals = torch.zeros(n_groups, dtype=torch.float64, device=codes.device).index_add_(0, codes, w)
    means = torch.zeros(n_groups, embeddings.shape[1], dtype=torch.float64, device=codes.device)
    for points, of, own in _in_parts(embeddings, codes, w):
        means.index_add_(0, of, points * own[:, None])
    means /= totals[:, None]
    squared = torch.cat([(points - means[of]).square_().sum(dim=1) for points, of in _in_parts(embeddings, codes)])
    least = squared.new_full((n_groups,), torch.inf).scatter_reduce_(0, codes, squared, "amin")
    # The mean of two points is equally far from both, up to rounding: the first is chosen.
    rows = torch.arange(len(codes), device=codes.device)
    rows = torch.where(squared <= least[codes] * (1 + 1e-9), rows, len(codes))
    return torch.full_like(totals, len(codes), dtype=torch.int64).scatter_reduce_(0, codes, rows, "amin")


def apportion_leaves(total: int, counts: Ints) -> Ints:
    """(K,): `total` leaves divided among classes by the root of their size, at least one for each with members.

    No class gets more than it has members. The sum is `total`, unless there are more classes or fewer members.
    """
    total = max(min(total, int(counts.sum())), int(np.count_nonzero(counts)))
    shares, sizes = np.sqrt(counts), np.minimum(counts, 1)
    while (short := total - int(sizes.sum())) > 0:  # leaves that full classes cannot take go to the others
        room = shares * (sizes < counts)
        extra = np.floor(np.minimum(short * room / room.sum(), counts - sizes)).astype(np.int64)
        if not extra.any():
            extra[np.argsort(-room, kind="stable")[: min(short, np.count_nonzero(room))]] = 1
        sizes = sizes + extra
    return np.asarray(sizes, dtype=np.int64)


def _centres(points: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """At most `size` centres of k-means, learned from a sample of the points (n, d)."""
    most = max(FEWEST_SAMPLED, SAMPLED * size)
    if len(points) > most:
        points = points[torch.randperm(len(points), generator=generator)[:most].sort().values.to(points.device)]
    centres = _spread_out(points, size, generator)
    codes = None
    for _ in range(_ROUNDS):
        nearest = nearest_centres(points, centres)
        if codes is not None and bool((nearest == codes).all()):
            break
        used, codes = nearest.unique(return_inverse=True)
        centres = _means(points, codes, len(used)).to(points)
    return centres


def _spread_out(points: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Up to `size` distinct points (k-means++), each drawn with a probability that grows with its squared distance."""
    draws = torch.rand(size, generator=generator, dtype=torch.float64).to(points.device)
    chosen = [int(draws[0] * len(points))]
    squared = (points - points[chosen[0]]).square().sum(dim=1)
    for draw in draws[1:]:
        reach = squared.double().cumsum(0)
        if float(reach[-1]) == 0:
            break  # all other points are copies of chosen ones
        chosen.append(min(int(torch.searchsorted(reach, draw * reach[-1], right=True)), len(points) - 1))
        squared = torch.minimum(squared, (points - points[chosen[-1]]).square().sum(dim=1))
    return points[chosen]


def nearest_centres(points: Tensor, centres: Tensor) -> Tensor:
    """(n,): the nearest centre (L, d) of each point (n, d); both near 0, where float32 distances are precise."""
    folded = torch.cat([-2 * centres, centres.square().sum(dim=1, keepdim=True)], dim=1).mT.contiguous()
    step = max(1, TILE.get(points.device.type, 2**21) // len(centres))
    nearest = torch.empty(len(points), dtype=torch.int64, device=points.device)
    for start in range(0, len(points), step):
        part = points[start : start + step]
        with full_precision(points.device):
            product = torch.addmm(folded[-1], part, folded[:-1])
        nearest[start : start + step] = product.argmin(dim=1)
    return nearest


def _means(points: EmbeddingRows, codes: Tensor, n_groups: int) -> Tensor:
    """(n_groups, d) float64."""
    totals = torch.zeros(n_groups, points.shape[1], dtype=torch.float64, device=codes.device)
    for part, of in _in_parts(points, codes):
        totals.index_add_(0, of, part)
    return totals / torch.bincount(codes, minlength=n_groups)[:, None]


def _in_parts(points: EmbeddingRows, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Points in float64 and the matching rows of `others`, in parts: no copy of all points is made."""
    for part, *rest in zip(points.split(_PART), *(other.split(_PART) for other in others), strict=True):
        yield part.double(), *rest


def ward(means: NDArray[np.float64], sizes: Ints) -> tuple[Ints, NDArray[np.float64]]:
    """Merge groups with these means (n, d) and sizes (n,) pairwise, by chains of nearest neighbours.

    Returns the pairs (n - 1, 2), one leaf from each side, and how much each merge adds to the sum of squares.
    """
    n = len(means)
    size = sizes.astype(np.float64)
    norms = np.square(means).sum(axis=1)
    squared = np.maximum(norms[:, None] + norms - 2 * means @ means.T, 0)
    cost = squared * (size[:, None] * size / (size[:, None] + size))
    np.fill_diagonal(cost, np.inf)
    pairs, costs = np.empty((max(0, n - 1), 2), dtype=np.int64), np.empty(max(0, n - 1))
    active = np.ones(n, dtype=bool)
    chain: list[int] = []
    for merge in range(n - 1):
        if not chain:
            chain.append(int(active.argmax()))
        while True:
            last = chain[-1]
            nearest = int(cost[last].argmin())
            if len(chain) > 1 and cost[last, chain[-2]] <= cost[last, nearest]:
                nearest = chain[-2]
                break
            chain.append(nearest)
        del chain[-2:]
        a, b = min(last, nearest), max(last, nearest)
        pairs[merge], costs[merge] = (a, b), cost[a, b]
        # Ward's cost of the next merge, from the three previous costs (Lance and Williams).
        total = size[a] + size[b] + size
        with np.errstate(invalid="ignore"):
            joined = ((size[a] + size) * cost[a] + (size[b] + size) * cost[b] - size * cost[a, b]) / total
        joined[~active] = np.inf
        joined[[a, b]] = np.inf
        active[b] = False
        size[a] += size[b]
        cost[a], cost[:, a] = joined, joined
        cost[b], cost[:, b] = np.inf, np.inf
    return pairs, costs
