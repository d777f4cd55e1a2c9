"""How the fused kernels cut their work: into programs of some queries and a part of the references, class by class."""

# Kernels are Triton's language, not Python's: their arguments are pointers and tiles, which have no Python type.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator,misc"

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

WIDEST = 256  # the largest d served


class Shape(NamedTuple):
    """How a program is cut: queries, references taken in at a time, warps, and loads under way."""

    rows: int
    columns: int
    warps: int
    stages: int


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
