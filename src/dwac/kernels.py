"""Squared distances, and the log-weight that each kernel gives to a distance.

A kernel turns the distance between a query h and a training example h_i into the weight of that example's
vote. Everything stays in log space, so that a query far from every example still has finite votes:

    gaussian            log w = -‖h-h_i‖²            (the paper's: w = exp(-‖h-h_i‖²/2σ), σ = ½)
    laplace             log w = -‖h-h_i‖
    inverse_quadratic   log w = -log(1 + ‖h-h_i‖²)

>>> import torch
>>> log_weights(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
tensor([[-25.,  -1.]])
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dwac.errors import KernelError, ShapeError

__all__ = [
    "KERNELS",
    "Kernel",
    "full_precision",
    "get_kernel",
    "log_weights",
    "squared_distances",
]


@dataclass(frozen=True)
class Kernel:
    """One kernel: `log_weights` maps squared distances to log-weights, elementwise and decreasing.

    `smooth` means that its slope is bounded at distance 0. If it is not (laplace), float32 rounding of a tiny squared
    distance would be magnified, so distances are computed in float64.

    >>> get_kernel("laplace").log_weights(torch.tensor([0.0, 4.0]))
    tensor([ 0., -2.])
    """

    name: str
    log_weights: Callable[[Tensor], Tensor]
    smooth: bool = True


def _gaussian(squared: Tensor) -> Tensor:
    return -squared


def _inverse_quadratic(squared: Tensor) -> Tensor:
    return -torch.log1p(squared)


def _laplace(squared: Tensor) -> Tensor:
    """-√d², with gradient 0 (not infinity) at coincident points."""
    positive = squared > 0
    return torch.where(positive, -torch.where(positive, squared, torch.ones_like(squared)).sqrt(), 0.0)


KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        Kernel("gaussian", _gaussian),
        Kernel("laplace", _laplace, smooth=False),
        Kernel("inverse_quadratic", _inverse_quadratic),
    )
}


def get_kernel(name: str) -> Kernel:
    """The kernel of that name.

    >>> sorted(KERNELS), get_kernel("gaussian").smooth
    (['gaussian', 'inverse_quadratic', 'laplace'], True)
    """
    try:
        return KERNELS[name]
    except (KeyError, TypeError):
        raise KernelError(f"unknown kernel {name!r}; choose {', '.join(KERNELS)}") from None


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """‖a_i - b_j‖² for each row of a (n, d) and of b (m, d): (n, m), at least float32, never below 0.

    Both are centred before expanding ‖a‖²+‖b‖²-2ab, so a common offset costs no accuracy.

    >>> squared_distances(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[25.,  1.]])
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ShapeError(f"points must be (n, d) and (m, d) with the same d; got {tuple(a.shape)} and {tuple(b.shape)}")
    dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)
    with full_precision(a.device):
        centre = b.detach().to(dtype).mean(dim=0)
        a, b = a.to(dtype) - centre, b.to(dtype) - centre
        norms = a.square().sum(1)[:, None] + b.square().sum(1)
        if torch.is_grad_enabled() and norms.requires_grad:
            return (norms - 2 * _product(a, b)).clamp_min(0)
        return norms.sub_(a @ b.mT, alpha=2).clamp_min_(0)  # the same numbers; in place, in half the time


def log_weights(queries: Tensor, references: Tensor, kernel: str = "gaussian") -> Tensor:
    """log w(h, h_i) of queries (n, d) against references (m, d): (n, m). Materialises the matrix."""
    chosen = get_kernel(kernel)
    if not chosen.smooth:
        queries, references = queries.double(), references.double()
    return chosen.log_weights(squared_distances(queries, references))


class _Product(torch.autograd.Function):
    """a @ b.mT. Its gradients are products too, computed outside the guard of the forward pass, so each has its own."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        with full_precision(a.device):
            return a @ b.mT

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        (grad,) = grads
        a, b = ctx.saved_tensors
        wanted_a, wanted_b = ctx.needs_input_grad
        return _product(grad, b.mT) if wanted_a else None, _product(grad.mT, a.mT) if wanted_b else None


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b.mT, its value and its gradients of every order in full precision."""
    product: Tensor = _Product.apply(a, b)  # type: ignore[no-untyped-call]
    return product


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Matrix products in their operands' own precision: no TF32, no bfloat16, no autocast.

    A TF32 product was measured to change class sums by 14 %, so distances never use one, whatever the caller
    allows for the rest of the network. The setting is global to the process, so the first thread to enter changes it
    and the last one to leave restores it.

    >>> with full_precision(torch.device("cpu")), torch.no_grad():
    ...     product = torch.ones(2, 3) @ torch.ones(3, 2)
    >>> product[0]
    tensor([3., 3.])
    """
    with _guard.lock:
        if _guard.depth == 0:
            _guard.restore = _forbid_reduced_precision()
        _guard.depth += 1
    try:
        if torch.is_autocast_enabled(device.type):
            with torch.autocast(device.type, enabled=False):
                yield
        else:  # leaving it alone is faster than switching it off
            yield
    finally:
        with _guard.lock:
            _guard.depth -= 1
            if _guard.depth == 0:
                _guard.restore()


class _Guard:
    """How many `full_precision` blocks are active, and how to undo what the first of them changed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth = 0
        self.restore: Callable[[], None] = lambda: None


_guard = _Guard()


def _forbid_reduced_precision() -> Callable[[], None]:
    """Switch float32 products to full precision; returns a function that switches them back."""
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # the caller used the newer per-backend settings, which the older call refuses to read
        return _forbid_per_backend()
    if before == "highest":
        return lambda: None
    torch.set_float32_matmul_precision("highest")
    return lambda: torch.set_float32_matmul_precision(before)


def _forbid_per_backend() -> Callable[[], None]:
    backends: Any = torch.backends
    products = [backends.cuda.matmul, backends.mkldnn.matmul]
    before = [product.fp32_precision for product in products]
    for product in products:
        product.fp32_precision = "ieee"

    def restore() -> None:
        for product, precision in zip(products, before, strict=True):
            product.fp32_precision = "none"  # inherit from torch.backends, unless that differs from what it was
            if product.fp32_precision != precision:
                product.fp32_precision = precision

    return restore
