"""Claim: flipped labels are found as well as cleanlab finds them, and where none is flipped, few are flagged.

8 % of the labels are flipped, each to another class at random, in two tables, two sets of images and two of texts.
Every label is judged by a classifier trained on the other four of five folds (`estimator.out_of_fold_votes`), so that
none has seen it. Rankings and rules, in the same run:

- ours: `report.label_noise`, with its own count;
- cleanlab on the same out-of-fold probabilities: `find_label_issues` with its defaults, and its two scores;
- cleanlab on five-fold logistic regression of TF-IDF (texts), pixels or one-hot columns.

Precision and recall are given at each rule's own count, and at our count for all of them. With no label flipped, the
share that each rule flags is given. Not all of that is wrong: these datasets have wrong labels of their own.

The rule was chosen on other data (docs/decisions/0019-label-issues.md). Out-of-fold votes take long without a GPU, so
the first step may run elsewhere:

    python -m benchmarks.label_issues votes
    python -m benchmarks.label_issues judge        # needs cleanlab
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import dwac
from benchmarks import record
from dwac.estimator.out_of_fold import out_of_fold_votes
from dwac.estimator.preparation import take
from dwac.report.wrong_labels import label_noise
from reproduction import datasets

NAMES = ("adult", "covertype", "digits", "fashion_mnist", "stackoverflow", "subjectivity")
FOLDS, RATE, MOST = 5, 0.08, 5_000
ROWS = {"fashion_mnist": 3000}  # fewer, and a small network: computed on one CPU core
SETTINGS: dict[str, dict[str, Any]] = {"fashion_mnist": {"encoder": "image:paper", "epochs": 10}}
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def load(name: str, rows: slice | None = None) -> tuple[Any, Ints]:
    """Rows of the training part in random order: by default the first `MOST`, or as `ROWS` says."""
    if name == "digits":
        digits = load_digits()
        return digits.images, digits.target
    data = datasets.load(name)
    X = list(data.X_train) if isinstance(data.X_train, tuple) else data.X_train
    order = np.random.default_rng(0).permutation(len(data.y_train))
    chosen = order[rows or slice(ROWS.get(name, MOST))]
    return take(X, chosen), data.y_train[chosen]


def flipped(y: Ints, rate: float, seed: int) -> tuple[Ints, NDArray[np.bool_]]:
    """Labels of which a share is changed, each to another class at random; and which."""
    rng, n_classes = np.random.default_rng(seed), int(y.max()) + 1
    chosen = rng.permutation(len(y))[: round(rate * len(y))]
    noisy = y.copy()
    noisy[chosen] = (y[chosen] + rng.integers(1, n_classes, len(chosen))) % n_classes
    return noisy, noisy != y


def save_votes(name: str, X: Any, y: Ints, folder: Path, seed: int) -> None:
    """Out-of-fold votes with and without flipped labels, as log-probabilities."""
    folder.mkdir(parents=True, exist_ok=True)
    for rate in (RATE, 0.0):
        if _file(folder, name, rate, seed).exists():
            continue
        noisy, _ = flipped(y, rate, seed)
        started = time.perf_counter()
        clf = dwac.DWACClassifier(random_state=seed, **SETTINGS.get(name, {}))
        votes = out_of_fold_votes(clf, X, noisy, FOLDS)
        log_p = votes - np.logaddexp.reduce(votes, axis=1, keepdims=True)
        seconds = time.perf_counter() - started
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else record.processor()
        np.savez_compressed(
            _file(folder, name, rate, seed), log_p=log_p.astype(np.float32), seconds=seconds, device=device
        )
        found = float(np.mean(votes.argmax(axis=1) == y))
        print(f"{name} rate {rate} seed {seed}: accuracy {found:.4f}, {seconds:.0f} s on {device}", flush=True)


def _file(folder: Path, name: str, rate: float, seed: int) -> Path:
    return folder / f"{name}-{rate}-{seed}.npz"


# Rules: from log-probabilities and labels, the rows flagged and a ranking of all rows


def ours(log_p: Floats, y: Ints) -> tuple[Ints, Ints]:
    """`report.label_noise`; those it does not flag come after, by the probability of their label."""
    flagged = label_noise(log_p, y).issues
    order = np.argsort(_own(log_p, y), kind="stable")
    return flagged, np.concatenate([flagged, order[~np.isin(order, flagged)]])


def cleanlab(log_p: Floats, y: Ints, score: str) -> tuple[Ints, Ints]:
    """cleanlab's flags, and its ranking by a score of each label's quality, lowest first."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    p = np.exp(log_p)
    p /= p.sum(axis=1, keepdims=True)
    flagged = find_label_issues(y, p, n_jobs=1)
    return np.flatnonzero(flagged), np.argsort(get_label_quality_scores(y, p, method=score), kind="stable")


