"""A progress bar for training: loss, accuracy and time left, on the terminal's standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dwac.nn.ranks import is_first

Watch = dict[str, Any]
_COLUMNS = 100  # characters of a bar in a notebook, whose width nobody knows


@contextmanager
def progress_bar(title: str, epochs: int, *, show: bool | str = "auto") -> Iterator[Watch]:
    """The callbacks `on_epoch` and `on_batch` for `train`; they draw a progress bar inside the context.

    show: True, False, or "auto": only in a terminal or a notebook.
    """
    console = Console(stderr=True)
    if not _shown(console, show):
        yield {}
        return
    done = 0
    with _bar(console) as progress:
        task = progress.add_task(title, total=float(epochs), state="")

        def on_batch(batch: int, batches: int) -> None:
            progress.update(task, completed=done + batch / batches)

        def on_epoch(row: dict[str, Any]) -> None:
            nonlocal done
            done = row["epoch"]
            state = f"epoch {done}/{epochs}  loss {row['loss']:.3f}"
            if "validation_accuracy" in row:
                state += f"  accuracy {row['validation_accuracy']:.3f}"
            progress.update(task, completed=done, state=state)

        yield {"on_epoch": on_epoch, "on_batch": on_batch}


@contextmanager
def folds_bar(title: str, folds: int, *, show: bool | str = "auto") -> Iterator[Callable[[int], None]]:
    """A function to call with the number of folds done; it moves a progress bar inside the context."""
    console = Console(stderr=True)
    if not _shown(console, show):
        yield lambda _: None
        return
    with _bar(console) as progress:
        task = progress.add_task(title, total=float(folds), state=f"fold 1/{folds}")

        def done(fold: int) -> None:
            progress.update(task, completed=fold, state=f"fold {min(fold + 1, folds)}/{folds}")

        yield done


@contextmanager
def rows_bar(title: str, rows: int, *, show: bool | str = "auto") -> Iterator[Callable[[int], None]]:
    """A function to call with the number of rows done; it moves a progress bar inside the context."""
    console = Console(stderr=True)
    if not _shown(console, show):
        yield lambda _: None
        return
    with _bar(console) as progress:
        task = progress.add_task(title, total=float(rows), state=f"{rows:,} rows")
        yield lambda done: progress.update(task, completed=done)


def _shown(console: Console, show: bool | str) -> bool:
    return is_first() and bool(console.is_terminal or console.is_jupyter if show == "auto" else show)


def _bar(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=_plain(console), transient=True)


def _plain(console: Console) -> Console:
    """In a notebook without ipywidgets a console of plain text: rich would ask to install it instead of a bar."""
    if not console.is_jupyter or find_spec("ipywidgets") is not None:
        return console
    return Console(stderr=True, force_jupyter=False, force_terminal=True, color_system=None, width=_COLUMNS)
