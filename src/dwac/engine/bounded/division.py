"""Halve many references along their longest axis, in place, until each part can be sorted in little memory.

A class may have too many references to sort in memory. They are partitioned instead: the middle key is found by
counting, and everything below it moves to the front, both a few at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import torch
from torch import Tensor

from dwac.engine.index import Index

_SAMPLE = 8192  # references used to find the longest axis


def part_sizes(n: int, most: int, leaf_size: int) -> list[int]:
    """The sizes of the parts that `divide` produces: all but the last are whole leaves."""
    if n <= most:
        return [n] if n else []
    middle = _middle(n, leaf_size)
    return part_sizes(middle, most, leaf_size) + part_sizes(n - middle, most, leaf_size)


def divide(index: Index, places: Tensor, scratch: Tensor, most: int, leaf_size: int) -> None:
    """Reorder places (n,) in the layout of an index so that the references of each part are near each other.

    `scratch` is memory for at least 2n int32.
    """
    n = len(places)
    if n <= most:
        return
    keys, moved, middle = scratch[:n], scratch[n : 2 * n], _middle(n, leaf_size)
    sample = index.folded[places[:: -(-n // _SAMPLE)], :-1].double()
    sample -= sample.mean(dim=0)
    axis = longest_axes((sample.mT @ sample)[None])[0].to(index.folded.dtype)
    for key, part in zip(keys.split(most), places.split(most), strict=True):
        key.copy_(sortable((index.folded.index_select(0, part)[:, :-1] @ axis).float()))
    separate(places, keys, moved, middle, most)
    for half in (places[:middle], places[middle:]):
        divide(index, half, scratch, most, leaf_size)


def longest_axes(products: Tensor) -> Tensor:
    """The approximate longest axis (c, d) of cells whose covariances are proportional to `products` (c, d, d).

    In a high power of a covariance, the longest axis dominates.
    """
    tiny = torch.finfo(products.dtype).tiny
    power = products
    for _ in range(5):
        power = power / power.diagonal(dim1=1, dim2=2).sum(dim=1).clamp_min(tiny)[:, None, None]
        power = power @ power
    longest = power.diagonal(dim1=1, dim2=2).argmax(dim=1)
    axes = power[torch.arange(len(power), device=power.device), longest]
    return axes / axes.abs().amax(dim=1, keepdim=True).clamp_min(tiny)


def _middle(n: int, leaf_size: int) -> int:
    """About half, in whole leaves."""
    return -(-n // (2 * leaf_size)) * leaf_size


def sortable(x: Tensor) -> Tensor:
    """float32 as int32 in the same order; NaN comes first or last, by its sign."""
    bits = x.view(torch.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def separate(places: Tensor, keys: Tensor, moved: Tensor, middle: int, step: int) -> None:
    """Move the `middle` places with the lowest keys to the front; otherwise the order stays the same."""
    value, ties = _at_rank(keys, middle, step)
    begin, end = 0, middle
    for place, key in zip(places.split(step), keys.split(step), strict=True):
        equal = key == value
        first = equal & (equal.cumsum(0) <= ties)
        ties -= int(first.sum())
        below = (key < value) | first
        lower, upper = place[below], place[~below]
        moved[begin : begin + len(lower)], moved[end : end + len(upper)] = lower, upper
        begin, end = begin + len(lower), end + len(upper)
    places.copy_(moved)


def _at_rank(keys: Tensor, rank: int, step: int) -> tuple[int, int]:
    """The key at a rank (0: the lowest), first its 16 high bits, then the low; and how many equal keys rank lower."""
    high, rank = _digit_at(((key >> 16) + 2**15 for key in keys.split(step)), rank)
    high -= 2**15
    low, rank = _digit_at((key[(key >> 16) == high] & 0xFFFF for key in keys.split(step)), rank)
    return high * 2**16 + low, rank


def _digit_at(digits: Iterator[Tensor], rank: int) -> tuple[int, int]:
    """The 16-bit digit at a rank, and the rank among keys with the same digit."""
    counts = reduce(torch.add, (torch.bincount(part, minlength=2**16) for part in digits))
    upto = counts.cumsum(0)
    digit = int((upto <= rank).sum())
    return digit, rank - int(upto[digit] - counts[digit])
