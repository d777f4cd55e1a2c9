"""The page of commands is written from the commands themselves: `<!-- commands -->` becomes their help and options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Fill in the commands where the mark is."""
    del page, config, files
    return markdown.replace(MARK, "\n".join(described())) if MARK in markdown else markdown


def described() -> Iterator[str]:
    """Every command as a section: what it does, its arguments and its options."""
    import typer

    from dwac.cli.app import COMMANDS, app

    root: Any = typer.main.get_command(app)
    for name in COMMANDS:
        yield from _section(root.get_command(None, name), f"dwac {name}")


def _section(command: Any, name: str) -> Iterator[str]:
    yield f"\n## {name}\n"
    yield _prose(command.help or "")
    yield "\n| | what it is | default |\n|---|---|---|"
    for parameter in command.params:
        if parameter.name != "help" and not getattr(parameter, "hidden", False):
            yield f"| {_names(parameter)} | {_cell(getattr(parameter, 'help', None) or '')} | {_default(parameter)} |"


def _prose(text: str) -> str:
    """The help of a command: examples, which begin with dwac or a pipe into it, as code."""
    paragraphs = re.split(r"\n\s*\n", text.replace("\b", "").strip())
    parts = groupby(
        (part.strip() for part in paragraphs), key=lambda part: bool(re.match(r"(dwac|cat|torchrun) ", part))
    )
    shown = (_examples(list(part)) if code else "\n\n".join(map(_escaped, part)) for code, part in parts)
    return "\n\n".join(shown)


def _examples(lines: list[str]) -> str:
    """Commands as one block, each below what its comment says of it: side by side they would be too wide."""
    split = (re.split(r"\s+# ", line, maxsplit=1) for line in lines)
    shown = (f"# {rest[0]}\n{command}" if rest else command for command, *rest in split)
    return "```sh\n{}\n```".format("\n".join(shown))


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    return ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])


def _default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required:
        return "required"
    if value is None or value is False or value == () or callable(value) or value == []:
        return ""
    return f"`{value}`"


def _cell(text: str) -> str:
    return _escaped(" ".join(text.split())).replace("|", "\\|")


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("[", "\\[")
