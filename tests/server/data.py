"""Rows and labels that the tests of the service and the explorer share, and how their models are fitted."""

import io
import json
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from sklearn.datasets import load_digits

from dwac import DWACClassifier

QUICK: dict[str, Any] = {"epochs": 3, "random_state": 0, "device": "cpu", "verbose": False}


def fitted(X: Any, y: Any, **options: Any) -> DWACClassifier:
    return DWACClassifier(**{**QUICK, "epochs": 2, **options}).fit(X, y)


def people(n: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "pay": np.where(rng.random(n) < 0.2, np.nan, rng.normal(3000, 500, n)),
            "job": rng.choice(["nurse", "clerk", "smith"], n),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, n), unit="D"),
            "member": rng.random(n) < 0.5,
        },
        index=[f"person{i}" for i in range(n)],
    )


def pixels(n: int) -> Any:
    return np.random.default_rng(0).integers(0, 256, (n, 12, 10, 3), dtype=np.uint8)


def png(array: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


# Classes: models learn from the first 200 people, the first 400 digits, all lines.
PEOPLE = people(260)
AGED = np.where(PEOPLE["age"] > 50, "old", "young")
DIGITS = load_digits()
LINES = [f"{a} {b} {c}" for a in ("red", "green") for b in ("apple", "pear", "plum") for c in map(str, range(12))]

# Other targets: models learn from the first 240 of these people.
SIZES = people(300).drop(columns="since")
PAID = 20.0 * SIZES["age"] + np.where(SIZES["job"] == "smith", 500.0, 0.0)
TAGS = pd.DataFrame(
    {
        "old": (SIZES["age"] > 50).astype(int),
        "smith": (SIZES["job"] == "smith").astype(int),
        "member": SIZES["member"].astype(int),
    }
)
AGES = pd.cut(SIZES["age"], [0, 35, 50, 65, 99], labels=["young", "adult", "older", "ancient"])


def watched(n: int, seed: int, age: float = 40.0) -> pd.DataFrame:
    """Rows for a monitor, of people of this mean age."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.normal(age, 10, n).round(),
            "pay": np.where(rng.random(n) < 0.2, np.nan, rng.normal(3000, 500, n)),
            "job": rng.choice(["nurse", "clerk", "smith"], n, p=[0.6, 0.2, 0.2]),
            "member": rng.random(n) < 0.5,
        }
    )


def watched_rows(n: int, seed: int, age: float = 40.0) -> list[Any]:
    """The same, as a client sends them."""
    return json.loads(watched(n, seed, age).to_json(orient="records"))  # type: ignore[no-any-return]
