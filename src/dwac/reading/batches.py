"""Batches of rows for a model: its columns with the types of training, one text, or one encoded image per row."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dwac._checks import listed
from dwac.encoders import TabularEncoder
from dwac.errors import InputError
from dwac.reading.chunks import first_rows
from dwac.reading.layouts import Layout
from dwac.reading.notation import COMMA, Notation
from dwac.reading.parsing import Wanted
from dwac.reading.roles import Reading, arrange_like
from dwac.reading.rows import Columns, Model
from dwac.reading.tables import Marks, Table, is_text

Given = Any  # a batch of rows: a RecordBatch, or a DataFrame if the cells of a column differ in type, as in JSON
Unreadable = dict[int, str]  # row → why it cannot become part of X


def rows_of(
    model: Model, given: Given, asked: Columns, how: Reading, name: str = "the batch"
) -> tuple[Any, Unreadable]:
    """(X of a batch, the rows that are not part of X and why).

    asked: the column of ids, and of the text or the encoded image; how: how to read cells; name: for errors.
    """
    if model.kind == "image":
        return _images(given, asked.text, name)
    if model.kind == "text":
        asked = Columns(text=_only(given, asked.text, model.columns.text, _is_text, name, "text"))
        given = given[[asked.text]] if isinstance(given, pd.DataFrame) else given.select([asked.text])
    else:
        given, asked = _features(model, given, asked), Columns()
    frame = given if isinstance(given, pd.DataFrame) else given.to_pandas(date_as_object=False, ignore_metadata=True)
    table = Table(frame.reset_index(drop=True), "row {}".format)
    return arrange_like(model.clf, table, name, asked, Columns(), labelled=False, how=how).X, {}


def worded_columns(model: Model, asked: Columns, *, numbers: bool = False) -> Wanted:
    """Columns that stay text: categories, texts and ids; 007 is not 7.

    numbers: also the model's numeric columns, to see how they are written.
    """
    words: set[Any] = {*asked.named, *model.columns.named}
    columns = model.clf.encoder_.columns if isinstance(model.clf.encoder_, TabularEncoder) else []
    words -= {column.name for column in columns if column.name != asked.id}
    words |= {column.name for column in columns if column.kind == "categorical"}
    texts = words | {column.name for column in columns if numbers and column.kind == "numeric"}
    return Wanted(_strings(texts), words=_strings(words))


def _strings(names: set[Any]) -> frozenset[str]:
    return frozenset(name for name in names if isinstance(name, str))


def needed_columns(model: Model, asked: Columns) -> set[str] | None:
    """The columns that are used; None if this depends on the columns of the file."""
    ids = set() if asked.id is None else {asked.id}
    if isinstance(model.clf.encoder_, TabularEncoder):
        names = [column.name for column in model.clf.encoder_.columns]
        return ids | {str(name) for name in names} if any(isinstance(name, str) for name in names) else None
    text = asked.text or (model.columns.text if model.kind == "text" else None)
    return None if text is None else ids | {text}


def judge_notation(model: Model, layout: Layout, asked: Columns, said: Notation) -> Notation:
    """How the cells of a file are written, inferred from its beginning, as `read` infers it from the whole file.

    Its parts are read separately, and all must be read in the same way.
    """
    told, sure = said.over(model.notation), said.decimal is not None
    if not isinstance(model.clf.encoder_, TabularEncoder):
        return told
    how = Reading(told, marks=Marks(layout.delimiter, layout.comma), sure=sure)
    wanted = worded_columns(model, asked, numbers=not sure and told.decimal == COMMA)
    rows = first_rows(layout, wanted._replace(needed=needed_columns(model, asked)))
    if rows is not None:
        with suppress(InputError):  # every part reports this error itself
            rows_of(model, rows, asked, how, layout.url)
    return how.settled([column.name for column in model.clf.encoder_.columns if column.kind == "numeric"])


def _features(model: Model, given: Given, asked: Columns) -> Given:
    """The columns that a table model reads; whole numbers as text where training had text.

    For a model that was trained on an array: all columns that may be features.
    """
    assert isinstance(model.clf.encoder_, TabularEncoder)
    learned = {column.name: column for column in model.clf.encoder_.columns}
    names = list(given.columns) if isinstance(given, pd.DataFrame) else given.schema.names
    others = {asked.id, *model.columns.targets, model.columns.id}
    by_name = any(isinstance(name, str) for name in learned)
    names = [name for name in names if (name in learned if by_name else name not in others)]
    if isinstance(given, pd.DataFrame):
        return given[names]
    given, columns = given.select(names), []
    for field, values in zip(given.schema, given.columns, strict=True):
        column = learned.get(field.name)
        worded = column is not None and column.kind == "categorical" and all(map(_is_word, column.categories))
        # Before pandas, which turns whole numbers into floats if a batch has gaps: 3 would become "3.0".
        columns.append(pc.cast(values, pa.string()) if worded and pa.types.is_integer(field.type) else values)
    return pa.RecordBatch.from_arrays(columns, names=names)


def _is_word(value: Any) -> bool:
    return isinstance(value, str | None)


def _images(given: Given, asked: str | None, name: str) -> tuple[Any, Unreadable]:
    if isinstance(given, pd.DataFrame):
        raise InputError(f"{name}: images must be a column of encoded files, as Parquet has; JSON and CSV have none")
    column = _only(given, asked, None, _is_binary, name, "column of encoded images (binary)")
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
