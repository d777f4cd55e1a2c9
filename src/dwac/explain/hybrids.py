"""Hybrids: rows between a row and a precedent, each part taken from one or the other.

A table is exchanged by columns, a text by phrases, an image by patches.

>>> row, other = pd.DataFrame({"age": [31], "job": ["nurse"]}), pd.DataFrame({"age": [45], "job": ["nurse"]})
>>> hybrids = mix_tables(Pool(row, other))
>>> hybrids.parts, hybrids.make(np.array([[True], [False]]))["age"].tolist()
([Part(name='age', value=31, other_value=45)], [45, 31])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import InputError

Bools = NDArray[np.bool_]

_PHRASES = 8  # phrases of a text that are exchanged, unless it has few words
_GRID = 3  # patches of an image along each side
_ENDS = ".,;:!?…)。，；：！？、）"  # marks at the end of a clause
_WORDS = re.compile(r"[^\s。，；：！？、）]*[。，；：！？、）]+\s*|[^\s。，；：！？、）]+\s*")


class Part(NamedTuple):
    """A column or another part of a row: its name, its value, and the precedent's."""

    name: Any
    value: Any
    other_value: Any


class Box(NamedTuple):
    """A patch of an image, in pixels."""

    top: int
    left: int
    bottom: int
    right: int


class Hybrids(NamedTuple):
    """The d parts in which a row and a precedent differ, the parts that make no difference, and rows between the two.

    choose: takes (n, d), True where a part comes from the precedent; returns n choices, which `build` makes into rows
    in the form of the row. Choices of several precedents can be joined, and built at once.
    """

    parts: list[Part]
    same: list[Part]
    choose: Callable[[Bools], Any]
    build: Callable[[Any], Any] = lambda rows: rows

    def make(self, masks: Bools) -> Any:
        """The n rows with these parts (n, d) of the precedent."""
        return self.build(self.choose(masks))


class Pool:
    """Rows of one table, and new rows whose columns each come from one of them. Types and gaps stay as they are.

    row: a frame of the row itself, which comes first. others: the rows after it, with the same columns.
    """

    def __init__(self, row: pd.DataFrame, others: pd.DataFrame) -> None:
        self.names: list[Any] = list(row.columns)
        same = [name for name, one, other in zip(self.names, row.dtypes, others.dtypes, strict=True) if one == other]
        some = (row, others) if len(same) == len(self.names) else (row[same], others[same])
        joined = dict(pd.concat(some, ignore_index=True).items())
        columns = {name: joined[name] if name in joined else _join(row[name], others[name]) for name in self.names}
        self._columns = {name: column.array for name, column in columns.items()}
        self.cells = {name: column.tolist() for name, column in columns.items()}

    def make(self, choices: NDArray[np.intp]) -> pd.DataFrame:
        """The rows (n, p) that take each column from the row with this number."""
        return pd.DataFrame(
            {name: self._columns[name].take(choices[:, place]) for place, name in enumerate(self.names)}
        )

    def differs(self, name: Any, number: int) -> bool:
        """Whether a column of a row, by its number, differs from that of the first."""
        return not is_same(self.cells[name][0], self.cells[name][number])


def mix_tables(
    pool: Pool, number: int = 1, tied: Sequence[Collection[Any]] = (), used: Collection[Any] | None = None
) -> Hybrids:
    """Hybrids of two rows of a table: the first of the pool, and the one with this number.

    tied: groups of columns that move together. used: the columns that the model reads; by default all.
    """
    groups = units_of(pool.names, tied)
    differing = {name for name in pool.names if (used is None or name in used) and pool.differs(name, number)}
    moving = [group for group in groups if differing & set(group)]
    places = [[pool.names.index(name) for name in group] for group in moving]

    def choose(masks: Bools) -> NDArray[np.intp]:
        choices = np.zeros((len(masks), len(pool.names)), dtype=np.intp)
        for part, columns in enumerate(places):
            choices[:, columns] = number * masks[:, part, None]
        return choices

    def part(group: list[Any]) -> Part:
        mine, theirs = (tuple(pool.cells[name][place] for name in group) for place in (0, number))
        return Part(group[0], mine[0], theirs[0]) if len(group) == 1 else Part(", ".join(map(str, group)), mine, theirs)

    still = [group for group in groups if group not in moving]
    return Hybrids(list(map(part, moving)), list(map(part, still)), choose, pool.make)


def units_of(columns: Sequence[Any], tied: Sequence[Collection[Any]]) -> list[list[Any]]:
    """Columns in groups that move together, in the order of the first column of each."""
    group_of = {name: group for group in read_tied(tied, columns) for name in group}
    units: list[list[Any]] = []
    for name in columns:
        group = group_of.get(name, [name])
        if group not in units:
            units.append(group)
    return units


def read_tied(tied: Sequence[Collection[Any]], columns: Sequence[Any]) -> list[list[Any]]:
    """Groups of columns that move together, none of which is in two groups."""
    if isinstance(tied, str) or any(isinstance(group, str) for group in tied):
        raise InputError(f"tied must be groups of columns, such as [['height', 'weight']]; got {tied!r}")
    groups = [list(group) for group in tied]
    flat = [name for group in groups for name in group]
    require_columns(flat, columns, "tied")
    twice = next((name for place, name in enumerate(flat) if name in flat[:place]), None)
    if twice is not None:
        raise InputError(f"tied must name each column once; {twice!r} is in it twice; join its groups")
    return groups


