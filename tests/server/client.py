"""A service on a real socket, and a client; its limits end when the test says so, however slow the machine is."""

import asyncio
import http.client
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwac.server import run as running

DWAC = Path(sys.executable).parent / "dwac"
TOKEN = "correct-horse-battery-staple"
HANG = 120  # seconds after which a test gives up
_TICK = 0.3  # seconds: shorter waits of a service are its pulse, longer ones are limits
_FAR = 1e9  # seconds


class HeldLoop(asyncio.SelectorEventLoop):
    """An event loop whose waits of more than a tick end by `skip` alone."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._held: list[tuple[float, asyncio.TimerHandle]] = []
        super().__init__()

    def time(self) -> float:
        return super().time() + self._ahead

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        if delay <= _TICK:
            return super().call_at(self.time() + delay, callback, *args, context=context)
        handle = super().call_at(self.time() + delay + _FAR, callback, *args, context=context)
        self._held.append((self._ahead + delay, handle))
        return handle

    def skip(self, seconds: float) -> None:
        """End the waits that the next seconds would end, in their order."""
        self._ahead += seconds
        self._held = [each for each in self._held if not each[1].cancelled()]
        for due, handle in sorted(self._held, key=lambda each: each[0]):
            if due <= self._ahead and not handle.cancelled():
                handle._run()
                handle.cancel()


@dataclass
class Client:
    port: int
    loop: HeldLoop | None = None

    def skip(self, seconds: float) -> None:
        """Move the clock of the service, and wait until it has seen that."""
        assert self.loop is not None
        done = threading.Event()
        self.loop.call_soon_threadsafe(lambda: (self.loop.skip(seconds), done.set()))  # type: ignore[union-attr,func-returns-value]
        assert done.wait(HANG)

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> "Answer":
        """One request; a body that is no bytes goes as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG)
        try:
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            kind = {} if body is None else {"content-type": "application/json"}
            connection.request(method, path, body, {**kind, **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> "Answer":
        return self.ask("GET", path, None, headers)

    def post(self, path: str, body: Any, **headers: str) -> "Answer":
        return self.ask("POST", path, body, headers)

    def raw(self, data: bytes) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=HANG)
        sock.sendall(data)
        return sock


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """That of an error, which has the promised form."""
        assert set(self.json) == {"error"}
        assert set(self.json["error"]) == {"code", "message"}
        return str(self.json["error"]["code"])


@contextmanager
def served(app: Any, *, grace: bool = True) -> Iterator[Client]:
    """The application on a free port, in a thread; without grace, requests in flight at its end run out of time."""
    listener, loop = socket.create_server(("127.0.0.1", 0)), HeldLoop()
    server = running.server_of(app)

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(server.serve(sockets=[listener]))

    thread = threading.Thread(target=run)
    thread.start()
    while not server.started:
        loop.call_soon_threadsafe(loop.skip, 0.1)
        thread.join(0.01)
        assert thread.is_alive()
    try:
        yield Client(listener.getsockname()[1], loop)
    except BaseException:
        grace = False
        raise
    finally:
        server.should_exit = True
        while thread.is_alive():
            if not grace or not server.server_state.tasks:
                with suppress(RuntimeError):  # it has just ended
                    loop.call_soon_threadsafe(loop.skip, 0.1)
            thread.join(0.01)


def until(true: Callable[[], Any]) -> None:
    """Wait for what will be true; only what never is fails."""
    end = time.monotonic() + HANG
    while not true():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)
