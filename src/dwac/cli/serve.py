"""`dwac serve`: a model as a documented REST API, on this machine or, with a token, for others."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from dwac.classifier import load
from dwac.cli.options import DeviceOption, ModelArgument
from dwac.errors import InputError


def serve(
    model: ModelArgument,
    host: Annotated[str, typer.Option(help="Address to listen on; any but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any free one.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="File whose first line is the bearer token; or set DWAC_TOKEN.")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Explanations show weights and labels only, no training record or id.")
    ] = False,
    rows: Annotated[int | None, typer.Option(min=1, help="Most rows of one request; by default 256.")] = None,
    body_bytes: Annotated[int | None, typer.Option(min=1, help="Most bytes of one request; by default 4 MiB.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0.01, help="Longest wait for an answer; by default 10.")] = None,
    device: DeviceOption = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of the model on a CPU; by default all cores but the one that answers.")
    ] = None,
) -> None:
    """Serve predictions, explanations and label sets over HTTP, until Ctrl-C.

    GET /docs shows and tries out what can be asked. Example: dwac serve model/ --port 8000
    """
    try:
        from dwac.server import Limits, create_app
        from dwac.server.gate import LOOPBACK
        from dwac.server.run import serve as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "dwac":
            raise
        raise InputError(f"dwac serve needs {error.name}: pip install 'dwac[server]'") from None
    token, local = _token(token_file), _is_loopback(host)
    if not local and token is None:
        raise InputError(f"{host} can be reached by others, so a token is required: --token-file FILE or DWAC_TOKEN")
    torch.set_num_threads(threads or max(1, (os.cpu_count() or 1) - 1))
    asked = {"rows": rows, "body_bytes": body_bytes, "seconds": seconds}
    limits = Limits(**{name: value for name, value in asked.items() if value is not None})  # type: ignore[arg-type]
    hosts = (*LOOPBACK, host) if local else None
    app = create_app(load(model, device=device), token=token, limits=limits, private=private, hosts=hosts)
    listener = _listener(host, port)
    name = f"[{host}]" if ":" in host else host
    url = f"http://{name}:{listener.getsockname()[1]}"

    def say() -> None:
        Console().print(f"{model} is served at {url}: see {url}/docs; Ctrl-C ends it", soft_wrap=True, highlight=False)

    run(app, [listener], on_start=say)


def _token(path: Path | None) -> str | None:
    """The token: never an argument, for everyone on the machine can see those."""
    if path is None:
        return os.environ.get("DWAC_TOKEN") or None
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--token-file must be a readable text file: {error}") from None
    if not lines or not lines[0].strip():
        raise InputError(f"--token-file must have the token in its first line; that of {path} is empty")
    return lines[0].strip()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _listener(host: str, port: int) -> socket.socket:
    """A listening socket, so that an address that cannot be had is known before the model says it is served."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        # With its protocol: else asyncio does not know it for TCP, and answers wait 40 ms for an acknowledgement.
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
