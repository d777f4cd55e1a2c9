"""The `dwac` command: one file per command, with its options and its work. Internal: use the command.

Needs the extra `dwac[cli]`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, or name the extra that it needs. arguments: by default those of the process."""
    try:
        from dwac.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        sys.exit(f"the dwac command needs {error.name}: pip install 'dwac[cli]'")
    app(arguments)
