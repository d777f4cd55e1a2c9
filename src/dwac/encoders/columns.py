"""Columns of a table: their kinds, what fit learns about each, and how values are read and compared."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from decimal import Decimal
from numbers import Real
from types import NoneType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from dwac.encoders.base import array_of
from dwac.encoders.scales import BINS, Scale
from dwac.encoders.tabular_networks import UNKNOWN
from dwac.errors import InputError, KindError, NonFiniteError, ShapeError

Floats = NDArray[np.float64]
Name = str | int
Value = str | int | float | bool | None
Differences = Callable[["pd.Series[Any]"], Floats]  # a series of one value → (n,) in [0, 1]

FEW = 256  # a number with at most this many distinct values may be a category too
LARGEST = 1e100  # numbers are clipped to ± this, so that no square or difference overflows
FORMS = {"paper": "standard", "wide": "robust"}  # the form of scales, by network; otherwise "quantile"
_FEWEST_IDS = 20  # fewer whole numbers may all differ by chance
_ID = re.compile(
    r"^(?i:ids?|u?uid|guid|pk|key|index|idx|row|nr|no|num|number|record|case|serial|unnamed.*)$"
    r"|(?i:[ _.-](id|nr|no|key|index|number))$|^(?i:id|row)[ _.-]|[a-z](Id|ID|Nr|No)$"
)
_TIME = re.compile(r"(?i)age|rank|year|month|week|day|date|hour|minute|second|time|step|period|^t$")
_KINDS = {  # by pandas' names for the contents of a column; all others are categorical
    "boolean": "boolean",
    **dict.fromkeys(("integer", "floating", "mixed-integer-float", "decimal", "complex"), "numeric"),
    **dict.fromkeys(("timedelta", "timedelta64"), "numeric"),
    **dict.fromkeys(("datetime", "datetime64", "date", "period"), "datetime"),
}


@dataclass(frozen=True)
class Column:
    """The facts that fit learned about a column, which define its features.

    A number has one scale; a date has four, for its time, month, weekday and hour; None means that nothing varies.
    `gaps`: training had missing numbers, so an indicator marks them. `categories`: the values with an index of their
    own, starting at 1; numbers with few distinct values have them too. `nameless`: places of indices whose category was
    forgotten, so that no value has them any more. An "empty" column had only missing values: it is ignored.
    """

    name: Name
    kind: str  # numeric, boolean, datetime, categorical or empty
    scales: list[Scale | None] = field(default_factory=list)
    gaps: bool = False
    categories: list[Value] = field(default_factory=list)
    nameless: list[int] = field(default_factory=list)

    @property
    def n_indices(self) -> int:
        """How many categories have an index, with a name or without."""
        return len(self.categories) + len(self.nameless)

    def indices(self) -> dict[Value, int]:
        """The index of each category."""
        places = (place for place in range(self.n_indices) if place not in self.nameless)
        return {value: place + UNKNOWN + 1 for value, place in zip(self.categories, places, strict=True)}

    def without_names(self, gone: pd.Series[Any], left: pd.Series[Any]) -> Column:
        """The column without the names of categories that only `gone` has, not `left`; their indices stay unused."""
        if self.kind != "categorical":
            return self
        names = {*_factorize(gone, self.name)[1]} - {*_factorize(left, self.name)[1]}
        lost = [index - UNKNOWN - 1 for value, index in self.indices().items() if value in names]
        if not lost:
            return self
        categories = [value for value in self.categories if value not in names]
        return replace(self, categories=categories, nameless=sorted([*self.nameless, *lost]))

    @classmethod
    def fit(cls, series: pd.Series[Any], name: Name, *, network: str) -> Column:
        """Learn a column for a network: "paper", "wide", "numbers" or "default"."""
        paper = network == "paper"
        kind = kind_of(series)
        if kind == "empty":
            return cls(name, kind)
        if kind == "categorical":
            # Categories that occur once get no index: they train the index of unseen categories.
            return cls(name, kind, categories=frequent_values(count_values(series, name), 1 if paper else 2))
        parts = parts_of(series, name, kind)
        form = FORMS.get(network, "quantile")
        scales = [Scale.fit(part, form=form) for part in parts]
        x = pd.Series(parts[0])
        amounts = kind == "numeric" and network == "default" and is_scattered(np.sort(x.dropna().unique()), len(x))
        codes = frequent_values(count_values(x, name), 2) if amounts else []
        return cls(name, kind, scales, bool(x.isna().any()), codes)

    def codes(self, series: pd.Series[Any]) -> NDArray[np.int64]:
        """(n,): the index of each value's category."""
        codes, values = _factorize(series, self.name)
        known = self.indices()
        return np.array([known.get(value, UNKNOWN) for value in values], dtype=np.int64)[codes]

    def beyond_others(self, series: pd.Series[Any], groups: NDArray[np.int64]) -> Floats:
        """(n,): how far the training values of a column of numbers are outside the range of other groups (n,)."""
        scale = self.scales[0]
        return np.zeros(len(series)) if scale is None else scale.beyond_others(_read_numbers(series, self.name), groups)

    @property
    def used(self) -> bool:
        """Whether the column tells rows apart: it varied in training."""
        return bool(self.n_indices or self.gaps or any(self.scales))

    def check(self) -> None:
        """Raise an error if kind, scales and categories are inconsistent."""
        for scale in self.scales:
            if scale is not None and not _is_scale(**asdict(scale)):
                raise InputError(f"column {self.name!r} must have a scale of finite numbers; got {scale!r:.200}")
        if not _is_column(self):
            raise InputError(
                f"column {self.name!r:.100} must have consistent kind, scales, categories; got {self!r:.300}"
            )

    def _comparable(self, series: pd.Series[Any]) -> Floats:
        """Numbers (n,) that represent values in comparisons, NaN where missing; a date is its time."""
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf":  # most columns: nothing to check
            return np.clip(series.to_numpy().astype(np.float64), -LARGEST, LARGEST)
        return parts_of(_restore_numbers(series, self.kind), self.name, self.kind)[0]

    def differences(self, many: pd.Series[Any]) -> Differences:
        """How much values of the column differ from these; numbers and dates in units of their usual range."""
        if not self.scales:
            return category_differences(many)
        scale, others = self.scales[0], self._comparable(many)
        span = 0.0 if scale is None else scale.span
        return lambda one: number_differences(float(self._comparable(one)[0]), others, span)


