"""Claim: a fit on rows that are read in batches is as good as one in memory, and its memory is bounded.

A generated table in Parquet files, with numbers, categories, gaps and three classes. In one run, each in a process of
its own: a fit in memory on all rows, and a streamed fit on the same files, with the same settings; then the same with
twice the rows, streamed. Measured on other rows: accuracy, log-loss, coverage at ε = .05; and the seconds of the fit,
the peak of memory above that before the fit (anonymous pages: what cannot be read again from a file) and the bytes that
were spooled.

    python -m benchmarks.streaming [--rows 500000] [--epochs 2]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

import dwac
from benchmarks import record
from dwac import metrics

TEST_ROWS = 20_000
NUMBERS = 14
SETTINGS: dict[str, Any] = {
    "training": dwac.Training(embedding_size=16),
    "voters": "auto",
    "random_state": 0,
    "device": "cpu",
    "verbose": False,
}


def table(n: int, seed: int) -> pd.DataFrame:
    """A table whose classes depend on numbers, a category and their interactions."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, NUMBERS))
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(NUMBERS)])
    frame["kind"] = rng.choice(["a", "b", "c", "d"], n)
    frame["place"] = rng.choice([f"p{i}" for i in range(200)], n)
    score = x[:, 0] + np.where(frame["kind"].isin(["a", "b"]), x[:, 1], -x[:, 1]) + np.sin(2 * x[:, 2])
    frame["label"] = np.digitize(score + 0.4 * rng.normal(size=n), [-0.8, 0.8])
    frame.loc[rng.random(n) < 0.05, "x3"] = np.nan
    return frame


def write(folder: Path, rows: int) -> None:
    """Parquet files of 100,000 rows each, in row groups of 25,000."""
    folder.mkdir()
    for number in range(rows // 100_000):
        part = table(100_000, seed=number + 1)
        part.to_parquet(folder / f"{number:04}.parquet", index=False, row_group_size=25_000)


def anonymous() -> float:
    """Megabytes of this process that are not of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def child(folder: Path, how: str, epochs: int) -> dict[str, Any]:
    """Fit, and measure."""
    test = table(TEST_ROWS, seed=0)
    before, peak, done = anonymous(), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], anonymous())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    start = time.perf_counter()
    clf = dwac.DWACClassifier(epochs=epochs, **SETTINGS)
    if how == "streamed":
        clf.fit(folder, "label")
    else:
        rows = pd.read_parquet(folder)
        clf.fit(rows.drop(columns="label"), rows["label"])
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    votes = clf.log_class_weights(test.drop(columns="label"))
    log_p = votes - np.logaddexp.reduce(votes, axis=1, keepdims=True)
    codes = test["label"].to_numpy()
    return {
        "accuracy": metrics.accuracy(codes, votes.argmax(axis=1)),
        "log_loss": metrics.log_loss(codes, log_p),
        "coverage": metrics.coverage(codes, clf.conformal_of(votes).label_sets(0.05)),
        "voters": len(clf.references_),
        "seconds": seconds,
        "peak_mb": peak[0] - before,
        "spooled_mb": clf.stream_.spooled_bytes / 2**20 if how == "streamed" else 0.0,
    }


def measured(folder: Path, how: str, epochs: int) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.streaming", "--child", how, "--folder", str(folder)]
    found = subprocess.run([*command, "--epochs", str(epochs)], check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--child")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(child(asked.folder, asked.child, asked.epochs), default=float))
        return
    found = []
    with TemporaryDirectory() as place:
        for rows, ways in ((asked.rows, ("in memory", "streamed")), (2 * asked.rows, ("streamed",))):
            folder = Path(place) / str(rows)
            write(folder, rows)
            found += [{"rows": rows, "fit": how, **measured(folder, how, asked.epochs)} for how in ways]
    result = pd.DataFrame(found)
    for name in ("seconds", "peak_mb"):
        result[f"{name} / in memory"] = result[name] / result[name][0]
    claim = "A streamed fit is as good as one in memory, and its memory is bounded by sample, row group and model."
    config = {"epochs": asked.epochs, "columns": NUMBERS + 2, "test_rows": TEST_ROWS, **SETTINGS}
    record.write("streaming", claim, config, result)


if __name__ == "__main__":
    main()
