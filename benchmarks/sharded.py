"""Claim: references in files answer as those in memory do, and 1e8 × 16 on disk are asked within 2 GB of memory.

    python -m benchmarks.sharded                          # 10⁶ references, and 10⁷ on disk
    python -m benchmarks.sharded --large 100000000        # 7.2 GB of disk, or 8 GB with targets

Every row is a process of its own, so that its memory is its own: the peak that the system reports for it (ru_maxrss),
Python, torch and touched pages of files included. References are normal, with ten classes at random; queries too. The
set in memory is asked as it is, in float32, and in float64, as blocks of files always compute. Differences are to a
plain sum in float64 over the same references, made anew from their seed, for a few of the queries.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from benchmarks import record
from dwac import ReferenceSet
from dwac.reference import ReferenceWriter, open_references

D, CLASSES, BLOCK, K, CHECKED = 16, 10, 10**6, 5, 4
KINDS = ("float32", "float64", "files")


def blocks(m: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Embeddings, labels and targets of m references, a million at a time; the same every time."""
    for start in range(0, m, BLOCK):
        generator = torch.Generator().manual_seed(start)
        n = min(BLOCK, m - start)
        h = torch.randn(n, D, generator=generator)
        yield h, torch.randint(CLASSES, (n,), generator=generator), h[:, 0].double()


def queries_of(n: int) -> Tensor:
    return torch.randn(n, D, generator=torch.Generator().manual_seed(-1))


def truth(m: int, queries: Tensor) -> tuple[Tensor, Tensor]:
    """Log class weights (n, K) and means (n,) by a plain sum, one block after another."""
    sums = torch.full((len(queries), CLASSES), -torch.inf, dtype=torch.float64)
    log_total, mean = torch.full((len(queries),), -torch.inf, dtype=torch.float64), torch.zeros(len(queries)).double()
    for h, y, target in blocks(m):
        for part, labels, t in zip(h.split(2**17), y.split(2**17), target.split(2**17), strict=True):
            log_w = -torch.cdist(queries.double(), part.double(), compute_mode="donot_use_mm_for_euclid_dist").square()
            own = [log_w[:, labels == k].logsumexp(dim=1) for k in range(CLASSES)]
            sums = torch.logaddexp(sums, torch.stack(own, dim=1))
            here = log_w.logsumexp(dim=1)
            both = torch.logaddexp(log_total, here)
            mean = mean * (log_total - both).exp() + (log_w - both[:, None]).exp() @ t
            log_total = both
    return sums, mean


def write(folder: Path, m: int) -> None:
    with ReferenceWriter(folder, CLASSES) as writer:
        for h, y, target in blocks(m):
            writer.add(h, y, targets=target)


def held(kind: str, m: int, folder: Path) -> ReferenceSet:
    """The references as one of `KINDS`."""
    if kind == "files":
        return open_references(folder, check=False)
    h, y, targets = (torch.cat(column) for column in zip(*blocks(m), strict=True))
    return ReferenceSet(h.double() if kind == "float64" else h, y, n_classes=CLASSES, targets=targets)


def child(kind: str, m: int, n: int, folder: Path) -> dict[str, Any]:
    """Ask once, in this process, and say what it took."""
    start, refs, queries = time.process_time(), held(kind, m, folder), queries_of(n)
    made = time.process_time() - start
    times = []
    for _ in range(1 if kind == "files" else 2):  # the first also builds the layout, which files do every time
        start = time.process_time()
        votes, near = refs.query(queries, k=K)
        times.append(time.process_time() - start)
    start = time.process_time()
    mean = refs.distribution(queries).mean[:, 0]
    averaged = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9  # Linux counts in KiB
    sums, means = truth(m, queries[:CHECKED])
    return {
        "references": kind,
        "m": m,
        "queries": n,
        "make s": made,
        "first query s": times[0],
        "next query s": times[-1],
        "mean s": averaged,
        "peak GB": peak,
        "largest difference of votes": float((votes[:CHECKED] - sums).abs().max()),
        "largest difference of means": float((mean[:CHECKED] - means).abs().max()),
        "nearest": [int(i) for i in near.ids[0]],
    }


def measured(kind: str, m: int, n: int, folder: Path) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.sharded", "--child", kind, "--m", str(m), "--n", str(n)]
    out = subprocess.run([*command, "--folder", str(folder)], capture_output=True, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    print(found, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--m", type=int, default=10**6)
    parser.add_argument("--n", type=int, default=256)
    parser.add_argument("--large", type=int, default=10**7, help="references on disk")
    parser.add_argument("--few", type=int, default=64, help="queries of those")
    parser.add_argument("--disk", type=Path, help="a folder with room for the references; by default a temporary one")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--child", choices=KINDS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child, options.m, options.n, options.folder)))
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=options.disk) as disk:
        write(Path(disk) / "some", options.m)
        rows += [measured(kind, options.m, options.n, Path(disk) / "some") for kind in KINDS]
        start = time.process_time()
        write(Path(disk) / "many", options.large)
        written = time.process_time() - start
        rows.append({**measured("files", options.large, options.few, Path(disk) / "many"), "make s": written})
    same = {tuple(row.pop("nearest")) for row in rows[:-1]}
    assert len(same) == 1, same
    rows[-1].pop("nearest")
    claim = (
        f"References of {D} dimensions in memory and on disk: seconds of processor time for all queries "
        f"with their {K} nearest, and for the mean of a target; the peak memory of the process; differences to a plain "
        f"sum in float64, for {CHECKED} queries. The nearest are the same in every row of the same size."
    )
    record.write("sharded", claim, {"d": D, "classes": CLASSES}, pd.DataFrame(rows))


if __name__ == "__main__":
    main()
