"""CSV, TSV, JSON Lines and Parquet as a DataFrame, with the line of every row."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from dwac._machine import memory
from dwac.errors import InputError
from dwac.storage.parquet import TooLargeError, read_parquet, require_columns

INDEX = ""  # the name of the unnamed first column, to which pandas writes its index
_DELIMITERS = ",\t;|"
_LARGEST_BLOCK = 2**31 - 1
_CELL = r'(?m)(?:^|;)"?-?{}"?(?:;|\r?$)'
_COMMA = re.compile(_CELL.format("[0-9]+,[0-9]+"))
# 1.500 may be 1500, with a point between thousands.
_POINT = re.compile(_CELL.format(r"(?![1-9][0-9]{0,2}\.[0-9]{3}\b)[0-9]+\.[0-9]+"))
_LESS = "give fewer rows or columns at a time, or a machine with more memory"
_NAN = {"", "nan", "NaN"}


class Table(NamedTuple):
    """A frame, and where each of its rows came from, for messages."""

    frame: pd.DataFrame
    where: Callable[[int], str]


def read_table(
    data: bytes,
    name: str,
    form: str,
    *,
    encoding: str,
    texts: Collection[str],
    lists: Collection[str] = (),
    nested: bool = False,
    separator: str | None = None,
    decimal: str | None = None,
    codes: bool = False,
) -> Table:
    """The table in the bytes of a file of this form: "csv", "tsv", "jsonl" or "parquet".

    texts: columns that stay text instead of becoming numbers or dates. In CSV, a blank cell is missing in any column.
    lists: columns whose cells may be lists in JSON.
    nested: allow lists and objects in the cells of JSON; they are judged later, row by row.
    separator, decimal: of CSV; by default judged from the file.
    codes: keep columns of CSV with codes such as 00123 as text.
    """
    if form == "parquet":
        table = Table(_parquet(data, name), lambda row: f"{name} row {row}")
    elif form == "jsonl":
        table = _json_lines(decoded(data, name, encoding), name, texts, None if nested else lists)
    else:
        table = _csv(decoded(data, name, encoding), name, form, texts, separator, decimal, codes=codes)
    if len(table.frame) == 0:
        raise InputError(f"{name} must have at least one row; it has columns but no rows")
    return table


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
    """Where values are missing: blank or NaN, also as text."""
    return values.isna() | values.map(lambda value: isinstance(value, str) and value.strip() in _NAN).astype(bool)


def named(names: list[str], name: str) -> list[str]:
    """Column names without surrounding spaces; an error if one is repeated or empty."""
    require_columns(len(names), name)
    names, met = [column.strip() for column in names], set[str]()
    for place, column in enumerate(names):
        if column == INDEX and place > 0:
            raise InputError(f"{name}: column {place + 1} has no name; the first line must name every column")
        if column in met:
            raise InputError(
                f"{name}: column names must be unique; {column!r} appears more than once; rename or drop one of them"
            )
        met.add(column)
    return names


# CSV and TSV


def _csv(
    text: str,
    name: str,
    form: str,
    texts: Collection[str],
    separator: str | None,
    decimal: str | None,
    *,
    codes: bool,
) -> Table:
    delimiter = separator or delimiter_of(head_of(text), form)
    comma = decimal_comma(text, delimiter) if decimal is None else decimal == ","
    try:
        frame = _csv_frame(text, name, delimiter, texts, comma=comma, codes=codes)
    except (pa.ArrowException, csv.Error) as error:
        _refuse_ragged(text, name, delimiter)
        raise InputError(f"{name} must be a readable table: {error!s:.300}") from None
    return Table(frame, _csv_lines(text, name, delimiter))


def head_of(text: str) -> str:
    """The line of CSV with the column names."""
    return next(line for line in text.splitlines() if line.strip())


def delimiter_of(head: str, form: str) -> str:
    """What separates the fields of CSV or TSV, judged from the line with the column names."""
    return "\t" if form == "tsv" else max(_DELIMITERS, key="".join(head.split('"')[::2]).count)


def decimal_comma(text: str, delimiter: str) -> bool:
    """Whether decimals are written with a comma: 3,5 in some cells, and 3.5 in none (1.500 beside them is 1500)."""
    return delimiter == ";" and bool(_COMMA.search(text)) and not _POINT.search(text)


def _csv_frame(
    text: str, name: str, delimiter: str, texts: Collection[str], *, comma: bool, codes: bool
) -> pd.DataFrame:
    data = f"{text}\n".encode()
    written = next(_records(text, delimiter))[1]
    names = named(written, name)
    types = {raw: pa.string() for raw, column in zip(written, names, strict=True) if column in texts}
    table = _arrow(data, delimiter, types, comma=comma)
    times = [field.name for field in table.schema if pa.types.is_time(field.type)]  # a time of day is a category
    numbers = [field.name for field in table.schema if _is_number(field.type)]
    if codes and _zeros(delimiter).search(text):
        as_texts = _arrow(data, delimiter, types | dict.fromkeys(numbers, pa.string()), comma=comma)
        times += [column for column in numbers if _holds_codes(as_texts[column])]
    if times:
        table = _arrow(data, delimiter, types | dict.fromkeys(times, pa.string()), comma=comma)
    table = pa.table([_without_blanks(column) for column in table.columns], names)
    frame: pd.DataFrame = table.to_pandas(date_as_object=False)
    return frame


def _arrow(data: bytes, delimiter: str, types: dict[str, Any], *, comma: bool) -> pa.Table:
    """CSV as Arrow reads it. types: of columns; those of the others are found."""
    return pa.csv.read_csv(
        io.BytesIO(data),
        # One block, because Arrow infers a column's type from the first. No threads, because they may still be
        # starting when an error ends the process, which then aborts.
        read_options=pa.csv.ReadOptions(use_threads=False, block_size=min(len(data) + 1, _LARGEST_BLOCK)),
        parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(column_types=types, decimal_point="," if comma else "."),
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _zeros(delimiter: str) -> re.Pattern[str]:
    """A cell such as 00123: a quick look before a long one."""
    mark = re.escape(delimiter)
    return re.compile(rf'(?m)(?:^|{mark})"?0[0-9]+"?(?:{mark}|\r?$)')


def _holds_codes(column: pa.ChunkedArray) -> bool:
    """Whether the texts of a column are digits, some with a zero before them: codes, of which numbers lose a part."""
    digits = pc.match_substring_regex(column, "^[0-9]*$")
    return bool(pc.all(digits).as_py() and pc.any(pc.match_substring_regex(column, "^0[0-9]")).as_py())


def _without_blanks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column with empty texts replaced by missing values."""
    if not pa.types.is_string(column.type):
        return column
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)


