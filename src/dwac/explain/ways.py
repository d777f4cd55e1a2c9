"""The search for recourse: which columns of a row to take from which precedent, so that it reaches a goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac.explain.base import STRANGE
from dwac.explain.comparing import Inquiry, find_precedents, make_precedent
from dwac.explain.hybrids import Bools, Part, Pool
from dwac.explain.recourse import ChangedColumn, Constraints, Way
from dwac.explain.voters import plain_ids
from dwac.explain.votes import Votes

Floats = NDArray[np.float64]

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

    def values(self, change: _Try) -> list[Any]:
        """The values that the columns take."""
        return [self.pool.cells[self.pool.names[place]][change.number] for place in change.columns]

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
    tries = sorted(tries, key=lambda each: (len(each.columns), each.number))
    distinct = {str(list(zip(each.columns, search.values(each), strict=True))): each for each in reversed(tries)}
    tries = list(reversed(distinct.values()))[:_JUDGED]
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
        changes = tuple(map(ChangedColumn, names, search.values(tries[i]._replace(number=0)), search.values(tries[i])))
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