def outvoted(log_p: Floats, y: Ints) -> tuple[Ints, Ints]:
    """What was done before: every label that is not the most probable one, by its log odds."""
    odds = log_p.max(axis=1) - _own(log_p, y)
    return np.flatnonzero(odds > 0), np.argsort(-odds, kind="stable")


def _own(log_p: Floats, y: Ints) -> Floats:
    return np.asarray(log_p[np.arange(len(y)), y])


def plain_features(X: Any) -> Any:
    """A transformer to TF-IDF of texts, one-hot columns of a table, or standardised pixels."""
    if isinstance(X, pd.DataFrame):
        numbers = X.select_dtypes("number").columns.tolist()
        others = [name for name in X.columns if name not in numbers]
        return make_column_transformer(
            (StandardScaler(), numbers), (OneHotEncoder(handle_unknown="ignore"), others), sparse_threshold=0.0
        )
    return StandardScaler() if isinstance(X, np.ndarray) else TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))


def logistic_regression(X: Any, y: Ints) -> Floats:
    """Out-of-fold log-probabilities of plain features and a logistic regression."""
    model = make_pipeline(plain_features(X), LogisticRegression(max_iter=1000))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    p = cross_val_predict(
        model, X.reshape(len(X), -1) if isinstance(X, np.ndarray) else X, y, cv=folds, method="predict_proba"
    )
    return np.asarray(np.log(np.maximum(p, 1e-300)))


def found_by(y: Ints, log_p: Floats, peer: Floats) -> dict[str, tuple[Ints, Ints]]:
    """The flags and the ranking of every rule, by our probabilities and by those of logistic regression."""
    return {
        "ours": ours(log_p, y),
        "every outvoted label": outvoted(log_p, y),
        "cleanlab, self-confidence": cleanlab(log_p, y, "self_confidence"),
        "cleanlab, normalized margin": cleanlab(log_p, y, "normalized_margin"),
        "logistic regression and cleanlab": cleanlab(peer, y, "self_confidence"),
        "logistic regression and our rule": ours(peer, y),
    }


def judge(name: str, X: Any, y: Ints, peer: Floats, folder: Path, seed: int) -> list[dict[str, Any]]:
    """One row for each rule. peer: the probabilities of logistic regression if no label is flipped."""
    log_p = {rate: np.load(_file(folder, name, rate, seed))["log_p"].astype(np.float64) for rate in (RATE, 0.0)}
    noisy, bad = flipped(y, RATE, seed)
    flipping = found_by(noisy, log_p[RATE], logistic_regression(X, noisy))
    clean = found_by(y, log_p[0.0], peer)
    n, rows = len(flipping["ours"][0]), []
    for rule, (flagged, order) in flipping.items():
        found, at_ours = bad[flagged], bad[order[:n]]
        rows.append(
            {
                "dataset": name,
                "rule": rule,
                "rows": len(y),
                "flipped": int(bad.sum()),
                "flagged": len(flagged),
                "precision": float(found.mean()) if len(flagged) else np.nan,
                "recall": float(found.sum() / bad.sum()),
                "precision at our count": float(at_ours.mean()) if n else np.nan,
                "recall at our count": float(at_ours.sum() / bad.sum()),
                "flagged if none is flipped": len(clean[rule][0]) / len(y),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("votes", "judge"))
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--votes", type=Path, default=Path("votes"), help="the folder of votes, written and read")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    options = parser.parse_args()
    rows = []
    for name in options.names or NAMES:
        X, y = load(name)
        peer = logistic_regression(X, y) if options.step == "judge" else np.zeros(0)
        for seed in options.seeds:
            if options.step == "votes":
                save_votes(name, X, y, options.votes, seed)
            elif _file(options.votes, name, 0.0, seed).exists():
                rows += judge(name, X, y, peer, options.votes, seed)
    if options.step == "judge":
        write(rows, options.votes)


def write(rows: list[dict[str, Any]], folder: Path) -> None:
    """The record: means over the seeds that each dataset has."""
    import cleanlab

    table = pd.DataFrame(rows).groupby(["dataset", "rule"], sort=False)
    means = table.mean().round(4).assign(seeds=table.size()).reset_index()
    means = means.astype({"rows": int, "flipped": int, "flagged": int})
    stored = [np.load(path) for path in sorted(folder.glob("*.npz"))]
    config = {
        "flipped": RATE,
        "folds": FOLDS,
        "votes computed on": sorted({str(votes["device"]) for votes in stored}),
        "cleanlab": cleanlab.__version__,
        "settings that are not the defaults": {name: str(settings) for name, settings in SETTINGS.items()},
    }
    claim = (
        "Flipped labels are found as well as by cleanlab on the same out-of-fold probabilities, and as by logistic "
        "regression; where none is flipped, few are flagged. Precision and recall of flipped labels, each rule at its "
        "own count and at ours."
    )
    record.write("label_issues", claim, config, means)


if __name__ == "__main__":
    main()
