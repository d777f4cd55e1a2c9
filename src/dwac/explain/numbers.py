"""NumberExplanation: who voted for which number, how the votes split, and whose removal moves the prediction most.

explanation = explain_numbers(model.references, h, k=5)[0]
print(explanation)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from dwac import _checks as checks
from dwac.drawing.neighbors import draw_numbers
from dwac.errors import EPSILON, ShapeError
from dwac.explain import privacy
from dwac.explain.base import (
    VoteExplanation,
    series,
    typicality_sentences,
    unknown_sentences,
    unread_counts,
)
from dwac.explain.comparing import Inquiry, NumberCase, number_reasons
from dwac.explain.descriptions import summary
from dwac.explain.reasons import Reasoner
from dwac.explain.rendering import Numerals, coverage, edges_of, percent
from dwac.explain.turning import turn_number
from dwac.explain.voters import Influence, NumberSource, nearest_voters, plain_ids, read_query, record_of
from dwac.explain.votes import NumberRange, NumberVotes
from dwac.languages import message, say, spoken
from dwac.metrics import Agreement
from dwac.reference import ReferenceSet
from dwac.reference.references import with_classes

Floats = NDArray[np.float64]

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # levels of `quantiles`
_BINS = 40  # bins of a histogram, at most
_DIFFER = 0.5  # standard deviations of all numbers that make votes differ
_OUTER = 0.005  # share of the votes at each end that may lie outside a histogram


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class NumberExplanation(VoteExplanation):
    """Why one example got its number; made by `explain_numbers`, or by `DWACRegressor.explain`.

    A neighbour's `label` is its number, a group's a `NumberRange`. If several numbers are predicted, `prediction`,
    `interval`, `histogram` and the values of `quantiles` are tuples with one entry for each of `names`; a neighbour's
    `label` is a tuple of its numbers.

    A `private` explanation has only the prediction, the interval and a histogram, rounded by `dwac.explain.privacy`:
    no neighbours, groups, quantiles or influence, since these contain numbers of single examples.

    >>> refs = ReferenceSet([[0.0], [1.0]], [0, 0], ids=["ann", "bob"], targets=[10.0, 20.0])
    >>> e = explain_numbers(refs, [[0.5]])[0]
    >>> round(e.prediction, 6), e.influential[0].id, round(e.influential[0].move, 6)
    (15.0, 'ann', 5.0)
    """

    prediction: Any  # a number, or one for each name; NaN if unreadable
    interval: Any = None  # (low, high), which may be infinite; None without calibration rows
    epsilon: float | None = None  # the share of intervals that may miss the true number
    guarantee: float | None = None  # the least coverage in theory, on average: 1 - ε, or less if cross-fitted
    names: tuple[Any, ...] = (None,)  # names of the numbers
    average: str = "mean"  # which average of the votes is the prediction
    _numerals: tuple[Numerals, ...] = field(default=(), repr=False)
    _histogram: Any = field(default=None, repr=False)  # the histogram of a private explanation
    _votes: NumberVotes | None = field(default=None, repr=False)
    _source: NumberSource | None = field(default=None, repr=False)

    # The votes

    @property
    def _single(self) -> bool:
        return not isinstance(self.prediction, tuple)

    def _each(self, values: Any) -> tuple[Any, ...]:
        """One entry per name."""
        return (values,) if self._single else values

    @cached_property
    def quantiles(self) -> dict[float, Any] | None:
        """Quantiles of the votes, by level: each is the number of a training example; None if private or unreadable."""
        if self._votes is None or self._source is None:
            return None
        values = self._votes.distribution.quantiles(LEVELS)[0]
        return {level: self._source.unpacked(values[:, i].tolist()) for i, level in enumerate(LEVELS)}

    @cached_property
    def vote_interval(self) -> Any:
        """(low, high): where the prediction would be if the voters were drawn again (95 %), for each name.

        It says how sure the vote itself is, and is no interval for the true number. None if private or unreadable.
        """
        if self._votes is None or self._source is None:
            return None
        return self._source.unpacked([self._votes.interval(t) for t in range(len(self.names))])

    @cached_property
    def histogram(self) -> Any:
        """(edges, shares): B + 1 ascending numbers, and the share of the votes in each of the B bins between them.

        At most 1 % of the votes lie outside. If private, shares are in twentieths, in a few bins that are the same for
        every row; votes outside count in the outermost ones. None if the example could not be read.
        """
        if self._votes is None or self._source is None:
            return self._histogram
        ends = self._votes.distribution.quantiles([_OUTER, 1 - _OUTER])[0]
        intervals = self._each(self.interval) if self.interval is not None else ((),) * len(ends)
        histograms = []
        for t, (low, high) in enumerate(ends):
            near = [float(self._each(voter.label)[t]) for voter in self.neighbors]
            shown = [low, high, self._each(self.prediction)[t], *near, *(e for e in intervals[t] if math.isfinite(e))]
            edges = edges_of(min(shown), max(shown), _BINS, whole=bool((self._votes.targets[:, t] % 1 == 0).all()))
            wide = np.tile(edges, (len(ends), 1))
            shares = self._votes.distribution.histogram(wide)[0, t]
            histograms.append((tuple(edges.tolist()), tuple(shares.tolist())))
        return self._source.unpacked(histograms)

    @cached_property
    def influential(self) -> tuple[Influence, ...]:
        """The examples whose removal would move the prediction most (exact), largest move first; as many as neighbours.

        If several numbers are predicted, as many for each number in turn. If representatives vote for all, each is
        removed with all its votes. Empty if private or unreadable, or if there is no other voter.
        """
        if self._votes is None or self._source is None or self.n_references == 1:
            return ()
        votes, influences = self._votes, []
        for t, moves in enumerate(votes.influence(len(self.neighbors))):
            for row, share, move in moves:
                who = plain_ids(votes.references.ids[row : row + 1])[0]
                target, name = float(votes.targets[row, t]), None if self._single else self.names[t]
                influences.append(Influence(who, target, share, move, name, record_of(self._source.records, who)))
        return tuple(influences)

    # Tables

    def to_frame(self) -> pd.DataFrame:
        """One row per neighbour: id, number, weight, share, distance, and the columns of its record.

        Several numbers have one column each. If private, one row per range of numbers.
        """
        if self.private:
            return self._histogram_frame()
        return self._with_numbers(super().to_frame(), lambda _, value: value)

    def groups_frame(self) -> pd.DataFrame:
        """One row per group, heaviest first: mean, low, high, share, size, description, representative's id."""
        frame = super().groups_frame()
        for t, name in reversed(list(enumerate(self.names))):
            ranges = [self._each(group.label)[t] for group in self.groups]
            for part in reversed(NumberRange._fields):
                title = part if self._single else f"{name} {part}"
                frame.insert(0, title, [getattr(each, part) for each in ranges])
        return frame.drop(columns="label")

    @property
    def _own_names(self) -> tuple[str, ...]:
        return (*super()._own_names, *(["number"] if self._single else map(str, self.names)))

    def _shown_votes(self) -> pd.DataFrame:
        if self.private:
            frame = self.to_frame()
            return frame.assign(share=frame["share"].map(lambda share: privacy.percent(share, privacy.COARSE)))
        frame = super()._shown_votes()
        if self.few_suffice:
            return self._with_numbers(frame, lambda t, value: self._numerals[t].exact(value))
        frame["label"] = [group.label for group in self.shown_groups]
        return self._with_numbers(frame, self._range)

    def _with_numbers(self, frame: pd.DataFrame, write: Callable[[int, Any], Any]) -> pd.DataFrame:
        """The frame with its column of labels replaced by one column per number."""
        place = list(frame.columns).index("label")
        labels = [self._each(label) for label in frame.pop("label")]
        for t, name in enumerate(self.names):
            values = [write(t, label[t]) for label in labels]
            frame.insert(place + t, "number" if self._single else str(name), values)
        return frame

    def _range(self, t: int, numbers: NumberRange) -> str:
        ends = self._ends(t, numbers.low, numbers.high)
        return ends if numbers.low == numbers.high else f"{self._numerals[t].text(numbers.mean)} ({ends})"

    def _ends(self, t: int, low: float, high: float) -> str:
        """Numbers of training examples from low to high, or the only one."""
        exact = self._numerals[t].exact
        return exact(low) if low == high else say("{low} to {high}", low=exact(low), high=exact(high))

    def _list(self, texts: Iterable[str]) -> str:
        """One text per number; with their names if there are several."""
        named = zip(texts, self.names, strict=True)
        return ", ".join(text if self._single else f"{name} {text}" for text, name in named)

    def _histogram_frame(self) -> pd.DataFrame:
        rows = []
        for t, (edges, shares) in enumerate(self._each(self.histogram) if self.histogram else ()):
            for low, high, share in zip(edges[:-1], edges[1:], shares, strict=True):
                text = self._numerals[t].text
                first, last = low == edges[0], high == edges[-1]
                ends = {"low": text(low), "high": text(high)}
                if first and last:
                    where = say("any")
                elif first:
                    where = say("below {high}", **ends)
                else:
                    where = say("{low} or more", **ends) if last else say("{low} to {high}", **ends)
                rows.append({**({} if self._single else {"name": self.names[t]}), "range": where, "share": share})
        return pd.DataFrame(rows, columns=[*([] if self._single else ["name"]), "range", "share"])

    def _prediction(self) -> dict[str, Any]:
        return {
            "prediction": self.prediction,
            "interval": self.interval,
            "epsilon": self.epsilon,
            "guarantee": self.guarantee,
            "names": self.names,
            "average": self.average,
            "quantiles": self.quantiles,
            "histogram": self.histogram,
            "influential": [each._asdict() for each in self.influential],
        }

    # Words

    def _headline(self) -> str:
        return "no number" if self.unreadable else self._predicted()

    def _summary(self) -> dict[str, Any]:
        columns: dict[str, Any] = {}
        for t, name in enumerate(self.names):
            lead = "" if self._single else f"{name} "
            columns[f"{lead}prediction"] = self._each(self.prediction)[t]
            if self.interval is not None:
                columns |= dict(zip((f"{lead}low", f"{lead}high"), self._each(self.interval)[t], strict=True))
        return columns | ({} if self.typicality is None else {"typicality": self.typicality}) | self._heaviest()

    def _repeated_sentences(self) -> list[str]:
        described = any(group.compared for group in self.shown_groups)
        return self._group_sentences() if described and not self.few_suffice else []

    def lead(self) -> list[str]:
        """The number, how sure it is and what decides; what speaks for another number; who voted."""
        if self.unreadable:
            return []
        answer = say("Predicted {number}", number=self._predicted())
        facts = [self._because(answer, self.main_reasons if self._single else None)]
        facts += unknown_sentences(self.unknown)
        if self.private:
            return facts
        facts += self._shared_sentences()
        return [
            *facts,
            *self._rival_sentences(),
            self._spread_sentence(),
            self._voters_sentence(),
            *self._group_sentences(),
        ]

    def details(self) -> list[str]:
        """How sure the vote itself is, whose removal moves it most, what the interval promises, and typicality."""
        if self.unreadable:
            return []
        own = [] if self.private else [self._redrawn_sentence(), *self._influence_sentences()]
        promised = [*self._guarantee_sentences(), *typicality_sentences(self.typicality, private=self.private)]
        return [*own, *promised, *self._agreement_sentences()]

    @property
    def _shared_messages(self) -> tuple[str, str, str, str, str]:
        return (
            message("{word} ({share}; all examples {others})"),
            message("{condition} (all examples {others})"),
            message("Words shared with the vote: {words}."),
            message("Shared with the nearest of the vote: {conditions}."),
            message("Shared with nearly all of the vote: {conditions}."),
        )

    def _agreement_sentence(self, share: str) -> str:
        text = message("They predict what all would, to within a tenth of the spread of the votes, on {share}.")
        return say(text, share=share)

    @property
    def _disagree(self) -> bool:
        """Whether the voters' numbers differ at least half as much as all numbers do; False if private."""
        return self._votes is not None and any(self._votes.spread(t) > _DIFFER for t in range(len(self.names)))

    def _rival_sentences(self) -> list[str]:
        """The heaviest group with a clearly different number; columns that speak for the precedent's number."""
        if self._votes is None or not self._single:
            return []
        apart = _DIFFER * self._votes.deviation(0)
        group = next((each for each in self.groups if abs(each.label.mean - self.prediction) > apart > 0), None)
        if group is None:
            return []
        return [
            say(
                "For another number: {share} of the vote is for {number}, {from_group}.",
                share=percent(group.share),
                number=self._range(0, group.label),
                from_group=self._group_words(group),
            )
        ]

    @property
    def headlines(self) -> tuple[str, ...]:
        """Each prediction with its interval, by name if there are several."""
        if self.unreadable:
            return (say("could not be read"),) * len(self.names)
        parts = []
        for t, (value, name) in enumerate(zip(self._each(self.prediction), self.names, strict=True)):
            number = self._numerals[t].text(value)
            text = ("" if self._single else f"{name} ") + (say("about {n}", n=number) if self.private else number)
            if self.interval is not None and self.epsilon is not None:
                ends = self._numerals[t].interval(self._each(self.interval)[t])
                share = coverage(1 - self.epsilon)
                text = say("{number} ({share} interval {ends})", number=text, share=share, ends=ends)
            parts.append(text)
        return tuple(parts)

    def _outcome_name(self, outcome: Any) -> str:
        return self._numerals[0].text(outcome)

    def _predicted(self) -> str:
        return series(self.headlines)

    def _guarantee_sentences(self) -> list[str]:
        if self.interval is None or self.epsilon is None:
            return [say("There are no calibration examples, so there is no interval with a guarantee.")]
        ends = [end for interval in self._each(self.interval) for end in interval]
        share = coverage(1 - self.epsilon)
        if all(map(math.isinf, ends)):
            return [say("There are too few calibration examples for an interval at {share}.", share=share)]
        if self.guarantee is None or self.guarantee >= 1 - self.epsilon:
            text = message(
                "On average, such intervals contain the true number for at least {share} of examples like the training "
                "data."
            )
            if not self._single:
                text = message(
                    "On average, such intervals contain the true number for at least {share} of examples like the "
                    "training data, each number taken alone."
                )
            return [say(text, share=share)]
        text = message(
            "On average, such intervals contain the true number for about {share} of examples like the training data; "
            "at least {least} in theory."
        )
        if not self._single:
            text = message(
                "On average, such intervals contain the true number for about {share} of examples like the training "
                "data, each number taken alone; at least {least} in theory."
            )
        return [say(text, share=share, least=coverage(self.guarantee))]

    def _spread_sentence(self) -> str:
        """The range of the middle half of the votes, in words."""
        assert self.quantiles is not None
        pairs = zip(self._each(self.quantiles[0.25]), self._each(self.quantiles[0.75]), strict=True)
        ends = [self._ends(t, low, high) for t, (low, high) in enumerate(pairs)]
        return say("The middle half of the vote is for {numbers}.", numbers=self._list(ends))

    def _redrawn_sentence(self) -> str:
        """How sure the vote itself is."""
        ends = (self._numerals[t].interval(each) for t, each in enumerate(self._each(self.vote_interval)))
        return self._sure_sentence(say("Other cases like these would give {numbers} (95 %).", numbers=self._list(ends)))

    def _voters_sentence(self) -> str:
        """The neighbours' share of the vote, and how far apart their numbers are."""
        if self.n_references == 1 and self._represents:
            return say("The only representative decides the number.")
        if self.n_references == 1:
            return say("The only training example decides the number.")
        share = self._neighbor_share()
        if not self.few_suffice and self._represents:
            return say("A few representatives do not explain it: {neighbors} of the vote.", neighbors=share)
        if not self.few_suffice:
            return say("A few training examples do not explain it: {neighbors} of the vote.", neighbors=share)
        numbers = zip(*(self._each(voter.label) for voter in self.neighbors), strict=True)
        ends = [self._ends(t, min(own), max(own)) for t, own in enumerate(numbers)]
        known = {"neighbors": f"{share[0].upper()}{share[1:]}", "numbers": self._list(ends)}
        if len(self.neighbors) > 1:
            return say("{neighbors} of the vote; their numbers are {numbers}.", **known)
        if self._single:
            return say("{neighbors} of the vote; its number is {numbers}.", **known)
        return say("{neighbors} of the vote; its numbers are {numbers}.", **known)

    def _group_sentences(self) -> list[str]:
        """How the votes split: the heaviest groups, the numbers of each, and what sets it apart."""
        if len(self.groups) < 2:
            return []

        def describe(place: int) -> str:
            group = self.groups[place]
            numbers = self._list(self._range(t, each) for t, each in enumerate(self._each(group.label)))
            apart = "" if group.in_common is None else f", {group.in_common}"
            return (say("mean {number}", number=numbers) if self._single else numbers) + apart

        return [say("By groups, {vote}.", vote=summary(describe, [group.share for group in self.groups]))]

    def _influence_sentences(self) -> list[str]:
        sentences = []
        for t, prediction in enumerate(self._each(self.prediction)):
            name = None if self._single else self.names[t]
            most = next((each for each in self.influential if each.name == name), None)
            if most is None or most.move == 0:
                continue
            text, exact = self._numerals[t].text, self._numerals[t].exact
            removal = message(
                "Removing training example {id} ({number}, {share} of the vote) would move {which} most, by {move} to "
                "{moved}."
            )
            if self._represents:
                removal = message(
                    "Removing representative {id} ({number}, {share} of the vote), with the examples it votes for, "
                    "would move {which} most, by {move} to {moved}."
                )
            sentences.append(
                say(
                    removal,
                    id=most.id,
                    number=exact(most.target),
                    share=percent(most.share),
                    which=say("the prediction") if self._single else name,
                    move=f"{'+' if most.move > 0 else ''}{text(most.move)}",
                    moved=text(prediction + most.move),
                )
            )
        return sentences

    @spoken
    def plot(self, *, language: str | None = None) -> Any:
        """A matplotlib figure: a histogram of the votes, with the interval and the voters. Needs `dwac[report]`.

        language: of the texts, such as "de".
        """
        del language  # see `spoken`
        return draw_numbers(self)


