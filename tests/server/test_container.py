"""The container recipe, as far as it can be checked without building it: its user, its files, its commands."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from dwac.cli.app import command as dwac_command
from dwac.server.app import OPEN
from tests.server.client import DWAC, HANG, TOKEN, Client

ROOT = Path(__file__).parents[2]
RECIPE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def instructions() -> list[tuple[str, str]]:
    """(word, rest) of each instruction, in order."""
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", RECIPE, flags=re.M)).splitlines()
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines if line.strip()]


def the(word: str) -> str:
    """The only, or the last, instruction of this name."""
    return [rest for name, rest in instructions() if name == word][-1]


def healthcheck() -> list[str]:
    found: list[str] = json.loads(the("HEALTHCHECK").partition("CMD ")[2])
    return found


def served() -> list[str]:
    found: list[str] = json.loads(the("CMD"))
    return found


def test_it_does_not_run_as_root_and_nothing_after_that_changes_the_user() -> None:
    user = the("USER")
    assert user.split(":")[0].isdecimal()
    assert int(user.split(":")[0]) > 0
    assert f"--uid {user.split(':')[0]}" in RECIPE
    last = max(place for place, (name, _) in enumerate(instructions()) if name == "USER")
    assert not any(name in ("RUN", "COPY", "FROM") for name, _ in instructions()[last:])


def test_what_it_copies_is_there_and_is_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split()
            for source in sources:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in ignored, source
    assert ignored[0] == "*"  # whatever else lies here, such as a model or a token, stays out of the image


def test_it_installs_the_torch_that_the_package_asks_for_and_extras_that_exist() -> None:
    (wanted,) = [each for each in PROJECT["dependencies"] if each.startswith("torch")]
    assert f'"{wanted}"' in RECIPE
    extras = the("ARG").partition("=")[2].split(",")
    assert set(extras) <= set(PROJECT["optional-dependencies"])
    assert {"cli", "server"} <= set(extras)


def test_the_health_check_asks_a_page_that_needs_no_token_on_the_port_that_is_served() -> None:
    asked = re.search(r"http://127\.0\.0\.1:(\d+)(/[\w/]+)", healthcheck()[-1])
    assert asked
    assert asked[2] in OPEN
    assert asked[1] == the("EXPOSE") == served()[served().index("--port") + 1]


def options_of(words: list[str]) -> None:
    """Fails for an option that `dwac serve` does not have."""
    assert words[0] == "serve"
    dwac_command("serve").make_context("serve", words[1:], resilient_parsing=False)


def test_the_compose_file_starts_a_service_that_cannot_write_to_itself() -> None:
    found: Any = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    (service,) = found["services"].values()
    options_of(service["command"])
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert "./model:/model:ro" in service["volumes"]
    assert (ROOT / "deploy" / service["build"]).resolve() == ROOT


@pytest.mark.slow
def test_the_command_of_the_container_serves_and_its_health_check_knows(watched_folder: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    places = {"/model": str(watched_folder), "/state": str(tmp_path), "8000": port, "0.0.0.0": "127.0.0.1"}
    words = [places.get(word, word) for word in served()]
    options_of(words)
    assert json.loads(the("ENTRYPOINT")) == ["dwac"]
    check = [sys.executable, *(word.replace("8000", port) for word in healthcheck()[1:])]
    assert healthcheck()[0] == "python"
    assert subprocess.run(check, capture_output=True, timeout=HANG).returncode != 0
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DWAC_TOKEN": TOKEN}
    process = subprocess.Popen(
        [DWAC, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Serving")
        assert subprocess.run(check, capture_output=True, timeout=HANG).returncode == 0
        answer = Client(int(port)).get("/v1/monitor", authorization=f"Bearer {TOKEN}")
        assert answer.json["rows"] == 0
        process.send_signal(getattr(signal, the("STOPSIGNAL")))
        assert process.wait(HANG) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("line", [line for line in RECIPE.splitlines() if line.startswith("# More workers")])
def test_commands_in_its_comments_exist(line: str) -> None:
    options_of(shlex.split(line.partition(" dwac ")[2]))
