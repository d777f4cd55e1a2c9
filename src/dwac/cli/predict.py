"""`dwac predict`: what is predicted of each row, and how far to trust it: sets, intervals, typicality, …"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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
    PrivateOption,
    QuantilesOption,
    StrictOption,
    TextOption,
)
from dwac.cli.output import form_of, number, packed, write
from dwac.errors import InputError
from dwac.estimator.evaluation import amount
from dwac.estimator.evaluation import predict as predict_rows
from dwac.estimator.targets import LABELS, NUMBERS
from dwac.reading import load, read

_SHOWN = 20  # rows shown on a terminal; files and pipes get all
_AT_EPSILON = ("set", "lower", "upper")
_AMOUNTS = ("prediction", "lower", "upper", "quantile_")
_EACH_LABEL = ("probability_", "decision_")  # a terminal is too narrow for two columns per label
_FATES = {NUMBERS: "get the average of all", LABELS: "get the labels of most"}


def predict(
    model: ModelArgument,
    data: DataArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this .csv, .tsv, .jsonl or .parquet file."),
    ] = None,
    epsilon: EpsilonOption = 0.05,
    quantiles: QuantilesOption = None,
    private: PrivateOption = False,
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
    """Predict each row of new data, and say how far to trust it.

    Classes: label, probability, confidence, credibility, typicality and prediction set. Numbers: prediction, lower and
    upper end of its interval, typicality, and --quantiles. Several labels: the labels, the set that misses few of them,
    typicality, and the probability of each label with a decision on it: yes, no or undecided.

    Output is a table on a terminal and CSV in a pipe. Columns may be in any order; extra columns are ignored.
    A typicality near 0 means a row unlike anything in training: do not rely on its prediction.
    A row that cannot be read is predicted as the average row, with typicality 0 and no prediction set; the column
    "unreadable" gives the reason, and the exit code is then 3.

    Examples:

    dwac predict model/ new.csv -o predictions.csv

    dwac predict model/ picture.png

    dwac predict model/ houses.csv --epsilon 0.1 --quantiles 0.1,0.5,0.9     # a model of numbers

    cat new.jsonl | dwac predict model/ - --json
    """
    written = None if output is None else form_of(output)
    loaded = load(model, device=device)
    asked = _asked(quantiles, loaded.task)
    rows = read(data, like=loaded, text=text, ids=ids, form=form, encoding=encoding)
    with unreadable.located(rows):
        found = predict_rows(loaded.clf, rows.X, private=True if private else None)
    bad = unreadable.by_row(found.reasons)
    unreadable.report(bad, rows, strict=strict, fate=_FATES.get(loaded.task, "get the most common label"))
    frame = found.frame(epsilon, **asked)
    frame.insert(0, "id", pd.Series(rows.ids, dtype=object).infer_objects())
    console = Console()
    if output is not None and written is not None:
        write(output, packed(frame, "jsonl" if json else written, harmless=safe))
        Console(stderr=True).print(f"written: {output}, {len(frame):,} rows", highlight=False, soft_wrap=True)
    elif json or not console.is_terminal:
        typer.echo(packed(frame, "jsonl" if json else "csv", harmless=safe).decode(), nl=False)
    else:
        show(frame if bad else frame.drop(columns="unreadable"), epsilon, console)
        if loaded.task == LABELS:
            console.print("-o FILE.csv also writes the probability of each label and the decision on it")
    unreadable.end(bad)


def _asked(quantiles: str | None, task: str) -> dict[str, list[float]]:
    """The quantiles to write, checked."""
    if quantiles is None:
        return {}
    if task != NUMBERS:
        raise InputError(f"--quantiles are for models of numbers; this one predicts {task}; leave it out")
    try:
        levels = [float(level) for level in quantiles.split(",")]
    except ValueError:
        levels = []
    if not levels or not all(0 < level < 1 for level in levels):
        raise InputError(f"--quantiles must be numbers between 0 and 1, such as 0.1,0.5,0.9; got {quantiles!r}")
    return {"quantiles": levels}


def show(frame: pd.DataFrame, epsilon: float, console: Console) -> None:
    """The first rows as a table."""
    shown = frame[[name for name in frame.columns if not str(name).startswith(_EACH_LABEL)]]
    table = Table(*(f"{name} at ε={epsilon:g}" if name in _AT_EPSILON else str(name) for name in shown.columns))
    for row in shown.head(_SHOWN).to_dict("records"):
        table.add_row(*(_cell(str(name), value) for name, value in row.items()))
    console.print(table)
    if len(frame) > _SHOWN:
        console.print(f"… and {len(frame) - _SHOWN:,} more rows; -o FILE.csv writes all rows", highlight=False)


def _cell(name: str, value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or ("empty" if name == "set" else "none")
    if name in ("probability", "confidence", "credibility", "typicality"):
        return number(value)
    if name.startswith(_AMOUNTS):
        return amount(value)
    return "" if name == "unreadable" and pd.isna(value) else str(value)
