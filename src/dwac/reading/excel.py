"""A sheet of an Excel workbook (.xlsx) as a DataFrame. Needs the extra `dwac[excel]`."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Collection, Iterator
from typing import Any

import pandas as pd

from dwac._checks import listed
from dwac.errors import InputError
from dwac.reading.notation import category
from dwac.reading.tables import INDEX, Table, named, room

SUFFIXES = (".xlsx", ".xlsm", ".xltx", ".xltm")
_OLD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # begins workbooks of before 2007, and those with a password
_LOCKED = "EncryptedPackage".encode("utf-16-le")


def is_workbook(data: bytes) -> bool:
    """Whether bytes look like a workbook, readable or not."""
    return data.startswith(_OLD) or (data[:4] == b"PK\x03\x04" and b"[Content_Types].xml" in data)


def read_workbook(data: bytes, name: str, sheet: str | None, texts: Collection[str]) -> tuple[Table, list[str]]:
    """(the table on a sheet, by default the first; what is to be said of it).

    The first row that is not empty names the columns. texts: columns that become text, 3 as "3".
    """
    book = _opened(data, name)
    try:
        names = [each.title for each in book.worksheets]
        if not names:
            raise InputError(f"{name} has no sheet with cells; give a workbook with a table")
        if sheet is not None and sheet not in names:
            raise InputError(f"{name} has no sheet {sheet!r}; its sheets are {listed(names, 20)}")
        chosen = names[0] if sheet is None else sheet
        table = _table(_rows(book[chosen]), f"{name} sheet {chosen!r}", texts)
    except InputError:
        raise
    except Exception as error:  # a damaged file may make openpyxl raise anything
        raise InputError(f"{name} must be a readable workbook: {type(error).__name__}: {error!s:.200}") from None
    finally:
        book.close()
    several = sheet is None and len(names) > 1
    note = f"read the sheet {chosen!r} of {listed(names, len(names))}; --sheet NAME reads another"
    return table, [note] if several else []


def _opened(data: bytes, name: str) -> Any:
    if data.startswith(_OLD):
        if _LOCKED in data:
            raise InputError(f"{name} is protected by a password; save a copy without it")
        raise InputError(f"{name} is a workbook of before 2007 (.xls); save it as .xlsx, or as CSV")
    try:
        from openpyxl import load_workbook
    except ModuleNotFoundError as error:
        raise InputError(f"reading {name} needs {error.name}: pip install 'dwac[excel]', or save it as CSV") from None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(each.file_size for each in archive.infolist())
        if size > room():
            raise InputError(f"{name} takes {size:,} bytes when unpacked; save it as CSV or Parquet")
        return load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{name} must be a readable .xlsx workbook: {error!s:.200}; save it again as .xlsx") from None


def _rows(sheet: Any) -> Iterator[tuple[int, list[Any]]]:
    """(number as Excel shows it, cells) of each row that is not empty; errors such as #N/A are empty cells."""
    sheet.reset_dimensions()  # which some programs write wrongly
    for number, row in enumerate(sheet.iter_rows(), start=1):
        cells = [_value(cell) for cell in row]
        if any(cell is not None for cell in cells):
            yield number, cells


def _value(cell: Any) -> Any:
    value = cell.value
    if getattr(cell, "data_type", "") == "e":
        return None
    if isinstance(value, str):
        return value.strip() or None
    return value


def _table(rows: Iterator[tuple[int, list[Any]]], name: str, texts: Collection[str]) -> Table:
    _, head = next(rows, (0, None))
    if head is None:
        raise InputError(f"{name} is empty; name another with --sheet NAME")
    numbers: list[int] = []
    body: list[list[Any]] = []
    for number, cells in rows:
        numbers.append(number)
        body.append(cells)
    width = max(map(len, [head, *body]))
    columns = [[row[place] if place < len(row) else None for row in body] for place in range(width)]
    written = [INDEX if cell is None else category(cell) for cell in [*head, *[None] * (width - len(head))]]
    # A column without a name and without cells is the empty space beside a table.
    kept = [place for place in range(width) if written[place] or any(cell is not None for cell in columns[place])]
    names = named([written[place] for place in kept], name)
    frame = pd.DataFrame(
        {column: _typed(columns[place], column in texts) for column, place in zip(names, kept, strict=True)}
    )
    return Table(frame, lambda row: f"{name} row {numbers[row]}")


def _typed(values: list[Any], text: bool) -> pd.Series[Any]:
    """A column of cells: numbers, dates or truth if all of them are, else text."""
    found = pd.Series(values, dtype=object)
    held = pd.api.types.infer_dtype(found, skipna=True)
    if text or held in ("time", "timedelta") or (held.startswith("mixed") and held != "mixed-integer-float"):
        return found.map(category, na_action="ignore").astype(object)
    if held in ("integer", "floating", "mixed-integer-float"):
        return pd.to_numeric(found)
    if held in ("datetime", "date"):
        return pd.to_datetime(found)
    return found.infer_objects() if held == "boolean" else found
