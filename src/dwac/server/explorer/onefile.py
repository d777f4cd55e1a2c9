"""The explorer as one file: the page with the answers that it needs, to be read without a server or a network.

write_page(Explorer.of(clf, X, y), "page.html")        # dwac explore model/ new.csv -o page.html
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import secrets
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message

from dwac.drawing.pages import render
from dwac.errors import InputError
from dwac.server.explorer.api import PAGE, SESSION, K
from dwac.server.explorer.groups import PAGE as LISTED
from dwac.server.explorer.page import explorer_app
from dwac.server.explorer.state import Explorer
from dwac.server.explorer.views import Progress

HELD = 600  # examples whose explanations are in the file
_FREE = re.compile(r"[?&](?:epsilon|k)=[^&]*")  # of a request: the page itself applies ε to p-values, and shows one k
_IMPORT = re.compile(r'\b(from|import) "\./')
_STYLE = '<link rel="stylesheet" href="/static/explorer/style.css">'
_SCRIPT = '<script type="module" src="/static/explorer/main.js"></script>'


def write_page(
    explorer: Explorer, path: str | PathLike[str], *, most: int = HELD, progress: Progress | None = None
) -> Path:
    """Write the page with the explanations and reasons of up to `most` examples: rows of data, then training examples.

    progress: called with the number of examples done and the total.
    """
    file = Path(path)
    if file.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"the file name must end in .html; got {file}")
    with ThreadPoolExecutor(1) as pool:  # a notebook has an event loop of its own in this thread
        answers = pool.submit(asyncio.run, _collect(explorer, most, progress)).result()
    packed = gzip.compress(json.dumps(answers, separators=(",", ":"), ensure_ascii=False).encode(), 9, mtime=0)
    modules = {each.name: _IMPORT.sub(r'\1 "', each.read_text("utf-8")) for each in PAGE.parent.glob("*.js")}
    head = render(
        "server/explorer/onefile.html",
        nonce=sha256(packed).hexdigest()[:32],  # the author of a row of the data cannot know it
        style=(PAGE.parent / "style.css").read_text("utf-8"),
        modules={"imports": {name: _data_url(code) for name, code in sorted(modules.items())}},
        answers=b64encode(packed).decode(),
    )
    page = PAGE.read_text("utf-8")
    assert all(each in page for each in (_STYLE, _SCRIPT)), "the head of the page has changed"
    file.write_text(page.replace(_STYLE, "").replace(_SCRIPT, head), encoding="utf-8")
    return file


def _data_url(code: str) -> str:
    return f"data:text/javascript;charset=utf-8;base64,{b64encode(code.encode()).decode()}"


def describe_content(explorer: Explorer, most: int | None = None) -> str:
    """The rows that the file holds, in words: its readers have them all."""
    points, private = explorer.points, explorer.private
    held = min(len(points), most or HELD)
    rows = f"{points.n_data:,} rows of data"
    what = rows if private else f"{points.n_training:,} training examples and {rows}" if points.n_data else (
        f"{points.n_training:,} training examples"
    )  # fmt: skip
    values = "their positions and predictions, but no values" if private else "their values"
    part = "" if held == len(points) else f" Explanations of {held:,} of them are included."
    return f"This file holds {what} with {values}.{part} It asks no server, and nothing can be changed in it."


async def _collect(explorer: Explorer, most: int, progress: Progress | None) -> dict[str, Any]:
    """The answers of the explorer to the requests that a reader's page makes; bytes as base64."""
    token = secrets.token_urlsafe(24)
    app, points = explorer_app(explorer, token=token, hosts=None), explorer.points
    headers = {"authorization": f"Bearer {token}", SESSION: "0" * 16, "content-type": "application/json"}
    answers: dict[str, Any] = {}

    async def ask(path: str, *, post: bool = False) -> Any:
        kind, content = await _request(app, path, headers, b"{}" if post else None)
        if kind is None:  # refused, such as groups of a private model: the page does not show them either
            return None
        answer = json.loads(content) if kind == "application/json" else b64encode(content).decode()
        answers[_FREE.sub("", path)] = answer
        return answer

    order = [*range(points.n_training, len(points)), *range(points.n_training)][:most]
    start = await ask("/explorer/start")
    start |= {"divisions": [], "split": None, "importance": False, "words": False, "compare": None}
    start["held"] = describe_content(explorer, most)
    start["note"] = " ".join(filter(None, [start["note"], start["held"]]))
    for path in _lists(start):
        await ask(path)
    for disc in range(len(start["discs"])):
        for path in (f"/explorer/discs/{disc}?start={{}}&whole={whole}" for whole in (0, 1)):
            first: dict[str, Any] = await ask(path.format(0))
            for later in range(LISTED, first["n"], LISTED):
                await ask(path.format(later))
    for done, point in enumerate(order, 1):
        await ask(f"/explorer/points/{point}/brief")
        for label in range(len(start["card"].get("labels") or start["card"].get("numbers") or [0])):
            answer = await ask(f"/explorer/points/{point}?k={K}&label={label}")
            answer["editable"] = False
            await ask(f"/explorer/answers/{answer['answer']}/reasons", post=True)
        if progress is not None:
            progress(done, len(order))
    return answers


def _lists(start: dict[str, Any]) -> Iterator[str]:
    """The requests for columns and lists."""
    yield from (f"/explorer/columns/{name}" for name in start["columns"])
    yield from (f"/explorer/values/{place}" for place in range(len(start["data_columns"])))
    yield from ("/explorer/groups", "/explorer/issues")
    if start["worth"]:
        yield from ("/explorer/worth", "/explorer/worth/values")


async def _request(app: ASGIApp, path: str, headers: dict[str, str], body: bytes | None) -> tuple[str | None, bytes]:
    """The media type and the body of an answer, without a network; the type is None if it is a refusal."""
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body or b"", "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    name, _, query = path.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "root_path": "",
        "method": "GET" if body is None else "POST", "path": name, "raw_path": name.encode(),
        "query_string": query.encode(), "client": None, "server": None,
        "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
    }  # fmt: skip
    await app(scope, receive, send)
    kinds = dict(messages[0]["headers"])
    content = b"".join(message.get("body", b"") for message in messages[1:])
    return (kinds[b"content-type"].decode() if messages[0]["status"] == 200 else None), content
