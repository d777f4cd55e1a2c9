"""The search for recourse: which columns of a row to take from which precedent, so that it reaches a goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from itertools import combinations
from math import comb
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac.explain.base import STRANGE
from dwac.explain.comparing import Inquiry, find_precedents, make_precedent
from dwac.explain.hybrids import Bools, Part, Pool, units_of
from dwac.explain.recourse import ChangedColumn, Constraints, Way
from dwac.explain.voters import plain_ids
from dwac.explain.votes import Votes

Floats = NDArray[np.float64]

_TRIED = 48  # precedents whose allowed columns are tried together, before the smallest changes are sought
_SOUGHT = 5  # precedents towards which the smallest changes are sought
_COMBINATIONS = 500  # of columns that are tried towards one precedent at once
_JUDGED = 24  # changes whose typicality is measured
_STEPS = 20  # into which a change of a number is divided, to shorten it


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


class _Try(NamedTuple):
    """Columns that take the values of a precedent."""

    number: int  # of the precedent in the pool
    columns: tuple[int, ...]  # places; of tied columns, the place of the first


@dataclass(frozen=True, eq=False)
class _Search:
    """Asks the model which changes of a row reach a goal."""

    inquiry: Inquiry
    goal: WantedOutcome
    pool: Pool
    tied: Mapping[int, list[int]]  # the places of columns that move together, by the first of them

    def rows(self, tries: Sequence[_Try]) -> pd.DataFrame:
        """The changed rows."""
        choices = np.zeros((len(tries), len(self.pool.names)), dtype=np.intp)
        for row, each in enumerate(tries):
            choices[row, [place for first in each.columns for place in self.tied[first]]] = each.number
        return self.pool.make(choices)

    def changes(self, change: _Try) -> dict[Any, tuple[Any, Any]]:
        """The columns that change: the value of each now, and then."""
        names = [self.pool.names[place] for first in change.columns for place in self.tied[first]]
        differing = (name for name in names if self.pool.differs(name, change.number))
        return {name: (self.pool.cells[name][0], self.pool.cells[name][change.number]) for name in differing}

    def moves(self, change: _Try) -> dict[Any, Any]:
        """The columns that change: whether a number or date rises, or the new value."""
        ordered = self.inquiry.ordered_columns()
        return {
            name: then > now if name in ordered and pd.notna(now) and pd.notna(then) else then
            for name, (now, then) in self.changes(change).items()
        }

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

    def shorten(self, row: pd.DataFrame, changes: dict[Any, tuple[Any, Any]]) -> tuple[pd.DataFrame, dict[Any, Any]]:
        """(a changed row, its changes) with every number and date only as far from its value now as the goal needs."""
        shorter, ordered = dict(changes), self.inquiry.ordered_columns()
        for name, (now, then) in changes.items():
            if name not in ordered:
                continue
            short, enough = now, then
            for _ in range(2):  # coarse steps, then fine ones
                steps = steps_between(short, enough)
                if not steps:
                    break
                tries = pd.concat([row] * len(steps), ignore_index=True)
                tries[name] = pd.Series(steps).astype(row[name].dtype)
                reached = np.flatnonzero(self.goal.reached(self.inquiry.observe(tries))).tolist()
                place = reached[0] if reached else len(steps)
                short = steps[place - 1] if place else short
                if reached:
                    row, enough = tries.iloc[[place]], tries[name].tolist()[place]
            shorter[name] = now, enough
        return row, shorter

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


class Ways(NamedTuple):
    """The k smallest and most different ways to a goal; if there is none, what stands in the way."""

    ways: tuple[Way, ...] = ()
    obstacle: tuple[Any, ...] = ()  # the fewest columns that would have to change as well
    closest: float | None = None  # the probability, or number, that allowed changes give; None without a precedent


def find_ways(inquiry: Inquiry, goal: WantedOutcome, votes: Votes, limits: Constraints, k: int, *, least: bool) -> Ways:
    """The ways; least: whether numbers change only as far as needed."""
    limits.check(inquiry.column_names())
    places = find_precedents(inquiry, votes, goal.voters(), goal.outcome, _TRIED)
    if not places:
        return Ways()
    pool = inquiry.pool(plain_ids(votes.references.ids[places]))
    units = [[pool.names.index(name) for name in unit] for unit in units_of(pool.names, limits.tied)]
    search = _Search(inquiry, goal, pool, {unit[0]: unit for unit in units})
    whole, allowed = [], []  # changes of all columns that differ, and of those that may change
    for number in range(1, len(places) + 1):
        parts = {first: part for first in search.tied if (part := search.changes(_Try(number, (first,))))}
        free = (first for first, part in parts.items() if all(limits.allow(Part(name, *part[name])) for name in part))
        whole.append(_Try(number, tuple(parts)))
        allowed.append(_Try(number, tuple(free)))
    reaching = search.reaching([each for each in allowed if each.columns])
    if not reaching:
        observed = search.observe(allowed)
        closest = goal.value(observed)[int(np.argmax(goal.margin(observed)))]
        return Ways((), _obstacle(search, whole, allowed), float(closest))
    tries = search.smallest(reaching[:_SOUGHT], 2 * k)
    return Ways(tuple(_choose(search, tries, reaching[0], places, k, least=least)))


def _choose(search: _Search, tries: list[_Try], full: _Try, places: list[int], k: int, *, least: bool) -> list[Way]:
    """The k best: few columns first, then small changes; of those that move the same columns the same way, the best.

    Ways to atypical rows come last; if there are only such, a larger change to a typical row is sought.
    """
    tries = sorted(tries, key=lambda each: (len(each.columns), each.number))
    tries = list({str(search.changes(each)): each for each in reversed(tries)}.values())[::-1][:_JUDGED]
    inquiry, goal = search.inquiry, search.goal

    def judge(rows: pd.DataFrame) -> Any:
        observed = inquiry.observe(rows)
        known = inquiry.typicality_of(observed)
        typicality = np.ones(len(rows)) if known is None else np.array(known)
        return np.array(goal.value(observed)), typicality, known is not None

    rows = search.rows(tries)
    values, typicality, is_known = judge(rows)
    if is_known and (typicality <= STRANGE).all() and (larger := search.typical(full)):
        tries += larger
        rows = search.rows(tries)
        values, typicality, _ = judge(rows)
    apart = inquiry.apart(rows)
    order = sorted(range(len(tries)), key=lambda i: (typicality[i] <= STRANGE, len(tries[i].columns), apart[i], i))
    best = {str(search.moves(tries[i])): i for i in reversed(order)}.values()
    chosen = sorted(best, key=order.index)[:k]
    changed = [(rows.iloc[[i]], search.changes(tries[i])) for i in chosen]
    changed = [search.shorten(*each) for each in changed] if least else changed
    rows = pd.concat([row for row, _ in changed])
    if least:
        values[chosen], typicality[chosen], _ = judge(rows)
    ways = []
    for i, record, (_, changes) in zip(chosen, rows.to_dict("records"), changed, strict=True):
        columns = tuple(ChangedColumn(name, *pair) for name, pair in changes.items())
        precedent, known = make_precedent(inquiry, places[tries[i].number - 1]), float(typicality[i])
        shortened = changes != search.changes(tries[i])
        ways.append(Way(columns, precedent, float(values[i]), known if is_known else None, record, shortened))
    return ways


def _obstacle(search: _Search, whole: Sequence[_Try], allowed: Sequence[_Try]) -> tuple[Any, ...]:
    """The fewest columns that would have to change as well as those allowed; empty if that would not help either."""
    for size in (1, 2, len(search.pool.names)):
        added: dict[_Try, _Try] = {}  # the columns that each change adds to those allowed
        for all_columns, free in list(zip(whole, allowed, strict=True))[:_SOUGHT]:
            blocked = [first for first in all_columns.columns if first not in free.columns]
            for extra in combinations(blocked, min(size, len(blocked))) if blocked else ():
                added[free._replace(columns=(*free.columns, *extra))] = free._replace(columns=extra)
        if reaching := search.reaching(list(added)):
            return tuple(search.changes(added[reaching[0]]))
    return ()


def steps_between(now: Any, then: Any) -> list[Any]:
    """Values between two numbers or dates, the nearest to the first one first, with no more digits than they have.

    >>> steps_between(10, 13), steps_between(0.5, 1.5)[:3], steps_between("a", "b"), steps_between(None, 3)
    ([11, 12], [0.6, 0.7, 0.8], [], [])
    """
    if isinstance(now, date) and isinstance(then, date):  # also of pandas
        days = (then - now).days if pd.notna(now) and pd.notna(then) else 0
        return [now + timedelta(days=each) for each in steps_between(0, days)]
    if any(isinstance(each, bool) or not isinstance(each, int | float) or pd.isna(each) for each in (now, then)):
        return []
    digits = 0 if all(float(each).is_integer() for each in (now, then)) else max(map(_decimals, (now, then)))
    spaced = [round(float(each), digits) for each in np.linspace(now, then, _STEPS + 1)[1:-1]]
    steps = [each for each in dict.fromkeys(spaced) if each not in (now, then)]
    return [int(each) for each in steps] if isinstance(now, int) and isinstance(then, int) else steps


def _decimals(value: float) -> int:
    """How many decimals a number is written with.

    >>> _decimals(0.25), _decimals(3), _decimals(1e-07)
    (2, 0, 7)
    """
    exponent = Decimal(str(value)).normalize().as_tuple().exponent
    return max(-exponent, 0) if isinstance(exponent, int) else 0
