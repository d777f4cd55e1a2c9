"""The training loop, for every network and both heads.

history = train(model, x, y, validation=(x_val, y_val))
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import IdError, InputError, LabelError, NonFiniteError
from dwac.nn.batches import Inputs, batches_of, embed, inputs_of, on
from dwac.nn.heads import Model, WeightedAverage, evaluating
from dwac.training import checkpoint as checkpoints
from dwac.training.order import n_batches, read, windows
from dwac.training.rescale import fit_look_alikes, fit_raw_features, fit_scale, vote_factors
from dwac.training.settings import Settings, check_data, check_weights, checksum
from dwac.training.step import GraphStep, Step, one_cycle
from dwac.training.validation import SCALES, HeldOut, Sampler

logger = logging.getLogger(__name__)

_VOTERS = {"cpu": 2048, "cuda": 4096}  # how many vote on validation data during training; afterwards all do
_FEW = 512  # validation examples that choose the scale during training


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
    block_rows: int | None = None,
    remembered: Tensor | None = None,
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
        x: inputs, or a tuple of them, one per argument of the backbone; they are moved to the model's device, unless
            `block_rows` is given.
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
        block_rows: leave x where it is, such as in a memory-mapped file larger than memory, and read it in blocks of
            this many neighbouring rows: 8 blocks at a time, drawn at random, are held in memory and shuffled (see
            `dwac.training.order`). By default x is moved to the model's device and shuffled as a whole. Labels, weights
            and ids are held in memory, and so are the embeddings of all rows that will vote.
        remembered: (m,) numbers of the rows that will vote, and by which `rescale` and what follows it are fitted; by
            default all.
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
    check_data(inputs, y, model.n_classes, "training", least=2)
    names: tuple[Tensor, ...] = () if ids is None else (torch.as_tensor(ids),)
    if any(part.shape != (len(y),) or len(part.unique()) < len(part) for part in names):
        shape = tuple(names[0].shape)
        raise IdError(f"ids must be {len(y)} different whole numbers; got shape {shape} or repeated ones")
    if block_rows is not None:
        checks.positive_int(block_rows, "block_rows")
    if weights is not None:
        check_weights(weights, len(y))
    held_out = None
    if validation is not None:
        held_out = (inputs_of(validation[0]), validation[1])
        check_data(held_out[0], held_out[1], model.n_classes, "validation", least=1)
        unseen = set(held_out[1].unique().tolist()) - set(y.unique().tolist())
        if unseen and not _tables(model):
            raise LabelError(f"validation has class {min(unseen)}, of which training has no example")
    if block_rows is None:
        inputs = on(inputs, model.device)
        held_out = None if held_out is None else (on(held_out[0], model.device), held_out[1])
    y = y.to(model.device)
    weights = None if weights is None else weights.to(model.device, torch.float32)
    with torch.no_grad(), evaluating(model):
        model.embed(
            on(tuple(part[:2] for part in inputs), model.device)
        )  # lazy layers take their shape before the optimizer is built
    if isinstance(model, WeightedAverage):
        model.raw_feature_weight = 0.0  # of an earlier training
    factors = vote_factors(model, class_weights)
    run = _Run(model, inputs, y, weights, factors, augment, rescale, held_out, chosen, block_rows)
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
    if remembered is not None:
        inputs = tuple(part[remembered.to(part.device)] for part in inputs)
        y, names = y[remembered.to(y.device)], tuple(part[remembered.to(part.device)] for part in names)
    model.remember(batches_of(inputs, y, *names, size=4096 if y.is_cuda else 512))
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
    block_rows: int | None = None
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
        n, size = len(self.y), self.settings.batch_size
        total, done, batches = torch.zeros((), device=self.y.device), 0, n_batches(n, size)
        for window in windows(n, size, self.generator, self.block_rows):
            for rows, x in zip(
                window, read(self.x, window, self.y.device, ahead=self.block_rows is not None), strict=True
            ):
                total += self._step(rows.to(self.y.device), x) * len(rows)
                done += 1
                if on_batch is not None:
                    on_batch(done, batches)
        mean = float(total) / n
        if mean != mean or mean in (float("inf"), float("-inf")):
            raise NonFiniteError(f"the training loss became {mean}; lower the learning rate or check the inputs")
        return mean

    def _step(self, rows: Tensor, x: Inputs) -> Tensor:
        """The loss of a batch, before the step that it leads to."""
        x = x if self.augment is None else self.augment(x, self.generator)
        self._set_rate(one_cycle(self.steps_done / self.steps))
        self.steps_done += 1
        return self.step(x, self.y[rows], None if self.weights is None else self.weights[rows])

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
            voters = self._embed(tuple(part[rows.to(part.device)] for part in self.x)), self.y[rows]
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
            "of": self._fingerprint,
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
        if facts.get("of") != self._fingerprint:
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

    @cached_property
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
            "data": [checksum(part) for part in data],
        } | ({} if self.block_rows is None else {"block_rows": self.block_rows})


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
