"""`dwac evaluate`: how good, how honest and how wary a model is on rows whose labels are known."""

from __future__ import annotations

import warnings

import pandas as pd
from rich.console import Console

from dwac.cli.options import (
    DataArgument,
    DeviceOption,
    EncodingOption,
    EpsilonOption,
    FormatOption,
    JsonOption,
    ModelArgument,
    TargetOption,
    TextOption,
)
from dwac.cli.output import evaluation_tables, say_json
from dwac.evaluation import evaluate as evaluate_rows
from dwac.evaluation import predict
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
    json: JsonOption = False,
) -> None:
    """Compare a model's predictions with known labels: accuracy, calibration, coverage of label sets, credibility.

    Give rows that the model was not trained on. The target is the one of training, unless --target names another.

    Example:

    dwac evaluate model/ test.csv
    """
    loaded = load(model, device=device)
    rows = read(data, like=loaded, target=target, text=text, labelled=True, form=form, encoding=encoding)
    _warn_of_voters(loaded, rows)
    found = evaluate_rows(predict(loaded.clf, rows.X), rows.y, epsilon)
    if json:
        say_json(found.to_dict())
    else:
        Console().print(*evaluation_tables(found, f"{data}: {len(rows):,} rows"))


def _warn_of_voters(model: Model, rows: Rows) -> None:
    """Rows that vote find themselves."""
    if model.clf.head != "dwac":
        return
    n = int(seen(model.clf, pd.Index(rows.ids, tupleize_cols=False), model.clf.embed(rows.X)).sum())
    if n:
        warnings.warn(
            f"{n:,} of the {len(rows):,} rows took part in training: on these a model is too good to be true",
            UserWarning,
            stacklevel=2,
        )
