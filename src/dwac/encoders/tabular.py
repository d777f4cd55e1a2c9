"""Tables of numbers, categories, booleans and dates, with missing values, as tensors.

encoder = TabularEncoder().fit(X)
numeric, categorical = encoder.transform(X)              # float32 (n, p), int64 (n, q)
features = encoder.network()(numeric, categorical)       # (n, 512)
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import asdict
from itertools import chain
from types import NoneType
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from dwac import _checks as checks
from dwac.encoders.base import Encoder, Recipe, require_one
from dwac.encoders.columns import LARGEST, Column, Floats, Name, Value, frame_of, is_id, parts_of
from dwac.encoders.scales import BINS, Scale, Scales, select
from dwac.encoders.tabular_networks import UNKNOWN, TabularNetwork, WideEnsemble, WideNetwork
from dwac.errors import DwacError, InputError, KindError, ShapeError
from dwac.nn import Ensemble
from dwac.nn.batches import Inputs

Indices = NDArray[np.int64]

log = logging.getLogger(__name__)

_SMALL, _LARGE = 2_000, 100_000  # rows below which tables are small, and from which they are large
_WIDE, _WIDER, _MANY = 64, 128, 4_000  # the hidden layer of the wide network, and that from so many rows on
_FEW_NUMBERS = 30_000  # rows below which several networks for numbers are trained on a CPU, with fewer epochs
_MOST_BINS = 1024  # bins of all numbers together
_DEEPEST = 1000  # most layers
_AT_ONCE = 512  # rows of mixed types that are faster to read all at once than column by column
_NUMBERS = {int, float, bool, NoneType, np.int64, np.float64, np.bool_}  # the types of plain cells
_CATEGORIES = _NUMBERS | {str}


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
            and dropout 0.2; its shape is fixed. "wide": one hidden layer of 64 beside a linear path, or of 128
            from 4,000 rows on, for cross-fitting (`DWACClassifier(cross_fit=True)`); its shape is fixed.
        width: size of the hidden layers; by default 128 below 2,000 training rows, 512 from 100,000 rows, else 256; for
            "numbers" 512 from 2,000 rows.
        depth: number of hidden layers.
        dropout: dropout rate after each hidden layer; by default 0.05 where the default width is 256, else 0.2.
        frequencies: number of frequencies in the periodic embedding of each number.
        sigma: the initial standard deviation of these frequencies: a higher one resolves finer steps of x, but needs
            more rows; by default 0.1 below 2,000 rows, 0.5 from 100,000 rows, else 0.25; for "numbers" 0.25 below 2,000
            rows, else 1.
        ignored: columns that tables have and no network sees.
        waves: of "wide": a third of an ensemble sees so many random waves instead, for tables of many columns.

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
        dropout: float | None = None,
        frequencies: int = 48,
        sigma: float | None = None,
        ignored: Sequence[Name] = (),
        waves: int = 0,
    ) -> None:
        if network not in ("default", "numbers", "paper", "wide"):
            raise InputError(f"unknown network {network!r} for tables; choose 'default', 'numbers', 'paper' or 'wide'")
        if dropout is not None and not 0 <= dropout < 1:
            raise InputError(f"dropout must lie in [0, 1); got {dropout!r}")
        if sigma is not None and not 0 < sigma < math.inf:
            raise InputError(f"sigma must be a positive number; got {sigma!r}")
        if checks.positive_int(depth, "depth") > _DEEPEST:
            raise InputError(f"depth must be at most {_DEEPEST} layers; got {depth}")
        self.settings: dict[str, Any] = {
            "network": network,
            "width": None if width is None else checks.positive_int(width, "width"),
            "depth": int(depth),
            "dropout": None if dropout is None else float(dropout),
            "frequencies": checks.positive_int(frequencies, "frequencies"),
            "sigma": None if sigma is None else float(sigma),
            "ignored": list(ignored),
            "waves": int(waves),
        }
        self.columns: list[Column] = []
        self._cached_plan: _Plan | None = None
        self._choose_sizes(rows=0)

    def _choose_sizes(self, rows: int, widths: list[int] | None = None, sigma: float | None = None) -> None:
        """Choose the settings that depend on the number of training rows; a stored encoder keeps its choices."""
        self.rows, network = rows, self.settings["network"]
        self.recipe = _recipe_of(network, rows)
        small, large, numbers = rows < _SMALL, rows >= _LARGE, network == "numbers"
        middle = not (small or large or numbers)
        width, dropout = self.settings["width"] or (128 if small else 256 if middle else 512), self.settings["dropout"]
        self.widths = widths or [width] * self.settings["depth"]
        self.dropout: float = dropout if dropout is not None else 0.05 if middle else 0.2
        default = (0.25 if small else 1.0) if numbers else (0.1 if small else 0.5 if large else 0.25)
        self.sigma: float = sigma or self.settings["sigma"] or default
        if network == "paper":
            self.widths = [32, 8]
        elif network == "wide":
            self.widths = widths or [_WIDE if rows < _MANY else _WIDER]
            self.dropout = 0.3 if self.widths == [_WIDE] else 0.2

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
        columns = self._without_ignored(columns)
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

    def _without_ignored(self, columns: list[Column]) -> list[Column]:
        """The same columns; those to ignore have no features."""
        ignored, names = self.settings["ignored"], [column.name for column in columns]
        for name in ignored:
            if name not in names:
                raise InputError(f"ignored columns must be in X; it has no column {name!r}; {checks.listed(names)} are")
        if ignored and not any(column.used for column in columns if column.name not in ignored):
            raise InputError(f"a column to learn from is needed besides {checks.listed(ignored)}, which are ignored")
        return [Column(c.name, c.kind, [None] * len(c.scales)) if c.name in ignored else c for c in columns]

    def transform(self, X: Any) -> Inputs:
        """numeric (n, p) float32 and categorical (n, q) int64.

        numeric: continuous numbers, then plain 0/1 numbers. For the default network a last column measures how far the
        row is outside the training data: numbers out of range, or gaps where training had none. The network does not
        read that column, which is always 0 in training; it only helps to tell whether a row is like any other.
        """
        plan = self.plan
        parts, indices = plan.read(X) or self._read_columns(self.records(X))
        return torch.from_numpy(plan.numeric(parts)), torch.from_numpy(indices)

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
    def plan(self) -> _Plan:
        """The plan that turns columns into tensors; made once per set of columns."""
        self._require_fit()
        if self._cached_plan is None or self._cached_plan.columns is not self.columns:
            self._cached_plan = _Plan(self.columns, beyond=self.settings["network"] != "paper")
        return self._cached_plan

    def _read_columns(self, frame: pd.DataFrame) -> tuple[Floats, Indices]:
        """The parts (n, p) of all numbers and the indices (n, q) of categories, one column after the other.

        It reads every type that fit can read. An error carries all invalid rows, of any column.
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
        n = len(frame)
        return (
            np.stack(parts, axis=1) if parts else np.empty((n, 0)),
            np.stack(indices, axis=1) if indices else np.empty((n, 0), dtype=np.int64),
        )

    def records(self, X: Any) -> pd.DataFrame:
        """The rows of X with the columns and order of fit; an error names a missing or extra column."""
        if isinstance(X, pd.DataFrame) and X.columns.equals(self.plan.names):
            return X.reset_index(drop=True)
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
        return self.distances_to(X_many)(X_one)

    def distances_to(self, X_many: Any) -> Callable[[Any], Floats]:
        """The same as a function of the one row: the others are read once."""
        many = self.records(X_many)
        pairs = zip(self.columns, many.items(), strict=True)
        differences = {column.name: column.differences(values) for column, (_, values) in pairs if column.used}

        def measure(X_one: Any) -> Floats:
            one = self.records(X_one)
            require_one(len(one))
            apart = [each(one[name]) for name, each in differences.items()]
            return np.mean(apart, axis=0) if apart else np.zeros(len(many))

        return measure

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
            edges, hidden, waves = self._edges(), self.widths[0], self.settings["waves"]
            return WideNetwork(edges, n_plain, sizes, hidden, dropout=self.dropout, coordinates=places, n_waves=waves)
        return TabularNetwork(
            n_continuous,
            n_plain,
            sizes,
            self.widths,
            dropout=self.dropout,
            frequencies=self.settings["frequencies"],
            sigma=self.sigma,
            coordinates=places,
            compared=True,
            linear=self.settings["network"] == "numbers",
        )

    def _edges(self) -> list[list[float]]:
        """The edges of the bins of each continuous number: 16 bins, or fewer if there are many numbers."""
        scales = [scale for column in self.columns for scale in column.scales if scale is not None]
        scales = [scale for scale in scales if scale.form == "robust"]
        most = next(bins for bins in (BINS, 8, 4, 0) if bins * len(scales) <= _MOST_BINS)
        return [scale.edges(most) for scale in scales]

    def without_names(self, gone: Any, left: Any) -> Self:
        """The encoder without the names of categories that only rows of `gone` have, not those of `left`.

        Itself if there are none. Networks and the tensors of all remaining rows do not change; a value with such a name
        counts as unknown.
        """
        frames = [self.records(rows) for rows in (gone, left)]
        columns = [
            column.without_names(*(frame.iloc[:, place] for frame in frames))
            for place, column in enumerate(self.columns)
        ]
        if all(new is column for new, column in zip(columns, self.columns, strict=True)):
            return self
        other = copy(self)
        other.columns = columns
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
            column.check()

    def _require_fit(self) -> None:
        if not self.columns:
            raise DwacError("the encoder is not fitted; call fit first")


