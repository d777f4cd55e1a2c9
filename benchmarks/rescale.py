"""Claim: one factor on the embeddings, fitted to validation rows, makes probabilities better calibrated on test rows.

Training uses a batch of voters; prediction uses all of them. The same trained weights are evaluated on test rows, as
trained and with the factor that `dwac.training.validation.fit_scale` folds into the embedding layer.

    python -m benchmarks.rescale adult stackoverflow digits --seeds 0 1 2
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import dwac
from benchmarks import record
from dwac import metrics
from dwac.training.validation import fit_scale
from reproduction import datasets
from reproduction.twin import Twin

NAMES = ("adult", "stackoverflow", "digits")


def parts(name: str) -> tuple[Any, Any, Any, Any]:
    """Training and test rows."""
    if name == "digits":
        digits = load_digits()
        x, x_test, y, y_test = train_test_split(digits.images, digits.target, test_size=0.3, random_state=0)
        return x, y, x_test, y_test
    data = datasets.load(name)
    data = data.split(0.2, seed=0) if data.X_test is None else data
    return data.X_train, data.y_train, data.X_test, data.y_test


def judged(clf: dwac.DWACClassifier | Twin, x: Any, y: Any) -> dict[str, float]:
    p = clf.predict_proba(x)
    log_p = np.log(np.maximum(p, 1e-300))
    return {
        "accuracy": metrics.accuracy(y, p.argmax(axis=1)),
        "log-loss": metrics.log_loss(y, log_p),
        "calibration error": metrics.calibration_error(y, p),
    }


def measure(name: str, head: str, seed: int) -> list[dict[str, Any]]:
    """One row before rescaling and one row after."""
    x, y, x_test, y_test = parts(name)
    x = x.reset_index(drop=True) if isinstance(x, pd.DataFrame) else x  # rows are named by their numbers
    plain = dwac.Training(rescale=False)
    twin = Twin(random_state=seed, rescale=False)
    model = dwac.DWACClassifier(random_state=seed, training=plain) if head == "dwac" else twin
    clf = model.fit(x, y)
    rows = [{"dataset": name, "head": head, "scale": "as trained", "factor": 1.0, **judged(clf, x_test, y_test)}]
    held = clf.validation_ids_.to_numpy(dtype=np.int64)
    x_held = x.iloc[held] if isinstance(x, pd.DataFrame) else [x[i] for i in held] if isinstance(x, list) else x[held]
    factor = fit_scale(clf.model_, clf.encoder_.transform(x_held), torch.as_tensor(np.asarray(y)[held]))
    rows.append({"dataset": name, "head": head, "scale": "fitted", "factor": factor, **judged(clf, x_test, y_test)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rescale")
    parser.add_argument("datasets", nargs="*", default=list(NAMES), metavar="DATASET", help=", ".join(NAMES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    chosen = parser.parse_args()
    rows = []
    for name in chosen.datasets:
        for head in ("dwac", "softmax"):
            for seed in chosen.seeds:
                rows += measure(name, head, seed)
                print(rows[-2], rows[-1], sep="\n", flush=True)
    table = pd.DataFrame(rows).groupby(["dataset", "head", "scale"], sort=False).mean().reset_index()
    record.write("rescale", (__doc__ or "").split("\n")[0], {"seeds": chosen.seeds}, table)


if __name__ == "__main__":
    main()
