"""All commands of the reproduction under one name; each has a file in commands/."""

from __future__ import annotations

import typer

from dwac.cli.app import OneLineErrors
from reproduction.commands.data import data
from reproduction.commands.list import list_experiments
from reproduction.commands.report import report
from reproduction.commands.run import run

PROGRAM = "python -m reproduction"


class _Group(OneLineErrors):
    program = "reproduction"


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="The paper's experiments on real data, and its datasets.\n\nExample: python -m reproduction run --quick",
)
app.command("list")(list_experiments)
app.command()(run)
app.command()(report)
app.add_typer(data, name="data")
