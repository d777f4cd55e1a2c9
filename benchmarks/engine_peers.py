"""The contenders of `benchmarks.engine`: each prepares references and then answers queries.

A contender takes a `Problem`, with its tensors on the device to compute on, and returns a function of queries. That
function returns an `Answer`: the log class weights log Σ_i I(y_i=k) exp(-‖h-h_i‖²), if the contender computes them, and
the rows of the k nearest references, if requested.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dwac.engine import BACKENDS, build_index, query
from dwac.kernels import get_kernel


class Problem(NamedTuple):
    references: Tensor  # (m, d)
    labels: Tensor  # (m,)
    n_classes: int
    k: int  # number of neighbours; 0: class sums only


class Answer(NamedTuple):
    log_class_weights: Tensor | None  # (n, K)
    rows: Tensor | None  # (n, k)


Ask = Callable[[Tensor], Answer]
Prepare = Callable[[Problem], Ask]


class Contender(NamedTuple):
    """How to prepare a contender, and how many queries it gets: fewer if it is slow."""

    prepare: Prepare
    cpu: int = 1_000_000_000  # queries on a CPU, at most
    cuda: int = 1_000_000_000
    normalised: bool = False  # whether it returns log-probabilities


def ours(problem: Problem, backend: str = "auto") -> Ask:
    index = build_index(problem.references, problem.labels, problem.n_classes, get_kernel("gaussian"))

    def ask(queries: Tensor) -> Answer:
        found = query(index, queries, k=problem.k, backend=backend)
        return Answer(found.log_class_weights, found.rows if problem.k else None)

    return ask


# The plain method, as in the research code: the matrix of squared distances, exp, product with one-hot labels.

CHUNKS = {  # queries and references of one matrix: all are tried and the fastest is used
    "cpu": [(256, 2048), (256, 8192), (256, 65_536)],
    "cuda": [(64, 1_048_576), (512, 262_144), (4096, 65_536), (4096, 262_144)],
}


def weigh(queries: Tensor, references: Tensor, norms: Tensor, one_hot: Tensor) -> Tensor:
    """Σ_i I(y_i=k) exp(-‖h-h_i‖²). Holds the whole matrix and loses weights that underflow."""
    squared = queries.square().sum(dim=1, keepdim=True) + norms - 2 * queries @ references.mT
    return torch.exp(-squared.clamp_min(0)) @ one_hot


def plain(problem: Problem, compiled: bool = False) -> Ask:
    references = problem.references
    norms = references.square().sum(dim=1)
    one_hot = torch.nn.functional.one_hot(problem.labels, problem.n_classes).to(references)
    torch.compiler.reset()  # each problem has graphs for its own sizes
    fused = torch.compile(weigh, dynamic=False) if compiled else weigh

    def chunked(queries: Tensor, chunk: tuple[int, int]) -> Answer:
        total = queries.new_zeros(len(queries), problem.n_classes)
        for part, here in zip(queries.split(chunk[0]), total.split(chunk[0]), strict=True):
            for start in range(0, len(references), chunk[1]):
                there = slice(start, start + chunk[1])
                whole = len(part) == min(chunk[0], len(queries)) and there.stop <= len(references)
                # The remainders at the ends are not worth a compilation.
                here += (fused if whole else weigh)(part, references[there], norms[there], one_hot[there])
        return Answer(total.log(), None)

    best: list[tuple[int, int]] = []

    def ask(queries: Tensor) -> Answer:
        if not best:  # the first call, which is not timed, tries them all
            best.append(min(CHUNKS[queries.device.type], key=lambda chunk: _pace(partial(chunked, queries), chunk)))
        return chunked(queries, best[0])

    return ask


def _pace(ask: Callable[[tuple[int, int]], Answer], chunk: tuple[int, int]) -> float:
    """Seconds with a chunk size, once it is compiled; infinity if memory does not suffice."""
    try:
        ask(chunk)
        start = _now()
        ask(chunk)
        return _now() - start
    except torch.OutOfMemoryError:
        return float("inf")


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def topk(problem: Problem) -> Ask:
    """torch.topk over the matrix of distances from some queries to all references."""
    norms = problem.references.square().sum(dim=1)

    def ask(queries: Tensor) -> Answer:
        parts = queries.split(1024 if queries.is_cuda else 32)
        found = [(2 * part @ problem.references.mT).sub_(norms).topk(problem.k, dim=1).indices for part in parts]
        return Answer(None, torch.cat(found))

    return ask


# Libraries. Each is imported only by its own contender, so that a missing one affects no other.


def rbf_kernel(problem: Problem) -> Ask:
    from sklearn.metrics.pairwise import rbf_kernel

    r, one_hot = problem.references.numpy(), np.eye(problem.n_classes, dtype=np.float32)[problem.labels.numpy()]

    def ask(queries: Tensor) -> Answer:
        with np.errstate(divide="ignore"):
            sums = [np.log(rbf_kernel(part.numpy(), r, gamma=1.0) @ one_hot) for part in queries.split(10)]
        return Answer(torch.from_numpy(np.concatenate(sums)), None)

    return ask


def kernel_density(problem: Problem) -> Ask:
    """One density per class, with zero tolerance; the sums of its tree still lose digits."""
    from sklearn.neighbors import KernelDensity

    members = [problem.references[problem.labels == label].numpy() for label in range(problem.n_classes)]
    densities = [KernelDensity(bandwidth=np.sqrt(0.5), rtol=0, atol=0).fit(rows) for rows in members]
    constants = [np.log(len(rows)) + problem.references.shape[1] / 2 * np.log(np.pi) for rows in members]

    def ask(queries: Tensor) -> Answer:
        pairs = zip(densities, constants, strict=True)
        columns = [density.score_samples(queries.numpy()) + constant for density, constant in pairs]
        return Answer(torch.from_numpy(np.stack(columns, axis=1)), None)

    return ask


def neighbours_classifier(problem: Problem) -> Ask:
    """KNeighborsClassifier with a callable weight and all references as neighbours."""
    from sklearn.neighbors import KNeighborsClassifier

    votes = KNeighborsClassifier(
        len(problem.references), weights=lambda distance: np.exp(-(distance**2)), algorithm="brute"
    )
    votes.fit(problem.references.numpy(), problem.labels.numpy())

    def ask(queries: Tensor) -> Answer:
        with np.errstate(divide="ignore"):
            return Answer(torch.from_numpy(np.log(votes.predict_proba(queries.numpy()))), None)

    return ask


def keops(problem: Problem) -> Ask:
    """A product with one-hot labels, which is faster than one log-sum-exp per class. Weights may underflow."""
    import pykeops
    from pykeops.torch import LazyTensor

    pykeops.set_verbose(False)
    one_hot = torch.nn.functional.one_hot(problem.labels, problem.n_classes).to(problem.references)

    def ask(queries: Tensor) -> Answer:
        squared = ((LazyTensor(queries[:, None]) - LazyTensor(problem.references[None])) ** 2).sum(-1)
        return Answer(((-squared).exp() @ one_hot).log(), None)

    return ask


def faiss_flat(problem: Problem) -> Ask:
    import faiss

    index: Any = faiss.IndexFlatL2(problem.references.shape[1])
    if problem.references.is_cuda:
        if not hasattr(faiss, "StandardGpuResources"):
            raise ImportError("faiss is built without a GPU")
        index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
    faiss.omp_set_num_threads(torch.get_num_threads())
    index.add(problem.references.cpu().numpy())

    def ask(queries: Tensor) -> Answer:
        return Answer(None, torch.from_numpy(index.search(queries.cpu().numpy(), problem.k)[1]))

    return ask


SUMS = {
    "dwac": Contender(ours),  # backend="auto"
    **{f"dwac, {name}": Contender(partial(ours, backend=name)) for name in BACKENDS},
    "research code's method, best chunks": Contender(plain, cpu=2048, cuda=32_768),
    "research code's method, torch.compile": Contender(partial(plain, compiled=True), cpu=2048, cuda=32_768),
    "KeOps": Contender(keops, cpu=512),
    "scikit-learn rbf_kernel": Contender(rbf_kernel, cpu=256, cuda=0),
    "scikit-learn KernelDensity": Contender(kernel_density, cpu=10, cuda=0),
    "scikit-learn KNeighborsClassifier": Contender(neighbours_classifier, cpu=16, cuda=0, normalised=True),
}
NEIGHBOURS = {
    "dwac": Contender(ours),
    "faiss IndexFlatL2": Contender(faiss_flat, cpu=2048),
    "torch.topk on all distances": Contender(topk, cpu=512),
}
