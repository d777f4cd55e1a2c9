"""The documents are true: the tour finds its names, each decision has a status and a date, the citation the version."""

import datetime
import re
from pathlib import Path

import pytest
import yaml

import dwac

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
DECISIONS = sorted((DOCS / "decisions").glob("0*.md"))
VERSION = dwac.__version__


def test_the_tour_names_what_the_linked_files_define() -> None:
    tour = (DOCS / "tour.md").read_text()
    named = re.findall(r"((?:`[\w.]+`(?:, | and )?)+) in\s+\[[^\]]+\]\(([^)]+)\)", tour)
    assert len(named) > 15
    for names, link in named:
        source = (DOCS / link).read_text()
        for name in re.findall(r"`([\w.]+)`", names):
            for part in name.split("."):
                assert re.search(rf"\b(def|class) {part}\b", source), (name, link)


def test_the_tour_visits_every_folder_and_every_file_of_the_mathematics() -> None:
    tour = (DOCS / "tour.md").read_text()
    source = ROOT / "src" / "dwac"
    rooms = {path.parent.name for path in source.glob("*/__init__.py")}
    files = {path.name for path in source.glob("*.py")} - {"__init__.py", "_checks.py", "errors.py"}
    assert {name for name in rooms if f"src/dwac/{name}/" not in tour} == set()
    assert {name for name in files if f"src/dwac/{name}" not in tour} == set()


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_has_a_number_a_status_a_date_and_a_line_in_the_index(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith(f"# {int(path.name[:4])}. ")
    found = re.fullmatch(r"Status: (accepted|proposed|superseded by \[.+\]\(.+\)) · Date: (\S+)", lines[2])
    assert found, lines[2]
    datetime.date.fromisoformat(found[2])
    assert f"]({path.name})" in (DOCS / "decisions" / "README.md").read_text()


def test_the_citation_names_the_paper_and_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == VERSION
    assert citation["license"] == "Apache-2.0"
    assert citation["authors"]
    paper = citation["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Card", "Zhang", "Smith"]
    assert paper["doi"] == "10.1145/3287560.3287595"


def test_the_changelog_has_this_version_by_kind() -> None:
    versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    newest = versions[0]
    assert newest.startswith((f"[{VERSION}]", "[Unreleased]"))
    kinds = re.findall(r"^### (.+)$", newest, flags=re.MULTILINE)
    assert kinds
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_no_two_files_differ_in_case_alone() -> None:
    kept = [path for top in ("docs", "src", "tests") for path in (ROOT / top).rglob("*") if path.suffix != ".pyc"]
    assert len(kept) == len({str(path).lower() for path in kept})  # Windows and macOS have one file for both
