"""Claim: micro F1 and Hamming loss on several labels are at least those of the best peer, on emotions, yeast and scene.

Mulan's files (FOLDER/multilabel). 20 % of the rows are for testing, always the same; two seeds. Peers in the same run:
a random forest, our network with a logistic output for each label (the twin), ML-kNN, and chains of logistic
regressions. The settings of each but the twin are the best, by micro F1, on a fifth of the training rows; it is then
fitted to all of these. `missed`: the share of a row's labels that sets at α = 0.1 miss. `wrong`: the share of wrong
decisions at ε = 0.1 among those who have a label, or who have it not, whichever is larger.

    python -m benchmarks.several_labels --data FOLDER
"""

from __future__ import annotations

import argparse
import gzip
import io
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.io import arff
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, hamming_loss
from sklearn.multioutput import ClassifierChain
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import record
from dwac import DWACClassifier
from dwac.metrics import decision_shares, missed_share
from reproduction.twin import Twin

Floats = NDArray[np.float64]
LABELS = {"emotions": 6, "yeast": 14, "scene": 6}
SEEDS, TEST, ALPHA = 2, 0.2, 0.1
OURS, TWIN = "DWACClassifier", "twin, logistic"


class MLkNN(BaseEstimator):  # type: ignore[misc]
    """ML-kNN (Zhang and Zhou 2007): for each label, how many of the k nearest neighbours have it, by Bayes' rule."""

    def __init__(self, k: int) -> None:
        self.k = k

    def fit(self, X: Floats, Y: Floats) -> MLkNN:
        """Count, for rows with and without each label, how many of their neighbours have it; smoothed by 1."""
        self.near_, self.Y_ = NearestNeighbors(n_neighbors=self.k + 1).fit(X), Y
        own = self.near_.kneighbors(X, return_distance=False)[:, 1:]
        counts = Y[own].sum(axis=1).astype(int)
        self.prior_ = (1 + Y.sum(axis=0)) / (2 + len(Y))
        grid = np.arange(self.k + 1)
        self.has_, self.lacks_ = (
            np.stack([(1 + ((counts == c) & rows).sum(axis=0)) / (self.k + 1 + rows.sum(axis=0)) for c in grid])
            for rows in (Y > 0, Y == 0)
        )
        return self

    def predict(self, X: Floats) -> NDArray[np.int64]:
        """(n, L) of 0 and 1."""
        near = self.near_.kneighbors(X, n_neighbors=self.k, return_distance=False)
        counts, columns = self.Y_[near].sum(axis=1).astype(int), np.arange(self.Y_.shape[1])
        yes = self.prior_ * self.has_[counts, columns]
        return np.asarray(yes > (1 - self.prior_) * self.lacks_[counts, columns]).astype(np.int64)


def table(folder: Path, name: str) -> tuple[pd.DataFrame, Floats, NDArray[np.bool_]]:
    """Columns, labels (n, L) of 0 and 1, and which rows are for testing."""
    with gzip.open(folder / "multilabel" / f"{name}.arff.gz", "rt") as file:
        frame = pd.DataFrame(arff.loadarff(io.StringIO(file.read()))[0])
    n = LABELS[name]
    Y = frame.iloc[:, -n:].map(lambda value: float(value)).to_numpy(np.float64)
    X = frame.iloc[:, :-n].astype(np.float64)
    return X, Y, np.asarray(np.random.RandomState(19).permutation(len(X)) < TEST * len(X))


def peers(seed: int) -> dict[str, list[Any]]:
    """Each peer with each of its settings, not yet fitted."""

    def chain(c: float) -> Any:
        links = ClassifierChain(LogisticRegression(C=c, max_iter=2000), order="random", random_state=seed)
        return make_pipeline(StandardScaler(), links)

    return {
        "random forest": [
            RandomForestClassifier(500, min_samples_leaf=leaf, max_features=some, random_state=seed)
            for leaf in (1, 3)
            for some in ("sqrt", 0.3)
        ],
        "ML-kNN": [make_pipeline(StandardScaler(), MLkNN(k)) for k in (6, 10, 16, 24)],
        "chain of logistic regressions": [chain(c) for c in (0.01, 0.1, 1.0)],
    }


