"""Options of `dwac monitor`, and what it refuses at once."""

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
    ExpectOption,
    FormatOption,
    IdOption,
    JsonOption,
    ModelArgument,
    SeparatorOption,
    SheetOption,
    StrictOption,
    TextOption,
)


def monitor(
    model: ModelArgument,
    data: DataArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Keep the state in this .json file, and go on from it."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column to leave out, such as a date that always grows; repeatable."),
    ] = None,
    false_alarms: Annotated[
        float | None, typer.Option(metavar="P", help="Probability of a false alarm, ever; by default 0.01.")
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Forget the state in FILE and begin anew.")] = False,
    text: TextOption = None,
    ids: IdOption = None,
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
    """Tell whether new rows are still like those of calibration, and which columns and groups moved if not.

    Rows are taken in the order of the file; no labels are needed. With -o, the next call goes on where this one ended:
    give each day's rows once. The alarm is valid at any time: if nothing changes, it is raised with a probability of at
    most 1 %, however many days pass and however often one looks.

    Exit codes: 0 no alarm, 4 alarm (also an earlier one that FILE remembers), 3 no alarm but rows that cannot be read,
    1 errors.

    Examples:

    dwac monitor model/ monday.csv -o monitor.json

    dwac monitor model/ tuesday.csv -o monitor.json --json
    """
    asked = locals()
    check_model(model)
    check_choice("format", form, FORMATS)
    check_data(data)
    work("monitor", asked)
