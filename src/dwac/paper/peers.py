"""What a user would pick instead: XGBoost for tables, a linear SVM on TF-IDF for texts.

Each may choose settings on a fifth of the training rows, then learns from all of them.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Peer:
    """A fitted peer: labels, margins (n, K) or None, and the settings it chose."""

    predict: Callable[[Any], Any]
    margins: Callable[[Any], NDArray[np.float64]] | None
    chosen: dict[str, Any]
    packages: tuple[str, ...] = field(default=())


def lacks(peer: str) -> str | None:
    """Why a peer cannot run and what to do, or None: it can."""
    if peer == "xgboost" and importlib.util.find_spec("xgboost") is None:
        return "the peer xgboost needs the package of that name: pip install 'dwac[bench]'"
    return None


def xgboost(X: Any, y: Ints, seed: int, settings: dict[str, Any]) -> Peer:
    """XGBoost with histograms; where `settings` give choices, the one with the lowest log-loss on held-out rows."""
    import xgboost as xgb

    fixed = {"tree_method": "hist", "enable_categorical": True, "random_state": seed, "n_jobs": os.cpu_count()}
    best = _tuned_trees(xgb, X, y, seed, fixed, settings) if "depths" in settings else settings
    model = xgb.XGBClassifier(**fixed, **best).fit(X, y)

    def margins(X: Any) -> NDArray[np.float64]:
        raw = np.asarray(model.predict(X, output_margin=True), dtype=np.float64)
        return raw if raw.ndim == 2 else np.stack([np.zeros_like(raw), raw], axis=1)

    return Peer(model.predict, margins, best, ("xgboost", "xgboost-cpu"))


def _tuned_trees(
    xgb: Any, X: Any, y: Ints, seed: int, fixed: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    held, kept = _held_out(len(y), seed)
    trials = []
    for depth, columns, one_hot in product(settings["depths"], settings["columns"], settings["one_hot"]):
        values = {"max_depth": depth, "colsample_bytree": columns, "max_cat_to_onehot": one_hot}
        values |= {name: settings[name] for name in ("learning_rate", "subsample")}
        stops = {"n_estimators": settings["rounds"], "early_stopping_rounds": settings["early_stopping"]}
        model = xgb.XGBClassifier(**fixed, **values, **stops)
        model.fit(X.iloc[kept], y[kept], eval_set=[(X.iloc[held], y[held])], verbose=False)
        trials.append((float(model.best_score), values | {"n_estimators": int(model.best_iteration) + 1}))
    return min(trials, key=lambda trial: trial[0])[1]


def svm(X: list[str], y: Ints, seed: int, settings: dict[str, Any]) -> Peer:
    """LinearSVC on TF-IDF of words and pairs of words and of 2 to 5 characters; C by accuracy on held-out rows."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.svm import LinearSVC

    def features() -> Any:
        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
        return make_union(words, TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True))

    best = settings["C"][0]
    if len(settings["C"]) > 1:
        held, kept = _held_out(len(y), seed)
        texts = np.array(X, dtype=object)
        union = features()
        learned, judged = union.fit_transform(texts[kept]), union.transform(texts[held])
        scores = {C: LinearSVC(C=C, random_state=seed).fit(learned, y[kept]).score(judged, y[held])
                  for C in settings["C"]}  # fmt: skip
        best = max(scores, key=lambda C: scores[C])
    model = make_pipeline(features(), LinearSVC(C=best, random_state=seed)).fit(X, y)
    return Peer(model.predict, None, {"C": best})


def _held_out(n: int, seed: int) -> tuple[Ints, Ints]:
    """A fifth of n rows, and the rest."""
    order = np.random.default_rng(seed).permutation(n)
    return order[: n // 5], order[n // 5 :]


FITTERS: dict[str, Callable[..., Peer]] = {"xgboost": xgboost, "svm": svm}
