"""VoteExplanation: what explanations of a label and of a number have in common: voters, groups, tables and pages."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from dwac.drawing.records import plain
from dwac.explain import privacy
from dwac.explain.rendering import STYLE, about, attention, brief, cell, percent, shown
from dwac.explain.voters import Group, Neighbor, Source, groups_of, record_items, voter_dict
from dwac.explain.votes import Votes
from dwac.metrics import Agreement

HALF = 0.5  # of the vote: who holds it explains the prediction
STRANGE = 0.05  # typicality up to which an example is called unlike the training data


@dataclass(frozen=True, eq=False, kw_only=True)
class VoteExplanation:
    """Why one example got its prediction: who voted on it, one by one and in groups."""

    neighbors: tuple[Neighbor, ...]  # nearest first; if private, see the subclass
    n_references: int  # how many vote
    n_examples: int  # how many they vote for: the same number, unless few vote for all
    typicality: float | None = None  # share of calibration examples at least as novel; near 0: unlike anything known
    private: bool = False
    record: Any = None  # the explained example itself
    attention: tuple[tuple[str, float], ...] | None = None  # the words of a text and their attention
    unreadable: str | None = None  # why the example could not be read: nobody voted, the prediction is everybody's
    agreement: Agreement | None = None  # how often the prediction is that of all examples, where few vote for all
    _votes: Votes | None = field(default=None, repr=False)
    _source: Source | None = field(default=None, repr=False)

    # Voters

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """All training examples, in groups of those that vote alike, heaviest first; none if private or unreadable.

        A group's share is the exact sum of its members' votes.
        """
        return () if self._votes is None or self._source is None else groups_of(self._votes, self._source)

    @property
    def few_suffice(self) -> bool:
        """Whether few examples explain the prediction: the neighbours hold half of the vote."""
        return not self.groups or sum(n.share for n in self.neighbors) >= HALF

    @cached_property
    def shown_groups(self) -> tuple[Group, ...]:
        """The groups to show: as many of the heaviest as neighbours."""
        return self.groups[: len(self.neighbors)]

    @cached_property
    def shown(self) -> tuple[Neighbor, ...]:
        """Who to show: the neighbours if few suffice, else one member of each group, the most alike.

        Each of those stands for its group: `share` and `size` are the group's.
        """
        return self.neighbors if self.few_suffice else tuple(group.face for group in self.shown_groups)

    @property
    def _represents(self) -> bool:
        """Whether few vote for all."""
        return self.n_examples != self.n_references

    # Tables

    def to_frame(self) -> pd.DataFrame:
        """One row per neighbour: id, label, weight, share, distance, and the columns of its record."""
        names = ["id", "label", "weight", "log_weight", "share", *(["size"] if self._represents else []), "distance"]
        return self._frame(self.neighbors, names)

    def groups_frame(self) -> pd.DataFrame:
        """One row per group, heaviest first: label, share, size, description, and the id of its representative."""
        columns = ["label", "share", "size", "description", "representative"]
        rows = [(g.label, g.share, g.size, g.description, g.representative.id) for g in self.groups]
        return pd.DataFrame(rows, columns=columns)

    def _shown_frame(self) -> pd.DataFrame:
        """The voters to show, as a table for people."""
        if self.few_suffice:
            return self.to_frame().drop(columns="log_weight", errors="ignore")
        faces = self._frame(self.shown, ["share", "label", "size", "id"])
        if any(group.description for group in self.shown_groups):
            faces.insert(3, "group", [group.description or "" for group in self.shown_groups])
        return faces

    def _frame(self, voters: Sequence[Neighbor], names: Sequence[str]) -> pd.DataFrame:
        if self.unreadable:
            return pd.DataFrame(columns=["label", "weight", "log_weight", "share"])
        if self.private:
            return pd.DataFrame([{"label": n.label, "share": n.share} for n in voters])
        rows = []
        for n in voters:
            record = {} if n.record is None else record_items(n.record)
            # A record may have a column with the name of one of ours: both are kept.
            extra = {f"record.{k}" if k in names else k: v for k, v in record.items()}
            rows.append({name: getattr(n, name) for name in names} | extra)
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, ready for JSON."""
        shown: dict[str, Any] = plain(
            {
                **self._prediction(),
                "typicality": self.typicality,
                "unreadable": self.unreadable,
                "n_references": self.n_references,
                "n_examples": self.n_examples,
                "agreement": None if self.agreement is None else self.agreement._asdict(),
                "private": self.private,
                "record": self.record,
                "attention": self.attention,
                "neighbors": [voter_dict(n, private=self.private) for n in self.neighbors],
                "groups": [group.to_dict() for group in self.shown_groups],
                "n_groups": len(self.groups),
            }
        )
        return shown

    def _prediction(self) -> dict[str, Any]:
        """What is predicted, and how it can change, for `to_dict`."""
        raise NotImplementedError

    # Words

    def sentences(self) -> list[str]:
        """The explanation in plain words, one entry per fact."""
        raise NotImplementedError

    def _typicality_sentences(self) -> list[str]:
        return typicality_sentences(self.typicality, private=self.private)

    @property
    def _voter(self) -> str:
        return "representative" if self._represents else "training example"

    @property
    def _order(self) -> str:
        return "heaviest" if self._represents else "nearest"

    def _voters(self, n: int) -> str:
        """So many training examples, or representatives where few vote for all."""
        return self._voter if n == 1 else f"{n:,} {self._voter}s"

    def _held_by_neighbors(self) -> str:
        """How much of the vote the neighbours have."""
        held, k = percent(sum(n.share for n in self.neighbors)), len(self.neighbors)
        return f"the {self._order} one holds {held}" if k == 1 else f"the {k:,} {self._order} hold {held}"

    def _agreement_sentences(self, same: str) -> list[str]:
        """How many vote for all, and how often they do the same as all."""
        if not self._represents:
            return []
        known = self.agreement and f" They {same} on {self._agreed(self.agreement)}."
        if self.private:
            few, all_ = about(self.n_references), about(self.n_examples)
            return [f"Representatives ({few}) vote for all training examples ({all_}).{known or ''}"]
        return [f"{self.n_references:,} representatives vote for {self.n_examples:,} training examples.{known or ''}"]

    def _agreed(self, known: Agreement) -> str:
        return f"{privacy.percent(known.share)} of calibration rows" if self.private else str(known)

    # Pages

    def __str__(self) -> str:
        """The sentences, then the neighbours as a table."""
        if self.unreadable:
            return "\n".join(self.sentences())
        shown = self._shown_frame().map(brief)
        if self.private or not self.few_suffice:
            written = privacy.percent if self.private else percent
            shown["share"] = shown["share"].map(lambda share: share if isinstance(share, str) else written(share))
        table = shown.to_string(index=False, float_format=lambda v: f"{v:.4g}")
        return "\n".join([*self.sentences(), "", table])

    def to_html(self, *, example: bool = True) -> str:
        """A self-contained HTML fragment: no scripts, no links, every value escaped.

        example: begin with the example itself.
        """
        frame = self._shown_frame()
        head = "".join(f'<th scope="col">{html.escape(str(name))}</th>' for name in frame.columns)
        body = "".join(
            "<tr>" + "".join(cell(str(name), row[i], self.private) for i, name in enumerate(frame.columns)) + "</tr>"
            for row in frame.itertuples(index=False, name=None)
        )
        words = "" if not example else attention(self.attention) if self.attention else shown(self.record)
        words += "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.sentences())
        table = "" if self.unreadable else f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f'<div class="dwac-explanation">{STYLE}{words}{table}</div>'

    def _repr_html_(self) -> str:
        return self.to_html()


def typicality_sentences(typicality: float | None, *, private: bool) -> list[str]:
    """How usual an example is, in words; nothing if that was not measured."""
    if typicality is None:
        return []
    strange = " It is unlike the training data." if typicality <= STRANGE else ""
    share = p_value(typicality, private=private)
    return [f"Typicality{share} of calibration examples are at least as unlike the training examples.{strange}"]


def p_value(value: float, *, private: bool) -> str:
    """A p-value, and the share of calibration examples that it is."""
    return f": {privacy.credibility(value)}" if private else f" {value:.3f}: {privacy.percent(value)}"