def _recipe_of(network: str, rows: int) -> Recipe:
    small, large = rows < _SMALL, rows >= _LARGE
    if network == "paper":
        return Recipe(10, batch_size=256, learning_rate=1e-3, weight_decay=0.0, patience=2, compiled=True)
    if network == "wide":
        # What counts is the number of steps, which cross-fitting knows; these are for a single split.
        size = 8 if small else 16
        return Recipe(40, batch_size=128, learning_rate=5e-3, weight_decay=1e-2, embedding_size=size, threads=2)
    shared: dict[str, Any] = {
        "weight_decay": 1e-2,
        "embedding_size": 32 if large else 16,
        "compiled": True,
        "threads": None if large else 2,
    }
    if network == "numbers":
        several = not small and rows < _FEW_NUMBERS
        return Recipe(
            epochs=80 if small else 20 if several else 40,
            batch_size=64 if small else 256 if several else 1024 if large else 512,
            learning_rate=1e-3 if small else 2e-3,
            patience=40,
            ensemble_size=4,
            on_cpu=3 if several else 1,
            **shared,
        )
    return Recipe(
        epochs=60 if small else 40 if large else 14,
        batch_size=64 if small else 1024 if large else 512,
        learning_rate=1e-3 if small else 2e-3 if large else 3e-3,
        beta2=0.999 if small or large else 0.99,
        patience=15 if small else 8 if large else 6,
        auxiliary_weight=1.0 if large else 0.0,
        ensemble_size=3 if large else 4,
        **shared,
    )


