"""Training over processes: on several GPUs, or on several machines.

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

from dwac.errors import ProcessError
from dwac.nn.ranks import Ranks, joined

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
    """
    if dist.is_available() and dist.is_initialized():
        yield from _inside(Ranks())
        return
    given = [name for name in _NEEDED if os.environ.get(name)]
    if not given or (len(given) == len(_NEEDED) and os.environ["WORLD_SIZE"] == "1"):
        yield ProcessRank(0, 1)
        return
    if len(given) < len(_NEEDED):
        missing = next(name for name in _NEEDED if name not in given)
        raise ProcessError(
            f"processes are described by {', '.join(_NEEDED)}; {missing} is not set; start them with torchrun"
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
    with joined(ranks):
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