def explain_numbers(
    references: ReferenceSet,
    queries: Any,
    *,
    k: int = 5,
    intervals: ArrayLike | None = None,
    epsilon: float = EPSILON,
    guarantee: float | None = None,
    typicality: Floats | None = None,
    names: Sequence[Any] | None = None,
    single: bool | None = None,
    average: str = "mean",
    records: Any = None,
    private: bool = False,
    shown: Sequence[dict[str, Any]] | None = None,
    alike: Callable[[int, list[Any]], Floats] | None = None,
    inquire: Callable[[int, int], Inquiry] | None = None,
    descriptions: Sequence[str | None] | None = None,
    agreement: Agreement | None = None,
) -> list[NumberExplanation]:
    """Explain the numbers predicted for query embeddings (n, d), from references with targets (m, T).

    Args:
        references, queries, k, typicality, records, private, shown, alike, agreement: as for `explain`.
        inquire: the same; takes the position of the number, too.
        descriptions: what sets each group of `in_groups(references)` apart, in words.
        intervals: (n, T, 2) intervals with error rate `epsilon`, ±inf allowed.
        guarantee: the least coverage of intervals in theory, on average; by default 1 - ε.
        names: (T,) of the numbers. single: return numbers, not tuples; by default if there is only one.
        average: whether the "mean" or the "median" of the votes is the prediction.

    >>> refs = ReferenceSet([[0.0], [1.0], [5.0]], [0, 0, 0], ["ann", "bob", "eve"], targets=[10.0, 20.0, 90.0])
    >>> e = explain_numbers(refs, [[0.5]], k=2)[0]
    >>> round(e.prediction, 6), e.influential[0].id, [neighbor.label for neighbor in e.neighbors]
    (15.0, 'ann', [10.0, 20.0])
    """
    references, h, k = read_query(references, queries, k, records)
    votes, rows = references.distribution(h), references.distribution(h.cpu().numpy())
    means = (votes.median if average == "median" else votes.mean).cpu().numpy()
    grouped = in_groups(references)
    if descriptions is not None and len(descriptions) != len(grouped.groups):
        raise ShapeError(
            f"descriptions must have one entry per group of in_groups(references): {len(grouped.groups)}; "
            f"got {len(descriptions)}"
        )
    numerals = numerals_of(references)
    n, n_targets = means.shape
    titles = tuple(range(n_targets)) if names is None else tuple(names)
    one = n_targets == 1 if single is None else single
    if len(titles) != n_targets:
        raise ShapeError(f"names must name all {n_targets} numbers; got {len(titles)}")
    ends = None if intervals is None else checks.scores(intervals, "intervals")
    if ends is not None and ends.shape != (n, n_targets, 2):
        raise ShapeError(f"intervals must be ({n}, {n_targets}, 2); got shape {ends.shape}")
    near, log_total = references.nearest(h, k), votes.log_total.cpu().numpy()
    n_examples, shown = round(float(references.sizes.sum())), shown or [{}] * n
    explanations = []
    for row in range(n):
        source = NumberSource(
            titles,
            None if private else records,
            None if alike is None else partial(alike, row),
            descriptions,
            shown[row].get("record"),
            single=one,
        )
        own = NumberVotes(grouped, h[row], rows[row], average)
        labels = [source.vote(own, place) for place in references.voters.positions(near.ids[row]).tolist()]
        case = NumberCase(own, titles, means[row], numerals, one, private)
        question = Reasoner()
        if inquire is not None:
            ask = partial(number_reasons, partial(inquire, row), case)
            question = Reasoner(ask, partial(turn_number, inquire(row, 0), case))
        explanation = NumberExplanation(
            prediction=source.unpacked(means[row].tolist()),
            interval=None if ends is None else source.unpacked([(low, high) for low, high in ends[row].tolist()]),
            epsilon=None if ends is None else epsilon,
            guarantee=None if ends is None else 1 - epsilon if guarantee is None else guarantee,
            names=titles,
            average=average,
            typicality=None if typicality is None else float(typicality[row]),
            neighbors=nearest_voters(near, row, float(log_total[row]), labels, source.records),
            n_references=len(references),
            n_examples=n_examples,
            agreement=agreement,
            _numerals=numerals,
            _votes=own,
            _source=source,
            _question=question,
            **shown[row],
        )
        explanations.append(_make_private(explanation) if private else explanation)
    return explanations


