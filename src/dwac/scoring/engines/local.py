"""Processes on this machine, the default engine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from dwac.scoring.pieces import Done, Piece


def run(
    task: Callable[[Piece], Done], pieces: Iterable[Piece], workers: int, options: Mapping[str, Any]
) -> Iterator[Done]:
    """Run the task on every piece in spawned processes, one model in each."""
    del options
    if workers == 1:
        yield from map(task, pieces)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(task, piece) for piece in pieces]):
            yield future.result()
