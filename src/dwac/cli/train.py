"""`dwac train`: from a file or folder to a model folder, showing how the data was understood."""

from __future__ import annotations

import logging
import sys
import time
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
from dwac.cli import batches, tasks
from dwac.cli.app import ARGUMENTS
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
from dwac.cli.output import agreement_line, evaluation_tables, print_json, refuse_occupied
from dwac.encoders import TabularEncoder
from dwac.errors import InputError, ProcessError
from dwac.estimator.evaluation import Evaluated, evaluate, predict
from dwac.estimator.streams import Stream
from dwac.nn.ranks import is_first, processes_joined
from dwac.reading import (
    TASKS,
    Estimator,
    Model,
    Rows,
    columns_of,
    is_dataset,
    looks_like_text,
    read,
    read_dataset,
)
from dwac.training.launch import launch

_KINDS = {"numeric": "numbers", "categorical": "categories", "boolean": "true or false", "datetime": "dates"}
_SMALL = 4_000  # rows
_UNUSED = "not used"  # columns that are constant, or differ in every row


def _voters(value: str | None) -> str | None:
    if value is None or value in ("all", "auto") or (value.isdecimal() and int(value) > 0):
        return value
    raise typer.BadParameter(f"must be all, auto or a whole number of at least 1; got {value!r}")


def _task(value: str | None) -> str | None:
    if value is None or value in TASKS:
        return value
    raise typer.BadParameter(f"must be {', '.join(TASKS[:-1])} or {TASKS[-1]}; got {value!r}")


def train(
    context: typer.Context,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A CSV, TSV, JSON Lines or Parquet file; a folder, a quoted glob or a URL of Parquet files, which are "
            "read in batches and may be larger than memory; a folder of images with one folder per class, "
            "FOLDER/CLASS/*.png; a text file with one label, tab and text per line; or - for standard input.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="The model folder to write.")],
    target: TargetOption = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(TASKS),
            callback=_task,
            help="What the target is: classes, ordered labels, several labels at once, or numbers; by default found "
            "from its values.",
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(metavar="LOW,…,HIGH", help="The order of ordered labels that are texts; needs --task ordered."),
    ] = None,
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
        str | None,
        typer.Option(
            metavar="all|auto|N",
            callback=_voters,
            help="Who votes: all training rows; N of them, each with the votes of the rows like it; or auto: all up "
            "to 20,000, beyond that as few as validation rows allow. Few make a small and fast model. By default all, "
            "or auto if rows are read in batches.",
        ),
    ] = None,
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
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Written after each epoch; the same command resumes from it. With --nproc by default "
            "FOLDER.checkpoint.",
        ),
    ] = None,
    nproc: Annotated[
        int,
        typer.Option(min=1, help="Processes on this machine that train together: one per GPU, or for large networks."),
    ] = 1,
) -> None:
    """Train a model on your data.

    What the target is, is found from its values: fractions, and many different numbers, are numbers to predict; texts
    and few numbers are classes; several target columns of 0 and 1, and lists in JSON Lines, are several labels at once.
    --task says otherwise; --task labels reads cells such as a|b as two labels, and an empty cell as none.

    Examples:

    dwac train people.csv --target income -o model/ --test-size 0.2

    dwac train houses.csv --target price -o model/     # numbers: predictions with intervals

    dwac train songs.csv -t happy -t calm -t sad -o model/     # several labels at once: columns of 0 and 1

    dwac train wine.csv --target quality --task ordered -o model/     # texts: --order low,mid,high

    dwac train photos/ -o model/     # photos/cat/1.png, photos/dog/7.jpg, …

    dwac train reviews.txt -o model/     # label, tab, text

    dwac train people.csv --target income -o model/ --voters auto     # few rows vote for all, if there are many

    dwac train 'rows/*.parquet' --target income -o model/     # larger than memory: read in batches; also s3://…

    dwac train photos/ -o model/ --nproc 2     # two processes, which share every batch; on several machines: torchrun
    """
    if nproc > 1:
        raise typer.Exit(_launch(context.find_root().meta[ARGUMENTS], data, output, nproc, overwrite=overwrite))
    console = Console(quiet=json or not is_first())
    refuse_occupied(output, overwrite=overwrite)
    ranks = [label for label in (order or "").split(",") if label.strip()]
    streamed = None
    if is_dataset(data, form):
        asked = columns_of(target, text, ids)
        streamed = read_dataset(data, asked, task=task, order=ranks, test_size=test_size, seed=seed)
        rows = streamed.rows
    else:
        rows = read(data, target=target, text=text, ids=ids, form=form, encoding=encoding, task=task, order=ranks)
    tasks.check(rows, data)
    clf = tasks.estimator(
        str(rows.task),
        rows.kind if encoder == "auto" else encoder,
        epochs=epochs,
        ensemble_size=ensemble_size,
        voters=int(voters) if voters is not None and voters.isdecimal() else voters,
        cross_fit="auto" if cross_fit is None else cross_fit,
        class_conditional=class_conditional,
        device=device,
        random_state=seed,
        checkpoint=_checkpoint(rows, output, checkpoint),
        **({} if streamed is None else batches.settings_of(rows)),
    )
    kinds = _kinds(rows)
    if streamed is None:
        show_rows(rows, data, kinds, console)
        parts = _held_out(rows, test_size, seed)
        kept, held = rows.take(parts[0]), rows.take(parts[1])
    else:
        batches.show_dataset(streamed, data, kinds, console)
        kept, held = streamed.test, streamed.test
    start = time.perf_counter()
    _fit(clf, kept if streamed is None else streamed.stream)
    if not is_first():
        return  # the first of several processes evaluates and writes
    seconds = time.perf_counter() - start
    Model(clf, rows.columns).save(output, include_examples=not private)
    held = held if streamed is None else batches.judged(clf, held)
    test = evaluate(predict(clf, held.X), held.y, epsilon) if len(held) else None
    validation = kept.take(_validation(clf, kept)) if streamed is None else batches.nobody(rows)
    if streamed is not None:
        batches.show_reading(clf, console)
    show_training(clf, seconds, test, validation, output, console)
    if json:
        found = summary(rows, kinds, clf, seconds, test, output)
        print_json(found if streamed is None else found | batches.summary(streamed, clf))


