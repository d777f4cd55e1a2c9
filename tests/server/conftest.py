"""Fitted models of every kind of rows and target, and one browser, for all tests of the service and the explorer."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac import DWACClassifier, DWACRegressor, Training
from tests.named import warns
from tests.server.data import (
    AGED,
    AGES,
    DIGITS,
    LINES,
    PAID,
    PEOPLE,
    QUICK,
    SIZES,
    TAGS,
    fitted,
    pixels,
    watched,
)
from tests.server.explored import Reader

# Classes


@pytest.fixture(scope="session")
def table() -> DWACClassifier:
    """Tells the old from the young; 200 people."""
    return fitted(PEOPLE[:200], AGED[:200], epochs=4)


@pytest.fixture(scope="session")
def rival() -> DWACClassifier:
    """The same task, learned from few."""
    return fitted(PEOPLE[:60], AGED[:60], epochs=1, random_state=3)


@pytest.fixture(scope="session")
def crowd() -> DWACClassifier:
    """The same task; people lie so close together that few examples explain nothing."""
    clf = fitted(PEOPLE[:200], AGED[:200], epochs=4, training=Training(look_alikes=False))
    clf.model_.references = clf.references_.replaced(embeddings=0.3 * clf.references_.embeddings)
    return clf


@pytest.fixture(scope="session")
def condensed(table: DWACClassifier) -> DWACClassifier:
    """Fourteen vote for all."""
    return table.condense(14)


@pytest.fixture(scope="session")
def digits() -> DWACClassifier:
    return fitted(DIGITS.images[:400], DIGITS.target[:400])


@pytest.fixture(scope="session")
def pictures() -> DWACClassifier:
    return fitted(pixels(80), ["light", "dark"] * 40, epochs=1)


@pytest.fixture(scope="session")
def texts() -> DWACClassifier:
    return fitted(LINES, [line.split()[0] for line in LINES])


# Other targets


@pytest.fixture(scope="session")
def numbers() -> DWACRegressor:
    """Predicts what somebody is paid; 240 rows, of which some calibrate."""
    return DWACRegressor(**{**QUICK, "epochs": 10}, calibration_size=60).fit(SIZES[:240], PAID[:240])


@pytest.fixture(scope="session")
def two_numbers() -> DWACRegressor:
    both = pd.DataFrame({"pay": PAID[:240], "months": 12.0 * SIZES["age"][:240]})
    return DWACRegressor(**QUICK, calibration_size=60).fit(SIZES[:240], both)


@pytest.fixture(scope="session")
def tags() -> DWACClassifier:
    """Predicts several labels per row."""
    with warns(UserWarning, "label"):
        return fitted(SIZES[:240], TAGS[:240], epochs=6, calibration_size=80)


@pytest.fixture(scope="session")
def ordered() -> DWACClassifier:
    """Predicts labels in an order that is not that of the alphabet."""
    return fitted(SIZES[:240], AGES[:240], epochs=6, calibration_size=60)


@pytest.fixture(scope="session")
def watched_model() -> DWACClassifier:
    """Its calibration rows are what a monitor compares with."""
    X = watched(200, 0)
    return fitted(X, np.where(X["age"] > 40, "old", "young"), epochs=4, calibration_size=80)


@pytest.fixture(scope="session")
def watched_folder(watched_model: DWACClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return watched_model.save(tmp_path_factory.mktemp("watched") / "model")


# A browser


def browser_path() -> str:
    """Where Chromium is; without it a test is skipped and says why, but never in continuous integration."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        import playwright.sync_api  # noqa: F401
    except ModuleNotFoundError:
        why = "the page is tested with playwright: pip install playwright"
    else:
        why = "the page is tested with Chromium: apt-get install chromium"
        if path is not None:
            return path
    if os.environ.get("CI"):
        pytest.fail(f"in continuous integration this may not be skipped; {why}")
    pytest.skip(why)


# Of a module: while it runs, no other event loop can in this thread.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = browser_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture
def fresh(page: Reader) -> Reader:
    """The page of the module as it was before anybody edited."""
    return page.again()
