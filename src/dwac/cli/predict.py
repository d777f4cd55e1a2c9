"""`dwac predict`: label, probability, confidence, credibility, typicality and prediction set of each row."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

from dwac.cli import unreadable
from dwac.cli.options import (
    DataArgument,
    DeviceOption,
    EncodingOption,
    EpsilonOption,
    FormatOption,
    IdOption,
    JsonOption,
    ModelArgument,
    StrictOption,
    TextOption,
)
from dwac.cli.output import form_of, number, packed, write
from dwac.estimator.evaluation import predict as predict_rows
from dwac.reading import load, read

_SHOWN = 20  # rows shown on a terminal; files and pipes get all


def predict(
    model: ModelArgument,
    data: DataArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this .csv, .tsv, .jsonl or .parquet file."),
    ] = None,
    epsilon: EpsilonOption = 0.05,
    private: Annotated[
        bool, typer.Option("--private", help="Round to whole per cent; always on for private models.")
    ] = False,
    text: TextOption = None,
    ids: IdOption = None,
    device: DeviceOption = "auto",
    form: FormatOption = None,
    encoding: EncodingOption = "utf-8",
    json: JsonOption = False,
    strict: StrictOption = False,
    safe: Annotated[
        bool,
        typer.Option("--spreadsheet-safe", help="Put ' before CSV cells that a spreadsheet would run as formulas."),
    ] = False,
) -> None:
    """Predict the label of each row of new data, and how far to trust it.

    Output is a table on a terminal and CSV in a pipe. Columns may be in any order; extra columns are ignored.
    A typicality near 0 means a row unlike anything in training: do not rely on its label.
    A row that cannot be read gets the most common label, typicality 0 and an empty prediction set; the column
    "unreadable" gives the reason, and the exit code is then 3.

    Examples:

    dwac predict model/ new.csv -o predictions.csv

    dwac predict model/ picture.png

    cat new.jsonl | dwac predict model/ - --json
    """
    written = None if output is None else form_of(output)
    loaded = load(model, device=device)
    rows = read(data, like=loaded, text=text, ids=ids, form=form, encoding=encoding)
    with unreadable.located(rows):
        found = predict_rows(loaded.clf, rows.X, private=True if private else None)
    bad = unreadable.by_row(found.reasons)
    unreadable.report(bad, rows, strict=strict, fate="get the most common label")
    frame = found.frame(epsilon)
    frame.insert(0, "id", pd.Series(rows.ids, dtype=object).infer_objects())
    console = Console()
    if output is not None and written is not None:
        write(output, packed(frame, "jsonl" if json else written, harmless=safe))
        Console(stderr=True).print(f"written: {output}, {len(frame):,} rows", highlight=False, soft_wrap=True)
    elif json or not console.is_terminal:
        typer.echo(packed(frame, "jsonl" if json else "csv", harmless=safe).decode(), nl=False)
    else:
        show(frame if bad else frame.drop(columns="unreadable"), epsilon, console)
    unreadable.end(bad)


def show(frame: pd.DataFrame, epsilon: float, console: Console) -> None:
    """The first rows as a table."""
    names = [f"set at ε={epsilon:g}" if name == "set" else name for name in frame.columns]
    table = Table(*names)
    for row in frame.head(_SHOWN).to_dict("records"):
        cells = (
            ", ".join(map(str, value)) or "empty"
            if name == "set"
            else number(value)
            if name in ("probability", "confidence", "credibility", "typicality")
            else ("" if name == "unreadable" and pd.isna(value) else str(value))
            for name, value in row.items()
        )
        table.add_row(*cells)
    console.print(table)
    if len(frame) > _SHOWN:
        console.print(f"… and {len(frame) - _SHOWN:,} more rows; -o FILE.csv writes all rows", highlight=False)
