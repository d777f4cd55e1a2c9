"""The explorer as one file: the answers of the server, and a page that needs none."""

import base64
import gzip
import json
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dwac import DWACClassifier, DWACRegressor, explore
from dwac.errors import InputError
from dwac.server.explorer import Explorer, write_page
from tests.server.data import AGED, DIGITS, PEOPLE, SIZES, TAGS
from tests.server.explored import PHONE, WIDE, Reader, reading

HOSTILE = "</script><img src=x onerror=\"document.title='1'\">"


def answers_in(page: str) -> dict[str, Any]:
    (packed,) = re.findall(r'id="answers">([^<]*)<', page)
    answers: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed)))
    return answers


def test_the_file_holds_the_answers_of_the_server_and_says_which_rows(table: DWACClassifier, tmp_path: Path) -> None:
    explorer = Explorer.of(table, PEOPLE[200:202], AGED[200:202], title=HOSTILE)
    page = write_page(explorer, tmp_path / "page.html", most=1).read_text("utf-8")
    held, point = answers_in(page), explorer.points.n_training
    for asked in reading(explorer):
        _agrees(held, asked, point)
    assert f"{point} training examples and 2 rows of data" in held["/explorer/start"]["held"]
    assert "1 of them" in held["/explorer/start"]["held"]
    assert f"/explorer/points/{point + 1}/brief" not in held
    assert HOSTILE not in page
    assert re.findall(r'(?:src|href)="(?!data:|#)', page) == []  # loads nothing


def _agrees(held: dict[str, Any], asked: Reader, point: int) -> None:
    live = asked.get(f"points/{point}?k=5&label=0")
    stored = held[f"/explorer/points/{point}&label=0"]
    assert {**stored, "answer": 0} == {**live, "answer": 0, "editable": False}
    assert held[f"/explorer/answers/{stored['answer']}/reasons"] == asked.post(f"answers/{live['answer']}/reasons")
    assert base64.b64decode(held["/explorer/columns/xy"]) == asked.ask("GET", "columns/xy").body


def test_a_private_file_holds_no_training_example_and_no_value(table: DWACClassifier, tmp_path: Path) -> None:
    path = explore(table, PEOPLE[200:203], AGED[200:203], private=True, path=tmp_path / "page.html")
    held = answers_in(path.read_text("utf-8"))
    assert "no values" in held["/explorer/start"]["held"]
    content = json.dumps(held)
    assert not any(f'"{name}"' in content for name in PEOPLE.index[:200])
    assert str(PEOPLE["pay"].iloc[200]) not in content


def test_a_file_of_another_kind_is_refused(table: DWACClassifier, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.html.*page\.pdf"):
        explore(table, PEOPLE[200:201], path=tmp_path / "page.pdf")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["table", "image", "number", "labels"])
def test_map_explanation_and_reasons_appear_from_a_disk_without_a_request(
    browser: Any, request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    explorer = _explorer(request, kind)
    path = write_page(explorer, tmp_path / f"{kind}.html", most=4)
    row = explorer.points.n_training
    for size, scheme in ((WIDE, "light"), (PHONE, "dark")):
        page = browser.new_page(viewport=size, color_scheme=scheme)
        page.set_default_timeout(20_000)
        requests: list[str] = []
        problems: list[str] = []
        page.on("request", lambda request, to=requests: to.append(request.url))
        page.on("pageerror", lambda error, to=problems: to.append(str(error)))
        page.on("console", lambda message, to=problems: to.append(message.text) if message.type == "error" else None)
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready]")
        drawn = page.evaluate("window.explorer.map.image.data.some((value) => value > 0)")
        assert drawn
        assert "rows of data" in page.inner_text("#held")
        page.evaluate(f"window.explorer.choose({row})")
        page.wait_for_selector(f'#example[data-point="{row}"]')
        assert page.locator("#voters .share, #groups .share").count() > 0
        page.click("#why")
        page.wait_for_selector("#whatif .versus .lean")
        page.evaluate("window.explorer.choose(1)")  # the file explains four examples
        page.wait_for_function("() => document.getElementById('problem').textContent.includes('dwac explore')")
        page.fill("#wanted", str(explorer.points.name(row)))
        page.wait_for_selector("#found button")
        assert not page.is_visible("#new-button")
        assert not page.is_visible("#export")
        assert [url for url in requests if not url.startswith(("data:", "blob:"))] == [path.as_uri()]
        assert problems == []
        page.close()


@pytest.mark.slow
def test_a_notebook_on_this_machine_shows_the_page_in_a_frame(
    browser: Any, table: DWACClassifier, tmp_path: Path
) -> None:
    shown = explore(table, PEOPLE[200:203], AGED[200:203], show=False)
    (tmp_path / "notebook.html").write_text(shown._repr_html_(), encoding="utf-8")
    files = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), files) as notebooks:
        threading.Thread(target=notebooks.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://localhost:{notebooks.server_port}/notebook.html")
        page.frame_locator("iframe").locator("body[data-ready]").wait_for(timeout=20_000)
        page.close()
        notebooks.shutdown()
    shown.stop()


def _explorer(request: pytest.FixtureRequest, kind: str) -> Explorer:
    match kind:
        case "table":
            return Explorer.of(request.getfixturevalue("table"), PEOPLE[200:203], AGED[200:203], title=HOSTILE)
        case "image":
            return Explorer.of(request.getfixturevalue("digits"), DIGITS.images[400:403], DIGITS.target[400:403])
        case "number":
            clf: DWACRegressor = request.getfixturevalue("numbers")
            return Explorer.of(clf, SIZES[240:243])
        case _:
            return Explorer.of(request.getfixturevalue("tags"), SIZES[240:243], TAGS[240:243])
