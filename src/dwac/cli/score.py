"""`dwac score`: predict more rows than memory holds, into a folder of Parquet shards, on one machine or many."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dwac.cli import options
from dwac.cli.output import print_json, progress_printed
from dwac.cli.rows import SOME_UNREADABLE
from dwac.errors import EPSILON, InputError

if TYPE_CHECKING:
    from dwac.scoring.pieces import Done
    from dwac.scoring.run import Run

_NAMED = 5  # failed pieces whose reasons are shown


@options.with_bundles
def score(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A model folder, or hf://owner/name; every worker must see it under this path."
        ),
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
    epsilon: options.Epsilon = EPSILON,
    local: options.Local = False,
    probabilities: options.Probabilities = False,
    voters: Annotated[
        int,
        typer.Option(min=0, metavar="K", help="Also write the K training examples with the largest votes on each row."),
    ] = 0,
    quantiles: options.Quantiles = None,
    private: options.Rounded = False,
    ids: options.Id = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help=f"{', '.join(options.SCORED_FORMATS)}. Default: inferred from the file names."),
    ] = None,
    encoding: options.Encoding = "utf-8",
    separator: options.Separator = None,
    decimal: options.Decimal = None,
    day_first: options.DayFirst = None,
    name: Annotated[
        str,
        typer.Option(
            "--engine", help=f"What runs the work: {', '.join(options.ENGINES)}. local: processes on this machine."
        ),
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of processes. Default: one per core, or one per GPU.")
    ] = None,
    threads: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Threads of each process; another number may change the last digits."),
    ] = 1,
    address: Annotated[
        str | None, typer.Option(metavar="URL", help="The address of a running Ray, Dask or Spark cluster.")
    ] = None,
    record: options.Record = None,
    unknown: options.Unknown = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace another run that OUT holds.")] = False,
    json: options.Json = False,
    *,
    reading: options.ReadingOptions,
) -> None:
    """Predict any number of rows, and write the predictions to a folder of Parquet shards.

    The columns are those of `dwac predict`. Without --id, `id` is the number of the row in its file and `file` names
    that file. Read them all with pandas.read_parquet("scores/") or any other reader of Parquet.

    The data may be larger than memory: it is scored in pieces of some 30,000 rows or more. Each becomes one shard,
    which is written completely or not at all. If the run is stopped, start it again: it continues where it stopped, and
    the result has the same bytes, whatever the engine and the number of workers.

    Rows that cannot be read are in OUT/_unreadable with the reason, and the exit code is 3. If a file is damaged or
    lacks columns, all others are finished, and the exit code is 1; repair it and run again.

    Examples:

    dwac score model/ rows.csv -o scores/

    dwac score model/ 's3://bucket/rows/*.parquet' -o s3://bucket/scores/ --id customer --workers 16

    dwac score /shared/model s3://bucket/rows/ -o s3://bucket/scores/ --engine ray --address auto
    """
    options.check_model(model)
    options.check_choice("format", form, options.SCORED_FORMATS)
    options.check_choice("engine", name, options.ENGINES)
    options.check_data(data)
    from dwac.reading import check_notation
    from dwac.scoring.engines import engine
    from dwac.scoring.run import default_workers, prepare

    engine(name)  # raises an error before any work, if it is not installed
    console = Console(stderr=True)
    run = prepare(
        model,
        data,
        output,
        form=form,
        encoding=encoding,
        strict=reading.strict,
        overwrite=overwrite,
        announce=lambda what: console.print(what, highlight=False, soft_wrap=True),
        epsilon=epsilon,
        local=local,
        probabilities=probabilities,
        voters=voters,
        quantiles=options.levels_of(quantiles),
        id=ids,
        text=reading.text,
        private=True if private else None,
        unknown=unknown,
        device=reading.device,
        expect=reading.expect,
        record=record,
        threads=threads,
        separator=check_notation(separator, decimal, day_first).separator,
        decimal=decimal,
        day_first=day_first,
    )
    workers = workers or default_workers(run.task.request)
    began = time.perf_counter()
    console.print(_plan_line(run, workers, name), highlight=False, soft_wrap=True)
    _score(run, run.results(name, workers, {"address": address}))
    _finish(run, time.perf_counter() - began, console, json=json)


def _plan_line(run: Run, workers: int, name: str) -> str:
    """The plan, in a sentence."""
    n, left = len(run.pieces), len(run.pending)
    files = len({piece.file for piece in run.pieces})
    earlier = f"; {n - left:,} {'is' if n - left == 1 else 'are'} done already" if left < n else ""
    where = f"{workers} worker{'s' if workers > 1 else ''}" + ("" if name == "local" else f" on {name}")
    return (
        f"scoring {files:,} file{'s' if files > 1 else ''} in {n:,} piece{'s' if n > 1 else ''} with {where}{earlier}"
    )


def _score(run: Run, results: Iterator[Done]) -> None:
    """Take the results, while progress is shown."""
    from dwac.training.progress import work_bar

    size = {piece.number: max(piece.size, 1) for piece in run.pending}
    finished, began = 0, time.perf_counter()
    hint = "Ctrl-C stops, and the same command continues from there"
    with progress_printed(hint), work_bar("scoring", sum(size.values()), "0 rows", "auto") as update:
        for done in results:
            finished += size[done.piece]
            rate = run.summary.rows / (time.perf_counter() - began)
            update(finished, f"{run.summary.rows:,} rows, {rate:,.0f} rows/s")


def _result_line(run: Run, seconds: float) -> str:
    """What was written, in a sentence."""
    from dwac.training.progress import duration

    rows, n = run.summary.rows, len(run.pending) - len(run.summary.failed)
    if not run.pending:
        return f"nothing is left to do: every shard is in {run.task.out}"
    if not n:
        return f"nothing could be scored; {duration(seconds)}"
    rate = f", {rows / seconds:,.0f} rows/s" if rows else ""
    return f"written: {run.task.out}, {rows:,} rows in {n:,} shard{'' if n == 1 else 's'}; {duration(seconds)}{rate}"


def _finish(run: Run, seconds: float, console: Console, *, json: bool) -> None:
    """Print the result, and exit with its code."""
    from dwac.scoring.task import UNREADABLE

    summary, out = run.summary, run.task.out
    failed = {done.piece: done.error for done in summary.failed}
    files = {piece.number: piece for piece in run.pieces}
    if json:
        print_json(
            {
                "output": out,
                "rows": summary.rows,
                "unreadable": summary.unreadable,
                "pieces": len(run.pieces),
                "earlier": len(run.pieces) - len(run.pending),
                "failed": [{"file": files[piece].name, "shard": files[piece].shard, "error": error}
                           for piece, error in failed.items()],
                "seconds": seconds,
            }
        )  # fmt: skip
    else:
        console.print(_result_line(run, seconds), highlight=False, soft_wrap=True)
    if failed:
        reasons = list(dict.fromkeys(failed.values()))
        for error in reasons[:_NAMED]:
            typer.secho(f"dwac: {error}", fg="red", err=True)
        hidden = len(reasons) - _NAMED
        more = f" ({hidden:,} more reason{'s' * (hidden > 1)})" if hidden > 0 else ""
        rest = "; all others are written" if len(failed) < len(run.pieces) else ""
        raise InputError(
            f"{len(failed):,} of {len(run.pieces):,} pieces could not be scored{more}{rest}; repair what is wrong and "
            "run the same command again"
        )
    if summary.side_files:
        count = f"{summary.unreadable:,} row{'s' * (summary.unreadable > 1)}"
        n = count if summary.unreadable else "some rows, scored earlier,"
        typer.secho(
            f"dwac: {n} could not be read; each is in {out}/{UNREADABLE}/ with the reason", fg="yellow", err=True
        )
        raise typer.Exit(SOME_UNREADABLE)
