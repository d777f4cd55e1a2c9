"""Claim: reasons against a real precedent order columns as well as SHAP does, and recourse is valid, small and near.

On five tables and simulated rules, with shap's KernelExplainer and PermutationExplainer, alibi's AnchorTabular and
dice-ml on the same models and rows: deletion and insertion curves (columns in the order of their contributions to the
label, replaced by those of random training rows, or by those of the precedent: the mean probability of the label), how
often the true columns of a rule come first, the rank correlation between two seeds of training, whether a student that
sees five contributions guesses the model's label after columns were changed (or one that sees what the row shares with
the groups that voted, or an anchor), and recourse. Peers get 1,000 evaluations per row.

    pip install shap dice-ml alibi
    python -m benchmarks.reasons
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

import dwac
from benchmarks import record

DRAWS = 20  # training rows whose values replace those of a row
BACKGROUND, EVALUATIONS = 10, 1_000
FROZEN = ["Age", "Marital"]
Ranked = tuple[Any, pd.DataFrame]  # a model, and contributions (rows, columns)


def credit(n: int, seed: int = 0) -> tuple[pd.DataFrame, Any]:
    """Applicants for a loan: numbers and categories, 13 columns, of which six matter."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "Seniority": rng.integers(0, 30, n),
            "Home": rng.choice(["rent", "owner", "parents"], n),
            "Time": rng.choice([12, 24, 36, 48, 60], n),
            "Age": rng.integers(19, 66, n),
            "Marital": rng.choice(["single", "married", "separated"], n),
            "Records": rng.choice(["no", "yes"], n, p=[0.8, 0.2]),
            "Job": rng.choice(["fixed", "freelance", "partime"], n),
            "Expenses": rng.integers(35, 130, n),
            "Income": rng.gamma(5, 28, n).round(),
            "Assets": rng.gamma(1, 5000, n).round(-2),
            "Debt": (rng.random(n) < 0.2) * rng.gamma(2, 800, n).round(-1),
            "Amount": rng.gamma(6, 170, n).round(-1),
            "Price": rng.gamma(6, 240, n).round(),
        }
    )
    risk = 1.6 * (X["Records"] == "yes") - 0.1 * X["Seniority"] + 0.001 * X["Amount"] - 0.01 * X["Income"]
    risk += 0.01 * X["Expenses"] + 0.9 * (X["Job"] == "partime")
    return X, np.where(risk - risk.median() + 0.4 * rng.logistic(size=n) > 0, "bad", "good")


def tables() -> dict[str, tuple[pd.DataFrame, Any]]:
    """Five tables of 4 to 13 columns."""
    found: dict[str, tuple[pd.DataFrame, Any]] = {"credit (simulated)": credit(900)}
    for name, load in (("iris", load_iris), ("wine", load_wine), ("cancer", load_breast_cancer)):
        data = load(as_frame=True)
        found[name] = (data.data.iloc[:, :10] if name == "cancer" else data.data), data.target.to_numpy()
    diabetes = load_diabetes(as_frame=True)
    found["diabetes"] = diabetes.data, np.where(diabetes.target > diabetes.target.median(), "high", "low")
    return found


def fit(X: pd.DataFrame, y: Any, seed: int = 0) -> Any:
    return dwac.DWACClassifier(random_state=seed, verbose=False, device="cpu").fit(X, y)


class Coded:
    """A table as numbers, for peers that know no categories, and the model's log-odds on it."""

    def __init__(self, clf: Any, X: pd.DataFrame) -> None:
        self.clf, self.X = clf, X
        categories = [str(c) for c in X if not pd.api.types.is_numeric_dtype(X[c])]
        self.levels: dict[str, Any] = {c: sorted(X[c].unique()) for c in categories}

    def code(self, rows: pd.DataFrame) -> Any:
        return rows.assign(**{c: rows[c].map(known.index) for c, known in self.levels.items()}).to_numpy(float)

    def frame(self, table: Any) -> pd.DataFrame:
        rows = pd.DataFrame(table, columns=self.X.columns)
        return rows.assign(**{c: [known[int(i)] for i in rows[c]] for c, known in self.levels.items()})

    def odds(self, label: int, other: int) -> Callable[[Any], Any]:
        def f(table: Any) -> Any:
            votes = self.clf.log_class_weights(self.frame(table))
            return votes[:, label] - votes[:, other]

        return f


