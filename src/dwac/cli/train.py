"""`dwac train`: from a file or folder to a model folder, showing how the data was understood."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console

from dwac import training
from dwac.cli import batches, tasks, unreadable
from dwac.cli.described import (
    columns_of_table,
    left_aside,
    show_rows,
    show_training,
    show_warnings,
    summary,
)
from dwac.cli.early import kinds_of
from dwac.cli.options import told
from dwac.cli.output import print_json, print_notes, progress_printed, refuse_occupied
from dwac.errors import InputError
from dwac.estimator.evaluation import evaluate, predict
from dwac.estimator.settings import SMALL_TABLE
from dwac.estimator.streams import Stream
from dwac.nn.ranks import is_first, processes_joined
from dwac.reading import Estimator, Model, Rows, columns_of, is_dataset, read, read_dataset

_NUMBERED = (
    "--shards without --id: rows go by row numbers, which shift when one is taken out of the file; give --id COLUMN"
)


def train(
    *,
    data: str,
    output: Path,
    target: list[str] | None,
    task: str | None,
    order: str | None,
    text: str | None,
    ids: str | None,
    groups: str | None,
    ignore: list[str] | None,
    kind: list[str] | None,
    unlabelled: str,
    test_size: float,
    epsilon: float,
    epochs: int | None,
    ensemble_size: int | None,
    shards: int | None,
    voters: str | None,
    cross_fit: bool | None,
    class_conditional: bool,
    class_weight: list[str] | None,
    fast: bool,
    encoder: str,
    unknown: str | None,
    seed: int,
    private: bool,
    overwrite: bool,
    device: str,
    form: str | None,
    encoding: str,
    separator: str | None,
    decimal: str | None,
    day_first: bool | None,
    sheet: str | None,
    json: bool,
    checkpoint: Path | None,
) -> None:
    """The work of `dwac train`; for its options see `dwac.cli.commands.train`."""
    if data == "-" and processes_joined():
        raise InputError("processes need a file that each can read; got standard input; save it to a file")
    console = Console(quiet=json or not is_first())
    refuse_occupied(output, overwrite=overwrite)
    ranks = [label for label in (order or "").split(",") if label.strip()]
    chosen: dict[str, Any] = {"task": task, "order": ranks, "ignore": ignore or [], "kinds": kinds_of(kind)}
    written = told(separator, decimal, day_first)
    streamed = None
    if is_dataset(data, form):
        day = None if day_first is None else "day-first" if day_first else "month-first"
        _refuse_for_batches(
            unlabelled,
            kind=kind,
            sheet=sheet,
            decimal=decimal,
            separator=separator,
            groups=groups,
            **({day: True} if day else {}),
        )
        asked = columns_of(target, text, ids)
        del chosen["kinds"]
        streamed = read_dataset(data, asked, test_size=test_size, seed=seed, **chosen)
        rows = streamed.rows
    else:
        chosen |= {"told": written, "sheet": sheet, "unlabelled": unlabelled, "form": form, "encoding": encoding}
        rows = read(data, target=target, text=text, ids=ids, groups=groups, **chosen)
    tasks.check(rows, data)
    name = rows.kind if encoder == "auto" else encoder
    quick = tasks.quick(rows, len(rows) if streamed is None else streamed.stream.n, name) if fast else {}
    if shards is not None:
        quick.pop("ensemble_size", None)  # each shard has one network
    clf = tasks.estimator(
        str(rows.task),
        name,
        **quick
        | _given(epochs=epochs, ensemble_size=ensemble_size, shards=shards)
        | {
            "voters": int(voters) if voters is not None and voters.isdecimal() else voters,
            "cross_fit": "auto" if cross_fit is None else cross_fit,
            "class_conditional": class_conditional,
            "class_weight": tasks.class_weight(class_weight or [], rows),
            "unknown": unknown or "atypical",
            "device": device,
            "random_state": seed,
            "checkpoint": _checkpoint(rows, output, checkpoint),
        }
        | ({} if streamed is None else batches.settings_of(rows)),
    )
    with unreadable.located(rows):
        kinds, aside, notes = columns_of_table(rows)
    rows = replace(rows, notes=(*rows.notes, *notes))
    aside = left_aside(rows, aside)
    if streamed is None:
        show_rows(rows, data, kinds, aside, console)
        parts = _held_out(rows, test_size, seed)
        kept, held = rows.take(parts[0]), rows.take(parts[1])
    else:
        batches.show_dataset(streamed, data, kinds, aside, console)
        kept, held = streamed.test, streamed.test
    if is_first():
        numbered = shards is not None and ids is None and rows.kind != "image"  # images go by their paths
        print_notes([*rows.notes, *([_NUMBERED] if numbered else [])])
        show_warnings(kept if streamed is None else rows)
    if fast and not json:
        console.print(tasks.quick_line(quick), highlight=False, soft_wrap=True)
    start = time.perf_counter()
    with progress_printed("Ctrl-C stops" if fast else "Ctrl-C stops, --fast is quicker"):
        _fit(clf, kept if streamed is None else streamed.stream)
    if not is_first():
        return  # the first of several processes evaluates and writes
    seconds = time.perf_counter() - start
    Model(clf, rows.columns, rows.notation).save(output, include_examples=not private, overwrite=overwrite)
    held = held if streamed is None else batches.judged(clf, held)
    test = evaluate(predict(clf, held.X), held.y, epsilon) if len(held) else None
    validation = kept.take(_validation(clf, kept)) if streamed is None else batches.nobody(rows)
    if streamed is not None:
        batches.show_reading(clf, console)
    show_training(clf, seconds, test, validation, output, console)
    if json:
        found = summary(rows, kinds, aside, clf, seconds, test, output)
        print_json(found if streamed is None else found | batches.summary(streamed, clf))


def _given(**settings: Any) -> dict[str, Any]:
    """Settings that were given."""
    return {name: value for name, value in settings.items() if value is not None}


def _refuse_for_batches(unlabelled: str, **options: Any) -> None:
    """Refuse options of files that are read as a whole."""
    given = [f"--{name}" for name, value in options.items() if value]
    given += ["--unlabelled drop"] if unlabelled == "drop" else []
    if given:
        raise InputError(
            f"{given[0]} is for files that are read as a whole; Parquet that is read in batches has types of its own; "
            "leave it out, and write the files as they should be read"
        )


def _checkpoint(rows: Rows, output: Path, asked: Path | None) -> Path | None:
    """The file to resume from. Several processes have one by default: the more there are, the sooner one is lost.

    A small table is trained in seconds; it may be cross-fitted, which has no checkpoint.
    """
    if asked is not None or not processes_joined() or (rows.kind == "tabular" and len(rows) < SMALL_TABLE):
        return asked
    path = _default_checkpoint(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _default_checkpoint(output: Path) -> Path:
    """Beside the folder, which is not there before it is complete."""
    return output.absolute().with_name(f"{output.absolute().name}.checkpoint")


def _held_out(rows: Rows, size: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(training rows, test rows), drawn at random; classes keep one training row, or groups stay whole."""
    n, asked = len(rows), size
    wanted = round(asked * n) if asked < 1 else int(asked)
    if rows.groups is None:
        order = np.random.RandomState(seed).permutation(n)
        test = order[~tasks.unique_rows(rows.take(order))][:wanted]
    else:
        codes, found = pd.factorize(pd.Series(rows.groups, dtype=object))
        place = np.random.RandomState(seed).permutation(len(found))[codes]
        order, test = np.arange(n), np.flatnonzero(place < round(wanted / n * len(found)))
    if n - len(test) < max(10, n // 20):
        raise InputError(f"--test-size {size:g} leaves {n - len(test)} of {n} rows for training; hold out fewer")
    return np.setdiff1d(order, test), np.sort(test)


def _fit(clf: Estimator, rows: Rows | Stream) -> None:
    """Train. After Ctrl-C nothing is written, although the library would keep the unfinished model."""
    log = logging.getLogger(training.__name__)
    log.setLevel(logging.ERROR)
    try:
        if isinstance(rows, Rows):
            with unreadable.located(rows):
                clf.fit(rows.X, rows.y, groups=rows.groups, ids=rows.ids)
        else:
            clf.fit(rows)
    finally:
        log.setLevel(logging.NOTSET)
    if clf.history_.attrs["ended"] == "interrupted":
        raise KeyboardInterrupt


def _validation(clf: Estimator, rows: Rows) -> NDArray[np.int64]:
    """Which rows were used for early stopping."""
    return np.flatnonzero(pd.Index(rows.ids).isin(clf.validation_ids_))
