"""The state of a training run, which can be saved and resumed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import InputError, NonFiniteError
from dwac.nn.batches import Inputs, batches_of, embed, quick, take_rows
from dwac.nn.heads import Model, WeightedAverage
from dwac.training import checkpoint as checkpoints
from dwac.training.rows import checksum, count_batches, even_size, read_batches, windows
from dwac.training.steps import AdamW, GraphStep, TrainingStep, one_cycle
from dwac.training.validation import SCALES, HeldOut, Sampler

_VOTERS = {"cpu": 2048, "cuda": 4096}  # voters on validation data during training; afterwards all rows vote
_FEW = 512  # validation examples used to choose the scale during training


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


@dataclass
class TrainingRun:
    """The state of a training run: everything that changes from step to step, so that it can be saved and resumed."""

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
    best_loss: float = math.inf
    waited: int = 0
    ended: str = "finished"
    first = True  # whether this process writes checkpoints and runs callbacks
    replayed = True  # whether steps may be recorded as a CUDA graph

    def __post_init__(self) -> None:
        settings = self.settings
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.voters = Sampler(self.y)
        graph = settings.compiled and self.y.is_cuda
        groups = groups_of(self.model)
        for group in groups if graph else ():
            group["lr"] = torch.tensor(settings.learning_rate, device=self.y.device)
        self.optimizer = AdamW(
            groups,
            lr=settings.learning_rate,
            betas=(0.9, settings.beta2),
            weight_decay=settings.weight_decay,
            fused=True,
            capturable=graph,
        )
        self.steps = settings.epochs * -(-len(self.y) // settings.batch_size)
        self.steps_done = 0
        self.step = TrainingStep(self.model, self.optimizer, settings.mixed_precision)
        if graph and self.replayed:
            self.step = GraphStep(self.model, self.optimizer, settings.mixed_precision, settings.batch_size)

    def epochs(self, on_batch: Callable[[int, int], None] | None) -> Iterator[dict[str, Any]]:
        """Train epoch by epoch until the end, and yield the rows of the history."""
        for epoch in range(len(self.rows) + 1, self.settings.epochs + 1):
            if 0 < self.settings.patience <= self.waited:
                self.ended = "stopped early"
                return
            start = time.perf_counter()
            row: dict[str, Any] = {"epoch": epoch, "loss": self._epoch(on_batch)}
            if self.validation is not None:
                row["validation_loss"], accuracy = self._validate(*self.validation)
                if not tables_of(self.model):  # for classes, a label is either right or wrong
                    row["validation_accuracy"] = accuracy
                self.waited += 1
                if self.settings.patience == 0 or row["validation_loss"] < self.best_loss:
                    self.best_loss, self.waited = row["validation_loss"], 0
                    self.best = {name: part.detach().clone() for name, part in state_of(self.model)}
            row["seconds"] = time.perf_counter() - start
            self.rows.append(row)
            yield row

    def _epoch(self, on_batch: Callable[[int, int], None] | None) -> float:
        """Run one shuffled pass and return the mean loss, read from the device once."""
        self.model.train()
        n, size = len(self.y), self.settings.batch_size
        total, done, batches = torch.zeros((), device=self.y.device), 0, count_batches(n, size)
        for window in windows(n, size, self.generator, self.block_rows):
            parts = [self._own_rows(rows) for rows in window]
            inputs = read_batches(self.x, parts, self.y.device, ahead=self.block_rows is not None)
            for rows, x in zip(window, inputs, strict=True):
                total += self._take_step(rows.to(self.y.device), x) * len(rows)
                self.steps_done += 1
                done += 1
                if on_batch is not None:
                    on_batch(done, batches)
        mean = float(total) / n
        if not math.isfinite(mean):
            raise NonFiniteError(f"the training loss became {mean}; lower the learning rate or check the inputs")
        return mean

    def _own_rows(self, rows: Tensor) -> Tensor:
        """The rows of a batch that this process reads: all."""
        return rows

    def _take_step(self, rows: Tensor, x: Inputs) -> Tensor:
        """Take a step with a batch with inputs x, and return its loss before the step."""
        x = x if self.augment is None else self.augment(x, self.generator)
        self._set_rate(one_cycle(self.steps_done / self.steps))
        return self.step(x, self.y[rows], None if self.weights is None else self.weights[rows])

    def _set_rate(self, factor: float) -> None:
        for group in self.optimizer.param_groups:
            rate = factor * group["share"] * self.settings.learning_rate
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
            ref_x = take_rows(self.x, rows)
            if x[0].is_cuda and ref_x[0].is_cuda:  # together: launching a network takes longer than many rows
                both = self._embed(tuple(torch.cat(parts) for parts in zip(ref_x, x, strict=True)))
                ref_h, h = both.split([len(rows), len(y)])
            else:
                ref_h, h = self._embed(ref_x), self._embed(x)
            voters = ref_h, self.y[rows]
        else:
            h = self._embed(x)
        held_out = HeldOut(self.model, h, y.to(self.y.device), voters, self.class_weights)
        factor = held_out.best_scale(SCALES, step=-(-len(y) // _FEW)) if self.rescale else 1.0
        result = held_out.judge([factor])
        return float(result.losses.mean()), float(result.right.mean())

    def _embed(self, x: Inputs) -> Tensor:
        """h in the precision and batch size of training; predictions use smaller batches, for consistent rounding."""
        size = None if self.y.is_cuda else even_size(len(x[0]), self.settings.batch_size)
        if self.y.is_cuda and self.settings.compiled:  # small networks: few batches, as launching them takes most time
            size = even_size(len(x[0]), 8 * self.settings.batch_size)
        with (
            quick(self.model),
            torch.autocast(self.y.device.type, torch.bfloat16, enabled=self.settings.mixed_precision),
        ):
            return embed(self.model, x, batch_size=size)

    def restore_best(self) -> None:
        """Restore the best weights; without validation data, keep those of the last epoch."""
        with torch.no_grad():
            for name, part in state_of(self.model):
                if name in self.best:
                    part.copy_(self.best[name])

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows, after training."""
        self.x = take_rows(self.x, rows)
        self.y = self.y[rows.to(self.y.device)]

    def remember(self, ids: Tensor | None) -> None:
        """Let the model remember the rows, with these ids if there are any."""
        columns = [self.y] if ids is None else [self.y, ids]
        self.model.remember(batches_of(self.x, *columns, size=self._at_once))

    @property
    def _at_once(self) -> int:
        return 4096 if self.y.is_cuda else 512

    def interruptible(self) -> AbstractContextManager[None]:
        """The context in which epochs run."""
        return nullcontext()

    def finish_epoch(
        self, row: dict[str, Any], on_epoch: Callable[[dict[str, Any]], None] | None, path: str | Path | None
    ) -> None:
        """Run the callback and write the checkpoint, after an epoch."""
        if on_epoch is not None:
            on_epoch(row)
        if path is not None:
            self.save(path)

    def _read_checkpoint(self, path: str | Path) -> bytes | None:
        """The bytes of a checkpoint, if there is one."""
        return checkpoints.checkpoint_bytes(path) if Path(path).exists() else None

    def save(self, path: str | Path) -> None:
        """Save everything that `resume` needs in one file."""
        tensors = {f"model.{name}": part for name, part in state_of(self.model)}
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
        data = self._read_checkpoint(path)
        if data is None:
            return
        tensors, facts = checkpoints.read_checkpoint(data, str(path))
        if facts.get("of") != self._fingerprint:
            raise InputError(
                f"{path} must be a checkpoint of this training; it belongs to other data, another network or other "
                "settings; resume with the same ones, or remove the file to start again"
            )
        parts = {name: _under(tensors, name) for name in ("model", "best", "optimizer", "random")}
        with torch.no_grad():
            for name, part in state_of(self.model):
                part.copy_(parts["model"][name])
        self.best = {name: part.to(self.y.device) for name, part in parts["best"].items()}
        self.rows, self.waited = facts["rows"], facts["waited"]
        self.best_loss = math.inf if facts["best_loss"] is None else facts["best_loss"]
        checkpoints.restore_optimizer(self.optimizer, parts["optimizer"], facts["optimizer"])
        self.steps_done = facts["steps_done"]
        self.generator.set_state(tensors["generator"])
        checkpoints.restore_rng(parts["random"], self.y.device)

    @cached_property
    def _fingerprint(self) -> dict[str, Any]:
        """The identity of a training run: settings, network and data."""
        held_out = () if self.validation is None else (*self.validation[0], self.validation[1])
        data = (*self.x, self.y, *held_out, self.class_weights, *tables_of(self.model))
        data += () if self.weights is None else (self.weights,)
        head = [getattr(self.model, name, 0) for name in ("kernel", "penalty", "auxiliary_weight")]
        return {
            "settings": asdict(self.settings),
            "head": [type(self.model).__name__, *head],
            "rescale": self.rescale,
            "network": [[name, *part.shape] for name, part in state_of(self.model)],
            "data": [checksum(part) for part in data],
        } | ({} if self.block_rows is None else {"block_rows": self.block_rows})


def groups_of(model: Model) -> list[dict[str, Any]]:
    """The parameters in groups of equal learning rate, each with its share of the rate.

    A pretrained backbone gives the shares of its parameters in `rates`: its layers should change less than the rest.
    """
    rates = {f"backbone.{name}": rate for name, rate in getattr(model.backbone, "rates", {}).items()}
    groups: dict[float, list[Tensor]] = {}
    for name, part in model.named_parameters():
        groups.setdefault(rates.get(name, 1.0), []).append(part)
    return [{"params": parts, "share": share} for share, parts in groups.items()]


def state_of(model: Model) -> Iterator[tuple[str, Tensor]]:
    """Everything that training changes: parameters and buffers, not the references."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def tables_of(model: Model) -> list[Tensor]:
    """The tables of values that labels stand for, if they are not classes."""
    tables = (getattr(model, name, None) for name in ("likeness", "averaged", "targets"))
    return [table for table in tables if table is not None]


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}."): part for name, part in tensors.items() if name.startswith(f"{prefix}.")}
