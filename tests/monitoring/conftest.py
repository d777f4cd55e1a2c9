"""Models to watch, fitted once; tests leave them as they are."""

from pathlib import Path

import pytest

from dwac import DWACClassifier
from tests.monitoring.helpers import QUICK, old, people


@pytest.fixture(scope="session")
def clf() -> DWACClassifier:
    X = people(600, 0)
    return DWACClassifier(**QUICK, calibration_size=200).fit(X, old(X))


@pytest.fixture(scope="session")
def crossed() -> DWACClassifier:
    X = people(150, 0)
    found = DWACClassifier(random_state=0, device="cpu", verbose=False).fit(X, old(X))
    assert found.cross_fitted_
    return found


@pytest.fixture(scope="session")
def folder(clf: DWACClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clf.save(tmp_path_factory.mktemp("monitor") / "model")
