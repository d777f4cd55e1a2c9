"""Recourse: the smallest changes of a row, towards real precedents, that give it another label or number.

way = clf.recourse(X, "good", frozen=["age"])[0].ways[0]
print(way)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import comb
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac.drawing.pages import render
from dwac.drawing.records import plain, shorten, title_of
from dwac.errors import InputError
from dwac.explain import privacy
from dwac.explain.base import STRANGE
from dwac.explain.hybrids import Bools, Part, Pool, require_columns
from dwac.explain.reasons import Inquiry, Precedent, example_title, find_precedents, make_precedent
from dwac.explain.rendering import line_width, percent, wrap
from dwac.explain.voters import plain_ids
from dwac.explain.votes import Votes

Floats = NDArray[np.float64]
Bound = str | tuple[Any, Any]

GROW, FALL = "grow", "fall"
_TRIED = 48  # precedents whose allowed columns are tried together, before the smallest changes are sought
_SOUGHT = 5  # precedents towards which the smallest changes are sought
_COMBINATIONS = 500  # of columns that are tried towards one precedent at once
_JUDGED = 24  # changes whose typicality is measured


class WantedOutcome(Protocol):
    """What a changed row shall get; see `dwac.tasks.goals`."""

    @property
    def name(self) -> Any:
        """The label or the range."""

    @property
    def outcome(self) -> Any:
        """The same for the model."""

    def voters(self) -> Bools:
        """(m,): which voters have it themselves."""

    def reached(self, observed: Any) -> Bools:
        """(n,): whether observed rows reach it."""

    def margin(self, observed: Any) -> Floats:
        """(n,): how far they are beyond it."""

    def value(self, observed: Any) -> Floats:
        """(n,): the probability of the label, or the number."""


class Constraints(NamedTuple):
    """What may change: not these columns, only those, and within these bounds."""

    frozen: Collection[Any] = ()
    only: Collection[Any] | None = None
    bounds: Mapping[Any, Bound] | None = None

    def check(self, columns: Sequence[Any]) -> None:
        """Raise an error unless they name columns, and bounds are "grow", "fall" or (low, high)."""
        for names, argument in ((self.frozen, "frozen"), (self.only, "only"), (self.bounds, "bounds")):
            if isinstance(names, str):
                raise InputError(f"{argument} must be a list of columns; got {names!r}; write [{names!r}]")
            require_columns(list(names or ()), columns, argument)
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
    """A column, its value now, and the value that it would have to have; None if private."""

    column: Any
    value: Any
    to: Any


@dataclass(frozen=True, eq=False)
class Way:
    """A change of a few columns that reaches the goal, checked with the model."""

    changes: tuple[ChangedColumn, ...]
    precedent: Precedent | None  # whose values they are; None if private
    value: float  # the probability of the label after the change, or the predicted number
    typicality: float | None  # of the changed row; None without calibration
    record: Any = field(default=None, repr=False)  # the changed row; None if private

    @property
    def atypical(self) -> bool:
        """Whether the changed row is unlike the training data."""
        return self.typicality is not None and self.typicality <= STRANGE

    @property
    def columns(self) -> tuple[Any, ...]:
        """The columns that change."""
        return tuple(change.column for change in self.changes)

    def _typicality(self) -> str:
        known = self.typicality or 0.0
        return privacy.credibility(known) if self.precedent is None else percent(known)

    def words(self, write: Callable[[float], str]) -> str:
        """The changes in words; write: how to write the value."""
        steps = [
            title_of(each.column) + ("" if self.precedent is None else f" {shorten(each.value)} → {shorten(each.to)}")
            for each in self.changes
        ]
        who = "" if self.precedent is None else f", as in {example_title(self.precedent.id)}"
        typical = "" if self.typicality is None else f", typicality {self._typicality()}"
        mark = "; such a row is unlike the training data" if self.atypical else ""
        return f"{', '.join(steps)}{who}: {write(self.value)}{typical}{mark}"


@dataclass(frozen=True, eq=False, repr=False)
class Recourse:
    """The smallest changes that give a row another label or number; made by `recourse` of an estimator.

    If there is no way within the limits, `obstacle` names the fewest columns that stand in the way: were they allowed
    to change as well, there would be one. It is empty if even that would not help.
    """

    label: Any  # what the row gets now
    wanted: Any
    ways: tuple[Way, ...]  # few changes first; those to atypical rows last
    reached: bool = False  # whether the row has it already
    obstacle: tuple[Any, ...] = ()
    private: bool = False
    unreadable: str | None = None
    is_number: bool = False

    def _write(self, value: float) -> str:
        return shorten(float(value)) if self.is_number else f"{self.wanted} {percent(value, private=self.private)}"

    def sentences(self) -> list[str]:
        """The ways in plain words, or why there is none."""
        if self.unreadable:
            return [f"This example could not be read: {self.unreadable}."]
        now, wanted = (shorten(each) if isinstance(each, float) else str(each) for each in (self.label, self.wanted))
        if self.reached:
            return [f"Nothing has to change: the prediction is {now} already."]
        if self.ways:
            few = "this change" if len(self.ways) == 1 else "one of these changes"
            start = f"Now {now}. It would be {wanted} with {few}:"
            return [start, *(f"{n}. {way.words(self._write)}." for n, way in enumerate(self.ways, 1))]
        if self.obstacle:
            names = " and ".join(map(title_of, self.obstacle))
            return [f"Now {now}. No allowed change gives {wanted}: {names} would have to change as well."]
        return [f"Now {now}. No change towards a training example gives {wanted}."]

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

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, ready for JSON."""
        ways = [
            {
                "changes": [change._asdict() for change in way.changes],
                "precedent": None if way.precedent is None else way.precedent.to_dict(),
                "value": way.value,
                "typicality": way.typicality,
                "atypical": way.atypical,
                "record": way.record,
            }
            for way in self.ways
        ]
        shown: dict[str, Any] = plain(
            {
                "label": self.label,
                "wanted": self.wanted,
                "reached": self.reached,
                "ways": ways,
                "obstacle": self.obstacle,
                "private": self.private,
                "unreadable": self.unreadable,
            }
        )
        return shown

    def _summary(self) -> dict[str, Any]:
        """One line of a table of many rows, for `Explanations`."""
        first = self.ways[0] if self.ways else None
        steps = (
            ""
            if first is None
            else ", ".join(
                str(each.column) + ("" if self.private else f" → {shorten(each.to)}") for each in first.changes
            )
        )
        return {"label": self.label, "wanted": str(self.wanted), "ways": len(self.ways), "first": steps}

    def __str__(self) -> str:
        """As `to_text`, as wide as the terminal."""
        return self.to_text()

    def __repr__(self) -> str:
        """How many ways there are, and the first."""
        first = f": {self.ways[0].words(self._write)}" if self.ways else ""
        return f"<{type(self).__name__}: {len(self.ways)} way{'s' * (len(self.ways) != 1)} to {self.wanted}{first}>"

    def to_text(self, width: int | None = None) -> str:
        """The sentences, in lines of at most `width` characters."""
        width = line_width() if width is None else width
        return "\n".join(line for sentence in self.sentences() for line in wrap(sentence, width))

    def to_html(self) -> str:
        """A self-contained HTML fragment: a table of the ways; every value escaped."""
        names = list(dict.fromkeys(name for way in self.ways for name in way.columns))
        now = {change.column: change.value for way in self.ways for change in way.changes}
        rows = []
        for way in self.ways:
            to = {change.column: "changed" if self.private else shorten(change.to) for change in way.changes}
            who = "" if way.precedent is None else str(way.precedent.id)
            typical = "" if way.typicality is None else way._typicality()
            rows.append(([to.get(name, "") for name in names], self._write(way.value), typical, who, way.atypical))
        return render(
            "explain/templates/recourse.html",
            sentences=self.sentences()[:1],
            names=[title_of(name) for name in names],
            now=["" if self.private else shorten(now[name]) for name in names],
            rows=rows,
            private=self.private,
        )

    def _repr_html_(self) -> str:
        return self.to_html()


