"""The rows of a training: checked, in random order, and read in batches; or as the features of a fixed backbone."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import InputError, LabelError, NonFiniteError, ShapeError
from dwac.nn.batches import Inputs, apply, move_to, take_rows
from dwac.nn.ensemble import SharedBackbone
from dwac.nn.heads import Model
from dwac.training.progress import rows_bar

_AT_ONCE = 2**20  # numbers checked at a time: x may be a file larger than memory
WINDOW = 8  # blocks whose rows are shuffled together, and held in memory


def check_data(x: Inputs, y: Tensor, n_classes: int, part: str, *, least: int) -> None:
    """Check the data before the first step."""
    if not isinstance(y, Tensor):
        raise InputError(f"{part} y must be a tensor; got {type(y).__name__}")
    if len(x[0]) < least:
        raise ShapeError(f"{part} needs at least {least} examples; got {len(x[0])}")
    if y.is_floating_point():
        raise LabelError(f"{part} y must be whole numbers (torch.int64); got {y.dtype}; use y.long()")
    for values in x:
        checks.class_labels(y, f"{part} y", n=len(values), n_classes=n_classes)
        if values.is_floating_point():
            _check_finite(values, part)


def _check_finite(values: Tensor, part: str) -> None:
    done = 0
    for rows in _split_rows(values):
        finite = torch.isfinite(rows).reshape(len(rows), math.prod(rows.shape[1:])).all(dim=1)
        if not bool(finite.all()):
            row = done + int(finite.int().argmin())
            raise NonFiniteError(f"{part} x must be finite; row {row} holds NaN or infinity")
        done += len(rows)


def _split_rows(values: Tensor) -> Iterator[Tensor]:
    """The rows, in pieces that fit in memory."""
    return iter(values.split(max(1, _AT_ONCE // max(1, values[:1].numel()))))


def checksum(values: Tensor) -> int:
    """CRC-32 of a tensor's bytes."""
    crc = 0
    for rows in _split_rows(values) if values.ndim else [values]:
        crc = zlib.crc32(rows.contiguous().cpu().numpy().tobytes(), crc)
    return crc


def check_weights(weights: Tensor, n: int) -> None:
    """Check the weights of the rows before the first step."""
    if not isinstance(weights, Tensor) or weights.shape != (n,):
        shape = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ShapeError(f"weights must be a tensor with one weight per row: ({n},) required; got {shape}")
    if not bool((torch.isfinite(weights) & (weights >= 0)).all()) or not bool((weights > 0).any()):
        raise InputError("weights must be finite and not negative, and some must be positive; repair them")


def count_batches(n: int, size: int) -> int:
    """The number of batches that `windows` makes of n rows.

    >>> count_batches(9, 4), count_batches(10, 4)
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
    for number, block in enumerate(blocks, start=1):
        rows = torch.cat([left, *(torch.arange(b * block_rows, min(n, (b + 1) * block_rows)) for b in block.tolist())])
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


def read_batches(x: Inputs, batches: list[Tensor], device: torch.device, *, ahead: bool) -> Iterator[Inputs]:
    """The rows of each batch, on a device.

    ahead: read the rows of all batches first, in ascending order: from a file, nearly sequentially.
    """
    if not ahead:
        yield from (move_to(take_rows(x, rows), device) for rows in batches)
        return
    ascending, order = torch.cat(batches).sort()
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order))
    window = take_rows(x, ascending)
    for rows in places.split([len(batch) for batch in batches]):
        yield move_to(take_rows(window, rows), device)


@contextmanager
def fixed_features(model: Model, inputs: Inputs, *, show: bool | str = "auto") -> Iterator[Inputs]:
    """Replace the inputs of a model with a fixed backbone by that backbone's features, inside the context.

    Inputs of networks beside it do not change. For other models, nothing changes.
    """
    backbone = model.backbone
    if not isinstance(backbone, SharedBackbone) or not backbone.fixed:
        yield inputs
        return
    done, n = 0, len(inputs) if backbone.n_inputs is None else backbone.n_inputs
    with rows_bar("reading", len(inputs[0]), show=show) as show_progress:

        def features(part: Inputs) -> Tensor:
            nonlocal done
            h: Tensor = backbone.shared(*part[:n])
            done += len(h)
            show_progress(min(done, len(inputs[0])))
            return h

        with torch.no_grad():
            fixed = apply(model, features, inputs)
    backbone.takes_features = True
    try:
        yield (fixed, *inputs[n:])
    finally:
        backbone.takes_features = False
