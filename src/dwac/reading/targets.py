"""The target of a table: its task, inferred from its values, and the values in the form that a model of it takes.

classes        (n,) labels: whole numbers, other numbers, booleans or texts
ordered        (n,) an ordered pandas Categorical
labels         several at once: a table (n, L) of 0 and 1, or lists of labels
numbers        (n,) finite numbers, or a table (n, T) of them
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac._checks import listed
from dwac.errors import InputError, LabelError
from dwac.reading.notation import missing
from dwac.tasks import CLASSES, LABELS, NUMBERS, ORDERED, Target

TASKS = (CLASSES, ORDERED, LABELS, NUMBERS)
MARK = "|"  # between the labels of a cell

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]*)?(e[+-]?[0-9]{1,3})?", re.IGNORECASE)
_AMOUNT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_INFINITE = {"inf", "infinity"}
_TRUTH = {"true": True, "false": False}
_YES_NO = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
_MANY, _EACH = 50, 10  # more than 50 distinct whole numbers are amounts, unless they count classes of 10 rows or more

Where = Callable[[int], str]


def read_target(
    frame: pd.DataFrame, columns: Sequence[str], where: Where, task: str | None = None, order: Sequence[str] = ()
) -> tuple[Any, str, str]:
    """(the target in these columns, for training; its task, inferred from its values unless it is given; the reason).

    order: the labels from the lowest to the highest, for ordered labels; numbers do not need it.
    """
    if order and task in TASKS and task != ORDERED:
        raise InputError(f"an order is for ordered labels; the task is {task}; leave one of them out")
    task, why = choose_task(frame, columns, where, ORDERED if order and task is None else task)
    if task == CLASSES:
        return read_labels(frame[columns[0]], columns[0], where), task, why
    if task == ORDERED:
        return _read_ordered(frame[columns[0]], columns[0], where, order), task, why
    read = read_label_sets if task == LABELS else read_numbers
    return read(frame, columns, where), task, why


def read_known_target(frame: pd.DataFrame, columns: Sequence[str], where: Where, target: Target) -> Any:
    """The target in these columns, for a model that was trained on the same kind of target."""
    if target.kind not in (LABELS, NUMBERS):
        return _read_known_labels(frame[columns[0]], columns[0], where, target.names)
    names, alone = target.names.tolist(), target.single if target.kind == NUMBERS else target.listed
    if not alone and set(columns) != set(map(str, names)):
        raise InputError(f"the targets must be those of training, {listed(names)}; got {listed(columns)}")
    if alone and len(columns) > 1:
        raise InputError(f"the model was trained on one column of {target.kind}; name one; got {listed(columns)}")
    columns = columns if alone else list(map(str, names))
    known = {"names": target.names} if target.kind == LABELS else {}
    y = (read_label_sets if target.kind == LABELS else read_numbers)(frame, columns, where, **known)
    return y.set_axis(names, axis=1) if isinstance(y, pd.DataFrame) else y


# The task


def choose_task(frame: pd.DataFrame, columns: Sequence[str], where: Where, task: str | None) -> tuple[str, str]:
    """(task, why): the given task, or else the one that the values of the target suggest."""
    if task is not None and task not in TASKS:
        raise InputError(f"unknown task {task!r}; choose {', '.join(TASKS)}")
    task, why = infer_task(frame, columns, where) if task is None else (task, "as asked")
    if task in (CLASSES, ORDERED) and len(columns) > 1:
        raise InputError(
            f"the task {task} reads one column; got {listed(columns)}; name one, or choose labels or numbers"
        )
    return task, why


def infer_task(frame: pd.DataFrame, columns: Sequence[str], where: Where) -> tuple[str, str]:
    """(task, why): the task that the values of the target suggest."""
    if len(columns) > 1:
        if all(str(value).strip().lower() in _YES_NO for column in columns for value in frame[column].tolist()):
            return LABELS, f"{len(columns)} columns of 0 and 1"
        for column in columns:
            _read_number(frame[column], column, where, otherwise="several targets must be 0 and 1, or numbers")
        return NUMBERS, f"{len(columns)} columns of numbers"
    values = frame[columns[0]]
    if any(isinstance(value, list | np.ndarray) for value in values):
        return LABELS, "lists of labels"
    if missing(values).any() and any(isinstance(value, str) and MARK in value for value in values):
        hint = f"; if cells such as a{MARK}b hold several labels, and an empty one none: --task labels"
        _refuse_gaps(values, columns[0], where, hint)
    if any(isinstance(value, str) and _is_infinite(value.strip()) for value in values):
        _read_number(values, columns[0], where)  # the error names the line of the first that is not a finite number
    labels = read_labels(values, columns[0], where)
    n = len(pd.unique(pd.Series(labels)))
    if labels.dtype.kind in "iuf":
        return _task_of_numbers(labels.astype(np.float64), n)
    return CLASSES, f"{n:,} different values" if labels.dtype.kind == "b" else f"{n:,} texts"


def _task_of_numbers(values: NDArray[np.float64], n_distinct: int) -> tuple[str, str]:
    """Treat fractions, and many whole numbers, as amounts, unless these count 0, 1, 2, … as class codes do."""
    part = values[values != np.round(values)]
    if len(part):
        return NUMBERS, f"such as {part[0]:g}"
    gapless = values.min() in (0, 1) and n_distinct == values.max() - values.min() + 1
    if n_distinct > _MANY and not (gapless and len(values) >= _EACH * n_distinct):
        return NUMBERS, f"{n_distinct:,} different ones"
    return CLASSES, f"{n_distinct:,} different numbers"


# Numbers


def read_numbers(frame: pd.DataFrame, columns: Sequence[str], where: Where) -> Any:
    """(n,) numbers of one column, or a table of several columns."""
    numbers = {column: _read_number(frame[column], column, where) for column in columns}
    return numbers[columns[0]] if len(columns) == 1 else pd.DataFrame(numbers)


def _read_number(values: pd.Series[Any], column: str, where: Where, otherwise: str = "") -> NDArray[np.float64]:
    """A column as finite numbers; an error names the line of the first that is not. otherwise: what was expected."""
    _refuse_gaps(values, column, where)
    numbers, commas = np.empty(len(values)), _have_commas(values)
    for row, value in enumerate(values.tolist()):
        text = str(value).strip() if isinstance(value, str) else value
        if isinstance(text, str):
            text = text.replace(",", ".") if commas else text
            number = float(text) if _AMOUNT.fullmatch(text) else None
            number = np.inf if _is_infinite(text) else number
        else:
            number = float(text) if isinstance(text, int | float | np.number) and not isinstance(text, bool) else None
        if number is None:
            what = f"{otherwise}; {column!r} is" if otherwise else f"the target {column!r} must be a number; got"
            raise LabelError(
                f"{where(row)}: {what} {str(value)[:60]!r}; repair it, or predict classes with --task classes"
            )
        if np.isinf(number):
            raise LabelError(
                f"{where(row)}: the target {column!r} is infinite or too large; give a finite number, or drop the row"
            )
        numbers[row] = number
    return numbers


def _is_infinite(text: str) -> bool:
    return text.lstrip("+-").lower() in _INFINITE


def _have_commas(values: pd.Series[Any]) -> bool:
    """Whether decimals are written with a comma: 3,5 in some cells, and 3.5 in none."""
    texts = [value.strip() for value in values.tolist() if isinstance(value, str)]
    return any(map(_COMMA.fullmatch, texts)) and not any("." in text or text.count(",") > 1 for text in texts)


# Several labels


def read_label_sets(
    frame: pd.DataFrame, columns: Sequence[str], where: Where, names: NDArray[Any] | None = None
) -> pd.DataFrame | pd.Series[Any]:
    """Columns of 0 and 1 as a table; one column as lists, from lists or from texts such as "a|b".

    names: the labels of a model; every label must be one of them.
    """
    if len(columns) > 1:
        return pd.DataFrame({column: _yes_no(frame[column], column, where) for column in columns})
    column, values = columns[0], frame[columns[0]].tolist()
    nested = any(isinstance(value, list | np.ndarray) for value in values)
    lists = [_labels_of_cell(value, nested, column, row, where) for row, value in enumerate(values)]
    if names is not None:
        lists = [_as_known(labels, names, column, row, where) for row, labels in enumerate(lists)]
    return pd.Series(np.fromiter(lists, dtype=object, count=len(lists)))


def _yes_no(values: pd.Series[Any], column: str, where: Where) -> NDArray[np.int64]:
    _refuse_gaps(values, column, where)
    truths = [_YES_NO.get(str(value).strip().lower(), -1) for value in values.tolist()]
    if -1 in truths:
        row = truths.index(-1)
        raise LabelError(
            f"{where(row)}: columns of several labels must hold 0 or 1, 1 where a row has the label; "
            f"{column!r} is {str(values.iloc[row])[:60]!r}"
        )
    return np.array(truths, dtype=np.int64)


def _labels_of_cell(value: Any, nested: bool, column: str, row: int, where: Where) -> list[Any]:
    """The labels of a cell, each once."""
    if isinstance(value, list | np.ndarray):
        labels = list(value)
        wrong = [label for label in labels if label is None or isinstance(label, list | dict | float)]
        if wrong:
            raise LabelError(f"{where(row)}: the labels in {column!r} must be texts or whole numbers; got {wrong[0]!r}")
    elif nested:
        raise LabelError(
            f"{where(row)}: {column!r} must be a list of labels, as in other rows; got {value!r:.60}; [] is no label"
        )
    elif isinstance(value, str):
        labels = [label.strip() for label in value.split(MARK) if label.strip()]
    else:  # an empty cell
        labels = [] if value is None or value != value else [str(value)]
    return list(dict.fromkeys(labels))


def _as_known(labels: list[Any], names: NDArray[Any], column: str, row: int, where: Where) -> list[Any]:
    written = {str(name): name for name in names.tolist()}
    for label in labels:
        if str(label) not in written:
            raise LabelError(
                f"{where(row)}: the model has no label {str(label)!r} of {column!r}; "
                f"it was trained on {listed(written, most=10)}"
            )
    return [written[str(label)] for label in labels]


# Classes, and ordered labels


def _read_ordered(values: pd.Series[Any], column: str, where: Where, order: Sequence[str]) -> pd.Series[Any]:
    labels = read_labels(values, column, where)
    present = {str(label): label for label in pd.unique(pd.Series(labels))}
    if not order:
        if labels.dtype.kind not in "iuf":
            raise InputError(
                f"which order do the labels of {column!r} have? Name them from the lowest to the highest: "
                f"--order {','.join(sorted(present)[:10])}"
            )
        return pd.Series(pd.Categorical(labels, sorted(present.values()), ordered=True))
    wanted = [str(label).strip() for label in order]
    lacking = [label for label in present if label not in wanted]
    if lacking or len(set(wanted)) < len(wanted):
        what = f"it lacks {listed(lacking, 10)}" if lacking else "it names a label twice"
        raise InputError(f"the order must name every label of {column!r} once; {what}; got {listed(wanted, 10)}")
    return pd.Series(pd.Categorical(labels, [present[label] for label in wanted if label in present], ordered=True))


def read_labels(values: pd.Series[Any], column: str, where: Where) -> NDArray[Any]:
    """(n,) labels: whole numbers, other numbers, booleans or strings, the first type that fits all of them."""
    _refuse_gaps(values, column, where)
    labels = whole_numbers([value.strip() if isinstance(value, str) else value for value in values.tolist()])
    if not all(isinstance(value, str) for value in labels):
        return _array(labels)
    if all(value.lower() in _TRUTH for value in labels):
        return np.array([_TRUTH[value.lower()] for value in labels])
    if all(_DECIMAL.fullmatch(value) for value in labels):
        return np.array([float(value) for value in labels])
    return np.array(labels, dtype=object)


def _read_known_labels(values: pd.Series[Any], column: str, where: Where, classes: NDArray[Any]) -> NDArray[Any]:
    """(n,) labels, each replaced by the model's class with the same spelling."""
    _refuse_gaps(values, column, where)
    known = {str(label): label for label in classes.tolist()}
    alike = {_plain_text(label): label for label in known.values()}
    labels = [known.get(str(value).strip(), alike.get(_plain_text(value))) for value in values.tolist()]
    if None in labels:
        row = labels.index(None)
        raise LabelError(
            f"{where(row)}: the model has no class {str(values.iloc[row])!r} of {column!r}; "
            f"it was trained on {listed(known, most=10)}"
        )
    return _array(labels)


