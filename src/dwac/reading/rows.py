"""The result of reading: examples, their labels, ids and origins; and the model that predicts new rows.

A model is saved with the column names of its training data, so that new data can be read in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac.errors import InputError, StorageError
from dwac.estimator import DWACClassifier, DWACRegressor
from dwac.estimator import load as load_estimator
from dwac.estimator.preparation import take
from dwac.reading.notation import Notation
from dwac.storage import COLUMNS, local_folder
from dwac.storage.files import read_file, replace_file

_LARGEST = 2**24
_NOTATION = "notation"

Estimator = DWACClassifier | DWACRegressor


@dataclass(frozen=True)
class Columns:
    """The columns of a table with a special role; None if there is no such column."""

    target: str | tuple[str, ...] | None = None  # one column or several
    text: str | None = None  # the text to predict from; all other columns are then ignored
    id: str | None = None  # the ids of the rows
    groups: str | None = None  # rows with the same value stay together in training

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns of the target."""
        return (self.target,) if isinstance(self.target, str) else self.target or ()

    @property
    def named(self) -> tuple[str, ...]:
        """All columns with a role."""
        return (*self.targets, *(column for column in (self.text, self.id, self.groups) if column is not None))


@dataclass(frozen=True)
class Rows:
    """Examples in the form that a model takes.

    X is a DataFrame, a list of texts, or a list of image files; `kind` says which: "tabular", "text" or "image".
    """

    X: Any
    y: Any  # the target, if the data has it: (n,), or a table of several columns; see `dwac.reading.targets`
    ids: list[Any]  # ids from the data, else 0 … n-1
    kind: str
    columns: Columns = field(default_factory=Columns)  # as found in this data
    where: Callable[[int], str] = field(default="row {}".format, repr=False)  # for messages: "data.csv line 7"
    task: str | None = None  # "classes", "ordered", "labels" or "numbers"
    why: str = ""  # the reason for the task
    notation: Notation = field(default_factory=Notation)  # how the table was written, to read later tables
    notes: tuple[str, ...] = ()  # sentences for the user on how the data was read
    aside: Mapping[str, str] = field(default_factory=dict)  # columns that are not used as features, and why
    groups: list[Any] | None = None  # the group of each row, if there is a column of groups
    kept: pd.DataFrame | None = None  # columns that the caller keeps, whether or not the model uses them

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """Some of the rows."""
        y = None if self.y is None else take(self.y, rows)
        ids = [self.ids[row] for row in rows]
        groups = None if self.groups is None else [self.groups[row] for row in rows]
        kept = None if self.kept is None else self.kept.iloc[rows].reset_index(drop=True)
        where = lambda row: self.where(int(rows[row]))  # noqa: E731
        return replace(self, X=take(self.X, rows), y=y, ids=ids, groups=groups, kept=kept, where=where)

    def with_target(self, y: Any, task: str, why: str = "") -> Rows:
        """The same rows with a target."""
        return replace(self, y=y, task=task, why=why)


@dataclass(frozen=True)
class Model:
    """A classifier or regressor, and which columns of its training data were the target, text and ids.

    notation: how its tables are written, as far as it was given or learned.
    """

    clf: Estimator
    columns: Columns = field(default_factory=Columns)
    notation: Notation = field(default_factory=Notation)

    @property
    def kind(self) -> str:
        """What it reads: "tabular", "image" or "text"."""
        kind = str(self.clf.encoder_.kind)
        return "text" if kind == "huggingface" else kind

    @property
    def task(self) -> str:
        """What it predicts: "classes", "ordered", "labels" or "numbers"."""
        return str(self.clf.target_.kind)

    def save(self, folder: str | PathLike[str], **options: Any) -> Path:
        """Write both to the folder; the options are those of the estimator's `save`."""
        path = self.clf.save(folder, **options)
        notation = self.notation.to_dict()
        facts = asdict(self.columns) | ({_NOTATION: notation} if notation else {})
        replace_file(path / COLUMNS, json.dumps(facts, ensure_ascii=False).encode())
        return path


def load(
    folder: str | PathLike[str], *, device: str = "auto", expect: str | None = None, unknown: str | None = None
) -> Model:
    """Load the model from a folder, checking its fingerprint; a model saved from Python knows its target alone.

    It is the column after which y was named in `fit`, if it was.

    unknown: how to read categories that training never had; None: as the model was saved.
    """
    folder = local_folder(folder)
    clf, path = load_estimator(folder, device=device, expect=expect), Path(folder) / COLUMNS
    if unknown is not None:
        clf.set_params(unknown=unknown)
        clf.check_settings()
    if not path.exists():
        names = clf.fitted_.target_columns
        return Model(clf, Columns(target=names[0] if len(names) == 1 else names or None))
    try:
        facts = json.loads(read_file(path, largest=_LARGEST))
        notation = Notation.from_dict(facts.pop(_NOTATION, {}))
        target = facts.get("target")
        columns = Columns(**{**facts, "target": tuple(target) if isinstance(target, list) else target})
        if not all(isinstance(name, str) for name in columns.named):
            raise TypeError("names must be strings")
    except (ValueError, TypeError, AttributeError, RecursionError, OSError, InputError) as error:
        raise StorageError(
            f"{path} is damaged ({error!s:.100}); remove it, and name the columns on the command line"
        ) from None
    return Model(clf, columns, notation)
