"""The roles of a table's columns: target, ids, a text, or features of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dwac._checks import listed, suggested
from dwac.encoders import TabularEncoder
from dwac.encoders.tabular import Column
from dwac.errors import InputError
from dwac.reading.layouts import INDEX
from dwac.reading.notation import (
    COMMA,
    POINT,
    YEAR_FIRST,
    Notation,
    Read,
    as_dates,
    as_numbers,
    begins_like_number,
    category,
    doubt_of_date,
    doubt_of_number,
)
from dwac.reading.rows import Columns, Estimator, Rows
from dwac.reading.tables import NO_MARKS, Marks, Table, is_text, missing
from dwac.reading.targets import known, understand, whole
from dwac.tasks import CLASSES, NUMBERS

_TRUTH = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
_USUAL_DECIMALS: dict[str | None, str] = {",": POINT, ";": COMMA}  # by field separator
_LINES = "; if each line is a label, a tab and a text: --format text"
_LONG_WORDS, _LONG_CHARACTERS = 3, 20  # strings longer than this on average are texts, not categories


def arrange(
    table: Table,
    name: str,
    asked: Columns,
    *,
    labelled: bool = True,
    task: str | None = None,
    order: Sequence[str] = (),
    notation: Notation | None = None,
    ignore: Sequence[str] = (),
    drop: bool = False,
) -> Rows:
    """Rows for training from a table: the `asked` columns must exist; a single other column of long strings is a text.

    ignore: columns to leave out. drop: leave out rows without a target, instead of refusing them.
    """
    frame, where = table
    check_columns(frame, name, asked, ignore)
    if labelled and asked.target is None:
        raise InputError(
            f"{name}: which column holds the target? Name it with --target COLUMN; {_columns(frame)}"
            f"{_LINES if frame.shape[1] <= 2 else ''}"
        )
    id_column = INDEX if asked.id is None and INDEX in frame and INDEX not in ignore else asked.id
    table, kept, notes = _labelled(table, asked.targets, name, drop=drop)
    frame, where = table
    if task != CLASSES:
        frame, doubts = _with_plain_numbers(frame, asked.targets, Reading(notation or Notation()))
        notes += doubts
    rest = [column for column in frame.columns if column not in {*asked.targets, id_column, asked.groups, *ignore}]
    text = asked.text or (rest[0] if len(rest) == 1 and looks_like_text(frame[rest[0]]) else None)
    if not rest:
        ignored = f"; {listed(ignore)} {'is' if len(ignore) == 1 else 'are'} ignored" if ignore else ""
        raise InputError(
            f"{name} must have a column to learn from besides {listed(asked.targets)}{ignored}; add at least one"
        )
    X: Any = frame[rest] if text is None else _texts(frame[text])
    found = Columns(asked.target, text, id_column, asked.groups)
    ids = kept.tolist() if id_column is None else _whole(frame, id_column, where, "id")
    groups = None if asked.groups is None else _whole(frame, asked.groups, where, "group")
    aside = dict.fromkeys(ignore, "ignored, as you asked")
    if text is not None:
        aside |= {column: "only the text is read" for column in rest if column != text}
    if asked.groups is not None:
        aside[asked.groups] = "rows of one value stay together"
    kind = "tabular" if text is None else "text"
    rows = Rows(X, None, ids, kind, found, where, notes=notes, aside=aside, groups=groups)
    return rows if asked.target is None else rows.aimed(*understand(frame, asked.targets, where, task, order))


def check_columns(frame: pd.DataFrame, name: str, asked: Columns, ignore: Sequence[str] = ()) -> None:
    """Raise an error for a named column that does not exist, or an ignored column that has a role."""
    for column in (*asked.named, *ignore):
        _require(column, frame, name)
    both = [column for column in asked.named if column in ignore]
    if both:
        raise InputError(
            f"{both[0]!r} cannot be ignored: it is the target, text, id or group; leave out --ignore {both[0]}"
        )


def arrange_like(
    clf: Estimator,
    table: Table,
    name: str,
    asked: Columns,
    learned: Columns,
    *,
    labelled: bool,
    how: Reading,
    drop: bool = False,
) -> Rows:
    """Rows for a model from a table: its columns, by name and in any order; other columns are ignored.

    `learned`: the columns of its training data; `asked`: the columns named now, which must exist. how: how to read
    cells. drop: leave out rows without a target.
    """
    frame, where = table
    for column in asked.named:
        _require(column, frame, name)
    used: set[Any] = set(getattr(clf, "feature_names_in_", []))
    there = learned.targets and all(column in frame and column not in used for column in learned.targets)
    found = Columns(asked.target or (learned.target if there else None), asked.text or learned.text)
    if labelled and found.target is None:
        if learned.target is None:
            lines = "" if isinstance(clf.encoder_, TabularEncoder) else _LINES
            raise InputError(
                f"the model does not know which column of {name} is the target; name it with --target COLUMN{lines}"
            )
        gone = [column for column in learned.targets if column not in frame] or learned.targets
        lost = f"{name} has no column {listed(gone)}, the target in training"
        near = suggested(gone[0], frame.columns)
        raise InputError(f"{lost}; {near}name it with --target COLUMN; {_columns(frame)}")
    id_column = asked.id or next((c for c in (learned.id, INDEX) if c in frame and c not in used), None)
    notes: tuple[str, ...] = ()
    kept = np.arange(len(frame))
    if found.targets and labelled:
        table, kept, notes = _labelled(table, found.targets, name, drop=drop)
        frame, where = table
    y = None
    if found.targets and labelled:
        numeric = clf.target_.kind == NUMBERS or clf.target_.names.dtype.kind in "iuf"
        plain, doubts = _with_plain_numbers(frame, found.targets, how) if numeric else (frame, ())
        notes += doubts
        y = known(plain, found.targets, where, clf.target_)
    found = replace(found, id=id_column)
    ids = kept.tolist() if id_column is None else _whole(frame, id_column, where, "id")
    rest = frame.drop(columns=[c for c in (*found.targets, id_column) if c is not None])
    if isinstance(clf.encoder_, TabularEncoder):
        X = _features(rest, clf.encoder_, name, how)
        notes = (*notes, *how.notes)
        return Rows(X, y, ids, "tabular", found, where, clf.target_.kind, notes=notes)
    text = asked.text or _text_column(rest, name, learned.text)
    # Cells that are not text are passed on: the model checks them row by row.
    texts = ["" if gone else value if isinstance(value, list | dict) else str(value)
             for value, gone in zip(frame[text].tolist(), missing(frame[text]), strict=True)]  # fmt: skip
    return Rows(texts, y, ids, "text", replace(found, text=text), where, clf.target_.kind, notes=notes)


def _labelled(
    table: Table, targets: Sequence[str], name: str, *, drop: bool
) -> tuple[Table, np.ndarray[Any, Any], tuple[str, ...]]:
    """(the rows that have a target, their row numbers, notes); all rows unless `drop`."""
    frame, where = table
    if not drop or not targets:
        return table, np.arange(len(frame)), ()
    gone = np.logical_or.reduce([missing(frame[column]).to_numpy() for column in targets])
    kept = np.flatnonzero(~gone)
    if len(kept) == 0:
        raise InputError(f"{name}: no row has a target; {listed(targets)} is empty throughout; name another column")
    if len(kept) == len(frame):
        return table, kept, ()
    n = len(frame) - len(kept)
    verbs = ("has", "was") if n == 1 else ("have", "were")
    note = f"{n:,} of {len(frame):,} rows {verbs[0]} no target and {verbs[1]} left out"
    return Table(frame.iloc[kept].reset_index(drop=True), lambda row: where(int(kept[row]))), kept, (note,)


def _with_plain_numbers(
    frame: pd.DataFrame, targets: Sequence[str], how: Reading
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """(targets with decimal commas or thousands written plainly, 1234.5 for 1.234,5; notes)."""
    changed, notes = {}, list[str]()
    usual = COMMA if COMMA in how.notation.numbers.values() else POINT
    for column in targets:
        if not is_text(frame[column]):
            continue
        if not begins_like_number(frame[column]):
            continue
        found, doubts = how.amounts(frame[column], column, usual)
        gone = missing(frame[column])
        if gone.all() or (found.column.isna() & ~gone).any():
            continue
        if (pd.to_numeric(frame[column], errors="coerce").isna() & ~gone).any():  # not written plainly
            changed[column] = found.column.map(repr, na_action="ignore").astype(object)
            notes += doubts
    return (frame.assign(**changed) if changed else frame), tuple(notes)


def looks_like_text(values: pd.Series[Any]) -> bool:
    """Whether the strings of a column are texts rather than categories."""
    if not is_text(values):
        return False
    strings = values.dropna().tolist()
    words = sum(len(string.split()) for string in strings) / len(strings)
    characters = sum(map(len, strings)) / len(strings)
    return words >= _LONG_WORDS or (characters >= _LONG_CHARACTERS and 2 * len(set(strings)) > len(strings))


# Columns by name


def _require(column: str | None, frame: pd.DataFrame, name: str) -> None:
    if column is not None and column not in frame:
        raise InputError(f"{name} has no column {column!r}; {suggested(column, frame.columns)}{_columns(frame)}")


def _columns(frame: pd.DataFrame, most: int = 20) -> str:
    """The column names, and a hint if they look like data."""
    names = [str(column) for column in frame.columns]
    if not names:
        return "it has none of them"
    numbers = sum(pd.notna(pd.to_numeric(column, errors="coerce")) for column in names)
    hint = "; is the first line with column names missing?" if 3 * numbers >= len(names) else ""
    return f"its columns are {listed(names, most)}{hint}"


def _text_column(frame: pd.DataFrame, name: str, learned: str | None) -> str:
    if learned in frame:
        return str(learned)
    texts = [str(column) for column in frame.columns if is_text(frame[column])]
    if len(texts) == 1:
        return texts[0]
    raise InputError(f"{name}: which column is the text? Name it with --text COLUMN; {_columns(frame)}")


def _texts(values: pd.Series[Any]) -> list[str]:
    return values.astype(str).mask(missing(values), "").tolist()


def _whole(frame: pd.DataFrame, column: str, where: Callable[[int], str], what: str) -> list[Any]:
    gone = missing(frame[column])
    if gone.any():
        raise InputError(f"{where(int(gone.argmax()))}: the {what} {column!r} is missing; fill it in, or drop the row")
    return whole(frame[column].tolist())


# Features of a model


class Reading:
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
        found = pd.to_datetime(values, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None)
        order = self.notation.order_of(name)
        if not (found.isna() & ~missing(values)).any() or not (self.judge or order):
            return found
        if not self.judge and order == YEAR_FIRST:  # it does not decide how to read 01/02/2020
            values = values.where(values.str.match(r"\s*\d{4}"))
        read = as_dates(values, order)
        self.orders[name] = read.how
        if read.doubtful:
            self.notes.append(doubt_of_date(repr(name), read))
        return found.fillna(read.column)

    def settled(self, columns: Sequence[Any]) -> Notation:
        """The given and the inferred notation, for the other rows of the file; columns: the numeric ones."""
        usual = COMMA if self.marks.commas else None
        decimals = {name: self.decimals.get(name) or usual or self.notation.decimal_of(name) for name in columns}
        return replace(
            self.notation,
            decimal=self.notation.decimal if self.sure else None,
            numbers={name: mark for name, mark in decimals.items() if mark is not None},
            dates={**self.notation.dates, **self.orders},
        )


def _features(frame: pd.DataFrame, encoder: TabularEncoder, name: str, how: Reading) -> pd.DataFrame:
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
        missed = f"{name} must have the model's columns; missing: {listed(lacking, 10)}"
        raise InputError(f"{missed}; {near}{_columns(frame)}")
    extra = [column for column in frame.columns if column not in wanted]
    if extra:
        what = "a column that the model does not use" if len(extra) == 1 else "columns that the model does not use"
        how.notes.append(f"{name} has {what}: {listed(extra)}")
    return pd.DataFrame({column.name: _as_learned(frame[column.name], column, how) for column in encoder.columns})


def _as_learned(values: pd.Series[Any], column: Column, how: Reading) -> pd.Series[Any]:
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
        return _mixed_as_learned(values, column, how) if values.dtype == object else values
    if column.kind == "datetime":
        found = how.dates(values, str(column.name))
    elif column.kind == "boolean":
        found = values.str.strip().str.lower().map(_TRUTH)
    else:
        found = how.numbers(values, str(column.name))
    lost = found.isna() & ~missing(values)
    return found.astype(object).mask(lost, values) if lost.any() else found


def _categories(values: pd.Series[Any], column: Column) -> pd.Series[Any]:
    """Values other than text as categories of training: 3.0, which a gap made of 3, is "3", if that is known."""
    learned = {value for value in column.categories if isinstance(value, str)}

    def written(value: Any) -> str:
        return str(value) if str(value) in learned or category(value) not in learned else category(value)

    return values.map(written, na_action="ignore").astype(object)


def _mixed_as_learned(values: pd.Series[Any], column: Column, how: Reading) -> pd.Series[Any]:
    """The texts in a column of JSON that also has other values: each is read as in a column of text only."""
    texts = values.map(lambda value: isinstance(value, str)).astype(bool)
    if not texts.any():
        return values
    found = values.copy()
    found[texts] = _as_learned(values[texts], column, how).astype(object)
    return found
