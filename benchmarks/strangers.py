"""Claim: typicality tells rows of a table that are unlike the training data, better than credibility by weights did.

Strangers are test rows changed: 5 standard deviations added to every column, or to one drawn at random; columns
shuffled independently of one another; one gap, where training has none. AUROC: the probability that a stranger has the
lower value. Credibility by weights is the paper's pairing (`nonconformity="weights"`), of a model trained with one
split. The share of unchanged test rows with a typicality of at most 0.05 should be about 0.05.

    python -m benchmarks.strangers
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split

from benchmarks import record
from dwac import DWACClassifier

Floats = NDArray[np.float64]
TABLES = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
SEEDS = 3


def shifted(X: Floats, deviations: Floats, rng: np.random.Generator) -> Floats:
    """Every column is 5 deviations higher."""
    del rng
    return np.asarray(X + 5 * deviations)


def shifted_once(X: Floats, deviations: Floats, rng: np.random.Generator) -> Floats:
    """One column of each row is."""
    columns, changed = rng.choice(np.flatnonzero(deviations > 0), len(X)), X.copy()
    changed[np.arange(len(X)), columns] += 5 * deviations[columns]
    return changed


def shuffled(X: Floats, deviations: Floats, rng: np.random.Generator) -> Floats:
    """Every column in an order of its own."""
    del deviations
    return np.stack([rng.permutation(column) for column in X.T], axis=1)


def gap(X: Floats, deviations: Floats, rng: np.random.Generator) -> Floats:
    """One value of each row is missing."""
    del deviations
    changed = X.copy()
    changed[np.arange(len(X)), rng.integers(0, X.shape[1], len(X))] = np.nan
    return changed


STRANGE: dict[str, Callable[[Floats, Floats, np.random.Generator], Floats]] = {
    "+5 deviations": shifted,
    "+5 deviations in one column": shifted_once,
    "columns shuffled": shuffled,
    "one gap": gap,
}


def auroc(usual: Floats, strange: Floats) -> float:
    """The probability that a stranger has the lower value; ties count half."""
    ordered = np.sort(usual)
    low, high = (np.searchsorted(ordered, strange, side=side) for side in ("left", "right"))
    return float((len(ordered) - (low + high) / 2).mean() / len(ordered))


def measure(name: str, seed: int) -> dict[str, Any]:
    """One split of a table."""
    X, y = TABLES[name](return_X_y=True)
    X_train, X_test, y_train, _ = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
    common: dict[str, Any] = {"random_state": seed, "device": "cpu", "verbose": False}
    clf = DWACClassifier(**common).fit(X_train, y_train)
    paper = DWACClassifier(nonconformity="weights", cross_fit=False, **common).fit(X_train, y_train)
    usual, before = clf.conformal(X_test).typicality, paper.conformal(X_test).credibility
    assert usual is not None
    found: dict[str, Any] = {"table": name, "atypical": float((usual <= 0.05).mean())}
    for title, change in STRANGE.items():
        strange = change(X_test, X_train.std(axis=0), np.random.default_rng(seed))
        found[title] = auroc(usual, np.asarray(clf.conformal(strange).typicality))
        found[f"{title}, credibility by weights"] = auroc(before, paper.conformal(strange).credibility)
    return found


def main() -> None:
    """Measure all tables and write the record: means over the seeds."""
    warnings.simplefilter("ignore")
    rows = [record.part(f"{name}, {seed}", partial(measure, name, seed)) for name in TABLES for seed in range(SEEDS)]
    table = pd.DataFrame(rows).groupby("table", sort=False).mean().reset_index()
    claim = "AUROC of typicality, and of credibility by weights, for test rows that were made strange."
    record.write("strangers", claim, {"seeds": SEEDS, "test share": 0.3}, table)


if __name__ == "__main__":
    main()
