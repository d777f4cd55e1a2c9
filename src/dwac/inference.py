"""What a model makes of many examples: in batches, on its device, in evaluation mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from dwac.errors import InputError
from dwac.nn import Model, evaluating

Inputs = tuple[Tensor, ...]


@torch.no_grad()
def evaluate(model: Model, x: Tensor | Inputs, y: Tensor, *, batch_size: int | None = None) -> tuple[float, float]:
    """Mean -log P(y) and accuracy of a model on held-out data, in evaluation mode."""
    log_p = predict_log_probabilities(model, x, batch_size=batch_size)
    y = y.to(log_p.device)
    loss = -log_p.gather(1, y[:, None]).mean()
    return float(loss), float((log_p.argmax(dim=1) == y).float().mean())


@torch.no_grad()
def predict_log_probabilities(model: Model, x: Tensor | Inputs, *, batch_size: int | None = None) -> Tensor:
    """log P(y=k given x), (n, K), in batches and evaluation mode; the model's mode is left as it was."""
    return torch.log_softmax(log_class_weights(model, x, batch_size=batch_size), dim=1).float()


@torch.no_grad()
def log_class_weights(model: Model, x: Tensor | Inputs, *, batch_size: int | None = None) -> Tensor:
    """The votes for each class (softmax: the logits), (n, K) float64, in batches and evaluation mode."""
    return _mapped(model, model.log_class_weights, x, batch_size)


@torch.no_grad()
def embed(model: Model, x: Tensor | Inputs, *, batch_size: int | None = None) -> Tensor:
    """h of many examples, (n, model.vector_size), in batches and evaluation mode."""
    return _mapped(model, model.embed, x, batch_size)


def _mapped(model: Model, function: Callable[[Inputs], Tensor], x: Tensor | Inputs, batch_size: int | None) -> Tensor:
    with evaluating(model):
        return torch.cat([function(on(part, model.device)) for (part,) in batches_of(inputs_of(x), size=batch_size)])


def inputs_of(x: Any) -> Inputs:
    """x as a tuple of tensors."""
    parts = x if isinstance(x, tuple) else (x,)
    for part in parts:
        if not isinstance(part, Tensor):
            raise InputError(f"x must be a tensor or a tuple of tensors; got {type(part).__name__}")
    return parts


def on(inputs: Inputs, device: torch.device) -> Inputs:
    """Inputs on a device."""
    return tuple(part.to(device) for part in inputs)


def batches_of(x: Inputs, *columns: Tensor, size: int | None = None) -> Iterator[tuple[Any, ...]]:
    """(x, *columns) in parts: as many rows as suit the device."""
    size = size or (4096 if x[0].is_cuda else 512)
    for start in range(0, len(x[0]), size):
        rows = slice(start, start + size)
        yield tuple(part[rows] for part in x), *(column[rows] for column in columns)
