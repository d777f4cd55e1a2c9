"""Arguments and options that several commands share, so that one name means one thing everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dwac import _checks as checks
from dwac.errors import EpsilonError
from dwac.reading import FORMATS

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, as `dwac train` writes it.")]
DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A CSV, TSV, JSON Lines or Parquet file, an image or a folder of images, a file with a text a line, or -.",
    ),
]
TargetOption = Annotated[
    str | None, typer.Option("--target", "-t", metavar="COLUMN", help="The column of a table with the labels.")
]
TextOption = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The column of a table with a text to classify.")
]
IdOption = Annotated[
    str | None, typer.Option("--id", "--id-column", metavar="COLUMN", help="The column that names each row.")
]
FormatOption = Annotated[
    str | None, typer.Option("--format", help=f"{', '.join(FORMATS)}; by default as the file's name ends.")
]
EncodingOption = Annotated[str, typer.Option(help="Of text files: utf-8, latin-1, utf-16, …")]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON for machines, not tables for people.")]
StrictOption = Annotated[
    bool,
    typer.Option("--strict", help="Refuse all data where a row cannot be read, rather than say so beside the rest."),
]
DeviceOption = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, …")]


def _epsilon(value: float) -> float:
    try:
        return checks.epsilon(value)
    except EpsilonError as error:
        raise typer.BadParameter(str(error)) from None


EpsilonOption = Annotated[
    float, typer.Option("--epsilon", "-e", callback=_epsilon, help="Error rate of the label sets, in (0, 1).")
]
