"""A sheet of an Excel workbook (.xlsx) as a DataFrame. Needs the extra `dwac[excel]`."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import pandas as pd

from dwac._checks import listed
from dwac.errors import InputError
from dwac.reading.layouts import INDEX, check_names
from dwac.reading.notation import category
from dwac.reading.places import room
from dwac.reading.tables import Table

SUFFIXES = (".xlsx", ".xlsm", ".xltx", ".xltm")
_OLD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # first bytes of workbooks from before 2007, and of those with a password
_LOCKED = "EncryptedPackage".encode("utf-16-le")


def is_workbook(data: bytes) -> bool:
    """Whether bytes look like a workbook, readable or not."""
    return data.startswith(_OLD) or (data[:4] == b"PK\x03\x04" and b"[Content_Types].xml" in data)


def read_workbook(data: bytes, name: str, sheet: str | None, texts: Collection[str]) -> tuple[Table, list[str]]:
    """(the table on a sheet, by default the first; notes on it).

    The first row that is not empty names the columns. texts: columns to read as text, 3 as "3".
    """
    book = _open_workbook(data, name)
    try:
        names = [each.title for each in book.worksheets]
        if not names:
            raise InputError(f"{name} has no sheet with cells; give a workbook with a table")
        if sheet is not None and sheet not in names:
            raise InputError(f"{name} has no sheet {sheet!r}; its sheets are {listed(names, 20)}")
        chosen = names[0] if sheet is None else sheet
        notes = _notes(data, names, chosen, named=sheet is not None)
        with explained_by(notes):
            table = _to_table(_read_rows(book[chosen]), f"{name} sheet {chosen!r}", texts)
            if len(table.frame) == 0:
                raise InputError(f"{name} must have at least one row; it has columns but no rows")
    except InputError:
        raise
    except Exception as error:  # a damaged file may make openpyxl raise anything
        raise InputError(f"{name} must be a readable workbook: {type(error).__name__}: {error!s:.200}") from None
    finally:
        book.close()
    return table, notes


@contextmanager
def explained_by(notes: Sequence[str]) -> Iterator[None]:
    """Append the notes on the workbook to an error: the missing data may be on another sheet, or a formula."""
    try:
        yield
    except InputError as error:
        if not notes or error.rows:
            raise
        raise type(error)(f"{error}; {'; '.join(notes)}") from None


def _notes(data: bytes, names: Sequence[str], chosen: str, *, named: bool) -> list[str]:
    notes = []
    if not named and len(names) > 1:
        notes.append(f"read the sheet {chosen!r} of {listed(names, len(names))}; --sheet NAME reads another")
    if unstored := _count_unstored(data, chosen):
        columns = listed(unstored, 20, str)
        notes.append(
            f"column{'s' * (len(unstored) > 1)} {columns}: {sum(unstored.values()):,} formulas have no stored value "
            "and are read as empty cells; open the workbook in a spreadsheet program and save it, to store the values"
        )
    return notes


def _count_unstored(data: bytes, sheet: str) -> dict[str, int]:
    """The number of formulas without a stored value, by column letter: some programs do not calculate them."""
    from openpyxl.utils import get_column_letter

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = [name for name in archive.namelist() if name.startswith("xl/worksheets/")]
        if not any(b"<f" in archive.read(name) for name in parts):
            return {}
    counts: Counter[str] = Counter()
    with _load_workbook(data, values=True) as stored, _load_workbook(data, values=False) as written:
        for row, formulas in zip(_rows_of_cells(stored[sheet]), _rows_of_cells(written[sheet]), strict=True):
            for place, (cell, formula) in enumerate(zip(row, formulas, strict=True), start=1):
                # An empty text, a possible result of a formula, is stored as a "str".
                if formula.data_type == "f" and cell.value is None and cell.data_type == "n":
                    counts[get_column_letter(place)] += 1
    return dict(counts)


@contextmanager
def _load_workbook(data: bytes, *, values: bool) -> Iterator[Any]:
    """A workbook with the stored values of its formulas, or with the formulas."""
    from openpyxl import load_workbook

    book = load_workbook(io.BytesIO(data), read_only=True, data_only=values)
    try:
        yield book
    finally:
        book.close()


def _open_workbook(data: bytes, name: str) -> Any:
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


def _read_rows(sheet: Any) -> Iterator[tuple[int, list[Any]]]:
    """(number as Excel shows it, cells) of each row that is not empty; errors such as #N/A are empty cells."""
    for number, row in enumerate(_rows_of_cells(sheet), start=1):
        cells = [_shown_value(cell) for cell in row]
        if any(cell is not None for cell in cells):
            yield number, cells


def _rows_of_cells(sheet: Any) -> Iterator[Any]:
    sheet.reset_dimensions()  # some programs write them wrongly
    return iter(sheet.iter_rows())


def _shown_value(cell: Any) -> Any:
    """The value that a cell shows: a code stored as 123 and formatted as 00000 is the text 00123."""
    value = cell.value
    if getattr(cell, "data_type", "") == "e":
        return None
    if isinstance(value, str):
        return value.strip() or None
    if type(value) is int and len(cell.number_format) > 1 and set(cell.number_format) == {"0"}:
        return f"{value:0{len(cell.number_format)}d}"
    return value


def _to_table(rows: Iterator[tuple[int, list[Any]]], name: str, texts: Collection[str]) -> Table:
    _, head = next(rows, (0, None))
    if head is None:
        raise InputError(f"{name} is empty; name another with --sheet NAME")
    body = list(rows)
    numbers = [number for number, _ in body]
    columns = [list(column) for column in zip_longest(head, *(cells for _, cells in body))]
    heads = [column.pop(0) for column in columns]
    written = [INDEX if cell is None else category(cell) for cell in heads]
    # A column without a name and without cells is the empty space beside a table.
    kept = [i for i, column in enumerate(columns) if written[i] or any(cell is not None for cell in column)]
    _refuse_nameless([place for place in kept[1:] if not written[place]], name)
    names = check_names([written[place] for place in kept], name)
    frame = pd.DataFrame(
        {column: _infer_type(columns[place], column in texts) for column, place in zip(names, kept, strict=True)}
    )
    return Table(frame, lambda row: f"{name} row {numbers[row]}")


def _refuse_nameless(places: Sequence[int], name: str) -> None:
    if not places:
        return
    from openpyxl.utils import get_column_letter

    raise InputError(
        f"{name}: column {get_column_letter(places[0] + 1)} has no name; the first row that is not empty must name "
        "every column, each in a cell of its own; unmerge these cells, and remove titles above the table"
    )


def _infer_type(values: list[Any], text: bool) -> pd.Series[Any]:
    """A column of cells: numbers, dates or booleans if all cells are, else text."""
    cells = pd.Series(values, dtype=object)
    kind = pd.api.types.infer_dtype(cells, skipna=True)
    if text or kind in ("time", "timedelta") or (kind.startswith("mixed") and kind != "mixed-integer-float"):
        return cells.map(category, na_action="ignore").astype(object)
    if kind in ("integer", "floating", "mixed-integer-float"):
        return pd.to_numeric(cells)
    if kind in ("datetime", "date"):
        return pd.to_datetime(cells)
    return cells.infer_objects() if kind == "boolean" else cells
