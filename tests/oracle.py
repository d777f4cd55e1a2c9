"""What the engine must equal: the definitions in float64, one query at a time, slow and obviously right."""

import math
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LOG_WEIGHT = {
    "gaussian": lambda squared: -squared,
    "laplace": lambda squared: -np.sqrt(squared),
    "inverse_quadratic": lambda squared: -np.log1p(squared),
}


def squared_distances(queries: ArrayLike, references: ArrayLike) -> Floats:
    """‖q - r‖² of each pair, by difference: (n, m)."""
    h, ref_h = np.asarray(queries, np.float64), np.asarray(references, np.float64)
    return np.array([np.square(query - ref_h).sum(axis=1) for query in h]).reshape(len(h), len(ref_h))


def log_weights(queries: ArrayLike, references: ArrayLike, kernel: str) -> Floats:
    """log w(q, r) of each pair: (n, m)."""
    return np.asarray(LOG_WEIGHT[kernel](squared_distances(queries, references)), np.float64)


def log_class_weights(
    queries: ArrayLike, references: ArrayLike, labels: ArrayLike, n_classes: int, kernel: str
) -> Floats:
    """log Σ_i I(y_i=k) w(q, r_i): (n, K); -inf for a class without references."""
    log_w = log_weights(queries, references, kernel)
    members = [np.asarray(labels) == k for k in range(n_classes)]
    return np.array([[log_sum_exp(row[mine]) for mine in members] for row in log_w]).reshape(len(log_w), n_classes)


def log_sum_exp(logs: ArrayLike) -> float:
    """log Σ exp; the sum itself is correctly rounded."""
    logs = np.asarray(logs, np.float64)
    if not len(logs):
        return -math.inf
    largest = float(logs.max())
    return largest + math.log(math.fsum(np.exp(logs - largest).tolist()))


def probabilities(queries: ArrayLike, references: ArrayLike, labels: ArrayLike, n_classes: int, kernel: str) -> Floats:
    """P(y=k given q): (n, K)."""
    votes = log_class_weights(queries, references, labels, n_classes, kernel)
    return np.array([np.exp(row - log_sum_exp(row)) for row in votes])


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
        self.log_votes, self.targets = np.asarray(log_votes, np.float64), np.asarray(targets, np.float64)
        self.log_total = log_sum_exp(self.log_votes)
        self.shares = np.exp(self.log_votes - self.log_total)
        origin = float(self.targets[np.argmax(self.log_votes)])  # so that equal targets have exactly their mean
        self.mean = origin + self._expect(self.targets - origin)

    def _expect(self, values: Floats) -> float:
        return math.fsum((self.shares * values).tolist())

    @property
    def variance(self) -> float:
        return self._expect((self.targets - self.mean) ** 2)

    def log_tails(self, value: float) -> tuple[float, float]:
        """Logs of the shares ≤ and ≥ a value."""
        below, above = self.log_votes[self.targets <= value], self.log_votes[self.targets >= value]
        return log_sum_exp(below) - self.log_total, log_sum_exp(above) - self.log_total

    def ends(self, log_level: float) -> tuple[float, float]:
        """The smallest target with a log share ≤ it of at least this, and the largest with a share ≥ it."""
        lower = [y for y, (below, _) in self._all_tails.items() if below >= log_level - 1e-12]
        upper = [y for y, (_, above) in self._all_tails.items() if above >= log_level - 1e-12]
        return min(lower), max(upper)

    @cached_property
    def _all_tails(self) -> dict[float, tuple[float, float]]:
        return {y: self.log_tails(y) for y in set(self.targets.tolist())}

    def crps(self, value: float) -> float:
        """E|Y - y| - E|Y - Y'| / 2, which is ∫ (F(t) - 1{t ≥ y})² dt."""
        apart = [self._expect(np.abs(self.targets - y)) for y in self.targets.tolist()]
        return self._expect(np.abs(self.targets - value)) - self._expect(np.array(apart)) / 2

    def moves(self) -> list[float]:
        """By how much the mean moves without each voter, computed without it."""
        found = []
        for i in range(len(self.targets)):
            rest = Distribution(np.delete(self.log_votes, i), np.delete(self.targets, i))
            found.append(rest.mean - self.mean)
        return found
