"""Labels and ids as JSON: `encode_value` keeps the type as well as the value, `decode_value` restores both.

>>> encode_value(("ward", 3))
{'tuple': ['ward', 3]}
>>> decode_value({"tuple": ["ward", 3]})
('ward', 3)

None, booleans, strings, finite floats and whole numbers below 2⁵³ stay as they are. Everything else becomes an object
with one key, its type; so decoding never guesses and executes nothing.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from dwac.errors import EncodingError, InputError

_DEEPEST = 32  # levels of nesting; a deeper label is a mistake, and JSON parsers have limits too
_LARGEST_WHOLE = 2**53  # JSON readers that use floats round larger numbers
_NUMPY = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)|(datetime64|timedelta64)(\[[0-9]*[A-Za-z]+\])?")


def encode_value(value: Any) -> Any:
    """A JSON value for any hashable label or id of the types below; an error for others.

    None, bool, int of any size, float (also nan and infinities), str, bytes, tuple, frozenset, Decimal, UUID, date,
    datetime, timedelta, numpy scalars, and pandas' Timestamp, Timedelta, Interval, NaT and NA. Types are exact: an
    enum or a named tuple is not treated as the number, text or tuple that it extends.
    """
    return _encode(value, 0)


def _encode(value: Any, depth: int) -> Any:
    kind = type(value)
    if depth > _DEEPEST:
        raise EncodingError(
            f"a label or id must be nested at most {_DEEPEST} levels deep; this one is deeper; flatten it"
        )
    if value is None or kind is bool or (kind is int and abs(value) < _LARGEST_WHOLE):
        return value
    if kind is float and math.isfinite(value):
        return value
    if kind is str and not _has_surrogates(value):
        return value
    if kind is tuple:
        return {"tuple": [_encode(part, depth + 1) for part in value]}
    if kind is frozenset:
        return {"frozenset": sorted((_encode(part, depth + 1) for part in value), key=json.dumps)}
    if kind is pd.Interval:
        ends = [_encode(end, depth + 1) for end in (value.left, value.right)]
        return {"Interval": [*ends, value.closed]}
    if kind in _CODECS:
        tag, encode, _ = _CODECS[kind]
        return {tag: encode(value)}
    if isinstance(value, np.generic):
        return {"numpy": _encode_numpy(value)}
    raise EncodingError(
        f"cannot store {value!r:.200} of type {kind.__name__} as a label or id; "
        "use None, bool, int, float, str, bytes, a date, a Decimal, a numpy scalar, or a tuple of these"
    )


def decode_value(encoded: Any) -> Any:
    """The value that `encode_value` was given."""
    if encoded is None or isinstance(encoded, bool | int | float | str):
        return encoded
    try:
        [(tag, body)] = encoded.items()
        return _DECODERS[tag](body)
    except EncodingError:
        raise
    except Exception as error:  # a body that dwac did not write may make constructors raise anything
        raise EncodingError(
            f"{encoded!r:.200} is not an encoded label or id ({type(error).__name__}: {error!s:.200}); "
            "the file is damaged, or was written by a newer version of dwac"
        ) from error


def json_text(value: Mapping[str, Any], where: str, *, finite: bool = True) -> str:
    """JSON from which a mapping can be restored unchanged; `where` is its name, for messages."""
    if not isinstance(value, Mapping):
        raise InputError(f"{where} must be a mapping of JSON values; got {type(value).__name__}")
    try:
        _check_json(dict(value), where, finite=finite)
        return json.dumps(dict(value), ensure_ascii=False, allow_nan=not finite)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:  # whole numbers of thousands of digits, endless nesting
        raise InputError(f"{where} must be JSON values: {error}") from error


def _check_json(value: Any, where: str, *, finite: bool) -> None:
    """Raise an error for values that JSON would lose or change: sets, tuples, non-string keys, nan unless allowed."""
    if isinstance(value, str):
        wrong = "half a surrogate pair" if _has_surrogates(value) else ""
    elif isinstance(value, float):
        wrong = "" if math.isfinite(value) or not finite else "not a finite number"
    elif isinstance(value, dict):
        wrong = ""
        for key, part in value.items():
            if not isinstance(key, str) or _has_surrogates(key):
                raise InputError(f"keys must be strings; {where} has {key!r}; use encode_value on pairs instead")
            _check_json(part, f"{where}[{key!r}]", finite=finite)
    elif isinstance(value, list):
        wrong = ""
        for i, part in enumerate(value):
            _check_json(part, f"{where}[{i}]", finite=finite)
    else:
        wrong = "" if value is None or isinstance(value, int) else type(value).__name__
    if wrong:
        raise InputError(
            f"{where} must be a JSON value (None, bool, int, finite float, str, list or dict); got {value!r:.100} "
            f"({wrong}); convert it, or use encode_value for a label or id"
        )


def _has_surrogates(text: str) -> bool:
    """Whether text has half a surrogate pair, which UTF-8 cannot encode: file names of unknown encoding do."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _encode_zone(zone: tzinfo | None) -> str | int | None:
    """A time zone as its name, or as a fixed offset in microseconds."""
    if type(zone) is timezone:
        return zone.utcoffset(None) // timedelta(microseconds=1)
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)  # zoneinfo; pytz, which pandas 2 uses
    if zone is not None and not isinstance(name, str):
        raise EncodingError(f"cannot store the time zone {zone!r}; use zoneinfo.ZoneInfo or datetime.timezone")
    return name


