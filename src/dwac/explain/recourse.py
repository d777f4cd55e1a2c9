"""Recourse: the smallest changes of a row, towards real precedents, that give it another label or number.

way = clf.recourse(X, "good", frozen=["age"])[0].ways[0]
print(way)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import pandas as pd

from dwac.drawing.legend import NO_LEGEND, Legend
from dwac.drawing.pages import render
from dwac.drawing.records import plain_dict, shorten
from dwac.errors import InputError
from dwac.explain import privacy
from dwac.explain.base import STRANGE
from dwac.explain.hybrids import Part, read_tied, require_columns
from dwac.explain.reasons import Precedent, example_title
from dwac.explain.rendering import Cell, Rendered, Row, VoterTable, percent, wrap
from dwac.languages import count, label_name, message, say, spoken

Bound = str | tuple[Any, Any]

GROW, FALL = "grow", "fall"


class Constraints(NamedTuple):
    """What may change: not these columns, only those, and within these bounds; tied columns change together."""

    frozen: Collection[Any] = ()
    only: Collection[Any] | None = None
    bounds: Mapping[Any, Bound] | None = None
    tied: Sequence[Collection[Any]] = ()

    def check(self, columns: Sequence[Any]) -> None:
        """Raise an error unless they name columns, and bounds are "grow", "fall" or (low, high)."""
        for names, argument in ((self.frozen, "frozen"), (self.only, "only"), (self.bounds, "bounds")):
            if isinstance(names, str):
                raise InputError(f"{argument} must be a list of columns; got {names!r}; write [{names!r}]")
            require_columns(list(names or ()), columns, argument)
        read_tied(self.tied, columns)
        for name, bound in (self.bounds or {}).items():
            if bound not in (GROW, FALL) and not (isinstance(bound, tuple | list) and len(bound) == 2):
                raise InputError(f"bounds must be 'grow', 'fall' or (low, high); column {name!r} has {bound!r}")

    def allow(self, part: Part) -> bool:
        """Whether a column may take the precedent's value."""
        if part.name in self.frozen or (self.only is not None and part.name not in self.only):
            return False
        bound = (self.bounds or {}).get(part.name)
        if bound is None:
            return True
        if pd.isna(part.other_value):
            return False
        try:
            if not isinstance(bound, str):
                return bool(bound[0] <= part.other_value <= bound[1])
            if pd.isna(part.value):
                return False
            return bool(part.other_value >= part.value if bound == GROW else part.other_value <= part.value)
        except TypeError:
            raise InputError(
                f"bounds are for numbers and dates; column {part.name!r} holds {part.value!r}; use frozen or only"
            ) from None


class ChangedColumn(NamedTuple):
    """A column, its value now, and the value that it would have to have; None if private.

    >>> from dwac import DWACClassifier
    >>> X = pd.DataFrame({"age": range(20, 80)})
    >>> clf = DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, X["age"] < 50)
    >>> change = clf.recourse(X[:1], False)[0].ways[0].changes[0]
    >>> change.column, change.value, change.to >= 50
    ('age', 20, True)
    """

    column: Any
    value: Any
    to: Any


@dataclass(frozen=True, eq=False)
class Way:
    """A change of a few columns that reaches the goal, checked with the model.

    >>> from dwac import DWACClassifier
    >>> X = pd.DataFrame({"age": range(20, 80)})
    >>> clf = DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, X["age"] < 50)
    >>> way = clf.recourse(X[:1], False)[0].ways[0]
    >>> way.columns, way.value > 0.5  # the probability of False after the change
    (('age',), True)
    """

    changes: tuple[ChangedColumn, ...]
    precedent: Precedent | None  # whose values they are; None if private
    value: float  # the probability of the label after the change, or the predicted number
    typicality: float | None  # of the changed row; None without calibration
    record: Any = field(default=None, repr=False)  # the changed row; None if private
    shortened: bool = False  # whether numbers change less than to the values of the precedent

    @property
    def atypical(self) -> bool:
        """Whether the changed row is unlike the training data."""
        return self.typicality is not None and self.typicality <= STRANGE

    @property
    def columns(self) -> tuple[Any, ...]:
        """The columns that change."""
        return tuple(change.column for change in self.changes)

    @property
    def typicality_words(self) -> str:
        """How typical the changed row is, as text."""
        known = self.typicality or 0.0
        return privacy.credibility(known) if self.precedent is None else percent(known)

    def words(self, write: Callable[[float], str], legend: Legend = NO_LEGEND) -> str:
        """The changes in words; write: how to write the value. legend: what columns and codes are called."""
        steps = ", ".join(self._step(each, legend) for each in self.changes)
        if self.precedent is not None:
            who = message("{changes}, towards {example}") if self.shortened else message("{changes}, as in {example}")
            steps = say(who, changes=steps, example=example_title(self.precedent.id))
        text = f"{steps}: {write(self.value)}"
        if self.typicality is not None:
            text = say("{result}, typicality {typicality}", result=text, typicality=self.typicality_words)
        return say("{result}; such a row is unlike the training data", result=text) if self.atypical else text

    def _step(self, change: ChangedColumn, legend: Legend) -> str:
        title = legend.title(change.column)
        if self.precedent is None:
            return title
        value, to = (legend.value(change.column, each) for each in (change.value, change.to))
        return f"{title} {value} → {to}"


