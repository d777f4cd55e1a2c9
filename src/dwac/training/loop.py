"""The training loop, for every network and both heads.

history = train(model, x, y, validation=(x_val, y_val))
"""

from __future__ import annotations

import logging
import math
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import IdError, InputError, LabelError, NonFiniteError, ShapeError
from dwac.nn.batches import Inputs, batches_of, embed, inputs_of, on
from dwac.nn.heads import Model, WeightedAverage, evaluating
from dwac.training import checkpoint as checkpoints
from dwac.training.rescale import fit_look_alikes, fit_raw_features, fit_scale, vote_factors
from dwac.training.step import GraphStep, Step, one_cycle
from dwac.training.validation import SCALES, HeldOut, Sampler

logger = logging.getLogger(__name__)

_VOTERS = {"cpu": 2048, "cuda": 4096}  # how many vote on validation data during training; afterwards all do
_FEW = 512  # validation examples that choose the scale during training


@dataclass(frozen=True)
class Settings:
    """How to train; `train` explains each."""

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
        for name in ("epochs", "batch_size", "patience"):
            checks.positive_int(getattr(self, name), name)
        rates: tuple[Any, ...] = (self.learning_rate, self.weight_decay)
        numbers = all(isinstance(rate, int | float | np.number) and not isinstance(rate, bool) for rate in rates)
        if not numbers or not 0 < self.learning_rate < math.inf or not 0 <= self.weight_decay < math.inf:
            raise InputError(
                "learning_rate must be a positive and weight_decay a non-negative number; "
                f"got {self.learning_rate} and {self.weight_decay}"
            )


