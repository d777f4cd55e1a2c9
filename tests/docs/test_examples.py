"""Every public name has an example that the tests run: in a docstring, on a page or in a notebook."""

import ast
import doctest
import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest

import dwac
from tests.docs.pages import ROOT, blocks
from tests.docs.test_pages import GUIDE
from tests.public import PUBLIC

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
# These need programs that `make test` does not install: a block on a page that is not run shows them.
ELSEWHERE = {
    "dwac.mlflow": {"load_model", "log_model", "save_model"},
    "dwac.scoring": {"ray", "spark"},
}
Shown = set[tuple[str, int]]  # a name and the identity of what it means


def shown_by(code: str, known: dict[str, Any]) -> Shown:
    """What Python code names of dwac: not its own variables, nor arguments, texts or comments."""
    nodes = list(ast.walk(ast.parse(code)))
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    known, found = {name: value for name, value in known.items() if name not in stored}, Shown()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "dwac":
            for alias in node.names:
                value = _member(importlib.import_module(str(node.module)), alias.name)
                known[alias.asname or alias.name] = value
                found.add((alias.name, id(value)))
        elif isinstance(node, ast.Import):
            known |= {name: dwac for alias in node.names if (name := alias.name.partition(".")[0]) == "dwac"}
    meant = [(node, _meant(node, known)) for node in nodes if isinstance(node, ast.Name | ast.Attribute)]
    return found | {(_name(node), id(value)) for node, value in meant if value is not None}


def _name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _meant(node: ast.AST, known: dict[str, Any]) -> Any:
    """What a name, or a name in a module, means; None for anything else."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    module = _meant(node.value, known) if isinstance(node, ast.Attribute) else None
    return _member(module, _name(node)) if isinstance(module, ModuleType) else None  # type: ignore[arg-type]


def _member(module: ModuleType, name: str) -> Any:
    if not hasattr(module, name) and find_spec(f"{module.__name__}.{name}"):
        return importlib.import_module(f"{module.__name__}.{name}")
    return getattr(module, name, None)


def docstring_examples() -> Iterator[Shown]:
    """What has an example in its own docstring or in one of its methods, and what other examples name."""
    finder = doctest.DocTestFinder()
    for info in pkgutil.walk_packages(dwac.__path__, "dwac."):
        try:
            module = importlib.import_module(info.name)
        except ModuleNotFoundError:  # it needs what `make test` does not install
            continue
        for test in finder.find(module, info.name):
            code = [each.source for each in test.examples if not each.options.get(doctest.SKIP)]
            if code:
                name = test.name.removeprefix(f"{info.name}.").partition(".")[0]
                yield shown_by("".join(code), test.globs) | {(name, id(test.globs.get(name)))}


def page_examples() -> Iterator[Shown]:
    yield from code_on_pages(runs=True)
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        yield shown_by(re.sub(r"^( *)%.*", r"\1pass", code, flags=re.M), {})


def code_on_pages(*, runs: bool) -> Iterator[Shown]:
    for path in [ROOT / "README.md", *GUIDE]:
        code = "\n".join(each.code for each in blocks(path) if each.runs is runs and each.language == "python")
        yield shown_by(f"import dwac\n{code}" if "dwac." in code else code, {})


@pytest.fixture(scope="module")
def shown() -> Shown:
    return set().union(*docstring_examples(), *page_examples())


@pytest.mark.parametrize("room", PUBLIC)
def test_every_public_name_has_an_example_that_is_run(room: str, shown: Shown) -> None:
    module = importlib.import_module(room)
    public = {name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)}
    missing = {name for name in public if (name, id(getattr(module, name))) not in shown}
    assert missing == ELSEWHERE.get(room, set()), f"give these names of {room} a short example in their docstrings"


def test_what_needs_other_programs_is_shown_by_a_block_that_is_not_run() -> None:
    shown = set().union(*code_on_pages(runs=False))
    for room, names in ELSEWHERE.items():
        module = importlib.import_module(room)
        assert {name for name in names if (name, id(getattr(module, name))) not in shown} == set()


def test_only_a_name_of_dwac_in_code_is_an_example() -> None:
    kernel = ("get_kernel", id(dwac.kernels.get_kernel))
    for code in ("import dwac\ndwac.kernels.get_kernel('laplace')", "from dwac.kernels import get_kernel"):
        assert kernel in shown_by(code, {})
    assert kernel in shown_by("get_kernel('laplace')", vars(dwac.kernels))
    for code in ("get_kernel('laplace')", "x = 'dwac.kernels.get_kernel'  # get_kernel", "x.get_kernel()"):
        assert kernel not in shown_by(code, {})
    assert kernel not in shown_by("get_kernel = print\nget_kernel('laplace')", vars(dwac.kernels))
