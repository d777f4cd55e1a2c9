"""Claim: numbers are predicted as well as by tuned XGBoost on tables, and better than by ridge on texts and images.

Tables: California housing, diamonds, bike sharing by the hour (FOLDER/regression). 20 % of the rows are for testing,
always the same; two seeds divide the others into training, validation and calibration rows. XGBoost has the same rows
of each kind. Its settings are the best of a random search for squared error on validation
rows (the target as it is, or its log), and every fit stops early. Its quantiles are from one model for 19 levels, its
interval is conformalised quantile regression from 5 % and 95 %. CRPS is scored by the same 19 quantiles for both; ours
exactly, too.

Texts: the stars of clothing reviews (FOLDER/reviews_fallback), as a number and as ordered labels; ridge and logistic
regression on TF-IDF, strengths chosen on validation rows. Images: the angle by which Fashion-MNIST pictures were
turned; ridge on pixels.

    python -m benchmarks.numbers --data FOLDER          # needs XGBoost
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.ndimage import rotate
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils import check_random_state

from benchmarks import record
from dwac import DWACClassifier, DWACRegressor
from dwac.estimator.preparation import Parts, split
from dwac.metrics import interval_coverage, ranked_probability_score
from reproduction import datasets

Floats = NDArray[np.float64]
LEVELS = np.linspace(0.05, 0.95, 19)
EPSILON, SEEDS, TEST = 0.1, 2, 0.2
QUANTILES: dict[str, Any] = {
    "objective": "reg:quantileerror", "quantile_alpha": LEVELS, "learning_rate": 0.1, "n_estimators": 1000,
}  # fmt: skip
TABLES = {
    "california_housing": ("median_house_value", []),
    "diamonds": ("price", []),
    "bike_sharing_hour": ("cnt", ["instant", "dteday", "casual", "registered"]),
}
ORDERS = {
    "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
    "color": list("JIHGFED"),
    "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
}


def table(folder: Path, name: str) -> tuple[pd.DataFrame, Floats, NDArray[np.bool_]]:
    """A table, its numbers, and which rows are for testing."""
    target, leaks = TABLES[name]
    frame = pd.read_csv(folder / "regression" / f"{name}.csv.gz").drop(columns=leaks)
    y = frame.pop(target).to_numpy(np.float64)
    return frame, y, testing(len(y))


def testing(n: int) -> NDArray[np.bool_]:
    """(n,): a fixed fifth of the rows."""
    return np.asarray(np.random.RandomState(19).permutation(n) < TEST * n)


def parts_of(reg: Any, y: Any, seed: int) -> Parts:
    """The training, validation and calibration rows of a fit with this seed."""
    return split(reg._read_target(y, len(y)).strata, None, None, check_random_state(seed))


def pinball(y: Floats, quantiles: Floats) -> float:
    """Twice the mean pinball loss over the levels: the CRPS as far as these levels tell."""
    missed = y[:, None] - quantiles
    return float(2 * np.maximum(LEVELS * missed, (LEVELS - 1) * missed).mean())


def judged(y: Floats, mean: Floats, quantiles: Floats, intervals: Floats) -> dict[str, float]:
    """How good predictions are. `widest`: coverage among the third of rows with the widest intervals."""
    width = intervals[:, 1] - intervals[:, 0]
    widest = width >= np.quantile(width, 2 / 3)
    return {
        "rmse": float(np.sqrt(np.mean((mean - y) ** 2))),
        "mae": float(np.abs(mean - y).mean()),
        "crps19": pinball(y, quantiles),
        "coverage": interval_coverage(y, intervals),
        "width": float(width.mean()),
        "widest": interval_coverage(y[widest], intervals[widest]),
    }


def ours(folder: Path, name: str, seed: int) -> dict[str, float]:
    """One fit of ours."""
    X, y, test = table(folder, name)
    start = time.perf_counter()
    reg = DWACRegressor(random_state=seed).fit(X[~test], y[~test])
    seconds = time.perf_counter() - start
    votes = reg.predict_distribution(X[test])
    found = judged(y[test], reg.predict(X[test]), votes.quantiles(LEVELS), reg.predict_interval(X[test], EPSILON))
    return {**found, "crps": float(votes.crps(y[test]).mean()), "seconds": seconds}


def xgboost_table(X: pd.DataFrame) -> pd.DataFrame:
    """Categories as XGBoost likes them: in their order, or as categories of its own."""
    X = X.copy()
    for column in X.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in X.dtypes]]:
        if column in ORDERS:
            X[column] = pd.Categorical(X[column], ORDERS[column]).codes
        else:
            X[column] = X[column].astype("category")
    return X


def fitted(parts: Parts, X: pd.DataFrame, y: Floats, chosen: dict[str, Any], threads: int | None, **more: Any) -> Any:
    """XGBoost on training rows, stopped early by validation rows; chosen: its settings, and whether y is logged."""
    import xgboost

    model = xgboost.XGBRegressor(
        early_stopping_rounds=50, tree_method="hist", enable_categorical=True, n_jobs=threads, random_state=0,
        **{"n_estimators": 3000, **chosen["settings"], **more},
    )  # fmt: skip
    target, rows, watch = np.log(y) if chosen["log"] else y, parts.training, parts.validation
    return model.fit(X.iloc[rows], target[rows], eval_set=[(X.iloc[watch], target[watch])], verbose=False)


def tuned(folder: Path, name: str, threads: int | None) -> dict[str, Any]:
    """The best of 24 settings for squared error on the validation rows of the first seed."""
    frame, y, test = table(folder, name)
    X, target = xgboost_table(frame)[~test], y[~test]
    rng, found, parts = np.random.RandomState(0), [], parts_of(DWACRegressor(), target, 0)
    for _ in range(12):
        settings = {
            "max_depth": int(rng.randint(5, 11)),
            "learning_rate": float(rng.choice([0.03, 0.05, 0.1])),
            "subsample": float(rng.choice([0.7, 0.85, 1.0])),
            "colsample_bytree": float(rng.choice([0.6, 0.8, 1.0])),
            "min_child_weight": float(rng.choice([1, 5, 20])),
            "reg_lambda": float(rng.choice([1, 5])),
        }
        for log in (False, True):
            chosen = {"settings": settings, "log": log}
            raw = fitted(parts, X, target, chosen, threads).predict(X.iloc[parts.validation])
            error = np.mean(((np.exp(raw) if log else raw) - target[parts.validation]) ** 2)
            found.append((float(np.sqrt(error)), chosen))
    best = min(found, key=lambda pair: pair[0])[1]
    pinballs = {}
    for log in (False, True):
        raw = fitted(parts, X, target, {**best, "log": log}, threads, **QUANTILES).predict(X.iloc[parts.validation])
        pinballs[log] = pinball(target[parts.validation], np.sort(np.exp(raw) if log else raw, axis=1))
    return {**best, "quantiles_log": pinballs[True] < pinballs[False]}


def xgboost(folder: Path, name: str, seed: int, chosen: dict[str, Any], threads: int | None) -> dict[str, float]:
    """XGBoost with one seed's rows: means by squared error, 19 quantiles, conformalised intervals."""
    frame, y, test = table(folder, name)
    frame = xgboost_table(frame)
    X, target, held, truth = frame[~test], y[~test], frame[test], y[test]
    parts, start = parts_of(DWACRegressor(), target, seed), time.perf_counter()
    mean = fitted(parts, X, target, chosen, threads).predict(held)
    seconds = time.perf_counter() - start
    mean = np.exp(mean) if chosen["log"] else mean
    log = chosen.get("quantiles_log", chosen["log"])
    model = fitted(parts, X, target, {**chosen, "log": log}, threads, **QUANTILES)
    asked = (np.sort(model.predict(part), axis=1) for part in (held, X.iloc[parts.calibration]))
    quantiles, own = (np.exp(part) if log else part for part in asked)
    scores = np.maximum(own[:, 0] - target[parts.calibration], target[parts.calibration] - own[:, -1])
    n = len(scores)
    margin = np.sort(scores)[min(n - 1, int(np.ceil((1 - EPSILON) * (n + 1))) - 1)]
    intervals = np.stack([quantiles[:, 0] - margin, quantiles[:, -1] + margin], axis=1)
    return {**judged(truth, mean, quantiles, intervals), "seconds": seconds}


