"""Processes on this machine, the default engine: each holds one model, and one that dies is replaced."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from dwac.scoring.engines import TRIES
from dwac.scoring.pieces import Done, Piece

_KILL = 9
_PATIENCE = 5.0  # seconds for a process to end


def run(
    task: Callable[[Piece], Done], pieces: Iterable[Piece], workers: int, options: Mapping[str, Any]
) -> Iterator[Done]:
    """Run the task on every piece in `workers` processes; with one worker, in this process."""
    del options
    waiting = deque(pieces)
    if workers == 1:
        yield from map(task, waiting)
        return
    tries: Counter[int] = Counter()
    context = _context()
    staff = [_Worker(task, number, context) for number in range(min(workers, len(waiting)))]
    try:
        while waiting or any(worker.piece for worker in staff):
            for worker in staff:
                if worker.piece is None and waiting:
                    worker.give(waiting.popleft())
            ready = wait([worker.pipe for worker in staff if worker.piece])
            for worker in [worker for worker in staff if worker.pipe in ready]:
                piece, done = worker.piece, worker.result()
                assert piece is not None
                if done is None:
                    tries[piece.number] += 1
                    ended = worker.buried()
                    if tries[piece.number] < TRIES:
                        waiting.appendleft(piece)
                        continue
                    done = Done(piece.number, error=f"{piece.file}: {ended}")
                yield done
    finally:
        for worker in staff:
            worker.stop()


@dataclass
class _Worker:
    """A process, the pipe to it, and its current piece."""

    task: Callable[[Piece], Done]
    number: int
    context: Any
    piece: Piece | None = None
    pipe: Any = None  # both are None until it gets a piece
    process: Any = None

    def _start(self) -> None:
        self.pipe, theirs = self.context.Pipe()
        self.process = self.context.Process(target=_work, args=(self.task, theirs, self.number), daemon=True)
        self.process.start()
        theirs.close()  # otherwise this process would not notice when the worker dies

    def give(self, piece: Piece) -> None:
        if self.process is None:
            self._start()
        self.piece = piece
        with suppress(OSError):  # it has died; `result` reports it
            self.pipe.send(piece)

    def result(self) -> Done | None:
        """The result of the piece; None if the process died."""
        try:
            done: Done = self.pipe.recv()
        except (EOFError, OSError):
            return None
        finally:
            self.piece = None
        return done

    def buried(self) -> str:
        """How the process died; the next piece gets a new one."""
        self.process.join(_PATIENCE)
        code = self.process.exitcode
        self.pipe.close()
        self.process = self.pipe = None
        if code == -_KILL:
            ending = "was killed, as happens when memory runs out: use fewer --workers, or a machine with more memory"
        else:
            ending = f"ended with {f'signal {-code}' if code is not None and code < 0 else f'code {code}'}"
        return f"{TRIES} processes in a row died on this piece; the last {ending}"

    def stop(self) -> None:
        """End the process, even in the middle of a piece: shards are complete or absent."""
        if self.process is None:
            return
        self.pipe.close()
        self.process.terminate()
        self.process.join(_PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join(_PATIENCE)


def _context() -> Any:
    """The start method of processes. Forking this one may deadlock in torch, and would copy its memory.

    A fork server, which has imported everything and computed nothing, forks each worker quickly; on systems without
    one, each worker imports everything itself.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "dwac.scoring.task"])
    return context


def _work(task: Callable[[Piece], Done], pipe: Connection, number: int) -> None:
    """The loop of a worker process: pieces in, results out, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends all workers
    if torch.cuda.is_available() and "CUDA_VISIBLE_DEVICES" not in os.environ:
        torch.cuda.set_device(number % torch.cuda.device_count())
    while True:
        try:
            piece: Piece = pipe.recv()
        except (EOFError, OSError):  # the parent is gone
            return
        done = task(piece)
        try:
            pipe.send(done)
        except OSError:
            return
