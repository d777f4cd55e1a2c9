"""The site builds without a warning, needs no network, and its reference has every public name."""

import importlib
import json
import re
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dwac.cli.app import COMMANDS
from tests.docs.pages import DOCS, ROOT
from tests.public import PUBLIC
from tools.site import notebooks
from tools.site.docstrings import fenced

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def built(folder: Path) -> Path:
    """The site, built as `make docs` does: a warning ends it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the tools that build it
        from mkdocs.commands.build import build
        from mkdocs.config import load_config

        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    return folder


# One test, because it builds the site: that takes a minute of processor time, half of it for the explorer.
@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_is_complete(tmp_path: Path) -> None:
    site = built(tmp_path)
    names_are_in_the_reference(site)
    commands_are_in_the_reference(site)
    pages_load_nothing_from_elsewhere(site)
    search_needs_no_server(site)
    links_to_source_files_lead_to_copies(site)
    notebooks_are_shown_with_their_pictures(site)
    the_gallery_has_an_explorer(site)


def names_are_in_the_reference(site: Path) -> None:
    for name in PUBLIC:
        page = (site / "reference" / f"{name.rpartition('.')[2]}.html").read_text()
        shown = set(re.findall(r'id="(dwac[\w.]*)"', page))
        missing = {public for public in importlib.import_module(name).__all__ if not places(name, public) & shown}
        assert missing == set(), f"these names of {name} are not in the reference"


def places(module: str, name: str) -> set[str]:
    """Under which headings a public name may stand on the page of its module."""
    whole = f"{module}.{name}"
    if whole in PUBLIC or whole in {"dwac.Explanation", "dwac.ReferenceSet"}:
        return {"dwac.DWACClassifier"}  # on pages of their own
    value = getattr(importlib.import_module(module), name)
    if (
        module != "dwac" and hasattr(importlib.import_module(module), "__path__") and find_spec(whole)
    ):  # a file of the same name hides it
        return {f"{value.__module__}.{name}"}
    return {whole}


def the_gallery_has_an_explorer(site: Path) -> None:
    page = site / "gallery" / "wines-explorer.html"
    assert f'src="{page.name}"' in (site / "gallery" / "wines.html").read_text()
    assert 'id="answers"' in page.read_text()
    assert page.stat().st_size < 3_000_000


def commands_are_in_the_reference(site: Path) -> None:
    page = (site / "reference" / "commands.html").read_text()
    assert {name for name in COMMANDS if f'id="dwac-{name}"' not in page} == set()
    assert "--target" in page
    assert "<code>dwac train people.csv" in re.sub(r"</?(span|a)\b[^>]*>", "", page)  # examples are code, in one block


def pages_load_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r'<(?:script|img|iframe|source)[^>]* src="(?:https?:)?//|<link[^>]* href="(?:https?:)?//')
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 80
    assert [page.name for page in pages if loaded.search(page.read_text())] == []
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"@import|url\([\"']?(https?:)?//", styles)


def search_needs_no_server(site: Path) -> None:
    """The index is a script, which a page from a disk may load, and the worker runs in a frame."""
    assert "prediction set" in (site / "search" / "search_index.js").read_text()
    assert 'src="../iframe-worker.js"' in (site / "concepts" / "vote.html").read_text()
    assert (site / "iframe-worker.js").exists()
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    boosts = {entry["location"]: entry.get("boost", 1) for entry in entries}
    assert (
        boosts["how-to/monitoring.html"]
        > boosts["reference/monitoring.html"]
        > boosts["decisions/0025-monitoring.html"]
    )


def links_to_source_files_lead_to_copies(site: Path) -> None:
    tour = (site / "tour.html").read_text()
    links = re.findall(r'href="(source/src/dwac/[\w./]+\.txt)"', tour)
    assert len(links) > 50
    assert [link for link in links if not (site / link).is_file()] == []
    assert "../src/" not in tour


def notebooks_are_shown_with_their_pictures(site: Path) -> None:
    for path in NOTEBOOKS:
        page = (site / "gallery" / f"{path.stem}.html").read_text()
        assert "DWAC" in page
        assert page.count("data:image/png") == path.read_text().count('"image/png"')


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_is_in_the_gallery(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored = json.loads(path.read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of IPython
        ran = notebooks.run(stored)
    for before, after in zip(stored["cells"], ran["cells"], strict=True):
        assert kinds(before) == kinds(after), "stored outputs are old: python tools/site/notebooks.py examples/*.ipynb"
    assert f"<!-- notebook: examples/{path.name} -->" in (DOCS / "gallery" / f"{path.stem}.md").read_text()


def kinds(cell: dict[str, Any]) -> list[list[str]]:
    """What a cell shows: texts, tables, pictures."""
    return [sorted(output.get("data", ["text"])) for output in cell.get("outputs", [])]


@pytest.mark.slow
def test_an_error_in_a_notebook_is_raised() -> None:
    cell = {"cell_type": "code", "source": ["1 / 0"], "outputs": []}
    with pytest.raises(ZeroDivisionError):
        notebooks.run({"cells": [cell]})


# Decisions and notes say what was measured then; the other pages are written from records.
QUOTING = [
    ROOT / "README.md",
    *(
        path
        for path in sorted(DOCS.rglob("*.md"))
        if path.relative_to(DOCS).parts[0] not in {"decisions", "notes", "paper.md", "reference", "results"}
    ),
]


@pytest.mark.parametrize("page", QUOTING, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_number_beside_a_link_to_a_record_is_in_the_record(page: Path) -> None:
    assert [number for number, found in quoted(page.read_text()) if not found] == []


def test_numbers_are_quoted_on_many_pages_and_a_changed_one_is_seen() -> None:
    pages = [path for path in QUOTING if quoted(path.read_text())]
    assert len(pages) >= 8
    for path in pages:
        text = path.read_text()
        number = next(number for number, _ in quoted(text))
        wrong = f"{float(number) + 7777.7:.{len(number.partition('.')[2])}f}"  # large records have many a number
        units = [unit for unit in _units(text) if re.search(r"results/\w+\.md", unit) and number in unit]
        changed = units[0].replace(number, wrong)
        assert (wrong, False) in quoted(changed), path


def quoted(text: str) -> list[tuple[str, bool]]:
    """The decimals of a paragraph or a row with a link to a record, and whether one of its records has them."""
    found = []
    for unit in _units(text):
        names = re.findall(r"results/(\w+)\.(?:md|json)", unit)
        records = [(DOCS / "results" / f"{name}.md").read_text() for name in names]
        factors = (1, 100) if re.search(r"%|point", unit) else (1,)
        shown = re.sub(r"\]\([^)]*\)", "]", unit)
        numbers = re.findall(r"(?<![\w.,])\d+\.\d+\b(?!\.)", shown) if names else []
        found += [(number, any(_says(record, number, factors) for record in records)) for number in numbers]
    return found


def _units(text: str) -> Iterator[str]:
    """Paragraphs, points of a list, rows of a table; a table after a colon belongs to the paragraph before it."""
    before = ""
    for part in re.split(
        r"\n\s*\n", re.sub(r"```.*?```|<!-- summary: .*?<!-- /summary -->", "", text, flags=re.DOTALL)
    ):
        if not part.lstrip().startswith("|"):
            yield from re.split(r"\n(?=\s*- )", part)
        elif before.rstrip().endswith(":"):
            yield f"{before}\n{part}"
        else:
            yield from part.splitlines()
        before = part


def _says(record: str, number: str, factors: tuple[int, ...]) -> bool:
    """Whether a record has a number, perhaps with more digits, or as a share of 1 where the page has percent."""
    half = 0.5001 * 10.0 ** -len(number.partition(".")[2])
    values = [float(value) for value in re.findall(r"\d+(?:\.\d+)?(?:e[-+]\d+)?", record)]
    return any(abs(factor * value - float(number)) <= half for value in values for factor in factors)


def test_examples_in_docstrings_become_code_and_prose_does_not() -> None:
    docstring = (
        "Adds two numbers.\n\n>>> add(1, 1)\n2\n\nmodel = Model()\nmodel.fit(X)  # trains\n\nNothing else, see there."
    )
    assert fenced(docstring) == (
        "Adds two numbers.\n\n```pycon\n>>> add(1, 1)\n2\n```\n\n"
        "```python\nmodel = Model()\nmodel.fit(X)  # trains\n```\n\nNothing else, see there."
    )


def test_the_recording_takes_a_minute_and_loads_nothing() -> None:
    head, *events = map(json.loads, (DOCS / "pictures" / "recording.cast").read_text("utf-8").splitlines())
    assert head["version"] == 2
    times = [at for at, _, _ in events]
    assert times == sorted(times)
    assert times[-1] == 60
    typed = "".join(text for _, _, text in events)
    drawing = (DOCS / "pictures" / "recording.svg").read_text("utf-8")
    assert all(f"$ dwac {name} " in typed and f"$ dwac {name} " in drawing for name in ("train", "predict", "explain"))
    assert len(drawing) < 300_000
    assert not re.search(r"(?:href|src)=|url\(|@import", drawing)
