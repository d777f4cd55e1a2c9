"""The gate before every route: checks token and host name, counts requests, and adds headers to every answer."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Collection, Iterable

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dwac.server.limits import CLOSE, STOPPING, RefusalError, refusal_of
from dwac.server.watch import Metrics

log = logging.getLogger("dwac.server")

_STATIC = "/static/"  # no path below it needs a token
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Load nothing from other hosts, no inline script or style, not inside a frame.
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_RAW = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
_CLOSE = [(name.encode(), value.encode()) for name, value in CLOSE.items()]


class Gate:
    """ASGI middleware.

    Args:
        app: the application behind the gate.
        metrics: counts every request.
        admit: refuses work if there is too much of it; done here, where a refusal is cheapest.
        token: bearer token that every path except the open ones requires.
        hosts: host names that requests may use; None for any. On loopback this stops a foreign web page whose name
            was made to point here (DNS rebinding) from reading the answers.
        open_paths: paths that need no token, besides those of static files.
        fingerprint: of the model's folder, in every answer of the API that the token allows.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        admit: Callable[[], object],
        token: str | None = None,
        hosts: Collection[str] | None = LOOPBACK,
        open_paths: Iterable[str] = (),
        fingerprint: str | None = None,
    ) -> None:
        self.app, self.metrics, self.admit = app, metrics, admit
        self.token = None if token is None else f"Bearer {token}".encode()
        self.hosts = None if hosts is None else {host.lower() for host in hosts}
        self.open_paths = frozenset(open_paths)
        self.mark = [] if fingerprint is None else [(b"dwac-fingerprint", fingerprint.encode())]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit or refuse. Any error behind the gate becomes an answer and never stops the service."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0
        # After a refusal, a client that expects 100 Continue may send the body or its next request: no telling which.
        mark = list(_CLOSE) if any(name == b"expect" for name, _ in scope["headers"]) else []

        async def send_safely(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(each for each in _RAW if each[0] not in own), *mark]
            await send(message)

        try:
            self._admit(scope)
            if scope["path"] not in self.open_paths:
                mark += self.mark
            await self.app(scope, receive, send_safely)
        except ClientDisconnect:
            status = status or 499  # the client disconnected
        except asyncio.CancelledError:  # the time for shutdown is over
            if not status:
                await STOPPING.response()(scope, receive, send_safely)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in native code is not an Exception
            refusal = refusal_of(error)
            if refusal.status == 500:
                log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
            if not status:
                await refusal.response()(scope, receive, send_safely)
        finally:
            self.metrics.request(scope["path"], status, time.perf_counter() - start)

    def _admit(self, scope: Scope) -> None:
        headers, path = dict(scope["headers"]), scope["path"]
        if self.hosts is not None:
            for name in (b"host", b"origin"):
                if name in headers and _host(headers[name].decode("latin-1")) not in self.hosts:
                    names = ", ".join(sorted(self.hosts))
                    raise RefusalError(421, "wrong_host", f"the {name.decode()} header must name {names}; got another")
        token = None if path in self.open_paths or path.startswith(_STATIC) else self.token
        if token is not None and not hmac.compare_digest(headers.get(b"authorization", b""), token):  # in constant time
            message = "a token is required; send the header Authorization: Bearer …"
            raise RefusalError(401, "unauthorized", message, {"www-authenticate": "Bearer"})
        if scope["method"] == "POST" and path.startswith("/v1/"):
            self.admit()


def _host(value: str) -> str:
    """The name in a Host or Origin header, without scheme, port and brackets."""
    name = value.strip().lower().rpartition("://")[2]
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]
