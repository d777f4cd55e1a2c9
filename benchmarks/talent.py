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


def measured(folder: Path, name: str, model: str, seed: int) -> float:
    """The figure of one fit."""
    table = pd.read_csv(folder / f"{name}.csv")
    tested = table.pop("part") == "test"
    y, numbers = table.pop("target"), TABLES[name] == "regression"
    fitted = unfitted(model, seed, numbers=numbers).fit(table[~tested], y[~tested])
    if numbers:
        return float(np.sqrt(np.mean((np.ravel(fitted.predict(table[tested])) - y[tested]) ** 2)))
    return float(fitted.score(table[tested], y[tested]))


def unfitted(model: str, seed: int, *, numbers: bool) -> Any:
    """A model of numbers or of classes with its default settings."""
    if model == "dwac":
        return (DWACRegressor if numbers else DWACClassifier)(random_state=seed)
    import pytabkit

    return (pytabkit.RealMLP_TD_Regressor if numbers else pytabkit.RealMLP_TD_Classifier)(random_state=seed)


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", help="parts, such as 'bank, RealMLP, 0': made, and kept for the record")
    asked = parser.parse_args()
    fits = {
        f"{name}, {model}, {seed}": partial(measured, asked.folder, name, model, seed)
        for name in TABLES
        for model in ("dwac", "RealMLP")
        for seed in range(SEEDS)
    }
    made = {part: record.part(part, fits[part]) for part in asked.only or fits}
    if asked.only:
        return
    rows: list[dict[str, Any]] = []
    for name in TABLES:
        for model in ("dwac", "RealMLP"):
            found = pd.Series([made[f"{name}, {model}, {seed}"] for seed in range(SEEDS)])
            rows.append(
                {"table": name, "model": model, "figure": found.mean(), "deviation": found.std(), "seeds": SEEDS}
            )
        rows += [
            {"table": name, "model": f"{model}, published", "figure": figure, "seeds": 15}
            for model, figure in published(asked.folder, name).items()
        ]
    claim = "TALENT's splits: accuracy on bank and mfeat-factors, root mean square error on cpu_act."
    record.write("talent", claim, {"fit on": "training and validation rows"}, pd.DataFrame(rows))


if __name__ == "__main__":
    main()
