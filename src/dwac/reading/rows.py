"""The result of reading: examples, their labels and ids, and where each came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac.estimator.preparation import take


@dataclass(frozen=True)
class Columns:
    """The columns of a table with a special role; None if there is no such column."""

    target: str | None = None  # the labels
    text: str | None = None  # the text to classify; all other columns are then ignored
    id: str | None = None  # the ids of the rows


@dataclass(frozen=True)
class Rows:
    """Examples in the form that a classifier takes.

    X is a DataFrame, a list of texts, or a list of image files; `kind` says which: "tabular", "text" or "image".
    """

    X: Any
    y: NDArray[Any] | None  # (n,) labels, if the data has them
    ids: list[Any]  # ids from the data, else 0 … n-1
    kind: str
    columns: Columns = field(default_factory=Columns)  # as found in this data
    where: Callable[[int], str] = field(
        default="row {}".format, repr=False
    )  # the origin of a row, for messages: "data.csv line 7"

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """Some of the rows."""
        y = None if self.y is None else self.y[rows]
        ids = [self.ids[row] for row in rows]
        return Rows(take(self.X, rows), y, ids, self.kind, self.columns, lambda row: self.where(int(rows[row])))
