"""Options of `dwac train`, and what it refuses at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dwac.cli.early import FORMATS, KINDS, TASKS, check_choice, check_data, kinds_of, refuse_occupied, work
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
    UnknownOption,
    UnlabelledOption,
)
from dwac.errors import EPSILON, InputError


def _voters(value: str | None) -> str | None:
    if value is None or value in ("all", "auto") or (value.isdecimal() and int(value) > 0):
        return value
    raise typer.BadParameter(f"must be all, auto or a whole number of at least 1; got {value!r}")


def _task(value: str | None) -> str | None:
    if value is None or value in TASKS:
        return value
    raise typer.BadParameter(f"must be {', '.join(TASKS[:-1])} or {TASKS[-1]}; got {value!r}")


def _refuse_beside_shards(asked: dict[str, bool], *, private: bool) -> None:
    """Refuse options that --shards cannot be combined with."""
    wrong = [name for name, given in asked.items() if given]
    if wrong:
        raise InputError(
            f"with --shards, leave out {wrong[0]}: each shard has one network, trained alone, and all rows vote"
        )
    if private:
        raise InputError(
            "--shards is for `dwac forget --exact`, which needs the rows of the model, and --private stores none; "
            "leave out one of them"
        )


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
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column that says which rows belong together, such as a patient: they stay together in folds, "
            "validation, calibration and test. It is not learned from.",
        ),
    ] = None,
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
    epsilon: EpsilonOption = EPSILON,
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
            "--class-conditional", help="Calibrate each class separately: sets miss a share ε within each class."
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
        str, typer.Option(help="auto, or for example tabular:paper, image:resnet18, image:FOLDER, huggingface:FOLDER.")
    ] = "auto",
    unknown: UnknownOption = None,
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
            help="Written after each epoch; the same command resumes from it. Over processes by default "
            "FOLDER.checkpoint.",
        ),
    ] = None,
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

    dwac train films.csv --target stars --task ordered -o model/     # texts: --order low,mid,high

    dwac train sales.xlsx --sheet 2024 --target won -o model/ --ignore customer --unlabelled drop

    dwac train visits.csv --target outcome --groups patient -o model/     # several rows of one patient

    dwac train rare.csv --target fault -o model/ --class-weight balanced --class-conditional

    dwac train photos/ -o model/     # photos/cat/1.png, photos/dog/7.jpg, …

    dwac train reviews.txt -o model/     # label, tab, text

    dwac train people.csv --target income -o model/ --voters auto     # few rows vote for all, if there are many

    dwac train people.csv --target income --id name -o model/ --shards 4     # so that rows can be deleted exactly

    dwac train 'rows/*.parquet' --target income -o model/     # larger than memory: read in batches; also s3://…

    torchrun --nproc-per-node 2 -m dwac.training photos/ -o model/     # two processes, which share every batch
    """
    asked = locals()
    refuse_occupied(output, overwrite=overwrite)
    check_choice("format", form, FORMATS)
    kinds_of(kind)
    check_data(data)
    if shards is not None:
        _refuse_beside_shards(
            {
                "--cross-fit": cross_fit is True,
                "--voters": voters not in (None, "all"),
                "--ensemble-size": ensemble_size is not None,
                "--checkpoint": checkpoint is not None,
            },
            private=private,
        )
    work("train", asked)
