"""Explanation: who voted, with what weight, how few votes decide, and whose removal would change the label.

explanation = explain(model.references, h, k=5)[0]
print(explanation)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac import _checks as checks
from dwac.conformal import Calibration, ConformalPrediction, label_sets, nonconformity
from dwac.drawing.neighbors import draw_explanation
from dwac.errors import EPSILON, InputError, PrivacyError, ShapeError
from dwac.explain import privacy
from dwac.explain.base import (
    VoteExplanation,
    p_value,
    series,
    set_sentences,
    typicality_sentences,
    unknown_sentences,
    unread_counts,
)
from dwac.explain.comparing import Inquiry, LabelCase, reasons_between
from dwac.explain.descriptions import summary
from dwac.explain.reasons import Reasoner
from dwac.explain.rendering import about, percent
from dwac.explain.turning import turn_label
from dwac.explain.voters import Group, Neighbor, Source, nearest_voters, read_query
from dwac.explain.votes import LabelVotes
from dwac.languages import count, label_name, message, numeral, say, spoken
from dwac.metrics import Agreement
from dwac.reference import ReferenceSet

_NUMBERS = {
    2: message("Two"),
    3: message("Three"),
    4: message("Four"),
    5: message("Five"),
    6: message("Six"),
    7: message("Seven"),
    8: message("Eight"),
    9: message("Nine"),
    10: message("Ten"),
}
_FEW = 10
_AGREED = 0.75  # probability from which voters are said to agree


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Explanation(VoteExplanation):
    """Why one example got its label; made by `explain`.

    `confidence`, `credibility`, `typicality`, `p_values` and `label_set` are None if no calibration was given. A
    `private` explanation holds labels and numbers rounded by `dwac.explain.privacy`; no attribute holds an id, record,
    distance, weight or exact vote. Its `neighbors` are one per label with votes, largest share first.

    >>> e = explain(ReferenceSet([[0.0], [1.0], [2.0]], [0, 0, 1]), [[0.0]], classes=["no", "yes"])[0]
    >>> e.label, round(e.probability, 2), e.deciding, e.flip_set()
    ('no', 0.99, 1, [0, 1])
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
        inside = label_sets([list(self.p_values.values())], self.epsilon, ordered=self.ordered)[0]
        return tuple(label for label, is_in in zip(self.p_values, inside, strict=True) if is_in)

    @cached_property
    def deciding(self) -> int:
        """The least number of nearest examples that decide the label, whatever labels the others have (certified).

        If examples have weights, those with the heaviest votes count instead of the nearest.
        """
        return self._counts[0] if self._counts else self._known_votes.deciding()

    @cached_property
    def flip_size(self) -> int | None:
        """The least number of training examples whose removal changes the label; None if no removal does.

        If representatives vote for all, the number of representatives, each removed with all it votes for.
        """
        return self._counts[1] if self._counts else self._known_votes.flip_size()

    def flip_set(self) -> list[Any] | None:
        """Ids of a smallest set of training examples whose removal changes the label; None if there is no such set.

        No smaller set suffices: only the removal of votes for the label helps, and these are the heaviest. If
        representatives vote for all, these are the ids of all examples that the fewest such representatives vote for:
        a representative removed alone would be replaced by another.
        """
        if self.private:
            raise PrivacyError("a private explanation holds no ids; use flip_size for the number of examples")
        return None if self.unreadable else self._known_votes.flip_ids()

    @cached_property
    def deciding_groups(self) -> int | None:
        """The least number of heaviest groups that decide the label, whatever labels all others have (certified).

        None if private or unreadable.
        """
        return None if self._votes is None else self._votes.deciding_groups()

    @cached_property
    def vote_interval(self) -> tuple[float, float] | None:
        """(low, high): where the probability would be if the voters were drawn again (95 %); None if unreadable.

        It says how sure the vote itself is: few voters make it wide, however they vote. None if private, too.
        """
        return None if self._votes is None else self._votes.interval()

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
    def _supporters(self) -> Sequence[Neighbor]:
        return [voter for voter in self.neighbors if voter.label == self.label]

    @property
    def _known_votes(self) -> LabelVotes:
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

    @property
    def _shared_messages(self) -> tuple[str, str, str, str, str]:
        return (
            message("{word} ({share}; others {others})"),
            message("{condition} (others {others})"),
            message("Words shared with votes for {label}: {words}."),
            message("Shared with the nearest votes for {label}: {conditions}."),
            message("Shared with nearly all votes for {label}: {conditions}."),
        )

    def _vote_names(self) -> dict[str, str]:
        return {"label": label_name(self.label)}

    def _headline(self) -> str:
        return "no label" if self.unreadable else f"{self.label}, {percent(self.probability, private=self.private)}"

    def _summary(self) -> dict[str, Any]:
        trust = {"confidence": self.confidence, "typicality": self.typicality}
        prediction = {"label": self.label, "probability": self.probability}
        return prediction | ({} if self.confidence is None else trust) | self._heaviest()

    def lead(self) -> list[str]:
        """The label, how sure it is and what decides; the prediction set; what speaks for the runner-up."""
        if self.unreadable:
            return []
        return [
            self._first_sentence(),
            *unknown_sentences(self.unknown),
            *set_sentences(self.label_set, self.epsilon),
            *self._shared_sentences(),
            *self._rival_sentences(),
            *self._deciding_sentences(),
        ]

    def details(self) -> list[str]:
        """How sure the vote itself is, what would change the label, p-values, and how few vote for all."""
        if self.unreadable:
            return []
        return [
            *self._sure_sentences(),
            self._flip_sentence(),
            *self._trust_sentences(),
            *self._agreement_sentences(),
        ]

    def _first_sentence(self) -> str:
        """The answer, how sure, what decides, against whom."""
        answer = say(
            "Predicted {label} with probability {share}",
            label=label_name(self.label),
            share=percent(self.probability, private=self.private),
        )
        return f"{answer}." if len(self.probabilities) < 2 else self._because(answer, self.main_reasons)

    @property
    def _disagree(self) -> bool:
        return self.probability < _AGREED

    def _rival_sentences(self) -> list[str]:
        """What speaks for the runner-up: its share, its heaviest group, its nearest precedent, the columns for it."""
        rivals = [label for label in self.probabilities if label != self.label]
        if self.private or not rivals:
            return []
        rival = max(rivals, key=lambda label: self.probabilities[label])
        group = next((group for group in self.groups if group.label == rival), None)
        if group is None:
            return []
        share = {"share": percent(self.probabilities[rival]), "from_group": self._group_words(group)}
        facts = say("It has {share} of the vote, above all {from_group}", **share)
        if group.share > self.probabilities[rival] / 2:
            facts = say("It has {share} of the vote, mostly {from_group}", **share)
        known: dict[str, Any] = {"label": label_name(rival), "facts": facts}
        reasons = self.main_reasons
        if reasons is None or reasons.precedent is None or reasons.other != rival:
            return [say("Why not {label}? {facts}; the most similar is {id}.", id=group.face.id, **known)]
        known["id"] = reasons.precedent.id
        columns = self._parts(reasons, -reasons.total)
        if not columns:
            return [say("Why not {label}? {facts}; compared with example {id}, no column speaks for {label}.", **known)]
        return [
            count(
                "Why not {label}? {facts}; compared with example {id}, {columns} speaks for {label}.",
                "Why not {label}? {facts}; compared with example {id}, {columns} speak for {label}.",
                len(columns),
                columns=series(columns),
                **known,
            )
        ]

    def _trust_sentences(self) -> list[str]:
        typical = typicality_sentences(self.typicality, private=self.private)
        if self.credibility is None or self.confidence is None:
            return typical
        share, exact = p_value(self.credibility, private=self.private)
        text = message("{label} fits at least as well as the true label did in {share} of known cases ({credibility}).")
        if self.credibility <= self.epsilon:
            text = message(
                "{label} fits badly: the true label fitted as badly in only {share} of known cases ({credibility})."
            )
        confidence = privacy.confidence(self.confidence) if self.private else percent(self.confidence)
        second = privacy.credibility(1 - self.confidence) if self.private else percent(1 - self.confidence)
        others = message(
            "Another label is possible: it fits at least as well as the true label did in {share} of known cases "
            "(confidence {confidence})."
        )
        if self.confidence >= 1 - self.epsilon:
            others = message(
                "Every other label is ruled out: the true label fitted as badly as the best of them in only {share} of "
                "known cases (confidence {confidence})."
            )
        return [
            *typical,
            say(text, label=label_name(self.label), share=share, credibility=say("credibility") + exact),
            say(others, share=second, confidence=confidence),
        ]

    def _sure_sentences(self) -> list[str]:
        if len(self.probabilities) < 2 or self.private:
            return []
        redrawn = ""
        if self.vote_interval is not None:
            low, high = map(percent, self.vote_interval)
            redrawn = say(
                "Other cases like these would give {label} a probability of {low} to {high} (95 %).",
                label=label_name(self.label),
                low=low,
                high=high,
            )
        return [self._sure_sentence(redrawn)]

    def _deciding_sentences(self) -> list[str]:
        if self.private:
            text = message(
                "The nearest training examples ({few} of {all}) decide the label: it would be the same whatever labels "
                "all others had."
            )
            if self._represents:
                text = message(
                    "The heaviest representatives ({few} of {all}) decide the label: it would be the same whatever "
                    "labels all others had."
                )
            return [say(text, few=about(self.deciding), all=about(self.n_references))]
        if self.deciding == 0:
            return [say("There is only one label to choose from.")]
        if self.few_suffice:
            return [self._few_sentence()]
        return [self._many_sentence(), self._groups_sentence(), *self._vote_sentences()]

    def _few_sentence(self) -> str:
        n, rest = self.deciding, self.n_references - self.deciding
        if rest == 0 and self._represents:
            return count(
                "The only representative decides the label.",
                "All {n} representatives are needed to decide the label.",
                n,
            )
        if rest == 0:
            return count(
                "The only training example decides the label.",
                "All {n} training examples are needed to decide the label.",
                n,
            )
        if self._represents:
            decision = count(
                "The heaviest representative decides the label", "The heaviest {n} representatives decide the label", n
            )
            return count(
                "{decision}: it would be the same whatever label the other representative had.",
                "{decision}: it would be the same whatever labels the other {n} representatives had.",
                rest,
                decision=decision,
            )
        decision = count(
            "The nearest training example decides the label", "The nearest {n} training examples decide the label", n
        )
        return count(
            "{decision}: it would be the same whatever label the other training example had.",
            "{decision}: it would be the same whatever labels the other {n} training examples had.",
            rest,
            decision=decision,
        )

    def _many_sentence(self) -> str:
        """The sentence that a handful of examples does not explain the prediction."""
        text = message(
            "A few training examples do not explain it: {neighbors} of the vote, and {n} are needed to decide the "
            "label."
        )
        if self._represents:
            text = message(
                "A few representatives do not explain it: {neighbors} of the vote, and {n} are needed to decide the "
                "label."
            )
        return say(text, neighbors=self._neighbor_share(), n=numeral(f"{self.deciding:,}"))

    def _groups_sentence(self) -> str:
        few = self.deciding_groups or 0
        size = sum(group.size for group in self.groups[:few])
        every = numeral(f"{self.n_examples:,}")
        if len(self.groups) == 1:
            return say("All {all} training examples form one group, which decides the label.", all=every)
        if few == len(self.groups):
            return say("All {n} groups are needed to decide the label.", n=few)
        return count(
            "One group, {size} of {all} training examples, decides the label: it would be the same whatever labels all "
            "others had.",
            "{number} groups, {size} of {all} training examples, decide the label: it would be the same whatever "
            "labels all others had.",
            few,
            number=say(_NUMBERS[few]) if few in _NUMBERS else str(few),
            size=numeral(f"{size:,}"),
            all=every,
        )

    def _vote_sentences(self) -> list[str]:
        """The whole vote in words: what its heaviest groups have in common with the example."""

        def describe(place: int) -> str | None:
            group, text = self.groups[place], self.groups[place].in_common
            if text is None or group.label == self.label:
                return text
            return say("for {label}, {words}", label=label_name(group.label), words=text)

        vote = summary(describe, [group.share for group in self.groups])
        return [] if vote is None else [say("In words, {vote}.", vote=vote)]

    def _repeated_sentences(self) -> list[str]:
        return [] if self.private or self.unreadable or self.few_suffice else self._vote_sentences()

    def _flip_sentence(self) -> str:
        n = self.flip_size
        if n is None:
            return say("No removal of training examples would change the label.")
        if self.private and self._represents:
            return say("Removing {n} representatives would change the label.", n=about(n))
        if self.private:
            return say("Removing {n} training examples would change the label.", n=about(n))
        if self._represents:
            return count(
                "Removing a single representative, with the examples it votes for, would change the label.",
                "Removing as few as {n} representatives, with the examples they vote for, would change the label.",
                n,
            )
        return count(
            "Removing a single training example would change the label.",
            "Removing as few as {n} training examples would change the label.",
            n,
        )

    def _agreement_sentence(self, share: str) -> str:
        return say("They give the label that all would on {share}.", share=share)

    @spoken
    def plot(self, *, language: str | None = None) -> Any:
        """A matplotlib figure: the example next to its voters. Needs the extra `dwac[report]`.

        Images appear side by side, words of a text are shaded by attention, and table columns that differ are marked.
        language: of the texts, such as "de".
        """
        del language  # see `spoken`
        return draw_explanation(self)


