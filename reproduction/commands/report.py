"""`python -m reproduction report`: the report on the records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reproduction.commands import QuickOption, RecordsOption, open_records


def report(
    records: RecordsOption = None,
    output: Annotated[
        Path | None,
        typer.Option(help="File to write; by default docs/paper.md in a checkout, else paper.md next to the records."),
    ] = None,
    quick: QuickOption = False,
) -> None:
    """Write paper.md and its figures from the records.

    Example: python -m reproduction report --output docs/paper.md
    """
    from reproduction.cases import PaperError
    from reproduction.report import write_report

    kept = open_records(records, quick)
    if next(iter(kept), None) is None:
        raise PaperError(
            f"no records in {kept.folder}; make some with `python -m reproduction run`, or name another folder with "
            "--records"
        )
    if output is None:
        usual = records is None and not quick and kept.folder.parts[0] == "docs"
        output = Path("docs/paper.md") if usual else kept.folder / "paper.md"
    typer.echo(f"written: {write_report(kept.folder, output)}")
