"""`dwac train`: from a file or folder to a model folder, showing how the data was understood."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from dwac import training
from dwac._checks import listed
from dwac.cli.options import (
    DeviceOption,
    EncodingOption,
    EpsilonOption,
    FormatOption,
    IdOption,
    JsonOption,
    TargetOption,
    TextOption,
)
from dwac.cli.output import agreement_line, evaluation_tables, number, print_json, refuse_occupied
from dwac.encoders import TabularEncoder
from dwac.errors import InputError, LabelError
from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.evaluation import Evaluation, evaluate, predict
from dwac.reading import Model, Rows, looks_like_text, read

_KINDS = {"numeric": "numbers", "categorical": "categories", "boolean": "true or false", "datetime": "dates"}
_UNUSED = "not used"  # columns that are constant, or differ in every row
_MANY, _FEW_EACH = 50, 10  # more distinct numbers than this, with fewer rows each, are amounts rather than classes


def _voters(value: str) -> str:
    if value in ("all", "auto") or (value.isdecimal() and int(value) > 0):
        return value
    raise typer.BadParameter(f"must be all, auto or a whole number of at least 1; got {value!r}")


def train(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A CSV, TSV, JSON Lines or Parquet file; a folder of images with one folder per class, "
            "FOLDER/CLASS/*.png; a text file with one label, tab and text per line; or - for standard input.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="The model folder to write.")],
    target: TargetOption = None,
    text: TextOption = None,
    ids: IdOption = None,
    test_size: Annotated[
        float, typer.Option(min=0, help="Hold out this share (or number) of rows, and test the model on them.")
    ] = 0,
    epsilon: EpsilonOption = 0.05,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of epochs; by default depends on the data.")
    ] = None,
    ensemble_size: Annotated[
        int | None,
        typer.Option(min=1, help="Number of networks that vote together: more are more accurate and slower."),
    ] = None,
    voters: Annotated[
        str,
        typer.Option(
            metavar="all|auto|N",
            callback=_voters,
            help="Who votes: all training rows; N of them, each with the votes of the rows like it; or auto: all up "
            "to 20,000, beyond that as few as validation rows allow. Few make a small and fast model.",
        ),
    ] = "all",
    cross_fit: Annotated[
        bool | None,
        typer.Option(
            help="Cross-fit a small table: every row trains, votes and calibrates. By default below 4,000 rows, "
            "unless an option says how to train.",
            show_default=False,
        ),
    ] = None,
    class_conditional: Annotated[
        bool,
        typer.Option(
            "--class-conditional", help="Calibrate each class separately: sets keep their promise in every class."
        ),
    ] = False,
    encoder: Annotated[
        str, typer.Option(help="auto, or for example tabular:paper, image:resnet18, huggingface:FOLDER.")
    ] = "auto",
    seed: Annotated[int, typer.Option("--seed", "--random-state", min=0, max=2**32 - 1, help="Random seed.")] = 0,
    private: Annotated[
        bool, typer.Option("--private", help="Store no training examples; the model then gives rounded answers only.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model in FOLDER.")] = False,
    device: DeviceOption = "auto",
    form: FormatOption = None,
    encoding: EncodingOption = "utf-8",
    json: JsonOption = False,
) -> None:
    """Train a model on your data.

    Examples:

    dwac train people.csv --target income -o model/ --test-size 0.2

    dwac train photos/ -o model/     # photos/cat/1.png, photos/dog/7.jpg, …

    dwac train reviews.txt -o model/     # label, tab, text

    dwac train people.csv --target income -o model/ --voters auto     # few rows vote for all, if there are many
    """
    console = Console(quiet=json)
    refuse_occupied(output, overwrite=overwrite)
    rows = read(data, target=target, text=text, ids=ids, form=form, encoding=encoding)
    y = _checked_labels(rows, data)
    kinds = _kinds(rows)
    show_rows(rows, y, data, kinds, console)
    parts = _held_out(y, test_size, seed)
    kept, held = rows.take(parts[0]), rows.take(parts[1])
    clf = DWACClassifier(
        rows.kind if encoder == "auto" else encoder,
        epochs=epochs,
        ensemble_size=ensemble_size,
        voters=int(voters) if voters.isdecimal() else voters,
        cross_fit="auto" if cross_fit is None else cross_fit,
        class_conditional=class_conditional,
        device=device,
        random_state=seed,
    )
    start = time.perf_counter()
    _fit(clf, kept)
    seconds = time.perf_counter() - start
    test = evaluate(predict(clf, held.X), held.y, epsilon) if len(held) else None
    Model(clf, rows.columns).save(output, include_examples=not private)
    show_training(clf, seconds, test, kept.take(_validation(clf, kept)), output, console)
    if json:
        print_json(summary(rows, y, kinds, clf, seconds, test, output))


def _checked_labels(rows: Rows, name: str) -> NDArray[Any]:
    """The labels, if they are classes; otherwise an error in terms of the file."""
    assert rows.y is not None
    of, counts = _of(rows), pd.Series(rows.y).value_counts()
    if len(counts) == 1:
        raise LabelError(f"{name}: {of} has only one class, {rows.y.tolist()[0]!r}; a classifier needs at least two")
    if rows.y.dtype.kind in "iuf" and not (rows.y == np.round(rows.y)).all():
        what = f"numbers such as {rows.y[rows.y != np.round(rows.y)][0]:g}"
    elif rows.y.dtype.kind in "iuf" and len(counts) > _MANY and len(rows) < _FEW_EACH * len(counts):
        what = f"{len(counts):,} different numbers in {len(rows):,} rows"
    elif len(rows) < 2 * len(counts):
        what = f"{len(counts):,} different values in {len(rows):,} rows"
    else:
        return rows.y
    raise LabelError(
        f"{name}: {of} must hold classes; got {what}; turn amounts into classes first, such as low and high"
    )


def _of(rows: Rows) -> str:
    return f"the target {rows.columns.target!r}" if rows.columns.target else "the label"


def _held_out(y: NDArray[Any], size: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(training rows, test rows), drawn at random; every class keeps at least one training row."""
    n = round(size * len(y)) if size < 1 else int(size)
    order = np.random.RandomState(seed).permutation(len(y))
    test = order[pd.Series(y[order]).duplicated().to_numpy()][:n]
    if len(y) - len(test) < max(10, len(y) // 20):
        raise InputError(
            f"--test-size {size:g} leaves {len(y) - len(test)} of {len(y)} rows for training; hold out fewer"
        )
    return np.setdiff1d(order, test), np.sort(test)


def _fit(clf: DWACClassifier, rows: Rows) -> None:
    """Train. After Ctrl-C nothing is written, although the library would keep the unfinished model."""
    log = logging.getLogger(training.__name__)
    log.setLevel(logging.ERROR)
    try:
        clf.fit(rows.X, rows.y, ids=rows.ids)
    finally:
        log.setLevel(logging.NOTSET)
    if clf.history_.attrs["ended"] == "interrupted":
        raise KeyboardInterrupt


def _validation(clf: DWACClassifier, rows: Rows) -> NDArray[np.int64]:
    """Which rows were used for early stopping."""
    return np.flatnonzero(pd.Index(rows.ids).isin(clf.validation_ids_))


# What users see


def _kinds(rows: Rows) -> dict[str, list[str]]:
    """The columns of a table, by how the model treats them."""
    found: dict[str, list[str]] = {}
    if rows.kind == "tabular":
        for column in TabularEncoder().fit(rows.X).columns:
            used = column.categories or column.gaps or any(column.scales)
            found.setdefault(_KINDS[column.kind] if used else _UNUSED, []).append(str(column.name))
    return found


def show_rows(rows: Rows, y: NDArray[Any], name: str, kinds: dict[str, list[str]], console: Console) -> None:
    """Print how the data was understood."""
    facts = Table.grid(padding=(0, 2))
    what = {"tabular": "rows", "image": "images", "text": "texts"}[rows.kind]
    facts.add_row("data", f"{name}: {len(rows):,} {what}")
    if rows.columns.text is not None:
        facts.add_row("text", rows.columns.text)
    if rows.columns.target is not None:
        facts.add_row("target", rows.columns.target)
    if rows.columns.id is not None:
        facts.add_row("ids", rows.columns.id or "the first column, which has no name")
    for kind, columns in kinds.items():
        facts.add_row(kind, listed(columns, 8, str))
    counts = pd.Series(y).value_counts()
    facts.add_row("classes", listed((f"{label}: {n:,} ({n / len(y):.0%})" for label, n in counts.items()), 8, str))
    console.print(facts, highlight=False)
    for column in kinds.get("categories", []) + kinds.get(_UNUSED, []):
        if looks_like_text(rows.X[column]):
            hint = f"note: {column!r} looks like text; --text {column} would classify by this column alone"
            console.print(hint, style="yellow", highlight=False, soft_wrap=True)


def show_training(
    clf: DWACClassifier, seconds: float, test: Evaluation | None, validation: Rows, output: Path, console: Console
) -> None:
    """Print how training went and how good the model is."""
    console.print(f"trained {_how(clf, seconds)}", highlight=False, soft_wrap=True)
    if clf.references_.weighted:
        console.print(agreement_line(clf), highlight=False, soft_wrap=True)
    if len(clf.calibration_ids_):
        console.print(f"prediction sets from {clf.expected_sets(0.05)}", highlight=False, soft_wrap=True)
    if test is not None:
        console.print(*evaluation_tables(test, f"On {test.n:,} held-out rows"))
    elif len(validation):
        accuracy = number(clf.score(validation.X, validation.y))
        console.print(
            f"accuracy on validation rows: {accuracy}; for a fair estimate, hold out rows with --test-size 0.2",
            highlight=False,
        )
    console.print(f"written: {output}", highlight=False, soft_wrap=True)


def _how(clf: DWACClassifier, seconds: float) -> str:
    if clf.cross_fitted_:
        text = f"{clf.model_.ensemble_size} networks in {seconds:.0f} s, each without a fifth of the rows: "
        text += f"{_who_votes(clf)} and calibrate"
        judged = clf.out_of_fold_
        if judged is None:
            return text
        right = judged.argmax(axis=1) == clf.references_.labels.cpu().numpy()
        return f"{text}; accuracy {number(right.mean())}, each judged by those that left it out"
    return (
        f"{len(clf.history_)} epochs in {seconds:.0f} s: {_who_votes(clf)}, {len(clf.validation_ids_):,} for early "
        f"stopping, {len(clf.calibration_ids_):,} for calibration"
    )


def _who_votes(clf: DWACClassifier) -> str:
    n = len(clf.references_)
    if not clf.references_.weighted:
        return f"{n:,} rows vote"
    return f"{n:,} representatives vote for {clf.references_.sizes.sum():,.0f} rows"


def summary(
    rows: Rows,
    y: NDArray[Any],
    kinds: dict[str, list[str]],
    clf: DWACClassifier,
    seconds: float,
    test: Evaluation | None,
    output: Path,
) -> dict[str, Any]:
    """The same as JSON."""
    counts = pd.Series(y).value_counts()
    return {
        "model": str(output),
        "kind": rows.kind,
        "rows": len(rows),
        "target": rows.columns.target,
        "text": rows.columns.text,
        "id": rows.columns.id,
        "columns": kinds,
        "classes": {str(label): int(n) for label, n in counts.items()},
        "epochs": len(clf.history_),
        "seconds": seconds,
        "voters": len(clf.references_),
        "examples": round(float(clf.references_.sizes.sum())),
        "agreement": None if clf.agreement_ is None else clf.agreement_._asdict(),
        "validation": len(clf.validation_ids_),
        "calibration": len(clf.calibration_ids_),
        "cross_fitted": clf.cross_fitted_,
        "expected_sets": asdict(clf.expected_sets(0.05)) if len(clf.calibration_ids_) else None,
        "test": None if test is None else test.to_dict(),
    }
