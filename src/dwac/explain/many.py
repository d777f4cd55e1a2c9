"""Explanations: a list of the explanations of many rows, which prints as a table.

explanations = clf.explain(X)
explanations                  # a line per row: its id, the prediction, how sure, and who has most of the vote
print(explanations[0])        # one in full
explanations.to_frame()       # the table as a DataFrame, with the index of X
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, SupportsIndex, TypeVar, overload

import pandas as pd

from dwac.drawing.pages import render
from dwac.drawing.records import shorten
from dwac.errors import ShapeError
from dwac.explain import privacy
from dwac.explain.rendering import VoterTable, line_width, more_columns, percent, rows_of, table_lines
from dwac.languages import count, numeral, say

E = TypeVar("E")

_LINES = 20  # lines of a printed table
_VOTER, _NARROW = "heaviest voter", 18  # the column that fills the line, and its minimum width
_WHOLE = 1e4  # numbers from which no decimals are shown
_PERCENT = ("probability", "confidence", "typicality", "share")


class Explanations(list[E]):
    """A list of explanations that knows the ids of the explained rows, and prints as a table.

    A slice keeps its ids. Everything else works as in any list.

    Args:
        explanations: `Explanation`, `NumberExplanation` or `LabelExplanations` objects.
        ids: the ids of the explained rows, by default 0 … n-1.

    >>> from dwac import ReferenceSet
    >>> from dwac.explain import explain
    >>> found = Explanations(explain(ReferenceSet([[0.0], [2.0]], [0, 1]), [[0.1], [1.9]]), ids=["new 1", "new 2"])
    >>> found[1:].ids, found[1].label
    (['new 2'], 1)
    """

    def __init__(self, explanations: Iterable[E] = (), ids: Iterable[Hashable] | None = None) -> None:
        super().__init__(explanations)
        self._ids = None if ids is None else list(ids)
        if self._ids is not None and len(self._ids) != len(self):
            raise ShapeError(f"ids must have one entry per explanation, {len(self)}; got {len(self._ids)}")

    @property
    def ids(self) -> list[Any]:
        """The ids of the explained rows; 0 … n-1 if none were given, or if the list has changed since."""
        return list(range(len(self))) if self._ids is None or len(self._ids) != len(self) else list(self._ids)

    @overload
    def __getitem__(self, place: SupportsIndex) -> E: ...
    @overload
    def __getitem__(self, place: slice) -> Explanations[E]: ...
    def __getitem__(self, place: Any) -> Any:
        """One explanation, or the explanations of a slice."""
        part = super().__getitem__(place)
        return Explanations(part, self.ids[place]) if isinstance(place, slice) else part

    # Tables

    def to_frame(self) -> pd.DataFrame:
        """One row per explained row, by its id: the prediction, how sure it is, and who has most of the vote.

        Labels: label, probability, confidence, typicality, and the share and name of the heaviest voter, or group if a
        few voters do not explain it. Numbers: prediction, low and high (of the interval), and the same. Several labels:
        the predicted labels, and probabilities.
        """
        rows: list[dict[str, Any]] = [each._summary() for each in self]  # type: ignore[attr-defined]
        return pd.DataFrame(rows, index=pd.Index(self.ids, name="id", tupleize_cols=False))

    def to_dict(self) -> list[dict[str, Any]]:
        """All explanations as plain Python values, ready for JSON."""
        return [each.to_dict() for each in self]  # type: ignore[attr-defined]

    def _shown(self) -> pd.DataFrame:
        """The first rows as texts, with ids, for people."""
        first = self[:_LINES]
        frame = first.to_frame()
        texts = pd.DataFrame({"id": [shorten(name) for name in first.ids]})
        for name in frame.columns:
            texts[name] = [_text(name, value, each) for value, each in zip(frame[name], first, strict=True)]
        if "share" in texts:
            pairs = zip(texts.pop("share"), texts.pop(_VOTER), strict=True)
            texts[_VOTER] = [voter if share == "–" else f"{share}: {voter}" for share, voter in pairs]
        return texts

    def _title(self) -> str:
        return count("{n} explanation", "{n} explanations", len(self))

    def _more(self) -> str:
        rest = len(self) - _LINES
        if rest <= 0:
            return say("print a single one to see all of it")
        return count(
            "{n} more row; print a single one to see all of it",
            "{n} more rows; print a single one to see all of it",
            rest,
        )

    def __repr__(self) -> str:
        """A table, one line per explanation."""
        if not self:
            return say("no explanations")
        frame = self._shown()
        filling = _VOTER if _VOTER in frame else None
        lines, left_out = table_lines(frame, line_width(), always=2, filling=filling, least=_NARROW, deepest=1)
        hidden = more_columns(left_out, line_width())
        return "\n".join([*lines, *hidden, f"({self._title()}; {self._more()})"])

    def _repr_html_(self) -> str:
        """The same for notebooks; every value is escaped."""
        frame = self._shown() if self else pd.DataFrame()
        note = f"{self._title()}; {self._more()}"
        return render("explain/templates/many.html", shown=VoterTable(list(frame.columns), rows_of(frame)), note=note)


def _text(name: str, value: Any, each: Any) -> str:
    """A value of the table as a person reads it: shares as percentages, numbers with few digits."""
    if value is None or (isinstance(value, float) and value != value):
        return "–"
    if name in _PERCENT or name.startswith("P("):
        if not getattr(each, "private", False):
            return percent(value)
        rules = {"confidence": privacy.confidence, "typicality": privacy.credibility}
        return rules.get(name, privacy.percent)(value)
    if isinstance(value, float):
        return numeral(f"{value:,.4g}" if abs(value) < _WHOLE else f"{value:,.0f}")
    return str(value)


def ids_of(X: Any, n: int) -> Sequence[Any]:
    """The index of a frame or Series of n rows, else 0 … n-1."""
    return X.index.tolist() if isinstance(X, pd.DataFrame | pd.Series) and len(X) == n else range(n)
