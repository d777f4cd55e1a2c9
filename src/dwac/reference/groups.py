"""Groups: which references vote alike. Small groups (leaves) stand for voting, larger ones for reading."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.engine.groups import Tree, central, divide, tree_of

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_READABLE = 36  # groups for reading, all classes together
_PER_CLASS = 6


def default_leaves(m: int, n_classes: int) -> int:
    """How many leaves m references are divided into by default."""
    return int(np.clip(2 * np.sqrt(m), 2 * n_classes, max(1000, 2 * n_classes)))


def default_groups(n_classes: int) -> int:
    """How many groups a person reads: at most six per class, and few in total; at least one per class."""
    return max(n_classes, min(_PER_CLASS * n_classes, _READABLE))


@dataclass(frozen=True, eq=False)
class Groups:
    """A division of m references into L leaves, and of the leaves into G groups, each within one class.

    `sizes` count examples: a reference that votes for several counts as many. The representative of a group or leaf is
    its most central member, as a row of the reference set.
    """

    leaves: Ints  # (m,): the leaf of each reference
    parents: Ints  # (L,): the group of each leaf
    labels: Ints  # (G,)
    sizes: Floats  # (G,)
    representatives: Ints  # (G,)
    leaf_labels: Ints  # (L,)
    leaf_sizes: Floats  # (L,)
    leaf_representatives: Ints  # (L,)

    def __len__(self) -> int:
        """G, the number of groups."""
        return len(self.labels)

    @cached_property
    def of(self) -> Ints:
        """(m,): the group of each reference."""
        return np.asarray(self.parents[self.leaves])

    def members(self, group: int) -> Ints:
        """The rows of a group's members."""
        return np.flatnonzero(self.of == group)

    @classmethod
    def build(
        cls, embeddings: Tensor, labels: Tensor, weights: Tensor | None, leaves: Ints, parents: Ints | None = None
    ) -> Groups:
        """From the leaf of each reference (m,), without gaps, and the group of each leaf; by default found by Ward."""
        codes = torch.as_tensor(leaves, device=labels.device)
        n_leaves = int(codes.max()) + 1
        if parents is None:
            n_classes = len(labels.unique())
            parents = tree_of(embeddings, labels, codes).cut(default_groups(n_classes))
        y, w = labels.cpu().numpy(), None if weights is None else weights.cpu().numpy()
        first = central(embeddings, codes, n_leaves, weights).cpu().numpy()
        groups = torch.as_tensor(parents, device=codes.device)[codes]
        second = central(embeddings, groups, int(parents.max()) + 1, weights).cpu().numpy()
        return cls(
            leaves,
            parents,
            labels=y[second],
            sizes=np.bincount(parents[leaves], w).astype(np.float64),
            representatives=second,
            leaf_labels=y[first],
            leaf_sizes=np.bincount(leaves, w).astype(np.float64),
            leaf_representatives=first,
        )


def found(embeddings: Tensor, labels: Tensor, weights: Tensor | None, n_classes: int) -> Groups:
    """The default groups of references (m, d)."""
    tree: Tree = divide(embeddings, labels, n_classes, default_leaves(len(labels), n_classes))
    parents = tree.cut(default_groups(len(labels.unique())))
    return Groups.build(embeddings, labels, weights, tree.leaves, parents)


def without_gaps(leaves: Ints, parents: Ints) -> tuple[Ints, Ints]:
    """Leaves and groups that still have members, numbered anew in their order."""
    used, leaves = np.unique(leaves, return_inverse=True)
    return np.asarray(leaves), np.asarray(np.unique(parents[used], return_inverse=True)[1])
