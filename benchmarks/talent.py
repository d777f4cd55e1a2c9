"""Claim: on TALENT's splits, default settings are level with its tuned models and with RealMLP on the same rows.

Published figures are means over 15 seeds of models whose settings 100 trials of Optuna chose on validation rows. Ours
and RealMLP, by its authors' package pytabkit, have default settings and three seeds, and each splits the training and
validation rows, joined, in its own way; nothing was chosen on these tables. Accuracy; of numbers, the root mean square
error.

FOLDER holds the pages with the published figures, results/{cls_bin,cls_multi,regression}.md of LAMDA-Tabular/TALENT on
GitHub, and each table of its example_datasets/ as NAME.csv: the columns of N_*.npy, n0, n1, …, those of C_*.npy, target
and part, which is train, val or test.

    pip install pytabkit
    python -m benchmarks.talent FOLDER
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import record
from dwac import DWACClassifier, DWACRegressor

TABLES = {"bank": "cls_bin", "mfeat-factors": "cls_multi", "cpu_act": "regression"}
SHOWN = ("xgboost", "catboost", "lightgbm", "RandomForest", "mlp", "ftt", "tabr", "modernNCA", "realmlp")
SEEDS = 3


def published(folder: Path, name: str) -> dict[str, float]:
    """The published figures of a table by model."""
    lines = [line.strip("|").split("|") for line in (folder / f"{TABLES[name]}.md").read_text().splitlines()]
    models = [cell.strip() for cell in lines[0]]
    cells = next(line for line in lines if line[0].strip() == name)
    found = dict(zip(models, cells, strict=True))
    return {model: float(found[model].strip(" *").partition("+")[0]) for model in SHOWN}


def measured(folder: Path, name: str, model: str, seed: int) -> dict[str, float]:
    """The figure of one fit, and its seconds."""
    table = pd.read_csv(folder / f"{name}.csv")
    tested = table.pop("part") == "test"
    y, numbers = table.pop("target"), TABLES[name] == "regression"
    fitted, start = classifier(model, seed, numbers), time.perf_counter()
    fitted.fit(table[~tested], y[~tested])
    seconds = time.perf_counter() - start
    missed = np.asarray(fitted.predict(table[tested])).reshape(-1) - y[tested] if numbers else None
    figure = fitted.score(table[tested], y[tested]) if missed is None else np.sqrt(np.mean(missed**2))
    return {"figure": float(figure), "seconds": seconds}


def classifier(model: str, seed: int, numbers: bool) -> Any:
    """A model to fit, of numbers or of classes."""
    if model == "dwac":
        return (DWACRegressor if numbers else DWACClassifier)(random_state=seed)
    import pytabkit

    own = pytabkit.RealMLP_TD_Regressor if numbers else pytabkit.RealMLP_TD_Classifier
    return own(random_state=seed, device="cpu")


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    rows: list[dict[str, Any]] = []
    for name in TABLES:
        for model in ("dwac", "RealMLP"):
            fits = [
                record.part(f"{name}, {model}, {seed}", partial(measured, folder, name, model, seed))
                for seed in range(SEEDS)
            ]
            found = pd.DataFrame(fits)
            deviation = float(found["figure"].std())
            rows.append({"table": name, "model": model, **found.mean().to_dict(), "±": deviation, "seeds": SEEDS})
        rows += [
            {"table": name, "model": f"{model}, published", "figure": figure, "seeds": 15}
            for model, figure in published(folder, name).items()
        ]
    claim = "TALENT's splits: accuracy on bank and mfeat-factors, root mean square error on cpu_act."
    record.write("talent", claim, {"fit on": "training and validation rows"}, pd.DataFrame(rows))


if __name__ == "__main__":
    main()