def _is_scale(form: str, values: list[Any], fill: Any) -> bool:
    if any(type(number) not in (int, float) or not abs(number) <= LARGEST for number in [*values, fill]):
        return False
    if any(type(number) is int and abs(number) > 2**53 for number in [*values, fill]):  # not exact as a float
        return False
    if form in ("quantile", "robust"):
        enough = len(values) == BINS + 1 if form == "robust" else len(values) > 1
        return enough and values == sorted(values) and 0 < values[-1] - values[0] < math.inf
    return form in ("binary", "standard") and len(values) == 2


def _is_column(column: Column) -> bool:
    scales = {"numeric": 1, "boolean": 1, "datetime": 4, "categorical": 0, "empty": 0}
    if type(column.name) not in (str, int) or type(column.gaps) is not bool:
        return False
    if not isinstance(column.kind, str) or scales.get(column.kind) != len(column.scales):
        return False
    types = {str, int, float, bool, NoneType}
    if not isinstance(column.categories, list) or not {*map(type, column.categories)} <= types:
        return False
    places = column.nameless
    if not isinstance(places, list) or not all(type(place) is int for place in places):
        return False
    inside = all(0 <= place < column.n_indices for place in places)
    return inside and all(len(set(each)) == len(each) for each in (column.categories, places))


def number_differences(one: float, many: Floats, span: float) -> Floats:
    """min(|x - x_i| / span, 1); 0 where both are missing (NaN), 1 where one is."""
    if math.isnan(one):
        return (~np.isnan(many)).astype(np.float64)
    with np.errstate(over="ignore"):
        apart = np.abs(many - one)
    scaled = np.minimum(apart / span, 1.0) if span > 0 else (apart > 0).astype(np.float64)
    return np.where(np.isnan(many), 1.0, scaled)


def category_differences(many: pd.Series[Any]) -> Differences:
    """0 where the category is the same or both are missing, else 1. Values are compared as text.

    A column of mixed types becomes text when it is stored: there 1 and "1" are the same category.
    """
    codes, values = pd.factorize(many)  # -1, the last position, where missing
    names = np.array([*map(_category, values), None], dtype=object)
    return lambda one: (names != _category(one.iloc[0])).astype(np.float64)[codes]


