"""`dwac data`: the paper's datasets, which are here and where, and how to get the others."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from dwac import datasets

data = typer.Typer(no_args_is_help=True, help="The paper's datasets: see which are here, and download the others.")


@data.command("list")
def list_datasets() -> None:
    """Say which datasets are here, and where they are looked for.

    Example: dwac data list
    """
    console = Console()
    table = Table("dataset", "files", "here")
    folders = datasets.folders()
    for name in (*datasets.NAMES, "glove"):
        files = datasets.sources(name)
        found = [file for file in files if any((folder / file.folder / file.name).exists() for folder in folders)]
        table.add_row(name, str(len(files)), "yes" if len(found) == len(files) else f"{len(found)} of {len(files)}")
    console.print(table)
    console.print("looked for in: " + ", then ".join(str(folder) for folder in folders), soft_wrap=True)


@data.command()
def get(name: Annotated[str, typer.Argument(help="A dataset's name, as `dwac data list` has it.")]) -> None:
    """Download a dataset's official files, check them and say where they are.

    A download that broke off goes on where it ended. Example: dwac data get fashion_mnist
    """
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks = {file.name: bar.add_task(file.name, total=file.size, start=True) for file in datasets.sources(name)}
        paths = datasets.get(name, lambda file, done, total: bar.update(tasks[file], completed=done, total=total))
    for path in paths:
        console.print(str(path), soft_wrap=True)
