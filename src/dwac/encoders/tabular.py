"""Tables of numbers, categories, booleans and dates, with missing values, as tensors.

encoder = TabularEncoder().fit(X)
numeric, categorical = encoder.transform(X)              # float32 (n, p), int64 (n, q)
features = encoder.network()(numeric, categorical)       # (n, 512)
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from decimal import Decimal
from numbers import Real
from types import NoneType
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac.encoders.base import Encoder, Recipe, array_of, require_one
from dwac.encoders.likeness import category_differences, number_differences
from dwac.encoders.scales import BINS, Scale, Scales
from dwac.encoders.tabular_networks import UNKNOWN, TabularNetwork, WideEnsemble, WideNetwork
from dwac.errors import DwacError, InputError, KindError, NonFiniteError, ShapeError
from dwac.nn import Ensemble
from dwac.nn.batches import Inputs

log = logging.getLogger(__name__)

Floats = NDArray[np.float64]
Name = str | int
Value = str | int | float | bool | None

FEW = 256  # a number with at most this many distinct values may be a category too
_WIDE, _WIDE_DROPOUT = 64, 0.3  # the hidden layer of the wide network
_MOST_BINS = 1024  # bins of all numbers together
_DEEPEST = 1000  # most layers
_LARGEST = 1e100  # numbers are clipped to ± this, so that no square or difference overflows
FORMS = {"paper": "standard", "wide": "robust"}  # the form of scales, by network; otherwise "quantile"
_FEWEST_IDS = 20  # fewer whole numbers may all differ by chance
_ID = re.compile(
    r"^(?i:ids?|u?uid|guid|pk|key|index|idx|row|nr|no|num|number|record|case|serial|unnamed.*)$"
    r"|(?i:[ _.-](id|nr|no|key|index|number))$|^(?i:id|row)[ _.-]|[a-z](Id|ID|Nr|No)$"
)
_TIME = re.compile(r"(?i)age|rank|year|month|week|day|date|hour|minute|second|time|step|period|^t$")
_NUMERIC = {"integer", "floating", "mixed-integer-float", "decimal", "complex", "timedelta", "timedelta64"}
_DATES = {"datetime", "datetime64", "date", "period"}  # pandas' names for the contents of a column


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

    def values(self, series: pd.Series[Any]) -> list[Value]:
        """The categories of a column, None where missing."""
        codes, values = _factorize(series, self.name)
        return [values[code] for code in codes]

    def beyond_others(self, series: pd.Series[Any], groups: NDArray[np.int64]) -> Floats:
        """(n,): how far the training values of a column of numbers are outside the range of other groups (n,)."""
        scale = self.scales[0]
        return np.zeros(len(series)) if scale is None else scale.beyond_others(_read_numbers(series, self.name), groups)

    @property
    def used(self) -> bool:
        """Whether the column tells rows apart: it varied in training."""
        return bool(self.n_indices or self.gaps or any(self.scales))

    def _comparable(self, series: pd.Series[Any]) -> Floats:
        """Numbers (n,) that represent values in comparisons, NaN where missing; a date is its time."""
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf":  # most columns: nothing to check
            return np.clip(series.to_numpy().astype(np.float64), -_LARGEST, _LARGEST)
        return parts_of(_restore_numbers(series, self.kind), self.name, self.kind)[0]

    def differences(self, one: pd.Series[Any], many: pd.Series[Any]) -> Floats:
        """(n,) in [0, 1]: how much n values differ from `one`; numbers and dates in units of their usual range."""
        if not self.scales:
            return category_differences(one.iloc[0], many)
        scale = self.scales[0]
        x, others = (self._comparable(series) for series in (one, many))
        return number_differences(float(x[0]), others, 0.0 if scale is None else scale.span)


class TabularEncoder(Encoder):
    """Tables as tensors: a DataFrame, a 2-D array or a list of rows; any column may have missing values.

    Columns of a DataFrame are matched by name; those of an array or list by position. Fit infers whether each is
    numeric, boolean, datetime (UTC if it has no time zone) or categorical; a boolean column cannot be read in rows
    with numbers other than 0 and 1. Missing numbers are filled with the training median, and flagged if training had
    some too; missing categories are a category of their own. Categories that were rare or absent in training share one
    index. Columns that do not vary are ignored, and so are names and whole numbers that differ in every row and look
    like ids (`is_id`); the same numbers as floats are kept.

    Args:
        network: "default": periodic embeddings of numbers, then a multi-layer perceptron. "numbers": the same for
            predicting numbers, with finer steps, the plain numbers as extra inputs, and no number as a category; it is
            the default of `DWACRegressor`. "paper": standardised numbers and one-hot categories → 32 → 8, with ReLU
            and dropout 0.2; its shape is fixed. "wide": one hidden layer of 64 beside a linear path, for tables of few
            rows (`DWACClassifier(cross_fit=True)`); its shape is fixed.
        width: size of the hidden layers; by default 512, or 128 for fewer than 2,000 training rows.
        depth: number of hidden layers.
        dropout: dropout rate after each hidden layer.
        frequencies: number of frequencies in the periodic embedding of each number.
        sigma: the initial standard deviation of these frequencies: a higher one resolves finer steps of x, but needs
            more rows; by default 0.1 below 2,000 rows, 0.5 from 100,000 rows, else 0.25; for "numbers" 0.25 below 2,000
            rows, else 1.

    >>> X = pd.DataFrame({"age": [31, 45, None, 28], "job": ["nurse", "clerk", "nurse", "clerk"]})
    >>> numeric, categorical = TabularEncoder().fit(X).transform(X)
    >>> numeric.shape, categorical.tolist()
    (torch.Size([4, 3]), [[2], [1], [2], [1]])
    """

    kind = "tabular"

    def __init__(
        self,
        network: str = "default",
        *,
        width: int | None = None,
        depth: int = 2,
        dropout: float = 0.2,
        frequencies: int = 48,
        sigma: float | None = None,
    ) -> None:
        if network not in ("default", "numbers", "paper", "wide"):
            raise InputError(f"unknown network {network!r} for tables; choose 'default', 'numbers', 'paper' or 'wide'")
        if not 0 <= dropout < 1:
            raise InputError(f"dropout must lie in [0, 1); got {dropout!r}")
        if sigma is not None and not 0 < sigma < math.inf:
            raise InputError(f"sigma must be a positive number; got {sigma!r}")
        if checks.positive_int(depth, "depth") > _DEEPEST:
            raise InputError(f"depth must be at most {_DEEPEST} layers; got {depth}")
        self.settings: dict[str, Any] = {
            "network": network,
            "width": None if width is None else checks.positive_int(width, "width"),
            "depth": checks.positive_int(depth, "depth"),
            "dropout": float(dropout),
            "frequencies": checks.positive_int(frequencies, "frequencies"),
            "sigma": None if sigma is None else float(sigma),
        }
        self.columns: list[Column] = []
        self._cached_plan: _Plan | None = None
        self._choose_sizes(rows=0)

    def _choose_sizes(self, rows: int, widths: list[int] | None = None, sigma: float | None = None) -> None:
        """Choose the settings that depend on the number of training rows; a stored encoder keeps its choices."""
        self.rows, small, large = rows, rows < 2000, rows >= 100_000
        self.widths = widths or [self.settings["width"] or (128 if small else 512)] * self.settings["depth"]
        numbers = self.settings["network"] == "numbers"
        usual = (0.25 if small else 1.0) if numbers else (0.1 if small else 0.5 if large else 0.25)
        self.sigma: float = sigma or self.settings["sigma"] or usual
        if self.settings["network"] == "paper":
            self.widths = [32, 8]
            self.recipe = Recipe(10, batch_size=256, learning_rate=1e-3, weight_decay=0.0, patience=2, compiled=True)
            return
        if self.settings["network"] == "wide":
            self.widths = [_WIDE]
            # What counts is the number of steps, which cross-fitting knows; these are for a single split.
            self.recipe = Recipe(40, batch_size=128, learning_rate=5e-3, weight_decay=1e-2, embedding_size=8, threads=2)
            return
        if numbers:
            self.recipe = Recipe(
                epochs=80 if small else 40,
                batch_size=64 if small else 1024 if large else 512,
                learning_rate=1e-3 if small else 2e-3,
                weight_decay=1e-2,
                patience=40,
                embedding_size=32 if large else 16,
                ensemble_size=4,
                compiled=True,
                threads=None if large else 2,
            )
            return
        self.recipe = Recipe(
            epochs=60 if small else 40 if large else 20,
            batch_size=64 if small else 1024 if large else 512,
            learning_rate=2e-3 if large else 1e-3,
            weight_decay=1e-2,
            patience=15 if small else 8 if large else 6,
            embedding_size=32 if large else 16,
            auxiliary_weight=1.0 if large else 0.0,
            ensemble_size=3 if large else 4,
            compiled=True,
            threads=None if large else 2,
        )

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn each column's kind, scale and categories."""
        del y
        frame = frame_of(X)
        if frame.shape[1] == 0:
            raise ShapeError(f"0 feature(s) (shape={frame.shape}) while a minimum of 1 is required.")
        if len(frame) == 0:
            raise ShapeError(f"0 sample(s) (shape={frame.shape}) while a minimum of 1 is required.")
        network = self.settings["network"]
        columns = [Column.fit(frame.iloc[:, i], name, network=network) for i, name in enumerate(frame.columns)]
        unique = [c.name for c in columns if c.kind == "categorical" and len(frame[c.name].unique()) > 1]
        return self.adopt(columns, len(frame), unique, frame)

    def adopt(self, columns: list[Column], rows: int, unique: Sequence[Name], sample: pd.DataFrame) -> Self:
        """Take over columns that were learned from `rows` training rows.

        unique: columns without repeated values. sample: some of the rows, or all.
        """
        pairs = zip(columns, (sample.iloc[:, place] for place in range(len(columns))), strict=True)
        ids = {c.name for c, values in pairs if c.kind == "numeric" and is_id(values, rows)}
        if self.settings["network"] != "paper" and ids and any(c.used for c in columns if c.name not in ids):
            columns = [Column(c.name, c.kind, [None]) if c.name in ids else c for c in columns]
            log.info("ignored: %s, a different whole number in every row, like an id", checks.listed(ids))
        if unique and not any(c.used for c in columns):
            raise InputError(
                f"at least one column must have values that recur; column {checks.listed(unique)} has a different "
                f"value in every row; if it holds texts, pass it alone: X[{unique[0]!r}], or --text {unique[0]} on the "
                "command line"
            )
        self.columns = columns
        self._choose_sizes(rows=rows)
        used = sum(column.used for column in columns)
        log.info("learned %d columns, %d of them in use", len(columns), used, extra={"columns": columns})
        return self

    def transform(self, X: Any) -> Inputs:
        """numeric (n, p) float32 and categorical (n, q) int64.

        numeric: continuous numbers, then plain 0/1 numbers. For the default network a last column measures how far the
        row is outside the training data: numbers out of range, or gaps where training had none. The network does not
        read that column, which is always 0 in training; it only helps to tell whether a row is like any other.
        """
        plan = self._plan
        parts, indices = plan.read_array(X), list[NDArray[np.int64]]()
        if parts is None:
            parts, indices = self._read_columns(self.records(X))
        return torch.from_numpy(plan.numeric(parts)), _stack_columns(indices, len(parts))

    def transform_left_out(self, X: Any, groups: NDArray[np.int64] | None = None) -> Inputs:
        """`transform` of the training rows, each as far outside the training data as if it had been left out.

        The rows that hold the extremes of a column define its range, so they are never outside it, while new rows can
        be: in one of p columns with a probability of up to 2p / (n + 1). Calibration rows must not have that advantage.
        groups: (n,) the group of each row, 0 … G-1; each row is then left out with its group.
        """
        numeric, categorical = self.transform(X)
        if numeric.shape[1] and self.settings["network"] != "paper":
            frame = self.records(X)
            of = np.arange(len(frame)) if groups is None else groups
            beyond = [c.beyond_others(frame.iloc[:, i], of) for i, c in enumerate(self.columns) if c.kind == "numeric"]
            outside = np.sqrt(np.sum(np.square(beyond), axis=0)) * np.ones(len(frame))
            numeric[:, -1] = torch.from_numpy(outside).to(numeric)
        return numeric, categorical

    @property
    def _plan(self) -> _Plan:
        """The plan that turns columns into tensors; made once per set of columns."""
        self._require_fit()
        if self._cached_plan is None or self._cached_plan.columns is not self.columns:
            self._cached_plan = _Plan(self.columns, beyond=self.settings["network"] != "paper")
        return self._cached_plan

    def _read_columns(self, frame: pd.DataFrame) -> tuple[Floats, list[NDArray[np.int64]]]:
        """The parts (n, p) of all numbers and the indices (n,) of categories.

        An error carries all invalid rows, of any column.
        """
        parts: list[Floats] = []
        indices, errors = [], []
        for column, (_, series) in zip(self.columns, frame.items(), strict=True):
            try:
                if column.scales:
                    parts += (numbers := parts_of(series, column.name, column.kind))
                    series = pd.Series(numbers[0]) if column.n_indices else series
                if column.n_indices:
                    indices.append(column.codes(series))
            except InputError as error:
                errors.append(error)
        if errors:
            gravest = min(errors, key=lambda error: (bool(error.rows), not isinstance(error, KindError)))
            if gravest.rows:
                gravest.rows = {row: why for error in reversed(errors) for row, why in error.rows.items()}
            raise gravest
        return np.stack(parts, axis=1) if parts else np.empty((len(frame), 0)), indices

    def records(self, X: Any) -> pd.DataFrame:
        """The rows of X with the columns and order of fit; an error names a missing or extra column."""
        self._require_fit()
        frame, names = frame_of(X), [column.name for column in self.columns]
        if not isinstance(X, pd.DataFrame):  # matched by position
            if frame.shape[1] != len(names):
                raise ShapeError(
                    f"X has {frame.shape[1]} features, but TabularEncoder is expecting {len(names)} features as input"
                )
            return frame.set_axis(names, axis=1)
        present, expected = set(frame.columns), set(names)
        missing = [name for name in names if name not in present]
        extra = [name for name in frame.columns if name not in expected]
        if missing:
            hint = f"X has {checks.listed(extra)} instead" if extra else f"fit saw {checks.listed(names)}"
            near = checks.suggested(missing[0], extra)
            raise InputError(f"column {checks.listed(missing)} is missing; {near}{hint}")
        if extra:
            raise InputError(f"column {checks.listed(extra)} was not in fit's data; drop it, or fit again with it")
        return frame[names]

    def input_distances(self, X_one: Any, X_many: Any) -> Floats:
        """(n,): Gower's distance, the mean over the columns that vary of differences in [0, 1].

        Categories differ by 0 or 1; numbers and dates by |x - x_i| / (the usual range in training), at most 1. Two
        gaps differ by 0, a gap and a value by 1. See `Encoder.input_distances`.
        """
        one, many = self.records(X_one), self.records(X_many)
        require_one(len(one))
        pairs = zip(self.columns, one.items(), many.items(), strict=True)
        apart = [column.differences(a, b) for column, (_, a), (_, b) in pairs if column.used]
        return np.mean(apart, axis=0) if apart else np.zeros(len(many))

    def ensemble(self, size: int) -> Ensemble:
        """Several new networks; wide ones are computed together."""
        network = self.network()
        return WideEnsemble(size, network) if isinstance(network, WideNetwork) else super().ensemble(size)

    def network(self) -> TabularNetwork | WideNetwork:
        """A new network for the columns of fit, with (n, widths[-1]) features; a wide one adds its inputs to them."""
        self._require_fit()
        continuous: list[bool] = []  # for each number, whether it comes from a date
        plain: list[bool] = []
        for column in self.columns:
            dated = column.kind == "datetime"
            for scale in column.scales:
                if scale is not None:
                    (plain if scale.form == "binary" else continuous).append(dated)
            plain += [dated] * column.gaps
        n_continuous, n_plain = len(continuous), len(plain)
        sizes = [column.n_indices for column in self.columns if column.n_indices]
        if self.settings["network"] == "paper":
            return TabularNetwork(0, n_continuous + n_plain, sizes, self.widths, dropout=0.2, unknown=0.0)
        # New dates are later than all training dates, which does not make a row unfamiliar.
        places = [place for place, dated in enumerate(continuous + plain) if not dated]
        if self.settings["network"] == "wide":
            return WideNetwork(self._edges(), n_plain, sizes, _WIDE, dropout=_WIDE_DROPOUT, coordinates=places)
        rest = {name: self.settings[name] for name in ("dropout", "frequencies")}
        rest |= {"sigma": self.sigma, "coordinates": places, "compared": True}
        rest["linear"] = self.settings["network"] == "numbers"
        return TabularNetwork(n_continuous, n_plain, sizes, self.widths, **rest)

    def _edges(self) -> list[list[float]]:
        """The edges of the bins of each continuous number: 16 bins, or fewer if there are many numbers."""
        scales = [scale for column in self.columns for scale in column.scales if scale is not None]
        scales = [scale for scale in scales if scale.form == "robust"]
        most = next(bins for bins in (BINS, 8, 4, 0) if bins * len(scales) <= _MOST_BINS)
        return [scale.edges(most) for scale in scales]

    def without_names(self, gone: Any, left: Any) -> Self:
        """The same encoder without the names of categories that only rows of `gone` have, not those of `left`.

        Networks and the tensors of all remaining rows do not change; a value with such a name counts as unknown.
        """
        frames, other = [self.records(rows) for rows in (gone, left)], copy(self)
        other.columns = [
            column.without_names(*(frame.iloc[:, place] for frame in frames))
            for place, column in enumerate(self.columns)
        ]
        return other

    def config(self) -> dict[str, Any]:
        """The settings, what fit learned about the columns, and the choices that depend on the number of rows."""
        learned = {"rows": self.rows, "widths": list(self.widths), "sigma": self.sigma}
        return {"settings": dict(self.settings), **learned, "columns": [asdict(column) for column in self.columns]}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Restore the encoder from its config."""
        encoder = cls(**config["settings"])
        for column in config["columns"]:
            scales = [None if scale is None else Scale(**scale) for scale in column["scales"]]
            encoder.columns.append(Column(**{**column, "scales": scales}))
        encoder._choose_sizes(config["rows"], config["widths"], config["sigma"])
        return encoder

    def check(self) -> None:
        """Raise an error for columns whose kind, scales and categories are inconsistent."""
        checks.positive_int(self.rows, "rows")
        for column in self.columns:
            for scale in column.scales:
                if scale is not None and not _is_scale(**asdict(scale)):
                    raise InputError(f"column {column.name!r} must have a scale of finite numbers; got {scale!r:.200}")
            if not _is_column(column):
                raise InputError(
                    f"column {column.name!r:.100} must have consistent kind, scales, categories; got {column!r:.300}"
                )

    def _require_fit(self) -> None:
        if not self.columns:
            raise DwacError("the encoder is not fitted; call fit first")


def _is_scale(form: str, values: list[Any], fill: Any) -> bool:
    if any(type(number) not in (int, float) or not abs(number) <= _LARGEST for number in [*values, fill]):
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
    if not isinstance(column.categories, list) or not {*map(type, column.categories)} <= {
        str,
        int,
        float,
        bool,
        NoneType,
    }:
        return False
    places = column.nameless
    if not isinstance(places, list) or not all(type(place) is int for place in places):
        return False
    inside = all(0 <= place < column.n_indices for place in places)
    return inside and all(len(set(each)) == len(each) for each in (column.categories, places))


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
    content = pd.api.types.infer_dtype(series, skipna=True)
    return {"boolean": "boolean"}.get(
        content, "numeric" if content in _NUMERIC else "datetime" if content in _DATES else "categorical"
    )


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
    return np.clip(x, -_LARGEST, _LARGEST)


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


class _Plan:
    """The plan that turns the parts of all columns into a tensor: which are scaled, and where each goes.

    `parts` of a column with scales are its number, or the time, month, weekday and hour of a date.
    """

    def __init__(self, columns: list[Column], *, beyond: bool) -> None:
        self.columns, self._beyond = columns, beyond
        self._plain_table = all(c.kind in ("numeric", "boolean", "empty") and not c.n_indices for c in columns)
        self._used = [place for place, c in enumerate(columns) if c.scales]
        self._booleans = [place for place, c in enumerate(c for c in columns if c.scales) if c.kind == "boolean"]
        scales: list[Scale] = []
        starts, self._scaled, self._limited = [0], list[int](), list[int]()
        for column in (c for c in columns if c.scales):
            for place, scale in enumerate(column.scales):
                if scale is not None:
                    if place == 0 and column.kind == "numeric":
                        self._limited.append(len(scales))
                    scales.append(scale)
                    self._scaled.append(starts[-1] + place)
            starts.append(starts[-1] + len(column.scales))
        self._firsts, self._scales = starts[:-1], Scales(scales)
        binary = [scale.form == "binary" for scale in scales]
        continuous = [place for place, is_binary in enumerate(binary) if not is_binary]
        plain, self._new, place = [], [], 0  # gaps come after all z
        for number, column in enumerate(c for c in columns if c.scales):
            n = sum(scale is not None for scale in column.scales)
            plain += [z for z in range(place, place + n) if binary[z]]
            place += n
            if column.gaps:
                plain.append(len(scales) + number)
            elif n:
                self._new.append(number)
        self._order = continuous + plain

    def read_array(self, X: Any) -> Floats | None:
        """The parts of an array of numbers, if all columns are plain numbers and every row can be read."""
        if not self._plain_table or not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "biuf":
            return None
        if X.shape[1] != len(self.columns) or not len(X):
            return None
        parts = np.asarray(X)[:, self._used].astype(np.float64)
        truth = parts[:, self._booleans]
        if np.isinf(parts).any() or not (np.isnan(truth) | (truth == 0) | (truth == 1)).all():
            return None
        return parts.clip(-_LARGEST, _LARGEST)

    def numeric(self, parts: Floats) -> NDArray[np.float32]:
        """(n, p): continuous numbers, then plain 0/1 numbers, then how far rows are outside the training data."""
        gaps = np.isnan(parts[:, self._firsts])
        scaled = parts[:, self._scaled]
        table = np.concatenate([self._scales.apply(scaled), gaps], axis=1)[:, self._order].astype(np.float32)
        if not self._order or not self._beyond:
            return table
        far = np.square(self._scales.beyond(scaled)[:, self._limited]).sum(axis=1)
        # Filling a gap with the median has a mean squared error of 1. So, squared, new gaps in all p columns count p,
        # and a gap in one of them counts 1 / p, because the other columns still identify the row.
        new = np.square(gaps[:, self._new].sum(axis=1)) / max(len(self._new), 1)
        return np.concatenate([table, np.sqrt(far + new)[:, None].astype(np.float32)], axis=1)


def _stack_columns(columns: Sequence[NDArray[np.int64]], n: int) -> Tensor:
    """(n, q) from q columns (n,)."""
    return torch.from_numpy(np.stack(columns, axis=1) if columns else np.empty((n, 0), dtype=np.int64))
