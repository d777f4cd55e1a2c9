"""Gradients of the class sums: every backend against closed forms in float64, each query in the precision it needs."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dwac.engine import BACKENDS, build_index, exact, query
from dwac.kernels import get_kernel
from tests import oracle
from tests.engine.helpers import DEVICES, INTERPRETED, case, every_backend, every_kernel, relaxed

fused = pytest.mark.skipif(
    "triton" not in BACKENDS or not (INTERPRETED or "cuda" in DEVICES), reason="Triton runs on a GPU or interpreted"
)
DEVICE = DEVICES[-1] if not INTERPRETED else "cpu"
ORDINARY, WORST = 2e-5, 1e-3  # for well-spread data; guaranteed for any data
SLOPES = {
    "gaussian": lambda squared: np.full_like(squared, -1),
    "laplace": lambda squared: -0.5 / np.sqrt(np.where(squared > 0, squared, np.inf)),
    "inverse_quadratic": lambda squared: -1 / (1 + squared),
}


def closed_form(queries, references, labels, cotangent, kernel="gaussian"):
    """∂/∂q Σ c_k log W_k by differences in float64, and the size of what is added up for each query: (n, d), (n, 1)."""
    h, ref_h = np.asarray(queries, np.float64), np.asarray(references, np.float64)
    gradient, size = np.zeros_like(h), np.zeros((len(h), 1))
    log_w = oracle.log_weights(h, ref_h, kernel)
    for j, query_ in enumerate(h):
        difference = query_ - ref_h
        slopes = 2 * SLOPES[kernel](np.square(difference).sum(axis=1))
        for k in np.unique(labels):
            mine = labels == k
            shares = np.exp(log_w[j, mine] - oracle.log_sum_exp(list(log_w[j, mine])))
            gradient[j] += cotangent[j, k] * (shares * slopes[mine]) @ difference[mine]
            lengths = np.linalg.norm(difference[mine], axis=1)
            size[j] += abs(cotangent[j, k]) * (shares * np.abs(slopes[mine])) @ lengths
    return gradient, size


def differentiate(queries, references, labels, cotangent, *, kernel="gaussian", backend="auto", device="cpu"):
    """The engine's gradient, on the CPU."""
    index = build_index(
        torch.as_tensor(references, device=device),
        torch.as_tensor(labels, device=device),
        cotangent.shape[1],
        get_kernel(kernel),
    )
    h = torch.as_tensor(queries, device=device).requires_grad_()
    votes = query(index, h, backend=backend).log_class_weights
    (gradient,) = torch.autograd.grad(votes, h, torch.as_tensor(cotangent, device=device))
    assert gradient.dtype == h.dtype
    return gradient.cpu().numpy()


def assert_close(got, want_and_size, tolerance) -> None:
    want, size = want_and_size
    assert np.isfinite(got).all()
    assert (np.abs(got - want) <= tolerance * size + 1e-30).all()


def cotangents(n: int, n_classes: int, seed: int = 1):
    return np.random.default_rng(seed).normal(size=(n, n_classes))


@every_backend
@every_kernel
@pytest.mark.parametrize(
    ("n", "m", "d", "n_classes"),
    [
        (1, 1, 1, 1),
        (3, 1, 2, 4),
        (5, 9, 2, 1),
        (65, 130, 16, 10),
        (17, 600, 3, 50),
        (130, 257, 20, 3),
        (2, 1500, 33, 2),
        (3, 300, 7, 1000),
    ],
)
def test_gradients_equal_the_closed_form(backend, device, kernel, n, m, d, n_classes):
    queries, references, labels = case(n, m, d, n_classes, scale=0.7)
    cotangent = cotangents(n, n_classes)
    got = differentiate(queries, references, labels, cotangent, kernel=kernel, backend=backend, device=device)
    assert_close(got, closed_form(queries, references, labels, cotangent, kernel), ORDINARY)


@every_backend
@every_kernel
def test_gradients_in_float64_are_right_to_its_digits(backend, device, kernel):
    queries, references, labels = case(9, 150, 4, 5, dtype=np.float64)
    cotangent = cotangents(9, 5)
    got = differentiate(queries, references, labels, cotangent, kernel=kernel, backend=backend, device=device)
    assert_close(got, closed_form(queries, references, labels, cotangent, kernel), 1e-12)


