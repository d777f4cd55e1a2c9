"""Predictions of numbers, their intervals and quantiles, and how they compare with the truth."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac import metrics
from dwac._checks import percent
from dwac.errors import EPSILON, ShapeError
from dwac.explain import privacy
from dwac.explain.rendering import Numerals
from dwac.reference import ReferenceSet
from dwac.tasks.base import Floats, Reasons
from dwac.tasks.by_group import GroupComparison, typicality_measures
from dwac.tasks.costs import CostEvaluation
from dwac.tasks.group_statistics import GroupMeasure, Measure
from dwac.tasks.numbers import Numbers
from dwac.tasks.predictions import LEVEL, TYPICALITY, Evaluated, Fact, Predictions, amount, by_chance, share


class PredictedDistribution:
    """The weighted distribution of the voters' numbers, for each of n rows; exact, and computed on request.

    Everything is (n,), or (n, T) where several numbers are predicted. No matrix of rows and voters is kept. A row that
    could not be read has NaN.

    references: the voters. h: (r, d) embeddings of the readable rows; `readable` (n,) says which these are.
    single: whether a single number is predicted, without an axis T.
    """

    def __init__(self, references: ReferenceSet, h: Tensor, readable: NDArray[np.bool_], *, single: bool) -> None:
        self._votes = references.distribution(h)
        self._readable, self._single = readable, single

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._readable)

    def __repr__(self) -> str:
        """The available methods, in one line."""
        return f"<PredictedDistribution of {len(self):,} rows: mean, median, std, quantiles, cdf, crps, histogram>"

    def _of_rows(self, answers: Any) -> Floats:
        """(n, …): what the votes answer for the readable rows (r, T, …); NaN for the others."""
        values = as_numpy(answers)
        if not self._readable.all():
            full = np.full((len(self), *values.shape[1:]), np.nan)
            full[self._readable] = values
            values = full
        return values[:, 0] if self._single else values

    @property
    def mean(self) -> Floats:
        """Σ_i w_i y_i / Σ_i w_i."""
        return self._of_rows(self._votes.mean)

    @property
    def median(self) -> Floats:
        """The smallest number with half of the votes at or below it."""
        return self._of_rows(self._votes.median)

    @property
    def std(self) -> Floats:
        """The standard deviation of the votes."""
        return np.asarray(np.sqrt(self._of_rows(self._votes.variance)))

    def quantiles(self, levels: ArrayLike) -> Floats:
        """(n, Q), or (n, T, Q): the smallest numbers with at least these shares of the votes at or below them."""
        return self._of_rows(self._votes.quantiles(levels))

    def cdf(self, y: ArrayLike) -> Floats:
        """The share of votes at or below y: one number, or one per row."""
        return self._of_rows(self._votes.cdf(self._readable_numbers(y)))

    def crps(self, y: ArrayLike) -> Floats:
        """The continuous ranked probability score of each row's true number: ∫ (F(t) - 1{y ≤ t})² dt."""
        return self._of_rows(self._votes.crps(self._readable_numbers(y)))

    def histogram(self, edges: ArrayLike) -> Floats:
        """(n, B), or (n, T, B): the shares of the votes in bins between B + 1 edges; the last holds its upper edge."""
        return self._of_rows(self._votes.histogram(edges))

    def _readable_numbers(self, y: ArrayLike) -> Floats:
        """y for the readable rows, (r, T); a single number counts for all."""
        numbers, width = checks.scores(y, "y"), self._votes.n_targets
        if numbers.ndim == 0:
            return numbers
        wide = numbers[:, None] if numbers.ndim == 1 and width == 1 else numbers
        if wide.shape != (len(self), width):
            raise ShapeError(f"y must have one number per row, and {width} per row if several; got {numbers.shape}")
        return wide[self._readable]


def as_numpy(answer: Any) -> Floats:
    """An answer about tensors as an array."""
    return np.asarray(answer.cpu().numpy() if isinstance(answer, Tensor) else answer)


