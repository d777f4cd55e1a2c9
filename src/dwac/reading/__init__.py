"""Read a file, a folder or standard input as rows for a model: tables, images or texts. Internal.

rows = read("people.csv", target="income")               # .X .y .ids .kind
clf = DWACClassifier().fit(rows.X, rows.y, ids=rows.ids)
Model(clf, rows.columns).save("model")

model = load("model")
new = read("others.csv", like=model)                      # the model's columns, in any order
model.clf.predict(new.X)
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dwac.encoders import pictures
from dwac.errors import InputError, LabelError
from dwac.reading import excel
from dwac.reading.datasets import Streamed, is_dataset, read_dataset
from dwac.reading.features import CellReader, worded_columns
from dwac.reading.notation import COMMA, KINDS, Notation, check_notation, read_columns
from dwac.reading.parsing import Wanted
from dwac.reading.places import SUFFIXES, decompress, plain_name, suffix_of
from dwac.reading.roles import arrange, arrange_like, check_columns, looks_like_text
from dwac.reading.rows import Columns, Estimator, Model, Rows, load
from dwac.reading.tables import NO_MARKS, Marks, Table, decode, read_table
from dwac.reading.targets import MARK, TASKS, read_known_target, read_target

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
    "check_notation",
    "columns_of",
    "is_dataset",
    "load",
    "looks_like_text",
    "read",
    "read_dataset",
]

FORMATS = ("csv", "tsv", "jsonl", "parquet", "excel", "text", "image")
UNLABELLED = ("refuse", "drop")
_SUFFIXES = SUFFIXES | dict.fromkeys((*excel.SUFFIXES, ".xls"), "excel")
_SUFFIXES |= {".txt": "text", **dict.fromkeys(pictures.SUFFIXES, "image")}


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
    notation: Notation | None = None,
    sheet: str | None = None,
    ignore: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    unlabelled: str = "refuse",
    keep: Sequence[str] = (),
    features: bool = True,
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
        notation: how the table is written, as far as given; it overrides what the model learned.
        sheet: the sheet of a workbook; by default the first.
        ignore: without `like`, columns that are not used as features.
        kinds: without `like`, the types of columns that dwac would infer wrongly: one of KINDS for each.
        unlabelled: how to treat rows without a target if one is required: "refuse" or "drop".
        keep: columns of a table that the rows keep (`Rows.kept`), whether or not the model uses them.
        features: with `like`, whether the table must have the columns to predict from; without them X is None.
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
    tabular["--apart" if like is None else "--by"] = keep
    if not piped and path.is_dir():
        _refuse_options(tabular, str(source), "a folder of images")
        return _finish(_read_images(path, labelled=labelled), like, str(source), task, order)
    name, data = _bytes(source)
    inside, data = decompress(data, name)
    form = form or _SUFFIXES.get(suffix_of(plain_name(inside))) or _infer_format(data, like)
    if form == "image":
        _refuse_options(tabular, name, "an image")
        if labelled:
            raise InputError(
                f"labels are required; {name} is one image; give a folder with one folder of images per class"
            )
        rows = Rows([data if piped else str(source)], None, [name], "image", where=lambda _: name)
        return _finish(rows, like, name, task, order)
    if form == "text" and not (target or text or ids or groups):
        _refuse_options(tabular, name, "a file of texts")
        classes = () if like is None else {str(label) for label in like.clf.target_.names.tolist()}
        rows = _read_texts(data, name, encoding=encoding, labelled=labelled, classes=classes)
        return _finish(rows, like, name, task, order)
    form = "csv" if form == "text" else form  # columns were named, so this is a table with an unusual file name
    if sheet is not None and form != "excel":
        raise InputError(f"--sheet is for Excel workbooks; {name} is read as {form}; leave it out")
    columns = replace(columns_of(target, text, ids), groups=groups)
    given = notation or Notation()
    notation = given.over(Notation() if like is None else like.notation)
    sure = like is None or given.decimal is not None
    if like is None:
        categories = {column for column, kind in (kinds or {}).items() if kind == "categories"}
        wanted = Wanted(frozenset({*columns.named, *categories}), codes=True)
    else:
        wanted = worded_columns(like, columns, numbers=not sure and notation.decimal == COMMA)
    marks, notes = NO_MARKS, list[str]()
    if form == "excel":
        table, notes = excel.read_workbook(data, name, sheet, wanted.texts)
    else:
        lists = columns.targets if like is None else None
        separator = notation.separator if form == "csv" else None
        table, marks = read_table(
            data, name, form, wanted, encoding=encoding, lists=lists, separator=separator, decimal=notation.decimal
        )
    drop = unlabelled == "drop"
    with excel.explained_by(notes):
        if like is None:
            check_columns(table.frame, name, columns, (*ignore, *keep, *(kinds or {})))
            leave = {*columns.named, *ignore}
            frame, notation, doubts = _read_columns(form, table, marks, notation, leave, kinds or {})
            rows = arrange(
                Table(frame, table.where),
                name,
                columns,
                labelled=labelled,
                task=task,
                order=order,
                notation=notation,
                ignore=ignore,
                drop=drop,
                keep=keep,
            )
            rows = replace(rows, notation=notation, notes=(*notes, *doubts, *rows.notes))
            return _without_empty_texts(rows, name)
        if like.kind != "text" and features:
            _refuse_other("tabular", like, name)
        cells = CellReader(notation, judge=form != "parquet", marks=marks, sure=sure)
        rows = arrange_like(
            like.clf,
            table,
            name,
            columns,
            like.columns,
            labelled=labelled,
            cells=cells,
            drop=drop,
            keep=keep,
            features=features,
        )
        return replace(rows, notation=notation, notes=(*notes, *rows.notes))


def _refuse_options(options: Mapping[str, Any], name: str, what: str) -> None:
    """Raise an error for table options given with other data."""
    for option, value in options.items():
        if value:
            raise InputError(f"{option} is for tables; {name} is {what}; leave it out")


def _read_columns(
    form: str, table: Table, marks: Marks, notation: Notation, leave: set[str], kinds: Mapping[str, str]
) -> tuple[pd.DataFrame, Notation, list[str]]:
    """(a table for training, how it is written, notes); Parquet has its own types."""
    frame, where = table
    if form == "parquet" and not kinds:
        return frame, notation, []
    numbers = [str(name) for name in frame.columns if marks.commas and frame[name].dtype.kind == "f"]
    return read_columns(
        frame,
        notation,
        leave=(leave if form != "parquet" else {*map(str, frame.columns)}) - set(kinds),
        kinds=kinds,
        semicolons=marks.separator == ";" or marks.commas,
        where=where,
        known=dict.fromkeys(numbers, ","),
    )


def columns_of(target: str | Sequence[str] | None, text: str | None = None, ids: str | None = None) -> Columns:
    """The columns named by the caller; several targets without duplicates."""
    names = () if target is None else (target,) if isinstance(target, str) else tuple(dict.fromkeys(target))
    return Columns(names if len(names) > 1 else names[0] if names else None, text, ids)


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


def _infer_format(data: bytes, like: Model | None) -> str:
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


def _finish(rows: Rows, like: Model | None, name: str, task: str | None, order: Sequence[str]) -> Rows:
    """Rows of images or texts, with the target in the form of a table's, or of the model's."""
    if like is not None:
        _refuse_other(rows.kind, like, name)
    elif rows.kind == "text":
        rows = _without_empty_texts(rows, name)
    if rows.y is None:
        return rows
    labels = pd.DataFrame({"label": rows.y})
    if like is None:
        return rows.with_target(*read_target(labels, ["label"], rows.where, task, order))
    return rows.with_target(read_known_target(labels, ["label"], rows.where, like.clf.target_), like.task)


def _without_empty_texts(rows: Rows, name: str) -> Rows:
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


# Images and texts


def _read_images(folder: Path, *, labelled: bool) -> Rows:
    """The images in folder/CLASS/…; if not `labelled`, all images below the folder. Ids are paths relative to it."""
    names = _image_paths(folder)
    paths = [str(folder / name) for name in names]
    stray = [name for name in names if "/" not in name]
    if labelled and stray:
        raise LabelError(
            f"{folder / stray[0]} is in no class; put every image into the folder of its class, {folder}/CLASS/"
        )
    y = np.array([name.partition("/")[0] for name in names], dtype=object) if labelled else None
    return Rows(paths, y, list(names), "image", where=paths.__getitem__)


def _image_paths(folder: Path) -> list[str]:
    """The image files below a folder, as sorted relative paths with slashes; hidden files are ignored."""
    images, others = [], Counter[str]()
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(name for name in names if not name.startswith(".")):
            if name.lower().endswith(pictures.SUFFIXES):
                images.append(Path(parent, name).relative_to(folder).as_posix())
            else:
                others[Path(name).suffix or name] += 1
    if not images:
        kinds = ", ".join(f"{n} {kind}" for kind, n in others.most_common(3))
        raise InputError(
            f"{folder} must contain images ({', '.join(pictures.SUFFIXES)}); got {kinds or 'no files'}; give a folder "
            "with one folder of images per class, or a file"
        )
    return images


def _read_texts(data: bytes, name: str, *, encoding: str, labelled: bool, classes: Collection[str] = ()) -> Rows:
    """One text per line; its id is its line number, from 0. If `labelled`: label, tab, text. Blank lines are skipped.

    classes: if every line begins with one of these and a tab, they are labels and not part of the texts.
    """
    lines = [
        (number, line.strip("\r"))
        for number, line in enumerate(decode(data, name, encoding).split("\n"), start=1)
        if line.strip()
    ]
    numbers = [number for number, _ in lines]
    parts = [line.partition("\t") for _, line in lines]
    if labelled:
        for number, (label, tab, _) in zip(numbers, parts, strict=True):
            if not (label.strip() and tab):
                raise LabelError(f"{name} line {number} must be a label, a tab and a text; got {label[:40]!r}")
    has_label = labelled or all(tab and label.strip() in classes for label, tab, _ in parts)
    texts = [text.strip() if has_label else line.strip() for (_, line), (_, _, text) in zip(lines, parts, strict=True)]
    y = np.array([label.strip() for label, _, _ in parts], dtype=object) if labelled else None
    return Rows(texts, y, [number - 1 for number in numbers], "text", where=lambda row: f"{name} line {numbers[row]}")
