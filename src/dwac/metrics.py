"""How good, how honest and how wary a classifier is: accuracy, calibration, coverage, set sizes, OOD.

Arrays in, numbers out: this module knows no model. Labels are whole numbers 0 … K-1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from dwac import _checks as checks
from dwac.conformal import label_sets
from dwac.errors import InputError, NonFiniteError, ShapeError


def accuracy(y: ArrayLike, labels: ArrayLike) -> float:
    """Share of predicted labels that are right.

    >>> accuracy([0, 1, 1, 2], [0, 1, 2, 2])
    0.75
    """
    truth = _truth(y)
    return float(np.mean(truth == checks.class_labels(labels, "labels", n=len(truth))))


def log_loss(y: ArrayLike, log_probabilities: ArrayLike) -> float:
    """Mean of -log P(y), from log-probabilities (n, K), so that a tiny probability costs its true price."""
    log_p = checks.scores(log_probabilities, "log_probabilities", ndim=2)
    if (log_p > 1e-6).any():
        raise InputError(f"log_probabilities must be at most 0; got {log_p.max():.6g}; take the log first")
    # Log class weights and logits may all be negative too, so that only the sum tells them from log-probabilities.
    sums = np.exp(log_p).sum(axis=1)
    if (off := np.abs(sums - 1) > 1e-3).any():
        row = int(np.argmax(off))
        raise InputError(
            f"each row of exp(log_probabilities) must sum to 1; row {row} sums to {sums[row]:.6g}; "
            "subtract each row's log-sum-exp first"
        )
    truth = _truth(y, n=len(log_p), n_classes=log_p.shape[1])
    return float(-log_p[np.arange(len(truth)), truth].mean())


def calibration_error(
    y: ArrayLike, probabilities: ArrayLike, n_bins: int = 10, *, research_divisor: bool = False
) -> float:
    """Mean over classes of the mean absolute gap between predicted and observed frequency.

    For each class the examples are sorted by its predicted probability and cut into `n_bins` bins of equal
    count (to within one); the gap of a bin is |mean probability - share of the class|.

    Args:
        y: (n,) true labels.
        probabilities: (n, K).
        n_bins: bins a class.
        research_divisor: divide the sum over classes by `n_bins` instead of K, as the 2019 research code does for
            more than two classes (with two it reports one class, so there is no factor). Its published numbers
            carry the factor K / n_bins; use this only to compare with them.

    >>> round(calibration_error([0, 1], [[0.8, 0.2], [0.4, 0.6]], n_bins=2), 3)
    0.3
    """
    n_bins = checks.positive_int(n_bins, "n_bins")
    p = checks.probabilities(probabilities, "probabilities")
    truth = _truth(y, n=len(p), n_classes=p.shape[1])
    gaps = [_bin_gap(p[:, k], truth == k, n_bins) for k in range(p.shape[1])]
    return float(np.sum(gaps) / (n_bins if research_divisor and len(gaps) > 2 else len(gaps)))


def _bin_gap(p: NDArray[np.float64], hit: NDArray[np.bool_], n_bins: int) -> float:
    order = np.argsort(p, kind="stable")
    # Examples with the same probability share their mean outcome, so that row order cannot matter.
    _, group = np.unique(p[order], return_inverse=True)
    shared = (np.bincount(group, weights=hit[order]) / np.bincount(group))[group]
    bins = np.array_split(p[order] - shared, min(n_bins, len(p)))
    return float(np.mean([abs(gap.mean()) for gap in bins]))


def coverage(y: ArrayLike, sets: ArrayLike) -> float:
    """Share of label sets (n, K) that hold the true label."""
    chosen = _sets(sets)
    truth = _truth(y, n=len(chosen), n_classes=chosen.shape[1])
    return float(chosen[np.arange(len(truth)), truth].mean())


class SetSizes(NamedTuple):
    """How many labels the sets hold: their mean, and the shares of empty, single and multiple ones."""

    mean: float
    empty: float
    single: float
    multiple: float


def set_sizes(sets: ArrayLike) -> SetSizes:
    """Sizes of label sets (n, K)."""
    sizes = _sets(sets).sum(axis=1)
    return SetSizes(*(float(np.mean(x)) for x in (sizes, sizes == 0, sizes == 1, sizes > 1)))


def set_curve(
    y: ArrayLike, p_values: ArrayLike, epsilons: Iterable[float], *, n_calibration: Sequence[int] | int | None = None
) -> pd.DataFrame:
    """Coverage and set sizes of {k : p > ε} for each ε: a row each, from p-values (n, K).

    `n_calibration` as for `dwac.conformal.label_sets`: given, an ε too small for the calibration set is named.
    """
    rows = []
    if not isinstance(epsilons, Iterable):
        raise InputError(f"epsilons must be a list of error rates; got {epsilons!r}; write [{epsilons!r}] for one")
    for epsilon in epsilons:
        sets = label_sets(p_values, epsilon, n_calibration=n_calibration)
        rows.append({"epsilon": epsilon, "coverage": coverage(y, sets), **set_sizes(sets)._asdict()})
    return pd.DataFrame(rows, columns=["epsilon", "coverage", *SetSizes._fields])


class OodScores(NamedTuple):
    """How well a score tells data of the training kind from other data."""

    auroc: float
    aupr: float
    fpr95: float


def ood_scores(inside: ArrayLike, outside: ArrayLike) -> OodScores:
    """AUROC, AUPR and FPR at 95 % TPR of a score that should be high inside the domain (credibility, say).

    In-domain data is the positive class: FPR95 is the share of outside data that passes a threshold which
    lets 95 % of the inside data pass.
    """
    ins, outs = (checks.scores(x, name, ndim=1) for x, name in ((inside, "inside scores"), (outside, "outside scores")))
    if len(ins) == 0 or len(outs) == 0:
        raise InputError(f"both kinds of scores are needed; got {len(ins)} inside and {len(outs)} outside")
    values = np.concatenate([ins, outs])
    # Ranks carry all that these measures use, and take infinite scores too.
    ranks = np.unique(values, return_inverse=True)[1]
    positive = np.arange(len(values)) < len(ins)
    fpr, tpr, _ = roc_curve(positive, ranks, drop_intermediate=False)
    return OodScores(
        float(roc_auc_score(positive, ranks)),
        float(average_precision_score(positive, ranks)),
        float(fpr[np.argmax(tpr >= 0.95)]),
    )


def top_k_agreement(
    labels: ArrayLike, neighbor_labels: ArrayLike, neighbor_log_weights: ArrayLike, ks: Sequence[int]
) -> dict[int, float]:
    """How often the vote of the k nearest examples alone gives the full model's label, for each k.

    Args:
        labels: (n,) labels that all references together predict.
        neighbor_labels: (n, k_max) labels of the nearest references, nearest first.
        neighbor_log_weights: (n, k_max) their log-weights.
        ks: how many of them vote, each at most k_max.

    >>> top_k_agreement([0, 1], [[0, 1, 1], [0, 1, 1]], [[-1, -2, -3], [-1, -1.5, -1.6]], ks=[1, 3])
    {1: 0.5, 3: 1.0}
    """
    log_w = checks.scores(neighbor_log_weights, "neighbor_log_weights", ndim=2)
    near = np.asarray(neighbor_labels)
    if near.shape != log_w.shape:
        raise ShapeError(f"neighbor_labels {near.shape} and neighbor_log_weights {log_w.shape} must fit together")
    near = checks.class_labels(near.ravel(), "neighbor_labels").reshape(near.shape)
    full = _truth(labels, n=len(log_w))
    most = log_w.max(axis=1, keepdims=True, initial=-np.inf)
    if not np.isfinite(most).all():
        row = int(np.argmin(np.isfinite(most[:, 0])))
        raise NonFiniteError(
            f"neighbor_log_weights must have a finite largest entry in each row; row {row} has {most[row, 0]}"
        )
    weights = np.exp(log_w - most)
    agreement = {}
    for k in ks:
        if checks.positive_int(k, "each k") > log_w.shape[1]:
            raise InputError(f"each k must be at most the {log_w.shape[1]} neighbours given; got {k}")
        votes = np.zeros((len(full), max(int(near.max()), int(full.max())) + 1))
        np.add.at(votes, (np.arange(len(full))[:, None], near[:, :k]), weights[:, :k])
        agreement[int(k)] = float(np.mean(votes.argmax(axis=1) == full))
    return agreement


def _truth(y: ArrayLike, *, n: int | None = None, n_classes: int | None = None) -> NDArray[np.int64]:
    labels = checks.class_labels(y, "y", n=n, n_classes=n_classes)
    if len(labels) == 0:
        raise InputError("at least one example is needed; got none")
    return labels


def _sets(sets: ArrayLike) -> NDArray[np.bool_]:
    array = np.asarray(sets)
    if array.dtype != bool or array.ndim != 2 or len(array) == 0:
        raise ShapeError(
            f"label sets must be a non-empty (n, K) array of booleans; got {array.dtype} of shape {array.shape}"
        )
    return array
