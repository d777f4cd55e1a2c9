"""Training shared by several processes: on several GPUs, or on several machines.

    def main():
        with dwac.training.processes() as ranks:
            clf = dwac.DWACClassifier(random_state=0).fit(X, y)    # every process calls it with all rows
            if ranks.first:
                clf.save("model/")

The same function works with `torchrun --nproc-per-node 2 main.py`, Ray Train's TorchTrainer and Spark's
TorchDistributor. In an ordinary process it runs alone.

Each rank computes its part of every batch, and draws dropout and augmentation at random for its own rows. Everything
else is as in one process, up to rounding: the order of rows, batch normalisation, loss, gradient and decisions.
"""

from __future__ import annotations

import os
import signal
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from dwac.errors import ProcessError
from dwac.nn.batches import Inputs, batches_of
from dwac.nn.heads import WeightedAverage
from dwac.nn.ranks import Ranks, SharedNorms, alone, join_ranks
from dwac.reference import ReferenceSet
from dwac.training.rows import checksum
from dwac.training.run import TrainingRun, state_of
from dwac.training.steps import SharedStep, one_cycle

_STEPS_BETWEEN_CHECKS = 16  # GPU steps between checks for Ctrl-C, each of which waits for the GPU
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class ProcessRank(NamedTuple):
    """The rank of this process, and the number of processes."""

    rank: int
    size: int

    @property
    def first(self) -> bool:
        """Whether this is rank 0, the only one that prints and writes."""
        return self.rank == 0


@contextmanager
def processes(*, timeout: timedelta | None = None) -> Iterator[ProcessRank]:
    """Join the processes that the environment describes; inside, `fit` and `train` share their work.

    Every process must make the same calls with the same rows. Only rank 0 shows progress and writes checkpoints. Each
    has its own GPU if there are enough (nccl); otherwise they compute on CPUs (gloo). An existing process group is used
    and left as it is. Without one, and without the variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which
    torchrun and others set, the process is alone.

    timeout: how long to wait for a silent process; by default as long as torch.distributed does. A process that ends is
    noticed at once.

    >>> with processes() as ranks:  # alone, unless torchrun started several
    ...     print(ranks.rank, ranks.size, ranks.first)
    0 1 True
    """
    if dist.is_available() and dist.is_initialized():
        yield from _inside(Ranks())
        return
    missing = [name for name in _NEEDED if not os.environ.get(name)]
    if len(missing) == len(_NEEDED) or (not missing and os.environ["WORLD_SIZE"] == "1"):
        yield ProcessRank(0, 1)
        return
    if missing:
        raise ProcessError(
            f"several processes need the variables {', '.join(_NEEDED)}; {missing[0]} is not set; "
            "start them with torchrun"
        )
    ranks = _join(timeout)
    failed = True
    try:
        yield from _inside(ranks)
        failed = False
    finally:
        # nccl would wait for the others, which may wait for this one; they notice when it ends.
        if not (failed and torch.cuda.is_available() and dist.get_backend() != "gloo"):
            dist.destroy_process_group()


def _inside(ranks: Ranks) -> Iterator[ProcessRank]:
    with join_ranks(ranks):
        yield ProcessRank(ranks.rank, ranks.size)


def _join(timeout: timedelta | None) -> Ranks:
    """Join the process group that the environment describes."""
    local, here = (
        int(os.environ.get(name) or default) for name, default in (("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1))
    )
    backend = "gloo"
    if torch.cuda.is_available() and dist.is_nccl_available() and torch.cuda.device_count() >= here:
        torch.cuda.set_device(local)
        backend = "cpu:gloo,cuda:nccl"
    try:
        dist.init_process_group(backend, timeout=timeout)
    except (RuntimeError, ValueError) as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise ProcessError(
            f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} could not meet the others at {where}: "
            f"{' '.join(str(error).split())[:200]}; check that all were started and that the address can be reached"
        ) from error
    return Ranks()


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

    def _own_rows(self, rows: Tensor) -> Tensor:
        return rows[self.ranks.share(len(rows)).rows]

    def _take_step(self, rows: Tensor, x: Inputs) -> Tensor:
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

    def remember(self, ids: Tensor | None) -> None:
        """Embed this rank's part of the rows, and share it, so that every rank has all rows."""
        n, model = len(self.y), self.model
        if n < self.ranks.size or not isinstance(model, WeightedAverage):
            super().remember(ids)
            return
        own = self.ranks.own(n)
        model.remember(batches_of(tuple(part[own] for part in self.x), self.y[own], size=self._at_once))
        h = self.ranks.gather_rows(model.references.embeddings, self.ranks.sizes(n))
        names = None if ids is None else ids.tolist()
        model.references = ReferenceSet(h, self.y, names, model.n_classes, model.kernel)
