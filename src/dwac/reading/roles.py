"""The roles of a table's columns: labels, ids, a text to classify, or features of a model."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac._checks import listed
from dwac.encoders import TabularEncoder
from dwac.encoders.tabular import Column
from dwac.errors import InputError, LabelError
from dwac.estimator.classifier import DWACClassifier
from dwac.reading.rows import Columns, Rows
from dwac.reading.tables import INDEX, Table, is_text, missing

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]*)?(e[+-]?[0-9]{1,3})?", re.IGNORECASE)
_TRUTH = {"true": True, "false": False}
_LONG_WORDS, _LONG_CHARACTERS = 3, 20  # if longer on average, strings are texts rather than categories


def arrange(table: Table, name: str, asked: Columns, *, labelled: bool = True) -> Rows:
    """A table for training: the `asked` columns must exist; a single other column of long strings is a text."""
    frame, where = table
    for column in (asked.target, asked.text, asked.id):
        _require(column, frame, name)
    if labelled and asked.target is None:
        raise InputError(f"{name}: which column holds the labels? Name it with --target COLUMN; {_columns(frame)}")
    id_column = INDEX if asked.id is None and INDEX in frame else asked.id
    rest = [column for column in frame.columns if column not in (asked.target, id_column)]
    text = asked.text or (rest[0] if len(rest) == 1 and looks_like_text(frame[rest[0]]) else None)
    if not rest:
        raise InputError(f"{name} must have a column to learn from besides {asked.target!r}; add at least one")
    X: Any = frame[rest] if text is None else _texts(frame[text], text, where)
    y = None if asked.target is None else labels(frame[asked.target], asked.target, where)
    found = Columns(asked.target, text, id_column)
    return Rows(X, y, _ids(frame, id_column, where), "tabular" if text is None else "text", found, where)


def arrange_like(
    clf: DWACClassifier, table: Table, name: str, asked: Columns, learned: Columns, *, labelled: bool
) -> Rows:
    """A table for a model: its columns, by name and in any order; other columns are ignored.

    `learned`: the columns of its training data; `asked`: those that are named now, and must exist.
    """
    frame, where = table
    for column in (asked.target, asked.text, asked.id):
        _require(column, frame, name)
    used: set[Any] = set(getattr(clf, "feature_names_in_", []))
    target = asked.target or (learned.target if learned.target in frame and learned.target not in used else None)
    if labelled and target is None:
        if learned.target is None:
            raise InputError(
                f"the model does not know which column of {name} is the target; name it with --target COLUMN"
            )
        lost = f"{name} has no column {learned.target!r}, the target in training"
        raise InputError(f"{lost}; name it with --target COLUMN; {_columns(frame)}")
    id_column = asked.id or next((c for c in (learned.id, INDEX) if c in frame and c not in used), None)
    y = None if target is None or not labelled else known_labels(frame[target], target, where, clf.classes_)
    found = Columns(target, asked.text or learned.text, id_column)
    ids = _ids(frame, id_column, where)
    rest = frame.drop(columns=[c for c in (target, id_column) if c is not None])
    if isinstance(clf.encoder_, TabularEncoder):
        return Rows(_features(rest, clf.encoder_, name), y, ids, "tabular", found, where)
    text = asked.text or _text_column(rest, name, learned.text)
    # Cells that are not text are passed on: the model judges them row by row.
    texts = ["" if gone else value if isinstance(value, list | dict) else str(value)
             for value, gone in zip(frame[text].tolist(), missing(frame[text]), strict=True)]  # fmt: skip
    return Rows(texts, y, ids, "text", Columns(target, text, id_column), where)


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
        near = difflib.get_close_matches(column, map(str, frame.columns), n=1)
        near = near or [c for c in map(str, frame.columns) if c.lower() == column.lower()]
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(f"{name} has no column {column!r}; {hint}{_columns(frame)}")


def _columns(frame: pd.DataFrame, most: int = 20) -> str:
    """The column names, and a hint if they look like data."""
    names = [str(column) for column in frame.columns]
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


def _texts(values: pd.Series[Any], column: str, where: Callable[[int], str]) -> list[str]:
    gone = missing(values)
    if gone.any():
        raise InputError(f"{where(int(gone.argmax()))}: the text {column!r} is empty; fill it in, or drop the row")
    return values.astype(str).tolist()


def _ids(frame: pd.DataFrame, column: str | None, where: Callable[[int], str]) -> list[Any]:
    if column is None:
        return list(range(len(frame)))
    gone = missing(frame[column])
    if gone.any():
        raise InputError(f"{where(int(gone.argmax()))}: the id {column!r} is missing; fill it in, or drop the row")
    return _whole(frame[column].tolist())


# Labels


def labels(values: pd.Series[Any], column: str, where: Callable[[int], str]) -> NDArray[Any]:
    """(n,) labels: whole numbers, other numbers, booleans or strings, whichever fits all of them."""
    _refuse_gaps(values, column, where)
    found = _whole([value.strip() if isinstance(value, str) else value for value in values.tolist()])
    if not all(isinstance(value, str) for value in found):
        return _array(found)
    if all(value.lower() in _TRUTH for value in found):
        return np.array([_TRUTH[value.lower()] for value in found])
    if all(_DECIMAL.fullmatch(value) for value in found):
        return np.array([float(value) for value in found])
    return np.array(found, dtype=object)


def known_labels(
    values: pd.Series[Any], column: str, where: Callable[[int], str], classes: NDArray[Any]
) -> NDArray[Any]:
    """(n,) labels, each replaced by the model's class that is written in the same way."""
    _refuse_gaps(values, column, where)
    known = {str(label): label for label in classes.tolist()}
    alike = {_written(label): label for label in known.values()}
    found = [known.get(str(value).strip(), alike.get(_written(value))) for value in values.tolist()]
    if None in found:
        row = found.index(None)
        raise LabelError(
            f"{where(row)}: the model has no class {str(values.iloc[row])!r} of {column!r}; "
            f"it was trained on {listed(known, most=10)}"
        )
    return _array(found)


