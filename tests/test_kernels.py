"""Every kernel passes one suite; squared distances are accurate wherever the data lies and whatever torch allows."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dwac.errors import DwacError, KernelError, ShapeError
from dwac.kernels import KERNELS, full_precision, get_kernel, log_weights, squared_distances
from tests import oracle
from tests.named import refuses

every_kernel = pytest.mark.parametrize("kernel", list(KERNELS))


def points(n: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.as_tensor(np.random.default_rng(seed).normal(size=(n, d))).to(dtype)


@contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    """On a CPU with bfloat16 units, "medium" changes these products by 1e-1; on other CPUs it has no effect."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


# The suite that every kernel passes


def test_the_oracle_knows_every_kernel():
    assert set(oracle.LOG_WEIGHT) == set(KERNELS)


@every_kernel
def test_log_weight_follows_the_formula(kernel):
    squared = torch.tensor([0.0, 1e-8, 0.25, 1.0, 9.0, 1e4, 1e12], dtype=torch.float64)
    want = [oracle.LOG_WEIGHT[kernel](s) for s in squared.tolist()]
    np.testing.assert_allclose(get_kernel(kernel).log_weights(squared), want, rtol=1e-15)


@every_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_weight_falls_with_distance_and_never_exceeds_zero(kernel, dtype):
    squared = torch.cat([torch.zeros(1, dtype=dtype), torch.logspace(-5, 30, 400, dtype=dtype)])
    log_w = get_kernel(kernel).log_weights(squared)
    assert (log_w.diff() < 0).all()
    assert log_w[0] == 0
    assert log_w.isfinite().all()


@every_kernel
def test_log_weight_of_a_point_on_itself_is_zero_with_a_finite_gradient(kernel):
    squared = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    log_w = get_kernel(kernel).log_weights(squared)
    assert (log_w == 0).all()
    (slope,) = torch.autograd.grad(log_w.sum(), squared)
    assert slope.isfinite().all()


@every_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_stays_finite_when_all_points_coincide(kernel, dtype):
    x = torch.full((4, 3), 0.1, dtype=dtype, requires_grad=True)
    (gradient,) = torch.autograd.grad(log_weights(x, x, kernel).sum(), x)
    assert gradient.isfinite().all()


@every_kernel
def test_log_weights_are_symmetric(kernel):
    a, b = points(6, 3), points(5, 3, seed=1)
    torch.testing.assert_close(log_weights(a, b, kernel), log_weights(b, a, kernel).mT, rtol=1e-12, atol=1e-12)


@every_kernel
@pytest.mark.parametrize(("n", "m", "d"), [(1, 1, 1), (3, 8, 2), (5, 4, 40)])
def test_log_weights_equal_the_oracle(kernel, n, m, d):
    a, b = points(n, d), points(m, d, seed=1)
    got = log_weights(a, b, kernel).numpy()
    np.testing.assert_allclose(got, oracle.log_weights(a.numpy(), b.numpy(), kernel), rtol=1e-11, atol=1e-12)


@every_kernel
def test_float32_log_weights_are_right_to_1e_5(kernel):
    a, b = points(20, 16, dtype=torch.float32), points(30, 16, seed=1, dtype=torch.float32)
    got = log_weights(a, b, kernel).numpy()
    np.testing.assert_allclose(got, oracle.log_weights(a.numpy(), b.numpy(), kernel), rtol=1e-5)


@every_kernel
def test_gradients_equal_central_differences_of_the_oracle(kernel):
    a, b = points(3, 2).requires_grad_(), points(4, 2, seed=1).requires_grad_()
    cotangent = points(3, 4, seed=2)
    got = torch.autograd.grad(log_weights(a, b, kernel), (a, b), cotangent)
    step = 1e-6
    for which, x in enumerate((a, b)):
        for i, j in np.ndindex(tuple(x.shape)):
            moved = [[t.detach().numpy().copy() for t in (a, b)] for _ in range(2)]
            moved[0][which][i, j] += step
            moved[1][which][i, j] -= step
            above, below = (oracle.log_weights(moved_a, moved_b, kernel) for moved_a, moved_b in moved)
            want = ((above - below) / (2 * step) * cotangent.numpy()).sum()
            assert float(got[which][i, j]) == pytest.approx(want, rel=1e-6, abs=1e-7)