def in_groups(references: ReferenceSet) -> ReferenceSet:
    """The same voters in the groups to show: those that vote alike, whatever bins their numbers are in.

    `ReferenceSet.groups` are within classes, and the classes of numbers are bins: too many and too narrow to read.
    """
    if references.n_classes == 1 or not (references.class_weights == 1).all():
        return references  # there are no bins, or votes for different bins count differently
    return with_classes(references, np.zeros(references.n_classes, dtype=np.int64), 1)


def numerals_of(references: ReferenceSet) -> tuple[Numerals, ...]:
    """How to write the numbers of references, for each of T."""
    assert references.targets is not None
    return tuple(Numerals(column) for column in references.targets.cpu().numpy().T)


def unreadable_number(
    why: str, references: ReferenceSet, *, names: tuple[Any, ...], average: str, single: bool, private: bool
) -> NumberExplanation:
    """The explanation of an example that could not be read: the reason, no number and no voters."""
    return NumberExplanation(
        prediction=math.nan if single else (math.nan,) * len(names),
        names=names,
        average=average,
        private=private,
        unreadable=why,
        _numerals=numerals_of(references),
        **unread_counts(references, private=private),
    )


def _make_private(exact: NumberExplanation) -> NumberExplanation:
    """The private form of an explanation; its typicality was rounded when it was computed."""
    votes, source, numerals = exact._votes, exact._source, exact._numerals
    assert votes is not None
    assert source is not None
    predictions = zip(exact._each(exact.prediction), numerals, strict=True)
    intervals = zip(exact._each(exact.interval), numerals, strict=True) if exact.interval is not None else ()
    histograms = []
    for t, each in enumerate(numerals):
        # Only at the inner edges: votes beyond the outer ones count in the outermost bins.
        below = [float(votes.distribution.cdf(np.nextafter(edge, -np.inf))[0, t]) for edge in each.edges[1:-1]]
        shares = privacy.shares(np.maximum(np.diff([0.0, *below, 1.0]), 0.0), privacy.COARSE)
        histograms.append((tuple(each.edges.tolist()), tuple(shares.tolist())))
    rounded = [tuple(privacy.interval(ends, each.step).tolist()) for ends, each in intervals]
    return replace(
        exact,
        prediction=source.unpacked([float(privacy.numbers(value, each.step)) for value, each in predictions]),
        interval=source.unpacked(rounded) if rounded else None,
        neighbors=(),
        _histogram=source.unpacked(histograms),
        **exact._private_values(),
    )
