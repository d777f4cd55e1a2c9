"""Scales for numbers of a table: one column, or all at once.

>>> scale = Scale.fit(np.array([1.0, 2.0, 3.0, 4.0]), form="standard")
>>> scale.apply(np.array([2.5]))
array([0.])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Floats = NDArray[np.float64]

BINS = 16  # bins of one number; a multiple of 4, so that the quartiles are edges
_FARTHEST = 1e3  # scaled numbers are clipped to ± this: finite in float32, and still far from everything
_EDGE = 5.2  # the largest z = Φ⁻¹(rank)
_ROBUST, _QUARTERS = 3.0, 1.35  # the limit of robust z; the interquartile range of a normal distribution
_EDGE_OF_MOST = 1.645  # z of the quantile .95
_EDGE_OF_SIXTEENTH = 1.534  # z of the quantile 15/16
_STEP = 0.005  # between the z at which an exported model tabulates Φ


@dataclass(frozen=True)
class Scale:
    """The scale of one number, x → z; missing values are filled with the training median `fill`.

    "quantile": z = Φ⁻¹(rank of x among the training quantiles `values`); outside the training range it is ±5.2.
    "binary": z = (x - low) / (high - low). "standard": z = (x - mean) / deviation. "robust": z = r / √(1 + r²/9), where
    r = (x - median) / (interquartile range / 1.35): linear in the middle, never above 3, even for outliers;
    `values` are 17 quantiles, from the smallest to the largest.
    """

    form: str
    values: list[float]
    fill: float

    @classmethod
    def fit(cls, x: Floats, *, form: str) -> Scale | None:
        """The scale of x (n,), NaN where missing; None if x does not vary."""
        x = x[~np.isnan(x)]
        if len(x) == 0 or x.min() == x.max():
            return None
        low, high, fill = float(x.min()), float(x.max()), float(np.median(x))
        if ((x == low) | (x == high)).all():
            return cls("binary", [low, high], fill)
        if form == "standard":
            return cls("standard", [float(x.mean()), float(x.std())], fill)
        if form == "robust":
            return cls("robust", np.maximum.accumulate(np.quantile(x, np.linspace(0, 1, BINS + 1))).tolist(), fill)
        levels = np.linspace(0, 1, min(max(len(x) // 30, 10), 1000, len(x)))
        return cls("quantile", np.maximum.accumulate(np.quantile(x, levels)).tolist(), fill)

    def apply(self, x: Floats) -> Floats:
        """z of x, both (n,)."""
        scales = Scales([self])
        return scales.apply(scales.filled(x[:, None]))[:, 0]

    def beyond_others(self, x: Floats, groups: NDArray[np.int64]) -> Floats:
        """(n,): how far training values x are outside the range of other groups (n,), as in `Scales.beyond`."""
        if self.form not in ("quantile", "robust"):
            return np.zeros(len(x))
        known, lows = ~np.isnan(x), np.full(groups.max() + 1, np.inf)
        highs = -lows
        np.minimum.at(lows, groups[known], x[known])
        np.maximum.at(highs, groups[known], x[known])
        x, (lowest, next_low), (next_high, highest) = np.where(known, x, self.fill), _least(lows), -_least(-highs)[::-1]
        low = np.where(lows[groups] == lowest, next_low, lowest)
        high = np.where(highs[groups] == highest, next_high, highest)
        out, span = np.maximum(low - x, x - high), high - low
        with np.errstate(over="ignore"):
            far = 2 * _EDGE * out / np.where(span > 0, span, 1.0)
        return np.where(span > 0, np.clip(far, 0, _FARTHEST), 0.0)  # if the others do not vary, they have no range

    @property
    def span(self) -> float:
        """The range of most training values: between the quantiles .05 and .95, or of all if those are equal."""
        values = np.asarray(self.values)
        if self.form == "standard":
            return float(2 * _EDGE_OF_MOST * values[1])
        low, high = np.quantile(values, (0.05, 0.95)) if self.form in ("quantile", "robust") else values
        return float(high - low or values[-1] - values[0])

    @property
    def step(self) -> float:
        """The unit of a robust scale: the standard deviation of a normal distribution with these quartiles."""
        for inner, width in ((BINS // 4, _QUARTERS), (1, 2 * _EDGE_OF_SIXTEENTH), (0, 2 * _ROBUST)):
            step = (self.values[-1 - inner] - self.values[inner]) / width
            if step > 0:
                break
        return step

    def edges(self, most: int) -> list[float]:
        """z of at most `most` + 1 training quantiles of a robust scale, strictly ascending."""
        if most == 0:
            return []
        edges: list[float] = np.unique(self.apply(np.asarray(self.values[:: BINS // most])).astype(np.float32)).tolist()
        return edges


class Scales:
    """The scales of p numbers, as arrays: a hundred columns take as many operations per row as one."""

    def __init__(self, scales: Sequence[Scale]) -> None:
        self.fill = np.array([scale.fill for scale in scales])
        ranked, robust, linear_places = (
            [place for place, scale in enumerate(scales) if scale.form in forms]
            for forms in (("quantile",), ("robust",), ("binary", "standard"))
        )
        self._ranked, self._robust, self._linear = (
            select(places, len(scales)) if places else None for places in (ranked, robust, linear_places)
        )
        self._ranks = _Ranks([scales[i].values for i in ranked])
        self._steps, self._middles = np.array([scales[i].step for i in robust]), self.fill[robust]
        linear = [scales[i] for i in linear_places]
        self._starts = np.array([scale.values[0] for scale in linear])
        lengths = [scale.values[1] - scale.values[0] * (scale.form == "binary") for scale in linear]
        self._lengths = np.array([length or 1.0 for length in lengths])
        # On a linear scale z itself keeps growing: nothing is beyond an infinite range.
        ranges = [s.values if s.form in ("quantile", "robust") else [-np.inf, np.inf] for s in scales]
        self._low, self._high = (np.array([values[end] for values in ranges]) for end in (0, -1))
        self._span = np.array([values[-1] - values[0] if np.isfinite(values[-1]) else 1.0 for values in ranges])

    def filled(self, x: Floats) -> Floats:
        """x (n, p) with its gaps filled, as `apply` and `beyond` need it."""
        gaps = np.isnan(x)
        return np.where(gaps, self.fill, x) if gaps.any() else x

    def apply(self, x: Floats) -> Floats:
        """z of x, both (n, p)."""
        z = np.empty_like(x)
        with np.errstate(over="ignore"):
            if self._ranked is not None:
                rank = torch.from_numpy(self._ranks.of(x[:, self._ranked]))
                z[:, self._ranked] = torch.special.ndtri(rank.clamp_(1e-7, 1 - 1e-7)).numpy()
            if self._robust is not None:
                r = ((x[:, self._robust] - self._middles) / self._steps).clip(-_FARTHEST, _FARTHEST)
                z[:, self._robust] = r / np.sqrt(1 + np.square(r / _ROBUST))
            if self._linear is not None:
                far = (x[:, self._linear] - self._starts) / self._lengths
                z[:, self._linear] = far.clip(-_FARTHEST, _FARTHEST)
        return z

    def beyond(self, x: Floats) -> Floats:
        """(n, p): how far x is outside the training range, in units of z at its mean slope inside."""
        with np.errstate(over="ignore"):
            far: Floats = 2 * _EDGE * np.maximum(self._low - x, x - self._high) / self._span
        return np.clip(far, 0.0, _FARTHEST)


class _Ranks:
    """The rank of a number among the quantiles of its column, for q columns at once.

    As in scikit-learn: equal quantiles get the middle of the ranks they share; between quantiles, ranks are linear.
    """

    def __init__(self, quantiles: Sequence[Sequence[float]]) -> None:
        columns = [np.unique(values, return_index=True, return_counts=True) for values in quantiles]
        shape = len(columns), max((len(values) for values, _, _ in columns), default=0)
        self._values = np.full(shape, np.inf)  # distinct quantiles, and the levels of the first and last equal to each
        self._first, self._end = np.ones(shape), np.ones(shape)
        for row, ((values, places, counts), every) in enumerate(zip(columns, quantiles, strict=True)):
            self._values[row, : len(values)] = values
            self._first[row, : len(values)] = places / (len(every) - 1)
            self._end[row, : len(values)] = (places + counts - 1) / (len(every) - 1)
        self._grid = torch.from_numpy(self._values)
        self._most = np.array([len(values) - 1 for values, _, _ in columns], dtype=np.int64)[:, None]
        self._columns = np.arange(len(columns))[:, None]

    def of(self, x: Floats) -> Floats:
        """(n, q) in [0, 1], of x (n, q)."""
        points, columns = np.ascontiguousarray(x.T), self._columns
        below = torch.searchsorted(self._grid, torch.from_numpy(points), right=True).numpy() - 1
        place = np.maximum(below, 0)
        after = np.minimum(place + 1, self._most)
        low, start = self._values[columns, place], self._end[columns, place]
        length, rise = self._values[columns, after] - low, self._first[columns, after] - start
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = start + (points - low) / length * rise
        ties = (self._first[columns, place] + start) / 2
        return np.asarray(np.where(below < 0, 0.0, np.where(points == low, ties, np.where(length > 0, inside, 1.0))).T)


class ScalesGraph(nn.Module):
    """`Scales` as operations on tensors, for exported models."""

    fill: Tensor
    low: Tensor
    high: Tensor
    span: Tensor
    middles: Tensor
    steps: Tensor
    starts: Tensor
    lengths: Tensor
    values: Tensor
    first: Tensor
    end: Tensor
    most: Tensor
    grouped: Tensor
    back: Tensor
    grid: Tensor
    normal: Tensor
    density: Tensor
    extremes: Tensor

    def __init__(self, scales: Scales) -> None:
        super().__init__()
        groups = [places_of(part, len(scales.fill)) for part in (scales._ranked, scales._robust, scales._linear)]
        ranks, self._n = scales._ranks, [len(places) for places in groups]
        names = ("fill", "_low", "_high", "_span", "_middles", "_steps", "_starts", "_lengths")
        arrays = {name.removeprefix("_"): getattr(scales, name) for name in names}
        arrays |= {"values": ranks._values, "first": ranks._first, "end": ranks._end, "most": ranks._most[:, 0]}
        arrays["span"] = scales._span / (2 * _EDGE)
        arrays |= {"grouped": torch.cat(groups), "back": torch.cat(groups).argsort()}
        for name, values in arrays.items():
            self.register_buffer(name, torch.as_tensor(values), persistent=False)
        last = round((_EDGE + 0.1) / _STEP)
        self.register_buffer("grid", _STEP * torch.arange(-last, last + 1, dtype=torch.float64), persistent=False)
        self.register_buffer("normal", torch.special.ndtr(self.grid), persistent=False)
        density = (-self.grid.square() / 2).exp() / math.sqrt(2 * math.pi)
        self.register_buffer("density", density, persistent=False)
        # ONNX rounds plain numbers to float32, tensors not.
        self.register_buffer("extremes", torch.tensor([1e-7, 1 - 1e-7], dtype=torch.float64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """z of x, both (n, p); no value is missing."""
        ranked, robust, linear = x[:, self.grouped].split(self._n, dim=1)
        parts = []
        if self._n[0]:
            low, high = self.extremes
            parts.append(self._inverse_normal(torch.minimum(torch.maximum(self._ranks(ranked), low), high)))
        if self._n[1]:
            r = ((robust - self.middles) / self.steps).clamp(-_FARTHEST, _FARTHEST)
            parts.append(r / (1 + (r / _ROBUST).square()).sqrt())
        if self._n[2]:
            parts.append(((linear - self.starts) / self.lengths).clamp(-_FARTHEST, _FARTHEST))
        return torch.cat(parts, dim=1)[:, self.back]

    def beyond(self, x: Tensor) -> Tensor:
        """As `Scales.beyond`."""
        return (torch.maximum(self.low - x, x - self.high) / self.span).clamp(0, _FARTHEST)

    def _ranks(self, x: Tensor) -> Tensor:
        """The ranks of x (n, q) among the quantiles of their columns, in [0, 1]."""
        columns, width = self.values.shape
        own = width * torch.arange(columns)

        def take(table: Tensor, places: Tensor) -> Tensor:
            return table.flatten()[places + own]

        below = count_below(lambda places: take(self.values, places), width, x, or_equal=True) - 1
        place = below.clamp_min(0)
        after = torch.minimum(place + 1, self.most)
        low, start, first = (take(table, place) for table in (self.values, self.end, self.first))
        length, rise = take(self.values, after) - low, take(self.first, after) - start
        inside = torch.where(length > 0, start + (x - low) / torch.where(length > 0, length, 1.0) * rise, 1.0)
        return torch.where(below < 0, 0.0, torch.where(x == low, (first + start) / 2, inside))

    def _inverse_normal(self, p: Tensor) -> Tensor:
        """Φ⁻¹(p), by its series at a tabulated z: no runtime has the function."""
        place = count_below(lambda places: self.normal[places], len(self.normal), p, or_equal=True) - 1
        z = self.grid[place]
        t = (p - self.normal[place]) / self.density[place]
        series = 1 + t * (z / 2 + t * ((2 * z.square() + 1) / 6 + t * (6 * z**3 + 7 * z) / 24))
        return z + t * series


def count_below(take: Callable[[Tensor], Tensor], n: int, x: Tensor, *, or_equal: bool = False) -> Tensor:
    """How many of n ascending values, which `take` gives by their places, are below x, or equal to it: by bisection."""
    count, step = torch.zeros_like(x, dtype=torch.int64), 1 << max(n.bit_length() - 1, 0)
    while step and n:
        ahead = count + step
        value = take((ahead - 1).clamp_max(n - 1))
        reached = (value <= x) if or_equal else (value < x)
        count = torch.where((ahead <= n) & reached, ahead, count)
        step //= 2
    return count


def select(places: Sequence[int], n: int) -> slice | NDArray[np.intp]:
    """An index for some of n columns; for all of them one that copies nothing."""
    return slice(None) if list(places) == list(range(n)) else np.array(places, dtype=np.intp)


def places_of(part: slice | NDArray[np.intp] | None, n: int) -> Tensor:
    """The places of some of n columns, selected by `select`."""
    every = torch.arange(n)
    return every[:0] if part is None else every[part if isinstance(part, slice) else torch.as_tensor(part)]


def _least(x: Floats) -> Floats:
    """The two smallest values, in order."""
    return np.partition(x, 1)[:2]