# The search


class _Try(NamedTuple):
    """Columns that take the values of a precedent."""

    number: int  # of the precedent in the pool
    columns: tuple[int, ...]  # places


@dataclass(frozen=True, eq=False)
class _Search:
    """Asks the model which changes of a row reach a goal."""

    inquiry: Inquiry
    goal: WantedOutcome
    pool: Pool

    def rows(self, tries: Sequence[_Try]) -> pd.DataFrame:
        """The changed rows."""
        choices = np.zeros((len(tries), len(self.pool.names)), dtype=np.intp)
        for row, each in enumerate(tries):
            choices[row, list(each.columns)] = each.number
        return self.pool.make(choices)

    def observe(self, tries: Sequence[_Try]) -> Any:
        """What the model observes of them."""
        return self.inquiry.observe(self.rows(tries))

    def reaching(self, tries: Sequence[_Try]) -> list[_Try]:
        """Those of the tries that reach the goal."""
        reached = self.goal.reached(self.observe(tries)) if tries else ()
        return [each for each, is_reached in zip(tries, reached, strict=True) if is_reached]

    def smallest(self, full: Sequence[_Try], enough: int) -> list[_Try]:
        """The smallest changes towards each precedent, given all that are allowed, each of which reaches the goal.

        All combinations of one column, of two and so on are tried towards all precedents at once, until there are
        enough different ones. Where combinations are too many, one is sought step by step.
        """
        smallest: list[_Try] = []
        left = list(full)
        for size in range(1, max(len(each.columns) for each in full) + 1):
            many = [each for each in left if comb(len(each.columns), size) > _COMBINATIONS]
            smallest += [self.step_by_step(each) for each in many]
            left = [each for each in left if each not in many]
            tries = [each._replace(columns=some) for each in left for some in combinations(each.columns, size)]
            reaching = self.reaching(tries)
            smallest += reaching
            left = [each for each in left if each.number not in {found.number for found in reaching}]
            if not left or len({each.columns for each in smallest}) >= enough:
                break
        return smallest

    def step_by_step(self, full: _Try) -> _Try:
        """A small change: the most helpful column is added until the goal is reached; needless ones are dropped."""
        columns: tuple[int, ...] = ()
        while len(columns) < len(full.columns):
            tries = [full._replace(columns=(*columns, c)) for c in full.columns if c not in columns]
            observed = self.observe(tries)
            reached = self.goal.reached(observed)
            best = int(np.argmax(np.where(reached, np.inf, self.goal.margin(observed))))
            columns = tries[best].columns
            if reached[best]:
                break
        for column in columns:
            less = full._replace(columns=tuple(c for c in columns if c != column))
            columns = less.columns if less.columns and self.reaching([less]) else columns
        return full._replace(columns=tuple(sorted(columns)))

    def typical(self, full: _Try) -> list[_Try]:
        """A change to a typical row: from all allowed columns, the least typical is dropped as long as it stays one."""
        best = full
        if not self._keeps([full])[0]:
            return []
        while len(best.columns) > 1:
            tries = [best._replace(columns=tuple(c for c in best.columns if c != gone)) for gone in best.columns]
            typicality = self._keeps(tries)
            if not typicality.any():
                break
            best = tries[int(np.argmax(typicality))]
        return [best]

    def _keeps(self, tries: Sequence[_Try]) -> Floats:
        """(n,): the typicality of changed rows; 0 where it is too low or the goal is missed."""
        observed = self.observe(tries)
        typicality = self.inquiry.typicality_of(observed)
        known = np.ones(len(tries)) if typicality is None else typicality
        return np.where(self.goal.reached(observed) & (known > STRANGE), known, 0.0)


