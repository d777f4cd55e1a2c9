"""Virtual environments of this checkout, and Python in them. Uses the standard library alone."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = ROOT / "pyproject.toml"
BIN = "Scripts" if os.name == "nt" else "bin"
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def start(*words: str, venv: str = ".venv", **environment: str) -> subprocess.Popen[bytes]:
    """Start Python in a virtual environment, in the root of the repository, and show the command."""
    # Compiled modules are kept, whatever the environment says: compiling them again takes every new process 6 seconds.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment}
    print("python", *words, flush=True)
    return subprocess.Popen([ROOT / venv / BIN / "python", *words], cwd=ROOT, env=environment)


def end(*processes: subprocess.Popen[bytes]) -> None:
    """Wait for processes; if one fails, so does the job."""
    if failed := [process.returncode for process in processes if process.wait()]:
        sys.exit(failed[0])


def run(*words: str, venv: str = ".venv", **environment: str) -> None:
    """Run Python in a virtual environment."""
    end(start(*words, venv=venv, **environment))


def make_environment(venv: str) -> None:
    """Create a virtual environment of this Python, if there is none."""
    if not (ROOT / venv / BIN).exists():
        subprocess.run([sys.executable, "-m", "venv", ROOT / venv], check=True)
        # The pip that comes with Python 3.11 takes twice as long to find the versions.
        run(*PIP, "--no-compile", "--upgrade", "pip", venv=venv)


def install(name: str, *packages: str, venv: str = ".venv") -> None:
    """Install packages, unless a marker of this name is newer than pyproject.toml."""
    make_environment(venv)
    marker = ROOT / venv / name
    if not marker.exists() or marker.stat().st_mtime < PYPROJECT.stat().st_mtime:
        # Most modules of the dependencies are never imported: Python compiles those that are.
        run(*PIP, "--no-compile", *packages, venv=venv)
        marker.touch()
