"""Progress of long-running work: a bar by tqdm in a terminal or a notebook, and lines in the log.

If the work takes long, the log has one estimate of the time, from measured steps; and, without a bar, a line every half
minute. `dwac` prints the log; a program enables it with logging.getLogger("dwac.training.progress").setLevel("INFO").
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import Any

from dwac._checks import percent
from dwac.nn.ranks import is_first

logger = logging.getLogger(__name__)

EVERY = 30.0  # seconds between lines; work that takes longer is estimated
_MEASURED = 2.0  # seconds of steps for the estimate, after the first step, which is slower

Watch = dict[str, Any]
_FORM = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"


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
    if not is_first() or show is False:
        yield lambda *_: None
        return
    if show == "auto" and not (sys.stderr.isatty() or _in_notebook()):
        pace = Pace(title)
        yield lambda done, state: pace.at(done / total, state.replace("  ", ", "))
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without ipywidgets gets a bar of text
        from tqdm.auto import tqdm
    pace = Pace(title, lines=False)
    # Stated, as tqdm draws nothing in a terminal that says its width is 0.
    width = get_terminal_size().columns if sys.stderr.isatty() else None
    with tqdm(total=total, desc=title, bar_format=_FORM, ncols=width, leave=False) as bar:
        bar.set_postfix_str(state)

        def update(done: float, state: str) -> None:
            bar.set_postfix_str(state, refresh=False)
            bar.update(done - bar.n)
            pace.at(done / total)

        yield update


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config
