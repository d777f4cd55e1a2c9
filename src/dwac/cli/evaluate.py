"""`dwac evaluate`: errors, calibration, coverage and typicality of a model on rows whose target is known."""

from __future__ import annotations

import warnings
from typing import Any

import pandas as pd
from rich.console import Console

from dwac.cli import unreadable
from dwac.cli.options import (
    DataArgument,
    DayFirstOption,
    DecimalOption,
    DeviceOption,
    EncodingOption,
    EpsilonOption,
    FormatOption,
    JsonOption,
    ModelArgument,
    SeparatorOption,
    SheetOption,
    StrictOption,
    TargetOption,
    TextOption,
    UnlabelledOption,
    told,
)
from dwac.cli.output import at_work, evaluation_tables, print_json, print_notes
from dwac.estimator.evaluation import evaluate as evaluate_rows
from dwac.estimator.evaluation import predict
from dwac.reading import Model, Rows, load, read
from dwac.report.seen import seen


def evaluate(
    model: ModelArgument,
    data: DataArgument,
    target: TargetOption = None,
    epsilon: EpsilonOption = 0.05,
    text: TextOption = None,
    device: DeviceOption = "auto",
    form: FormatOption = None,
    encoding: EncodingOption = "utf-8",
    unlabelled: UnlabelledOption = "refuse",
    separator: SeparatorOption = None,
    decimal: DecimalOption = None,
    day_first: DayFirstOption = None,
    sheet: SheetOption = None,
    json: JsonOption = False,
    strict: StrictOption = False,
) -> None:
    """Measure a model on rows whose target is known: errors, calibration, coverage of sets or intervals, typicality.

    Classes: accuracy, log loss, calibration, coverage and size of prediction sets; ordered labels: also how far off.
    Numbers: RMSE, MAE, CRPS, coverage and width of intervals. Several labels: F1, Hamming loss, subset accuracy, wrong
    and open decisions, and the share of labels that sets miss.

    Use rows that the model was not trained on. The target column is the one used in training, unless --target names
    another. Rows that cannot be read are counted and left out; the exit code is then 3. A row whose label did not occur
    in training counts as an error.

    Example:

    dwac evaluate model/ test.csv
    """
    loaded = load(model, device=device)
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
    if model.clf.head != "dwac":
        return
    n = int(seen(model.clf, pd.Index(rows.ids, tupleize_cols=False), model.clf.embed(rows.X)).sum())
    if n:
        warnings.warn(
            f"{n:,} of the {len(rows):,} rows were used in training; results on them are too optimistic",
            UserWarning,
            stacklevel=2,
        )
