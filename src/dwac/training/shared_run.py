"""Training shared by several processes: each computes its part of every batch, and all stay in step.

Each rank draws dropout and augmentation at random for its own rows. Everything else is as in one process, up to
rounding: the order of rows, batch normalisation, loss, gradient and decisions.
"""

from __future__ import annotations

import signal
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from dwac.errors import ProcessError
from dwac.nn.batches import Inputs, batches_of
from dwac.nn.heads import WeightedAverage
from dwac.nn.ranks import Ranks, SharedNorms, alone
from dwac.reference import ReferenceSet
from dwac.training.rows import checksum
from dwac.training.run import TrainingRun, state_of
from dwac.training.steps import SharedStep, one_cycle

_STEPS_BETWEEN_CHECKS = 16  # GPU steps between checks for Ctrl-C, each of which waits for the GPU


@dataclass
class SharedRun(TrainingRun):
    """A `TrainingRun` of every rank; only rank 0 runs callbacks and writes checkpoints."""

    ranks: Ranks = None  # type: ignore[assignment]
    replayed = False  # a CUDA graph cannot wait for other processes

    def __post_init__(self) -> None:
        super().__post_init__()
        self.first = self.ranks.first
        self._check_same_data()
        self.ranks.align(part for _, part in state_of(self.model))
        self.norms = SharedNorms(self.model, self.ranks)
        self.shared_step = SharedStep(self.model, self.optimizer, self.settings.mixed_precision, self.norms)
        self.stops = torch.zeros((), device=self.y.device)

    def _check_same_data(self) -> None:
        """All ranks must train on the same rows in the same order."""
        facts = [len(self.y), checksum(self.y), *(checksum(part[:1]) for part in self.x), self.settings.batch_size]
        all_facts = self.ranks.gather(torch.tensor(facts, device=self.y.device))
        other = (all_facts != all_facts[0]).any(dim=1).nonzero()[:, 0].tolist()
        if other:
            raise ProcessError(
                f"every process must train on all rows, in the same order; rank 0 has {int(all_facts[0, 0]):,} rows, "
                f"rank {other[0]} has {int(all_facts[other[0], 0]):,} or other ones; "
                "give all rows to every process: training divides them"
            )

    # Steps

    def _epoch(self, on_batch: Callable[[int, int], None] | None) -> float:
        torch.manual_seed(self._seed(len(self.rows)))
        with self.norms:
            mean = super()._epoch(on_batch if self.first else None)
        self.ranks.align(part for _, part in state_of(self.model))  # such as a layer's running statistics
        return mean

    def _seed(self, step: int) -> int:
        """A seed for this rank alone: otherwise dropout would hide the same features on all ranks."""
        return zlib.crc32(repr((self.settings.seed, step, self.ranks.rank)).encode())

    def _part(self, rows: Tensor) -> Tensor:
        return rows[self.ranks.share(len(rows)).rows]

    def _take(self, rows: Tensor, x: Inputs) -> Tensor:
        share = self.ranks.share(len(rows))
        if self.augment is not None:
            x = self.augment(x, torch.Generator().manual_seed(self._seed(self.steps_done)))
        self._set_rate(one_cycle(self.steps_done / self.steps))
        own = rows[share.rows]
        loss, stops = self.shared_step.take(x, self.y[own], None if self.weights is None else self.weights[own], share)
        self.stops += stops
        if (not self.y.is_cuda or self.steps_done % _STEPS_BETWEEN_CHECKS == 0) and float(self.stops) > 0:
            raise KeyboardInterrupt  # all ranks, after the same step
        return loss

    # Decisions

    def _validate(self, x: Inputs, y: Tensor) -> tuple[float, float]:
        loss, accuracy = self.ranks.broadcast_numbers(super()._validate(x, y))
        return loss, accuracy

    def finish_epoch(
        self, row: dict[str, Any], on_epoch: Callable[[dict[str, Any]], None] | None, path: str | Path | None
    ) -> None:
        """Run callbacks on rank 0 only; if it is told to stop, all ranks stop."""
        stop = self.shared_step.stop
        if self.first:
            try:
                with alone():
                    super().finish_epoch(row, on_epoch, path)
            except KeyboardInterrupt:
                stop = True
        if float(self.ranks.sum(torch.tensor([float(stop)]))) > 0:
            raise KeyboardInterrupt

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let Ctrl-C end training on all ranks after the same step; pressed again, it ends this process at once.

        Random numbers afterwards are the same on all ranks.
        """
        devices = [self.y.device] if self.y.is_cuda else []
        with torch.random.fork_rng(devices=devices):
            if threading.current_thread() is not threading.main_thread():
                yield
                return

            def stop(number: int, frame: FrameType | None) -> None:
                if self.shared_step.stop:
                    signal.default_int_handler(number, frame)
                self.shared_step.stop = True

            before = signal.signal(signal.SIGINT, stop)
            try:
                yield
            finally:
                signal.signal(signal.SIGINT, before)

    # Checkpoints and references

    def _read_checkpoint(self, path: str | Path) -> bytes | None:
        return self.ranks.broadcast_bytes(super()._read_checkpoint(path) if self.first else None)

    def remember(self, names: tuple[Tensor, ...]) -> None:
        """Embed this rank's part of the rows, and share it, so that every rank has all rows."""
        n, model = len(self.y), self.model
        if n < self.ranks.size or not isinstance(model, WeightedAverage):
            return super().remember(names)
        own = self.ranks.own(n)
        model.remember(batches_of(tuple(part[own] for part in self.x), self.y[own], size=self._at_once))
        h = self.ranks.gather_rows(model.references.embeddings, self.ranks.sizes(n))
        ids = names[0].tolist() if names else None
        model.references = ReferenceSet(h, self.y, ids, model.n_classes, model.kernel)
        return None
