"""Code shared by the fused kernels: how they split their work, and how they multiply.

Work is split into programs of some queries and a part of the references, class by class. Factors of products are pairs
of numbers in half precision (`dwac.engine.triton.sweep` explains why).
"""

# Kernels are written in the Triton language: their arguments are pointers and tiles, which have no Python type.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator,misc"

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl

WIDEST = 256  # the largest supported d
_ROOM = 200 * 2**10  # bytes of shared memory that a program needs for the shapes measured on an H200


class Shape(NamedTuple):
    """The shape of a program: queries, references processed at a time, warps, and pipeline stages."""

    rows: int
    columns: int
    warps: int
    stages: int


@cache
def has_room(device: torch.device) -> bool:
    """Whether the shapes measured on an H200 fit; the smaller ones need 99 KiB, which any GPU since 2020 has."""
    if device.type != "cuda":  # Triton's interpreter
        return True
    return getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0) >= _ROOM


def ceil_div(whole: int, part: int) -> int:
    """How many parts cover the whole. (`triton.cdiv` is made for kernels and takes some µs when called from Python.)"""
    return -(-whole // part)


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
