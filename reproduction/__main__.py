"""`python -m reproduction`: the paper's experiments and datasets, from a checkout."""

from __future__ import annotations

import sys

try:
    from reproduction.app import PROGRAM, app
except ModuleNotFoundError as error:
    if error.name not in {"typer", "rich"}:
        raise
    sys.exit(f"the reproduction needs {error.name}: pip install --editable '.[bench,cli,report]'")

app(prog_name=PROGRAM)
