"""Answers within a tolerance: the bound holds against a float64 oracle, whatever the data, and the work is less."""

import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dwac import ReferenceSet
from dwac.engine import BoundedResult, Cells, build_cells, build_index, query, query_within
from dwac.engine.bounded import division, leaves, tree
from dwac.engine.bounded import search as bounded
from dwac.engine.bounded.search import SIZES, Sizes
from dwac.engine.bounded.tree import pairs
from dwac.errors import InputError, ShapeError
from dwac.kernels import get_kernel
from tests import oracle
from tests.engine.helpers import any_kernel, every_device, every_kernel
from tests.named import refuses

relaxed = settings(max_examples=30)


@pytest.fixture(autouse=True, scope="module")
def patience():
    """Search small trees to the end, instead of summing all references at once."""
    with pytest.MonkeyPatch.context() as patch:
        for device, sizes in SIZES.items():
            patch.setitem(SIZES, device, sizes._replace(whole=2.0))
        yield


def cells_of(references, labels, n_classes, *, kernel="gaussian", leaf_size=16, device="cpu") -> Cells:
    """Small leaves, so that few references already make trees."""
    references, labels = torch.as_tensor(references, device=device), torch.as_tensor(labels, device=device)
    return build_cells(build_index(references, labels, n_classes, get_kernel(kernel)), leaf_size)


def truth(queries, references, labels, n_classes, kernel="gaussian"):
    """The oracle, by NumPy's own log-sum-exp in blocks: the double loop would take minutes."""
    queries, references = np.asarray(queries, np.float64), np.asarray(references, np.float64)
    squared = np.square(queries[:, None] - references).sum(axis=2)
    log_w = {"gaussian": -squared, "laplace": -np.sqrt(squared), "inverse_quadratic": -np.log1p(squared)}[kernel]
    columns = [
        np.logaddexp.reduce(log_w[:, labels == k], axis=1) if (labels == k).any() else np.full(len(queries), -np.inf)
        for k in range(n_classes)
    ]
    return np.stack(columns, axis=1)


def errors(result: BoundedResult, want) -> np.ndarray:
    """(n,): the largest error of each query; infinities must match."""
    got = result.log_class_weights.cpu().numpy()
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    finite = np.isfinite(want)
    return np.asarray(np.abs(np.where(finite, got, 0) - np.where(finite, want, 0)).max(axis=1))


def assert_certified(result: BoundedResult, want, tolerance: float) -> None:
    bounds = result.bounds.cpu().numpy()
    # NumPy's own sums have errors too, in proportion to the log-weights.
    assert (errors(result, want) <= bounds + 1e-13 * np.abs(np.where(np.isfinite(want), want, 0)).max(axis=1)).all()
    assert (bounds <= tolerance).all()


