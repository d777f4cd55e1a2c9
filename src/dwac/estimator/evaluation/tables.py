"""Predictions as CSV."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # the first characters of a formula
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def as_csv(frame: pd.DataFrame, delimiter: str = ",", *, harmless: bool = False) -> str:
    """A frame of predictions as CSV text; the labels of a prediction set are joined by |.

    harmless: make it safe for spreadsheets, which would take cells such as =1+1 for formulas.
    """
    joined = frame.map(lambda value: "|".join(map(str, value)) if isinstance(value, list) else value)
    if harmless:
        joined = joined.map(harmless_cell).rename(columns=harmless_cell)
    return str(joined.to_csv(index=False, sep=delimiter, lineterminator="\n"))


def harmless_cell(value: Any) -> Any:
    """A cell or column name that no spreadsheet takes for a formula: a leading apostrophe makes it text.

    >>> harmless_cell("=HYPERLINK(1)"), harmless_cell("-3.5"), harmless_cell(-3.5)
    ("'=HYPERLINK(1)", '-3.5', -3.5)
    """
    formula = isinstance(value, str) and value.startswith(_FORMULAS) and not _NUMBER.fullmatch(value)
    return f"'{value}" if formula else value
