"""Descriptions of groups of training examples: what sets each apart, so that a person recognises it.

>>> X = pd.DataFrame({"age": [*range(18, 28), *range(40, 70)], "married": [False] * 10 + [True] * 30})
>>> young, old = describe(X, [0] * 10 + [1] * 30, 2)
>>> young
'married always false, age at most 26, 25 % of training rows'
>>> old
'married always true, age at least 43, 75 % of training rows'

Descriptions quote values of training rows, in small groups of single rows: private explanations must drop them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import InputError, ShapeError
from dwac.explain.claims import Claim, Column, column
from dwac.explain.words import words

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROWS = 20_000  # rows read in total
_FEWEST = 40  # rows read of each group, however many groups there are
_MOST_CLAIMS = 4
_CONSIDERED = 16  # candidate claims per group
_LEAST = 0.05  # nats: the least worth of a claim
_FEW, _FEW_ROWS = 0.01, 5.0  # share of the group's size, and rows: fewer rows of the rest than this are ignored
_SAME = 0.9  # overlap from which two claims count as picking out the same rows
_WORDS = 5  # words named for a group of texts
_TEXTS = 3  # texts of a group that must contain a word; half of the texts in smaller groups
_LEAST_OF_WORD = 0.005  # nats: even distinctive words are in few texts
_WORDS_ARE = "words: "
NOTHING = {"table": "no column sets it apart", "text": "no word sets it apart"}


def describe(
    X: Any,
    codes: ArrayLike,
    n_groups: int,
    *,
    kinds: Mapping[Any, str] | str | None = None,
    sizes: bool = True,
) -> list[str | None]:
    """One description for each group 0 … n_groups-1 of the rows of X: what sets it apart from the other rows.

    Tables: up to four columns that best tell the group from the rest, best first. Numbers and dates are described by
    the rounded range from about the 10th to the 90th percentile of the group, categories by the values that most of
    the group have. Every claim is true of most of the group. Columns of ids and free texts are left out. Texts: the
    words that are most over-represented. Anything else, such as images, has no description: None.

    At most about 20,000 rows are read, equally many of each group; sizes of groups are exact.

    Args:
        X: a table (DataFrame, 2-D array, list of rows) or texts (list, array, Series, or a frame of one column).
        codes: (n,) the group of each row.
        n_groups: the number of groups; those without rows are described as such.
        kinds: for each column "numeric", "boolean", "datetime", "categorical", "text" (left out) or "empty"; or
            "table" or "text" for all of X. Missing kinds are inferred from the values.
        sizes: end with the group's share of the rows.
    """
    n_groups = checks.positive_int(n_groups, "n_groups")
    given = X if isinstance(X, pd.DataFrame | pd.Series) else X.numpy(force=True) if isinstance(X, Tensor) else X
    form = kinds if isinstance(kinds, str) else _form(given, kinds or {})
    if form not in ("table", "text", "other"):
        raise InputError(f"kinds must be 'table', 'text' or a kind for each column; got {kinds!r}")
    if form == "other":
        return [None] * n_groups
    rows = _Rows.sampled(checks.class_labels(codes, "codes", n=len(given), n_classes=n_groups), n_groups)
    if form == "text":
        found = _word_lists(given, rows)
    else:
        found = _claim_lists(given, rows, {} if isinstance(kinds, str) or kinds is None else kinds)
    noun, total = {"table": "row", "text": "text"}[form], int(rows.counts.sum())
    described: list[str | None] = []
    for parts, count in zip(found, rows.counts.tolist(), strict=True):
        said = (", ".join(parts) or NOTHING[form]) if count else f"no training {noun}s"
        described.append(f"{said}, {share_in_words(count, total, noun)}" if sizes and count else said)
    return described


def summary(descriptions: Sequence[str | None], shares: ArrayLike, *, most: int = 3) -> str | None:
    """A whole vote in one sentence: its heaviest groups and their shares of the vote; None if none is described.

    descriptions: one per group, without sizes (`describe(…, sizes=False)`). shares: (G,) of the vote. Names
    the heaviest described groups, up to `most`, and no more than needed for nine tenths of the vote.

    >>> summary(["age 17 to 29", "age at least 50", "age 30 to 49"], [0.62, 0.05, 0.33])
    '62 % of the vote: age 17 to 29; 33 %: age 30 to 49; 5 %: another group'
    """
    weights = checks.scores(shares, "shares", ndim=1)
    if len(weights) != len(descriptions):
        raise ShapeError(f"shares must have one entry per description, {len(descriptions)}; got {len(weights)}")
    order = [g for g in np.argsort(-weights, kind="stable").tolist() if descriptions[g] is not None and weights[g] > 0]
    named: list[int] = []
    for group in order[: checks.positive_int(most, "most")]:
        if weights[named].sum() >= 0.9 * weights.sum():
            break
        named.append(group)
    if not named:
        return None
    said = [str(descriptions[group]).removeprefix(_WORDS_ARE) for group in named]
    parts = [f"{_percent(weights[group])}: {words_of}" for group, words_of in zip(named, said, strict=True)]
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


def _form(X: Any, kinds: Mapping[Any, str]) -> str:
    """The form of X: "table", "text" or "other"."""
    if isinstance(X, pd.DataFrame):
        if X.shape[1] == 1:
            name = X.columns[0]
            return {"text": "text"}.get(kinds[name], "table") if name in kinds else _form_of_one(X.iloc[:, 0])
        pictures = any(isinstance(next(iter(X[name].dropna()), None), bytes) for name in X.columns)
        return "table" if X.shape[1] and not pictures else "other"
    if isinstance(X, np.ndarray) and X.ndim == 2:
        return "table"
    if isinstance(X, pd.Series | list) or (isinstance(X, np.ndarray) and X.ndim == 1):
        first = next((item for item in X if item is not None), None)
        return "text" if isinstance(first, str) else "table" if isinstance(first, list | tuple) else "other"
    return "other"


def _form_of_one(series: pd.Series[Any]) -> str:
    """Whether a single column holds texts: strings of several words that hardly recur."""
    head = series.dropna().head(1000)
    if pd.api.types.infer_dtype(head) == "bytes":
        return "other"
    if pd.api.types.infer_dtype(head) != "string":
        return "table"
    several = float(np.mean([len(value.split()) for value in head]))
    return "text" if several >= 2 and head.nunique() > len(head) / 2 else "table"


class _Rows(NamedTuple):
    """The rows read, ordered by group: `slices[g]` are those of group g; each represents `weights` rows."""

    rows: Ints
    slices: list[slice]
    weights: Floats
    counts: Ints

    @classmethod
    def sampled(cls, codes: Ints, n_groups: int) -> _Rows:
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


def _claim_lists(X: Any, rows: _Rows, kinds: Mapping[Any, str]) -> list[list[str]]:
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X)
    frame = frame.iloc[rows.rows]
    columns = [
        column(frame.iloc[:, i].reset_index(drop=True), name, kinds.get(name))
        for i, name in enumerate(frame.columns)
        if kinds.get(name) != "text"
    ]
    usable = [found for found in columns if found is not None]
    return [_claims(usable, rows, group) if rows.counts[group] else [] for group in range(len(rows.slices))]


def _claims(columns: Sequence[Column], rows: _Rows, group: int) -> list[str]:
    """The claims that together tell a group from the rest, chosen greedily.

    A claim that holds for a share c of the group and r of the rest is worth the Kullback-Leibler divergence of the two,
    c log c/r + (1-c) log (1-c)/(1-r): the evidence that a row of the group gives, on average, that it is not of the
    rest. The next claim is judged on the rows for which all earlier ones hold, so redundant columns are left out.
    """
    here = rows.slices[group]
    judge, complete = _Judge(rows, here), here.stop - here.start == rows.counts[group]
    offers = [(place, claim) for place, found in enumerate(columns) for claim in found.claims(here, complete=complete)]
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


def _word_lists(X: Any, rows: _Rows) -> list[list[str]]:
    """The most distinctive words of each group: those worth most as claims that a text contains the word.

    A word must be in several texts of the group, and at least twice as frequent there as in the rest.
    """
    texts = X.iloc[:, 0] if isinstance(X, pd.DataFrame) else X if isinstance(X, pd.Series) else pd.Series(list(X))
    found = [_telling(text) for text in texts.iloc[rows.rows]]
    vocabulary: dict[str, int] = {}
    ids = [vocabulary.setdefault(word, len(vocabulary)) for text in found for word in sorted(text)]
    token, names, size = np.asarray(ids, dtype=np.int64), list(vocabulary), len(vocabulary)
    owner = np.repeat(np.arange(len(found)), [len(text) for text in found])
    everywhere = np.bincount(token, rows.weights[owner], minlength=size)
    lists = []
    for here, count in zip(rows.slices, rows.counts.tolist(), strict=True):
        low, high = np.searchsorted(owner, (here.start, here.stop))
        read = np.bincount(token[low:high], minlength=size)
        n, n_rest = here.stop - here.start, float(rows.counts.sum() - count)
        inside = read * (count / max(n, 1))
        rest = np.maximum(everywhere - inside, 0.0)
        telling = (read >= min(_TEXTS, (n + 1) // 2)) & (inside * n_rest >= 2 * rest * count)
        worth = np.where(telling, _worth(inside, count, rest, n_rest), 0.0)
        order = np.argsort(-worth, kind="stable")[:_WORDS]
        listed = [names[i] for i in order if worth[i] >= _LEAST_OF_WORD]
        lists.append([_WORDS_ARE + ", ".join(listed)] if listed else [])
    return lists


def _telling(text: Any) -> set[str]:
    """The words of a text that descriptions may use: no numbers and no single letters, but c++ and c#."""
    found = words(text) if isinstance(text, str) else set()
    return {word for word in found if not word[0].isdigit() and (len(word) > 1 or not word.isascii())}
