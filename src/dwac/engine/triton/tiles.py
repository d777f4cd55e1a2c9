"""Code shared by the fused kernels: how they split their work, and how they multiply.

Work is split into programs of some queries and a part of the references, class by class. Factors of products are pairs
of numbers in half precision (`dwac.engine.triton.sweep` explains why).
"""

# Kernels are written in the Triton language: their arguments are pointers and tiles, which have no Python type.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator,misc"

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl

WIDEST = 256  # the largest supported d
_ROOM = 200 * 2**10  # bytes of shared memory that a program needs for the shapes measured on an H200
# Numbers that `exp2` takes from a thread at a time, in NVIDIA's assembly; 0 where there is none.
PACK = 0 if os.environ.get("TRITON_INTERPRET") == "1" or torch.version.hip else 16
_POLYNOMIALS = (0, 2)  # of these, as many in the lower as in the upper rows of a tile, so that all rows round alike


class Shape(NamedTuple):
    """The shape of a program: queries, references processed at a time, warps, pipeline stages, most registers."""

    rows: int
    columns: int
    warps: int
    stages: int
    registers: int | None = None

    @property
    def options(self) -> dict[str, int]:
        """What a launch needs to know."""
        limit = {} if self.registers is None else {"maxnreg": self.registers}
        return {"num_warps": self.warps, **limit}


@cache
def has_room(device: torch.device) -> bool:
    """Whether the shapes measured on an H200 fit; the smaller ones need 99 KiB, which any GPU since 2020 has."""
    if device.type != "cuda":  # Triton's interpreter
        return True
    return getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0) >= _ROOM


def ceil_div(whole: int, part: int) -> int:
    """How many parts cover the whole. (`triton.cdiv` is made for kernels and takes some µs when called from Python.)"""
    return -(-whole // part)


def _assembly() -> str:
    """2^x of PACK numbers: on the unit for exponentials, or as a polynomial.

    A polynomial takes x = k + f, k whole and |f| ≤ ½, then 2^f with a relative error of 1e-7, and adds k to the
    exponent. At least 2^-126; infinity from 2^128.
    """
    lines = []
    for place in range(PACK):
        y, x = f"${place}", f"${PACK + place}"
        if place not in _POLYNOMIALS:
            lines.append(f"ex2.approx.ftz.f32 {y}, {x};")
            continue
        terms = " ".join(f"fma.rn.f32 p, p, f, {c};" for c in _COEFFICIENTS[1:])
        lines.append(
            "{ .reg .f32 x, t, f, p; .reg .b32 k, b; "
            f"max.f32 x, {x}, 0fC2FC0000; min.f32 x, x, 0f43000000; "  # -126, 128
            "add.rn.f32 t, x, 0f4B400000; sub.rn.f32 f, t, 0f4B400000; sub.rn.f32 f, x, f; "  # + 3 · 2²² rounds
            f"mov.f32 p, {_COEFFICIENTS[0]}; {terms} "
            f"mov.b32 k, t; shl.b32 k, k, 23; mov.b32 b, p; add.s32 b, b, k; mov.b32 {y}, b; }}"
        )
    return "\n".join(lines)


# Of 2^f on |f| ≤ ½, the highest power first.
_COEFFICIENTS = ("0f3AAD4281", "0f3C1E760B", "0f3D635D55", "0f3E75FCDB", "0f3F317213", "0f3F800000")
_EXP2, _OPERANDS = tl.constexpr(_assembly()), tl.constexpr(",".join(["=f"] * PACK + ["f"] * PACK))


@triton.jit
def exp2(x, MIXED: tl.constexpr):
    """2^x; with MIXED, an eighth of them as polynomials."""
    if MIXED:
        y = tl.inline_asm_elementwise(_EXP2, _OPERANDS, [x], dtype=tl.float32, is_pure=True, pack=16)
    else:
        y = tl.exp2(x)
    return y


@triton.jit
def squared_norm(queries, rows, n, d: tl.constexpr):
    """‖q‖² of queries (n, d), float64."""
    total = tl.zeros(rows.shape, tl.float64)
    for k in range(d):
        q = tl.load(queries + rows.to(tl.int64) * d + k, mask=rows < n, other=0.0).to(tl.float64)
        total += q * q
    return total


@triton.jit
def labels_of(block_labels, first, last, PER_BLOCK: tl.constexpr):
    """The first label among pieces first … last, and the last one + 1."""
    begin = tl.load(block_labels + first // PER_BLOCK).to(tl.int32)
    return begin, tl.load(block_labels + (last - 1) // PER_BLOCK).to(tl.int32) + 1


@triton.jit
def pieces_of(class_starts, label, first, last, PER_BLOCK: tl.constexpr):
    """The pieces of a class among first … last."""
    begin = tl.maximum(first, tl.load(class_starts + label).to(tl.int32) * PER_BLOCK)
    return begin, tl.minimum(last, tl.load(class_starts + label + 1).to(tl.int32) * PER_BLOCK)


@triton.jit
def query_parts(queries, rows, n, chunk, d: tl.constexpr, CHUNK: tl.constexpr, NORMS: tl.constexpr):
    """Columns chunk … chunk + CHUNK of queries as their leading bits and the rest; 1 for each column of norms."""
    dims = chunk + tl.arange(0, CHUNK)
    there = (rows[:, None] < n) & (dims[None, :] < d)
    q = tl.load(queries + rows[:, None].to(tl.int64) * d + dims[None, :], mask=there, other=0.0)
    if NORMS:
        q = tl.where((dims >= d) & (dims < d + 3), 1.0, q)
    return two_parts(q)


@triton.jit
def two_parts(x):
    """float32 numbers as two in half precision: their leading bits and the rest."""
    leading = x.to(tl.float16)
    return leading, (x - leading.to(tl.float32)).to(tl.float16)


@triton.jit
def product(total, a1, a2, b1, b2):
    """total + a · b, from the two parts of each factor; the smallest terms first."""
    total = tl.dot(a1, b2, total)
    total = tl.dot(a2, b1, total)
    return tl.dot(a1, b1, total)
