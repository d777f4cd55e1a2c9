"""Running the application: uvicorn with a clock on every connection and a clean end.

uvicorn's own protocol speaks HTTP; what stands between it and each connection here uses no more of it than the
interfaces of asyncio: bytes that come, bytes that go, and requests that reach the application.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dwac.server.batching import THREAD
from dwac.server.gate import HEADERS
from dwac.server.refusals import CLOSE, RefusalError

HEAD_SECONDS = 10.0  # for a request's line and headers to arrive, from the connection's begin or the answer before
HEAD_BYTES = 2**16  # of these
CONNECTIONS = 512  # open at once
STALL_SECONDS = 30.0  # that a client may read nothing of its answer
END_SECONDS = 2.0  # the same once the service ends, and for what was written to leave before a connection is closed
GRACE_SECONDS = 4  # for requests in flight when the service ends
_MOST_IGNORED = 2**20  # bytes that are let go by after a refusal
_MALFORMED = b"Invalid HTTP request received."  # as uvicorn says it


class Doors:
    """The open connections by their client's address, and the ASGI middleware that knows when each has a request."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.open: dict[Any, Connection] = {}
        self.ending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request: its head is whole, and from here on the service's own limits hold until it is answered."""
        door = self.open.get(scope.get("client"))
        if door is None:
            await self.app(scope, receive, send)
            return
        started = False

        async def send_on(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        door.begin()
        try:
            await self.app(scope, receive, send_on)
        except asyncio.CancelledError:
            if not self.ending:
                raise
            if not started:  # the grace is over
                said = RefusalError(503, "stopping", "the service is shutting down; ask another one", CLOSE).response()
                said.headers.update(HEADERS)
                await said(scope, receive, send)
        finally:
            door.end()

    def end(self) -> None:
        """Wait no longer than a moment for clients that do not read."""
        self.ending = True
        for door in self.open.values():
            door.hurry()


class Connection(asyncio.Protocol):
    """One connection: lets bytes through to uvicorn's protocol, and closes it where they come or go too slowly."""

    def __init__(self, doors: Doors, **given: Any) -> None:
        self._doors, self._inner = doors, HttpToolsProtocol(**given)
        self._clocks: dict[str, asyncio.TimerHandle] = {}
        self._head: bytearray | None = None  # what has come of a head; None where none is due
        self._refused, self._ignored = False, 0

    # What asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The first head is due from now on."""
        self._transport: Any = transport
        self._client = tuple((transport.get_extra_info("peername") or ())[:2])
        if len(self._doors.open) >= CONNECTIONS:
            said = "too many connections are open; try again"
            self._refuse(RefusalError(503, "busy", said, {"retry-after": "1"}))
            return
        self._doors.open[self._client] = self
        self.end()
        self._inner.connection_made(_Line(transport, self))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        """Let bytes through, and count those of a head; line ends before it are none."""
        if self._refused:
            self._ignored += len(data)
            if self._ignored > _MOST_IGNORED:
                self.close()
            return
        self._inner.data_received(data)
        if self._head is None:
            return
        self._head = (self._head + data).lstrip(b"\r\n")
        if b"\r\n\r\n" in self._head:
            self._head = None
        elif len(self._head) > HEAD_BYTES:
            self._refuse(RefusalError(431, "head_too_large", f"line and headers may have {HEAD_BYTES:,} bytes"))

    def eof_received(self) -> None:
        """Nothing more will come."""
        if not self._refused:
            self._inner.eof_received()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is written to."""
        self._inner.pause_writing()
        self._start("stall", END_SECONDS if self._doors.ending else STALL_SECONDS, self._transport.abort)

    def resume_writing(self) -> None:
        """It has read."""
        self._stop("stall")
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is due any more."""
        for name in list(self._clocks):
            self._stop(name)
        if self._doors.open.get(self._client) is self:
            del self._doors.open[self._client]
            self._inner.connection_lost(exc)

    # What the doors tell

    def begin(self) -> None:
        """A request's head is whole."""
        self._stop("head")
        self._head = None

    def end(self) -> None:
        """It is answered: the next head is due."""
        self._head = bytearray()
        self._start("head", HEAD_SECONDS, self._too_late)

    def hurry(self) -> None:
        """A client that does not read is given up soon."""
        if "stall" in self._clocks:
            self._start("stall", END_SECONDS, self._transport.abort)

    def close(self) -> None:
        """Once what was written has left, or soon."""
        self._transport.close()
        self._start("close", END_SECONDS, self._transport.abort)

    def _too_late(self) -> None:
        self._stop("head")
        if self._head is not None and not self._head:
            self.close()  # nothing was asked, and nobody waits for an answer
        else:
            said = f"line and headers did not arrive within {HEAD_SECONDS:g} s"
            self._refuse(RefusalError(408, "slow_head", said))

    def _refuse(self, refusal: RefusalError) -> None:
        self._refused = True
        self._transport.write(written(refusal))
        # What has come unread would have the refusal thrown away with the connection.
        self._start("refused", END_SECONDS / 4, self.close)

    def _start(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        self._stop(name)
        if not self._transport.is_closing() or name == "close":
            self._clocks[name] = asyncio.get_running_loop().call_later(seconds, then)

    def _stop(self, name: str) -> None:
        clock = self._clocks.pop(name, None)
        if clock is not None:
            clock.cancel()


class _Line:
    """A transport as uvicorn has it: its words on malformed HTTP become ours, and it closes in bounded time."""

    def __init__(self, transport: Any, connection: Connection) -> None:
        self._transport, self._connection = transport, connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1 400 ") and data.endswith(_MALFORMED):
            data = written(RefusalError(400, "not_http", "the request is no valid HTTP"))
        self._transport.write(data)

    def close(self) -> None:
        self._connection.close()


def written(refusal: RefusalError) -> bytes:
    """A refusal as bytes, for those who never get as far as the application."""
    response = refusal.response()
    headers = {**HEADERS, **dict(response.headers), **CLOSE}
    lines = [f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + bytes(response.body)


class Server(uvicorn.Server):
    """Says when it has started, and ends in bounded time: what is in flight is answered, what is new is refused."""

    def __init__(self, config: uvicorn.Config, doors: Doors) -> None:
        super().__init__(config)
        self.doors = doors
        self.on_start: Callable[[], None] | None = None

    async def startup(self, sockets: Any = None) -> None:
        """Say so once requests are taken."""
        await super().startup(sockets)
        if self.started and self.on_start is not None:
            self.on_start()

    async def shutdown(self, sockets: Any = None) -> None:
        """Who does not read is not waited for."""
        self.doors.end()
        await super().shutdown(sockets)


def server_of(app: Any) -> Server:
    """A server for the application, whose requests in flight have some seconds to end when it ends."""
    doors = Doors(app)
    config = uvicorn.Config(
        doors,
        http=partial(Connection, doors),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return Server(config, doors)


def serve(app: Any, sockets: list[Any], *, on_start: Callable[[], None] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    # The model's thread would else keep the event loop waiting for 5 ms at each of its calls to the system.
    sys.setswitchinterval(0.0002)
    server = server_of(app)
    server.on_start = on_start
    # uvicorn raises a signal that it has obeyed once more: to these.
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {sig: signal.signal(sig, lambda *_: None) for sig in (signal.SIGINT, signal.SIGTERM)}
    try:
        with suppress(KeyboardInterrupt):
            server.run(sockets=sockets)
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)
    for thread in threading.enumerate():
        if thread.name.startswith(THREAD):
            thread.join(END_SECONDS / 2)
            if thread.is_alive():  # a call of the model that nobody waits for any more; Python would wait for it
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
