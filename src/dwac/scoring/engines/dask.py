"""Dask: pieces are tasks of a running cluster, or of processes on this machine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import dask
import torch
from distributed import Client, KilledWorker, LocalCluster, as_completed, get_worker

from dwac.errors import InputError
from dwac.scoring.engines import TRIES, failed, lost
from dwac.scoring.pieces import Done, Piece

_ENVIRONMENT = "distributed.nanny.pre-spawn-environ"  # what Dask sets in its workers


def run(
    task: Callable[[Piece], Done], pieces: Iterable[Piece], workers: int, options: Mapping[str, Any]
) -> Iterator[Done]:
    """Run the task on every piece; if a worker dies, Dask itself gives its pieces to others.

    The cluster is the one at options["address"] or DASK_SCHEDULER_ADDRESS, with all of its workers; otherwise
    `workers` processes are started here, one thread each.
    """
    address = options.get("address") or dask.config.get("scheduler-address", None)
    if not address and torch.cuda.device_count() > 1:
        task = partial(_on_own_gpu, task)
    with ExitStack() as stack:
        cluster = address or local_cluster(workers)
        if not address:
            stack.callback(_close, cluster)
        try:
            client = stack.enter_context(Client(cluster, set_as_default=False))
        except OSError as error:
            raise InputError(f"there is no Dask scheduler at {cluster}: {error}; check --address") from None
        suspects = []
        for piece, future in _completed(client, task, list(pieces)):
            if isinstance(future.exception(), KilledWorker):
                suspects.append(piece)
            else:
                yield _result(piece, future)
        # Dask blames every piece that was queued at a worker that died. Running each alone shows which one is at fault.
        for suspect in suspects:
            for piece, future in _completed(client, task, [suspect]):
                yield _result(piece, future)


def local_cluster(workers: int) -> LocalCluster:
    """A cluster of processes on this machine, with settings that suit scoring."""
    with dask.config.set({_ENVIRONMENT: _without_trimming(dask.config.get(_ENVIRONMENT))}):
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,  # one model and one piece at a time per process
            memory_limit=0,  # Dask would otherwise kill a worker at its share of the memory, however much is free
            dashboard_address="127.0.0.1:0",  # None would still take port 8787
            silence_logs=logging.CRITICAL,
            scheduler_kwargs={"allowed_failures": TRIES - 1},
        )


def _close(cluster: LocalCluster) -> None:
    """Close it. Dask fails to while it restarts a worker that died; that worker ends with this process."""
    with suppress(AssertionError):
        cluster.close()


def _without_trimming(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Variables without Dask's eager release of memory: ten times the page faults, 1.7 times the processor time."""
    return {name: value for name, value in variables.items() if name != "MALLOC_TRIM_THRESHOLD_"}


def _completed(client: Any, task: Callable[[Piece], Done], pieces: list[Piece]) -> Iterator[tuple[Piece, Any]]:
    futures = dict(zip(client.map(task, pieces, pure=False), pieces, strict=True))
    for future in as_completed(list(futures), loop=client.loop):
        yield futures.pop(future), future


def _on_own_gpu(task: Callable[[Piece], Done], piece: Piece) -> Done:
    """Run the task on the GPU of this worker: the processes of one machine divide its GPUs among them."""
    torch.cuda.set_device(int(get_worker().name) % torch.cuda.device_count())
    return task(piece)


def _result(piece: Piece, future: Any) -> Done:
    error = future.exception()
    if error is None:
        done: Done = future.result()
        return done
    return lost(piece) if isinstance(error, KilledWorker) else failed(piece, error)
