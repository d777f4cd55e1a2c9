"""Groups of training examples that vote alike: how many decide a label, and which are the largest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dwac.estimator.classifier import DWACClassifier
from dwac.explain import explain

_ROWS = 200  # test examples whose votes are summed by group
_HEAVIEST = 5
_AT_ONCE = 16  # whose votes are in memory together


class Deciding(NamedTuple):
    """Over n of N test examples: medians of how many groups, and single voters, decide a label; and of a share."""

    n: int
    of: int
    groups: float
    voters: float
    share: float  # of the vote, held by the five heaviest groups
    few_suffice: float  # the share of these examples that few voters explain


class Large(NamedTuple):
    """A large group of a class: its label, size, description, and the id of its most central member."""

    label: Any
    size: int
    share: float  # of all training examples
    description: str | None
    representative: Any


def deciding(clf: DWACClassifier, h: Any) -> Deciding:
    """How test examples h (N, d) are decided; if there are many, some of them, evenly spread."""
    rows = np.unique(np.linspace(0, len(h) - 1, min(len(h), _ROWS)).astype(np.int64))
    found = []
    for some in np.array_split(rows, -(-len(rows) // _AT_ONCE)):
        for explained in explain(clf.references_, h[some], k=_HEAVIEST):
            share = sum(group.share for group in explained.groups[:_HEAVIEST])
            found.append((explained.deciding_groups or 0, explained.deciding, share, explained.few_suffice))
    groups, voters, shares, few = np.array(found, dtype=np.float64).T
    by_group, by_voter, share = (float(np.median(values)) for values in (groups, voters, shares))
    return Deciding(len(rows), len(h), by_group, by_voter, share, float(few.mean()))


def largest(clf: DWACClassifier, each: int) -> Iterator[Large]:
    """The largest groups of each class, classes in their order."""
    references, described = clf.references_, clf.descriptions_
    groups, names = references.groups, clf.classes_.tolist()
    total = float(groups.sizes.sum())
    for code in range(references.n_classes):
        mine = np.flatnonzero(groups.labels == code)
        for group in mine[np.argsort(-groups.sizes[mine], kind="stable")][:each].tolist():
            size = float(groups.sizes[group])
            text = None if described is None else described[group]
            yield Large(names[code], round(size), size / total, text, references.ids[groups.representatives[group]])
