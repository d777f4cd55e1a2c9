"""Questions to a fitted model about one row, its voters and the rows between them: for reasons and recourse."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from dwac.errors import InputError
from dwac.estimator.fitted import Fitted
from dwac.estimator.observed import judged_inputs
from dwac.estimator.preparation import take
from dwac.explain.hybrids import Hybrids, mix_images, mix_tables, mix_texts
from dwac.nn import batches

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RowInquiry:
    """A row and a model that answers questions about it; see `dwac.explain.reasons.Inquiry`.

    X: rows, of which this is one. distances: of rows from voters, as `input_distances` gives them. which: of several
    labels or numbers, the one in question.
    """

    fitted: Fitted
    sets: Any
    unknown: str
    X: Any
    distances: Callable[[int, list[Any]], Floats] | None
    private: bool
    row: int
    which: int

    @cached_property
    def _own(self) -> Any:
        """The row, in the form in which it is mixed with others."""
        return self._form(take(self.X, np.array([self.row])))

    def _form(self, rows: Any) -> Any:
        """Rows of a table as a frame, texts as a list, images as a tensor."""
        encoder = self.fitted.encoder
        if encoder.kind == "tabular":
            return encoder.records(rows)
        if encoder.kind in ("text", "huggingface"):
            return encoder.records(rows)["text"].tolist()
        if encoder.kind == "image":
            pictures = isinstance(rows, pd.DataFrame) and "image" in rows
            return encoder.transform(rows["image"].tolist() if pictures else rows)[0]
        if isinstance(rows, tuple) or getattr(rows, "ndim", 0) != 2:
            raise InputError(
                "reasons need columns, texts or images; your own network takes something else; give it X as a table "
                "(n, columns) to compare rows by column"
            )
        return rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(np.asarray(rows))

    def hybrids(self, voter: Any, tied: Sequence[Collection[Any]] = ()) -> Hybrids:
        """Hybrids of the row and a voter, by id; tied: columns that move together."""
        fitted, own = self.fitted, self._own
        rows = fitted.examples.rows([voter])
        if rows is None:
            raise InputError(
                "reasons compare the row with training examples, and this model holds none; ask the model it was "
                "saved from, or save with include_examples=True"
            )
        other = self._form(rows)
        if isinstance(own, pd.DataFrame):
            columns: list[Any] | None = getattr(fitted.encoder, "columns", None)
            used = None if columns is None else {column.name for column in columns if column.used}
            return mix_tables(own, other, tied, used)
        if tied:
            raise InputError(
                f"tied is for the columns of a table; got {tied!r} for {fitted.encoder.kind}s; leave it out"
            )
        return mix_images(own, other) if isinstance(own, Tensor) else mix_texts(own[0], other[0])

    def embed(self, rows: Any) -> Tensor:
        """(n, d): the embeddings of hybrids."""
        fitted = self.fitted
        if isinstance(rows, Tensor):
            return batches.embed(fitted.model, (rows,))
        if fitted.encoder.kind == "module" and not isinstance(self.X, pd.DataFrame):
            rows = rows.to_numpy()
        return batches.embed(fitted.model, judged_inputs(fitted, rows, self.unknown, private=self.private))

    def contrast(self, h: Tensor, label: int, other: int) -> Floats:
        """(n,): log-odds of one label against the other, by code, or predicted numbers."""
        values: Floats = self.sets.contrast(h, label, other, self.which)
        return values

    def gives(self, h: Tensor, outcome: Any) -> NDArray[np.bool_]:
        """(n,): whether the model gives rows this label, by code, or a number in one of these ranges."""
        given: NDArray[np.bool_] = self.sets.gives(h, outcome, self.which)
        return given

    def alike(self, ids: list[Any]) -> Floats:
        """(n,): how different voters are from the row as inputs; all equally, if the model holds no records."""
        if self.distances is not None:
            return self.distances(self.row, ids)
        rows = self.fitted.examples.rows(ids)
        if rows is None:
            return np.zeros(len(ids))
        return self.fitted.encoder.input_distances(take(self.X, np.array([self.row])), rows)

    def typicality(self, places: Ints) -> Floats | None:
        """(n,): the typicality of voters, by their places among the references, each without itself."""
        fitted = self.fitted
        if not fitted.calibrated:
            return None
        return fitted.typicality(fitted.novelty_of_voters(fitted.references, places), private=self.private)

    def record(self, voter: Any) -> Any:
        """The record of a voter."""
        return self.fitted.examples.get(voter)
