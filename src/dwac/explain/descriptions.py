"""Descriptions of groups of training examples: what sets each apart, so that a person recognises it.

>>> X = pd.DataFrame({"age": [*range(18, 28), *range(40, 70)], "married": [False] * 10 + [True] * 30})
>>> describe(X, np.repeat([0, 1], [10, 30]), 2, {"age": "numeric"})
['married always false, age at most 26', 'married always true, age at least 43']

Descriptions quote values of training rows, in small groups of single rows: private explanations must drop them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac.explain.claims import CategoryColumn, Claim, RangeColumn, column

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
_TEXTS = 3  # texts of a group that must contain a word; half of the texts in smaller groups
_LEAST_OF_WORD = 0.005  # nats: even distinctive words are in few texts
_WORDS_ARE = "words: "
# An ideograph or kana is a word of its own; vowel signs and accents belong to their word, though \w excludes many.
_SINGLE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_MARKS = "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0e31-\u0e4e"
_ASCII = re.compile(r"\w+(?:'\w+)?[+#]*")  # don't, c++, c#
_ANY = re.compile(rf"[{_SINGLE}]|[^\W{_SINGLE}](?:[^\W{_SINGLE}]|[{_MARKS}])*(?:'\w+)?[+#]*")
NOTHING = {"table": "no column sets it apart", "text": "no word sets it apart"}


def describe(X: Any, codes: Ints, n_groups: int, kinds: Mapping[Any, str] | str) -> list[str | None]:
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
    """
    frame = pd.DataFrame(X.numpy(force=True) if isinstance(X, Tensor) else X)
    rows = _Rows.sample(codes, n_groups)
    if isinstance(kinds, str) or (frame.shape[1] == 1 and kinds.get(frame.columns[0]) == "text"):
        return [", ".join(words) or NOTHING["text"] for words in _word_lists(frame.iloc[:, 0], rows)]
    return [", ".join(claims) or NOTHING["table"] for claims in _claim_lists(frame, rows, kinds)]


def summary(descriptions: Sequence[str | None], shares: ArrayLike) -> str | None:
    """A whole vote in one sentence: its heaviest groups and their shares of the vote; None if none is described.

    descriptions: one per group. shares: (G,) of the vote. Names the heaviest described groups, up to three, and no
    more than needed for nine tenths of the vote.

    >>> summary(["age 17 to 29", "age at least 50", "age 30 to 49"], [0.62, 0.05, 0.33])
    '62 % of the vote: age 17 to 29; 33 %: age 30 to 49; 5 %: another group'
    """
    weights = np.asarray(shares, dtype=np.float64)
    order = [g for g in np.argsort(-weights, kind="stable").tolist() if descriptions[g] is not None and weights[g] > 0]
    named: list[int] = []
    for group in order[:_MOST_GROUPS]:
        if weights[named].sum() >= 0.9 * weights.sum():
            break
        named.append(group)
    if not named:
        return None
    parts = [f"{_percent(weights[group])}: {str(descriptions[group]).removeprefix(_WORDS_ARE)}" for group in named]
    parts[0] = parts[0].replace(":", " of the vote:", 1)
    others = int((weights > 0).sum()) - len(named)
    left = float(weights.sum() - weights[named].sum())
    if others and left >= 0.005:
        parts.append(f"{_percent(left)}: {'another group' if others == 1 else f'{others} other groups'}")
    return "; ".join(parts)


def _percent(share: float) -> str:
    return "less than 1 %" if share < 0.005 else checks.percent(share, 0)


def share_in_words(count: int, total: int, noun: str) -> str:
    """The share of all training rows, texts or examples, in words.

    >>> share_in_words(8, 100, "row"), share_in_words(1, 1000, "text")
    ('8 % of training rows', '1 training text')
    """
    if count >= 0.005 * total:
        return f"{_percent(count / total)} of training {noun}s"
    return f"{count:,} training {noun}{'s' * (count != 1)}"


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


