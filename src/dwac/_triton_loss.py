"""The leave-one-out loss on a GPU as three kernels: votes, mean, gradient. Nothing of size (n, n) is kept.

Distances are sums of squared differences in IEEE float32: exact wherever the data lies, with no centring and no
matrix product. Nothing waits for the GPU, so a training step can be captured in a CUDA graph.
"""

# Kernels are Triton's language, not Python's: their arguments are pointers and tiles, which have no Python type.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator,misc"

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

logger = logging.getLogger(__name__)

WIDEST = 128  # the largest d served
_BLOCKS = {"ROWS": 16, "COLUMNS": 64, "num_warps": 8}  # examples j of a program, voters i it takes in at a time


def leave_one_out_loss(h: Tensor, y: Tensor, ids: Tensor | None, weights: Tensor | None) -> Tensor:
    """As `dwac.loss.leave_one_out_loss` with the gaussian kernel: h (n, d) float32, d ≤ 128, all on one GPU."""
    loss: Tensor = _FusedVote.apply(h, y, ids, weights)  # type: ignore[no-untyped-call]
    return loss


def serves(h: Tensor) -> bool:
    """Whether the kernels can run on embeddings like these: float32, on a GPU for which Triton compiles."""
    fits = h.dtype == torch.float32 and 1 <= h.shape[1] <= WIDEST and h.numel() < 2**31
    return fits and _compiles(h.device, h.shape[1])


@cache
def _compiles(device: torch.device, d: int) -> bool:
    """Both kernels on a small batch. A machine without a C compiler, say, has Triton and cannot use it."""
    try:
        with torch.inference_mode(False), torch.enable_grad():
            h = torch.zeros(2, d, device=device, requires_grad=True)
            y = torch.zeros(2, dtype=torch.int64, device=device)
            torch.autograd.grad(leave_one_out_loss(h, y, None, None), h)
    except Exception as error:  # whatever the compiler, the driver or the linker raise
        logger.warning("the fused loss cannot be compiled here, so a slower one is used: %s", error)
        return False
    return True


class _FusedVote(torch.autograd.Function):
    """The mathematics is that of `dwac.loss._GaussianVote`; here the gradient waits for the backward pass."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, y: Tensor, ids: Tensor | None, weights: Tensor | None) -> Tensor:
        n, d = h.shape
        h, y = h.mT.contiguous(), y.contiguous()  # (d, n): neighbouring threads read neighbouring examples
        ids = None if ids is None else ids.contiguous()
        weights = None if weights is None else weights.contiguous()
        log_sums = h.new_empty((2, n))  # over all others, over the fellows
        loss, total = h.new_empty(()), h.new_empty(())  # total: Σ weight
        with torch.cuda.device_of(h):
            _votes[_grid(n)](h, y, ids, log_sums, n, D=d, **_BLOCKS)
            _mean[(1,)](log_sums, weights, loss, total, n, BLOCK=1024)
        ctx.save_for_backward(h, y, ids, weights, log_sums, total)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        h, y, ids, weights, log_sums, total = ctx.saved_tensors
        d, n = h.shape
        grad = h.new_empty((n, d))
        wide = max(16, triton.next_power_of_2(d))  # the least that a product takes
        with torch.cuda.device_of(h):
            _gradient[_grid(n)](h, y, ids, weights, log_sums, total, grads[0], grad, n, D=d, WIDE=wide, **_BLOCKS)
        return grad, None, None, None


def _grid(n: int) -> tuple[int]:
    return (triton.cdiv(n, _BLOCKS["ROWS"]),)


@triton.jit
def _log_weights(h, rows, columns, n, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """-‖h_j - h_i‖², (ROWS, COLUMNS), from h as (D, n)."""
    squared = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in range(D):
        h_j = tl.load(h + k * n + rows, mask=rows < n, other=0.0)
        h_i = tl.load(h + k * n + columns, mask=columns < n, other=0.0)
        difference = h_j[:, None] - h_i[None, :]
        squared += difference * difference
    return -squared


@triton.jit
def _voters(y, ids, rows, columns, n):
    """Whether i votes on j, and whether it shares j's label then: two (ROWS, COLUMNS)."""
    y_j, y_i = tl.load(y + rows, mask=rows < n, other=0), tl.load(y + columns, mask=columns < n, other=0)
    if ids is None:
        others = rows[:, None] != columns[None, :]
    else:
        id_j = tl.load(ids + rows, mask=rows < n, other=0)
        id_i = tl.load(ids + columns, mask=columns < n, other=0)
        others = id_j[:, None] != id_i[None, :]
    others = others & (rows[:, None] < n) & (columns[None, :] < n)
    return others, others & (y_j[:, None] == y_i[None, :])


@triton.jit
def _accumulate(log_w, largest, total):
    """A running log-sum-exp of each cell: the largest term, and the sum in units of it."""
    now = tl.maximum(largest, log_w)
    return now, total * tl.exp(largest - now) + tl.exp(log_w - now)


