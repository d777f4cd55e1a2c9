"""Commands run in this process, and rows for them."""

import inspect
from typing import Any

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from dwac.cli.app import app

# pandas 2 reads floats exactly only if asked to; pandas 3 always does, and warns.
EXACT: Any = {"float_precision": "round_trip"} if pd.__version__ < "3.1" else {}

# click before 8.2 mixes standard error into standard output unless told otherwise; later versions never do.
APART: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}


def run(*words: Any, given: str | bytes | None = None, ends: int = 0) -> Any:
    words = tuple(map(str, words))
    shown = CliRunner(**APART).invoke(app, words, input=given, env={"COLUMNS": "120"}, prog_name="dwac")
    assert shown.exit_code == ends, (shown.output, shown.exception)
    return shown


def error_line(*words: Any, ends: int = 1) -> str:
    """The one line that a command which fails writes, to standard error alone."""
    shown = run(*words, ends=ends)
    assert shown.stdout == ""
    line: str
    (line,) = shown.stderr.strip().splitlines()
    assert line.startswith("dwac: ")
    return line


def people(n: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"name": [f"p{i:03}" for i in range(n)], "age": rng.integers(18, 80, n)})
    frame["work"] = rng.choice(["private", "state", "self"], n)
    return frame.assign(income=np.where(frame["age"] + rng.normal(0, 4, n) > 48, ">50K", "<=50K"))