def judged(truth: Floats, predicted: Any) -> dict[str, float]:
    """How good predictions are."""
    predicted = np.asarray(predicted)
    return {
        "micro F1": f1_score(truth, predicted, average="micro", zero_division=0),
        "macro F1": f1_score(truth, predicted, average="macro", zero_division=0),
        "Hamming loss": hamming_loss(truth, predicted),
        "all right": accuracy_score(truth, predicted),
    }


def chosen_of(settings: list[Any], X: Floats, Y: Floats, seed: int) -> Any:
    """The best of a peer's settings on a fifth of the rows, fitted to all."""
    watch = np.random.RandomState(seed).permutation(len(X)) < 0.2 * len(X)
    scores = [judged(Y[watch], model.fit(X[~watch], Y[~watch]).predict(X[watch]))["micro F1"] for model in settings]
    return settings[int(np.argmax(scores))].fit(X, Y)


def measure(folder: Path, name: str, seed: int, model: str) -> dict[str, Any]:
    """One model with one seed."""
    return dict(record.part(f"{name}, {model}, {seed}", lambda: _measure(folder, name, seed, model)))


def _measure(folder: Path, name: str, seed: int, model: str) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    X, Y, test = table(folder, name)
    train, target, held, truth = X[~test].reset_index(drop=True), Y[~test], X[test], Y[test]
    found, start = {}, time.perf_counter()
    if model == OURS:
        fitted: Any = DWACClassifier(random_state=seed, device="cpu").fit(train, target)
        found["missed"] = missed_share(truth, fitted.predict_set(held, ALPHA))
        found["wrong"] = float(np.max(decision_shares(truth, fitted.conformal(held).decisions(ALPHA))[:2]))
    elif model == TWIN:
        fitted = Twin(random_state=seed, device="cpu").fit(train, target, task="labels")
    else:
        fitted = chosen_of(peers(seed)[model], train.to_numpy(), target, seed)
    asked = held if model in (OURS, TWIN) else held.to_numpy()
    found = judged(truth, fitted.predict(asked)) | found
    return {"data": name, "model": model, "seed": seed, **found, "seconds": time.perf_counter() - start}


def measured(folder: Path, seeds: int, processes: int) -> pd.DataFrame:
    """All models with all seeds; those that take longest first."""
    models = sorted((OURS, TWIN, *peers(0)), key=lambda model: model != "random forest")
    jobs = [(name, seed, model) for model in models for name in LABELS for seed in range(seeds)]
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        rows = [done.result() for done in as_completed([pool.submit(measure, folder, *job) for job in jobs])]
    order = {name: place for place, name in enumerate((*LABELS, OURS, TWIN, *peers(0)))}
    rows.sort(key=lambda row: "missed" not in row)  # ours has the most columns
    return pd.DataFrame(rows).sort_values(
        ["data", "model", "seed"], key=lambda column: column.map(lambda value: order.get(value, value))
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.several_labels")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--processes", type=int, default=1, help="how many models are fitted at the same time")
    chosen = parser.parse_args()
    rows = measured(chosen.data, chosen.seeds, chosen.processes)
    by_model = rows.groupby(["data", "model"], sort=False)
    means = by_model.mean().drop(columns="seed").assign(seeds=by_model.size()).reset_index()
    verdicts = []
    for _, row in means.iterrows():
        others = means[(means["data"] == row["data"]) & (means["model"] != OURS)]
        f1, hamming = row["micro F1"] >= others["micro F1"].max(), row["Hamming loss"] <= others["Hamming loss"].min()
        said = f"micro F1 {'met' if f1 else 'missed'}, Hamming loss {'met' if hamming else 'missed'}"
        verdicts.append(said if row["model"] == OURS else "")
    means["verdict"] = verdicts
    config: dict[str, Any] = {"seeds": chosen.seeds, "test share": TEST, "alpha": ALPHA}
    frame = means.astype(object).where(means.notna(), "")
    record.write("several_labels", (__doc__ or "").split("\n")[0], config, frame)


if __name__ == "__main__":
    main()