def require_columns(names: Collection[Any], columns: Sequence[Any], argument: str) -> None:
    """Raise an error unless all names are columns."""
    for name in names:
        if name not in columns:
            near = checks.suggested(name, columns)
            raise InputError(f"{argument} must name columns of the table: {near}{checks.listed(columns)}; got {name!r}")


def is_same(one: Any, other: Any) -> bool:
    """Whether two values of a column are equal; two gaps are."""
    if pd.isna(one) or pd.isna(other):
        return bool(pd.isna(one) and pd.isna(other))
    return bool(one == other)


def _join(one: pd.Series[Any], others: pd.Series[Any]) -> pd.Series[Any]:
    """A column whose types differ: of numbers, or of objects."""
    numbers = all(isinstance(each.dtype, np.dtype) and each.dtype.kind in "iuf" for each in (one, others))
    return pd.Series([*one, *others], dtype=np.float64 if numbers else object)


# Texts and images


def mix_texts(text: str, other: str) -> Hybrids:
    """Hybrids of two texts: a phrase of the text is replaced by what the precedent has in its place, if anything."""
    mine, theirs = text.split(), other.split()
    spans = SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes()
    words = sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in spans if tag != "equal")
    size = max(-(-words // _PHRASES), 1)
    pieces: list[tuple[str, str]] = []  # of the text and of the precedent, in order
    for tag, i1, i2, j1, j2 in spans:
        count = 1 if tag == "equal" else -(-max(i2 - i1, j2 - j1) // size)
        for a, b in zip(np.array_split(mine[i1:i2], count), np.array_split(theirs[j1:j2], count), strict=True):
            pieces.append((" ".join(a), " ".join(b)))
    differing = [place for place, (a, b) in enumerate(pieces) if a != b]

    def make_one(mask: list[bool]) -> str:
        if all(mask) or not any(mask):
            return other if all(mask) else text  # with their own spaces
        of_other = dict(zip(differing, mask, strict=True))
        return " ".join(filter(None, (pair[of_other.get(i, False)] for i, pair in enumerate(pieces))))

    def make(masks: Bools) -> list[str]:
        return [make_one(mask) for mask in masks.tolist()]

    parts = [Part(f"phrase {number + 1}", *pieces[place]) for number, place in enumerate(differing)]
    return Hybrids(parts, [], make)


def leave_out(text: str) -> Hybrids:
    """A text without some of its phrases: up to eight clauses, or parts of these; words, if it has few.

    >>> hybrids = leave_out("a fine film, but far too long")
    >>> hybrids.make(np.array([[False] * 4 + [True] * 3]))
    ['a fine film, but ']
    """
    phrases = split_phrases(text)

    def make(masks: Bools) -> list[str]:
        return [
            "".join(words for words, gone in zip(phrases, mask, strict=True) if not gone) for mask in masks.tolist()
        ]

    return Hybrids([Part(f"phrase {n + 1}", words.strip(), "") for n, words in enumerate(phrases)], [], make)


def split_phrases(text: str, most: int = _PHRASES) -> list[str]:
    """A text in up to `most` phrases, with the spaces between them: clauses are joined or halved.

    >>> split_phrases("Fine music. The plot, however, is thin and tired", 3)
    ['Fine music. ', 'The plot, however, ', 'is thin and tired']
    """
    clauses: list[list[str]] = [[]]
    for word in _WORDS.findall(text):
        clauses[-1].append(word)
        if word.rstrip()[-1:] in _ENDS:
            clauses.append([])
    clauses = [clause for clause in clauses if clause]
    while len(clauses) > most:
        first = min(range(len(clauses) - 1), key=lambda place: len(clauses[place]) + len(clauses[place + 1]))
        clauses[first : first + 2] = [clauses[first] + clauses[first + 1]]
    while len(clauses) < most and any(len(clause) > 1 for clause in clauses):
        longest = max(range(len(clauses)), key=lambda place: len(clauses[place]))
        words = clauses[longest]
        clauses[longest : longest + 1] = [words[: len(words) // 2], words[len(words) // 2 :]]
    return ["".join(clause) for clause in clauses]


def mix_images(image: Tensor, other: Tensor) -> Hybrids:
    """Hybrids of two images (1, C, H, W): patches of a grid are exchanged, each named by its row and column."""
    height, width = image.shape[-2:]
    tops, lefts = (np.linspace(0, size, min(_GRID, size) + 1).round().astype(int).tolist() for size in (height, width))
    boxes = {
        (r, c): (slice(tops[r], tops[r + 1]), slice(lefts[c], lefts[c + 1]))
        for r in range(len(tops) - 1)
        for c in range(len(lefts) - 1)
    }
    boxes = {name: box for name, box in boxes.items() if not torch.equal(image[..., *box], other[..., *box])}

    def make(masks: Bools) -> Tensor:
        images = image.repeat(len(masks), 1, 1, 1)
        for place, (down, across) in enumerate(boxes.values()):
            images[torch.from_numpy(masks[:, place]), :, down, across] = other[0, :, down, across]
        return images

    places = [Box(down.start, across.start, down.stop, across.stop) for down, across in boxes.values()]
    names = [f"patch {r + 1}.{c + 1}" for r, c in boxes]
    return Hybrids([Part(name, box, box) for name, box in zip(names, places, strict=True)], [], make)
