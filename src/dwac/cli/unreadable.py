"""Rows that could not be read: reported on standard error and by exit code 3, while the others are processed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from dwac.errors import InputError

if TYPE_CHECKING:
    from dwac.reading import Rows

SOME_UNREADABLE = 3  # the exit code


@contextmanager
def located(rows: Rows) -> Iterator[None]:
    """Make errors about single rows name the line or file that the row came from."""
    try:
        yield
    except InputError as error:
        if not error.rows:
            raise
        row, why = next(iter(error.rows.items()))
        raise InputError(f"{rows.where(row)}: {why}; repair or drop the row") from None


def report(unreadable: Mapping[int, str], rows: Rows, *, strict: bool, fate: str) -> None:
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


def end(unreadable: Mapping[int, str]) -> None:
    """Exit with code 3 if any row could not be read."""
    if unreadable:
        raise typer.Exit(SOME_UNREADABLE)


def without(rows: Rows, unreadable: Mapping[int, str]) -> Rows:
    """The rows that could be read; an error if there are none."""
    import numpy as np

    if len(unreadable) == len(rows):
        row, why = next(iter(unreadable.items()))
        raise InputError(f"no row could be read; first {rows.where(row)}: {why}")
    return rows.take(np.setdiff1d(np.arange(len(rows)), list(unreadable))) if unreadable else rows


def by_row(reasons: Any) -> dict[int, str]:
    """Why rows could not be read, by row number, from (n,) reasons or None."""
    return {} if reasons is None else {row: why for row, why in enumerate(reasons) if why is not None}
