"""Groups of references that vote alike. Small groups (leaves) are for voting, larger ones for people to read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.engine.groups import central, divide, tree_of

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_LEAVES = 1000
_PER_CLASS, _IN_ALL = 12, 240  # groups for people to read
_MEMBERS = 25  # references of a class per group


class Division(NamedTuple):
    """How m references are divided: the part of `Groups` that edits keep."""

    leaves: Ints  # (m,): the leaf of each reference
    parents: Ints  # (L,): the group of each leaf
    factors: Floats  # (L,): votes of each leaf's representative / number of its members

    def without_gaps(self) -> Division:
        """Drop leaves and groups without members, and renumber the rest in order."""
        used, leaves = np.unique(self.leaves, return_inverse=True)
        parents = np.unique(self.parents[used], return_inverse=True)[1]
        return Division(np.asarray(leaves), np.asarray(parents), self.factors[used])


def default_leaves(m: int, n_classes: int) -> int:
    """The default number of leaves for m references."""
    return int(max(2 * n_classes, min(2 * np.sqrt(m) * max(1, np.sqrt(n_classes / 2)), _LEAVES)))


def default_groups(counts: Ints) -> Ints:
    """(K,): the number of groups for people to read, given the number of references of each class.

    There are twelve per class, fewer if classes are many or small. On the paper's datasets, three groups then decide a
    label (docs/notes/few-voters.md).
    """
    per_class = int(np.clip(_IN_ALL // max(1, int(np.count_nonzero(counts))), 1, _PER_CLASS))
    return np.asarray(np.clip(counts // _MEMBERS, 1, per_class))


class GroupTargets(NamedTuple):
    """Summary of the T targets of the members of each of G groups; every field is (G, T)."""

    means: Floats
    lowest: Floats
    highest: Floats


@dataclass(frozen=True, eq=False)
class Groups:
    """A division of m references into L leaves, and of the leaves into G groups, each within one class.

    `sizes` count examples: a reference that stands for several counts as that many. The representative of a group or
    leaf is its most central member, as a row of the reference set.

    >>> from dwac import ReferenceSet
    >>> groups = ReferenceSet([[0.0], [0.1], [5.0], [5.1]], [0, 0, 1, 1]).groups
    >>> len(groups), groups.labels, groups.sizes
    (2, array([0, 1]), array([2., 2.]))
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

    def targets(self, targets: Any, sizes: Any = None) -> GroupTargets:
        """The mean and the range of the targets (m, T) of each group's members.

        sizes: (m,) how many examples each member counts for in the mean; by default one.
        """
        y, counts = np.asarray(targets, dtype=np.float64), np.ones(len(self.of)) if sizes is None else np.asarray(sizes)
        order = np.argsort(self.of, kind="stable")
        starts = np.searchsorted(self.of[order], np.arange(len(self)))
        lowest, highest = (best.reduceat(y[order], starts) for best in (np.minimum, np.maximum))
        above = (y - lowest[self.of]) * counts[:, None]  # a common offset costs no precision
        totals = np.add.reduceat(counts[order], starts)[:, None]
        means = lowest + np.add.reduceat(above[order], starts) / totals
        return GroupTargets(np.clip(means, lowest, highest), lowest, highest)

    @classmethod
    def build(
        cls, embeddings: Any, labels: Tensor, sizes: Tensor | None, leaves: Ints, parents: Ints | None = None
    ) -> Groups:
        """Build groups from the leaf of each reference (m,), without gaps, and the group of each leaf (default: Ward).

        sizes: (m,) how many examples each reference stands for; by default one.
        """
        codes = torch.as_tensor(leaves, device=labels.device)
        n_leaves = int(codes.max()) + 1
        y, w = labels.cpu().numpy(), None if sizes is None else sizes.cpu().numpy()
        if parents is None:
            counts = np.bincount(y, w).round().astype(np.int64)
            parents = tree_of(embeddings, labels, codes).cut(default_groups(counts))
        first = central(embeddings, codes, n_leaves, sizes).cpu().numpy()
        groups = torch.as_tensor(parents, device=codes.device)[codes]
        second = central(embeddings, groups, int(parents.max()) + 1, sizes).cpu().numpy()
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


def find_groups(embeddings: Tensor, labels: Tensor, sizes: Tensor | None, n_classes: int) -> Groups:
    """The default groups of references (m, d)."""
    tree = divide(embeddings, labels, n_classes, default_leaves(len(labels), n_classes))
    w = None if sizes is None else sizes.cpu().numpy()
    parents = tree.cut(default_groups(np.bincount(labels.cpu().numpy(), w).round().astype(np.int64)))
    return Groups.build(embeddings, labels, sizes, tree.leaves, parents)
