"""Neighbor and Group: the voters on one query, one by one and in groups that vote alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import InputError
from dwac.explain.descriptions import NO_CONDITION, NOTHING, GroupTexts, share_in_words
from dwac.explain.profiles import Comparison
from dwac.explain.rendering import percent
from dwac.explain.votes import Ints, NumberVotes, Votes
from dwac.languages import say
from dwac.reference import Neighbors, ReferenceSet

Floats = NDArray[np.float64]
_COMPARED = 2000  # members of a group that are compared with the query
_ALIKE = 3  # members shown per group
_AT_ONCE = 8  # groups that are compared with the query at once


@dataclass(frozen=True)
class Neighbor:
    """One training example's vote. When private: all examples of one label together.

    >>> from dwac import ReferenceSet
    >>> from dwac.explain import explain
    >>> e = explain(ReferenceSet([[0.0], [1.0], [2.0]], [0, 0, 1], ids=["ann", "bob", "eve"]), [[0.0]], k=1)[0]
    >>> voter = e.neighbors[0]
    >>> voter.id, voter.weight, round(voter.share, 2)
    ('ann', 1.0, 0.72)
    """

    label: Any  # what it votes for: its label, its number, or a tuple of several numbers
    log_weight: float | None  # log w(h, h_i), plus the logs of its own and its class's weight, if any
    weight: float | None  # w; may underflow to 0.0, which `share` does not
    share: float  # share of the votes of all classes together
    id: Any = None
    distance: float | None = None  # ‖h - h_i‖
    record: Any = field(default=None, repr=False)
    size: int = 1  # how many training examples it votes for

    @classmethod
    def of(cls, label: Any, log_weight: float, log_total: float, *, squared_distance: float, **known: Any) -> Neighbor:
        """A vote from its log-weight and the log of all votes; known: its id, record and size."""
        share, distance = float(np.exp(min(log_weight - log_total, 0.0))), float(np.sqrt(squared_distance))
        return cls(label, log_weight, float(np.exp(log_weight)), share, distance=distance, **known)


class Influence(NamedTuple):
    """A training example whose removal moves a prediction."""

    id: Any
    target: float  # the number that it votes for
    share: float  # its share of the vote
    move: float  # prediction without it - prediction
    name: Any = None  # the name of the number that moves, if several are predicted
    record: Any = None


@dataclass(frozen=True)
class Source:
    """The facts about training examples that an explanation shows.

    alike: how different the examples with these ids are from the query in the input, smaller for more similar ones.
    descriptions: of each group of the reference set. record: the explained example itself.
    """

    names: Sequence[Any]  # names of the classes, or of the numbers
    records: Any = None
    alike: Callable[[list[Any]], Floats] | None = None
    descriptions: Sequence[str | None] | None = None
    record: Any = None

    def vote(self, votes: Votes, row: int) -> Any:
        """What a reference votes for."""
        return self.names[votes.labels[row]]

    def group_vote(self, votes: Votes, rows: Ints) -> Any:
        """What the references of a group vote for."""
        return self.vote(votes, int(rows[0]))


@dataclass(frozen=True)
class NumberSource(Source):
    """The facts about training examples that an explanation of a number shows."""

    single: bool = field(default=True, kw_only=True)  # whether one number is predicted, not a tuple with one per name

    def vote(self, votes: Votes, row: int) -> Any:
        """The number, or numbers, of a reference."""
        assert isinstance(votes, NumberVotes)
        return self.unpacked(votes.targets[row].tolist())

    def group_vote(self, votes: Votes, rows: Ints) -> Any:
        """The mean and the range of their numbers."""
        assert isinstance(votes, NumberVotes)
        return self.unpacked(votes.ranges(rows))

    def unpacked(self, values: Sequence[Any]) -> Any:
        """The only value, or a tuple of several."""
        return values[0] if self.single else tuple(values)


class Group:
    """Training examples that vote alike. Its share is the exact sum of its members' votes.

    compare: gives its comparison with the example; None if unknown.

    >>> from dwac import ReferenceSet
    >>> from dwac.explain import explain
    >>> e = explain(ReferenceSet([[0.0], [1.0], [2.0]], [0, 0, 1]), [[0.0]])[0]
    >>> [(group.label, group.size, round(group.share, 2)) for group in e.groups]
    [(0, 2, 0.99), (1, 1, 0.01)]
    """

    def __init__(
        self,
        votes: Votes,
        source: Source,
        code: int,
        *,
        leaf: bool = False,
        compare: Callable[[], Comparison | None] | None = None,
    ) -> None:
        groups = votes.references.groups
        self._votes, self._source, self._code, self._leaf, self._compare = votes, source, code, leaf, compare
        central, sizes = (
            (groups.leaf_representatives, groups.leaf_sizes) if leaf else (groups.representatives, groups.sizes)
        )
        self._central, label = int(central[code]), int(votes.labels[central[code]])
        log_w = votes.leaf_votes[code] if leaf else votes.group_votes[0][code]
        self.share = float(votes.shares(np.array([log_w]), np.array([label]))[0])
        self.size = round(float(sizes[code]))

    @cached_property
    def label(self) -> Any:
        """The label of its members, or the mean and the range of their numbers."""
        return self._source.group_vote(self._votes, self._rows)

    @cached_property
    def _rows(self) -> Ints:
        groups = self._votes.references.groups
        return np.flatnonzero((groups.leaves if self._leaf else groups.of) == self._code)

    def __repr__(self) -> str:
        """Its label, size and share."""
        return f"Group({self.label!r}, {self.size:,} examples, {percent(self.share)} of the vote)"

    @property
    def ids(self) -> list[Any]:
        """The ids of its members, in the order of the reference set; with representatives, only those that vote."""
        return plain_ids(self._votes.references.ids[self._rows])

    @property
    def words(self) -> str | None:
        """What sets its members apart from the other training examples; None if unknown."""
        known = self._source.descriptions
        return None if known is None or self._leaf else known[self._code]

    @cached_property
    def comparison(self) -> Comparison | None:
        """What the example shares with nearly all members, and in what it differs from them; None if unknown."""
        return None if self._compare is None else self._compare()

    @property
    def compared(self) -> str | None:
        """The comparison in words; None if unknown. Of groups whose descriptions alone are known, the description."""
        if not isinstance(self._source.descriptions, GroupTexts):
            return self.words
        if self.comparison is None:
            return None
        return self.comparison.text or say(str(self.words) if self.words in NOTHING.values() else NO_CONDITION)

    @property
    def in_common(self) -> str | None:
        """What the example shares with nearly all members, in words; None if nothing or unknown."""
        if self.comparison is None:
            plain = isinstance(self._source.descriptions, GroupTexts) or self.words in NOTHING.values()
            return None if plain else self.words
        return ", ".join(each.text for each in self.comparison.shared) or None

    @property
    def description(self) -> str | None:
        """The same as `words`, with its share of the training examples."""
        n = round(float(self._votes.references.sizes.sum()))
        return None if self.words is None else f"{self.words}, {share_in_words(self.size, n)}"

    @cached_property
    def representative(self) -> Neighbor:
        """Its most central member."""
        return self._neighbor(self._central)

    @cached_property
    def members(self) -> tuple[Neighbor, ...]:
        """The members most like the query in the input, most similar first.

        Only 2,000 members, evenly spread, are compared. If inputs cannot be compared: the heaviest members.
        """
        rows, differences = self._rows, np.zeros(len(self._rows))
        if self._source.alike is not None:
            rows = rows[np.unique(np.linspace(0, len(rows) - 1, _COMPARED).round().astype(np.int64))]
            differences = self._source.alike(plain_ids(self._votes.references.ids[rows]))
        order = np.lexsort((-self._votes.log_w[rows], differences))  # of equally similar ones the heavier comes first
        return tuple(self._neighbor(int(row)) for row in rows[order[:_ALIKE]])

    @cached_property
    def face(self) -> Neighbor:
        """The member most like the query, with the votes of the whole group: the group as one voter."""
        return replace(self.members[0], share=self.share, size=self.size)

    @cached_property
    def subgroups(self) -> tuple[Group, ...]:
        """The smaller groups it consists of, heaviest first; empty if it is one of those."""
        leaves = np.flatnonzero(self._votes.references.groups.parents == self._code)
        if self._leaf or len(leaves) < 2:
            return ()
        order = np.argsort(-self._votes.leaf_votes[leaves], kind="stable")
        return tuple(Group(self._votes, self._source, leaf, leaf=True) for leaf in leaves[order].tolist())

    def _neighbor(self, row: int) -> Neighbor:
        votes, references = self._votes, self._votes.references
        name = plain_ids(references.ids[row : row + 1])[0]
        return Neighbor.of(
            self._source.vote(votes, row),
            float(votes.log_w[row] + np.log(votes.class_weights[votes.labels[row]])),
            votes.log_total,
            squared_distance=float((references.embeddings[row].double() - votes.h.double()).square().sum()),
            id=name,
            record=record_of(self._source.records, name),
            size=round(float(references.sizes[row])),
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "label": self.label,
            "share": self.share,
            "size": self.size,
            "description": self.description,
            "compared": self.compared,
            "shared": [] if self.comparison is None else [each.text for each in self.comparison.shared],
            "different": [] if self.comparison is None else [each.text for each in self.comparison.different],
            "representative": voter_dict(self.representative),
            "members": [voter_dict(member) for member in self.members],
        }


def groups_of(votes: Votes, source: Source) -> tuple[Group, ...]:
    """All groups, heaviest first."""
    codes = votes.group_order.tolist()
    compare = _Comparisons(source, codes)
    return tuple(Group(votes, source, code, compare=partial(compare, place)) for place, code in enumerate(codes))


class _Comparisons:
    """Compares the example with groups, a few at a time; codes: of the groups, heaviest first."""

    def __init__(self, source: Source, codes: list[int]) -> None:
        self._source, self._codes = source, codes
        self._compared: dict[int, Comparison | None] = {}

    def __call__(self, place: int) -> Comparison | None:
        """The comparison with the group at this place; None if unknown."""
        known, start = self._source.descriptions, place - place % _AT_ONCE
        if place not in self._compared and isinstance(known, GroupTexts):
            some = known.compare_groups(self._source.record, self._codes[start : start + _AT_ONCE])
            self._compared |= dict(enumerate(some, start))
        return self._compared.get(place)


def voter_dict(voter: Neighbor, *, private: bool = False) -> dict[str, Any]:
    """A vote as plain values; when private, only label and share."""
    if private:
        return {"label": voter.label, "share": voter.share}
    names = ("label", "weight", "log_weight", "share", "size", "id", "distance", "record")
    return {name: getattr(voter, name) for name in names}


def read_query(references: ReferenceSet, queries: Any, k: int, records: Any) -> tuple[ReferenceSet, Tensor, int]:
    """A copy of the references, the query embeddings (n, d) on their device, and k, at most the number of references.

    Raise an error unless records can be looked up by id.
    """
    k = min(checks.positive_int(k, "k"), len(references))
    h = checks.float_tensor(queries, "queries").detach().to(references.embeddings.device)
    if records is not None and not isinstance(records, Mapping | pd.DataFrame | pd.Series):
        raise InputError(
            f"records must be a dict by id, or a DataFrame or Series indexed by id; got {type(records).__name__}"
        )
    if isinstance(records, pd.DataFrame | pd.Series) and not records.index.is_unique:
        repeated = records.index[records.index.duplicated()].tolist()[0]
        raise InputError(f"records must have one row per id; {repeated!r} has several; set a unique index")
    return copy(references), h, k


def nearest_voters(
    near: Neighbors, row: int, log_total: float, labels: Sequence[Any], records: Any
) -> tuple[Neighbor, ...]:
    """The nearest references of a query; labels: what each of them votes for."""
    voters = []
    for i, (name, log_w) in enumerate(zip(plain_ids(near.ids[row]), near.log_weights[row].tolist(), strict=True)):
        voters.append(
            Neighbor.of(
                labels[i],
                log_w,
                log_total,
                squared_distance=float(near.squared_distances[row, i]),
                id=name,
                record=record_of(records, name),
                size=round(float(near.sizes[row, i])),
            )
        )
    return tuple(voters)


def plain_ids(names: NDArray[Any]) -> list[Any]:
    """Ids as Python values."""
    return [name.item() if isinstance(name, np.generic) else name for name in names]


def record_of(records: Any, name: Any) -> Any:
    """The training example with this id (a row of a DataFrame becomes a dict); None if there is none."""
    if records is None:
        return None
    if not isinstance(records, pd.DataFrame | pd.Series):
        return records.get(name) or None
    if name not in records.index:
        return None
    record = records.loc[name]
    return record.to_dict() if isinstance(records, pd.DataFrame) else record


def record_items(record: Any) -> Mapping[Any, Any]:
    """A record as columns."""
    return dict(record) if isinstance(record, Mapping) else {"record": record}
