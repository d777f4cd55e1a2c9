"""Explanation: who voted, with what weight, how few votes decide, and whose removal would change the label.

references = model.references
explanation = explain(references, h, k=5)[0]
print(explanation)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dwac.conformal import label_sets
from dwac.drawing.neighbors import draw_explanation
from dwac.errors import EPSILON, PrivacyError
from dwac.explain import privacy
from dwac.explain.base import STRANGE, VoteExplanation, p_value, set_sentences, unknown_sentences, unread_sentences
from dwac.explain.descriptions import NOTHING, summary
from dwac.explain.rendering import about, percent
from dwac.explain.voters import Group
from dwac.explain.votes import LabelVotes

__all__ = ["STRANGE", "Explanation"]

_WHATEVER = "it would be the same whatever labels all others had"
_NUMBERS = {2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six", 7: "Seven", 8: "Eight", 9: "Nine", 10: "Ten"}
_FEW = 10


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Explanation(VoteExplanation):
    """Why one example got its label; made by `dwac.explain.explain`.

    `confidence`, `credibility`, `typicality`, `p_values` and `label_set` are None if no calibration was given. A
    `private` explanation holds labels and numbers rounded by `dwac.explain.privacy`; no attribute holds an id, record,
    distance, weight or exact vote. Its `neighbors` are one per label with votes, largest share first.
    """

    label: Any  # None if unreadable, as the probability is
    probability: float
    probabilities: dict[Any, float]
    confidence: float | None = None
    credibility: float | None = None
    p_values: dict[Any, float] | None = None
    epsilon: float = EPSILON  # the error rate of `label_set`
    ordered: bool = False  # whether labels are ordered
    _votes: LabelVotes | None = field(default=None, repr=False)
    _counts: tuple[int, int | None] | None = field(default=None, repr=False)  # deciding, flip_size: if not from votes

    @property
    def label_set(self) -> tuple[Any, ...] | None:
        """The prediction set at `epsilon`, as `predict_set` gives it; None without calibration, or if unreadable."""
        if self.p_values is None or self.unreadable:
            return None
        held = label_sets([list(self.p_values.values())], self.epsilon, ordered=self.ordered)[0]
        return tuple(label for label, inside in zip(self.p_values, held, strict=True) if inside)

    @cached_property
    def deciding(self) -> int:
        """The least number of nearest examples that decide the label, whatever labels the others have (certified).

        If examples have weights, those with the heaviest votes count instead of the nearest.
        """
        return self._counts[0] if self._counts else self._held.deciding()

    @cached_property
    def flip_size(self) -> int | None:
        """The least number of training examples whose removal changes the label; None if no removal does.

        If representatives vote for all, the number of representatives, each removed with all it votes for.
        """
        return self._counts[1] if self._counts else self._held.flip_size()

    def flip_set(self) -> list[Any] | None:
        """Ids of a smallest set of training examples whose removal changes the label; None if there is no such set.

        No smaller set suffices: only the removal of votes for the label helps, and these are the heaviest. If
        representatives vote for all, these are the ids of all examples that the fewest such representatives vote for:
        a representative removed alone would be replaced by another.
        """
        if self.private:
            raise PrivacyError("a private explanation holds no ids; use flip_size for the number of examples")
        return None if self.unreadable else self._held.flip_ids()

    @cached_property
    def deciding_groups(self) -> int | None:
        """The least number of heaviest groups that decide the label, whatever labels all others have (certified).

        None if private or unreadable.
        """
        return None if self._votes is None else self._votes.deciding_groups()

    @property
    def few_suffice(self) -> bool:
        """Whether a few examples explain the prediction: ten decide it, or the neighbours hold half of the vote."""
        return super().few_suffice or self.deciding <= _FEW

    @cached_property
    def shown_groups(self) -> tuple[Group, ...]:
        """The groups to show: the heaviest, as many as neighbours, and the heaviest group for another label."""
        heaviest = self.groups[: len(self.neighbors)]
        rival = next((group for group in self.groups if group.label != self.label), None)
        return heaviest if rival is None or rival in heaviest else (*heaviest, rival)

    @property
    def _held(self) -> LabelVotes:
        assert self._votes is not None
        return self._votes

    def _prediction(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "probability": self.probability,
            "probabilities": self.probabilities,
            "confidence": self.confidence,
            "credibility": self.credibility,
            "p_values": self.p_values,
            "label_set": self.label_set,
            "epsilon": self.epsilon,
            "deciding": None if self.unreadable else self.deciding,
            "deciding_groups": self.deciding_groups,
            "flip_size": self.flip_size,
        }

    def _share(self, value: float) -> str:
        return privacy.percent(value) if self.private else percent(value)

    def _headline(self) -> str:
        return "no label" if self.unreadable else f"{self.label}, {self._share(self.probability)}"

    def _summary(self) -> dict[str, Any]:
        found = {"label": self.label, "probability": self.probability}
        trust = {"confidence": self.confidence, "typicality": self.typicality}
        return found | ({} if self.confidence is None else trust) | self._heaviest()

    def sentences(self) -> list[str]:
        """The explanation in plain words, one entry per fact."""
        if self.unreadable:
            return unread_sentences(self.unreadable)
        probability = self._share(self.probability)
        facts = [f"Predicted {self.label} with probability {probability}.", *unknown_sentences(self.unknown)]
        return [
            *facts,
            *self._trust_sentences(),
            *self._deciding_sentences(),
            self._flip_sentence(),
            *self._agreement_sentences("give the label that all would"),
        ]

    def _trust_sentences(self) -> list[str]:
        if self.credibility is None or self.confidence is None:
            return []
        confidence = privacy.confidence(self.confidence) if self.private else percent(self.confidence)
        credibility = p_value(self.credibility, private=self.private)
        return [
            *set_sentences(self.label_set, self.epsilon),
            *self._typicality_sentences(),
            f"Credibility{credibility} of calibration examples fit their own label no better.",
            f"Confidence {confidence}: how clearly every other label is ruled out.",
        ]

    def _deciding_sentences(self) -> list[str]:
        if self.private:
            of_all = f"{about(self.deciding)} of {about(self.n_references)}"
            return [f"The {self._order} {self._voter}s ({of_all}) decide the label: {_WHATEVER}."]
        if self.deciding == 0:
            return ["There is only one label to choose from."]
        if self.few_suffice:
            return [self._few_sentence()]
        return [self._many_sentence(), self._groups_sentence(), *self._vote_sentences()]

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
        """The sentence that a handful of examples does not explain the prediction."""
        return (
            f"A few {self._voter}s do not explain it: {self._held_by_neighbors()} of the vote, and {self.deciding:,} "
            "are needed to decide the label."
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
        """The whole vote in words: what sets its heaviest groups apart."""
        words = [None if group.words in NOTHING.values() else group.words for group in self.groups]
        words = [
            text if text is None or group.label == self.label else f"for {group.label}, {text}"
            for text, group in zip(words, self.groups, strict=True)
        ]
        told = summary(words, [group.share for group in self.groups])
        return [] if told is None else [f"In words, {told}."]

    def _told_below(self) -> list[str]:
        return [] if self.private or self.unreadable or self.few_suffice else self._vote_sentences()

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

    def plot(self) -> Any:
        """A matplotlib figure: the example next to its voters. Needs the extra `dwac[report]`.

        Images appear side by side, words of a text are shaded by attention, and table columns that differ are marked.
        """
        return draw_explanation(self)