@dataclass(frozen=True, eq=False)
class NumberPredictions(Predictions):
    """One pass over n examples: their embeddings, from which the votes give intervals at any ε and everything else."""

    sets: Any  # the `Intervals` of the model
    h: torch.Tensor  # (r, d), of the rows that can be read
    values: Floats  # (n, T): the predictions; NaN where a row could not be read
    novel: Floats | None  # (n,): typicality
    reasons: Reasons | None = None
    private: bool = False
    unknown: Reasons | None = None  # (n,): the values of a row that were not in training, if it has any
    within: NDArray[Any] | None = None  # (n,): the groups of the rows, for a guarantee within each
    local: bool = False  # whether intervals have a local guarantee
    _by_row = ("values", "novel", "reasons", "unknown", "within")

    def __len__(self) -> int:
        return len(self.values)

    @property
    def typicality(self) -> Floats | None:
        """(n,): near 0, unlike anything known; None if it was not measured."""
        return self.novel

    @cached_property
    def target(self) -> Numbers:
        """What is predicted."""
        target: Numbers = self.sets.fitted.target
        return target

    @property
    def names(self) -> list[Any]:
        """(T,): the names of the numbers; a single number may have the name None."""
        return list(self.target.names)

    @property
    def n_calibration(self) -> int:
        """How many rows calibrate intervals; 0 if there are none."""
        return len(self.sets.fitted.calibration.y)

    @property
    def distribution(self) -> PredictedDistribution:
        """The votes on each row."""
        return PredictedDistribution(copy(self.sets.fitted.references), self.h, self.readable, single=False)

    def quantiles(self, levels: Sequence[float]) -> Floats:
        """(n, T, Q): quantiles of the votes."""
        return self._round(self.distribution.quantiles(levels))

    def intervals(self, epsilon: float) -> Floats | None:
        """(n, T, 2): intervals at ε, NaN for rows that could not be read; None without calibration."""
        if self.n_calibration == 0:
            return None
        ends = np.full((len(self), self.values.shape[1], 2), np.nan)
        within = None if self.within is None else self.within[self.readable]
        ends[self.readable] = self.sets.ends(self.h, epsilon, within=within, local=self.local)
        if not self.private:
            return ends
        columns = [privacy.interval(ends[:, t], step) for t, step in enumerate(self._steps)]
        return np.stack(columns, axis=1)

    @property
    def _steps(self) -> list[float]:
        """(T,): the steps to which private numbers are rounded."""
        targets = self.sets.fitted.references.targets
        assert targets is not None
        return [Numerals(column).step for column in targets.cpu().numpy().T]

    @property
    def shown(self) -> Floats:
        """(n, T): the predictions, rounded if private."""
        return self._round(self.values)

    def _round(self, values: Floats) -> Floats:
        """(n, T, …): numbers, rounded to whole steps if private."""
        if not self.private:
            return values
        return np.stack([privacy.numbers(values[:, t], step) for t, step in enumerate(self._steps)], axis=1)

    def crps(self, y: Floats) -> Floats:
        """(n, T): the continuous ranked probability score."""
        return self.distribution.crps(y)

    def answer(self, epsilon: float = EPSILON, quantiles: Sequence[float] = ()) -> dict[str, Any]:
        """The values of the columns, rounded if private."""
        levels = np.empty((*self.values.shape, 0)) if len(quantiles) == 0 else self.quantiles(quantiles)
        values = {"prediction": self.shown, "interval": self.intervals(epsilon), "quantiles": levels}
        if self.target.single:
            values = {name: None if array is None else array[:, 0] for name, array in values.items()}
        return {**values, "typicality": self.typicality}

    def _compare(self, truth: Floats, epsilon: float, *, unreadable: int) -> NumberEvaluation:
        ends, typicality, single = self.intervals(epsilon), self.typicality, self.target.single
        by_number = _by_number(self, truth, ends)
        first: dict[Any, Any] = by_number.iloc[0].to_dict() if single else {}
        chance = None
        if single and self.within is None and ends is not None:
            chance = metrics.coverage_interval(epsilon, self.n_calibration, len(truth), LEVEL)
        return NumberEvaluation(
            n=len(truth),
            **{name: first.get(name) for name in ("rmse", "mae", "crps", "mean_width", "median_width")},
            r2=float(by_number["r2"].mean()),
            epsilon=epsilon,
            coverage=None if ends is None else metrics.interval_coverage(truth, ends),
            coverage_range=chance,
            infinite=None if ends is None else metrics.interval_widths(ends).infinite,
            typicality=None if typicality is None else float(typicality.mean()),
            unreadable=unreadable,
            by_number=by_number,
        )

    def measures(self, truth: Floats, epsilon: float) -> list[Measure]:
        """Error, bias, coverage and width of each number, and typicality."""
        ends, measures = self.intervals(epsilon), list[Measure]()
        for t, name in enumerate(self.names):
            of, wrong = "" if self.target.single else f" of {name}", self.shown[:, t] - truth[:, t]
            measures += [
                GroupMeasure(f"absolute error{of}", np.abs(wrong), is_rate=False, bounds=(0.0, np.inf)),
                GroupMeasure(f"bias{of}", wrong, is_rate=False, bounds=(-np.inf, np.inf)),
            ]
            if ends is not None:
                low, high = ends[:, t].T
                finite = np.isfinite(high - low)
                measures += [
                    GroupMeasure(f"coverage{of}", (low <= truth[:, t]) & (truth[:, t] <= high)),
                    GroupMeasure(
                        f"width{of}", np.where(finite, high - low, 0.0), finite, is_rate=False, bounds=(0.0, np.inf)
                    ),
                ]
        return measures + typicality_measures(self.typicality)


