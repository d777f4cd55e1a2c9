"""Decide or hand over: which rows a model may decide if errors among them have to be rare, and which are strangers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom, false_discovery_control

from dwac import _checks as checks
from dwac._checks import percent
from dwac.errors import InputError

Floats = NDArray[np.float64]
CONFIDENCE = 0.9
_STARTS = (0.25, 1.0, np.inf)  # where a sequence of tests begins, in units of the risk; inf: with all rows
_STEP = 1.05


@dataclass(frozen=True)
class DecisionRule:
    """Rows with an expected loss of at most `threshold` are decided; `str` says what was promised and measured.

    >>> control = RiskControl(np.repeat([0.01, 0.4], 200), np.repeat([0, 1], [380, 20]))
    >>> rule = control.rule(0.05)
    >>> rule.share, round(rule.bound, 3)
    (0.5, 0.011)
    """

    risk: float
    confidence: float
    threshold: float  # -inf if no row may be decided
    n_calibration: int
    decided: int  # calibration rows that the rule decides
    losses: int  # those of them with a loss
    certain: bool = True  # whether calibration rows took no part in training or votes

    @property
    def share(self) -> float:
        """The share of rows to expect that the rule decides."""
        return self.decided / self.n_calibration

    @property
    def bound(self) -> float:
        """The exact upper bound (Clopper-Pearson) of the risk among decided rows, at this confidence, for this rule."""
        if self.losses == self.decided:
            return 1.0
        return float(beta.ppf(self.confidence, self.losses + 1, self.decided - self.losses))

    def __str__(self) -> str:
        risk = percent(self.risk, most=1)
        if not self.decided:
            needed = smallest_decided(self.risk, self.confidence)
            n = f"{self.n_calibration:,} calibration rows"
            few = f"{n} are too few, at least {needed:,} have to be decided without an error"
            why = few if self.n_calibration < needed else f"too many of the {n} err"
            return f"no row can be decided at a risk of {risk}: {why}"
        share, sure = percent(self.share, most=1), percent(self.confidence, most=1)
        proved = "" if self.certain else " (measured, not proved: calibration rows vote, too)"
        return (
            f"expect to decide {share} of the rows; of {self.decided:,} such calibration rows, {self.losses:,} erred; "
            f"with a confidence of {sure}, at most {risk} of decided rows do{proved}"
        )


class RiskControl:
    """Keeps the share of decided rows that have a loss at or below a risk, with a stated confidence.

    A row is decided if its expected loss is at most t. For one t, the calibration rows that would be decided have a
    binomial number of losses, which gives an exact test of "the risk among decided rows is above the allowed one". The
    tests are made in sequences of growing t, fixed before any row is seen, and each sequence ends with the first test
    that does not reject: so the chance that any rejection is wrong is at most 1 - confidence, without assumptions on
    the expected losses (fixed-sequence testing with several starts, as in Angelopoulos and others, *Learn then test*).

    Args:
        expected: (n_cal,) the loss that the model expects of each calibration row, from 0 to 1.
        losses: (n_cal,) whether it had one.
        certain: whether calibration rows took no part in training or votes.

    >>> control = RiskControl(np.repeat([0.01, 0.4], 200), np.repeat([0, 1], [380, 20]))
    >>> control.rule(0.05).decided, control.rule(0.1).decided
    (200, 400)
    """

    def __init__(self, expected: ArrayLike, losses: ArrayLike, *, certain: bool = True) -> None:
        self.certain = certain
        expected = checks.scores(expected, "expected losses", ndim=1)
        if len(expected) == 0:
            raise InputError("decisions need calibration rows; got none; hold out some examples for calibration")
        order = np.argsort(expected, kind="stable")
        self._expected = expected[order]
        self._losses = np.concatenate([[0], np.asarray(losses, dtype=bool)[order].cumsum()])

    def rule(self, risk: float, confidence: float = CONFIDENCE) -> DecisionRule:
        """The rule that decides most rows among those that passed their tests."""
        risk, confidence = checks.epsilon(risk, "risk"), checks.epsilon(confidence, "confidence")
        steps = int(np.ceil(-np.log(_STARTS[0] * risk) / np.log(_STEP)))
        grid = np.minimum(_STARTS[0] * risk * _STEP ** np.arange(steps + 1), 1.0)
        n = np.searchsorted(self._expected, grid, side="right")
        rejected = binom.cdf(self._losses[n], n, risk) <= (1 - confidence) / len(_STARTS)
        threshold, decided = -np.inf, 0
        for start in np.searchsorted(grid, np.minimum(np.array(_STARTS) * risk, 1.0)):
            passed = int(np.argmin(np.append(rejected[start:], False)))
            if passed and n[start + passed - 1] > decided:
                threshold, decided = float(grid[start + passed - 1]), int(n[start + passed - 1])
        erred = int(self._losses[decided])
        return DecisionRule(risk, confidence, threshold, len(self._expected), decided, erred, self.certain)


def smallest_decided(risk: float, confidence: float = CONFIDENCE) -> int:
    """The fewest calibration rows, all of them without a loss, with which a rule can decide any row.

    >>> smallest_decided(0.05)
    67
    """
    return int(np.ceil(np.log((1 - confidence) / len(_STARTS)) / np.log1p(-risk)))


def strange(typicality: ArrayLike, rate: float) -> NDArray[np.bool_]:
    """(n,): which rows are unlike the calibration rows, at most a share `rate` of them wrongly, on average.

    Benjamini and Hochberg's procedure on p-values; typicality of rows with one calibration set suits it (Bates and
    others, *Testing for outliers with conformal p-values*). NaN, a row that could not be read, is no stranger.

    >>> strange([0.001, 0.3, 0.9, float("nan")], rate=0.1)
    array([ True, False, False, False])
    """
    p, rate = np.asarray(typicality, dtype=np.float64), checks.epsilon(rate, "rate")
    known = ~np.isnan(p)
    unlike = np.zeros(len(p), dtype=bool)
    if known.any():
        unlike[known] = false_discovery_control(p[known]) <= rate
    return unlike


def fewest_strangers(n_rows: int, n_calibration: int, rate: float) -> int:
    """The fewest strangers that can be found among n rows: each has a p-value of at least 1 / (n_calibration + 1).

    >>> fewest_strangers(200, 341, 0.1)
    6
    """
    return int(np.ceil(n_rows / (rate * (n_calibration + 1))))
