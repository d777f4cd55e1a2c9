"""What an engine says of a piece that it could not get done."""

from __future__ import annotations

from dwac.scoring.pieces import Done, Piece

TRIES = 3  # workers that may die over one piece


def lost(piece: Piece) -> Done:
    """For a piece whose workers died, each time it was tried."""
    return Done(
        piece.number,
        error=f"piece {piece.number} of {piece.file}: {TRIES} workers died over it, most likely for want of memory; "
        "give workers more memory or run fewer on each machine, and run again: what is done stays done",
    )


def failed(piece: Piece, error: BaseException) -> Done:
    """For a piece that a worker could not even start."""
    said = (str(error).strip() or type(error).__name__).splitlines()[-1][:300]
    return Done(
        piece.number,
        error=f"piece {piece.number} of {piece.file}: the worker could not run it: {said}; "
        "workers need the same Python and dwac as here",
    )
