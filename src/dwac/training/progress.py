"""Progress of long-running work: a bar on the terminal's standard error, and lines in the log.

If the work takes long, the log has one estimate of the time, from measured steps; and, without a bar, a line every half
minute. `dwac` prints the log; a program enables it with logging.getLogger("dwac.training.progress").setLevel("INFO").
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dwac._checks import percent
from dwac.nn.ranks import is_first

logger = logging.getLogger(__name__)

EVERY = 30.0  # seconds between lines; work that takes longer is estimated
_MEASURED = 2.0  # seconds of steps for the estimate, after the first step, which is slower

Watch = dict[str, Any]
_COLUMNS = 100  # characters of a bar in a notebook, whose width is unknown


def duration(seconds: float) -> str:
    """A time in words, rounded like an estimate.

    >>> duration(8), duration(67), duration(130), duration(700), duration(7300)
    ('8 seconds', '70 seconds', '2 minutes', '12 minutes', '2.0 hours')
    """
    if seconds < 90:
        whole = max(round(seconds, -1 if seconds > 30 else None), 1)
        return f"{whole:.0f} second{'s' * (whole > 1)}"
    return f"{round(seconds / 60)} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


class Pace:
    """Logs how long the work will take, once, and its progress, every half minute.

    Args:
        title: what the work is.
        lines: whether to log progress; False if a bar shows it.
        clock: seconds from any starting point.
    """

    def __init__(self, title: str, *, lines: bool = True, clock: Callable[[], float] = time.perf_counter) -> None:
        self.title, self.lines, self.clock = title, lines, clock
        self.logged_at = clock()
        self.first_step: tuple[float, float] | None = None  # time of the first step, and the share done by then
        self.estimated = False

    def at(self, share: float, state: str = "") -> None:
        """Report the share of the work done, 0 to 1; state: additional text."""
        now = self.clock()
        if self.first_step is None or share <= self.first_step[1]:
            self.first_step = now, share
            return
        spent = now - self.first_step[0]
        if spent < _MEASURED:
            return
        left = spent * (1 - share) / (share - self.first_step[1])
        if not self.estimated:
            self.estimated = True
            if left > EVERY:
                logger.info("%s takes up to about %s", self.title, duration(spent + left), extra={"estimate": True})
        if self.lines and now - self.logged_at >= EVERY and share < 1:
            self.logged_at = now
            done = f"{self.title}: {percent(share, 0)}, {state}" if state else f"{self.title}: {percent(share, 0)}"
            logger.info("%s, up to about %s left", done, duration(left))


@contextmanager
def progress_bar(title: str, epochs: int, *, show: bool | str = "auto") -> Iterator[Watch]:
    """The callbacks `on_epoch` and `on_batch` for `train`; inside the context they show and log progress.

    show: True, False, or "auto": a bar only in a terminal or a notebook.
    """
    with work_bar(title, float(epochs), "", show) as update:
        done, state = 0.0, ""

        def on_batch(batch: int, batches: int) -> None:
            update(done + batch / batches, state)

        def on_epoch(row: dict[str, Any]) -> None:
            nonlocal done, state
            done = row["epoch"]
            state = f"epoch {done}/{epochs}  loss {row['loss']:.3f}"
            if "validation_accuracy" in row:
                state += f"  accuracy {row['validation_accuracy']:.3f}"
            update(done, state)

        yield {"on_epoch": on_epoch, "on_batch": on_batch}


@contextmanager
def folds_bar(title: str, folds: int, *, show: bool | str = "auto") -> Iterator[Callable[[int], None]]:
    """A function to call with the number of folds done."""
    with work_bar(title, float(folds), f"fold 1/{folds}", show) as update:
        yield lambda fold: update(float(fold), f"fold {min(fold + 1, folds)}/{folds}")


@contextmanager
def rows_bar(title: str, rows: int, *, show: bool | str = "auto") -> Iterator[Callable[[int], None]]:
    """A function to call with the number of rows done."""
    state = f"{rows:,} rows"
    with work_bar(title, float(rows), state, show) as update:
        yield lambda done: update(float(done), state)


@contextmanager
def work_bar(title: str, total: float, state: str, show: bool | str) -> Iterator[Callable[[float, str], None]]:
    """A function to call with the amount done, of `total`, and a text; inside the context it moves a bar, and logs."""
    console = Console(stderr=True)
    if not is_first() or show is False:
        yield lambda *_: None
        return
    if not _has_bar(console, show):
        pace = Pace(title)
        yield lambda done, state: pace.at(done / total, state.replace("  ", ", "))
        return
    pace = Pace(title, lines=False)
    with _bar(console) as progress:
        task = progress.add_task(title, total=total, state=state)

        def update(done: float, state: str) -> None:
            progress.update(task, completed=done, state=state)
            pace.at(done / total)

        yield update


def _has_bar(console: Console, show: bool | str) -> bool:
    return bool(console.is_terminal or console.is_jupyter if show == "auto" else show)


def _bar(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=_plain_text(console), transient=True)


def _plain_text(console: Console) -> Console:
    """A plain-text console in a notebook without ipywidgets: rich would ask to install it instead of showing a bar."""
    if not console.is_jupyter or find_spec("ipywidgets") is not None:
        return console
    return Console(stderr=True, force_jupyter=False, force_terminal=True, color_system=None, width=_COLUMNS)
