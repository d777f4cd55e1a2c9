"""The precision policy as two kernels instead of forty operations, for gaussian weights in float32.

Each decides for ROWS queries and goes through their classes CLASSES at a time. The rules are those of
`dwac.engine.precision`.
"""

# Kernels are written in the Triton language: their arguments are pointers and tiles, which have no Python type.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator,misc"

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from dwac.engine.index import Index, power_of_two
from dwac.engine.precision import FAR, GRADIENT_TOLERANCE, TOLERANCE, Policy, Scaled
from dwac.engine.triton.tiles import ceil_div

_CELLS = 1024  # votes that a program processes at a time


class FusedPolicy(Policy):
    """The decisions of `Policy` with one kernel each."""

    def unsure(
        self, index: Index, log_class_weights: Tensor, norms: Tensor, nearest: Tensor | None, unit: float, single: bool
    ) -> Tensor:
        """See `Policy.unsure`."""
        if not single or index.kernel.name != "gaussian":
            return super().unsure(index, log_class_weights, norms, nearest, unit, single)
        n, n_classes = log_class_weights.shape
        answer = torch.empty(n, dtype=torch.bool, device=norms.device)
        nearest = None if nearest is None else nearest.contiguous()
        rows, classes = _tile(n, n_classes)
        with torch.cuda.device_of(norms):
            _unsure[(ceil_div(n, rows),)](
                log_class_weights.contiguous(), index.log_counts, norms.contiguous(), nearest, answer, n, n_classes,
                UNIT=unit, TOLERANCE=TOLERANCE, ROWS=rows, CLASSES=classes,
            )  # fmt: skip
        return answer

    def scale(
        self, index: Index, centred: Tensor, log_class_weights: Tensor, cotangent: Tensor, unit: float | None
    ) -> Scaled:
        """See `Policy.scale`."""
        if unit is None or cotangent.dtype != torch.float64:
            return super().scale(index, centred, log_class_weights, cotangent, unit)
        n, n_classes = cotangent.shape
        scaled, largest = torch.empty_like(cotangent, memory_format=torch.contiguous_format), cotangent.new_empty(n, 1)
        strained = torch.empty(n, dtype=torch.bool, device=cotangent.device)
        rows, classes = _tile(n, n_classes)
        with torch.cuda.device_of(cotangent):
            _scale[(ceil_div(n, rows),)](
                centred.contiguous(), log_class_weights.contiguous(), index.log_counts, cotangent.contiguous(),
                scaled, largest, strained, n, n_classes, math.log(len(index.labels) + 1),
                d=centred.shape[1], D=power_of_two(centred.shape[1]), UNIT=unit, TOLERANCE=GRADIENT_TOLERANCE, FAR=FAR,
                ROWS=rows, CLASSES=classes,
            )  # fmt: skip
        return Scaled(scaled, largest, strained)


