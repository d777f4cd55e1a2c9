"""The house keeps its floors: each module imports only from the floors below it."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "dwac"

# From the ground up, as in the design; `__init__` gathers the public names and stands on the roof.
FLOORS = [
    "errors",
    "_checks",
    "drawing",
    "kernels",
    "conformal",
    "privacy",
    "metrics",
    "engine",
    "reference",
    "known",
    "_triton_loss",
    "loss",
    "committee",
    "nn",
    "explain",
    "encoders",
    "storage",
    "checkpoint",
    "_steps",
    "_held_out",
    "inference",
    "scale",
    "training",
    "progress",
    "preparation",
    "readable",
    "_settings",
    "persistence",
    "classifier",
    "reading",
    "evaluation",
    "datasets",
    "paper",
    "report",
    "server",
    "cli",
    "__init__",
]
FILES = sorted(SOURCE.rglob("*.py"))


def floor(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_floors(source: str) -> set[str]:
    """The floors a module's source imports; the package itself counts as its roof."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package == "dwac":
                part = rest.partition(".")[0]
                found.add(part if part in FLOORS else "__init__")
    return found


def wrong_imports(name: str, source: str) -> set[str]:
    # The command says its version, which only the roof knows; clf.explore() opens the page: the two exceptions.
    doors = {"cli": {"__init__"}, "classifier": {"server"}}
    allowed = set(FLOORS[: FLOORS.index(name) + 1]) | doors.get(name, set())
    return imported_floors(source) - allowed


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downwards(path: Path) -> None:
    assert wrong_imports(floor(path), path.read_text()) == set()


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


def test_every_module_stands_on_a_known_floor() -> None:
    assert {floor(path) for path in FILES} <= set(FLOORS)


def test_conformal_and_metrics_know_no_model() -> None:
    for name in ("conformal", "metrics"):
        assert "torch" not in (SOURCE / f"{name}.py").read_text()


def test_nothing_loads_pickle_or_prints() -> None:
    for path in FILES:
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        assert not names & {"pickle", "joblib", "print"}, path
        assert "torch.load" not in path.read_text(), path
