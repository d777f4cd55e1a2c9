"""Claim: with default settings, accuracy meets its target on real data and is at most 0.3 points behind a softmax's.

Every model gets the same rows: Adult's and Fashion-MNIST's official parts (Adult without incomplete rows), a random
tenth of Covertype and a random fifth of Stack Overflow as test parts. The peers, XGBoost and a linear support vector
machine on TF-IDF, may choose settings on a part of the training rows; no model sees a test row before the end.

    python -m benchmarks.strength adult covertype fashion_mnist stackoverflow --models dwac softmax --seeds 0 1 2
    python -m benchmarks.strength adult covertype --models xgboost --threads 1
    python -m benchmarks.strength stackoverflow --models svm
    python -m benchmarks.strength --merge OTHER.json        # records of another machine
    python -m benchmarks.strength --report                  # docs/results/strength.md, from the records alone
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import sklearn
import torch
from numpy.typing import NDArray

import dwac
from benchmarks import record
from dwac import datasets, metrics

RECORDS = record.RESULTS / "strength.json"
TARGETS = {"adult": 0.866, "covertype": 0.970, "fashion_mnist": 0.940, "stackoverflow": 0.90}
FARTHEST_BEHIND = 0.3  # points behind the softmax twin
SPLIT_SEED = 0
TEST_SIZES = {"covertype": 0.1, "stackoverflow": 0.2}

Record = dict[str, Any]


class Fitted(NamedTuple):
    """A model ready for test rows: labels, log class weights (None if it has none), rounds, what it chose, where."""

    predict: Callable[[Any], NDArray[Any]]
    log_class_weights: Callable[[Any], NDArray[Any]] | None
    epochs: int | None
    settings: dict[str, Any]
    device: str
    versions: dict[str, str]


def load(name: str) -> datasets.Dataset:
    """The dataset with the one split that every model is measured on."""
    data = datasets.load(name)
    return data.split(TEST_SIZES[name], seed=SPLIT_SEED) if name in TEST_SIZES else data


# --- models: (training examples, labels, seed, options) → Fitted


def dwac_head(head: str) -> Callable[..., Fitted]:
    """DWACClassifier in its default settings, or the softmax twin of the same network."""

    def fit(X: Any, y: NDArray[np.int64], seed: int, options: argparse.Namespace) -> Fitted:
        clf = dwac.DWACClassifier(head=head, random_state=seed, device=options.device, verbose=options.verbose)
        clf.fit(X, y)
        on_gpu = torch.cuda.is_available() and options.device != "cpu"
        device = torch.cuda.get_device_name() if on_gpu else "cpu"
        return Fitted(clf.predict, clf.log_class_weights, len(clf.history_), {}, device, {})

    return fit


def xgboost(X: Any, y: NDArray[np.int64], seed: int, options: argparse.Namespace) -> Fitted:
    """XGBoost with histograms: on Covertype in a setting known to be strong, else the best of a grid."""
    import xgboost

    fixed: dict[str, Any] = {"tree_method": "hist", "random_state": seed, "n_jobs": options.threads}
    fixed |= {"enable_categorical": True}
    settings: dict[str, Any] = {"max_depth": 10, "n_estimators": 600}
    if y.max() == 1:
        settings = _tuned_trees(X, y, seed, fixed)
    model = xgboost.XGBClassifier(**fixed, **settings).fit(X, y)

    def margins(X: Any) -> NDArray[Any]:
        raw = np.asarray(model.predict(X, output_margin=True))
        return raw if raw.ndim == 2 else np.stack([np.zeros_like(raw), raw], axis=1)

    versions = {"xgboost": xgboost.__version__}
    return Fitted(model.predict, margins, settings["n_estimators"], settings, "cpu", versions)


def _tuned_trees(X: Any, y: NDArray[np.int64], seed: int, fixed: dict[str, Any]) -> dict[str, Any]:
    """The settings with the lowest log-loss on a fifth of the training rows, which also tell when to stop."""
    import xgboost

    held, kept = _held_out(len(y), seed)
    trials = []
    # Categories split by subsets (native) beyond 4 values, or one at a time (one-hot) for all.
    for depth, columns, one_hot in product((3, 4, 6, 8), (0.4, 0.8), (4, 100)):
        settings = {"max_depth": depth, "colsample_bytree": columns, "max_cat_to_onehot": one_hot}
        settings |= {"learning_rate": 0.05, "subsample": 0.9}
        model = xgboost.XGBClassifier(**fixed, **settings, n_estimators=3000, early_stopping_rounds=50)
        model.fit(X.iloc[kept], y[kept], eval_set=[(X.iloc[held], y[held])], verbose=False)
        trials.append((float(model.best_score), settings | {"n_estimators": int(model.best_iteration) + 1}))
    return min(trials, key=lambda trial: trial[0])[1]


def svm(X: list[str], y: NDArray[np.int64], seed: int, options: argparse.Namespace) -> Fitted:
    """LinearSVC on TF-IDF of words and pairs of words and of 2 to 5 characters; C chosen on a fifth of the rows."""
    del options  # it has one thread
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.svm import LinearSVC

    def pipeline(C: float) -> Any:
        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
        characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)
        return make_pipeline(make_union(words, characters), LinearSVC(C=C, random_state=seed))

    held, kept = _held_out(len(y), seed)
    texts = np.array(X, dtype=object)
    scores = {C: pipeline(C).fit(texts[kept], y[kept]).score(texts[held], y[held]) for C in (0.1, 0.3, 1.0)}
    best = max(scores, key=lambda C: scores[C])
    return Fitted(pipeline(best).fit(texts, y).predict, None, None, {"C": best}, "cpu", {})


def _held_out(n: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A fifth of n rows, and the rest."""
    order = np.random.default_rng(seed).permutation(n)
    return order[: n // 5], order[n // 5 :]


MODELS: dict[str, Callable[..., Fitted]] = {
    "dwac": dwac_head("dwac"),
    "softmax": dwac_head("softmax"),
    "xgboost": xgboost,
    "svm": svm,
}
PEERS = {"xgboost": ("adult", "covertype"), "svm": ("stackoverflow",)}  # those not named take every dataset


# --- one run, one record


def measure(data: datasets.Dataset, model: str, seed: int, options: argparse.Namespace) -> Record:
    """Fit a model on the training part and judge it on the test part."""
    if data.y_test is None:
        raise ValueError(f"{data.name} needs a test part")
    start = time.perf_counter()
    fitted = MODELS[model](data.X_train, data.y_train, seed, options)
    seconds = time.perf_counter() - start
    row: Record = {"dataset": data.name, "model": model, "seed": seed}
    row |= {"n_train": len(data.y_train), "n_test": len(data.y_test)}
    row["accuracy"] = float(np.mean(np.asarray(fitted.predict(data.X_test)) == data.y_test))
    row |= {"calibration_error": None, "log_loss": None}
    if fitted.log_class_weights is not None:
        log_p = np.asarray(fitted.log_class_weights(data.X_test), dtype=np.float64)
        log_p -= np.logaddexp.reduce(log_p, axis=1, keepdims=True)
        row["calibration_error"] = metrics.calibration_error(data.y_test, np.exp(log_p))
        row["log_loss"] = metrics.log_loss(data.y_test, log_p)
    versions = {"dwac": dwac.__version__, "python": platform.python_version(), "torch": torch.__version__}
    versions |= {"numpy": np.__version__, "pandas": pd.__version__, "scikit-learn": sklearn.__version__}
    return row | {
        "fit_seconds": seconds,
        "epochs": fitted.epochs,
        "settings": fitted.settings,
        "device": fitted.device,
        "processor": record.processor(),
        "versions": versions | fitted.versions,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def key(row: Record) -> tuple[int, int, int]:
    """What a record is of, in the order of the report."""
    return list(TARGETS).index(row["dataset"]), list(MODELS).index(row["model"]), row["seed"]


def read(path: Path) -> list[Record]:
    """The records of a file; none if there is no file yet."""
    return list(json.loads(path.read_text())["records"]) if path.exists() else []


def merge(path: Path, rows: Iterable[Record]) -> list[Record]:
    """Put records into a file; of two of the same dataset, model and seed the later stays."""
    latest: dict[tuple[int, int, int], Record] = {}
    for row in sorted([*read(path), *rows], key=lambda row: row["date"]):
        latest[key(row)] = row
    together = [latest[place] for place in sorted(latest)]
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"claim": claim(), "records": together}, indent=1) + "\n")
    os.replace(part, path)
    return together


