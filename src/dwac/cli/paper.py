"""`dwac paper`: list the paper's experiments on real data, run them, and report their results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dwac import paper as experiments

paper = typer.Typer(
    no_args_is_help=True,
    help="The paper's experiments on real data: list, run and report them.\n\nExample: dwac paper run --quick",
)

RecordsOption = Annotated[
    Path | None,
    typer.Option("--records", help="Folder of records; by default docs/results/paper in a checkout, else dwac-paper."),
]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="Use little data and one epoch, with a separate folder of records.")
]


@paper.command("list")
def list_experiments(records: RecordsOption = None, quick: QuickOption = False) -> None:
    """List the experiments, how many of their fits are recorded, and how many of these records are stale.

    Example: dwac paper list
    """
    console, kept = Console(), _records(records, quick)
    done = {experiments.Case(**record["case"]): record["metrics"] for record in kept if experiments.current(record)}
    stale = {experiments.Case(**record["case"]) for record in kept if experiments.stale(record)}
    by_name = Table("experiment", "measures", "fits recorded")
    for name, experiment in experiments.EXPERIMENTS.items():
        cases = experiments.select([name], quick=quick)
        by_name.add_row(name, experiment.TITLE, f"{sum(name in done.get(case, {}) for case in cases)} of {len(cases)}")
    by_dataset = Table("dataset", "fits recorded", "stale")
    for name in experiments.SOURCES:
        cases = experiments.select(datasets=[name], quick=quick)
        old = sum(case in stale for case in cases)
        by_dataset.add_row(name, f"{sum(case in done for case in cases)} of {len(cases)}", str(old))
    console.print(by_name, by_dataset, f"records: {kept.folder}", soft_wrap=True)


@paper.command()
def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="EXPERIMENT", help="Names as in `dwac paper list`; all by default."),
    ] = None,
    datasets: Annotated[
        list[str] | None, typer.Option(help="One, or several separated by commas; all by default.")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option(help="paper: the paper's models. best: our defaults.")] = None,
    heads: Annotated[
        list[str] | None, typer.Option(help="dwac, softmax, xgboost, lightgbm, catboost or svm; all by default.")
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Run the first N trials of each.")] = None,
    trial: Annotated[
        list[int] | None, typer.Option(min=0, help="Run only this trial, counted from 0; may be repeated.")
    ] = None,
    quick: QuickOption = False,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only repeat fits whose records were made by other code or settings.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, …")] = "auto",
    records: RecordsOption = None,
) -> None:
    """Run every fit that has no record yet. A stopped run continues where it was.

    A fit is repeated if its settings, or the recipe of its encoder, have changed since. Other changes of the code make
    its record stale, which the report shows next to the numbers; --stale repeats these fits.

    Example: dwac paper run accuracy --datasets adult,covertype --heads xgboost
    """
    console, kept = Console(), _records(records, quick)

    def show(case: Any, record: dict[str, Any], done: int, total: int) -> None:
        seconds = sum(record["seconds"].values())
        line = f"{done} of {total}  {case.key}  accuracy {record['accuracy']:.4f}  {seconds:.1f} s"
        console.print(line, highlight=False, soft_wrap=True)

    def tried(case: Any, values: dict[str, Any], found: dict[str, Any]) -> None:
        values_text = "  ".join(f"{name} {value:.6g}" for name, value in {**values, **found}.items())
        console.print(f"  {case.key} tried  {values_text}", highlight=False, soft_wrap=True)

    try:
        outcome = experiments.run(
            _split(names),
            datasets=_split(datasets),
            settings=_split(settings),
            heads=_split(heads),
            trials=trial or trials,
            quick=quick,
            stale=stale,
            device=device,
            records=kept.folder,
            on_done=show,
            on_tried=tried,
        )
    except KeyboardInterrupt:
        n = sum(1 for _ in kept)
        console.print(f"\nstopped; {n} records are kept in {kept.folder}; repeat the command to continue")
        raise typer.Exit(130) from None
    for name, reason in outcome.missing.items():
        console.print(f"[yellow]not run[/yellow]: {name}: ", end="")
        console.print(reason, highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"{len(outcome.fitted)} fits recorded, {outcome.kept} already there: {outcome.folder}", soft_wrap=True
    )
    if outcome.failed:
        raise typer.Exit(1)


@paper.command()
def report(
    records: RecordsOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="File to write; by default docs/RESULTS.md in a checkout, else RESULTS.md next to the records."
        ),
    ] = None,
    quick: QuickOption = False,
) -> None:
    """Write RESULTS.md and its figures from the records.

    Example: dwac paper report --output docs/RESULTS.md
    """
    kept = _records(records, quick)
    if next(iter(kept), None) is None:
        raise experiments.PaperError(
            f"no records in {kept.folder}; make some with `dwac paper run`, or name another folder with --records"
        )
    if output is None:
        usual = records is None and not quick and kept.folder.parts[0] == "docs"
        output = Path("docs/RESULTS.md") if usual else kept.folder / "RESULTS.md"
    Console().print(f"written: {experiments.write_report(kept.folder, output)}", soft_wrap=True)


def _records(folder: Path | None, quick: bool) -> experiments.Records:
    return experiments.Records(experiments.default_folder(quick=quick) if folder is None else folder)


def _split(names: list[str] | None) -> list[str] | None:
    """Names given one at a time or separated by commas; None if there are none."""
    return [name for part in names for name in part.split(",") if name] if names else None
