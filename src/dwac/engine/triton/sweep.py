"""The sweep as fused kernels on a GPU: a running log-sum-exp, no (n, m) matrix.

A program processes ROWS queries and a part of the references, COLUMNS of one class at a time. Per class and query it
keeps two numbers: the largest log-weight, and the sum of weights in units of it. Log-weights are in base 2, to use the
hardware's own exponential.

In float32, distances are products on the tensor cores, which are fastest with numbers in half precision, of 11 bits.
Each factor is split into its leading bits and the rest, x = x₁ + x₂, and q · g is q₁ · g₂ + q₂ · g₁ + q₁ · g₁, summed
in float32. Queries that this leaves in doubt, and kernels that need more precision, use float64: distances are then
sums of squared differences, accurate wherever the data lies.

The exponentials take most of the time. So what would come between product and exponential is part of the product: the
norms and the unit of the sum, in the padding of the references if it has room (`Index.split`), or else in 16 columns
more (`Index.tail`). And some of the exponentials are polynomials, because the unit for exponentials would otherwise be
the only busy one (`tiles.exp2`).
"""

# Kernels are written in the Triton language: their arguments are pointers and tiles, which have no Python type.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator,misc"

from __future__ import annotations

import logging
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from dwac.engine.backends import Sweep, TorchBackend, in_parts, nearest_blocks, without_neighbours
from dwac.engine.index import Index, build_index, padded_width, power_of_two
from dwac.engine.triton.gradient import fused_gradient
from dwac.engine.triton.policy import FusedPolicy
from dwac.engine.triton.replay import FEW, answer_few
from dwac.engine.triton.tiles import (
    PACK,
    WIDEST,
    Shape,
    ceil_div,
    exp2,
    has_room,
    labels_of,
    pieces_of,
    product,
    query_parts,
    squared_norm,
)
from dwac.kernels import get_kernel

logger = logging.getLogger(__name__)

_PROGRAMS = 4224  # thirty-two for each multiprocessor of a large GPU
# Up to this many queries, the work is divided in the same way however many there are, so that no answer depends on the
# others: the references into two parts for each multiprocessor, or up to eight if a part still has 32 pieces.
ALONE = 1024
_FEWEST_PARTS, _MOST_PARTS, _PIECES = 264, 1056, 32
_TAILED = 32  # the largest padded width at which exponentials, not products, are the limit
_RESULTS = 2**24  # most float32 numbers that one launch stores, 64 MB; for sums twice that


# By padded width, measured on an H200: both parts of both factors must fit a multiprocessor. Other GPUs have less
# shared memory.
SHAPES = {
    16: Shape(64, 128, 4, 3, registers=128),  # so that a multiprocessor holds four programs
    32: Shape(64, 128, 4, 3, registers=128),
    64: Shape(64, 128, 4, 3),
    128: Shape(128, 128, 8, 2),
    256: Shape(128, 128, 8, 1),
}
LEAN = {
    16: Shape(64, 128, 4, 3),
    32: Shape(64, 128, 4, 3),
    64: Shape(64, 128, 4, 3),
    128: Shape(128, 32, 8, 2),
    256: Shape(64, 64, 8, 1),
}
PRECISE = Shape(16, 64, 4, 1)  # for the float64 kernel


