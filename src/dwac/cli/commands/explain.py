"""Options of `dwac explain`, and what it refuses at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dwac.cli.early import FORMATS, check_choice, check_data, check_model, work
from dwac.cli.options import (
    DataArgument,
    DayFirstOption,
    DecimalOption,
    DeviceOption,
    EncodingOption,
    EpsilonOption,
    ExpectOption,
    FormatOption,
    JsonOption,
    ModelArgument,
    SeparatorOption,
    SheetOption,
    StrictOption,
    TextOption,
    UnknownOption,
)
from dwac.errors import EPSILON


def explain(
    model: ModelArgument,
    data: DataArgument,
    row: Annotated[
        list[int] | None,
        typer.Option("--row", "-r", help="Row number, counted from 0; may be repeated. Default: all rows."),
    ] = None,
    name: Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Id of a row; may be repeated.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of training examples, or groups, to show per row.")] = 5,
    private: Annotated[
        bool, typer.Option("--private", help="Show labels and rounded shares only; always on for private models.")
    ] = False,
    page: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML page instead.")] = None,
    epsilon: EpsilonOption = EPSILON,
    text: TextOption = None,
    ids: Annotated[
        str | None, typer.Option("--id-column", metavar="COLUMN", help="The column with the row ids.")
    ] = None,
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
) -> None:
    """Show why rows get their predictions: the training examples with the largest votes, and how few of them decide.

    Where no few examples explain a prediction, groups of examples that vote alike are shown instead: what sets each
    apart, its exact share of the vote, and the member that is most like the row.

    Rows that cannot be read are marked as such; the exit code is then 3.

    Examples:

    dwac explain model/ new.csv --row 3

    dwac explain model/ new.csv --id ann -k 10 --html why.html

    echo "a fine film" | dwac explain model/ - --json
    """
    asked = locals()
    check_model(model)
    check_choice("format", form, FORMATS)
    check_data(data)
    work("explain", asked)
