"""Options of `dwac explore`, and what it refuses at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dwac.cli.early import FORMATS, check_choice, check_data, check_model, work
from dwac.cli.options import (
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
)
from dwac.errors import EPSILON


def explore(
    model: ModelArgument,
    data: Annotated[
        str | None, typer.Argument(metavar="[DATA]", help="Rows to explore; by default the training examples.")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="A second model: show where the two disagree on the data.")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Show labels and rounded shares only; always on for private models.")
    ] = False,
    epsilon: EpsilonOption = EPSILON,
    target: TargetOption = None,
    text: TextOption = None,
    ids: IdOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 0,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File whose first line is the token of the page; or set DWAC_TOKEN. Default: a new one."),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    most: Annotated[
        int, typer.Option(min=1, help="Maximum number of training examples shown if no data is given.")
    ] = 20_000,
    device: DeviceOption = "auto",
    expect: ExpectOption = None,
    form: FormatOption = None,
    encoding: EncodingOption = "utf-8",
    separator: SeparatorOption = None,
    decimal: DecimalOption = None,
    day_first: DayFirstOption = None,
    sheet: SheetOption = None,
    strict: StrictOption = False,
) -> None:
    """Explore predictions in your browser: a map, the votes, and what would change without them. Runs until Ctrl-C.

    Examples:

    dwac explore model/ new.csv

    dwac explore model/ new.csv --compare other-model/
    """
    asked = locals()
    check_model(model)
    check_choice("format", form, FORMATS)
    if data is not None:
        check_data(data)
    work("explore", asked)
