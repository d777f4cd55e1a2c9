"""What a training computes with: CPU threads, repeatable algorithms, and several processes.

    def main():
        with dwac.training.processes() as ranks:
            clf = dwac.DWACClassifier(random_state=0).fit(X, y)    # every process calls it with all rows
            if ranks.first:
                clf.save("model/")

The same function works with `torchrun --nproc-per-node 2 main.py`, Ray Train's TorchTrainer and Spark's
TorchDistributor. In an ordinary process it runs alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist

from dwac._machine import cores
from dwac.errors import ProcessError
from dwac.nn.ranks import Ranks, join_ranks

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@contextmanager
def few_threads(most: int | None) -> Iterator[None]:
    """Let torch use at most `most` threads, and at most half the processors; None changes nothing.

    The matrices of a small network are so small that threads mostly wait for one another, spinning. On
    16 processors a default table of 8,000 rows trained no faster with 16 threads than with 2, at five times the
    processor time. Why half the processors: if other programs run too, threads spin until one that lost its processor
    gets it back, and training is slower than with one thread.
    """
    before = torch.get_num_threads()
    now = before if most is None else max(1, min(before, most, cores() // 2))
    if now == before:
        yield
        return
    torch.set_num_threads(now)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def repeatable(device: torch.device, threads: int) -> Iterator[None]:
    """Compute with this many CPU threads, and on a GPU with deterministic algorithms only.

    Rounding depends on the order of a sum, so the number of threads that share it changes the result.
    """
    before, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(threads)
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # PyTorch requires it for deterministic products
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)


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
