"""A page as a reader follows it: its blocks of code, run one after another in an empty folder.

Python blocks share a namespace. Of shell blocks, `dwac …` and `python -c "…"` run in this process. A block
under the comment `<!-- not run by the tests -->` is not run: its Python must compile and name what exists, its commands
and options must exist.
"""

from __future__ import annotations

import ast
import gc
import re
import shlex
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from dwac.cli.app import app
from reproduction.app import PROGRAM as REPRODUCTION
from reproduction.app import app as reproduction

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NOT_RUN = "<!-- not run by the tests -->"
FENCED = re.compile(
    rf"^(?P<not_run> *{NOT_RUN}\n)?(?P<indent> *)```(?P<language>python|sh)\b[^\n]*\n(?P<code>.*?)^(?P=indent)```",
    re.M | re.S,
)
# What a shell line may be: a program in Python, or a command of ours, both with input and output from files.
PROGRAM = re.compile(r'^python -c "(?P<code>.*?)"', re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A block of code on a page."""

    language: str
    code: str
    line: int
    runs: bool


def blocks(path: Path) -> list[Block]:
    text = path.read_text()
    return [
        Block(
            found["language"],
            textwrap.dedent(found["code"]),
            text[: found.start("indent")].count("\n") + 1,
            found["not_run"] is None,
        )
        for found in FENCED.finditer(text)
    ]


def follow(path: Path) -> int:
    """Run a page in the current folder, and return how many of its blocks ran."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    found = blocks(path)
    for block in found:
        try:
            (_run if block.runs else check)(block, namespace)
        except Exception as error:
            error.add_note(f"in {path.relative_to(ROOT)}, the block at line {block.line}:\n{block.code}")
            raise
    return sum(block.runs for block in found)


def _run(block: Block, namespace: dict[str, Any]) -> None:
    if block.language == "python":
        exec(compile(block.code, "page", "exec"), namespace)
        return
    for command in commands(block.code):
        command.run()


@dataclass(frozen=True)
class Program:
    """The Python of a line `python -c "…"`."""

    code: str

    def run(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # a process that ends closes its files
            exec(compile(self.code, "page", "exec"), {"__name__": "__main__"})
            gc.collect()


@dataclass(frozen=True)
class Command:
    """A line `dwac … < input > output`; a comment "exit code 3" says that it ends with that code."""

    words: list[str]
    source: str | None = None
    target: str | None = None
    code: int = 0

    def run(self) -> None:
        given = None if self.source is None else Path(self.source).read_text()
        shown = CliRunner().invoke(app, self.words, input=given, env={"COLUMNS": "120"})
        if shown.exception is not None and not isinstance(shown.exception, SystemExit):
            raise shown.exception
        said = f"dwac {shlex.join(self.words)} ended with {shown.exit_code}:\n{shown.output}"
        assert shown.exit_code == self.code, said
        if self.target is not None:
            Path(self.target).write_text(shown.stdout)


def commands(code: str) -> Iterator[Program | Command]:
    """The commands of a shell block, in order. Anything that the harness cannot run is refused."""
    rest = code.replace("\\\n", " ")
    while rest := rest.lstrip("\n"):
        if program := PROGRAM.match(rest):
            yield Program(program["code"])
            rest = rest[program.end() :].partition("\n")[2]
            continue
        line, _, rest = rest.partition("\n")
        if line.strip() and not line.startswith("#"):
            yield _command(line)


def _command(line: str) -> Command:
    words = shlex.split(line, comments=True)
    if words[0] != "dwac":
        raise ValueError(f"the tests cannot run {line!r}: write {NOT_RUN!r} above the block, or make it a text block")
    places: dict[str, str] = {}
    for sign in "<>":
        if sign in words:
            at = words.index(sign)
            places[sign] = words[at + 1]
            words = words[:at] + words[at + 2 :]
    ends = re.search(r"#.*exit code (\d+)", line)
    return Command(words[1:], places.get("<"), places.get(">"), int(ends[1]) if ends else 0)


def check(block: Block, namespace: dict[str, Any]) -> None:
    """What a block that is not run names exists: attributes of dwac, or commands with their options."""
    del namespace
    if block.language == "python":
        for name in names(block.code):
            _resolve(name)
        return
    for program, line in re.findall(rf"\b(dwac|{REPRODUCTION}) (.*)", block.code.replace("\\\n", " ")):
        _check_command(program, shlex.split(line.partition("|")[0], comments=True))


def names(code: str) -> set[str]:
    """The names `dwac.….…` in Python code."""
    found = {ast.unparse(node) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute)}
    return {name for name in found if re.fullmatch(r"dwac(\.\w+)+", name)}


def _resolve(name: str) -> None:
    parts = name.split(".")
    value: Any = import_module("dwac")
    for at, part in enumerate(parts[1:], start=2):
        value = getattr(value, part, None) or import_module(".".join(parts[:at]))


def _check_command(program: str, words: list[str]) -> None:
    command: Any = typer.main.get_command(app if program == "dwac" else reproduction)
    while hasattr(command, "commands") and not words[0].startswith("-"):
        program, *words = f"{program} {words[0]}", *words[1:]
        command = command.get_command(None, program.split()[-1])
        assert command is not None, f"there is no command {program}"
    known = {"--help", *(name for option in command.params for name in [*option.opts, *option.secondary_opts])}
    for word in words:
        if word.startswith("-") and word != "-" and not re.fullmatch(r"-\d.*", word):
            assert word.partition("=")[0] in known, f"{program} has no option {word}"