def _category(value: Any) -> str | None:
    """A category as text; None if it is missing. Whole numbers are the same in a column of floats."""
    if pd.isna(value):
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def frame_of(X: Any) -> pd.DataFrame:
    """X as a frame whose column names are unique strings or whole numbers."""
    if isinstance(X, pd.DataFrame):
        names: list[Any] = [int(name) if pd.api.types.is_integer(name) else name for name in X.columns]
        odd = [name for name in names if not isinstance(name, str | int)]
        if odd:
            raise InputError(f"column names must be strings or whole numbers; got {odd[0]!r}; rename the column")
        twice = [name for name, again in zip(names, X.columns.duplicated(), strict=True) if again]
        if twice:
            raise InputError(
                f"column names must be unique; {twice[0]!r} appears more than once; rename or drop one of them"
            )
        return X.set_axis(names, axis=1).reset_index(drop=True)
    if isinstance(X, list | tuple):
        rows = [array_of(row) if isinstance(row, Tensor) else row for row in X]
        rows = [row.tolist() if isinstance(row, np.ndarray | pd.Series) else row for row in rows]
        if not rows or not all(isinstance(row, list | tuple) for row in rows):
            raise ShapeError(
                "a table given as a list must hold at least one row, and each row must be a list of values"
            )
        for i, row in enumerate(rows):
            if len(row) != len(rows[0]):
                raise ShapeError(
                    f"all rows must have the same length; row 0 has {len(rows[0])} values, row {i} has {len(row)}"
                )
        return pd.DataFrame(rows)
    if hasattr(X, "toarray"):
        raise InputError("a table must be dense; got a sparse matrix; use X.toarray()")
    if not hasattr(X, "__array__"):
        raise InputError(f"a table must be a DataFrame, a 2-D array or a list of rows; got {type(X).__name__}")
    array = array_of(X) if isinstance(X, Tensor) else np.asarray(X)
    if array.ndim != 2:
        hint = "; Reshape your data: one column is x.reshape(-1, 1), one row x.reshape(1, -1)" * (array.ndim == 1)
        raise ShapeError(f"a table must have 2 axes, (rows, columns); got shape {array.shape}{hint}")
    return pd.DataFrame(array)


def is_id(series: pd.Series[Any], rows: int | None = None) -> bool:
    """Whether distinct whole numbers are ids of rows: the column's name says so, or the numbers count the rows.

    Ids say nothing about new rows. Amounts and years that happen to differ are not ids, nor are floats. rows: how many
    there are, if the series holds only some of them.

    >>> n = pd.Series(range(1, 930))
    >>> is_id(n.rename("id")), is_id((n * 977).rename("customerId")), is_id(n.rename("x")), is_id(n.rename("day"))
    (True, True, True, False)
    >>> is_id((n + 1000).rename("year")), is_id((n * 977).rename("paid")), is_id(n.astype(float).rename("id"))
    (False, False, False)
    """
    if not isinstance(series.name, str) or not pd.api.types.is_integer_dtype(series.dtype):
        return False
    n = rows or len(series)
    if len(series) < _FEWEST_IDS or series.isna().any() or not series.is_unique:
        return False
    low, high = int(series.min()), int(series.max())
    counts = 0 <= low <= 1 + n / 20 and high - low < 2 * n  # some rows may be held out
    return bool(_ID.search(series.name)) or (counts and not _TIME.search(series.name))


def kind_of(series: pd.Series[Any]) -> str:
    """numeric, boolean, datetime, categorical or empty."""
    if series.isna().all():
        return "empty"
    return _KINDS.get(pd.api.types.infer_dtype(series, skipna=True), "categorical")


def parts_of(series: pd.Series[Any], name: Name, kind: str) -> list[Floats]:
    """The numbers of a column, (n,) each, NaN where missing: one, or a date's time, month, weekday and hour."""
    if kind != "datetime":
        x = _read_numbers(series, name)
        neither = ~(np.isnan(x) | (x == 0) | (x == 1))
        if kind == "boolean" and neither.any():
            _raise_unfit(series[neither], name, pd.isna, "true or false, or 1 or 0", of=int(series.notna().sum()))
        return [x]
    times = _read_times(series, name)
    seconds = (times - pd.Timestamp(0, tz="UTC").as_unit("s")).dt.total_seconds()  # seconds hold distant dates too
    parts = (seconds, times.dt.month, times.dt.day_of_week, times.dt.hour)
    return [np.asarray(part.to_numpy(np.float64, na_value=np.nan), np.float64) for part in parts]


def _restore_numbers(series: pd.Series[Any], kind: str) -> pd.Series[Any]:
    """A column of records, with numbers restored: mixed types (Decimal and float) were stored as text."""
    if kind == "datetime" or pd.api.types.infer_dtype(series, skipna=True) != "string":
        return series
    truth = {"True": 1.0, "False": 0.0}
    return pd.Series([truth.get(value, value) for value in series], dtype=object).pipe(pd.to_numeric, errors="coerce")


def _read_numbers(series: pd.Series[Any], name: Name) -> Floats:
    """A column of numbers, (n,), NaN where missing."""
    if not isinstance(series.dtype, np.dtype) or series.dtype.kind not in "biuf":
        series = _as_numeric(series, name)
    try:
        x: Floats = series.to_numpy(np.float64, na_value=np.nan)
    except OverflowError as error:
        wrong = f"column {name!r} must hold numbers up to 1e308"
        large = [row for row, value in enumerate(series) if not pd.isna(value) and _overflows(value)]
        raise NonFiniteError(f"{wrong}: {error}", rows=dict.fromkeys(large, wrong)) from None
    infinite = np.isinf(x)
    if infinite.any():
        row, wrong = int(infinite.argmax()), f"column {name!r} must be finite; got"
        raise NonFiniteError(
            f"{wrong} {x[row]} in row {row}; drop or repair such rows",
            rows={int(row): f"{wrong} {x[row]}" for row in np.flatnonzero(infinite)},
        )
    return np.clip(x, -LARGEST, LARGEST)