@dataclass(frozen=True, eq=False, repr=False)
class Recourse(Rendered):
    """The smallest changes that give a row another label or number; made by `recourse` of an estimator.

    If there is no way within the limits, `obstacle` names the fewest columns that stand in the way: were they allowed
    to change as well, there would be one. It is empty if even that would not help. `closest` is the probability, or
    number, that allowed changes reach; None if the model gives no training example what is wanted.

    >>> from dwac import DWACClassifier
    >>> X = pd.DataFrame({"age": range(20, 80)})
    >>> clf = DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, X["age"] < 50)
    >>> recourse = clf.recourse(X[:1], False, frozen=["age"])[0]
    >>> recourse.ways, recourse.obstacle
    ((), ('age',))
    """

    label: Any  # what the row gets now
    wanted: Any
    ways: tuple[Way, ...]  # few changes first; those to atypical rows last
    reached: bool = False  # whether the row has it already
    obstacle: tuple[Any, ...] = ()
    closest: float | None = None
    private: bool = False
    unreadable: str | None = None
    is_number: bool = False
    legend: Legend = NO_LEGEND

    def _write(self, value: float) -> str:
        if self.is_number:
            return shorten(float(value))
        return f"{outcome_words(self.wanted)} {percent(value, private=self.private)}"

    @spoken
    def sentences(self, *, language: str | None = None) -> list[str]:
        """The ways in plain words, or why there is none; language: such as "de"."""
        del language  # see `spoken`
        if self.unreadable:
            return [say("This example could not be read: {reason}.", reason=self.unreadable)]
        known = {"now": outcome_words(self.label), "wanted": outcome_words(self.wanted)}
        if self.reached:
            return [say("Nothing has to change: the prediction is {now} already.", **known)]
        if self.ways:
            start = count(
                "Now {now}. It would be {wanted} with this change:",
                "Now {now}. It would be {wanted} with one of these changes:",
                len(self.ways),
                **known,
            )
            return [start, *(f"{n}. {way.words(self._write, self.legend)}." for n, way in enumerate(self.ways, 1))]
        if self.obstacle:
            titles = map(self.legend.title, self.obstacle)
            columns = reduce(lambda first, last: say("{first} and {last}", first=first, last=last), titles)
            start = count(
                "Now {now}. No allowed change gives {wanted}: {columns} would have to change as well.",
                "Now {now}. No allowed change gives {wanted}: {columns} would have to change as well.",
                len(self.obstacle),
                columns=columns,
                **known,
            )
        elif self.closest is None:
            start = say(
                "Now {now}. There is nothing to change towards: the model gives {wanted} to no training example.",
                **known,
            )
        else:
            start = say("Now {now}. No change towards a training example gives {wanted} as surely as asked.", **known)
        if self.closest is None:
            return [start]
        closest = say("The closest that allowed changes come to it is {closest}.", closest=self._write(self.closest))
        return [start, closest]

    def to_frame(self) -> pd.DataFrame:
        """One row per change: way, column, value, to, precedent, the value after the change and its typicality."""
        rows = [
            {
                "way": number,
                "column": change.column,
                "value": change.value,
                "to": change.to,
                "precedent": None if way.precedent is None else way.precedent.id,
                "result": way.value,
                "typicality": way.typicality,
            }
            for number, way in enumerate(self.ways, 1)
            for change in way.changes
        ]
        return pd.DataFrame(rows, columns=["way", "column", "value", "to", "precedent", "result", "typicality"])

    @spoken
    def to_dict(self, *, language: str | None = None) -> dict[str, Any]:
        """Everything as plain Python values, ready for JSON; language: of the sentences, such as "de"."""
        del language  # see `spoken`
        ways = [
            {
                "changes": [
                    change._asdict() | ({"title": self.legend.title(change.column)} if self.legend else {})
                    for change in way.changes
                ],
                "precedent": None if way.precedent is None else way.precedent.to_dict(),
                "value": way.value,
                "typicality": way.typicality,
                "atypical": way.atypical,
                "shortened": way.shortened,
                "record": way.record,
            }
            for way in self.ways
        ]
        return plain_dict(
            {
                "label": self.label,
                "wanted": self.wanted,
                "sentences": self.sentences(),
                "reached": self.reached,
                "ways": ways,
                "obstacle": self.obstacle,
                "closest": self.closest,
                "private": self.private,
                "unreadable": self.unreadable,
            }
        )

    def _summary(self) -> dict[str, Any]:
        """One line of a table of many rows, for `Explanations`."""
        changes = self.ways[0].changes if self.ways else ()
        steps = [
            self.legend.head(each.column) + ("" if self.private else f" → {self.legend.value(each.column, each.to)}")
            for each in changes
        ]
        return {"label": self.label, "wanted": str(self.wanted), "ways": len(self.ways), "first": ", ".join(steps)}

    def __repr__(self) -> str:
        """How many ways there are, and the first."""
        first = f": {self.ways[0].words(self._write, self.legend)}" if self.ways else ""
        return f"<{type(self).__name__}: {len(self.ways)} way{'s' * (len(self.ways) != 1)} to {self.wanted}{first}>"

    @spoken
    def to_text(self, width: int | None = None, *, language: str | None = None) -> str:
        """The sentences, in lines of at most `width` characters."""
        del language  # see `spoken`
        return "\n".join(wrap(self.sentences(), width))

    @spoken
    def to_html(self, *, language: str | None = None) -> str:
        """A self-contained HTML fragment: a table of the ways; every value escaped."""
        del language  # see `spoken`
        first = self.sentences()[:1] if self.ways else self.sentences()
        tables = [self._table()] if self.ways else []
        return render(
            "explain/templates/explanation.html", sentences=first, tables=tables, details=[], words=None, record=None
        )

    def _table(self) -> VoterTable:
        """One row per way, one column per column that changes."""
        names = list(dict.fromkeys(name for way in self.ways for name in way.columns))
        value = self.legend.value
        now = {change.column: value(change.column, change.value) for way in self.ways for change in way.changes}
        first = _row(say("now"), *(now[name] for name in names), "", "", "", kind="dwac-example")
        rows = [] if self.private else [first]
        for number, way in enumerate(self.ways, 1):
            to = {each.column: say("changed") if self.private else value(each.column, each.to) for each in way.changes}
            typical = "" if way.typicality is None else way.typicality_words
            typical = say("{typicality} (unlike the training data)", typicality=typical) if way.atypical else typical
            who = [] if way.precedent is None else [str(way.precedent.id)]
            rows.append(_row(str(number), *(to.get(name, "") for name in names), self._write(way.value), typical, *who))
        heads = [say("result"), say("typicality"), *([] if self.private else [say("as in")])]
        return VoterTable(["", *map(self.legend.title, names), *heads], rows)


