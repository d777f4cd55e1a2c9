"""Rows to watch, and quick settings of models that are watched."""

from typing import Any

import numpy as np
import pandas as pd

QUICK: dict[str, Any] = {"epochs": 4, "random_state": 0, "device": "cpu", "verbose": False}


def people(n: int, seed: int, age: float = 40.0, smiths: float = 0.2) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.normal(age, 10, n).round(),
            "pay": np.where(rng.random(n) < 0.2, np.nan, rng.normal(3000, 500, n)),
            "job": rng.choice(["nurse", "clerk", "smith"], n, p=[0.8 - smiths, 0.2, smiths]),
            "member": rng.random(n) < 0.5,
        }
    )


def old(X: pd.DataFrame) -> Any:
    return np.where(X["age"] > 40, "old", "young")
