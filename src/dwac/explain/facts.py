"""VoteFacts: what explanations of labels and of numbers have in common: voters, groups, reasons and tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from dwac import _checks as checks
from dwac.drawing.legend import NO_LEGEND, Legend
from dwac.drawing.records import kind_of, plain_dict
from dwac.errors import InputError
from dwac.explain import privacy
from dwac.explain.descriptions import GroupTexts
from dwac.explain.profiles import Condition
from dwac.explain.reasons import RANDOM, Example, Reasoner, Reasons
from dwac.explain.turning import Turn
from dwac.explain.voters import Group, Neighbor, Source, groups_of, record_items, voter_dict
from dwac.explain.votes import Votes
from dwac.languages import YesNo, label_name, spoken
from dwac.metrics import Agreement

_OWN = ("id", "label", "weight", "log_weight", "share", "size", "distance", "examples", "most alike", "group")
HALF = 0.5  # share of the vote: voters that hold it explain the prediction
_RARE, _TELLING, _NAMED = 0.5, 0.1, 3  # shared conditions: share of the others, least worth in nats, how many


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class VoteFacts:
    """Who voted on one example, one by one and in groups, and what decides."""

    neighbors: tuple[Neighbor, ...]  # nearest first; if private, see the subclass
    n_references: int  # how many vote
    n_examples: int  # how many they vote for: the same number, unless representatives vote for all
    typicality: float | None = None  # share of calibration examples at least as novel; near 0: unlike anything known
    private: bool = False
    record: Any = None  # the explained example itself
    attention: tuple[tuple[str, float], ...] | None = None  # the words of a text and their attention
    unreadable: str | None = None  # why the example could not be read: no votes and no prediction
    unknown: str | None = None  # values of the example that the training data never had: "job=pilot"
    agreement: Agreement | None = None  # how often representatives predict the same as all examples
    legend: Legend = NO_LEGEND  # what columns and codes are called
    _votes: Votes | None = field(default=None, repr=False)
    _source: Source | None = field(default=None, repr=False)
    _question: Reasoner = field(default=Reasoner(), repr=False)

    # Voters

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """All training examples in groups that vote alike, heaviest first; empty if private or unreadable.

        A group's share is the exact sum of its members' votes.
        """
        return () if self._votes is None or self._source is None else groups_of(self._votes, self._source)

    @property
    def few_suffice(self) -> bool:
        """Whether a few examples explain the prediction: the neighbours hold half of the vote."""
        return not self.groups or sum(n.share for n in self.neighbors) >= HALF

    @cached_property
    def shown_groups(self) -> tuple[Group, ...]:
        """The groups to show: the heaviest, as many as there are neighbours."""
        return self.groups[: len(self.neighbors)]

    @cached_property
    def shown(self) -> tuple[Neighbor, ...]:
        """The voters to show: the neighbours if a few suffice, else the member of each group most like the example.

        Such a member represents its group: `share` and `size` are the group's.
        """
        return self.neighbors if self.few_suffice else tuple(group.face for group in self.shown_groups)

    @cached_property
    def n_effective(self) -> float | None:
        """The effective number of voters, 1 / Σ share²: as many with equal votes would weigh as much.

        A representative counts for all that it votes for. None if unreadable, or private: a network that memorised its
        training rows would reveal them by it.
        """
        return None if self._votes is None else self._votes.n_effective

    @property
    def vote_interval(self) -> Any:
        """(low, high): where the probability, or the mean of the votes, would be if the voters were drawn again (95 %).

        It says how sure the vote itself is: few voters make it wide, however they vote. It is no interval for the true
        label or number. None if private or unreadable.
        """
        raise NotImplementedError

    @cached_property
    def shared(self) -> tuple[Condition, ...]:
        """What the example shares with nearly all that voted for the prediction, and few others have; best first.

        Empty if private or unreadable. Numbers: what it shares with nearly all of the vote.
        """
        known = None if self._source is None else self._source.descriptions
        if self._votes is None or not isinstance(known, GroupTexts):
            return ()
        weights, rest = self._votes.sides(self._votes.references.groups.sizes)
        if self.few_suffice:
            shares = np.array([voter.share for voter in self._supporters])
            compared = known.compare_rows(self.record, [voter.record for voter in self._supporters], shares, rest)
        else:
            compared = known.compare(self.record, weights, rest)
        shared = () if compared is None else compared.shared
        return tuple(each for each in shared if each.elsewhere <= _RARE and each.worth >= _TELLING)[:_NAMED]

    @property
    def _supporters(self) -> Sequence[Neighbor]:
        """The neighbours that voted for the prediction."""
        return self.neighbors

    @property
    def _represents(self) -> bool:
        """Whether representatives vote for all examples."""
        return self.n_examples != self.n_references

    # Reasons

    def reasons(
        self,
        against: Any = None,
        precedents: int | str = 1,
        tied: Sequence[Collection[Any]] = (),
        *,
        example: Any = None,
        **which: Any,
    ) -> Reasons:
        """The columns, phrases or patches that decide between this example and a real precedent, with their shares.

        The precedent is the voter most like the example, as inputs, among those that the model gives the other label.
        The parts in which the two differ are taken from one or the other in all combinations, and the model is asked
        about each; the contributions add up exactly to the difference between the two cases.

        Args:
            against: another label, by default the runner-up; or the id of a training example to compare with. For a
                number: a range (low, high), by default any number at least half a standard deviation away.
            precedents: with how many precedents to compare; contributions are then means. "random": with ten training
                examples drawn at random (the same in every call), whatever the model gives them: what matters on
                average.
            tied: groups of columns that move together, such as [["height", "weight"]].
            example: the id of a training example to compare with, also where that is the name of a label.
            which: name=…, if several numbers are predicted.
        """
        if self.unreadable:
            raise InputError(f"an example that could not be read has no reasons: {self.unreadable}")
        if isinstance(precedents, str) and precedents != RANDOM:
            raise InputError(f"precedents must be a whole number or {RANDOM!r}; got {precedents!r}")
        n = precedents if isinstance(precedents, str) else checks.positive_int(precedents, "precedents")
        if example is not None and against is not None:
            raise InputError(f"give either against or example, not both; got {against!r} and {example!r}")
        return self._question(against if example is None else Example(example), n, tied, **which)

    @cached_property
    def main_reasons(self) -> Reasons | None:
        """The reasons against the runner-up, for a row of a table; None if private, or if there is no precedent.

        A private explanation keeps no reasons, but `reasons()` computes them.
        """
        if self.private or self.unreadable or kind_of(self.record) != "table":
            return None
        try:
            return self.reasons()
        except InputError:  # no model to ask, or no training example with another outcome
            return None

    @cached_property
    def turn(self) -> Turn | None:
        """The phrases of a text or patches of an image that decide, for a sentence; None if private or not known."""
        if self.private or self.unreadable or kind_of(self.record) not in ("text", "image"):
            return None
        try:
            turn: Turn | None = self._question.turn()
        except InputError:  # no training example with another outcome, or nothing readable is left
            return None
        return turn

    # Tables

    def to_frame(self) -> pd.DataFrame:
        """One row per neighbour: id, label, weight, share, distance, and the columns of its record."""
        if self.unreadable:
            return pd.DataFrame(columns=["label", "weight", "log_weight", "share"])
        if self.private:
            return pd.DataFrame([{"label": n.label, "share": n.share} for n in self.neighbors])
        names = ["id", "label", "weight", "log_weight", "share", *(["size"] if self._represents else []), "distance"]
        rows = []
        for n in self.neighbors:
            record = {} if n.record is None else record_items(n.record)
            rows.append(
                {name: getattr(n, name) for name in names} | {self._title(key): value for key, value in record.items()}
            )
        return pd.DataFrame(rows)

    def groups_frame(self) -> pd.DataFrame:
        """One row per group, heaviest first: label, share, size, description, and the id of its representative."""
        columns = ["label", "share", "size", "description", "representative"]
        rows = [(g.label, g.share, g.size, g.description, g.representative.id) for g in self.groups]
        return pd.DataFrame(rows, columns=columns)

    def _shown_votes(self) -> pd.DataFrame:
        """The votes of the voters to show, as a table for people; without their records."""
        if self.private or self.unreadable:
            names = ["label", "share"]
        elif self.few_suffice:
            names = ["share", "label", "id", *(["size"] if self._represents else []), "distance"]
        else:
            names = ["share", "label", "size", "id"]
        frame = pd.DataFrame([{name: getattr(n, name) for name in names} for n in self.shown], columns=names)
        frame["label"] = [label_name(n.label) if isinstance(n.label, YesNo) else n.label for n in self.shown]
        if self.few_suffice:
            return frame
        frame = frame.rename(columns={"size": "examples", "id": "most alike"})
        if any(group.compared for group in self.shown_groups):
            frame["group"] = [group.compared or "" for group in self.shown_groups]
        return frame

    def _shown_records(self) -> pd.DataFrame:
        """The records of the voters to show, in the same order, for people.

        Columns that compare the example with the shown groups come first.
        """
        frame = pd.DataFrame([{} if n.record is None else self._read_record(n.record) for n in self.shown])
        return frame[self._order_columns(list(frame))]

    def _read_record(self, record: Any) -> dict[Any, Any]:
        """A record as columns, with the meanings of codes."""
        return {name: self.legend.meaning(name, value) or value for name, value in record_items(record).items()}

    def _order_columns(self, columns: Sequence[Any]) -> list[Any]:
        """The columns of records; those that compare the example with the shown groups come first."""
        places: dict[Any, int] = {}
        for group in self.shown_groups:
            for column in () if group.comparison is None else group.comparison.columns:
                places.setdefault(column, len(places))
        for part in () if places else ", ".join(group.words or "" for group in self.shown_groups).split(", "):
            column = max(
                (name for name in columns if part.startswith(f"{self.legend.title(name)} ")),
                key=lambda n: len(str(n)),
                default="",
            )
            places.setdefault(column, len(places))
        return sorted(columns, key=lambda name: places.get(name, len(places)))

    def _title(self, key: Any) -> Any:
        """The name of a column of records, changed where it would clash with one of our own columns."""
        return f"record.{key}" if key in self._own_names else key

    @property
    def _own_names(self) -> tuple[str, ...]:
        """The columns of any table of voters that do not come from records."""
        return _OWN

    @spoken
    def to_dict(self, *, language: str | None = None) -> dict[str, Any]:
        """Everything as plain Python values, ready for JSON; language: of the texts, such as "de"."""
        del language  # see `spoken`
        return plain_dict(
            {
                **self._prediction(),
                "typicality": self.typicality,
                "unreadable": self.unreadable,
                "unknown": self.unknown,
                "n_references": self.n_references,
                "n_examples": self.n_examples,
                "n_effective": self.n_effective,
                "vote_interval": self.vote_interval,
                "agreement": None if self.agreement is None else self.agreement._asdict(),
                "private": self.private,
                "record": self.record,
                "attention": self.attention,
                "neighbors": [voter_dict(n, private=self.private) for n in self.neighbors],
                "groups": [group.to_dict() for group in self.shown_groups],
                "n_groups": len(self.groups),
                **({"columns": self.legend.to_dict()} if self.legend else {}),
            }
        )

    def _prediction(self) -> dict[str, Any]:
        """The prediction, and what would change it, for `to_dict`."""
        raise NotImplementedError

    def _private_values(self) -> dict[str, Any]:
        """The fields that every private explanation rounds or drops."""
        return {
            "n_references": privacy.count(self.n_references),
            "n_examples": privacy.count(self.n_examples),
            "attention": self.attention and tuple((word, privacy.share(weight)) for word, weight in self.attention),
            "agreement": self.agreement and privacy.agreement(self.agreement),
            "private": True,
            "_votes": None,
            "_source": None,
        }
