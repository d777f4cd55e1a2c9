"""What the engine must equal: plain float64 double loops, slow and obviously right."""

import math
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LOG_WEIGHT = {
    "gaussian": lambda squared: -squared,
    "laplace": lambda squared: -math.sqrt(squared),
    "inverse_quadratic": lambda squared: -math.log1p(squared),
}


def squared_distances(queries: ArrayLike, references: ArrayLike) -> Floats:
    """‖q - r‖² of each pair, by difference: (n, m)."""
    h, ref_h = np.asarray(queries, np.float64), np.asarray(references, np.float64)
    squared = np.empty((len(h), len(ref_h)))
    for i, query in enumerate(h):
        for j, reference in enumerate(ref_h):
            difference = query - reference
            squared[i, j] = difference @ difference
    return squared


def log_weights(queries: ArrayLike, references: ArrayLike, kernel: str) -> Floats:
    """log w(q, r) of each pair: (n, m)."""
    squared = squared_distances(queries, references)
    return np.array([[LOG_WEIGHT[kernel](s) for s in row] for row in squared]).reshape(squared.shape)


def log_class_weights(
    queries: ArrayLike, references: ArrayLike, labels: ArrayLike, n_classes: int, kernel: str
) -> Floats:
    """log Σ_i I(y_i=k) w(q, r_i): (n, K); -inf for a class without references."""
    log_w = log_weights(queries, references, kernel)
    answer = np.empty((len(log_w), n_classes))
    for i, row in enumerate(log_w):
        for k in range(n_classes):
            answer[i, k] = log_sum_exp([w for w, y in zip(row, np.asarray(labels), strict=True) if y == k])
    return answer


def log_sum_exp(logs: list[float]) -> float:
    """log Σ exp; the sum itself is correctly rounded."""
    if not logs:
        return -math.inf
    largest = max(logs)
    return largest + math.log(math.fsum(math.exp(log - largest) for log in logs))


def probabilities(queries: ArrayLike, references: ArrayLike, labels: ArrayLike, n_classes: int, kernel: str) -> Floats:
    """P(y=k given q): (n, K)."""
    votes = log_class_weights(queries, references, labels, n_classes, kernel)
    return np.array([[math.exp(v - log_sum_exp(list(row))) for v in row] for row in votes])


def nearest(queries: ArrayLike, references: ArrayLike, k: int) -> tuple[Ints, Floats]:
    """Rows and squared distances (n, k) of the nearest, nearest first; equal distances in the order of rows."""
    squared = squared_distances(queries, references)
    rows = np.array([sorted(range(len(row)), key=lambda j: (row[j], j))[:k] for row in squared], np.int64)
    return rows, np.take_along_axis(squared, rows, axis=1)


def gradient(
    queries: ArrayLike, references: ArrayLike, labels: ArrayLike, n_classes: int, kernel: str, cotangent: Floats
) -> Floats:
    """∂/∂queries of Σ cotangent · log_class_weights, by central differences: (n, d)."""
    h = np.asarray(queries, np.float64)
    answer = np.empty_like(h)
    for i, j in np.ndindex(*h.shape):
        step = 1e-5 * max(1.0, abs(float(h[i, j])))
        both = np.stack([h[i], h[i]])
        both[0, j] += step
        both[1, j] -= step
        above, below = log_class_weights(both, references, labels, n_classes, kernel)
        answer[i, j] = cotangent[i] @ (above - below) / (both[0, j] - both[1, j])
    return answer


def exact_log_weights(queries: ArrayLike, references: ArrayLike) -> Floats:
    """log w of a gaussian less the largest of each query, (n, m): from fractions, so right wherever the query is."""
    answer = []
    for h in np.asarray(queries, np.float64).tolist():
        squared = [
            sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(h, reference, strict=True))
            for reference in np.asarray(references, np.float64).tolist()
        ]
        answer.append([float(min(squared) - s) for s in squared])
    return np.array(answer)


class Distribution:
    """The distribution of targets (m,) by votes on one query whose logs are given (m,): the definitions as they are."""

    def __init__(self, log_votes: ArrayLike, targets: ArrayLike) -> None:
        self.log_votes = [float(v) for v in np.asarray(log_votes)]
        self.targets = [float(y) for y in np.asarray(targets)]
        self.log_total = log_sum_exp(self.log_votes)
        self.shares = [math.exp(v - self.log_total) for v in self.log_votes]
        origin = self.targets[int(np.argmax(self.log_votes))]  # so that equal targets have exactly their mean
        self.mean = origin + math.fsum(p * (y - origin) for p, y in zip(self.shares, self.targets, strict=True))

    @property
    def variance(self) -> float:
        return math.fsum(p * (y - self.mean) ** 2 for p, y in zip(self.shares, self.targets, strict=True))

    def log_tails(self, value: float) -> tuple[float, float]:
        """Logs of the shares ≤ and ≥ a value."""
        pairs = list(zip(self.log_votes, self.targets, strict=True))
        below, above = [v for v, y in pairs if y <= value], [v for v, y in pairs if y >= value]
        return log_sum_exp(below) - self.log_total, log_sum_exp(above) - self.log_total

    def ends(self, log_level: float) -> tuple[float, float]:
        """The smallest target with a log share ≤ it of at least this, and the largest with a share ≥ it."""
        lower = [y for y, (below, _) in self._all_tails.items() if below >= log_level - 1e-12]
        upper = [y for y, (_, above) in self._all_tails.items() if above >= log_level - 1e-12]
        return min(lower), max(upper)

    @cached_property
    def _all_tails(self) -> dict[float, tuple[float, float]]:
        return {y: self.log_tails(y) for y in set(self.targets)}

    def crps(self, value: float) -> float:
        """E|Y - y| - E|Y - Y'| / 2, which is ∫ (F(t) - 1{t ≥ y})² dt."""
        pairs = list(zip(self.shares, self.targets, strict=True))
        apart = math.fsum(p * abs(y - value) for p, y in pairs)
        return apart - math.fsum(p * q * abs(y - z) for p, y in pairs for q, z in pairs) / 2

    def moves(self) -> list[float]:
        """By how much the mean moves without each voter, computed without it."""
        found = []
        for i in range(len(self.targets)):
            rest = Distribution(np.delete(self.log_votes, i), np.delete(self.targets, i))
            found.append(rest.mean - self.mean)
        return found