def _refuse_gaps(values: pd.Series[Any], column: str, where: Callable[[int], str]) -> None:
    gone = missing(values)
    if gone.any():
        others = f" (in {int(gone.sum())} rows)" if gone.sum() > 1 else ""
        raise LabelError(
            f"{where(int(gone.argmax()))}: the target {column!r} is missing{others}; fill it in, or drop these rows"
        )


def _array(values: list[Any]) -> NDArray[Any]:
    array = np.array(values)
    if array.dtype.kind in "biuf" and len({type(value) for value in values}) == 1:
        return array
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _whole(values: list[Any]) -> list[Any]:
    """Strings as whole numbers, where all of them are just such: 7, but not 007."""
    whole = all(isinstance(value, str) and _WHOLE.fullmatch(value) for value in values)
    return [int(value) for value in values] if whole else values


def _written(label: Any) -> str:
    """A label in a common form: 1 for 1.0, true for True."""
    if isinstance(label, float):
        return f"{label:g}"
    text = str(label).strip()
    try:
        return f"{float(text):g}" if "." in text else text.lower() if text in ("True", "False") else text
    except ValueError:
        return text


# Features of a model


def _features(frame: pd.DataFrame, encoder: TabularEncoder, name: str) -> pd.DataFrame:
    wanted: list[Any] = [column.name for column in encoder.columns]
    if not any(isinstance(column, str) for column in wanted):  # trained on an array: matched by position
        if frame.shape[1] != len(wanted):
            raise InputError(
                f"{name} must have {len(wanted)} columns besides target and id, as in training; got {frame.shape[1]}"
            )
        frame = frame.set_axis(wanted, axis=1)
    lacking = [column for column in wanted if column not in frame]
    if lacking:
        raise InputError(f"{name} must have the model's columns; missing: {listed(lacking, 10)}; {_columns(frame)}")
    return pd.DataFrame({column.name: _as_learned(frame[column.name], column) for column in encoder.columns})


def _as_learned(values: pd.Series[Any], column: Column) -> pd.Series[Any]:
    """The values of a column in their type of training; values that cannot be converted stay as text: the model judges
    them row by row."""
    if column.kind == "categorical":
        if all(isinstance(value, str | None) for value in column.categories) and not is_text(values):
            return values.map(str, na_action="ignore").astype(object)
        return values
    if not is_text(values):
        return values
    if column.kind == "datetime":
        found = pd.to_datetime(values, format="ISO8601", errors="coerce")
    elif column.kind == "boolean":
        found = values.str.strip().str.lower().map({**_TRUTH, "1": True, "0": False})
    else:
        found = pd.to_numeric(values, errors="coerce")
    lost = found.isna() & ~missing(values)
    return found.astype(object).mask(lost, values) if lost.any() else found
