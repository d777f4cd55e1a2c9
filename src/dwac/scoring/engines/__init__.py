"""Engines by name: each module here has `run(task, pieces, workers, options)`, as `dwac.scoring.pieces.Engine` says.

Internal: use `dwac score --engine NAME`. Options of engines: "address", of a running cluster; None: where the engine's
own environment variable points, or else this machine. "device", of the request: Ray assigns GPUs by it. "gpus", of
each piece on Ray, such as 0.25.
"""

from __future__ import annotations

import importlib
import re
from typing import cast

from dwac.errors import InputError
from dwac.scoring.pieces import Done, Engine, Piece

_PYTHON = re.compile(r"^[\w.]+(?:Error|Exception|Interrupt): .+", re.MULTILINE)  # the last line of a traceback
TRIES = 3  # attempts per piece if workers die

# name → the extra it needs
ENGINES = {"local": None, "ray": "ray", "dask": "dask", "spark": "spark"}


def engine(name: str) -> Engine:
    """The engine of this name; if it is not installed, an error says how to install it."""
    if name not in ENGINES:
        raise InputError(f"unknown engine {name!r}; choose {', '.join(ENGINES)}")
    try:
        return cast(Engine, importlib.import_module(f"dwac.scoring.engines.{name}").run)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "dwac":
            raise
        raise InputError(f"--engine {name} needs {error.name}: pip install 'dwac[{ENGINES[name]}]'") from None


def lost(piece: Piece) -> Done:
    """The result of a piece whose worker died at every attempt."""
    return Done(
        piece.number,
        error=f"{piece.file}: {TRIES} workers in a row died on this piece, as happens when memory runs out: "
        "give workers more memory, or run fewer on each machine",
    )


def failed(piece: Piece, error: BaseException) -> Done:
    """The result of a piece that a worker could not start."""
    lines = _PYTHON.findall(str(error))  # Ray and Spark also send the worker's traceback
    reason = lines[-1] if lines else f"{type(error).__name__}: {error}"
    return Done(
        piece.number,
        error=f"{piece.file}: the worker could not run it: {reason:.300}; workers need the same Python and dwac as "
        "this process",
    )
