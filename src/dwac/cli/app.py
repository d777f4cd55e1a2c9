"""The commands, gathered under one name, and how errors are shown."""

from __future__ import annotations

from typing import Annotated, Any

import typer
import typer.core

import dwac
from dwac.cli.data import data
from dwac.cli.demo import demo
from dwac.cli.paper import paper
from dwac.errors import DwacError


class _Group(typer.core.TyperGroup):
    """Shows errors that dwac raises on purpose as one line, and exits with 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DwacError as error:
            typer.secho(f"dwac: {error}", fg="red", err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Classifiers whose every prediction is a weighted vote of training examples.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"dwac {dwac.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """Options of every command."""
    del version


app.command()(demo)
app.add_typer(data, name="data")
app.add_typer(paper, name="paper")
