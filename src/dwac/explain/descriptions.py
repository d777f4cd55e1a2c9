"""Descriptions of groups of training examples: what sets each apart, so that a person recognises it.

>>> X = pd.DataFrame({"age": [*range(18, 28), *range(40, 70)], "married": [False] * 10 + [True] * 30})
>>> describe(X, np.repeat([0, 1], [10, 30]), 2, {"age": "numeric"})
['married always false, age at most 26', 'married always true, age at least 43']

Descriptions quote values of training rows, in small groups of single rows: private explanations must drop them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac.drawing.legend import NO_LEGEND, Legend
from dwac.explain.claims import CategoryColumn, Claim, RangeColumn, column, usable_words, worth
from dwac.explain.profiles import Comparison, Profile, Sides, TableProfile, TextProfile
from dwac.languages import count, message, numeral, say

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROWS = 20_000  # rows read in total
_FEWEST = 40  # rows read of each group, however many groups there are
_MOST_CLAIMS = 4
_MOST_GROUPS = 3  # groups in a sentence on a whole vote
_CONSIDERED = 16  # candidate claims per group
_LEAST = 0.05  # nats: the least worth of a claim
_FEW, _FEW_ROWS = 0.01, 5.0  # share of the group's size, and rows: fewer rows of the rest than this are ignored
_SAME = 0.9  # overlap from which two claims count as picking out the same rows
_WORDS = 5  # words named for a group of texts
_KEPT_WORDS = 100  # words kept per group, to compare a text with
_TEXTS = 3  # texts of a group that must contain a word; half of the texts in smaller groups
_LEAST_OF_WORD = 0.005  # nats: even distinctive words are in few texts
_WORDS_ARE = "words: "
NO_CONDITION = message("shares nothing with nearly all members that sets them apart")
NOTHING = {"table": message("no column sets it apart"), "text": message("no word sets it apart")}


class GroupTexts(list[str | None]):
    """What sets each group apart, in words; and the profile of the groups, with which a row can be compared.

    profile: a function makes it on first use; None if unknown.
    """

    def __init__(
        self, texts: Iterable[str | None], profile: Profile | Callable[[], Profile | None] | None = None
    ) -> None:
        super().__init__(texts)
        self._profile = profile

    @property
    def profile(self) -> Profile | None:
        """The profile of the groups; None if unknown."""
        if callable(self._profile):
            self._profile = self._profile()
        return self._profile

    def take(self, groups: Sequence[int | None]) -> GroupTexts:
        """The same of these groups; None for a group that nothing is known about."""
        texts = [None if group is None else self[group] for group in groups]
        return GroupTexts(texts, partial(self._take_profile, [-1 if group is None else group for group in groups]))

    def _take_profile(self, groups: list[int]) -> Profile | None:
        return None if self.profile is None else self.profile.take(groups)

    def compare_rows(self, record: Any, rows: Sequence[Any], weights: Floats, rest: Floats) -> Comparison | None:
        """The same for single training rows with these weights, in place of groups."""
        if self.profile is None or not rows or not all(isinstance(row, Mapping) for row in rows):
            return None
        own = GroupTexts([*self, None], self.profile.with_rows(rows, weights / weights.sum()))
        return own.compare(record, np.append(np.zeros(len(self)), 1.0), np.append(rest, 0.0))

    def compare(self, record: Any, weights: Floats, rest: Floats | None = None) -> Comparison | None:
        """A row and groups with these weights (G,), against the rest; None if unknown.

        rest: (G,) weights of the groups to tell them from, by default those of no weight, by their sizes.
        """
        return self._compare(record, weights[None], None if rest is None else rest[None])[0]

    def compare_groups(self, record: Any, groups: Sequence[int]) -> list[Comparison | None]:
        """A row and each of these groups, against all other groups."""
        return self._compare(record, np.eye(len(self))[list(groups)])

    def _compare(self, record: Any, weights: Floats, rest: Floats | None = None) -> list[Comparison | None]:
        """The same for several weights (S, G)."""
        profile = self.profile
        if profile is None or not isinstance(record, Mapping):
            return [None] * len(weights)
        rest = np.where(weights > 0, 0.0, profile.sizes) if rest is None else rest
        sizes, n_rest = np.where(weights > 0, profile.sizes, 0.0).sum(axis=1), rest.sum(axis=1)
        inside = Sides(weights / weights.sum(axis=1, keepdims=True), sizes)
        others = Sides(rest / np.where(n_rest > 0, n_rest, 1.0)[:, None], n_rest)
        compared = profile.compare(record, inside, others)
        return [each if size > 0 else None for each, size in zip(compared, sizes.tolist(), strict=True)]


def describe(
    X: Any, codes: Ints, n_groups: int, kinds: Mapping[Any, str] | str, legend: Legend = NO_LEGEND
) -> GroupTexts:
    """One description for each group 0 … n_groups-1 of the rows of X: what sets it apart from the other rows.

    Tables: up to four columns that best tell the group from the rest, best first. Numbers and dates are described by
    the rounded range from about the 10th to the 90th percentile of the group, categories by the values that most of
    the group have. Every claim is true of most of the group. Columns of ids and free texts are left out. Texts: the
    words that are most over-represented. At most about 20,000 rows are read, equally many of each group.

    Args:
        X: a table (DataFrame, 2-D array, list of rows) or texts (list, array, Series, or a frame of one column).
        codes: (n,) the group of each row.
        n_groups: the number of groups.
        kinds: for each column "numeric", "boolean", "datetime", "categorical", "text" (left out) or "empty", inferred
            from the values where missing; or "text" for texts.
        legend: what columns and codes are called.
    """
    members = _read_members(X, codes, n_groups, kinds, legend)
    return GroupTexts(members.describe(), members.profile())


def profile(X: Any, codes: Ints, n_groups: int, kinds: Mapping[Any, str] | str, legend: Legend = NO_LEGEND) -> Profile:
    """The profile alone; arguments as for `describe`."""
    return _read_members(X, codes, n_groups, kinds, legend).profile()


def summary(describe: Callable[[int], str | None], shares: ArrayLike) -> str | None:
    """A whole vote in one sentence: its heaviest groups and their shares of the vote; None if none is described.

    describe: a group, by its number, in words, or None; only for as many as are needed. shares: (G,) of the vote. Names
    the heaviest described groups, up to three, and no more than needed for nine tenths of the vote.

    >>> summary(["age 17 to 29", "age at least 50", "age 30 to 49"].__getitem__, [0.62, 0.05, 0.33])
    '62 % of the vote: age 17 to 29; 33 %: age 30 to 49; 5 %: another group'
    """
    weights = np.asarray(shares, dtype=np.float64)
    named: dict[int, str] = {}
    for group in np.argsort(-weights, kind="stable").tolist():
        if len(named) == _MOST_GROUPS or weights[list(named)].sum() >= 0.9 * weights.sum():
            break
        if weights[group] > 0 and (text := describe(group)) is not None:
            named[group] = text
    if not named:
        return None
    texts = [(_percent(weights[group]), text.removeprefix(_WORDS_ARE)) for group, text in named.items()]
    parts = [f"{share}: {text}" for share, text in texts]
    parts[0] = say("{share} of the vote: {words}", share=texts[0][0], words=texts[0][1])
    others = int((weights > 0).sum()) - len(named)
    left = float(weights.sum() - weights[list(named)].sum())
    if others and left >= 0.005:
        rest = count("{share}: another group", "{share}: {n} other groups", others, share=_percent(left))
        parts.append(rest)
    return "; ".join(parts)


def _percent(share: float) -> str:
    return say("less than 1 %") if share < 0.005 else numeral(checks.percent(share, 0))


def share_in_words(n: int, total: int) -> str:
    """The share of all training examples, in words.

    >>> share_in_words(8, 100), share_in_words(1, 1000)
    ('8 % of training examples', '1 training example')
    """
    if n >= 0.005 * total:
        return say("{share} of training examples", share=_percent(n / total))
    return count("{n} training example", "{n} training examples", n)


class _Rows(NamedTuple):
    """The rows read, ordered by group: `slices[g]` are those of group g; each represents `weights` rows."""

    rows: Ints
    slices: list[slice]
    weights: Floats
    counts: Ints

    @classmethod
    def sample(cls, codes: Ints, n_groups: int) -> _Rows:
        """All rows, or a random sample with equally many of each group; the same every time."""
        counts = np.bincount(codes, minlength=n_groups).astype(np.int64)
        most = max(_ROWS // n_groups, _FEWEST) if len(codes) > _ROWS else len(codes)
        shuffled = np.random.default_rng(0).permutation(len(codes))
        by_group = shuffled[np.argsort(codes[shuffled], kind="stable")]
        starts = counts.cumsum() - counts
        kept = np.minimum(counts, most)
        rows = [by_group[start : start + k] for start, k in zip(starts, kept, strict=True)]
        ends = kept.cumsum()
        slices = [slice(int(end - k), int(end)) for end, k in zip(ends, kept, strict=True)]
        weights = np.repeat(counts / np.maximum(kept, 1), kept)
        return cls(np.concatenate(rows), slices, weights, counts)


def _read_members(
    X: Any, codes: Ints, n_groups: int, kinds: Mapping[Any, str] | str, legend: Legend
) -> _Table | _Texts:
    """A sample of the members of each group, in the form in which they are described."""
    frame = pd.DataFrame(X.numpy(force=True) if isinstance(X, Tensor) else X)
    rows = _Rows.sample(codes, n_groups)
    frame = frame.iloc[rows.rows]
    if isinstance(kinds, str) or (frame.shape[1] == 1 and kinds.get(frame.columns[0]) == "text"):
        return _Texts.read(frame.iloc[:, 0], rows)
    columns = {
        name: column(frame.iloc[:, i].reset_index(drop=True), name, kinds.get(name), legend)
        for i, name in enumerate(frame.columns)
        if kinds.get(name) != "text"
    }
    return _Table({name: each for name, each in columns.items() if each is not None}, rows)


# Tables


class _Table(NamedTuple):
    """The columns of a table that can be described, by name; rows are ordered by group."""

    columns: dict[Any, RangeColumn | CategoryColumn]
    rows: _Rows

    def describe(self) -> list[str]:
        """The claims that together tell each group from the rest."""
        columns, rows = list(self.columns.values()), self.rows
        claims = [_claims(columns, rows, group) if n else [] for group, n in enumerate(rows.counts.tolist())]
        return [", ".join(each) or NOTHING["table"] for each in claims]

    def profile(self) -> TableProfile:
        return TableProfile.of(self.columns, self.rows.slices, self.rows.counts)


def _claims(columns: Sequence[RangeColumn | CategoryColumn], rows: _Rows, group: int) -> list[str]:
    """The claims that together tell a group from the rest, chosen greedily.

    A claim that holds for a share c of the group and r of the rest is worth the Kullback-Leibler divergence of the two,
    c log c/r + (1-c) log (1-c)/(1-r): the evidence that a row of the group gives, on average, that it is not of the
    rest. The next claim is judged on the rows for which all earlier ones hold, so redundant columns are left out.
    """
    here = rows.slices[group]
    judge, complete = _Judge(rows, here), here.stop - here.start == rows.counts[group]
    offers = [(place, claim) for place, each in enumerate(columns) for claim in each.claims(here, complete=complete)]
    worth = [judge.worth(claim.holds) for _, claim in offers]
    best = [offers[i] for i in np.argsort(-np.asarray(worth), kind="stable")[:_CONSIDERED] if worth[i] >= _LEAST]
    chosen: list[Claim] = []
    while best and len(chosen) < _MOST_CLAIMS:
        worth = [judge.worth(claim.holds) for _, claim in best]
        place, claim = best[int(np.argmax(worth))]
        if max(worth) < _LEAST:
            break
        chosen.append(claim)
        judge.narrow(claim.holds)
        best = [(other, offer) for other, offer in best if other != place and not judge.same(claim, offer)]
    return [claim.text for claim in chosen]


class _Judge:
    """How well claims tell the rows `here` from the rest, among rows for which all claims so far hold."""

    def __init__(self, rows: _Rows, here: slice) -> None:
        self.here, self.inside, self.all_rest = here, rows.weights[here].copy(), rows.weights.copy()
        self.all_rest[here] = 0.0
        self.rest = self.all_rest.copy()
        self.total = float(self.all_rest.sum())
        self.few = max(_FEW * float(self.inside.sum()), _FEW_ROWS)

    def worth(self, holds: Bools) -> float:
        """The worth of a claim, in nats.

        Once hardly any rows of the rest remain, claims are judged on all of the rest again: they no longer narrow the
        group down, but help people to recognise it.
        """
        usual = self.few * float(self.all_rest @ holds) / max(self.total, 1.0)
        inside, rest = float(self.inside @ holds[self.here]), float(self.rest @ holds) + usual
        n_rest = float(self.rest.sum()) + self.few * (self.total > 0)
        return float(worth(inside, float(self.inside.sum()), rest, n_rest))

    def narrow(self, holds: Bools) -> None:
        """Keep only the rows for which this claim holds too."""
        self.inside *= holds[self.here]
        self.rest *= holds

    def same(self, claim: Claim, other: Claim) -> bool:
        """Whether two claims hold for nearly the same rows of the rest; False if they hold for hardly any."""
        either = float(self.all_rest @ (claim.holds | other.holds))
        both = float(self.all_rest @ (claim.holds & other.holds))
        return either > self.few and both >= _SAME * either


# Texts


class _Texts(NamedTuple):
    """The words of texts: each occurrence of a distinct word in a text, by position."""

    rows: _Rows
    names: list[str]  # the vocabulary
    token: Ints  # the word of each occurrence
    owner: Ints  # its text

    @classmethod
    def read(cls, texts: pd.Series[Any], rows: _Rows) -> _Texts:
        used = [usable_words(text) for text in texts]
        vocabulary: dict[str, int] = {}
        ids = [vocabulary.setdefault(word, len(vocabulary)) for text in used for word in sorted(text)]
        owner = np.repeat(np.arange(len(used)), [len(text) for text in used])
        return cls(rows, list(vocabulary), np.asarray(ids, dtype=np.int64), owner)

    def describe(self) -> list[str]:
        """The most distinctive words of each group: those worth most as claims that a text contains the word."""
        texts = []
        for _, gains in self._gains():
            order = np.argsort(-gains, kind="stable")[:_WORDS]
            words = [self.names[i] for i in order if gains[i] >= _LEAST_OF_WORD]
            texts.append(_WORDS_ARE + ", ".join(words) if words else NOTHING["text"])
        return texts

    def profile(self) -> TextProfile:
        """The shares of the most distinctive words of all groups."""
        shares, gains = zip(*self._gains(), strict=True)
        order = np.argsort(-np.array(gains), axis=1, kind="stable")[:, :_KEPT_WORDS]
        kept = np.unique([place for row, own in zip(order, gains, strict=True) for place in row if own[place] > 0])
        kept = kept.astype(np.int64)
        return TextProfile([self.names[i] for i in kept], np.array(shares)[:, kept], self.rows.counts.astype(float))

    def _gains(self) -> Iterator[tuple[Floats, Floats]]:
        """For each group (W,): the share of its texts with each word, and what the word is worth.

        A word must be in several texts of the group, and at least twice as frequent there as in the rest.
        """
        rows, size = self.rows, len(self.names)
        everywhere = np.bincount(self.token, rows.weights[self.owner], minlength=size)
        for here, members in zip(rows.slices, rows.counts.tolist(), strict=True):
            low, high = np.searchsorted(self.owner, (here.start, here.stop))
            read = np.bincount(self.token[low:high], minlength=size)
            n, n_rest = here.stop - here.start, float(rows.counts.sum() - members)
            inside = read * (members / max(n, 1))
            rest = np.maximum(everywhere - inside, 0.0)
            distinctive = (read >= min(_TEXTS, (n + 1) // 2)) & (inside * n_rest >= 2 * rest * members)
            yield inside / max(members, 1), np.where(distinctive, worth(inside, members, rest, n_rest), 0.0)
