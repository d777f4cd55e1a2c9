"""Claim: within a tolerance the cost of class sums grows slower than the references, with a bound on every error.

Queries are answered within 1e-2 and 1e-3 and, in the same run, exactly, against increasing numbers of references. These
are trained embeddings of Covertype and Fashion-MNIST. For larger sizes, random copies of them are added, each moved by
a normal vector about as long as the median distance from a reference to its nearest neighbour, so that no two are
equal. A normal distribution as wide as the kernel in every direction is measured too: a tolerance cannot help there.

    python -m benchmarks.tolerance --save folder                  # trains small models on the datasets, saves h
    python -m benchmarks.tolerance --embeddings folder/*.npz      # arrays h (m, d), y (m,) and queries (n, d)
    python -m benchmarks.tolerance --seconds 120                  # leaves out what would take longer

Sizes are measured in ascending order, and the record is written after each. MiB are the peak above what was in memory
before and what is returned, for sorting references into cells and for the queries.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import dwac
from benchmarks import record
from dwac import datasets, engine
from dwac.kernels import get_kernel

TOLERANCES = (1e-2, 1e-3)
SETTINGS = {  # name → dataset, encoder, rows to train on, epochs
    "covertype, paper's network": ("covertype", "tabular:paper", 60_000, 10),
    "covertype, default": ("covertype", "tabular", 40_000, 6),
    "fashion_mnist, paper's network": ("fashion_mnist", "image:paper", 12_000, 3),
}
HELD_OUT = 10_000
CHECKED = 50  # queries also answered in float64, to measure the errors
REFERENCES = 400_000  # most references that are embedded
SIZES = (10**5, 10**6, 10**7, 10**8)
MOST = {"cpu": 10**7, "cuda": 10**8}
NUMBERS = {"cpu": 10**8, "cuda": 3.2 * 10**9}  # m · d at most
QUERIES = {"cpu": 1_000, "cuda": 10_000}
ENOUGH = 5.0  # seconds of repeated runs, of which the fastest counts
GROWTH = 5.0  # assumed factor in time for ten times the references
PROC = Path("/proc/self")


class Embeddings(NamedTuple):
    """References (m, d) with labels, and queries."""

    h: Tensor
    y: Tensor
    queries: Tensor


def trained(dataset: str, encoder: str, rows: int, epochs: int, device: str) -> Embeddings:
    """Embeddings by a small classifier; the queries are rows that it was not trained on."""
    data = datasets.load(dataset)
    order = np.random.default_rng(0).permutation(len(data.y_train))

    def take(chosen: Any) -> Any:
        return data.X_train.iloc[chosen] if isinstance(data.X_train, pd.DataFrame) else data.X_train[chosen]

    y = np.unique(data.y_train, return_inverse=True)[1]
    clf = dwac.DWACClassifier(encoder, epochs=epochs, patience=epochs, random_state=0, device=device)
    clf.fit(take(order[:rows]), y[order[:rows]])
    kept = order[:-HELD_OUT][:REFERENCES]
    h, queries = (torch.as_tensor(clf.embed(take(part))) for part in (kept, order[-HELD_OUT:]))
    return Embeddings(h, torch.as_tensor(y[kept]), queries)


def normal(d: int = 16) -> Embeddings:
    """As wide as the kernel in each direction, with ten identical classes."""
    generator = torch.Generator().manual_seed(0)
    h, queries = (torch.randn(n, d, generator=generator) for n in (100_000, HELD_OUT))
    return Embeddings(h, torch.randint(10, (len(h),), generator=generator), queries)


def sources(files: list[Path], device: str, only: str) -> dict[str, Embeddings]:
    found = {}
    for file in files:
        with np.load(file) as arrays:
            h, y, queries = (torch.as_tensor(arrays[name]) for name in ("h", "y", "queries"))
            found[file.stem] = Embeddings(h.float(), y.long(), queries.float())
    for name, setting in SETTINGS.items() if not files else ():
        if only in name:
            found[name] = trained(*setting, device=device)
    if only in "normal, 16 dimensions":
        found["normal, 16 dimensions"] = normal()
    return found


def typical_gap(embeddings: Embeddings, device: str) -> float:
    """The median distance from a reference to its nearest neighbour, over a thousand references."""
    h, y = embeddings.h.to(device), embeddings.y.to(device)
    index = engine.build_index(h, y, int(y.max()) + 1, get_kernel("gaussian"))
    sample = torch.randperm(len(h), generator=torch.Generator().manual_seed(0))[:1000]
    answer = engine.query(index, h[sample.to(device)], k=2, backend="torch")  # nothing to compile for one use
    return float(answer.squared_distances[:, 1].sqrt().median())


def references(embeddings: Embeddings, gap: float, m: int, device: str) -> tuple[Tensor, Tensor]:
    """m references: some of the embeddings, or all of them plus moved copies."""
    generator = torch.Generator(device).manual_seed(1)
    h, y = embeddings.h.to(device), embeddings.y.to(device)
    first = torch.randperm(len(h), generator=generator, device=device)[:m]
    result, labels = h.new_empty(m, h.shape[1]), y.new_empty(m)
    result[: len(first)], labels[: len(first)] = h[first], y[first]
    for start in range(len(first), m, 2**20):
        part = slice(start, min(m, start + 2**20))
        copied = torch.randint(len(h), (part.stop - start,), generator=generator, device=device)
        moved = torch.randn(len(copied), h.shape[1], generator=generator, device=device)
        result[part], labels[part] = h[copied].add_(moved, alpha=gap / math.sqrt(h.shape[1])), y[copied]
    return result, labels


class Measured(NamedTuple):
    seconds: float  # the fastest of several runs; on a CPU, processor time per thread, as the machine may be shared
    mib: float  # the peak above what was in use and what is returned
    answer: Any


def measured(work: Callable[[], Any], device: str, turns: int = 3) -> Measured:
    best, first, spent = math.inf, math.nan, 0.0
    for turn in range(turns):
        begin_peak(device)
        before, start = memory(device), clock(device)
        answer = work()
        seconds, peak = clock(device) - start, memory(device, peak=True)
        if turn == 0:
            first = peak - before - size(answer) / 2**20
        best, spent = min(best, seconds), spent + seconds
        if spent > ENOUGH:
            break
    return Measured(best, max(0.0, first), answer)


def clock(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time() / torch.get_num_threads()


def begin_peak(device: str) -> None:
    """Forget the peak so far."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    elif (PROC / "clear_refs").exists():
        ctypes.CDLL(None).malloc_trim(0)  # memory freed earlier must not hide new allocations
        (PROC / "clear_refs").write_text("5")


