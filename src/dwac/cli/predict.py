"""`dwac predict`: the prediction for each row, and how far to trust it: sets, intervals, typicality, …"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dwac.cli import options
from dwac.cli.output import number, print_notes, progress_printed, write_or_pipe
from dwac.cli.rows import (
    exit_if_unreadable,
    in_parts,
    read_rows,
    reasons_by_row,
    report_unreadable,
    rows_located,
)
from dwac.errors import EPSILON, InputError

if TYPE_CHECKING:
    import pandas as pd

    from dwac.reading import Rows

AT_ONCE = 20_000  # rows predicted at once
_SHOWN = 20  # rows shown on a terminal; files and pipes get all
_AT_EPSILON = ("set", "lower", "upper")
_AMOUNTS = ("prediction", "lower", "upper", "quantile_")
_NOTES = ("unknown", "unreadable")
_EACH_LABEL = ("probability_", "decision_")  # a terminal is too narrow for two columns per label


@options.with_bundles
def predict(
    model: options.Model,
    data: options.Data,
    output: options.Table = None,
    epsilon: options.Epsilon = EPSILON,
    local: options.Local = False,
    probabilities: options.Probabilities = False,
    quantiles: options.Quantiles = None,
    private: options.Rounded = False,
    ids: options.Id = None,
    record: options.Record = None,
    unknown: options.Unknown = None,
    json: options.Json = False,
    safe: Annotated[
        bool,
        typer.Option("--spreadsheet-safe", help="Put ' before CSV cells that a spreadsheet would run as formulas."),
    ] = False,
    *,
    reading: options.ReadingOptions,
    tables: options.TableOptions,
) -> None:
    """Predict new rows, and say how far to trust each prediction.

    Classes: label, probability, confidence, credibility, typicality and prediction set. Numbers: prediction, lower and
    upper end of its interval, typicality, and --quantiles. Several labels: the labels, the set that misses few of them,
    typicality, and the probability of each label with a decision on it: yes, no or undecided. --probabilities adds a
    column per class, probability_CLASS, in the order of the model's classes.

    The output is a table on a terminal and CSV in a pipe. Columns may be in any order; extra columns are ignored.
    A typicality near 0 means that a row is unlike anything in training: do not rely on its prediction.
    A category that did not occur in training is read as missing and named in the column "unknown"; see --unknown.
    A row that cannot be read gets no answer: its cells are empty except for the column "unreadable", which gives the
    reason, and the exit code is then 3.

    Examples:

    dwac predict model/ new.csv -o predictions.csv

    dwac predict model/ new.xlsx -o predictions.csv --probabilities     # a column per class

    dwac predict model/ picture.png

    dwac predict model/ houses.csv --epsilon 0.1 --quantiles 0.1,0.5,0.9     # a model of numbers

    cat new.jsonl | dwac predict model/ - --json
    """
    options.check_rows(model, tables.form, data)
    options.check_table(output)
    import pandas as pd

    from dwac.estimator.evaluation import predict as predict_rows

    loaded = reading.load(model, unknown)
    if quantiles is not None and loaded.task != "numbers":
        raise InputError(f"--quantiles are for models of numbers; this one predicts {loaded.task}; leave it out")
    if probabilities and loaded.task == "numbers":
        raise InputError("--probabilities are for classes and labels; this model predicts numbers; use --quantiles")
    levels = options.levels_of(quantiles)
    rows = read_rows(data, loaded, reading, tables, ids=ids)
    clf, hidden = loaded.clf, private or loaded.clf.private_

    def predict_part(part: Rows) -> pd.DataFrame:
        observed = clf.observe(part.X, private=hidden, local=local)
        predictions = predict_rows(clf, observed, private=hidden)
        frame: pd.DataFrame = predictions.frame(epsilon, levels, probabilities=probabilities)
        if record is not None:
            from dwac.records.log import decisions, write

            settings: Any = {"epsilon": epsilon, "quantiles": levels, "private": hidden}
            write(record, decisions(clf, observed, frame, recorded_ids(part, data), **settings))
        return frame

    with rows_located(rows), progress_printed():
        frame = pd.concat(in_parts(rows, AT_ONCE, "predicting", predict_part), ignore_index=True)
    bad = reasons_by_row([why if isinstance(why, str) else None for why in frame["unreadable"]])
    report_unreadable(bad, rows, strict=reading.strict, fate="have no answer")
    _note_unknown(frame.get("unknown"), rows, clf.unknown)
    frame.insert(0, "id", pd.Series(rows.ids, dtype=object).infer_objects())
    if places := [place for place, name in enumerate(frame) if str(name).startswith(_AT_EPSILON)]:
        frame.insert(places[-1] + 1, "epsilon", epsilon)
    if not write_or_pipe(frame, output, json=json, harmless=safe):
        console = Console()
        empty = [name for name in _NOTES if name in frame and frame[name].isna().all()]
        show(frame.drop(columns=["epsilon", *empty], errors="ignore"), epsilon, console)
        if loaded.task == "labels":
            console.print("-o FILE.csv also writes the probability of each label and the decision on it")
    exit_if_unreadable(bad)


def recorded_ids(rows: Rows, data: str) -> list[Any]:
    """The ids of rows in a record of decisions: those of the data, or file:number as those of dwac score."""
    numbered = rows.columns.id is None and all(type(name) is int for name in rows.ids)
    return [f"{os.path.basename(data)}:{name}" for name in rows.ids] if numbered and data != "-" else rows.ids


def _note_unknown(unknown: pd.Series[Any] | None, rows: Rows, policy: str) -> None:
    """Print how many rows have values that training never had."""
    if unknown is None or policy == "refuse" or unknown.isna().all():
        return
    first = int(unknown.notna().argmax())
    print_notes(
        [
            f"{unknown.notna().sum():,} of {len(rows):,} rows have values that did not occur in training, first "
            f"{rows.where(first)}: {unknown.iloc[first]}; they are read as missing; the column unknown names them, "
            "and --unknown refuse gives such rows no answer"
        ]
    )


def show(frame: pd.DataFrame, epsilon: float, console: Console) -> None:
    """The first rows as a table."""
    shown = frame[[name for name in frame.columns if not str(name).startswith(_EACH_LABEL)]]
    table = Table(
        *(f"{name} at ε={epsilon:g}" if str(name).startswith(_AT_EPSILON) else str(name) for name in shown.columns)
    )
    for row in shown.head(_SHOWN).to_dict("records"):
        table.add_row(*(_cell(str(name), value) for name, value in row.items()))
    console.print(table)
    if len(frame) > _SHOWN:
        console.print(
            f"… and {len(frame) - _SHOWN:,} more row{'s' * (len(frame) > _SHOWN + 1)}; -o FILE.csv writes all rows",
            highlight=False,
        )


def _cell(name: str, value: Any) -> str:
    import pandas as pd

    from dwac.estimator.evaluation import amount

    if name not in _NOTES and not isinstance(value, list) and pd.isna(value):
        return "–"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or ("empty" if name == "set" else "none")
    if name in ("probability", "confidence", "credibility", "typicality"):
        return number(value)
    if name.startswith(_AMOUNTS):
        return amount(value)
    return "" if name in _NOTES and pd.isna(value) else str(value)