@every_backend
def test_the_gradient_of_a_loss_equals_that_of_dense_autograd(backend, device):
    queries, references, labels = case(40, 500, 8, 6, scale=0.5)
    truth = torch.as_tensor(np.random.default_rng(2).integers(0, 6, 40))
    h = torch.as_tensor(queries).double().requires_grad_()
    log_w = -torch.cdist(h, torch.as_tensor(references).double()).square()
    votes = torch.stack([log_w[:, labels == k].logsumexp(dim=1) for k in range(6)], dim=1)
    (want,) = torch.autograd.grad(torch.nn.functional.cross_entropy(votes, truth), h)

    index = build_index(
        torch.as_tensor(references, device=device), torch.as_tensor(labels, device=device), 6, get_kernel("gaussian")
    )
    h = torch.as_tensor(queries, device=device).requires_grad_()
    loss = torch.nn.functional.cross_entropy(query(index, h, backend=backend).log_class_weights, truth.to(device))
    (got,) = torch.autograd.grad(loss, h)
    torch.testing.assert_close(got.cpu().double(), want, rtol=1e-4, atol=1e-7)


@every_backend
@pytest.mark.parametrize("offset", [1000.0, -1000.0])
def test_embeddings_far_from_the_origin_lose_no_accuracy(backend, device, offset):
    queries, references, labels = case(20, 150, 6, 4, scale=0.7)
    queries, references = queries + np.float32(offset), references + np.float32(offset)
    cotangent = cotangents(20, 4)
    got = differentiate(queries, references, labels, cotangent, backend=backend, device=device)
    assert_close(got, closed_form(queries, references, labels, cotangent), ORDINARY)


@every_backend
def test_far_queries_among_near_ones_are_right(backend, device):
    queries, references, labels = case(30, 80, 3, 4)
    queries[::3, 0] = 1e4
    references[:, 0] *= 1e-4  # so that far queries still divide their votes
    cotangent = cotangents(30, 4)
    got = differentiate(queries, references, labels, cotangent, backend=backend, device=device)
    want, size = closed_form(queries, references, labels, cotangent)
    assert_close(got, (want, size), ORDINARY)
    np.testing.assert_allclose(got[::3], want[::3], rtol=1e-5, atol=1e-4)


@every_backend
def test_only_queries_beyond_float32_are_differentiated_in_float64(backend, device, monkeypatch):
    queries, references, labels = case(30, 80, 3, 4)
    queries[[4, 20]] += 50
    cotangent = cotangents(30, 4)
    asked = []
    chosen = BACKENDS[backend]

    def gradient(index, centred, votes, pulls):
        asked.append((centred.dtype, len(centred)))
        return chosen.gradient(index, centred, votes, pulls)

    spy = SimpleNamespace(name="spy", rounding=chosen.rounding, sweep=chosen.sweep, gradient=gradient)
    monkeypatch.setattr(exact, "choose_backend", lambda *_: spy)
    got = differentiate(queries, references, labels, cotangent, device=device)
    assert asked == [(torch.float32, 30), (torch.float64, 2)]
    assert_close(got, closed_form(queries, references, labels, cotangent), ORDINARY)


@every_backend
def test_a_class_far_away_is_differentiated_in_float64_where_it_pulls(backend, device):
    queries, references, labels = case(20, 120, 4, 3)
    references[labels == 2] += 60
    queries[:, 0] += 5
    cotangent = np.array([[1.0, -1.0, 0.0], [0.5, 0.0, -0.5]]).repeat(10, axis=0)
    got = differentiate(queries, references, labels, cotangent, backend=backend, device=device)
    assert_close(got, closed_form(queries, references, labels, cotangent), WORST)
    assert_close(got[10:], [part[10:] for part in closed_form(queries, references, labels, cotangent)], 1e-6)


@every_backend
@pytest.mark.parametrize("d", [2, 16, 64])
@pytest.mark.parametrize("far", [300.0, 3e4, 2e5, 1e8])
def test_a_class_of_far_outliers_does_no_harm(backend, device, d, far):
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 2
    references = rng.normal(size=(400, d)) * 0.5 / np.sqrt(d)
    references[:, 0] += np.where(labels, 12, -12)
    labels[-6:] = 2
    references[-6:-3] = rng.uniform(0.9, 1.1, size=(3, d)) * far / np.sqrt(d)
    references[-3:] = -references[-6:-3]
    references = references.astype(np.float32)
    queries = references[:24] + np.float32(0.05)
    little = 1e-3 if far < 1e6 else 0.0  # squared distances of 1e16 are beyond float64 too
    cotangent = np.array([[1.0, -1.0, 0.0], [1.0, -1.0, 1e-30], [1.0, -1.0, little]]).repeat(8, axis=0)
    got = differentiate(queries, references, labels, cotangent, backend=backend, device=device)
    assert_close(got, closed_form(queries, references, labels, cotangent), WORST)


