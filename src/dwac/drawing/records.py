"""Records for display: their kind, and their values in short form.

A record is a picture ({"image": PNG bytes}), a text ({"text": …}), or a row of a table ({column: value}).
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd

from dwac.languages import numeral, say

MISSING = "–"  # the text of a missing value
_PNG = b"\x89PNG\r\n\x1a\n"


def is_png(value: Any) -> bool:
    """Whether a value is a picture."""
    return isinstance(value, bytes) and value.startswith(_PNG)


def data_url(picture: bytes, kind: str = "png") -> str:
    """A picture, a PNG or a JPEG, as a data URL."""
    return f"data:image/{kind};base64," + base64.b64encode(picture).decode()


def kind_of(record: Any) -> str:
    """ "image", "text" or "table"; "" if there is nothing to show."""
    if not isinstance(record, Mapping) or not record:
        return ""
    if any(is_png(value) for value in record.values()):
        return "image"
    return "text" if list(record) == ["text"] and isinstance(record["text"], str) else "table"


def image_of(record: Any) -> bytes | None:
    """The picture in a record."""
    values = record.values() if isinstance(record, Mapping) else []
    return next((value for value in values if is_png(value)), None)


def shorten(value: Any, most: int = 60) -> str:
    """A value in short form.

    >>> shorten(0.123456), shorten(None), shorten("a" * 99, most=5)
    ('0.1235', '–', 'aaaa…')
    >>> shorten(datetime(2024, 5, 1)), shorten(datetime(2024, 5, 1, 9, 30))
    ('2024-05-01', '2024-05-01 09:30:00')
    """
    if is_png(value):
        width, height = struct.unpack(">II", value[16:24])
        return say("{width}×{height} image", width=width, height=height)
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return MISSING
    text = str(value)
    if isinstance(value, float):
        text = numeral(f"{value:.4g}" if abs(value) < 1e4 else text)
    if isinstance(value, datetime):
        text = text.removesuffix(" 00:00:00")  # a day
    return text if len(text) <= most else text[: most - 1] + "…"


def title_of(name: Any) -> str:
    """The name of a column in a sentence: a number alone would look like a value.

    >>> title_of("age"), title_of(21)
    ('age', 'column 21')
    """
    return name if isinstance(name, str) else say("column {name}", name=name)


def plain_dict(values: Mapping[Any, Any], digits: int | None = None) -> dict[str, Any]:
    """A mapping as a JSON object; see `plain`."""
    return {key if isinstance(key, str) else str(plain(key)): plain(part, digits) for key, part in values.items()}


def plain(value: Any, digits: int | None = None) -> Any:
    """A JSON value: NumPy scalars become Python values, non-finite numbers None, other objects text.

    digits: round numbers to this many significant digits.
    """
    if isinstance(value, Mapping):
        return plain_dict(value, digits)
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(part, digits) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        if not math.isfinite(value):
            return None  # JSON has no NaN
        return value if digits is None else float(f"{value:.{digits}g}")
    if is_png(value):
        return data_url(value)
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
