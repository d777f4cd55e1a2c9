"""Running the application: uvicorn with a clock on every head and a clean end."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0  # for a request's line and headers to arrive
CONNECTIONS = 512  # open at once


class PatientProtocol(H11Protocol):
    """Closes connections on which no whole head arrives in time: else each slow one would be held for ever."""

    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock with the connection."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Stop it while a request is answered, start it when a further head has begun."""
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and self._clock is not None:
            self._clock.cancel()
            self._clock = None
        elif not answering and self._clock is None:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left to watch."""
        if self._clock is not None:
            self._clock.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        self._clock = self.loop.call_later(HEAD_SECONDS, self._too_late)

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
    server = server_of(app)
    server.on_start = on_start
    with suppress(KeyboardInterrupt):
        server.run(sockets=sockets)
