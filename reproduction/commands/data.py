"""`python -m reproduction data`: list the paper's datasets, and download those that are missing."""

from __future__ import annotations

from typing import Annotated

import typer

from dwac.errors import DwacError

data = typer.Typer(
    no_args_is_help=True,
    help="The paper's datasets: list those on this machine, and download the others.\n\n"
    "Example: python -m reproduction data list",
)


@data.command("list")
def list_datasets(
    check: Annotated[
        bool, typer.Option("--check", help="Read every file in full and report those that are damaged.")
    ] = False,
) -> None:
    """List the datasets, where their files are, and which folders are searched.

    Example: python -m reproduction data list
    """
    from rich.console import Console
    from rich.table import Table

    from reproduction import datasets

    console = Console()
    table = Table("dataset", "files", "present", "folder")
    table.columns[-1].overflow = "fold"
    faults: list[str] = []
    for name in (*datasets.NAMES, "glove"):
        fault = _fault(name) if check else None
        faults += [fault] if fault else []
        state, places = _state(name)
        table.add_row(name, str(len(datasets.sources(name))), "damaged" if fault else state, "\n".join(places))
    console.print(table)
    for fault in faults:
        console.print(f"reproduction: {fault}", style="red", soft_wrap=True, markup=False, highlight=False)
    console.print("folders searched: " + ", then ".join(map(str, datasets.folders())), soft_wrap=True, markup=False)
    if faults:
        raise typer.Exit(1)


def _state(name: str) -> tuple[str, list[str]]:
    """How much of a dataset is present, and in which folders."""
    from reproduction import datasets

    files, paths = datasets.sources(name), datasets.found(name)
    places = sorted({str(path.parent) for path in paths})
    if name == "glove" and paths:
        return ", ".join(path.name.removeprefix("glove.6B.").removesuffix(".txt") for path in paths), places
    if not paths and (by_hand := files[0].by_hand):
        return f"download by hand: {by_hand}", places
    return "yes" if len(paths) == len(files) else f"{len(paths)} of {len(files)}" if paths else "no", places


def _fault(name: str) -> str | None:
    """What is wrong with the files of a dataset, or None."""
    from reproduction import datasets

    try:
        datasets.check(name)
    except DwacError as error:
        return str(error)
    return None


@data.command()
def get(
    name: Annotated[
        str, typer.Argument(help="The name of a dataset; `python -m reproduction data list` shows them all.")
    ],
) -> None:
    """Download the official files of a dataset, verify them and print their paths.

    An interrupted download is resumed. Example: python -m reproduction data get fashion_mnist
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from reproduction import datasets

    console, sources = Console(), datasets.sources(name)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks = {file.name: bar.add_task(file.name, total=file.size, start=True) for file in sources}
        paths = datasets.get(name, lambda file, done, total: bar.update(tasks[file], completed=done, total=total))
    for path in paths:
        console.print(str(path), soft_wrap=True)