@triton.jit
def _log_sum(largest, total):
    """log Σ exp over the cells of each row; -∞ where no cell took in a term."""
    most = tl.max(largest, axis=1)
    return most + tl.log(tl.sum(total * tl.exp(largest - most[:, None]), axis=1))


@triton.jit(do_not_specialize=["n"])
def _votes(h, y, ids, log_sums, n, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    # Finite, so that nothing is ever ∞ - ∞; below any log-weight, so that a sum of 0 says that nobody voted.
    # Cell by cell, so that threads meet once, at the end.
    most, most_fellow = tl.full((ROWS, COLUMNS), -1e38, tl.float32), tl.full((ROWS, COLUMNS), -1e38, tl.float32)
    total, total_fellow = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, n, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        log_w = _log_weights(h, rows, columns, n, D, ROWS, COLUMNS)
        others, fellows = _voters(y, ids, rows, columns, n)
        most, total = _accumulate(tl.where(others, log_w, float("-inf")), most, total)
        most_fellow, total_fellow = _accumulate(tl.where(fellows, log_w, float("-inf")), most_fellow, total_fellow)
    tl.store(log_sums + rows, _log_sum(most, total), mask=rows < n)
    tl.store(log_sums + n + rows, _log_sum(most_fellow, total_fellow), mask=rows < n)


@triton.jit
def _counts(log_sums, weights, rows, n):
    """How much the loss of each row counts: its weight, or 0 where it has no fellow."""
    log_fellows = tl.load(log_sums + n + rows, mask=rows < n, other=float("-inf"))
    counted = tl.where(log_fellows == float("-inf"), 0.0, 1.0)
    if weights is not None:
        counted *= tl.load(weights + rows, mask=rows < n, other=0.0)
    return counted


@triton.jit(do_not_specialize=["n"])
def _mean(log_sums, weights, loss, total, n, BLOCK: tl.constexpr):
    losses, counts = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        counted = _counts(log_sums, weights, rows, n)
        log_all = tl.load(log_sums + rows, mask=rows < n, other=0.0)
        log_fellows = tl.load(log_sums + n + rows, mask=rows < n, other=0.0)
        heard = log_fellows != float("-inf")
        losses += tl.where(heard, counted * (log_all - log_fellows), 0.0)
        counts += counted
    sum_of_weights = tl.sum(counts)
    tl.store(loss, tl.sum(losses) / tl.where(sum_of_weights > 0, sum_of_weights, 1.0))
    tl.store(total, sum_of_weights)


@triton.jit
def _shares(log_w, voting, log_sum):
    """w / Σ w where i votes, else 0."""
    return tl.where(voting, tl.exp(log_w - log_sum), 0.0)


@triton.jit(do_not_specialize=["n"])
def _gradient(
    h,
    y,
    ids,
    weights,
    log_sums,
    total,
    grad_loss,
    grad,
    n,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDE: tl.constexpr,
):
    first = tl.program_id(0) * ROWS
    rows = first + tl.arange(0, ROWS)
    k = tl.arange(0, WIDE)
    # Seen from the block's first row: a common offset of all h costs no accuracy.
    origin = tl.load(h + k * n + first, mask=k < D, other=0.0)[None, :]
    log_all_j = tl.load(log_sums + rows, mask=rows < n, other=0.0)[:, None]
    log_fellows_j = tl.load(log_sums + n + rows, mask=rows < n, other=0.0)[:, None]
    counted_j = _counts(log_sums, weights, rows, n)[:, None]
    pull, slope = tl.zeros((ROWS, WIDE), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, n, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        log_w = _log_weights(h, rows, columns, n, D, ROWS, COLUMNS)
        others, fellows = _voters(y, ids, rows, columns, n)
        log_all_i = tl.load(log_sums + columns, mask=columns < n, other=0.0)[None, :]
        log_fellows_i = tl.load(log_sums + n + columns, mask=columns < n, other=0.0)[None, :]
        counted_i = _counts(log_sums, weights, columns, n)[None, :]
        both = counted_j * (_shares(log_w, others, log_all_j) - _shares(log_w, fellows, log_fellows_j))
        both += counted_i * (_shares(log_w, others, log_all_i) - _shares(log_w, fellows, log_fellows_i))
        there = (columns[:, None] < n) & (k[None, :] < D)
        h_i = tl.load(h + k[None, :] * n + columns[:, None], mask=there, other=0.0) - origin
        pull += tl.dot(both, h_i, input_precision="ieee")
        slope += both
    there = (rows[:, None] < n) & (k[None, :] < D)
    h_j = tl.load(h + k[None, :] * n + rows[:, None], mask=there, other=0.0) - origin
    sum_of_weights = tl.load(total)
    scale = 2.0 * tl.load(grad_loss) / tl.where(sum_of_weights > 0, sum_of_weights, 1.0)
    tl.store(grad + rows[:, None] * D + k[None, :], (pull - tl.sum(slope, axis=1)[:, None] * h_j) * scale, mask=there)
