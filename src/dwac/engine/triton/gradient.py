"""The gradient as one fused kernel on a GPU: two products on the tensor cores, no (n, m) matrix.

A program processes ROWS queries and a part of the references, COLUMNS of one class at a time: log-weights in base 2,
shares of the class sum, times the cotangent of the class, and their product with the references.
The mathematics is that of `tiled_gradient`, and so is the treatment of logs too large for float32 (`levels`).
Factors of both products are pairs of numbers in half precision, as in the sweep (`dwac.engine.triton.sweep`).
"""

# Kernels are written in the Triton language: their arguments are pointers and tiles, which have no Python type.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator,misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dwac.engine.backends import tiled_gradient
from dwac.engine.index import Index, padded_width
from dwac.engine.triton.tiles import (
    WIDEST,
    Shape,
    ceil_div,
    has_room,
    labels_of,
    pieces_of,
    product,
    query_parts,
    two_parts,
)

PROGRAMS = 1056  # eight for each multiprocessor of a large GPU
_RESULTS = 2**24  # most numbers that all parts may store
_UNIT = tl.constexpr(2.0**15)  # scale of the shares: half precision then holds 1 and also very small shares


# By padded width, measured on an H200: the operands of both products must fit a multiprocessor. Other GPUs have less
# shared memory.
SHAPES = {
    16: Shape(64, 128, 4, 3),
    32: Shape(64, 128, 4, 3),
    64: Shape(64, 128, 4, 3),
    128: Shape(64, 64, 4, 2),
    256: Shape(128, 32, 8, 2),
}
LEAN = SHAPES | {256: Shape(32, 32, 4, 1)}


def fused_gradient(index: Index, queries: Tensor, log_class_weights: Tensor, cotangent: Tensor) -> Tensor:
    """See `Backend.gradient`: the fused kernel for gaussian weights in float32, tiles for anything else."""
    fits = queries.dtype == torch.float32 == index.folded.dtype and index.kernel.name == "gaussian" and index.halves
    if not fits or queries.shape[1] > WIDEST:
        return tiled_gradient(index, queries, log_class_weights, cotangent)
    shapes = SHAPES if has_room(queries.device) else LEAN
    return pulls(index, queries, log_class_weights, cotangent, shapes[padded_width(queries.shape[1])])


def pulls(index: Index, queries: Tensor, log_class_weights: Tensor, cotangent: Tensor, shape: Shape) -> Tensor:
    """2 Σ_i p_i (g_i - q) of queries (n, d) float32, centred; p_i = c_k w_i / W_k, k the class of i."""
    n, d = queries.shape
    leading, rest, norms = index.split
    rows = min(shape.rows, padded_width(n))
    columns = min(shape.columns, index.block_size)
    n_tiles, row_tiles = len(leading) // columns, ceil_div(n, rows)
    # Few queries leave the GPU idle unless several programs share the references of each.
    parts = max(1, min(n_tiles, PROGRAMS // row_tiles, _RESULTS // (n * leading.shape[1])))
    step = ceil_div(n_tiles, parts)
    parts = ceil_div(n_tiles, step)
    answer = queries.new_empty(parts, n, leading.shape[1])
    with torch.cuda.device_of(queries):
        _pulls[(row_tiles, parts)](
            queries.contiguous(), leading, rest, norms, index.class_starts, index.block_labels,
            log_class_weights.contiguous(), cotangent.contiguous(), answer, n, n_tiles, step, index.n_classes,
            d=d, D=leading.shape[1], ROWS=rows, COLUMNS=columns, PER_BLOCK=index.block_size // columns,
            STAGES=shape.stages, num_warps=shape.warps,
        )  # fmt: skip
    return answer.sum(dim=0)[:, :d]


@triton.jit(do_not_specialize=["n", "n_tiles", "step"])
def _pulls(
    queries,  # (n, d)
    leading,  # (m, D): 2 g log₂e, its leading bits
    rest,  # (m, D): the remaining bits
    norms,  # (m,): -‖g‖² log₂e; None if they are in three more columns
    class_starts,  # (K + 1,): the first block of each class
    block_labels,  # (n_blocks,)
    log_sums,  # (n, K): log W
    cotangents,  # (n, K)
    answer,  # (parts, n, D)
    n,
    n_tiles,
    step,
    n_classes,
    d: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PER_BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    dims, lanes = tl.arange(0, D), tl.arange(0, COLUMNS)
    first = tl.program_id(1) * step
    last = tl.minimum(n_tiles, first + step)
    there = (rows < n)[:, None] & (dims < d)[None, :]
    own = tl.load(queries + rows[:, None].to(tl.int64) * d + dims[None, :], mask=there, other=0.0).to(tl.float64)
    norm = tl.sum(own * own, axis=1)
    q1, q2 = query_parts(queries, rows, n, 0, d, D, norms is None)
    pull, total = tl.zeros((ROWS, D), tl.float32), tl.zeros((ROWS,), tl.float32)
    begin_label, end_label = labels_of(block_labels, first, last, PER_BLOCK)
    for label in range(begin_label, end_label):
        begin, end = pieces_of(class_starts, label, first, last, PER_BLOCK)
        place = rows.to(tl.int64) * n_classes + label
        log_sum = (tl.load(log_sums + place, mask=rows < n, other=0.0) + norm) * 1.4426950408889634
        level = log_sum.to(tl.float32)
        # Both exponents are at most about 0. Where rounding makes them large, the limits prevent 0 · ∞.
        rounded = tl.exp2(tl.minimum(level.to(tl.float64) - log_sum, 1.0))
        weight = tl.load(cotangents + place, mask=rows < n, other=0.0) * rounded * _UNIT
        for tile in tl.range(begin, end, num_stages=STAGES):
            columns = (tile * COLUMNS + lanes).to(tl.int64)
            of = (columns * D)[:, None] + dims[None, :]
            g1, g2 = tl.load(leading + of), tl.load(rest + of)
            log_w = product(tl.zeros((ROWS, COLUMNS), tl.float32), q1, q2, tl.trans(g1), tl.trans(g2))
            if norms is not None:
                log_w += tl.load(norms + columns)[None, :]
            p = tl.exp2(tl.minimum(log_w - level[:, None], 0.0)) * weight.to(tl.float32)[:, None]
            p1, p2 = two_parts(p)
            # Tensor cores round sums towards zero, so they only add up one tile.
            pull += product(tl.zeros((ROWS, D), tl.float32), p1, p2, g1, g2)
            total += tl.sum(p, axis=1)
    q = q1.to(tl.float32) + q2.to(tl.float32)
    pull = (pull * 0.6931471805599453 - 2.0 * q * total[:, None]) / _UNIT
    answer += tl.program_id(1).to(tl.int64) * n * D
    tl.store(answer + rows[:, None] * D + dims[None, :], pull, mask=rows[:, None] < n)  # columns of norms are unused
