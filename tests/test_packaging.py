"""What is built is complete: the wheel has every file of the package, and each dependency a lowest version to test."""

import ast
import datetime
import fnmatch
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import dwac
from reproduction import datasets
from tests.named import refuses
from tools import release

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dwac"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LICENCES = runpy.run_path(str(ROOT / "tools" / "licences.py"))
LOWEST = runpy.run_path(str(ROOT / "tools" / "lowest.py"))


def test_the_version_is_that_of_the_package_everywhere() -> None:
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "dwac.__version__"}
    assert set(release.versions().values()) == {dwac.__version__}


def test_a_cut_dates_what_is_unreleased_and_keeps_the_rest() -> None:
    today = datetime.date(2026, 12, 1)
    before = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    changelog = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n## [0.9.0] - 2026-01-01\n"
    after = release.cut("1.0.0", changelog, today)
    assert re.findall(r"^## (.*)$", after, flags=re.M) == ["[1.0.0] - 2026-12-01", "[0.9.0] - 2026-01-01"]
    assert after.count("\n") == changelog.count("\n")
    for version, text in (("1.0", before), ("0.9.0", changelog), ("2.0.0", after)):
        with refuses(SystemExit, version if version != "1.0" else "1.2.3"):
            release.cut(version, text, today)


def test_links_of_the_page_on_pypi_are_absolute() -> None:
    page = release.absolute((ROOT / "README.md").read_text(encoding="utf-8"), "https://forge.example", "v1")
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert len(links) > 20
    assert [link for link in links if not link.startswith(("https://", "http://", "#"))] == []


def test_the_address_of_the_repository_is_stated_in_one_file() -> None:
    address = release.address()
    assert all(url.startswith(address) for url in PYPROJECT["project"]["urls"].values())
    others = ["README.md", "CITATION.cff", "SECURITY.md", "mkdocs.yml", "deploy/conda/recipe.yaml"]
    paths = [*(ROOT / name for name in others), *(ROOT / ".github").rglob("*.yml")]
    assert [path.name for path in paths if address in path.read_text(encoding="utf-8")] == []


def test_the_conda_recipe_needs_what_pyproject_needs() -> None:
    recipe = yaml.safe_load((ROOT / "deploy" / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    lines = [line for line in PYPROJECT["project"]["dependencies"] if "== 'win32'" not in line]
    own = {line.partition(";")[0].replace("torch", "pytorch") for line in lines}
    own |= {f"python{PYPROJECT['project']['requires-python']}"}
    assert {line.replace(" ", "") for line in recipe["requirements"]["run"]} == own
    assert recipe["about"]["license"] == PYPROJECT["project"]["license"]


def test_every_job_can_be_run_with_make_and_without_and_workflows_run_nothing_else() -> None:
    jobs = set(runpy.run_path(str(ROOT / "tools" / "__main__.py"))["JOBS"])
    line = re.search(r"^JOBS := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M)
    assert line is not None
    assert set(line[1].split()) == jobs
    steps = [*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / ".pre-commit-config.yaml"]
    named = {job for path in steps for job in re.findall(r"python -m tools ([\w-]+)", path.read_text(encoding="utf-8"))}
    assert {"test", "lint", "types", "docs", "build", "test-lowest", "test-newest"} <= named <= jobs


@pytest.mark.parametrize("path", [ROOT / "src" / "dwac", ROOT / "tools"], ids=["package", "tools"])
def test_the_encoding_of_every_text_file_is_stated(path: Path) -> None:
    """By default it is the system's, which is not UTF-8 on Windows."""
    assert [place for file in path.rglob("*.py") for place in _unstated(file)] == []


def _unstated(file: Path) -> list[str]:
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source if re.search(r"(_text|open)\(", source) else "")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        f"{file.name}:{call.lineno}"
        for call in calls
        if (name := getattr(call.func, "attr", getattr(call.func, "id", ""))) in {"read_text", "write_text", "open"}
        and not any(word.arg == "encoding" for word in call.keywords)
        and not ("utf-8" in (text := ast.unparse(call)) or (name == "open" and _opens_bytes(text)))
    ]


def _opens_bytes(call: str) -> bool:
    """Whether a call opens no text: a mode with b, or something else than a file."""
    return bool(re.search(r"'[rwax+]*b[+]?'|^(os|webbrowser|tarfile|archive|Image|pillow)\.", call))


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
