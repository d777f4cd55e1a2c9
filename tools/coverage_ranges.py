"""How far the coverage of cross-conformal sets strays from 1 - ε: the simulation behind `coverage_range(crossed=True)`.

    python -m tools.coverage_ranges --fits 200

A small stand-in for cross-fitting, which takes milliseconds: each fold's embedding is a ridge regression of the labels
on the rows outside it, votes are Gaussian, and out-of-fold votes choose the scale and the base vote, as in
`dwac.training.cross_fit`. Printed for each kind of table and ε: mean and deviation of coverage over fits, its variance
in units of that of as many calibration rows of their own, and the share of fits below the range (5 % are promised).
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from dwac.conformal import CrossCalibration
from dwac.conformal.guarantees import allowed_misses, coverage_range
from dwac.training.cross_fit import FOLDS, folds_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EPSILONS = (0.05, 0.1, 0.2)
_NEW, _RIDGE, _SPREAD = 2_000, 0.1, 1.5
_SCALES, _BASES = np.geomspace(0.5, 60, 9), (0.0, 1e-6, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0)


class Source(NamedTuple):
    """Tables of n rows and 8 columns, whose classes have centres at this distance from their mean; 0: no signal."""

    n: int
    n_classes: int
    distance: float

    def draw(self, rng: np.random.Generator) -> tuple[Floats, Ints, Floats, Ints]:
        """(X, y, new X, new y)."""
        centres = self.distance * rng.normal(size=(self.n_classes, 8)) / np.sqrt(8)
        y = rng.integers(self.n_classes, size=self.n + _NEW)
        X = centres[y] + rng.normal(size=(len(y), 8))
        X = (X - X[: self.n].mean(axis=0)) / X[: self.n].std(axis=0)
        return X[: self.n], y[: self.n], X[self.n :], y[self.n :]


SOURCES = [Source(n, k, distance) for n in (60, 200, 600) for k in (2, 5, 10) for distance in (0.0, 1.0, 3.0)]


def coverages(source: Source, seed: int) -> Floats:
    """The coverage of one fit, at each of EPSILONS."""
    X, y, new, truth = source.draw(np.random.default_rng(seed))
    n, own, folds = len(y), np.eye(source.n_classes)[y], folds_of(source.n, seed=seed).numpy()
    lines = [_ridge(X[folds != fold], own[folds != fold]) for fold in range(FOLDS)]
    outside = folds[:, None] != folds
    squared = np.empty((n, n))
    for fold, line in enumerate(lines):
        squared[folds == fold] = _squared(X[folds == fold] @ line, X @ line)
    usual, best = np.median(squared[outside]), (np.inf, 0.0, 0.0, own)
    for scale in _SCALES:
        near = (np.exp(-scale * squared / usual) * outside) @ own
        for base in _BASES:
            shares = _shares(near + base * (outside @ own))
            loss = (
                -np.log(np.clip(shares[np.arange(n), y], 1e-9, 1)).sum() / (n + 1) + (np.log(scale) - 1.5) ** 2 / 2 / n
            )
            best = min(best, (loss, scale, base, shares), key=lambda found: found[0])
    _, scale, base, shares = best
    scores = np.empty((len(truth), FOLDS))
    for fold, line in enumerate(lines):
        voters = folds != fold
        near = np.exp(-scale * _squared(new @ line, X[voters] @ line) / usual) @ own[voters]
        scores[:, fold] = -_shares(near + base * own[voters].sum(axis=0))[np.arange(len(truth)), truth]
    p = CrossCalibration(-shares[np.arange(n), y], folds, tolerance=1e-9).p_values(scores)
    return np.array([(p > epsilon).mean() for epsilon in EPSILONS])


def _ridge(X: Floats, own: Floats) -> Floats:
    line = np.linalg.solve(X.T @ X + _RIDGE * len(X) * np.eye(X.shape[1]), X.T @ (own - own.mean(axis=0)))
    return np.asarray(line * _SPREAD / np.sqrt(np.square(X @ line).sum(axis=1).mean() + 1e-12))


def _squared(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.maximum(np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2 * a @ b.T, 0))


def _shares(votes: Floats) -> Floats:
    total = votes.sum(axis=1, keepdims=True)
    return np.where(total > 0, votes / np.where(total > 0, total, 1), 1 / votes.shape[1])


def main() -> None:
    """Print a line for each source and ε."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=200)
    fits = parser.parse_args().fits
    print("   n classes distance  ε    mean  deviation  variance  below")
    for source in SOURCES:
        found = np.array([coverages(source, seed) for seed in range(fits)])
        for epsilon, covered in zip(EPSILONS, found.T, strict=True):
            misses = allowed_misses(epsilon, source.n)
            law = beta.var(source.n + 1 - misses, misses)
            own = max(0.0, covered.var() - covered.mean() * (1 - covered.mean()) / _NEW)
            below = (covered < coverage_range(epsilon, source.n, crossed=True)[0]).mean()
            print(
                f"{source.n:4d} {source.n_classes:7d} {source.distance:8g} {epsilon:4g} {covered.mean():6.3f} "
                f"{covered.std():10.3f} {own / law:9.1f} {below:6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
