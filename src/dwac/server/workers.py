"""Several workers on one port: processes that accept from one socket, each with its own model.

A worker that ends by itself is replaced; if one cannot start, the service ends with the reason. Ctrl-C and SIGTERM end
all of them, after the requests in flight are answered. Workers whose parent is gone also end. Why uvicorn's own
supervisor does not do this: docs/decisions/0033-the-service-on-uvicorn.md.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any

from dwac.errors import DwacError, ProcessError
from dwac.server.limits import Limits

log = logging.getLogger("dwac.server")

_QUICK = 5.0  # seconds: a worker that ends within this time after it was ready will do so again
_PATIENCE = 10.0  # seconds for workers to end: more than a single service takes
_TICK = 0.2  # seconds between checks for signals


@dataclass(frozen=True)
class Plan:
    """What every worker needs to start; plain values, because they are sent to other processes."""

    model: str
    device: str = "auto"
    unknown: str | None = None
    threads: int = 1
    expect: str | None = None
    token: str | None = field(default=None, repr=False)
    limits: Limits = field(default_factory=Limits)
    private: bool | None = None
    hosts: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    monitored: bool = True
    folder: str | None = None
    counters: str | None = None
    record: str | None = None
    workers: int = 1

    def app(self, worker: int) -> Any:
        """The application of one worker."""
        import torch

        from dwac.estimator import load
        from dwac.server.app import create_app
        from dwac.server.watch import Watch

        torch.set_num_threads(self.threads)
        model: Any = load(self.model, device=self.device, expect=self.expect)
        if self.unknown is not None:
            model.set_params(unknown=self.unknown)
        private = bool(model.private_) if self.private is None else self.private
        watch = Watch(
            model,
            private=private,
            ignore=self.ignore,
            folder=None if self.folder is None else Path(self.folder),
            counters=None if self.counters is None else Path(self.counters),
            worker=worker,
            workers=self.workers,
            monitored=self.monitored,
        )
        if self.monitored:
            watch.begin_if_possible()
        options: Any = {"token": self.token, "limits": self.limits, "hosts": self.hosts, "record": self.record}
        return create_app(model, private=private, watch=watch, **options)


def work(plan: Plan, listener: socket.socket, worker: int, ready: Connection) -> None:
    """Run one worker, from its start to a signal."""
    from dwac.server.run import serve

    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    try:
        app = plan.app(worker)
    except DwacError as error:
        ready.send(str(error))
        raise SystemExit(1) from None
    serve(app, [listener], on_start=lambda: ready.send(None))


def _end_with(parent: int) -> None:
    """End this process when its parent ends."""
    wait([parent])
    os.kill(os.getpid(), signal.SIGTERM)


@dataclass
class Worker:
    """A process that serves."""

    process: Any
    ready: Connection  # receives None when requests are accepted, or the reason why they never will be
    since: float | None = None  # when it was ready


class Supervisor:
    """Starts the workers, replaces those that end, and ends them all."""

    def __init__(self, plan: Plan, listener: socket.socket) -> None:
        self.plan, self._listener = plan, listener
        self._context = multiprocessing.get_context("spawn")  # forking a process with threads is not safe
        self.workers: dict[int, Worker] = {}
        self._stopping = False

    def run(self, on_start: Callable[[], None]) -> None:
        """Serve until SIGTERM or Ctrl-C; on_start is called when all workers accept requests."""
        before = {sig: signal.signal(sig, self._stop) for sig in (signal.SIGINT, signal.SIGTERM)}
        try:
            for number in range(self.plan.workers):
                self.start(number)
            announced = False
            while not self._stopping:
                self.look()
                if not announced and all(worker.since is not None for worker in self.workers.values()):
                    announced = True
                    on_start()
        finally:
            self._end()
            for sig, handler in before.items():
                signal.signal(sig, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stopping = True

    def start(self, number: int) -> None:
        """Start the process of one worker."""
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=work, args=(self.plan, self._listener, number, theirs), name=f"dwac-worker-{number}"
        )
        process.start()
        theirs.close()
        self.workers[number] = Worker(process, ours)

    def look(self) -> None:
        """Wait a moment for messages from the workers, or their end."""
        starting = [worker.ready for worker in self.workers.values() if worker.since is None]
        wait([*starting, *(worker.process.sentinel for worker in self.workers.values())], timeout=_TICK)
        for number, worker in list(self.workers.items()):
            if worker.since is None and worker.ready.poll():
                self._note_start(worker)
            if not worker.process.is_alive() and not self._stopping:
                self._replace(number, worker)

    def _note_start(self, worker: Worker) -> None:
        try:
            reason = worker.ready.recv()
        except EOFError:
            reason = None if self._stopping else "a worker ended before it was ready; see its output above"
        if reason is not None:
            raise ProcessError(reason)
        worker.since = time.monotonic()

    def _replace(self, number: int, worker: Worker) -> None:
        code = worker.process.exitcode
        if worker.since is None or time.monotonic() - worker.since < _QUICK:
            raise ProcessError(f"worker {number} ended with code {code} as soon as it began; see its output above")
        log.error("worker %d ended with code %s and is replaced", number, code)
        worker.ready.close()
        self.start(number)

    def _end(self) -> None:
        """Let the workers answer their requests, and end them."""
        processes = [worker.process for worker in self.workers.values()]
        for process in processes:
            if process.is_alive():
                process.terminate()
        until = time.monotonic() + _PATIENCE
        for process in processes:
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
