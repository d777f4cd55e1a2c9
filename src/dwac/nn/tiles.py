"""Products in tiles of 8 rows: a row has the same numbers alone and in a batch of any size.

Rounding depends on the shape of a product. Here every product of a frozen network has the shape (8, f) × (f, k): a row
alone costs 8 rows, and the tiles of many rows are one batched product, which takes no longer than a plain one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional as F

TILE = 8


class Frozen(NamedTuple):
    """h of inputs as a function of the weights as they were; `stamps` tell whether they still are."""

    embed: Callable[..., Tensor]  # (*inputs) → (n, d)
    rows: int  # how many it takes at once
    stamps: tuple[tuple[Tensor, int, int], ...] = ()

    def __call__(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """h of any number of rows."""
        n = inputs[0].shape[0]
        if n <= self.rows:
            return self.embed(*inputs)
        starts = range(0, n, self.rows)
        return torch.cat([self.embed(*(part[start : start + self.rows] for part in inputs)) for start in starts])

    def stamped(self, weights: Iterable[Tensor]) -> Self:
        """The same, made from these weights."""
        return self._replace(stamps=tuple((part, _version(part), part.data_ptr()) for part in weights))

    @property
    def current(self) -> bool:
        """Whether no weight has changed in place."""
        return all(_version(part) == version and part.data_ptr() == place for part, version, place in self.stamps)


def _version(part: Tensor) -> int:
    return 0 if part.is_inference() else part._version  # tensors of torch.inference_mode count no changes


def split_tiles(x: Tensor) -> Tensor:
    """x (n, f) in tiles (t, 8, f), padded with zeros.

    Several threads would share the sums of a tile that is alone, and round them in another way: then there are two.
    """
    n, width = x.shape
    tiles = max(-(-n // TILE), 1 if torch.get_num_threads() == 1 else 2)
    if width == 0:  # torch 2.6 refuses to pad what has no columns
        return x.new_zeros(tiles, TILE, 0)
    return F.pad(x, (0, 0, 0, TILE * tiles - n)).view(tiles, TILE, width)


def join_tiles(x: Tensor, n: int) -> Tensor:
    """The n rows of tiles."""
    return x.flatten(0, 1)[:n]


def multiply_tiles(x: Tensor, weight: Tensor, start: Tensor) -> Tensor:
    """start + x · weight, (t, 8, k): of tiles x (t, 8, f), weight (f, k), and start (k,) or (t, 8, k)."""
    return torch.baddbmm(start, x, weight.expand(x.shape[0], -1, -1))
