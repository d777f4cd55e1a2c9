"""Claim: local sets and intervals cover the worst slab better than marginal ones do.

The worst slab (Cauchois, Gupta and Duchi 2021) is the part of the rows between two parallel planes, with at least a
tenth of all, that is covered least: found among 1,000 directions on half of the test rows, and measured on the other
half. Every method calibrates the same model with the same 1,000 rows, except MAPIE's quantile regression, which fits
boosted trees to the training rows. MAPIE's conditional method (Gibbs, Cherian and Candès) covers linear functions of
the columns. Adult, Covertype, the numbers of California housing (FOLDER/regression) and a table whose noise grows with
a column; ε = 0.1, means over draws of the rows.

    python -m benchmarks.local_coverage --data FOLDER     # needs MAPIE 1.6 with cvxpy
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from mapie.classification import SplitConformalClassifier
from mapie.conditional_conformal_prediction import ConditionalSplitConformalRegressor
from mapie.regression import ConformalizedQuantileRegressor, SplitConformalRegressor
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingRegressor

import dwac
from benchmarks import record
from benchmarks.numbers import table
from reproduction import datasets

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
EPSILON, SEEDS, TRAIN, CALIBRATE, TEST = 0.1, 2, 2000, 1000, 3000
DIRECTIONS, CUTS, LEAST = 1000, 20, 0.1


def main() -> None:
    """Measure and record."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    seeds = range(given.seeds)
    rows = [row for seed in seeds for row in record.part(f"seed {seed}", lambda s=seed: list(measure(given.data, s)))]  # type: ignore[misc]
    means = pd.DataFrame(rows).groupby(["data", "method"], sort=False).mean().drop(columns="seed").reset_index()
    marginal = means["data"].map(means[means["method"] == "dwac"].set_index("data")["worst slab"])
    verdicts = np.where(means["worst slab"] > marginal, "met", "missed")
    means["verdict"] = np.where(means["method"] == "dwac, local", verdicts, "")
    config = {"epsilon": EPSILON, "seeds": given.seeds, "training": TRAIN, "calibration": CALIBRATE, "test": TEST}
    record.write("local_coverage", (__doc__ or "").split("\n")[0], config, means)


def measure(folder: Path, seed: int) -> Iterator[dict[str, Any]]:
    """Each method on each table: coverage, that of the worst slab, and the mean size or width."""
    adult, cover = datasets.load("adult"), datasets.load("covertype")
    housing, prices, _ = table(folder, "california_housing")
    housing = housing.select_dtypes("number").fillna(housing.median(numeric_only=True))
    for name, X, y in (
        ("adult", adult.X_train, np.asarray(adult.y_train)),
        ("covertype", pd.DataFrame(cover.X_train), np.asarray(cover.y_train)),
        ("california housing", housing, prices),
        ("growing noise", *growing_noise(TRAIN + CALIBRATE + TEST, seed)),
    ):
        order = np.random.default_rng(seed).permutation(len(X))
        parts = np.split(order[: TRAIN + CALIBRATE + TEST], [TRAIN, TRAIN + CALIBRATE])
        fit, held, test = ((X.iloc[rows].reset_index(drop=True), y[rows]) for rows in parts)
        compare = compare_sets if name in ("adult", "covertype") else compare_intervals
        numeric = pd.get_dummies(test[0]).astype(float).to_numpy()
        for method, covered, size in compare(fit, held, test, seed):
            worst = worst_slab(numeric, covered, seed)
            yield {"data": name, "method": method, "seed": seed, "coverage": covered.mean(), "worst slab": worst,
                   "mean size": size}  # fmt: skip


