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

from dwac import training
from dwac.cli import batches, tasks
from dwac.cli.app import ARGUMENTS
from dwac.cli.described import columns_of_table, left_aside, show_rows, show_training, show_warnings, summary
from dwac.cli.options import (
    DayFirstOption,
    DecimalOption,
    DeviceOption,
    EncodingOption,
    EpsilonOption,
    FormatOption,
    IdOption,
    JsonOption,
    SeparatorOption,
    SheetOption,
    TargetOption,
    TextOption,
    UnlabelledOption,
    told,
)
from dwac.cli.output import print_json, print_notes, progress_printed, refuse_occupied
from dwac.errors import InputError, ProcessError
from dwac.estimator.evaluation import evaluate, predict
from dwac.estimator.streams import Stream
from dwac.nn.ranks import is_first, processes_joined
from dwac.reading import (
    KINDS,
    TASKS,
    Estimator,
    Model,
    Rows,
    columns_of,
    is_dataset,
    read,
    read_dataset,
)
from dwac.training.launch import launch

_SMALL = 4_000  # rows


def _voters(value: str | None) -> str | None:
    if value is None or value in ("all", "auto") or (value.isdecimal() and int(value) > 0):
        return value
    raise typer.BadParameter(f"must be all, auto or a whole number of at least 1; got {value!r}")


def _task(value: str | None) -> str | None:
    if value is None or value in TASKS:
        return value
    raise typer.BadParameter(f"must be {', '.join(TASKS[:-1])} or {TASKS[-1]}; got {value!r}")


def _kinds(values: list[str] | None) -> dict[str, str]:
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


def train(
    context: typer.Context,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A CSV, TSV, JSON Lines, Parquet or Excel file (also .gz, .zst, .zip); a folder, a "
            "quoted glob or a URL of Parquet files, which are read in batches and may be larger than memory; a folder "
            "of images with one folder per class, FOLDER/CLASS/*.png; a text file with one label, tab and "
            "text per line; or - for standard input.",
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
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="COLUMN", help="A column that is not to be learned from; may be repeated."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="COLUMN=KIND",
            help=f"What a column holds, where it is not found right: {', '.join(KINDS)}; may be repeated.",
        ),
    ] = None,
    unlabelled: UnlabelledOption = "refuse",
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
    shards: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Train this many networks, each on its own part of the rows, so that `dwac forget --exact` can train "
            "again just those that saw a row; give --id.",
        ),
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
    class_weight: Annotated[
        list[str] | None,
        typer.Option(
            "--class-weight",
            metavar="balanced|LABEL=N",
            help="Let each row of a class count N times, in training and in the vote; repeat it for other classes. "
            "balanced: every class counts the same in total.",
        ),
    ] = None,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Train one network for a few epochs: faster, and less accurate."),
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
    separator: SeparatorOption = None,
    decimal: DecimalOption = None,
    day_first: DayFirstOption = None,
    sheet: SheetOption = None,
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

    What is said of separator, decimal mark and order of dates, or found, is kept with the model: later files are read
    in the same way, unless they say otherwise.

    Examples:

    dwac train people.csv --target income -o model/ --test-size 0.2

    dwac train houses.csv --target price -o model/     # numbers: predictions with intervals

    dwac train songs.csv -t happy -t calm -t sad -o model/     # several labels at once: columns of 0 and 1

    dwac train wine.csv --target quality --task ordered -o model/     # texts: --order low,mid,high

    dwac train sales.xlsx --sheet 2024 --target won -o model/ --ignore customer --unlabelled drop

    dwac train rare.csv --target fault -o model/ --class-weight balanced --class-conditional

    dwac train photos/ -o model/     # photos/cat/1.png, photos/dog/7.jpg, …

    dwac train reviews.txt -o model/     # label, tab, text

    dwac train people.csv --target income -o model/ --voters auto     # few rows vote for all, if there are many

    dwac train people.csv --target income --id name -o model/ --shards 4     # so that rows can be deleted exactly

    dwac train 'rows/*.parquet' --target income -o model/     # larger than memory: read in batches; also s3://…

    dwac train photos/ -o model/ --nproc 2     # two processes, which share every batch; on several machines: torchrun
    """
    if nproc > 1:
        raise typer.Exit(_launch(context.find_root().meta[ARGUMENTS], data, output, nproc, overwrite=overwrite))
    console = Console(quiet=json or not is_first())
    refuse_occupied(output, overwrite=overwrite)
    ranks = [label for label in (order or "").split(",") if label.strip()]
    chosen: dict[str, Any] = {"task": task, "order": ranks, "ignore": ignore or [], "kinds": _kinds(kind)}
    written = told(separator, decimal, day_first)
    streamed = None
    if is_dataset(data, form):
        day = None if day_first is None else "day-first" if day_first else "month-first"
        _refuse_for_batches(
            unlabelled, kind=kind, sheet=sheet, decimal=decimal, separator=separator, **({day: True} if day else {})
        )
        asked = columns_of(target, text, ids)
        del chosen["kinds"]
        streamed = read_dataset(data, asked, test_size=test_size, seed=seed, **chosen)
        rows = streamed.rows
    else:
        chosen |= {"told": written, "sheet": sheet, "unlabelled": unlabelled, "form": form, "encoding": encoding}
        rows = read(data, target=target, text=text, ids=ids, **chosen)
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
            "device": device,
            "random_state": seed,
            "checkpoint": _checkpoint(rows, output, checkpoint),
        }
        | ({} if streamed is None else batches.settings_of(rows)),
    )
    kinds, aside = columns_of_table(rows)
    aside = left_aside(rows, aside)
    if streamed is None:
        show_rows(rows, data, kinds, aside, console)
        parts = _held_out(rows, test_size, seed)
        kept, held = rows.take(parts[0]), rows.take(parts[1])
    else:
        batches.show_dataset(streamed, data, kinds, aside, console)
        kept, held = streamed.test, streamed.test
    if is_first():
        print_notes(rows.notes)
        show_warnings(kept if streamed is None else rows)
    if fast and not json:
        console.print(tasks.quick_line(quick), highlight=False, soft_wrap=True)
    start = time.perf_counter()
    with progress_printed("Ctrl-C stops" if fast else "Ctrl-C stops, --fast is quicker"):
        _fit(clf, kept if streamed is None else streamed.stream)
    if not is_first():
        return  # the first of several processes evaluates and writes
    seconds = time.perf_counter() - start
    Model(clf, rows.columns, rows.notation).save(output, include_examples=not private)
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
