"""Claim: where labels are wrong, removing examples of least worth helps, and of most worth harms more than random.

Training rows are ordered by what they are worth; of each class the same share is removed, the least worthy first; and
accuracy and log-loss are measured on test rows (a) with the network as it was, voters removed, and (b) with the network
trained again on what is left. With (a) the most worthy are removed first, too. Two tables, images and texts; as they
are, and with a fifth of all labels flipped, in training and validation rows alike. Validation rows judge, test rows
decide nothing. Orders:

- worth: Shapley values of `clf.worth`, for the probability of the true label; and its leave-one-out;
- KNN-Shapley (Jia et al. 2019, 5 neighbours) on standardised columns, pixels or TF-IDF, and on the embeddings of the
  same network. By the recursion of benchmarks/worth.py; `--check` compares it with pyDVL, where that is installed;
- self-confidence, cleanlab's order: the probability of the own label out of fold, from five networks;
- random.

An example's worth depends much on its class, so that a class may vanish if it is ordered without regard to classes.
Seen so for all values in a trial with seed 7, after which classes were kept in balance.

Nothing else was chosen: settings are the defaults, but for the number of epochs of texts.

    python -m benchmarks.worth_curves --jobs 16
    python -m benchmarks.worth_curves --check          # needs pyDVL
"""

from __future__ import annotations

import argparse
import multiprocessing
import warnings
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks import label_issues, record
from benchmarks.worth import NEIGHBORS, of_neighbors
from dwac import DWACClassifier
from dwac.errors import LabelError
from dwac.estimator.out_of_fold import out_of_fold_votes
from dwac.estimator.preparation import take

NAMES = ("adult", "covertype", "digits", "subjectivity")
RATES, SEEDS = (0.0, 0.2), (0, 1, 2)
ROWS, JUDGES, TEST = 300, 200, 800
SETTINGS: dict[str, dict[str, Any]] = {"subjectivity": {"epochs": 8, "calibration_size": 0}}
STEPS, RETRAINED = (0.1, 0.2, 0.3, 0.4, 0.5), (0.1, 0.3, 0.5)
LEAST, MOST = "least worthy removed", "most worthy removed"
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Data(NamedTuple):
    """Rows that train, that judge, and that test, with labels as numbers from 0 on."""

    X: Any
    y: Ints
    judges: Any
    y_judges: Ints
    test: Any
    y_test: Ints


class Case(NamedTuple):
    """A dataset, the share of labels that are flipped, and the seed of rows, flips and networks."""

    name: str
    rate: float
    seed: int


@lru_cache
def everything(name: str) -> tuple[Any, Ints]:
    """All rows of a dataset; digits as a table of pixels."""
    X, y = label_issues.load(name)
    return X.reshape(len(X), -1) if name == "digits" else X, y


def load(case: Case) -> Data:
    """Rows at random; the same ones whatever the rate."""
    X, y = everything(case.name)
    order = np.random.default_rng(case.seed).permutation(len(y))
    parts = np.split(order[: ROWS + JUDGES + TEST], [ROWS, ROWS + JUDGES])
    noisy = label_issues.flipped(y[order[: ROWS + JUDGES]], case.rate, case.seed)[0]
    train, judges, test = (take(X, part) for part in parts)
    return Data(train, noisy[:ROWS], judges, noisy[ROWS:], test, y[parts[2]])


def classifier(case: Case) -> DWACClassifier:
    return DWACClassifier(random_state=case.seed, device="cpu", verbose=False, **SETTINGS.get(case.name, {}))


def everyone_votes(case: Case, data: Data) -> DWACClassifier:
    """A model of all training rows, in which those that `fit` held out vote as well, by their numbers."""
    clf = classifier(case).fit(data.X, data.y, ids=range(ROWS))
    rest = np.setdiff1d(np.arange(ROWS), clf.references_.ids)
    clf.forget(rest[np.isin(rest, [*clf.validation_ids_, *clf.calibration_ids_])].tolist())
    if len(rest):
        clf.add_references(take(data.X, rest), data.y[rest], ids=rest.tolist())
    return clf


def features(data: Data) -> tuple[torch.Tensor, torch.Tensor]:
    """Standardised columns or pixels, or TF-IDF, of training rows and judges."""
    first: Any = StandardScaler()
    if isinstance(data.X, pd.DataFrame):
        numbers = data.X.select_dtypes("number").columns.tolist()
        others = [name for name in data.X.columns if name not in numbers]
        codes = OneHotEncoder(handle_unknown="ignore")
        first = make_column_transformer((StandardScaler(), numbers), (codes, others), sparse_threshold=0.0)
    elif isinstance(data.X, list):
        first = TfidfVectorizer(sublinear_tf=True)
    found = first.fit_transform(data.X), first.transform(data.judges)
    one, other = (torch.as_tensor(np.asarray(part.todense() if hasattr(part, "todense") else part)) for part in found)
    return one, other


