"""Options of `dwac score`, and what it refuses at once."""

from __future__ import annotations

from typing import Annotated

import typer

from dwac.cli.early import ENGINES, SCORED_FORMATS, check_choice, check_data, check_model, work
from dwac.cli.options import (
    DayFirstOption,
    DecimalOption,
    DeviceOption,
    EncodingOption,
    EpsilonOption,
    ExpectOption,
    IdOption,
    JsonOption,
    PrivateOption,
    ProbabilitiesOption,
    QuantilesOption,
    SeparatorOption,
    StrictOption,
    TextOption,
    UnknownOption,
)
from dwac.errors import EPSILON


def score(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model folder; every worker must see it under this path.")
    ],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Parquet, CSV, TSV or JSON Lines (also .gz, .zst): a file, a folder, a glob such as 'rows/*.csv', or "
            "a URL such as s3://bucket/rows/.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT", help="The folder of Parquet shards to write: a path or URL.")
    ],
    epsilon: EpsilonOption = EPSILON,
    probabilities: ProbabilitiesOption = False,
    voters: Annotated[
        int, typer.Option(min=0, metavar="K", help="Also the K training examples with the largest votes on each row.")
    ] = 0,
    quantiles: QuantilesOption = None,
    private: PrivateOption = False,
    text: TextOption = None,
    ids: IdOption = None,
    form: Annotated[
        str | None, typer.Option("--format", help=f"{', '.join(SCORED_FORMATS)}; by default from the file names.")
    ] = None,
    encoding: EncodingOption = "utf-8",
    separator: SeparatorOption = None,
    decimal: DecimalOption = None,
    day_first: DayFirstOption = None,
    name: Annotated[
        str, typer.Option("--engine", help=f"What runs the work: {', '.join(ENGINES)}. local: processes here.")
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processes; by default one per core, or one per GPU.")
    ] = None,
    threads: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Threads of each process; with other numbers, last digits may differ."),
    ] = 1,
    address: Annotated[
        str | None, typer.Option(metavar="URL", help="Of a Ray, Dask or Spark cluster that already runs.")
    ] = None,
    unknown: UnknownOption = None,
    device: DeviceOption = "auto",
    expect: ExpectOption = None,
    strict: StrictOption = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another run that OUT holds.")] = False,
    json: JsonOption = False,
) -> None:
    """Predict any number of rows into a folder of Parquet shards, and say how far to trust each.

    The columns are those of `dwac predict`. Without --id, `id` is the number of the row in its file and `file` names
    that file. Read them all with pandas.read_parquet("scores/") or any other reader of Parquet.

    The data may be larger than memory: it is scored in pieces of some 30,000 rows or more, each of which becomes one
    shard, written whole or not at all. If the run is stopped, start it again: it goes on where it was, and ends with
    the same bytes, whatever the engine and the number of workers.

    Rows that cannot be read are in OUT/_unreadable with the reason, and the exit code is 3. If a file is damaged or
    lacks columns, all others are finished, and the exit code is 1; repair it and run again.

    Examples:

    dwac score model/ rows.csv -o scores/

    dwac score model/ 's3://bucket/rows/*.parquet' -o s3://bucket/scores/ --id customer --workers 16

    dwac score /shared/model s3://bucket/rows/ -o s3://bucket/scores/ --engine ray --address auto
    """
    asked = locals()
    check_model(model)
    check_choice("format", form, SCORED_FORMATS)
    check_choice("engine", name, ENGINES)
    check_data(data)
    work("score", asked)
