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
from dwac.reading.roles import Reading, arrange_like
from dwac.reading.tables import Table, is_text
from dwac.scoring.request import Request, notation_of

Given = Any  # a batch of rows: a RecordBatch, or a DataFrame where cells of a column differ in type, as in JSON
Unreadable = dict[int, str]  # row → why it cannot even become part of X


def rows_of(model: Model, given: Given, request: Request, name: str = "the batch") -> tuple[Any, Unreadable]:
    """(X, rows that are not part of X and why) of a batch; name: of where it came from, for errors."""
    if model.kind == "image":
        return _images(given, request, name)
    asked = Columns()
    if model.kind == "text":
        asked = Columns(text=text_column(given, model, request, name))
        given = given[[asked.text]] if isinstance(given, pd.DataFrame) else given.select([asked.text])
    elif isinstance(given, pa.RecordBatch):
        given = _features(model, given, request)
    else:
        given = given[_columns(model, list(given.columns), request)]
    frame = given if isinstance(given, pd.DataFrame) else given.to_pandas(date_as_object=False, ignore_metadata=True)
    frame = frame.reset_index(drop=True)
    # Only some rows of a file are here: how cells are written must not be judged from them.
    how = notation_of(request, model)
    table = Table(frame, "row {}".format)
    return arrange_like(model.clf, table, name, asked, Columns(), labelled=False, how=Reading(how, judge=False)).X, {}


def worded(model: Model, request: Request) -> set[str]:
    """Columns that stay as they are written: categories, texts and ids; 007 is not 7."""
    found = {name for name in (request.id, request.text, model.columns.text) if name is not None}
    if isinstance(model.clf.encoder_, TabularEncoder):
        learned = {column.name: column.kind == "categorical" for column in model.clf.encoder_.columns}
        found = (found - {name for name in learned if name != request.id}) | {
            str(name) for name, category in learned.items() if category and isinstance(name, str)
        }
    return found


def needed(model: Model, request: Request) -> set[str] | None:
    """The columns that are used; None if that depends on which there are."""
    ids = set() if request.id is None else {request.id}
    if isinstance(model.clf.encoder_, TabularEncoder):
        names = [column.name for column in model.clf.encoder_.columns]
        return ids | {str(name) for name in names} if any(isinstance(name, str) for name in names) else None
    text = request.text or (model.columns.text if model.kind == "text" else None)
    return None if text is None else ids | {text}


def _columns(model: Model, names: list[str], request: Request) -> list[str]:
    """The columns of a table that a model of tables reads; of one that was trained on an array, all that may be."""
    assert isinstance(model.clf.encoder_, TabularEncoder)
    learned = {column.name for column in model.clf.encoder_.columns}
    if any(isinstance(name, str) for name in learned):
        return [name for name in names if name in learned]
    others = {request.id, *model.columns.targets, model.columns.id}
    return [name for name in names if name not in others]


def _features(model: Model, batch: pa.RecordBatch, request: Request) -> pa.RecordBatch:
    """The columns that a model of tables reads; whole numbers as text where it knows them as such."""
    assert isinstance(model.clf.encoder_, TabularEncoder)
    learned = {column.name: column for column in model.clf.encoder_.columns}
    batch = batch.select(_columns(model, batch.schema.names, request))
    columns = []
    for field, values in zip(batch.schema, batch.columns, strict=True):
        column = learned.get(field.name)
        worded = column is not None and column.kind == "categorical" and all(map(_is_word, column.categories))
        # Before pandas, which turns whole numbers into fractions where a batch has gaps: 3 would become "3.0".
        columns.append(pc.cast(values, pa.string()) if worded and pa.types.is_integer(field.type) else values)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _is_word(value: Any) -> bool:
    return isinstance(value, str | None)


def text_column(given: Given, model: Model, request: Request, name: str) -> str:
    """The column with the texts: as named, as in training, or the only one that has texts."""
    return _only(given, request.text, model.columns.text, _is_text, name, "text")


def _images(given: Given, request: Request, name: str) -> tuple[Any, Unreadable]:
    if isinstance(given, pd.DataFrame):
        raise InputError(f"{name}: images must be a column of encoded files, as Parquet has; JSON and CSV have none")
    column = _only(given, request.text, None, _is_binary, name, "column of encoded images (binary)")
    values = given.column(given.schema.get_field_index(column)).to_pylist()
    gone = {row: "the image is missing" for row, value in enumerate(values) if not value}
    return [value for value in values if value] or None, gone


def _only(given: Given, asked: str | None, learned: str | None, fits: Any, name: str, what: str) -> str:
    names = list(given.columns) if isinstance(given, pd.DataFrame) else given.schema.names
    if asked is not None and asked not in names:
        raise InputError(f"{name} has no column {asked!r}; its columns are {listed(names, 20)}")
    if asked is not None:
        return asked
    if learned is not None and learned in names:
        return learned
    if isinstance(given, pd.DataFrame):
        found = [column for column in names if is_text(given[column])]
    else:
        found = [field.name for field in given.schema if fits(field.type)]
    if len(found) != 1:
        raise InputError(
            f"{name}: which column is the {what}? Name it with text=… (--text COLUMN); "
            f"its columns are {listed(names, 20)}"
        )
    return str(found[0])


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
