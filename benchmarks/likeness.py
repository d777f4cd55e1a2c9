"""Claim: the members shown of a group look like the query: nearer in the input than 95 % of their group.

A classifier is trained, its voters are divided into groups within each class (k-means of their embeddings), and for
test rows the members of the row's group are shown that are nearest by `Encoder.input_distances`. They are judged by
other measures of the input. For tables: the number of columns that agree (the same category, or the same tenth of the
numbers), and the Manhattan distance of standardised numbers and one-hot categories. For images: the Manhattan distance
of all pixels. For texts: the shared runs of four characters. Peers in the same run: the heaviest voters of the group,
members at random, and those that the judge itself would choose, which no other choice can beat.

    python -m benchmarks.likeness wine breast_cancer digits adult stackoverflow
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split

import dwac
from benchmarks import record
from dwac.estimator.preparation import take
from reproduction import datasets

NAMES = ("wine", "breast_cancer", "digits", "adult", "stackoverflow")
SHOWN, QUERIES, MEMBERS = 3, 200, 2000
RESULT = ("dataset", "judge", "shown", "nearer than (median)", "(mean)", "members in the group", "ms per query")
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Judge = Callable[[int, Ints], Any]


def parts(name: str) -> tuple[Any, Any, Any, Any]:
    """Training and test rows."""
    if name in ("wine", "breast_cancer"):
        X, y = {"wine": load_wine, "breast_cancer": load_breast_cancer}[name](return_X_y=True, as_frame=True)
        return _ordered(train_test_split(X, y.to_numpy(), test_size=0.3, random_state=0))
    if name == "digits":
        digits = load_digits()
        return _ordered(train_test_split(digits.images, digits.target, test_size=0.3, random_state=0))
    data = datasets.load(name)
    data = data.split(0.2, seed=0) if data.X_test is None else data
    return data.X_train, data.y_train, data.X_test, data.y_test


def _ordered(four: list[Any]) -> tuple[Any, Any, Any, Any]:
    x, x_test, y, y_test = four
    return x, y, x_test, y_test


def judges(X: Any, X_test: Any) -> dict[str, Judge]:
    """By name: how far rows of X are from a row of X_test, by measures that no encoder uses."""
    if isinstance(X, pd.DataFrame):
        agree: list[Any] = []
        apart: list[Any] = []
        for name in X.columns:
            train, test, numeric = X[name], X_test[name], pd.api.types.is_numeric_dtype(X[name])
            if not numeric:
                differs = [values.astype(str).to_numpy() for values in (train, test)]
                agree.append(differs)
                apart.append((differs, None))
                continue
            edges = np.quantile(train, np.linspace(0, 1, 11)[1:-1])
            agree.append([np.searchsorted(edges, values) for values in (train, test)])
            apart.append(([values.to_numpy(float) for values in (train, test)], float(train.std()) or 1.0))
        return {
            "columns that differ": lambda query, rows: np.mean([a[rows] != b[query] for a, b in agree], axis=0),
            "Manhattan": lambda query, rows: np.mean(
                [2 * (a[rows] != b[query]) if sd is None else np.abs(a[rows] - b[query]) / sd for (a, b), sd in apart],
                axis=0,
            ),
        }
    if isinstance(X, np.ndarray):
        return {"pixels": lambda query, rows: np.abs(X[rows].astype(float) - X_test[query]).mean(axis=(1, 2))}
    runs = {text: {text.lower()[i : i + 4] for i in range(len(text) - 3)} for text in [*X, *X_test]}

    def shared(query: int, rows: Ints) -> Floats:
        mine = runs[X_test[query]]
        return np.array([1 - len(mine & runs[X[row]]) / max(len(mine | runs[X[row]]), 1) for row in rows])

    return {"runs of characters": shared}


def groups(h: Floats, labels: Ints) -> tuple[Ints, list[MiniBatchKMeans], list[int]]:
    """The group of each voter: k-means within each class, of some 500 members each, at least one group per class."""
    codes = np.zeros(len(h), dtype=np.int64)
    means: list[MiniBatchKMeans] = []
    starts: list[int] = []
    for label in range(labels.max() + 1):
        inside = labels == label
        starts.append(sum(m.n_clusters for m in means))
        means.append(MiniBatchKMeans(max(int(inside.sum()) // 500, 1), n_init=1, random_state=0).fit(h[inside]))
        codes[inside] = starts[-1] + means[-1].labels_
    return codes, means, starts


def measure(name: str, seed: int, epochs: int | None) -> list[dict[str, Any]]:
    """One row for each way to choose the members shown."""
    X, y, X_test, _ = parts(name)
    X, X_test = (list(x) if isinstance(x, tuple | pd.Series) else x for x in (X, X_test))
    settings: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    clf = dwac.DWACClassifier(random_state=seed, **settings).fit(X, y, ids=range(len(y)))
    rows_of = np.asarray(clf.references_.ids, dtype=np.int64)
    h, labels = clf.references_.embeddings.double().cpu().numpy(), clf.references_.labels.cpu().numpy()
    codes, means, starts = groups(h, labels)
    queries = np.arange(min(QUERIES, len(X_test)))
    queried = take(X_test, queries)
    h_test, predicted = np.asarray(clf.embed(queried), dtype=np.float64), clf.predict_proba(queried).argmax(axis=1)
    rng, by = np.random.default_rng(seed), judges(X, X_test)
    rows: list[dict[str, Any]] = []
    for query in queries.tolist():
        group = starts[predicted[query]] + int(means[predicted[query]].predict(h_test[[query]])[0])
        members = np.flatnonzero(codes == group)
        members = rng.choice(members, min(len(members), MEMBERS), replace=False)
        started = time.process_time()
        distances = clf.encoder_.input_distances(take(X_test, np.array([query])), take(X, rows_of[members]))
        chosen = {"most alike": np.argsort(distances, kind="stable")[:SHOWN]}
        seconds = time.process_time() - started
        chosen["heaviest"] = np.square(h[members] - h_test[query]).sum(axis=1).argsort()[:SHOWN]
        chosen["at random"] = rng.integers(len(members), size=SHOWN)
        for measure_name, judge in by.items():
            d = np.asarray(judge(query, rows_of[members]), dtype=np.float64)
            for way, places in {**chosen, "judge's own": d.argsort()[:SHOWN]}.items():
                share = [(d > d[place]).mean() + (d == d[place]).mean() / 2 for place in places]  # ties count half
                here = {"dataset": name, "judge": measure_name, "shown": way, "nearer than": float(np.mean(share))}
                rows.append({**here, "members": len(members), "ms": 1000 * seconds})
    table = pd.DataFrame(rows).groupby(["dataset", "judge", "shown"], sort=False)
    columns = {"median": ("nearer than", "median"), "mean": ("nearer than", "mean")}
    middle = table.agg(**columns, members=("members", "median"), ms=("ms", "median"))
    return [dict(zip(RESULT, row, strict=True)) for row in middle.reset_index().itertuples(index=False, name=None)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=None)
    options = parser.parse_args()
    rows = [row for name in options.names for row in measure(name, options.seed, options.epochs)]
    claim = "The members shown of a group look like the query: the share of their group that is farther from it."
    config = {"seed": options.seed, "epochs": options.epochs or "default", "shown": SHOWN, "queries": QUERIES}
    record.write("likeness", claim, config, pd.DataFrame(rows))


if __name__ == "__main__":
    main()
