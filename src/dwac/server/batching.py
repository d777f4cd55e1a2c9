"""Join requests that arrive at the same time into one call of the model, in a thread beside the event loop.

batcher = Batcher(run, Limits(), observe)  # run([payload, …]) -> [result or exception, …]; observe(rows per call)
await batcher.submit("votes", payload, size=1)
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dwac.server.limits import STOPPING, Limits, RefusalError

_STUCK = 2  # times the longest wait for an answer: a longer call is stuck, not merely slow
THREAD = "dwac-model"  # prefix of its thread's name
Run = Callable[[list[Any]], Sequence[Any]]


@dataclass(eq=False)
class _Job:
    key: Hashable
    payload: Any
    size: int
    answer: asyncio.Future[Any]


class Batcher:
    """Gathers waiting requests of one kind (`key`) until they have `batch_rows` rows or `gather_seconds` have passed.

    While the model is busy, further requests queue up. The queue is short: a request that finds it full is refused.
    The thread of the model takes them itself, so that it never waits for the event loop while requests wait for it.
    """

    def __init__(self, run: Run, limits: Limits, observe: Callable[[int], None]) -> None:
        self._run, self._limits, self._observe = run, limits, observe
        self._jobs: deque[_Job] = deque()
        self._changing = threading.Lock()  # held to change `_jobs`, which both threads do
        self._wake = asyncio.Event()
        self._stopping = False
        self.serving = False
        self._stuck = False  # whether the current call takes too long
        self._clock: asyncio.TimerHandle | None = None  # of the current call
        self.panicked = False  # whether the last call ended in an error that is not an Exception

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._jobs)

    def admit(self) -> None:
        """Refuse a request that would have to wait too long."""
        if self._stopping:
            raise STOPPING
        if not self.serving:
            raise RefusalError(503, "failed", "the worker of the model has stopped; try again", {"retry-after": "5"})
        if self._stuck:
            raise RefusalError(503, "stuck", "the model is stuck in a call; try again later",
                               {"retry-after": "5"})  # fmt: skip
        if len(self._jobs) >= self._limits.waiting:
            raise RefusalError(
                503, "busy", f"{self._limits.waiting} requests are already waiting; try again", {"retry-after": "1"}
            )

    async def submit(self, key: Hashable, payload: Any, *, size: int) -> Any:
        """The answer to one request of `size` rows; an error if it takes too long."""
        self.admit()
        loop = asyncio.get_running_loop()
        job = _Job(key, payload, size, loop.create_future())
        with self._changing:
            self._jobs.append(job)
        self._wake.set()
        late = loop.call_later(self._limits.seconds, self._refuse_late, job)
        try:
            return await job.answer
        finally:
            late.cancel()
            with self._changing, suppress(ValueError):  # it is there if it is late, or its client has gone
                self._jobs.remove(job)

    def _refuse_late(self, job: _Job) -> None:
        message = f"no answer within {self._limits.seconds:g} s; send fewer rows, or try again"
        if not job.answer.done():
            job.answer.set_exception(RefusalError(504, "timeout", message, {"retry-after": "1"}))

    async def serve(self) -> None:
        """Answer requests until `stop` is called and the queue is empty."""
        self.serving = True
        loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(1, thread_name_prefix=THREAD)
        try:
            while await self._some():
                self._time_call(loop)
                await loop.run_in_executor(pool, self._answer_waiting, loop)
                self._end_call()
        finally:
            self._end_call()
            self.serving = False
            pool.shutdown(wait=False)

    def _answer_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call the model, in its thread, until no request waits."""
        while self._jobs and self.serving:
            jobs = self.take()
            results = self._answers(jobs)
            loop.call_soon_threadsafe(self._deliver, loop, jobs, results)

    def _deliver(self, loop: asyncio.AbstractEventLoop, jobs: list[_Job], results: Sequence[Any]) -> None:
        """Give every request of a call its result or its error; another call may have begun."""
        self._time_call(loop)
        for job, result in zip(jobs, results, strict=True):
            if job.answer.done():
                continue
            if isinstance(result, Exception):
                job.answer.set_exception(result)
            else:
                job.answer.set_result(result)

    def _time_call(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note from now on when the call takes too long."""
        self._end_call()
        self._clock = loop.call_later(_STUCK * self._limits.seconds, self._late)

    def _end_call(self) -> None:
        self._stuck = False
        if self._clock is not None:
            self._clock.cancel()

    def _late(self) -> None:
        self._stuck = True

    def stop(self) -> None:
        """Refuse new requests; those in the queue are still answered."""
        self._stopping = True
        self._wake.set()

    async def _some(self) -> bool:
        """Wait for work; False if there will be none."""
        while not self._jobs:
            if self._stopping:
                return False
            self._wake.clear()
            await self._wake.wait()
            if self._limits.gather_seconds and not self._stopping:
                await asyncio.sleep(self._limits.gather_seconds)
        return True

    def take(self) -> list[_Job]:
        """The oldest request, and others with the same key that fit into the same call."""
        rows = 0
        taken: list[_Job] = []
        with self._changing:
            waiting, self._jobs = self._jobs, deque()
            for job in waiting:
                joins = not taken or (job.key == taken[0].key and rows + job.size <= self._limits.batch_rows)
                (taken if joins else self._jobs).append(job)
                rows += job.size if joins else 0
        self._observe(rows)
        return taken

    def _answers(self, jobs: list[_Job]) -> Sequence[Any]:
        """A result or an Exception per job: a panic in native code is not an Exception, and would end the worker."""
        try:
            answers: list[Any] = list(self._run([job.payload for job in jobs]))
            if len(answers) != len(jobs):
                raise RuntimeError(f"{len(jobs)} requests got {len(answers)} answers")
        except BaseException as error:
            answers = [error] * len(jobs)
        worse = [isinstance(each, BaseException) and not isinstance(each, Exception) for each in answers]
        self.panicked = any(worse)
        return [_wrap(each) if bad else each for each, bad in zip(answers, worse, strict=True)]


def _wrap(error: BaseException) -> Exception:
    wrapped = RuntimeError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
