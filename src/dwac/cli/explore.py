"""`dwac explore`: a local page to look into every prediction."""

from __future__ import annotations

import secrets
import webbrowser
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from dwac.cli import unreadable
from dwac.cli.listening import is_loopback, listen, read_token, url_of
from dwac.cli.options import told
from dwac.cli.output import print_notes
from dwac.errors import InputError
from dwac.reading import Model, Rows, load, read


def explore(
    *,
    model: Path,
    data: str | None,
    compare: Path | None,
    private: bool,
    epsilon: float,
    target: list[str] | None,
    text: str | None,
    ids: str | None,
    host: str,
    port: int,
    token_file: Path | None,
    browser: bool,
    most: int,
    device: str,
    expect: str | None,
    form: str | None,
    encoding: str,
    separator: str | None,
    decimal: str | None,
    day_first: bool | None,
    sheet: str | None,
    strict: bool,
) -> None:
    """The work of `dwac explore`; for its options see `dwac.cli.commands.explore`."""
    try:
        from dwac.server.explorer import Explorer, explorer_app
        from dwac.server.explorer.page import address
        from dwac.server.gate import LOOPBACK
        from dwac.server.run import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "dwac":
            raise
        raise InputError(f"dwac explore needs {error.name}: pip install 'dwac[server]'") from None
    if compare is not None and data is None:
        raise InputError("--compare needs data to compare the models on: dwac explore MODEL DATA --compare OTHER")
    given: dict[str, Any] = {"target": target, "text": text, "ids": ids, "form": form, "encoding": encoding}
    given |= {"told": told(separator, decimal, day_first), "sheet": sheet}
    loaded = load(model, device=device, expect=expect)
    rows = None if data is None else _rows(data, loaded, given)
    print_notes(() if rows is None else rows.notes)
    rival = None
    if compare is not None and data is not None:
        other = load(compare, device=device)
        rival = (other.clf, _rows(data, other, given).X, compare.resolve().name)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("predicting")
        explorer = Explorer.of(
            loaded.clf,
            None if rows is None else rows.X,
            None if rows is None else rows.y,
            ids=None if rows is None else rows.ids,
            rival=rival,
            private=True if private else None,
            most=most,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            title=model.resolve().name,
            epsilon=epsilon,
        )
    if rows is not None:
        unreadable.report(explorer.unreadable, rows, strict=strict, fate="are left out")
    token = read_token(token_file) or secrets.token_urlsafe(24)
    app = explorer_app(explorer, token=token, hosts=(*LOOPBACK, host) if is_loopback(host) else None)
    listener = listen(host, port)
    url = address(url_of(host, listener), token)

    def announce() -> None:
        Console().print(f"Exploring {model} at {url} ; stop with Ctrl-C", soft_wrap=True, highlight=False)
        if browser:
            webbrowser.open(url)

    serve(app, [listener], on_start=announce)


def _rows(data: str, model: Model, given: dict[str, Any]) -> Rows:
    """The rows, with their labels if the data has them."""
    if given["target"] is not None or data == "-":  # a pipe can be read only once
        return read(data, like=model, labelled=given["target"] is not None, **given)
    try:
        return read(data, like=model, labelled=True, **given)
    except InputError:
        return read(data, like=model, labelled=False, **given)
