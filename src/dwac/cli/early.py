"""What can be checked before the library is imported, which takes seconds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from dwac.errors import InputError, StorageError

# Names that the library has, too; a test compares them.
FORMATS = ("csv", "tsv", "jsonl", "parquet", "excel", "text", "image")
SCORED_FORMATS = ("parquet", "csv", "tsv", "jsonl")
ENGINES = ("local", "ray", "dask", "spark")
KINDS = ("numbers", "categories", "dates", "booleans")
TASKS = ("classes", "ordered", "labels", "numbers")
UNLABELLED = ("refuse", "drop")
METHODS = ("shapley", "banzhaf", "leave_one_out")
UTILITIES = ("probability", "log_probability", "accuracy")
MANIFEST = "model.json"

_FORMS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}


def work(name: str, asked: dict[str, Any]) -> None:
    """Import the library and do the work of a command. asked: its options, by name."""
    getattr(import_module(f"dwac.cli.{name}"), name)(**asked)


def check_model(folder: str | Path) -> None:
    """Refuse a model folder that does not exist."""
    if "://" not in str(folder) and not Path(folder).exists():
        raise StorageError(f"{folder} must be a model folder; it does not exist")


def check_data(source: str) -> None:
    """Refuse a file or folder that does not exist; standard input, URLs and patterns are left to the reader."""
    if source == "-" or "://" in source or any(mark in source for mark in "*?["):
        return
    if not Path(source).exists():
        raise InputError(f"there is no file or folder {source!r}; check the path")


def check_choice(what: str, value: str | None, choices: Sequence[str]) -> None:
    """Refuse a value that is not among the choices; None is no value."""
    if value is not None and value not in choices:
        raise InputError(f"unknown {what} {value!r}; choose {', '.join(choices)}")


def refuse_occupied(folder: Path, *, overwrite: bool) -> None:
    """Refuse a model folder that cannot be written: before hours of work, not after."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, but -o must name a folder; choose a new one")
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / MANIFEST).is_file():
            raise InputError(f"{folder} is not empty and holds no model; choose a new folder with -o FOLDER")
        if not overwrite:
            raise InputError(f"{folder} already holds a model; replace it with --overwrite, or choose another folder")
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not os.access(there, os.W_OK):
        raise InputError(f"{folder} cannot be written: no permission in {there}; choose another folder with -o FOLDER")


def check_file(path: Path, option: str, *, made: Path | None = None) -> None:
    """Refuse a file that cannot be written; made: a folder that will exist by then."""
    if path.is_dir():
        raise InputError(f"{option} must name a file; {path} is a folder; add a file name")
    parent = path.absolute().parent
    if not parent.is_dir() and (made is None or parent != made.absolute()):
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}; create it, or choose another")


def form_of(path: Path) -> str:
    """The format that a file name ends in."""
    form = _FORMS.get(path.suffix.lower())
    if form is None:
        raise InputError(f"the file name must end in {', '.join(_FORMS)}; got {path}")
    return form


def kinds_of(values: Sequence[str] | None) -> dict[str, str]:
    """COLUMN=KIND, as it was typed."""
    found = {}
    for value in values or []:
        column, mark, kind = value.rpartition("=")
        if not mark or not column or kind not in KINDS:
            raise InputError(
                f"--kind must be COLUMN=KIND, where KIND is {', '.join(KINDS[:-1])} or {KINDS[-1]}; got {value!r}"
            )
        found[column] = kind
    return found