def ours(clf: Any, rows: pd.DataFrame, precedents: int | str) -> tuple[pd.DataFrame, float, float]:
    """(contributions, the largest error of their sum, milliseconds of processor time per row)."""
    found, wrong, spent = [], 0.0, []
    for e in clf.explain(rows):
        start = time.process_time()
        reasons = e.reasons(precedents=precedents)
        spent.append(time.process_time() - start)
        found.append({part.column: part.contribution for part in reasons.contributions})
        wrong = max(wrong, abs(sum(found[-1].values()) - reasons.total))
    return pd.DataFrame(found)[list(rows.columns)], wrong, 1000 * float(np.median(spent))


def peers(clf: Any, X: pd.DataFrame, rows: pd.DataFrame, kind: str) -> tuple[pd.DataFrame, float]:
    """(shap's contributions to the log-odds of the label against the runner-up, milliseconds per row)."""
    import shap

    coded = Coded(clf, X)
    background = coded.code(X.sample(BACKGROUND, random_state=0))
    found, spent = [], []
    for place, votes in enumerate(clf.log_class_weights(rows)):
        other, label = np.argsort(votes)[-2:]
        f, row = coded.odds(label, other), coded.code(rows.iloc[place : place + 1])
        start = time.process_time()
        if kind == "kernel":
            explainer = shap.KernelExplainer(f, background)
            values = explainer.shap_values(row, nsamples=EVALUATIONS // BACKGROUND, silent=True)[0]
        else:
            explainer = shap.explainers.Permutation(f, background, seed=0)
            most = max(EVALUATIONS // BACKGROUND, 2 * row.shape[1] + 1)
            values = np.asarray(getattr(explainer(row, max_evals=most, silent=True), "values"))[0]  # noqa: B009
        spent.append(time.process_time() - start)
        found.append(values)
    return pd.DataFrame(found, columns=rows.columns), 1000 * float(np.median(spent))


def precedents(clf: Any, rows: pd.DataFrame) -> list[pd.DataFrame]:
    """The precedent of each row, as a table of one row."""
    ids = [[e.reasons().precedent.id] for e in clf.explain(rows)]
    return [clf.examples_.rows(each)[list(rows.columns)] for each in ids]


def curves(
    clf: Any, X: pd.DataFrame, rows: pd.DataFrame, contributions: pd.DataFrame, others: list[pd.DataFrame]
) -> tuple[float, float]:
    """(deletion, insertion): the mean probability of the label as columns go, or come, the most helpful first.

    others: for each row, the rows whose values replace its own.
    """
    deletion: list[float] = []
    insertion: list[float] = []
    for place, draws in enumerate(others):
        row = pd.concat([rows.iloc[place : place + 1]] * len(draws), ignore_index=True)
        label = clf.predict_proba(rows.iloc[place : place + 1])[0].argmax()
        order = contributions.iloc[place].sort_values(ascending=False, kind="stable").index
        for start, goal, means in ((row, draws, deletion), (draws, row, insertion)):
            steps = []
            for n in range(len(order) + 1):
                mixed = start.reset_index(drop=True).copy()
                mixed[list(order[:n])] = goal[list(order[:n])].to_numpy()
                steps.append(mixed.astype(X.dtypes.to_dict()))
            p = clf.predict_proba(pd.concat(steps, ignore_index=True))[:, label]
            means.append(p.mean())
    return float(np.mean(deletion)), float(np.mean(insertion))


Guess = Callable[[int, Any, pd.DataFrame], bool]  # (row, changed columns, changed row) → whether the label stays


def student(clf: Any, X: pd.DataFrame, rows: pd.DataFrame, guess: Guess) -> float:
    """How often a student guesses whether the label stays when two to four columns come from a random training row."""
    rng, right = np.random.default_rng(0), []
    labels = clf.log_class_weights(rows).argmax(axis=1)
    for place in range(len(rows)):
        for _ in range(DRAWS):
            columns = rng.choice(X.columns, min(int(rng.integers(2, 5)), X.shape[1]), replace=False)
            changed = rows.iloc[place : place + 1].copy()
            changed[columns] = X.iloc[[int(rng.integers(len(X)))]][columns].to_numpy()
            changed = changed.astype(X.dtypes.to_dict())
            stays = clf.log_class_weights(changed)[0].argmax() == labels[place]
            right.append(stays == guess(place, columns, changed))
    return float(np.mean(right))


def by_contributions(clf: Any, rows: pd.DataFrame, contributions: pd.DataFrame) -> Guess:
    """A student who sees the five largest: the label stays if the log-odds exceed the contributions that went."""
    votes = np.sort(clf.log_class_weights(rows), axis=1)
    odds = votes[:, -1] - votes[:, -2]
    tops = [row.reindex(row.abs().nlargest(5).index) for _, row in contributions.iterrows()]
    return lambda place, columns, _: odds[place] > tops[place].reindex(columns).fillna(0).sum()


def by_groups(clf: Any, X: pd.DataFrame, rows: pd.DataFrame) -> Guess:
    """A student who sees what the row shares with each group: those whose conditions still hold vote as before."""
    del X
    explanations = clf.explain(rows)

    def guess(place: int, columns: Any, changed: pd.DataFrame) -> bool:
        del columns
        votes: dict[Any, float] = {}
        record = changed.to_dict("records")[0]
        for group in explanations[place].groups:
            if all(each.holds(record[each.column]) for each in group.comparison.shared):
                votes[group.label] = votes.get(group.label, 0.0) + group.share
        return bool(max(votes, key=lambda label: votes[label], default=None) == explanations[place].label)

    return guess


def by_anchors(clf: Any, X: pd.DataFrame, rows: pd.DataFrame) -> Guess:
    """A student who sees alibi's anchor, a rule: the label stays as long as it holds."""
    from alibi.explainers import AnchorTabular

    coded = Coded(clf, X)
    names = {place: known for place, c in enumerate(X.columns) if (known := coded.levels.get(str(c))) is not None}
    explainer = AnchorTabular(
        lambda table: clf.predict_proba(coded.frame(table)).argmax(axis=1), list(map(str, X.columns)), names, seed=0
    )
    explainer.fit(coded.code(X))
    rules = [" and ".join(explainer.explain(row).anchor) for row in coded.code(rows)]

    def holds(rule: str, row: pd.Series[Any]) -> bool:
        for part in filter(None, rule.split(" and ")):
            name = max((str(c) for c in X.columns if str(c) in part), key=len)
            before, after = part.split(name)
            if after.strip().startswith("="):
                if str(row[name]) != after.strip(" ="):
                    return False
                continue
            for text, x, sign in ((before, row[name], 1), (after, row[name], -1)):
                if text.strip():
                    limit, equal = float(text.strip(" <=>")), "=" in text
                    greater = ("<" in text) == (sign == 1)
                    if not (x > limit or (equal and x == limit) if greater else x < limit or (equal and x == limit)):
                        return False
        return True

    return lambda place, _, changed: holds(rules[place], changed.iloc[0])


def rule(n: int, seed: int) -> tuple[pd.DataFrame, Any, list[str]]:
    """A table of ten columns and labels that follow from two of them, one a category."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 9)), columns=[f"x{i}" for i in range(9)])
    X["kind"] = rng.choice(["a", "b"], n)
    return X, np.where(X["x3"] + 1.2 * (X["kind"] == "a") > 0.6, "yes", "no"), ["x3", "kind"]


def first_columns(contributions: pd.DataFrame, true: list[str]) -> float:
    """The share of rows in which a true column has the largest contribution."""
    return float(contributions.abs().idxmax(axis=1).isin(true).mean())


def recourse(n: int) -> list[dict[str, Any]]:
    """Ours and DiCE's changes of rejected applicants: validity, frozen columns, sizes, and nearness to real rows."""
    X, y = credit(900)
    clf = fit(X[:700], y[:700])
    rows = X[700:][clf.predict(X[700:]) == "bad"][:n]
    start = time.process_time()
    found = clf.recourse(rows, "good", frozen=FROZEN)
    spent = (time.process_time() - start) / len(rows)
    mine = {place: [way.record for way in each.ways] for place, each in enumerate(found)}
    records = [_judge_changes("dwac", clf, X[:700], rows, mine, spent)]
    theirs, spent = _dice(clf, X[:700], y[:700], rows)
    return [*records, _judge_changes("DiCE", clf, X[:700], rows, theirs, spent)]


def _dice(clf: Any, X: pd.DataFrame, y: Any, rows: pd.DataFrame) -> tuple[dict[int, list[Any]], float]:
    import dice_ml

    class Model:
        def predict_proba(self, frame: Any) -> Any:
            return clf.predict_proba(frame[X.columns].astype(X.dtypes.to_dict()))

        def predict(self, frame: Any) -> Any:
            return self.predict_proba(frame).argmax(axis=1)

    numbers = [c for c in X if pd.api.types.is_numeric_dtype(X[c])]
    frame = X.assign(label=(y == "good").astype(int))
    data = dice_ml.Data(dataframe=frame, continuous_features=numbers, outcome_name="label")
    dice = dice_ml.Dice(data, dice_ml.Model(model=Model(), backend="sklearn"), method="random")
    start, found = time.process_time(), {}
    free = [c for c in X if c not in FROZEN]
    for place in range(len(rows)):
        result = dice.generate_counterfactuals(
            rows.iloc[place : place + 1], total_CFs=3, desired_class=1, features_to_vary=free, random_seed=0
        )
        made = result.cf_examples_list[0].final_cfs_df
        found[place] = [] if made is None else made[X.columns].to_dict("records")
    return found, (time.process_time() - start) / len(rows)


def _judge_changes(
    who: str, clf: Any, X: pd.DataFrame, rows: pd.DataFrame, found: dict[int, list[Any]], spent: float
) -> dict[str, Any]:
    valid, sizes, touched, near, typical = [], [], 0, [], []
    for place, records in found.items():
        row = rows.iloc[place]
        for changed in records:
            frame = pd.DataFrame([changed])[X.columns].astype(X.dtypes.to_dict())
            moved = [c for c in X.columns if frame[c].iloc[0] != row[c]]
            valid.append(clf.predict(frame)[0] == "good")
            sizes.append(len(moved))
            touched += len(set(moved) & set(FROZEN))
            near.append(float(clf.encoder_.input_distances(frame, X).min()))
            typical.append(float(clf.conformal(frame).typicality[0]))
    return {
        "who": who,
        "rows with a way": float(np.mean([bool(records) for records in found.values()])),
        "validity": float(np.mean(valid)),
        "frozen touched": touched,
        "changed columns": float(np.mean(sizes)),
        "distance to a real row": float(np.mean(near)),
        "typicality": float(np.mean(typical)),
        "ms a row": 1000 * spent,
    }


def compare(name: str, n: int) -> list[dict[str, Any]]:
    """A row per method on one table."""
    found: list[dict[str, Any]] = []
    X, y = tables()[name]
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X.iloc[order].reset_index(drop=True), np.asarray(y)[order]
    size = int(0.75 * len(X))
    first, second = (fit(X[:size], y[:size], seed) for seed in (0, 1))
    rows = X[size:][:n]
    draws = [X[:size].sample(DRAWS, random_state=1)] * len(rows)
    nearest = precedents(first, rows)
    for alone, guess in (("groups alone", by_groups), ("alibi anchors", by_anchors)):
        told = student(first, X[:size], rows, guess(first, X[:size], rows))
        found.append({"table": name, "columns": X.shape[1], "method": alone, "student": told})
    for method, explained in methods().items():
        (a, wrong, spent), (b, _, _) = (explained(clf, X[:size], rows) for clf in (first, second))
        deletion, insertion = curves(first, X[:size], rows, a, draws)
        towards, away = curves(first, X[:size], rows, a, nearest)
        same = [spearmanr(a.iloc[i].abs(), b.iloc[i].abs()).statistic for i in range(len(a))]
        found.append(
            {
                "table": name,
                "columns": X.shape[1],
                "method": method,
                "deletion": deletion,
                "insertion": insertion,
                "deletion to the precedent": towards,
                "insertion from it": away,
                "two seeds": float(np.nanmean(same)),
                "student": student(first, X[:size], rows, by_contributions(first, rows, a)),
                "error of sums": wrong,
                "ms a row": spent,
            }
        )
    return found


def methods() -> dict[str, Callable[[Any, pd.DataFrame, pd.DataFrame], Any]]:
    def shap_by(kind: str) -> Callable[[Any, pd.DataFrame, pd.DataFrame], Any]:
        def explained(clf: Any, X: pd.DataFrame, rows: pd.DataFrame) -> Any:
            values, spent = peers(clf, X, rows, kind)
            return values, float("nan"), spent

        return explained

    return {
        "reasons": lambda clf, _, rows: ours(clf, rows, 1),
        "reasons, 5 precedents": lambda clf, _, rows: ours(clf, rows, 5),
        "reasons, random precedents": lambda clf, _, rows: ours(clf, rows, "random"),
        "shap Kernel": shap_by("kernel"),
        "shap Permutation": shap_by("permutation"),
    }


def rules(n: int, seeds: int = 3) -> list[dict[str, Any]]:
    """How often a true column comes first, by method."""
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        X, y, true = rule(500, seed)
        clf = fit(X[:400], y[:400])
        for method, explained in methods().items():
            found.setdefault(method, []).append(first_columns(explained(clf, X[:400], X[400:][:n])[0], true))
    return [{"method": method, "a true column is first": float(np.mean(each))} for method, each in found.items()]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=12, help="rows explained per table")
    n = arguments.parse_args().rows
    warnings.simplefilter("ignore")
    config = {"rows per table": n, "evaluations of peers": EVALUATIONS, "background": BACKGROUND}
    compared = [row for name in tables() for row in record.part(name, partial(compare, name, n))]
    simulated = pd.DataFrame(record.part("rules", lambda: rules(2 * n))).assign(table="a rule of 2 columns")
    table = pd.concat([pd.DataFrame(compared), simulated])
    claim = (
        "Reasons against a real precedent beside shap: the mean probability of the label while columns are replaced by "
        "those of random training rows (deletion: lower is better) or come back (insertion: higher), the same with the "
        "row's precedent in place of random rows, the rank "
        "correlation of contributions between two seeds of training, how often a student who sees five of them guesses "
        "the label of a changed row, and how often a column of a known rule comes first."
    )
    record.write("reasons", claim, config, table)
    claim = (
        "Recourse beside DiCE on the same model and rejected rows, with two frozen columns: validity, changed columns, "
        "and how near and how typical the changed rows are."
    )
    found = pd.DataFrame(record.part("recourse", lambda: recourse(n)))
    record.write("recourse", claim, {"rows": n, "frozen": ", ".join(FROZEN)}, found)


if __name__ == "__main__":
    main()
