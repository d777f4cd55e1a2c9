"""Explanation: who voted, how much, how few suffice, and whose removal would change the label.

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
    """One training example's part in a prediction. When private, the share of all examples of that label together."""

    label: Any
    log_weight: float | None  # log w(h, h_i), with the weight of its class where classes have weights
    weight: float | None  # w, 0.0 where it underflows: `share` does not
    share: float  # of the whole vote, all classes together
    id: Any = None
    distance: float | None = None  # ‖h - h_i‖
    record: Any = None


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why one example got its label: made by `dwac.explain.explain`.

    `confidence`, `credibility` and `p_values` are None where no calibration was given. `private`: labels, and numbers
    as `dwac.explain.privacy` rounds them; no id, record, distance, weight or exact vote is held in any attribute.
    """

    label: Any
    probability: float
    probabilities: dict[Any, float]
    neighbors: tuple[Neighbor, ...]  # nearest first; where private, the labels with votes, largest share first
    n_references: int
    confidence: float | None = None
    credibility: float | None = None
    p_values: dict[Any, float] | None = None
    private: bool = False
    record: Any = None  # the explained example itself
    attention: tuple[tuple[str, float], ...] | None = None  # a text's words, and how much the network read each
    unreadable: str | None = None  # why the example could not be read: then nobody voted, and all else is the prior
    _votes: Votes | None = field(default=None, repr=False)
    _settled: tuple[int, int | None] | None = field(default=None, repr=False)

    @cached_property
    def deciding(self) -> int:
        """How few nearest examples fix the label, whatever labels all the others might have (certified)."""
        return self._settled[0] if self._settled else self._held.deciding()

    @cached_property
    def flip_size(self) -> int | None:
        """How many training examples must go to change the label; None if no removal can."""
        return self._settled[1] if self._settled else self._held.flip_size()

    def flip_set(self) -> list[Any] | None:
        """Ids of a smallest set of training examples whose removal changes the label; None if there is none.

        No smaller set does it: only votes for the label can be missed, and these are the heaviest.
        """
        if self.private:
            raise PrivacyError("a private explanation holds no ids; flip_size says how many examples it takes")
        rows = None if self.unreadable else self._held.flip_rows()
        return None if rows is None else self._held.ids[rows].tolist()

    @property
    def _held(self) -> Votes:
        assert self._votes is not None
        return self._votes

    def to_frame(self) -> pd.DataFrame:
        """The neighbours, a row each: id, label, weight, share, distance, and the columns of their records."""
        if self.unreadable:
            return pd.DataFrame(columns=["label", "weight", "log_weight", "share"])
        rows = []
        for n in self.neighbors:
            if self.private:
                votes = {"label": n.label, "share": n.share}
            else:
                votes = {"label": n.label, "weight": n.weight, "log_weight": n.log_weight, "share": n.share}
                record = dict(n.record) if isinstance(n.record, Mapping) else {"record": n.record}
                # A record may have a column called like one of ours: both are kept.
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
        """The explanation in plain words, a sentence a fact."""
        told = (privacy.percent, privacy.credibility, privacy.confidence) if self.private else ("{:.3f}".format,) * 3
        if self.unreadable:
            return [
                f"This example could not be read: {self.unreadable}.",
                f"Nobody voted on it. {self.label} is the commonest label, with {told[0](self.probability)} of all "
                "votes; no label fits, and none is credible.",
            ]
        said = [f"Predicted {self.label} with probability {told[0](self.probability)}."]
        if self.credibility is not None and self.confidence is not None:
            said.append(
                f"Credibility {told[1](self.credibility)}: the share of calibration examples that fit their own label "
                f"no better than this one fits its best. Confidence {told[2](self.confidence)}: how firmly every other "
                "label is rejected."
            )
        if self.private:
            said.append(
                f"The nearest {about(self.deciding)} settle it: whatever labels all others had, it would stay. "
                f"There are {about(self.n_references)}."
            )
        elif self.n_references == self.deciding:
            said.append(f"It takes all {self.n_references:,} training examples to settle the label.")
        else:
            few = "example settles" if self.deciding == 1 else f"{self.deciding:,} examples settle"
            said.append(
                f"The nearest {few} it: whatever labels the other {self.n_references - self.deciding:,} training "
                "examples had, it would stay."
            )
        if self.flip_size is None:
            said.append("No removal of training examples would change it.")
        else:
            n = f"{self.flip_size:,} training example{'s' * (self.flip_size != 1)}"
            said.append(f"Removing {about(self.flip_size) if self.private else n} would change it.")
        return said

    def __str__(self) -> str:
        """Sentences, then the neighbours as a table."""
        if self.unreadable:
            return "\n".join(self.sentences())
        shown = self.to_frame().drop(columns="log_weight", errors="ignore").map(brief)
        if self.private:
            shown["share"] = shown["share"].map(privacy.percent)
        table = shown.to_string(index=False, float_format=lambda v: f"{v:.4g}")
        return "\n".join([*self.sentences(), "", table])

    def to_html(self) -> str:
        """A self-contained piece of HTML: no scripts, no links, every value escaped."""
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
        """A matplotlib figure: the example beside those that voted on it. Needs the extra `dwac[report]`.

        Images stand side by side, a text's words are shaded by attention, columns of a table that differ are marked.
        """
        return draw_explanation(self)
