"""Reasons: the columns, phrases or patches that decide between a row and a real precedent.

The parts in which the two differ are filled from one or the other, in all combinations. The model is asked about each
of these hybrids; f is its log-odds of the row's label against the precedent's, or the number that it predicts. The
Shapley values of the parts add up to f(row) - f(precedent), so they explain a difference between two real cases.

reasons = clf.explain(X)[0].reasons()
print(reasons)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import comb
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac.drawing.pages import render
from dwac.drawing.reasons import draw_reasons
from dwac.drawing.records import data_url, image_of, kind_of, plain, shorten, title_of
from dwac.errors import IdError, InputError, PrivacyError
from dwac.explain import privacy
from dwac.explain.hybrids import Bools, Box, Hybrids, Part, Pool
from dwac.explain.rendering import Numerals, line_width, table_lines, wrap
from dwac.explain.voters import plain_ids
from dwac.explain.votes import Ints, LabelVotes, NumberVotes, Votes

Floats = NDArray[np.float64]
Values = Callable[[Bools], Floats]  # (n, d) masks, True where a part comes from the precedent → (n,) values of f

ENUMERATED = 11  # parts up to which all combinations are asked
_ORDERS, _FEWEST = 64, 8  # orders of the parts that are sampled beyond, and as many reversed ones
_STEPS = 1_000  # of all these orders together, unless they are the fewest
_SURE = 3.0  # standard errors of the bound on the error of sampled contributions
_CANDIDATES = 2_000  # voters that are compared with the row as inputs: those with the heaviest votes
_AT_ONCE = 64  # voters that the model is asked about at once
_NAMED, _SMALL = 5, 0.02  # parts in the sentence, and the least share of the largest one that they have
_LOG_ODDS = "log-odds"


class Inquiry(Protocol):
    """A row, and a model that answers questions about it, its voters, and rows between them."""

    def hybrids(self, voter: Any, tied: Sequence[Collection[Any]]) -> Hybrids:
        """Hybrids of the row and the voter with this id; tied: parts that move together."""

    def embed(self, rows: Any) -> Tensor:
        """(n, d): the embeddings of hybrids."""

    def contrast(self, h: Tensor, label: int, other: int) -> Floats:
        """(n,): log-odds of the label with this code against the other one, or predicted numbers."""

    def gives(self, h: Tensor, outcome: Any) -> Bools:
        """(n,): whether the model gives rows this label, by its code, or a number in one of these ranges."""

    def alike(self, ids: list[Any]) -> Floats:
        """(n,): how different voters are from the row as inputs."""

    def typicality(self, place: int) -> float | None:
        """The typicality of a voter, by its place among the references; None without calibration."""

    def voter(self, place: int) -> tuple[Any, Any, Any]:
        """(id, label or number, record) of a voter."""

    def record(self) -> Any:
        """The row as a person sees it."""

    def column_names(self) -> list[Any]:
        """The columns of the row; an error if it has none."""

    def pool(self, voters: list[Any]) -> Pool:
        """The row and these voters, by id, as rows of one table."""

    def observe(self, rows: Any) -> Any:
        """What the model observes of hybrids: `.h`, `.votes`, and the rest."""

    def typicality_of(self, observed: Any) -> Floats | None:
        """(n,): the typicality of observed rows; None without calibration."""

    def apart(self, rows: Any) -> Floats:
        """(n,): how different hybrids are from the row as inputs."""


# Shapley values


def shapley_values(values: Values, n: int) -> tuple[Floats, float]:
    """(contributions (n,) of n parts, a bound on their error): what each part adds when it comes from the row.

    All combinations are asked if parts are few, and the error is 0. Otherwise orders of the parts are sampled, each
    with its reverse: the sum is still exact, and with a probability of about 99.7 % each contribution is within the
    error. The sample is the same in every call.

    >>> contributions, error = shapley_values(lambda masks: 3.0 - masks @ [1.0, 2.0], 2)
    >>> contributions.tolist(), error
    ([1.0, 2.0], 0.0)
    """
    if n == 0:
        return np.zeros(0), 0.0
    return (enumerated(values, n), 0.0) if n <= ENUMERATED else sampled(values, n)


def enumerated(values: Values, n: int) -> Floats:
    """The same from all 2^n combinations."""
    masks = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1
    f, size = values(masks), masks.sum(axis=1)  # size: how many parts come from the precedent
    weights = np.array([1 / (n * comb(n - 1, k)) for k in range(n)])
    contributions = np.empty(n)
    for part in range(n):
        here = np.flatnonzero(~masks[:, part])
        contributions[part] = weights[size[here]] @ (f[here] - f[here + 2**part])
    # Rounding: the values add up to the difference of the two cases to the last bits.
    return np.asarray(contributions + (f[0] - f[-1] - contributions.sum()) / n)


def sampled(values: Values, n: int) -> tuple[Floats, float]:
    """The same from random orders of the parts, each followed by its reverse."""
    orders = min(max(_STEPS // n, _FEWEST), _ORDERS)
    rng = np.random.default_rng(0)
    forward = np.stack([rng.permutation(n) for _ in range(orders)])
    both = np.stack([forward, forward[:, ::-1]], axis=1).reshape(-1, n)
    ranks = np.argsort(both, axis=1)
    masks = (ranks[:, None, :] < np.arange(n + 1)[None, :, None]).reshape(-1, n)
    distinct, where = np.unique(masks, axis=0, return_inverse=True)
    f = values(distinct)[where.reshape(-1)].reshape(len(both), n + 1)
    steps = np.take_along_axis(f[:, :-1] - f[:, 1:], ranks, axis=1)
    pairs = steps.reshape(orders, 2, n).mean(axis=1)
    error = _SURE * pairs.std(axis=0, ddof=1).max() / np.sqrt(orders)
    contributions = pairs.mean(axis=0)
    return contributions + (f[0, 0] - f[0, -1] - contributions.sum()) / n, float(error)


# Reasons


@dataclass(frozen=True, eq=False)
class Precedent:
    """A training example that the model gives another outcome."""

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
    return str(name) if str(name)[:1].isalpha() else f"example {name}"


class Contribution(NamedTuple):
    """A part of the row, its value there and in the precedent, and what it adds to the difference between them."""

    column: Any
    value: Any
    other_value: Any
    contribution: float
    spread: float = 0.0  # standard deviation over several precedents


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Reasons:
    """Why a row gets its label or number and a precedent another one; made by `Explanation.reasons`.

    contributions: of all columns, or of the phrases or patches that differ, largest first. They add up to `total`, the
    difference between the row and the precedent: in log-odds of `label` against `other`, or in the unit of the number.
    Of several precedents, these are means, and the other values are those of the first.

    A `private` one has rounded contributions, and nothing else of the precedent.
    """

    label: Any  # of the row: its label, or its predicted number
    other: Any  # that the model gives the precedent
    precedents: tuple[Precedent, ...]  # most similar first; empty if private
    contributions: tuple[Contribution, ...]
    total: float
    error: float  # 0 if all combinations were asked; otherwise a bound on the error of each contribution
    unit: str = _LOG_ODDS  # or "number"
    private: bool = False
    record: Any = None  # of the row itself
    _number: Callable[[float], str] = field(default=lambda value: f"{value:.2f}", repr=False)

    @property
    def precedent(self) -> Precedent | None:
        """The precedent, or the most similar of several; None if private."""
        return self.precedents[0] if self.precedents else None

    @property
    def deciding(self) -> tuple[Contribution, ...]:
        """The parts that contribute something."""
        return tuple(part for part in self.contributions if part.contribution)

    def to_frame(self) -> pd.DataFrame:
        """One row per column or part, the largest contribution first: column, value, other_value, contribution.

        The values of a phrase are its words, those of a patch its place in pixels: top, left, bottom, right. Of several
        precedents also the spread of the contribution over them. If private, there is no other value.
        """
        names = ["column", "value", *([] if self.private else ["other_value"]), "contribution"]
        names += ["spread"] * (len(self.precedents) > 1)
        frame = pd.DataFrame(list(self.contributions), columns=list(Contribution._fields))
        return frame[names]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, ready for JSON."""
        shown: dict[str, Any] = plain(
            {
                "label": self.label,
                "other": self.other,
                "precedents": [each.to_dict() for each in self.precedents],
                "contributions": self.to_frame().to_dict("records"),
                "total": self.total,
                "error": self.error,
                "unit": self.unit,
                "private": self.private,
            }
        )
        return shown

    # Words

    def outcome(self, outcome: Any) -> str:
        """A label, or a number with few digits, as text."""
        return self._outcome(outcome)

    def sentences(self) -> list[str]:
        """The reasons in plain words: one sentence, and one on what the numbers are."""
        most = max((abs(part.contribution) for part in self.deciding), default=0.0)
        large = [part for part in self.deciding[:_NAMED] if abs(part.contribution) >= _SMALL * most]
        rest = self.deciding[len(large) :]
        more = [f"{len(rest)} other{'s' * (len(rest) > 1)} {self._sum(rest)}"] if rest else []
        listed = "; ".join([*map(self._part, large), *more]) or "the model sees no difference between the two"
        return [f"{self._case()}: {listed}.", self._scale()]

    def _case(self) -> str:
        label, other = self._outcome(self.label), self._outcome(self.other)
        if self.precedent is None:
            return f"Predicted {label}, where a similar training example gets {other}"
        if len(self.precedents) > 1:
            return f"Predicted {label}, where {len(self.precedents)} similar training examples get {other}"
        return f"Predicted {label}, where {self._other_title()} gets {other}"

    def _outcome(self, outcome: Any) -> str:
        return self._number(outcome) if self.unit != _LOG_ODDS else str(outcome)

    def _part(self, part: Contribution) -> str:
        """ "Records yes, not no, +0.59", or a phrase and what the precedent has instead, or a patch."""
        size = self.signed(part.contribution)
        if isinstance(part.value, Box):
            return f"{part.column}, {size}"
        if self._is_text:
            other = f"“{shorten(part.other_value)}”" if part.other_value else "nothing"
            mine = f"“{shorten(part.value)}”" if part.value else "nothing"
            return f"{mine}{'' if self.private else f', not {other}'}, {size}"
        other = "" if self.private else f", not {_cell(part.other_value)}"
        return f"{title_of(part.column)} {_cell(part.value)}{other}, {size}"

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
        within = f" Each is within {self._number(self.error)} of its exact value." if self.error else ""
        if self.unit != _LOG_ODDS:
            return (
                f"The contributions add up to the difference of the two predictions, {self.signed(self.total)}.{within}"
            )
        return (
            f"They add up to {self.signed(self.total)}, by which the log-odds of {self.label} against {self.other} "
            f"are higher here.{within}"
        )

    # Pages

    def __str__(self) -> str:
        """As `to_text`, as wide as the terminal."""
        return self.to_text()

    def __repr__(self) -> str:
        """The two cases, and the largest contribution."""
        first = f": {self._part(self.deciding[0])}" if self.deciding else ""
        return f"<{type(self).__name__}: {self._case()}{first}>"

    def to_text(self, width: int | None = None) -> str:
        """The sentences, then the two cases side by side with the contributions; width: of lines."""
        width = line_width() if width is None else width
        facts = [line for sentence in self.sentences() for line in wrap(sentence, width)]
        frame = self._shown_frame()
        if frame.empty:
            return "\n".join(facts)
        return "\n".join([*facts, "", *table_lines(frame, width, always=len(frame.columns))[0]])

    def _shown_frame(self) -> pd.DataFrame:
        """The parts that contribute something, as texts for people."""
        rows = []
        for part in self.deciding:
            row = {"column": title_of(part.column)}
            if not isinstance(part.value, Box):
                row |= {"this example": _cell(part.value)}
                row |= {} if self.private else {self._other_title(): _cell(part.other_value)}
            row["contribution"] = self.signed(part.contribution)
            if len(self.precedents) > 1:
                row["spread"] = self._number(part.spread)
            rows.append(row)
        return pd.DataFrame(rows)

    def _other_title(self) -> str:
        return "" if self.precedent is None else example_title(self.precedent.id)

    def to_html(self) -> str:
        """A self-contained HTML fragment: the two cases side by side, and bars between them; every value escaped."""
        most = max((abs(part.contribution) for part in self.deciding), default=1.0) or 1.0
        rows = [
            (
                title_of(part.column),
                _cell(part.value),
                _cell(part.other_value),
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
        shown = [("this example", self.record, patches)]
        shown += [(self._other_title(), self.precedent.record, [])] if self.precedent is not None else []
        pictures = []
        for title, record, boxes in shown:
            png = image_of(record)
            if png is not None:
                width, height = struct.unpack(">II", png[16:24])
                pictures.append((title, data_url(png), width, height, boxes))
        return pictures

    def plot(self) -> Any:
        """A matplotlib figure: a bar per contribution; for images, both pictures with marked patches.

        Needs the extra `dwac[report]`.
        """
        return draw_reasons(self)

    def _repr_html_(self) -> str:
        return self.to_html()


def _cell(value: Any) -> str:
    """A value, or those of tied columns, in short form."""
    return ", ".join(map(shorten, value)) if isinstance(value, tuple) else shorten(value) or "nothing"


# Making them


class Reasoner:
    """Asks a model for the reasons of one explanation. A copy that leaves the process does not hold the model."""

    __slots__ = ("_ask",)  # a private explanation has no attribute that leads to training examples

    def __init__(self, ask: Callable[..., Reasons] | None = None) -> None:
        self._ask = ask

    def __call__(self, *args: Any, **which: Any) -> Reasons:
        """The reasons; an error if there is no model to ask."""
        if self._ask is None:
            raise InputError("reasons ask the model about rows, and there are only embeddings; use clf.explain(X)")
        return self._ask(*args, **which)

    def __reduce__(self) -> tuple[type[Reasoner], tuple[()]]:
        return Reasoner, ()


def find_precedents(inquiry: Inquiry, votes: Votes, rows: Ints, outcome: Any, n: int) -> list[int]:
    """The places of the n voters most like the row that the model gives this outcome; rows: the candidates.

    If there are many candidates, those with the heaviest votes are compared.
    """
    heaviest = rows[np.argsort(-votes.log_w[rows], kind="stable")[:_CANDIDATES]]
    if not len(heaviest):
        return []
    apart = inquiry.alike(plain_ids(votes.references.ids[heaviest]))
    order = heaviest[np.argsort(apart, kind="stable")]  # of equally similar ones the heavier comes first
    places: list[int] = []
    for start in range(0, len(order), _AT_ONCE):
        some = order[start : start + _AT_ONCE]
        given = inquiry.gives(votes.references.embeddings[some.tolist()], outcome)
        places += some[given].tolist()
        if len(places) >= n:
            break
    return places[:n]


def weigh_parts(
    inquiry: Inquiry, voters: Sequence[Any], tied: Sequence[Collection[Any]], label: int, other: int
) -> tuple[list[Contribution], float, float]:
    """(contributions, their total, the bound on their error): means over the voters with these ids."""
    if len(voters) > 1 and kind_of(inquiry.record()) == "text":
        raise InputError("several precedents need columns or patches, which all have; compare a text with precedents=1")
    totals, errors, table = [], [], list[dict[Any, float]]()
    first: dict[Any, Part] = {}
    for voter in voters:
        hybrids = inquiry.hybrids(voter, tied)

        def values(masks: Bools, hybrids: Hybrids = hybrids) -> Floats:
            return inquiry.contrast(inquiry.embed(hybrids.make(masks)), label, other)

        contributions, error = shapley_values(values, len(hybrids.parts))
        totals.append(contributions.sum())
        errors.append(error)
        names = [part.name for part in hybrids.parts]
        table.append(dict(zip(names, contributions.tolist(), strict=True)))
        first = {part.name: part for part in [*hybrids.parts, *hybrids.same]} | first
    parts = []
    for name, part in first.items():
        each = np.array([row.get(name, 0.0) for row in table])
        parts.append(Contribution(*part, float(each.mean()), float(each.std())))
    parts.sort(key=lambda part: -abs(part.contribution))
    return parts, float(np.mean(totals)), max(errors)


class LabelCase(NamedTuple):
    """A row with a label: the votes on it, the names and probabilities of all labels."""

    votes: LabelVotes
    names: Sequence[Any]
    probabilities: Floats
    private: bool


def reasons_between(
    inquiry: Inquiry, case: LabelCase, against: Any, precedents: int, tied: Sequence[Collection[Any]]
) -> Reasons:
    """The reasons for the label of a row, against another label, the runner-up, or a training example."""
    label, names = case.votes.label, list(case.names)
    others = [code for code in np.argsort(-case.probabilities, kind="stable").tolist() if code != label]
    places: list[int] = []
    if against is None:
        for other in others:
            if places := _label_precedents(inquiry, case.votes, other, precedents):
                break
    elif against in names:
        other = names.index(against)
        if other == label:
            raise InputError(f"against must be another label than that of the row, {names[label]!r}, or an id")
        places = _label_precedents(inquiry, case.votes, other, precedents)
    else:
        places, h = [_named_voter(case.votes, against, private=case.private)], case.votes.references.embeddings
        other = next((code for code in others if inquiry.gives(h[places], code)[0]), others[0])
    if not places:
        which = "another label" if against is None else f"the label {against!r}"
        raise InputError(f"the model gives {which} to no training example, so there is nobody to compare with")
    ids = plain_ids(case.votes.references.ids[places])
    parts, total, error = weigh_parts(inquiry, ids, tied, label, other)
    known = Reasons(
        label=names[label],
        other=names[other],
        precedents=tuple(make_precedent(inquiry, place) for place in places),
        contributions=tuple(parts),
        total=total,
        error=error,
        record=inquiry.record(),
    )
    return _make_private(known, privacy.FIT) if case.private else known


def _label_precedents(inquiry: Inquiry, votes: LabelVotes, other: int, n: int) -> list[int]:
    """Voters with a label that the model gives it, too; if there are none, any voters that the model gives it."""
    own = votes.labels == other
    return next(
        filter(None, (find_precedents(inquiry, votes, np.flatnonzero(rows), other, n) for rows in (own, ~own))), []
    )


class NumberCase(NamedTuple):
    """A row with predicted numbers (T,): the votes on it, and how to write the numbers."""

    votes: NumberVotes
    names: Sequence[Any]
    predictions: Floats
    numerals: Sequence[Numerals]
    single: bool
    private: bool


def number_reasons(
    inquire: Callable[[int], Inquiry],
    case: NumberCase,
    against: Any,
    precedents: int,
    tied: Sequence[Collection[Any]],
    name: Any = None,
) -> Reasons:
    """The reasons for a predicted number, against a range or a training example; name: of several numbers."""
    if name is not None and name not in case.names:
        raise InputError(f"name must be one of the predicted numbers, {checks.listed(case.names)}; got {name!r}")
    t = 0 if name is None else list(case.names).index(name)
    inquiry, votes, own = inquire(t), case.votes, float(case.predictions[t])
    numbers, places = votes.targets[:, t], list[int]()
    if against is None or _is_range(against):
        for ranges in _ranges(against, own, float(numbers.std())):
            inside = np.any([(low <= numbers) & (numbers <= high) for low, high in ranges], axis=0)
            for rows in (np.flatnonzero(inside), np.flatnonzero(~inside)):
                places = places or find_precedents(inquiry, votes, rows, ranges, precedents)
        if not places:
            which = "another number" if against is None else f"a number in the range {against!r}"
            raise InputError(f"the model gives {which} to no training example, so there is nobody to compare with")
    else:
        places = [_named_voter(votes, against, private=case.private)]
    ids = plain_ids(votes.references.ids[places])
    parts, total, error = weigh_parts(inquiry, ids, tied, 0, 0)
    known = Reasons(
        label=own,
        other=own - total,
        precedents=tuple(make_precedent(inquiry, place) for place in places),
        contributions=tuple(parts),
        total=total,
        error=error,
        record=inquiry.record(),
        unit="number" if case.single and case.names[t] is None else str(case.names[t]),
        _number=case.numerals[t].text,
    )
    return _make_private(known, case.numerals[t].step) if case.private else known


def _ranges(against: Any, own: float, spread: float) -> list[tuple[tuple[float, float], ...]]:
    """Ranges of numbers to compare with, the first in which there are precedents: the given one, or far enough ones."""
    if against is None:
        far = [share * spread for share in (0.5, 0.1)]
        return [((-np.inf, own - apart), (own + apart, np.inf)) for apart in far]
    if not against[0] <= against[1]:
        raise InputError(f"against must be a range (low, high) of numbers, or the id of a voter; got {against!r}")
    return [((float(against[0]), float(against[1])),)]


def _is_range(against: Any) -> bool:
    pair = isinstance(against, tuple | list) and len(against) == 2
    return pair and all(isinstance(end, int | float) for end in against)


def _named_voter(votes: Votes, name: Any, *, private: bool) -> int:
    """The place of the voter with this id."""
    if private:
        raise PrivacyError("a private explanation compares with no training example of your choice; give a label")
    try:
        return int(votes.references.voters.positions([name])[0])
    except IdError:
        raise IdError(
            f"against must be one of the labels or a range of numbers, or the id of a training example that votes; "
            f"got {name!r}"
        ) from None


def make_precedent(inquiry: Inquiry, place: int) -> Precedent:
    """The voter at this place."""
    return Precedent(*inquiry.voter(place), lambda: inquiry.typicality(place))


def _make_private(exact: Reasons, step: float) -> Reasons:
    """Contributions rounded to steps, and nothing else of the precedents; parts without a contribution come last."""
    rounded = [float(privacy.numbers(part.contribution, step)) for part in exact.contributions]
    own = zip(exact.contributions, rounded, strict=True)
    parts = [Contribution(part.column, part.value, None, value) for part, value in own]
    parts.sort(key=lambda part: (-abs(part.contribution), str(part.column)))
    numbers = exact.unit != _LOG_ODDS
    return replace(
        exact,
        label=float(privacy.numbers(exact.label, step)) if numbers else exact.label,
        other=float(privacy.numbers(exact.other, step)) if numbers else exact.other,
        precedents=(),
        contributions=tuple(parts),
        total=float(privacy.numbers(exact.total, step)),
        error=exact.error and exact.error + step / 2,
        private=True,
    )
