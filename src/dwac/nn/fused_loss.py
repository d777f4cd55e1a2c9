"""The leave-one-out loss on a GPU as three kernels: votes, mean, slopes. No (n, n) matrix is kept.

Distances are sums of squared differences in IEEE float32: accurate wherever the data lies, without centring or matrix
products. Nothing waits for the GPU, so a training step can be captured in a CUDA graph.
"""

# Kernels are written in the Triton language: their arguments are pointers and tiles, which have no Python type.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator,misc"

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from dwac.kernels import full_precision

logger = logging.getLogger(__name__)

WIDEST = 128  # the largest supported d
_CELLS = 2**24  # most slopes in memory at once
_PROGRAMS = 256  # enough to keep a large GPU busy
_BLOCKS = {"ROWS": 16, "COLUMNS": 64, "num_warps": 8}  # examples j per program, voters i it processes at a time


def leave_one_out_loss(
    h: Tensor, y: Tensor, ids: Tensor | None, weights: Tensor | None, plain: Callable[[Tensor], Tensor]
) -> Tensor:
    """`dwac.nn.loss.leave_one_out_loss` with the gaussian kernel: h (n, d) float32, d ≤ 128, all on one GPU.

    `plain` computes the same loss of h by recorded operations, for when the gradient itself is differentiated.
    """
    loss: Tensor = _FusedVote.apply(h, y, ids, weights, plain)  # type: ignore[no-untyped-call]
    return loss


def serves(h: Tensor) -> bool:
    """Whether the kernels can run on embeddings like these: float32, on a GPU for which Triton compiles."""
    fits = h.dtype == torch.float32 and 1 <= h.shape[1] <= WIDEST and h.numel() < 2**31
    return fits and _compiles(h.device, h.shape[1])


@cache
def _compiles(device: torch.device, d: int) -> bool:
    """Try the kernels on a small batch. They fail, for example, without a C compiler, even if Triton is installed."""
    try:
        with torch.inference_mode(False), torch.enable_grad():
            h = torch.zeros(2, d, device=device, requires_grad=True)
            y = torch.zeros(2, dtype=torch.int64, device=device)
            torch.autograd.grad(leave_one_out_loss(h, y, None, None, torch.sum), h)
    except Exception as error:  # anything that the compiler, the driver or the linker raises
        logger.warning("the fused loss cannot be compiled on this machine; a slower one is used: %s", error)
        return False
    return True


