"""`dwac replay`: recorded decisions computed again, and which of them differ."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from dwac.cli import options
from dwac.cli.output import print_json, print_lines
from dwac.cli.predict import recorded_ids
from dwac.cli.rows import read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from dwac.reading import Model, Rows

RecordFolder = Annotated[
    str, typer.Argument(metavar="RECORD", help="The folder that dwac predict or score --record wrote.")
]
_SHOWN = 20  # values that differ


@options.with_bundles
def replay(
    record: RecordFolder,
    model: options.Model,
    data: options.Data,
    other_model: Annotated[
        bool,
        typer.Option(
            "--other-model", help="Also compare decisions of models with other fingerprints with those of MODEL."
        ),
    ] = False,
    ids: options.Id = None,
    json: options.Json = False,
    *,
    reading: options.ReadingOptions,
    tables: options.TableOptions,
) -> None:
    """Compute recorded decisions again, and show which differ.

    Every value is compared bit for bit: answer, set or interval, typicality, groups. Rows are found by id. A row of
    DATA whose hash shows that it has changed since the decision is named. If any value differs, or any row changed or
    is missing, the exit code is 1.

    Examples:

    dwac predict model/ new.csv --id case --record decisions/

    dwac replay decisions/ model/ new.csv --id case
    """
    loaded, rows = read_decided(model, data, ids, reading, tables)
    from dwac.records import replay as replay_record

    result = replay_record(record, loaded.clf, rows.X, rows.ids, other_model=other_model)
    if json:
        differences = result.differences.assign(time=result.differences["time"].map(str)).to_dict("records")
        print_json({**vars(result), "differences": differences, "same": result.same})
    else:
        found = result.differences.head(_SHOWN).to_dict("records")
        lines = [f"{each['id']}: {each['column']} was {each['recorded']}, is {each['now']}" for each in found]
        more = len(result.differences) - len(found)
        print_lines([*str(result).splitlines(), *lines, *([f"… and {more:,} more values"] if more > 0 else [])])
    if not result.same:
        raise typer.Exit(1)


def read_decided(
    model: Path, data: str, ids: str | None, reading: options.ReadingOptions, tables: options.TableOptions
) -> tuple[Model, Rows]:
    """The model, and the rows that it decided on, with their ids in the record."""
    options.check_rows(model, tables.form, data)
    loaded = reading.load(model)
    rows = read_rows(data, loaded, reading, tables, ids=ids)
    return loaded, replace(rows, ids=recorded_ids(rows, data))