def memory(device: str, peak: bool = False) -> float:
    """MiB in use by the GPU or this process, or the peak since `begin_peak`; nan if the system does not report it."""
    if device.startswith("cuda"):
        return (torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()) / 2**20
    if not (PROC / "clear_refs").exists():
        return math.nan
    lines = (PROC / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM" if peak else "VmRSS")) / 1024


def size(answer: Any) -> int:
    """Bytes of the tensors of an answer; what cells share with their original index does not count."""
    if isinstance(answer, Tensor):
        return answer.numel() * answer.element_size()
    if isinstance(answer, engine.Cells):
        layout = answer.index
        return size((layout.rows, layout.folded, layout.block_labels, *vars(answer).values()))
    return sum(map(size, answer)) if isinstance(answer, tuple) else 0


def measure(name: str, embeddings: Embeddings, gap: float, m: int, n: int, device: str) -> Iterator[dict[str, Any]]:
    h, y = references(embeddings, gap, m, device)
    queries = embeddings.queries[:n].to(device)
    n_classes = int(embeddings.y.max()) + 1
    few = engine.build_cells(engine.build_index(h[:5000], y[:5000], n_classes, get_kernel("gaussian")))
    engine.query_within(few, queries[:100], TOLERANCES[0])  # loads and compiles what is needed
    index = engine.build_index(h, y, n_classes, get_kernel("gaussian"))
    engine.query(index, queries[:100])
    exact = measured(lambda: engine.query(index, queries), device)
    truth = engine.query(index, queries[:CHECKED].double()).log_class_weights
    built = measured(lambda: engine.build_cells(index), device, turns=1)
    for tolerance in TOLERANCES:
        within = measured(lambda: engine.query_within(built.answer, queries, tolerance), device)  # noqa: B023
        wrong = (within.answer.log_class_weights[: len(truth)] - truth).abs().nan_to_num(0).amax(dim=1)
        yield {
            "embeddings": name,
            "d": h.shape[1],
            "m": m,
            "queries": len(queries),
            "tolerance": tolerance,
            "exact s": exact.seconds,
            "within s": within.seconds,
            "ratio": exact.seconds / within.seconds,
            "share of pairs": within.answer.pairs / (m * len(queries)),
            "cells a query": within.answer.cells / len(queries),
            "within MiB": within.mib,
            "sorting s": built.seconds,
            "sorting MiB": built.mib,
            "largest bound": float(within.answer.bounds.max()),
            "largest error": float(wrong.max()),
        }


def with_growth(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Adds the exponent of m by which each time grew since the previous size."""
    table = pd.DataFrame(rows)
    logs = table[["m", "exact s", "within s"]].apply(np.log)
    steps = logs.groupby([table["embeddings"], table["tolerance"]], sort=False).diff()
    table["growth of exact"] = steps["exact s"] / steps["m"]
    table["growth of within"] = steps["within s"] / steps["m"]
    return table


def run(found: dict[str, Embeddings], most: float, n: int, device: str, seconds: float) -> Iterator[pd.DataFrame]:
    """The table so far, after each size of each source."""
    begin, rows, took = time.monotonic(), [], dict.fromkeys(found, 0.0)
    gaps = {name: typical_gap(embeddings, device) for name, embeddings in found.items()}
    for m in SIZES:
        for name, embeddings in found.items():
            numbers = m * embeddings.h.shape[1]
            start = time.monotonic()
            late = start + GROWTH * took[name] > begin + seconds
            if m > most or numbers > NUMBERS["cuda" if device.startswith("cuda") else "cpu"] or late:
                continue
            for row in measure(name, embeddings, gaps[name], m, n, device):
                rows.append(row)
                yield with_growth(sorted(rows, key=lambda row: list(found).index(row["embeddings"])))
            took[name] = time.monotonic() - start


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tolerance")
    parser.add_argument("--embeddings", type=Path, nargs="*", default=[])
    parser.add_argument("--save", type=Path, help="folder in which to save the embeddings")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--most", type=float, help="most references; default: 1e8 on a GPU, 1e7 on a CPU")
    parser.add_argument("--queries", type=int, help="default: 10,000 on a GPU, 1,000 on a CPU")
    parser.add_argument("--only", default="", help="measure only the names that contain this text")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start nothing that may take longer")
    chosen = parser.parse_args()
    kind = "cuda" if chosen.device.startswith("cuda") else "cpu"
    most, n = chosen.most or MOST[kind], chosen.queries or QUERIES[kind]
    found = sources(chosen.embeddings, chosen.device, chosen.only)
    if chosen.save:
        chosen.save.mkdir(parents=True, exist_ok=True)
        for name, embeddings in found.items():
            np.savez(chosen.save / f"{name}.npz", **{k: v.numpy() for k, v in embeddings._asdict().items()})
    config = {
        "device": chosen.device,
        "queries": n,
        "embeddings": [file.name for file in chosen.embeddings] or "trained",
    }
    for table in run(found, most, n, chosen.device, chosen.seconds):
        record.write(f"tolerance_{'gpu' if kind == 'cuda' else 'cpu'}", (__doc__ or "").split("\n")[0], config, table)


if __name__ == "__main__":
    main()
