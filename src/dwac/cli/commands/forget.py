"""Options of `dwac forget`, and what it refuses at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dwac.cli.early import check_file, check_model, refuse_occupied, work
from dwac.cli.options import DeviceOption, ExpectOption, JsonOption, ModelArgument
from dwac.errors import InputError


def forget(
    model: ModelArgument,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID…", help="The ids of the rows to forget.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "--out", "-o", metavar="FOLDER", help="The model folder to write.")
    ] = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Train again the networks that saw these rows, or rows forgotten before without --exact: the model is "
            "then the one that training without them gives. For models trained with --shards.",
        ),
    ] = False,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --exact: write the certificate of the deletion, as JSON.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model in FOLDER.")] = False,
    device: DeviceOption = "auto",
    expect: ExpectOption = None,
    json: JsonOption = False,
) -> None:
    """Forget training rows: remove their votes and records, or with --exact every trace of them.

    Removing votes and records takes no training: the networks, which saw the rows, stay as they are. With --exact,
    those that saw them are trained again, and a certificate says from what. MODEL stays as it is: delete it, and its
    copies, yourself.

    For people who ask that their data be deleted. To clean wrong labels use dwac silence: rows that are chosen by their
    outcome must not leave calibration, or prediction sets promise too much.

    Examples:

    dwac forget model/ customer-7 -o model-2/

    dwac train people.csv -t income --id name --shards 4 -o model/

    dwac forget model/ ann ben -o model-2/ --exact --certificate deletion.json
    """
    asked = locals()
    check_model(model)
    if output is None:
        raise InputError("forget writes a new model folder; say where: -o FOLDER")
    if certificate is not None and not exact:
        raise InputError("--certificate is for --exact: where networks stay as they are, there is nothing to certify")
    if not ids and not exact:
        raise InputError("forget needs at least one id; with --exact none, to make up for rows forgotten without it")
    refuse_occupied(output, overwrite=overwrite)
    if certificate is not None:
        check_file(certificate, "--certificate", made=output)
    work("forget", asked)
