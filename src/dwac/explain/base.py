"""VoteExplanation: the common base of explanations of labels and of numbers: their words and pages."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pandas as pd

from dwac.drawing.pages import render
from dwac.drawing.records import kind_of, shorten, title_of
from dwac.explain import privacy
from dwac.explain.facts import VoteFacts
from dwac.explain.reasons import Reasons
from dwac.explain.rendering import (
    Page,
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
from dwac.explain.voters import Group, record_items
from dwac.metrics import Agreement
from dwac.reference import ReferenceSet

_BESIDE = 4  # columns of a record that fit beside the votes on a page
_ABREAST = 6  # records that fit beside each other
EXAMPLE = "this example"  # the name of its row in a table of voters
_FIRST = 2  # conditions of a group in a sentence on what speaks for another answer
_MATTERS, _NAMED = 0.1, 3  # share of the largest contribution from which parts are named, and how many
_LONGEST = 40  # characters of a value in a sentence
FEW_CASES = 10  # effective voters below which an explanation says that cases are few
STRANGE = 0.05  # typicality up to which an example is called unlike the training data


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class VoteExplanation(Page, VoteFacts):
    """Why one example got its prediction, in words and on pages."""

    # Words

    def sentences(self) -> list[str]:
        """The explanation in plain words, one entry per fact: the reason first, p-values last."""
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
    def _cases(self) -> str:
        """ "few cases that agree"."""
        count = "" if self.private else "few " if (self.n_effective or 0.0) <= FEW_CASES else "many "
        return f"{count}cases that {'disagree' if self._disagree else 'agree'}"

    @property
    def _disagree(self) -> bool:
        """Whether the voters disagree."""
        raise NotImplementedError

    def _because(self) -> str:
        """What decides, and against whom, as the end of a sentence; empty if unknown.

        Columns are those that speak for the prediction most, up to three, against a similar example with another one;
        of a text, words that it shares with those that voted for it.
        """
        reasons = self.main_reasons
        if reasons is None or not reasons.total:
            shared = [each.text for each in self.shared] if kind_of(self.record) == "text" else []
            return f", sharing {words_in_series(shared)} with them" if shared else ""
        parts = self._parts(reasons, reasons.total)
        if reasons.precedent is None or not parts:
            return ""
        other = reasons.outcome(reasons.other)
        return f", because of {series(parts)}; example {reasons.precedent.id}, similar otherwise, is {other}"

    def _parts(self, reasons: Reasons, sign: float) -> list[str]:
        """The columns with the largest contributions of this sign that matter."""
        least = _MATTERS * abs(reasons.contributions[0].contribution)
        same = (part for part in reasons.deciding if part.contribution * sign > 0)
        parts = [part for part in same if abs(part.contribution) >= least][:_NAMED]
        return [f"{title_of(each.column)} {_value(each.value)} (not {_value(each.other_value)})" for each in parts]

    def _group_words(self, group: Group) -> str:
        """ "275 examples with dir at most 0.395, as here"."""
        shared = [] if group.comparison is None else [each.text for each in group.comparison.shared[:_FIRST]]
        words = words_in_series(shared) if kind_of(self.record) == "text" else series(shared)
        alike = f" with {words}, as here" if shared else ""
        return f"{group.size:,} example{'s' * (group.size > 1)}{alike}"

    def _shared_sentences(self, votes: str, others: str) -> list[str]:
        """What the example shares with nearly all votes, in words; votes: which. others: who mostly lacks it."""
        parts = [f"{each.text} ({others} {percent(each.elsewhere)})" for each in self.shared]
        if kind_of(self.record) == "text":
            parts = [f"{each.text} ({percent(each.share)}; {others} {percent(each.elsewhere)})" for each in self.shared]
            return [f"Words shared with {votes}: {', '.join(parts)}."] if parts else []
        which = "the nearest" if self.few_suffice else "nearly all"
        return [f"Shared with {which} {votes}: {', '.join(parts)}."] if parts else []

    def _sure_sentence(self, redrawn: str) -> str:
        """How sure the vote itself is, in words: the effective number of voters, and where the vote would be again."""
        n = self.n_effective or 0.0
        amount = f"{n:.1f}" if n <= FEW_CASES else f"{n:,.0f}"
        again = f" Other cases like these would give {redrawn} (95 %)." if redrawn else ""
        return f"The votes of these {self._cases} weigh as much as {amount} equal ones.{again}"

    @property
    def _voter(self) -> str:
        return "representative" if self._represents else "training example"

    @property
    def _order(self) -> str:
        return "heaviest" if self._represents else "nearest"

    def _voters(self, n: int) -> str:
        """ "n training examples", or "n representatives" where these vote for all."""
        return self._voter if n == 1 else f"{n:,} {self._voter}s"

    def _neighbor_share(self) -> str:
        """The neighbours' share of the vote, in words."""
        share, k = percent(sum(n.share for n in self.neighbors)), len(self.neighbors)
        return f"the {self._order} one holds {share}" if k == 1 else f"the {k:,} {self._order} hold {share}"

    def _agreement_sentences(self, same: str) -> list[str]:
        """How many representatives vote for all, and how often they predict the same as all, in words."""
        if not self._represents:
            return []
        known = self.agreement and f" They {same} on {self._agreement_words(self.agreement)}."
        if self.private:
            few, all_ = about(self.n_references), about(self.n_examples)
            return [f"Representatives ({few}) vote for all training examples ({all_}).{known or ''}"]
        return [f"{self.n_references:,} representatives vote for {self.n_examples:,} training examples.{known or ''}"]

    def _agreement_words(self, known: Agreement) -> str:
        return f"{privacy.percent(known.share)} of calibration rows" if self.private else str(known)

    # Pages

    def __repr__(self) -> str:
        """The prediction and the number of voters, in one line."""
        voted = "could not be read" if self.unreadable else f"{self._voters(self.n_references)} voted"
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
        size = f"{group.size:,} example{'s' * (group.size > 1)}"
        words = f"{group.in_common} ({size})" if group.in_common else f"{size} like {group.face.id}"
        return {"share": group.share, "heaviest voter": words}

    def to_text(self, width: int | None = None, *, again: bool = True) -> str:
        """The reason, then a table of the voters, then p-values, in lines of at most `width` characters.

        The table begins with the example itself, and has as many columns as fit, the most informative first; a line
        below says how many are left out. width: by default that of the terminal. again: include the sentences that
        hold for all labels of the example.
        """
        width = line_width() if width is None else width
        facts, details = (wrap(part, width) for part in self._printed(again=again))
        if self.unreadable:
            return "\n".join(facts)
        frame = self._shown_frame()
        columns, own = self._arrange(frame)
        rows = frame[columns].astype(object)
        if "distance" in rows:
            rows["distance"] = [distance(value) for value in frame["distance"]]
        rows["share"] = [
            share if isinstance(share, str) else percent(share, private=self.private) for share in frame["share"]
        ]
        filling = "group" if "group" in columns else "text" if columns[own:] == ["text"] else None
        if filling == "group":
            rows = rows[columns[:own]]
        elif own < len(columns):
            rows = pd.concat([self._example_row(columns[:own], columns[own:]), rows])
        lines, left_out = table_lines(rows, width, always=own, filling=filling)
        if filling == "group":
            mine, left_out = self._own_values(columns[own:], width)
            lines += mine
        after = ["", *details] if details else []
        return "\n".join([*facts, "", *lines, *more_columns(left_out, width), *after])

    def _own_values(self, columns: Sequence[Any], width: int) -> tuple[list[str], list[Any]]:
        """(as many values of the example as fit, from columns that set groups apart; the columns left out).

        A text is cut to its beginning; an image is left out.
        """
        kind = kind_of(self.record)
        if kind not in ("table", "text"):
            return [], []
        start = f"{EXAMPLE.capitalize()}: "
        if kind == "text":
            return [textwrap.shorten(start + self.record["text"], width, placeholder=" …")], []
        values = {name: f"{title_of(name)} {shorten(self.record[name])}" for name in columns if name in self.record}
        ends = accumulate(len(f"{value}, ") for value in values.values())
        shown = max(sum(end <= width - len(start) for end in ends), 1)
        line = start + ", ".join(list(values.values())[:shown])
        return [textwrap.shorten(line, width, placeholder=" …")], list(values)[shown:]

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

    def _arrange(self, frame: pd.DataFrame) -> tuple[list[Any], int]:
        """(columns of `_shown_frame` in the order shown, how many of them do not come from records)."""
        keys = {key for voter in self.shown if voter.record is not None for key in record_items(voter.record)}
        titles = {self._title(key) for key in keys}
        own = [name for name in frame.columns if self.private or name not in titles]
        return [*own, *self._order_columns([name for name in frame.columns if name not in own])], len(own)

    def _example_row(self, own: Sequence[Any], columns: Sequence[Any]) -> pd.DataFrame:
        """The explained example as a row of the table of voters; no row if it has no such columns."""
        if kind_of(self.record) not in ("table", "text"):
            return pd.DataFrame(columns=[*own, *columns], dtype=object)
        name = next((name for name in ("most alike", "id") if name in own), own[-1])
        mine = {self._title(key): value for key, value in self.record.items()}
        row = dict.fromkeys(own, "") | {name: EXAMPLE} | {column: mine.get(column, "") for column in columns}
        return pd.DataFrame([row], columns=[*own, *columns], dtype=object)

    def to_html(self, *, example: bool = True) -> str:
        """A self-contained HTML fragment: no scripts, no links, every value escaped.

        example: show the example itself, a table row above its voters, anything else at the top; and include what holds
        for all labels of the example.
        """
        frame = self._shown_frame()
        columns, own = self._arrange(frame)
        mine = self._example_row(columns[:own], columns[own:]) if example and own < len(columns) else frame.iloc[:0]
        beside = len(mine) > 0 and kind_of(self.record) == "table"
        apart = columns[own:] if len(columns) - own > _BESIDE else []
        columns = columns[:own] if apart else columns
        own_row = rows_of(mine[columns], "dwac-example", private=self.private) if beside and not apart else []
        tables = [VoterTable(columns, own_row + rows_of(frame[columns], private=self.private))]
        for start in range(0, len(frame), _ABREAST) if apart else ():
            tables.append(self._records(frame.iloc[start : start + _ABREAST], mine if beside else mine[:0], apart))
        lead, details = self._printed(again=example)
        return render(
            "explain/templates/explanation.html",
            sentences=lead,
            details=details,
            tables=[] if self.unreadable else tables,
            **example_values(*((self.record, self.attention) if example and not beside else (None, None))),
        )

    def _records(self, frame: pd.DataFrame, mine: pd.DataFrame, columns: Sequence[Any]) -> VoterTable:
        """The records of a few voters side by side, one line per column: for records with many columns."""
        who = next(name for name in ("most alike", "id", *frame.columns) if name in frame)
        cells = pd.concat([mine[columns].astype(object), frame[columns].astype(object)])
        rows = [
            Row([cell_of("", value, private=self.private) for value in cells[name]], name=str(name)) for name in columns
        ]
        return VoterTable(["", *[EXAMPLE] * len(mine), *frame[who]], rows, "dwac-records" + " dwac-example" * len(mine))