def train(
    model: Model,
    x: Tensor | Inputs,
    y: Tensor,
    *,
    validation: tuple[Tensor | Inputs, Tensor] | None = None,
    ids: Tensor | None = None,
    weights: Tensor | None = None,
    class_weights: Sequence[float] | None = None,
    augment: Callable[[Inputs, torch.Generator], Inputs] | None = None,
    rescale: bool = False,
    raw_features: bool = False,
    look_alikes: bool = False,
    checkpoint: str | Path | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    on_batch: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Train a model on tensors x (n, …) and y (n,), leave it remembering them, and return the history.

    With validation data, training stops after `patience` epochs without a lower validation loss, and the best weights
    are restored. Without it, all epochs run. The history has one row per epoch: training loss, seconds, and validation
    loss and accuracy. For validation at most a few thousand examples vote, a new sample in each epoch; with `rescale`
    the embeddings are taken at the best of a few scales.

    Ctrl-C ends training and keeps the best weights so far; without validation data, the current weights.
    `history.attrs["ended"]` says why it ended: "finished", "stopped early" or "interrupted".

    Args:
        model: `WeightedAverage` or `SoftmaxTwin`.
        x: inputs, or a tuple of them, one per argument of the backbone; they are kept on the model's device.
        y: labels.
        validation: (x, y) that are not trained on.
        ids: (n,) unique whole numbers that name the references; by default 0 … n-1.
        weights: (n,) weights of the examples in the loss; votes ignore them.
        class_weights: (K,) by which the votes of each class will be multiplied; validation applies them.
        augment: varies the inputs of a batch at random, with the generator that it is given.
        rescale: afterwards, multiply the embeddings by the factor that makes the validation loss lowest (`fit_scale`).
        raw_features: with `rescale`, also fit the weight of raw features (`fit_raw_features`).
        look_alikes: with `rescale`, let near voters count more, if that lowers the validation loss
            (`fit_look_alikes`).
        checkpoint: a file that is written after each epoch. Training with the same model, data and settings resumes
            from it exactly. It is removed when training is done.
        on_epoch: called with each row of the history, e.g. to show progress.
        on_batch: called with the number of batches done and the number of batches in the epoch.
        settings: epochs: the maximum number of passes (50). batch_size: examples per step; for `WeightedAverage` they
            vote on one another (128). learning_rate: the peak of AdamW's one-cycle schedule (1e-3). weight_decay:
            AdamW's (1e-4). beta2: AdamW's, for the running mean of squares; lower if most features are rare (0.999).
            patience: epochs without improvement before stopping (10). mixed_precision: compute the backbone in bfloat16
            (False). compiled: on a GPU, record a step once and replay it as a CUDA graph; the backbone's control flow
            must not depend on its input (False). seed: for shuffling and augmentation; seed torch for initial weights
            and dropout (0).
    """
    unknown = set(settings) - set(Settings.__dataclass_fields__)
    if unknown:
        raise TypeError(f"train() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    chosen = Settings(**settings)
    inputs = inputs_of(x)
    _check_data(inputs, y, model.n_classes, "training", least=2)
    ids = torch.arange(len(y)) if ids is None else torch.as_tensor(ids)
    if ids.shape != (len(y),) or len(ids.unique()) < len(ids):
        raise IdError(f"ids must be {len(y)} different whole numbers; got shape {tuple(ids.shape)} or repeated ones")
    if weights is not None:
        _check_weights(weights, len(y))
    held_out = None
    if validation is not None:
        held_out = (on(inputs_of(validation[0]), model.device), validation[1])
        _check_data(held_out[0], held_out[1], model.n_classes, "validation", least=1)
        unseen = set(held_out[1].unique().tolist()) - set(y.unique().tolist())
        if unseen and not _tables(model):
            raise LabelError(f"validation has class {min(unseen)}, of which training has no example")
    inputs, y = on(inputs, model.device), y.to(model.device)
    weights = None if weights is None else weights.to(model.device, torch.float32)
    with torch.no_grad(), evaluating(model):
        model.embed(tuple(part[:2] for part in inputs))  # lazy layers take their shape before the optimizer is built
    if isinstance(model, WeightedAverage):
        model.raw_feature_weight = 0.0  # of an earlier training
    run = _Run(model, inputs, y, weights, vote_factors(model, class_weights), augment, rescale, held_out, chosen)
    if checkpoint is not None:
        run.resume(checkpoint)
    try:
        for row in run.epochs(on_batch):
            logger.debug("epoch %s", row)
            if on_epoch is not None:
                on_epoch(row)
            if checkpoint is not None:
                run.save(checkpoint)
    except KeyboardInterrupt:
        if not run.rows:
            raise  # nothing learned that could be kept
        run.ended = "interrupted"
        logger.warning("training was interrupted after %s epochs; the best model so far is kept", len(run.rows))
    run.restore_best()
    model.remember(batches_of(inputs, y, ids))
    if rescale and held_out is not None:
        fit_scale(model, *held_out, class_weights=class_weights)
        if raw_features:
            fit_raw_features(model, inputs, *held_out, class_weights=class_weights)
        if look_alikes:
            fit_look_alikes(model, *held_out, class_weights=class_weights)
    model.eval()
    if checkpoint is not None and run.ended != "interrupted":
        Path(checkpoint).unlink(missing_ok=True)
    history = pd.DataFrame(run.rows)
    history.attrs["ended"] = run.ended
    return history


@dataclass
class _Run:
    """The state of a training: everything that changes from step to step, so that it can be saved and resumed."""

    model: Model
    x: Inputs
    y: Tensor
    weights: Tensor | None
    class_weights: Tensor
    augment: Callable[[Inputs, torch.Generator], Inputs] | None
    rescale: bool
    validation: tuple[Inputs, Tensor] | None
    settings: Settings
    rows: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    best_loss: float = float("inf")
    waited: int = 0
    ended: str = "finished"

    def __post_init__(self) -> None:
        settings = self.settings
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.voters = Sampler(self.y)
        graph = settings.compiled and self.y.is_cuda
        rate = torch.tensor(settings.learning_rate, device=self.y.device) if graph else settings.learning_rate
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=rate,
            betas=(0.9, settings.beta2),
            weight_decay=settings.weight_decay,
            fused=True,
            capturable=graph,
        )
        self.steps = settings.epochs * -(-len(self.y) // settings.batch_size)
        self.steps_done = 0
        self.step = Step(self.model, self.optimizer, settings.mixed_precision)
        if graph:
            self.step = GraphStep(self.model, self.optimizer, settings.mixed_precision, settings.batch_size)

    def epochs(self, on_batch: Callable[[int, int], None] | None) -> Iterator[dict[str, Any]]:
        """Train epoch by epoch until the end; the history's rows."""
        for epoch in range(len(self.rows) + 1, self.settings.epochs + 1):
            if self.waited >= self.settings.patience:
                self.ended = "stopped early"
                return
            start = time.perf_counter()
            row: dict[str, Any] = {"epoch": epoch, "loss": self._epoch(on_batch)}
            if self.validation is not None:
                row["validation_loss"], accuracy = self._validate(*self.validation)
                if not _tables(self.model):  # a label is either right or wrong
                    row["validation_accuracy"] = accuracy
                self.waited += 1
                if row["validation_loss"] < self.best_loss:
                    self.best_loss, self.waited = row["validation_loss"], 0
                    self.best = {name: part.detach().clone() for name, part in _state(self.model)}
            row["seconds"] = time.perf_counter() - start
            self.rows.append(row)
            yield row

    def _epoch(self, on_batch: Callable[[int, int], None] | None) -> float:
        """One shuffled pass; the mean loss, read from the device once."""
        self.model.train()
        n, device = len(self.y), self.y.device
        total = torch.zeros((), device=device)
        batches = list(torch.randperm(n, generator=self.generator).to(device).split(self.settings.batch_size))
        if len(batches) > 1 and len(batches[-1]) == 1:  # no other row could vote on it, and batch norm needs two
            batches[-2:] = [torch.cat(batches[-2:])]
        for done, batch in enumerate(batches, start=1):
            x = tuple(part[batch] for part in self.x)
            x = x if self.augment is None else self.augment(x, self.generator)
            self._set_rate(one_cycle(self.steps_done / self.steps))
            loss = self.step(x, self.y[batch], None if self.weights is None else self.weights[batch])
            self.steps_done += 1
            total += loss * len(batch)
            if on_batch is not None:
                on_batch(done, len(batches))
        mean = float(total) / n
        if mean != mean or mean in (float("inf"), float("-inf")):
            raise NonFiniteError(f"the training loss became {mean}; lower the learning rate or check the inputs")
        return mean

    def _set_rate(self, factor: float) -> None:
        for group in self.optimizer.param_groups:
            rate = factor * self.settings.learning_rate
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    @torch.no_grad()
    def _validate(self, x: Inputs, y: Tensor) -> tuple[float, float]:
        """Loss and accuracy on validation data; at the best scale, if the model will be rescaled."""
        voters = None
        if isinstance(self.model, WeightedAverage):
            most = min(_VOTERS.get(self.y.device.type, 2048), max(256, len(self.y) // 8))
            rows = self.voters(most, self.generator)
            voters = self._embed(tuple(part[rows] for part in self.x)), self.y[rows]
        held_out = HeldOut(self.model, self._embed(x), y.to(self.y.device), voters, self.class_weights)
        factor = held_out.some(_FEW).best_scale(SCALES) if self.rescale else 1.0
        judged = held_out.judge([factor])
        return float(judged.losses.mean()), float(judged.right.mean())

    def _embed(self, x: Inputs) -> Tensor:
        """h in the precision of training, which is enough to compare epochs."""
        with torch.autocast(self.y.device.type, torch.bfloat16, enabled=self.settings.mixed_precision):
            return embed(self.model, x)

    def restore_best(self) -> None:
        """Restore the best weights; without validation data, keep those of the last epoch."""
        with torch.no_grad():
            for name, part in _state(self.model):
                if name in self.best:
                    part.copy_(self.best[name])

    def save(self, path: str | Path) -> None:
        """Everything that `resume` needs, in one file."""
        tensors = {f"model.{name}": part for name, part in _state(self.model)}
        tensors |= {f"best.{name}": part for name, part in self.best.items()}
        moments, groups = checkpoints.flatten_optimizer(self.optimizer)
        tensors |= {f"optimizer.{name}": part for name, part in moments.items()}
        tensors |= {f"random.{name}": part for name, part in checkpoints.rng_state(self.y.device).items()}
        tensors["generator"] = self.generator.get_state()
        facts = {
            "of": self._fingerprint(),
            "rows": self.rows,
            "best_loss": self.best_loss if self.best else None,
            "waited": self.waited,
            "steps_done": self.steps_done,
            "optimizer": groups,
        }
        checkpoints.save_checkpoint(path, tensors, facts)

    def resume(self, path: str | Path) -> None:
        """Continue from a checkpoint, if the file exists; it must belong to the same training."""
        if not Path(path).exists():
            return
        tensors, facts = checkpoints.load_checkpoint(path)
        if facts.get("of") != self._fingerprint():
            raise InputError(
                f"{path} must be a checkpoint of this training; it belongs to other data, another network or other "
                "settings; resume with the same ones, or remove the file to start again"
            )
        parts = {name: _under(tensors, name) for name in ("model", "best", "optimizer", "random")}
        with torch.no_grad():
            for name, part in _state(self.model):
                part.copy_(parts["model"][name])
        self.best = {name: part.to(self.y.device) for name, part in parts["best"].items()}
        self.rows, self.waited = facts["rows"], facts["waited"]
        self.best_loss = float("inf") if facts["best_loss"] is None else facts["best_loss"]
        checkpoints.restore_optimizer(self.optimizer, parts["optimizer"], facts["optimizer"])
        self.steps_done = facts["steps_done"]
        self.generator.set_state(tensors["generator"])
        checkpoints.restore_rng(parts["random"], self.y.device)

    def _fingerprint(self) -> dict[str, Any]:
        """What identifies a training: settings, network and data."""
        held_out = () if self.validation is None else (*self.validation[0], self.validation[1])
        data = (*self.x, self.y, *held_out, self.class_weights, *_tables(self.model))
        data += () if self.weights is None else (self.weights,)
        return {
            "settings": asdict(self.settings),
            "head": [
                type(self.model).__name__,
                *(getattr(self.model, name, 0) for name in ("kernel", "penalty", "auxiliary_weight")),
            ],
            "rescale": self.rescale,
            "network": [[name, *part.shape] for name, part in _state(self.model)],
            "data": [zlib.crc32(part.contiguous().cpu().numpy().tobytes()) for part in data],
        }


def _state(model: Model) -> Iterator[tuple[str, Tensor]]:
    """All that training changes: parameters and buffers, not the references."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def _tables(model: Model) -> list[Tensor]:
    """What the labels stand for, if they are not classes."""
    tables = (getattr(model, name, None) for name in ("likeness", "averaged", "targets"))
    return [table for table in tables if table is not None]


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}."): part for name, part in tensors.items() if name.startswith(f"{prefix}.")}


def _check_data(x: Inputs, y: Tensor, n_classes: int, part: str, *, least: int) -> None:
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
            finite = torch.isfinite(values).flatten(1).all(dim=1)
            if not bool(finite.all()):
                raise NonFiniteError(f"{part} x must be finite; row {int(finite.int().argmin())} holds NaN or infinity")


def _check_weights(weights: Tensor, n: int) -> None:
    if not isinstance(weights, Tensor) or weights.shape != (n,):
        shape = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ShapeError(f"weights must be a tensor with one weight a row: ({n},) required, {shape} given")
    if not bool((torch.isfinite(weights) & (weights >= 0)).all()) or not bool((weights > 0).any()):
        raise InputError("weights must be finite and not negative, and some must be positive")
