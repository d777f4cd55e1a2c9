"""`python -m reproduction run`: every fit of the paper's experiments that has no record yet."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from reproduction.commands import QuickOption, RecordsOption, open_records


def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="EXPERIMENT", help="Names as in `python -m reproduction list`; all by default."),
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

    Example: python -m reproduction run accuracy --datasets adult,covertype --heads xgboost
    """
    from rich.console import Console

    from reproduction import runner

    console, kept = Console(), open_records(records, quick)

    def show(case: Any, record: dict[str, Any], done: int, total: int) -> None:
        seconds = sum(record["seconds"].values())
        line = f"{done} of {total}  {case.key}  accuracy {record['accuracy']:.4f}  {seconds:.1f} s"
        console.print(line, highlight=False, soft_wrap=True)

    def tried(case: Any, values: dict[str, Any], found: dict[str, Any]) -> None:
        values_text = "  ".join(f"{name} {value:.6g}" for name, value in {**values, **found}.items())
        console.print(f"  {case.key} tried  {values_text}", highlight=False, soft_wrap=True)

    try:
        outcome = runner.run(
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


def _split(names: list[str] | None) -> list[str] | None:
    """Names given one at a time or separated by commas; None if there are none."""
    return [name for part in names for name in part.split(",") if name] if names else None
