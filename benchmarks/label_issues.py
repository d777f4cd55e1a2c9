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

    python -m benchmarks.label_issues votes adult covertype digits fashion_mnist stackoverflow subjectivity --to votes
    python -m benchmarks.label_issues judge --votes votes        # needs cleanlab
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
from dwac import datasets
from dwac.estimator.out_of_fold import out_of_fold_votes
from dwac.estimator.preparation import take

NAMES = ("adult", "covertype", "digits", "fashion_mnist", "stackoverflow", "subjectivity")
ROWS, FOLDS, RATE = 10_000, 5, 0.08
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def load(name: str) -> tuple[Any, Ints]:
    """At most `ROWS` rows of the training part, at random."""
    if name == "digits":
        digits = load_digits()
        return digits.images, digits.target
    data = datasets.load(name)
    X = list(data.X_train) if isinstance(data.X_train, tuple) else data.X_train
    rows = np.random.default_rng(0).permutation(len(data.y_train))[:ROWS]
    return take(X, rows), data.y_train[rows]


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
        noisy, _ = flipped(y, rate, seed)
        started = time.perf_counter()
        votes = out_of_fold_votes(dwac.DWACClassifier(random_state=seed), X, noisy, FOLDS)
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