# --- the report


def claim() -> str:
    return (__doc__ or "").split("\n")[0]


def report(rows: Sequence[Record]) -> str:
    """Every dataset's table and verdicts as Markdown, from records alone."""
    sections = [section(name, [row for row in rows if row["dataset"] == name]) for name in TARGETS]
    how = (__doc__ or "").split("\n\n")[1].replace("\n", " ")
    return f"<!-- written by benchmarks/, never by hand -->\n# strength\n\n{claim()}\n\n{how}\n\n" + "\n".join(sections)


def section(name: str, rows: Sequence[Record]) -> str:
    """One dataset: a row a model, what was claimed, met or missed, and where it was measured."""
    if not rows:
        return f"## {name}\n\nNot measured yet.\n"
    by_model = {model: [row for row in rows if row["model"] == model] for model in MODELS}
    by_model = {model: found for model, found in by_model.items() if found}
    table = pd.DataFrame([summary(model, found, by_model.get("dwac", [])) for model, found in by_model.items()])
    head = f"## {name}\n\n{rows[0]['n_train']:,} training and {rows[0]['n_test']:,} test rows.\n\n"
    places = sorted({circumstances(row) for row in rows})
    return head + record.markdown(table) + "\n" + "\n".join([*verdicts(name, by_model), "", *places]) + "\n"


