"""Engines by name: each module here has `run(task, pieces, workers, options)`, as `dwac.scoring.pieces.Engine` says.

Internal: use `dwac score --engine NAME`. Options that engines know: "address", of a cluster that already runs; None:
where the engine's own environment variable points, or else this machine. "device", of the request: Ray gives out GPUs
by it. "gpus", of each piece on Ray, such as 0.25.
"""

from __future__ import annotations

import importlib
from typing import cast

from dwac.errors import InputError
from dwac.scoring.pieces import Engine

# name → the extra that it needs
ENGINES = {"local": None, "ray": "ray", "dask": "dask", "spark": "spark"}


def engine(name: str) -> Engine:
    """The engine of this name; an error says how to install it where it is missing."""
    if name not in ENGINES:
        raise InputError(f"unknown engine {name!r}; choose {', '.join(ENGINES)}")
    try:
        return cast(Engine, importlib.import_module(f"dwac.scoring.engines.{name}").run)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "dwac":
            raise
        raise InputError(f"--engine {name} needs {error.name}: pip install 'dwac[{ENGINES[name]}]'") from None
