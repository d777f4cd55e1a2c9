"""The leave-one-out loss of several networks at once on a GPU, for labels with a likeness or values to average.

Three kernels, whatever the number of networks: votes, mean, pulls. No (n, n) matrix is kept. As in
`dwac.nn.fused_loss`, distances are sums of squared differences in IEEE float32, and nothing waits for the GPU.
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

logger = logging.getLogger(__name__)

WIDEST = 128  # the largest supported d
_VALUES = 64  # the most values to average
_ROWS, _COLUMNS = 2, 256  # examples j per program, voters i it processes at a time


def members_loss(
    h: Tensor,
    y: Tensor,
    weights: Tensor | None,
    log_likeness: Tensor | None,
    averaged: Tensor | None,
    plain: Callable[[Tensor], Tensor],
) -> Tensor:
    """The mean of the members' losses, with the gaussian kernel: h (M, n, d) float32, y and weights (M, n).

    One of the tables is given: log_likeness (K, K), or averaged (K, B), both float32; all are on one GPU. `plain`
    computes the same loss of h by recorded operations, for when the gradient itself is differentiated.
    """
    loss: Tensor = _FusedMembers.apply(h, y, weights, log_likeness, averaged, plain)  # type: ignore[no-untyped-call]
    return loss


def serves(h: Tensor, averaged: Tensor | None) -> bool:
    """Whether the kernels can run on embeddings and values like these, on a GPU for which Triton compiles."""
    fits = h.dtype == torch.float32 and 1 <= h.shape[2] <= WIDEST and h.numel() < 2**31
    return fits and (averaged is None or averaged.shape[1] <= _VALUES) and _compiles(h.device, h.shape[2])


@cache
def _compiles(device: torch.device, d: int) -> bool:
    """Try the kernels on a small batch. They fail, for example, without a C compiler, even if Triton is installed."""
    try:
        with torch.inference_mode(False), torch.enable_grad():
            h = torch.zeros(1, 2, d, device=device, requires_grad=True)
            y, table = torch.zeros(1, 2, dtype=torch.int64, device=device), torch.zeros(1, 1, device=device)
            for likeness, averaged in ((table, None), (None, table)):
                torch.autograd.grad(members_loss(h, y, None, likeness, averaged, torch.sum), h)
    except Exception as error:  # anything that the compiler, the driver or the linker raises
        logger.warning("the fused loss cannot be compiled on this machine; a slower one is used: %s", error)
        return False
    return True


class _FusedMembers(torch.autograd.Function):
    """The same mathematics as `dwac.nn.loss._MemberVotes`; here the gradient is computed in the backward pass.

    With m_j = Σ_i P_ji v(y_i) the average and e_j = m_j - v(y_j) its error, the gradient of an average in log w_ji is
    2 P_ji (v(y_i) - m_j) · e_j.
    """

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        y: Tensor,
        weights: Tensor | None,
        log_likeness: Tensor | None,
        averaged: Tensor | None,
        plain: Callable[[Tensor], Tensor],
    ) -> Tensor:
        members, n, d = h.shape
        columns = h.transpose(1, 2).contiguous()  # (M, d, n): neighbouring threads read neighbouring examples
        y = y if y.stride(1) == 1 else y.contiguous()
        weights = weights if weights is None or weights.stride(1) == 1 else weights.contiguous()
        # For each example: the log of the largest term of Σ w and the log of the sum in units of that term; the same of
        # Σ w S, or m · e.
        sums, losses = h.new_empty(members, 4, n), h.new_empty(members, n)
        errors = None if averaged is None else h.new_empty(members, averaged.shape[1], n)
        loss, totals = h.new_empty(()), h.new_empty(members)  # totals: Σ weight of each member
        tables = (log_likeness, averaged, errors)
        grid, cut = _cut(members, n)
        with torch.cuda.device_of(h):
            _votes[grid](
                columns, y, *tables, sums, losses, n, y.stride(0), *_sizes(tables),
                D=d, VALUES=triton.next_power_of_2(_sizes(tables)[1] or 1), **cut,
            )  # fmt: skip
            _mean[(1,)](
                sums, losses, weights, loss, totals, n, members, 0 if weights is None else weights.stride(0), BLOCK=1024
            )
        ctx.save_for_backward(h, columns, y, weights, *tables, sums, totals)
        ctx.plain = plain
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        h, columns, y, weights, *tables, sums, totals = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: this gradient will be differentiated
            return *torch.autograd.grad(ctx.plain(h), h, grads[0], create_graph=True), *[None] * 5
        members, n, d = h.shape
        pulls = h.new_empty(n, members, d)
        grid, cut = _cut(members, n)
        with torch.cuda.device_of(h):
            _pulls[grid](
                columns, y, *tables, sums, weights, totals, grads[0], pulls, n, y.stride(0),
                0 if weights is None else weights.stride(0), *_sizes(tables),
                D=d, WIDTH=triton.next_power_of_2(d), **cut,
            )  # fmt: skip
        return pulls.transpose(0, 1), *[None] * 5


def _cut(members: int, n: int) -> tuple[tuple[int, int], dict[str, int]]:
    """Programs, and how many examples and voters each processes at a time: one warp, which waits for no other."""
    columns = min(_COLUMNS, max(32, triton.next_power_of_2(n)))
    return (triton.cdiv(n, _ROWS), members), {"ROWS": _ROWS, "COLUMNS": columns, "num_warps": 1}


def _sizes(tables: tuple[Tensor | None, ...] | list[Tensor | None]) -> tuple[int, int]:
    """K of the likeness, and B of the averages; 0 for one that is not given."""
    log_likeness, averaged, _ = tables
    return 0 if log_likeness is None else len(log_likeness), 0 if averaged is None else averaged.shape[1]


@triton.jit
def _log_weights(h, rows, columns, n, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """-‖h_j - h_i‖² from h as (D, n); -∞ where i = j, and for no voter: (ROWS, COLUMNS)."""
    squared = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in range(D):
        difference = _difference(h + k * n, rows, columns, n)
        squared += difference * difference
    others = (rows[:, None] != columns[None, :]) & (columns < n)[None, :]
    return tl.where(others, -squared, float("-inf"))


@triton.jit
def _difference(h, rows, columns, n):
    """h_i - h_j in one dimension."""
    own = tl.load(h + rows, mask=rows < n, other=0.0)
    return tl.load(h + columns, mask=columns < n, other=0.0)[None, :] - own[:, None]


@triton.jit
def _accumulate(log_w, largest, total):
    """A running log-sum-exp of each cell: the largest term, and the sum in units of it."""
    now = tl.maximum(largest, log_w)
    return now, total * tl.exp(largest - now) + tl.exp(log_w - now)


@triton.jit
def _row(largest, total):
    """The cells of each row combined: the largest term, and the log of the sum in units of it; -∞ for no terms."""
    most = tl.max(largest, axis=1)
    return most, tl.log(tl.sum(total * tl.exp(largest - most[:, None]), axis=1))


@triton.jit
def _shares(log_w, most, log_sum):
    """w / Σ w."""
    return tl.exp((log_w - most) - log_sum)


@triton.jit(do_not_specialize=["n", "y_step", "K", "B"])
def _votes(
    h,  # (M, D, n)
    y,
    log_likeness,  # (K, K) or None
    averaged,  # (K, B) or None
    errors,  # (M, B, n) or None
    sums,  # (M, 4, n)
    losses,  # (M, n)
    n,
    y_step,
    K,
    B,
    D: tl.constexpr,
    VALUES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    rows, member = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1).to(tl.int64)
    h, y, sums, losses = h + member * D * n, y + member * y_step, sums + member * 4 * n, losses + member * n
    y_j = tl.load(y + rows, mask=rows < n, other=0)
    # Finite, so that ∞ - ∞ never occurs; below any log-weight, so that a sum of 0 means that there were no votes.
    most, total = tl.full((ROWS, COLUMNS), -1e38, tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    most_alike, total_alike = most, total
    for start in range(0, n, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        log_w = _log_weights(h, rows, columns, n, D, ROWS, COLUMNS)
        most, total = _accumulate(log_w, most, total)
        if log_likeness is not None:
            y_i = tl.load(y + columns, mask=columns < n, other=0)
            alike = tl.load(log_likeness + y_j[:, None] * K + y_i[None, :])
            most_alike, total_alike = _accumulate(log_w + alike, most_alike, total_alike)
    top, log_sum = _row(most, total)
    tl.store(sums + rows, top, mask=rows < n)
    tl.store(sums + n + rows, log_sum, mask=rows < n)
    if log_likeness is not None:
        top_alike, log_alike = _row(most_alike, total_alike)
        tl.store(sums + 2 * n + rows, top_alike, mask=rows < n)
        tl.store(sums + 3 * n + rows, log_alike, mask=rows < n)
        loss = (top - top_alike) + (log_sum - log_alike)
    else:
        values = tl.arange(0, VALUES)
        average = tl.zeros((ROWS, VALUES), tl.float32)
        for start in range(0, n, COLUMNS):
            columns = start + tl.arange(0, COLUMNS)
            share = _shares(_log_weights(h, rows, columns, n, D, ROWS, COLUMNS), top[:, None], log_sum[:, None])
            y_i = tl.load(y + columns, mask=columns < n, other=0)
            for value in range(B):
                part = tl.sum(share * tl.load(averaged + y_i * B + value)[None, :], axis=1)
                average += tl.where(values[None, :] == value, part[:, None], 0.0)
        inside = (rows[:, None] < n) & (values[None, :] < B)
        gap = average - tl.load(averaged + y_j[:, None] * B + values[None, :], mask=inside, other=0.0)
        tl.store(errors + (member * B + values[None, :]) * n + rows[:, None], gap, mask=inside)
        loss, inner = tl.sum(gap * gap, axis=1), tl.sum(gap * average, axis=1)
        tl.store(sums + 2 * n + rows, inner, mask=rows < n)
    tl.store(losses + rows, loss, mask=rows < n)


@triton.jit
def _counts(sums, weights, rows, n):
    """How much the loss of each row counts: its weight, or 0 if there is no voter."""
    counted = tl.where(tl.load(sums + n + rows, mask=rows < n, other=float("-inf")) == float("-inf"), 0.0, 1.0)
    if weights is not None:
        counted *= tl.load(weights + rows, mask=rows < n, other=0.0).to(tl.float32)
    return counted


@triton.jit(do_not_specialize=["n", "members", "step"])
def _mean(sums, losses, weights, loss, totals, n, members, step, BLOCK: tl.constexpr):
    answer = 0.0
    for member in range(members):
        weighted, counts = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n, BLOCK):
            rows = start + tl.arange(0, BLOCK)
            counted = _counts(sums + member * 4 * n, None if weights is None else weights + member * step, rows, n)
            own = tl.load(losses + member * n + rows, mask=rows < n, other=0.0)
            weighted += tl.where(counted > 0, counted * own, 0.0)
            counts += counted
        total = tl.sum(counts)
        tl.store(totals + member, total)
        answer += tl.sum(weighted) / tl.where(total > 0, total, 1.0)
    tl.store(loss, answer / members)


@triton.jit(do_not_specialize=["n", "y_step", "step", "K", "B"])
def _pulls(
    h,
    y,
    log_likeness,
    averaged,
    errors,
    sums,
    weights,
    totals,
    grad_loss,
    pulls,  # (n, M, D)
    n,
    y_step,
    step,
    K,
    B,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """2 Σ_i (G_ji + G_ij) (h_i - h_j)."""
    rows, dims = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    member, members = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    h, y, sums = h + member * D * n, y + member * y_step, sums + member * 4 * n
    if weights is not None:
        weights += member * step
    total = tl.load(totals + member)
    unit = 2.0 * tl.load(grad_loss) / (tl.where(total > 0, total, 1.0) * members)
    y_j, count_j = tl.load(y + rows, mask=rows < n, other=0), _counts(sums, weights, rows, n) * unit
    top_j, sum_j, third_j, fourth_j = _sums(sums, rows, n)
    pull = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, n, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        log_w = _log_weights(h, rows, columns, n, D, ROWS, COLUMNS)
        y_i = tl.load(y + columns, mask=columns < n, other=0)
        top_i, sum_i, third_i, fourth_i = _sums(sums, columns, n)
        slope_j = _shares(log_w, top_j[:, None], sum_j[:, None])
        slope_i = _shares(log_w, top_i[None, :], sum_i[None, :])
        if log_likeness is not None:
            alike = log_w + tl.load(log_likeness + y_j[:, None] * K + y_i[None, :])
            slope_j -= _shares(alike, third_j[:, None], fourth_j[:, None])
            alike = log_w + tl.load(log_likeness + y_i[None, :] * K + y_j[:, None])
            slope_i -= _shares(alike, third_i[None, :], fourth_i[None, :])
        else:
            along_j, along_i = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
            for value in range(B):
                error = errors + (member * B + value) * n
                error_j = tl.load(error + rows, mask=rows < n, other=0.0)
                error_i = tl.load(error + columns, mask=columns < n, other=0.0)
                along_j += error_j[:, None] * tl.load(averaged + y_i * B + value)[None, :]
                along_i += error_i[None, :] * tl.load(averaged + y_j * B + value)[:, None]
            slope_j *= 2.0 * (along_j - third_j[:, None])
            slope_i *= 2.0 * (along_i - third_i[None, :])
        count_i = _counts(sums, weights, columns, n) * unit
        slope = tl.where(log_w > float("-inf"), slope_j * count_j[:, None] + slope_i * count_i[None, :], 0.0)
        slope = tl.where(log_w != log_w, log_w, slope)  # NaN stays
        for k in range(D):
            pulled = tl.sum(slope * _difference(h + k * n, rows, columns, n), axis=1)
            pull += tl.where(dims[None, :] == k, pulled[:, None], 0.0)
    place = (rows[:, None].to(tl.int64) * members + member) * D + dims[None, :]
    tl.store(pulls + place, pull, mask=(rows[:, None] < n) & (dims[None, :] < D))


@triton.jit
def _sums(sums, rows, n):
    """The four numbers that `_votes` stored for some rows."""
    first = tl.load(sums + rows, mask=rows < n, other=0.0)
    second = tl.load(sums + n + rows, mask=rows < n, other=0.0)
    third = tl.load(sums + 2 * n + rows, mask=rows < n, other=0.0)
    fourth = tl.load(sums + 3 * n + rows, mask=rows < n, other=0.0)
    return first, second, third, fourth
