"""`dwac ledger`: how much each source of training examples contributed to the recorded decisions."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dwac.cli import options
from dwac.cli.output import write_or_pipe
from dwac.cli.replay import RecordFolder, read_decided


@options.with_bundles
def ledger(
    record: RecordFolder,
    model: options.Model,
    data: options.Data,
    by: Annotated[
        str,
        typer.Option(metavar="COLUMN", help="The column with the source: a clinic, an annotator, a year."),
    ],
    training: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The training data with that column, if it is not among the model's training records."
        ),
    ] = None,
    output: options.Table = None,
    ids: options.Id = None,
    json: options.Json = False,
    *,
    reading: options.ReadingOptions,
    tables: options.TableOptions,
) -> None:
    """Show how much each source of training examples contributed to the recorded decisions.

    The shares of the votes on a decision sum to 1. The contribution of a source is the sum of the shares of its
    examples over all decisions, so all contributions sum to the number of decisions.

    Examples:

    dwac ledger decisions/ model/ new.csv --by clinic

    dwac ledger decisions/ model/ new.csv --by annotator --training training.csv
    """
    options.check_table(output)
    loaded, rows = read_decided(model, data, ids, reading, tables)
    from dwac.reading import read
    from dwac.records import ledger as ledger_of

    sources: Any = by
    if training is not None:
        roles = {"ids": loaded.columns.id, "keep": [by], **tables.arguments()}
        known = read(training, like=loaded, text=reading.text, **roles)  # notes on other columns would not help
        assert known.kept is not None
        sources = dict(zip(known.ids, known.kept[by].tolist(), strict=True))
    frame = ledger_of(record, loaded.clf, rows.X, rows.ids, by=sources)
    if not write_or_pipe(frame, output, json=json):
        table = Table(*frame.columns)
        for source, examples, decisions, share, each in frame.itertuples(index=False):
            table.add_row(str(source), f"{examples:,}", f"{decisions:,.1f}", f"{share:.1%}", f"{each:.3f}")
        Console().print(table)
