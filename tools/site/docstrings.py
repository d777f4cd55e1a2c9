"""Examples in docstrings are code: doctests and lines of Python get a fence, which Markdown needs to show them so.

And what a comment says of a constant is its docstring.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Fence the examples of every docstring before it is read as Markdown."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Called for each module, class, function and attribute once it is loaded."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
        elif obj.is_attribute and obj.parent.is_module:
            obj.docstring = griffe.Docstring(comment(obj) or "A constant.", parent=obj)


def comment(constant: Any) -> str:
    """The comment above a constant of a module, or behind it, which is where constants are explained."""
    lines = constant.filepath.read_text(encoding="utf-8").splitlines()
    above: list[str] = []
    for line in reversed(lines[: constant.lineno - 1]):
        if not line.startswith("# "):
            break
        above.insert(0, line[2:])
    return " ".join(above) or lines[constant.lineno - 1].partition("  # ")[2]


def fenced(text: str) -> str:
    """A docstring with fences around its examples."""
    parts = re.split(r"(\n[ ]*\n)", text)
    return "".join(part if at % 2 else _fenced(part) for at, part in enumerate(parts))


def _fenced(paragraph: str) -> str:
    language = "pycon" if paragraph.lstrip().startswith(">>> ") else "python" if _is_code(paragraph) else ""
    if not language:
        return paragraph
    indent = paragraph[: len(paragraph) - len(paragraph.lstrip(" "))]
    return f"{indent}```{language}\n{paragraph}\n{indent}```"


def _is_code(paragraph: str) -> bool:
    """Whether all lines are Python that does something: prose hardly ever is."""
    try:
        statements = ast.parse(paragraph).body
    except SyntaxError:
        return False
    doing = [node for each in statements for node in ast.walk(each) if isinstance(node, ast.Call | ast.Assign)]
    return bool(doing)
