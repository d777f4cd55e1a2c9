"""Privacy: what a prediction may reveal without revealing its voters. The same rules hold everywhere.

A training example is at distance 0 from itself, so its exact weight, and any sum that contains it, gives it away. A
private answer has labels and their shares of the vote, in whole per cent. It contains no id, record, position, distance
or weight. Nor does it describe single examples: the share of the nearest one, the exact number of examples that decide
a label when few do, and how well an ordinary row fits all differ between training rows and new ones.

>>> shares([0.981, 0.012, 0.007]).tolist(), p_values([0.031, 0.7]).tolist(), few(3), count(12_345)
([0.98, 0.01, 0.01], [0.04, 1.0], 10, 12000)
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dwac.conformal import Calibration, ConformalPrediction, LabelCalibration, LabelPrediction, nonconformity
from dwac.languages import say
from dwac.metrics import Agreement

Floats = NDArray[np.float64]

# A row and its copy moved by a thousandth differ by some 1e-6 in a share: a grid of 0.01 distinguishes one such pair in
# thousands. A finer grid distinguishes more pairs; a coarser one no longer shows which label leads.
STEPS = 100
# For votes for ranges of numbers, which outnumber labels: in whole per cent, a quarter of the answers for training
# rows changed when the row was moved by a thousandth; in twentieths, as few changed as predictions do.
COARSE = 20
FEWEST = 10  # the smallest count that is shown; it also represents all smaller ones
PLAIN = 0.1  # p-values above this are those of ordinary rows, and all are shown alike
FIT = 0.1  # step of log-weights and log-odds, applied before they are compared with those of calibration


def share(value: float) -> float:
    """A share in whole per cent; 0 means less than half of one."""
    return round(float(value) * STEPS) / STEPS


def shares(values: ArrayLike, steps: int = STEPS) -> Floats:
    """(…, K) shares that sum to 1, in whole per cent that also sum to 1: the largest remainders are rounded up."""
    exact = np.asarray(values, dtype=np.float64) * steps
    down = np.floor(exact + 1e-9)
    left = np.round(steps - down.sum(axis=-1, keepdims=True))
    rank = np.argsort(np.argsort(down - exact, axis=-1, kind="stable"), axis=-1, kind="stable")
    return np.asarray((down + (rank < left)) / steps)


def p_values(values: ArrayLike) -> Floats:
    """p-values in whole per cent, rounded up, and to 1 above a tenth: prediction sets keep their coverage."""
    up = np.ceil(np.round(np.asarray(values, dtype=np.float64) * STEPS, 9)) / STEPS
    return np.where(up > PLAIN, 1.0, up)


def scores(values: ArrayLike, kind: str) -> Floats:
    """Nonconformity rounded down to a grid: of log-weights, or of log-odds for probabilities.

    The exact score of a calibration row ties with itself, and its p-value drops as soon as the row is moved. On the
    grid, slightly moved copies tie too, and rounding down can only increase p-values.
    """
    exact = np.asarray(values, dtype=np.float64)
    if kind == "weights":
        return np.asarray(np.floor(exact / FIT) * FIT)
    with np.errstate(divide="ignore", over="ignore"):
        log_odds = np.log(-exact) - np.log1p(exact)
        return np.asarray(-1 / (1 + np.exp(-np.ceil(log_odds / FIT) * FIT)))


def novelty(values: ArrayLike) -> Floats:
    """Novelty rounded down to the grid of log-weights, for the same reason."""
    return np.asarray(np.floor(np.asarray(values, dtype=np.float64) / FIT) * FIT)


def numbers(values: ArrayLike, step: float) -> Floats:
    """Predicted numbers rounded to whole steps; step 0, where all training numbers are the same, keeps them.

    A prediction that one example decides is its own number, and quantiles of votes are always an example's number.
    So numbers are rounded to a step that is the same for all rows: between a fiftieth and a twentieth of the usual
    range of all training numbers (`dwac.explain.numbers.Numerals`). Whole numbers in a small range are then as visible
    as labels are.
    """
    exact = np.asarray(values, dtype=np.float64)
    return np.asarray(np.round(exact / step) * step if step else exact)


def interval(ends: ArrayLike, step: float) -> Floats:
    """(…, 2): intervals with ends rounded outwards to whole steps, which keeps their coverage."""
    low, high = np.moveaxis(np.asarray(ends, dtype=np.float64), -1, 0)
    if not step:
        return np.stack([low, high], axis=-1)
    return np.stack([np.floor(low / step + 1e-9) * step, np.ceil(high / step - 1e-9) * step], axis=-1)


def count(n: int) -> int:
    """A count of examples, to two significant digits."""
    return int(float(f"{n:.2g}"))


def few(n: int) -> int:
    """A count of the examples that matter to one prediction, to one significant digit; 10 means ten or fewer.

    It depends on a single row, which a finer count would reveal if the row was moved a little.
    """
    return max(int(float(f"{n:.1g}")), FEWEST)


def agreement(exact: Agreement) -> Agreement:
    """How often representatives agree with all, in whole per cent: rounded down, and its interval outwards.

    It is the same for every query, so it says nothing about the query. It is rounded like all other shares because
    a person who edits a model and asks again could otherwise see the effect of one example.
    """
    low, share = (math.floor(value * STEPS + 1e-9) / STEPS for value in (exact.low, exact.share))
    return Agreement(share, low, math.ceil(exact.high * STEPS - 1e-9) / STEPS, count(exact.n))


# The same as text for people


def percent(value: float, steps: int = STEPS) -> str:
    """A rounded share as text.

    >>> percent(0.0), percent(0.07), percent(1.0), percent(0.0, COARSE), percent(0.15, COARSE)
    ('< 1 %', '7 %', '> 99 %', '< 5 %', '15 %')
    """
    if not math.isfinite(value):
        return "–"
    whole, least = round(min(max(value, 0.0), 1.0) * STEPS), STEPS // steps
    return f"< {least} %" if whole == 0 else f"> {STEPS - least} %" if whole == STEPS else f"{whole} %"


def credibility(value: float) -> str:
    """A rounded credibility or typicality as text."""
    return say("over {share}", share=f"{round(PLAIN * STEPS)} %") if value > PLAIN else percent(value)


def confidence(value: float) -> str:
    """A rounded confidence as text."""
    least = 1 - PLAIN
    return say("below {share}", share=f"{round(least * STEPS)} %") if value < least - 1e-9 else percent(value)


class PrivatePrediction(ConformalPrediction):
    """p-values in whole per cent, and only what follows from them."""

    @property
    def confidence(self) -> Floats:
        """(n,): 1 - the second largest p-value, in whole per cent."""
        return np.asarray(np.round(super().confidence * STEPS) / STEPS)


def conformal(
    calibration: Calibration,
    log_class_weights: ArrayLike,
    kind: str,
    classes: NDArray[Any] | None = None,
    fold_votes: ArrayLike | None = None,
    *,
    ordered: bool = False,
) -> PrivatePrediction:
    """Rounded p-values for votes (n, K), and by fold (n, F, K) for a cross-fitted model."""
    by_fold = None if fold_votes is None else scores(nonconformity(fold_votes, kind), kind)
    rounded = scores(nonconformity(log_class_weights, kind), kind)
    exact = calibration.predict(rounded, classes=classes, fold_scores=by_fold)
    p = p_values(exact.p_values)
    return PrivatePrediction(p, -p, exact.n_calibration, classes, ordered=ordered)


def labels(
    calibration: LabelCalibration,
    probabilities: ArrayLike,
    fold_probabilities: ArrayLike | None = None,
    names: NDArray[Any] | None = None,
    within: Any = None,
) -> LabelPrediction:
    """Rounded p-values of several labels, from probabilities (n, L), and by fold (n, F, L) for a cross-fitted model.

    The p-values of having a label and of not having it are both rounded up.
    """

    def rounded(values: ArrayLike | None, has: bool) -> Floats | None:
        if values is None:
            return None
        p = np.asarray(values, dtype=np.float64)
        return -scores(-p, "probability") if has else 1 + scores(p - 1, "probability")

    p = np.asarray(probabilities, dtype=np.float64)
    yes, no = (
        calibration.predict(np.asarray(rounded(p, has)), rounded(fold_probabilities, has), names, within)
        for has in (True, False)
    )
    shown = np.round(p * STEPS) / STEPS
    return replace(yes, p_yes=p_values(yes.p_yes), p_no=p_values(no.p_no), probabilities=shown)
