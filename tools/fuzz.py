"""Run the tests that draw their cases with new seeds and ten times the examples, until the minutes are over.

make fuzz MINUTES=10; of some floors only: python -m tools.fuzz 10 tests/reading tests/storage

What fails is shown, kept in .hypothesis/found/, and not drawn again in the same run. Add the case that it names to the
test as an `@example`, see it fail in `make test`, and fix the cause.
"""

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import settings

from tests.drawn import TIMES

FOUND = Path(".hypothesis/found")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Draw more examples, whatever a test says, and go through the files in another order."""
    files = list(dict.fromkeys(item.path for item in items))
    random.Random(os.environ["FUZZ_SEED"]).shuffle(files)
    items.sort(key=lambda item: files.index(item.path))
    for item in items:
        test = getattr(item, "obj", None)
        own = getattr(test, "_hypothesis_internal_use_settings", None)
        if own is not None:
            more = settings(settings.get_profile("fuzz"), max_examples=TIMES * own.max_examples)
            vars(getattr(test, "__func__", test))["_hypothesis_internal_use_settings"] = more


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep what failed."""
    if report.failed:
        FOUND.mkdir(parents=True, exist_ok=True)
        text = f"{report.nodeid}\n{report.longreprtext}\n"
        (FOUND / re.sub(r"\W+", "_", report.nodeid)).write_text(text, encoding="utf-8")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """End the round when the time is over."""
    if time.time() > float(os.environ["FUZZ_END"]):
        item.session.shouldstop = "the minutes are over"
        pytest.skip("the minutes are over")


def main(minutes: float, folders: list[str]) -> int:
    """Run rounds, each with its own seed; the status is 1 if any found something."""
    end, rounds = time.time() + 60 * minutes, 0
    failed: list[str] = []
    FOUND.mkdir(parents=True, exist_ok=True)
    for file in FOUND.iterdir():
        file.unlink()
    while time.time() < end:
        seed = random.SystemRandom().randrange(2**32)
        print(f"round {rounds + 1}, seed {seed}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "tools.fuzz", "-n0", "-q", "-m", "hypothesis or drawn"]
            + ["--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}"]
            # A test that hangs shows where, and ends the round.
            + ["-o", "faulthandler_timeout=900", "-o", "faulthandler_exit_on_timeout=true"]
            + [f"--deselect={name}" for name in failed]
            + folders,
            env=os.environ | {"FUZZ_SEED": str(seed), "FUZZ_END": str(end), "OMP_NUM_THREADS": "1"},
        )
        rounds += 1
        failed = [file.read_text(encoding="utf-8").partition("\n")[0] for file in sorted(FOUND.iterdir())]
        if done.returncode not in (0, 1, 2):
            print(f"pytest ended with {done.returncode}", flush=True)
            return 1
    print(f"{rounds} rounds; {len(failed)} tests failed", *failed, sep="\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:] or ["tests"]))
