"""What the README says is true: its code blocks run, its commands exist, its links lead somewhere."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dwac.cli.app import app

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str, path: Path = ROOT / "README.md") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), flags=re.DOTALL)


def test_code_blocks_run_one_after_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    assert len(blocks("python")) >= 4
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), namespace)


def test_commands_run_one_after_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    section = (ROOT / "README.md").read_text().partition("## From the command line")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL)
    exec(re.findall(r'python -c "(.*?)"', block, flags=re.DOTALL)[0])
    done = []
    for line in re.findall(r"^dwac .*", block, flags=re.MULTILINE):
        words, _, source = (part.split() for part in line.partition("#")[0].partition(" < "))
        given = Path(source[0]).read_text() if source else None
        shown = CliRunner().invoke(app, words[1:], input=given, env={"COLUMNS": "120"})
        assert shown.exit_code == 0, (line, shown.output)
        done.append(words[1])
    assert {"train", "report", "predict", "explain", "evaluate"} <= set(done)
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 39
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_make_targets_it_names_exist() -> None:
    named = set(re.findall(r"make ([\w-]+)", "\n".join(blocks("sh"))))
    assert {"demo", "test"} <= named
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert named | set(re.findall(r"`make ([\w-]+)`", (ROOT / "CONTRIBUTING.md").read_text())) <= targets


def test_continuous_integration_runs_its_test_command() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / link).exists(), link
