"""The house: each floor uses only the floors below it, no cycles, and public names are in `__all__`."""

import ast
import importlib
import re
import sys
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from dwac.errors import InputError
from tests.public import PUBLIC

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dwac"

# From the ground up; `__init__` gathers the public names and stands on the roof, where `__main__` has its door.
FLOORS = [
    "errors",
    "languages",
    "_checks",
    "_machine",
    "storage",
    "drawing",
    "kernels",
    "conformal",
    "metrics",
    "engine",
    "reference",
    "worth",
    "nn",
    "explain",
    "encoders",
    "training",
    "tasks",
    "estimator",
    "votes",
    "monitoring",
    "reading",
    "records",
    "scoring",
    "mlflow",
    "report",
    "server",
    "cli",
    "__init__",
    "__main__",
]
# The root holds the mathematics; everything else is in a room of its own. Python looks for `python -m dwac` in
# `__main__`, and only there: that file calls the command.
ROOT_FILES = {"__init__", "__main__", "_checks", "_machine", "errors", "kernels", "metrics"}
# Where an import may go upwards, and why.
DOORS = {
    "cli/app.py": "__init__",  # the command says its version, which only the roof knows
    "training/__main__.py": "cli",  # the command `dwac train`, under the name that torchrun asks for
    "estimator/base.py": "__init__ report",  # clf.explore() and clf.push_to_hub() are late calls of what uses them
}
FILES = sorted(SOURCE.rglob("*.py"))
MODULES = {
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES
}


def place(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def floor(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def nodes(source: str) -> list[ast.AST]:
    """The imports and the names in a source."""
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom | ast.Import | ast.Name)]


@cache
def all_imported(source: str) -> set[str]:
    """The modules that a module's source imports, wherever it does: those of dwac as near to the file as named."""
    found = set()
    for node in nodes(source):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in MODULES else str(node.module) for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def imported(source: str) -> set[str]:
    """The modules of dwac that a module's source imports."""
    return {name for name in all_imported(source) if name.partition(".")[0] == "dwac"}


def floor_of(module: str) -> str:
    part = module.removeprefix("dwac").removeprefix(".").partition(".")[0]
    return part if part in FLOORS else "__init__"


def wrong_imports(name: str, source: str, door: str = "") -> set[str]:
    allowed = {*FLOORS[: FLOORS.index(name) + 1], *door.split()}
    return {floor_of(module) for module in imported(source)} - allowed


@pytest.mark.parametrize("name", FLOORS)
def test_imports_point_downwards(name: str) -> None:
    for path in (path for path in FILES if floor(path) == name):
        assert wrong_imports(name, path.read_text(), DOORS.get(place(path), "")) == set(), path


@pytest.mark.parametrize(
    ("name", "source", "wrong"),
    [
        ("kernels", "from dwac.nn import convert", {"nn"}),
        ("conformal", "import dwac.metrics", {"metrics"}),
        ("engine", "from dwac import reference, kernels", {"reference"}),
        ("nn", "def f():\n    from dwac.explain import explain", {"explain"}),
        ("nn", "import dwac", {"__init__"}),
        ("explain", "from dwac.nn import convert", set()),
    ],
)
def test_a_wrong_direction_is_caught(name: str, source: str, wrong: set[str]) -> None:
    assert wrong_imports(name, source) == wrong


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """Sets of modules that lead to one another."""
    reached: dict[str, set[str]] = {}
    for start in arrows:
        seen: set[str] = set()
        left = [start]
        while left:
            for target in arrows.get(left.pop(), set()) - seen:
                seen.add(target)
                left.append(target)
        reached[start] = seen
    return [
        {name, *(other for other in reached[name] if name in reached[other])}
        for name in arrows
        if name in reached[name]
    ]


def test_the_package_stands_without_the_reproduction_the_benchmarks_and_the_tests() -> None:
    for path in FILES:
        found = {name.partition(".")[0] for name in all_imported(path.read_text())}
        assert not found & {"reproduction", "benchmarks", "tests", "tools"}, path


def test_no_two_files_use_each_other() -> None:
    arrows = {}
    for name, path in MODULES.items():
        doors = DOORS.get(place(path), "").split()
        arrows[name] = {module for module in imported(path.read_text()) if floor_of(module) not in doors} - {name}
    assert circles(arrows) == []


def test_a_circle_is_caught() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}, {"b", "c"}]


def test_every_module_stands_on_a_known_floor_and_the_root_holds_the_mathematics_alone() -> None:
    assert {floor(path) for path in FILES} == set(FLOORS)
    assert {path.stem for path in SOURCE.glob("*.py")} == ROOT_FILES


def test_nothing_but_its_package_knows_the_fused_kernels() -> None:
    package = "dwac.engine.triton"
    for name, path in MODULES.items():
        if not name.startswith(package):
            inside = {module for module in imported(path.read_text()) if module.startswith(f"{package}.")}
            assert inside == set(), f"{name} goes past the door of {package}"


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_public_is_named_and_documented(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    for public in module.__all__:
        assert not public.startswith("_")
        value = getattr(module, public)
        if isinstance(value, type | FunctionType | ModuleType):
            assert value.__doc__, f"{name}.{public} has no docstring"


def test_packages_that_are_not_public_say_so() -> None:
    packages = {f"dwac.{name}" for name in FLOORS if (SOURCE / name).is_dir()}
    for name in sorted(packages - set(PUBLIC)):
        assert "internal" in (importlib.import_module(name).__doc__ or "").lower(), (
            f"{name} must say that it is internal"
        )


def test_contributing_has_the_floors_as_they_are() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    listed = re.search(r"<!-- floors -->\n(.*?)\n *<!-- /floors -->", text, re.S)
    assert listed
    assert listed[1].split() == FLOORS[:-2]


def test_conformal_and_metrics_know_no_model() -> None:
    found = [path for path in FILES if floor(path) in ("conformal", "metrics")]
    assert {floor(path) for path in found} == {"conformal", "metrics"}
    for path in found:
        assert "torch" not in path.read_text(), path


def test_nothing_loads_pickle_or_prints() -> None:
    for path in FILES:
        names = {node.id for node in nodes(path.read_text()) if isinstance(node, ast.Name)}
        assert not names & {"pickle", "joblib", "print"}, path
        assert "torch.load" not in path.read_text(), path


def test_warnings_come_from_one_function_that_points_at_the_line_of_the_user() -> None:
    warning = [place(path) for path in FILES if re.search(r"warnings\.warn|stacklevel", path.read_text())]
    assert warning == ["_checks.py"]


def test_mlflow_is_imported_on_use_and_its_absence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("dwac.mlflow")
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(InputError, match=re.escape("dwac[mlflow]")):
        module.load_model("model")
