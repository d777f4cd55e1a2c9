"""Read a file, a folder or standard input as rows for a model: tables, images or texts. Internal.

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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dwac.errors import InputError
from dwac.reading import excel
from dwac.reading.batches import worded_columns
from dwac.reading.datasets import Streamed, is_dataset, read_dataset
from dwac.reading.files import PICTURES, read_pictures, read_sentences
from dwac.reading.layouts import SUFFIXES, decompressed, plain_name, suffix_of
from dwac.reading.notation import COMMA, KINDS, Notation, notation, understood
from dwac.reading.parsing import Wanted
from dwac.reading.roles import Reading, arrange, arrange_like, check_columns, looks_like_text
from dwac.reading.rows import Columns, Estimator, Model, Rows, load
from dwac.reading.tables import NO_MARKS, Marks, Table, read_table
from dwac.reading.targets import MARK, TASKS, known, understand

__all__ = [
    "FORMATS",
    "KINDS",
    "MARK",
    "TASKS",
    "UNLABELLED",
    "Columns",
    "Estimator",
    "Model",
    "Notation",
    "Rows",
    "Streamed",
    "columns_of",
    "is_dataset",
    "load",
    "looks_like_text",
    "notation",
    "read",
    "read_dataset",
]

FORMATS = ("csv", "tsv", "jsonl", "parquet", "excel", "text", "image")
UNLABELLED = ("refuse", "drop")
_SUFFIXES = SUFFIXES | dict.fromkeys((*excel.SUFFIXES, ".xls"), "excel")
_SUFFIXES |= {".txt": "text", **dict.fromkeys(PICTURES, "image")}


def read(
    source: str | PathLike[str],
    *,
    target: str | Sequence[str] | None = None,
    text: str | None = None,
    ids: str | None = None,
    groups: str | None = None,
    like: Model | None = None,
    labelled: bool | None = None,
    form: str | None = None,
    encoding: str = "utf-8",
    task: str | None = None,
    order: Sequence[str] = (),
    told: Notation | None = None,
    sheet: str | None = None,
    ignore: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    unlabelled: str = "refuse",
) -> Rows:
    """Read a table, a folder with one folder of images per class, or a file of texts.

    Tables are CSV, TSV, JSON Lines, Parquet and Excel. Each of them, and a file of texts, may be compressed.

    Args:
        source: a file, a folder, or "-" for standard input.
        target: the column with the target, or several columns: of 0 and 1 for several labels, or of numbers.
        text: the column with the text to predict from; found automatically if it is the only one.
        ids: the column with the ids of the rows; otherwise rows are numbered from 0.
        groups: without `like`, the column that says which rows belong together (`Rows.groups`); not a feature.
        like: the model that will predict: read its columns, in their types. Cells of other types, and missing texts,
            stay as they are: the model reports which rows it cannot read.
        labelled: whether labels are required; by default only for training (without `like`).
        form: one of FORMATS; by default inferred from the file name, or else from the data.
        encoding: encoding of text files.
        task: without `like`, what the target is: one of TASKS; by default inferred from its values (`Rows.task`).
        order: labels from the lowest to the highest, for ordered labels that are not numbers.
        told: how the table is written, as far as given; it overrides what the model learned.
        sheet: the sheet of a workbook; by default the first.
        ignore: without `like`, columns that are not used as features.
        kinds: without `like`, the types of columns that dwac would infer wrongly: one of KINDS for each.
        unlabelled: how to treat rows without a target if one is required: "refuse" or "drop".
    """
    if form is not None and form not in FORMATS:
        raise InputError(f"unknown format {form!r}; choose {', '.join(FORMATS)}")
    if unlabelled not in UNLABELLED:
        raise InputError(f"unlabelled must be {' or '.join(UNLABELLED)}; got {unlabelled!r}")
    for column, kind in (kinds or {}).items():
        if kind not in KINDS:
            raise InputError(f"the kind of {column!r} must be {', '.join(KINDS[:-1])} or {KINDS[-1]}; got {kind!r}")
    labelled = like is None if labelled is None else labelled
    path, piped = Path(source), fspath(source) == "-"
    tabular: dict[str, Any] = {"--ignore": ignore, "--kind": kinds, "--sheet": sheet, "--groups": groups}
    if not piped and path.is_dir():
        _refuse_options(tabular, str(source), "a folder of images")
        return _finished(read_pictures(path, labelled=labelled), like, str(source), task, order)
    name, data = _bytes(source)
    inside, data = decompressed(data, name)
    form = form or _SUFFIXES.get(suffix_of(plain_name(inside))) or _sniffed(data, like)
    if form == "image":
        _refuse_options(tabular, name, "an image")
        return _finished(_picture(data if piped else str(source), name, labelled), like, name, task, order)
    if form == "text" and not (target or text or ids or groups):
        _refuse_options(tabular, name, "a file of texts")
        classes = () if like is None else {str(label) for label in like.clf.target_.names.tolist()}
        rows = read_sentences(data, name, encoding=encoding, labelled=labelled, classes=classes)
        return _finished(rows, like, name, task, order)
    form = "csv" if form == "text" else form  # columns were named, so this is a table with an unusual file name
    if sheet is not None and form != "excel":
        raise InputError(f"--sheet is for Excel workbooks; {name} is read as {form}; leave it out")
    asked = replace(columns_of(target, text, ids), groups=groups)
    said = told or Notation()
    told = said.over(Notation() if like is None else like.notation)
    sure = like is None or said.decimal is not None
    if like is None:
        categories = {column for column, kind in (kinds or {}).items() if kind == "categories"}
        wanted = Wanted(frozenset({*asked.named, *categories}), codes=True)
    else:
        wanted = worded_columns(like, asked, numbers=not sure and told.decimal == COMMA)
    marks, notes = NO_MARKS, list[str]()
    if form == "excel":
        table, notes = excel.read_workbook(data, name, sheet, wanted.texts)
    else:
        lists = asked.targets if like is None else None
        separator = told.separator if form == "csv" else None
        table, marks = read_table(
            data, name, form, wanted, encoding=encoding, lists=lists, separator=separator, decimal=told.decimal
        )
    drop = unlabelled == "drop"
    with excel.explained_by(notes):
        if like is None:
            check_columns(table.frame, name, asked, (*ignore, *(kinds or {})))
            frame, told, more = _understood(form, table, marks, told, {*asked.named, *ignore}, kinds or {})
            options: dict[str, Any] = {"task": task, "order": order, "ignore": ignore, "drop": drop}
            rows = arrange(Table(frame, table.where), name, asked, labelled=labelled, notation=told, **options)
            return _with_texts(replace(rows, notation=told, notes=(*notes, *more, *rows.notes)), name)
        if like.kind != "text":
            _refuse_other("tabular", like, name)
        how = Reading(told, judge=form != "parquet", marks=marks, sure=sure)
        rows = arrange_like(like.clf, table, name, asked, like.columns, labelled=labelled, how=how, drop=drop)
        return replace(rows, notation=told, notes=(*notes, *rows.notes))


def _refuse_options(options: Mapping[str, Any], name: str, what: str) -> None:
    """Raise an error for table options given with other data."""
    given = [option for option, value in options.items() if value]
    if given:
        raise InputError(f"{given[0]} is for tables; {name} is {what}; leave it out")


def _understood(
    form: str, table: Table, marks: Marks, told: Notation, leave: set[str], kinds: Mapping[str, str]
) -> tuple[pd.DataFrame, Notation, list[str]]:
    """(a table for training, how it was written, notes); Parquet has its own types."""
    frame, where = table
    if form == "parquet" and not kinds:
        return frame, told, []
    numbers = [str(name) for name in frame.columns if marks.commas and frame[name].dtype.kind == "f"]
    leave = leave - set(kinds) if form != "parquet" else {*map(str, frame.columns)} - set(kinds)
    return understood(
        frame,
        told,
        leave=leave,
        kinds=kinds,
        semicolons=marks.separator == ";" or marks.commas,
        where=where,
        known=dict.fromkeys(numbers, ","),
    )


def columns_of(target: str | Sequence[str] | None, text: str | None = None, ids: str | None = None) -> Columns:
    """The columns named by the caller."""
    return Columns(_one_or_several(target), text, ids)


def _one_or_several(target: str | Sequence[str] | None) -> str | tuple[str, ...] | None:
    """Column names without duplicates; a single name stays a string."""
    names = () if target is None else (target,) if isinstance(target, str) else tuple(dict.fromkeys(target))
    return names if len(names) > 1 else names[0] if names else None


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
    """The format, inferred from the data."""
    if data[:4] == b"PAR1":
        return "parquet"
    if excel.is_workbook(data):
        return "excel"
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
    """Rows of images or texts, with the target in the form of a table's, or of the model's."""
    if like is not None:
        _refuse_other(rows.kind, like, name)
    elif rows.kind == "text":
        rows = _with_texts(rows, name)
    if rows.y is None:
        return rows
    given = pd.DataFrame({"label": rows.y})
    if like is None:
        return rows.aimed(*understand(given, ["label"], rows.where, task, order))
    return rows.aimed(known(given, ["label"], rows.where, like.clf.target_), like.task)


def _with_texts(rows: Rows, name: str) -> Rows:
    """Rows to train on, without those whose text is empty; a note counts them."""
    blank = [row for row, text in enumerate(rows.X) if rows.kind == "text" and not text.strip()]
    if not blank:
        return rows
    if len(blank) == len(rows):
        raise InputError(f"{name}: every text is empty; name the column of the texts with --text COLUMN")
    verb = "is" if len(blank) == 1 else "are"
    note = f"{len(blank):,} of {len(rows):,} texts {verb} empty and left out; first {rows.where(blank[0])}"
    return replace(rows.take(np.setdiff1d(np.arange(len(rows)), blank)), notes=(*rows.notes, note))


def _refuse_other(kind: str, like: Model, name: str) -> None:
    """Raise an error for data of a kind that the model does not read."""
    what = {"tabular": "a table", "image": "images", "text": "texts"}
    if kind != like.kind:
        hint = {"tabular": "a CSV, Parquet or JSON Lines file", "image": "an image file or a folder of images"}
        raise InputError(
            f"the model reads {what[like.kind]}; {name} holds {what[kind]}; "
            f"give {hint.get(like.kind, 'a file with one text per line, or a table with a column of texts')}"
        )