def knn_shapley(points: torch.Tensor, data: Data, judges: torch.Tensor) -> Floats:
    """(n,): the mean over judges of the Shapley values for a vote of the nearest neighbours."""
    near = -torch.cdist(judges.double(), points.double())
    right = (torch.as_tensor(data.y) == torch.as_tensor(data.y_judges)[:, None]).double()
    return of_neighbors(near, right).mean(dim=0).numpy()


def orders(case: Case, data: Data, clf: DWACClassifier) -> dict[str, Floats]:
    """(n,) each: the higher, the more worthy."""
    rows = pd.RangeIndex(ROWS)
    judged = {
        method: clf.worth(data.judges, data.y_judges, method=method)["worth"].loc[rows].to_numpy()
        for method in ("shapley", "leave_one_out")
    }
    h, h_judges = (torch.as_tensor(clf.embed(part)) for part in (data.X, data.judges))
    one, other = features(data)
    votes = out_of_fold_votes(classifier(case), data.X, data.y)
    codes = np.searchsorted(np.unique(data.y), data.y)
    own = votes[np.arange(ROWS), codes] - np.logaddexp.reduce(votes, axis=1)
    found = {
        "worth": judged["shapley"],
        "leave-one-out": judged["leave_one_out"],
        "KNN-Shapley, embeddings": knn_shapley(h, data, h_judges),
        "KNN-Shapley, features": knn_shapley(one, data, other),
        "self-confidence": own,
        "random": np.random.default_rng(case.seed + 1000).random(ROWS),
    }
    return {name: within_classes(values, data.y) for name, values in found.items()}


def within_classes(values: Floats, labels: Ints) -> Floats:
    """(n,): the share of its class that each example is above; of equals, the higher value is higher."""
    frame = pd.DataFrame({"value": values, "label": labels})
    shares = frame.groupby("label")["value"].rank(method="first", pct=True)
    return np.asarray(shares + 1e-6 * frame["value"].rank(pct=True))


def kept(values: Floats, what: str, step: float) -> Ints:
    """The rows that are left."""
    order, n = np.argsort(-values, kind="stable"), round(step * len(values))
    return {LEAST: order[: len(order) - n], MOST: order[n:]}[what]


def judged(p: Floats, classes: NDArray[Any], truths: Ints) -> dict[str, float]:
    """Accuracy and log-loss (probabilities of at least 10⁻⁶) of probabilities (n, K)."""
    own = np.where(classes == truths[:, None], p, 0.0).sum(axis=1)
    return {
        "accuracy": float((classes[p.argmax(axis=1)] == truths).mean()),
        "log-loss": float(-np.log(np.clip(own, 1e-6, 1)).mean()),
    }


def fixed(case: Case) -> tuple[Case, dict[str, Floats], list[dict[str, Any]]]:
    """The orders, and the curves with the network of all rows."""
    found, rows = record.part(f"{case.name}, {case.rate}, {case.seed}", lambda: _fixed(case))
    return case, {name: np.asarray(values) for name, values in found.items()}, rows


def _fixed(case: Case) -> tuple[dict[str, list[float]], list[dict[str, Any]]]:
    quiet()
    data = load(case)
    clf = everyone_votes(case, data)
    found = orders(case, data, clf)
    references = clf.references_
    place = references.voters.ids.get_indexer(pd.RangeIndex(ROWS))
    log_w = np.asarray(references.voters.every_vote(clf.embed(data.test)))[:, place]
    codes = references.labels.numpy()[place]

    def after(rows: Ints) -> dict[str, float]:
        votes = [np.logaddexp.reduce(log_w[:, rows[codes[rows] == k]], axis=1) for k in range(len(clf.classes_))]
        log_p = np.stack(votes, axis=1)
        return judged(np.exp(log_p - np.logaddexp.reduce(log_p, axis=1, keepdims=True)), clf.classes_, data.y_test)

    rows = [line(case, "fixed", "nothing removed", "all", 0.0, after(np.arange(ROWS)))]
    for what, order, step in points(found, STEPS, (LEAST, MOST)):
        rows.append(line(case, "fixed", what, order, step, after(kept(found[order], what, step))))
    return {name: values.tolist() for name, values in found.items()}, rows


def retrained(case: Case, what: str, order: str, step: float, rows: Ints) -> dict[str, Any]:
    """One point of a curve with a network trained on what is left."""
    name = f"{case.name}, {case.rate}, {case.seed}, {what}, {order}, {step}"
    return dict(record.part(name, lambda: _retrained(case, what, order, step, rows)))


def _retrained(case: Case, what: str, order: str, step: float, rows: Ints) -> dict[str, Any]:
    quiet()
    data = load(case)
    try:
        clf = classifier(case).fit(take(data.X, rows), data.y[rows])
        p, classes = clf.predict_proba(data.test), clf.classes_
    except LabelError:  # of one class alone
        classes, counts = np.unique(data.y[rows], return_counts=True)
        p = np.tile(counts / counts.sum(), (len(data.y_test), 1))
    return line(case, "retrained", what, order, step, judged(p, classes, data.y_test))


