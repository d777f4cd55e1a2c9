"""The columns of an answer: each kind of target declares them once; tables, Arrow, JSON and OpenAPI render them.

target.columns()                          # label, probability, confidence, …: name, kind and meaning of each
table_columns(columns, calibrated=True)   # those of a table: one per label, per number and per quantile
table_of(columns, values, readable)       # a DataFrame; values: arrays by the name of the column
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

DECISIONS = {1: "yes", 0: "no", -1: "undecided"}


class ValueKind(Enum):
    """What a column holds, and how its values are coded in arrays."""

    LABEL = "a label"  # its position among the names
    LABELS = "a list of labels"  # a row of booleans, one per name
    SHARE = "a share, from 0 to 1"
    NUMBER = "a number"
    DECISION = "yes, no or undecided"  # a key of `DECISIONS`
    TEXT = "a text"


@dataclass(frozen=True)
class AnswerColumn:
    """One value in the answer for a row; in tables, several columns if it has several names or parts.

    Its values for n rows are an array (n, …): with an axis of names if it has a value for each of them (or a list of
    labels), and then an axis of parts if it has parts.
    """

    name: str  # in JSON
    kind: ValueKind
    meaning: str
    names: tuple[Any, ...] = ()  # the labels that it may hold, or the labels or numbers that it has values for
    per_name: bool = False  # whether it has a value for each name
    parts: tuple[str, ...] | None = None  # the keys of its parts in JSON; (): those that a request asks for
    in_tables: tuple[str, ...] = ()  # its name in tables, or those of its parts; by default as in JSON
    calibrated: bool = False  # whether it needs calibration rows
    optional: bool = False  # whether tables have it on request only
    evidence: bool = False  # whether only requests for sets, and explanations, have it
    within: str = ""  # in JSON, the object of the names that has the column for each; "": the column has the names

    @property
    def table_names(self) -> tuple[str, ...]:
        """Its name in tables, or those of its parts."""
        return self.in_tables if self.in_tables or self.parts is not None else (self.name,)


TYPICALITY = AnswerColumn(
    "typicality",
    ValueKind.SHARE,
    "Share of calibration rows at least as unlike the training rows: near 0 for rows unlike anything seen. Null for a "
    "model without calibration rows or votes.",
    calibrated=True,
)
UNKNOWN = AnswerColumn(
    "unknown",
    ValueKind.TEXT,
    "Values of the row that training never had, such as job=pilot; they count as missing. Null if none.",
)
UNREADABLE = AnswerColumn(
    "unreadable",
    ValueKind.TEXT,
    "Why the row could not be read: all else in its answer is then null or empty. Null if it could.",
)


class TableColumn(NamedTuple):
    """A column of a table."""

    name: str
    column: AnswerColumn
    place: tuple[int, ...]  # its name and part: where its values are in those of the answer column


def table_columns(
    columns: Iterable[AnswerColumn], *, calibrated: bool, probabilities: bool = False
) -> list[TableColumn]:
    """The columns of a table, in order: those of one label or number are next to each other.

    calibrated: whether the model has calibration rows. probabilities: also give the optional columns.
    """
    shown = [
        column
        for column in columns
        if not column.evidence and (calibrated or not column.calibrated) and (probabilities or not column.optional)
    ]
    flat = []
    for names, group in groupby(shown, key=lambda column: column.names if column.per_name else None):
        together = list(group)
        for place, name in [((), None)] if names is None else [((i,), name) for i, name in enumerate(names)]:
            for column in together:
                for part, table_name in enumerate(column.table_names):
                    full = table_name if names is None else f"{table_name}_{name}"
                    flat.append(TableColumn(full, column, place if column.parts is None else (*place, part)))
    return flat


def table_of(
    columns: Sequence[AnswerColumn],
    values: Mapping[str, NDArray[Any] | None],
    readable: NDArray[np.bool_],
    *,
    probabilities: bool = False,
) -> pd.DataFrame:
    """One row per example; None or NaN where it could not be read. Columns without values are left out."""
    present = [column for column in columns if values.get(column.name) is not None]
    table = {}
    for name, column, place in table_columns(present, calibrated=True, probabilities=probabilities):
        array: Any = values[column.name]
        table[name] = _series(column, array[:, *place], readable)
    return pd.DataFrame(table)


def _series(column: AnswerColumn, values: NDArray[Any], readable: NDArray[np.bool_]) -> Any:
    if column.kind in (ValueKind.SHARE, ValueKind.NUMBER):
        return values
    cells = [cell if here else None for cell, here in zip(cells_of(column, values), readable, strict=True)]
    if column.kind is ValueKind.LABEL and not readable.all():
        return pd.Series(cells, dtype=object)  # whole numbers stay whole even if some are missing
    return cells


def cells_of(column: AnswerColumn, values: NDArray[Any]) -> list[Any]:
    """Values as Python objects."""
    names = column.names
    match column.kind:
        case ValueKind.LABEL:
            return [names[code] for code in values.tolist()]
        case ValueKind.LABELS:
            labels = [names[place] for place in np.nonzero(values)[1].tolist()]
            ends = np.cumsum(np.count_nonzero(values, axis=1)).tolist()
            return [labels[start:end] for start, end in pairwise([0, *ends])]
        case ValueKind.DECISION if values.ndim > 1:
            return [[DECISIONS[code] for code in row] for row in values.tolist()]
        case ValueKind.DECISION:
            return [DECISIONS[code] for code in values.tolist()]
        case _:
            cells: list[Any] = values.tolist()
            return cells
