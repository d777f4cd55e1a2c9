"""k nearest neighbours on the embeddings of a DWAC: what the weights of the vote add to its neighbourhoods."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac import metrics
from reproduction.fit import Fitted, Floats
from reproduction.rows import Ints, rows

KS = (1, 3, 5, 9, 15, 25, 51, 75, 101, 151, 201, 301, 501)  # odd: two classes never tie
_ROWS = 4096  # whose neighbours are in memory with ids and distances


def measure(fitted: Fitted) -> dict[str, Any]:
    """Accuracy and log loss on the test rows, each with the k that is best for it on the validation rows."""
    held = np.asarray(fitted.clf.validation_ids_, dtype=np.int64)
    known = _probabilities(fitted, fitted.embed(rows(fitted.trial.X, held)))
    tested, y, y_held = _probabilities(fitted, fitted.test_h), fitted.trial.y_test, fitted.trial.y[held]
    by_accuracy = max(known, key=lambda k: metrics.accuracy(y_held, known[k].argmax(axis=1)))
    by_loss = min(known, key=lambda k: metrics.log_loss(y_held, np.log(known[k])))
    return {
        "accuracy": metrics.accuracy(y, tested[by_accuracy].argmax(axis=1)),
        "log_loss": metrics.log_loss(y, np.log(tested[by_loss])),
        "k_accuracy": by_accuracy,
        "k_log_loss": by_loss,
    }


def _probabilities(fitted: Fitted, h: NDArray[np.float32]) -> dict[int, Floats]:
    """P (n, K) by k. One more neighbour is shared by all classes: a class without any has not a probability of 0."""
    references, n_classes = fitted.clf.references_, len(fitted.trial.classes)
    ks = [k for k in KS if k <= len(references)]
    parts = np.array_split(h, -(-len(h) // _ROWS))
    labels = np.concatenate([references.nearest(part, ks[-1]).labels for part in parts])
    return {k: (_counts(labels[:, :k], n_classes) + 1 / n_classes) / (k + 1) for k in ks}


def _counts(labels: Ints, n_classes: int) -> Floats:
    """(n, K): how many of each row's neighbours belong to each class."""
    flat = labels + n_classes * np.arange(len(labels))[:, None]
    counts = np.bincount(flat.ravel(), minlength=n_classes * len(labels))
    return counts.reshape(len(labels), n_classes).astype(np.float64)
