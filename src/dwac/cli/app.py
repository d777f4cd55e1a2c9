"""The commands, gathered under one name, and how errors are shown."""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import typer
import typer.core

import dwac
from dwac.cli.data import data
from dwac.cli.demo import demo
from dwac.cli.evaluate import evaluate
from dwac.cli.explain import explain
from dwac.cli.explore import explore
from dwac.cli.paper import paper
from dwac.cli.predict import predict
from dwac.cli.report import report
from dwac.cli.serve import serve
from dwac.cli.train import train
from dwac.errors import DwacError


class _Group(typer.core.TyperGroup):
    """Shows what dwac says on purpose as one line: errors, which end with 1, and warnings. Ctrl-C ends with 130."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _note
                return super().invoke(ctx)
        except DwacError as error:
            typer.secho(f"dwac: {_one_line(error)}", fg="red", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            typer.secho("dwac: stopped", fg="red", err=True)
            raise typer.Exit(130) from None


def _note(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):  # others speak to programmers
        typer.secho(f"dwac: note: {_one_line(message)}", fg="yellow", err=True)


def _one_line(said: object) -> str:
    return " ".join(str(said).split())


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
for command in (train, predict, explain, evaluate, report):
    app.command()(command)
app.command()(explore)
app.command()(serve)
app.add_typer(data, name="data")
app.add_typer(paper, name="paper")
