"""The models that a user would otherwise choose: XGBoost for tables, a linear SVM on TF-IDF for texts.

Each is tuned on a fifth of the training rows (`dwac.paper.tuning`), then trained on all of them.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac.paper.tuning import Journal, Scored, Tuned, Values, hill_climb

Ints = NDArray[np.int64]


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
    if peer == "xgboost" and importlib.util.find_spec("xgboost") is None:
        return "the peer xgboost needs the package of that name: pip install 'dwac[bench]'"
    return None


def xgboost(X: Any, y: Ints, seed: int, settings: Values, journal: Journal | None = None) -> Peer:
    """XGBoost with histograms; settings and number of rounds by the log loss on held-out rows."""
    import xgboost as xgb

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    fixed = {"tree_method": "hist", "enable_categorical": True, "random_state": seed, "n_jobs": cores}
    fixed |= settings["fixed"]
    held, kept = _held_out(len(y), seed)

    def measure(values: Values) -> Scored:
        stops = {"n_estimators": settings["rounds"], "early_stopping_rounds": settings["early_stopping"]}
        model = xgb.XGBClassifier(**fixed, **values, **stops)
        model.fit(X.iloc[kept], y[kept], eval_set=[(X.iloc[held], y[held])], verbose=False)
        return {"loss": float(model.best_score), "n_estimators": int(model.best_iteration) + 1}

    tuned = _tuned(settings, measure, journal)
    rounds = tuned.found["n_estimators"]
    edges = [*tuned.edges, *(["n_estimators"] if rounds > settings["rounds"] - settings["early_stopping"] else [])]
    model = xgb.XGBClassifier(**fixed, **tuned.best, n_estimators=rounds).fit(X, y)

    def margins(X: Any) -> NDArray[np.float64]:
        raw = np.asarray(model.predict(X, output_margin=True), dtype=np.float64)
        return raw if raw.ndim == 2 else np.stack([np.zeros_like(raw), raw], axis=1)

    best = {**tuned.best, **settings["fixed"], "n_estimators": rounds}
    return Peer(model.predict, margins, best, tuned.tried, edges, ("xgboost", "xgboost-cpu"))


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


FITTERS: dict[str, Callable[..., Peer]] = {"xgboost": xgboost, "svm": svm}
