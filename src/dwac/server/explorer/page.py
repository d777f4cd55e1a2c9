"""The page in a browser: the application behind it, and a server in the background for notebooks."""

from __future__ import annotations

import secrets
import socket
import threading
import time
import webbrowser
from collections.abc import Collection
from typing import Any

from fastapi import FastAPI

from dwac.drawing.pages import render
from dwac.errors import DwacError
from dwac.server.app import create_app
from dwac.server.explorer.api import router
from dwac.server.explorer.state import Explorer
from dwac.server.gate import LOOPBACK
from dwac.server.run import Server, server_of

_PATIENCE = 30.0  # seconds for a server to start or stop


def explorer_app(
    explorer: Explorer, *, token: str, hosts: Collection[str] | None = LOOPBACK, framed: bool = False
) -> FastAPI:
    """The explorer's page and, behind the same gate, the REST API of its model; framed: as for `router`."""
    routers = [router(explorer, framed=framed)]
    return create_app(explorer.clf, token=token, private=explorer.private, hosts=hosts, routers=routers)


def address(url: str, token: str) -> str:
    """The address of the page. The token follows the #, a part that browsers never send; the page reads it there."""
    return f"{url}/#token={token}"


class Page:
    """A page served from this process until `stop` or its end. A notebook shows it in a frame, with its address."""

    def __init__(self, url: str, server: Server, thread: threading.Thread) -> None:
        self.url, self._server, self._thread = url, server, thread

    def stop(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        self._thread.join(_PATIENCE)

    def __repr__(self) -> str:
        return f"Page({self.url!r})"

    def _repr_html_(self) -> str:
        return render("server/explorer/link.html", url=self.url)


def open_page(explorer: Explorer, *, port: int = 0, show: bool = True) -> Page:
    """Serve the page on loopback in the background; `show`: open a browser."""
    token = secrets.token_urlsafe(24)
    server = server_of(explorer_app(explorer, token=token, framed=True))
    listener = socket.create_server(("127.0.0.1", port))
    options: dict[str, Any] = {"sockets": [listener]}
    thread = threading.Thread(target=server.run, kwargs=options, name="dwac-explorer", daemon=True)
    thread.start()
    end = time.monotonic() + _PATIENCE
    while not server.started:
        if not thread.is_alive() or time.monotonic() > end:
            raise DwacError("the server of the explorer did not start; see its log")
        time.sleep(0.01)
    page = Page(address(f"http://127.0.0.1:{listener.getsockname()[1]}", token), server, thread)
    if show:
        webbrowser.open(page.url)
    return page