@every_kernel
def test_gradients_pass_gradcheck_to_second_order(kernel):
    a, b = points(3, 2).requires_grad_(), points(4, 2, seed=1).requires_grad_()

    def weights(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return log_weights(a, b, kernel)

    assert torch.autograd.gradcheck(weights, (a, b))
    assert torch.autograd.gradgradcheck(weights, (a, b))


@every_kernel
def test_duplicated_references_get_equal_weights_and_a_duplicate_of_the_query_gets_weight_one(kernel):
    a = points(3, 5)
    log_w = log_weights(a, torch.cat([a, a, a[:1]]), kernel)
    torch.testing.assert_close(log_w[:, :3], log_w[:, 3:6], rtol=0, atol=1e-7)
    torch.testing.assert_close(log_w[:, 0], log_w[:, 6], rtol=0, atol=1e-7)
    # The square root of the laplace kernel turns an error of 1e-16 into 1e-8.
    torch.testing.assert_close(log_w.diagonal(), torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-7)


@every_kernel
def test_a_float32_duplicate_of_the_query_gets_weight_one(kernel):
    # In float32 the square root of rounding would give laplace an error of 1e-3 here.
    a = points(40, 16, dtype=torch.float32)
    torch.testing.assert_close(log_weights(a, a, kernel).diagonal().float(), torch.zeros(40), rtol=0, atol=1e-5)


def test_the_default_kernel_is_the_papers():
    a, b = points(3, 2), points(4, 2, seed=1)
    assert log_weights(a, b).equal(log_weights(a, b, "gaussian"))


@pytest.mark.parametrize("name", ["guassian", "", "Gaussian", None, ["gaussian"]])
def test_an_unknown_kernel_is_rejected_with_the_choices(name):
    with pytest.raises(KernelError) as caught:
        log_weights(points(1, 1), points(1, 1), name)
    assert isinstance(caught.value, DwacError)
    assert isinstance(caught.value, ValueError)
    assert repr(name) in str(caught.value)
    assert all(kernel in str(caught.value) for kernel in KERNELS)


# Squared distances


@settings(max_examples=40)
@given(
    hnp.arrays(np.float32, (4, 3), elements=st.floats(-1000, 1000, width=32)),
    st.sampled_from([np.float16, np.float32, np.float64]),
)
def test_squared_distances_are_never_negative(rows, dtype):
    x = torch.as_tensor(rows.astype(dtype))
    squared = squared_distances(x, torch.cat([x, x]))
    assert (squared >= 0).all()


@pytest.mark.parametrize("offset", [0.0, 1000.0, -1000.0])
def test_a_common_offset_costs_no_accuracy(offset):
    a = points(10, 8, dtype=torch.float32) + offset
    b = points(40, 8, seed=1, dtype=torch.float32) + offset
    want = oracle.squared_distances(a.numpy(), b.numpy())  # of the rounded float32 points themselves
    np.testing.assert_allclose(squared_distances(a, b).numpy(), want, rtol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    a, b = points(10, 8).to(dtype), points(12, 8, seed=1).to(dtype)
    squared = squared_distances(a, b)
    assert squared.dtype == torch.float32
    want = oracle.squared_distances(a.double().numpy(), b.double().numpy())
    np.testing.assert_allclose(squared.numpy(), want, rtol=1e-5)


def test_half_precision_does_not_overflow():
    a, b = torch.full((1, 2), 60_000.0).half(), torch.full((2, 2), -60_000.0).half()
    assert squared_distances(a, b).isfinite().all()


def test_float64_stays_float64_and_the_wider_of_two_types_wins():
    a, b = points(2, 3), points(2, 3, dtype=torch.float32)
    assert squared_distances(a, a).dtype == torch.float64
    assert squared_distances(a, b).dtype == torch.float64
    assert squared_distances(b, b).dtype == torch.float32


def test_no_queries_and_no_references_give_empty_matrices():
    a = points(3, 2)
    assert squared_distances(a[:0], a).shape == (0, 3)
    assert squared_distances(a, a[:0]).shape == (3, 0)


# Whatever the caller allows elsewhere, distances are computed in full precision


def value_and_gradients(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    squared = squared_distances(a, b)
    return [squared.detach(), *torch.autograd.grad(squared, (a, b), torch.ones_like(squared) / len(b))]


def float32_case() -> tuple[torch.Tensor, torch.Tensor]:
    return 5 * points(96, 64, dtype=torch.float32), 5 * points(80, 64, seed=1, dtype=torch.float32)


def test_autocast_changes_neither_distances_nor_their_gradients():
    a, b = float32_case()
    plain = value_and_gradients(a, b)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a @ b.mT).dtype == torch.bfloat16  # it is on
        cast = value_and_gradients(a, b)
    for got, want in zip(cast, plain, strict=True):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("precision", ["medium", "high", "highest"])
def test_a_lower_matmul_precision_changes_neither_distances_nor_their_gradients(precision):
    a, b = float32_case()
    plain = value_and_gradients(a, b)
    with matmul_precision(precision):
        lowered = value_and_gradients(a, b)
        assert torch.get_float32_matmul_precision() == precision
    for got, want in zip(lowered, plain, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-5)


def test_the_matmul_precision_is_restored_after_an_error():
    with matmul_precision("medium"):
        with refuses(ShapeError, "(2, 3)", "(2, 4)"):
            squared_distances(points(2, 3, dtype=torch.float32), points(2, 4, dtype=torch.float32))
        assert torch.get_float32_matmul_precision() == "medium"
        with pytest.raises(ZeroDivisionError), full_precision(torch.device("cpu")):
            _ = 1 / 0
        assert torch.get_float32_matmul_precision() == "medium"


def test_nested_guards_restore_the_outermost_setting():
    with matmul_precision("medium"):
        with full_precision(torch.device("cpu")):
            with full_precision(torch.device("cpu")):
                assert torch.get_float32_matmul_precision() == "highest"
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "medium"


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="this torch has the older setting only")
@pytest.mark.parametrize("place", ["all", "mkldnn", "cuda"])
def test_the_newer_precision_settings_are_respected_and_restored(place):
    # Where they are in use, torch.get_float32_matmul_precision() itself raises.
    backends: dict[str, tuple[object, str]] = {
        "all": (torch.backends, "bf16"),
        "mkldnn": (torch.backends.mkldnn.matmul, "bf16"),  # type: ignore[attr-defined]
        "cuda": (torch.backends.cuda.matmul, "tf32"),
    }
    a, b = float32_case()
    plain = value_and_gradients(a, b)
    everywhere = [owner for owner, _ in backends.values()]
    before = [owner.fp32_precision for owner in everywhere]  # type: ignore[attr-defined]
    chosen, precision = backends[place]
    try:
        chosen.fp32_precision = precision  # type: ignore[attr-defined]
        during = [owner.fp32_precision for owner in everywhere]  # type: ignore[attr-defined]
        lowered = value_and_gradients(a, b)
        assert [owner.fp32_precision for owner in everywhere] == during  # type: ignore[attr-defined]
    finally:
        for owner, value in zip(everywhere, before, strict=True):
            owner.fp32_precision = value  # type: ignore[attr-defined]
    for got, want in zip(lowered, plain, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-5)


def test_threads_do_not_lower_each_others_precision():
    # The setting is global: without counting, one thread would restore it during another's product.
    a, b = float32_case()
    want = squared_distances(a, b)
    wrong = []

    def work() -> None:
        for _ in range(150):
            if not torch.allclose(squared_distances(a, b), want, rtol=1e-6, atol=1e-5):
                wrong.append(threading.current_thread().name)

    with matmul_precision("medium"):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert torch.get_float32_matmul_precision() == "medium"
    assert not wrong
