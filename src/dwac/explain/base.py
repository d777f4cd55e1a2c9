"""VoteExplanation: the common base of explanations of labels and of numbers: their words and pages."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pandas as pd

from dwac.drawing.pages import render
from dwac.drawing.records import kind_of
from dwac.explain import privacy
from dwac.explain.facts import VoteFacts
from dwac.explain.hybrids import Box, Part
from dwac.explain.reasons import Reasons
from dwac.explain.rendering import (
    NOT_SHOWN,
    OWN_HEADS,
    Rendered,
    Row,
    VoterTable,
    about,
    cell_of,
    coverage,
    distance,
    example_values,
    line_width,
    more_columns,
    percent,
    rows_of,
    table_lines,
    wrap,
)
from dwac.explain.turning import Turn
from dwac.explain.voters import Group
from dwac.languages import count, label_name, message, numeral, say, spoken
from dwac.metrics import Agreement
from dwac.reference import ReferenceSet

_BESIDE = 4  # columns of a record that fit beside the votes on a page
_ABREAST = 6  # records that fit beside each other
EXAMPLE = message("this example")  # the name of its row in a table of voters
_FIRST = 2  # conditions of a group in a sentence on what speaks for another answer
_LONGEST, _LONGEST_PHRASE = 40, 60  # characters of a value, and of a phrase of a text, in a sentence
_REGIONS = {
    "1.1": message("the upper left"),
    "1.2": message("the top"),
    "1.3": message("the upper right"),
    "2.1": message("the left"),
    "2.2": message("the middle"),
    "2.3": message("the right"),
    "3.1": message("the lower left"),
    "3.2": message("the bottom"),
    "3.3": message("the lower right"),
}  # of an image, by the row and column of its patch
FEW_CASES = 10  # effective voters below which an explanation says that cases are few
STRANGE, _UNUSUAL = 0.05, 0.1  # typicality up to which an example is called unlike the training data, or somewhat so


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class VoteExplanation(Rendered, VoteFacts):
    """Why one example got its prediction, in words and on pages."""

    # Words

    @spoken
    def sentences(self, *, language: str | None = None) -> list[str]:
        """The explanation in plain words, one entry per fact: the reason first, p-values last.

        language: of the sentences, such as "de".
        """
        del language  # see `spoken`
        return unread_sentences(self.unreadable) if self.unreadable else [*self.lead(), *self.details()]

    def lead(self) -> list[str]:
        """The first of the sentences: the answer, how sure it is and what decides; what speaks for another answer.

        Empty if unreadable, as `details` is.
        """
        raise NotImplementedError

    def details(self) -> list[str]:
        """The other sentences, to read after the voters: what would change the prediction, and p-values."""
        raise NotImplementedError

    @property
    def _few_cases(self) -> bool:
        return (self.n_effective or 0.0) <= FEW_CASES

    @property
    def _from_cases(self) -> str:
        """ "from few cases that agree"."""
        if self.private:
            return say("from cases that disagree") if self._disagree else say("from cases that agree")
        if self._few_cases:
            return say("from few cases that disagree") if self._disagree else say("from few cases that agree")
        return say("from many cases that disagree") if self._disagree else say("from many cases that agree")

    @property
    def _disagree(self) -> bool:
        """Whether the voters disagree."""
        raise NotImplementedError

    def _because(self, answer: str, reasons: Reasons | None) -> str:
        """The first sentence: the answer, from which cases, what decides, and against whom.

        Columns are those that speak for the prediction most, up to three, against a similar example with another one.
        Of a text or image, these are phrases or regions; if these are not known, words that it shares with its voters.
        """
        known = {"answer": answer, "from_cases": self._from_cases}
        if self.turn is not None:
            return self._turn_sentence(self.turn, **known)
        if reasons is None or not reasons.total:
            shared = [each.text for each in self.shared] if kind_of(self.record) == "text" else []
            if not shared:
                return say("{answer} {from_cases}.", **known)
            return count(
                "{answer} {from_cases}, sharing the word {words} with them.",
                "{answer} {from_cases}, sharing the words {words} with them.",
                len(shared),
                words=series(shared),
                **known,
            )
        parts = self._parts(reasons, reasons.total)
        if reasons.precedent is None or not parts:
            return say("{answer} {from_cases}.", **known)
        return say(
            "{answer} {from_cases}, because of {columns}; example {id}, similar otherwise, is {other}.",
            columns=series(parts),
            id=reasons.precedent.id,
            other=reasons.outcome(reasons.other),
            **known,
        )

    def _turn_sentence(self, turn: Turn, **known: str) -> str:
        """The first sentence on a text or image: what decides, and what it would be without that."""
        n, parts = len(turn.parts), series([region_name(part) for part in turn.parts])
        known = known | {"parts": parts, "outcome": self._outcome_name(turn.outcome)}
        if turn.precedent is None and turn.changed:
            return count(
                "{answer} {from_cases}, because of {parts}; without it, it would be {outcome}.",
                "{answer} {from_cases}, because of {parts}; without them, it would be {outcome}.",
                n,
                **known,
            )
        if turn.precedent is None:
            return count(
                "{answer} {from_cases}, above all because of {parts}; even without it, it would be {outcome}.",
                "{answer} {from_cases}, above all because of {parts}; even without them, it would be {outcome}.",
                n,
                **known,
            )
        known |= {"id": turn.precedent, "other": self._outcome_name(turn.other)}
        if turn.changed:
            return count(
                "{answer} {from_cases}, because of {parts}; with that of example {id}, which is {other}, it would be "
                "{outcome}.",
                "{answer} {from_cases}, because of {parts}; with those of example {id}, which is {other}, it would be "
                "{outcome}.",
                n,
                **known,
            )
        return count(
            "{answer} {from_cases}, above all because of {parts}; even with that of example {id}, which is {other}, "
            "it would be {outcome}.",
            "{answer} {from_cases}, above all because of {parts}; even with those of example {id}, which is {other}, "
            "it would be {outcome}.",
            n,
            **known,
        )

    def _outcome_name(self, outcome: Any) -> str:
        """A label, or a number with few digits, as text."""
        return label_name(outcome)

    def _parts(self, reasons: Reasons, sign: float) -> list[str]:
        """The columns with the largest contributions of this sign that matter."""
        return [
            say(
                "{column} {value} (not {other})",
                column=self.legend.title(each.column),
                value=_value(self.legend.value(each.column, each.value, _LONGEST)),
                other=_value(self.legend.value(each.column, each.other_value, _LONGEST)),
            )
            for each in reasons.main(sign)
        ]

    def _group_words(self, group: Group) -> str:
        """ "from 275 examples with dir at most 0.395, as here"."""
        shared = [] if group.comparison is None else [each.text for each in group.comparison.shared[:_FIRST]]
        n, words = group.size, series(shared)
        if not shared:
            return count("from {n} example", "from {n} examples", n)
        if kind_of(self.record) != "text":
            return count(
                "from {n} example with {words}, as here", "from {n} examples with {words}, as here", n, words=words
            )
        if len(shared) == 1:
            return count(
                "from {n} example with the word {words}, as here",
                "from {n} examples with the word {words}, as here",
                n,
                words=words,
            )
        return count(
            "from {n} example with the words {words}, as here",
            "from {n} examples with the words {words}, as here",
            n,
            words=words,
        )

    def _shared_sentences(self) -> list[str]:
        """What the example shares with nearly all votes, in words."""
        shared = [
            (each.text, {"share": percent(each.share), "others": percent(each.elsewhere)}) for each in self.shared
        ]
        if not shared:
            return []
        word, condition, words, nearest, most = self._shared_messages
        if kind_of(self.record) == "text":
            listed = ", ".join(say(word, word=text, **shares) for text, shares in shared)
            return [say(words, words=listed, **self._vote_names())]
        listed = ", ".join(say(condition, condition=text, **shares) for text, shares in shared)
        return [say(nearest if self.few_suffice else most, conditions=listed, **self._vote_names())]

    @property
    def _shared_messages(self) -> tuple[str, str, str, str, str]:
        """A word and a condition with their shares; the sentences on words, and on conditions of the nearest or all."""
        raise NotImplementedError

    def _vote_names(self) -> dict[str, str]:
        """The name of the prediction in sentences on what is shared."""
        return {}

    def _sure_sentence(self, redrawn: str) -> str:
        """How sure the vote itself is, in words: the effective number of voters, and where the vote would be again."""
        n = self.n_effective or 0.0
        amount = numeral(f"{n:.1f}" if n <= FEW_CASES else f"{n:,.0f}")
        if self._few_cases and self._disagree:
            weight = say("The votes of these few cases that disagree weigh as much as {n} equal ones.", n=amount)
        elif self._few_cases:
            weight = say("The votes of these few cases that agree weigh as much as {n} equal ones.", n=amount)
        elif self._disagree:
            weight = say("The votes of these many cases that disagree weigh as much as {n} equal ones.", n=amount)
        else:
            weight = say("The votes of these many cases that agree weigh as much as {n} equal ones.", n=amount)
        return f"{weight} {redrawn}".rstrip()

    def _neighbor_share(self) -> str:
        """The neighbours' share of the vote, in words."""
        share, k = percent(sum(n.share for n in self.neighbors)), len(self.neighbors)
        if self._represents:
            return count("the heaviest one holds {share}", "the {n} heaviest hold {share}", k, share=share)
        return count("the nearest one holds {share}", "the {n} nearest hold {share}", k, share=share)

    def _agreement_sentences(self) -> list[str]:
        """How many representatives vote for all, and how often they predict the same as all, in words."""
        if not self._represents:
            return []
        known = [] if self.agreement is None else [self._agreement_sentence(self._agreement_words(self.agreement))]
        if self.private:
            few, all_ = about(self.n_references), about(self.n_examples)
            text = say("Representatives ({few}) vote for all training examples ({all}).", few=few, all=all_)
        else:
            text = say(
                "{few} representatives vote for {all} training examples.",
                few=numeral(f"{self.n_references:,}"),
                all=numeral(f"{self.n_examples:,}"),
            )
        return [" ".join([text, *known])]

    def _agreement_sentence(self, share: str) -> str:
        """How often representatives predict the same as all; share: of which rows."""
        raise NotImplementedError

    def _agreement_words(self, known: Agreement) -> str:
        if self.private:
            return say("{share} of calibration rows", share=privacy.percent(known.share))
        return known.words()

    # Pages

    def __repr__(self) -> str:
        """The prediction and the number of voters, in one line."""
        who = "representative" if self._represents else "training example"
        many = who if self.n_references == 1 else f"{self.n_references:,} {who}s"
        voted = "could not be read" if self.unreadable else f"{many} voted"
        return f"<{type(self).__name__}: {self._headline()}; {voted}>"

    def _headline(self) -> str:
        """The prediction, in short."""
        raise NotImplementedError

    def _summary(self) -> dict[str, Any]:
        """One line of a table of many explanations, for `Explanations`."""
        raise NotImplementedError

    def _heaviest(self) -> dict[str, Any]:
        """The heaviest voter and its share, for `_summary`; empty if private or unreadable."""
        if self.private or self.unreadable:
            return {}
        if self.few_suffice:
            first = max(self.neighbors, key=lambda neighbor: neighbor.share)
            return {"share": first.share, "heaviest voter": str(first.id)}
        group = self.groups[0]
        n, common = group.size, group.in_common
        words = count("{n} example like {id}", "{n} examples like {id}", n, id=group.face.id)
        if common:
            words = count("{words} ({n} example)", "{words} ({n} examples)", n, words=common)
        return {"share": group.share, "heaviest voter": words}

    @spoken
    def to_text(self, width: int | None = None, *, again: bool = True, language: str | None = None) -> str:
        """The reason, then a table of the voters, then p-values, in lines of at most `width` characters.

        The table begins with the example itself, and has as many columns as fit, the most informative first; a line
        below says how many are left out. width: by default that of the terminal. again: include the sentences that
        hold for all labels of the example. language: of the text, such as "de".
        """
        del language  # see `spoken`
        width = line_width() if width is None else width
        facts, details = (wrap(part, width) for part in self._printed(again=again))
        if self.unreadable:
            return "\n".join(facts)
        votes, records = self._shown_votes(), self._shown_records()
        filling = "group" if "group" in votes else "text" if list(records) == ["text"] else None
        if "distance" in votes:
            votes["distance"] = [distance(value) for value in votes["distance"]]
        votes["share"] = [
            share if isinstance(share, str) else percent(share, private=self.private) for share in votes["share"]
        ]
        always, heads = len(votes.columns), self._vote_heads(votes)
        if filling == "group":
            lines, _ = table_lines(votes, width, always=always, filling=filling, heads=heads)
            mine, left_out = self._own_values(list(records), width)
            lines += mine
        else:
            table = self._join(votes, records)
            if len(records.columns) and kind_of(self.record) in ("table", "text"):
                table = pd.concat([self._join(*self._example_rows(votes, records)), table])
            heads += map(self._head, records)
            lines, left_out = table_lines(table, width, always=always, filling=filling, heads=heads)
        after = ["", *details] if details else []
        return "\n".join([*facts, "", *lines, *more_columns(left_out, width), *after])

    def _own_values(self, columns: Sequence[Any], width: int) -> tuple[list[str], list[str]]:
        """(as many values of the example as fit, from columns that set groups apart; the names of those left out).

        A text is cut to its beginning; an image is left out.
        """
        kind = kind_of(self.record)
        if kind not in ("table", "text"):
            return [], []
        start = say("This example: ")
        if kind == "text":
            return [textwrap.shorten(start + self.record["text"], width, placeholder=" …")], []
        known = [name for name in columns if name in self.record]
        values = [f"{self.legend.title(name)} {self.legend.value(name, self.record[name])}" for name in known]
        ends = accumulate(len(f"{value}, ") for value in values)
        shown = max(sum(end <= width - len(start) for end in ends), 1)
        line = start + ", ".join(values[:shown])
        return [textwrap.shorten(line, width, placeholder=" …")], list(map(self._head, known[shown:]))

    def _vote_heads(self, votes: pd.DataFrame) -> list[str]:
        """The names of the columns of votes, for people."""
        return [say(name) if name in OWN_HEADS else str(name) for name in votes]

    def _head(self, column: Any) -> str:
        """The name of a column of records, for people."""
        return self.legend.title(column) if column in self.legend.names else str(self._title(column))

    def _join(self, votes: pd.DataFrame, records: pd.DataFrame) -> pd.DataFrame:
        """Votes and records as one table."""
        return pd.concat([votes, records.rename(columns=self._title)], axis=1).astype(object)

    def _printed(self, *, again: bool) -> tuple[list[str], list[str]]:
        """(sentences before, sentences after a table of the voters), without what the table already says."""
        if self.unreadable:
            return unread_sentences(self.unreadable), []
        repeated = self._repeated_sentences()
        if not again:
            repeated += typicality_sentences(self.typicality, private=self.private) + unknown_sentences(self.unknown)
        lead, details = ([each for each in part if each not in repeated] for part in (self.lead(), self.details()))
        return lead, details

    def _repeated_sentences(self) -> list[str]:
        """The sentences that repeat what a printed table says."""
        return []

    def _example_rows(self, votes: pd.DataFrame, records: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The explained example as a row of votes, which names it, and as a row of records."""
        name = next((name for name in ("most alike", "id") if name in votes), votes.columns[-1])
        mine = self._read_record(self.record)
        own_votes = pd.DataFrame([{column: say(EXAMPLE) if column == name else "" for column in votes}])
        return own_votes, pd.DataFrame([{column: mine.get(column, "") for column in records}], dtype=object)

    @spoken
    def to_html(self, *, example: bool = True, language: str | None = None) -> str:
        """A self-contained HTML fragment: no scripts, no links, every value escaped.

        example: show the example itself, a table row above its voters, anything else at the top; and include what holds
        for all labels of the example. language: of the texts, such as "de".
        """
        del language  # see `spoken`
        votes, records = self._shown_votes(), self._shown_records()
        beside = example and kind_of(self.record) == "table" and len(records.columns) > 0
        lead, details = self._printed(again=example)
        return render(
            "explain/templates/explanation.html",
            sentences=lead,
            details=details,
            tables=[] if self.unreadable else self._tables(votes, records, with_example=beside),
            **(example_values(self.record, self.attention, self.legend) if example and not beside else NOT_SHOWN),
        )

    def _tables(self, votes: pd.DataFrame, records: pd.DataFrame, *, with_example: bool) -> list[VoterTable]:
        """The voters as tables of a page; records with many columns in tables of their own."""
        own_votes, own_record = self._example_rows(votes, records) if with_example else (votes[:0], records[:0])
        heads = self._vote_heads(votes)
        if len(records.columns) > _BESIDE:
            names = next(votes[name] for name in ("most alike", "id", *votes) if name in votes)
            parts = [slice(start, start + _ABREAST) for start in range(0, len(votes), _ABREAST)]
            tables = [self._record_table(names[part], records[part], own_record) for part in parts]
            return [VoterTable(heads, rows_of(votes, private=self.private)), *tables]
        own_rows = rows_of(self._join(own_votes, own_record), "dwac-example", private=self.private)
        rows = rows_of(self._join(votes, records), private=self.private)
        return [VoterTable([*heads, *map(self._head, records)], own_rows + rows)]

    def _record_table(self, names: pd.Series[Any], records: pd.DataFrame, own_record: pd.DataFrame) -> VoterTable:
        """The records of a few voters with these names side by side, one line per column, after that of the example."""
        cells = pd.concat([own_record, records.astype(object)])
        rows = [Row([cell_of("", value) for value in cells[column]], name=self._head(column)) for column in records]
        head = ["", *[say(EXAMPLE)] * len(own_record), *names]
        return VoterTable(head, rows, "dwac-records" + " dwac-example" * len(own_record))


def set_sentences(labels: Sequence[Any] | None, epsilon: float) -> list[str]:
    """The prediction set and its coverage, in words."""
    if labels is None:
        return []
    share = coverage(1 - epsilon)
    if not labels:
        return [say("{share} prediction set: empty, as no label fits.", share=share)]
    return [say("{share} prediction set: {labels}.", share=share, labels=", ".join(map(label_name, labels)))]


def unread_sentences(why: str) -> list[str]:
    """Sentences that say that an example could not be read, and what follows from that."""
    return [
        say("This example could not be read: {reason}.", reason=why),
        say("No training example voted on it, and nothing is predicted."),
    ]


def unread_counts(references: ReferenceSet, *, private: bool) -> dict[str, Any]:
    """The counts of voters for an example that could not be read, on which none of them voted."""
    counts = len(references), round(float(references.sizes.sum()))
    n_references, n_examples = map(privacy.count, counts) if private else counts
    return {"neighbors": (), "n_references": n_references, "n_examples": n_examples}


def unknown_sentences(unknown: str | None) -> list[str]:
    """The values that the training data never had, in words; empty if it had all."""
    text = message("Unknown values: {values}. They do not occur in the training data and count as missing.")
    return [] if unknown is None else [say(text, values=unknown)]


def typicality_sentences(typicality: float | None, *, private: bool) -> list[str]:
    """How typical an example is, in words; empty if that was not measured."""
    if typicality is None:
        return []
    text = message("It is like the training data: {share} of known cases are as unusual or more so ({typicality}).")
    if typicality <= _UNUSUAL:
        text = message("It is somewhat unusual: {share} of known cases are as unusual or more so ({typicality}).")
    if typicality <= STRANGE:
        text = message("It is unlike the training data: only {share} of known cases are as unusual ({typicality}).")
    share, exact = p_value(typicality, private=private)
    return [say(text, share=share, typicality=say("typicality") + exact)]


def p_value(value: float, *, private: bool) -> tuple[str, str]:
    """A p-value as text: the share of calibration examples that it stands for, and all its digits, unless private."""
    return (privacy.credibility(value), "") if private else (privacy.percent(value), numeral(f" {value:.3f}"))


def series(texts: Sequence[str]) -> str:
    """Texts in a sentence.

    >>> series(["a"]), series(["a", "b"]), series(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    if len(texts) < 2:
        return "".join(texts)
    return say("{first} and {last}", first=", ".join(texts[:-1]), last=texts[-1])


def region_name(part: Part) -> str:
    """A phrase of a text, or a patch of an image, in a sentence."""
    if not isinstance(part.value, Box):
        return say("“{words}”", words=textwrap.shorten(part.value, _LONGEST_PHRASE, placeholder=" …"))
    place = str(part.name).removeprefix("patch ")
    return say(_REGIONS[place]) if place in _REGIONS else say("patch {place}", place=place)


def _value(text: str) -> str:
    """A value in a sentence, from its short form."""
    return say("missing") if text == "–" else text or say("nothing")
