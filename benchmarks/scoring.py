"""Claim: 2 processes score 1.8 times as fast as one, `score` costs at most 10 % more than `predict`, a worker 1 GB.

A model of a table (6 numbers and 8 categories, 4 classes) in which 200 representatives vote for 4,800 examples. Each
process has one thread. One file of Parquet, divided into the same pieces for every number of workers.

- core: `score` on record batches, against `evaluation.predict(…).frame()` on the same rows as a DataFrame, in turns, in
  processor time.
- processes: the local engine with 1, 2, … workers; seconds from the start of the first piece to the last shard;
  starting up is given beside it.
- memory: the largest resident set of any worker while all rows are scored.
- cancer: the steps of `dwac score`, from CSV and from Parquet to shards with sets and typicality, on one thread, in
  processor time, and the model alone; a million rows within 60 s is the aim. Beside it 300 trees of scikit-learn.

    python -m benchmarks.scoring          # minutes, on a quiet machine
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier

import dwac
from benchmarks import record
from dwac.estimator.evaluation import predict
from dwac.scoring import score
from dwac.scoring.run import prepare

CANCER_ROWS, MOST_SECONDS = 2**16, 60  # for a million rows
NUMBERS, WORDS, CLASSES, EXAMPLES, VOTERS, AT_ONCE = 6, 8, 4, 6_000, 200, 8192
REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    before = round(os.getloadavg()[0], 2)
    with tempfile.TemporaryDirectory() as folder:
        model = trained(Path(folder) / "model")
        rows = [*core(model), *cancer(Path(folder))]
        write_rows(Path(folder) / "rows.parquet", asked.rows)
        rows += processes(model, Path(folder), asked.rows, sorted({1, asked.workers}))
    config: dict[str, Any] = {
        "numbers": NUMBERS,
        "categories": WORDS,
        "classes": CLASSES,
        "examples": EXAMPLES,
        "voters": VOTERS,
    }
    config |= {"rows": asked.rows, "load_average_before": before}
    record.write("scoring", (__doc__ or "").split("\n")[0], config, pd.DataFrame(rows))


def table(n: int, seed: int) -> pd.DataFrame:
    """n rows of six kinds, with numbers and categories that tell of the kind."""
    rng = np.random.default_rng(seed)
    kind, letters = rng.integers(0, 6, n), np.array(list("abcdefgh"))
    columns: dict[str, Any] = {}
    for i in range(NUMBERS):
        columns[f"number{i}"] = (rng.normal(size=n) * 0.3 + np.sin(kind * (i + 1))).astype(np.float32)
    return pd.DataFrame(columns | {f"word{i}": letters[(kind + rng.integers(0, 3, n)) % 8] for i in range(WORDS)})


def trained(folder: Path) -> Path:
    X = table(EXAMPLES, seed=0)
    y = (2 * X["number0"] + X["number1"] + (X["word0"] == "a")).rank(pct=True, method="first")
    codes = np.minimum((CLASSES * y).astype(int), CLASSES - 1)
    return dwac.DWACClassifier(epochs=3, random_state=0, device="cpu", voters=VOTERS).fit(X, codes).save(folder)


def write_rows(path: Path, n: int) -> None:
    """n rows as Parquet, written in parts."""
    with pq.ParquetWriter(path, pa.Schema.from_pandas(table(1, 0), preserve_index=False)) as writer:
        for start in range(0, n, 2**17):
            part = table(min(2**17, n - start), seed=1 + start)
            writer.write_table(pa.Table.from_pandas(part, preserve_index=False))


def core(model: Path) -> list[dict[str, Any]]:
    """Seconds of `predict(…).frame()` and of `score` on the same rows, in turns."""
    X = table(4 * AT_ONCE, seed=7)
    parts = [X.iloc[start : start + AT_ONCE] for start in range(0, len(X), AT_ONCE)]
    batches = [pa.RecordBatch.from_pandas(part, preserve_index=False) for part in parts]
    clf: Any = dwac.load(model, device="cpu")

    def ours() -> None:
        for _ in score(model, batches, device="cpu", threads=1):
            pass

    def peers() -> None:
        for part in parts:
            predict(clf, part).frame()

    seconds: dict[str, list[float]] = {"predict": [], "score": []}
    for turn in range(REPEATS + 1):
        for name, call in (("predict", peers), ("score", ours)):
            began = time.process_time()
            call()
            if turn:
                seconds[name].append(time.process_time() - began)
    middle = {name: float(np.median(each)) for name, each in seconds.items()}
    rows = []
    for name, each in middle.items():
        rate = len(X) / each
        rows.append({"what": "core", "who": name, "seconds": each, "rows/s": rate, "ratio": each / middle["predict"]})
    return rows


def cancer(folder: Path) -> list[dict[str, Any]]:
    """Processor time of all steps of scoring, of the model in it, and of a forest on the same rows."""
    data, rng = load_breast_cancer(as_frame=True), np.random.default_rng(0)
    X = data.data.iloc[rng.integers(0, len(data.data), CANCER_ROWS)].reset_index(drop=True)
    X *= 1 + 0.02 * rng.normal(size=X.shape)
    X.to_csv(folder / "cancer.csv", index=False)
    X.to_parquet(folder / "cancer.parquet", index=False)
    forest = RandomForestClassifier(300, random_state=0).fit(data.data, data.target)
    model = dwac.DWACClassifier(random_state=0, verbose=False).fit(data.data, data.target).save(folder / "cancer")
    rows: list[dict[str, Any]] = []

    def add(who: str, seconds: float) -> None:
        millions = seconds / CANCER_ROWS * 1e6
        verdict = ("met" if millions <= MOST_SECONDS else "missed") if who.startswith("dwac score") else ""
        ratio = seconds / (rows[0]["seconds"] if rows else seconds)
        facts = {"what": "cancer", "who": who, "seconds": seconds, "rows/s": CANCER_ROWS / seconds, "ratio": ratio}
        rows.append({**facts, "s for a million rows": millions, "verdict": verdict})
        print(rows[-1])

    began = time.process_time()
    for start in range(0, CANCER_ROWS, AT_ONCE):
        forest.predict_proba(X.iloc[start : start + AT_ONCE])
    add("forest, predict_proba", time.process_time() - began)
    clf: Any = dwac.load(model, device="cpu")
    predict(clf, X[:AT_ONCE])
    began = time.process_time()
    for start in range(0, CANCER_ROWS, AT_ONCE):
        predict(clf, X.iloc[start : start + AT_ONCE])
    add("the model alone, with sets and typicality", time.process_time() - began)
    for form in ("parquet", "csv"):
        run = prepare(model, folder / f"cancer.{form}", folder / f"scores_{form}", device="cpu", threads=1)
        began = time.process_time()
        for piece in run.pending:
            done = run.task(piece)
            assert done.error is None, done.error
        add(f"dwac score, {form}", time.process_time() - began)
    return rows


def processes(model: Path, folder: Path, n: int, counts: list[int]) -> list[dict[str, Any]]:
    """Seconds of scoring with so many workers, and the largest resident set of one."""
    rows: list[dict[str, Any]] = []
    for workers in counts:
        run = prepare(model, folder / "rows.parquet", folder / f"out{workers}", device="cpu", threads=1)
        with Watch() as watch:
            began = time.perf_counter()
            ends, starts = [], []
            for done in run.results("local", workers):
                assert done.error is None, done.error
                ends.append(time.perf_counter())
                starts.append(ends[-1] - done.seconds)
        seconds = max(ends) - min(starts)
        rows.append(
            {
                "what": "processes",
                "who": f"{workers} worker{'s' if workers > 1 else ''}",
                "seconds": seconds,
                "rows/s": n / seconds,
                "ratio": n / seconds / rows[0]["rows/s"] if rows else 1.0,
                "start-up s": min(starts) - began,
                "largest worker MB": watch.largest / 1e6,
            }
        )
        print(rows[-1])
    return rows


class Watch:
    """The largest resident set of any process below this one, or of this one if it has none."""

    def __enter__(self) -> Watch:
        self.largest, self._end = 0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        me = psutil.Process()
        while not self._end.wait(0.2):
            sizes = [_resident(child) for child in me.children(recursive=True)]
            self.largest = max(self.largest, *(sizes or [_resident(me)]), 0)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


if __name__ == "__main__":
    main()
