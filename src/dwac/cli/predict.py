"""`dwac predict`: what is predicted of each row, and how far to trust it: sets, intervals, typicality, …"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

from dwac.cli import unreadable
from dwac.cli.options import told
from dwac.cli.output import form_of, number, packed, print_notes, progress_printed, write
from dwac.errors import InputError
from dwac.estimator.evaluation import amount
from dwac.estimator.evaluation import predict as predict_rows
from dwac.estimator.targets import LABELS, NUMBERS
from dwac.reading import Estimator, Rows, load, read
from dwac.training.progress import rows_bar

AT_ONCE = 20_000  # rows that are predicted at once
_SHOWN = 20  # rows shown on a terminal; files and pipes get all
_AT_EPSILON = ("set", "lower", "upper")
_AMOUNTS = ("prediction", "lower", "upper", "quantile_")
_NOTES = ("unknown", "unreadable")
_EACH_LABEL = ("probability_", "decision_")  # a terminal is too narrow for two columns per label


def predict(
    *,
    model: Path,
    data: str,
    output: Path | None,
    epsilon: float,
    probabilities: bool,
    quantiles: str | None,
    private: bool,
    text: str | None,
    ids: str | None,
    unknown: str | None,
    device: str,
    expect: str | None,
    form: str | None,
    encoding: str,
    separator: str | None,
    decimal: str | None,
    day_first: bool | None,
    sheet: str | None,
    json: bool,
    strict: bool,
    safe: bool,
) -> None:
    """The work of `dwac predict`; for its options see `dwac.cli.commands.predict`."""
    written = None if output is None else form_of(output)
    loaded = load(model, device=device, expect=expect, unknown=unknown)
    asked = _asked(quantiles, loaded.task)
    if probabilities and loaded.task == NUMBERS:
        raise InputError("--probabilities are for classes and labels; this model predicts numbers; use --quantiles")
    written_so = told(separator, decimal, day_first)
    rows = read(data, like=loaded, text=text, ids=ids, form=form, encoding=encoding, told=written_so, sheet=sheet)
    print_notes(rows.notes)
    with unreadable.located(rows), progress_printed():
        frame = _predicted(loaded.clf, rows, epsilon, private=private, probabilities=probabilities, **asked)
    bad = unreadable.by_row([why if isinstance(why, str) else None for why in frame["unreadable"]])
    unreadable.report(bad, rows, strict=strict, fate="have no answer")
    _note_unknown(frame.get("unknown"), rows, loaded.clf.unknown)
    frame.insert(0, "id", pd.Series(rows.ids, dtype=object).infer_objects())
    if places := [place for place, name in enumerate(frame) if str(name).startswith(_AT_EPSILON)]:
        frame.insert(places[-1] + 1, "epsilon", epsilon)
    console = Console()
    if output is not None and written is not None:
        write(output, packed(frame, "jsonl" if json else written, harmless=safe))
        Console(stderr=True).print(f"written: {output}, {len(frame):,} rows", highlight=False, soft_wrap=True)
    elif json or not console.is_terminal:
        typer.echo(packed(frame, "jsonl" if json else "csv", harmless=safe).decode(), nl=False)
    else:
        empty = [name for name in _NOTES if name in frame and frame[name].isna().all()]
        show(frame.drop(columns=["epsilon", *empty], errors="ignore"), epsilon, console)
        if loaded.task == LABELS:
            console.print("-o FILE.csv also writes the probability of each label and the decision on it")
    unreadable.end(bad)


def _predicted(
    clf: Estimator, rows: Rows, epsilon: float, *, private: bool, probabilities: bool, **asked: Any
) -> pd.DataFrame:
    """What is predicted of each row; many rows a part at a time, so that it can be said how far it is."""
    frames: list[pd.DataFrame] = []
    with rows_bar("predicting", len(rows), show="auto" if len(rows) > AT_ONCE else False) as done:
        for start in range(0, len(rows), AT_ONCE):
            part = rows if len(rows) <= AT_ONCE else rows.take(np.arange(start, min(start + AT_ONCE, len(rows))))
            found = predict_rows(clf, part.X, private=True if private else None)
            frame = found.frame(epsilon, **asked)
            if probabilities and clf.target_.kind != LABELS:  # of several labels they are there already
                names = [f"probability_{label}" for label in clf.target_.names.tolist()]
                more = pd.DataFrame(found.probabilities, columns=names)
                notes = [name for name in _NOTES if name in frame]
                frame = pd.concat([frame.drop(columns=notes), more, frame[notes]], axis=1)
            frames.append(frame)
            done(start + len(part))
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def _note_unknown(unknown: pd.Series[Any] | None, rows: Rows, policy: str) -> None:
    """Say how many rows have values that training never had."""
    there = [] if unknown is None or policy == "refuse" else np.flatnonzero(unknown.notna()).tolist()
    if there:
        assert unknown is not None
        print_notes(
            [
                f"{len(there):,} of {len(rows):,} rows have values that training never had, first "
                f"{rows.where(there[0])}: {unknown.iloc[there[0]]}; they are read as missing; the column unknown names "
                "them, and --unknown refuse refuses such rows"
            ]
        )


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
    if name not in _NOTES and not isinstance(value, list) and pd.isna(value):
        return "–"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or ("empty" if name == "set" else "none")
    if name in ("probability", "confidence", "credibility", "typicality"):
        return number(value)
    if name.startswith(_AMOUNTS):
        return amount(value)
    return "" if name in _NOTES and pd.isna(value) else str(value)
