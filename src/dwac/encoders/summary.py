"""Fit a table encoder on more rows than fit in memory: one pass over batches, and a sample of rows.

summary = TableSummary()
for frame in batches:
    summary.update(frame)
encoder = summary.fit(TabularEncoder(), sample)      # sample: a frame of rows drawn at random

Exact: numbers of rows and gaps, smallest and largest values, means, recurring values and their counts. From the
sample: medians and quantiles. Values of a column with more than 131,072 distinct ones are counted by a sketch (Misra
and Gries), and at most the 32,768 most frequent become categories. If the sample holds every row, the encoder is the
same as from `TabularEncoder.fit`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dwac import _checks as checks
from dwac.encoders.columns import (
    FEW,
    FORMS,
    Column,
    Floats,
    Name,
    Value,
    count_values,
    frequent_values,
    is_scattered,
    kind_of,
    parts_of,
)
from dwac.encoders.scales import Scale
from dwac.encoders.tabular import TabularEncoder
from dwac.errors import InputError, KindError, ShapeError

COUNTED = 2**17  # distinct values of a column that are counted exactly
CATEGORIES = 2**15  # the most categories of one column with an index of their own


class Counts:
    """Counts of values: exact up to `most` distinct ones, beyond that by the sketch of Misra and Gries.

    The sketch never overcounts, and undercounts by at most `short`: a value that occurs more often is always present.

    >>> counts = Counts(most=2)
    >>> counts.add({"a": 5, "b": 2, "c": 1})
    >>> counts.by_value, counts.short
    ({'a': 4, 'b': 1}, 1)
    """

    def __init__(self, most: int = COUNTED) -> None:
        self.most, self.short = most, 0
        self.by_value: dict[Value, int] = {}

    def add(self, counts: dict[Value, int]) -> None:
        """Count more values."""
        for value, count in counts.items():
            if count:
                self.by_value[value] = self.by_value.get(value, 0) + count
        if len(self.by_value) > self.most:
            less = sorted(self.by_value.values(), reverse=True)[self.most]
            self.short += less
            self.by_value = {value: count - less for value, count in self.by_value.items() if count > less}

    def most_frequent(self, most: int) -> dict[Value, int]:
        """The most frequent values, at most `most`."""
        if len(self.by_value) <= most:
            return dict(self.by_value)
        ordered = sorted(self.by_value.items(), key=lambda item: (-item[1], type(item[0]).__name__, str(item[0])))
        return dict(ordered[:most])


class NumberSummary:
    """A summary of numbers that arrive in parts: count, range, mean and deviation; their values while these are few."""

    def __init__(self) -> None:
        self.n, self.low, self.high = 0, math.inf, -math.inf
        self.mean, self.squares = 0.0, 0.0
        self.recurring: dict[Value, int] | None = {}  # None: more than 256 distinct values

    def update(self, x: Floats) -> None:
        """Add numbers (n,), NaN where missing."""
        x = x[~np.isnan(x)]
        if len(x) == 0:
            return
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
        # Chan's update of a mean and a sum of squares with those of another part.
        n, mean = self.n + len(x), float(x.mean())
        gap = mean - self.mean
        self.squares += float(np.square(x - mean).sum()) + gap * gap * self.n * len(x) / n
        self.mean, self.n = self.mean + gap * len(x) / n, n
        if self.recurring is not None:
            for value, count in zip(*np.unique(x, return_counts=True), strict=True):
                self.recurring[float(value)] = self.recurring.get(float(value), 0) + int(count)
                if len(self.recurring) > FEW:
                    self.recurring = None
                    break

    def scale(self, sample: Floats, form: str) -> Scale | None:
        """The scale of these numbers; sample: some of them (m,), for quantiles."""
        if self.n == 0 or self.low == self.high:
            return None
        scale = Scale.fit(np.concatenate([sample, [self.low, self.high]]), form=form)
        assert scale is not None
        if scale.form == "standard":
            return replace(scale, values=[self.mean, math.sqrt(self.squares / self.n)])
        return scale


class ColumnSummary:
    """A summary of a column that arrives in parts: its kind, its gaps, and its numbers or categories."""

    def __init__(self, name: Name) -> None:
        self.name, self.kind = name, "empty"
        self.rows, self.missing = 0, 0
        self.numbers: list[NumberSummary] = []
        self.categories = Counts()

    def update(self, series: pd.Series[Any]) -> None:
        """Add values."""
        kind = kind_of(series)
        self.rows += len(series)
        if kind == "empty":
            self.missing += len(series)
            return
        if self.kind not in ("empty", kind):
            raise KindError(
                f"column {self.name!r} must hold values of one kind; it is {self.kind} in some batches and {kind} in "
                "others; convert it to one type"
            )
        self.kind = kind
        if kind == "categorical":
            counts = count_values(series, self.name)
            self.missing += counts.pop(None, 0)
            self.categories.add(counts)
            return
        parts = parts_of(series, self.name, kind)
        self.numbers = self.numbers or [NumberSummary() for _ in parts]
        for summary, part in zip(self.numbers, parts, strict=True):
            summary.update(part)
        self.missing += int(np.isnan(parts[0]).sum())

    def column(self, sample: pd.Series[Any], network: str) -> Column:
        """The column that `Column.fit` would learn from all rows, with quantiles from a sample of them."""
        if self.kind == "empty":
            return Column(self.name, self.kind)
        gaps: dict[Value, int] = {None: self.missing} if self.missing else {}
        if self.kind == "categorical":
            counts = {**self.categories.most_frequent(CATEGORIES), **gaps}
            least = 1 if network == "paper" or self.sketched else 2
            return Column(self.name, self.kind, categories=frequent_values(counts, least))
        sample = sample.dropna()
        parts = parts_of(sample, self.name, self.kind) if len(sample) else [np.zeros(0)] * len(self.numbers)
        form = FORMS.get(network, "quantile")
        scales = [summary.scale(part, form) for summary, part in zip(self.numbers, parts, strict=True)]
        values = self.numbers[0].recurring or {}
        amounts = self.kind == "numeric" and network == "default" and is_scattered(np.sort([*values]), self.rows)
        codes = frequent_values({**values, **gaps}, 2) if amounts else []
        return Column(self.name, self.kind, scales, bool(self.missing), codes)

    @property
    def sketched(self) -> bool:
        """Whether there were too many categories to count exactly."""
        return self.categories.short > 0


class TableSummary:
    """A summary of a table that arrives in parts, all with the same columns."""

    def __init__(self) -> None:
        self.columns: list[ColumnSummary] = []
        self.rows = 0

    def update(self, frame: pd.DataFrame) -> None:
        """Add rows."""
        names = list(frame.columns)
        self.columns = self.columns or [ColumnSummary(name) for name in names]
        known = [column.name for column in self.columns]
        if names != known:
            raise InputError(f"all batches must have the columns {checks.listed(known)}; got {checks.listed(names)}")
        for place, column in enumerate(self.columns):
            column.update(frame.iloc[:, place])
        self.rows += len(frame)

    def fit(self, encoder: TabularEncoder, sample: pd.DataFrame) -> TabularEncoder:
        """The encoder, fitted as if on all rows as far as possible; sample: rows drawn at random."""
        if self.rows == 0 or not self.columns:
            raise ShapeError(f"0 sample(s) (shape={(self.rows, len(self.columns))}) while a minimum of 1 is required.")
        if len(sample) == self.rows:
            return encoder.fit(sample)
        network = encoder.settings["network"]
        columns = [column.column(sample.iloc[:, place], network) for place, column in enumerate(self.columns)]
        unique = [c.name for c in self.columns if c.kind == "categorical" and len(c.categories.by_value) > 1]
        return encoder.adopt(columns, self.rows, unique, sample)

    def notes(self, sampled: int) -> list[str]:
        """Sentences on what is exact and what is not; sampled: the number of rows in the sample."""
        if sampled == self.rows:
            return [f"all statistics are of all {self.rows:,} training rows"]
        notes = [
            f"counts, ranges, means and categories are of all {self.rows:,} training rows; medians and quantiles are "
            f"of {sampled:,} of them, drawn at random"
        ]
        return notes + [line for column in self.columns if (line := _note_on(column)) is not None]


def _note_on(column: ColumnSummary) -> str | None:
    """A sentence on a column with very many categories; None for other columns."""
    n = len(column.categories.by_value)
    if not column.sketched and n <= CATEGORIES:
        return None
    many = f"more than {COUNTED:,}" if column.sketched else f"{n:,}"
    precision = f"each counted to within {column.categories.short:,}" if column.sketched else "counted exactly"
    frequent = f"the {min(n, CATEGORIES):,} most frequent, {precision}, become categories"
    return f"column {column.name!r} has {many} different values; {frequent}"
