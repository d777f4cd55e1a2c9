"""A model together with the column names of its training data, so that new data can be read in the same way."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from dwac.errors import InputError, StorageError
from dwac.estimator import DWACClassifier, DWACRegressor
from dwac.estimator import load as load_estimator
from dwac.reading.notation import Notation
from dwac.reading.rows import Columns
from dwac.storage import COLUMNS
from dwac.storage.files import read_file, replace_file

_LARGEST = 2**24
_NOTATION = "notation"

Estimator = DWACClassifier | DWACRegressor


@dataclass(frozen=True)
class Model:
    """A classifier or regressor, and which columns of its training data were the target, text and ids.

    notation: how its tables are written, as far as that was said or learned.
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
        return self.clf.target_.kind

    def save(self, folder: str | PathLike[str], **options: Any) -> Path:
        """Write both to the folder; the estimator as by its `save`, which takes the options."""
        path = self.clf.save(folder, **options)
        found = self.notation.to_dict()
        facts = asdict(self.columns) | ({_NOTATION: found} if found else {})
        replace_file(path / COLUMNS, json.dumps(facts, ensure_ascii=False).encode())
        return path


def load(
    folder: str | PathLike[str], *, device: str = "auto", expect: str | None = None, unknown: str | None = None
) -> Model:
    """Load the model from a folder, of this fingerprint; a model saved from Python has no column names.

    unknown: how categories that training never had are read from now on; None: as the model was saved.
    """
    clf, path = load_estimator(folder, device=device, expect=expect), Path(folder) / COLUMNS
    if unknown is not None:
        clf.set_params(unknown=unknown)
        clf.check_settings()
    if not path.exists():
        return Model(clf)
    try:
        found = json.loads(read_file(path, largest=_LARGEST))
        notation = Notation.from_dict(found.pop(_NOTATION, {}))
        target = found.get("target")
        columns = Columns(**{**found, "target": tuple(target) if isinstance(target, list) else target})
        if not all(isinstance(name, str) for name in columns.named):
            raise TypeError("names must be strings")
    except (ValueError, TypeError, AttributeError, RecursionError, OSError, InputError) as error:
        raise StorageError(
            f"{path} is damaged ({error!s:.100}); remove it, and name the columns on the command line"
        ) from None
    return Model(clf, columns, notation)