def growing_noise(n: int, seed: int) -> tuple[pd.DataFrame, Floats]:
    """Numbers whose noise grows with a column that says nothing about their mean."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.uniform(-1, 1, size=(n, 5)), columns=list("abcde"))
    return X, (2 * X["a"] + np.exp(1.5 * X["b"]) * rng.normal(size=n) / 2).to_numpy()


def compare_sets(fit: Any, held: Any, test: Any, seed: int) -> Iterator[tuple[str, Bools, float]]:
    """(method, covered, mean size) of prediction sets."""
    clf = dwac.DWACClassifier(random_state=seed, verbose=False).fit(*fit)
    clf.recalibrate(*held, ids=[f"held {row}" for row in range(len(held[1]))])
    truth = np.searchsorted(clf.classes_, test[1])
    found = {f"dwac{', local' * local}": clf.predict_set(test[0], EPSILON, local=local) for local in (False, True)}
    for score in ("lac", "aps") if len(clf.classes_) > 2 else ("lac",):  # all that MAPIE has for two classes
        mapie = SplitConformalClassifier(clf, 1 - EPSILON, conformity_score=score, prefit=True, random_state=seed)
        found[f"MAPIE, {score}"] = mapie.conformalize(*held).predict_set(test[0])[1][..., 0]
    for name, sets in found.items():
        yield name, sets[np.arange(len(truth)), truth], float(sets.sum(axis=1).mean())


def compare_intervals(fit: Any, held: Any, test: Any, seed: int) -> Iterator[tuple[str, Bools, float]]:
    """(method, covered, mean width) of intervals."""
    reg = dwac.DWACRegressor(random_state=seed, verbose=False).fit(*fit)
    reg.recalibrate(*held, ids=[f"held {row}" for row in range(len(held[1]))])
    found = {f"dwac{', local' * local}": reg.predict_interval(test[0], EPSILON, local=local) for local in (False, True)}
    centre, spread = fit[0].mean().to_numpy(), fit[0].std().to_numpy()

    def linear(X: Any) -> Floats:
        return np.column_stack([np.ones(len(X)), (np.asarray(X) - centre) / spread])

    for name, mapie in (
        ("absolute", SplitConformalRegressor(reg, 1 - EPSILON)),
        ("conditional", ConditionalSplitConformalRegressor(linear, reg, 1 - EPSILON)),
    ):
        found[f"MAPIE, {name}"] = mapie.conformalize(*held).predict_interval(test[0])[1][..., 0]
    trees = GradientBoostingRegressor(loss="quantile", random_state=seed)
    quantiles = ConformalizedQuantileRegressor(trees, 1 - EPSILON).fit(*fit).conformalize(*held)
    found["MAPIE, quantile regression"] = quantiles.predict_interval(test[0])[1][..., 0]
    for name, ends in found.items():
        low, high = np.asarray(ends).T
        yield name, (low <= test[1]) & (test[1] <= high), float((high - low)[np.isfinite(high - low)].mean())


def worst_slab(X: Floats, covered: Bools, seed: int) -> float:
    """The coverage of the slab that is covered least, found on one half of the rows and measured on the other."""
    spread = X.std(axis=0)
    scaled = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1)
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(DIRECTIONS, X.shape[1]))
    half = np.arange(len(X)) % 2 == 0
    worst, found, (lows, highs) = np.inf, half, np.triu_indices(CUTS + 1, 1)
    for direction in directions:
        along = scaled @ direction
        edges = np.quantile(along[half], np.linspace(0, 1, CUTS + 1))
        cell = np.clip(np.searchsorted(edges, along[half], side="right") - 1, 0, CUTS - 1)
        n, hits = (np.append(0, np.cumsum(np.bincount(cell, own, CUTS))) for own in (None, covered[half]))
        size = n[highs] - n[lows]
        share = np.where(size >= LEAST * half.sum(), (hits[highs] - hits[lows]) / np.maximum(size, 1), np.inf)
        if share.min() < worst:
            place, worst = share.argmin(), share.min()
            found = ~half & (along >= edges[lows[place]]) & (along <= edges[highs[place]])
    return float(covered[found].mean())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
