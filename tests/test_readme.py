"""What the README says is true: its code blocks run, its commands exist, its links lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import Block, blocks, follow

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def test_it_can_be_followed_from_top_to_bottom(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert follow(README) >= 3
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 39
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    shown = re.findall(r"^dwac (\w+)", "\n".join(code("sh")), flags=re.MULTILINE)
    assert {"train", "report", "predict", "explain", "evaluate"} <= set(shown)


def test_it_is_short_and_has_three_recipes() -> None:
    assert len(README.read_text().splitlines()) <= 187
    assert sum(block.runs for block in blocks(README)) == 3


def code(language: str) -> list[str]:
    found: list[Block] = blocks(README)
    return [block.code for block in found if block.language == language]


def test_make_targets_it_names_exist() -> None:
    named = set(re.findall(r"make ([\w-]+)", "\n".join(code("sh"))))
    assert {"demo", "test"} <= named
    jobs = re.search(r"^JOBS := (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert jobs is not None
    targets = {*jobs[1].split(), "help"}
    assert named | set(re.findall(r"`make ([\w-]+)`", (ROOT / "CONTRIBUTING.md").read_text())) <= targets


def test_continuous_integration_runs_its_test_command() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / link).exists(), link
