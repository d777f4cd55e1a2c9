"""What is built is complete: the wheel has every file of the package, and each dependency a lowest version to test."""

import fnmatch
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import dwac
from reproduction import datasets
from tests.named import refuses

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dwac"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LICENCES = runpy.run_path(str(ROOT / "tools" / "licences.py"))
LOWEST = runpy.run_path(str(ROOT / "tools" / "lowest.py"))


def test_the_package_says_the_version_of_pyproject() -> None:
    assert dwac.__version__ == PYPROJECT["project"]["version"]


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for path in SOURCE.rglob("*.py")}
    assert {str(folder) for folder in folders if not (folder / "__init__.py").exists()} == set()


def test_every_other_file_is_package_data() -> None:
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["dwac"]
    files = [path.relative_to(SOURCE) for path in SOURCE.rglob("*") if path.is_file()]
    others = [path for path in files if path.suffix not in {".py", ".pyc"}]
    assert len(others) > 20
    missed = [path for path in others if not any(_matches(path, pattern) for pattern in patterns)]
    assert missed == []


def _matches(path: Path, pattern: str) -> bool:
    """As setuptools does: a star stays within its folder."""
    parts = pattern.split("/")
    return len(parts) == len(path.parts) and all(map(fnmatch.fnmatch, path.parts, parts))


def test_the_source_distribution_has_what_the_tests_read() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    read = {name for name in re.findall(r'ROOT / "([^"/]+)', tests) if (ROOT / name).exists()}
    sent = set((ROOT / "MANIFEST.in").read_text().split()) | {
        "src",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "MANIFEST.in",
    }
    assert {"docs", "Dockerfile", "deploy", "tools"} <= read
    assert read <= sent


def test_each_dependency_has_a_lowest_version_to_test() -> None:
    pins = list(LOWEST["pins"](PYPROJECT["project"]))
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+(;.*)?", pin) for pin in pins)
    named = {pin.partition("=")[0] for pin in pins}
    assert {"numpy", "pandas", "torch", "typer", "transformers", "pytest", "hypothesis"} <= named
    assert LOWEST["TEST_TOOLS"] <= named
    assert "torch==2.6" in pins


def test_a_dependency_without_a_lower_bound_is_refused() -> None:
    with refuses(ValueError, "bound"):
        LOWEST["lowest"]("numpy<3")


def test_licences_are_those_of_metadata_and_a_gpl_in_the_core_is_refused() -> None:
    def package(name: str, licence: str, *needs: str, **more: list[str]) -> dict[str, Any]:
        return {"name": name, "version": "1", "license_expression": licence, "requires_dist": list(needs), **more}

    own = package("dwac", "Apache-2.0", "a", "c[more]; extra == 'big'", provides_extra=["big"])
    others = [package("a", "MIT", "b>=1"), package("b", "BSD"), package("c", "GPL-3.0", "d; extra == 'more'")]
    found = {about["name"]: about for about in [own, *others, package("d", "MPL-2.0")]}
    core, _, extras = LICENCES["page"](found).partition("## Extras")
    assert [name for name in "abcd" if f"\n| {name} | 1 |" in core] == ["a", "b"]
    assert "| c | 1 | GPL-3.0 | big |\n| d | 1 | MPL-2.0 | big |" in extras
    found["b"]["license_expression"] = "GPL-2.0-only"
    with refuses(SystemExit, "b", "GPL-2.0-only"):
        LICENCES["page"](found)


def test_the_page_of_licences_names_every_dependency_and_dataset() -> None:
    page = (ROOT / "docs" / "licences.md").read_text()
    extras = PYPROJECT["project"]["optional-dependencies"].values()
    lines = [*PYPROJECT["project"]["dependencies"], *(line for extra in extras for line in extra)]
    names = {re.split(r"[\[>=<;]", line)[0].lower() for line in lines} - {"dwac"}
    assert len(names) > 40
    assert {name for name in names | {*datasets.NAMES, "glove"} if f"\n| {name} |" not in page} == set()
