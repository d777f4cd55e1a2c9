"""Explanation: who voted, with what weight, how few votes decide, and whose removal would change the label.

references = model.references
explanation = explain(references, h, k=5)[0]
print(explanation)
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from dwac.drawing.neighbors import draw_explanation
from dwac.drawing.records import plain
from dwac.errors import PrivacyError
from dwac.explain import privacy
from dwac.explain.descriptions import NOTHING, summary
from dwac.explain.rendering import STYLE, about, attention, brief, cell, example, percent
from dwac.explain.voters import Group, Neighbor, Source, groups_of, record_items, voter_dict
from dwac.explain.votes import Votes
from dwac.metrics import Agreement

_WHATEVER = "it would be the same whatever labels all others had"
_NUMBERS = {2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six", 7: "Seven", 8: "Eight", 9: "Nine", 10: "Ten"}
_HALF, _FEW = 0.5, 10
STRANGE = 0.05  # typicality up to which an example is called unlike the training data


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why one example got its label; made by `dwac.explain.explain`.

    `confidence`, `credibility`, `typicality` and `p_values` are None if no calibration was given. A `private`
    explanation holds labels and numbers rounded by `dwac.explain.privacy`; no attribute holds an id, record, distance,
    weight or exact vote.
    """

    label: Any
    probability: float
    probabilities: dict[Any, float]
    neighbors: tuple[Neighbor, ...]  # nearest first; if private, one per label with votes, largest share first
    n_references: int  # how many vote
    n_examples: int  # how many they vote for: the same number, unless few vote for all
    confidence: float | None = None
    credibility: float | None = None
    typicality: float | None = None  # share of calibration examples at least as novel; near 0: unlike anything known
    p_values: dict[Any, float] | None = None
    private: bool = False
    record: Any = None  # the explained example itself
    attention: tuple[tuple[str, float], ...] | None = None  # the words of a text and their attention
    unreadable: str | None = None  # why the example could not be read: no votes, probabilities are the classes' shares
    agreement: Agreement | None = None  # how often the label is that of all examples, where few vote for all
    _votes: Votes | None = field(default=None, repr=False)
    _source: Source | None = field(default=None, repr=False)
    _counts: tuple[int, int | None] | None = field(default=None, repr=False)  # deciding, flip_size: if not from votes

    @cached_property
    def deciding(self) -> int:
        """The least number of nearest examples that decide the label, whatever labels the others have (certified).

        Where examples have weights, of those with the heaviest votes.
        """
        return self._counts[0] if self._counts else self._held.deciding()

    @cached_property
    def flip_size(self) -> int | None:
        """The least number of training examples whose removal changes the label; None if no removal does.

        Where few vote for all, the number of representatives, each of which goes with all it votes for.
        """
        return self._counts[1] if self._counts else self._held.flip_size()

    def flip_set(self) -> list[Any] | None:
        """Ids of a smallest set of training examples whose removal changes the label; None if there is no such set.

        No smaller set suffices: only the removal of votes for the label helps, and these are the heaviest. Where few
        vote for all, these are the ids of all whom the fewest representatives vote for: if one of those alone was
        removed, another would take its place.
        """
        if self.private:
            raise PrivacyError("a private explanation holds no ids; use flip_size for the number of examples")
        return None if self.unreadable else self._held.flip_ids()

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """All training examples, in groups of those that vote alike, heaviest first; none if private or unreadable.

        A group's share is the exact sum of its members' votes.
        """
        return () if self._votes is None or self._source is None else groups_of(self._votes, self._source)

    @cached_property
    def deciding_groups(self) -> int | None:
        """The least number of heaviest groups that decide the label, whatever labels all others have (certified).

        None if private or unreadable.
        """
        return None if self._votes is None else self._votes.deciding_groups()

    @property
    def few_suffice(self) -> bool:
        """Whether few examples explain the prediction: ten decide it, or the neighbours hold half of the vote."""
        return not self.groups or self.deciding <= _FEW or sum(n.share for n in self.neighbors) >= _HALF

    @cached_property
    def shown_groups(self) -> tuple[Group, ...]:
        """The groups to show: as many of the heaviest as neighbours, and the heaviest for another label."""
        heaviest = self.groups[: len(self.neighbors)]
        rival = next((group for group in self.groups if group.label != self.label), None)
        return heaviest if rival is None or rival in heaviest else (*heaviest, rival)

    @cached_property
    def shown(self) -> tuple[Neighbor, ...]:
        """Who to show: the neighbours if few suffice, else one member of each group, the most alike.

        Each of those stands for its group: `share` and `size` are the group's.
        """
        return self.neighbors if self.few_suffice else tuple(group.face for group in self.shown_groups)

    @property
    def _held(self) -> Votes:
        assert self._votes is not None
        return self._votes

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

    @property
    def _represents(self) -> bool:
        """Whether few vote for all."""
        return self.n_examples != self.n_references

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, ready for JSON."""
        shown: dict[str, Any] = plain(
            {
                "label": self.label,
                "probability": self.probability,
                "probabilities": self.probabilities,
                "confidence": self.confidence,
                "credibility": self.credibility,
                "typicality": self.typicality,
                "p_values": self.p_values,
                "unreadable": self.unreadable,
                "deciding": None if self.unreadable else self.deciding,
                "deciding_groups": self.deciding_groups,
                "flip_size": self.flip_size,
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

    def sentences(self) -> list[str]:
        """The explanation in plain words, one entry per fact."""
        probability = privacy.percent(self.probability) if self.private else f"{self.probability:.3f}"
        if self.unreadable:
            return [
                f"This example could not be read: {self.unreadable}.",
                f"No training example voted on it. {self.label} is shown only because it is the most common label, "
                f"with {probability} of all votes; no label is credible.",
            ]
        facts = [f"Predicted {self.label} with probability {probability}.", *self._trust_sentences()]
        return [*facts, *self._deciding_sentences(), self._flip_sentence(), *self._agreement_sentences()]

    def _trust_sentences(self) -> list[str]:
        if self.credibility is None or self.confidence is None:
            return []
        confidence = privacy.confidence(self.confidence) if self.private else f"{self.confidence:.3f}"
        return [
            *self._typicality_sentences(),
            f"Credibility{self._share(self.credibility)} of calibration examples fit their own label no better.",
            f"Confidence {confidence}: how clearly every other label is ruled out.",
        ]

    def _typicality_sentences(self) -> list[str]:
        if self.typicality is None:
            return []
        strange = " It is unlike the training data." if self.typicality <= STRANGE else ""
        share = self._share(self.typicality)
        return [f"Typicality{share} of calibration examples are at least as unlike the training examples.{strange}"]

    def _share(self, p_value: float) -> str:
        if self.private:
            return f": {privacy.credibility(p_value)}"
        return f" {p_value:.3f}: {privacy.percent(p_value)}"

    def _deciding_sentences(self) -> list[str]:
        if self.private:
            of_all = f"{about(self.deciding)} of {about(self.n_references)}"
            return [f"The {self._order} {self._voter}s ({of_all}) decide the label: {_WHATEVER}."]
        if self.deciding == 0:
            return ["There is only one label to choose from."]
        if self.few_suffice:
            return [self._few_sentence()]
        return [self._many_sentence(), self._groups_sentence(), *self._vote_sentences()]

    @property
    def _voter(self) -> str:
        return "representative" if self._represents else "training example"

    @property
    def _order(self) -> str:
        return "heaviest" if self._represents else "nearest"

    def _voters(self, n: int) -> str:
        """So many training examples, or representatives where few vote for all."""
        return self._voter if n == 1 else f"{n:,} {self._voter}s"

    def _few_sentence(self) -> str:
        rest = self.n_references - self.deciding
        if rest == 0 and self.deciding == 1:
            return f"The only {self._voter} decides the label."
        if rest == 0:
            return f"All {self._voters(self.deciding)} are needed to decide the label."
        decide = "decides" if self.deciding == 1 else "decide"
        others = f"whatever label{'s' * (rest > 1)} the other {self._voters(rest)} had"
        return f"The {self._order} {self._voters(self.deciding)} {decide} the label: it would be the same {others}."

    def _many_sentence(self) -> str:
        """Plainly, that few examples do not explain the prediction."""
        held, k = percent(sum(n.share for n in self.neighbors)), len(self.neighbors)
        some = f"the {self._order} one holds" if k == 1 else f"the {k:,} {self._order} hold"
        return (
            f"A few {self._voter}s do not explain it: {some} {held} of the vote, and {self.deciding:,} are needed to "
            "decide the label."
        )

    def _groups_sentence(self) -> str:
        few = self.deciding_groups or 0
        size = sum(group.size for group in self.groups[:few])
        if len(self.groups) == 1:
            return f"All {self.n_examples:,} training examples form one group, which decides the label."
        if few == len(self.groups):
            return f"All {few} groups are needed to decide the label."
        groups = "One group" if few == 1 else f"{_NUMBERS.get(few, str(few))} groups"
        verb = "decides" if few == 1 else "decide"
        return f"{groups}, {size:,} of {self.n_examples:,} training examples, {verb} the label: {_WHATEVER}."

    def _vote_sentences(self) -> list[str]:
        """The whole vote, by what sets its heaviest groups apart."""
        words = [None if group.words in NOTHING.values() else group.words for group in self.groups]
        words = [
            text if text is None or group.label == self.label else f"for {group.label}, {text}"
            for text, group in zip(words, self.groups, strict=True)
        ]
        told = summary(words, [group.share for group in self.groups])
        return [] if told is None else [f"In words, {told}."]

    def _flip_sentence(self) -> str:
        if self.flip_size is None:
            return "No removal of training examples would change the label."
        if self.private:
            return f"Removing {about(self.flip_size)} {self._voter}s would change the label."
        if self._represents and self.flip_size == 1:
            return "Removing a single representative, with the examples it votes for, would change the label."
        if self._represents:
            few = f"as few as {self._voters(self.flip_size)}"
            return f"Removing {few}, with the examples they vote for, would change the label."
        few = "a single training example" if self.flip_size == 1 else f"as few as {self.flip_size:,} training examples"
        return f"Removing {few} would change the label."

    def _agreement_sentences(self) -> list[str]:
        if not self._represents:
            return []
        known = self.agreement and f" They give the label that all would on {self._agreed(self.agreement)}."
        if self.private:
            few, all_ = about(self.n_references), about(self.n_examples)
            return [f"Representatives ({few}) vote for all training examples ({all_}).{known or ''}"]
        return [f"{self.n_references:,} representatives vote for {self.n_examples:,} training examples.{known or ''}"]

    def _agreed(self, known: Agreement) -> str:
        return f"{privacy.percent(known.share)} of calibration rows" if self.private else str(known)

    def __str__(self) -> str:
        """The sentences, then the neighbours as a table."""
        if self.unreadable:
            return "\n".join(self.sentences())
        shown = self._shown_frame().map(brief)
        if self.private:
            shown["share"] = shown["share"].map(privacy.percent)
        elif not self.few_suffice:
            shown["share"] = shown["share"].map(percent)
        table = shown.to_string(index=False, float_format=lambda v: f"{v:.4g}")
        return "\n".join([*self.sentences(), "", table])

    def to_html(self) -> str:
        """A self-contained HTML fragment: no scripts, no links, every value escaped."""
        frame = self._shown_frame()
        head = "".join(f'<th scope="col">{html.escape(str(name))}</th>' for name in frame.columns)
        body = "".join(
            "<tr>" + "".join(cell(str(name), row[i], self.private) for i, name in enumerate(frame.columns)) + "</tr>"
            for row in frame.itertuples(index=False, name=None)
        )
        words = attention(self.attention) if self.attention else example(self.record)
        words += "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.sentences())
        table = "" if self.unreadable else f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f'<div class="dwac-explanation">{STYLE}{words}{table}</div>'

    def _repr_html_(self) -> str:
        return self.to_html()

    def plot(self) -> Any:
        """A matplotlib figure: the example next to those that voted on it. Needs the extra `dwac[report]`.

        Images appear side by side, words of a text are shaded by attention, and table columns that differ are marked.
        """
        return draw_explanation(self)
