"""What the suites of the engine, and of what is built on it, share: backends, kernels, problems, comparisons."""

import os
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dwac.engine import BACKENDS, QueryResult, build_index, query
from dwac.kernels import KERNELS, get_kernel

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
# Triton's kernels run on a GPU, or slowly in its interpreter, in NumPy.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
every_backend = pytest.mark.parametrize(
    ("backend", "device"),
    [(name, device) for name in BACKENDS for device in DEVICES if (name, device) != ("triton", "cpu") or INTERPRETED],
)
every_device = pytest.mark.parametrize("device", DEVICES)
every_kernel = pytest.mark.parametrize("kernel", list(KERNELS))
any_kernel = st.sampled_from(list(KERNELS))  # for symmetries, which hold whatever the kernel is
relaxed = settings(max_examples=5 if INTERPRETED else 25)


def ask(queries, references, labels, n_classes, *, kernel="gaussian", backend="auto", device="cpu", k=0) -> QueryResult:
    """The engine's answer, on the CPU."""
    references = torch.as_tensor(references, device=device)
    index = build_index(references, torch.as_tensor(labels, device=device), n_classes, get_kernel(kernel))
    result = query(index, torch.as_tensor(queries, device=device), k=k, backend=backend)
    return QueryResult(*(field.cpu() for field in result))


def assert_close(got, want, tolerance: float = 1e-5) -> None:
    """Relative to the log sum, or to 1 where it crosses 0; infinities must match."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    error = np.abs(got[finite] - want[finite]) / np.maximum(1, np.abs(want[finite]))
    assert error.max(initial=0) <= tolerance


def softmax(votes) -> NDArray[np.float64]:
    return np.asarray(torch.as_tensor(votes).softmax(dim=1))


def case(n: int, m: int, d: int, n_classes: int, seed: int = 0, scale: float = 1.0, dtype=np.float32):
    """Queries (n, d) and references (m, d) spread alike, and labels (m,)."""
    rng = np.random.default_rng(seed)
    queries, references = scale * rng.normal(size=(n, d)), scale * rng.normal(size=(m, d))
    return queries.astype(dtype), references.astype(dtype), rng.integers(0, n_classes, m)


def partition(codes: Any) -> set[frozenset[int]]:
    """The sets of rows with equal codes: a division whatever the numbers are."""
    codes = np.asarray(codes)
    return {frozenset(np.flatnonzero(codes == code).tolist()) for code in np.unique(codes)}


def most_central(points: Any, codes: Any, weights: Any) -> list[int]:
    """Brute force: of each group the member nearest to the weighted mean, the first of equals."""
    found = []
    for code in range(max(codes) + 1):
        rows = np.flatnonzero(codes == code)
        mean = np.average(points[rows], axis=0, weights=weights[rows])
        squared = np.square(points[rows] - mean).sum(axis=1)
        found.append(int(rows[np.flatnonzero(squared <= squared.min() * (1 + 1e-9))[0]]))
    return found