def find_ways(
    inquiry: Inquiry, goal: WantedOutcome, votes: Votes, limits: Constraints, k: int
) -> tuple[list[Way], tuple[Any, ...]]:
    """(the k smallest and most different ways to the goal, the columns that stand in the way if there is none)."""
    limits.check(inquiry.column_names())
    places = find_precedents(inquiry, votes, np.flatnonzero(goal.voters()), goal.outcome, _TRIED)
    places = places or find_precedents(inquiry, votes, np.arange(len(votes.labels)), goal.outcome, _TRIED)
    if not places:
        return [], ()
    pool = inquiry.pool(plain_ids(votes.references.ids[places]))
    search = _Search(inquiry, goal, pool)
    every, full = [], []
    for number in range(1, len(places) + 1):
        parts = [
            (place, Part(name, pool.cells[name][0], pool.cells[name][number]))
            for place, name in enumerate(pool.names)
            if pool.differs(name, number)
        ]
        every.append(_Try(number, tuple(place for place, _ in parts)))
        full.append(_Try(number, tuple(place for place, part in parts if limits.allow(part))))
    reaching = search.reaching([each for each in full if each.columns])
    if not reaching:
        return [], _obstacle(search, every, full)
    tries = search.smallest(reaching[:_SOUGHT], 2 * k)
    return _choose(search, tries, reaching[0], places, k), ()


