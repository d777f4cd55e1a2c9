"""Everything a page says can be done as it says: its code runs, its commands exist, and every task has its page."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import DOCS, Block, blocks, check, commands, follow
from tests.named import refuses

# Records and notes have no code to follow; the decisions quote code that may have changed since.
GUIDE = sorted(
    path
    for path in DOCS.rglob("*.md")
    if path.relative_to(DOCS).parts[0] not in {"decisions", "notes", "results", "paper.md"} and blocks(path)
)
QUICK = {DOCS / name for name in ("start.md", "how-to/decide.md", "how-to/reasons.md", "tutorials/table.md")}
TASK = re.compile(r"^\| (\d+) \| (.+?) \| \[(.+?)\]\((.+?)\) \|$", re.M)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.slow] * (path not in QUICK), id=str(path.relative_to(DOCS)))
        for path in GUIDE
    ],
)
def test_a_page_can_be_followed(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    assert follow(path) == sum(block.runs for block in blocks(path))


def test_there_are_twenty_tasks() -> None:
    assert [int(number) for number, *_ in tasks()] == list(range(1, 21))


@pytest.mark.parametrize("task", range(20), ids=lambda task: str(task + 1))
def test_a_task_has_a_page_that_is_followed(task: int) -> None:
    _, wanted, _, link = tasks()[task]
    name, _, anchor = link.partition("#")
    page = DOCS / name
    assert page.exists(), f"{wanted!r} has no page {name}"
    assert page in GUIDE
    assert any(block.runs for block in section(page, anchor)), f"nothing under {link} is run"


def tasks() -> list[Any]:
    return TASK.findall((DOCS / "tasks.md").read_text())


def section(page: Path, anchor: str) -> list[Block]:
    """The blocks under a heading, or those of the whole page."""
    text = page.read_text()
    if not anchor:
        return blocks(page)
    headings = [(found.start(), len(found[1]), slug(found[2])) for found in re.finditer(r"^(#+) (.+)$", text, re.M)]
    (at,) = [place for place, (_, _, name) in enumerate(headings) if name == anchor]
    start, depth, _ = headings[at]
    ends = [place for place, level, _ in headings[at + 1 :] if level <= depth]
    first, last = (text[:place].count("\n") for place in (start, ends[0] if ends else len(text)))
    return [block for block in blocks(page) if first < block.line <= last + 1]


def slug(heading: str) -> str:
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower())).strip("-")


# The harness itself


def written(tmp_path: Path, text: str) -> Path:
    page = tmp_path / "page.md"
    page.write_text(text)
    return page


def test_blocks_are_found_with_their_language_and_whether_they_run(tmp_path: Path) -> None:
    page = written(
        tmp_path, "```python\nx = 1\n```\n\n<!-- not run by the tests -->\n```sh\nmake\n```\n\n```text\nno\n```\n"
    )
    assert [(block.language, block.runs, block.line) for block in blocks(page)] == [
        ("python", True, 1),
        ("sh", False, 6),
    ]


def test_commands_of_a_block_are_read_in_order() -> None:
    first, second, third = commands(
        'python -c "\nprint(1)\nprint(2)"\n\ndwac predict m/ - --json < new.csv  # reads\n# a comment\n'
        "dwac predict m/ \\\n  new.csv > out.csv   # exit code 3\n"
    )
    assert vars(first) == {"code": "\nprint(1)\nprint(2)"}
    assert vars(second) == {"words": ["predict", "m/", "-", "--json"], "source": "new.csv", "target": None, "code": 0}
    assert vars(third) == {"words": ["predict", "m/", "new.csv"], "source": None, "target": "out.csv", "code": 3}


def test_a_command_that_cannot_be_run_is_refused() -> None:
    with refuses(ValueError, "curl localhost:8000", "'<!-- not run by the tests -->'"):
        list(commands("curl localhost:8000"))


@pytest.mark.parametrize(
    ("language", "code", "wrong"),
    [
        ("sh", "dwac learn data.csv", "no command dwac learn"),
        ("sh", "dwac train data.csv --no-such-option 3", "no option --no-such-option"),
        ("sh", "docker run dwac\npython -m reproduction data walk", "no command python -m reproduction data walk"),
        ("python", "dwac.nn.NoSuchName(3)", "NoSuchName"),
        ("python", "clf.fit(X y)", "invalid syntax"),
    ],
)
def test_what_a_block_names_without_running_must_exist(language: str, code: str, wrong: str) -> None:
    with pytest.raises((AssertionError, ImportError, SyntaxError), match=wrong):
        check(Block(language, f"{code}\n", 1, runs=False), {})


def test_what_exists_passes() -> None:
    check(Block("sh", "pip install x\ndwac serve model/ --port 8000  # --comment\n", 1, runs=False), {})
    check(Block("python", "with dwac.training.processes() as ranks:\n    dwac.load('x')\n", 1, runs=False), {})