def _records(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line on which it ends, fields) of each record, without blank lines."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    for fields in reader:
        if fields:
            yield reader.line_num, fields


def _csv_lines(text: str, name: str, delimiter: str) -> Callable[[int], str]:
    lines: list[int] = []  # of each row; filled on first use

    def where(row: int) -> str:
        if not lines:
            lines.extend(line for line, _ in _records(text, delimiter))
        return f"{name} line {lines[row + 1]}" if row + 1 < len(lines) else f"{name} row {row}"

    return where


def _refuse_ragged(text: str, name: str, delimiter: str) -> None:
    width = 0
    try:
        for line, fields in _records(text, delimiter):
            width = width or len(fields)
            if len(fields) != width:
                raise InputError(
                    f"{name} line {line} has {len(fields)} fields, but the first line names {width} columns; repair "
                    "that line, and quote values that contain the delimiter"
                )
    except csv.Error as error:
        raise InputError(f"{name} must be a readable table: {error}") from None


# JSON Lines


def _json_lines(text: str, name: str, texts: Collection[str], lists: Collection[str] | None) -> Table:
    """lists: the columns whose cells may be lists; None: cells may be anything."""
    rows, lines = [], []
    first: dict[str, Any] = {}  # the first value of each column that is not missing
    for line, written in enumerate(text.split("\n"), start=1):
        if not written.strip():
            continue
        try:
            row = json.loads(written)
            if "\\u" in written:
                json.dumps(row, ensure_ascii=False).encode()  # fails on half of a surrogate pair, which is not text
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name} line {line} is not JSON ({error!s:.100}); write one object per line") from None
        if not isinstance(row, dict):
            raise InputError(f"{name} line {line} must be one JSON object, {{…}}; got {written.strip()[:40]!r}")
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
    frame = pd.DataFrame(rows)
    names = dict(zip(frame.columns, named([str(column) for column in frame.columns], name), strict=True))
    frame.columns = pd.Index(names.values())
    dated = {names[key] for key, value in first.items() if _begins_like_date(value)}
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


def room() -> int:
    """The most bytes of a table: a quarter of this machine's memory, because pandas and the model need some too."""
    return memory() // 4


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
