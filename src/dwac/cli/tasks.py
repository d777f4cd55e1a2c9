"""What differs between tasks in training: the estimator, its settings, and the description of the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from dwac._checks import listed, percent, suggested
from dwac.errors import InputError, LabelError
from dwac.estimator import DWACClassifier, DWACRegressor
from dwac.estimator.evaluation import amount
from dwac.estimator.settings import SMALL_TABLE, parameters
from dwac.reading import MARK, TASKS, Estimator, Rows
from dwac.tasks import CLASSES, LABELS, NUMBERS, ORDERED
from dwac.tasks.classes import too_many_classes

NAMES = {CLASSES: "classes", ORDERED: "ordered labels", LABELS: "several labels", NUMBERS: "numbers"}
_EVERY_LABEL = "share of rows with every label right"
_SHOWN = 20  # labels
_FEW_EPOCHS = {"tabular": 10, "image": 6, "text": 10}  # of --fast


def estimator(task: str, encoder: str, **settings: Any) -> Estimator:
    """An estimator for the task; other tasks refuse the settings of classes."""
    of_classes = {name: settings.pop(name) for name in ("class_conditional", "class_weight")}
    for name, value in of_classes.items():
        if value and task in (LABELS, NUMBERS):
            raise InputError(f"--{name.replace('_', '-')} is for one label per row; the task is {task}; leave it out")
    if task == NUMBERS:
        return DWACRegressor(encoder, **parameters(settings))
    return DWACClassifier(encoder, **of_classes, **parameters(settings))


def check_within(columns: Sequence[str], rows: Rows) -> None:
    """Refuse groups that are no columns of the rows."""
    features = list(rows.X.columns) if rows.kind == "tabular" else []
    for name in columns:
        if name not in features:
            raise InputError(
                f"--within must be a column of a table, other than target, id and groups; got {name!r}; "
                f"{suggested(name, features)}{f'these are {listed(features, 20)}' if features else 'there are none'}"
            )


def read_class_weight(given: Sequence[str], rows: Rows) -> Any:
    """--class-weight as the classifier takes it: None, "balanced", or a dict by label."""
    if not given or given == ["balanced"]:
        return given[0] if given else None
    known = {str(label): label for label in pd.unique(pd.Series(rows.y))} if rows.task in (CLASSES, ORDERED) else {}
    weights = {}
    for value in given:
        label, mark, number = value.rpartition("=")
        try:
            weight = float(number) if mark else 0.0
        except ValueError:
            weight = 0.0
        if not 0 < weight < float("inf"):
            raise InputError(f"--class-weight must be balanced, or LABEL=N with a positive number; got {value!r}")
        if known and label not in known:
            raise InputError(f"--class-weight: there is no class {label!r}; the classes are {listed(known, 20)}")
        weights[known.get(label, label)] = weight
    return weights


def fast_settings(rows: Rows, n: int, encoder: str) -> dict[str, Any]:
    """The settings of --fast for n rows; {} for a small table, which cross-fits in seconds anyway."""
    kind = rows.kind if encoder in ("auto", rows.kind) else encoder.partition(":")[0]
    if kind == "tabular" and n < SMALL_TABLE:
        return {}
    return {"ensemble_size": 1, "epochs": _FEW_EPOCHS.get(kind, 3)}


def describe_fast(settings: Mapping[str, Any]) -> str:
    """What --fast does, in a sentence."""
    if not settings:
        return f"--fast: changes nothing, because a table of fewer than {SMALL_TABLE:,} rows is trained in seconds"
    networks, epochs = settings.get("ensemble_size", 1), settings["epochs"]
    networks = "one network" if networks == 1 else f"{networks} networks"
    epochs = "one epoch" if epochs == 1 else f"{epochs} epochs"
    return f"--fast: {networks}, {epochs} at most; train without it for the best accuracy"


def describe_task(rows: Rows) -> str:
    """The task, the reason for it, and how to choose another."""
    assert rows.task is not None
    possible = TASKS if len(rows.columns.targets) < 2 else (LABELS, NUMBERS)
    others = [task for task in possible if task != rows.task]
    text = f"{NAMES[rows.task]} ({rows.why}); to change: --task {'|'.join(others)}"
    if rows.task == CLASSES and rows.y.dtype == object and any(MARK in str(label) for label in rows.y[:1000]):
        text += f"; --task labels reads a{MARK}b as two labels"
    return text


def check(rows: Rows, name: str) -> None:
    """Refuse a target from which nothing can be learned, with an error that names the file."""
    nothing = "nothing can be learned from it"
    if rows.task in (CLASSES, ORDERED):
        values = pd.Series(rows.y)
        if (n := values.nunique()) == 1:
            only = values.tolist()[0]
            raise LabelError(f"{name}: {_of(rows)} has only one class, {only!r}; a classifier needs at least two")
        if too_many_classes(n, len(rows)):
            raise LabelError(
                f"{name}: {_of(rows)} must hold classes; got {n:,} different values in {len(rows):,} rows; choose "
                "another column, or predict numbers with --task numbers"
            )
    elif rows.task == LABELS:
        counts = label_counts(rows.y)
        if not ((counts > 0) & (counts < len(rows))).any():
            raise LabelError(f"{name}: no label of {_of(rows)} occurs in some rows and not in others; {nothing}")
    else:
        for column, values in _number_columns(rows).items():
            if (values == values.iloc[0]).all():
                raise LabelError(
                    f"{name}: the target {column!r} is {amount(values.iloc[0])} in every row; {nothing}; choose "
                    "another column, or leave it out"
                )


def _number_columns(rows: Rows) -> pd.DataFrame:
    return rows.y if isinstance(rows.y, pd.DataFrame) else pd.DataFrame({rows.columns.target or "label": rows.y})


def _of(rows: Rows) -> str:
    names = rows.columns.targets
    return f"the target{'s' * (len(names) > 1)} {listed(names)}" if names else "the label"


def label_counts(y: Any) -> pd.Series[Any]:
    """The number of rows with each label, if a row may have several."""
    if isinstance(y, pd.DataFrame):
        return y.sum()
    return pd.Series([label for row in y for label in row], dtype=object).value_counts()


def describe_target(rows: Rows) -> tuple[str, str]:
    """(name, text): the target in a line."""
    if rows.task == NUMBERS:
        columns, named = _number_columns(rows), isinstance(rows.y, pd.DataFrame)
        each = [
            f"{f'{name}: ' if named else ''}{amount(low)} to {amount(high)}, median {amount(middle)}"
            for name, low, high, middle in zip(columns, columns.min(), columns.max(), columns.median(), strict=True)
        ]
        return "range", listed(each, _SHOWN, str)
    if rows.task == LABELS:
        counts = label_counts(rows.y)
    else:
        counts = pd.Series(rows.y).value_counts()
        counts = counts if rows.task == CLASSES else counts.sort_index()
    shares = [f"{label}: {n:,} ({percent(n / len(rows), 0)})" for label, n in counts.items()]
    return "classes" if rows.task == CLASSES else "labels", listed(shares, _SHOWN, str)


def target_facts(rows: Rows) -> dict[str, Any]:
    """The target for programs."""
    if rows.task == NUMBERS:
        columns = _number_columns(rows)
        return {"numbers": {str(name): [float(columns[name].min()), float(columns[name].max())] for name in columns}}
    counts = label_counts(rows.y) if rows.task == LABELS else pd.Series(rows.y).value_counts()
    return {"labels" if rows.task == LABELS else "classes": {str(label): int(n) for label, n in counts.items()}}


def first_of_each_class(rows: Rows) -> NDArray[np.bool_]:
    """(n,): whether each row must stay in training: the first row of each class, or none."""
    if rows.task in (LABELS, NUMBERS):
        return np.zeros(len(rows), dtype=bool)
    return ~pd.Series(rows.y).duplicated().to_numpy()


def expected_sets(model: Estimator, epsilon: float) -> Any:
    """The expected sets or intervals at ε, in words by `str`; None without calibration rows."""
    if len(model.calibration_y_) == 0:
        return None
    return model.expected_intervals(epsilon) if isinstance(model, DWACRegressor) else model.expected_sets(epsilon)


def expected_facts(model: Estimator, epsilon: float) -> dict[str, Any]:
    """The same for programs, under its name."""
    sets = expected_sets(model, epsilon)
    name = "expected_intervals" if isinstance(model, DWACRegressor) else "expected_sets"
    return {name: None if sets is None else asdict(sets)}


def name_of_sets(model: Estimator) -> str:
    """The name of the outputs with a guarantee: sets or intervals."""
    return "intervals" if isinstance(model, DWACRegressor) else "prediction sets"


def score(model: Estimator, X: Any, y: Any) -> str:
    """How good the model is on some rows, in a few words."""
    if isinstance(model, DWACRegressor):
        wrong = np.asarray(model.predict(X)) - np.asarray(y)
        if wrong.ndim == 1:
            return _root_mean_square(wrong)
        return f"R² {model.score(X, y):.3f}"
    what = _EVERY_LABEL if model.target_.kind == LABELS else "accuracy"
    return f"{what} {model.score(X, y):.3f}"


def out_of_fold_score(model: Estimator) -> str | None:
    """The same for a cross-fitted model, on its voters out of fold; None if there are no such predictions."""
    judged = model.out_of_fold_
    if judged is None:
        return None
    if model.references_.targets is not None:
        truth = model.references_.targets.cpu().numpy()
        return _root_mean_square(judged - truth) if model.target_.single else f"R² {r2_score(truth, judged):.3f}"
    codes = model.references_.labels.cpu().numpy()
    if model.target_.kind == LABELS:
        has = model.target_.probabilities(judged) >= 0.5
        return f"{_EVERY_LABEL} {(has == (model.target_.table[codes] > 0)).all(axis=1).mean():.3f}"
    right = judged.argmax(axis=1) == codes
    return f"accuracy {right.mean():.3f}"


def _root_mean_square(wrong: NDArray[np.float64]) -> str:
    return f"root mean squared error {amount(float(np.sqrt(np.square(wrong).mean())))}"
