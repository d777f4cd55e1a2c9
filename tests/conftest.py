"""What all tests share: one thread, and the same random numbers in every run."""

import atexit
import gc
import random
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from dwac.report import importance
from dwac.training import progress
from tests.steps import ALL, FEW, steps

# What imports and collection make stays until the end: looking for garbage in it takes a tenth of their time.
gc.disable()

# Before it compares tensors, PyTorch looks for those that are spread over machines: that would import 500 modules.
torch.testing._comparison._HAS_DTENSOR = False

# Small tensors gain nothing from more threads, and two processes share two cores.
torch.set_num_threads(1)
# A process started in the background ignores Ctrl-C; tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# `make test` draws the same cases everywhere, and no clock judges them; `make fuzz` draws new ones (tools/fuzz.py).
CALM = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("test", derandomize=True, deadline=None, database=None, suppress_health_check=CALM)
settings.register_profile(
    "fuzz",
    derandomize=False,
    deadline=None,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("test")

# Work that takes long says so after half a minute: not here, where nobody knows how busy the machine is.
progress.EVERY = 3600.0
# Reports measure the importance of columns on few rows.
importance.ROWS = 4


# They use PyTorch's own optimizers, which import its compiler, or transformers: seconds for the first in a process.
TOGETHER = {
    "tests/test_readme.py",
    "tests/encoders/test_encoders.py",
    "tests/encoders/test_hf_tokenizer.py",
    "tests/encoders/test_image.py",
    "tests/encoders/test_image_pretrained.py",
    "tests/encoders/test_likeness.py",
    "tests/encoders/test_text.py",
    "tests/estimator/test_persistence.py",
    "tests/nn/test_ensemble.py",
    "tests/nn/test_heads.py",
    "tests/nn/test_tiles.py",
    "tests/training/test_checkpoint.py",
    "tests/training/test_optimizer.py",
}
# What takes longest comes first, so that no worker is left alone with it at the end; of the rest the largest files.
LONG = ("test_readme.py", "test_browser.py", "test_server.py", "test_commands.py", "test_pages.py")


class Files(LoadFileScheduling):  # type: ignore[misc]
    """Workers take whole files, so each fits its models once, and one worker those that are kept together."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return "together" if file in TOGETHER else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Files | None:
    """Divide the tests among the workers."""
    return Files(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Archives hold the time they were made: named by their bytes, they would differ between workers."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files by how long they take; refuse a name that differs between workers, which then run no test at all."""
    changing = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if changing:
        raise pytest.UsageError(f"A test needs a name without addresses (ids=): {', '.join(changing)}.")
    place = {name: number for number, name in enumerate(LONG)}
    sizes = {path: path.stat().st_size for path in {item.path for item in items}}
    items.sort(key=lambda item: (place.get(item.path.name, len(LONG)), -sizes[item.path]))


def pytest_collection_finish() -> None:
    """Look for garbage from now on, but only among what tests make."""
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)  # or libraries report their own objects as leaks


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Start every test, and the fixtures that it makes, from the same state of all global generators, on one thread."""
    torch.set_num_threads(1)  # `dwac serve` sets it for its own process
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are prepared but not drawn, which takes half the time of a report: for tests of words alone."""
    monkeypatch.setattr("dwac.drawing.picture.Picture.svg", lambda self: "<svg/>")


@pytest.fixture(scope="module")
def few_steps() -> Iterator[None]:
    """Models of small tables and representatives are fitted roughly: for files whose claims need no good model."""
    with steps(FEW):
        yield


@pytest.fixture
def all_steps() -> Iterator[None]:
    """As users fit: for the tests of such a file that need a good model."""
    with steps(ALL):
        yield
