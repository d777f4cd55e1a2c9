"""Predictions of numbers, their intervals and quantiles, and how they compare with the truth."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from dwac import metrics
from dwac._checks import percent
from dwac.errors import EPSILON, ShapeError
from dwac.estimator.distribution import PredictedDistribution
from dwac.estimator.evaluation.common import (
    LEVEL,
    TYPICALITY,
    Answers,
    Evaluated,
    Fact,
    Floats,
    amount,
    by_chance,
    share,
)
from dwac.estimator.observed import Observed
from dwac.estimator.readable import Reasons, readable
from dwac.estimator.regressor import DWACRegressor
from dwac.explain import privacy
from dwac.explain.rendering import Numerals
from dwac.tasks import read_numbers
from dwac.tasks.answers import AnswerColumn


@dataclass(frozen=True, eq=False)
class NumberPredictions(Answers):
    """One pass over n examples: their embeddings, from which the votes give intervals at any ε and everything else."""

    reg: DWACRegressor
    h: torch.Tensor  # (r, d), of the rows that can be read
    values: Floats  # (n, T): the predictions; NaN where a row could not be read
    novel: Floats | None  # (n,): typicality
    reasons: Reasons | None = None
    private: bool = False
    unknown: Reasons | None = None  # (n,): the values of a row that were not in training, if it has any

    def __len__(self) -> int:
        return len(self.values)

    @property
    def typicality(self) -> Floats | None:
        """(n,): near 0, unlike anything known; None if it was not measured."""
        return self.novel

    @property
    def names(self) -> list[Any]:
        """(T,): the names of the numbers; a single number may have the name None."""
        return list(self.reg.target_.names)

    @property
    def n_calibration(self) -> int:
        """How many rows calibrate intervals; 0 if there are none."""
        return len(self.reg.calibration_y_)

    def part(self, rows: Any) -> NumberPredictions:
        """The predictions for some rows: a slice, row numbers or a mask."""
        return replace(
            self,
            h=self._h_of(rows),
            values=self.values[rows],
            novel=None if self.novel is None else self.novel[rows],
            reasons=None if self.reasons is None else self.reasons[rows],
            unknown=None if self.unknown is None else self.unknown[rows],
        )

    @property
    def distribution(self) -> PredictedDistribution:
        """The votes on each row."""
        return PredictedDistribution(copy(self.reg.references_), self.h, self.readable, single=False)

    def quantiles(self, levels: Sequence[float]) -> Floats:
        """(n, T, Q): quantiles of the votes."""
        return self._rounded(self.distribution.quantiles(levels))

    def intervals(self, epsilon: float) -> Floats | None:
        """(n, T, 2): intervals at ε, NaN for rows that could not be read; None without calibration."""
        if self.n_calibration == 0:
            return None
        found = np.full((len(self), self.values.shape[1], 2), np.nan)
        found[self.readable] = self.reg.intervals_of(self.h, epsilon)
        if not self.private:
            return found
        columns = [privacy.interval(found[:, t], step) for t, step in enumerate(self._steps)]
        return np.stack(columns, axis=1)

    @property
    def _steps(self) -> list[float]:
        """(T,): the steps to which private numbers are rounded."""
        targets = self.reg.references_.targets
        assert targets is not None
        return [Numerals(column).step for column in targets.cpu().numpy().T]

    @property
    def shown(self) -> Floats:
        """(n, T): the predictions, rounded if private."""
        return self._rounded(self.values)

    def _rounded(self, found: Floats) -> Floats:
        """(n, T, …): numbers, rounded to whole steps if private."""
        if not self.private:
            return found
        return np.stack([privacy.numbers(found[:, t], step) for t, step in enumerate(self._steps)], axis=1)

    def crps(self, y: Floats) -> Floats:
        """(n, T): the continuous ranked probability score."""
        return self.distribution.crps(y)

    def columns(self, quantiles: Sequence[float] = ()) -> tuple[AnswerColumn, ...]:
        """Prediction, interval, quantiles and typicality."""
        columns: tuple[AnswerColumn, ...] = self.reg.target_.columns(quantiles)
        return columns

    def answer(self, epsilon: float = EPSILON, quantiles: Sequence[float] = ()) -> dict[str, Any]:
        """The values of the columns, rounded if private."""
        levels = np.empty((*self.values.shape, 0)) if len(quantiles) == 0 else self.quantiles(quantiles)
        values = {"prediction": self.shown, "interval": self.intervals(epsilon), "quantiles": levels}
        if self.reg.target_.single:
            values = {name: None if array is None else array[:, 0] for name, array in values.items()}
        return {**values, "typicality": self.typicality}

    def evaluate(self, y: Any, epsilon: float = EPSILON, *, strict: bool = True) -> NumberEvaluation:
        """Compare with true numbers y, (n,) or (n, T). strict has no effect on numbers."""
        del strict
        truth = read_numbers(y, len(self))[0]
        if truth.shape != self.values.shape:
            raise ShapeError(f"y must have {self.values.shape[1]} numbers per row, as in fit; got {truth.shape[1]}")
        kept = self._require_readable()
        return _compared(self.part(kept), truth[kept], epsilon, unreadable=int((~kept).sum()))


def predict_numbers(reg: DWACRegressor, X: Any, *, private: bool) -> NumberPredictions:
    """The regressor's predictions for X; rows that cannot be read are flagged. private: round the numbers."""
    observed = X if isinstance(X, Observed) else reg.observe(X, private=private)
    novelty = observed.novelty[observed.readable] if reg.fitted_.calibrated else None
    found = number_predictions_of(reg, observed.reasons, observed.h, novelty, private=private)
    return replace(found, unknown=observed.notes)


