"""The address that `serve` and `explore` listen on, and the token that they require."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dwac.errors import InputError


@contextmanager
def needs_server(command: str) -> Iterator[None]:
    """Name the extra that a command needs, if an import inside fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "dwac":
            raise
        raise InputError(f"dwac {command} needs {error.name}: pip install 'dwac[server]'") from None


def read_token(path: Path | None) -> str | None:
    """The token. It is never a command-line argument, because other users of the machine can see those."""
    if path is None:
        return os.environ.get("DWAC_TOKEN") or None
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--token-file must be a readable text file: {error}") from None
    if not lines or not lines[0].strip():
        raise InputError(f"--token-file must have the token in its first line; the first line of {path} is empty")
    return lines[0].strip()


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """A bound socket: an unavailable address is reported before the service starts."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        # Name the protocol: otherwise asyncio does not treat it as TCP, and answers wait 40 ms for an acknowledgement.
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        raise InputError(f"cannot listen on {host} port {port}: {error}; choose another --port") from None
    return listener


def url_of(host: str, listener: socket.socket) -> str:
    """The address for a browser."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"
