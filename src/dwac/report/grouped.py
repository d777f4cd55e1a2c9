"""Groups of training examples that vote alike: how many decide a label, which are typical, and which strange.

A test example relies on the group that has most of the votes on it; of classes, among those of the predicted label.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dwac.estimator.classifier import DWACClassifier
from dwac.explain import explain
from dwac.report.chance import likely_share
from dwac.report.seen import Estimator

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


class Group(NamedTuple):
    """A group of training examples: its place, size, description, most central member; and who relies on it."""

    place: int
    size: int
    share: float  # of all training examples
    description: str | None
    representative: Any  # its id
    rows: NDArray[np.int64]  # test examples


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


def every_group(clf: Estimator, h: Any, codes: NDArray[np.int64] | None = None) -> list[Group]:
    """Each group, and the test examples h (n, d) that rely on it. codes: their predicted classes, if any."""
    references, described = clf.references_, clf.descriptions_
    groups = references.groups
    votes = references.log_group_weights(h)
    if codes is not None:
        votes = np.where(groups.labels == codes[:, None], votes, -np.inf)
    heaviest, total = votes.argmax(axis=1), float(groups.sizes.sum())
    return [
        Group(
            place,
            round(float(size)),
            float(size) / total,
            None if described is None else described[place],
            references.ids[groups.representatives[place]],
            np.flatnonzero(heaviest == place),
        )
        for place, size in enumerate(groups.sizes)
    ]


def largest(groups: list[Group], labels: NDArray[np.int64], each: int) -> list[Group]:
    """The largest groups of each class, classes in their order. labels: (G,) the class of each group."""
    by_size = sorted(groups, key=lambda group: -group.size)
    return [group for code in np.unique(labels) for group in [g for g in by_size if labels[g.place] == code][:each]]


def strangest(groups: list[Group], strange: NDArray[np.bool_], most: int) -> list[Group]:
    """Groups whose test examples are strange, (n,), more often than all: the surest first, as their number allows."""
    usual = strange.mean()
    worse = (group for group in groups if len(group.rows) and strange[group.rows].mean() > usual)
    least = {group.place: likely_share(strange[group.rows])[0] for group in worse}
    return sorted((group for group in groups if group.place in least), key=lambda group: -least[group.place])[:most]
