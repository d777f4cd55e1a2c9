"""Claim: exact class sums, safe in log space, faster than the plain way and than scikit-learn, in little memory.

Each contender computes log Σ_i I(y_i=k) exp(-‖h-h_i‖²) for the same queries (a share of them where it is slow), in a
process of its own, and is compared with a float64 sum.

    python -m benchmarks.engine
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import psutil
import torch
from numpy.typing import NDArray

from benchmarks import record

SIZES = {"n": 10_000, "m": 1_000_000, "d": 16, "K": 10, "seed": 0}
Array = NDArray[Any]


def inputs() -> tuple[Array, Array, Array]:
    """Queries, references and labels: classes as overlapping Gaussian clouds."""
    rng = np.random.default_rng(SIZES["seed"])
    centres = rng.normal(size=(SIZES["K"], SIZES["d"]))
    y = rng.integers(SIZES["K"], size=SIZES["m"])
    references = (centres[y] + 0.7 * rng.normal(size=(SIZES["m"], SIZES["d"]))).astype("float32")
    chosen = rng.integers(SIZES["K"], size=SIZES["n"])
    queries = (centres[chosen] + 0.7 * rng.normal(size=(SIZES["n"], SIZES["d"]))).astype("float32")
    return queries, references, y


def ours(q: Array, r: Array, y: Array) -> Array:
    """dwac.ReferenceSet, the building of its index included."""
    from dwac import ReferenceSet

    return np.asarray(ReferenceSet(r, y, n_classes=SIZES["K"]).log_class_weights(q))


def ours_with_neighbours(q: Array, r: Array, y: Array) -> Array:
    """The same, and the ten nearest neighbours from the same pass."""
    from dwac import ReferenceSet

    return np.asarray(ReferenceSet(r, y, n_classes=SIZES["K"]).query(q, k=10)[0])


def plain(q: Array, r: Array, y: Array) -> Array:
    """Plain torch tiles: squared distances, exp, one-hot product. Not safe in log space."""
    queries, references = torch.from_numpy(q), torch.from_numpy(r)
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(y), SIZES["K"]).float()
    norms = references.square().sum(dim=1)
    out = []
    for part in queries.split(256):
        total = torch.zeros(len(part), SIZES["K"])
        for start in range(0, len(references), 8192):
            stop = start + 8192
            squared = part.square().sum(1)[:, None] + norms[start:stop] - 2 * part @ references[start:stop].mT
            total += torch.exp(-squared.clamp_min(0)) @ one_hot[start:stop]
        out.append(total.log())
    return torch.cat(out).numpy()


def rbf_kernel(q: Array, r: Array, y: Array) -> Array:
    """scikit-learn's rbf_kernel in chunks of queries, summed by class. Not safe in log space."""
    from sklearn.metrics.pairwise import rbf_kernel

    one_hot = np.eye(SIZES["K"], dtype="float32")[y]
    with np.errstate(divide="ignore"):
        return np.concatenate([np.log(rbf_kernel(part, r, gamma=1.0) @ one_hot) for part in np.split(q, len(q) // 10)])


def kernel_density(q: Array, r: Array, y: Array) -> Array:
    """scikit-learn's KernelDensity, one a class, with no tolerance set; its tree's sums still lose digits."""
    from sklearn.neighbors import KernelDensity

    columns = []
    for k in range(SIZES["K"]):
        members = r[y == k]
        density = KernelDensity(bandwidth=np.sqrt(0.5), rtol=0, atol=0).fit(members)
        constant = np.log(len(members)) + SIZES["d"] / 2 * np.log(np.pi)
        columns.append(density.score_samples(q) + constant)
    return np.stack(columns, axis=1)


def nearest_neighbours(q: Array, r: Array, y: Array) -> Array:
    """scikit-learn's KNeighborsClassifier with all references as neighbours: log-probabilities."""
    from sklearn.neighbors import KNeighborsClassifier

    votes = KNeighborsClassifier(len(r), weights=lambda distance: np.exp(-(distance**2)), algorithm="brute")
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(votes.fit(r, y).predict_proba(q)))


# How many of the queries each one gets: all, or what takes it some seconds.
CONTENDERS: dict[str, tuple[Callable[..., Array], int]] = {
    "dwac": (ours, 10_000),
    "dwac, with 10 neighbours": (ours_with_neighbours, 10_000),
    "plain torch tiles": (plain, 5_000),
    "scikit-learn rbf_kernel": (rbf_kernel, 500),
    "scikit-learn KernelDensity": (kernel_density, 20),
    "scikit-learn KNeighborsClassifier": (nearest_neighbours, 50),
}


def measure(name: str) -> dict[str, Any]:
    """Time, peak memory above the inputs and error of one contender; for a process of its own."""
    contend, n = CONTENDERS[name]
    q, r, y = inputs()
    contend(q[:10], r[:20_000], y[:20_000])  # load and warm up
    with PeakMemory() as peak:
        start = time.perf_counter()
        answer = contend(q[:n], r, y)
        seconds = time.perf_counter() - start
    return {"pairs": n * len(r), "seconds": seconds, "MiB above inputs": peak.mib, "error": error(answer, q, r, y)}


class PeakMemory:
    """The most resident memory above that at the start, looked at a hundred times a second."""

    def __enter__(self) -> PeakMemory:
        self._process, self.mib, self._done = psutil.Process(), 0.0, threading.Event()
        self._before = self._process.memory_info().rss
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            self.mib = max(self.mib, (self._process.memory_info().rss - self._before) / 2**20)

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._watcher.join()


def error(answer: Array, q: Array, r: Array, y: Array) -> float:
    """Largest absolute error of log-probabilities above -40, on ten queries, against float64."""
    votes = np.empty((10, SIZES["K"]))
    for i, query in enumerate(q[:10].astype(np.float64)):
        log_w = -np.square(r - query).sum(axis=1)
        votes[i] = [np.logaddexp.reduce(log_w[y == k]) for k in range(SIZES["K"])]
    truth, ours = (v - np.logaddexp.reduce(v, axis=1, keepdims=True) for v in (votes, answer[:10].astype(np.float64)))
    return float(np.abs(truth - ours)[truth > -40].max())


def main() -> None:
    rows = []
    for name in CONTENDERS:
        command = [sys.executable, "-m", "benchmarks.engine", name]
        best: dict[str, Any] = {}
        for _ in range(3 if name in ("dwac", "plain torch tiles") else 1):
            result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            best = result if not best or result["seconds"] < best["seconds"] else best
        rows.append({"who": name, "pairs/s": best["pairs"] / best["seconds"], **best})
        print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    table.insert(2, "dwac is faster by", table["pairs/s"].iloc[0] / table["pairs/s"])
    record.write("engine", (__doc__ or "").split("\n")[0], SIZES, table)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        main()
