"""The gradient as one fused kernel on a GPU: two products on the tensor cores, no (n, m) matrix.

A program takes ROWS queries through a part of the references, COLUMNS of one class at a time: log-weights in base 2 as
the sweep computes them, shares of the class's sum, times the class's cotangent, and their product with the references.
The mathematics is that of `dwac.engine.gradient`.
"""

# Kernels are Triton's language, not Python's: their arguments are pointers and tiles, which have no Python type.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator,misc"

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from dwac.engine.gradient import levels, tiled_gradient
from dwac.engine.index import Index, padded_width

WIDEST = 256  # the largest d served
_PROGRAMS = 1056  # eight for each multiprocessor of a large GPU
_RESULTS = 2**24  # numbers that the parts may leave


class Shape(NamedTuple):
    """How a program is cut: queries, references taken in at a time, warps, and loads under way."""

    rows: int
    columns: int
    warps: int
    stages: int


# By the padded width: both products' operands, each as two TF32 numbers, must fit a multiprocessor.
SHAPES = {
    16: Shape(128, 64, 4, 1),
    32: Shape(128, 32, 8, 1),
    64: Shape(64, 32, 4, 2),
    128: Shape(32, 16, 4, 1),
    256: Shape(16, 16, 8, 1),
}


def fused_gradient(index: Index, queries: Tensor, log_class_weights: Tensor, cotangent: Tensor) -> Tensor:
    """See `Backend.gradient`: gaussian weights in float32 by the fused kernel, anything else in tiles."""
    fits = queries.dtype == torch.float32 == index.folded.dtype and index.kernel.name == "gaussian"
    if not fits or queries.shape[1] > WIDEST:
        return tiled_gradient(index, queries, log_class_weights, cotangent)
    norms = queries.double().square().sum(dim=1, keepdim=True)
    level, weight = levels((log_class_weights + norms) * math.log2(math.e), cotangent, torch.float32, base=2.0)
    return pulls(index, queries, level, weight, SHAPES[padded_width(queries.shape[1])])


def pulls(index: Index, queries: Tensor, level: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    """2 Σ_i p_i (g_i - q) of queries (n, d) float32, centred; p_i = weight_k 2^(log₂ w_i + ‖q‖² log₂e - level_k).

    level, weight: (n, K) float32.
    """
    n, d = queries.shape
    leading, rest, norms = index.split
    rows = min(shape.rows, max(16, triton.next_power_of_2(n)))
    columns = min(shape.columns, index.block_size)
    n_tiles, row_tiles = len(leading) // columns, triton.cdiv(n, rows)
    # Few queries leave the GPU idle unless several programs share the references of each.
    parts = max(1, min(n_tiles, _PROGRAMS // row_tiles, _RESULTS // (n * leading.shape[1])))
    step = triton.cdiv(n_tiles, parts)
    parts = triton.cdiv(n_tiles, step)
    answer = queries.new_empty(parts, n, leading.shape[1])
    with torch.cuda.device_of(queries):
        _pulls[(row_tiles, parts)](
            queries.contiguous(), leading, rest, norms, index.block_labels, level.mT.contiguous(),
            weight.mT.contiguous(), answer, n, n_tiles, step,
            d=d, D=leading.shape[1], ROWS=rows, COLUMNS=columns, PER_BLOCK=index.block_size // columns,
            num_warps=shape.warps, num_stages=shape.stages,
        )  # fmt: skip
    return answer.sum(dim=0)[:, :d]


@triton.jit(do_not_specialize=["n", "n_tiles", "step"])
def _pulls(
    queries,  # (n, d)
    leading,  # (m, D): 2 g log₂e, its leading bits
    rest,  # (m, D): and what they leave
    norms,  # (m,): -‖g‖² log₂e; None where they stand in three columns more
    block_labels,  # (n_blocks,)
    levels,  # (K, n)
    weights,  # (K, n)
    answer,  # (parts, n, D)
    n,
    n_tiles,
    step,
    d: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PER_BLOCK: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    dims, lanes = tl.arange(0, D), tl.arange(0, COLUMNS)
    first = tl.program_id(1) * step
    last = tl.minimum(n_tiles, first + step)
    there = (rows < n)[:, None] & (dims < d)[None, :]
    q = tl.load(queries + rows[:, None].to(tl.int64) * d + dims[None, :], mask=there, other=0.0)
    if norms is None:
        q = tl.where((dims >= d) & (dims < d + 3), 1.0, q)
    pull, total = tl.zeros((ROWS, D), tl.float32), tl.zeros((ROWS,), tl.float32)
    for tile in range(first, last):
        columns = (tile * COLUMNS + lanes).to(tl.int64)
        place = tl.load(block_labels + tile // PER_BLOCK) * n + rows
        level = tl.load(levels + place, mask=rows < n, other=0.0)
        weight = tl.load(weights + place, mask=rows < n, other=0.0)
        of = (columns * D)[:, None] + dims[None, :]
        g = tl.load(leading + of) + tl.load(rest + of)
        log_w = tl.dot(q, tl.trans(g), input_precision="tf32x3")
        if norms is not None:
            log_w += tl.load(norms + columns)[None, :]
        p = tl.exp2(log_w - level[:, None]) * weight[:, None]
        pull = tl.dot(p, g, pull, input_precision="tf32x3")
        total += tl.sum(p, axis=1)
    pull = pull * 0.6931471805599453 - 2.0 * q * total[:, None]
    answer += tl.program_id(1).to(tl.int64) * n * D
    tl.store(answer + rows[:, None] * D + dims[None, :], pull, mask=rows[:, None] < n)  # those of norms mean nothing
