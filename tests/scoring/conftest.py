"""One small model of a table, saved once for all tests of scoring on engines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dwac import DWACClassifier


def table(n: int, seed: int = 1) -> pa.Table:
    """Rows with a number, a category, gaps in both, and ids."""
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n)
    frame = pd.DataFrame({"row": [f"r{i}" for i in range(n)], "size": size, "kind": rng.choice(["a", "b", "c"], n)})
    frame.loc[rng.random(n) < 0.1, "size"] = np.nan
    frame["kind"] = frame["kind"].where(rng.random(n) > 0.1, None)
    return pa.Table.from_pandas(frame, preserve_index=False)


@pytest.fixture(scope="session")
def engine_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that says whether "size" is large, small or neither."""
    rows = table(240, seed=0).to_pandas()
    y = np.select([rows["size"] > 0.5, rows["size"] < -0.5], ["large", "small"], "neither")
    folder = tmp_path_factory.mktemp("engines") / "model"
    DWACClassifier(epochs=2, random_state=0, device="cpu").fit(rows[["size", "kind"]], y).save(folder)
    return folder
