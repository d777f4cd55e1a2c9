"""Legend: the titles and units of columns, and the meanings of codes, as people know them; rows beside each other.

A file has a row per column; codes and their meanings are separated by semicolons:

column,title,unit,codes
dir,debt-to-income ratio,%,
dmi,insurance denied,,0=no; 1=yes
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dwac import _checks as checks
from dwac.drawing.records import shorten, title_of
from dwac.errors import InputError

_FIELDS = ["column", "title", "unit", "codes"]


class ColumnName(NamedTuple):
    """What a column is called: its title, its unit, and the meanings of its codes."""

    title: str
    unit: str = ""
    codes: Mapping[str, str] = {}

    def __str__(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title


class Legend:
    """What columns and codes are called; those without a name are shown as they are.

    >>> names = {"dir": "debt-to-income ratio (%)", "dmi": {"title": "insurance denied", "codes": {1: "yes"}}}
    >>> legend = Legend.read(names)
    >>> legend.title("dir"), legend.title("age"), legend.value("dmi", 1.0), legend.value("dmi", 0)
    ('debt-to-income ratio (%)', 'age', 'yes', '0')
    """

    def __init__(self, names: Mapping[Any, ColumnName] | None = None) -> None:
        self.names = dict(names or {})

    def __bool__(self) -> bool:
        return bool(self.names)

    @classmethod
    def read(cls, names: Any) -> Legend:
        """From a file, a table with the same columns, or {column: title} or {column: {title=…, unit=…, codes=…}}."""
        if isinstance(names, Legend):
            return names
        if isinstance(names, Mapping):
            return cls({column: _read_name(column, value) for column, value in names.items()})
        frame = names
        if isinstance(names, str | Path):
            try:
                frame = pd.read_csv(
                    names, dtype=str, sep=None, engine="python", skipinitialspace=True, encoding="utf-8-sig"
                )
            except (OSError, ValueError, pd.errors.ParserError) as error:
                raise InputError(f"names must be a CSV file with the columns {', '.join(_FIELDS)}: {error}") from None
        if not isinstance(frame, pd.DataFrame):
            raise InputError(f"names must be a file, a DataFrame or a dict by column; got {type(names).__name__}")
        unknown = [str(name) for name in frame.columns if name not in _FIELDS]
        if unknown or not {"column", "title"} <= set(frame.columns):
            raise InputError(
                f"names must have the columns column and title, and may have unit and codes; got "
                f"{checks.listed(map(str, frame.columns))}"
            )
        repeated = frame["column"][frame["column"].duplicated()]
        if len(repeated):
            raise InputError(f"names must have one row per column; {repeated.iloc[0]!r} has several")
        rows = (
            frame.reindex(columns=_FIELDS)
            .astype(object)
            .fillna("")
            .astype(str)
            .apply(lambda column: column.str.strip())
        )
        return cls(
            {
                row.column: _read_name(
                    row.column, {"title": row.title, "unit": row.unit, "codes": _read_codes(row.column, row.codes)}
                )
                for row in rows.itertuples(index=False)
            }
        )

    def of(self, columns: Iterable[Any], values: pd.DataFrame | None = None) -> Legend:
        """The same for the columns of a table, checked: each is one of them, codes occur, no two share a title.

        values: the table, in which every code has to occur; columns of arrays are found by their numbers.
        """
        known = {str(column): column for column in columns}
        for name in self.names:
            if str(name) not in known:
                raise InputError(
                    f"names has the column {name!r}, which the data does not have; {checks.suggested(name, known)}its "
                    f"columns are {checks.listed(known.values())}"
                )
        legend = Legend({known[str(name)]: each for name, each in self.names.items()})
        for column, each in legend.names.items():
            if values is None or not each.codes:
                continue
            cells: Any = values[column]
            codes = {code_of(value) for value in pd.unique(cells)}
            absent = next((code for code in each.codes if code not in codes), None)
            if absent is not None:
                raise InputError(
                    f"names has the code {absent!r} of column {column!r}, which no row has; its values are "
                    f"{checks.listed(sorted(codes), most=8)}"
                )
        owners: dict[str, Any] = {}
        for column in known.values():
            if (first := owners.setdefault(legend.title(column), column)) != column:
                raise InputError(
                    f"names gives the columns {first!r} and {column!r} the same title, {legend.title(column)!r}"
                )
        return legend

    def title(self, column: Any) -> str:
        """The name of a column in a sentence or table."""
        name = self.names.get(column) if self.names else None
        return title_of(column) if name is None else str(name)

    def head(self, column: Any) -> str:
        """The same above a table, where a number alone is no value."""
        return self.title(column) if column in self.names else str(column)

    def value(self, column: Any, value: Any, most: int = 60) -> str:
        """A value in short form: the meaning of a code, or the value itself."""
        return self.meaning(column, value) or shorten(value, most)

    def meaning(self, column: Any, value: Any) -> str | None:
        """The meaning of a code of a column; None if it has none."""
        name = self.names.get(column) if self.names else None
        return name.codes.get(code_of(value)) if name is not None and name.codes else None

    def to_dict(self) -> dict[str, Any]:
        """{column: {title, codes}}, as plain values."""
        return {
            str(column): {"title": str(name)} | ({"codes": dict(name.codes)} if name.codes else {})
            for column, name in self.names.items()
        }


NO_LEGEND = Legend()


class ComparedColumn(NamedTuple):
    """A column of a table: its title, the value of the explained row, those of its neighbours, and which differ."""

    name: str
    value: str
    others: tuple[str, ...]
    differs: tuple[bool, ...]


def compare(
    record: Mapping[Any, Any], others: Sequence[Any], most: int = 60, legend: Legend = NO_LEGEND
) -> list[ComparedColumn]:
    """The values of a row next to those of its neighbours, by column, in short form; a neighbour may have no record.

    >>> compare({"age": 30}, [{"age": 30}, {"age": 41}, None])
    [ComparedColumn(name='age', value='30', others=('30', '41', ''), differs=(False, True, False))]
    """
    columns = []
    for name, value in record.items():
        here = legend.value(name, value, most)
        texts = tuple(legend.value(name, other[name], most) if _has(other, name) else "" for other in others)
        differs = tuple(_has(other, name) and text != here for other, text in zip(others, texts, strict=True))
        columns.append(ComparedColumn(shorten(legend.head(name)), here, texts, differs))
    return columns


def _has(record: Any, name: Any) -> bool:
    return isinstance(record, Mapping) and name in record


def code_of(value: Any) -> str:
    """A value as the text of a code.

    >>> code_of(1), code_of(1.0), code_of(True), code_of("1 "), code_of(2.5)
    ('1', '1', 'true', '1', '2.5')
    """
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def _read_name(column: Any, value: Any) -> ColumnName:
    """The name of a column from its title, or from a dict."""
    given: Any = {"title": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping) or not set(given) <= {"title", "unit", "codes"}:
        raise InputError(
            f"names must give column {column!r} a title, or a dict with title, unit and codes; got {value!r:.100}"
        )
    codes = {code_of(code): str(meaning) for code, meaning in (given.get("codes") or {}).items()}
    repeated = [meaning for meaning in codes.values() if list(codes.values()).count(meaning) > 1]
    if repeated:
        raise InputError(f"names gives two codes of column {column!r} the same meaning, {repeated[0]!r}")
    return ColumnName(str(given.get("title") or column), str(given.get("unit") or ""), codes)


def _read_codes(column: Any, text: str) -> dict[str, str]:
    """ "0=no; 1=yes"."""
    pairs = [part.partition("=") for part in text.split(";") if part.strip()]
    for code, sign, meaning in pairs:
        if not (sign and code.strip() and meaning.strip()):
            raise InputError(f"names must write codes as 0=no; 1=yes; column {column!r} has {text!r}")
    return {code.strip(): meaning.strip() for code, _, meaning in pairs}