class _Plan:
    """The plan that turns the parts of all columns into a tensor: which are scaled, and where each goes.

    `parts` of a column with scales are its number, or the time, month, weekday and hour of a date.
    """

    def __init__(self, columns: list[Column], *, beyond: bool) -> None:
        self.columns, self.beyond = columns, beyond
        self.names = pd.Index([c.name for c in columns], tupleize_cols=False)
        self._plain_table = all(c.kind != "datetime" for c in columns)
        used = [place for place, c in enumerate(columns) if c.scales]
        self._named = [place for place, c in enumerate(columns) if c.n_indices and not c.scales]
        # The index of each value of a category, and where it is read: a column of cells, or of numbers.
        self._codes = [
            (_as_read(c.indices()), not c.scales, place if not c.scales else used.index(place))
            for place, c in enumerate(columns)
            if c.n_indices
        ]
        numbers = [columns[place] for place in used]
        self._booleans = [n for n, c in enumerate(numbers) if c.kind == "boolean"]
        # Of every part: the number of its column, its place in the column, and its scale.
        parts = [(n, place, scale) for n, c in enumerate(numbers) for place, scale in enumerate(c.scales)]
        firsts = [i for i, (_, place, _) in enumerate(parts) if place == 0]
        scaled = [i for i, (*_, scale) in enumerate(parts) if scale is not None]
        varied = [(n, place, scale) for n, place, scale in parts if scale is not None]  # z, and its gaps after all z
        limited = [z for z, (n, place, _) in enumerate(varied) if place == 0 and numbers[n].kind == "numeric"]
        continuous = [z for z, (*_, scale) in enumerate(varied) if scale.form != "binary"]
        binary = [(n, z) for z, (n, _, scale) in enumerate(varied) if scale.form == "binary"]
        gaps = [(n, len(varied) + n) for n, c in enumerate(numbers) if c.gaps]
        order = continuous + [z for _, z in sorted(binary + gaps)]
        new = [n for n, c in enumerate(numbers) if not c.gaps and any(scale is not None for scale in c.scales)]
        self.scales, self.flags_gaps = Scales([scale for *_, scale in varied]), bool(gaps)
        self._used, self.scaled = select(used, len(columns)), select(scaled, len(parts))
        self.firsts, self.new = select(firsts, len(parts)), select(new, len(numbers))
        self.limited, self._width, self.n_new = select(limited, len(varied)), len(order), max(len(new), 1)
        self.order = select(order, len(varied) + len(numbers) * self.flags_gaps)

    def read(self, X: Any) -> tuple[Floats, Indices] | None:
        """The parts (n, p) of all numbers and the indices (n, q) of categories, from all columns at once.

        None if a column or cell is not plain: dates, unusual types, values that do not fit. These are read column by
        column (`TabularEncoder._read_columns`), with the same result or an error that names them.
        """
        cells = self._cells(X)
        if cells is None or not len(cells):
            return None
        numbers = cells[:, self._used]
        if cells.dtype == object:
            named = cells[:, self._named]
            if not _types_of(numbers) <= _NUMBERS or not _types_of(named) <= _CATEGORIES:
                return None
        try:
            parts = numbers.astype(np.float64, copy=False)
        except OverflowError:
            return None
        truth = parts[:, self._booleans]
        if np.isinf(parts).any() or not (np.isnan(truth) | (truth == 0) | (truth == 1)).all():
            return None
        parts = np.clip(parts, -LARGEST, LARGEST)
        indices = np.empty((len(parts), len(self._codes)), dtype=np.int64)
        for place, (known, in_cells, column) in enumerate(self._codes):
            values, missing = (cells if in_cells else parts)[:, column].tolist(), known.get(None, UNKNOWN)
            indices[:, place] = [known.get(value, UNKNOWN) if value == value else missing for value in values]
        return parts, indices

    def _cells(self, X: Any) -> NDArray[Any] | None:
        """(n, columns), numbers or objects, in the order of fit; None if X needs a closer look."""
        if not self._plain_table:
            return None
        width = len(self.names)
        if isinstance(X, pd.DataFrame):
            names = X.columns
            if len(names) != width or names.dtype.kind not in "iuO" or not _is_uniform(X):
                return None
            order = None if names.equals(self.names) else names.get_indexer(self.names) if names.is_unique else [-1]
            cells = X.to_numpy()
            if order is not None:
                if min(order) < 0:
                    return None
                cells = cells[:, order]
        elif isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == width:
            cells = np.asarray(X)
        elif isinstance(X, list) and all(type(row) in (list, tuple) and len(row) == width for row in X):
            cells = np.fromiter(chain.from_iterable(X), dtype=object, count=len(X) * width).reshape(len(X), width)
        else:
            return None
        return cells if cells.dtype.kind in "biufO" else None

    def numeric(self, parts: Floats) -> NDArray[np.float32]:
        """(n, p): continuous numbers, then plain 0/1 numbers, then how far rows are outside the training data."""
        gaps = np.isnan(parts[:, self.firsts])
        filled = self.scales.filled(parts[:, self.scaled])
        z = self.scales.apply(filled)
        table = np.empty((len(parts), self._width + (self.beyond and self._width > 0)), dtype=np.float32)
        table[:, : self._width] = (np.concatenate([z, gaps], axis=1) if self.flags_gaps else z)[:, self.order]
        if table.shape[1] == self._width:
            return table
        far = np.square(self.scales.beyond(filled)[:, self.limited]).sum(axis=1)
        # Filling a gap with the median has a mean squared error of 1. So, squared, new gaps in all p columns count p,
        # and a gap in one of them counts 1 / p, because the other columns still identify the row.
        new = np.square(gaps[:, self.new].sum(axis=1)) / self.n_new
        table[:, -1] = np.sqrt(far + new)
        return table


def _as_read(indices: dict[Value, int]) -> dict[Value, int]:
    """The index of each category, by its value as it is read: infinite numbers are stored as text."""
    return indices | {float(name): indices[name] for name in ("inf", "-inf") if name in indices}


def _is_uniform(frame: pd.DataFrame) -> bool:
    """Whether the columns become one array fast: there are few rows, or all are of one kind."""
    if len(frame) <= _AT_ONCE:
        return True
    kinds = {dtype.kind if isinstance(dtype, np.dtype) else "" for dtype in frame.dtypes}
    return kinds <= {*"iuf"} or kinds == {"O"}


def _types_of(cells: NDArray[Any]) -> set[type]:
    return {*map(type, cells.ravel().tolist())}
