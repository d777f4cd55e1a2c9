"""Groups of training examples that vote alike: how many decide a label, which are typical, and which are strange.

A test example relies on the group with most of the votes on it; if classes are predicted, among groups of the predicted
label. The report and the explorer show the same figures, which are computed here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dwac.estimator.classifier import DWACClassifier
from dwac.explain import explain
from dwac.explain.numbers import in_groups
from dwac.reference import ReferenceSet
from dwac.report.measures import likely_share
from dwac.tasks import NUMBERS

_ROWS = 200  # test examples whose votes are summed by group
_HEAVIEST = 5
_AT_ONCE = 16  # test examples whose votes are in memory together
_SUMS_AT_ONCE = 4096  # test examples whose votes by group are in memory together


class Deciding(NamedTuple):
    """Medians over n of N test examples: how many groups, and single voters, decide a label; and a share."""

    n: int
    of: int
    groups: float
    voters: float
    share: float  # share of the vote held by the five heaviest groups
    few_suffice: float  # the share of these examples that a few voters explain


class ReportGroup(NamedTuple):
    """A group of training examples: position, size, description, central member, and test examples relying on it."""

    place: int
    size: int
    share: float  # share of all training examples
    description: str | None
    representative: Any  # the id of its most central member
    rows: NDArray[np.int64]  # the test examples that rely on it


def deciding(clf: DWACClassifier, h: Any) -> Deciding:
    """How many groups and voters decide test examples h (N, d); with many examples, for an evenly spread sample."""
    rows = np.unique(np.linspace(0, len(h) - 1, min(len(h), _ROWS)).astype(np.int64))
    votes = []
    for some in np.array_split(rows, -(-len(rows) // _AT_ONCE)):
        for explanation in explain(clf.references_, h[some], k=_HEAVIEST):
            share = sum(group.share for group in explanation.groups[:_HEAVIEST])
            votes.append((explanation.deciding_groups or 0, explanation.deciding, share, explanation.few_suffice))
    groups, voters, shares, few = np.array(votes, dtype=np.float64).T
    by_group, by_voter, share = (float(np.median(values)) for values in (groups, voters, shares))
    return Deciding(len(rows), len(h), by_group, by_voter, share, float(few.mean()))


def in_shown_groups(clf: Any) -> tuple[ReferenceSet, list[str | None] | None]:
    """The voters in the groups to show (of numbers: across bins), and what sets each group apart, if known."""
    if clf.target_.kind == NUMBERS:
        return in_groups(clf.references_), clf.sets_.describe_groups(clf.references_)
    return clf.references_, clf.descriptions_


def every_group(
    clf: Any, h: Any, codes: NDArray[np.int64] | None = None, own: NDArray[np.int64] | None = None
) -> list[ReportGroup]:
    """All groups, each with the test examples h (n, d) that rely on it.

    codes: their predicted classes, if any. own: their positions if they are voters; each belongs to its own group.
    """
    references, described = in_shown_groups(clf)
    groups = references.groups
    heaviest = groups.of[own] if own is not None else _heaviest(references, h, codes)
    total = float(groups.sizes.sum())
    return [
        ReportGroup(
            place,
            round(float(size)),
            float(size) / total,
            None if described is None else described[place],
            references.ids[groups.representatives[place]],
            np.flatnonzero(heaviest == place),
        )
        for place, size in enumerate(groups.sizes)
    ]


def _heaviest(references: ReferenceSet, h: Any, codes: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """(n,): the group with most of the votes."""
    heaviest = [np.zeros(0, dtype=np.int64)]
    for start in range(0, len(h), _SUMS_AT_ONCE):
        part = slice(start, start + _SUMS_AT_ONCE)
        votes = references.log_group_weights(h[part])
        if codes is not None:
            votes = np.where(references.groups.labels == codes[part, None], votes, -np.inf)
        heaviest.append(votes.argmax(axis=1))
    return np.concatenate(heaviest)


def largest(groups: list[ReportGroup], labels: NDArray[np.int64], each: int) -> list[ReportGroup]:
    """The largest groups of each class, classes in their order. labels: (G,) the class of each group."""
    by_size = sorted(groups, key=lambda group: -group.size)
    return [group for code in np.unique(labels) for group in [g for g in by_size if labels[g.place] == code][:each]]


def strangest(groups: list[ReportGroup], strange: NDArray[np.bool_], most: int) -> list[ReportGroup]:
    """Groups whose test examples are strange, (n,), more often than average: the statistically surest first."""
    usual = strange.mean()
    worse = (group for group in groups if len(group.rows) and strange[group.rows].mean() > usual)
    least = {group.place: likely_share(strange[group.rows])[0] for group in worse}
    return sorted((group for group in groups if group.place in least), key=lambda group: -least[group.place])[:most]
