"""Options of `dwac silence`, and what it refuses at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dwac.cli.early import check_model, refuse_occupied, work
from dwac.cli.options import DeviceOption, ExpectOption, JsonOption, ModelArgument
from dwac.errors import InputError


def silence(
    model: ModelArgument,
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="The ids of the rows that shall not vote.")],
    output: Annotated[
        Path | None, typer.Option("--output", "--out", "-o", metavar="FOLDER", help="The model folder to write.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model in FOLDER.")] = False,
    device: DeviceOption = "auto",
    expect: ExpectOption = None,
    json: JsonOption = False,
) -> None:
    """Let training rows vote no more, such as wrong labels, while calibration stays as it is.

    Nothing is trained. Rows that calibrate go on doing so, as they were labelled: whichever rows you choose,
    prediction sets and intervals promise what they did. To delete somebody's data use dwac forget, which removes rows
    from calibration as well.

    Example:

    dwac silence model/ 17 203 -o model-2/
    """
    asked = locals()
    check_model(model)
    if output is None:
        raise InputError("silence writes a new model folder; say where: -o FOLDER")
    refuse_occupied(output, overwrite=overwrite)
    work("silence", asked)
