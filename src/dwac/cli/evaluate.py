"""`dwac evaluate`: errors, calibration, coverage and typicality of a model on rows whose target is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from dwac._checks import warn
from dwac.cli import unreadable
from dwac.cli.options import told
from dwac.cli.output import at_work, evaluation_tables, print_json, print_notes
from dwac.estimator.evaluation import evaluate as evaluate_rows
from dwac.estimator.evaluation import predict
from dwac.reading import Model, Rows, load, read
from dwac.report.seen import seen


def evaluate(
    *,
    model: Path,
    data: str,
    target: list[str] | None,
    epsilon: float,
    text: str | None,
    unknown: str | None,
    device: str,
    expect: str | None,
    form: str | None,
    encoding: str,
    unlabelled: str,
    separator: str | None,
    decimal: str | None,
    day_first: bool | None,
    sheet: str | None,
    json: bool,
    strict: bool,
) -> None:
    """The work of `dwac evaluate`; for its options see `dwac.cli.commands.evaluate`."""
    loaded = load(model, device=device, expect=expect, unknown=unknown)
    written: dict[str, Any] = {"told": told(separator, decimal, day_first), "sheet": sheet, "unlabelled": unlabelled}
    written |= {"form": form, "encoding": encoding}
    rows = read(data, like=loaded, target=target, text=text, labelled=True, **written)
    print_notes(rows.notes)
    with at_work(f"evaluating {len(rows):,} rows"):
        with unreadable.located(rows):
            predictions = predict(loaded.clf, rows.X)
        bad = unreadable.by_row(predictions.reasons)
        unreadable.report(bad, rows, strict=strict, fate="are left out")
        _warn_of_voters(loaded, unreadable.without(rows, bad))
        found = evaluate_rows(predictions, rows.y, epsilon, strict=strict)
    if json:
        print_json(found.to_dict())
    else:
        left = f", {len(bad):,} more not readable" if bad else ""
        console = Console()
        console.print(*evaluation_tables(found, f"{data}: {found.n:,} rows{left}"))
        if found.advice:
            console.print(f"{found.advice}.", highlight=False)
    unreadable.end(bad)


def _warn_of_voters(model: Model, rows: Rows) -> None:
    """Warn if rows were used in training: each of them finds itself among the voters."""
    n = int(seen(model.clf, pd.Index(rows.ids, tupleize_cols=False), model.clf.embed(rows.X)).sum())
    if n:
        warn(
            f"{n:,} of the {len(rows):,} rows were used in training; results on them are too optimistic",
        )
