"""The commands of the reproduction, one file per command, and the options that they share.

What they run is imported when they run: it takes seconds, which `--help` should not pay.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from reproduction.records import Records

RecordsOption = Annotated[
    Path | None,
    typer.Option("--records", help="Folder of records; by default docs/results/paper in a checkout, else dwac-paper."),
]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="Use little data and one epoch, with a separate folder of records.")
]


def open_records(folder: Path | None, quick: bool) -> Records:
    """The records in this folder, by default those of the checkout."""
    from reproduction.records import Records, default_folder

    return Records(default_folder(quick=quick) if folder is None else folder)
