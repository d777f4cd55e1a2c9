"""Small models of every kind, in folders, trained once per test process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dwac
from dwac.reading import Columns, Model


def people(n: int, seed: int = 0) -> pd.DataFrame:
    """A table with two numbers, a category that looks like a number, and a note with odd characters."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.integers(18, 80, n), "pay": rng.normal(size=n).round(4)})
    frame["town"] = rng.choice(["7", "8", "a"], n)
    frame["note"] = rng.choice(["plain", 'a "quoted"\nline', "x,y"], n)
    return frame


def _target(frame: pd.DataFrame) -> Any:
    return np.where(frame["age"] + 5 * frame["pay"] > 48, "old", "young")


def _trained(kind: str) -> Model:
    table, texts = people(160)[["age", "pay", "town"]], ["good fine day", "bad sad night"] * 60
    settings: dict[str, Any] = {"epochs": 2, "random_state": 0, "device": "cpu"}
    clf: Any = dwac.DWACRegressor(**settings) if "number" in kind else dwac.DWACClassifier(**settings)
    y: Any = _target(table)
    if kind == "classes":
        return Model(clf.fit(table, y, ids=[f"p{i}" for i in range(len(table))]), Columns("age_group"))
    if kind == "labels":
        return Model(clf.fit(table, pd.DataFrame({"old": table["age"] > 48, "young": table["age"] <= 48}).astype(int)))
    if kind == "numbers":
        return Model(clf.fit(table, table["age"] + table["pay"]))
    if kind == "two numbers":
        return Model(clf.fit(table, pd.DataFrame({"a": table["age"], "b": table["pay"]})))
    if kind == "texts":
        return Model(clf.fit(texts, [1, 0] * 60), Columns("y", "words"))
    images = np.random.default_rng(0).integers(0, 255, (120, 12, 12), dtype=np.uint8)
    return Model(clf.fit(images, [row % 2 == 0 for row in range(120)]))


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a model of this kind: classes, private, labels, numbers, two numbers, texts or images."""
    root = tmp_path_factory.mktemp("models")

    @cache
    def made(kind: str) -> Path:
        if kind == "private":
            return dwac.load(made("classes"), device="cpu").save(root / kind, include_examples=False)
        return _trained(kind).save(root / kind)

    return made
