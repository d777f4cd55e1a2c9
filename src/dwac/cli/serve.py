"""`dwac serve`: a model as a documented REST API, on this machine or, with a token, on the network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from dwac.cli.listening import is_loopback, listen, read_token, url_of
from dwac.cli.options import DeviceOption, ModelArgument
from dwac.errors import InputError
from dwac.estimator import load


def serve(
    model: ModelArgument,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any address except loopback needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="File whose first line is the bearer token; or set DWAC_TOKEN.")
    ] = None,
    private: Annotated[
        bool,
        typer.Option("--private", help="Show labels and rounded shares only; always on for private models."),
    ] = False,
    rows: Annotated[int | None, typer.Option(min=1, help="Maximum rows per request; by default 256.")] = None,
    body_bytes: Annotated[int | None, typer.Option(min=1, help="Maximum bytes per request; by default 4 MiB.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.01, help="Maximum seconds to wait for an answer; by default 10.")
    ] = None,
    device: DeviceOption = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads of the model; by default all cores except one.")
    ] = None,
) -> None:
    """Serve predictions, explanations and prediction sets over HTTP, until Ctrl-C.

    The page /docs describes every request and lets you try it. Example: dwac serve model/ --port 8000
    """
    try:
        from dwac.server import Limits, create_app
        from dwac.server.gate import LOOPBACK
        from dwac.server.run import serve as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "dwac":
            raise
        raise InputError(f"dwac serve needs {error.name}: pip install 'dwac[server]'") from None
    token, local = read_token(token_file), is_loopback(host)
    if not local and token is None:
        raise InputError(
            f"{host} can be reached from other machines, so a token is required; give --token-file or set DWAC_TOKEN"
        )
    torch.set_num_threads(threads or max(1, (os.cpu_count() or 1) - 1))
    asked = {"rows": rows, "body_bytes": body_bytes, "seconds": seconds}
    limits = Limits(**{name: value for name, value in asked.items() if value is not None})  # type: ignore[arg-type]
    hosts = (*LOOPBACK, host) if local else None
    hidden = True if private else None
    app = create_app(load(model, device=device), token=token, limits=limits, private=hidden, hosts=hosts)
    listener = listen(host, port)
    url = url_of(host, listener)

    def announce() -> None:
        Console().print(
            f"Serving {model} at {url}; documentation at {url}/docs; stop with Ctrl-C", soft_wrap=True, highlight=False
        )

    run(app, [listener], on_start=announce)
