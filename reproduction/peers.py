"""The models that a user would otherwise choose: boosted trees for tables, a linear SVM on TF-IDF for texts.

Each is tuned on a fifth of the training rows (`reproduction.tuning`), then trained on all of them.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reproduction.settings import BOOSTED
from reproduction.tuning import Journal, Scored, Tuned, Values, hill_climb

Ints = NDArray[np.int64]
Rows = tuple[Any, Ints]  # X and y


@dataclass(frozen=True)
class Peer:
    """A fitted peer. `margins`: its scores (n, K), if it has any. `edges`: chosen settings at an edge of the grid."""

    predict: Callable[[Any], Any]
    margins: Callable[[Any], NDArray[np.float64]] | None
    chosen: Values
    tried: list[Values] = field(default_factory=list)
    edges: list[str] = field(default_factory=list)
    packages: tuple[str, ...] = field(default=())


def why_missing(peer: str) -> str | None:
    """Why a peer cannot run and what to do; None if it can."""
    if peer in BOOSTED and importlib.util.find_spec(peer) is None:
        return f"the peer {peer} needs the package of that name: pip install --editable '.[bench]'"
    return None


def xgboost(X: Any, y: Ints, seed: int, settings: Values, journal: Journal | None = None) -> Peer:
    """XGBoost with histograms; settings and number of rounds by the log loss on held-out rows."""
    import xgboost as xgb

    fixed = {"tree_method": "hist", "enable_categorical": True, "random_state": seed, "n_jobs": _cores()}

    def fit(values: Values, train: Rows, held: Rows | None) -> tuple[Any, Scored]:
        stops = {} if held is None else {"early_stopping_rounds": settings["early_stopping"]}
        model = xgb.XGBClassifier(**fixed, **values, **stops)
        model.fit(*train, eval_set=None if held is None else [held], verbose=False)
        found = {"loss": float(model.best_score), "n_estimators": int(model.best_iteration) + 1} if held else {}
        return model, found

    def margins(model: Any, X: Any) -> Any:
        return model.predict(X, output_margin=True)

    return _boosted(X, y, seed, settings, journal, fit, margins, ("xgboost", "xgboost-cpu"))


def lightgbm(X: Any, y: Ints, seed: int, settings: Values, journal: Journal | None = None) -> Peer:
    """LightGBM; settings and number of rounds by the log loss on held-out rows."""
    import lightgbm as lgb

    fixed = {"random_state": seed, "n_jobs": _cores(), "verbose": -1}

    def fit(values: Values, train: Rows, held: Rows | None) -> tuple[Any, Scored]:
        model = lgb.LGBMClassifier(**fixed, **values)
        if held is None:
            return model.fit(*train), {}
        stop = lgb.early_stopping(settings["early_stopping"], verbose=False)
        model.fit(*train, eval_X=held[0], eval_y=held[1], callbacks=[stop])
        (loss,) = model.best_score_["valid_0"].values()
        return model, {"loss": float(loss), "n_estimators": int(model.best_iteration_)}

    def margins(model: Any, X: Any) -> Any:
        return model.predict(X, raw_score=True)

    return _boosted(X, y, seed, settings, journal, fit, margins, ("lightgbm",))


def catboost(X: Any, y: Ints, seed: int, settings: Values, journal: Journal | None = None) -> Peer:
    """CatBoost; settings and number of rounds by the log loss on held-out rows. A gap is a category of its own."""
    import catboost as cat

    categories = [name for name in X.columns if not pd.api.types.is_numeric_dtype(X[name])]
    fixed = {"random_seed": seed, "thread_count": _cores(), "cat_features": categories}
    fixed |= {"verbose": False, "allow_writing_files": False}

    def named(X: Any) -> Any:
        return X.astype(dict.fromkeys(categories, object)).fillna(dict.fromkeys(categories, "missing"))

    def fit(values: Values, train: Rows, held: Rows | None) -> tuple[Any, Scored]:
        model = cat.CatBoostClassifier(**fixed, **values)
        if held is None:
            return model.fit(named(train[0]), train[1]), {}
        stop = settings["early_stopping"]
        model.fit(named(train[0]), train[1], eval_set=(named(held[0]), held[1]), early_stopping_rounds=stop)
        (loss,) = model.get_best_score()["validation"].values()
        return model, {"loss": float(loss), "n_estimators": int(model.get_best_iteration()) + 1}

    def margins(model: Any, X: Any) -> Any:
        return model.predict(named(X), prediction_type="RawFormulaVal")

    return _boosted(X, y, seed, settings, journal, fit, margins, ("catboost",))


def _boosted(
    X: Any,
    y: Ints,
    seed: int,
    settings: Values,
    journal: Journal | None,
    fit: Callable[[Values, Rows, Rows | None], tuple[Any, Scored]],
    margins: Callable[[Any, Any], Any],
    packages: tuple[str, ...],
) -> Peer:
    """Trees that are added round by round: tuned on held-out rows, where they stop early, then trained on all rows.

    fit: a model of these values, and its score if it stops on held-out rows. margins: of a model, for rows X.
    """
    held, kept = _held_out(len(y), seed)

    def measure(values: Values) -> Scored:
        most = settings["fixed"] | values | {"n_estimators": settings["rounds"]}
        return fit(most, (X.iloc[kept], y[kept]), (X.iloc[held], y[held]))[1]

    tuned = _tuned(settings, measure, journal)
    rounds = tuned.found["n_estimators"]
    edges = [*tuned.edges, *(["n_estimators"] if rounds > settings["rounds"] - settings["early_stopping"] else [])]
    best = {**tuned.best, **settings["fixed"], "n_estimators": rounds}
    model, _ = fit(best, (X, y), None)

    def by_class(X: Any) -> NDArray[np.float64]:
        raw = np.asarray(margins(model, X), dtype=np.float64)
        return raw if raw.ndim == 2 else np.stack([np.zeros_like(raw), raw], axis=1)

    return Peer(lambda X: by_class(X).argmax(axis=1), by_class, best, tuned.tried, edges, packages)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def svm(X: list[str], y: Ints, seed: int, settings: Values, journal: Journal | None = None) -> Peer:
    """LinearSVC on TF-IDF of words, word pairs and 2 to 5 characters; C by the accuracy on held-out rows."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.svm import LinearSVC

    def features() -> Any:
        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
        return make_union(words, TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True))

    @cache
    def parts() -> tuple[Any, ...]:  # computed once, and only if a score is not in the journal
        held, kept = _held_out(len(y), seed)
        texts, union = np.array(X, dtype=object), features()
        return union.fit_transform(texts[kept]), y[kept], union.transform(texts[held]), y[held]

    def measure(values: Values) -> Scored:
        X_train, y_train, X_held, y_held = parts()
        model = LinearSVC(**values, random_state=seed).fit(X_train, y_train)
        return {"loss": 1 - float(model.score(X_held, y_held))}

    tuned = _tuned(settings, measure, journal)
    parts.cache_clear()
    model = make_pipeline(features(), LinearSVC(**tuned.best, random_state=seed)).fit(X, y)
    return Peer(model.predict, None, tuned.best, tuned.tried, tuned.edges)


def _tuned(settings: Values, measure: Callable[[Values], Scored], journal: Journal | None) -> Tuned:
    scores = journal or Journal()
    return hill_climb(settings["grid"], settings["start"], lambda values: scores.score(values, lambda: measure(values)))


def _held_out(n: int, seed: int) -> tuple[Ints, Ints]:
    """A fifth of n rows, and the rest."""
    order = np.random.default_rng(seed).permutation(n)
    return order[: n // 5], order[n // 5 :]


FITTERS: dict[str, Callable[..., Peer]] = {"xgboost": xgboost, "lightgbm": lightgbm, "catboost": catboost, "svm": svm}
