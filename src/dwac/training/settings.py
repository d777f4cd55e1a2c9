"""Training settings and training data, both checked before the first step."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import InputError, LabelError, NonFiniteError, ShapeError
from dwac.nn.batches import Inputs

_AT_ONCE = 2**20  # numbers checked at a time: x may be a file larger than memory


@dataclass(frozen=True)
class Settings:
    """Training settings; `train` explains each."""

    epochs: int = 50
    batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    patience: int = 10
    beta2: float = 0.999
    mixed_precision: bool = False
    compiled: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in {"epochs": 1, "batch_size": 1, "patience": 0}.items():
            checks.positive_int(getattr(self, name), name, minimum=least)
        rates: tuple[Any, ...] = (self.learning_rate, self.weight_decay)
        numbers = all(isinstance(rate, int | float | np.number) and not isinstance(rate, bool) for rate in rates)
        if not numbers or not 0 < self.learning_rate < math.inf or not 0 <= self.weight_decay < math.inf:
            raise InputError(
                "learning_rate must be a positive and weight_decay a non-negative number; "
                f"got {self.learning_rate} and {self.weight_decay}"
            )


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
    for rows in _in_pieces(values):
        finite = torch.isfinite(rows).flatten(1).all(dim=1)
        if not bool(finite.all()):
            row = done + int(finite.int().argmin())
            raise NonFiniteError(f"{part} x must be finite; row {row} holds NaN or infinity")
        done += len(rows)


def _in_pieces(values: Tensor) -> Iterator[Tensor]:
    """The rows, in pieces that fit in memory."""
    return iter(values.split(max(1, _AT_ONCE // max(1, values[:1].numel()))))


def checksum(values: Tensor) -> int:
    """CRC-32 of a tensor's bytes."""
    found = 0
    for rows in _in_pieces(values) if values.ndim else [values]:
        found = zlib.crc32(rows.contiguous().cpu().numpy().tobytes(), found)
    return found


def check_weights(weights: Tensor, n: int) -> None:
    """Check the weights of the rows before the first step."""
    if not isinstance(weights, Tensor) or weights.shape != (n,):
        shape = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ShapeError(f"weights must be a tensor with one weight a row: ({n},) required, {shape} given")
    if not bool((torch.isfinite(weights) & (weights >= 0)).all()) or not bool((weights > 0).any()):
        raise InputError("weights must be finite and not negative, and some must be positive")
