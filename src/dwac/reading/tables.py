"""Read CSV, TSV, JSON Lines and Parquet as a whole: a DataFrame, with the line of every row."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd

from dwac.errors import InputError
from dwac.reading.layouts import INDEX, decimal_comma, judge_layout, named, room
from dwac.reading.parsing import Wanted, frame_of, parse_csv, parse_object
from dwac.reading.records import Cut, ends_of, spans
from dwac.storage.parquet import TooLargeError, read_parquet, require_columns

_LESS = "give fewer rows or columns at a time, or a machine with more memory"
_NAN = {"", "nan", "NaN"}


class Table(NamedTuple):
    """A frame, and where each of its rows came from, for messages."""

    frame: pd.DataFrame
    where: Callable[[int], str]


class Marks(NamedTuple):
    """The field separator of CSV, and whether it has decimal commas; (None, False) for other files."""

    separator: str | None = None
    commas: bool = False


NO_MARKS = Marks()


def read_table(
    data: bytes,
    name: str,
    form: str,
    wanted: Wanted,
    *,
    encoding: str,
    lists: Collection[str] | None = (),
    separator: str | None = None,
    decimal: str | None = None,
) -> tuple[Table, Marks]:
    """(the table in the bytes of a file of this form: "csv", "tsv", "jsonl" or "parquet", how CSV is written).

    lists: columns whose cells may be lists in JSON; None: cells may be anything, and are checked later, row by row.
    separator, decimal: of CSV; by default inferred from the file.
    """
    marks = NO_MARKS
    if form == "parquet":
        table = Table(_parquet(data, name), lambda row: f"{name} row {row}")
    elif form == "jsonl":
        table = _json_lines(decoded(data, name, encoding), name, wanted.texts, lists)
    else:
        table, marks = _csv(decoded(data, name, encoding), name, form, wanted, separator, decimal)
    if len(table.frame) == 0:
        raise InputError(f"{name} must have at least one row; it has columns but no rows")
    return table, marks


def decoded(data: bytes, name: str, encoding: str) -> str:
    """The bytes as text, without a byte order mark."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    try:
        text = data.decode("utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding)
    except LookupError:
        raise InputError(f"unknown encoding {encoding!r}; use for example utf-8, latin-1 or utf-16") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{name} line {line} is not {encoding}: it has the byte 0x{data[error.start]:02x}; save the file as UTF-8, "
            "or name its encoding: --encoding cp1252 (Windows) or latin-1"
        ) from None
    if not text.strip():
        raise InputError(f"{name} is empty; give a file with data")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(
            f"{name} line {line} contains a zero byte, so it is not text; name its format if it is another one"
        )
    return text


def is_text(values: pd.Series[Any]) -> bool:
    """Whether a column holds only strings and missing values."""
    return pd.api.types.infer_dtype(values, skipna=True) == "string"


def missing(values: pd.Series[Any]) -> pd.Series[Any]:
    """Which values are missing: blank or NaN, also as text."""
    return values.isna() | values.map(lambda value: isinstance(value, str) and value.strip() in _NAN).astype(bool)


# CSV and TSV


def _csv(
    text: str, name: str, form: str, wanted: Wanted, separator: str | None, decimal: str | None
) -> tuple[Table, Marks]:
    """All records of CSV; an error names the line of the first that cannot be read."""
    text = text if "\n" in text else text.replace("\r", "\n")  # line endings of the old Mac OS
    data = text.encode()
    layout = judge_layout(lambda size: data[:size], name, form, "utf-8", separator, decimal)
    comma = decimal_comma(text, layout.delimiter) if decimal is None else decimal == ","
    layout = replace(layout, comma=comma)
    body = data[layout.start :]
    data, text = b"", ""  # frees memory: a file may be large
    starts, stops = spans(body, layout.mark)
    cut = Cut(body, layout.start, 0, layout.line, len(starts), whole=not ends_of(body, layout.mark)[1])

    def where(row: int) -> str:
        before = body.count(b"\n", 0, int(starts[row]))
        return f"{name} line {layout.line + before + 1}"

    table, _, reasons = parse_csv(cut, layout, wanted, starts, stops)
    for row, why in reasons.items():
        raise InputError(f"{where(row)}: {why}; repair that line, and quote values that contain the delimiter")
    frame: pd.DataFrame = table.to_pandas(date_as_object=False)
    return Table(frame, where), Marks(layout.delimiter, comma)


# JSON Lines


def _json_lines(text: str, name: str, texts: Collection[str], lists: Collection[str] | None) -> Table:
    """All lines of JSON. lists: columns whose cells may be lists; None: any cells, and dates are inferred later."""
    rows, lines = [], []
    first: dict[str, Any] = {}  # the first value of each column that is not missing
    for line, written in enumerate(text.split("\n"), start=1):
        if not written.strip():
            continue
        row = parse_object(written)
        if isinstance(row, str):
            raise InputError(f"{name} line {line}: {row}")
        for column, value in row.items():
            nested = isinstance(value, dict) or (isinstance(value, list) and column.strip() not in (lists or ()))
            if nested and lists is not None:
                raise InputError(f"{name} line {line}: {column!r} must be a single value; got {json.dumps(value)[:40]}")
            if first.get(column) is None:
                first[column] = value
        rows.append(row)
        lines.append(line)
    require_columns(len(first), name)
    if 8 * len(rows) * len(first) > room():
        raise InputError(f"{name}: its {len(rows):,} lines have {len(first):,} different keys; {_LESS}")
    frame = frame_of(rows, name, texts)
    if lists is not None:
        dated = {key.strip() for key, value in first.items() if _begins_like_date(value)}
        found = {column: _dates(frame[column]) for column in dated.difference(texts) if is_text(frame[column])}
        if found:  # all at once: setting columns one by one fragments the frame
            frame = pd.DataFrame({column: found.get(column, frame[column]) for column in frame.columns})
    return Table(frame, lambda row: f"{name} line {lines[row]}")


def _begins_like_date(value: Any) -> bool:
    return isinstance(value, str) and value[:4].isdigit() and value[4:5] == "-"


def _dates(values: pd.Series[Any]) -> pd.Series[Any]:
    """ISO dates as dates, as in CSV; anything else unchanged."""
    try:
        return pd.to_datetime(values, format="ISO8601")
    except (ValueError, TypeError, OverflowError):
        return values


# Parquet


def _parquet(data: bytes, name: str) -> pd.DataFrame:
    try:
        table = read_parquet(data, name, most_bytes=room())
        named(table.column_names, name)
        frame: pd.DataFrame = table.to_pandas(date_as_object=False)
    except TooLargeError as error:
        raise InputError(f"{error}; {_LESS}") from None
    except InputError:
        raise
    except Exception as error:  # a damaged file, or pandas' metadata in it, may make Arrow raise anything
        raise InputError(f"{name} must be a readable Parquet file: {error!s:.200}") from None
    if not isinstance(frame.index, pd.RangeIndex) or frame.index.start != 0:
        frame = frame.reset_index(names=[INDEX if level is None else str(level) for level in frame.index.names])
    frame.columns = pd.Index(named([str(column) for column in frame.columns], name))
    return frame