def points(found: dict[str, Floats], steps: tuple[float, ...], whats: tuple[str, ...]) -> list[tuple[str, str, float]]:
    """What is removed, by which order, and how much of it."""
    return [
        (what, order, step) for order in found for what in whats for step in steps if (what, order) != (MOST, "random")
    ]


def line(case: Case, network: str, what: str, order: str, step: float, found: dict[str, float]) -> dict[str, Any]:
    about = {"dataset": case.name, "flipped": case.rate, "seed": case.seed}
    return about | {"network": network, "what": what, "order": order, "step": step} | found


def quiet() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Means over seeds, one row per curve: the steps side by side."""
    keys = ["dataset", "flipped", "network", "what", "order"]
    points = pd.DataFrame(rows)
    curves = []
    for key, part in points.groupby(keys, sort=False):
        means = part.groupby("step")[["accuracy", "log-loss"]].mean()
        both = part[part["step"].isin([0.0, *RETRAINED])]
        by_seed = both.groupby("seed")[["accuracy", "log-loss"]].mean()
        found: dict[str, Any] = dict(zip(keys, key, strict=True))
        found |= {"mean accuracy": by_seed["accuracy"].mean(), "± s.e.": by_seed["accuracy"].sem()}
        found |= {"mean log-loss": by_seed["log-loss"].mean(), "seeds": len(by_seed)}
        for step in STEPS if key[3] != "nothing removed" else ():
            found |= {f"{name} at {step:.0%}": means[name].get(step, np.nan) for name in means}
        curves.append(found)
    return with_means(pd.DataFrame(curves).sort_values(keys[:3], kind="stable").round(4), keys)


def with_means(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The same, with means over the datasets below; keys: the columns that name a curve, the dataset first."""
    n = table["dataset"].nunique()
    means = table.groupby(keys[1:], sort=False).mean(numeric_only=True).reset_index()
    errors = {name: np.nan for name in map(str, means.columns) if name.startswith("±")}  # are of single datasets
    means = means.assign(dataset=f"mean of {n}", **errors)
    return pd.concat([table, means], ignore_index=True)[table.columns].round(4)


def measure(jobs: int, names: list[str]) -> list[dict[str, Any]]:
    """All points: those of a case's retrained networks begin as soon as its orders are known."""
    rows, waiting = [], []
    cases = [Case(name, rate, seed) for seed in SEEDS for name in reversed(names) for rate in RATES]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for case, found, own in pool.imap_unordered(fixed, cases):
            rows += own
            waiting.append(pool.apply_async(retrained, (case, "nothing removed", "all", 0.0, np.arange(ROWS))))
            for point in points(found, RETRAINED, (LEAST,)):
                left = kept(found[point[1]], point[0], point[2])
                waiting.append(pool.apply_async(retrained, (case, *point, left)))
        return rows + [task.get() for task in waiting]


def check() -> None:
    """Compare the recursion for nearest neighbours with pyDVL's, on a case without ties."""
    pydvl = import_module("pydvl.valuation")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 3)), rng.integers(0, 3, 120)
    train, test = pydvl.Dataset(X[:80], y[:80]), pydvl.Dataset(X[80:], y[80:])
    valuation = pydvl.KNNShapleyValuation(KNeighborsClassifier(NEIGHBORS), test, progress=False).fit(train)
    theirs = np.array([valuation.result.get(row).value for row in range(80)])
    data = Data(X[:80], y[:80], X[80:], y[80:], X[80:], y[80:])
    ours = knn_shapley(torch.as_tensor(X[:80]), data, torch.as_tensor(X[80:]))
    apart = float(np.abs(ours - theirs).max())
    print(f"largest difference from pyDVL: {apart:.2g}, of values up to {np.abs(theirs).max():.2g}")
    assert apart < 1e-10


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="fits side by side, each with one thread")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*", default=NAMES)
    asked = parser.parse_args()
    if asked.check:
        check()
        return
    torch.set_num_threads(1)
    for name in asked.names or NAMES:
        everything(name)  # once, for all processes
    rows = measure(asked.jobs, list(asked.names or NAMES))
    claim = (
        "Curves of accuracy and log-loss on test rows as training examples are removed: the least worthy first, with "
        "the network fixed and trained again; the most worthy first, with the network fixed. Means are over 10, 30 and "
        "50 %."
    )
    config: dict[str, Any] = {"training rows": ROWS, "judging rows": JUDGES, "test rows": TEST, "neighbours": NEIGHBORS}
    config |= {"settings that are not the defaults": str(SETTINGS), "jobs": asked.jobs}
    record.write("worth_curves", claim, config, table(rows))


if __name__ == "__main__":
    main()
