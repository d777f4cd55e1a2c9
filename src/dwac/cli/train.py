"""`dwac train`: from a file or folder to a model folder, showing how dwac read the data."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dwac.cli import options
from dwac.cli.output import columns_shown, print_json, print_notes, progress_printed
from dwac.cli.rows import rows_located
from dwac.errors import EPSILON, InputError

if TYPE_CHECKING:
    from dwac.drawing.legend import Legend
    from dwac.encoders.columns import Column
    from dwac.estimator.fit.streams import Stream
    from dwac.reading import Estimator, Rows, Streamed

_NUMBERED = (
    "--shards without --id: rows are identified by row numbers, which change if a row is removed from the file; give "
    "--id COLUMN"
)


def _voters(value: str | None) -> str | None:
    if value is None or value in ("all", "auto") or (value.isdecimal() and int(value) > 0):
        return value
    raise typer.BadParameter(f"must be all, auto or a whole number of at least 1; got {value!r}")


def _refuse_with_shards(given: dict[str, bool], *, private: bool) -> None:
    """Refuse options that --shards cannot be combined with. given: whether each was given."""
    wrong = [option for option, value in given.items() if value]
    if wrong:
        raise InputError(
            f"with --shards, leave out {wrong[0]}: each shard has one network, trained alone, and all rows vote"
        )
    if private:
        raise InputError(
            "--shards is for `dwac forget --exact`, which needs the rows of the model, and --private stores none; "
            "leave out one of them"
        )


@options.with_bundles
def train(
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
    output: options.Folder,
    target: options.Target = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(options.TASKS),
            callback=options.one_of(options.TASKS),
            help="What the target holds: classes, ordered labels, several labels at once, or numbers. Default: "
            "inferred from its values.",
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(metavar="LOW,…,HIGH", help="The order of ordered labels that are texts; needs --task ordered."),
    ] = None,
    text: options.Text = None,
    ids: options.Id = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column that says which rows belong together, such as the rows of a patient. They stay together "
            "in folds, validation, calibration and test. The model does not learn from this column.",
        ),
    ] = None,
    apart: Annotated[
        list[str] | None,
        typer.Option(
            "--apart",
            metavar="COLUMN",
            help="Tell the groups of this column apart, such as the sexes, so that `dwac reweigh` can bring their "
            "rates together at a lower cost in accuracy. The model does not learn from the column, and does not need "
            "it to predict. May be repeated.",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore", metavar="COLUMN", help="A column that the model must not learn from; may be repeated."
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="COLUMN=KIND",
            help=f"What a column holds, if dwac infers it wrongly: {', '.join(options.KINDS)}; may be repeated.",
        ),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(
            "--names",
            metavar="FILE",
            help="A CSV file with the columns column, title, unit and codes (0=no; 1=yes): what people call the "
            "columns and codes of the table. Explanations, reports and the service use these names.",
        ),
    ] = None,
    unlabelled: options.Unlabelled = "refuse",
    test_size: Annotated[
        float, typer.Option(min=0, help="Hold out this share (or number) of rows, and test the model on them.")
    ] = 0,
    epsilon: options.Epsilon = EPSILON,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of epochs. Default: depends on the data.")
    ] = None,
    ensemble_size: Annotated[
        int | None,
        typer.Option(min=1, help="Number of networks that vote together; more are more accurate and slower."),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Train this many networks, each on its own part of the rows, so that `dwac forget --exact` retrains "
            "only those that saw a row. Use it with --id.",
        ),
    ] = None,
    voters: Annotated[
        str | None,
        typer.Option(
            metavar="all|auto|N",
            callback=_voters,
            help="Which rows vote: all training rows; N of them, each with the votes of similar rows; or auto: all, up "
            "to 20,000 rows, and beyond that as few as the validation rows allow. Fewer voters make a smaller and "
            "faster model. Default: all, or auto if rows are read in batches.",
        ),
    ] = None,
    cross_fit: Annotated[
        bool | None,
        typer.Option(
            help="Cross-fit a small table: every row trains, votes and calibrates. Default: for fewer than 4,000 rows, "
            "and up to 30,000 if it predicts better, unless another option says how to train.",
            show_default=False,
        ),
    ] = None,
    class_conditional: Annotated[
        bool,
        typer.Option(
            "--class-conditional", help="Calibrate each class separately: sets miss a share ε within each class."
        ),
    ] = False,
    within: Annotated[
        list[str] | None,
        typer.Option(
            "--within",
            metavar="COLUMN",
            help="Calibrate each value of this column separately: sets and intervals miss a share ε within each. May "
            "be repeated: this then holds within each value of each column. With --ignore COLUMN as well, the model "
            "does not learn from the column, but new rows still need it.",
        ),
    ] = None,
    class_weight: Annotated[
        list[str] | None,
        typer.Option(
            "--class-weight",
            metavar="balanced|LABEL=N",
            help="Count each row of a class N times, in training and in the vote; repeat it for other classes. "
            "balanced: every class has the same total weight.",
        ),
    ] = None,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Train one network for a few epochs: faster, and less accurate."),
    ] = False,
    encoder: Annotated[
        str, typer.Option(help="auto, or for example tabular:paper, image:resnet18, image:FOLDER, huggingface:FOLDER.")
    ] = "auto",
    unknown: options.Unknown = None,
    seed: Annotated[int, typer.Option("--seed", "--random-state", min=0, max=2**32 - 1, help="Random seed.")] = 0,
    private: Annotated[
        bool, typer.Option("--private", help="Store no training examples; the model then gives only rounded answers.")
    ] = False,
    overwrite: options.Overwrite = False,
    device: options.Device = "auto",
    json: options.Json = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file that is written after each epoch; the same command resumes from it. With several processes, "
            "the default is FOLDER.checkpoint.",
        ),
    ] = None,
    *,
    tables: options.TableOptions,
) -> None:
    """Train a model on your data.

    dwac infers the task from the target column: fractions, and many different numbers, are numbers to predict; texts
    and few numbers are classes; several target columns of 0 and 1, and lists in JSON Lines, are several labels at once.
    --task overrides this; --task labels reads cells such as a|b as two labels, and an empty cell as none.

    The model stores the separator, the decimal mark and the order of dates, given or inferred. It reads later files in
    the same way, unless you give other options for them.

    Examples:

    dwac train people.csv --target income -o model/ --test-size 0.2

    dwac train houses.csv --target price -o model/     # numbers: predictions with intervals

    dwac train songs.csv -t happy -t calm -t sad -o model/     # several labels at once: columns of 0 and 1

    dwac train films.csv --target stars --task ordered -o model/     # texts: --order low,mid,high

    dwac train sales.xlsx --sheet 2024 --target won -o model/ --ignore customer --unlabelled drop

    dwac train visits.csv --target outcome --groups patient -o model/     # several rows of one patient

    dwac train rare.csv --target fault -o model/ --class-weight balanced --class-conditional

    dwac train people.csv --target income -o model/ --within region     # a guarantee in each region

    dwac train people.csv --target income -o model/ --within race --ignore race     # without learning from it

    dwac train people.csv --target income -o model/ --apart sex     # to correct differences with dwac reweigh

    dwac train photos/ -o model/     # photos/cat/1.png, photos/dog/7.jpg, …

    dwac train reviews.txt -o model/     # label, tab, text

    dwac train people.csv --target income -o model/ --voters auto     # few rows vote for all, if there are many

    dwac train people.csv --target income --id name -o model/ --shards 4     # so that rows can be deleted exactly

    dwac train 'rows/*.parquet' --target income -o model/     # larger than memory: read in batches; also s3://…

    torchrun --nproc-per-node 2 -m dwac.training photos/ -o model/     # two processes, which share every batch
    """
    options.refuse_occupied(output, overwrite=overwrite)
    options.check_choice("format", tables.form, options.FORMATS)
    kinds = options.kinds_of(kind)
    options.check_data(data)
    if shards is not None:
        _refuse_with_shards(
            {
                "--cross-fit": cross_fit is True,
                "--voters": voters not in (None, "all"),
                "--ensemble-size": ensemble_size is not None,
                "--checkpoint": checkpoint is not None,
            },
            private=private,
        )
    from dwac.cli import tasks, train_output
    from dwac.estimator.evaluation import evaluate, predict
    from dwac.nn import ranks
    from dwac.reading import Model, columns_of, is_dataset, read, read_dataset

    if data == "-" and ranks.several_processes():
        raise InputError("several processes need a file that each can read; got standard input; save it to a file")
    console = Console(quiet=json or not ranks.is_first())
    labels = [label for label in (order or "").split(",") if label.strip()]
    unlearned = [name for name in ignore or [] if name in (within or [])]  # rows need them, for their groups
    left_out = list(dict.fromkeys([name for name in ignore or [] if name not in unlearned] + (apart or [])))
    meaning: dict[str, Any] = {"task": task, "order": labels, "ignore": left_out}
    dataset: Streamed | None = None
    if is_dataset(data, tables.form):
        _refuse_for_batches(
            {
                "--kind": kind,
                "--sheet": tables.sheet,
                "--decimal": tables.decimal,
                "--separator": tables.separator,
                "--groups": groups,
                "--apart": apart,
                "--day-first": tables.day_first is True,
                "--month-first": tables.day_first is False,
                "--unlabelled drop": unlabelled == "drop",
            }
        )
        dataset = read_dataset(data, columns_of(target, text, ids), test_size=test_size, seed=seed, **meaning)
        rows = dataset.rows
    else:
        meaning |= tables.arguments() | {"kinds": kinds, "unlabelled": unlabelled}
        rows = read(data, target=target, text=text, ids=ids, groups=groups, keep=apart or (), **meaning)
    tasks.check(rows, data)
    tasks.check_within(within or [], rows)
    why = dict.fromkeys(unlearned, "only for the groups of --within") | dict.fromkeys(apart or [], "to tell apart")
    rows = replace(rows, aside={**rows.aside, **why})
    legend = None if names is None else _read_names(names, rows, whole=dataset is None)
    name = rows.kind if encoder == "auto" else encoder
    faster = tasks.fast_settings(rows, len(rows) if dataset is None else dataset.stream.n, name) if fast else {}
    if shards is not None:
        faster.pop("ensemble_size", None)  # each shard has one network
    numbers = {"epochs": epochs, "ensemble_size": ensemble_size, "shards": shards}
    numbers = {name: value for name, value in numbers.items() if value is not None}
    clf = tasks.estimator(
        str(rows.task),
        name,
        **faster
        | numbers
        | {
            "voters": int(voters) if voters is not None and voters.isdecimal() else voters,
            "cross_fit": "auto" if cross_fit is None else cross_fit,
            "class_conditional": class_conditional,
            "within": within[0] if within is not None and len(within) == 1 else within,
            "ignored": unlearned or None,
            "class_weight": tasks.read_class_weight(class_weight or [], rows),
            "unknown": unknown or "atypical",
            "device": device,
            "random_state": seed,
            "checkpoint": _checkpoint(rows, output, checkpoint),
        }
        | ({"ordered": True} if dataset is not None and rows.task == "ordered" else {}),  # files do not record it
    )
    kept, held = _held_out(rows, test_size, seed) if dataset is None else (rows, dataset.test)
    numbered = shards is not None and ids is None and rows.kind != "image"  # ids of images are their paths

    def announce(columns: Sequence[Column]) -> None:
        """Print how the data is read, before the training begins."""
        if not ranks.is_first():
            return
        table = train_output.sort_columns(columns, rows)
        train_output.show_rows(rows, data, table, console, dataset)
        print_notes([*rows.notes, *table.notes, *([_NUMBERED] if numbered else [])])
        train_output.show_warnings(kept)
        if fast:
            console.print(tasks.describe_fast(faster and faster | numbers), highlight=False, soft_wrap=True)

    if rows.kind != "tabular":
        announce([])
    start = time.perf_counter()
    with progress_printed("Ctrl-C stops" if fast else "Ctrl-C stops, --fast is quicker"), columns_shown(announce):
        _fit(clf, kept if dataset is None else dataset.stream, legend)
    if not ranks.is_first():
        return  # the first of several processes evaluates and writes
    seconds = time.perf_counter() - start
    Model(clf, rows.columns, rows.notation).save(output, include_examples=not private, overwrite=overwrite)
    held = held if dataset is None else _with_known_labels(clf, held)
    test = evaluate(predict(clf, held.X), held.y, epsilon) if len(held) else None
    if dataset is not None:
        train_output.show_stream(clf, console)
    validation = _validation(clf, kept) if dataset is None else None
    train_output.show_training(clf, seconds, test, validation, output, console)
    if json:
        print_json(train_output.summary(rows, clf, seconds, test, output, dataset))


def _read_names(path: Path, rows: Rows, *, whole: bool) -> Legend:
    """What the columns of the table are called; codes are those of all rows, held out or not."""
    from dwac.drawing.legend import Legend

    if rows.kind != "tabular":
        raise InputError(f"--names is for the columns of a table; the data holds {rows.kind}s; leave it out")
    return Legend.read(path).of(rows.X.columns, rows.X if whole else None)


def _refuse_for_batches(given: dict[str, Any]) -> None:
    """Refuse options that apply only to files read as a whole. given: the value of each."""
    wrong = [option for option, value in given.items() if value]
    if wrong:
        raise InputError(
            f"{wrong[0]} is for files that are read as a whole; Parquet that is read in batches has its own types; "
            "leave it out, and write the files as they should be read"
        )


def _checkpoint(rows: Rows, output: Path, given: Path | None) -> Path | None:
    """The file to resume from. Several processes have one by default: the more there are, the likelier one fails.

    A small table gets none: it trains in seconds, and may be cross-fitted, which has no checkpoint.
    """
    from dwac.estimator.settings import SMALL_TABLE
    from dwac.nn.ranks import several_processes

    if given is not None or not several_processes() or (rows.kind == "tabular" and len(rows) < SMALL_TABLE):
        return given
    path = output.absolute().with_name(f"{output.absolute().name}.checkpoint")  # the folder exists once it is complete
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _held_out(rows: Rows, size: float, seed: int) -> tuple[Rows, Rows]:
    """(training rows, test rows), drawn at random; each class keeps one training row, or groups stay together."""
    import numpy as np
    import pandas as pd

    from dwac.cli import tasks

    n = len(rows)
    wanted = round(size * n) if size < 1 else int(size)
    if rows.groups is None:
        order = np.random.RandomState(seed).permutation(n)
        test = order[~tasks.first_of_each_class(rows.take(order))][:wanted]
    else:
        codes, groups = pd.factorize(pd.Series(rows.groups, dtype=object))
        place = np.random.RandomState(seed).permutation(len(groups))[codes]
        order, test = np.arange(n), np.flatnonzero(place < round(wanted / n * len(groups)))
    if n - len(test) < max(10, n // 20):
        raise InputError(f"--test-size {size:g} leaves {n - len(test)} of {n} rows for training; hold out fewer")
    return rows.take(np.setdiff1d(order, test)), rows.take(np.sort(test))


def _fit(clf: Estimator, rows: Rows | Stream, names: Legend | None) -> None:
    """Train. After Ctrl-C the command writes nothing, although the library would keep the unfinished model."""
    from dwac.reading import Rows

    log = logging.getLogger("dwac.training")
    log.setLevel(logging.ERROR)
    try:
        if isinstance(rows, Rows):
            with rows_located(rows):
                known = {} if rows.kept is None else {"apart": rows.kept}
                clf.fit(rows.X, rows.y, groups=rows.groups, ids=rows.ids, names=names, **known)
        else:
            clf.fit(rows, names=names)
    finally:
        log.setLevel(logging.NOTSET)
    if clf.history_.attrs["ended"] == "interrupted":
        raise KeyboardInterrupt


def _validation(clf: Estimator, rows: Rows) -> Rows:
    """The rows used for early stopping."""
    import numpy as np
    import pandas as pd

    return rows.take(np.flatnonzero(pd.Index(rows.ids).isin(clf.validation_ids_)))


def _with_known_labels(clf: Estimator, held: Rows) -> Rows:
    """The test rows whose label is known; a file that is read as a whole keeps the others for training."""
    import numpy as np
    import pandas as pd

    if held.task not in ("classes", "ordered") or not len(held):
        return held
    return held.take(np.flatnonzero(pd.Series(held.y).isin(clf.classes_.tolist())))
