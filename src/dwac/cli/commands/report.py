"""Options of `dwac report`, and what it refuses at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dwac.cli.early import FORMATS, check_choice, check_data, check_file, check_model, work
from dwac.cli.options import (
    DataArgument,
    DayFirstOption,
    DecimalOption,
    DeviceOption,
    EncodingOption,
    EpsilonOption,
    ExpectOption,
    FormatOption,
    IdOption,
    ModelArgument,
    SeparatorOption,
    SheetOption,
    StrictOption,
    TargetOption,
    TextOption,
    UnlabelledOption,
)
from dwac.errors import EPSILON


def report(
    model: ModelArgument,
    data: DataArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    target: TargetOption = None,
    unlike: Annotated[
        str | None, typer.Option(metavar="DATA", help="Data of another kind, to see whether its typicality is low.")
    ] = None,
    check_labels: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Judge the labels of these rows, usually the training data, out of fold. Five models are trained.",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="The heading; by default the name of the model.")] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Compare groups of training examples by worth: a column of the training data that the model holds, "
            "such as a clinic. By default columns whose names sound like groups of people.",
        ),
    ] = None,
    epsilon: EpsilonOption = EPSILON,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of training examples to show per prediction.")] = 5,
    cases: Annotated[
        int, typer.Option(min=0, help="Number of typical, doubtful and wrong predictions to explain.")
    ] = 3,
    private: Annotated[
        bool, typer.Option("--private", help="Show labels and rounded shares only; always on for private models.")
    ] = False,
    text: TextOption = None,
    ids: IdOption = None,
    device: DeviceOption = "auto",
    expect: ExpectOption = None,
    form: FormatOption = None,
    encoding: EncodingOption = "utf-8",
    unlabelled: UnlabelledOption = "refuse",
    separator: SeparatorOption = None,
    decimal: DecimalOption = None,
    day_first: DayFirstOption = None,
    sheet: SheetOption = None,
    strict: StrictOption = False,
) -> None:
    """Write a report to read, mail or print: one HTML file that needs no network.

    It shows results on DATA, whose target must be known. The first page says in plain words what the model does, how
    good and how sure it is, and where not to trust it. Then come measures for data scientists, explained predictions,
    and the most and the least helpful training examples. Classes: also a map, and training labels that look wrong. The
    model was trained on those labels, and misses wrong ones that it has memorised. --check-labels finds them.

    Rows of DATA that were used in training are left out, so you may give the file that was trained on with --test-size.
    Rows that cannot be read are left out, too; the exit code is then 3.

    Examples:

    dwac report model/ test.csv -o report.html

    dwac report model/ test.csv --check-labels train.csv

    dwac report model/ test.csv --by clinic     # whose data carries the model

    dwac report model/ people.csv --unlike martians.csv --title "Who earns more?"
    """
    asked = locals()
    check_model(model)
    check_choice("format", form, FORMATS)
    for source in (data, unlike, check_labels):
        if source is not None:
            check_data(source)
    check_file(output, "-o")
    work("report", asked)
