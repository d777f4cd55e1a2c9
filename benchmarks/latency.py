"""Claim: one row is answered in a tenth of a forest's time, with set and typicality in a fifth, explained in half.

Tables, texts and images of a fixed seed; beside dwac, fitted to the same rows in the same run: a forest of 300 trees,
boosted trees, an MLP and k nearest neighbours of scikit-learn, and the softmax twin. Peers see texts as TF-IDF and
images as pixels. One row: the median of 50 calls after 3, in wall time, and the Python calls of one. Batch: 1,000 rows,
per row. Processor time counts all threads. Ratios are to the forest, in wall time for one row and in processor time
for batches and fits.

    python -m benchmarks.latency                       # tables and images that ship with scikit-learn
    python -m benchmarks.latency --texts               # also the texts of Subjectivity (`reproduction.datasets`)
    python -m benchmarks.latency --only cancer digits
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import dwac
from benchmarks import record
from reproduction import datasets
from reproduction.twin import Twin

CALLS, BATCH = 50, 1000
MOST = {"predict_proba": 0.1, "conformal": 0.2, "explain": 0.5}  # one row, relative to the forest's predict_proba
MOST_IN_BATCHES = {"predict_proba": 0.5, "conformal": 1.0}


class Data(NamedTuple):
    """Rows to fit, and the step that makes numbers of them for peers."""

    X: Any
    y: Any
    prepare: Any = None


def made(n: int) -> Data:
    """A table of 20 columns and 3 classes."""
    X, y = make_classification(n, 20, n_informative=10, n_classes=3, random_state=0)
    return Data(X, y)


def texts() -> Data:
    """3,000 sentences."""
    data = datasets.load("subjectivity")
    rows = np.random.default_rng(0).permutation(len(data.y_train))[:3000]
    return Data([data.X_train[row] for row in rows], data.y_train[rows], TfidfVectorizer(max_features=1000))


DATA: dict[str, Callable[[], Data]] = {
    "cancer": lambda: Data(*load_breast_cancer(return_X_y=True)),
    "digits": lambda: Data(*load_digits(return_X_y=True)),
    "made 3,000 × 20": lambda: made(3_000),
    "made 30,000 × 20": lambda: made(30_000),
    "images": lambda: Data(
        load_digits().images, load_digits().target, FunctionTransformer(lambda X: np.asarray(X).reshape(len(X), -1))
    ),
    "texts": texts,
}


def models(data: Data) -> dict[str, Any]:
    """All models by name; the forest first."""
    before = [] if data.prepare is None else [data.prepare]
    dense = [] if data.prepare is None else [FunctionTransformer(_dense, accept_sparse=True)]
    return {
        "forest": make_pipeline(*before, RandomForestClassifier(300, random_state=0)),
        "boosted trees": make_pipeline(*before, *dense, HistGradientBoostingClassifier(random_state=0)),
        "MLP": make_pipeline(*before, *dense, StandardScaler(), MLPClassifier(random_state=0)),
        "15 nearest neighbours": make_pipeline(*before, *dense, StandardScaler(), KNeighborsClassifier(15)),
        "softmax twin": Twin(random_state=0, verbose=False),
        "dwac": dwac.DWACClassifier(random_state=0, verbose=False),
    }


def _dense(X: Any) -> Any:
    return X.toarray() if hasattr(X, "toarray") else X


class Times(NamedTuple):
    """Milliseconds of one call."""

    wall: float
    processor: float


def measure(work: Callable[[], Any], turns: int) -> Times:
    """The medians of some calls after three."""
    taken = []
    for _ in range(turns + 3):
        wall, processor = time.perf_counter(), time.process_time()
        work()
        taken.append((1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - processor)))
    return Times(*np.median(taken[3:], axis=0).tolist())


def count_calls(work: Callable[[], Any]) -> int:
    """Python calls of one run."""
    profile = cProfile.Profile()
    profile.enable()
    work()
    profile.disable()
    calls: int = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    return calls


def times_of(name: str) -> list[dict[str, Any]]:
    """One row of the table per model and question."""
    data = DATA[name]()
    one = data.X[:1]
    many = (list(data.X) * BATCH)[:BATCH] if isinstance(data.X, list) else np.resize(data.X, (BATCH, *data.X.shape[1:]))
    rows: list[dict[str, Any]] = []
    for who, model in models(data).items():
        start = time.process_time()
        model.fit(data.X, data.y)
        fit = time.process_time() - start
        for question in ("predict_proba", *(("conformal", "explain") if who == "dwac" else ())):
            ask = getattr(model, question)
            alone = measure(lambda ask=ask: ask(one), CALLS)  # type: ignore[misc]
            batch = measure(lambda ask=ask: ask(many), 5) if question != "explain" else None  # type: ignore[misc]
            rows.append(
                {
                    "data": name,
                    "model": who,
                    "question": question,
                    "one row, ms": alone.wall,
                    "one row, processor ms": alone.processor,
                    "Python calls": count_calls(lambda ask=ask: ask(one)),  # type: ignore[misc]
                    "batch, µs per row": np.nan if batch is None else batch.wall,
                    "batch, processor µs per row": np.nan if batch is None else batch.processor,
                    "fit, processor s": fit if question == "predict_proba" else np.nan,
                }
            )
            print({key: round(value, 2) if isinstance(value, float) else value for key, value in rows[-1].items()})
    return [row | compare(row, rows[0]) for row in rows]


def compare(row: dict[str, Any], forest: dict[str, Any]) -> dict[str, Any]:
    """Ratios to the forest, and whether ours are as small as asked."""
    one = row["one row, ms"] / forest["one row, ms"]
    batch = row["batch, processor µs per row"] / forest["batch, processor µs per row"]
    ours = row["model"] == "dwac"
    met = one <= MOST.get(row["question"], 1.0) and not batch > MOST_IN_BATCHES.get(row["question"], np.inf)
    return {"one row / forest": one, "batch / forest": batch, "verdict": ("met" if met else "missed") if ours else ""}


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=DATA, help="some of the data, without a record")
    parser.add_argument("--texts", action="store_true", help="also texts, which must be downloaded")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore")
    names = chosen.only or [name for name in DATA if name != "texts" or chosen.texts]
    table = pd.DataFrame([row for name in names for row in times_of(name)])
    if chosen.only:
        print(table.to_string(index=False))
        return
    config = {"calls": CALLS, "batch": BATCH, "threads": torch.get_num_threads()}
    record.write("latency", str(__doc__).split("\n\n")[0], config, table)


if __name__ == "__main__":
    main()