def explain(
    references: ReferenceSet,
    queries: Any,
    *,
    k: int = 5,
    calibration: Calibration | None = None,
    nonconformity_kind: str = "weights",
    fold_votes: NDArray[np.float64] | None = None,
    typicality: NDArray[np.float64] | None = None,
    classes: Sequence[Any] | None = None,
    records: Mapping[Any, Any] | pd.DataFrame | pd.Series[Any] | None = None,
    private: bool = False,
    shown: Sequence[Mapping[str, Any]] | None = None,
    alike: Callable[[int, list[Any]], NDArray[np.float64]] | None = None,
    inquire: Callable[[int, int], Inquiry] | None = None,
    descriptions: Sequence[str | None] | None = None,
    agreement: Agreement | None = None,
    epsilon: float = EPSILON,
    ordered: bool = False,
) -> list[Explanation]:
    """Explain the prediction of each query embedding (n, d).

    Args:
        references: the examples that vote.
        queries: (n, d) embeddings.
        k: how many neighbours to show; all of them if there are fewer.
        calibration: adds p-values, confidence and credibility.
        nonconformity_kind: the score of the calibration, "weights" or "probability".
        fold_votes: (n, F, K) votes of the fold models, if the calibration is a `CrossCalibration`.
        typicality: (n,) the share of calibration examples at least as novel as each query, already rounded if private.
        classes: names of the labels 0 … K-1.
        records: the training examples by id, shown next to their votes.
        private: keep only labels and their rounded shares of the vote (see `dwac.explain.privacy`), whatever k is: no
            training id, record, distance or exact number.
        shown: how each query appears to a person: its "record" and, for a text, its "attention".
        alike: how different training examples are from a query in the input: takes the row of the query and ids,
            returns one number per id, smaller for more similar ones. By default group members are ordered by weight.
        inquire: questions to the model about a query, for `Explanation.reasons`: takes the row of the query, and 0.
        descriptions: what sets each group of the references apart, in words.
        agreement: how often representatives predict the same label as all examples, if they vote for all.
        epsilon: the error rate of prediction sets. ordered: whether classes are ordered, so that sets have no gaps.

    >>> refs = ReferenceSet([[0.1], [0.9], [3.0]], [0, 0, 1], ids=["ann", "bob", "eve"])
    >>> e = explain(refs, [[0.0]], k=2, classes=["no", "yes"])[0]
    >>> e.label, e.deciding, e.flip_set()
    ('no', 1, ['ann', 'bob'])
    >>> e.to_frame()[["id", "label", "share"]].round(3)
        id label  share
    0  ann    no   0.69
    1  bob    no   0.31
    """
    references, h, k = read_query(references, queries, k, records)
    epsilon = checks.epsilon(epsilon)
    names = list(range(references.n_classes)) if classes is None else _class_names(classes, references.n_classes)
    log_class_weights, near = references.query(h, k=k)
    votes = log_class_weights.cpu().numpy()
    probabilities = -nonconformity(votes, "probability")  # identical to `predict_proba`, to the last bit
    log_total = np.logaddexp.reduce(votes, axis=1)
    trust: list[dict[str, Any]] = [{}] * len(votes)
    if calibration is not None:
        if private:
            prediction: ConformalPrediction = privacy.conformal(
                calibration, votes, nonconformity_kind, fold_votes=fold_votes
            )
        else:
            by_fold = None if fold_votes is None else nonconformity(fold_votes, nonconformity_kind)
            prediction = calibration.predict(nonconformity(votes, nonconformity_kind), fold_scores=by_fold)
        trust = _trust(prediction, names)
    if typicality is not None:
        known = checks.scores(typicality, "typicality", ndim=1)
        if len(known) != len(votes):
            raise ShapeError(f"typicality must have one entry per query: {len(votes)} required, got {len(known)}")
        trust = [{**each, "typicality": value} for each, value in zip(trust, known.tolist(), strict=True)]
    shown, common = shown or [{}] * len(votes), {"epsilon": epsilon, "ordered": ordered, "agreement": agreement}
    explanations = []
    for row, log_votes in enumerate(votes):
        source = Source(
            names,
            None if private else records,
            None if alike is None else partial(alike, row),
            descriptions,
            shown[row].get("record"),
        )
        labels = [names[code] for code in near.labels[row]]
        voters = nearest_voters(near, row, float(log_total[row]), labels, source.records)
        own = LabelVotes(references, h[row], int(log_votes.argmax()))
        inquiry, more = None if inquire is None else inquire(row, 0), {**common, **trust[row], **shown[row]}
        explanations.append(make_explanation(own, source, probabilities[row], voters, inquiry, private=private, **more))
    return explanations


