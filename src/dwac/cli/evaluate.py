"""`dwac evaluate`: errors, calibration, coverage and typicality of a model on rows whose target is known."""

from __future__ import annotations

from rich.console import Console

from dwac.cli import options
from dwac.cli.output import at_work, evaluation_tables, group_tables, print_json
from dwac.cli.rows import (
    exit_if_unreadable,
    in_training,
    read_rows,
    readable_rows,
    reasons_by_row,
    report_unreadable,
    rows_located,
)
from dwac.errors import EPSILON


@options.with_bundles
def evaluate(
    model: options.Model,
    data: options.Data,
    target: options.Target = None,
    epsilon: options.Epsilon = EPSILON,
    unknown: options.Unknown = None,
    unlabelled: options.Unlabelled = "refuse",
    by: options.By = None,
    cost: options.Cost = None,
    json: options.Json = False,
    *,
    reading: options.ReadingOptions,
    tables: options.TableOptions,
) -> None:
    """Measure a model on rows whose target is known: errors, calibration, coverage of sets or intervals, typicality.

    Classes: accuracy, log loss, calibration, coverage and size of prediction sets; for ordered labels also the distance
    from the true label. Numbers: RMSE, MAE, CRPS, coverage and width of intervals. Several labels: F1, Hamming loss,
    subset accuracy, wrong and open decisions, and the share of labels that sets miss.

    Use rows that the model was not trained on. The target column is the one used in training, unless --target names
    another. Rows that cannot be read are counted and left out; the exit code is then 3. A row whose label did not occur
    in training counts as an error.

    --by compares groups: for each of them the same measures with 95 % intervals (in full with --json), the largest
    differences, and a test of each that counts all comparisons. --cost gives the decision that costs least.

    Examples:

    dwac evaluate model/ test.csv

    dwac evaluate model/ people.csv --by sex --by region

    dwac evaluate model/ loans.csv --cost bad/good=5 --cost good/bad=1
    """
    options.check_rows(model, tables.form, data)
    from dwac._checks import warn
    from dwac.estimator.evaluation import evaluate as evaluate_rows
    from dwac.estimator.evaluation import predict, read_groups

    loaded = reading.load(model, unknown)
    names = loaded.clf.target_.names.tolist()
    costs = options.costs_of(cost, names, several=loaded.task == "labels")
    rows = read_rows(data, loaded, reading, tables, labelled=True, target=target, unlabelled=unlabelled, keep=by or ())
    with at_work(f"evaluating {len(rows):,} rows"):
        with rows_located(rows):
            predictions = predict(loaded.clf, rows.X)
        bad = reasons_by_row(predictions.reasons)
        report_unreadable(bad, rows, strict=reading.strict, fate="are left out")
        known = readable_rows(rows, bad)
        if n := int(in_training(loaded.clf, known, predictions.h.cpu().numpy()).sum()):
            warn(f"{n:,} of the {len(known):,} rows were used in training; results on them are too optimistic")
        named = {} if json else {"legend": loaded.clf.legend_}
        groups = None if rows.kept is None else read_groups(rows.kept, None, len(rows), **named)
        evaluated = evaluate_rows(predictions, rows.y, epsilon, strict=reading.strict, by=groups, costs=costs)
    if json:
        print_json(evaluated.to_dict())
    else:
        left = f", {len(bad):,} more could not be read" if bad else ""
        console = Console()
        console.print(*evaluation_tables(evaluated, f"{data}: {evaluated.n:,} rows{left}"))
        if evaluated.groups is not None:
            console.print(*group_tables(evaluated.groups))
            console.print(*evaluated.groups.notes, sep="\n", highlight=False)
        if evaluated.advice:
            console.print(f"{evaluated.advice}.", highlight=False)
    exit_if_unreadable(bad)
