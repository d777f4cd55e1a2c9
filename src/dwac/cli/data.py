"""`dwac data`: the paper's datasets, which are here and where, and how to get the others."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from dwac import datasets
from dwac.errors import DwacError

data = typer.Typer(
    no_args_is_help=True,
    help="The paper's datasets: see which are here, and download the others.\n\nExample: dwac data list",
)


@data.command("list")
def list_datasets(
    check: Annotated[bool, typer.Option("--check", help="Read every file whole, and say which are damaged.")] = False,
) -> None:
    """Say which datasets are here and where, and where they are looked for.

    Example: dwac data list
    """
    console = Console()
    table = Table("dataset", "files", "here", "where")
    table.columns[-1].overflow = "fold"
    faults: list[str] = []
    for name in (*datasets.NAMES, "glove"):
        fault = _fault(name) if check else None
        faults += [fault] if fault else []
        state, places = _state(name)
        table.add_row(name, str(len(datasets.sources(name))), "damaged" if fault else state, "\n".join(places))
    console.print(table)
    for fault in faults:
        console.print(f"dwac: {fault}", style="red", soft_wrap=True, markup=False, highlight=False)
    console.print("looked for in: " + ", then ".join(map(str, datasets.folders())), soft_wrap=True, markup=False)
    if faults:
        raise typer.Exit(1)


def _state(name: str) -> tuple[str, list[str]]:
    """What the table says of a dataset: how much of it is here, and in which folders."""
    files, paths = datasets.sources(name), datasets.found(name)
    places = sorted({str(path.parent) for path in paths})
    if name == "glove" and paths:
        return ", ".join(path.name.removeprefix("glove.6B.").removesuffix(".txt") for path in paths), places
    if not paths and (by_hand := files[0].by_hand):
        return f"by hand: {by_hand}", places
    return "yes" if len(paths) == len(files) else f"{len(paths)} of {len(files)}" if paths else "no", places


def _fault(name: str) -> str | None:
    """What is wrong with the files of a dataset that are here."""
    try:
        datasets.check(name)
    except DwacError as error:
        return str(error)
    return None


@data.command()
def get(name: Annotated[str, typer.Argument(help="A dataset's name, as `dwac data list` has it.")]) -> None:
    """Download a dataset's official files, check them and say where they are.

    A download that broke off goes on where it ended. Example: dwac data get fashion_mnist
    """
    console, sources = Console(), datasets.sources(name)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks = {file.name: bar.add_task(file.name, total=file.size, start=True) for file in sources}
        paths = datasets.get(name, lambda file, done, total: bar.update(tasks[file], completed=done, total=total))
    for path in paths:
        console.print(str(path), soft_wrap=True)
