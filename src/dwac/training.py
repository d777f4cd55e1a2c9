"""The training loop, for every network and both heads.

history = train(model, x, y, validation=(x_val, y_val))
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import IdError, InputError, LabelError, NonFiniteError, ShapeError
from dwac.nn import SoftmaxTwin, WeightedAverage, evaluating

logger = logging.getLogger(__name__)

Model = WeightedAverage | SoftmaxTwin


def train(
    model: Model,
    x: Tensor,
    y: Tensor,
    *,
    validation: tuple[Tensor, Tensor] | None = None,
    epochs: int = 50,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    weight_decay: float = 1e-4,
    patience: int = 10,
    ids: Tensor | None = None,
    seed: int = 0,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
) -> pd.DataFrame:
    """Train a model on tensors x (n, …) and y (n,), leave it remembering them, and return the history.

    With validation data, training stops after `patience` epochs without a lower validation loss, and the best
    weights are restored. Without, all epochs are run. The history has a row an epoch: training loss, and
    validation loss and accuracy if there is such data.

    Args:
        model: `WeightedAverage` or `SoftmaxTwin`.
        x: inputs, on the model's device or on the CPU.
        y: labels.
        validation: (x, y) kept apart from the training data.
        epochs: at most so many passes.
        batch_size: examples a step; for `WeightedAverage` also how many vote on one another.
        learning_rate: the peak of AdamW's one-cycle schedule.
        weight_decay: AdamW's.
        patience: epochs without improvement before stopping.
        ids: (n,) whole numbers by which the references are known afterwards; by default 0 … n-1.
        seed: of the shuffling; the weights' own start is the caller's to seed.
        on_epoch: called with each row of the history, e.g. to show progress.
    """
    for value, name in ((epochs, "epochs"), (batch_size, "batch_size"), (patience, "patience")):
        checks.positive_int(value, name)
    if not 0 < learning_rate < float("inf") or not 0 <= weight_decay < float("inf"):
        raise InputError(
            "learning_rate must be a positive and weight_decay a non-negative number; "
            f"got {learning_rate} and {weight_decay}"
        )
    _check_data(x, y, model.n_classes, "training", least=2)
    if validation is not None:
        _check_data(*validation, model.n_classes, "validation", least=1)
    ids = torch.arange(len(x)) if ids is None else torch.as_tensor(ids)
    if ids.shape != (len(x),) or len(ids.unique()) < len(ids):
        raise IdError(f"ids must be {len(x)} different whole numbers; got shape {tuple(ids.shape)} or repeated ones")
    x, y = x.to(model.device), y.to(model.device)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad(), evaluating(model):
        model.embed(x[:2])  # lazy layers take their shape before the optimiser sees them
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=weight_decay)
    steps = -(-len(x) // batch_size)  # or one fewer, see _epoch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, epochs * steps + 1, pct_start=0.1)
    rows: list[dict[str, Any]] = []
    best, best_state, waited = float("inf"), None, 0
    for epoch in range(1, epochs + 1):
        row: dict[str, Any] = {"epoch": epoch, "loss": _epoch(model, x, y, batch_size, optimizer, schedule, generator)}
        if validation is not None:
            model.remember(_batches(x, y, ids))
            row["validation_loss"], row["validation_accuracy"] = evaluate(model, *validation)
            waited += 1
            if row["validation_loss"] < best:
                best, best_state, waited = row["validation_loss"], copy.deepcopy(model.state_dict()), 0
        rows.append(row)
        logger.debug("epoch %s", row)
        if on_epoch is not None:
            on_epoch(row)
        if waited >= patience:
            break
    if best_state is not None:
        model.load_state_dict(best_state)
    else:
        model.remember(_batches(x, y, ids))
    model.eval()
    return pd.DataFrame(rows)


def _check_data(x: Tensor, y: Tensor, n_classes: int, part: str, *, least: int) -> None:
    """Everything that can be known of data before the first step."""
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        raise InputError(f"{part} x and y must be tensors; got {type(x).__name__} and {type(y).__name__}")
    if len(x) < least:
        raise ShapeError(f"{part} needs at least {least} examples; got {len(x)}")
    if y.is_floating_point():
        raise LabelError(f"{part} y must be whole numbers (torch.int64); got {y.dtype}; use y.long()")
    checks.class_labels(y, f"{part} y", n=len(x), n_classes=n_classes)
    if x.is_floating_point():
        finite = torch.isfinite(x).flatten(1).all(dim=1)
        if not bool(finite.all()):
            raise NonFiniteError(f"{part} x must be finite; row {int(finite.int().argmin())} holds NaN or infinity")


def _epoch(
    model: Model,
    x: Tensor,
    y: Tensor,
    batch_size: int,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    generator: torch.Generator,
) -> float:
    """One shuffled pass; the mean loss, read from the device once."""
    model.train()
    total = torch.zeros((), device=x.device)
    batches = list(torch.randperm(len(x), generator=generator).to(x.device).split(batch_size))
    if len(batches) > 1 and len(batches[-1]) == 1:  # nobody could vote on it, and batch norm has no spread of one
        batches[-2:] = [torch.cat(batches[-2:])]
    for batch in batches:
        loss = model.loss(x[batch], y[batch], ids=batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.detach() * len(batch)
    mean = float(total) / len(x)
    if mean != mean or mean in (float("inf"), float("-inf")):
        raise NonFiniteError(f"the training loss became {mean}; lower the learning rate or check the inputs")
    return mean


@torch.no_grad()
def evaluate(model: Model, x: Tensor, y: Tensor, *, batch_size: int = 4096) -> tuple[float, float]:
    """Mean -log P(y) and accuracy of a model on held-out data, in evaluation mode."""
    log_p = predict_log_probabilities(model, x, batch_size=batch_size)
    y = y.to(log_p.device)
    loss = -log_p.gather(1, y[:, None]).mean()
    return float(loss), float((log_p.argmax(dim=1) == y).float().mean())


@torch.no_grad()
def predict_log_probabilities(model: Model, x: Tensor, *, batch_size: int = 4096) -> Tensor:
    """log P(y=k given x), (n, K), in batches and evaluation mode; the model's mode is left as it was."""
    with evaluating(model):
        return torch.cat([model(part.to(model.device)) for part in x.split(batch_size)])


def _batches(*columns: Tensor) -> Iterator[tuple[Tensor, ...]]:
    return zip(*(column.split(4096) for column in columns), strict=True)
