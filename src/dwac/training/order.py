"""The order of training rows: random, or by blocks if rows are read from a file."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from dwac.nn.batches import Inputs

WINDOW = 8  # blocks whose rows are shuffled together, and held in memory


def n_batches(n: int, size: int) -> int:
    """The number of batches that `windows` makes of n rows.

    >>> n_batches(9, 4), n_batches(10, 4)
    (2, 3)
    """
    return max(1, -(-n // size) - (n % size == 1 and n > 1))


def even_size(n: int, most: int) -> int:
    """The batch size for the fewest equal batches of n rows, none larger than `most`.

    >>> even_size(800, 512), even_size(100, 512)
    (400, 100)
    """
    return -(-n // max(1, -(-n // most))) or 1


def windows(n: int, size: int, generator: torch.Generator, block_rows: int | None = None) -> Iterator[list[Tensor]]:
    """Every row once: batches of `size` row numbers, in windows whose rows are read together.

    Without blocks there is one window, in random order. Otherwise the n rows are cut into blocks of `block_rows`
    neighbours. A window is 8 blocks drawn at random; its rows are shuffled, and those that do not fill a batch join the
    next window. The last batch may be shorter; a single row joins the batch before it, because no other row could vote
    on it.
    """
    if block_rows is None:
        yield _batches(torch.randperm(n, generator=generator), size)
        return
    blocks = torch.randperm(-(-n // block_rows), generator=generator).split(WINDOW)
    left = torch.empty(0, dtype=torch.int64)
    for number, chosen in enumerate(blocks, start=1):
        rows = torch.cat([left, *(torch.arange(b * block_rows, min(n, (b + 1) * block_rows)) for b in chosen.tolist())])
        rows = rows[torch.randperm(len(rows), generator=generator)]
        # At least one row is left for the next window, so that the last one never has a single row.
        done = len(rows) if number == len(blocks) else (len(rows) - 1) // size * size
        left = rows[done:]
        if done:
            yield _batches(rows[:done], size)


def _batches(rows: Tensor, size: int) -> list[Tensor]:
    batches = list(rows.split(size))
    if len(batches) > 1 and len(batches[-1]) == 1:  # no other row could vote on it, and batch norm needs two
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def read(x: Inputs, batches: list[Tensor], device: torch.device, *, ahead: bool) -> Iterator[Inputs]:
    """The rows of each batch, on a device.

    ahead: read the rows of all batches first, in ascending order: from a file, nearly sequentially.
    """
    if not ahead:
        yield from (tuple(part[rows.to(part.device)].to(device) for part in x) for rows in batches)
        return
    ascending, order = torch.cat(batches).sort()
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order))
    held = tuple(part[ascending.to(part.device)] for part in x)
    for rows in places.split([len(batch) for batch in batches]):
        yield tuple(part[rows.to(part.device)].to(device) for part in held)