def _choose(search: _Search, tries: list[_Try], full: _Try, places: list[int], k: int) -> list[Way]:
    """The k best: few columns first, then small changes; with different columns each, if possible.

    Ways to atypical rows come last; if there are only such, a larger change to a typical row is sought.
    """
    tries = sorted(tries, key=lambda each: (len(each.columns), each.number))[:_JUDGED]
    inquiry, goal = search.inquiry, search.goal

    def judge(tries: list[_Try]) -> Any:
        rows = search.rows(tries)
        observed = inquiry.observe(rows)
        return rows, observed, inquiry.typicality_of(observed)

    rows, observed, typicality = judge(tries)
    if typicality is not None and (typicality <= STRANGE).all():
        tries += search.typical(full)
        rows, observed, typicality = judge(tries)
    known = np.ones(len(tries)) if typicality is None else typicality
    apart, values = inquiry.apart(rows), goal.value(observed)
    order = sorted(range(len(tries)), key=lambda i: (known[i] <= STRANGE, len(tries[i].columns), apart[i], i))
    first = list({tries[i].columns: i for i in reversed(order)}.values())  # the best with these columns
    chosen = sorted(sorted(order, key=lambda i: i not in first)[:k], key=order.index)
    records = rows.iloc[chosen].to_dict("records")
    precedents = [make_precedent(inquiry, places[tries[i].number - 1]) for i in chosen]
    ways = []
    for i, record, precedent in zip(chosen, records, precedents, strict=True):
        names = [search.pool.names[place] for place in tries[i].columns]
        mine, theirs = ([search.pool.cells[name][number] for name in names] for number in (0, tries[i].number))
        changes = tuple(map(ChangedColumn, names, mine, theirs))
        ways.append(Way(changes, precedent, float(values[i]), None if typicality is None else float(known[i]), record))
    return ways


def _obstacle(search: _Search, every: Sequence[_Try], full: Sequence[_Try]) -> tuple[Any, ...]:
    """The fewest columns that would have to change as well as those allowed; empty if that would not help either."""
    pairs = list(zip(every, full, strict=True))[:_SOUGHT]
    for size in (1, 2, len(search.pool.names)):
        tries = []
        for whole, allowed in pairs:
            blocked = [place for place in whole.columns if place not in allowed.columns]
            extras = combinations(blocked, min(size, len(blocked)))
            tries += [allowed._replace(columns=(*allowed.columns, *extra)) for extra in extras if extra]
        reaching = search.reaching(tries)
        if reaching:
            allowed = next(allowed for _, allowed in pairs if allowed.number == reaching[0].number)
            return tuple(search.pool.names[place] for place in reaching[0].columns[len(allowed.columns) :])
    return ()


def make_private(exact: Recourse, step: float) -> Recourse:
    """The columns to change, rounded results, and nothing of the precedents; step: of numbers, 0 for labels."""

    def rounded(value: float) -> float:
        return float(privacy.numbers(value, step)) if exact.is_number else privacy.share(value)

    ways = tuple(
        Way(tuple(ChangedColumn(name, None, None) for name in way.columns), None, rounded(way.value), way.typicality)
        for way in exact.ways
    )
    label = rounded(exact.label) if exact.is_number else exact.label
    return replace(exact, label=label, ways=ways, private=True)
