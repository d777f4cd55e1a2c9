"""Measures of predictions: accuracy, calibration, coverage, set sizes and widths, CRPS, out-of-distribution detection.

Arrays in, numbers out: this module does not depend on any model. Labels are whole numbers 0 … K-1; several labels at
once are rows (n, L) of booleans. Measures that scikit-learn has are not repeated here. For numbers:
`root_mean_squared_error` and `mean_absolute_error`; for several labels: `f1_score(Y, predicted, average="micro"` or
`"macro", zero_division=0)`, `hamming_loss` and, as the share of rows with exactly the right labels, `accuracy_score`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.stats import betabinom, binomtest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from dwac import _checks as checks
from dwac.conformal import label_sets
from dwac.errors import InputError, LabelError, NonFiniteError, ShapeError
from dwac.languages import message, numeral, say

__all__ = [
    "AgainstChance",
    "CalibrationTest",
    "DecisionShares",
    "IntervalWidths",
    "OodScores",
    "SetSizes",
    "accuracy",
    "calibration_error",
    "calibration_test",
    "coverage",
    "coverage_interval",
    "crps",
    "decision_shares",
    "interval_coverage",
    "interval_widths",
    "log_loss",
    "missed_share",
    "ood_scores",
    "ranked_probability_score",
    "roc_auc",
    "set_curve",
    "set_sizes",
    "top_k_agreement",
    "top_label_error",
]


def accuracy(y: ArrayLike, labels: ArrayLike) -> float:
    """Share of predicted labels that are correct.

    >>> accuracy([0, 1, 1, 2], [0, 1, 2, 2])
    0.75
    """
    truth = _truth(y)
    return float(np.mean(truth == checks.class_labels(labels, "labels", n=len(truth))))


def log_loss(y: ArrayLike, log_probabilities: ArrayLike) -> float:
    """Mean of -log P(y), from log-probabilities (n, K), so that tiny probabilities are not rounded to 0.

    >>> round(log_loss([0, 1], np.log([[0.5, 0.5], [0.75, 0.25]])), 3)
    1.04
    """
    log_p = checks.scores(log_probabilities, "log_probabilities", ndim=2)
    if (log_p > 1e-6).any():
        raise InputError(f"log_probabilities must be at most 0; got {log_p.max():.6g}; take the log first")
    # Log class weights and logits may all be negative too, so only the sum distinguishes them from log-probabilities.
    sums = np.exp(log_p).sum(axis=1)
    if (off := np.abs(sums - 1) > 1e-3).any():
        row = int(np.argmax(off))
        raise InputError(
            f"each row of exp(log_probabilities) must sum to 1; row {row} sums to {sums[row]:.6g}; "
            "subtract each row's log-sum-exp first"
        )
    truth = _truth(y, n=len(log_p), n_classes=log_p.shape[1])
    return float(-log_p[np.arange(len(truth)), truth].mean())


def calibration_error(
    y: ArrayLike, probabilities: ArrayLike, n_bins: int = 10, *, research_divisor: bool = False
) -> float:
    """Mean over classes of the mean absolute gap between predicted and observed frequency.

    For each class the examples are sorted by its predicted probability and cut into `n_bins` bins of equal
    count (to within one); the gap of a bin is |mean probability - share of the class|.

    Args:
        y: (n,) true labels.
        probabilities: (n, K).
        n_bins: bins per class.
        research_divisor: divide the sum over classes by `n_bins` instead of K, as the 2019 research code does for
            more than two classes (with two it reports one class, so there is no factor). Its published numbers
            include the factor K / n_bins; use this only to compare with them.

    >>> round(calibration_error([0, 1], [[0.8, 0.2], [0.4, 0.6]], n_bins=2), 3)
    0.3
    """
    n_bins = checks.positive_int(n_bins, "n_bins")
    p = checks.probabilities(probabilities, "probabilities")
    truth = _truth(y, n=len(p), n_classes=p.shape[1])
    gaps = [_bin_gap(p[:, k], truth == k, n_bins) for k in range(p.shape[1])]
    return float(np.sum(gaps) / (n_bins if research_divisor and len(gaps) > 2 else len(gaps)))


def _bin_gap(p: NDArray[np.float64], hit: NDArray[np.bool_], n_bins: int) -> float:
    order = np.argsort(p, kind="stable")
    # Examples with the same probability get their mean outcome, so that row order cannot matter.
    _, group = np.unique(p[order], return_inverse=True)
    shared = (np.bincount(group, weights=hit[order]) / np.bincount(group))[group]
    bins = np.array_split(p[order] - shared, min(n_bins, len(p)))
    return float(np.mean([abs(gap.mean()) for gap in bins]))


def top_label_error(y: ArrayLike, probabilities: ArrayLike, n_bins: int = 10) -> float:
    """Mean absolute gap between the predicted label's probability and how often that label is correct.

    Computed in bins of equal count, as in `calibration_error`, from probabilities (n, K).

    >>> round(top_label_error([0, 1], [[0.8, 0.2], [0.6, 0.4]], n_bins=1), 3)
    0.2
    """
    p = checks.probabilities(probabilities, "probabilities")
    truth = _truth(y, n=len(p), n_classes=p.shape[1])
    return _bin_gap(p.max(axis=1), truth == p.argmax(axis=1), checks.positive_int(n_bins, "n_bins"))


class AgainstChance(NamedTuple):
    """A measured error, a 95 % confidence interval for the true one, and the error of a perfect model by chance.

    `expected`: by chance, on average; `limit`: exceeded by chance once in 200 times.

    >>> error = AgainstChance(value=0.12, low=0.06, high=0.16, expected=0.04, limit=0.08)
    >>> error.beyond, round(error.excess, 2)
    (True, 0.08)
    """

    value: float
    low: float
    high: float
    expected: float
    limit: float

    @property
    def beyond(self) -> bool:
        """Whether the error is more than chance explains."""
        return self.value > self.limit

    @property
    def excess(self) -> float:
        """How much the error exceeds its average by chance; at least 0."""
        return max(0.0, self.value - self.expected)


class CalibrationTest(NamedTuple):
    """Whether probabilities are off by more than chance explains, and whether they are informative at all.

    error: `calibration_error`; top_label: `top_label_error`; each with that of a perfectly calibrated model.
    resolution: the share of the labels' variance that the bins explain, Σ_k mean_b (s_kb - s_k)² / Σ_k s_k (1 - s_k)
        with s_kb the share of class k in its bin b, s_k its share of all rows; 0 if all labels are the same.
    chance_resolution: exceeded once in 200 times by probabilities unrelated to the labels.

    >>> p = np.tile([[0.9, 0.1], [0.1, 0.9]], (100, 1))
    >>> test = calibration_test(np.tile([0, 1], 100), p)  # always right, though never more than 90 % sure
    >>> test.miscalibrated, test.informative, round(test.error.value, 2)
    (True, True, 0.1)
    """

    error: AgainstChance
    top_label: AgainstChance
    resolution: float
    chance_resolution: float

    @property
    def miscalibrated(self) -> bool:
        """Whether either error is more than chance explains."""
        return self.error.beyond or self.top_label.beyond

    @property
    def informative(self) -> bool:
        """Whether the probabilities distinguish rows better than shuffled ones would."""
        return self.resolution > self.chance_resolution


_LIMIT = 0.995  # quantile of errors by chance: two tests at this level reject a perfect model at most once in 100
_AT_ONCE = 4_000_000  # labels drawn at a time


def calibration_test(
    y: ArrayLike, probabilities: ArrayLike, n_bins: int = 10, *, n_draws: int = 600, random_state: int = 0
) -> CalibrationTest:
    """Compare the calibration error, the top label's error and the resolution with their values by chance.

    Both errors are positive even for a perfect model, and larger the fewer rows there are: a bin of 6 rows is off by
    about 15 points. So labels are repeatedly drawn from the stated probabilities: the errors against these labels are
    those of a perfect model. Intervals come from resampling rows with replacement (the bootstrap), with the bins kept
    fixed. A resampled gap contains the noise of both draws, each c on average: it counts as √(error² - 2c²).

    Args:
        y: (n,) true labels.
        probabilities: (n, K).
        n_bins: bins of equal count for each class.
        n_draws: how many times labels are drawn, labels shuffled and rows resampled.
        random_state: seed; the same arguments give the same numbers.
    """
    p = checks.probabilities(probabilities, "probabilities")
    truth = _truth(y, n=len(p), n_classes=p.shape[1])
    bins, rng = _Bins(p, checks.positive_int(n_bins, "n_bins")), np.random.default_rng(random_state)
    seen = bins.shares(bins.first + truth[None])
    errors, resolution = bins.errors(bins.stated - seen)[0], bins.resolution(seen)[0]
    perfect, shuffled, resampled, noise = [], [], [], []
    left, batch = checks.positive_int(n_draws, "n_draws"), max(1, _AT_ONCE // len(p))
    for size in [batch] * (left // batch) + [left % batch] * (left % batch > 0):
        perfect.append(bins.errors(bins.stated - bins.shares(bins.drawn(size, rng))))
        shuffled.append(bins.resolution(bins.shares(bins.first + rng.permuted(np.tile(truth, (size, 1)), axis=1))))
        gaps = bins.resampled(truth, size, rng)
        resampled.append(bins.errors(gaps))
        noise.append(bins.errors(gaps - (bins.stated - seen)))
    by_chance, c = np.concatenate(perfect), np.concatenate(noise).mean(axis=0)
    true = np.sqrt(np.maximum(np.concatenate(resampled) ** 2 - 2 * c**2, 0))
    low, high = np.quantile(true, [0.025, 0.975], axis=0)
    limit = np.quantile(by_chance, _LIMIT, axis=0)
    low = np.where(errors > limit, low, 0)  # an error that chance explains may be 0
    both = [
        AgainstChance(*map(float, values))
        for values in zip(errors, low, high, by_chance.mean(axis=0), limit, strict=True)
    ]
    return CalibrationTest(both[0], both[1], float(resolution), float(np.quantile(np.concatenate(shuffled), _LIMIT)))


class _Bins:
    """The bins of `calibration_error` and `top_label_error` for fixed probabilities (n, K), and any number of labels.

    A cell i·K + k stands for "row i has label k". `_of` (n·K, (K + 1)·B) is what each cell, if true, adds to the shares
    in the B bins of its class and of the top label, which come last; equal probabilities share equally.
    """

    def __init__(self, p: NDArray[np.float64], n_bins: int) -> None:
        (n, self.n_classes), self.n_bins = p.shape, min(n_bins, len(p))
        self.p, self.first, top = p, np.arange(n) * self.n_classes, p.argmax(axis=1)
        columns = [(p[:, k], self.first + k) for k in range(self.n_classes)] + [(p.max(axis=1), self.first + top)]
        parts = [self._column(place, values, cells) for place, (values, cells) in enumerate(columns)]
        cells, bins, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        shape = (n * self.n_classes, len(columns) * self.n_bins)
        self._of = sparse.csr_array((weights, (cells, bins)), shape=shape)
        self.stated = self._of.T @ p.ravel()  # the mean probability in each bin

    def _column(self, place: int, values: NDArray[Any], cells: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """(cell, bin, weight) of a class, or of the top label."""
        order = np.argsort(values, kind="stable")
        _, starts, group, sizes = np.unique(values[order], return_index=True, return_inverse=True, return_counts=True)
        edges = np.cumsum([0, *(len(part) for part in np.array_split(order, self.n_bins))])
        ends, parts = starts + sizes, []
        low, high = (np.searchsorted(edges, at, side="right") - 1 for at in (starts, ends - 1))
        for step in range(int((high - low).max()) + 1):  # a group of equal values may span several bins
            held = low + step
            mine = np.flatnonzero((held <= high)[group])
            g, b = group[mine], held[group[mine]]
            inside = np.minimum(ends[g], edges[b + 1]) - np.maximum(starts[g], edges[b])
            parts.append((cells[order[mine]], place * self.n_bins + b, inside / sizes[g] / (edges[b + 1] - edges[b])))
        cell, bin_, weight = (np.concatenate(part) for part in zip(*parts, strict=True))
        return cell, bin_, weight

    def shares(self, cells: NDArray[Any]) -> NDArray[np.float64]:
        """(draws, (K + 1)·B): how often the label of each bin occurs, from the true cells (draws, n)."""
        draws, n = cells.shape
        true = sparse.csr_array(
            (np.ones(cells.size), cells.ravel(), np.arange(draws + 1) * n), (draws, self._of.shape[0])
        )
        return np.asarray((true @ self._of).toarray())

    def drawn(self, draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """(draws, n): true cells, with labels drawn from the probabilities."""
        rows = np.arange(len(self.p))
        ends = self.p.cumsum(axis=1)
        ends = ends / ends[:, -1:] + rows[:, None]  # increasing from row to row, so that one search finds all
        cells = np.searchsorted(ends.ravel(), rng.random((draws, len(rows))) + rows, side="right")
        return np.asarray(np.minimum(cells, self.first + self.n_classes - 1))

    def resampled(self, truth: NDArray[np.int64], draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """(draws, (K + 1)·B): the gaps in the bins, with rows resampled with replacement."""
        n = len(truth)
        row = sparse.csr_array((self.p.ravel(), np.arange(self.p.size), np.arange(n + 1) * self.n_classes))
        gaps = row @ self._of - self._of[self.first + truth]  # (n, …): the contribution of each row
        counts = rng.multinomial(n, np.full(n, 1 / n), size=draws)
        return np.asarray((gaps.T @ counts.T).T)

    def errors(self, gaps: NDArray[np.float64]) -> NDArray[np.float64]:
        """(draws, 2): the error over classes and that of the top label, from gaps (draws, (K + 1)·B)."""
        means = np.abs(gaps).reshape(len(gaps), -1, self.n_bins).mean(axis=2)
        return np.stack([means[:, :-1].mean(axis=1), means[:, -1]], axis=1)

    def resolution(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """(draws,): the resolution, from shares (draws, (K + 1)·B)."""
        by_class = shares.reshape(len(shares), -1, self.n_bins)[:, :-1]
        overall = by_class.mean(axis=2, keepdims=True)
        variance = (overall * (1 - overall)).sum(axis=(1, 2))
        explained = ((by_class - overall) ** 2).mean(axis=2).sum(axis=1)
        return np.asarray(explained / np.where(variance > 0, variance, 1))


def coverage_interval(
    epsilon: float, n_calibration: int, n_test: int, level: float = 0.999
) -> tuple[float, float] | None:
    """The interval in which coverage at error rate ε falls with probability `level`, if rows are exchangeable.

    covered ~ BetaBinomial(n_test, k, n_cal + 1 - k), k = ⌈(1 - ε)(n_cal + 1)⌉; with ties coverage may be higher. None
    if there are too few calibration rows to leave a label out.

    >>> low, high = coverage_interval(0.1, 1_000, 10_000)
    >>> round(low, 4), round(high, 4)
    (0.8647, 0.93)
    """
    law = _law_of_covered(epsilon, n_calibration, n_test)
    if law is None:
        return None
    low, high = law.interval(level)
    return float(low) / n_test, float(high) / n_test


def _law_of_covered(epsilon: float, n_calibration: int, n_test: int) -> Any:
    """The law of how many of n_test rows are covered; None if there are too few calibration rows, or no rows."""
    k = int(np.ceil(round((1 - epsilon) * (n_calibration + 1), 9)))  # rounded first: .95 · 20 is 19, not 20
    return None if k > n_calibration or n_test == 0 else betabinom(n_test, k, n_calibration + 1 - k)


def undercoverage(epsilon: float, n_calibration: int, n_test: int, covered: int) -> float:
    """The probability that `covered` or fewer of n_test sets at error rate ε contain the true label by chance.

    It follows from the law of `coverage_interval`; 1 if there are too few calibration rows to leave a label out.

    >>> round(undercoverage(0.05, 1_000, 500, 461), 4)  # 92.2 % instead of 95 %
    0.0177
    """
    law = _law_of_covered(epsilon, n_calibration, n_test)
    return 1.0 if law is None else float(law.cdf(covered))


def coverage(y: ArrayLike, sets: ArrayLike) -> float:
    """Share of prediction sets (n, K) that contain the true label y (n,), a column number.

    If sets are a DataFrame, as from `predict_set(X, as_frame=True)`, y has labels: the names of its columns.

    >>> coverage([0, 1], [[True, False], [True, False]])
    0.5
    >>> coverage(["cat", "dog"], pd.DataFrame({"cat": [True, True], "dog": [False, True]}))
    1.0
    """
    chosen = _sets(sets)
    y = _columns(y, sets.columns) if isinstance(sets, pd.DataFrame) else y
    truth = _truth(y, n=len(chosen), n_classes=chosen.shape[1])
    return float(chosen[np.arange(len(truth)), truth].mean())


class SetSizes(NamedTuple):
    """How many labels the sets contain: the mean, and the shares of sets with none, one and several.

    >>> set_sizes([[True, False], [True, True], [False, False], [False, True]])
    SetSizes(mean=1.0, empty=0.25, single=0.5, multiple=0.25)
    """

    mean: float
    empty: float
    single: float
    multiple: float


def set_sizes(sets: ArrayLike) -> SetSizes:
    """Sizes of prediction sets (n, K)."""
    sizes = _sets(sets).sum(axis=1)
    return SetSizes(*(float(np.mean(x)) for x in (sizes, sizes == 0, sizes == 1, sizes > 1)))


def set_curve(
    y: ArrayLike,
    p_values: ArrayLike,
    epsilons: Iterable[float],
    *,
    n_calibration: Sequence[int] | int | None = None,
    ordered: bool = False,
) -> pd.DataFrame:
    """Coverage and set sizes of {k : p > ε}, one row per ε, from p-values (n, K).

    `n_calibration` and `ordered` as in `dwac.conformal.label_sets`: with the first, an ε too small for the calibration
    set is reported.

    >>> curve = set_curve([0, 1], [[0.9, 0.1], [0.6, 0.3]], [0.05, 0.2, 0.5])
    >>> print(curve[["epsilon", "coverage", "mean"]].to_string(index=False))
     epsilon  coverage  mean
        0.05       1.0   2.0
        0.20       1.0   1.5
        0.50       0.5   1.0
    """
    rows = []
    if not isinstance(epsilons, Iterable):
        raise InputError(f"epsilons must be a list of error rates; got {epsilons!r}; write [{epsilons!r}] for one")
    for epsilon in epsilons:
        sets = label_sets(p_values, epsilon, n_calibration=n_calibration, ordered=ordered)
        rows.append({"epsilon": epsilon, "coverage": coverage(y, sets), **set_sizes(sets)._asdict()})
    return pd.DataFrame(rows, columns=["epsilon", "coverage", *SetSizes._fields])


def interval_coverage(y: ArrayLike, intervals: ArrayLike) -> float:
    """Share of numbers y, (n,) or of any other shape, inside their intervals (n, 2), ends included.

    >>> interval_coverage([1.0, 2.0, 9.0], [[1.0, 3.0], [-np.inf, np.inf], [0.0, 5.0]])
    0.6666666666666666
    """
    ends, truth = _intervals(intervals), checks.scores(y, "y")
    if truth.shape != ends.shape[:-1]:
        raise ShapeError(f"y must have one number per interval: shape {ends.shape[:-1]} required, got {truth.shape}")
    return float(np.mean((ends[..., 0] <= truth) & (truth <= ends[..., 1])))


class IntervalWidths(NamedTuple):
    """The mean and median width of the finite intervals (inf if there are none), and the share of infinite ones.

    >>> widths = interval_widths([[0.0, 1.0], [0.0, 3.0], [-np.inf, 1.0]])
    >>> widths.mean, widths.median, round(widths.infinite, 2)
    (2.0, 2.0, 0.33)
    """

    mean: float
    median: float
    infinite: float


def interval_widths(intervals: ArrayLike) -> IntervalWidths:
    """Widths of intervals (n, 2), or of any other shape (…, 2).

    >>> interval_widths([[0.0, 1.0], [0.0, 3.0], [-np.inf, 1.0], [2.0, 2.0]])
    IntervalWidths(mean=1.3333333333333333, median=1.0, infinite=0.25)
    """
    ends = _intervals(intervals)
    finite = np.isfinite(ends).all(axis=-1)
    widths = ends[finite][:, 1] - ends[finite][:, 0]
    mean, median = (float(np.mean(widths)), float(np.median(widths))) if len(widths) else (np.inf, np.inf)
    return IntervalWidths(mean, median, float(1 - finite.mean()))


def crps(y: ArrayLike, targets: ArrayLike, shares: ArrayLike) -> NDArray[np.float64]:
    """(n,): the continuous ranked probability score of weighted distributions, ∫ (F(t) - 1{t ≥ y})² dt; 0 is best.

    It is in the units of y; for a single target, it is the absolute error.

    Args:
        y: (n,) true numbers.
        targets: (m,) targets of the voters of all rows, or (n, m), of each row.
        shares: (n, m) shares of the votes; each row sums to 1.

    >>> crps([1.0, 1.0], [0.0, 3.0], [[0.5, 0.5], [1.0, 0.0]])
    array([0.75, 1.  ])
    """
    p = checks.probabilities(shares, "shares")
    truth, values = checks.scores(y, "y", ndim=1), checks.scores(targets, "targets")
    if truth.shape != p.shape[:1] or values.shape not in (p.shape, p.shape[1:]):
        raise ShapeError(f"{p.shape} shares need y (n,) and targets (m,) or (n, m); got {truth.shape}, {values.shape}")
    if not (np.isfinite(truth).all() and np.isfinite(values).all()):
        raise NonFiniteError("y and targets must be finite; drop or repair such rows first")
    values = np.broadcast_to(values, p.shape)
    order = np.argsort(values, axis=1, kind="stable")
    values, p = np.take_along_axis(values, order, axis=1), np.take_along_axis(p, order, axis=1)
    # E|T - y| - E|T - T'| / 2, where the second term is ∫ F (1 - F).
    at_most = np.minimum(p.cumsum(axis=1), 1)[:, :-1]
    spread = (at_most * (1 - at_most) * np.diff(values, axis=1)).sum(axis=1)
    return np.asarray((p * np.abs(values - truth[:, None])).sum(axis=1) - spread)


def ranked_probability_score(y: ArrayLike, probabilities: ArrayLike) -> float:
    """The error of probabilities (n, K) of ordered labels: the mean of Σ_k (P(≤ k) - 1{y ≤ k})² / (K - 1).

    Between 0 and 1: the squared error of the K - 1 statements "at most k", on average. 0 if there is one label.

    >>> ranked_probability_score([0, 0], [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    0.75
    """
    p = checks.probabilities(probabilities, "probabilities")
    truth = _truth(y, n=len(p), n_classes=p.shape[1])
    if p.shape[1] == 1:
        return 0.0
    at_most = p.cumsum(axis=1)[:, :-1]
    return float(np.mean((at_most - (truth[:, None] <= np.arange(p.shape[1] - 1))) ** 2))


def roc_auc(Y: ArrayLike, probabilities: ArrayLike) -> NDArray[np.float64]:
    """(L,): how often a row with a label has a higher probability of it than a row without, from (n, L) each.

    NaN for a label that all rows have, or none.

    >>> roc_auc([[1, 0], [0, 0], [1, 0]], [[0.9, 0.1], [0.6, 0.4], [0.5, 0.5]])
    array([0.5, nan])
    """
    has, p = np.asarray(Y, dtype=bool), np.asarray(probabilities)
    pairs = zip(has.T, p.T, strict=True)
    return np.array([roc_auc_score(own, q) if own.any() and not own.all() else np.nan for own, q in pairs])


class DecisionShares(NamedTuple):
    """Decisions on several labels: the shares wrong among rows with and without a label, and the undecided share.

    Each is a mean over all such rows and labels, 0 if there are none.

    >>> shares = decision_shares([[1, 0], [1, 0]], [[0, 0], [1, -1]])
    >>> shares.wrong_of_having, shares.undecided
    (0.5, 0.25)
    """

    wrong_of_having: float
    wrong_of_lacking: float
    undecided: float


def decision_shares(Y: ArrayLike, decisions: ArrayLike) -> DecisionShares:
    """How decisions (n, L), 1, 0 or -1 for undecided (`LabelPrediction.decisions`), compare with the labels Y (n, L).

    >>> decision_shares([[1, 0], [1, 0]], [[1, 1], [0, -1]])
    DecisionShares(wrong_of_having=0.5, wrong_of_lacking=0.5, undecided=0.25)
    """
    has, given = _indicators(Y, "Y"), np.asarray(decisions)
    if given.shape != has.shape or not np.isin(given, (-1, 0, 1)).all():
        raise ShapeError(
            f"decisions must be 1, 0 or -1, of shape {has.shape}; got {given.dtype} of shape {given.shape}"
        )
    missed, added = (given == 0)[has], (given == 1)[~has]
    return DecisionShares(*(float(x.mean()) if x.size else 0.0 for x in (missed, added, given == -1)))


def missed_share(Y: ArrayLike, sets: ArrayLike) -> float:
    """The mean share of a row's labels that its set lacks, from Y and sets (n, L); 0 for a row without labels.

    This is what `dwac.conformal.MissControl` controls.

    >>> missed_share([[1, 1], [0, 1], [0, 0]], [[1, 0], [1, 1], [0, 0]])
    0.16666666666666666
    """
    has, chosen = _indicators(Y, "Y"), _indicators(sets, "sets")
    if has.shape != chosen.shape:
        raise ShapeError(f"Y and sets must have the same shape; got {has.shape} and {chosen.shape}")
    return float(np.mean((has & ~chosen).sum(axis=1) / np.maximum(has.sum(axis=1), 1)))


class OodScores(NamedTuple):
    """How well a score separates in-distribution from out-of-distribution data.

    >>> ood_scores([0.9, 0.8, 0.7], [0.1, 0.2])
    OodScores(auroc=1.0, aupr=1.0, fpr95=0.0)
    """

    auroc: float
    aupr: float
    fpr95: float


def ood_scores(inside: ArrayLike, outside: ArrayLike) -> OodScores:
    """AUROC, AUPR and FPR at 95 % TPR of a score that should be high in distribution (for example credibility).

    In-distribution data (`inside`) is the positive class: FPR95 is the share of `outside` that passes a threshold
    which 95 % of `inside` passes.

    >>> round(ood_scores([0.9, 0.8, 0.4], [0.1, 0.5]).auroc, 3)
    0.833
    """
    ins, outs = (checks.scores(x, name, ndim=1) for x, name in ((inside, "inside scores"), (outside, "outside scores")))
    if len(ins) == 0 or len(outs) == 0:
        raise InputError(f"both kinds of scores are required; got {len(ins)} inside and {len(outs)} outside")
    values = np.concatenate([ins, outs])
    # These measures depend only on ranks, which also work for infinite scores.
    ranks = np.unique(values, return_inverse=True)[1]
    positive = np.arange(len(values)) < len(ins)
    fpr, tpr, _ = roc_curve(positive, ranks, drop_intermediate=False)
    return OodScores(
        float(roc_auc_score(positive, ranks)),
        float(average_precision_score(positive, ranks)),
        float(fpr[np.argmax(tpr >= 0.95)]),
    )


class Agreement(NamedTuple):
    """How often two models give the same label: the share of n rows, and a 95 % interval for it (Clopper-Pearson)."""

    share: float
    low: float
    high: float
    n: int

    def words(self) -> str:
        """In words, in the current language."""
        share, low, high = (numeral(checks.percent(each, 2)) for each in (self.share, self.low, self.high))
        text = message("{share} of {n} rows (95 % interval {low} to {high})")
        return say(text, share=share, n=numeral(f"{self.n:,}"), low=low, high=high)

    def __str__(self) -> str:
        return self.words()


def agreement(labels: ArrayLike, others: ArrayLike) -> Agreement:
    """How often two models give the same label to the same rows (n,).

    >>> print(agreement([0, 1, 1, 0], [0, 1, 1, 1]))
    75.00 % of 4 rows (95 % interval 19.41 % to 99.37 %)
    """
    a, b = np.asarray(labels), np.asarray(others)
    if a.ndim != 1 or a.shape != b.shape or len(a) == 0:
        raise ShapeError(f"labels of the same rows, at least one, are required; got shapes {a.shape} and {b.shape}")
    same = int((a == b).sum())
    interval = binomtest(same, len(a)).proportion_ci()
    return Agreement(same / len(a), float(interval.low), float(interval.high), len(a))


def top_k_agreement(
    labels: ArrayLike, neighbor_labels: ArrayLike, neighbor_log_weights: ArrayLike, ks: Sequence[int]
) -> dict[int, float]:
    """How often the vote of the k nearest examples alone gives the full model's label, for each k.

    Args:
        labels: (n,) labels predicted by all references together.
        neighbor_labels: (n, k_max) labels of the nearest references, nearest first.
        neighbor_log_weights: (n, k_max) their log-weights.
        ks: numbers of neighbours that vote, each at most k_max.

    >>> top_k_agreement([0, 1], [[0, 1, 1], [0, 1, 1]], [[-1, -2, -3], [-1, -1.5, -1.6]], ks=[1, 3])
    {1: 0.5, 3: 1.0}
    """
    log_w = checks.scores(neighbor_log_weights, "neighbor_log_weights", ndim=2)
    near = np.asarray(neighbor_labels)
    if near.shape != log_w.shape:
        raise ShapeError(
            f"neighbor_labels and neighbor_log_weights must have the same shape; got {near.shape} and {log_w.shape}"
        )
    near = checks.class_labels(near.ravel(), "neighbor_labels").reshape(near.shape)
    full = _truth(labels, n=len(log_w))
    most = log_w.max(axis=1, keepdims=True, initial=-np.inf)
    if not np.isfinite(most).all():
        row = int(np.argmin(np.isfinite(most[:, 0])))
        raise NonFiniteError(
            f"neighbor_log_weights must have a finite largest entry in each row; row {row} has {most[row, 0]}"
        )
    weights = np.exp(log_w - most)
    agreement = {}
    for k in ks:
        if checks.positive_int(k, "each k") > log_w.shape[1]:
            raise InputError(f"each k must be at most the {log_w.shape[1]} neighbours given; got {k}")
        votes = np.zeros((len(full), max(int(near.max()), int(full.max())) + 1))
        np.add.at(votes, (np.arange(len(full))[:, None], near[:, :k]), weights[:, :k])
        agreement[int(k)] = float(np.mean(votes.argmax(axis=1) == full))
    return agreement


def _truth(y: ArrayLike, *, n: int | None = None, n_classes: int | None = None) -> NDArray[np.int64]:
    labels = checks.class_labels(y, "y", n=n, n_classes=n_classes)
    if len(labels) == 0:
        raise InputError("at least one example is required; got none")
    return labels


def _columns(y: ArrayLike, names: pd.Index[Any]) -> NDArray[np.int64]:
    """The column number of each label."""
    labels = np.asarray(y)
    places = names.get_indexer(pd.Index(labels))
    if (places < 0).any():
        unknown = labels[places < 0].tolist()[0]
        raise LabelError(f"y must hold labels that are columns of the sets, {checks.listed(names)}; got {unknown!r}")
    return np.asarray(places, dtype=np.int64)


def _intervals(intervals: ArrayLike) -> NDArray[np.float64]:
    ends = checks.scores(intervals, "intervals")
    if ends.ndim < 2 or ends.shape[-1] != 2 or ends.size == 0:
        raise ShapeError(f"intervals must be a non-empty array (n, 2) of lower and upper ends; got shape {ends.shape}")
    if (ends[..., 0] > ends[..., 1]).any():
        low, high = ends[ends[..., 0] > ends[..., 1]][0]
        raise InputError(f"each interval must begin before it ends; got {low:.6g} to {high:.6g}")
    return ends


def _indicators(value: ArrayLike, name: str) -> NDArray[np.bool_]:
    array = np.asarray(value)
    if array.ndim != 2 or array.size == 0 or not np.isin(array, (0, 1)).all():
        raise ShapeError(
            f"{name} must be a non-empty (n, L) array of booleans, or 0 and 1; got {array.dtype} of shape {array.shape}"
        )
    return array.astype(bool)


def _sets(sets: ArrayLike) -> NDArray[np.bool_]:
    array = np.asarray(sets)
    if array.dtype != bool or array.ndim != 2 or len(array) == 0:
        raise ShapeError(
            f"prediction sets must be a non-empty (n, K) array of booleans; got {array.dtype} of shape {array.shape}"
        )
    return array
