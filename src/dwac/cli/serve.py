"""`dwac serve`: a model as a documented REST API, on this machine or, with a token, on the network."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from dwac._machine import cores
from dwac.cli import options
from dwac.cli.listening import is_loopback, listen, needs_server, read_token, url_of
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
    rows: Annotated[int | None, typer.Option(min=1, help="Maximum rows per request; by default 256.")] = None,
    body_bytes: Annotated[int | None, typer.Option(min=1, help="Maximum bytes per request; by default 4 MiB.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.01, help="Maximum seconds to wait for an answer; by default 10.")
    ] = None,
    unknown: options.Unknown = None,
    device: options.Device = "auto",
    expect: options.Expect = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads of each worker's model; by default all cores except one, divided."),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(min=1, max=256, metavar="N", help="Processes that answer, each with its own copy of the model."),
    ] = 1,
    monitor_state: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep the monitor here, so that it goes on after a restart."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column that the monitor leaves out, such as a date; repeatable."),
    ] = None,
    monitor: Annotated[
        bool, typer.Option("--monitor/--no-monitor", help="Watch whether rows are still like those of calibration.")
    ] = True,
) -> None:
    """Serve predictions, explanations and prediction sets over HTTP, until Ctrl-C.

    The page /docs describes every request and lets you try it. GET /v1/monitor says whether the rows that were
    predicted are still like those of calibration, and GET /v1/metrics counts requests for Prometheus.

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
    asked = {"rows": rows, "body_bytes": body_bytes, "seconds": seconds}
    with TemporaryDirectory(prefix="dwac-serve-") if workers > 1 else nullcontext() as shared:
        plan = Plan(
            model=str(model),
            device=device,
            expect=expect,
            unknown=unknown,
            threads=threads or max(1, (cores() - 1) // workers),
            token=token,
            limits=Limits(**{name: value for name, value in asked.items() if value is not None}),  # type: ignore[arg-type]
            private=True if private else None,
            hosts=(*LOOPBACK, host) if local else None,
            ignore=tuple(ignore or ()),
            monitored=monitor,
            folder=str(monitor_state) if monitor_state is not None else shared,
            counters=shared,
            workers=workers,
        )
        if monitor_state is not None:
            prepare_folder(monitor_state, workers)
        app = plan.app(0) if workers == 1 else None
        listener = listen(host, port)
        url = url_of(host, listener)

        def announce() -> None:
            by = f" by {workers} workers" if workers > 1 else ""
            text = f"Serving {model} at {url}{by}; documentation at {url}/docs; stop with Ctrl-C"
            Console().print(text, soft_wrap=True, highlight=False)

        if app is not None:
            run(app, [listener], on_start=announce)
        else:
            Supervisor(plan, listener).run(announce)
