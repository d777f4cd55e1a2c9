"""Claim: exact class sums and nearest neighbours near the hardware's limit, safe in log space, in little memory.

Every contender answers the same queries, or some of them if it is slow, with its references prepared beforehand; the
best of several runs counts. Errors are those of log class weights, compared with float64. The limit is what the machine
could do with the least possible work: on a CPU, the product [q, 1] · [2g, -‖g‖²] and one exponential per pair, at the
speed of torch measured alone on tiles that stay in the cache; on a GPU, one exponential per pair, of which each
multiprocessor starts 16 per clock cycle.

    python -m benchmarks.engine --device cpu
    python -m benchmarks.engine --device cpu --shared    # on a shared machine: processor time of one thread
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from benchmarks import record
from benchmarks.engine_peers import NEIGHBOURS, SUMS, Answer, Contender, Problem

SEED, CENTRES, NOISE = 0, 0.7, 0.35  # spread between classes and within a class: norms of 2 to 3
CHECKED = 10  # queries compared with float64
FAR = 40.0  # distance of a far query: its weights are too small for any float


class Shape(NamedTuple):
    """n queries, m references, d dimensions, K classes; k neighbours, or with 0 only the class sums."""

    n: int
    m: int
    d: int
    K: int
    k: int

    @property
    def contenders(self) -> dict[str, Contender]:
        return NEIGHBOURS if self.k else SUMS


SHAPES = {
    "cpu": [
        Shape(4096, 1_000_000, 10, 10, 0),
        Shape(4096, 1_000_000, 16, 10, 0),
        Shape(10_000, 1_000_000, 16, 10, 10),
        Shape(10_000, 1_000_000, 16, 10, 100),
    ],
    "cuda": [
        Shape(65_536, 1_048_576, 10, 10, 0),
        Shape(65_536, 1_048_576, 16, 10, 0),
        Shape(65_536, 524_288, 32, 100, 0),
        Shape(1, 10_000_000, 16, 10, 0),
        Shape(10_000, 1_000_000, 16, 10, 10),
        Shape(10_000, 1_000_000, 16, 10, 100),
    ],
}


@lru_cache(maxsize=1)  # drawing them takes longer than many an answer on a GPU
def inputs(shape: Shape, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, references and labels: classes as overlapping Gaussian clouds."""
    rng = torch.Generator().manual_seed(SEED)
    centres = CENTRES * torch.randn(shape.K, shape.d, generator=rng) / shape.d**0.25
    labels = torch.randint(shape.K, (shape.m,), generator=rng)
    references = torch.randn(shape.m, shape.d, generator=rng).mul_(NOISE).add_(centres[labels])
    truth = torch.randint(shape.K, (shape.n,), generator=rng)
    queries = centres[truth] + NOISE * torch.randn(shape.n, shape.d, generator=rng)
    return queries.to(device), references.to(device), labels.to(device)