def summary(model: str, rows: Sequence[Record], ours: Sequence[Record]) -> Record:
    """The table's row of a model: means over seeds, and how many points dwac is ahead on the seeds both have."""

    def mean(field: str) -> float:
        values = [row[field] for row in rows if row[field] is not None]
        return float(np.mean(values)) if values else np.nan

    spread = np.std([row["accuracy"] for row in rows], ddof=1) if len(rows) > 1 else np.nan
    return {
        "model": model,
        "seeds": len(rows),
        "accuracy": mean("accuracy"),
        "± sd": float(spread),
        "dwac ahead by, points": "" if model == "dwac" else lead(ours, rows),
        "calibration error": mean("calibration_error"),
        "log-loss": mean("log_loss"),
        "seconds to fit": mean("fit_seconds"),
        "epochs or rounds": mean("epochs"),
    }


def lead(ours: Sequence[Record], others: Sequence[Record]) -> float:
    """Mean accuracy of ours above that of the others in points, over the seeds that both have; NaN if none."""
    mine, theirs = ({row["seed"]: row["accuracy"] for row in rows} for rows in (ours, others))
    shared = sorted(mine.keys() & theirs.keys())
    return 100 * float(np.mean([mine[seed] - theirs[seed] for seed in shared])) if shared else float("nan")


def verdicts(name: str, by_model: dict[str, list[Record]]) -> list[str]:
    """The two claims, each met, missed or open."""
    if "dwac" not in by_model:
        return [f"- dwac: not measured yet; target {TARGETS[name]:.3f}."]
    accuracy = float(np.mean([row["accuracy"] for row in by_model["dwac"]]))
    lines = [f"- Accuracy {accuracy:.4f}, target {TARGETS[name]:.3f}: {_word(accuracy >= TARGETS[name])}."]
    behind = -lead(by_model["dwac"], by_model.get("softmax", []))
    if np.isnan(behind):
        return [*lines, "- Softmax twin: not measured yet on the same seeds."]
    place = f"{abs(behind):.2f} points {'behind' if behind > 0 else 'ahead of'} its softmax twin"
    return [*lines, f"- {place}, at most {FARTHEST_BEHIND} behind claimed: {_word(behind <= FARTHEST_BEHIND)}."]


def _word(met: bool) -> str:
    return "**met**" if met else "**missed**"


def circumstances(row: Record) -> str:
    """Where and with what a record was made."""
    versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    device = row["processor"] if row["device"] == "cpu" else row["device"]
    chosen = ", ".join(f"{name} {value}" for name, value in row["settings"].items())
    return f"- {row['model']} on {device}, {row['date'][:10]}; {versions}" + (f"; settings: {chosen}" * bool(chosen))


# --- the command


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.strength", description=claim())
    parser.add_argument("datasets", nargs="*", choices=[*TARGETS, []], metavar="DATASET", help=", ".join(TARGETS))
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["dwac", "softmax"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--device", default="auto", help="of dwac and softmax")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of xgboost")
    parser.add_argument("--verbose", action="store_true", help="show the training of dwac and softmax")
    parser.add_argument("--records", type=Path, default=RECORDS, help="the file that records are put into")
    parser.add_argument("--merge", nargs="+", type=Path, default=[], help="files whose records to put into it too")
    parser.add_argument("--report", action="store_true", help="write the report beside it")
    return parser.parse_args()


def main() -> None:
    chosen = options()
    if chosen.merge:
        merge(chosen.records, [row for path in chosen.merge for row in read(path)])
    for name in chosen.datasets:
        data = load(name)
        for model, seed in product([m for m in chosen.models if name in PEERS.get(m, TARGETS)], chosen.seeds):
            row = measure(data, model, seed, chosen)
            merge(chosen.records, [row])
            print({field: row[field] for field in ("dataset", "model", "seed", "accuracy", "fit_seconds")}, flush=True)
    if chosen.report:
        path = chosen.records.with_suffix(".md")
        path.write_text(report(read(chosen.records)))
        print(f"written: {path}")


if __name__ == "__main__":
    main()