def outcome_words(outcome: Any) -> str:
    """A label, a number or a range of numbers, in words.

    >>> outcome_words((0, 500.0)), outcome_words((500.0, math.inf)), outcome_words("good")
    ('between 0 and 500', 'at least 500', 'good')
    """
    if isinstance(outcome, tuple | list):
        low, high = outcome
        if math.isinf(low):
            return say("any number") if math.isinf(high) else say("at most {high}", high=shorten(float(high)))
        if math.isinf(high):
            return say("at least {low}", low=shorten(float(low)))
        return say("between {low} and {high}", low=shorten(float(low)), high=shorten(float(high)))
    return shorten(outcome) if isinstance(outcome, float) else label_name(outcome)


def _row(*texts: str, kind: str = "") -> Row:
    return Row([Cell(text) for text in texts], kind)


def make_private(exact: Recourse, step: float) -> Recourse:
    """The columns to change, each set of them once, rounded results, and nothing of the precedents.

    step: of numbers, 0 for labels.
    """

    def rounded(value: float) -> float:
        return float(privacy.numbers(value, step)) if exact.is_number else privacy.share(value)

    first: dict[tuple[Any, ...], Way] = {}
    for way in exact.ways:
        first.setdefault(way.columns, way)
    ways = tuple(
        Way(tuple(ChangedColumn(name, None, None) for name in way.columns), None, rounded(way.value), way.typicality)
        for way in first.values()
    )
    label = rounded(exact.label) if exact.is_number else exact.label
    closest = None if exact.closest is None else rounded(exact.closest)
    return replace(exact, label=label, ways=ways, closest=closest, private=True)
