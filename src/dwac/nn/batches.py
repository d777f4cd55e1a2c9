"""Evaluate a model on many examples: in batches, on its device, in evaluation mode.

All batches have the same size; the last one is padded. Rounding depends on the shape of a computation: otherwise a row
would get different numbers alone and in a batch, and would not tie with itself in a calibration set. On a CPU, networks
for tables and images compute rows in tiles (`dwac.nn.tiles`), and need no padding.

Processes that share a training (`dwac.nn.ranks`) divide the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from dwac._machine import few_threads
from dwac.errors import InputError
from dwac.nn.heads import Model, WeightedAverage, evaluating
from dwac.nn.ranks import over_ranks
from dwac.reference.voters import pad_rows

Inputs = tuple[Tensor, ...]

_FEW, _SMALL = 16, 2**28  # rows of a table; multiplications


@torch.no_grad()
def evaluate(model: Model, x: Tensor | Inputs, y: Tensor, *, batch_size: int | None = None) -> tuple[float, float]:
    """Mean -log P(y) and accuracy of a model on held-out data, computed in evaluation mode."""
    log_p = predict_log_probabilities(model, x, batch_size=batch_size)
    y = y.to(log_p.device)
    loss = -log_p.gather(1, y[:, None]).mean()
    return float(loss), float((log_p.argmax(dim=1) == y).float().mean())


@torch.no_grad()
def predict_log_probabilities(model: Model, x: Tensor | Inputs, *, batch_size: int | None = None) -> Tensor:
    """log P(y=k given x), (n, K), in batches and evaluation mode; the model's mode is restored afterwards."""
    return torch.log_softmax(log_class_weights(model, x, batch_size=batch_size), dim=1).float()


@torch.no_grad()
def log_class_weights(model: Model, x: Tensor | Inputs, *, batch_size: int | None = None) -> Tensor:
    """The votes for each class (softmax: the logits), (n, K) float64, in batches and evaluation mode."""
    return votes(model, embed(model, x, batch_size=batch_size))


@torch.no_grad()
def embed(model: Model, x: Tensor | Inputs, *, batch_size: int | None = None) -> Tensor:
    """Embeddings h of many examples, (n, model.vector_size), in batches and evaluation mode."""
    inputs = inputs_of(x)
    if model.frozen() is None:
        return apply(model, model.embed, inputs, batch_size=batch_size)
    mode = evaluating(model) if model.training else nullcontext()  # frozen layers have no mode
    with mode, few_threads(1 if _is_small(model, inputs) else None):
        return over_ranks(lambda *parts: model.embed(move_to(parts, model.embedding.weight.device)), *inputs)


def apply(
    model: Model, function: Callable[[Inputs], Tensor], inputs: Inputs, *, batch_size: int | None = None
) -> Tensor:
    """Apply a function of batches, such as a part of the model, to many examples in evaluation mode."""
    size = batch_size or _rows_at_once(model, inputs)
    with few_threads(1 if _is_small(model, inputs) else None):
        return over_ranks(lambda *parts: _map_batches(model, function, parts, size), *inputs)


@torch.no_grad()
def compared_features(model: Model, x: Tensor | Inputs) -> Tensor:
    """The features by which rows of a table are compared, (n, q); (n, 0) if the network has none."""
    inputs = inputs_of(x)
    if not isinstance(model, WeightedAverage) or model.n_compared_features == 0:
        return torch.zeros(len(inputs[0]), 0, device=model.device)
    return model.compared_features(move_to(inputs, model.device))


@torch.no_grad()
def votes(model: Model, h: Tensor) -> Tensor:
    """The votes for each class (softmax: the logits) of embeddings (n, d): (n, K) float64."""
    if isinstance(model, WeightedAverage):
        return over_ranks(model.references.log_class_weights, h)
    return _map_batches(model, lambda part: model.logits(part[0]), (h,), 64).double()


def _map_batches(model: Model, function: Callable[[Inputs], Tensor], x: Inputs, size: int) -> Tensor:
    """Apply a function to batches of one size, so that the result for a row does not depend on the other rows."""
    with evaluating(model):
        parts = (move_to(batch, model.device) for (batch,) in batches_of(x, size=size))
        batches = (tuple(pad_rows(part, size) for part in batch) for batch in parts)
        return torch.cat([function(batch) for batch in batches])[: len(x[0])]


def _is_small(model: Model, x: Inputs) -> bool:
    """Whether a network has so little to do on a CPU that threads would mostly wait for one another."""
    if model.device.type != "cpu":
        return False
    positions = sum(part[:1].numel() for part in x if part.ndim > 2 or not part.is_floating_point())
    work = len(x[0]) * max(1, positions)
    return (
        work <= _FEW or work * sum(weights.numel() for weights in model.parameters() if not is_lazy(weights)) <= _SMALL
    )


def _rows_at_once(model: Model, x: Inputs) -> int:
    """How many rows a network processes at once: few if rows are large, because one row costs as much as a full batch.

    Networks for sequences choose for themselves (`rows_at_once`): one on a CPU, where they cut off padding.
    """
    numbers = max(1, sum(part[:1].numel() for part in x))
    default = {"cpu": min(64, max(1, 4096 // numbers)), "cuda": min(1024, max(32, 2**20 // numbers))}
    sizes: dict[str, int] = getattr(model.first_network, "rows_at_once", default)
    return sizes.get(model.device.type, 64)


@contextmanager
def quick(model: Model) -> Iterator[None]:
    """Let networks that average many views of an example (`quick`) use few, to validate between epochs of training."""
    parts: list[Any] = [part for part in model.modules() if getattr(part, "quick", None) is False]
    for part in parts:
        part.quick = True
    try:
        yield
    finally:
        for part in parts:
            part.quick = False


def inputs_of(x: Any) -> Inputs:
    """x as a tuple of tensors."""
    parts = x if isinstance(x, tuple) else (x,)
    for part in parts:
        if not isinstance(part, Tensor):
            raise InputError(
                f"x must be a tensor or a tuple of tensors; got {type(part).__name__}; use torch.as_tensor"
            )
    return parts


def move_to(inputs: Inputs, device: torch.device) -> Inputs:
    """The inputs moved to a device."""
    return tuple(part.to(device) for part in inputs)


def take_rows(inputs: Inputs, rows: Tensor) -> Inputs:
    """Some rows of the inputs, by number."""
    return tuple(part[rows.to(part.device)] for part in inputs)


def batches_of(x: Inputs, *columns: Tensor, size: int | None = None) -> Iterator[tuple[Any, ...]]:
    """(x, *columns) in parts of `size` rows; the default depends on the device."""
    size = size or (4096 if x[0].is_cuda else 512)
    for start in range(0, len(x[0]), size):
        rows = slice(start, start + size)
        yield tuple(part[rows] for part in x), *(column[rows] for column in columns)
