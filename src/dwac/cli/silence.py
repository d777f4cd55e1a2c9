"""`dwac silence`: a model in which some training rows no longer vote, but calibrate as before."""

from __future__ import annotations

from typing import Annotated

import typer

from dwac.cli import options
from dwac.cli.forget import names_of
from dwac.cli.output import model_facts, print_json, print_lines, written_line
from dwac.errors import InputError


def silence(
    model: options.Model,
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="The ids of the rows that must not vote.")],
    output: options.EditedFolder = None,
    overwrite: options.Overwrite = False,
    device: options.Device = "auto",
    expect: options.Expect = None,
    json: options.Json = False,
) -> None:
    """Remove the votes of training rows, such as those with wrong labels, and leave calibration unchanged.

    Nothing is trained. The calibration rows stay, with their labels, so prediction sets and intervals keep their
    guarantee whichever rows you choose. To delete somebody's data, use dwac forget, which removes rows from calibration
    as well.

    Example:

    dwac silence model/ 17 203 -o model-2/
    """
    options.check_model(model)
    if output is None:
        raise InputError("silence writes a new model folder; name it with -o FOLDER")
    options.refuse_occupied(output, overwrite=overwrite)
    from dwac.reading import load

    loaded = load(model, device=device, expect=expect)
    clf, names = loaded.clf, names_of(loaded.clf, ids, "silenced")
    clf.silence(names)
    folder = loaded.save(output, include_examples=not clf.private_, overwrite=overwrite)
    voters, rows = len(clf.references_), len(clf.calibration_ids_)
    if json:
        print_json({**model_facts(folder), "silenced": len(names), "voters": voters, "calibration": rows})
        return
    print_lines(
        [
            f"silenced: {len(names):,} row{'s' * (len(names) != 1)}; {voters:,} vote",
            f"calibration keeps its {rows:,} rows and their labels, so sets and intervals keep their guarantee",
            written_line(folder),
        ]
    )
