"""Claim: loss and gradient of 4,096 queries against 65,536 references, without their matrix, 5 times the dense speed.

The loss is the cross-entropy of the class sums log Σ_i I(y_i=k) exp(-‖h-h_i‖²); its gradient is taken in the queries.
The dense peers write the whole matrix of log-weights, with references sorted by class and classes padded to the same
length, so that one logsumexp over (n, K, members) gives the sums, and use autograd. One uses torch.cdist; another a
single product with the norms folded in, the least work that a dense method can do, with and without torch.compile. All
use float32. On a CPU a smaller problem is measured, with the engine's "auto" backend.

    python -m benchmarks.gradient
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks import record
from dwac.engine import BACKENDS, Index, build_index, query
from dwac.kernels import get_kernel

SHAPES = [(16, 10), (16, 100), (32, 10), (32, 100)]  # d, K
AT_LEAST = 5.0  # times faster than the dense method
SEED, CENTRES, NOISE = 0, 0.7, 0.35  # spread between classes and within a class: norms of 2 to 3
Contender = Callable[[Tensor, Tensor], Tensor]  # queries, their labels → loss


def inputs(n: int, m: int, d: int, n_classes: int, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries and references, each with labels: classes of equal size as overlapping Gaussian clouds."""
    rng = torch.Generator().manual_seed(SEED)
    centres = CENTRES * torch.randn(n_classes, d, generator=rng) / d**0.25
    labels = torch.arange(m) * n_classes // m
    truth = torch.randint(n_classes, (n,), generator=rng)
    references = centres[labels] + NOISE * torch.randn(m, d, generator=rng)
    queries = centres[truth] + NOISE * torch.randn(n, d, generator=rng)
    return queries.to(device), truth.to(device), references.to(device), labels.to(device)


def ours(index: Index, backend: str) -> Contender:
    return lambda queries, truth: cross_entropy(query(index, queries, backend=backend).log_class_weights, truth)


def padded(references: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """(K, members, d): sorted by class; a class with one member fewer gets a point too far away to count."""
    members = math.ceil(len(labels) / n_classes)
    place = torch.arange(len(labels), device=labels.device) - torch.searchsorted(labels, labels)
    rows = references.new_full((n_classes, members, references.shape[1]), 1e4)
    rows[labels, place] = references
    return rows


def dense(rows: Tensor) -> Contender:
    """The matrix from torch.cdist, squared; rows are (K, members, d)."""

    def loss(queries: Tensor, truth: Tensor) -> Tensor:
        log_w = -torch.cdist(queries, rows.flatten(0, 1)).square()
        return cross_entropy(log_w.view(len(queries), *rows.shape[:2]).logsumexp(dim=2), truth)

    return loss


def product(rows: Tensor) -> Contender:
    """The matrix from one product; ‖q‖², the same for every class, changes neither loss nor gradient."""
    flat = rows.flatten(0, 1)
    doubled, norms = 2 * flat.mT.contiguous(), -flat.square().sum(dim=1)

    def loss(queries: Tensor, truth: Tensor) -> Tensor:
        log_w = torch.addmm(norms, queries, doubled)
        return cross_entropy(log_w.view(len(queries), *rows.shape[:2]).logsumexp(dim=2), truth)

    return loss


def differentiate(loss: Contender, queries: Tensor, truth: Tensor) -> Tensor:
    h = queries.detach().requires_grad_()
    return torch.autograd.grad(loss(h, truth), h)[0]


def seconds(work: Callable[[], Tensor], device: str, turns: int) -> float:
    """The median time of several runs, waiting for the GPU; a tenth as many warm-up runs do not count."""
    taken = []
    for turn in range(-(turns // 10), turns):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        if turn >= 0:
            taken.append(time.perf_counter() - start)
    return sorted(taken)[turns // 2]


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def peak(work: Callable[[], Tensor], device: str) -> float:
    """Peak MiB of GPU memory above what was in use before."""
    if device != "cuda":
        return math.nan
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def exact_gradient(queries: Tensor, truth: Tensor, rows: Tensor) -> Tensor:
    """The dense method in float64, some queries at a time."""
    loss, n = dense(rows.double()), len(queries)
    both = zip(queries.double().split(128), truth.split(128), strict=True)
    return torch.cat([differentiate(loss, h, y) * (len(h) / n) for h, y in both])


def measure(n: int, m: int, d: int, n_classes: int, device: str, turns: int) -> list[dict[str, Any]]:
    queries, truth, references, labels = inputs(n, m, d, n_classes, device)
    rows = padded(references, labels, n_classes)
    exact = exact_gradient(queries, truth, rows)
    index = build_index(references, labels, n_classes, get_kernel("gaussian"))
    backend = "triton" if device == "cuda" and "triton" in BACKENDS else "auto"
    torch.compiler.reset()  # each setting gets its own graph, with fixed sizes
    contenders = {
        f"dwac, {backend}": ours(index, backend),
        "dense, cdist": dense(rows),
        "dense, one product": product(rows),
        "dense, one product, torch.compile": torch.compile(product(rows)),
    }
    table: list[dict[str, Any]] = []
    for who, loss in contenders.items():
        work = Work(loss, queries, truth)
        gradient = work()  # compiles and fills the caches of the index
        taken = 1e3 * seconds(work, device, turns)
        table.append(
            {
                "who": who,
                "d": d,
                "K": n_classes,
                "ms": taken,
                "times dwac's": taken / (table[0]["ms"] if table else taken),
                "MiB above inputs": peak(work, device),
                "error": float((gradient - exact).norm() / exact.norm()),
                "largest error": float((gradient - exact).abs().max() / exact.abs().max()),
            }
        )
        print(table[-1], flush=True)
    return table


class Work:
    """One loss and its gradient, to be called repeatedly."""

    def __init__(self, loss: Contender, queries: Tensor, truth: Tensor) -> None:
        self.loss, self.queries, self.truth = loss, queries, truth

    def __call__(self) -> Tensor:
        return differentiate(self.loss, self.queries, self.truth)


def main() -> None:
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gradient")
    parser.add_argument("--queries", type=int, default=4096 if gpu else 512)
    parser.add_argument("--references", type=int, default=65_536 if gpu else 16_384)
    parser.add_argument("--turns", type=int, default=100 if gpu else 3)
    chosen = parser.parse_args()
    device = "cuda" if gpu else "cpu"
    rows = []
    for d, n_classes in SHAPES:
        rows += measure(chosen.queries, chosen.references, d, n_classes, device, chosen.turns)
    table = pd.DataFrame(rows)
    if gpu:  # the claim is about a GPU
        table["verdict"] = [
            "" if who != "dense, cdist" else "met" if ratio >= AT_LEAST else "missed"
            for who, ratio in zip(table["who"], table["times dwac's"], strict=True)
        ]
    config = {"n": chosen.queries, "m": chosen.references, "turns": chosen.turns, "seed": SEED}
    record.write(f"gradient_{'gpu' if gpu else 'cpu'}", (__doc__ or "").split("\n")[0], config, table)


if __name__ == "__main__":
    main()
