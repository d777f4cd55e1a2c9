"""All commands under one name, and how errors are shown."""

from __future__ import annotations

import errno
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
import typer.core

import dwac
from dwac.cli.condense import condense
from dwac.cli.data import data
from dwac.cli.demo import demo
from dwac.cli.evaluate import evaluate
from dwac.cli.explain import explain
from dwac.cli.explore import explore
from dwac.cli.paper import paper
from dwac.cli.predict import predict
from dwac.cli.report import report
from dwac.cli.score import score
from dwac.cli.serve import serve
from dwac.cli.train import train
from dwac.errors import DwacError

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # of click, or of the copy of it that typer brings


class _Group(typer.core.TyperGroup):
    """Shows expected failures as one line. Exit codes: 1 for errors, 2 for wrong usage, 130 for Ctrl-C."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _in_one_line():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _in_one_line(), warnings.catch_warnings():
            warnings.showwarning = _note
            return super().invoke(ctx)


@contextmanager
def _in_one_line() -> Iterator[None]:
    try:
        yield
    except DwacError as error:
        code, message = 1, str(error)
    except KeyboardInterrupt:
        code, message = 130, "stopped"
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        code, message = 2, _usage(error)
    except OSError as error:
        if (
            error.errno == errno.EPIPE or error.filename is not None
        ):  # a closed pipe; or a file, which its command names
            raise
        code, message = 1, f"cannot write: {error.strerror or error}"
    else:
        return
    typer.secho(f"dwac: {_one_line(message)}", fg="red", err=True)
    raise typer.Exit(code)


def _usage(error: Any) -> str:
    message = error.format_message().rstrip(".")
    return f"{message}{'' if message.endswith('?') else ';'} see {error.ctx.command_path} --help"


def _note(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):  # other warnings are for programmers
        typer.secho(f"dwac: note: {_one_line(message)}", fg="yellow", err=True)


def _one_line(message: object) -> str:
    return " ".join(str(message).split())


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Models that predict by a weighted vote of their training examples.\n\n"
    "Example: dwac train people.csv --target income -o model/, then dwac predict model/ new.csv",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"dwac {dwac.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that come before the command."""
    del version


app.command()(demo)
for command in (train, predict, explain, evaluate, condense, score, report):
    app.command()(command)
app.command()(explore)
app.command()(serve)
app.add_typer(data, name="data")
app.add_typer(paper, name="paper")