def set_sentences(labels: Sequence[Any] | None, epsilon: float) -> list[str]:
    """The prediction set and its coverage, in words."""
    if labels is None:
        return []
    names = ", ".join(map(str, labels)) if labels else "empty, as no label fits"
    return [f"{coverage(1 - epsilon)} prediction set: {names}."]


def unread_sentences(why: str) -> list[str]:
    """Sentences that say that an example could not be read, and what follows from that."""
    return [f"This example could not be read: {why}.", "No training example voted on it, and nothing is predicted."]


def unread_counts(references: ReferenceSet, *, private: bool) -> dict[str, Any]:
    """The counts of voters for an example that could not be read, on which none of them voted."""
    counts = len(references), round(float(references.sizes.sum()))
    n_references, n_examples = map(privacy.count, counts) if private else counts
    return {"neighbors": (), "n_references": n_references, "n_examples": n_examples}


def unknown_sentences(unknown: str | None) -> list[str]:
    """The values that the training data never had, in words; empty if it had all."""
    return (
        []
        if unknown is None
        else [f"Unknown values: {unknown}. They do not occur in the training data and count as missing."]
    )


def typicality_sentences(typicality: float | None, *, private: bool) -> list[str]:
    """How typical an example is, in words; empty if that was not measured."""
    if typicality is None:
        return []
    strange = typicality <= STRANGE
    share, exact = p_value(typicality, "typicality", private=private)
    lead = "It is unlike the training data: only" if strange else "It is like the training data:"
    return [f"{lead} {share} of known cases are as unusual{'' if strange else ' or more so'}{exact}."]


def p_value(value: float, name: str, *, private: bool) -> tuple[str, str]:
    """A p-value as text: the share of calibration examples that it stands for, and its name with all digits."""
    return (privacy.credibility(value), f" ({name})") if private else (privacy.percent(value), f" ({name} {value:.3f})")


def series(texts: Sequence[str]) -> str:
    """Texts in a sentence.

    >>> series(["a"]), series(["a", "b"]), series(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


def words_in_series(words: Sequence[str]) -> str:
    """Words of a text in a sentence.

    >>> words_in_series(["goal"]), words_in_series(["goal", "team"])
    ('the word goal', 'the words goal and team')
    """
    return f"the word{'s' * (len(words) > 1)} {series(words)}"


def _value(value: Any) -> str:
    """A value in a sentence."""
    text = shorten(value, _LONGEST)
    return "missing" if text == "–" else text or "nothing"
