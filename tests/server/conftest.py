"""Fitted models of every target, made once for all tests of the service and the explorer."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac import DWACClassifier, DWACRegressor
from tests.server.test_server import fitted, people

SIZES = people(300).drop(columns="since")
PAID = 20.0 * SIZES["age"] + np.where(SIZES["job"] == "smith", 500.0, 0.0)
TAGS = pd.DataFrame(
    {
        "old": (SIZES["age"] > 50).astype(int),
        "smith": (SIZES["job"] == "smith").astype(int),
        "member": SIZES["member"].astype(int),
    }
)
QUICK: dict[str, Any] = {"epochs": 3, "random_state": 0, "device": "cpu", "verbose": False}


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
    with pytest.warns(UserWarning, match="rows have no label at all"):
        return fitted(SIZES[:240], TAGS[:240], epochs=6, calibration_size=80)


@pytest.fixture(scope="session")
def ordered() -> DWACClassifier:
    """Predicts labels in an order that is not that of the alphabet."""
    ages = pd.cut(SIZES["age"][:240], [0, 35, 50, 65, 99], labels=["young", "adult", "older", "ancient"])
    return fitted(SIZES[:240], ages, epochs=6, calibration_size=60)
