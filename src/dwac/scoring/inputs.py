"""Arrow batches as rows for a model: its columns in the types of training, one text, or one encoded image per row."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dwac._checks import listed
from dwac.encoders import TabularEncoder
from dwac.errors import InputError
from dwac.reading import Columns, Model
from dwac.reading.roles import arrange_like
from dwac.reading.tables import Table
from dwac.scoring.request import Request

Unreadable = dict[int, str]  # row → why it cannot even become part of X


def rows_of(model: Model, batch: pa.RecordBatch, request: Request, name: str = "the batch") -> tuple[Any, Unreadable]:
    """(X, rows that are not part of X and why) of a batch; name: of where it came from, for errors."""
    if model.kind == "image":
        return _images(batch, request, name)
    if model.kind == "text":
        column = text_column(batch.schema, model, request, name)
        batch, asked = batch.select([column]), Columns(text=column)
    else:
        batch, asked = _features(model, batch, request), Columns()
    frame: pd.DataFrame = batch.to_pandas(date_as_object=False, ignore_metadata=True)
    return arrange_like(model.clf, Table(frame, "row {}".format), name, asked, Columns(), labelled=False).X, {}


def _features(model: Model, batch: pa.RecordBatch, request: Request) -> pa.RecordBatch:
    """The columns that a model of tables reads; whole numbers as text where it knows them as such."""
    assert isinstance(model.clf.encoder_, TabularEncoder)
    learned = {column.name: column for column in model.clf.encoder_.columns}
    if not any(isinstance(name, str) for name in learned):  # trained on an array: matched by position
        others = {request.id, *model.columns.targets, model.columns.id}
        return batch.select([name for name in batch.schema.names if name not in others])
    batch = batch.select([name for name in batch.schema.names if name in learned])
    columns = []
    for field, values in zip(batch.schema, batch.columns, strict=True):
        column = learned[field.name]
        worded = column.kind == "categorical" and all(isinstance(value, str | None) for value in column.categories)
        # Before pandas, which turns whole numbers into fractions where a batch has gaps: 3 would become "3.0".
        columns.append(pc.cast(values, pa.string()) if worded and pa.types.is_integer(field.type) else values)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def text_column(schema: pa.Schema, model: Model, request: Request, name: str) -> str:
    """The column with the texts: as named, as in training, or the only one that has texts."""
    return _only(schema, request.text, model.columns.text, _is_text, name, "text")


def _images(batch: pa.RecordBatch, request: Request, name: str) -> tuple[Any, Unreadable]:
    column = _only(batch.schema, request.text, None, _is_binary, name, "column of encoded images (binary)")
    values = batch.column(batch.schema.get_field_index(column)).to_pylist()
    gone = {row: "the image is missing" for row, value in enumerate(values) if not value}
    given = [value for value in values if value]
    return given or None, gone


def _only(schema: pa.Schema, asked: str | None, learned: str | None, fits: Any, name: str, what: str) -> str:
    if asked is not None and asked not in schema.names:
        raise InputError(f"{name} has no column {asked!r}; its columns are {listed(schema.names, 20)}")
    if asked is not None:
        return asked
    if learned is not None and learned in schema.names:
        return learned
    found = [field.name for field in schema if fits(field.type)]
    if len(found) != 1:
        raise InputError(
            f"{name}: which column is the {what}? Name it with text=… (--text COLUMN); "
            f"its columns are {listed(schema.names, 20)}"
        )
    return str(found[0])


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
