"""Profiles of groups: how each column is spread in each group, to compare a row with groups of training examples.

A comparison names conditions that the row and nearly all members of a group meet, and values in which the row differs
from nearly all of them. Limits are the numbers that are printed, so a condition holds as a person reads it.

Profiles describe training rows, in small groups single ones: private explanations must drop them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac.drawing.records import title_of
from dwac.explain.claims import (
    MISSING,
    CategoryColumn,
    DateScale,
    NumberScale,
    RangeColumn,
    show_name,
    show_number,
    usable_words,
    value_name,
    worth,
)
from dwac.languages import count, say

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Scale = NumberScale | DateScale

NEARLY_ALL = 0.9  # share of the members that meet a condition
LEAST = 0.05  # nats: the least worth of a condition
_OUTER = 0.05  # share of the members with a value that are beyond each end of their usual range
_EDGES = 40  # limits of ranges are quantiles of all rows, as many as this
_SIMPLER = 0.02  # nats that a second limit must be worth
_KEPT = 60  # values kept of a category: the most frequent
_SHARED, _DIFFERENT = 4, 2  # named in a comparison
_SAME = 0.9  # rank correlation from which a second column of numbers repeats the first
_MOST_COLUMNS = 400  # columns between which correlations are computed
_SHARED_WORDS, _OTHER_WORDS = 5, 3
_LEAST_OF_WORD = 0.005  # nats: even distinctive words are in few texts


@dataclass(frozen=True)
class _Finding:
    """A finding about a column of a row, beside a group."""

    column: Any
    words: str | Callable[[], str]  # a function makes them in the current language

    @property
    def text(self) -> str:
        """In words."""
        return self.words if isinstance(self.words, str) else self.words()


@dataclass(frozen=True)
class Condition(_Finding):
    """A condition that a row meets, such as "income 75 to 195"."""

    share: float  # of the members of a group that meet it
    elsewhere: float  # of the others that meet it
    worth: float  # how well it tells the group from the others, in nats


@dataclass(frozen=True)
class Difference(_Finding):
    """A value of a row that nearly no member of a group has."""

    rarity: float  # -log of the share of the members that are as extreme


class Comparison(NamedTuple):
    """What a row shares with nearly all members of a group, the most telling first; and in what it differs."""

    shared: tuple[Condition, ...] = ()
    different: tuple[Difference, ...] = ()
    kind: str = "table"

    @property
    def columns(self) -> list[Any]:
        """The columns that it names."""
        return [each.column for each in self.shared] + [each.column for each in self.different]

    @property
    def text(self) -> str:
        """In words; empty if there is nothing to say.

        >>> condition = Condition("age", "age at most 30", 1.0, 0.2, 1.0)
        >>> Comparison((condition,), (Difference("income", "income 295 (in the group 75 to 195)", 3.0),)).text
        'shares age at most 30; differs in income 295 (in the group 75 to 195)'
        """
        shared, different = (", ".join(each.text for each in part) for part in self[:2])
        parts = []
        if shared and self.kind == "text":
            parts.append(count("shares the word {words}", "shares the words {words}", len(self.shared), words=shared))
        elif shared:
            parts.append(say("shares {conditions}", conditions=shared))
        if different and self.kind == "text":
            parts.append(say("often has {words}, which this text lacks", words=different))
        elif different:
            parts.append(say("differs in {columns}", columns=different))
        return "; ".join(parts)


class Sides(NamedTuple):
    """S times members of groups: the weights (S, G) of the groups, which sum to 1, and the numbers (S,) of members."""

    weights: Floats
    n: Floats


Compared = tuple[Condition | None, Difference | None]


class RangeProfile:
    """Numbers or dates: the shares of each group below and up to each limit, and of those that are known."""

    def __init__(self, name: Any, title: str, scale: Scale, edges: Floats, shares: Floats) -> None:
        self.name, self.title, self.scale, self.edges = name, title, scale, edges
        self.shares = shares  # (G, 2 E + 1): below each of E limits, up to each, known
        self.ends = np.array([scale.end(edge) for edge in edges.tolist()])
        self._limits = np.concatenate([edges, self.ends, [np.inf]])

    @classmethod
    def of(cls, name: Any, column: RangeColumn, slices: Sequence[slice]) -> RangeProfile:
        """The profile of a column whose rows are ordered by group."""
        known = column.x[~np.isnan(column.x)]
        points = np.quantile(known, np.linspace(0, 1, _EDGES + 1), method="nearest")
        edges = np.unique([column.scale.limit(point) for point in points.tolist()])
        profile = cls(name, column.title, column.scale, edges, np.empty((0, 2 * len(edges) + 1)))
        groups = [column.x[here] for here in slices]
        counts = [np.searchsorted(np.sort(x[~np.isnan(x)]), profile._limits) for x in groups]
        profile.shares = np.array([n / max(len(x), 1) for n, x in zip(counts, groups, strict=True)])
        return profile

    def spread(self, values: Sequence[Any], weights: Floats) -> Floats:
        """(2 E + 1,): a row of `shares` for these values."""
        x = np.array([self.scale.number(value) for value in values])
        return np.asarray(weights @ (x[:, None] < self._limits))

    def compare(self, value: Any, inside: Sides, rest: Sides) -> list[Compared]:
        """For each side the most telling condition that the value and nearly all members meet; or how it differs."""
        x, n = self.scale.number(value), len(self.edges)
        mine, others = inside.weights @ self.shares, rest.weights @ self.shares
        differences = self._differences(x, mine, inside.n)
        if math.isnan(x):
            first, last, c, r = 0, 0, (1 - mine[:, -1:])[:, None], (1 - others[:, -1:])[:, None]
        else:  # From no limit or one at most x, to one at least x or none.
            first, last = int(np.searchsorted(self.edges, x, "right")), int(np.searchsorted(self.ends, x, "right"))
            none = np.zeros((len(mine), 1))
            c, r = (s[:, None, n + last :] - np.hstack([none, s[:, :first]])[..., None] for s in (mine, others))
        n_inside, n_rest = (each[:, None, None] for each in (inside.n, rest.n))
        gains = worth(c * n_inside, n_inside, r * n_rest, n_rest)
        if not math.isnan(x):
            gains[:, 1:, :-1] -= _SIMPLER
            gains[:, 0, -1] = 0.0
        gains[c < NEARLY_ALL] = 0.0
        compared: list[Compared] = []
        for side, best in enumerate(gains.reshape(len(gains), -1).argmax(axis=1).tolist()):
            a, b = divmod(best, gains.shape[2])
            gain, difference = float(gains[side, a, b]), differences[side]
            if gain < LEAST or (difference is not None and not math.isnan(x)):
                compared.append((None, difference))
                continue
            low, high = None if a == 0 else a - 1, None if b == gains.shape[2] - 1 else last + b
            words = partial(self._condition, low, high, is_missing=math.isnan(x))
            condition = Condition(self.name, words, float(c[side, a, b]), float(r[side, a, b]), gain)
            compared.append((condition, difference))
        return compared

    def _words(self, low: int | None, high: int | None) -> str:
        """A range in words; limits are positions among the edges, None for no limit."""
        a, b = (None if i is None else show_number(self.scale.text(float(self.edges[i]))) for i in (low, high))
        if a is None or b is None:
            return say(self.scale.above, low=a) if b is None else say(self.scale.below, high=b)
        return a if a == b else say("{low} to {high}", low=a, high=b)

    def _condition(self, low: int | None, high: int | None, *, is_missing: bool) -> str:
        title = shown_title(self.name, self.title)
        return say("{column} missing", column=title) if is_missing else f"{title} {self._words(low, high)}"

    def _differences(self, x: float, mine: Floats, n: Floats) -> list[Difference | None]:
        """How a number differs from nearly all members of each side: it is missing, or beyond their usual range."""
        n_edges, shown = len(self.edges), x if math.isnan(x) else self._printed(x)
        below, at_most, known = mine[:, :n_edges], mine[:, n_edges:-1], mine[:, -1]
        lows = ((below <= _OUTER * known[:, None]).sum(axis=1) - 1).tolist()
        highs = (at_most < (1 - _OUTER) * known[:, None]).sum(axis=1).tolist()
        differences: list[Difference | None] = []
        for side, (low, high, share) in enumerate(zip(lows, highs, known.tolist(), strict=True)):
            rare: tuple[tuple[int | None, int | None] | None, float] | None = None
            a, b = None if low < 0 else low, None if high == n_edges else high
            if 1 - share >= NEARLY_ALL and not math.isnan(x):
                rare = None, share
            elif share >= NEARLY_ALL and (a is not None or b is not None):
                if math.isnan(x):
                    rare = (a, b), 1 - share
                elif a is not None and shown < self.edges[a]:
                    rare = (a, b), float(at_most[side, a])
                elif b is not None and shown >= self.ends[b]:
                    rare = (a, b), float(share - below[side, b])
            differences.append(None if rare is None else self._different(x, *rare, float(n[side])))
        return differences

    def _printed(self, x: float) -> float:
        """The number that is printed."""
        text = self.scale.exact(x)
        plain = isinstance(self.scale, NumberScale) and not self.scale.unit
        return float(text.replace(",", "")) if plain else self.scale.number(text)

    def _different(self, x: float, usual: tuple[int | None, int | None] | None, share: float, n: float) -> Difference:
        return Difference(self.name, partial(self._contrast, x, usual), -math.log((share * n + 0.5) / (n + 1)))

    def _contrast(self, x: float, usual: tuple[int | None, int | None] | None) -> str:
        return say(
            "{column} {value} (in the group {usual})",
            column=shown_title(self.name, self.title),
            value=say(MISSING) if math.isnan(x) else show_number(self.scale.exact(x)),
            usual=say(MISSING) if usual is None else self._words(*usual),
        )


class CategoryProfile:
    """Categories: the share of each value in each group; equal names are one value, as a reader cannot tell them."""

    def __init__(
        self, name: Any, title: str, categories: list[str], shares: Floats, meanings: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.title, self.categories, self.shares = name, title, categories, shares  # shares: (G, K)
        self.meanings = dict(meanings or {})
        self._places = {value: place for place, value in enumerate(categories)}

    @classmethod
    def of(cls, name: Any, column: CategoryColumn, slices: Sequence[slice]) -> CategoryProfile:
        """The profile of a column whose rows are ordered by group."""
        values, merged = np.unique(column.names, return_inverse=True)
        codes = merged[column.codes]
        kept = np.argsort(-np.bincount(codes, minlength=len(values)), kind="stable")[:_KEPT]
        counts = [np.bincount(codes[here], minlength=len(values))[kept] / max(len(codes[here]), 1) for here in slices]
        return cls(name, column.title, values[kept].tolist(), np.array(counts), column.meanings)

    def spread(self, values: Sequence[Any], weights: Floats) -> Floats:
        """(K,): a row of `shares` for these values."""
        places = [self._places.get(value_name(value), len(self.categories)) for value in values]
        return np.asarray(np.bincount(places, weights, len(self.categories) + 1)[:-1], dtype=np.float64)

    def compare(self, value: Any, inside: Sides, rest: Sides) -> list[Compared]:
        """For each side the values that nearly all members have, if the row has one of them; else how it differs."""
        shown = value_name(value)
        place = self._places.get(shown)
        mine, others = inside.weights @ self.shares, rest.weights @ self.shares
        orders = np.argsort(-mine, axis=1, kind="stable")[:, :3]
        sides = zip(orders, mine, others, inside.n.tolist(), rest.n.tolist(), strict=True)
        return [self._compare(shown, place, *side) for side in sides]

    def _compare(
        self, shown: str, place: int | None, order: Ints, mine: Floats, others: Floats, n: float, n_rest: float
    ) -> Compared:
        usual = next((order[:k] for k in (1, 2, 3) if mine[order[:k]].sum() >= NEARLY_ALL), None)
        if usual is None:
            return None, None
        names = [self.categories[i] for i in usual]
        if place in usual:
            c, r = float(mine[usual].sum()), float(others[usual].sum())
            gain = float(worth(c * n, n, r * n_rest, n_rest))
            condition = Condition(self.name, partial(self._condition, names), c, r, gain)
            return condition if gain >= LEAST else None, None
        share = 0.0 if place is None else float(mine[place])
        if share > _OUTER:
            return None, None
        rarity = -math.log((share * n + 0.5) / (n + 1))
        return None, Difference(self.name, partial(self._contrast, shown, names), rarity)

    def _show(self, names: Sequence[str]) -> str:
        shown = [self.meanings.get(name) or show_name(name) for name in names]
        return reduce(lambda first, last: say("{first} or {last}", first=first, last=last), shown)

    def _condition(self, names: Sequence[str]) -> str:
        return f"{shown_title(self.name, self.title)} {self._show(names)}"

    def _contrast(self, shown: str, names: Sequence[str]) -> str:
        return say(
            "{column} {value} (in the group {usual})",
            column=shown_title(self.name, self.title),
            value=self._show([shown]),
            usual=self._show(names),
        )


class TableProfile:
    """The columns of a table, and which of them repeat each other."""

    def __init__(self, columns: Sequence[RangeProfile | CategoryProfile], sizes: Floats, twins: set[frozenset[Any]]):
        self.columns, self.sizes, self.twins = columns, sizes, twins

    @classmethod
    def of(
        cls, columns: Mapping[Any, RangeColumn | CategoryColumn], slices: Sequence[slice], sizes: Ints
    ) -> TableProfile:
        """columns: by name, with rows ordered by group. sizes: (G,) of the groups."""
        profiles = [
            RangeProfile.of(name, each, slices) if isinstance(each, RangeColumn)
            else CategoryProfile.of(name, each, slices)
            for name, each in columns.items()
        ]  # fmt: skip
        numbers = {name: each.x for name, each in columns.items() if isinstance(each, RangeColumn)}
        return cls(profiles, sizes.astype(np.float64), _twins(numbers))

    def take(self, groups: list[int]) -> TableProfile:
        """The profile of these groups; -1 for a group that nothing is known about."""
        columns = [copy(column) for column in self.columns]
        for column in columns:
            column.shares = _take(column.shares, groups)
        return TableProfile(columns, _take(self.sizes, groups), self.twins)

    def with_rows(self, records: Sequence[Mapping[Any, Any]], weights: Floats) -> TableProfile:
        """The profile with one more group, the last: these rows, with weights that sum to 1."""
        columns = [copy(column) for column in self.columns]
        for column in columns:
            row = column.spread([record.get(column.name) for record in records], weights)
            column.shares = np.vstack([column.shares, row])
        return TableProfile(columns, np.append(self.sizes, 1 / np.square(weights).sum()), self.twins)

    def compare(self, record: Mapping[Any, Any], inside: Sides, rest: Sides) -> list[Comparison]:
        """A row and the members of groups, against the rest, for each side."""
        columns = [c.compare(record[c.name], inside, rest) for c in self.columns if c.name in record]
        comparisons = []
        for side in range(len(inside.n)):
            shared = [same for column in columns if (same := column[side][0]) is not None]
            different = [other for column in columns if (other := column[side][1]) is not None]
            shared.sort(key=lambda each: -each.worth)
            different.sort(key=lambda each: -each.rarity)
            named = tuple(self._distinct(shared, _SHARED)), tuple(self._distinct(different, _DIFFERENT))
            comparisons.append(Comparison(*named))
        return comparisons

    def _distinct(self, offers: list[Any], most: int) -> list[Any]:
        """The first of them, without columns that repeat one before."""
        chosen: list[Any] = []
        for offer in offers:
            if len(chosen) < most and not any(frozenset((offer.column, c.column)) in self.twins for c in chosen):
                chosen.append(offer)
        return chosen


class TextProfile:
    """The share (G, W) of the texts of each group that contain each of W words."""

    def __init__(self, words: Sequence[str], shares: Floats, sizes: Floats) -> None:
        self.words, self.shares, self.sizes = words, shares, sizes

    def take(self, groups: list[int]) -> TextProfile:
        """The profile of these groups; -1 for a group that nothing is known about."""
        return TextProfile(self.words, _take(self.shares, groups), _take(self.sizes, groups))

    def with_rows(self, records: Sequence[Mapping[Any, Any]], weights: Floats) -> TextProfile:
        """The profile with one more group, the last: these texts, with weights that sum to 1."""
        texts = [usable_words(record.get("text")) for record in records]
        row = weights @ np.array([[word in text for word in self.words] for text in texts])
        sizes = np.append(self.sizes, 1 / np.square(weights).sum())
        return TextProfile(self.words, np.vstack([self.shares, row]), sizes)

    def compare(self, record: Mapping[Any, Any], inside: Sides, rest: Sides) -> list[Comparison]:
        """For each side the words of a text that are typical of it, and words typical of it that the text lacks."""
        own = usable_words(record.get("text"))
        mine, others = inside.weights @ self.shares, rest.weights @ self.shares
        n, n_rest = inside.n[:, None], rest.n[:, None]
        gains = worth(mine * n, n, others * n_rest, n_rest)
        gains[mine < 2 * others] = 0.0
        return [self._compare(own, *side) for side in zip(mine, others, gains, strict=True)]

    def _compare(self, own: set[str], mine: Floats, others: Floats, gains: Floats) -> Comparison:
        order = [i for i in np.argsort(-gains, kind="stable").tolist() if gains[i] >= _LEAST_OF_WORD]
        shared = [
            Condition("text", self.words[i], float(mine[i]), float(others[i]), float(gains[i]))
            for i in order
            if self.words[i] in own
        ]
        lacking = [Difference("text", self.words[i], float(gains[i])) for i in order if self.words[i] not in own]
        return Comparison(tuple(shared[:_SHARED_WORDS]), tuple(lacking[:_OTHER_WORDS]), "text")


Profile = TableProfile | TextProfile


def shown_title(name: Any, title: str) -> str:
    """The title of a column in a sentence; that of a column which has only a number is translated."""
    return title_of(name) if title == f"column {name}" else title


def _take(values: Floats, groups: list[int]) -> Floats:
    """Rows (G, …) of these groups; zeros for -1."""
    return np.where(np.reshape(np.array(groups) >= 0, (-1,) + (1,) * (values.ndim - 1)), values[groups], 0.0)


def _twins(numbers: Mapping[Any, Floats]) -> set[frozenset[Any]]:
    """Pairs of columns with nearly the same order of rows."""
    if not 2 <= len(numbers) <= _MOST_COLUMNS:
        return set()
    ranks = pd.DataFrame(list(numbers.values())).T.rank().fillna(0.0).to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        alike = np.argwhere(np.triu(np.abs(np.corrcoef(ranks.T)) >= _SAME, 1))
    names = list(numbers)
    return {frozenset((names[i], names[j])) for i, j in alike.tolist()}


# As plain values


def pack_profile(profile: Profile) -> tuple[dict[str, Any], Floats]:
    """(plain values, numbers (G, …)) from which `read_profile` makes the profile again: sizes, then counts of members.

    Counts are whole, and take less space than shares; shares are kept if they are not those of counts.
    """
    if isinstance(profile, TextProfile):
        return _pack_shares({"words": list(profile.words)}, profile.sizes, profile.shares)
    columns = [
        {"name": each.name, "title": each.title, "categories": each.categories, "meanings": each.meanings}
        if isinstance(each, CategoryProfile)
        else {
            "name": each.name,
            "title": each.title,
            "edges": each.edges.tolist(),
            "scale": vars(each.scale),
            "dates": isinstance(each.scale, DateScale),
        }
        for each in profile.columns
    ]
    places = {each.name: place for place, each in enumerate(profile.columns)}
    twins = [sorted(places[name] for name in pair) for pair in profile.twins]
    shares = np.column_stack([np.empty((len(profile.sizes), 0)), *(each.shares for each in profile.columns)])
    return _pack_shares({"columns": columns, "twins": sorted(twins)}, profile.sizes, shares)


def _pack_shares(values: dict[str, Any], sizes: Floats, shares: Floats) -> tuple[dict[str, Any], Floats]:
    counts = np.rint(shares * sizes[:, None])
    whole = bool((sizes > 0).all() and np.array_equal(counts / sizes[:, None], shares))
    return values | {"counts": whole}, np.column_stack([sizes, counts if whole else shares])


def read_profile(values: Mapping[str, Any], shares: Floats) -> Profile:
    """The profile that `pack_profile` packed; KeyError, TypeError, ValueError or IndexError if it is not one."""
    sizes, shares = shares[:, 0], shares[:, 1:]
    if values.get("counts"):
        shares = shares / np.where(sizes > 0, sizes, np.nan)[:, None]
    if "words" in values:
        return TextProfile([*map(str, values["words"])], _of_width(shares, len(values["words"])), sizes)
    columns: list[RangeProfile | CategoryProfile] = []
    for each in values["columns"]:
        if "categories" in each:
            width = len(each["categories"])
            own = _of_width(shares[:, :width], width)
            categories, meanings = [*map(str, each["categories"])], dict(each.get("meanings", {}))
            columns.append(CategoryProfile(each["name"], str(each["title"]), categories, own, meanings))
        else:
            edges = np.array(each["edges"], dtype=np.float64)
            width = 2 * len(edges) + 1
            scale = (DateScale if each["dates"] else NumberScale)(**each["scale"])
            own = _of_width(shares[:, :width], width)
            columns.append(RangeProfile(each["name"], str(each["title"]), scale, edges, own))
        shares = shares[:, width:]
    _of_width(shares, 0)
    names = [each.name for each in columns]
    return TableProfile(columns, sizes, {frozenset((names[a], names[b])) for a, b in values["twins"]})


def _of_width(shares: Floats, width: int) -> Floats:
    if shares.shape[1] != width:
        raise ValueError(f"{width} numbers per group required; got {shares.shape[1]}")
    return shares
