"""The rows of a command: read for a model, in parts, and with reports on those that cannot be read.

Such rows are reported on standard error and by exit code 3, while the others are processed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from dwac.cli.options import ReadingOptions, TableOptions
from dwac.cli.output import print_notes
from dwac.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dwac.estimator.observed import Observed
    from dwac.reading import Estimator, Model, Rows

T = TypeVar("T")

SOME_UNREADABLE = 3  # the exit code


def read_rows(data: str, model: Model, reading: ReadingOptions, tables: TableOptions, **roles: Any) -> Rows:
    """The rows of a file or folder for a model, with notes on how they were read.

    roles: other arguments of `dwac.reading.read`.
    """
    from dwac.reading import read

    rows = read(data, like=model, text=reading.text, **roles, **tables.arguments())
    print_notes(rows.notes)
    return rows


def in_parts(rows: Rows, size: int, title: str, work: Callable[[Rows], T]) -> list[T]:
    """The results of work on parts of at most this size, with a progress bar if there are several parts."""
    import numpy as np

    from dwac.training.progress import rows_bar

    results: list[T] = []
    with rows_bar(title, len(rows), show="auto" if len(rows) > size else False) as done:
        for start in range(0, len(rows), size):
            part = rows if len(rows) <= size else rows.take(np.arange(start, min(start + size, len(rows))))
            results.append(work(part))
            done(start + len(part))
    return results


def in_training(clf: Estimator, rows: Rows, h: NDArray[Any]) -> NDArray[np.bool_]:
    """(n,): which rows were used in training. h: their embeddings (n, d)."""
    import pandas as pd

    from dwac.report.measures import used_in_training

    return used_in_training(clf, pd.Index(rows.ids, tupleize_cols=False), h)


# Rows that cannot be read


@contextmanager
def rows_located(rows: Rows) -> Iterator[None]:
    """Make errors about single rows name the line or file that the row came from."""
    try:
        yield
    except InputError as error:
        if not error.rows:
            raise
        row, why = next(iter(error.rows.items()))
        raise InputError(f"{rows.where(row)}: {why}; repair or drop the row") from None


def report_unreadable(unreadable: Mapping[int, str], rows: Rows, *, strict: bool, fate: str) -> None:
    """Report how many rows could not be read, where the first is, and what happens to them; strict: raise instead."""
    if not unreadable:
        return
    row, why = next(iter(unreadable.items()))
    first, more = f"{rows.where(row)}: {why}", len(unreadable) - 1
    if strict:
        raise InputError(first + (f" ({more:,} more row{'s' * (more > 1)} cannot be read)" if more else ""))
    typer.secho(
        f"dwac: {len(unreadable):,} of {len(rows):,} rows could not be read and {fate}; first {first}; "
        "use --strict to stop instead",
        fg="yellow",
        err=True,
    )


def observe_rows(
    clf: Estimator, rows: Rows, *, strict: bool, fate: str, private: bool | None = None
) -> tuple[Rows, Observed, dict[int, str]]:
    """The rows that can be read, what the model sees of them, and why the others cannot be read."""
    import numpy as np

    with rows_located(rows):
        observed = clf.observe(rows.X, private=private)
    bad = reasons_by_row(observed.reasons)
    report_unreadable(bad, rows, strict=strict, fate=fate)
    return readable_rows(rows, bad), observed.take(np.flatnonzero(observed.readable)), bad


def exit_if_unreadable(unreadable: Mapping[int, str]) -> None:
    """Exit with code 3 if any row could not be read."""
    if unreadable:
        raise typer.Exit(SOME_UNREADABLE)


def readable_rows(rows: Rows, unreadable: Mapping[int, str]) -> Rows:
    """The rows that could be read; an error if there are none."""
    import numpy as np

    if len(unreadable) == len(rows):
        row, why = next(iter(unreadable.items()))
        raise InputError(f"no row could be read; first {rows.where(row)}: {why}")
    return rows.take(np.setdiff1d(np.arange(len(rows)), list(unreadable))) if unreadable else rows


def reasons_by_row(reasons: Any) -> dict[int, str]:
    """Why rows could not be read, by row number, from (n,) reasons or None."""
    return {} if reasons is None else {row: why for row, why in enumerate(reasons) if why is not None}
