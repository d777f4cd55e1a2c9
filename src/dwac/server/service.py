"""One served model: its reader, queue and counters. No client state is kept."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from itertools import chain, repeat
from typing import Any

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response

from dwac.errors import DwacError, InputError
from dwac.estimator import DWACClassifier, DWACRegressor
from dwac.reading.requests import reader_of
from dwac.server.answers import Ask, Model, Responder
from dwac.server.batching import Batcher
from dwac.server.limits import CLOSE, Limits, RefusalError
from dwac.server.schemas import AskDecision, Asked, AskRecourse, AskWhy, schemas_of
from dwac.server.watch import Metrics, Watch

log = logging.getLogger("dwac.server")

_PATIENCE = 2.0  # seconds for the model to finish its call at shutdown
_KEEP_SECONDS = 1.0
_PAUSE = 0.25  # seconds
_LONG = 2**16  # bytes of JSON from which parsing moves to a thread


class Service:
    """A fitted model with its limits and its waiting requests; the arguments are those of `create_app`."""

    def __init__(
        self, model: Model, limits: Limits, private: bool | None, watch: Watch | None, record: str | None
    ) -> None:
        if not isinstance(model, DWACClassifier | DWACRegressor) or not hasattr(model, "model_"):
            raise InputError(f"the model must be a fitted DWACClassifier or DWACRegressor; got {type(model).__name__}")
        private = model.private_ if private is None else private
        self.model, self.limits, self.record = model, limits, record
        self.metrics = Metrics()
        self.watch = watch or Watch(model, private=private)
        self.reader = reader_of(model, limits.pixels, private=private)
        self.schemas = schemas_of(model.target_)
        self.responder = Responder(model, self.reader, private, self.watch, record)
        self.batcher: Batcher | None = None
        self.buffered = 0  # bytes of the requests that are arriving

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer requests inside the context; at its end, those in the queue are still answered."""
        self.batcher = Batcher(self.responder.run, self.limits, self.metrics.batch_rows.add)
        worker = asyncio.create_task(self._work(self.batcher))
        await asyncio.sleep(0)  # lets the worker start
        keeper = asyncio.create_task(self._keep())
        try:
            await self._warm_up()
            yield
        finally:
            self.batcher.stop()
            _, late = await asyncio.wait({worker}, timeout=_PATIENCE)
            keeper.cancel()
            self._write()
            for task in late:  # in a call whose clients have gone
                task.cancel()

    async def _work(self, batcher: Batcher) -> None:
        """The worker, restarted if it fails: the first time at once, later after a pause, as it may fail for ever."""
        for pause in chain((0.0,), repeat(_PAUSE)):
            try:
                await batcher.serve()
                return
            except Exception:
                log.exception("the worker of the model failed and is restarted")
            await asyncio.sleep(pause)

    async def _keep(self) -> None:
        """Let the monitor observe the latest rows, and write its state and the counters, once a second."""
        while True:
            await asyncio.sleep(_KEEP_SECONDS)
            await asyncio.to_thread(self._write)

    def _write(self) -> None:
        try:
            self.watch.write(self.metrics)
        except (OSError, DwacError):
            log.exception("the state of the service cannot be written")

    async def _warm_up(self) -> None:
        """Make a first call, which prepares what later ones reuse; it does no harm if the model refuses the example."""
        with suppress(DwacError):
            await self.predict(self._example(), watched=False)

    def _example(self) -> Asked:
        return self.schemas.ask.model_validate({"rows": [self.reader.example()]})

    def queue(self) -> Batcher:
        """The queue, if it accepts another request."""
        if self.batcher is None:
            raise RefusalError(503, "starting", "the service is starting; try again", {"retry-after": "1"})
        self.batcher.admit()
        return self.batcher

    async def require_ready(self) -> None:
        """Refuse if a prediction would be refused; after a panic, first check that the model answers."""
        if self.queue().panicked:
            try:
                await self.predict(self._example(), watched=False)
            except Exception as error:
                if isinstance(error, RefusalError):
                    raise
                raise RefusalError(503, "failing", "the model fails; see the log", {"retry-after": "5"}) from error

    async def predict(self, ask: Asked, *, sets: bool = False, watched: bool = True) -> dict[str, Any]:
        """Predictions for the rows of a request; an error if it is strict and one cannot be read.

        sets: everything that needs calibration rows, instead. watched: whether the rows are monitored.
        """
        job = self.responder.predict_job(ask, sets=sets, watched=watched)
        return self.responder.answer(job, await self._submit(Ask(job, ask.rows), strict=ask.strict))

    async def decide(self, ask: AskDecision) -> dict[str, Any]:
        """Decisions on the rows of a request; an error if it is strict and one cannot be read."""
        job = self.responder.decide_job(ask)
        return self.responder.decided(job, await self._submit(Ask(job, ask.rows), strict=ask.strict))

    async def explain(self, ask: AskWhy) -> list[dict[str, Any]]:
        """Explanations for the rows of a request; an error if it is strict and one cannot be read."""
        return await self._submit(Ask(self.responder.explain_job(ask), ask.rows), strict=ask.strict)

    async def recourse(self, ask: AskRecourse) -> list[dict[str, Any]]:
        """Recourse for the rows of a request; an error if it is strict and one cannot be read."""
        return await self._submit(Ask(self.responder.recourse_job(ask), ask.rows), strict=ask.strict)

    async def _submit(self, request: Ask, *, strict: bool) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = await self.queue().submit(request.job.call, request, size=len(request.rows))
        for number, row in enumerate(rows if strict else ()):
            if row["unreadable"] is not None:
                raise RefusalError(422, "invalid_input", f"row {number}: {row['unreadable']}")
        return rows

    def card(self) -> dict[str, Any]:
        """The model, the rows that it takes and the limits of the service."""
        return {**self.responder.card(), "limits": asdict(self.limits)}

    # Requests

    async def read(self, request: Request) -> Any:
        """The JSON of a request's body; size and time are checked while it arrives."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RefusalError(
                415,
                "unsupported_media_type",
                f"the content-type must be application/json; got {kind or 'no content-type'!r:.60}",
            )
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self.limits.body_bytes:
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for chunk in request.stream():
                    if len(body) + len(chunk) > self.limits.body_bytes:
                        raise self._too_large()
                    self._hold(len(chunk))
                    body += chunk
            return await asyncio.to_thread(parse_json, body) if len(body) > _LONG else parse_json(body)
        except TimeoutError:
            message = f"the body did not arrive within {self.limits.seconds:g} s"
            raise RefusalError(408, "slow_body", message, CLOSE) from None
        finally:
            self.buffered -= len(body)

    def _hold(self, n_bytes: int) -> None:
        if self.buffered + n_bytes > self.limits.buffered_bytes:
            raise RefusalError(503, "busy", "too much data is arriving at once; try again", {"retry-after": "1"})
        self.buffered += n_bytes

    def _too_large(self) -> RefusalError:
        return RefusalError(
            413, "too_large", f"a body may have at most {self.limits.body_bytes:,} bytes; send fewer rows"
        )

    def check_rows(self, rows: list[Any], most: int) -> None:
        """Refuse more rows than one request may have."""
        if len(rows) > most:
            raise RefusalError(
                422, "too_many_rows", f"a request may have at most {most} rows; got {len(rows)}; send several requests"
            )


def parse_json(body: bytes | bytearray) -> Any:
    """Strict JSON: no NaN, no infinity, no repeated keys, no lone surrogates, no nesting beyond Python's limit."""
    with suppress(ValueError):
        value = from_json(body, allow_inf_nan=False)  # five times as fast; it accepts repeated keys
        if isinstance(value, dict) and body.count(b":") == _count_keys(value):
            return value
    try:
        text = body.decode()
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_require_distinct_keys)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # fails on half of a surrogate pair, which is not text
        return value
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:120]
        raise RefusalError(400, "not_json", f"the body must be JSON in UTF-8: {reason}") from None


def _count_keys(request: dict[str, Any]) -> int:
    """The keys of a request and of its rows; fewer than its colons if a key is repeated or anything else has keys."""
    rows = request.get("rows")
    return len(request) + sum(len(row) for row in rows if isinstance(row, dict)) if isinstance(rows, list) else -1


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}; give null for unknown values")


def _require_distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has a key more than once")
    return members


def json_response(answer: dict[str, Any]) -> Response:
    """An answer as JSON; numbers keep every digit, so they equal those in Python. NaN and infinity are errors."""
    content = to_json(answer)
    if b"NaN" in content or b"Infinity" in content:  # perhaps in a text
        content = json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()
    return Response(content, media_type="application/json")
