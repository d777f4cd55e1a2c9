"""All commands under one name, and how errors are shown."""

from __future__ import annotations

import errno
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.core
import typer.main

import dwac
from dwac.errors import DwacError, ProcessError

# Each command has a file of the same name, imported when the command runs. The library is imported only when the work
# begins: that takes seconds, and listing commands or reporting a wrong option must not.
COMMANDS = {
    "demo": "Train on handwritten digits except one, and see how the model treats the digit it has never seen.",
    "train": "Train a model on your data.",
    "predict": "Predict new rows, and say how far to trust each prediction.",
    "decide": "Decide as many rows as a limit on errors allows, and hand the others over to a person, with the reason.",
    "explain": "Explain predictions by the training examples with the largest votes, and show how few of them decide.",
    "letter": "Write one page in plain words to the person a row is about: the decision, why, and whom to ask.",
    "evaluate": "Measure a model on rows whose target is known: errors, calibration, coverage of sets or intervals, "
    "typicality.",
    "worth": "Measure what each training example is worth: which examples help predictions, and which harm them.",
    "forget": "Forget training rows: remove their votes and records, or with --exact every trace of them.",
    "silence": "Remove the votes of training rows, such as those with wrong labels, and leave calibration unchanged.",
    "reweigh": "Change the weights of voters as little as possible so that rates differ little between groups.",
    "condense": "Make a model small and fast: a few of its training examples vote for all.",
    "export": "Write a model with its vote to one file, for ONNX Runtime or PyTorch, and check it against Python.",
    "score": "Predict any number of rows, and write the predictions to a folder of Parquet shards.",
    "monitor": "Check whether new rows still resemble the calibration rows, and if not, show what changed.",
    "replay": "Compute recorded decisions again, and show which differ.",
    "impact": "Show which recorded decisions change if training examples are forgotten or relabelled.",
    "ledger": "Show how much each source of training examples contributed to the recorded decisions.",
    "report": "Write a report to read, mail or print: one HTML file that needs no network; or a model card in "
    "Markdown.",
    "explore": "Explore predictions in your browser: a map, the votes, and what would change without them. Runs until "
    "Ctrl-C.",
    "serve": "Serve predictions, explanations and prediction sets over HTTP, until Ctrl-C.",
}

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # from click, or from typer's copy of it


class OneLineErrors(typer.core.TyperGroup):
    """Shows expected failures as one line. Exit codes: 1 for errors, 2 for wrong usage, 130 for Ctrl-C.

    Also 75 if a process of a distributed training ended.
    """

    program = "dwac"  # named at the start of the line

    def make_context(self, info_name: Any, args: list[str], *rest: Any, **options: Any) -> Any:
        """Read the options."""
        with _in_one_line(self.program):
            return super().make_context(info_name, args, *rest, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _in_one_line(self.program), warnings.catch_warnings():
            warnings.showwarning = _notes(self.program)
            return super().invoke(ctx)


class _Group(OneLineErrors):
    """Imports a command only when it runs, and none to list them."""

    _listed = False  # whether only names and summaries of commands are needed

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        names: Any = dict.fromkeys(COMMANDS)
        self.commands = names  # to suggest the name that was probably meant

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        del ctx
        if name not in COMMANDS:
            return None
        return typer.core.TyperCommand(name, help=COMMANDS[name]) if self._listed else command(name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listed = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listed = False


@contextmanager
def _in_one_line(program: str) -> Iterator[None]:
    try:
        yield
    except DwacError as error:
        code, message = ProcessError.exit_code if isinstance(error, ProcessError) else 1, str(error)
    except KeyboardInterrupt:
        code, message = 130, "stopped"
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        code, message = 2, _usage(error)
    except OSError as error:
        if error.errno == errno.EPIPE or error.filename is not None:
            raise  # a closed pipe; or a file error, which the command reports
        code, message = 1, f"cannot write: {error.strerror or error}"
    else:
        return
    typer.secho(f"{program}: {_one_line(message)}", fg="red", err=True)
    raise typer.Exit(code)


def _usage(error: Any) -> str:
    message = error.format_message().rstrip(".")
    return f"{message}{'' if message.endswith('?') else ';'} see {error.ctx.command_path} --help"


def _notes(program: str) -> Callable[..., None]:
    """Print each warning once, from wherever it comes."""
    printed: set[str] = set()

    def note(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        line = _one_line(message)
        if issubclass(category, UserWarning) and line not in printed:  # other warnings are for programmers
            printed.add(line)
            typer.secho(f"{program}: note: {line}", fg="yellow", err=True)

    return note


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


def _version(requested: bool) -> None:
    if requested:
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


@cache
def command(name: str) -> Any:
    """The command of this name, imported."""
    function = getattr(import_module(f"dwac.cli.{name}"), name)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name)(function)
    return typer.main.get_command(alone)
