"""Options of `dwac predict`, and what it refuses at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dwac.cli.early import FORMATS, check_choice, check_data, check_file, check_model, form_of, work
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
    JsonOption,
    ModelArgument,
    PrivateOption,
    ProbabilitiesOption,
    QuantilesOption,
    SeparatorOption,
    SheetOption,
    StrictOption,
    TextOption,
    UnknownOption,
)
from dwac.errors import EPSILON


def predict(
    model: ModelArgument,
    data: DataArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this .csv, .tsv, .jsonl or .parquet file."),
    ] = None,
    epsilon: EpsilonOption = EPSILON,
    probabilities: ProbabilitiesOption = False,
    quantiles: QuantilesOption = None,
    private: PrivateOption = False,
    text: TextOption = None,
    ids: IdOption = None,
    unknown: UnknownOption = None,
    device: DeviceOption = "auto",
    expect: ExpectOption = None,
    form: FormatOption = None,
    encoding: EncodingOption = "utf-8",
    separator: SeparatorOption = None,
    decimal: DecimalOption = None,
    day_first: DayFirstOption = None,
    sheet: SheetOption = None,
    json: JsonOption = False,
    strict: StrictOption = False,
    safe: Annotated[
        bool,
        typer.Option("--spreadsheet-safe", help="Put ' before CSV cells that a spreadsheet would run as formulas."),
    ] = False,
) -> None:
    """Predict each row of new data, and say how far to trust it.

    Classes: label, probability, confidence, credibility, typicality and prediction set. Numbers: prediction, lower and
    upper end of its interval, typicality, and --quantiles. Several labels: the labels, the set that misses few of them,
    typicality, and the probability of each label with a decision on it: yes, no or undecided. --probabilities adds a
    column per class, probability_CLASS, in the order of the model's classes.

    Output is a table on a terminal and CSV in a pipe. Columns may be in any order; extra columns are ignored.
    A typicality near 0 means a row unlike anything in training: do not rely on its prediction.
    A category that training never had is read as missing and named in the column "unknown"; see --unknown.
    A row that cannot be read gets no answer: its cells are empty but for the column "unreadable", which gives the
    reason, and the exit code is then 3.

    Examples:

    dwac predict model/ new.csv -o predictions.csv

    dwac predict model/ new.xlsx -o predictions.csv --probabilities     # a column per class

    dwac predict model/ picture.png

    dwac predict model/ houses.csv --epsilon 0.1 --quantiles 0.1,0.5,0.9     # a model of numbers

    cat new.jsonl | dwac predict model/ - --json
    """
    asked = locals()
    check_model(model)
    check_choice("format", form, FORMATS)
    check_data(data)
    if output is not None:
        form_of(output)
        check_file(output, "-o")
    work("predict", asked)