def _launch(arguments: list[str], data: str, output: Path, n: int, *, overwrite: bool) -> int:
    """Run the same command as n processes; the exit code."""
    if data == "-":
        raise InputError("--nproc needs a file that every process can read; got standard input; save it to a file")
    refuse_occupied(output, overwrite=overwrite)
    place = next((i for i, part in enumerate(arguments) if part == "--nproc" or part.startswith("--nproc=")), None)
    assert arguments[0] == "train"
    assert place is not None
    rest = arguments[1:place] + arguments[place + (1 if "=" in arguments[place] else 2) :]
    try:
        return launch([sys.executable, "-m", training.__name__, *rest], n)
    except ProcessError as error:
        kept = _default_checkpoint(output)
        hint = f"; {kept} holds the finished epochs, and the same command goes on from there" if kept.exists() else ""
        raise ProcessError(f"{error}{hint}") from error


def _checkpoint(rows: Rows, output: Path, asked: Path | None) -> Path | None:
    """The file to resume from. Several processes have one by default: the more there are, the sooner one is lost.

    A small table is trained in seconds; it may be cross-fitted, which has no checkpoint.
    """
    if asked is not None or not processes_joined() or (rows.kind == "tabular" and len(rows) < _SMALL):
        return asked
    path = _default_checkpoint(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _default_checkpoint(output: Path) -> Path:
    """Beside the folder, which is not there before it is complete."""
    return output.absolute().with_name(f"{output.absolute().name}.checkpoint")


def _held_out(rows: Rows, size: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(training rows, test rows), drawn at random; every class keeps at least one training row."""
    n, asked = len(rows), size
    order = np.random.RandomState(seed).permutation(n)
    test = order[~tasks.unique_rows(rows.take(order))][: round(asked * n) if asked < 1 else int(asked)]
    if n - len(test) < max(10, n // 20):
        raise InputError(f"--test-size {size:g} leaves {n - len(test)} of {n} rows for training; hold out fewer")
    return np.setdiff1d(order, test), np.sort(test)


def _fit(clf: Estimator, rows: Rows | Stream) -> None:
    """Train. After Ctrl-C nothing is written, although the library would keep the unfinished model."""
    log = logging.getLogger(training.__name__)
    log.setLevel(logging.ERROR)
    try:
        if isinstance(rows, Rows):
            clf.fit(rows.X, rows.y, ids=rows.ids)
        else:
            clf.fit(rows)
    finally:
        log.setLevel(logging.NOTSET)
    if clf.history_.attrs["ended"] == "interrupted":
        raise KeyboardInterrupt


def _validation(clf: Estimator, rows: Rows) -> NDArray[np.int64]:
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


def show_rows(rows: Rows, name: str, kinds: dict[str, list[str]], console: Console) -> None:
    """Print how the data was understood."""
    facts = Table.grid(padding=(0, 2))
    what = {"tabular": "rows", "image": "images", "text": "texts"}[rows.kind]
    facts.add_row("data", f"{name}: {len(rows):,} {what}")
    if rows.columns.text is not None:
        facts.add_row("text", rows.columns.text)
    if rows.columns.targets:
        facts.add_row("target", listed(rows.columns.targets, 8, str))
    facts.add_row("task", tasks.line(rows))
    if rows.columns.id is not None:
        facts.add_row("ids", rows.columns.id or "the first column, which has no name")
    for kind, columns in kinds.items():
        facts.add_row(kind, listed(columns, 8, str))
    facts.add_row(*tasks.described(rows))
    console.print(facts, highlight=False)
    for column in kinds.get("categories", []) + kinds.get(_UNUSED, []):
        if looks_like_text(rows.X[column]):
            hint = f"note: {column!r} looks like text; --text {column} would predict from this column alone"
            console.print(hint, style="yellow", highlight=False, soft_wrap=True)


def show_training(
    clf: Estimator, seconds: float, test: Evaluated | None, validation: Rows, output: Path, console: Console
) -> None:
    """Print how training went and how good the model is."""
    console.print(f"trained {_how(clf, seconds)}", highlight=False, soft_wrap=True)
    if clf.references_.weighted:
        console.print(agreement_line(clf), highlight=False, soft_wrap=True)
    if (expected := tasks.expected(clf, 0.05)) is not None:
        console.print(f"{tasks.kind_of_sets(clf)} from {expected}", highlight=False, soft_wrap=True)
    if test is not None:
        console.print(*evaluation_tables(test, f"On {test.n:,} held-out rows"))
    elif len(validation):
        how_good = tasks.score(clf, validation.X, validation.y).rpartition(" ")
        console.print(
            f"{how_good[0]} on validation rows: {how_good[2]}; for a fair estimate, hold out rows with --test-size 0.2",
            highlight=False,
        )
    console.print(f"written: {output}", highlight=False, soft_wrap=True)


def _how(clf: Estimator, seconds: float) -> str:
    if clf.cross_fitted_:
        text = f"{clf.model_.ensemble_size} networks in {seconds:.0f} s, each without a fifth of the rows: "
        text += f"{_who_votes(clf)} and calibrate"
        judged = tasks.out_of_fold_score(clf)
        return text if judged is None else f"{text}; {judged}, each judged by those that left it out"
    return (
        f"{len(clf.history_)} epochs in {seconds:.0f} s: {_who_votes(clf)}, {len(clf.validation_ids_):,} for early "
        f"stopping, {len(clf.calibration_ids_):,} for calibration"
    )


def _who_votes(clf: Estimator) -> str:
    n = len(clf.references_)
    if not clf.references_.weighted:
        return f"{n:,} rows vote"
    return f"{n:,} representatives vote for {clf.references_.sizes.sum():,.0f} rows"


def summary(
    rows: Rows,
    kinds: dict[str, list[str]],
    clf: Estimator,
    seconds: float,
    test: Evaluated | None,
    output: Path,
) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "model": str(output),
        "kind": rows.kind,
        "rows": len(rows),
        "target": rows.columns.target,
        "task": rows.task,
        "text": rows.columns.text,
        "id": rows.columns.id,
        "columns": kinds,
        **tasks.facts(rows),
        "epochs": len(clf.history_),
        "seconds": seconds,
        "voters": len(clf.references_),
        "examples": round(float(clf.references_.sizes.sum())),
        "agreement": None if clf.agreement_ is None else clf.agreement_._asdict(),
        "validation": len(clf.validation_ids_),
        "calibration": len(clf.calibration_ids_),
        "cross_fitted": clf.cross_fitted_,
        **tasks.expected_facts(clf, 0.05),
        "test": None if test is None else test.to_dict(),
    }