class _FusedVote(torch.autograd.Function):
    """The same mathematics as `dwac.nn.loss._GaussianVote`; here the gradient is computed in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        y: Tensor,
        ids: Tensor | None,
        weights: Tensor | None,
        plain: Callable[[Tensor], Tensor],
    ) -> Tensor:
        n, d = h.shape
        columns, y = h.mT.contiguous(), y.contiguous()  # (d, n): neighbouring threads read neighbouring examples
        ids = None if ids is None else ids.contiguous()
        weights = None if weights is None else weights.contiguous()
        grid = _grid(n)
        parts = h.new_empty((grid[1], 4, n))  # for each part of the voters, what `sums` is for all
        # Σ w over all others, then over those of the same class: the log of its largest term, and the log of the sum in
        # units of that term. Adding the two would round away the differences between the votes on a far example.
        sums = h.new_empty((4, n))
        loss, total = h.new_empty(()), h.new_empty(())  # total: Σ weight
        with torch.cuda.device_of(h):
            _votes[grid](columns, y, ids, parts, n, D=d, **_BLOCKS)
            _mean[(1,)](parts, sums, weights, loss, total, n, PARTS=grid[1], BLOCK=1024)
        ctx.save_for_backward(h, columns, y, ids, weights, sums, total)
        ctx.plain = plain
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        h, columns, y, ids, weights, sums, total = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: this gradient will be differentiated
            return *torch.autograd.grad(ctx.plain(h), h, grads[0], create_graph=True), None, None, None, None
        n, d = h.shape
        grads_of, centred = [], h - h[:1]  # relative to one example: a common offset costs no accuracy
        step = max(_BLOCKS["ROWS"], _CELLS // n)
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            slopes = h.new_empty((rows.stop - start, n))
            grid = triton.cdiv(len(slopes), _BLOCKS["ROWS"]), triton.cdiv(n, _BLOCKS["COLUMNS"])
            with torch.cuda.device_of(h), full_precision(h.device):
                _slopes[grid](columns, y, ids, weights, sums, total, grads[0], slopes, start, n, D=d, **_BLOCKS)
                pulls = slopes @ centred
                grads_of.append(pulls.addcmul_(slopes.sum(dim=1, keepdim=True), centred[rows], value=-1))
        return torch.cat(grads_of) if len(grads_of) > 1 else grads_of[0], None, None, None, None


def _grid(n: int) -> tuple[int, int]:
    """Programs: blocks of rows, and parts of the voters that each of them processes: enough to keep a GPU busy."""
    rows, columns = triton.cdiv(n, _BLOCKS["ROWS"]), triton.cdiv(n, _BLOCKS["COLUMNS"])
    return rows, max(1, min(columns, _PROGRAMS // rows))


@triton.jit
def _log_weights(h, rows, columns, n, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """-‖h_j - h_i‖², (ROWS, COLUMNS), from h as (D, n)."""
    squared = tl.zeros((ROWS, COLUMNS), tl.float32)
    if D <= 32:
        for k in tl.static_range(D):  # unrolled, so that loads need not wait for one another
            squared += _squared(h + k * n, rows, columns, n)
    else:
        for k in range(D):
            squared += _squared(h + k * n, rows, columns, n)
    return -squared


@triton.jit
def _squared(h, rows, columns, n):
    difference = tl.load(h + rows, mask=rows < n, other=0.0)[:, None]
    difference -= tl.load(h + columns, mask=columns < n, other=0.0)[None, :]
    return difference * difference


@triton.jit
def _part(n, COLUMNS: tl.constexpr):
    """The voters that a program processes: first and last + 1."""
    size = tl.cdiv(tl.cdiv(n, COLUMNS), tl.num_programs(1)) * COLUMNS
    return tl.program_id(1) * size, tl.minimum(n, (tl.program_id(1) + 1) * size)


@triton.jit
def _voters(y, ids, rows, columns, n):
    """Whether i votes on j, and whether it also has j's label: two (ROWS, COLUMNS)."""
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
def _store_row(parts, rows, n, largest, total):
    """The cells of each row combined: the largest term, and the sum in units of it; 0 if there were no terms."""
    most = tl.max(largest, axis=1)
    tl.store(parts + rows, most, mask=rows < n)
    tl.store(parts + n + rows, tl.sum(total * tl.exp(largest - most[:, None]), axis=1), mask=rows < n)