def number_predictions_of(
    reg: DWACRegressor, reasons: Reasons, h: torch.Tensor, novelty: Floats | None, *, private: bool
) -> NumberPredictions:
    """The same from the embeddings (r, d) and the novelty (r,), or by fold (r, F), of the rows that can be read."""
    values, here = np.full((len(reasons), reg.target_.table.shape[1]), np.nan), readable(reasons)
    novel = np.full(len(reasons), np.nan) if reg.fitted_.calibrated else None
    if here.any():
        values[here] = reg.averages_of(h)
        if novel is not None and novelty is not None:
            novel[here] = reg.fitted_.typicality(novelty, private=private)
    return NumberPredictions(reg, h, values, novel, reasons, private)


@dataclass(frozen=True)
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
        asked = f"share of intervals with the true number; ε={self.epsilon:g} asks for {1 - self.epsilon:g}{law}"
        errors = [
            Fact("RMSE", amount(self.rmse), "root of the mean squared error, in units of the target"),
            Fact("MAE", amount(self.mae), "mean absolute error"),
            Fact("CRPS", amount(self.crps), "error of the whole distribution of votes; that of a sure one is the MAE"),
        ]
        widths = Fact("mean width", amount(self.mean_width), f"of the intervals; median {amount(self.median_width)}")
        alone = self.rmse is not None
        found = [
            *(errors if alone else []),
            Fact("R²", share(self.r2), "share of the variance explained; 1 is perfect, 0 as good as the mean"),
            Fact("coverage", share(self.coverage), asked),
            *([widths] if alone and self.coverage is not None else []),
            Fact("typicality", share(self.typicality), TYPICALITY),
        ]
        if self.infinite:
            found.append(Fact("without end", share(self.infinite), "share of intervals that are infinite"))
        return found


def _compared(found: NumberPredictions, truth: Floats, epsilon: float, *, unreadable: int) -> NumberEvaluation:
    """Compare the predictions of readable rows with numbers (n, T)."""
    ends = found.intervals(epsilon)
    by_number = _by_number(found, truth, ends)
    alone = found.reg.target_.single
    first: dict[Any, Any] = by_number.iloc[0].to_dict() if alone else {}
    chance = metrics.coverage_interval(epsilon, found.n_calibration, len(truth), LEVEL) if alone else None
    return NumberEvaluation(
        n=len(truth),
        **{name: first.get(name) for name in ("rmse", "mae", "crps", "mean_width", "median_width")},
        r2=float(by_number["r2"].mean()),
        epsilon=epsilon,
        coverage=None if ends is None else metrics.interval_coverage(truth, ends),
        coverage_range=None if ends is None else chance,
        infinite=None if ends is None else metrics.interval_widths(ends).infinite,
        typicality=None if found.typicality is None else float(found.typicality.mean()),
        unreadable=unreadable,
        by_number=by_number,
    )


def _by_number(found: NumberPredictions, truth: Floats, ends: Floats | None) -> pd.DataFrame:
    scores, rows = found.crps(truth), []
    for t, name in enumerate(found.names):
        wrong = found.shown[:, t] - truth[:, t]
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
