"""Running the application: uvicorn, with a limit on every wait for a client, and a shutdown in bounded time.

uvicorn handles HTTP. `Connection` limits what uvicorn does not: the time and length of headers, idle connections, and
clients that do not read their answers (docs/decisions/0033-the-service-on-uvicorn.md).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dwac.server.batching import THREAD
from dwac.server.gate import HEADERS
from dwac.server.limits import CLOSE, RefusalError

HEAD_SECONDS = 10  # for request line and headers to arrive, from the start of the connection or the previous answer
HEAD_BYTES = 2**16  # of request line and headers
CONNECTIONS = 512  # open at once
STALL_SECONDS = 30  # that a client may pause reading its answer
GRACE_SECONDS = 4  # for requests in flight at shutdown
# After a refusal, further bytes are ignored: closing with unread bytes would discard the refusal.
_LINGER_SECONDS, _MOST_IGNORED = 0.5, 2**23  # bytes


class Connection(HttpToolsProtocol):
    """A connection of uvicorn that closes if its client sends headers, or reads answers, too slowly."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first headers."""
        super().connection_made(transport)
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._head_bytes: int | None = None  # of the headers that are arriving; None if none are
        self._ignored: int | None = None  # bytes since a refusal
        self._message_ended = False
        if len(self.connections) > CONNECTIONS:
            message = "too many connections are open; try again"
            self._refuse(RefusalError(503, "busy", message, {"retry-after": "1"}))
        else:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._end_wait_for_head)

    def data_received(self, data: bytes) -> None:
        """Parse bytes, and count those of headers."""
        if self._ignored is not None:
            self._ignored += len(data)
            if self._ignored > _MOST_IGNORED:
                self.transport.abort()
            return
        self._message_ended = False
        super().data_received(data)
        if self._head_bytes is not None and not self._message_ended:  # otherwise most of the bytes belong to a body
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                message = f"request line and headers may have at most {HEAD_BYTES:,} bytes"
                self._refuse(RefusalError(431, "head_too_large", message))

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        _cancel(self._head_timer)
        _cancel(self._stall_timer)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        super().pause_writing()
        self._stall_timer = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        _cancel(self._stall_timer)
        super().resume_writing()

    # Called by the parser and by uvicorn's cycle of request and answer

    def on_message_begin(self) -> None:
        """The first byte of headers."""
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """From here on the limits of the service apply, until the request is answered."""
        self._head_bytes = None
        _cancel(self._head_timer)
        super().on_headers_complete()
        self.cycle.transport = _JoinedWrites(self.transport)  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        """The last byte of a body."""
        self._message_ended = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next headers; the rest of an unread body is ignored meanwhile."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
        else:
            _cancel(self._head_timer)
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._end_wait_for_head)

    def send_400_response(self, msg: str) -> None:
        """Answer in the form of all refusals."""
        del msg
        self._refuse(RefusalError(400, "not_http", "the request is not valid HTTP"))

    def _end_wait_for_head(self) -> None:
        if self._head_bytes is None:
            self._close()  # there was no request, so no answer is expected
        else:
            message = f"request line and headers did not arrive within {HEAD_SECONDS} s"
            self._refuse(RefusalError(408, "slow_head", message))

    def _refuse(self, refusal: RefusalError) -> None:
        """Answer a request that never reaches the application, and ignore further bytes."""
        self._ignored = 0
        _cancel(self._head_timer)
        self.transport.write(refusal_bytes(refusal))
        self.loop.call_later(_LINGER_SECONDS, self._close)

    def _close(self) -> None:
        """Close after the client has read the last bytes, or after a time limit."""
        self.transport.close()
        self.loop.call_later(STALL_SECONDS, self.transport.abort)


class _JoinedWrites:
    """A transport that sends the head of an answer together with the first part of its body: in one system call."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        """Keep the head, and send it with what follows."""
        if self._head is None:
            self._head = data
        else:
            self._transport.write(self._head + data if self._head else data)
            self._head = b""

    def close(self) -> None:
        """Send the head if nothing followed, and close."""
        if self._head:
            self._transport.write(self._head)
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def refusal_bytes(refusal: RefusalError) -> bytes:
    """A refusal as bytes."""
    response = refusal.response()
    headers = {**HEADERS, **dict(response.headers), **CLOSE}
    lines = [f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + bytes(response.body)


class Server(uvicorn.Server):
    """A server that reports its start, and leaves no connection open at its end."""

    on_start: Callable[[], None] | None = None

    async def startup(self, sockets: Any = None) -> None:
        """Call `on_start` once requests are accepted."""
        await super().startup(sockets)
        if self.started and self.on_start is not None:
            self.on_start()

    async def shutdown(self, sockets: Any = None) -> None:
        """Answer requests in flight, for a few seconds; clients that have not read their answers by then lose them."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def server_of(app: Any) -> Server:
    """A server for the application."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=HEAD_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return Server(config)


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
            thread.join(1)
            if thread.is_alive():  # a call whose clients have gone, but Python would wait for it
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