def reviews(folder: Path) -> tuple[list[str], Floats]:
    """Texts of clothing reviews and their stars."""
    with lzma.open(folder / "reviews_fallback" / "womens_clothing_reviews.jsonl.xz", "rt") as file:
        rows = [json.loads(line) for line in file]
    rows = [row for row in rows if row["Review Text"]]
    return [row["Review Text"] for row in rows], np.array([row["Rating"] for row in rows], dtype=np.float64)


def texts(folder: Path, seed: int) -> dict[str, dict[str, float]]:
    """Stars as a number and as ordered labels; ridge and logistic regression on TF-IDF."""
    X, y = reviews(folder)
    test = testing(len(y))
    train, held = (
        [x for x, out in zip(X, test, strict=True) if not out],
        [x for x, out in zip(X, test, strict=True) if out],
    )
    target, truth = y[~test], y[test]
    reg = DWACRegressor(random_state=seed).fit(train, target)
    votes = reg.predict_distribution(held)
    intervals = reg.predict_interval(held, EPSILON)
    found = {"dwac": judged(truth, reg.predict(held), votes.quantiles(LEVELS), intervals)}
    found["dwac"]["crps"] = float(votes.crps(truth).mean())
    clf = DWACClassifier(random_state=seed, ordered=True).fit(train, target.astype(int))
    codes = truth.astype(int) - 1
    found["dwac, ordered"] = {
        "accuracy": clf.score(held, truth.astype(int)),
        "rps": float(np.mean(ranked_probability_score(codes, clf.predict_proba(held)))),
        "mae": float(np.abs(clf.predict(held) - truth).mean()),
        "coverage": float(clf.predict_set(held, EPSILON)[np.arange(len(codes)), codes].mean()),
        "size": float(clf.predict_set(held, EPSILON).sum(axis=1).mean()),
    }
    parts = parts_of(reg, target, seed)
    vectors = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    A = vectors.fit_transform([train[row] for row in parts.training])
    V, B = vectors.transform([train[row] for row in parts.validation]), vectors.transform(held)
    ridges = [Ridge(alpha).fit(A, target[parts.training]) for alpha in (0.3, 1.0, 3.0, 10.0, 30.0)]
    best = min(ridges, key=lambda model: np.mean((model.predict(V) - target[parts.validation]) ** 2))
    found["ridge on TF-IDF"] = {
        "rmse": float(np.sqrt(np.mean((best.predict(B) - truth) ** 2))),
        "mae": float(np.abs(best.predict(B) - truth).mean()),
    }
    logistic = [LogisticRegression(C=c, max_iter=300).fit(A, target[parts.training]) for c in (1.0, 4.0)]
    model = min(logistic, key=lambda m: _rps(m, V, target[parts.validation]))
    found["logistic regression on TF-IDF"] = {"accuracy": model.score(B, truth), "rps": _rps(model, B, truth)}
    return found


