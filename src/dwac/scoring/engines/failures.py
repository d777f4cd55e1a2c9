"""What an engine says of a piece that it could not get done."""

from __future__ import annotations

import re

from dwac.scoring.pieces import Done, Piece

_PYTHON = re.compile(r"^[\w.]+(?:Error|Exception|Interrupt): .+", re.MULTILINE)  # the last line of a traceback
TRIES = 3  # workers that may die over one piece


def lost(piece: Piece) -> Done:
    """For a piece whose workers died, each time it was tried."""
    return Done(
        piece.number,
        error=f"{piece.file}: {TRIES} workers in a row died on this piece, as happens when memory runs out: "
        "give workers more memory, or run fewer on each machine",
    )


def failed(piece: Piece, error: BaseException) -> Done:
    """For a piece that a worker could not even start."""
    found = _PYTHON.findall(str(error))  # Ray and Spark send the worker's traceback, among others
    said = found[-1] if found else f"{type(error).__name__}: {error}"
    return Done(
        piece.number,
        error=f"{piece.file}: the worker could not run it: {said:.300}; workers need the same Python and dwac as here",
    )
