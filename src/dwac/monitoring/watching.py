"""What a monitor observes: one pass through the model gives the predictions and the scores to watch.

observed = clf.observe(X)
predicted = predict(clf, observed)                  # of `dwac.estimator.evaluation`
rows = ObservedRows.of([(observed, predicted)])     # of one call of the model, or of several
model_scores(clf, rows)          # {"novelty": (n,), …}, to be compared with `calibration_scores(clf)`

A cross-fitted model has scores by fold, (n, F): a new row scored by the model without fold f is comparable only with
the rows of fold f, which that model has not seen either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from dwac.encoders import TabularEncoder
from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.observed import Observed
from dwac.estimator.regressor import DWACRegressor
from dwac.tasks.base import zero_nan

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Model = DWACClassifier | DWACRegressor

NOVELTY, CERTAINTY, PREDICTION = "typicality", "certainty", "prediction"


class ObservedRows(NamedTuple):
    """n rows that have passed through the model, in one call or in several."""

    readable: NDArray[np.bool_]  # (n,)
    votes: Floats  # (n, K)
    fold_votes: Floats | None  # (n, F, K)
    novelty: Floats  # (n,), or by fold (n, F)
    h: torch.Tensor  # of the readable rows
    X: list[Any]  # the readable rows of each call
    typicality: Floats | None  # (n,)
    credibility: Floats | None  # (n,)

    @classmethod
    def of(cls, calls: Sequence[tuple[Observed, Any]]) -> ObservedRows:
        """From what each call observed and predicted."""
        observed, trust = [each for each, _ in calls], [getattr(each, "conformal", None) for _, each in calls]
        return cls(
            _joined([each.readable for each in observed]),
            _joined([each.votes for each in observed]),
            _joined([each.fold_votes for each in observed]),
            _joined([each.novelty for each in observed]),
            torch.cat([each.h for each in observed]),
            [each.rows.X for each in observed if each.rows.X is not None],
            _joined([each.typicality for _, each in calls]),
            _joined([getattr(each, "credibility", None) for each in trust]),
        )


def _joined(parts: Sequence[Any]) -> Any:
    return None if any(part is None for part in parts) else np.concatenate(parts)


def model_scores(clf: Model, rows: ObservedRows) -> dict[str, Floats]:
    """The scores of rows, by name: (n,), or by fold (n, F); inf for rows that could not be read."""
    scores = votes_scores(clf, zero_nan(rows.votes if rows.fold_votes is None else rows.fold_votes))
    for each in scores.values():
        each[~rows.readable] = np.inf
    return {NOVELTY: rows.novelty, **scores}


def calibration_scores(clf: Model) -> dict[str, Floats]:
    """The same for the calibration rows, (n_cal,) each; in a cross-fitted model, by the model without their fold."""
    fitted = clf.fitted_
    if not fitted.calibrated:
        return {}
    votes = fitted.judge(fitted.references, fitted.calibration.h)
    return {NOVELTY: fitted.calibration_novelty(), **votes_scores(clf, votes)}


def calibration_folds(clf: Model) -> Ints | None:
    """(n_cal,): the fold of each calibration row; None for a model that is not cross-fitted."""
    folds = clf.fitted_.folds
    return None if folds is None else np.maximum(folds.numbers(clf.calibration_ids_), 0)


def votes_scores(clf: Model, votes: Floats) -> dict[str, Floats]:
    """The uncertainty of a prediction and the prediction, each as one number per row, from votes (…, K)."""
    summary = clf.target_.summarise(votes)
    return {CERTAINTY: summary.uncertainty, PREDICTION: summary.prediction}


# The training rows, and the groups of voters


def training_rows(clf: Model, most: int, seed: int) -> Any:
    """At most `most` training rows, drawn at random, as a frame; None if the model does not have (all of) them."""
    if not isinstance(clf.encoder_, TabularEncoder) or clf.fitted_.alone:
        return None
    ids = (clf.references_.members or clf.references_).voters.ids
    some = np.random.default_rng(seed).permutation(len(ids))[:most]
    found = clf.examples_.rows(ids[some]) if len(clf.examples_) else None
    return None if found is None else clf.encoder_.records(found)


def nearest_groups(clf: Model, h: torch.Tensor, *, own: bool = False) -> Ints:
    """(n,): the group of the voter nearest to each row; own: the rows are voters, and the nearest other one counts."""
    references = clf.references_
    k = min(1 + own, len(references))
    places = references.voters.ids.get_indexer(pd.Index(references.nearest(h, k).ids[:, -1], tupleize_cols=False))
    return np.asarray(references.groups.of[places])


def calibration_groups(clf: Model) -> Ints:
    """The same for the calibration rows."""
    return nearest_groups(clf, clf.calibration_h_, own=clf.cross_fitted_)


# The identity of the model


def version_of(clf: Model) -> tuple[Any, ...]:
    """Objects that every edit or recalibration replaces; compare them by identity."""
    return clf.model_, clf.references_.voters, clf.fitted_.calibration


def fingerprint(clf: Model) -> str:
    """A digest of the votes, the calibration rows and the target: the same after saving and loading."""
    found = hashlib.sha256()
    parts = [clf.target_.names, clf.calibration_ids_, [getattr(column, "name", "") for column in columns_of(clf)]]
    parts += [clf.references_.voters.ids, clf.references_.labels.cpu().numpy()]
    for part in parts:
        words = pd.Series(np.asarray(part, dtype=object), dtype=object).map(str)
        found.update(pd.util.hash_pandas_object(words, index=False).to_numpy().tobytes())
        found.update(str(len(words)).encode())
    return found.hexdigest()[:32]


def columns_of(clf: Model) -> list[Any]:
    """The columns of a model's table; none for other data."""
    encoder = getattr(clf, "encoder_", None)
    return list(encoder.columns) if isinstance(encoder, TabularEncoder) else []