@every_backend
@every_kernel
def test_classes_without_references_have_no_gradient_whatever_their_cotangent(backend, device, kernel):
    queries, references, _ = case(6, 40, 3, 1)
    labels = np.where(np.arange(40) % 2, 1, 4)
    cotangent = cotangents(6, 6)
    want = closed_form(queries, references, labels, cotangent, kernel)
    cotangent[:, [0, 2]], cotangent[:, 5] = np.inf, np.nan
    got = differentiate(queries, references, labels, cotangent, kernel=kernel, backend=backend, device=device)
    assert_close(got, want, ORDINARY)


@every_backend
@every_kernel
def test_queries_without_a_cotangent_have_no_gradient(backend, device, kernel):
    queries, references, labels = case(6, 40, 3, 4)
    queries[1] = 1e10
    cotangent = cotangents(6, 4)
    cotangent[:4] = 0
    got = differentiate(queries, references, labels, cotangent, kernel=kernel, backend=backend, device=device)
    assert (got[:4] == 0).all()
    assert (got[4:] != 0).all()


@every_backend
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_size_of_a_loss_does_not_change_its_gradients_accuracy(backend, device, scale):
    queries, references, labels = case(6, 40, 3, 4)
    cotangent = cotangents(6, 4)
    got = differentiate(queries, references, labels, scale * cotangent, backend=backend, device=device)
    assert_close(got / scale, closed_form(queries, references, labels, cotangent), ORDINARY)


@every_backend
def test_a_query_on_a_single_reference_has_no_gradient(backend, device):
    queries, _, _ = case(5, 1, 4, 1)
    got = differentiate(queries, queries, np.arange(5), np.eye(5), backend=backend, device=device)
    np.testing.assert_allclose(got, 0, atol=1e-5)


@every_backend
@every_kernel
def test_gradients_of_many_queries_equal_those_of_each_alone(backend, device, kernel):
    queries, references, labels = case(300, 700, 5, 3, scale=0.7)
    cotangent = cotangents(300, 3)
    how = {"kernel": kernel, "backend": backend, "device": device}
    whole = differentiate(queries, references, labels, cotangent, **how)
    for one in ([0], [255], [256], [299]):
        alone = differentiate(queries[one], references, labels, cotangent[one], **how)
        np.testing.assert_allclose(alone, whole[one], rtol=1e-4, atol=1e-5)


@every_backend
def test_gradients_in_several_parts_equal_those_in_one(backend, device, monkeypatch):
    queries, references, labels = case(50, 200, 5, 3, scale=0.7)
    whole = differentiate(queries, references, labels, cotangents(50, 3), backend=backend, device=device)
    monkeypatch.setattr(exact, "COTANGENTS", 5 * 17)
    parts = differentiate(queries, references, labels, cotangents(50, 3), backend=backend, device=device)
    np.testing.assert_allclose(parts, whole, rtol=1e-4, atol=1e-6)


# The fused kernel


@pytest.fixture
def no_tiles(monkeypatch):
    """Fails the test if the fused gradient falls back to tiles."""

    def refuse(*_):
        raise AssertionError("not served by the fused kernel")

    monkeypatch.setattr("dwac.engine.triton.gradient.tiled_gradient", refuse)


@fused
@pytest.mark.usefixtures("no_tiles")
@pytest.mark.parametrize("d", [1, 15, 16, 17, 32, 33, 64, 65, 128, 129, 256])
@pytest.mark.parametrize(("n", "m", "n_classes"), [(3, 70, 5), (70, 150, 1)])
def test_the_fused_kernel_supports_every_width(d, n, m, n_classes):
    queries, references, labels = case(n, m, d, n_classes, scale=1 / np.sqrt(d))
    cotangent = cotangents(n, n_classes)
    got = differentiate(queries, references, labels, cotangent, backend="triton", device=DEVICE)
    assert_close(got, closed_form(queries, references, labels, cotangent), ORDINARY)


