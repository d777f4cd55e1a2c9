"""The target of a table: its task, inferred from its values, and the values in the form that a model of it takes.

classes        (n,) labels: whole numbers, other numbers, booleans or texts
ordered        (n,) an ordered pandas Categorical
labels         several at once: a table (n, L) of 0 and 1, or lists of labels
numbers        (n,) finite numbers, or a table (n, T) of them
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac._checks import listed
from dwac.errors import InputError, LabelError
from dwac.reading.tables import missing
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


class Understood(NamedTuple):
    """The values of a target, the task, and the reason for it."""

    y: Any
    task: str
    why: str


def understand(
    frame: pd.DataFrame, columns: Sequence[str], where: Where, task: str | None = None, order: Sequence[str] = ()
) -> Understood:
    """The target in these columns, for training; the task is inferred from its values unless it is given.

    order: the labels from the lowest to the highest, for ordered labels; numbers do not need it.
    """
    if task is not None and task not in TASKS:
        raise InputError(f"unknown task {task!r}; choose {', '.join(TASKS)}")
    if order and task not in (None, ORDERED):
        raise InputError(f"an order is for ordered labels; the task is {task}; leave one of them out")
    task = ORDERED if order else task
    why = "as asked"
    if task is None:
        task, why = judge(frame, columns, where)
    if task in (CLASSES, ORDERED) and len(columns) > 1:
        raise InputError(
            f"{task} are read from one column; got {listed(columns)}; name one, or choose labels or numbers"
        )
    if task == CLASSES:
        return Understood(labels(frame[columns[0]], columns[0], where), task, why)
    if task == ORDERED:
        return Understood(_ordered(frame[columns[0]], columns[0], where, order), task, why)
    return Understood(several(frame, columns, where) if task == LABELS else amounts(frame, columns, where), task, why)


def known(frame: pd.DataFrame, columns: Sequence[str], where: Where, target: Target) -> Any:
    """The target in these columns, for a model that was trained on the same kind of target."""
    if target.kind not in (LABELS, NUMBERS):
        return known_labels(frame[columns[0]], columns[0], where, target.names)
    names, alone = target.names.tolist(), target.single if target.kind == NUMBERS else target.listed
    if not alone and set(columns) != set(map(str, names)):
        raise InputError(f"the targets must be those of training, {listed(names)}; got {listed(columns)}")
    if alone and len(columns) > 1:
        raise InputError(f"the model was trained on one column of {target.kind}; name one; got {listed(columns)}")
    asked = columns if alone else list(map(str, names))
    found: Any = several(frame, asked, where, target.names) if target.kind == LABELS else amounts(frame, asked, where)
    return found.set_axis(names, axis=1) if isinstance(found, pd.DataFrame) else found


# The task


def judge(frame: pd.DataFrame, columns: Sequence[str], where: Where) -> tuple[str, str]:
    """(task, why): the task that the values of the target suggest."""
    if len(columns) > 1:
        if all(_says_yes_or_no(frame[column]) for column in columns):
            return LABELS, f"{len(columns)} columns of 0 and 1"
        for column in columns:
            _number_of(frame[column], column, where, otherwise="several targets must be columns of 0 and 1, or numbers")
        return NUMBERS, f"{len(columns)} columns of numbers"
    values = frame[columns[0]]
    if any(isinstance(value, list | np.ndarray) for value in values):
        return LABELS, "lists of labels"
    if missing(values).any() and any(isinstance(value, str) and MARK in value for value in values):
        hint = f"; if cells such as a{MARK}b hold several labels, and an empty one none: --task labels"
        refuse_gaps(values, columns[0], where, hint)
    if any(isinstance(value, str) and _is_infinite(value.strip()) for value in values):
        _number_of(values, columns[0], where)  # the error names the line of the first that is not a finite number
    found = labels(values, columns[0], where)
    distinct = pd.unique(pd.Series(found))
    if found.dtype.kind in "iuf":
        return _judge_numbers(found.astype(np.float64), len(distinct))
    return CLASSES, f"{len(distinct):,} different values" if found.dtype.kind == "b" else f"{len(distinct):,} texts"


def _judge_numbers(values: NDArray[np.float64], n_distinct: int) -> tuple[str, str]:
    """Treat fractions, and many whole numbers, as amounts, unless these count 0, 1, 2, … as class codes do."""
    part = values[values != np.round(values)]
    if len(part):
        return NUMBERS, f"such as {part[0]:g}"
    gapless = values.min() in (0, 1) and n_distinct == values.max() - values.min() + 1
    if n_distinct > _MANY and not (gapless and len(values) >= _EACH * n_distinct):
        return NUMBERS, f"{n_distinct:,} different ones"
    return CLASSES, f"{n_distinct:,} different numbers"


def _says_yes_or_no(values: pd.Series[Any]) -> bool:
    return all(str(value).strip().lower() in _YES_NO for value in values.tolist())


# Numbers


def amounts(frame: pd.DataFrame, columns: Sequence[str], where: Where) -> Any:
    """(n,) numbers of one column, or a table of several columns."""
    found = {column: _number_of(frame[column], column, where) for column in columns}
    return found[columns[0]] if len(columns) == 1 else pd.DataFrame(found)


def _number_of(values: pd.Series[Any], column: str, where: Where, otherwise: str = "") -> NDArray[np.float64]:
    """A column as finite numbers; an error names the line of the first that is not. otherwise: what was expected."""
    refuse_gaps(values, column, where)
    found, commas = np.empty(len(values)), _with_commas(values)
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
        found[row] = number
    return found


def _is_infinite(text: str) -> bool:
    return text.lstrip("+-").lower() in _INFINITE


def _with_commas(values: pd.Series[Any]) -> bool:
    """Whether decimals are written with a comma: 3,5 in some cells, and 3.5 in none."""
    texts = [value.strip() for value in values.tolist() if isinstance(value, str)]
    return any(map(_COMMA.fullmatch, texts)) and not any("." in text or text.count(",") > 1 for text in texts)


# Several labels


def several(
    frame: pd.DataFrame, columns: Sequence[str], where: Where, names: NDArray[Any] | None = None
) -> pd.DataFrame | pd.Series[Any]:
    """Columns of 0 and 1 as a table; one column as lists, from lists or from texts such as "a|b".

    names: the labels of a model; every label must be one of them.
    """
    if len(columns) > 1:
        return pd.DataFrame({column: _yes_no(frame[column], column, where) for column in columns})
    column, values = columns[0], frame[columns[0]].tolist()
    nested = any(isinstance(value, list | np.ndarray) for value in values)
    lists = [_listed(value, nested, column, row, where) for row, value in enumerate(values)]
    if names is not None:
        lists = [_as_known(labels, names, column, row, where) for row, labels in enumerate(lists)]
    found = pd.Series([None] * len(lists), dtype=object)
    found[:] = lists
    return found


def _yes_no(values: pd.Series[Any], column: str, where: Where) -> NDArray[np.int64]:
    refuse_gaps(values, column, where)
    found = [_YES_NO.get(str(value).strip().lower(), -1) for value in values.tolist()]
    if -1 in found:
        row = found.index(-1)
        raise LabelError(
            f"{where(row)}: columns of several labels must hold 0 or 1, 1 where a row has the label; "
            f"{column!r} is {str(values.iloc[row])[:60]!r}"
        )
    return np.array(found, dtype=np.int64)


def _listed(value: Any, nested: bool, column: str, row: int, where: Where) -> list[Any]:
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


def _ordered(values: pd.Series[Any], column: str, where: Where, order: Sequence[str]) -> pd.Series[Any]:
    found = labels(values, column, where)
    present = {str(label): label for label in pd.unique(pd.Series(found))}
    if not order:
        if found.dtype.kind not in "iuf":
            raise InputError(
                f"which order do the labels of {column!r} have? Name them from the lowest to the highest: "
                f"--order {','.join(sorted(present)[:10])}"
            )
        return pd.Series(pd.Categorical(found, sorted(present.values()), ordered=True))
    wanted = [str(label).strip() for label in order]
    lacking = [label for label in present if label not in wanted]
    if lacking or len(set(wanted)) < len(wanted):
        what = f"it lacks {listed(lacking, 10)}" if lacking else "it names a label twice"
        raise InputError(f"the order must name every label of {column!r} once; {what}; got {listed(wanted, 10)}")
    return pd.Series(pd.Categorical(found, [present[label] for label in wanted if label in present], ordered=True))


def labels(values: pd.Series[Any], column: str, where: Where) -> NDArray[Any]:
    """(n,) labels: whole numbers, other numbers, booleans or strings, the first type that fits all of them."""
    refuse_gaps(values, column, where)
    found = whole([value.strip() if isinstance(value, str) else value for value in values.tolist()])
    if not all(isinstance(value, str) for value in found):
        return _array(found)
    if all(value.lower() in _TRUTH for value in found):
        return np.array([_TRUTH[value.lower()] for value in found])
    if all(_DECIMAL.fullmatch(value) for value in found):
        return np.array([float(value) for value in found])
    return np.array(found, dtype=object)


def known_labels(values: pd.Series[Any], column: str, where: Where, classes: NDArray[Any]) -> NDArray[Any]:
    """(n,) labels, each replaced by the model's class with the same spelling."""
    refuse_gaps(values, column, where)
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


def refuse_gaps(values: pd.Series[Any], column: str, where: Where, hint: str = "") -> None:
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
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def whole(values: list[Any]) -> list[Any]:
    """Strings as whole numbers, if all of them are written plainly: 7, but not 007."""
    all_whole = all(isinstance(value, str) and _WHOLE.fullmatch(value) for value in values)
    return [int(value) for value in values] if all_whole else values


def _written(label: Any) -> str:
    """A label in a common form: 1 for 1.0, true for True."""
    if isinstance(label, float):
        return f"{label:g}"
    text = str(label).strip()
    try:
        return f"{float(text):g}" if "." in text else text.lower() if text in ("True", "False") else text
    except ValueError:
        return text