def measure(name: str, shape: Shape, device: str, turns: int, shared: bool = False) -> dict[str, Any]:
    """Measure one contender on one problem."""
    contender = shape.contenders[name]
    queries, references, labels = inputs(shape, device)
    queries = queries[: contender.cuda if device == "cuda" else contender.cpu]
    pairs = len(queries) * shape.m
    problem = Problem(references, labels, shape.K, shape.k)
    try:  # loading libraries does not count as memory
        contender.prepare(Problem(references[:20_000], labels[:20_000], shape.K, shape.k))(queries[:10])
    except ImportError:
        return {"note": "not installed"}
    with PeakMemory(device) as memory:
        start = clock(device, shared)
        ask = contender.prepare(problem)
        ready = clock(device, shared) - start
        ask(queries[: max(1, len(queries) // 8)])  # compiles for this size and chooses chunks
        held = memory.now()
        taken = []
        for _ in range(turns):
            start = clock(device, shared)
            answer = ask(queries)
            taken.append(clock(device, shared) - start)
    return {
        "queries": len(queries),
        "seconds": min(taken),
        "pairs/s": pairs / min(taken),
        **mistakes(answer, queries, problem, contender.normalised),
        "far query": far(ask, queries) if shape.k == 0 else "",
        "MiB above inputs": memory.mib,
        "of these held": held,
        "seconds to get ready": ready,
        "note": "" if len(queries) == shape.n else "some of the queries",
    }


def clock(device: str, shared: bool) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.process_time() if shared else time.perf_counter()


class PeakMemory:
    """The peak memory above that at the start: of the GPU, or resident memory sampled a hundred times per second.

    What a contender keeps between calls, such as an index, is included.
    """

    def __init__(self, device: str) -> None:
        self.mib, self._gpu, self._done = 0.0, device == "cuda", threading.Event()

    def __enter__(self) -> PeakMemory:
        if self._gpu:
            torch.cuda.reset_peak_memory_stats()
        self._before = 0.0
        self._before = self.now()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()
        return self

    def _watch(self) -> None:
        while not self._gpu and not self._done.wait(0.01):
            self.mib = max(self.mib, self.now())

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._watcher.join()
        if self._gpu:
            self.mib = torch.cuda.max_memory_allocated() / 2**20 - self._before

    def now(self) -> float:
        return (torch.cuda.memory_allocated() if self._gpu else resident()) / 2**20 - self._before


def resident() -> float:
    """Bytes of this process in memory; nan if the system does not report it."""
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else float("nan")


def mistakes(answer: Answer, queries: Tensor, problem: Problem, normalised: bool) -> dict[str, Any]:
    """The largest error of log class weights above -40, and the share of neighbours found, for some queries."""
    found: dict[str, Any] = {}
    references, some = problem.references.double(), queries[:CHECKED].double()
    squared = torch.stack([(references - q).square().sum(dim=1) for q in some]).cpu()
    if answer.log_class_weights is not None:
        members = [(problem.labels == label).cpu() for label in range(problem.n_classes)]
        truth = torch.stack([(-squared[:, mine]).logsumexp(dim=1) for mine in members], dim=1)
        truth = truth.log_softmax(dim=1) if normalised else truth
        errors = (answer.log_class_weights[:CHECKED].double().cpu() - truth).abs()
        found["error"] = float(errors[truth > -40].max())
    if answer.rows is not None:
        nearest = squared.topk(problem.k, dim=1, largest=False).indices
        both = zip(answer.rows[:CHECKED].cpu(), nearest, strict=True)
        found["neighbours found"] = sum(float(torch.isin(a, b).double().mean()) for a, b in both) / len(nearest)
    return found


def far(ask: Callable[[Tensor], Answer], queries: Tensor) -> str:
    """What happens to a query far from everything."""
    try:
        votes = ask(queries[:1] + FAR / queries.shape[1] ** 0.5).log_class_weights
    except ValueError:
        return "refused"
    return "" if votes is None else "finite" if votes.isfinite().all() else "lost"


def limit(alone: dict[str, float]) -> float:
    """Pairs per second at the hardware's limit, see above: on a CPU from its passes, else on the GPU."""
    if alone:
        return 1 / (1 / alone["product"] + 1 / alone["exponential"])
    properties = torch.cuda.get_device_properties(0)
    return 16.0 * properties.multi_processor_count * 1e3 * getattr(properties, "clock_rate", 1_980_000)


def passes(d: int) -> dict[str, float]:
    """Pairs per second of each pass of the torch backend over a tile, alone and in the cache of a CPU."""
    queries, rows = torch.randn(256, d + 1), torch.randn(1024 * torch.get_num_threads(), d + 1)
    tile = torch.empty(256, len(rows) // 128, 128)
    product = best_of(lambda: torch.mm(queries, rows.mT, out=tile.view(256, -1)))
    tile.uniform_(-20, 0)
    best, weights = tile.amax(dim=2), tile.clone()
    seconds = {
        "product": product,
        "maximum": best_of(lambda: torch.amax(tile, dim=2, out=best)),
        "difference": best_of(lambda: weights.sub_(best[:, :, None])),
        "clamp": best_of(lambda: weights.clamp_min_(-80)),
        "exponential": best_of(lambda: torch.exp(tile, out=weights)),
        "sum": best_of(lambda: torch.sum(weights, dim=2, out=best)),
    }
    return {name: tile.numel() / taken for name, taken in seconds.items()}


def best_of(work: Callable[[], object], turns: int = 200) -> float:
    """Seconds of the fastest of many runs."""
    taken = []
    for _ in range(turns):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)


def apart(name: str, shape: Shape, turns: int, shared: bool) -> dict[str, Any]:
    """`measure` on the CPU in a separate process, so that contenders do not share memory."""
    command = [sys.executable, "-m", "benchmarks.engine", "--one", json.dumps([name, shape, "cpu", turns, shared])]
    one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} if shared else {}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | one)
    if done.returncode:
        return {"note": "failed: " + done.stderr.strip().split("\n")[-1]}
    return dict(json.loads(done.stdout.strip().split("\n")[-1]))


def here(name: str, shape: Shape, turns: int) -> dict[str, Any]:
    """`measure` on the GPU. A contender that fails, for example for lack of memory, does not stop the others."""
    try:
        return measure(name, shape, "cuda", turns)
    except RuntimeError as error:
        return {"note": "failed: " + str(error).split("\n")[0]}


def compare(shape: Shape, device: str, turns: int, shared: bool, most: float) -> list[dict[str, Any]]:
    """Rows of the table: every contender on one problem, compared with the limit `most` in pairs per second."""
    rows: list[dict[str, Any]] = []
    for name, contender in shape.contenders.items():
        if (contender.cuda if device == "cuda" else contender.cpu) == 0 or (name, device) == ("dwac, triton", "cpu"):
            continue
        row = here(name, shape, turns) if device == "cuda" else apart(name, shape, turns, shared)
        speed, first = row.get("pairs/s", float("nan")), (rows or [row])[0].get("pairs/s", float("nan"))
        row = {"who": name, **shape._asdict(), **row, "dwac is faster by": first / speed, "of the limit": speed / most}
        rows.append(row)
        print({key: value for key, value in row.items() if value != ""}, flush=True)
    return rows


COLUMNS = [
    *("who", "n", "m", "d", "K", "k", "pairs/s", "dwac is faster by", "of the limit", "error", "neighbours found"),
    *("far query", "MiB above inputs", "of these held", "seconds", "seconds to get ready", "queries", "note"),
]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--turns", type=int, default=3, help="number of runs, of which the best counts")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of queries and references, for a trial; nothing is recorded"
    )
    parser.add_argument("--shared", action="store_true", help="measure processor time of one thread, not elapsed time")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        name, shape, device, turns, shared = json.loads(chosen.one)
        print(json.dumps(measure(name, Shape(*shape), device, turns, shared)))
        return
    if chosen.shared:
        torch.set_num_threads(1)
    rows = []
    config: dict[str, Any] = {"turns": chosen.turns, "seed": SEED, "load before": round(os.getloadavg()[0], 2)}
    config["seconds are"] = "processor time of one thread" if chosen.shared else "time passed"
    for shape in SHAPES[chosen.device]:
        smaller = shape._replace(n=max(1, int(shape.n * chosen.scale)), m=int(shape.m * chosen.scale))
        alone = passes(shape.d) if chosen.device == "cpu" else {}
        config[f"limit in pairs/s, d = {shape.d}"] = f"{limit(alone):.3g}"
        config |= {f"{name} alone, d = {shape.d}": f"{speed:.3g}" for name, speed in alone.items()}
        rows += compare(smaller, chosen.device, chosen.turns, chosen.shared, limit(alone))
    config["load after"] = round(os.getloadavg()[0], 2)
    table = pd.DataFrame(rows).reindex(columns=COLUMNS)
    table[["note", "far query"]] = table[["note", "far query"]].fillna("")
    if chosen.scale != 1:
        print(table.to_string(index=False), config, sep="\n")
        return
    claim = (__doc__ or "").split("\n")[0]
    record.write(f"engine_{'gpu' if chosen.device == 'cuda' else 'cpu'}", claim, config, table)


if __name__ == "__main__":
    main()
