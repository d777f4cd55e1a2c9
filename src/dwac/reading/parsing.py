"""Records of CSV and JSON Lines as typed cells, for files that are read as a whole and for those read in pieces.

A cell is read the same way in both. A record that cannot be read does not affect others: the reason takes its place.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from dwac.errors import InputError
from dwac.reading.layouts import LONGEST, Cut, FileLayout, Places, check_names
from dwac.reading.places import room
from dwac.storage.parquet import require_columns

_NULLS = pa.csv.ConvertOptions().null_values  # spellings of a missing number in Arrow's CSV
_LARGEST_BLOCK = 2**31 - 1
LESS = "give fewer rows or columns at a time, or a machine with more memory"
csv.field_size_limit(max(csv.field_size_limit(), LONGEST))  # texts may be long; Arrow has no limit


class Wanted(NamedTuple):
    """How the columns of a file are read.

    Args:
        texts: columns that stay text instead of becoming numbers or dates.
        words: columns where NA is an ordinary word, and only an empty cell is missing; None: all.
        needed: the columns that are used; None: all.
        codes: also keep columns with codes such as 00123 as text.
    """

    texts: frozenset[str] = frozenset()
    words: frozenset[str] | None = None
    needed: Collection[str] | None = None
    codes: bool = False


Parsed = tuple[Any, Places, dict[int, str]]  # rows, their record numbers, and why others are unreadable


# CSV


def parse_csv(cut: Cut, layout: FileLayout, wanted: Wanted, starts: Places, stops: Places) -> Parsed:
    """The records of CSV between these bytes of a cut, as an Arrow table."""
    reasons: dict[int, str] = {}
    try:
        if not cut.whole or b"\0" in cut.data:
            raise UnicodeError
        table = _arrow(_utf8(cut.data, layout.stored), layout, wanted)
        if len(table) == len(starts):
            return _with_gaps(table, wanted), np.arange(len(starts)), {}
    except (pa.ArrowInvalid, UnicodeError):
        pass
    good = []
    for row, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        why = _fault(cut.data[start:stop], layout, last=not cut.whole and row == len(starts) - 1)
        if why is None:
            good.append(row)
        else:
            reasons[row] = why
    data = b"".join(cut.data[int(starts[row]) : int(stops[row])] + b"\n" for row in good)
    try:
        table = _arrow(_utf8(data, layout.stored), layout, wanted)
        if len(table) != len(good):
            raise pa.ArrowInvalid(f"{len(good)} records give {len(table)} rows")
    except pa.ArrowInvalid as error:
        raise InputError(f"{layout.url} from line {cut.line + 1} on must be readable CSV: {error!s:.200}") from None
    return _with_gaps(table, wanted), np.array(good, dtype=np.int64), reasons


def _utf8(data: bytes, encoding: str) -> bytes:
    if encoding == "utf-8":
        data.decode()  # raises an error here, because Arrow's would not name the row
        return data
    return data.decode(encoding).encode()


def _fault(record: bytes, layout: FileLayout, *, last: bool) -> str | None:
    """Why a record of CSV cannot be read; None if it can. last: the record has a quote that is never closed."""
    if last:
        return "a quote that opens in this row is never closed; close or double it"
    try:
        text = record.decode(layout.stored)
    except UnicodeDecodeError as error:
        return f"it is not {layout.stored}: it has the byte 0x{record[error.start]:02x}"
    if "\0" in text:
        return "it contains a zero byte"
    try:
        fields = next(csv.reader(io.StringIO(text, newline=""), delimiter=layout.delimiter), [])
    except csv.Error as error:
        return f"it is not CSV: {error}"
    if len(fields) != len(layout.names):
        return f"it has {len(fields)} fields, but the first line names {len(layout.names)} columns"
    return None


def _arrow(data: bytes, layout: FileLayout, wanted: Wanted) -> pa.Table:
    """Records of CSV as a table. A column holds numbers, dates or booleans if all its cells here do, else text."""
    if not data:
        return pa.table({name: pa.array([], pa.string()) for name in layout.names})
    types = {name: pa.string() for name in layout.names if name in wanted.texts}
    table = _read(data, layout, wanted, types)
    worded = [field.name for field in table.schema if pa.types.is_time(field.type)]  # a time of day is a category
    if wanted.codes and _zeros(layout.delimiter).search(data):
        numbers = [f.name for f in table.schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]
        as_texts = _read(data, layout, wanted, types | dict.fromkeys(numbers, pa.string()))
        worded += [name for name in numbers if _holds_codes(as_texts[name])]
    return _read(data, layout, wanted, types | dict.fromkeys(worded, pa.string())) if worded else table


def _read(data: bytes, layout: FileLayout, wanted: Wanted, types: dict[str, Any]) -> pa.Table:
    """CSV as Arrow reads it. types: types of some columns; Arrow infers the others."""
    names = list(layout.names)
    used = names if wanted.needed is None or not set(wanted.needed) <= set(names) else sorted(wanted.needed)
    return pa.csv.read_csv(
        io.BytesIO(data),
        # One block, because Arrow infers a column's type from the first. No threads, because they may still be
        # starting when an error ends the process, which then aborts; and there are many workers already.
        read_options=pa.csv.ReadOptions(
            use_threads=False, block_size=min(len(data) + 1, _LARGEST_BLOCK), column_names=names
        ),
        parse_options=pa.csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types=types, decimal_point="," if layout.comma else ".", include_columns=used
        ),
    )


def _zeros(delimiter: str) -> re.Pattern[bytes]:
    """A pattern for cells such as 00123: a quick check before a slow one."""
    mark = re.escape(delimiter).encode()
    return re.compile(rb"(?m)(?:^|" + mark + rb')"?0[0-9]+"?(?:' + mark + rb"|\r?$)")


def _holds_codes(column: pa.ChunkedArray) -> bool:
    """Whether the texts of a column are digits, some with leading zeros: codes that would lose digits as numbers."""
    digits = pc.match_substring_regex(column, "^[0-9]*$")
    return bool(pc.all(digits).as_py() and pc.any(pc.match_substring_regex(column, "^0[0-9]")).as_py())


def _with_gaps(table: pa.Table, wanted: Wanted) -> pa.Table:
    """The table with empty text cells as missing; in columns of numbers or dates, also NA and the like."""
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_string(column.type):
            worded = wanted.words is None or name in wanted.words
            nulls = pa.array([""] if worded else _NULLS, pa.string())
            column = pc.if_else(pc.is_in(column, value_set=nulls), pa.scalar(None, pa.string()), column)
        columns.append(column)
    return pa.table(columns, table.column_names)


# JSON Lines


def _parse_object(text: str) -> dict[str, Any] | str:
    """A line of JSON as an object, or the reason why it is not one."""
    try:
        row = json.loads(text)
        if "\\u" in text:
            json.dumps(row, ensure_ascii=False).encode()  # fails on half of a surrogate pair, which is not text
    except (ValueError, RecursionError) as error:
        return f"it is not JSON ({error!s:.100}); write one object per line"
    return row if isinstance(row, dict) else f"it must be one JSON object, {{…}}; got {text.strip()[:40]!r}"


def parse_json(cut: Cut, layout: FileLayout, wanted: Wanted, starts: Places, stops: Places) -> Parsed:
    """The lines of JSON between these bytes of a cut, as a frame."""
    rows: list[dict[str, Any]] = []
    good, reasons = [], {}
    for number, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        raw = cut.data[start:stop]
        try:
            text = raw.decode(layout.stored)
        except UnicodeDecodeError as error:
            reasons[number] = f"it is not {layout.stored}: it has the byte 0x{raw[error.start]:02x}"
            continue
        if not text.strip():
            continue
        row = _parse_object(text)
        if isinstance(row, str):
            reasons[number] = row
        else:
            rows.append(row)
            good.append(number)
    frame = _frame_of(rows, layout.url, wanted.texts)
    # A key missing in some rows is a missing value; a key missing in all is a missing column, which is refused later.
    for name in set(wanted.needed or ()).difference(frame.columns):
        keys = (json.dumps(name, ensure_ascii=plain).encode() for plain in (True, False))
        if name in layout.names or any(key in cut.data for key in keys):
            frame[name] = None
    return frame, np.array(good, dtype=np.int64), reasons


def _frame_of(rows: list[dict[str, Any]], name: str, texts: Collection[str]) -> pd.DataFrame:
    """JSON objects as a frame; name: of the file. texts: columns whose cells stay unchanged."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    require_columns(len(keys), name)
    if 8 * len(rows) * len(keys) > room():
        raise InputError(f"{name}: its {len(rows):,} lines have {len(keys):,} different keys; {LESS}")
    frame = pd.DataFrame(rows)
    unchanged = {  # pandas would turn 3 into 3.0 if some rows lack the key
        key: pd.Series([row.get(key) for row in rows], dtype=object) for key in keys if key.strip() in texts
    }
    if unchanged:  # all at once: setting columns one by one fragments the frame
        frame = pd.DataFrame({key: unchanged.get(key, frame[key]) for key in keys})
    frame.columns = pd.Index(check_names(keys, name) if keys else [])
    return frame
