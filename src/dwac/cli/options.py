"""Arguments and options that several commands share, so that one name means one thing everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dwac.cli.early import FORMATS, UNLABELLED

if TYPE_CHECKING:
    from dwac.reading import Notation

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, written by `dwac train`.")]
DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A CSV, TSV, JSON Lines, Parquet or Excel file (also .gz, .zst, .zip), an image, a folder of images, a "
        "text file with one text per line, or - for standard input.",
    ),
]
TargetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--target", "-t", metavar="COLUMN", help="The column with the target; repeat it for several labels or numbers."
    ),
]
TextOption = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The column that holds the text to predict from.")
]
IdOption = Annotated[
    str | None, typer.Option("--id", "--id-column", metavar="COLUMN", help="The column that holds the row ids.")
]
FormatOption = Annotated[
    str | None, typer.Option("--format", help=f"{', '.join(FORMATS)}; by default from the file name.")
]
EncodingOption = Annotated[str, typer.Option(help="Encoding of text files: utf-8, latin-1, utf-16, …")]
QuantilesOption = Annotated[
    str | None, typer.Option(metavar="0.1,0.5,…", help="Of a model of numbers: also these quantiles of the votes.")
]
PrivateOption = Annotated[
    bool, typer.Option("--private", help="Round to whole per cent; always on for private models.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON instead of tables.")]
StrictOption = Annotated[
    bool,
    typer.Option("--strict", help="Stop if any row cannot be read, instead of reporting it and going on."),
]
ExpectOption = Annotated[
    str | None,
    typer.Option(
        metavar="FINGERPRINT", help="Refuse MODEL unless it has this fingerprint, which dwac train printed for it."
    ),
]
DeviceOption = Annotated[str, typer.Option(help="auto (a GPU if available), cpu, cuda, …")]


ProbabilitiesOption = Annotated[bool, typer.Option("--probabilities", help="Also the probability of each class.")]
SeparatorOption = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER", help="Between the fields of CSV: ; or , or tab. By default as in training, or judged."
    ),
]
DecimalOption = Annotated[
    str | None,
    typer.Option(
        metavar=".|,", help="Before decimals in CSV, Excel or JSON texts. By default as in training, or judged."
    ),
]
DayFirstOption = Annotated[
    bool | None,
    typer.Option(
        "--day-first/--month-first",
        help="What 01/02/2020 means. By default as in training, or judged from the other dates.",
        show_default=False,
    ),
]
SheetOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="The sheet of an Excel workbook; by default the first.")
]


def _unlabelled(value: str) -> str:
    if value in UNLABELLED:
        return value
    raise typer.BadParameter(f"must be {' or '.join(UNLABELLED)}; got {value!r}")


UnlabelledOption = Annotated[
    str,
    typer.Option(
        metavar="|".join(UNLABELLED), callback=_unlabelled, help="What to do with rows whose target is empty."
    ),
]


def told(separator: str | None, decimal: str | None, day_first: bool | None) -> Notation:
    """What was said of how a table is written."""
    from dwac.reading import notation

    return notation(separator, decimal, day_first)


def _epsilon(value: float) -> float:
    if 0 < value < 1:
        return value
    raise typer.BadParameter(f"must lie in (0, 1); got {value}; 0.05 gives sets with an error rate of at most 5 %")


def _unknown(value: str | None) -> str | None:
    if value in (None, "atypical", "missing", "refuse"):
        return value
    raise typer.BadParameter(f"must be atypical, missing or refuse; got {value!r}")


UnknownOption = Annotated[
    str | None,
    typer.Option(
        "--unknown",
        metavar="atypical|missing|refuse",
        callback=_unknown,
        show_default=False,
        help="Categories that training never had: read them as missing and lower the typicality (atypical), read them "
        "as missing, or refuse to read the row. By default as the model was trained; a new one: atypical.",
    ),
]
EpsilonOption = Annotated[
    float,
    typer.Option(
        "--epsilon", "-e", callback=_epsilon, help="Error rate of prediction sets and intervals, between 0 and 1."
    ),
]