# Tables


def _claim_lists(X: pd.DataFrame, rows: _Rows, kinds: Mapping[Any, str]) -> list[list[str]]:
    frame = X.iloc[rows.rows]
    columns = [
        column(frame.iloc[:, i].reset_index(drop=True), name, kinds.get(name))
        for i, name in enumerate(frame.columns)
        if kinds.get(name) != "text"
    ]
    usable = [each for each in columns if each is not None]
    return [_claims(usable, rows, group) if rows.counts[group] else [] for group in range(len(rows.slices))]


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
        return float(_worth(inside, float(self.inside.sum()), rest, n_rest))

    def narrow(self, holds: Bools) -> None:
        """Keep only the rows for which this claim holds too."""
        self.inside *= holds[self.here]
        self.rest *= holds

    def same(self, claim: Claim, other: Claim) -> bool:
        """Whether two claims hold for nearly the same rows of the rest; False if they hold for hardly any."""
        either = float(self.all_rest @ (claim.holds | other.holds))
        both = float(self.all_rest @ (claim.holds & other.holds))
        return either > self.few and both >= _SAME * either


def _worth(inside: Any, n: float, rest: Any, n_rest: float) -> Any:
    """The divergence, in nats, of a share inside/n from rest/n_rest, each shrunk a little towards a half.

    0 where the share is no larger in the group than in the rest, or where there is no rest.
    """
    c, r = (inside + 0.5) / (n + 1), (rest + 0.5) / (n_rest + 1)
    nats = c * np.log(c / r) + (1 - c) * np.log((1 - c) / (1 - r))
    return np.where((c > r) & (n_rest > 0), nats, 0.0)


# Texts


def _word_lists(texts: pd.Series[Any], rows: _Rows) -> list[list[str]]:
    """The most distinctive words of each group: those worth most as claims that a text contains the word.

    A word must be in several texts of the group, and at least twice as frequent there as in the rest.
    """
    used = [_usable_words(text) for text in texts.iloc[rows.rows]]
    vocabulary: dict[str, int] = {}
    ids = [vocabulary.setdefault(word, len(vocabulary)) for text in used for word in sorted(text)]
    token, names, size = np.asarray(ids, dtype=np.int64), list(vocabulary), len(vocabulary)
    owner = np.repeat(np.arange(len(used)), [len(text) for text in used])
    everywhere = np.bincount(token, rows.weights[owner], minlength=size)
    lists = []
    for here, count in zip(rows.slices, rows.counts.tolist(), strict=True):
        low, high = np.searchsorted(owner, (here.start, here.stop))
        read = np.bincount(token[low:high], minlength=size)
        n, n_rest = here.stop - here.start, float(rows.counts.sum() - count)
        inside = read * (count / max(n, 1))
        rest = np.maximum(everywhere - inside, 0.0)
        distinctive = (read >= min(_TEXTS, (n + 1) // 2)) & (inside * n_rest >= 2 * rest * count)
        worth = np.where(distinctive, _worth(inside, count, rest, n_rest), 0.0)
        order = np.argsort(-worth, kind="stable")[:_WORDS]
        listed = [names[i] for i in order if worth[i] >= _LEAST_OF_WORD]
        lists.append([_WORDS_ARE + ", ".join(listed)] if listed else [])
    return lists


def _usable_words(text: Any) -> set[str]:
    """The words of a text that descriptions may use: no numbers and no single letters, but c++ and c#."""
    every = words(text) if isinstance(text, str) else set()
    return {word for word in every if not word[0].isdigit() and (len(word) > 1 or not word.isascii())}


def words(text: str) -> set[str]:
    """The distinct words of a text, in lower case; punctuation is left out.

    >>> sorted(words("Don't sort C++, sort C#!"))
    ['c#', 'c++', "don't", 'sort']
    """
    text = text.lower()
    return set(_ASCII.findall(text) if text.isascii() else _ANY.findall(text.replace("’", "'")))