class TritonBackend:
    """All weight kernels as fused GPU kernels, up to 256 dimensions; above that the same as `TorchBackend`."""

    name = "triton"
    rounding = 6.0  # 12 units of 2‖q‖‖g‖: the error from using 22 bits per factor and omitting their lowest product
    gradient = staticmethod(fused_gradient)
    policy = FusedPolicy()

    def __init__(self) -> None:
        self.rest = TorchBackend()

    def sweep(self, index: Index, queries: Tensor, n_blocks: int) -> Sweep:
        """See `Backend.sweep`."""
        if queries.shape[1] > WIDEST or (queries.dtype == torch.float32 and not index.halves):
            return self.rest.sweep(index, queries, n_blocks)
        results = max(3 * index.n_classes, len(index.block_labels)) if n_blocks else 2 * index.n_classes
        return in_parts(_chunk, index, queries, n_blocks, _RESULTS // results)

    def answers_alone(self, index: Index) -> bool:
        """Whether the votes on each of up to `ALONE` queries are the same whatever the others are."""
        return index.embeddings.shape[1] <= WIDEST and (index.halves or index.folded.dtype == torch.float64)

    def few(self, index: Index, queries: Tensor) -> Tensor | None:
        """Log class weights of a few queries, not centred; None if there are too many, or any is in doubt."""
        if not 1 <= len(queries) <= FEW or queries.shape[1] > WIDEST:
            return None
        return answer_few(index, queries, self, self.policy)

    def products(self, index: Index, queries: Tensor, blocks: Tensor) -> Tensor:
        """See `Backend.products`."""
        if queries.dtype != torch.float32 or index.folded.dtype != torch.float32:
            return self.rest.products(index, queries, blocks)
        (n, d), b = queries.shape, blocks.shape[1]
        answer = queries.new_empty(n, b * index.block_size)
        with torch.cuda.device_of(queries):
            _members[(n, b)](
                queries.contiguous(), index.folded, blocks.contiguous(), answer,
                D=power_of_two(d), d=d, BLOCK=index.block_size, num_warps=1 if d <= 32 else 4,
            )  # fmt: skip
        return answer


def serves(device: torch.device, d: int) -> bool:
    """Whether the kernels can run on this device in d dimensions."""
    return d <= WIDEST and _compiles(device, padded_width(d))


@cache
def _compiles(device: torch.device, width: int) -> bool:
    """Try all kernels on as many points as they process at a time. They fail, for example, without a C compiler."""
    try:
        with torch.inference_mode(False), torch.no_grad():
            points, labels = torch.zeros(1024, width, device=device), torch.arange(1024, device=device) % 2
            index, backend = build_index(points, labels, 2, get_kernel("gaussian")), TritonBackend()
            for queries in (points[:128], points[:128].double()):
                votes = backend.sweep(index, queries, 0).log_class_weights
                backend.products(index, queries, backend.sweep(index, queries, 2).blocks)
                backend.gradient(index, queries, votes, torch.ones_like(votes))
    except Exception as error:  # anything that the compiler, the driver or the linker raises
        logger.warning("the fused class sums cannot be compiled on this machine; slower ones are used: %s", error)
        return False
    return True


def _chunk(index: Index, queries: Tensor, n_blocks: int) -> Sweep:
    best = queries.new_empty(len(queries), len(index.block_labels)) if n_blocks else None
    log_class_weights, norms = class_sums(index, queries, best)
    if best is not None:
        return Sweep(log_class_weights, norms, *nearest_blocks(best, norms, n_blocks))
    return without_neighbours(log_class_weights, norms, index)


def _packs(cells: int, warps: int) -> bool:
    """Whether every thread has whole packs for `tiles.exp2`."""
    return PACK > 0 and cells % (32 * PACK * warps) == 0


def class_sums(index: Index, queries: Tensor, best: Tensor | None, shape: Shape | None = None) -> tuple[Tensor, Tensor]:
    """log Σ w per class, (n, K) float64, of centred queries (n, d), and their ‖q‖², (n,) float64.

    best: (n, n_blocks) with the dtype of queries, or None: filled with the largest ‖q‖² - ‖q - g‖² of each block.
    """
    (n, d), n_classes = queries.shape, index.n_classes
    single = queries.dtype == torch.float32
    if shape is None:
        shape = (SHAPES if has_room(queries.device) else LEAN)[padded_width(d)] if single else PRECISE
    rows = shape.rows
    columns = min(shape.columns, index.block_size)
    tiles, n_pieces = ceil_div(n, rows), len(index.rows) // columns
    # Few queries leave the GPU idle unless several programs share the references of each.
    usual = _PROGRAMS // tiles if n > ALONE else max(_FEWEST_PARTS, min(_MOST_PARTS, n_pieces // _PIECES))
    parts = max(1, min(n_pieces, usual, 2 * _RESULTS // (3 * max(n, ALONE)) - n_classes))
    per_block = index.block_size // columns
    step = ceil_div(ceil_div(n_pieces, parts), per_block) * per_block
    parts = ceil_div(n_pieces, step)
    # References are sorted by class, so the class and the part determine the slot.
    largest = queries.new_empty(n_classes + parts, n)
    total = torch.empty_like(largest, dtype=torch.float64)
    common = (index.class_starts, index.block_labels, largest, total, best, n, n_pieces, step)
    cut = {"ROWS": rows, "COLUMNS": columns, "PER_BLOCK": per_block, "KERNEL": index.kernel.name}
    with torch.cuda.device_of(queries):
        if single:
            leading, rest, ref_norms = index.split
            width = leading.shape[1]
            tail = index.tail if best is None and width <= _TAILED else None
            mixed = width <= (_TAILED if ref_norms is None else 16) and _packs(rows * columns, shape.warps)
            _by_products[(tiles, parts)](
                queries.contiguous(), leading, rest, ref_norms, tail, *common,
                d=d, D=width, CHUNK=min(width, 64), STAGES=shape.stages - (tail is not None), MIXED=mixed,
                **cut, **shape.options,
            )  # fmt: skip
            norms = _norms_of(queries)  # after the launch: one query would wait for it
        else:
            norms = _norms_of(queries)
            _by_differences[(tiles, parts)](
                (queries + index.centre).contiguous(), norms, index.embeddings, index.rows, *common,
                D=d, **cut, **shape.options,
            )  # fmt: skip
        log_sums = norms.new_empty(n, n_classes)
        some = 16 if n <= ALONE else 64
        _join[(ceil_div(n, some), n_classes)](
            largest, total, norms if single and index.kernel.name == "gaussian" else None, index.class_starts,
            index.log_counts, log_sums, n, step,
            ROWS=some, PARTS=min(1024 // some, power_of_two(parts)), PER_BLOCK=per_block,
        )  # fmt: skip
    return log_sums, norms


def _norms_of(queries: Tensor) -> Tensor:
    """‖q‖² of queries (n, d): (n,) float64. (PyTorch adds up in an order that depends on n.)"""
    norms = queries.new_empty(len(queries), dtype=torch.float64)
    _norms[(ceil_div(len(queries), 64),)](queries.contiguous(), norms, len(queries), d=queries.shape[1], ROWS=64)
    return norms


@triton.jit(do_not_specialize=["n"])
def _norms(queries, norms, n, d: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(norms + rows, squared_norm(queries, rows, n, d), mask=rows < n)


@triton.jit(do_not_specialize=["n", "step"])
def _join(
    largest, total, norms, class_starts, log_counts, log_sums, n, step,
    ROWS: tl.constexpr, PARTS: tl.constexpr, PER_BLOCK: tl.constexpr,
):  # fmt: skip
    """The sums of one class over its parts, for ROWS queries: their natural logs."""
    rows, label = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1)
    begin = tl.load(class_starts + label) * PER_BLOCK
    end = tl.load(class_starts + label + 1) * PER_BLOCK
    most, units = tl.full((ROWS,), -1e300, tl.float64), tl.zeros((ROWS,), tl.float64)
    if begin < end:
        for first in range(begin // step, (end - 1) // step + 1, PARTS):
            part = first + tl.arange(0, PARTS)
            place = (label + part)[:, None].to(tl.int64) * n + rows[None, :]
            there = (part <= (end - 1) // step)[:, None] & (rows < n)[None, :]
            here = tl.load(largest + place, mask=there, other=float("-inf")).to(tl.float64)
            now = tl.maximum(most, tl.max(here, axis=0))
            shares = tl.load(total + place, mask=there, other=0.0) * tl.exp2(here - now[None, :])
            units = units * tl.exp2(most - now) + tl.sum(shares, axis=0)
            most = now
    log_sum = (most + tl.log2(units)) * 0.6931471805599453
    if norms is not None:
        log_sum -= tl.load(norms + rows, mask=rows < n, other=0.0)
    # No weight exceeds 1 (d² ≥ 0), so no class sum may exceed its count, not even by rounding.
    log_count = tl.load(log_counts + label)
    log_sum = tl.where(log_sum > log_count, log_count, log_sum)  # a minimum would lose NaN, which marks overflow
    tl.store(log_sums + rows.to(tl.int64) * tl.num_programs(1) + label, log_sum, mask=rows < n)


@triton.jit
def _members(queries, folded, blocks, answer, D: tl.constexpr, d: tl.constexpr, BLOCK: tl.constexpr):
    """The products of one query with one of its blocks, in full float32."""
    row, which, dims = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, D)
    places = tl.load(blocks + row * tl.num_programs(1) + which) * BLOCK + tl.arange(0, BLOCK)
    q = tl.load(queries + row * d + dims, mask=dims < d, other=0.0)
    g = tl.load(folded + places[:, None] * (d + 1) + dims[None, :], mask=dims[None, :] < d, other=0.0)
    products = tl.sum(q[None, :] * g, axis=1) + tl.load(folded + places * (d + 1) + d)
    tl.store(answer + (row * tl.num_programs(1) + which) * BLOCK + tl.arange(0, BLOCK), products)


@triton.jit
def _log2_weights(squared, KERNEL: tl.constexpr):
    """log₂ w of squared distances, for kernels that need the distance itself."""
    squared = tl.maximum(squared, 0.0)
    if KERNEL == "laplace":
        log_w = -tl.sqrt(squared) * 1.4426950408889634
    elif KERNEL == "gaussian":
        log_w = -squared * 1.4426950408889634
    else:
        log_w = -tl.log2(1.0 + squared)
    return log_w


@triton.jit
def _keep_best(best, here, top, rows, n, piece, n_pieces, PER_BLOCK: tl.constexpr):
    """The running maximum of a block; stored after its last piece."""
    top = here if PER_BLOCK == 1 else tl.maximum(top, here)
    if piece % PER_BLOCK == PER_BLOCK - 1:
        place = rows.to(tl.int64) * (n_pieces // PER_BLOCK) + piece // PER_BLOCK
        tl.store(best + place, top, mask=rows < n)
        top = tl.full(top.shape, -1e38, top.dtype)
    return top


@triton.jit
def _products(
    q1, q2, queries, rows, n, first_g, second_g, norms, tail, own, columns, unit,
    d: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    FOLDED: tl.constexpr, IN_UNITS: tl.constexpr,
):  # fmt: skip
    """(‖q‖² - ‖q - g‖²) log₂e, (ROWS, COLUMNS); if IN_UNITS, minus `unit` (ROWS,).

    With a tail, which holds the norms, `own` (ROWS, 16) are the queries' factors of it. Products have CHUNK dimensions
    at a time: longer ones round more.
    """
    tile = (columns * D)[:, None] + tl.arange(0, CHUNK)[None, :]
    log_w = tl.zeros((ROWS, COLUMNS), tl.float32)
    log_w = product(log_w, q1, q2, tl.trans(tl.load(first_g + tile)), tl.trans(tl.load(second_g + tile)))
    for chunk in tl.static_range(CHUNK, D, CHUNK):
        q1, q2 = query_parts(queries, rows, n, chunk, d, CHUNK, FOLDED)
        g1, g2 = tl.load(first_g + tile + chunk), tl.load(second_g + tile + chunk)
        log_w += product(tl.zeros((ROWS, COLUMNS), tl.float32), q1, q2, tl.trans(g1), tl.trans(g2))
    if tail is not None:
        last = tl.load(tail + (columns * 16)[:, None] + tl.arange(0, 16)[None, :])
        log_w = tl.dot(own, tl.trans(last), log_w)
    elif norms is not None:
        log_w += tl.load(norms + columns)[None, :]
    if IN_UNITS:
        log_w -= unit[:, None]
    return log_w


@triton.jit
def _running_sum(
    begin, end, most, top, q1, q2, norm, queries, first_g, second_g, norms, best, rows, n, n_pieces,
    d: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr, STAGES: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, PER_BLOCK: tl.constexpr, KERNEL: tl.constexpr,
):  # fmt: skip
    """Σ w over pieces in units of their maximum, which is returned too; and the block's best.

    The weights of an inverse quadratic are not exponentials and never too small for a float: their unit is 1.
    """
    units = tl.zeros((ROWS,), tl.float64)
    for piece in tl.range(begin, end, num_stages=STAGES):
        columns = (piece * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)
        log_w = _products(
            q1, q2, queries, rows, n, first_g, second_g, norms, None, None, columns, most,
            d, D, CHUNK, ROWS, COLUMNS, norms is None, False,
        )  # fmt: skip
        if best is not None:
            here = tl.max(log_w, axis=1) * 0.6931471805599453
            top = _keep_best(best, here, top, rows, n, piece, n_pieces, PER_BLOCK)
        if KERNEL == "inverse_quadratic":
            squared = tl.maximum(norm[:, None] - log_w * 0.6931471805599453, 0.0)
            units += tl.sum(1.0 / (1.0 + squared), axis=1).to(tl.float64)
        else:
            now = tl.maximum(most, tl.max(log_w, axis=1))
            units *= tl.exp2(most - now).to(tl.float64)
            most = now
            units += tl.sum(tl.exp2(log_w - most[:, None]), axis=1).to(tl.float64)
    return most, units, top


@triton.jit
def _sum(
    begin, end, most, q1, q2, queries, first_g, second_g, norms, tail, rows, n,
    d: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr, STAGES: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, MIXED: tl.constexpr,
):  # fmt: skip
    """Σ w over pieces in units of 2^most; about 0, infinite or NaN if a float32 cannot hold it."""
    folded: tl.constexpr = norms is None
    apart: tl.constexpr = tail is None and not (folded and d + 4 <= CHUNK)  # the unit is not a column of a product
    own = None
    if folded and d + 4 <= CHUNK:
        q1 = tl.where((tl.arange(0, CHUNK) == d + 3)[None, :], -most[:, None], q1.to(tl.float32)).to(tl.float16)
    elif D <= 32:
        # Read again for each class: the compiler then keeps them in registers, and loads nothing in the loop.
        q1, q2 = query_parts(queries, rows, n, 0, d, CHUNK, folded)
    if tail is not None:
        column = tl.arange(0, 16)[None, :]
        own = tl.where(column < 3, 1.0, tl.where(column == 3, -most[:, None], 0.0)).to(tl.float16)
    units = tl.zeros((ROWS,), tl.float64)
    for piece in tl.range(begin, end, num_stages=STAGES):
        columns = (piece * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)
        log_w = _products(
            q1, q2, queries, rows, n, first_g, second_g, norms, tail, own, columns, most,
            d, D, CHUNK, ROWS, COLUMNS, folded, apart,
        )  # fmt: skip
        units += tl.sum(exp2(log_w, MIXED), axis=1).to(tl.float64)
    return units


@triton.jit(do_not_specialize=["n", "n_pieces", "step"])
def _by_products(
    queries,  # (n, d), centred
    first_g,  # (m, D) float16: the leading bits of 2 g log₂e
    second_g,  # (m, D): the rest
    norms,  # (m,): -‖g‖² log₂e; None if they are in three more columns
    tail,  # (m, 16) float16: the norms and 1, or None
    class_starts,  # (K + 1,): the first block of each class
    block_labels,  # (n_blocks,)
    largest,  # (K + parts, n): class k in part p is at k + p
    total,
    best,  # (n, n_blocks) or None
    n,
    n_pieces,
    step,
    d: tl.constexpr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
    MIXED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PER_BLOCK: tl.constexpr,
    KERNEL: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    first = tl.program_id(1) * step
    last = tl.minimum(n_pieces, first + step)
    q1, q2 = query_parts(queries, rows, n, 0, d, CHUNK, norms is None)
    norm = tl.zeros((ROWS,), tl.float32)
    if KERNEL == "inverse_quadratic":
        norm = squared_norm(queries, rows, n, d).to(tl.float32)
    top = tl.full((ROWS,), -1e38, tl.float32)
    begin_label, end_label = labels_of(block_labels, first, last, PER_BLOCK)
    for label in range(begin_label, end_label):
        begin, end = pieces_of(class_starts, label, first, last, PER_BLOCK)
        if begin < end:
            if KERNEL == "inverse_quadratic" or best is not None:
                least: tl.constexpr = 0.0 if KERNEL == "inverse_quadratic" else -1e38
                most, units, top = _running_sum(
                    begin, end, tl.full((ROWS,), least, tl.float32), top, q1, q2, norm, queries,
                    first_g, second_g, norms, best, rows, n, n_pieces,
                    d, D, CHUNK, STAGES, ROWS, COLUMNS, PER_BLOCK, KERNEL,
                )  # fmt: skip
            else:
                # A maximum per piece costs a tenth of the time. So the maximum of the first piece is the unit, rounded
                # to half precision; rows whose sum a float32 cannot hold in that unit are computed again.
                columns = (begin * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)
                log_w = _products(
                    q1, q2, queries, rows, n, first_g, second_g, norms, None, None, columns, norm,
                    d, D, CHUNK, ROWS, COLUMNS, norms is None, False,
                )  # fmt: skip
                most = tl.minimum(tl.maximum(tl.max(log_w, axis=1), -60000.0), 60000.0).to(tl.float16).to(tl.float32)
                units = _sum(
                    begin, end, most, q1, q2, queries, first_g, second_g, norms, tail, rows, n,
                    d, D, CHUNK, STAGES, ROWS, COLUMNS, MIXED,
                )  # fmt: skip
                lost = ((units > 2.0**-64) & (units < float("inf"))) == 0
                if tl.max(lost.to(tl.int32)) > 0:
                    better, again, top = _running_sum(
                        begin, end, tl.full((ROWS,), -1e38, tl.float32), top, q1, q2, norm, queries,
                        first_g, second_g, norms, best, rows, n, n_pieces,
                        d, D, CHUNK, STAGES, ROWS, COLUMNS, PER_BLOCK, KERNEL,
                    )  # fmt: skip
                    most, units = tl.where(lost, better, most), tl.where(lost, again, units)
            slot = (label + tl.program_id(1)).to(tl.int64) * n + rows
            tl.store(largest + slot, most, mask=rows < n)
            tl.store(total + slot, units, mask=rows < n)


@triton.jit(do_not_specialize=["n", "n_pieces", "step"])
def _by_differences(
    queries,  # (n, D), not centred, like the references
    query_norms,  # (n,): ‖q‖² of the centred queries
    references,  # (m, D), as given
    order,  # the reference at each position; -1 for padding
    class_starts,
    block_labels,
    largest,
    total,
    best,
    n,
    n_pieces,
    step,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PER_BLOCK: tl.constexpr,
    KERNEL: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, COLUMNS)
    first = tl.program_id(1) * step
    last = tl.minimum(n_pieces, first + step)
    norm = tl.load(query_norms + rows, mask=rows < n, other=0.0)
    top = tl.full((ROWS,), -1e300, tl.float64)
    begin_label, end_label = labels_of(block_labels, first, last, PER_BLOCK)
    for label in range(begin_label, end_label):
        begin, end = pieces_of(class_starts, label, first, last, PER_BLOCK)
        if begin < end:
            most = tl.full((ROWS,), -1e300, tl.float64)
            units = tl.zeros((ROWS,), tl.float64)
            for piece in range(begin, end):
                row = tl.load(order + (piece * COLUMNS + lanes).to(tl.int64))
                squared = tl.zeros((ROWS, COLUMNS), tl.float64)
                for k in range(D):
                    q = tl.load(queries + rows.to(tl.int64) * D + k, mask=rows < n, other=0.0)
                    g = tl.load(references + row * D + k, mask=row >= 0, other=0.0).to(tl.float64)
                    difference = q[:, None] - g[None, :]
                    squared += difference * difference
                if best is not None:
                    here = tl.max(tl.where(row[None, :] >= 0, norm[:, None] - squared, float("-inf")), axis=1)
                    top = _keep_best(best, here, top, rows, n, piece, n_pieces, PER_BLOCK)
                log_w = tl.where(row[None, :] >= 0, _log2_weights(squared, KERNEL), float("-inf"))
                now = tl.maximum(most, tl.max(log_w, axis=1))
                units = units * tl.exp2(most - now) + tl.sum(tl.exp2(log_w - now[:, None]), axis=1)
                most = now
            slot = (label + tl.program_id(1)).to(tl.int64) * n + rows
            tl.store(largest + slot, most, mask=rows < n)
            tl.store(total + slot, units, mask=rows < n)