@triton.jit(do_not_specialize=["n"])
def _votes(h, y, ids, parts, n, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    # Finite, so that ∞ - ∞ never occurs; below any log-weight, so that a sum of 0 means that there were no votes.
    # Cell by cell, so that threads synchronise only once, at the end.
    most, most_same = tl.full((ROWS, COLUMNS), -1e38, tl.float32), tl.full((ROWS, COLUMNS), -1e38, tl.float32)
    total, total_same = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    first, last = _part(n, COLUMNS)
    for start in range(first, last, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        log_w = _log_weights(h, rows, columns, n, D, ROWS, COLUMNS)
        others, same_class = _voters(y, ids, rows, columns, n)
        most, total = _accumulate(tl.where(others, log_w, float("-inf")), most, total)
        most_same, total_same = _accumulate(tl.where(same_class, log_w, float("-inf")), most_same, total_same)
    parts += tl.program_id(1) * 4 * n
    _store_row(parts, rows, n, most, total)
    _store_row(parts + 2 * n, rows, n, most_same, total_same)


@triton.jit
def _counts(sums, weights, rows, n):
    """How much the loss of each row counts: its weight, or 0 if no voter has its label."""
    return _count_rows(tl.load(sums + 3 * n + rows, mask=rows < n, other=float("-inf")), weights, rows, n)


@triton.jit
def _count_rows(log_same, weights, rows, n):
    counted = tl.where(log_same == float("-inf"), 0.0, 1.0)
    if weights is not None:
        counted *= tl.load(weights + rows, mask=rows < n, other=0.0)
    return counted


@triton.jit
def _whole(parts, sums, rows, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """All parts of some rows combined; stored and returned: the largest term and the log of the sum in its units."""
    most, total = tl.full((BLOCK,), -1e38, tl.float32), tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(PARTS):
        largest = tl.load(parts + part * 4 * n + rows, mask=rows < n, other=-1e38)
        units = tl.load(parts + (part * 4 + 1) * n + rows, mask=rows < n, other=0.0)
        now = tl.maximum(most, largest)
        most, total = now, total * tl.exp(most - now) + units * tl.exp(largest - now)
    tl.store(sums + rows, most, mask=rows < n)
    tl.store(sums + n + rows, tl.log(total), mask=rows < n)
    return most, tl.log(total)


@triton.jit(do_not_specialize=["n"])
def _mean(parts, sums, weights, loss, total, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    losses, counts = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        most, log_all = _whole(parts, sums, rows, n, PARTS, BLOCK)
        most_same, log_same = _whole(parts + 2 * n, sums + 2 * n, rows, n, PARTS, BLOCK)
        counted = _count_rows(log_same, weights, rows, n)
        has_same = log_same != float("-inf")
        losses += tl.where(has_same, counted * ((most - most_same) + (log_all - log_same)), 0.0)
        counts += counted
    sum_of_weights = tl.sum(counts)
    tl.store(loss, tl.sum(losses) / tl.where(sum_of_weights > 0, sum_of_weights, 1.0))
    tl.store(total, sum_of_weights)


@triton.jit
def _shares(log_w, voting, most, log_sum):
    """w / Σ w if i votes, else 0."""
    return tl.where(voting, tl.exp((log_w - most) - log_sum), 0.0)


@triton.jit
def _sums(sums, rows, n):
    """For some rows: most and log-sum of all others, most and log-sum of those of the same class."""
    most = tl.load(sums + rows, mask=rows < n, other=0.0)
    log_sum = tl.load(sums + n + rows, mask=rows < n, other=0.0)
    most_same = tl.load(sums + 2 * n + rows, mask=rows < n, other=0.0)
    log_same = tl.load(sums + 3 * n + rows, mask=rows < n, other=0.0)
    return most, log_sum, most_same, log_same


@triton.jit(do_not_specialize=["n", "first_row"])
def _slopes(
    h,
    y,
    ids,
    weights,
    sums,
    total,
    grad_loss,
    slopes,
    first_row,
    n,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """S_ji = 2 (G_ji + G_ij), for rows j starting at first_row: (rows, n)."""
    block = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    rows, columns = first_row + block, tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    log_w = _log_weights(h, rows, columns, n, D, ROWS, COLUMNS)
    others, same_class = _voters(y, ids, rows, columns, n)
    most_j, log_all_j, most_same_j, log_same_j = _sums(sums, rows, n)
    most_i, log_all_i, most_same_i, log_same_i = _sums(sums, columns, n)
    both = _counts(sums, weights, rows, n)[:, None] * (
        _shares(log_w, others, most_j[:, None], log_all_j[:, None])
        - _shares(log_w, same_class, most_same_j[:, None], log_same_j[:, None])
    )
    both += _counts(sums, weights, columns, n)[None, :] * (
        _shares(log_w, others, most_i[None, :], log_all_i[None, :])
        - _shares(log_w, same_class, most_same_i[None, :], log_same_i[None, :])
    )
    sum_of_weights = tl.load(total)
    both *= 2.0 * tl.load(grad_loss) / tl.where(sum_of_weights > 0, sum_of_weights, 1.0)
    inside = (rows[:, None] < n) & (columns[None, :] < n)
    tl.store(slopes + block[:, None].to(tl.int64) * n + columns[None, :], both, mask=inside)