def _refuse_gaps(values: pd.Series[Any], column: str, where: Where, hint: str = "") -> None:
    """Raise an error that names the first row without a target."""
    gone = missing(values)
    if gone.any():
        others = f" (in {int(gone.sum())} rows)" if gone.sum() > 1 else ""
        first = f"{where(int(gone.argmax()))}: the target {column!r} is missing{others}"
        raise LabelError(f"{first}; fill it in, or leave such rows out with --unlabelled drop{hint}")


def _array(values: list[Any]) -> NDArray[Any]:
    array = np.array(values)
    if array.dtype.kind in "biuf" and len({type(value) for value in values}) == 1:
        return array
    return np.fromiter(values, dtype=object, count=len(values))


def whole_numbers(values: list[Any]) -> list[Any]:
    """Strings as whole numbers, if all of them are written plainly: 7, but not 007."""
    all_whole = all(isinstance(value, str) and _WHOLE.fullmatch(value) for value in values)
    return [int(value) for value in values] if all_whole else values


def _plain_text(label: Any) -> str:
    """A label in a common form: 1 for 1.0, true for True."""
    if isinstance(label, float):
        return f"{label:g}"
    text = str(label).strip()
    try:
        return f"{float(text):g}" if "." in text else text.lower() if text in ("True", "False") else text
    except ValueError:
        return text