def _rps(model: Any, X: Any, y: Floats) -> float:
    return float(np.mean(ranked_probability_score(y.astype(int) - 1, model.predict_proba(X))))


def images(seed: int, n: int = 6_000) -> dict[str, dict[str, float]]:
    """The angle, within ±45°, by which pictures were turned; ridge on pixels."""
    pictures = np.asarray(datasets.load("fashion_mnist").X_train[:n]).reshape(n, 28, 28)
    angles = np.random.RandomState(19).uniform(-45, 45, n)
    turned = np.stack(
        [rotate(picture, angle, reshape=False, order=1) for picture, angle in zip(pictures, angles, strict=True)]
    )
    test = testing(n)
    reg = DWACRegressor(random_state=seed).fit(turned[~test], angles[~test])
    votes = reg.predict_distribution(turned[test])
    intervals = reg.predict_interval(turned[test], EPSILON)
    found = {"dwac": judged(angles[test], reg.predict(turned[test]), votes.quantiles(LEVELS), intervals)}
    found["dwac"]["crps"] = float(votes.crps(angles[test]).mean())
    parts = parts_of(reg, angles[~test], seed)
    flat = turned.reshape(n, -1) / 255.0
    train, target = flat[~test], angles[~test]
    ridges = [Ridge(alpha).fit(train[parts.training], target[parts.training]) for alpha in (1.0, 10.0, 100.0, 1000.0)]
    best = min(
        ridges, key=lambda model: np.mean((model.predict(train[parts.validation]) - target[parts.validation]) ** 2)
    )
    found["ridge on pixels"] = {
        "rmse": float(np.sqrt(np.mean((best.predict(flat[test]) - angles[test]) ** 2))),
        "mae": float(np.abs(best.predict(flat[test]) - angles[test]).mean()),
    }
    return found


