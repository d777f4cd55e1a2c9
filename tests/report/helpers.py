"""What the tests of reports share: a table, hostile text, and a reader of pages."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dwac

CSS = Path(dwac.__file__).with_name("report").joinpath("style.css").read_text()
EVIL = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>&amp;\u202e\x00 $x$"


def table(n: int = 400, seed: int = 0) -> tuple[pd.DataFrame, Any]:
    """Rows whose second column tells the label, and a text that tells nothing."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    frame = pd.DataFrame({"noise": rng.normal(size=n), "signal": rng.normal(size=n) + 4 * y})
    frame["town"] = rng.choice(["Secretville", "Hiddenham"], n)
    frame.index = [f"row{seed}-{i}" for i in range(n)]
    return frame, np.where(y, "yes", "no")


class Reader(HTMLParser):
    """Collects elements, and checks that they are nested well."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "img", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text).replace("\u00a0", " "))


def facts(page: str) -> dict[str, tuple[str, str]]:
    """The value and the meaning of each fact of a page, by its name: from tiles, and from rows of tables of facts."""
    tiles = re.findall(r"<dt>([^<]*)</dt><dd><strong>(.*?)</strong><p>(.*?)</p>", page, re.S)
    tables = "".join(re.findall(r'<div class="facts">(.*?)</table>', page, re.S))
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td>(.*?)</td><td>(.*?)</td></tr>', tables, re.S)
    return {name: (value, meaning) for name, value, meaning in tiles + rows}


def check_safe(page: str) -> Reader:
    """Nothing runs, nothing is fetched."""
    reader = Reader(page)
    used = {name for name, _ in reader.elements}
    assert not used & {"script", "iframe", "object", "embed", "link", "form", "input", "svg", "base", "audio", "video"}
    for _, attributes in reader.elements:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href"):
                assert re.match(r"#\w+$|data:image/(png|jpeg|svg\+xml);base64,[\w+/=]+$", value or "")
    assert "http:" not in CSS
    assert "url(" not in CSS
    policy = next(a["content"] for a in reader.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert (policy or "").startswith("default-src 'none'")
    return reader