@dataclass(frozen=True, repr=False)
class NumberEvaluation(Evaluated):
    """How predicted numbers compare with the truth; values that need calibration are None if the model has none.

    Several numbers may have different units: errors and widths are then None here, and given by number only; R² and
    coverage are means over the numbers.
    """

    n: int
    rmse: float | None
    mae: float | None
    crps: float | None
    r2: float
    epsilon: float
    coverage: float | None
    coverage_range: tuple[float, float] | None  # where chance puts it 99 times in 100, for rows like calibration rows
    mean_width: float | None  # of finite intervals
    median_width: float | None
    infinite: float | None  # the share of infinite intervals
    typicality: float | None  # mean
    unreadable: int
    by_number: pd.DataFrame  # one row per number: rmse, mae, crps, r2, coverage, mean_width, median_width
    groups: GroupComparison | None = None
    costs: CostEvaluation | None = None  # none: numbers have no wrong labels

    @property
    def parts(self) -> pd.DataFrame:
        """The results by predicted number."""
        return self.by_number

    @property
    def advice(self) -> str | None:
        """A note if coverage is lower than chance explains; None otherwise."""
        if self.coverage is None or self.coverage_range is None or self.coverage >= self.coverage_range[0]:
            return None
        return (
            f"The intervals hold the true number for {percent(self.coverage)} of the rows: less than chance explains, "
            "so these rows differ from those that the model was calibrated with; calibrate it with rows like these: "
            "reg.recalibrate(X, y)"
        )

    @property
    def facts(self) -> list[Fact]:
        """Each number with its meaning, for people."""
        law = by_chance(self.coverage_range)
        promise = f"share of intervals with the true number; ε={self.epsilon:g} asks for {1 - self.epsilon:g}{law}"
        errors = [
            Fact("RMSE", amount(self.rmse), "root of the mean squared error, in units of the target"),
            Fact("MAE", amount(self.mae), "mean absolute error"),
            Fact("CRPS", amount(self.crps), "error of the whole distribution of votes; that of a sure one is the MAE"),
        ]
        widths = Fact("mean width", amount(self.mean_width), f"of the intervals; median {amount(self.median_width)}")
        alone = self.rmse is not None
        facts = [
            *(errors if alone else []),
            Fact("R²", share(self.r2), "share of the variance explained; 1 is perfect, 0 as good as the mean"),
            Fact("coverage", share(self.coverage), promise),
            *([widths] if alone and self.coverage is not None else []),
            Fact("typicality", share(self.typicality), TYPICALITY),
        ]
        if self.infinite:
            facts.append(Fact("without end", share(self.infinite), "share of intervals that are infinite"))
        return facts


def _by_number(predictions: NumberPredictions, truth: Floats, ends: Floats | None) -> pd.DataFrame:
    scores, rows = predictions.crps(truth), []
    for t, name in enumerate(predictions.names):
        wrong = predictions.shown[:, t] - truth[:, t]
        spread = float(np.square(truth[:, t] - truth[:, t].mean()).mean())
        squared = float(np.square(wrong).mean())
        row: dict[str, Any] = {"number": "target" if name is None else name, "n": len(truth)}
        row |= {"rmse": squared**0.5, "mae": float(np.abs(wrong).mean()), "crps": float(scores[:, t].mean())}
        row["r2"] = 1 - squared / spread if spread > 0 else float("nan")
        if ends is not None:
            widths = metrics.interval_widths(ends[:, t])
            row["coverage"] = metrics.interval_coverage(truth[:, t], ends[:, t])
            row |= {"mean_width": widths.mean, "median_width": widths.median}
        rows.append(row)
    return pd.DataFrame(rows)
