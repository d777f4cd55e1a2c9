"""Votes on each row by a classifier that was not trained on it: K-fold cross-fitting of an estimator.

votes = out_of_fold_votes(clf, X, y, folds=5)      # (n, K) log class weights, in the order of np.unique(y)

The classifier's own votes on a training example are no substitute, even without the example's vote: the network was
trained on its label, and a wrong label that it has memorised looks right.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state
from torch.utils.data import Dataset

from dwac import _checks as checks
from dwac.encoders import choose
from dwac.encoders.module import read_dataset
from dwac.errors import InputError
from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.preparation import count, rows_of, take
from dwac.tasks.classes import encode_known, encode_labels
from dwac.training.progress import folds_bar

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

log = logging.getLogger(__name__)


def out_of_fold_votes(clf: DWACClassifier, X: Any, y: Any, folds: int = 5) -> Floats:
    """(n, K): log class weights of each row from a classifier trained on the other folds; columns as `np.unique(y)`.

    A class that occurs only in the fold itself gets -inf: it has no voters.

    >>> X = np.linspace(0, 1, 60).reshape(60, 1)
    >>> votes = out_of_fold_votes(DWACClassifier(epochs=20, random_state=0, device="cpu"), X, X[:, 0] > 0.5, folds=3)
    >>> bool(np.mean(votes.argmax(axis=1) == (X[:, 0] > 0.5)) > 0.9)
    True
    """
    X, y = rows_and_labels(clf, X, y)
    classes = encode_labels(y, count(X))[1]
    votes = np.full((count(X), len(classes)), -np.inf)
    for inside, _, other in fold_classifiers(clf, X, y, folds):
        votes[inside] = votes_for(classes, other, take(X, inside))
    return votes


def votes_for(classes: NDArray[Any], clf: DWACClassifier, X: Any) -> Floats:
    """(n, K): log class weights in the order of `classes`; -inf for a class that the classifier does not know."""
    votes = np.full((count(X), len(classes)), -np.inf)
    votes[:, encode_known(clf.classes_, len(clf.classes_), classes)] = clf.log_class_weights(X)
    return votes


def fold_classifiers(
    clf: DWACClassifier, X: Any, y: Any, folds: int = 5
) -> Iterator[tuple[Ints, Ints, DWACClassifier]]:
    """For each fold: its rows, the other rows, and a classifier trained on these.

    X and y as `rows_and_labels` gives them. Each fold has its share of every class. The classifiers have the settings
    of `clf`, which need not be fitted and is not changed, except that they write no checkpoint, hold out no calibration
    rows, since no prediction sets are needed, and let every example vote. The ids of voters are row numbers.
    """
    codes, classes = encode_labels(y, count(X))
    rng = check_random_state(clf.random_state)
    fold_of = stratified_folds(codes, folds, rng)
    with folds_bar("training on other folds", folds, show=clf.verbose) as done:
        for fold in range(folds):
            inside, outside = np.flatnonzero(fold_of == fold), np.flatnonzero(fold_of != fold)
            other = clone(clf).set_params(
                calibration_size=0,
                checkpoint=None,
                voters="all",
                verbose=False,
                random_state=int(rng.randint(2**31 - 1)),
            )
            other.fit(take(X, outside), classes[codes[outside]], ids=outside.tolist())
            log.info("fold %d of %d: trained on %d rows, %d left out", fold + 1, folds, len(outside), len(inside))
            yield inside, outside, other
            done(fold + 1)


def rows_and_labels(clf: DWACClassifier, X: Any, y: Any) -> tuple[Any, Any]:
    """X and y as `fit` reads them: X with rows that can be taken, y from the Dataset if that has labels."""
    if isinstance(X, Dataset):
        X, labels = read_dataset(X)
        y = labels if y is None else y
    return rows_of(list(X) if isinstance(X, tuple) and choose(clf.encoder, X).kind != "module" else X), y


def stratified_folds(codes: Ints, folds: int, rng: np.random.RandomState) -> Ints:
    """(n,): the fold 0 … folds-1 of each row, at random; folds have the same size and share of each class, within one.

    >>> stratified_folds(np.array([0, 0, 1, 1, 1, 1]), 2, np.random.RandomState(0))
    array([1, 0, 1, 0, 1, 0])
    """
    folds = checks.positive_int(folds, "folds", minimum=2)
    if folds > len(codes):
        raise InputError(f"folds must be at most the number of rows, {len(codes)}; got {folds}")
    order = rng.permutation(len(codes))
    by_class = order[np.argsort(codes[order], kind="stable")]
    fold_of = np.empty(len(codes), dtype=np.int64)
    fold_of[by_class] = np.arange(len(codes)) % folds
    return fold_of
