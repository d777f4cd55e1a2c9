"""Reasons: the columns, phrases or patches that decide between a row and a real precedent.

f is the model's log-odds of the row's label against the precedent's, or the number that it predicts. The contributions
of the parts add up to f(row) - f(precedent), so they explain a difference between two real cases.
`dwac.explain.comparing` makes them.

reasons = clf.explain(X)[0].reasons()
print(reasons)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd

from dwac.drawing.legend import NO_LEGEND, Legend
from dwac.drawing.pages import render
from dwac.drawing.reasons import draw_reasons
from dwac.drawing.records import data_url, image_of, kind_of, plain_dict, shorten
from dwac.errors import InputError
from dwac.explain.hybrids import Box
from dwac.explain.rendering import Rendered, line_width, table_lines, wrap
from dwac.languages import count, label_name, message, numeral, say, spoken

_NAMED, _SMALL = 5, 0.02  # parts in the sentence, and the least share of the largest one that they have
_MAIN, _MATTERS = 3, 0.1  # the same for the main ones
LOG_ODDS = "log-odds"
RANDOM = "random"  # precedents, whatever the model gives them
_HEADS = (message("column"), message("this example"), message("contribution"), message("spread"))


@dataclass(frozen=True)
class Example:
    """A training example to compare with, by its id, even if a label has the same name."""

    id: Any


@dataclass(frozen=True, eq=False)
class Precedent:
    """A training example that the model gives another outcome.

    >>> from dwac import DWACClassifier
    >>> X = pd.DataFrame({"age": range(20, 80), "shoe size": [38, 40, 42] * 20})
    >>> clf = DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, X["age"] < 50)
    >>> e = clf.explain(X[:1])[0]
    >>> precedent = e.reasons(example=55).precedent  # compared with row 55
    >>> precedent.label, precedent.record["age"]
    (False, 75)
    """

    id: Any
    label: Any  # its own label or number
    record: Any = field(default=None, repr=False)
    _judge: Callable[[], float | None] = field(default=lambda: None, repr=False)

    @cached_property
    def typicality(self) -> float | None:
        """Its typicality, measured without itself; None without calibration."""
        return self._judge()

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {"id": self.id, "label": self.label, "typicality": self.typicality, "record": self.record}

    def __getstate__(self) -> dict[str, Any]:
        """A copy that leaves the process does not hold the model."""
        return {**self.to_dict(), "_judge": None}


def example_title(name: Any) -> str:
    """The name of a training example in a sentence: a number alone would look like a value.

    >>> example_title("applicant 7"), example_title(7)
    ('applicant 7', 'example 7')
    """
    return str(name) if str(name)[:1].isalpha() else say("example {id}", id=name)


class Contribution(NamedTuple):
    """A part of the row, its value there and in the precedent, and what it adds to the difference between them.

    >>> from dwac import DWACClassifier
    >>> X = pd.DataFrame({"age": range(20, 80), "shoe size": [38, 40, 42] * 20})
    >>> clf = DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, X["age"] < 50)
    >>> part = clf.explain(X[:1])[0].reasons(example=55).contributions[0]
    >>> part.column, part.value, part.other_value, part.contribution > 0
    ('age', 20, 75, True)
    """

    column: Any
    value: Any
    other_value: Any
    contribution: float
    spread: float = 0.0  # standard deviation over several precedents


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Reasons(Rendered):
    """Why a row gets its label or number and a precedent another one; made by `Explanation.reasons`.

    contributions: of all columns, or of the phrases or patches that differ, largest first. They add up to `total`, the
    difference between the row and the precedent: in log-odds of `label` against `other`, or in the unit of the number.
    Of several precedents, these are means, and the other values are those of the first.

    A `private` one has rounded contributions, and nothing else of the precedent.

    >>> from dwac import DWACClassifier
    >>> X = pd.DataFrame({"age": range(20, 80), "shoe size": [38, 40, 42] * 20})
    >>> clf = DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, X["age"] < 50)
    >>> reasons = clf.explain(X[:1])[0].reasons(example=55)
    >>> print(reasons.label, reasons.other, reasons.main()[0].column)
    True False age
    >>> abs(sum(part.contribution for part in reasons.contributions) - reasons.total) < 1e-9
    True
    """

    label: Any  # of the row: its label, or its predicted number
    other: Any  # that the model gives the precedent
    precedents: tuple[Precedent, ...]  # most similar first; empty if private
    contributions: tuple[Contribution, ...]
    total: float
    error: float  # 0 if all combinations were asked; otherwise a bound on the error of each contribution
    unit: str = LOG_ODDS  # or "number"
    private: bool = False
    record: Any = None  # of the row itself
    is_random: bool = False  # whether precedents were drawn at random, whatever the model gives them
    legend: Legend = NO_LEGEND
    _number: Callable[[float], str] = field(default=lambda value: numeral(f"{value:.2f}"), repr=False)

    @property
    def precedent(self) -> Precedent | None:
        """The precedent, or the most similar of several; None if private."""
        return self.precedents[0] if self.precedents else None

    @property
    def deciding(self) -> tuple[Contribution, ...]:
        """The parts that contribute something."""
        return tuple(part for part in self.contributions if part.contribution)

    def main(self, sign: float | None = None) -> list[Contribution]:
        """The up to three parts that matter most, of those with this sign, by default that of the total."""
        sign = self.total if sign is None else sign
        least = _MATTERS * abs(self.contributions[0].contribution) if self.contributions else 0.0
        same = (part for part in self.deciding if part.contribution * sign > 0)
        return [part for part in same if abs(part.contribution) >= least][:_MAIN]

    def to_frame(self) -> pd.DataFrame:
        """One row per column or part, the largest contribution first: column, value, other_value, contribution.

        The values of a phrase are its words, those of a patch its place in pixels: top, left, bottom, right. Of several
        precedents also the spread of the contribution over them. If private, there is no other value.
        """
        names = ["column", "value", *([] if self.private else ["other_value"]), "contribution"]
        names += ["spread"] * (len(self.precedents) > 1)
        frame = pd.DataFrame(list(self.contributions), columns=list(Contribution._fields))
        return frame[names]

    @spoken
    def to_dict(self, *, language: str | None = None) -> dict[str, Any]:
        """Everything as plain Python values, ready for JSON; language: of the sentences, such as "de"."""
        del language  # see `spoken`
        parts: list[dict[str, Any]] = self.to_frame().to_dict("records")  # type: ignore[assignment]
        if self.legend:
            titles = map(self.title, self.contributions)
            parts = [{**each, "title": title} for each, title in zip(parts, titles, strict=True)]
        return plain_dict(
            {
                "label": self.label,
                "other": self.other,
                "sentences": self.sentences(),
                "precedents": [each.to_dict() for each in self.precedents],
                "contributions": parts,
                "total": self.total,
                "error": self.error,
                "unit": self.unit,
                "private": self.private,
            }
        )

    # Words

    def outcome(self, outcome: Any) -> str:
        """A label, or a number with few digits, as text."""
        return self._number(outcome) if self.unit != LOG_ODDS else label_name(outcome)

    @spoken
    def sentences(self, *, language: str | None = None) -> list[str]:
        """The reasons in plain words: one sentence, and one on what the numbers are; language: such as "de"."""
        del language  # see `spoken`
        most = max((abs(part.contribution) for part in self.deciding), default=0.0)
        large = [part for part in self.deciding[:_NAMED] if abs(part.contribution) >= _SMALL * most]
        rest = self.deciding[len(large) :]
        more = [count("{n} other {sum}", "{n} others {sum}", len(rest), sum=self._sum(rest))] if rest else []
        listed = "; ".join([*map(self._part, large), *more]) or say("the model sees no difference between the two")
        return [f"{self.headline}: {listed}.", self._scale()]

    @property
    def headline(self) -> str:
        """The two cases, such as "Predicted yes, where example 7 gets no"."""
        label, other = self.outcome(self.label), self.outcome(self.other)
        known = {"label": label, "other": other}
        if self.is_random and self.unit == LOG_ODDS:
            return say("Predicted {label}, not {other}, compared with training examples drawn at random", **known)
        if self.is_random:
            return say("Predicted {label}, where training examples drawn at random get {other} on average", **known)
        if self.precedent is None:
            return say("Predicted {label}, where a similar training example gets {other}", **known)
        if (n := len(self.precedents)) > 1:
            return say("Predicted {label}, where {n} similar training examples get {other}", n=n, **known)
        return say("Predicted {label}, where {example} gets {other}", example=self._other_title(), **known)

    def title(self, part: Contribution) -> str:
        """The name of a column, of tied columns, of a phrase or of a patch."""
        if isinstance(part.value, Box):
            return say("patch {place}", place=str(part.column).removeprefix("patch "))
        if self._is_text:
            return say("phrase {n}", n=str(part.column).removeprefix("phrase "))
        if isinstance(part.value, tuple):
            return ", ".join(map(self.legend.title, part.column.split(", ")))
        return self.legend.title(part.column)

    def cell(self, part: Contribution, value: Any) -> str:
        """A value of a part, or those of tied columns, in short form."""
        if isinstance(value, tuple):
            return ", ".join(map(self.legend.value, part.column.split(", "), value))
        return self.legend.value(part.column, value) or say("nothing")

    def _part(self, part: Contribution) -> str:
        """ "Records yes, not no, +0.59", or a phrase and what the precedent has instead, or a patch."""
        size, part_title = self.signed(part.contribution), self.title(part)
        if isinstance(part.value, Box):
            return f"{part_title}, {size}"
        mine, other = self.cell(part, part.value), self.cell(part, part.other_value)
        if self._is_text:
            mine, other = (
                say("“{words}”", words=shorten(words)) if words else say("nothing")
                for words in (part.value, part.other_value)
            )
        else:
            mine = f"{part_title} {mine}"
        if self.private:
            return f"{mine}, {size}"
        return say("{part}, not {other}, {contribution}", part=mine, other=other, contribution=size)

    @property
    def _is_text(self) -> bool:
        return kind_of(self.record) == "text"

    def _sum(self, parts: Sequence[Contribution]) -> str:
        return self.signed(sum(part.contribution for part in parts))

    def signed(self, value: float) -> str:
        """A contribution as text, with its sign."""
        size = self._number(abs(value)).removeprefix("-")
        none = not any(digit in size for digit in "123456789")
        return size if none else f"{'+' if value > 0 else '-'}{size}"

    def _scale(self) -> str:
        total = self.signed(self.total)
        text = say("The contributions add up to the difference of the two predictions, {total}.", total=total)
        if self.unit == LOG_ODDS:
            text = say(
                "They add up to {total}, by which the log-odds of {label} against {other} are higher here.",
                total=total,
                label=label_name(self.label),
                other=label_name(self.other),
            )
        if not self.error:
            return text
        within = say("Each is within {error} of its exact value.", error=self._number(self.error))
        return f"{text} {within}"

    # Pages

    def __repr__(self) -> str:
        """The two cases, and the largest contribution."""
        first = f": {self._part(self.deciding[0])}" if self.deciding else ""
        return f"<{type(self).__name__}: {self.headline}{first}>"

    @spoken
    def to_text(self, width: int | None = None, *, language: str | None = None) -> str:
        """The sentences, then the two cases side by side with the contributions; width: of lines."""
        del language  # see `spoken`
        width = line_width() if width is None else width
        facts = wrap(self.sentences(), width)
        frame = self._shown_frame()
        if frame.empty:
            return "\n".join(facts)
        heads = [say(name) if name in _HEADS else name for name in frame.columns]
        return "\n".join([*facts, "", *table_lines(frame, width, always=len(frame.columns), heads=heads)[0]])

    def _shown_frame(self) -> pd.DataFrame:
        """The parts that contribute something, as texts for people."""
        rows = []
        for part in self.deciding:
            row = {"column": self.title(part)}
            if not isinstance(part.value, Box):
                row |= {"this example": self.cell(part, part.value)}
                row |= {} if self.private else {self._other_title(): self.cell(part, part.other_value)}
            row["contribution"] = self.signed(part.contribution)
            if len(self.precedents) > 1:
                row["spread"] = self._number(part.spread)
            rows.append(row)
        return pd.DataFrame(rows)

    def _other_title(self) -> str:
        return "" if self.precedent is None else example_title(self.precedent.id)

    @spoken
    def to_html(self, *, language: str | None = None) -> str:
        """A self-contained HTML fragment: the two cases side by side, and bars between them; every value escaped."""
        del language  # see `spoken`
        most = max((abs(part.contribution) for part in self.deciding), default=1.0) or 1.0
        rows = [
            (
                self.title(part),
                self.cell(part, part.value),
                self.cell(part, part.other_value),
                self.signed(part.contribution),
                part.contribution / most,
            )
            for part in self.deciding
        ]
        return render(
            "explain/templates/reasons.html",
            sentences=self.sentences(),
            rows=rows,
            other=self._other_title(),
            private=self.private,
            pictures=self._pictures(most),
        )

    def _pictures(self, most: float) -> list[tuple[str, str, int, int, list[Any]]]:
        """For images: (title, picture, width, height, patches with contributions) of the row and the precedent."""
        if not any(isinstance(part.value, Box) for part in self.contributions):
            return []
        patches = [(part.value, part.contribution / most, self.signed(part.contribution)) for part in self.deciding]
        shown = [(say("this example"), self.record, patches)]
        shown += [(self._other_title(), self.precedent.record, [])] if self.precedent is not None else []
        pictures = []
        for title, record, boxes in shown:
            png = image_of(record)
            if png is not None:
                width, height = struct.unpack(">II", png[16:24])
                pictures.append((title, data_url(png), width, height, boxes))
        return pictures

    @spoken
    def plot(self, *, language: str | None = None) -> Any:
        """A matplotlib figure: a bar per contribution; for images, both pictures with marked patches.

        Needs the extra `dwac[report]`. language: of the texts, such as "de".
        """
        del language  # see `spoken`
        return draw_reasons(self)


class Reasoner:
    """Asks a model for the reasons of one explanation. A copy that leaves the process does not hold the model.

    turn: finds what decides, for a sentence; see `dwac.explain.turning`.
    """

    __slots__ = ("_ask", "turn")  # a private explanation has no attribute that leads to training examples

    def __init__(self, ask: Callable[..., Reasons] | None = None, turn: Callable[[], Any] = lambda: None) -> None:
        self._ask, self.turn = ask, turn

    def __call__(self, *args: Any, **which: Any) -> Reasons:
        """The reasons; an error if there is no model to ask."""
        if self._ask is None:
            raise InputError("reasons ask the model about rows, and there are only embeddings; use clf.explain(X)")
        return self._ask(*args, **which)

    def __reduce__(self) -> tuple[type[Reasoner], tuple[()]]:
        return Reasoner, ()
