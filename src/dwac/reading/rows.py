"""What reading gives: examples, their labels and names, and where each came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac.estimator.preparation import take


@dataclass(frozen=True)
class Columns:
    """Which columns of a table have a part of their own; None where there is none."""

    target: str | None = None  # the labels
    text: str | None = None  # the text to classify; every other column is then left aside
    id: str | None = None  # the names of the rows


@dataclass(frozen=True)
class Rows:
    """Examples as a classifier takes them.

    X is a DataFrame, a list of texts, or a list of image files; `kind` says which: "tabular", "text" or "image".
    """

    X: Any
    y: NDArray[Any] | None  # (n,) labels, where the data has them
    ids: list[Any]  # names of the rows: those of the data, else 0 … n-1
    kind: str
    columns: Columns = field(default_factory=Columns)  # as found in this data
    where: Callable[[int], str] = field(default="row {}".format, repr=False)  # a row, for messages: "data.csv line 7"

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """Some of the rows."""
        y = None if self.y is None else self.y[rows]
        ids = [self.ids[row] for row in rows]
        return Rows(take(self.X, rows), y, ids, self.kind, self.columns, lambda row: self.where(int(rows[row])))
