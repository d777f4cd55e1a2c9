"""Ray: pieces are tasks of a running cluster, or of processes on this machine."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from dwac.scoring.engines import TRIES, failed, lost
from dwac.scoring.pieces import Done, Piece

_AHEAD = 1000  # the most pieces queued in Ray: more than slots, so that an autoscaling cluster grows


def run(
    task: Callable[[Piece], Done], pieces: Iterable[Piece], workers: int, options: Mapping[str, Any]
) -> Iterator[Done]:
    """Run the task on every piece, and again if its worker died. Each task takes one core.

    The cluster is the one at options["address"] or RAY_ADDRESS, with all of its workers; otherwise `workers` processes
    are started here. If there are GPUs, each task takes one, as in the local engine, or the share of one that
    options["gpus"] says; with options["device"] "cpu", none.
    """
    ours = not ray.is_initialized()
    if ours:
        _connect(workers, options.get("address") or os.environ.get("RAY_ADDRESS"))
    # Ray can retry tasks itself, but after running out of memory it retries forever, and it does not say how often.
    remote = ray.remote(num_cpus=1, num_gpus=_gpus(options), max_retries=0)(_call)
    try:
        yield from _results(remote, task, iter(pieces))
    finally:
        if ours:
            ray.shutdown()


def _connect(workers: int, address: str | None) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address:
        ray.init(address=address, **quiet)
    else:
        ray.init(address="local", num_cpus=workers, include_dashboard=False, **quiet)


def _gpus(options: Mapping[str, Any]) -> float:
    if options.get("gpus") is not None:
        return float(options["gpus"])
    return 1.0 if options.get("device") != "cpu" and ray.cluster_resources().get("GPU", 0) > 0 else 0.0


def _call(task: Callable[[Piece], Done], piece: Piece) -> Done:
    """Run the task. Workers keep their processes, and so the model, between tasks."""
    return task(piece)


def _results(remote: Any, task: Callable[[Piece], Done], pieces: Iterator[Piece]) -> Iterator[Done]:
    tries: Counter[int] = Counter()
    queued: dict[Any, Piece] = {}
    try:
        while True:
            while len(queued) < _AHEAD and (piece := next(pieces, None)) is not None:
                queued[remote.remote(task, piece)] = piece
            if not queued:
                return
            (ready,), _ = ray.wait(list(queued), num_returns=1)
            piece = queued.pop(ready)
            try:
                yield ray.get(ready)
            except RayTaskError as error:
                yield failed(piece, error)
            except RayError:  # the worker or its machine is gone
                tries[piece.number] += 1
                if tries[piece.number] < TRIES:
                    queued[remote.remote(task, piece)] = piece
                else:
                    yield lost(piece)
    finally:
        for each in queued:
            ray.cancel(each, force=True)