@fused
@pytest.mark.usefixtures("no_tiles")
@pytest.mark.parametrize("programs", [1, 2, 7, 10_000])
def test_any_division_of_the_references_among_programs_gives_the_same(monkeypatch, programs):
    queries, references, labels = case(20, 2000, 4, 3, scale=0.7)
    cotangent = cotangents(20, 3)
    monkeypatch.setattr("dwac.engine.triton.gradient.PROGRAMS", programs)
    got = differentiate(queries, references, labels, cotangent, backend="triton", device=DEVICE)
    assert_close(got, closed_form(queries, references, labels, cotangent), ORDINARY)


@fused
def test_what_the_fused_kernel_does_not_support_is_computed_in_tiles():
    queries, references, labels = case(3, 40, 257, 2, scale=0.05)
    cotangent = cotangents(3, 2)
    got = differentiate(queries, references, labels, cotangent, backend="triton", device=DEVICE)
    assert_close(got, closed_form(queries, references, labels, cotangent), ORDINARY)


# Properties


@st.composite
def problems(draw):
    """(queries, references, labels, cotangent), with duplicates, far points and a common offset now and then."""
    n, m, d = draw(st.integers(1, 6)), draw(st.integers(1, 40)), draw(st.integers(1, 4))
    n_classes = draw(st.integers(1, 5))
    reach = draw(st.sampled_from([1, 4, 30, 1000]))
    offset = draw(st.sampled_from([0, 100, -1000]))
    coordinate = st.floats(-reach, reach, width=16)
    queries = draw(hnp.arrays(np.float32, (n, d), elements=coordinate)) + np.float32(offset)
    references = draw(hnp.arrays(np.float32, (m, d), elements=st.floats(-4, 4, width=16))) + np.float32(offset)
    labels = draw(hnp.arrays(np.int64, m, elements=st.integers(0, n_classes - 1)))
    cotangent = draw(hnp.arrays(np.float64, (n, n_classes), elements=st.floats(-1, 1, width=16)))
    return queries, references, labels, cotangent


@every_backend
@every_kernel
@relaxed
@given(problem=problems())
def test_any_gradient_equals_the_closed_form(backend, device, kernel, problem):
    queries, references, labels, cotangent = problem
    got = differentiate(*problem, kernel=kernel, backend=backend, device=device)
    want, size = closed_form(queries, references, labels, cotangent, kernel)
    # A float32 query at a common offset is known to a few units of it.
    assert_close(got, (want, size + 1e-3), WORST)


@every_backend
@relaxed
@given(problem=problems(), seed=st.integers(0, 2**32 - 1))
def test_permuting_references_and_classes_changes_no_gradient(backend, device, problem, seed):
    queries, references, labels, cotangent = problem
    rng = np.random.default_rng(seed)
    order, renamed = rng.permutation(len(labels)), rng.permutation(cotangent.shape[1])
    want = differentiate(*problem, backend=backend, device=device)
    permuted = np.empty_like(cotangent)
    permuted[:, renamed] = cotangent
    got = differentiate(queries, references[order], renamed[labels[order]], permuted, backend=backend, device=device)
    _, size = closed_form(queries, references, labels, cotangent)
    assert_close(got, (want, size + 1e-3), 2 * WORST)


# Memory

MEMORY = """
import torch
from dwac.engine import build_index, query
from dwac.kernels import get_kernel

def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024

def work(n, m):
    index = build_index(references[:m], labels[:m], 10, get_kernel("gaussian"))
    h = queries[:n].clone().requires_grad_()
    torch.nn.functional.cross_entropy(query(index, h).log_class_weights, labels[:n]).backward()

queries, references, labels = torch.randn(1000, 8), torch.randn(150_000, 8), torch.randint(10, (150_000,))
work(5, 500)  # what the libraries load once is not counted
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
work(1000, 150_000)
print(status("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux's /proc")
def test_loss_and_gradient_never_hold_the_matrix():
    source = f"import os; os.environ['OMP_NUM_THREADS'] = '1'\n{MEMORY}"
    peak = float(subprocess.run([sys.executable, "-c", source], check=True, capture_output=True, text=True).stdout)
    assert peak < 200  # the matrix alone would take 600 MB