def _decode_zone(zone: str | int | None) -> tzinfo | None:
    if zone is None or isinstance(zone, str):
        return zone if zone is None else ZoneInfo(zone)
    return timezone(timedelta(microseconds=zone))


def _encode_datetime(value: datetime) -> list[Any]:
    if value.tzinfo is not None and type(value.tzinfo) not in (timezone, ZoneInfo):
        raise EncodingError(f"cannot store {value!r}; give its time zone as zoneinfo.ZoneInfo or datetime.timezone")
    return [value.replace(tzinfo=None).isoformat(), _encode_zone(value.tzinfo), value.fold]


def _decode_datetime(body: list[Any]) -> datetime:
    text, zone, fold = body
    return datetime.fromisoformat(text).replace(tzinfo=_decode_zone(zone), fold=fold)


def _encode_timestamp(value: pd.Timestamp) -> list[Any]:
    """The number of units since 1970 in UTC, which is exact for every year, unit and repeated hour."""
    return [int(value.to_numpy().view(np.int64)), value.unit, _encode_zone(value.tz)]


def _decode_timestamp(body: list[Any]) -> Any:
    count, unit, zone = body
    stamp = pd.Timestamp(np.datetime64(count, unit))
    return stamp if zone is None else stamp.tz_localize("UTC").tz_convert(_decode_zone(zone))


def _encode_numpy(value: Any) -> list[Any]:
    name = value.dtype.name
    if isinstance(value, np.str_):
        return ["str", encode_value("".join(value))]  # str() drops a NUL at the end
    if isinstance(value, np.bytes_):
        return ["bytes", encode_value(bytes(value))]
    if not _NUMPY.fullmatch(name):
        raise EncodingError(f"cannot store {value!r:.200} as a label or id; convert it to a plain Python value")
    return [name, encode_value(int(value.view(np.int64)) if value.dtype.kind in "mM" else value.item())]


def _decode_numpy(body: list[Any]) -> Any:
    name, value = body[0], decode_value(body[1])
    if name in ("str", "bytes"):
        return np.str_(value) if name == "str" else np.bytes_(value)
    if not _NUMPY.fullmatch(name):
        raise EncodingError(f"unknown numpy type {name!r:.100}; the file is damaged")
    kind = np.dtype(name).kind
    if kind in "iu" and not np.iinfo(name).min <= value <= np.iinfo(name).max:  # numpy before 2 would wrap around
        raise EncodingError(f"{value!r:.100} is too large for {name}; the file is damaged")
    return np.array(value, np.int64).view(name)[()] if kind in "mM" else np.array(value, name)[()]


def _decode_interval(body: list[Any]) -> Any:
    left, right, closed = body
    return pd.Interval(decode_value(left), decode_value(right), closed=closed)


_Codec = tuple[str, Callable[[Any], Any], Callable[[Any], Any]]
_CODECS: dict[type, _Codec] = {
    int: ("int", hex, lambda body: int(body, 16)),
    float: ("float", str, float),
    str: (
        "str",
        lambda value: base64.b64encode(value.encode("utf-8", "surrogatepass")).decode(),
        lambda body: base64.b64decode(body, validate=True).decode("utf-8", "surrogatepass"),
    ),
    bytes: (
        "bytes",
        lambda value: base64.b64encode(value).decode(),
        lambda body: base64.b64decode(body, validate=True),
    ),
    Decimal: ("Decimal", str, Decimal),
    UUID: ("UUID", str, UUID),
    date: ("date", date.isoformat, date.fromisoformat),
    datetime: ("datetime", _encode_datetime, _decode_datetime),
    timedelta: ("timedelta", lambda value: [value.days, value.seconds, value.microseconds], lambda v: timedelta(*v)),
    pd.Timestamp: ("Timestamp", _encode_timestamp, _decode_timestamp),
    pd.Timedelta: (
        "Timedelta",
        lambda value: [int(value.to_numpy().view(np.int64)), value.unit],
        lambda body: pd.Timedelta(np.timedelta64(*body)),
    ),
    type(pd.NaT): ("NaT", lambda _: None, lambda _: pd.NaT),
    type(pd.NA): ("NA", lambda _: None, lambda _: pd.NA),
}
_DECODERS: dict[str, Callable[[Any], Any]] = {tag: decode for tag, _, decode in _CODECS.values()} | {
    "tuple": lambda body: tuple(decode_value(part) for part in body),
    "frozenset": lambda body: frozenset(decode_value(part) for part in body),
    "Interval": _decode_interval,
    "numpy": _decode_numpy,
}
