"""A file, a folder or standard input as rows for a model: tables, images or texts. Internal.

rows = read("people.csv", target="income")               # .X .y .ids .kind
clf = DWACClassifier().fit(rows.X, rows.y, ids=rows.ids)
Model(clf, rows.columns).save("model")

model = load("model")
new = read("others.csv", like=model)                      # the model's columns, in any order
model.clf.predict(new.X)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import pandas as pd

from dwac.encoders import TabularEncoder
from dwac.errors import InputError
from dwac.reading.datasets import Streamed, is_dataset, read_dataset
from dwac.reading.files import PICTURES, read_pictures, read_sentences
from dwac.reading.model import Estimator, Model, load
from dwac.reading.roles import arrange, arrange_like, looks_like_text
from dwac.reading.rows import Columns, Rows
from dwac.reading.tables import read_table
from dwac.reading.targets import MARK, TASKS, known, understand

__all__ = [
    "FORMATS",
    "MARK",
    "TASKS",
    "Columns",
    "Estimator",
    "Model",
    "Rows",
    "Streamed",
    "columns_of",
    "is_dataset",
    "load",
    "looks_like_text",
    "read",
    "read_dataset",
]

FORMATS = ("csv", "tsv", "jsonl", "parquet", "text", "image")
_SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_SUFFIXES |= {".parquet": "parquet", ".pq": "parquet", ".txt": "text", **dict.fromkeys(PICTURES, "image")}


def read(
    source: str | PathLike[str],
    *,
    target: str | Sequence[str] | None = None,
    text: str | None = None,
    ids: str | None = None,
    like: Model | None = None,
    labelled: bool | None = None,
    form: str | None = None,
    encoding: str = "utf-8",
    task: str | None = None,
    order: Sequence[str] = (),
) -> Rows:
    """Read a table (CSV, TSV, JSON Lines, Parquet), a folder with one folder of images per class, or a file of texts.

    Args:
        source: a file, a folder, or "-" for standard input.
        target: the column with the target, or several columns: of 0 and 1 for several labels, or of numbers.
        text: the column with the text to predict from; found automatically if it is the only one.
        ids: the column with the ids of the rows; otherwise rows are numbered from 0.
        like: the model that will predict: read its columns, in their types. Cells of other types, and missing texts,
            stay as they are: the model reports which rows it cannot read.
        labelled: whether labels are required; by default only for training (without `like`).
        form: one of FORMATS; by default found from the file name, or else from the data.
        encoding: encoding of text files.
        task: without `like`, what the target is: one of TASKS; by default judged from its values (`Rows.task`).
        order: labels from the lowest to the highest, for ordered labels that are not numbers.
    """
    if form is not None and form not in FORMATS:
        raise InputError(f"unknown format {form!r}; choose {', '.join(FORMATS)}")
    labelled = like is None if labelled is None else labelled
    path, piped = Path(source), fspath(source) == "-"
    if not piped and path.is_dir():
        return _finished(read_pictures(path, labelled=labelled), like, str(source), task, order)
    name, data = _bytes(source)
    form = form or _SUFFIXES.get(path.suffix.lower()) or _sniffed(data, like)
    if form == "image":
        return _finished(_picture(data if piped else str(source), name, labelled), like, name, task, order)
    if form == "text" and not (target or text or ids):
        classes = () if like is None else {str(label) for label in like.clf.target_.names.tolist()}
        rows = read_sentences(data, name, encoding=encoding, labelled=labelled, classes=classes)
        return _finished(rows, like, name, task, order)
    form = "csv" if form == "text" else form  # columns were named, so this is a table with an unusual file name
    asked = columns_of(target, text, ids)
    table = read_table(
        data,
        name,
        form,
        encoding=encoding,
        texts=_worded(asked, like),
        lists=asked.targets,
        nested=like is not None,
    )
    if like is None:
        return arrange(table, name, asked, labelled=labelled, task=task, order=order)
    if like.kind != "text":
        _refuse_other("tabular", like, name)
    return arrange_like(like.clf, table, name, asked, like.columns, labelled=labelled)


def columns_of(target: str | Sequence[str] | None, text: str | None = None, ids: str | None = None) -> Columns:
    """The columns that were named."""
    return Columns(_one_or_several(target), text, ids)


def _one_or_several(target: str | Sequence[str] | None) -> str | tuple[str, ...] | None:
    """Names of columns, each once; a single one is itself."""
    names = () if target is None else (target,) if isinstance(target, str) else tuple(dict.fromkeys(target))
    return names if len(names) > 1 else names[0] if names else None


def _worded(asked: Columns, like: Model | None) -> set[str]:
    """Columns of a table that stay as text: target, text and ids, and a model's categories."""
    worded: set[Any] = {*asked.named} if like is None else {*asked.named, *like.columns.named}
    if like is not None and isinstance(like.clf.encoder_, TabularEncoder):
        learned = {column.name: column.kind == "categorical" for column in like.clf.encoder_.columns}
        worded = (worded - set(learned)) | {name for name, category in learned.items() if category}
    return {name for name in worded if isinstance(name, str)}


def _bytes(source: str | PathLike[str]) -> tuple[str, bytes]:
    """The name of a source, for messages, and its bytes."""
    if fspath(source) == "-":
        return "standard input", sys.stdin.buffer.read()
    try:
        return str(source), Path(source).read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no file or folder {str(source)!r}; check the path") from None
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror or error}") from None


def _sniffed(data: bytes, like: Model | None) -> str:
    """The format, judged from the data."""
    if data[:4] == b"PAR1":
        return "parquet"
    if like is not None and like.kind == "image":
        return "image"
    start = data[: 2**16].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] == b"{":
        return "jsonl"
    if like is not None and like.kind == "text":
        head = re.split(r"[,\t;|\r\n]", start.partition(b"\n")[0].decode(errors="replace").replace('"', ""))
        return "csv" if like.columns.text in head else "text"
    return "csv"


def _picture(picture: str | bytes, name: str, labelled: bool) -> Rows:
    if labelled:
        raise InputError(f"labels are required; {name} is one image; give a folder with one folder of images per class")
    return Rows([picture], None, [name], "image", where=lambda _: name)


def _finished(rows: Rows, like: Model | None, name: str, task: str | None, order: Sequence[str]) -> Rows:
    """Rows of images or texts, with a target as it would be in a table, or is in the model."""
    if like is not None:
        _refuse_other(rows.kind, like, name)
    if rows.y is None:
        return rows
    given = pd.DataFrame({"label": rows.y})
    if like is None:
        return rows.aimed(*understand(given, ["label"], rows.where, task, order))
    return rows.aimed(known(given, ["label"], rows.where, like.clf.target_), like.task)


def _refuse_other(kind: str, like: Model, name: str) -> None:
    """Raise an error for data of another kind than the model reads."""
    what = {"tabular": "a table", "image": "images", "text": "texts"}
    if kind != like.kind:
        hint = {"tabular": "a CSV, Parquet or JSON Lines file", "image": "an image file or a folder of images"}
        raise InputError(
            f"the model reads {what[like.kind]}; {name} holds {what[kind]}; "
            f"give {hint.get(like.kind, 'a file with one text per line, or a table with a column of texts')}"
        )