def make_explanation(
    votes: LabelVotes,
    source: Source,
    probabilities: NDArray[np.float64],
    voters: tuple[Neighbor, ...],
    inquiry: Inquiry | None = None,
    *,
    private: bool,
    **more: Any,
) -> Explanation:
    """The explanation of one query, from all votes on it, the (K,) probabilities and the neighbours."""
    case = LabelCase(votes, source.names, probabilities, private)
    exact = Explanation(
        label=source.names[votes.label],
        probability=float(probabilities[votes.label]),
        probabilities=dict(zip(source.names, probabilities.tolist(), strict=True)),
        neighbors=voters,
        n_references=len(votes.references),
        n_examples=round(float(votes.references.sizes.sum())),
        _votes=votes,
        _source=source,
        _question=Reasoner()
        if inquiry is None
        else Reasoner(partial(reasons_between, inquiry, case), partial(turn_label, inquiry, case)),
        **more,
    )
    return _make_private(exact) if private else exact


def _make_private(exact: Explanation) -> Explanation:
    """The private form of an explanation; its p-values were rounded when they were computed."""
    rounded = privacy.shares(list(exact.probabilities.values())).tolist()
    probabilities = dict(zip(exact.probabilities, rounded, strict=True))
    flip_size = exact.flip_size
    # All examples of a label together: the share of a single one would reveal how close it is.
    voters = [
        Neighbor(label, None, None, share) for label, share in probabilities.items() if share or label == exact.label
    ]
    return replace(
        exact,
        probability=probabilities[exact.label],
        probabilities=probabilities,
        neighbors=tuple(sorted(voters, key=lambda voter: -voter.share)),
        **exact._private_values(),
        _counts=(privacy.few(exact.deciding), None if flip_size is None else privacy.few(flip_size)),
    )


def unreadable(why: str, references: ReferenceSet, *, private: bool) -> Explanation:
    """The explanation of an example that could not be read: the reason, no label and no voters."""
    return Explanation(
        label=None,
        probability=math.nan,
        probabilities={},
        **unread_counts(references, private=private),
        private=private,
        unreadable=why,
        _counts=(0, None),
    )


def _class_names(classes: Sequence[Any], n_classes: int) -> list[Any]:
    names = list(classes)
    if len(names) != n_classes:
        raise ShapeError(f"classes must name all {n_classes} labels; got {len(names)} names")
    if not all(isinstance(name, Hashable) for name in names) or len(set(names)) < n_classes:
        raise InputError(f"classes must be distinct names, such as strings or numbers; got {names}")
    return names


def _trust(prediction: ConformalPrediction, names: list[Any]) -> list[dict[str, Any]]:
    columns = zip(
        prediction.p_values.tolist(), prediction.confidence.tolist(), prediction.credibility.tolist(), strict=True
    )
    return [
        {"p_values": dict(zip(names, p, strict=True)), "confidence": confidence, "credibility": credibility}
        for p, confidence, credibility in columns
    ]
