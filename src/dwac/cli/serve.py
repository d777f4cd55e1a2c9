"""`dwac serve`: a model as a documented REST API, on this machine or, with a token, on the network."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from dwac._machine import cores
from dwac.cli import options
from dwac.errors import InputError


def serve(
    model: options.Model,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any address except loopback needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="File whose first line is the bearer token; or set DWAC_TOKEN.")
    ] = None,
    private: options.Private = False,
    rows: Annotated[int | None, typer.Option(min=1, help="Maximum number of rows per request. Default: 256.")] = None,
    body_bytes: Annotated[int | None, typer.Option(min=1, help="Maximum bytes per request. Default: 4 MiB.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.01, help="Maximum seconds to wait for an answer. Default: 10.")
    ] = None,
    unknown: options.Unknown = None,
    device: options.Device = "auto",
    expect: options.Expect = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="CPU threads of each worker. Default: all cores except one, divided among the workers."
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(min=1, max=256, metavar="N", help="Processes that answer, each with its own copy of the model."),
    ] = 1,
    monitor_state: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Keep the state of the monitor here, so that it continues after a restart."
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column that the monitor leaves out, such as a date; may be repeated."),
    ] = None,
    record: options.Record = None,
    monitor: Annotated[
        bool, typer.Option("--monitor/--no-monitor", help="Watch whether rows still resemble the calibration rows.")
    ] = True,
) -> None:
    """Serve predictions, explanations and prediction sets over HTTP, until Ctrl-C.

    The page /docs describes every request and lets you try it. GET /v1/monitor says whether the rows of requests still
    resemble the calibration rows, and GET /v1/metrics counts requests for Prometheus.

    Examples:

    dwac serve model/ --port 8000

    dwac serve model/ --workers 4 --monitor-state monitor/
    """
    options.check_model(model)
    with needs_server("serve"):
        from dwac.server import Limits
        from dwac.server.gate import LOOPBACK
        from dwac.server.run import serve as run
        from dwac.server.watch import prepare_folder
        from dwac.server.workers import Plan, Supervisor
    token, local = read_token(token_file), is_loopback(host)
    if not local and token is None:
        raise InputError(
            f"{host} can be reached from other machines, so a token is required; give --token-file or set DWAC_TOKEN"
        )
    limits = {"rows": rows, "body_bytes": body_bytes, "seconds": seconds}
    with TemporaryDirectory(prefix="dwac-serve-") if workers > 1 else nullcontext() as shared:
        plan = Plan(
            model=str(model),
            device=device,
            expect=expect,
            unknown=unknown,
            threads=threads or max(1, (cores() - 1) // workers),
            token=token,
            limits=Limits(**{name: value for name, value in limits.items() if value is not None}),  # type: ignore[arg-type]
            private=True if private else None,
            hosts=(*LOOPBACK, host) if local else None,
            ignore=tuple(ignore or ()),
            monitored=monitor,
            folder=str(monitor_state) if monitor_state is not None else shared,
            counters=shared,
            record=record,
            workers=workers,
        )
        if monitor_state is not None:
            prepare_folder(monitor_state, workers)
        app = plan.app(0) if workers == 1 else None
        listener = listen(host, port)
        url = url_of(host, listener)

        def announce() -> None:
            by = f" with {workers} workers" if workers > 1 else ""
            text = f"Serving {model} at {url}{by}; documentation at {url}/docs; stop with Ctrl-C"
            Console().print(text, soft_wrap=True, highlight=False)

        if app is not None:
            run(app, [listener], on_start=announce)
        else:
            Supervisor(plan, listener).run(announce)


# The address and the token, also of `dwac explore`


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
        lines = path.read_text(encoding="utf-8-sig").splitlines()
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
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        # Name the protocol: otherwise asyncio does not treat it as TCP, and answers wait 40 ms for an acknowledgement.
        listener = socket.socket(family, kind, protocol)
        try:
            if sys.platform == "win32":  # where the other option would share a port with a service that has it
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
            else:
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
