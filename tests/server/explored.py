"""A page of the explorer: as its script asks, over HTTP, and as a person uses it, in a browser."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from dwac.server.explorer import Explorer, explorer_app
from tests.server.client import HANG, TOKEN, Answer, Client, served

_SESSIONS = count(1)
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@dataclass
class Reader:
    """A page's way to ask: with its token and its session."""

    client: Client
    explorer: Explorer
    session: str = "0123456789abcdef"

    def again(self) -> "Reader":
        """The same page with a session of its own."""
        return Reader(self.client, self.explorer, f"{next(_SESSIONS):016x}")

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        known = {"authorization": f"Bearer {TOKEN}", "x-session": self.session}
        return self.client.ask(method, f"/explorer/{path}", body, {**known, **headers})

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer.body
        return answer.json

    def post(self, path: str, **body: Any) -> Any:
        answer = self.ask("POST", path, body)
        assert answer.status == 200, answer.body
        return answer.json

    def column(self, name: str, dtype: str) -> Any:
        return np.frombuffer(self.ask("GET", f"columns/{name}").body, dtype=dtype)

    @property
    def first_row(self) -> int:
        """The point of the first row of data."""
        return self.explorer.points.n_training


def reading(explorer: Explorer) -> Iterator[Reader]:
    with served(explorer_app(explorer, token=TOKEN)) as client:
        yield Reader(client, explorer)


@dataclass
class Visit:
    """An open page, and what went over the wire and the console meanwhile."""

    page: Any
    explorer: Explorer
    port: int
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def number(self, name: str) -> float:
        """A number of the page with all its digits."""
        return float(self.page.locator(f'[data-number="{name}"]').first.get_attribute("data-value"))

    @property
    def label(self) -> str:
        return str(self.page.locator("#example").get_attribute("data-label"))

    def choose(self, point: int) -> None:
        """Click a point on the map where it lies."""
        where = self.page.evaluate(
            """(i) => { const { map, points } = window.explorer; map.goTo(points.xy[2 * i], points.xy[2 * i + 1]);
            for (let k = 0; k < 60 && map.at(map.frame.width / 2, map.frame.height / 2) !== i; k++) map.zoom(1.5);
            return [map.frame.width / 2 / map.ratio, map.frame.height / 2 / map.ratio]; }""",
            point,
        )
        box = self.page.locator("#marks").bounding_box()
        self.page.mouse.click(box["x"] + where[0], box["y"] + where[1])
        self.page.wait_for_selector(f'#example[data-point="{point}"]')

    def open(self, section: str) -> None:
        if not self.page.evaluate(f"document.getElementById('{section}').open"):
            self.page.click(f"#{section} > summary")

    def one_by_one(self) -> None:
        """Open the list of single voters, where groups are shown instead."""
        if self.page.locator("#nearest").count():
            self.open("nearest")

    def remove_first_voter(self) -> None:
        """By the menu of its actions."""
        self.page.locator("#voters .menu > summary").first.click()
        self.page.locator("#voters .menu button:has-text('Remove')").first.click()

    def changed(self) -> int:
        return int(self.page.locator("#n-changed").get_attribute("data-n"))

    def wait(self, condition: str) -> None:
        """Until something is true on the page."""
        self.page.wait_for_function(f"() => {condition}")  # a function: the page's policy forbids to evaluate text

    def downloaded(self, button: str) -> str:
        self.open("export")
        with self.page.expect_download() as download:
            self.page.click(button)
        return Path(download.value.path()).read_text()


@contextmanager
def visit(browser: Any, explorer: Explorer, **look: Any) -> Iterator[Visit]:
    with served(explorer_app(explorer, token=TOKEN)) as client:
        context = browser.new_context(**{"viewport": WIDE, "color_scheme": "light", **look})
        context.set_default_timeout(1000 * HANG)
        page = context.new_page()
        visited = Visit(page, explorer, client.port)
        page.on("request", lambda request: visited.requests.append(request.url))
        page.on("console", lambda message: visited.problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: visited.problems.append(str(error)))
        page.goto(f"http://127.0.0.1:{client.port}/#token={TOKEN}")
        page.wait_for_selector("body[data-ready]")
        try:
            yield visited
        finally:
            context.close()
    ours = f"http://127.0.0.1:{visited.port}/"
    elsewhere = [url for url in visited.requests if not url.startswith((ours, "data:", f"blob:{ours}"))]
    assert elsewhere == []
    assert visited.problems == []
