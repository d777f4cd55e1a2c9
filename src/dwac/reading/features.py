"""The features of a model from the cells of a table: its columns, in any order, in the types of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dwac._checks import listed, suggested
from dwac.encoders import TabularEncoder
from dwac.encoders.columns import Column
from dwac.errors import InputError
from dwac.reading.notation import (
    COMMA,
    POINT,
    TRUTH,
    YEAR_FIRST,
    Notation,
    Read,
    as_dates,
    as_numbers,
    category,
    doubt_of_date,
    doubt_of_number,
    is_text,
    missing,
)
from dwac.reading.parsing import Wanted
from dwac.reading.rows import Columns, Model
from dwac.reading.tables import NO_MARKS, Marks

_USUAL_DECIMALS: dict[str | None, str] = {",": POINT, ";": COMMA}  # by field separator


def worded_columns(model: Model, columns: Columns, *, numbers: bool = False) -> Wanted:
    """Columns that stay text: categories, texts and ids; 007 is not 7.

    numbers: also the model's numeric columns, to see how they are written.
    """
    words: set[Any] = {*columns.named, *model.columns.named}
    features = model.clf.encoder_.columns if isinstance(model.clf.encoder_, TabularEncoder) else []
    words -= {column.name for column in features if column.name != columns.id}
    words |= {column.name for column in features if column.kind == "categorical"}
    texts = words | {column.name for column in features if numbers and column.kind == "numeric"}
    return Wanted(_strings(texts), words=_strings(words))


def _strings(names: set[Any]) -> frozenset[str]:
    return frozenset(name for name in names if isinstance(name, str))


def needed_columns(model: Model, columns: Columns) -> set[str] | None:
    """The columns that are used; None if this depends on the columns of the file."""
    ids = set() if columns.id is None else {columns.id}
    if isinstance(model.clf.encoder_, TabularEncoder):
        names = [column.name for column in model.clf.encoder_.columns]
        return ids | {str(name) for name in names} if any(isinstance(name, str) for name in names) else None
    text = columns.text or (model.columns.text if model.kind == "text" else None)
    return None if text is None else ids | {text}


class CellReader:
    """How to read the cells of a table, and notes on it.

    Args:
        notation: how cells are written, as far as it was given or learned in training.
        judge: infer the rest from the cells, which must then be those of a whole file.
        marks: the field separator of the file, and whether other cells of it have decimal commas.
        sure: whether the decimal mark of `notation` was given for this file; if not, a note names cells that can be
            read in two ways.
    """

    def __init__(self, notation: Notation, *, judge: bool = True, marks: Marks = NO_MARKS, sure: bool = True) -> None:
        self.notation, self.judge, self.marks, self.sure = notation, judge, marks, sure
        self.notes: list[str] = []
        self.decimals: dict[str, str] = {}  # by column, the inferred mark
        self.orders: dict[str, str] = {}  # by column, the inferred date order

    def amounts(self, values: pd.Series[Any], name: str, usual: str = POINT) -> tuple[Read, list[str]]:
        """(texts as numbers, a note if 1,500 may also be 1.5)."""
        known = self.notation.decimal_of(name)
        read = as_numbers(values, known if self.sure else None, known or usual, judge=self.judge)
        if not read.doubtful:
            return read, []
        if known is None:
            read = as_numbers(values, usual=COMMA) if self.marks.commas else read
            return read, [doubt_of_number(repr(name), read)]
        agrees = _USUAL_DECIMALS.get(self.marks.separator) == read.how  # the file has the notation of training
        return read, [] if agrees else [doubt_of_number(repr(name), read, "as in training")]

    def numbers(self, values: pd.Series[Any], name: str) -> pd.Series[Any]:
        """Texts as numbers, missing where they are not numbers."""
        plain = pd.to_numeric(values, errors="coerce")
        decimal = self.notation.decimal_of(name)
        lost = (plain.isna() & ~missing(values)).any()
        if not (self.judge or decimal) or not (lost or self._thousands(values, decimal)):
            return plain
        read, doubts = self.amounts(values, name)
        self.notes += doubts
        self.decimals[name] = read.how
        return read.column.fillna(plain.where(np.isinf(plain)) if lost else plain)

    def _thousands(self, values: pd.Series[Any], decimal: str | None) -> bool:
        """Whether 1.500 is 1500, although it could also be read as 1.5."""
        points = decimal != POINT and bool(values.str.contains(".", regex=False).any())
        return points and (decimal == COMMA or self.marks.commas)

    def dates(self, values: pd.Series[Any], name: str) -> pd.Series[Any]:
        """Texts as dates, missing where they are not dates."""
        dates = pd.to_datetime(values, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None)
        order = self.notation.order_of(name)
        if not (dates.isna() & ~missing(values)).any() or not (self.judge or order):
            return dates
        if not self.judge and order == YEAR_FIRST:  # it does not decide how to read 01/02/2020
            values = values.where(values.str.match(r"\s*\d{4}"))
        read = as_dates(values, order)
        self.orders[name] = read.how
        if read.doubtful:
            self.notes.append(doubt_of_date(repr(name), read))
        return dates.fillna(read.column)

    def settle(self, columns: Sequence[Any]) -> Notation:
        """The given and the inferred notation, for the other rows of the file; columns: the numeric ones."""
        usual = COMMA if self.marks.commas else None
        decimals = {name: self.decimals.get(name) or usual or self.notation.decimal_of(name) for name in columns}
        return replace(
            self.notation,
            decimal=self.notation.decimal if self.sure else None,
            numbers={name: mark for name, mark in decimals.items() if mark is not None},
            dates={**self.notation.dates, **self.orders},
        )


def read_features(frame: pd.DataFrame, encoder: TabularEncoder, name: str, cells: CellReader) -> pd.DataFrame:
    """The columns of a table model; name: of the table, for errors."""
    wanted: list[Any] = [column.name for column in encoder.columns]
    if not any(isinstance(column, str) for column in wanted):  # trained on an array: matched by position
        if frame.shape[1] != len(wanted):
            raise InputError(
                f"{name} must have {len(wanted)} columns besides target and id, as in training; got {frame.shape[1]}"
            )
        frame = frame.set_axis(wanted, axis=1)
    lacking = [column for column in wanted if column not in frame]
    if lacking:
        near = suggested(lacking[0], set(map(str, frame.columns)).difference(map(str, wanted)))
        raise InputError(
            f"{name} must have the model's columns; missing: {listed(lacking, 10)}; {near}{columns_named(frame)}"
        )
    extra = [column for column in frame.columns if column not in wanted]
    if extra:
        what = "a column that the model does not use" if len(extra) == 1 else "columns that the model does not use"
        cells.notes.append(f"{name} has {what}: {listed(extra)}")
    return pd.DataFrame({column.name: _as_learned(frame[column.name], column, cells) for column in encoder.columns})


def _as_learned(values: pd.Series[Any], column: Column, cells: CellReader) -> pd.Series[Any]:
    """The values of a column in the type of training. Values that cannot be converted stay text: the model checks them
    row by row."""
    if column.kind == "categorical":
        if all(isinstance(value, str | None) for value in column.categories) and not is_text(values):
            return _categories(values, column)
        if is_text(values) and not any(isinstance(value, str) for value in column.categories):  # 3 written as "3"
            written = {str(value): value for value in column.categories if value is not None}
            return values.map(lambda value: written.get(value.strip(), value), na_action="ignore").astype(object)
        return values
    if not is_text(values):
        return _mixed_as_learned(values, column, cells) if values.dtype == object else values
    if column.kind == "datetime":
        read = cells.dates(values, str(column.name))
    elif column.kind == "boolean":
        read = values.str.strip().str.lower().map(TRUTH)
    else:
        read = cells.numbers(values, str(column.name))
    lost = read.isna() & ~missing(values)
    return read.astype(object).mask(lost, values) if lost.any() else read


def _categories(values: pd.Series[Any], column: Column) -> pd.Series[Any]:
    """Values other than text as categories of training: 3.0, which a gap made of 3, is "3", if that is known."""
    learned = {value for value in column.categories if isinstance(value, str)}

    def written(value: Any) -> str:
        return str(value) if str(value) in learned or category(value) not in learned else category(value)

    return values.map(written, na_action="ignore").astype(object)


def _mixed_as_learned(values: pd.Series[Any], column: Column, cells: CellReader) -> pd.Series[Any]:
    """The texts in a column of JSON that also has other values: each is read as in a column of text only."""
    texts = values.map(lambda value: isinstance(value, str)).astype(bool)
    if not texts.any():
        return values
    read = values.copy()
    read[texts] = _as_learned(values[texts], column, cells).astype(object)
    return read


def columns_named(frame: pd.DataFrame) -> str:
    """The column names, and a hint if they look like data."""
    names = [str(column) for column in frame.columns]
    if not names:
        return "it has none of them"
    numbers = sum(pd.notna(pd.to_numeric(column, errors="coerce")) for column in names)
    hint = "; is the first line with column names missing?" if 3 * numbers >= len(names) else ""
    return f"its columns are {listed(names, 20)}{hint}"
