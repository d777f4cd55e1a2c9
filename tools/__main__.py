"""The jobs of this repository, on every system: `python -m tools test`; where there is make, `make test` runs the same.

Each job installs what it needs into a virtual environment of this Python, again only if pyproject.toml has changed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - whoever runs this may have another
    sys.exit(f"dwac needs Python 3.11 or newer; got {sys.version.split()[0]}; use make PYTHON=python3.12")

from tools.environments import PYPROJECT, ROOT, end, install, make_environment, run, start
from tools.lowest import requirements
from tools.release import build

# One more than there are cores: many tests wait for other processes.
WORKERS = str((os.cpu_count() or 1) + 1)
# The core of the interpreted kernels. One process: each would import and collect for as long as it tests.
KERNELS = (
    "(fused or place_in_the_batch and 16 or triton and gaussian and (oracle or few_outliers or closed_form))"
    " and not every_width and not any_ and not 64-50 and not 7-1000 and not 3-50 and not 1-40-16 and not False-1"
    " and not 130-257 and not 65-130 and not 257-33 and not True-1-2-17 and not True-14-2-17"
    " and not (130-3 and not (ids and weights))"
)
ALL_KERNELS = (
    "(fused or place_in_the_batch or triton and (gaussian or outliers) and not norms and not rounding)"
    " and not every_width"
)
# mypy makes little garbage, and looking for it takes a fifth of its time.
TYPES = "import gc; gc.disable(); gc.enable = lambda: None; from mypy.__main__ import console_entry as check; check()"
# What versions of dependencies touch most.
LOWEST = (
    *("tests/cli", "tests/encoders", "tests/engine", "tests/nn", "tests/storage", "tests/explain/test_explanation.py"),
    *("tests/estimator/test_classifier.py", "tests/estimator/test_persistence.py", "tests/training/test_checkpoint.py"),
)
BENCHMARKS = ("engine", "conformal", "service", "explorer", "worth")


def pytest(*words: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start tests, each process on one thread."""
    return start("-m", "pytest", *words, OMP_NUM_THREADS="1", **environment)


def install_extras(name: str, extras: str) -> None:
    """Install this checkout with extras."""
    install(name, "--editable", f".[{extras}]")


def compile_tests() -> None:
    """Compile what the tests import once, not in every worker at the same time: 54 s of processor time for each."""
    marker = ROOT / ".venv" / "compiled"
    if not marker.exists() or marker.stat().st_mtime < (ROOT / ".venv" / "test").stat().st_mtime:
        pytest("--collect-only", "-n0", "-qqq", "--no-header", "--no-summary").wait()
        marker.touch()


def demo() -> None:
    """Set up and run the main job."""
    install_extras("demo", "cli")
    run("-c", "from dwac.cli import main; main()", "demo")


def lint() -> None:
    """Check the style and the format."""
    install_extras("test", "dev")
    run("-m", "ruff", "check", ".")
    run("-m", "ruff", "format", "--check", ".")


def types() -> None:
    """Check the types."""
    install_extras("test", "dev")
    run("-c", TYPES)


def test() -> None:
    """Set up and run the checks. mypy, which keeps one core busy, runs beside the compiler and the tests."""
    lint()
    checks = [start("-c", TYPES)]
    compile_tests()
    checks.append(pytest("-n0", "-q", "-k", KERNELS, "tests/engine", "tests/nn/test_loss.py", TRITON_INTERPRET="1"))
    end(*checks, pytest("-n", WORKERS, "--durations=20"))


def test_slow() -> None:
    """Run the tests with much data, many fits, other processes or a browser, which `test` leaves out."""
    install_extras("slow", "dev,docs")
    end(pytest("-n", WORKERS, "-m", "slow"))


def fuzz() -> None:
    """Draw new cases for the property tests for some minutes (10), and keep those that fail: `fuzz 20`."""
    install_extras("test", "dev")
    run("-m", "tools.fuzz", *(sys.argv[2:] or ["10"]))


def test_triton() -> None:
    """Run all interpreted tests of the kernels, of which `test` runs the core."""
    install_extras("test", "dev")
    run("-m", "pytest", "-k", ALL_KERNELS, "tests/engine", "tests/nn/test_loss.py", TRITON_INTERPRET="1")


def docs() -> None:
    """Build the site into site/, to be read offline from site/index.html. A warning ends it."""
    install_extras("docs", "cli,docs,server")
    run("-m", "mkdocs", "build", "--strict", NO_MKDOCS_2_WARNING="1")


def test_engines() -> None:
    """Run the tests on Dask, Ray, Spark and an object store: 0.7 GB installed. None may be skipped."""
    if not shutil.which("java"):
        sys.exit("Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless")
    install_extras("engines", "dev,engines")
    words = ("-m", "pytest", "-n0", "-m", "", "tests/scoring/engines", "tests/training/test_trainers.py")
    run(*words, DWAC_ENGINES="all")


def test_mlflow() -> None:
    """Run the tests with MLflow, which test skips: it brings 40 packages."""
    install_extras("mlflow", "dev,mlflow")
    end(pytest("-n0", "-m", "", "tests/mlflow"))


def test_onnx() -> None:
    """Run the tests of exported files, with ONNX Runtime."""
    # A conversion takes half a minute, and what it needs 110 MB: `test` checks the numbers of the same module.
    install_extras("onnx", "dev,onnx")
    end(pytest("-n0", "-m", "", "tests/estimator/test_export.py"))


def test_lowest() -> None:
    """Run most tests with the lowest versions that pyproject.toml allows; torch 2.6 for Linux takes 6 GB of disk."""
    # Deprecations are those of old packages among new ones.
    _test_versions(".venv-lowest", "-W", "ignore::DeprecationWarning")


def test_newest() -> None:
    """Run the same tests with the newest versions, released or not, whatever pyproject.toml allows."""
    _test_versions(".venv-newest", newest=True)


def _test_versions(venv: str, *words: str, newest: bool = False) -> None:
    make_environment(venv)
    (ROOT / venv / "requirements.txt").write_text(requirements(PYPROJECT, newest=newest), encoding="utf-8")
    more = ["--pre", "--upgrade"] if newest else []
    install("installed", *more, "--requirement", f"{venv}/requirements.txt", venv=venv)
    install("dwac", "--no-deps", "--editable", ".", venv=venv)
    files = sorted(str(path) for path in Path("tests").glob("test_*.py"))
    run("-m", "pytest", *words, *files, *LOWEST, venv=venv)


def bench() -> None:
    """Measure the speed claims, and write docs/results."""
    install_extras("bench", "dev,bench")
    for name in BENCHMARKS:
        run("-m", f"benchmarks.{name}")


def clean() -> None:
    """Remove virtual environments and build results."""
    for pattern in (".venv*", "build", "dist", "site", "src/*.egg-info"):
        for path in ROOT.glob(pattern):
            shutil.rmtree(path)


_TESTS = (
    test,
    lint,
    types,
    test_slow,
    fuzz,
    test_triton,
    test_engines,
    test_mlflow,
    test_onnx,
    test_lowest,
    test_newest,
)
JOBS: dict[str, Callable[[], None]] = {
    job.__name__.replace("_", "-"): job for job in (demo, *_TESTS, docs, build, bench, clean)
}


def main() -> None:
    """Run the job that is named; list all if none is."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in JOBS:
        JOBS[name]()
        return
    print(f"{name} is not a job; " * bool(name) + "python -m tools JOB, where JOB is")
    for known, job in JOBS.items():
        print(f"  {known:13} {(job.__doc__ or '').splitlines()[0]}")
    sys.exit(bool(name))


if __name__ == "__main__":
    main()
