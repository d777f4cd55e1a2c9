"""Options of `dwac condense`, and what it refuses at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dwac.cli.early import check_model, refuse_occupied, work
from dwac.cli.options import DeviceOption, ExpectOption, JsonOption, ModelArgument


def condense(
    model: ModelArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="The model folder to write.")],
    size: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Number of representatives that vote; by default as few as validation rows allow."
        ),
    ] = None,
    include_members: Annotated[
        bool,
        typer.Option(
            "--include-members", help="Store those who are represented, too, so that each can still be forgotten."
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model in FOLDER.")] = False,
    device: DeviceOption = "auto",
    expect: ExpectOption = None,
    json: JsonOption = False,
) -> None:
    """Make a model small and fast: a few of its training examples vote for all.

    Each representative is the most central of a group of examples with the same label or like numbers, and has the
    votes of the whole group. By default there are as few as possible: 99.5 % of the validation rows keep their
    prediction, and their loss grows by at most 0.5 %. Calibration is done again, so prediction sets and intervals keep
    their guarantee. The new folder holds the
    representatives' records alone and does not know the other training rows, so evaluate it on rows that are new. MODEL
    stays as it is.

    Examples:

    dwac condense model/ -o small/

    dwac condense model/ -o small/ --size 100
    """
    asked = locals()
    refuse_occupied(output, overwrite=overwrite)
    check_model(model)
    work("condense", asked)
