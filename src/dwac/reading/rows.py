"""The result of reading: examples, their labels and ids, and where each came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac.estimator.preparation import take
from dwac.reading.notation import Notation


@dataclass(frozen=True)
class Columns:
    """The columns of a table with a special role; None if there is no such column."""

    target: str | tuple[str, ...] | None = None  # what is predicted, from one column or several
    text: str | None = None  # the text to predict from; all other columns are then ignored
    id: str | None = None  # the ids of the rows
    groups: str | None = None  # what rows belong to: those of one value stay together in training

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns of the target."""
        return (self.target,) if isinstance(self.target, str) else self.target or ()

    @property
    def named(self) -> tuple[str, ...]:
        """All columns with a role."""
        return (*self.targets, *(column for column in (self.text, self.id, self.groups) if column is not None))


@dataclass(frozen=True)
class Rows:
    """Examples in the form that a model takes.

    X is a DataFrame, a list of texts, or a list of image files; `kind` says which: "tabular", "text" or "image".
    """

    X: Any
    y: Any  # the target, if the data has it: (n,), or a table of several; see `dwac.reading.targets`
    ids: list[Any]  # ids from the data, else 0 … n-1
    kind: str
    columns: Columns = field(default_factory=Columns)  # as found in this data
    where: Callable[[int], str] = field(
        default="row {}".format, repr=False
    )  # the origin of a row, for messages: "data.csv line 7"
    task: str | None = None  # what y is: "classes", "ordered", "labels" or "numbers"
    why: str = ""  # what spoke for that
    notation: Notation = field(default_factory=Notation)  # how the table was written, for later ones
    notes: tuple[str, ...] = ()  # sentences on how it was understood that people should see
    aside: Mapping[str, str] = field(default_factory=dict)  # columns that are not learned from, and why
    groups: list[Any] | None = None  # what each row belongs to, if a column says it

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """Some of the rows."""
        y = None if self.y is None else take(self.y, rows)
        ids = [self.ids[row] for row in rows]
        groups = None if self.groups is None else [self.groups[row] for row in rows]
        where = lambda row: self.where(int(rows[row]))  # noqa: E731
        return replace(self, X=take(self.X, rows), y=y, ids=ids, groups=groups, where=where)

    def aimed(self, y: Any, task: str, why: str = "") -> Rows:
        """The same with a target."""
        return replace(self, y=y, task=task, why=why)
