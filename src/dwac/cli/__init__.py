"""The `dwac` command: one file per command, with its options and its work. Internal: use the command.

Needs the extra `dwac[cli]`.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, or name the extra that it needs. arguments: by default those of the process."""
    gc.set_threshold(50_000)  # the imports make many objects and no garbage: collecting takes a tenth of their time
    write_any_character()
    try:
        from dwac.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        sys.exit(f"the dwac command needs {error.name}: pip install 'dwac[cli]'")
    app(arguments)


def write_any_character() -> None:
    """Write UTF-8 where the system would write an encoding without ε, as Windows does into files and pipes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in {"utf-8", "utf8"}:
            chosen = os.environ.get("PYTHONIOENCODING")
            stream.reconfigure(encoding=stream.encoding if chosen else "utf-8", errors="replace")
