"""The sweep as one fused kernel on a GPU: products on the tensor cores, a running log-sum-exp, no (n, m) matrix.

A program takes ROWS queries through a part of the references, one class-pure block after the other, and keeps of each
class two numbers a query: the largest log-weight, and the sum of weights in units of it. Log-weights are in base 2,
so that the hardware's own exponential serves.
"""

# Kernels are Triton's language, not Python's: their arguments are pointers and tiles, which have no Python type.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator,misc"

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from dwac.engine.backends import Sweep, TorchBackend, in_parts, nearest_blocks
from dwac.engine.index import Index, padded_width
from dwac.engine.triton_gradient import fused_gradient

WIDEST = 256  # the largest d served
_LN2 = math.log(2)
_ROWS = 64  # queries of a program
_PROGRAMS = 1056  # eight for each multiprocessor of a large GPU
_RESULTS = 2**25  # numbers a launch may leave


class TritonBackend:
    """Gaussian weights in float32 by the fused kernel; anything else as `TorchBackend` does it."""

    name = "triton"
    rounding = 4.0  # three TF32 products for one of float32, and log-weights in base 2
    gradient = staticmethod(fused_gradient)

    def __init__(self) -> None:
        self.rest = TorchBackend()

    def sweep(self, index: Index, queries: Tensor, n_blocks: int) -> Sweep:
        """See `Backend.sweep`."""
        fits = queries.dtype == torch.float32 == index.folded.dtype and index.kernel.name == "gaussian"
        places = len(index.folded) * padded_width(queries.shape[1])  # which the kernel counts in 32 bits
        if not fits or queries.shape[1] > WIDEST or places >= 2**31:
            return self.rest.sweep(index, queries, n_blocks)
        return in_parts(_chunk, index, queries, n_blocks, _RESULTS // max(len(index.block_labels), index.n_classes))


def _chunk(index: Index, queries: Tensor, n_blocks: int) -> Sweep:
    norms = queries.double().square().sum(dim=1)
    best = queries.new_empty(len(queries), len(index.block_labels)) if n_blocks > 1 else None
    log_sums, largest = class_sums(index, queries, best)
    # No weight exceeds 1 (d² ≥ 0), so no class exceeds its count; rounding may not either.
    log_class_weights = torch.minimum(log_sums - norms[:, None], index.counts.double().log())
    if best is not None:
        return Sweep(log_class_weights, *nearest_blocks(best, norms, n_blocks))
    nearest = (norms - largest.amax(dim=1)).clamp_min_(0)
    nowhere = index.block_labels.new_zeros(len(queries), 1)  # nobody asks for neighbours
    return Sweep(log_class_weights, nearest, nowhere, torch.full_like(nearest, torch.inf))


def class_sums(index: Index, queries: Tensor, best: Tensor | None) -> tuple[Tensor, Tensor]:
    """Of queries (n, d) float32, centred: log Σ exp(‖q‖² - ‖q - g‖²) by class and the largest term, (n, K) float64.

    best: (n, n_blocks) float32 or None: filled with the largest ‖q‖² - ‖q - g‖² of each block.
    """
    n, d = queries.shape
    references, norms = index.columns
    rows = min(_ROWS, max(16, triton.next_power_of_2(n)))
    tiles = triton.cdiv(n, rows)
    n_blocks, n_classes = len(index.block_labels), index.n_classes
    # Few queries leave the GPU idle unless several programs share the references of each.
    parts = max(1, min(n_blocks, _PROGRAMS // tiles, _RESULTS // max(1, n * n_classes)))
    step = triton.cdiv(n_blocks, parts)
    parts = triton.cdiv(n_blocks, step)
    largest = queries.new_full((parts, n, n_classes), -torch.inf)
    total = torch.zeros_like(largest)
    padded = torch.nn.functional.pad(queries, (0, len(references) - d))
    with torch.cuda.device_of(queries):
        _sums[(tiles, parts)](
            padded, references, norms, index.class_starts, index.block_labels, largest, total, best,
            n, n_blocks, step, n_classes,
            D=len(references), ROWS=rows, COLUMNS=index.block_size, num_warps=4,
        )  # fmt: skip
    most = largest.amax(dim=0)
    units = total.double() * torch.exp2((largest - most).nan_to_num(0.0).double())  # nan: nobody voted
    return (most.double() + units.sum(dim=0).log2()) * _LN2, most.double() * _LN2


@triton.jit(do_not_specialize=["n", "n_blocks", "step"])
def _sums(
    queries,  # (n, D)
    references,  # (D, m): 2 g log₂e
    norms,  # (m,): -‖g‖² log₂e
    class_starts,  # (K + 1,): each class's first block
    block_labels,  # (n_blocks,)
    largest,  # (parts, n, K)
    total,
    best,  # (n, n_blocks) or None
    n,
    n_blocks,
    step,
    n_classes,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    dims, lanes = tl.arange(0, D), tl.arange(0, COLUMNS)
    m = n_blocks * COLUMNS
    first = tl.program_id(1) * step
    last = tl.minimum(n_blocks, first + step)
    q = tl.load(queries + rows[:, None] * D + dims[None, :], mask=rows[:, None] < n, other=0.0)
    place = (tl.program_id(1).to(tl.int64) * n + rows) * n_classes
    for label in range(tl.load(block_labels + first).to(tl.int32), tl.load(block_labels + last - 1).to(tl.int32) + 1):
        begin = tl.maximum(first, tl.load(class_starts + label).to(tl.int32))
        end = tl.minimum(last, tl.load(class_starts + label + 1).to(tl.int32))
        if begin < end:
            # Finite, so that nothing is ever ∞ - ∞; below any log-weight.
            most = tl.full((ROWS,), -1e38, tl.float32)
            units = tl.zeros((ROWS,), tl.float32)
            for block in range(begin, end):
                columns = block * COLUMNS + lanes
                g = tl.load(references + dims[:, None] * m + columns[None, :])
                log_w = tl.dot(q, g, input_precision="tf32x3") + tl.load(norms + columns)[None, :]
                here = tl.max(log_w, axis=1)
                if best is not None:
                    tl.store(best + rows.to(tl.int64) * n_blocks + block, here * 0.6931471805599453, mask=rows < n)
                now = tl.maximum(most, here)
                units = units * tl.exp2(most - now) + tl.sum(tl.exp2(log_w - now[:, None]), axis=1)
                most = now
            tl.store(largest + place + label, most, mask=rows < n)
            tl.store(total + place + label, units, mask=rows < n)
