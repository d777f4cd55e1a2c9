"""What a monitor sees of rows: one pass through the model gives the predictions and the scores that are watched.

observed = observe(clf, X)
predictions_from(clf, observed, private=False)   # as `dwac.estimator.evaluation.predict(clf, X)`
model_scores(clf, observed)                      # {"novelty": (n,), …}, to be compared with `calibration_scores(clf)`

Of a cross-fitted model the scores are by fold, (n, F): a new row scored by the model without fold f is comparable with
the rows of fold f, which that model has not seen either, and with no others.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from dwac.encoders import TabularEncoder
from dwac.estimator.base import Evidence
from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.evaluation.classes import predictions_of
from dwac.estimator.evaluation.labels import label_predictions_of
from dwac.estimator.evaluation.numbers import number_predictions_of
from dwac.estimator.readable import Sifted, unmasked
from dwac.estimator.regressor import DWACRegressor
from dwac.estimator.several import label_probabilities
from dwac.estimator.targets import CLASSES, LABELS, NUMBERS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Model = DWACClassifier | DWACRegressor

NOVELTY, CERTAINTY, PREDICTION = "typicality", "certainty", "prediction"


@dataclass(frozen=True, eq=False)
class Observed:
    """n rows, the embeddings of those that could be read, and all that the model says of them."""

    rows: Sifted
    h: torch.Tensor
    evidence: Evidence

    def __len__(self) -> int:
        return len(self.rows.reasons)


def observe(clf: Model, X: Any, *, private: bool | None = None) -> Observed:
    """Pass the rows of X through the model once."""
    rows, h = clf._heard(X, private=private)
    return Observed(rows, h, clf._evidence_of(rows, h, novelty=True, folds=True))


def predictions_from(clf: Any, observed: Observed, *, private: bool) -> Any:
    """The predictions for these rows, as `predict` in `dwac.estimator.evaluation` gives them."""
    found = observed.evidence
    if clf.target_.kind == NUMBERS:
        strange = None if found.novelty is None else found.novelty[observed.rows.readable]
        predicted: Any = number_predictions_of(clf, found.reasons, observed.h, strange, private=private)
    else:
        several = clf.target_.kind == LABELS
        predicted = (label_predictions_of if several else predictions_of)(clf, *found, private=private)
    return replace(predicted, unknown=clf._notes_of(observed.rows))


def model_scores(clf: Model, observed: Observed) -> dict[str, Floats]:
    """By name, the scores of rows: (n,), or by fold (n, F); inf for rows that could not be read."""
    found = observed.evidence
    scores = votes_scores(clf, unmasked(found.votes if found.fold_votes is None else found.fold_votes))
    for each in scores.values():
        each[~observed.rows.readable] = np.inf
    return scores if found.novelty is None else {NOVELTY: found.novelty, **scores}


def calibration_scores(clf: Model) -> dict[str, Floats]:
    """The same of the calibration rows, (n_cal,) each; of a cross-fitted model each by the model without its fold."""
    rows = clf._calibration_rows
    if len(rows.y) == 0:
        return {}
    return {NOVELTY: clf._calibration_novelty(), **votes_scores(clf, clf._judge_rows(clf.references_, rows.h))}


def calibration_folds(clf: Model) -> Ints | None:
    """(n_cal,): the fold of each calibration row; None for a model that is not cross-fitted."""
    return None if clf._folds is None else np.maximum(clf._folds.numbers(clf.calibration_ids_), 0)


def votes_scores(clf: Model, votes: Floats) -> dict[str, Floats]:
    """How uncertain a prediction is and what is predicted, each as one number per row, from votes (…, K)."""
    target = clf.target_
    if target.kind == LABELS:
        p = label_probabilities(votes, target)
        return {CERTAINTY: -np.maximum(p, 1 - p).mean(axis=-1), PREDICTION: p.sum(axis=-1)}
    log_p = votes - np.logaddexp.reduce(votes, axis=-1, keepdims=True)
    if target.kind == CLASSES:
        predicted = votes.argmax(axis=-1).astype(np.float64)
    else:
        values = target.table[:, 0] if target.kind == NUMBERS else np.arange(target.n_codes)
        predicted = np.exp(log_p) @ values
    return {CERTAINTY: -log_p.max(axis=-1), PREDICTION: predicted}


# The training rows, and the groups of voters


def training_rows(clf: Model, most: int, seed: int) -> Any:
    """At most so many training rows, drawn at random, as a frame; None if the model does not have (all of) them."""
    if not isinstance(clf.encoder_, TabularEncoder) or clf._alone:
        return None
    ids = (clf.references_.members or clf.references_).voters.ids
    some = np.random.default_rng(seed).permutation(len(ids))[:most]
    found = clf.examples_.rows(ids[some]) if len(clf.examples_) else None
    return None if found is None else clf.encoder_.records(found)


def nearest_groups(clf: Model, h: torch.Tensor, *, own: bool = False) -> Ints:
    """(n,): the group of the voter nearest to each row; own: the rows vote themselves, and the next one counts."""
    references = clf.references_
    k = min(1 + own, len(references))
    places = references.voters.ids.get_indexer(pd.Index(references.nearest(h, k).ids[:, -1], tupleize_cols=False))
    return np.asarray(references.groups.of[places])


def calibration_groups(clf: Model) -> Ints:
    """The same of the calibration rows."""
    return nearest_groups(clf, clf.calibration_h_, own=clf._folds is not None)


# Which model it is


def version_of(clf: Model) -> tuple[Any, ...]:
    """Objects that are others after an edit or a recalibration; compare them by identity."""
    return clf.model_, clf.references_.voters, clf._calibration_rows


def fingerprint(clf: Model) -> str:
    """A digest of who votes for what, who calibrates, and what is predicted: the same after saving and loading."""
    found = hashlib.sha256()
    parts = [clf.target_.names, clf.calibration_ids_, [getattr(column, "name", "") for column in _columns(clf)]]
    parts += [clf.references_.voters.ids, clf.references_.labels.cpu().numpy()]
    for part in parts:
        words = pd.Series(np.asarray(part, dtype=object), dtype=object).map(str)
        found.update(pd.util.hash_pandas_object(words, index=False).to_numpy().tobytes())
        found.update(str(len(words)).encode())
    return found.hexdigest()[:32]


def _columns(clf: Model) -> list[Any]:
    return list(clf.encoder_.columns) if isinstance(clf.encoder_, TabularEncoder) else []
