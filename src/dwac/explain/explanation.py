"""Explanation: who voted, with what weight, how few votes decide, and whose removal would change the label.

references = model.references
explanation = explain(references, h, k=5)[0]
print(explanation)
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from dwac.drawing.neighbors import draw_explanation
from dwac.drawing.records import plain
from dwac.errors import PrivacyError
from dwac.explain import privacy
from dwac.explain.rendering import STYLE, about, attention, brief, cell, example
from dwac.explain.votes import Votes


@dataclass(frozen=True)
class Neighbor:
    """One training example's vote. When private: all examples of one label together."""

    label: Any
    log_weight: float | None  # log w(h, h_i), plus the log of its class's weight where classes have weights
    weight: float | None  # w; may underflow to 0.0, which `share` does not
    share: float  # of the votes of all classes together
    id: Any = None
    distance: float | None = None  # ‖h - h_i‖
    record: Any = None


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why one example got its label; made by `dwac.explain.explain`.

    `confidence`, `credibility` and `p_values` are None if no calibration was given. A `private` explanation holds
    labels and numbers rounded by `dwac.explain.privacy`; no attribute holds an id, record, distance, weight or exact
    vote.
    """

    label: Any
    probability: float
    probabilities: dict[Any, float]
    neighbors: tuple[Neighbor, ...]  # nearest first; if private, one per label with votes, largest share first
    n_references: int
    confidence: float | None = None
    credibility: float | None = None
    p_values: dict[Any, float] | None = None
    private: bool = False
    record: Any = None  # the explained example itself
    attention: tuple[tuple[str, float], ...] | None = None  # the words of a text and their attention
    unreadable: str | None = None  # why the example could not be read: no votes, probabilities are the classes' shares
    _votes: Votes | None = field(default=None, repr=False)
    _counts: tuple[int, int | None] | None = field(default=None, repr=False)  # deciding, flip_size: if not from votes

    @cached_property
    def deciding(self) -> int:
        """The least number of nearest examples that decide the label, whatever labels the others have (certified)."""
        return self._counts[0] if self._counts else self._held.deciding()

    @cached_property
    def flip_size(self) -> int | None:
        """The least number of training examples whose removal changes the label; None if no removal does."""
        return self._counts[1] if self._counts else self._held.flip_size()

    def flip_set(self) -> list[Any] | None:
        """Ids of a smallest set of training examples whose removal changes the label; None if there is no such set.

        No smaller set suffices: only the removal of votes for the label helps, and these are the heaviest.
        """
        if self.private:
            raise PrivacyError("a private explanation holds no ids; use flip_size for the number of examples")
        rows = None if self.unreadable else self._held.flip_rows()
        return None if rows is None else self._held.ids[rows].tolist()

    @property
    def _held(self) -> Votes:
        assert self._votes is not None
        return self._votes

    def to_frame(self) -> pd.DataFrame:
        """One row per neighbour: id, label, weight, share, distance, and the columns of its record."""
        if self.unreadable:
            return pd.DataFrame(columns=["label", "weight", "log_weight", "share"])
        rows = []
        for n in self.neighbors:
            if self.private:
                votes = {"label": n.label, "share": n.share}
            else:
                votes = {"label": n.label, "weight": n.weight, "log_weight": n.log_weight, "share": n.share}
                record = dict(n.record) if isinstance(n.record, Mapping) else {"record": n.record}
                # A record may have a column with the name of one of ours: both are kept.
                extra = {f"record.{k}" if k in {"id", "distance", *votes} else k: v for k, v in record.items()}
                has_record = n.record is not None
                votes = {"id": n.id, **votes, "distance": n.distance, **(extra if has_record else {})}
            rows.append(votes)
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, ready for JSON."""
        neighbors = [
            {"label": n.label, "share": n.share}
            if self.private
            else {"label": n.label, "weight": n.weight, "log_weight": n.log_weight, "share": n.share}
            | {"id": n.id, "distance": n.distance, "record": n.record}
            for n in self.neighbors
        ]
        shown: dict[str, Any] = plain(
            {
                "label": self.label,
                "probability": self.probability,
                "probabilities": self.probabilities,
                "confidence": self.confidence,
                "credibility": self.credibility,
                "p_values": self.p_values,
                "unreadable": self.unreadable,
                "deciding": None if self.unreadable else self.deciding,
                "flip_size": self.flip_size,
                "n_references": self.n_references,
                "private": self.private,
                "record": self.record,
                "attention": self.attention,
                "neighbors": neighbors,
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
        return [*facts, self._deciding_sentence(), self._flip_sentence()]

    def _trust_sentences(self) -> list[str]:
        if self.credibility is None or self.confidence is None:
            return []
        if self.private:
            credibility = f": {privacy.credibility(self.credibility)}"
            confidence = privacy.confidence(self.confidence)
        else:
            credibility = f" {self.credibility:.3f}: {privacy.percent(self.credibility)}"
            confidence = f"{self.confidence:.3f}"
        return [
            f"Credibility{credibility} of calibration examples are at least as unusual as this one.",
            f"Confidence {confidence}: how clearly every other label is ruled out.",
        ]

    def _deciding_sentence(self) -> str:
        others = f"the other {self.n_references - self.deciding:,} training examples"
        if self.private:
            of_all = f"{about(self.deciding)} of {about(self.n_references)}"
            few, others = f"training examples ({of_all}) decide", "all others"
        elif self.deciding == 0:
            return "There is only one label to choose from."
        elif self.deciding == self.n_references:
            return f"All {self.n_references:,} training examples are needed to decide the label."
        else:
            few = "training example decides" if self.deciding == 1 else f"{self.deciding:,} training examples decide"
        return f"The nearest {few} the label: it would be the same whatever labels {others} had."

    def _flip_sentence(self) -> str:
        if self.flip_size is None:
            return "No removal of training examples would change the label."
        if self.private:
            return f"Removing {about(self.flip_size)} training examples would change the label."
        few = "a single training example" if self.flip_size == 1 else f"as few as {self.flip_size:,} training examples"
        return f"Removing {few} would change the label."

    def __str__(self) -> str:
        """The sentences, then the neighbours as a table."""
        if self.unreadable:
            return "\n".join(self.sentences())
        shown = self.to_frame().drop(columns="log_weight", errors="ignore").map(brief)
        if self.private:
            shown["share"] = shown["share"].map(privacy.percent)
        table = shown.to_string(index=False, float_format=lambda v: f"{v:.4g}")
        return "\n".join([*self.sentences(), "", table])

    def to_html(self) -> str:
        """A self-contained HTML fragment: no scripts, no links, every value escaped."""
        frame = self.to_frame().drop(columns="log_weight", errors="ignore")
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
