"""Claim: training a DWAC costs at most 1.10 times its softmax twin with the default encoders, 1.3 with the paper's MLP.

Both heads are trained by the same loop on the same rows, alternately, and compared by their median epoch (including
validation) and by the whole fit. On a GPU the paper's models must also take at most an eighth of the research code's
time per epoch, measured on the same kind of GPU, an H200, with its own defaults: Covertype 17 s, Fashion-MNIST 14 s.
Numbers and several labels, against the same network with a squared-error or a logistic output, cost at most 1.15
(FOLDER/regression and FOLDER/multilabel, as for `benchmarks.numbers`).

    python -m benchmarks.training_cost --data FOLDER               # all rows on a GPU, some of them on a CPU
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import dwac
from benchmarks import numbers, record, several_labels
from dwac.estimator.settings import parameters
from reproduction import datasets
from reproduction.twin import Twin

RESEARCH_CODE = {"covertype": 17.0, "fashion_mnist": 14.0}  # seconds per epoch of its DWAC on an H200
MOST = {  # dataset, encoder → largest allowed cost of DWAC relative to its twin
    ("covertype", "tabular"): 1.10,
    ("covertype", "tabular:paper"): 1.30,
    ("fashion_mnist", "image"): 1.10,
    ("fashion_mnist", "image:paper"): 1.30,
}
CPU_ROWS = {"covertype": 60_000, "fashion_mnist": 3_000}
HEADS = ("dwac", "softmax")
OTHERS = {"california_housing": 1.15, "diamonds": 1.15, "yeast": 1.15, "scene": 1.15}  # numbers, and several labels


def load(name: str, rows: int | None) -> tuple[Any, Any]:
    """Training rows: all of them, or the first ones of a seeded shuffle."""
    data = datasets.load(name)
    X, y = data.X_train, data.y_train
    chosen = np.sort(np.random.default_rng(0).permutation(len(y))[:rows])
    return (X.iloc[chosen] if isinstance(X, pd.DataFrame) else X[chosen]), y[chosen]


def measure(X: Any, y: Any, encoder: str, head: str, device: str, epochs: int) -> dict[str, float]:
    """Seconds of the median epoch after the first, and of the whole fit."""
    settings = {"epochs": epochs, "patience": epochs, "random_state": 0, "device": device}
    model = dwac.DWACClassifier(encoder, **parameters(settings)) if head == "dwac" else Twin(encoder, **settings)
    start = time.perf_counter()
    model.fit(X, y)
    return {"epoch": float(model.history_["seconds"][1:].median()), "fit": time.perf_counter() - start}


def load_other(folder: Path, name: str) -> tuple[Any, Any]:
    """The training rows of a table with numbers or several labels."""
    X, y, test = (numbers if name in numbers.TABLES else several_labels).table(folder, name)
    return X[~test], y[~test]


def measure_other(X: Any, y: Any, name: str, head: str, device: str, epochs: int) -> dict[str, float]:
    """The same for numbers and several labels."""
    kind: Any = dwac.DWACRegressor if name in numbers.TABLES else dwac.DWACClassifier
    task = "numbers" if name in numbers.TABLES else "labels"
    settings = {"epochs": epochs, "patience": epochs, "random_state": 0, "device": device}
    model = kind(**parameters(settings)) if head == "dwac" else Twin(**settings)
    start = time.perf_counter()
    model.fit(X, y, **({} if head == "dwac" else {"task": task}))
    return {"epoch": float(model.history_["seconds"][1:].median()), "fit": time.perf_counter() - start}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training_cost")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--data", type=Path, required=True, help="the folder of tables with numbers and several labels")
    parser.add_argument("--only", default="", help="measure only those whose DATASET ENCODER contains this text")
    chosen = parser.parse_args()
    gpu = chosen.device.startswith("cuda")
    rows = []
    for (name, encoder), most in (MOST | {(name, "tabular"): most for name, most in OTHERS.items()}).items():
        if chosen.only not in f"{name} {encoder}":
            continue
        X, y = load(name, None if gpu else CPU_ROWS[name]) if name not in OTHERS else load_other(chosen.data, name)
        taken: dict[str, list[dict[str, float]]] = {head: [] for head in HEADS}
        for _ in range(chosen.turns):
            for head in HEADS:
                if name in OTHERS:
                    taken[head].append(measure_other(X, y, name, head, chosen.device, chosen.epochs))
                else:
                    taken[head].append(measure(X, y, encoder, head, chosen.device, chosen.epochs))
                print(name, encoder, head, taken[head][-1], flush=True)
        best = {head: {part: min(turn[part] for turn in turns) for part in turns[0]} for head, turns in taken.items()}
        ratio = best["dwac"]["epoch"] / best["softmax"]["epoch"]
        row = {
            "dataset": name,
            "encoder": encoder,
            "rows": len(y),
            "dwac s/epoch": best["dwac"]["epoch"],
            "softmax s/epoch": best["softmax"]["epoch"],
            "ratio": ratio,
            "at most": most,
            "verdict": "met" if ratio <= most else "missed",
            "ratio of whole fits": best["dwac"]["fit"] / best["softmax"]["fit"],
        }
        if gpu and name not in OTHERS:
            share = RESEARCH_CODE[name] / best["dwac"]["epoch"] if encoder.endswith("paper") else np.nan
            row["times faster than the research code"] = share
            row["at least"] = 8.0 if encoder.endswith("paper") else np.nan
        rows.append(row)
    config = {"device": chosen.device, "epochs": chosen.epochs, "turns": chosen.turns}
    record.write(f"training_cost_{'gpu' if gpu else 'cpu'}", (__doc__ or "").split("\n")[0], config, pd.DataFrame(rows))


if __name__ == "__main__":
    main()
