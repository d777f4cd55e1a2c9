"""What the sources of dwac, the reproduction and the benchmarks compute, and which of them a script can run.

digest(reached("benchmarks.engine"))     # another if the engine computes something else, the same if a comment changes
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import dwac

# Parts of the package that most measurements import and do not run: entered only where a script names one itself.
BESIDE = tuple(
    f"dwac.{name}"
    for name in ("cli", "drawing", "mlflow", "monitoring", "reading", "records", "report", "scoring", "server", "worth")
)
RECORDERS = ("benchmarks.record", "reproduction.records", "reproduction.sources")  # write down what others measured
TELLING = {"debug", "info", "warning", "warn", "print"}  # calls whose texts are for people


@cache
def sources() -> dict[str, str]:
    """The text of each module: of the code that runs, not of what the checkout holds hours later."""
    package, checkout = Path(dwac.__file__).parent, Path(__file__).parents[1]
    places = ((package.parent, package), (checkout, checkout / "reproduction"), (checkout, checkout / "benchmarks"))
    return {
        ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__"): path.read_text("utf-8")
        for base, folder in places
        for path in sorted(folder.rglob("*.py"))
    }


def digest(names: Iterable[str]) -> str:
    """A hash of what modules compute."""
    whole = hashlib.sha256()
    for name in sorted(names):
        whole.update(f"{name}\0{meaning(sources()[name])}\0".encode())
    return whole.hexdigest()[:12]


@cache
def meaning(text: str) -> str:
    """Code without comments, docstrings, types, and the texts of errors, warnings and logs; the same in each Python."""
    return _dump(_tree(text))


_tree = cache(ast.parse)


def _dump(node: Any, told: bool = False) -> str:
    """As `ast.dump`, without what is empty, for which versions of Python differ. told: in a text for people."""
    if isinstance(node, list):
        return "[" + ",".join(_dump(part, told) for part in node if not _is_text(part)) + "]"
    if isinstance(node, ast.JoinedStr):  # Python 3.12 adds an empty part to some
        node = ast.JoinedStr([part for part in node.values if getattr(part, "value", None) != ""])
    if not isinstance(node, ast.AST):
        return "" if told and isinstance(node, str) else repr(node)
    if isinstance(node, ast.Constant):
        return f"Constant({_dump(node.value, told)})"
    told = isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and _tells(node.func)) or told
    fields = ((name, value) for name, value in ast.iter_fields(node) if name not in ("annotation", "returns"))
    inside = ",".join(
        f"{name}={_dump(value, told and name not in ('id', 'attr', 'arg'))}"
        for name, value in fields
        if value is not None and value != []
    )
    return f"{type(node).__name__}({inside})"


def _tells(function: ast.expr) -> bool:
    name = str(getattr(function, "attr", getattr(function, "id", "")))
    return name.endswith(("Error", "Warning")) or name in TELLING


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@cache
def reached(*starts: str) -> frozenset[str]:
    """The modules that some modules can import, at once or later, with themselves."""
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        if (name := waiting.pop()) in found or name in RECORDERS or name not in sources():
            continue
        found.add(name)
        mine = not name.startswith("dwac.") or name.startswith(BESIDE)
        waiting += [used for used in _imports(name) if mine or not used.startswith(BESIDE)]
        waiting.append(name.rpartition(".")[0])  # its package is run first
    return frozenset(found)


@cache
def _imports(name: str) -> frozenset[str]:
    """The modules that a module imports, also inside functions; of `import dwac`, the names that it uses."""
    if name == "dwac":  # imports each submodule when it is asked for
        return frozenset()
    return frozenset(module for full in set(_named(_tree(sources()[name]))) for module in _modules(full))


def _modules(full: str) -> list[str]:
    """The module of a name: itself, or that which has it; all of a package for "package.", to which a name is added."""
    if full.endswith(".") and full[:-1] in sources():
        return [name for name in sources() if name.startswith(full) and name.count(".") == full.count(".")]
    parts = full.split(".")
    if parts[0] == "dwac" and len(parts) > 1 and parts[1] in dwac._PLACES:
        return [f"dwac.{dwac._PLACES[parts[1]]}"]
    names = (".".join(parts[:n]) for n in (len(parts), len(parts) - 1))
    return next(([name] for name in names if name in sources()), [])


def _named(node: ast.AST) -> Iterator[str]:
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.If) and isinstance(part.test, ast.Name) and part.test.id == "TYPE_CHECKING":
            continue
        if isinstance(part, ast.Import):
            yield from (alias.name for alias in part.names)
        elif isinstance(part, ast.ImportFrom):
            yield from (f"{part.module}.{alias.name}" for alias in part.names)
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            yield f"{part.value.id}.{part.attr}"
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value.partition("\n")[0]  # what is imported by its name, or run by another process
        yield from _named(part)
