"""What the README says is true: its code blocks run, its commands exist, its links lead somewhere."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"]


def blocks(language: str, path: Path = ROOT / "README.md") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), flags=re.DOTALL)


def test_code_blocks_run_one_after_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    assert len(blocks("python")) >= 4
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), namespace)


def test_make_targets_it_names_exist() -> None:
    named = set(re.findall(r"make (\w+)", "\n".join(blocks("sh"))))
    assert {"demo", "test"} <= named
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert named <= targets


def test_continuous_integration_runs_its_test_command() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / link).exists(), link
