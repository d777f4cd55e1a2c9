"""The roles of a table's columns: target, ids, a text, or features; and its rows, for training or for a model.

For a model, a table is a whole file, or a batch of rows from a part of one or from Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dwac._checks import listed, suggested
from dwac.encoders import TabularEncoder
from dwac.errors import InputError
from dwac.reading.features import CellReader, columns_named, needed_columns, read_features, worded_columns
from dwac.reading.layouts import INDEX, FileLayout
from dwac.reading.notation import COMMA, POINT, Notation, begins_like_number, is_text, missing
from dwac.reading.rows import Columns, Estimator, Model, Rows
from dwac.reading.tables import Marks, Table, first_rows
from dwac.reading.targets import read_known_target, read_target, whole_numbers
from dwac.tasks import CLASSES, NUMBERS

Batch = Any  # rows: a RecordBatch, or a DataFrame if the cells of a column differ in type, as in JSON
Unreadable = dict[int, str]  # row → why it cannot become part of X

_LINES = "; if each line is a label, a tab and a text: --format text"
_LONG_WORDS, _LONG_CHARACTERS = 3, 20  # strings longer than this on average are texts, not categories


# Training


def arrange(
    table: Table,
    name: str,
    columns: Columns,
    *,
    labelled: bool = True,
    task: str | None = None,
    order: Sequence[str] = (),
    notation: Notation | None = None,
    ignore: Sequence[str] = (),
    drop: bool = False,
    keep: Sequence[str] = (),
) -> Rows:
    """Rows for training from a table, whose `columns` exist; a single other column of long strings is a text.

    ignore: columns to leave out. drop: leave out rows without a target, instead of refusing them. keep: columns that
    the rows keep beside X.
    """
    frame = table.frame
    if labelled and columns.target is None:
        raise InputError(
            f"{name}: which column holds the target? Name it with --target COLUMN; {columns_named(frame)}"
            f"{_LINES if frame.shape[1] <= 2 else ''}"
        )
    id_column = INDEX if columns.id is None and INDEX in frame and INDEX not in ignore else columns.id
    (frame, where), numbers, notes = _with_target(table, columns.targets, name, drop=drop)
    if task != CLASSES:
        frame, doubts = _with_plain_numbers(frame, columns.targets, CellReader(notation or Notation()))
        notes += doubts
    special = {*columns.targets, id_column, columns.groups, *ignore}
    rest = [column for column in frame.columns if column not in special]
    text = columns.text or (rest[0] if len(rest) == 1 and looks_like_text(frame[rest[0]]) else None)
    if not rest:
        ignored = f"; {listed(ignore)} {'is' if len(ignore) == 1 else 'are'} ignored" if ignore else ""
        raise InputError(
            f"{name} must have a column to learn from besides {listed(columns.targets)}{ignored}; add at least one"
        )
    ids = numbers.tolist() if id_column is None else _complete(frame, id_column, where, "id")
    groups = None if columns.groups is None else _complete(frame, columns.groups, where, "group")
    aside = dict.fromkeys(ignore, "ignored, as you asked")
    if text is not None:
        aside |= {column: "only the text is read" for column in rest if column != text}
    if columns.groups is not None:
        aside[columns.groups] = "rows of one value stay together"
    rows = Rows(
        frame[rest] if text is None else frame[text].astype(str).mask(missing(frame[text]), "").tolist(),
        None,
        ids,
        "tabular" if text is None else "text",
        replace(columns, text=text, id=id_column),
        where,
        notes=notes,
        aside=aside,
        groups=groups,
        kept=_kept_columns(frame, None, keep),
    )
    return (
        rows if columns.target is None else rows.with_target(*read_target(frame, columns.targets, where, task, order))
    )


def check_columns(frame: pd.DataFrame, name: str, columns: Columns, ignore: Sequence[str] = ()) -> None:
    """Raise an error for a named column that does not exist, or an ignored column that has a role."""
    for column in (*columns.named, *ignore):
        _require(column, frame, name)
    both = [column for column in columns.named if column in ignore]
    if both:
        raise InputError(
            f"{both[0]!r} cannot be ignored: it is the target, text, id or group; leave out --ignore {both[0]}"
        )


def looks_like_text(values: pd.Series[Any]) -> bool:
    """Whether the strings of a column are texts rather than categories."""
    if not is_text(values):
        return False
    strings = values.dropna().tolist()
    words = sum(len(string.split()) for string in strings) / len(strings)
    characters = sum(map(len, strings)) / len(strings)
    return words >= _LONG_WORDS or (characters >= _LONG_CHARACTERS and 2 * len(set(strings)) > len(strings))


# Prediction


def arrange_like(
    clf: Estimator,
    table: Table,
    name: str,
    columns: Columns,
    learned: Columns,
    *,
    labelled: bool,
    cells: CellReader,
    drop: bool = False,
    keep: Sequence[str] = (),
    features: bool = True,
) -> Rows:
    """Rows for a model from a table: its columns, by name and in any order; other columns are ignored.

    `learned`: the columns of its training data; `columns`: those named now, which must exist. cells: how to read cells.
    drop: leave out rows without a target. keep: columns that the rows keep beside X, which must exist. features:
    whether to read X.
    """
    frame, where = table
    for column in (*columns.named, *keep):
        _require(column, frame, name)
    used: set[Any] = set(getattr(clf, "feature_names_in_", []))
    has_target = learned.targets and all(column in frame and column not in used for column in learned.targets)
    target = columns.target or (learned.target if has_target else None)
    if labelled and target is None:
        _refuse_untargeted(clf, frame, name, learned)
    id_column = columns.id or next((c for c in (learned.id, INDEX) if c in frame and c not in used), None)
    roles = Columns(target, columns.text or learned.text, id_column)
    y, notes, numbers = None, tuple[str, ...](), np.arange(len(frame))
    if labelled:
        (frame, where), numbers, notes = _with_target(table, roles.targets, name, drop=drop)
        numeric = clf.target_.kind == NUMBERS or clf.target_.names.dtype.kind in "iuf"
        plain, doubts = _with_plain_numbers(frame, roles.targets, cells) if numeric else (frame, ())
        notes += doubts
        y = read_known_target(plain, roles.targets, where, clf.target_)
    ids = numbers.tolist() if id_column is None else _complete(frame, id_column, where, "id")
    X: Any = None
    kind = "tabular"
    rest = frame.drop(columns=[c for c in (*roles.targets, id_column) if c is not None])
    if features and isinstance(clf.encoder_, TabularEncoder):
        X = read_features(rest, clf.encoder_, name, cells)
        notes += tuple(cells.notes)
    elif features:
        text, kind = columns.text or _text_column(rest, name, learned.text), "text"
        X = [
            "" if gone else value if isinstance(value, list | dict) else str(value)  # the model checks row by row
            for value, gone in zip(frame[text].tolist(), missing(frame[text]), strict=True)
        ]
        roles = replace(roles, text=text)
    kept = _kept_columns(frame, X, keep)
    return Rows(X, y, ids, kind, roles, where, clf.target_.kind, notes=notes, kept=kept)


def _kept_columns(frame: pd.DataFrame, X: Any, keep: Sequence[str]) -> pd.DataFrame | None:
    """Columns of a table beside X: as the model reads them if it does, else with empty cells as missing values."""
    if not keep:
        return None
    read = X.columns if isinstance(X, pd.DataFrame) else ()
    columns = {name: X[name] if name in read else frame[name].mask(missing(frame[name])) for name in keep}
    return pd.DataFrame({name: values.reset_index(drop=True) for name, values in columns.items()})


def _refuse_untargeted(clf: Estimator, frame: pd.DataFrame, name: str, learned: Columns) -> None:
    """Raise an error that says how to name the target."""
    if learned.target is None:
        lines = "" if isinstance(clf.encoder_, TabularEncoder) else _LINES
        raise InputError(
            f"the model does not know which column of {name} is the target; name it with --target COLUMN{lines}"
        )
    absent = [column for column in learned.targets if column not in frame] or learned.targets
    raise InputError(
        f"{name} has no column {listed(absent)}, the target in training; {suggested(absent[0], frame.columns)}name it "
        f"with --target COLUMN; {columns_named(frame)}"
    )


def rows_of(
    model: Model, batch: Batch, columns: Columns, cells: CellReader, name: str = "the batch"
) -> tuple[Any, Unreadable]:
    """(X of a batch, the rows that are not part of X and why).

    columns: the column of ids, and of the text or the encoded image; cells: how to read cells; name: for errors.
    """
    if model.kind == "image":
        return _images(batch, columns.text, name)
    names = list(batch.columns) if isinstance(batch, pd.DataFrame) else batch.schema.names
    roles, learned = Columns(), Columns()
    if model.kind == "text":
        roles, learned = Columns(text=columns.text), Columns(text=model.columns.text)
        names = [text] if (text := columns.text or learned.text) in names else names
    else:
        names = _feature_names(model, names, columns)
    frame = batch[names] if isinstance(batch, pd.DataFrame) else _frame_of(model, batch.select(names))
    table = Table(frame.reset_index(drop=True), "row {}".format)
    return arrange_like(model.clf, table, name, roles, learned, labelled=False, cells=cells).X, {}


def _feature_names(model: Model, names: list[Any], columns: Columns) -> list[Any]:
    """The columns that a table model reads; if it was trained on an array, all that may be features."""
    assert isinstance(model.clf.encoder_, TabularEncoder)
    learned = {column.name for column in model.clf.encoder_.columns}
    if any(isinstance(name, str) for name in learned):
        return [name for name in names if name in learned]
    return [name for name in names if name not in {columns.id, *model.columns.targets, model.columns.id}]


def _frame_of(model: Model, batch: pa.RecordBatch) -> pd.DataFrame:
    """A batch as a frame, with whole numbers as text where training had text."""
    features = model.clf.encoder_.columns if isinstance(model.clf.encoder_, TabularEncoder) else []
    categorical = [column for column in features if column.kind == "categorical"]
    worded = {
        column.name for column in categorical if all(isinstance(value, str | None) for value in column.categories)
    }
    # Before pandas, which turns whole numbers into floats if a batch has gaps: 3 would become "3.0".
    columns = [
        pc.cast(values, pa.string()) if field.name in worded and pa.types.is_integer(field.type) else values
        for field, values in zip(batch.schema, batch.columns, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    frame: pd.DataFrame = batch.to_pandas(date_as_object=False, ignore_metadata=True)
    return frame


def _images(batch: Batch, column: str | None, name: str) -> tuple[Any, Unreadable]:
    if isinstance(batch, pd.DataFrame):
        raise InputError(f"{name}: images must be a column of encoded files, as Parquet has; JSON and CSV have none")
    names = batch.schema.names
    if column is not None and column not in names:
        raise InputError(f"{name} has no column {column!r}; its columns are {listed(names, 20)}")
    binary = [f.name for f in batch.schema if pa.types.is_binary(f.type) or pa.types.is_large_binary(f.type)]
    if column is None and len(binary) != 1:
        raise InputError(
            f"{name}: which column holds the encoded images (binary)? Name it with text=… (--text COLUMN); its columns "
            f"are {listed(names, 20)}"
        )
    values = batch.column(names.index(column or binary[0])).to_pylist()
    unreadable = {row: "the image is missing" for row, value in enumerate(values) if not value}
    return [value for value in values if value] or None, unreadable


def infer_notation(model: Model, layout: FileLayout, columns: Columns, given: Notation) -> Notation:
    """How the cells of a file are written, inferred from its beginning, as `read` infers it from the whole file.

    Its parts are read separately, and all must be read in the same way. given: what the user says of it.
    """
    notation, sure = given.over(model.notation), given.decimal is not None
    if not isinstance(model.clf.encoder_, TabularEncoder):
        return notation
    cells = CellReader(notation, marks=Marks(layout.delimiter, layout.comma), sure=sure)
    wanted = worded_columns(model, columns, numbers=not sure and notation.decimal == COMMA)
    rows = first_rows(layout, wanted._replace(needed=needed_columns(model, columns)))
    if rows is not None:
        with suppress(InputError):  # every part reports this error itself
            rows_of(model, rows, columns, cells, layout.url)
    return cells.settle([column.name for column in model.clf.encoder_.columns if column.kind == "numeric"])


# Targets, texts and ids


def _with_target(
    table: Table, targets: Sequence[str], name: str, *, drop: bool
) -> tuple[Table, NDArray[np.int64], tuple[str, ...]]:
    """(the rows that have a target, their row numbers, notes); all rows unless `drop`."""
    frame, where = table
    if not drop or not targets:
        return table, np.arange(len(frame)), ()
    gone = np.logical_or.reduce([missing(frame[column]).to_numpy() for column in targets])
    numbers = np.flatnonzero(~gone)
    if len(numbers) == 0:
        raise InputError(f"{name}: no row has a target; {listed(targets)} is empty throughout; name another column")
    if len(numbers) == len(frame):
        return table, numbers, ()
    n = len(frame) - len(numbers)
    verbs = ("has", "was") if n == 1 else ("have", "were")
    note = f"{n:,} of {len(frame):,} rows {verbs[0]} no target and {verbs[1]} left out"
    return Table(frame.iloc[numbers].reset_index(drop=True), lambda row: where(int(numbers[row]))), numbers, (note,)


def _with_plain_numbers(
    frame: pd.DataFrame, targets: Sequence[str], cells: CellReader
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """(targets with decimal commas or thousands written plainly, 1234.5 for 1.234,5; notes)."""
    changed, notes = {}, list[str]()
    usual = COMMA if COMMA in cells.notation.numbers.values() else POINT
    for column in targets:
        if not is_text(frame[column]) or not begins_like_number(frame[column]):
            continue
        read, doubts = cells.amounts(frame[column], column, usual)
        gone = missing(frame[column])
        if gone.all() or (read.column.isna() & ~gone).any():
            continue
        if (pd.to_numeric(frame[column], errors="coerce").isna() & ~gone).any():  # not written plainly
            changed[column] = read.column.map(repr, na_action="ignore").astype(object)
            notes += doubts
    return (frame.assign(**changed) if changed else frame), tuple(notes)


def _require(column: str | None, frame: pd.DataFrame, name: str) -> None:
    if column is not None and column not in frame:
        raise InputError(f"{name} has no column {column!r}; {suggested(column, frame.columns)}{columns_named(frame)}")


def _text_column(frame: pd.DataFrame, name: str, learned: str | None) -> str:
    if learned in frame:
        return str(learned)
    texts = [str(column) for column in frame.columns if is_text(frame[column])]
    if len(texts) == 1:
        return texts[0]
    raise InputError(
        f"{name}: which column is the text? Name it with --text COLUMN (text=… in Python); {columns_named(frame)}"
    )


def _complete(frame: pd.DataFrame, column: str, where: Callable[[int], str], what: str) -> list[Any]:
    """The values of a column of ids or groups; an error if one is missing."""
    gone = missing(frame[column])
    if gone.any():
        raise InputError(f"{where(int(gone.argmax()))}: the {what} {column!r} is missing; fill it in, or drop the row")
    return whole_numbers(frame[column].tolist())
