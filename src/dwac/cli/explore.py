"""`dwac explore`: a local page to look into every prediction."""

from __future__ import annotations

import secrets
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from dwac.cli import options
from dwac.cli.output import print_notes, print_written
from dwac.cli.rows import report_unreadable
from dwac.cli.serve import is_loopback, listen, needs_server, read_token, url_of
from dwac.errors import EPSILON, InputError

if TYPE_CHECKING:
    from dwac.reading import Model, Rows


@options.with_bundles
def explore(
    model: options.Model,
    data: Annotated[
        str | None, typer.Argument(metavar="[DATA]", help="Rows to explore. Default: the training examples.")
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL", callback=options.from_hub, help="A second model: show where the two disagree on the data."
        ),
    ] = None,
    private: options.Private = False,
    by: options.By = None,
    epsilon: options.Epsilon = EPSILON,
    target: options.Target = None,
    ids: options.Id = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 0,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File whose first line is the token of the page; or set DWAC_TOKEN. Default: a new one."),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    most: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum number of training examples shown if no data is given (20,000); with -o, of examples that "
            "the file explains (600).",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the page to this .html file; it needs no server."),
    ] = None,
    *,
    reading: options.ReadingOptions,
    tables: options.TableOptions,
) -> None:
    """Explore predictions in your browser: a map, the votes, and what would change without them. Runs until Ctrl-C.

    Examples:

    dwac explore model/ new.csv

    dwac explore model/ new.csv --compare other-model/

    dwac explore model/ test.csv --by sex       # measures by group, beside the map

    dwac explore model/ new.csv -o page.html    # one file with these rows, to read or to put on a site
    """
    options.check_rows(model, tables.form, data)
    if output is not None:
        options.check_file(output, "-o")
    with needs_server("explore"):
        from dwac.server.explorer import Explorer, explorer_app, onefile
        from dwac.server.explorer.page import address
        from dwac.server.explorer.views import MOST
        from dwac.server.gate import LOOPBACK
        from dwac.server.run import serve
    from dwac.reading import load

    if compare is not None and data is None:
        raise InputError("--compare needs data to compare the models on: dwac explore MODEL DATA --compare OTHER")
    arguments = {**tables.arguments(), "target": target, "text": reading.text, "ids": ids, "keep": by or ()}
    loaded = load(model, device=reading.device, expect=reading.expect)
    rows = None if data is None else _read_rows(data, loaded, arguments)
    print_notes(() if rows is None else rows.notes)
    rival = None
    if compare is not None and data is not None:
        other = load(compare, device=reading.device)
        rival = (other.clf, _read_rows(data, other, arguments).X, options.model_name(compare))
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("predicting" if output is None else "predicting and explaining")

        def show_progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        explorer = Explorer.of(
            loaded.clf,
            None if rows is None else rows.X,
            None if rows is None else rows.y,
            ids=None if rows is None else rows.ids,
            rival=rival,
            by=None if rows is None else rows.kept,
            private=True if private else None,
            most=most or MOST,
            progress=show_progress,
            title=options.model_name(model),
            epsilon=epsilon,
        )
        if output is not None:
            onefile.write_page(explorer, output, most=most or onefile.HELD, progress=show_progress)
    if rows is not None:
        report_unreadable(explorer.unreadable, rows, strict=reading.strict, fate="are left out")
    if output is not None:
        print_written(f"{output} ({output.stat().st_size / 1e6:.1f} MB). {onefile.describe_content(explorer, most)}")
        return
    token = read_token(token_file) or secrets.token_urlsafe(24)
    app = explorer_app(explorer, token=token, hosts=(*LOOPBACK, host) if is_loopback(host) else None)
    listener = listen(host, port)
    url = address(url_of(host, listener), token)

    def announce() -> None:
        Console().print(f"Exploring {model} at {url} ; stop with Ctrl-C", soft_wrap=True, highlight=False)
        if browser:
            webbrowser.open(url)

    serve(app, [listener], on_start=announce)


def _read_rows(data: str, model: Model, arguments: dict[str, Any]) -> Rows:
    """The rows, with their labels if the data has them."""
    from dwac.reading import read

    if arguments["target"] is not None or data == "-":  # a pipe can be read only once
        return read(data, like=model, labelled=arguments["target"] is not None, **arguments)
    try:
        return read(data, like=model, labelled=True, **arguments)
    except InputError:
        return read(data, like=model, labelled=False, **arguments)
