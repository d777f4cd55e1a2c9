"""`TabularEncoder.transform` as operations on tensors, for exported models; texts of categories come as indices.

    table = TableGraph(encoder, categories)
    numeric, categorical, readable = table(numbers, codes)

numbers (n, p) float64 has a column for each of `table.numbers`: a date is its seconds since 1970 in UTC, and NaN is
missing. codes (n, q) int64 has a column for each of `table.texts`, by its dictionary of indices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dwac.encoders.columns import Column, Name, Value
from dwac.encoders.scales import ScalesGraph, places_of
from dwac.encoders.tabular import TabularEncoder
from dwac.errors import InputError

_DAY, _HOUR = 86_400, 3_600


class Categories(NamedTuple):
    """The index of each value of a column, of all other values, and of missing ones."""

    indices: dict[Value, int]
    other: int
    missing: int


class TableGraph(nn.Module):
    """numbers (n, p), codes (n, q) → numeric and categorical as `transform` gives them, and which rows can be read.

    categories: how the values of each column with indices are read, by name.
    """

    scaled: Tensor
    firsts: Tensor
    limited: Tensor
    new: Tensor
    order: Tensor

    def __init__(self, encoder: TabularEncoder, categories: Mapping[Name, Categories]) -> None:
        super().__init__()
        plan, used = encoder.plan, [column for column in encoder.columns if column.used]
        by_number = [column for column in used if column.scales or not _holds_texts(column)]
        self.texts = {column.name: categories[column.name] for column in used if column not in by_number}
        named = any(isinstance(column.name, str) for column in encoder.columns)
        rows = by_number if named or self.texts else encoder.columns  # an array has all its columns
        self.numbers = [column.name for column in rows]
        self.dates = [column.name for column in used if column.kind == "datetime"]
        self._plan, self._scales = plan, ScalesGraph(plan.scales)
        places = {name: place for place, name in enumerate(self.numbers)}  # columns that do not vary are not read
        self._parts = [(places.get(c.name), c.kind == "datetime") for c in encoder.columns if c.scales]
        self._lookups, texts = nn.ModuleList(), list(self.texts)
        self._codes: list[tuple[int, int]] = []  # a column of texts, or of numbers with its table; -1 for neither
        for column in (column for column in encoder.columns if column.n_indices):
            if column.name in self.texts:
                self._codes.append((texts.index(column.name), -1))
            else:
                self._codes.append((places[column.name], len(self._lookups)))
                self._lookups.append(_Lookup(categories[column.name]))
        self._booleans = [places[column.name] for column in used if column.kind == "boolean"]
        self._finite = [places[column.name] for column in used if column.scales]
        n_scales, n_columns = len(plan.scales.fill), len(self._parts)
        n_parts = sum(4 if dated else 1 for _, dated in self._parts)
        sizes = {"scaled": n_parts, "firsts": n_parts, "limited": n_scales, "new": n_columns}
        for name, n in {**sizes, "order": n_scales + n_columns * plan.flags_gaps}.items():
            self.register_buffer(name, places_of(getattr(plan, name), n), persistent=False)

    def forward(self, numbers: Tensor, codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(n, p) float32, (n, q) int64, (n,)."""
        plan = self._plan
        readable = ~numbers[:, self._finite].isinf().any(dim=1)
        if self._booleans:
            truth = numbers[:, self._booleans]
            readable = readable & (truth.isnan() | (truth == 0) | (truth == 1)).all(dim=1)
        indices = [
            codes[:, place] if table < 0 else self._lookups[table](numbers[:, place]) for place, table in self._codes
        ]
        categorical = torch.stack(indices, dim=1) if indices else numbers[:, :0].long()
        zero = numbers.new_zeros(numbers.shape[0])
        columns: list[Tensor] = []
        for place, dated in self._parts:
            x = zero if place is None else numbers[:, place]
            columns += _parts_of_date(x) if dated else [x]
        if not columns:
            return numbers[:, :0].float(), categorical, readable
        parts = torch.stack(columns, dim=1)
        gaps, x = parts[:, self.firsts].isnan(), parts[:, self.scaled]
        x = torch.where(x.isnan(), self._scales.fill, x)
        z = torch.cat([self._scales(x), gaps.double()], dim=1)[:, self.order]
        if not plan.beyond or z.shape[1] == 0:
            return z.float(), categorical, readable
        far = self._scales.beyond(x)[:, self.limited].square().sum(dim=1)
        new = gaps[:, self.new].double().sum(dim=1).square() / plan.n_new
        return torch.cat([z, (far + new).sqrt()[:, None]], dim=1).float(), categorical, readable


class _Lookup(nn.Module):
    """The indices of numbers (n,) that are categories."""

    values: Tensor
    indices: Tensor

    def __init__(self, categories: Categories) -> None:
        super().__init__()
        self.other, self.missing = categories.other, categories.missing
        values = torch.tensor([float(value) for value in categories.indices if value is not None], dtype=torch.float64)
        self.register_buffer("values", values, persistent=False)
        self.register_buffer("indices", torch.tensor([*categories.indices.values()]), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n,) int64."""
        same = x[:, None] == self.values
        index = torch.where(same.any(dim=1), (same * self.indices).sum(dim=1), self.other)
        return torch.where(x.isnan(), self.missing, index)


def _holds_texts(column: Column) -> bool:
    """Whether the categories of a column are texts; an error for a mixture, which no single input could hold."""
    kinds = {isinstance(value, str) for value in column.categories if value is not None}
    if len(kinds) > 1:
        raise InputError(
            f"column {column.name!r} cannot be exported: its categories are texts and numbers; make them all texts, "
            "and fit again"
        )
    return True in kinds or not kinds


def _parts_of_date(seconds: Tensor) -> list[Tensor]:
    """Time, month, weekday and hour of seconds since 1970 in UTC."""
    days = (seconds / _DAY).floor()
    # Years begin in March here, so that a leap day is the last day of its year; eras are 400 years.
    shifted = days + 719_468
    era_day = shifted - (shifted / 146_097).floor() * 146_097
    leap = (era_day / 1_460).floor() - (era_day / 36_524).floor() + (era_day / 146_096).floor()
    year = ((era_day - leap) / 365).floor()
    day = era_day - (365 * year + (year / 4).floor() - (year / 100).floor())
    month = ((5 * day + 2) / 153).floor()
    weekday = days + 3 - 7 * ((days + 3) / 7).floor()
    hours = (seconds / _HOUR).floor()
    return [seconds, torch.where(month < 10, month + 3, month - 9), weekday, hours - 24 * days]
