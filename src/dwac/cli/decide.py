"""`dwac decide`: decide as many rows as a limit on errors allows, and hand the others over to a person."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from dwac.cli import options
from dwac.cli.output import write_or_pipe
from dwac.cli.predict import show
from dwac.cli.rows import exit_if_unreadable, read_rows, reasons_by_row, report_unreadable, rows_located


@options.with_bundles
def decide(
    model: options.Model,
    data: options.Data,
    output: options.Table = None,
    risk: Annotated[
        float, typer.Option(callback=options.share, help="The largest share of decided rows that may have an error.")
    ] = 0.05,
    measure: Annotated[
        str,
        typer.Option(
            metavar="|".join(options.MEASURES),
            callback=options.one_of(options.MEASURES),
            help="What counts: any error, or only false positives or false negatives of --label.",
        ),
    ] = "error",
    label: Annotated[str | None, typer.Option(help="The label that --measure is about.")] = None,
    tolerance: options.Tolerance = None,
    confidence: Annotated[
        float, typer.Option(callback=options.share, help="The probability with which the bound holds.")
    ] = 0.9,
    strangers: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            callback=options.share,
            help="Also hand over rows that are unlike the training data; on average, at most this share of them is "
            "handed over by mistake.",
        ),
    ] = None,
    private: options.Rounded = False,
    ids: options.Id = None,
    unknown: options.Unknown = None,
    json: options.Json = False,
    *,
    reading: options.ReadingOptions,
    tables: options.TableOptions,
) -> None:
    """Decide as many rows as a limit on errors allows, and hand the others over to a person, with the reason.

    Of the decided rows, at most a share --risk has an error, if rows are like those of training. This holds with
    probability --confidence, by counting the errors of the calibration rows. The last line says how many rows are
    decided, and on what evidence. Columns: id, decided, decision, expected_loss, why.

    Examples:

    dwac decide model/ new.csv -o decisions.csv

    dwac decide model/ new.csv --risk 0.02 --measure "false negatives" --label malignant

    dwac decide model/ houses.csv --tolerance 20000 --risk 0.1     # a model of numbers
    """
    options.check_rows(model, tables.form, data)
    options.check_table(output)
    import pandas as pd

    from dwac._checks import percent

    loaded = reading.load(model, unknown)
    clf = loaded.clf
    rows = read_rows(data, loaded, reading, tables, ids=ids)
    with rows_located(rows):
        rounded = True if private else None
        observed = clf.observe(rows.X, private=rounded)
        decisions = clf.decide(
            observed,
            risk,
            measure=measure,
            label=options.name_in(clf.target_.plain_names, label),
            tolerance=tolerance,
            confidence=confidence,
            private=rounded,
        )
    if strangers is not None:
        decisions = decisions.hand_over(
            clf.strangers(observed, strangers)["position"], "it is unlike the training data"
        )
    bad = reasons_by_row(observed.reasons)
    report_unreadable(bad, rows, strict=reading.strict, fate="are handed over")
    frame = decisions.to_frame().reset_index(drop=True)
    frame.insert(0, "id", pd.Series(rows.ids, dtype=object).infer_objects())
    if not write_or_pipe(frame, output, json=json):
        loss = frame["expected_loss"].map(lambda value: percent(value, most=1))
        show(frame.assign(expected_loss=loss, why=frame["why"].fillna("")), risk, Console())
    typer.echo(f"dwac: {decisions}".replace("\n", "\ndwac: "), err=True)
    exit_if_unreadable(bad)