def means_of(frame: pd.DataFrame) -> dict[str, float]:
    """The mean of each column."""
    return {str(name): float(value) for name, value in frame.mean(numeric_only=True).items()}


def measured(folder: Path, seeds: int, threads: int | None) -> list[dict[str, Any]]:
    """A row per model on each table, with their ratios, and on texts and images."""
    rows: list[dict[str, Any]] = []
    for name in TABLES:
        chosen = record.part(f"{name}, settings", partial(tuned, folder, name, threads))
        mine, theirs = (
            pd.DataFrame(
                [record.part(f"{name}, {who}, {seed}", partial(fit, folder, name, seed)) for seed in range(seeds)]
            )
            for who, fit in (("ours", ours), ("xgboost", partial(xgboost, chosen=chosen, threads=threads)))
        )
        for who, frame in (("DWACRegressor", mine), ("XGBoost, tuned", theirs)):
            rows.append({"data": name, "model": who, "seeds": len(frame), **means_of(frame)})
        ratio = mine.mean(numeric_only=True) / theirs.mean(numeric_only=True)
        wanted = {"rmse": 1.0, "crps19": 0.95, "width": 0.95}
        ratios = {key: ratio[key] for key in wanted}
        verdict = ", ".join(f"{key} {'met' if ratios[key] <= most else 'missed'}" for key, most in wanted.items())
        rows.append({"data": name, "model": "ratio", **ratios, "verdict": verdict})
    for name, measure in (("texts", partial(texts, folder)), ("images", images)):
        found = [record.part(f"{name}, {seed}", partial(measure, seed)) for seed in range(seeds)]
        for who in found[0]:
            means = means_of(pd.DataFrame([each[who] for each in found]))
            rows.append({"data": name, "model": who, "seeds": seeds, **means})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.numbers")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--threads", type=int, help="of XGBoost; all by default")
    asked = parser.parse_args()
    rows = measured(asked.data, asked.seeds, asked.threads)
    kept = ["data", "model", "seeds", "rmse", "mae", "crps", "crps19", "width", "coverage", "widest", "accuracy", "rps"]
    frame = pd.DataFrame(rows)[[*kept, "size", "verdict"]]
    config: dict[str, Any] = {"seeds": asked.seeds, "epsilon": EPSILON, "test share": TEST}
    record.write("numbers", (__doc__ or "").split("\n")[0], config, frame.astype(object).where(frame.notna(), ""))


if __name__ == "__main__":
    main()
