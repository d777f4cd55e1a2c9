"""Running the application: uvicorn with a timeout on every connection and a clean shutdown.

uvicorn's own protocol handles HTTP. The layer here between it and each connection uses only the interfaces of
asyncio: bytes received, bytes sent, and requests that reach the application.
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

HEAD_SECONDS = 10.0  # for request line and headers to arrive, from the start of the connection or the previous answer
HEAD_BYTES = 2**16  # of request line and headers
CONNECTIONS = 512  # open at once
STALL_SECONDS = 30.0  # for which a client may stop reading its answer
END_SECONDS = 2.0  # the same during shutdown, and for the last bytes to be sent before a connection is closed
GRACE_SECONDS = 4  # for requests in flight at shutdown
_MOST_IGNORED = 2**23  # bytes ignored after a refusal
_CLOSE = (b"connection", b"close")
_MALFORMED = b"Invalid HTTP request received."  # the text that uvicorn sends


class Doors:
    """The open connections by client address, and ASGI middleware that knows when each has a request."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.open: dict[Any, Connection] = {}
        self.ending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request whose headers are complete: from here on the limits of the service apply until it is answered."""
        door = self.open.get(scope.get("client"))
        if door is None:
            await self.app(scope, receive, send)
            return
        started, headers = False, dict(scope["headers"])
        unread = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"

        async def receive_on() -> Message:
            nonlocal unread
            message = await receive()
            unread = unread and bool(message.get("more_body"))
            return message

        async def send_on(message: Message) -> None:
            nonlocal started
            if unread and not started and b"expect" not in headers:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0):  # what has arrived already
                        while unread:
                            await receive_on()
            if unread and not started:
                # The rest of the body would be taken for the next request, or a next request for the rest.
                message["headers"] = [*(each for each in message["headers"] if each != _CLOSE), _CLOSE]
                door.ignore()
            started = True
            await send(message)

        door.begin()
        try:
            await self.app(scope, receive_on, send_on)
        except asyncio.CancelledError:
            if not self.ending:
                raise
            if not started:  # the time for shutdown is over
                refusal = RefusalError(
                    503, "stopping", "the service is shutting down; try again later", CLOSE
                ).response()
                refusal.headers.update(HEADERS)
                await refusal(scope, receive, send)
        finally:
            door.end()

    def end(self) -> None:
        """Wait only briefly for clients that do not read."""
        self.ending = True
        for door in self.open.values():
            door.hurry()


class Connection(asyncio.Protocol):
    """One connection: passes bytes to uvicorn's protocol, and closes if they come or go too slowly."""

    def __init__(self, doors: Doors, **given: Any) -> None:
        self._doors, self._inner = doors, HttpToolsProtocol(**given)
        self._clocks: dict[str, asyncio.TimerHandle] = {}
        self._head: bytearray | None = None  # the part of the headers received so far; None if none are expected
        self._refused, self._ignored = False, 0

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first headers."""
        self._transport: Any = transport
        self._client = tuple((transport.get_extra_info("peername") or ())[:2])
        if len(self._doors.open) >= CONNECTIONS:
            message = "too many connections are open; try again"
            self._refuse(RefusalError(503, "busy", message, {"retry-after": "1"}))
            return
        self._doors.open[self._client] = self
        self.end()
        self._inner.connection_made(_Line(transport, self))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        """Pass bytes on, and count those of the headers, without line ends before them."""
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
            self._refuse(
                RefusalError(431, "head_too_large", f"request line and headers may have at most {HEAD_BYTES:,} bytes")
            )

    def eof_received(self) -> None:
        """The client sends nothing more."""
        if not self._refused:
            self._inner.eof_received()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._inner.pause_writing()
        self._start("stall", END_SECONDS if self._doors.ending else STALL_SECONDS, self._transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        self._stop("stall")
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        for name in list(self._clocks):
            self._stop(name)
        if self._doors.open.get(self._client) is self:
            del self._doors.open[self._client]
            self._inner.connection_lost(exc)

    # Called by Doors

    def begin(self) -> None:
        """The headers of a request are complete."""
        self._stop("head")
        self._head = None

    def end(self) -> None:
        """The request is answered: wait for the next headers."""
        self._head = bytearray()
        self._start("head", HEAD_SECONDS, self._too_late)

    def ignore(self) -> None:
        """Ignore what else comes, and close once the answer is sent."""
        self._refused = True

    def hurry(self) -> None:
        """Give up soon on a client that does not read."""
        if "stall" in self._clocks:
            self._start("stall", END_SECONDS, self._transport.abort)

    def finish(self) -> None:
        """Close; if more may come, only after a short time: closing with unread bytes would discard the answer."""
        if self._refused:
            self._start("refused", END_SECONDS / 4, self.close)
        else:
            self.close()

    def close(self) -> None:
        """Close after the last bytes are sent, or after a short time."""
        self._transport.close()
        self._start("close", END_SECONDS, self._transport.abort)

    def _too_late(self) -> None:
        self._stop("head")
        if self._head is not None and not self._head:
            self.close()  # nothing was asked, so no answer is expected
        else:
            message = f"request line and headers did not arrive within {HEAD_SECONDS:g} s"
            self._refuse(RefusalError(408, "slow_head", message))

    def _refuse(self, refusal: RefusalError) -> None:
        self._refused = True
        self._transport.write(written(refusal))
        self.finish()

    def _start(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        self._stop(name)
        if not self._transport.is_closing() or name == "close":
            self._clocks[name] = asyncio.get_running_loop().call_later(seconds, then)

    def _stop(self, name: str) -> None:
        clock = self._clocks.pop(name, None)
        if clock is not None:
            clock.cancel()


class _Line:
    """The transport that uvicorn uses: answers malformed HTTP with our refusal, and closes in bounded time."""

    def __init__(self, transport: Any, connection: Connection) -> None:
        self._transport, self._connection = transport, connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1 400 ") and data.endswith(_MALFORMED):
            data = written(RefusalError(400, "not_http", "the request is not valid HTTP"))
        self._transport.write(data)

    def close(self) -> None:
        self._connection.finish()


def written(refusal: RefusalError) -> bytes:
    """A refusal as bytes, for requests that never reach the application."""
    response = refusal.response()
    headers = {**HEADERS, **dict(response.headers), **CLOSE}
    lines = [f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + bytes(response.body)


class Server(uvicorn.Server):
    """Reports its start, and shuts down in bounded time: answers requests in flight and refuses new ones."""

    def __init__(self, config: uvicorn.Config, doors: Doors) -> None:
        super().__init__(config)
        self.doors = doors
        self.on_start: Callable[[], None] | None = None

    async def startup(self, sockets: Any = None) -> None:
        """Call `on_start` once requests are accepted."""
        await super().startup(sockets)
        if self.started and self.on_start is not None:
            self.on_start()

    async def shutdown(self, sockets: Any = None) -> None:
        """Do not wait for clients that do not read."""
        self.doors.end()
        await super().shutdown(sockets)


def server_of(app: Any) -> Server:
    """A server for the application; at shutdown, requests in flight have a few seconds to finish."""
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
    # Otherwise the thread of the model would delay the event loop by 5 ms at each system call.
    sys.setswitchinterval(0.0002)
    server = server_of(app)
    server.on_start = on_start
    # uvicorn raises the signal again after it has handled it: these handlers catch that.
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
            if thread.is_alive():  # a call that no client waits for any more, but Python would
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
