"""Running the application: uvicorn with a clock on every head and a clean end."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0  # for a request's line and headers to arrive
HEAD_BYTES = 2**16  # of these
CONNECTIONS = 512  # open at once


class PatientProtocol(HttpToolsProtocol):
    """Closes connections on which no whole head arrives, or too long a one: else each would be held for ever."""

    _clock: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first head is due from now on."""
        super().connection_made(transport)
        self._await_head()

    def on_message_begin(self) -> None:
        """A further head has begun."""
        super().on_message_begin()
        self._head_bytes = 0
        self._await_head()

    def on_headers_complete(self) -> None:
        """It is whole: from here on the service's own limits hold."""
        super().on_headers_complete()
        self._stop()

    def data_received(self, data: bytes) -> None:
        """Count what belongs to a head; line ends between requests are none, and get no more time."""
        super().data_received(data)
        if self._clock is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.transport.close()
        elif self.cycle is None or self.cycle.response_complete:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is due any more."""
        self._stop()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self._clock is None:
            self._clock = self.loop.call_later(HEAD_SECONDS, self._too_late)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _too_late(self) -> None:
        self._clock = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class Server(uvicorn.Server):
    """Ends with 0 on SIGTERM and Ctrl-C: what is in flight is answered, what is new is refused."""

    on_start: Callable[[], None] | None = None

    async def startup(self, sockets: Any = None) -> None:
        """Say so once requests are taken."""
        await super().startup(sockets)
        if self.started and self.on_start is not None:
            self.on_start()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn does, but a signal that was obeyed is not raised again; none come to another thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)


def server_of(app: Any) -> Server:
    """A server for the application, whose requests in flight have some seconds to end when it ends."""
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=15,
    )
    return Server(config)


def serve(app: Any, sockets: list[Any], *, on_start: Callable[[], None] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    # The model's thread would else keep the event loop waiting for 5 ms at each of its calls to the system.
    sys.setswitchinterval(0.0002)
    server = server_of(app)
    server.on_start = on_start
    with suppress(KeyboardInterrupt):
        server.run(sockets=sockets)
