"""What tests of estimators share: models that are trained once, and folders that someone changed."""

import hashlib
import pickle
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dwac import Training, storage
from tests import steps

Change = Callable[[dict[str, Any]], Any]
_FITTED: dict[str, Any] = {}


def fit_once(model: Any, X: Any, y: Any, **given: Any) -> Any:
    """A copy of the fitted model, for the test to change; equal settings and data are trained on once per process."""
    key = hashlib.sha256(pickle.dumps((type(model), model.get_params(), X, y, given, steps.now()))).hexdigest()
    if key not in _FITTED:
        _FITTED[key] = model.fit(X, y, **given)
    return deepcopy(_FITTED[key])


def forge(folder: Path, change: Change | None = None, tensors: Change | None = None) -> None:
    """Write the folder again, with other contents and checksums that fit: as someone who means harm would."""
    stored = storage.read_model(folder)
    if change is not None:
        change(stored.config)
    if tensors is not None:
        tensors(stored.tensors)
    storage.write_model(folder, *stored)


SPLIT: dict[str, Any] = {
    "epochs": 8,
    "training": Training(batch_size=32, learning_rate=1e-2),
    "random_state": 0,
    "device": "cpu",
    "cross_fit": False,
}


def noisy_rows(n: int, seed: int, name: str = "row") -> tuple[pd.DataFrame, pd.Series]:
    """Two classes that follow a column; a fifth of the labels are wrong."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"], index=[f"{name}{i}" for i in range(n)])
    right = X["a"] + 0.3 * X["b"] > 0
    return X, pd.Series(np.where(right ^ (rng.random(n) < 0.2), "yes", "no"), index=X.index)
