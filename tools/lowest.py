"""The lowest version of each dependency that pyproject.toml allows, as a requirements file for `make test-lowest`."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What users install, and of the development tools only what the tests need.
EXTRAS = ("cli", "image", "report", "server", "text")
TEST_TOOLS = {"hypothesis", "pytest", "pytest-xdist", "pyyaml"}
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)>=(?P<lowest>[\w.]+)[^;]*(?P<marker>;.*)?")


def lowest(requirement: str) -> str:
    """`numpy>=1.26,<3` → `numpy==1.26`.

    >>> lowest("torch>=2.6,<2.14; sys_platform == 'linux'")
    "torch==2.6; sys_platform == 'linux'"
    """
    found = _REQUIREMENT.fullmatch(requirement)
    if found is None:
        raise ValueError(f"a dependency must be given as name>=version; got {requirement!r}; give it a lower bound")
    return f"{found['name']}=={found['lowest']}{found['marker'] or ''}"


def pins(project: dict[str, Any]) -> Iterator[str]:
    """The pins of the core, of the extras that users install, and of the tools that run the tests."""
    extras = project["optional-dependencies"]
    for requirement in [*project["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]:
        yield lowest(requirement)
    for requirement in extras["dev"]:
        if requirement.partition(">")[0] in TEST_TOOLS:
            yield lowest(requirement)


def requirements(pyproject: Path, *, newest: bool = False) -> str:
    """The requirements file; newest: of the same packages any version, as `make test-newest` wants."""
    lines = pins(tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"])
    return "\n".join(re.sub(r"==[\w.]+", "", line) if newest else line for line in lines)