def _as_numeric(series: pd.Series[Any], name: Name) -> pd.Series[Any]:
    """A column that pandas can turn into numbers; an error names the first value that is not a number."""
    if pd.api.types.is_complex_dtype(series.dtype):
        raise InputError(f"Complex data not supported: column {name!r} must hold real numbers")
    if pd.api.types.infer_dtype(series, skipna=True) in ("timedelta", "timedelta64"):
        series = pd.to_timedelta(series).dt.total_seconds()
    if not pd.api.types.is_numeric_dtype(series.dtype):
        series = series.astype(object)
        _raise_unfit(series, name, lambda value: isinstance(value, Real | Decimal | np.bool_), "numbers")
    return series


def _overflows(value: Any) -> bool:
    try:
        float(value)
    except OverflowError:
        return True
    return False


def _read_times(series: pd.Series[Any], name: Name) -> pd.Series[Any]:
    """A column of dates in UTC, NaT where missing; text is read as ISO 8601."""
    if isinstance(series.dtype, pd.PeriodDtype):
        series = series.dt.to_timestamp()
    if pd.api.types.is_datetime64_any_dtype(series.dtype):
        return pd.to_datetime(series, utc=True)
    series = series.astype(object)
    _raise_unfit(series, name, lambda value: isinstance(value, str | date), "dates")
    times = pd.to_datetime(series, utc=True, errors="coerce", format="ISO8601")
    _raise_unfit(series[times.isna()], name, pd.isna, "dates such as 2024-05-31T14:00", of=int(series.notna().sum()))
    return times


def _raise_unfit(
    series: pd.Series[Any], name: Name, fits: Callable[[Any], bool], wanted: str, of: int | None = None
) -> None:
    """Raise an error that names the first value that does not fit, and its row; it carries all such rows.

    of: the total number of values, if the series holds only some of them.
    """
    wrong, values = f"column {name!r} must hold {wanted}; got", series[series.notna()]
    rows: dict[Any, str] = {row: f"{wrong} {value!r:.80}" for row, value in values.items() if not fits(value)}
    if rows:
        row, message = next(iter(rows.items()))
        error = KindError if len(rows) == (of or len(values)) else InputError
        raise error(f"{message} in row {row}", rows=rows)


def _factorize(series: pd.Series[Any], name: Name) -> tuple[NDArray[np.intp], list[Value]]:
    """Codes (n,) into the list of a column's distinct values; its last entry, None, means missing."""
    try:
        codes, values = pd.factorize(series)
    except TypeError:
        _raise_unfit(series, name, pd.api.types.is_scalar, "single values, not lists or the like")
        raise
    return codes, [*map(_as_json, values), None]  # pandas' code for missing values, -1, is the last position


def plain_values(series: pd.Series[Any], name: Name) -> list[Value]:
    """The values of a column as JSON values, None where missing."""
    codes, values = _factorize(series, name)
    return [values[code] for code in codes]


def _as_json(value: Any) -> Value:
    """A category as a JSON value: text, booleans and finite numbers as they are, everything else as text."""
    value = value.item() if isinstance(value, np.generic) else value
    keeps = isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    return value if keeps else str(value)


def count_values(series: pd.Series[Any], name: Name) -> dict[Value, int]:
    """How often each value of a column occurs; None stands for missing values."""
    codes, values = _factorize(series, name)
    counts: dict[Value, int] = {}
    for value, count in zip(values, np.bincount(codes % len(values), minlength=len(values)), strict=True):
        counts[value] = counts.get(value, 0) + int(count)
    return counts


def frequent_values(counts: dict[Value, int], least: int) -> list[Value]:
    """The values that occur at least `least` times, in an order independent of the rows; [] if there is only one."""
    if sum(count > 0 for count in counts.values()) < 2:
        return []
    frequent = [value for value, count in counts.items() if count >= least]
    return sorted(frequent, key=lambda value: (type(value).__name__, value if value is not None else 0))


def is_scattered(values: Floats, n: int) -> bool:
    """Whether the sorted distinct values of n numbers are few, widely spaced and recurring: amounts or codes.

    Then the exact value matters, and no smooth function of the number separates one value from the next (Adult's
    capital gains as categories too: +1 point). For values that fill their range, this would only overfit (Covertype).
    """
    if not 2 < len(values) <= min(FEW, n // 20):
        return False
    return bool(len(values) < 0.5 * (values[-1] - values[0]) / np.diff(values).min())
