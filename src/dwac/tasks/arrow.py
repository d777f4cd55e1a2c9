"""The columns of an answer in Arrow: their types, and their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
import pyarrow as pa

from dwac.tasks.answers import AnswerColumn, ValueKind

_TYPES = {ValueKind.SHARE: pa.float64(), ValueKind.NUMBER: pa.float64()}  # the rest, besides labels, is text


def arrow_type(column: AnswerColumn) -> pa.DataType:
    """The type of a column of answers."""
    match column.kind:
        case ValueKind.LABEL:
            return type_of(column.names)
        case ValueKind.LABELS:
            return pa.list_(type_of(column.names))
        case kind:
            return _TYPES.get(kind, pa.string())


def type_of(values: Iterable[Any]) -> pa.DataType:
    """The type that holds all of these labels or ids: booleans, whole numbers, numbers, or else text."""
    kinds = {type(value) for value in values}
    for accepted, kind in (({bool}, pa.bool_()), ({int}, pa.int64()), ({int, float}, pa.float64())):
        if kinds and kinds <= accepted:
            return kind
    return pa.string()


def as_type(values: Iterable[Any], kind: pa.DataType) -> list[Any]:
    """Values for a column of this type: if it is text, everything as text."""
    return [str(value) for value in values] if pa.types.is_string(kind) else list(values)


def arrow_array(values: Any, kind: pa.DataType) -> pa.Array:
    """Values as a column of this type."""
    values = values.tolist() if isinstance(values, pd.Series) and values.dtype == object else values
    try:
        return pa.array(values, kind, from_pandas=True)  # NaN: a row that could not be read
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # labels of several types become text
        if pa.types.is_list(kind):
            return pa.array([None if labels is None else as_type(labels, kind.value_type) for labels in values], kind)
        return pa.array([None if value is None or value != value else str(value) for value in values], kind)