def clustered(seed: int, m: int, d: int, n_classes: int, spread: float, offset: float = 0.0, dtype=np.float32):
    """References in tight or wide clusters, some of them repeated, and queries near, between and far from them."""
    rng = np.random.default_rng(seed)
    centres = offset + 3 * rng.normal(size=(n_classes + 2, d))
    references = centres[rng.integers(len(centres), size=m)] + spread * rng.normal(size=(m, d))
    references[m // 2 :: 3] = references[0]
    queries = centres[rng.integers(len(centres), size=12)] + rng.normal(size=(12, d))
    queries[0], queries[1], queries[2] = references[0], references[-1], offset + 40 * rng.normal(size=d)
    labels = rng.integers(0, n_classes, size=m)
    labels[labels == n_classes // 2] = 0  # a class without references, unless there is one class only
    return queries.astype(dtype), references.astype(dtype), labels


# The bounds


@relaxed
@given(
    seed=st.integers(0, 2**20),
    m=st.integers(1, 700),
    d=st.integers(1, 6),
    n_classes=st.integers(1, 5),
    spread=st.sampled_from([0.0, 0.01, 0.3, 2.0]),
    offset=st.sampled_from([0.0, 100.0]),
    kernel=any_kernel,
    tolerance=st.sampled_from([1e-3, 1e-2, 0.1, 1.0]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_the_bound_holds_and_stays_below_the_tolerance(
    seed, m, d, n_classes, spread, offset, kernel, tolerance, dtype
) -> None:
    queries, references, labels = clustered(seed, m, d, n_classes, spread, offset, dtype)
    cells = cells_of(references, labels, n_classes, kernel=kernel)
    result = query_within(cells, torch.as_tensor(queries), tolerance)
    assert_certified(result, truth(queries, references, labels, n_classes, kernel), tolerance)


@every_device
@every_kernel
@pytest.mark.parametrize("d", [1, 7, 30, 31, 60])
def test_the_bound_holds_with_and_without_variances(kernel: str, device: str, d: int) -> None:
    queries, references, labels = clustered(d, 900, d, 3, 0.2)
    cells = cells_of(references, labels, 3, kernel=kernel, device=device)
    assert (cells.summary.covariances.shape[1] > 0) == (d <= 30)
    result = query_within(cells, torch.as_tensor(queries, device=device), 1e-2)
    assert_certified(result, truth(queries, references, labels, 3, kernel), 1e-2)


@every_kernel
@pytest.mark.parametrize("far", [1e3, 1e6, 1e12])
def test_the_bound_holds_for_queries_however_far(kernel: str, far: float) -> None:
    queries, references, labels = clustered(3, 400, 3, 3, 0.5, dtype=np.float64)
    queries[:6] *= far
    result = query_within(cells_of(references, labels, 3, kernel=kernel), torch.as_tensor(queries), 1e-2)
    want = truth(queries, references, labels, 3, kernel)
    slack = 1e-15 * np.square(queries).sum(axis=1)  # of the oracle
    assert (errors(result, want) <= result.bounds.numpy() + slack).all()
    assert result.bounds[6:].max() <= 1e-2


def test_extremely_far_queries_are_as_exact_as_floats_allow() -> None:
    references = torch.randn(300, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    cells = cells_of(references, torch.arange(300) % 2, 2)
    queries = torch.tensor([[1e140, 0.0], [0.0, 0.0]], dtype=torch.float64)
    result = query_within(cells, queries, 1e-2)
    assert torch.isfinite(result.log_class_weights).all()
    assert result.bounds[1] <= 1e-2 < result.bounds[0]


def test_extremely_spread_references_are_as_exact_as_floats_allow() -> None:
    references = 1e120 * torch.randn(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    references[50:100] = 0.5
    labels = torch.arange(200) % 2
    result = query_within(cells_of(references, labels, 2), torch.zeros(1, 2, dtype=torch.float64), 1e-2)
    assert result.log_class_weights.tolist() == [pytest.approx([math.log(25) - 0.5] * 2, abs=1e-2)]


def test_agrees_with_the_oracle_of_the_engine() -> None:
    queries, references, labels = clustered(5, 40, 2, 3, 0.5)
    want = oracle.log_class_weights(queries, references, labels, 3, "gaussian")
    assert_certified(query_within(cells_of(references, labels, 3), torch.as_tensor(queries), 1e-3), want, 1e-3)


@pytest.mark.parametrize("tolerance", [1e-7, np.float32(0.5), 3, 1e6])
def test_tolerances_small_and_large_are_kept(tolerance) -> None:
    queries, references, labels = clustered(6, 600, 3, 3, 0.5)
    result = query_within(cells_of(references, labels, 3), torch.as_tensor(queries), tolerance)
    assert_certified(result, truth(queries, references, labels, 3), tolerance)


@pytest.mark.parametrize(("n", "m"), [(0, 5), (1, 1), (3, 17), (200, 33)])
def test_any_number_of_queries_and_references(n: int, m: int) -> None:
    generator = torch.Generator().manual_seed(n)
    queries, references = torch.randn(n, 2, generator=generator), torch.randn(m, 2, generator=generator)
    labels = torch.zeros(m, dtype=torch.int64)
    result = query_within(cells_of(references, labels, 2), queries, 1e-2)
    assert result.log_class_weights.shape == (n, 2)
    assert result.bounds.shape == (n,)
    if n:
        assert_certified(result, truth(queries, references, labels.numpy(), 2), 1e-2)


# The sizes


@pytest.mark.parametrize("d", [3, 31])
@pytest.mark.parametrize(
    "sizes",
    [
        SIZES["cuda"],
        Sizes(queries=1, bounds=1, pairs=1, most=1, tile=1, whole=2.0),
        Sizes(queries=4, bounds=50, pairs=100, most=300, tile=70, whole=0.9),
        Sizes(queries=10**6, bounds=10**9, pairs=10**9, most=10**9, tile=10**9, whole=0.0),
    ],
)
def test_the_bound_holds_however_the_work_is_split(monkeypatch, sizes: Sizes, d: int) -> None:
    monkeypatch.setitem(SIZES, "cpu", sizes)
    monkeypatch.setitem(leaves.COPIED, "cpu", 40 * (d + 5))
    monkeypatch.setattr(bounded, "ANSWERED", 7 * max(d, 4))
    queries, references, labels = clustered(d, 300, d, 4, 0.3)
    result = query_within(cells_of(references, labels, 4), torch.as_tensor(queries), 1e-2)
    assert_certified(result, truth(queries, references, labels, 4), 1e-2)


@every_device
@every_kernel
@pytest.mark.parametrize(("tolerance", "dtype"), [(1e-2, np.float32), (1e-6, np.float32), (1e-2, np.float64)])
def test_the_bound_holds_where_all_references_are_summed(
    monkeypatch, device: str, kernel: str, tolerance: float, dtype
) -> None:
    monkeypatch.setitem(SIZES, device, SIZES[device]._replace(whole=0.5))
    queries, references, labels = clustered(13, 900, 5, 3, 2.0, dtype=dtype)
    queries = queries[3:]  # the first ones are copies of references, or far
    cells = cells_of(references, labels, 3, kernel=kernel, device=device)
    result = query_within(cells, torch.as_tensor(queries, device=device), tolerance)
    assert result.pairs >= 900 * len(queries)
    assert_certified(result, truth(queries, references, labels, 3, kernel), tolerance)


def test_far_queries_are_summed_by_differences_in_parts_of_the_references(monkeypatch) -> None:
    monkeypatch.setattr(bounded, "DIRECT", 64)
    references = torch.randn(300, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(300) // 100  # parts lack classes
    queries = torch.tensor([[1e9, 0.0], [1e140, 0.0]], dtype=torch.float64)
    result = query_within(cells_of(references, labels, 4), queries, 1e-2)
    want = truth(queries, references, labels.numpy(), 4)
    np.testing.assert_allclose(result.log_class_weights.numpy(), want, rtol=1e-14)
    assert (errors(result, want) <= result.bounds.numpy()).all()


# The cells


def members(cells: Cells, cell: int) -> torch.Tensor:
    """The references of a cell, by descent."""
    if cells.n_children[cell] == 0:
        size = cells.leaf_blocks * cells.index.block_size
        start = int(cells.first[cell]) * cells.index.block_size
        rows = cells.index.rows[start : start + size]
        return rows[rows >= 0]
    first = int(cells.first[cell])
    return torch.cat([members(cells, child) for child in range(first, first + int(cells.n_children[cell]))])


@pytest.mark.parametrize("leaf_size", [16, 256])
def test_cells_have_count_radius_mean_and_variance_of_the_squared_distances(leaf_size: int) -> None:
    queries, references, labels = clustered(7, 1000, 4, 3, 0.5, dtype=np.float64)
    cells = cells_of(references, labels, 3, leaf_size=leaf_size)
    everyone = torch.cat([members(cells, root) for root in cells.roots.tolist()])
    assert everyone.sort().values.tolist() == list(range(1000))
    h = torch.as_tensor(queries) - cells.index.centre
    ones = torch.cat([h, torch.ones(len(h), 1, dtype=torch.float64)], dim=1)
    a, b = pairs(5, h.device)
    for cell in range(0, len(cells.labels), 7):
        rows, summary = members(cells, cell), cells.summary
        squared = (torch.as_tensor(queries)[:, None] - cells.index.embeddings[rows]).square().sum(dim=2)
        offsets = cells.index.embeddings[rows] - cells.index.centre - summary.centres[cell]
        assert (cells.index.labels[rows] == cells.labels[cell]).all()
        assert len(rows) == summary.counts[cell]
        torch.testing.assert_close(offsets.square().sum(dim=1).amax().sqrt(), summary.radii[cell])
        torch.testing.assert_close(h.square().sum(dim=1) - ones @ summary.folded[cell], squared.mean(dim=1))
        variance = (ones[:, a] * ones[:, b]) @ summary.covariances[cell]
        torch.testing.assert_close(variance, squared.var(dim=1, correction=0), atol=1e-9, rtol=1e-6)


def test_an_index_in_the_order_of_the_cells_answers_as_before() -> None:
    queries, references, labels = clustered(8, 500, 3, 4, 0.5)
    index = build_index(torch.as_tensor(references), torch.as_tensor(labels), 4, get_kernel("gaussian"))
    before, after = (query(i, torch.as_tensor(queries), k=3) for i in (index, build_cells(index, 32).index))
    torch.testing.assert_close(after.log_class_weights, before.log_class_weights, atol=1e-5, rtol=1e-6)
    assert torch.equal(after.rows, before.rows)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 5])
def test_classes_too_large_to_sort_at_once_are_divided_first(monkeypatch, d: int, dtype) -> None:
    monkeypatch.setitem(tree.PART, "cpu", 100 * (d + 4))
    queries, references, labels = clustered(12, 2500, d, 4, 0.5, dtype=dtype)
    cells = cells_of(references, labels, 4)
    roots = cells.summary.counts[cells.roots]
    assert len(roots) > 16
    assert roots.max() <= 100
    everyone = torch.cat([members(cells, root) for root in cells.roots.tolist()])
    assert everyone.sort().values.tolist() == list(range(2500))
    assert (cells.index.labels[everyone] == cells.labels[cells.roots].repeat_interleave(roots.long())).all()
    assert_certified(query_within(cells, torch.as_tensor(queries), 1e-2), truth(queries, references, labels, 4), 1e-2)


def test_parts_are_separated_along_the_longest_axis(monkeypatch) -> None:
    monkeypatch.setitem(tree.PART, "cpu", 256 * 6)
    generator = torch.Generator().manual_seed(0)
    references = torch.randn(1024, 2, generator=generator) * torch.tensor([100.0, 1.0])
    cells = cells_of(references, torch.zeros(1024, dtype=torch.int64), 1)
    parts = [cells.index.embeddings[members(cells, root), 0] for root in cells.roots.tolist()]
    parts.sort(key=lambda x: float(x.mean()))
    assert len(parts) == 4
    assert all(a.max() <= b.min() + 5 for a, b in pairwise(parts))


@pytest.mark.parametrize(
    "keys", [[5.0] * 9, [3, -1, 3, 3, -0.0, 0.0, 3, 7, -2], [math.inf, 2, -math.inf, 1, 0, 3, 9, 9, 9]]
)
@pytest.mark.parametrize("step", [1, 4, 100])
def test_the_lowest_keys_come_to_the_front_in_their_order(keys: list[float], step: int) -> None:
    bits = division.sortable(torch.tensor(keys))
    for middle in range(1, len(keys)):
        places = torch.arange(len(keys))
        division.separate(places, bits, torch.empty_like(bits), middle, step)
        want = sorted(range(len(keys)), key=lambda i: int(bits[i]))[:middle]
        assert places.tolist() == sorted(want) + [i for i in range(len(keys)) if i not in want]


# The work


def tight_clusters(m: int):
    """Queries and references in 20 clusters far smaller than the kernel is wide."""
    generator = torch.Generator().manual_seed(0)
    centres = 4 * torch.randn(20, 5, generator=generator)
    which = torch.randint(20, (m,), generator=generator)
    references = centres[which] + 0.005 * torch.randn(m, 5, generator=generator)
    return centres.repeat(3, 1) + 0.005 * torch.randn(60, 5, generator=generator), references, which % 4


def test_tight_clusters_cost_far_fewer_pairs() -> None:
    queries, references, labels = tight_clusters(40_000)
    result = query_within(cells_of(references, labels, 4, leaf_size=64), queries, 1e-2)
    assert result.pairs + result.cells < 0.05 * len(queries) * len(references)
    exact = query(build_index(references, labels, 4, get_kernel("gaussian")), queries).log_class_weights
    assert ((result.log_class_weights - exact).abs().amax(dim=1) <= result.bounds + 1e-4).all()


def test_work_grows_slower_than_the_references() -> None:
    work = []
    for m in (5_000, 40_000):
        queries, references, labels = tight_clusters(m)
        result = query_within(cells_of(references, labels, 4, leaf_size=64), queries, 1e-2)
        work.append(result.pairs + result.cells)
    assert work[1] < 2 * work[0]


def test_a_smaller_tolerance_costs_more() -> None:
    queries, references, labels = clustered(9, 4000, 3, 3, 0.5)
    cells = cells_of(references, labels, 3, leaf_size=16)
    few, many = (query_within(cells, torch.as_tensor(queries), tolerance).pairs for tolerance in (1e-1, 1e-4))
    assert few < many


# Memory

MEMORY = """
import ctypes, sys, torch
from dwac.engine import build_cells, build_index, query_within
from dwac.kernels import get_kernel

def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024

def peak(work):
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # memory freed earlier must not hide new allocations
    before = status("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
    return work(), status("VmHWM") - before

def mebibytes(x):
    tensors = x if isinstance(x, tuple) else [x] if isinstance(x, torch.Tensor) else []
    return sum(t.numel() * t.element_size() / 2**20 for t in tensors)

m, d = map(int, sys.argv[1:])
generator = torch.Generator().manual_seed(0)
references, labels = torch.randn(m, d, generator=generator), torch.randint(3, (m,), generator=generator)
query_within(build_cells(build_index(references[:500], labels[:500], 3, get_kernel("gaussian"))), references[:9], 0.1)
index = build_index(references, labels, 3, get_kernel("gaussian"))
cells, building = peak(lambda: build_cells(index))
built = sum(mebibytes(x) for x in [*vars(cells).values(), cells.index.rows, cells.index.folded])
queries = 0.3 * references[:300]
print(building - built, peak(lambda: query_within(cells, queries, 0.1))[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux's /proc")
@pytest.mark.parametrize(("m", "d"), [(400_000, 2), (200_000, 30)])
def test_neither_building_nor_querying_takes_much_memory(m: int, d: int) -> None:
    source = f"import os; os.environ['OMP_NUM_THREADS'] = '1'\n{MEMORY}"
    command = [sys.executable, "-c", source, str(m), str(d)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    building, asking = map(float, answer.split())
    assert building < 100
    assert asking < 150


# The reference set


def test_no_tolerance_is_the_exact_answer() -> None:
    queries, references, labels = clustered(10, 300, 3, 3, 0.5)
    refs = ReferenceSet(references, labels, n_classes=3)
    for method in (refs.log_class_weights, refs.log_probabilities, refs.probabilities):
        np.testing.assert_array_equal(method(queries, tolerance=0), method(queries))
    assert "cells" not in vars(refs._state)


def test_a_reference_set_answers_within_a_tolerance_and_returns_the_bound() -> None:
    queries, references, labels = clustered(11, 300, 3, 3, 0.5)
    refs = ReferenceSet(references, labels, n_classes=3, class_weights=[1, 2, 3])
    votes, bounds = refs.log_class_weights_within(queries, tolerance=0.1)
    exact = refs.log_class_weights(queries)
    present = [0, 2]
    assert (np.abs(votes[:, present] - exact[:, present]) <= bounds[:, None] + 1e-4).all()
    assert (bounds <= 0.1).all()
    np.testing.assert_array_equal(refs.log_class_weights(queries, tolerance=0.1), votes)
    near, exact = (refs.log_probabilities(queries, tolerance=t)[:, present] for t in (0.1, 0))
    wrong = np.abs(near - exact)
    assert 0 < wrong.max() <= 0.2
    np.testing.assert_allclose(refs.probabilities(queries, tolerance=0.1).sum(axis=1), 1)


def test_an_edit_is_seen_within_a_tolerance_too() -> None:
    refs = ReferenceSet([[0.0], [1.0]], [0, 1])
    before = refs.log_class_weights([[0.0]], tolerance=0.01)
    refs.add([[0.0]], [0])
    after = refs.log_class_weights([[0.0]], tolerance=0.01)
    assert after[0, 0] - before[0, 0] == pytest.approx(np.log(2), abs=0.02)


@pytest.mark.parametrize("tolerance", [-1e-3, float("nan"), float("inf"), "small", None, True])
def test_an_invalid_tolerance_is_rejected(tolerance) -> None:
    refs = ReferenceSet([[0.0], [1.0]], [0, 1])
    for method in (refs.log_class_weights, refs.log_class_weights_within, refs.probabilities):
        with refuses(InputError, "tolerance", 0):
            method([[0.0]], tolerance=tolerance)


def test_a_bound_needs_a_tolerance() -> None:
    with refuses(InputError, "tolerance", 0):
        ReferenceSet([[0.0]], [0]).log_class_weights_within([[0.0]], 0)


def test_queries_of_another_width_or_with_gradients_are_rejected() -> None:
    cells = cells_of(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64), 1)
    with refuses(ShapeError, 2, (1, 3)):
        query_within(cells, torch.zeros(1, 3), 0.1)
    with refuses(InputError, "gradient"):
        query_within(cells, torch.zeros(1, 2, requires_grad=True), 0.1)