def _tile(n: int, n_classes: int) -> tuple[int, int]:
    """Queries per program, and classes processed at a time."""
    classes = min(_CELLS // 16, power_of_two(n_classes))
    return min(_CELLS // classes, 64, power_of_two(n)), classes


@triton.jit
def _votes(log_sums, log_counts, rows, labels, n, K):
    """Log class weights of some queries and classes, and the log of the members of each class; -∞ for no class."""
    there = (rows[:, None] < n) & (labels[None, :] < K)
    place = rows[:, None].to(tl.int64) * K + labels[None, :]
    counts = tl.load(log_counts + labels, mask=labels < K, other=float("-inf"))
    return tl.load(log_sums + place, mask=there, other=float("-inf")), counts[None, :]


@triton.jit(do_not_specialize=["n", "K"])
def _unsure(
    log_sums,  # (n, K)
    log_counts,  # (K,)
    norms,  # (n,)
    nearest,  # (n,) or None
    answer,  # (n,)
    n,
    K,
    UNIT: tl.constexpr,
    TOLERANCE: tl.constexpr,
    ROWS: tl.constexpr,
    CLASSES: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lead, mean = tl.full((ROWS,), float("-inf"), tl.float64), tl.full((ROWS,), float("-inf"), tl.float64)
    lost = tl.zeros((ROWS,), tl.int32)
    for first in range(0, K, CLASSES):
        votes, counts = _votes(log_sums, log_counts, rows, first + tl.arange(0, CLASSES), n, K)
        lead = tl.maximum(lead, tl.max(votes, axis=1))
        mean = tl.maximum(mean, tl.max(tl.where(counts == float("-inf"), float("-inf"), votes - counts), axis=1))
        lost += tl.sum((votes != votes).to(tl.int32), axis=1)  # NaN, where float32 overflowed
    norm = tl.load(norms + rows, mask=rows < n, other=0.0)
    squared = -mean if nearest is None else tl.load(nearest + rows, mask=rows < n, other=0.0)
    reach = tl.sqrt(squared) + 2.0 * tl.sqrt(norm)
    bound = (reach * reach + 16.0) * UNIT
    close = lead - 2.0 * bound
    leading = tl.zeros((ROWS,), tl.int32)
    for first in range(0, K, CLASSES):
        votes, _ = _votes(log_sums, log_counts, rows, first + tl.arange(0, CLASSES), n, K)
        leading += tl.sum((votes >= close[:, None]).to(tl.int32), axis=1)
    sure = (bound <= TOLERANCE) & (leading == 1) & (lost == 0)
    tl.store(answer + rows, (sure == 0), mask=rows < n)


@triton.jit(do_not_specialize=["n", "K"])
def _scale(
    queries,  # (n, d), centred
    log_sums,  # (n, K)
    log_counts,  # (K,)
    cotangents,  # (n, K)
    scaled,  # (n, K)
    largest,  # (n, 1)
    strained,  # (n,)
    n,
    K,
    highest,  # log of a number larger than the number of references
    d: tl.constexpr,
    D: tl.constexpr,
    UNIT: tl.constexpr,
    TOLERANCE: tl.constexpr,
    FAR: tl.constexpr,
    ROWS: tl.constexpr,
    CLASSES: tl.constexpr,
):
    rows, dims = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, D)
    there = (rows[:, None] < n) & (dims[None, :] < d)
    q = tl.load(queries + rows[:, None].to(tl.int64) * d + dims[None, :], mask=there, other=0.0).to(tl.float64)
    norm = tl.sqrt(tl.sum(q * q, axis=1))
    most = tl.zeros((ROWS,), tl.float64)
    for first in range(0, K, CLASSES):
        labels = first + tl.arange(0, CLASSES)
        c = _cotangents(cotangents, log_counts, rows, labels, n, K)
        most = tl.maximum(most, tl.max(tl.abs(c), axis=1))
    tl.store(largest + rows, most, mask=rows < n)
    pull, error = tl.zeros((ROWS,), tl.float64), tl.zeros((ROWS,), tl.float64)
    for first in range(0, K, CLASSES):
        labels = first + tl.arange(0, CLASSES)
        c = _cotangents(cotangents, log_counts, rows, labels, n, K) / tl.maximum(most, 2.2250738585072014e-308)[:, None]
        place = rows[:, None].to(tl.int64) * K + labels[None, :]
        tl.store(scaled + place, c, mask=(rows[:, None] < n) & (labels[None, :] < K))
        votes, counts = _votes(log_sums, log_counts, rows, labels, n, K)
        reach = tl.sqrt(tl.maximum(highest - tl.where(counts == float("-inf"), 0.0, votes), 0.0))
        length = 2.0 * norm[:, None] + reach
        rounding = tl.minimum((length * length + 16.0) * UNIT, 100.0)
        pulls = tl.abs(c) * reach
        pull += tl.sum(pulls, axis=1)
        error += tl.sum(pulls * (tl.exp2(rounding * 1.4426950408889634) - 1.0), axis=1)
    kept = (error <= TOLERANCE * pull) & (norm <= FAR)
    tl.store(strained + rows, (kept == 0), mask=rows < n)


@triton.jit
def _cotangents(cotangents, log_counts, rows, labels, n, K):
    """The cotangents of some queries and classes; 0 for classes without references."""
    counts = tl.load(log_counts + labels, mask=labels < K, other=float("-inf"))
    there = (rows[:, None] < n) & (counts[None, :] > float("-inf"))
    return tl.load(cotangents + rows[:, None].to(tl.int64) * K + labels[None, :], mask=there, other=0.0)
