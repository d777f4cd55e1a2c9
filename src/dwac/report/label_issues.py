"""Training labels that look wrong, judged out of sample if possible.

label_issues(clf, X, y)        # out of fold: each label by a classifier trained on the other four of five folds
label_issues(clf)              # without training: out-of-fold votes if the classifier has them, else in-sample ones

`label_noise` decides which labels are listed; it knows that some labels are only hard to predict. Out-of-fold votes
tell how many are wrong; the four classifiers that were trained on a label help to tell which.

In-sample votes on a training example exclude its own:

    L_k = log Σ_{i≠j} I(y_i=k) w(h_j, h_i)

This is not how a new example is treated: the network was trained on the label y_j, which may have shaped h_j. So
wrong labels that the network has memorised are not found.

One sweep gives the sums including an example's own vote, w(h_j, h_j) = 1. Subtracting 1 is safe if the others weigh
enough. If the own vote is nearly all the weight of its class, the difference would be rounding error: then the others
are summed directly, in float64.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.errors import InputError
from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.out_of_fold import fold_classifiers, rows_and_labels, votes_for
from dwac.estimator.preparation import count, row_ids, take
from dwac.kernels import squared_distances
from dwac.reference import ReferenceSet
from dwac.report.label_noise import label_noise
from dwac.tasks.classes import encode_labels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COLUMNS = ("id", "label", "suggested", "probability", "suggested_probability", "log_odds", "wrong")
OUT_OF_FOLD, IN_SAMPLE = "out of fold", "in sample"
_LEAST = 0.25  # share of the own vote: if the others weigh more, the difference is exact to about 1e-4
_CELLS = 2**22  # weights in memory at once


def label_issues(
    clf: DWACClassifier,
    X: Any = None,
    y: Any = None,
    folds: int = 5,
    *,
    ids: Iterable[Hashable] | None = None,
    rows: NDArray[np.int64] | None = None,
) -> pd.DataFrame:
    """Labels that are more likely wrong than right, the most doubtful first; one row per example.

    Columns: `id`; its `label`; the label `suggested` by the votes; the `probability` that they give to its own label;
    the `suggested_probability`; `log_odds`, the log of the ratio of the suggested and the own probability; and `wrong`,
    the estimated probability that the label is wrong. Each is worth a look; some are right and rare.

    `attrs["judged"]` is "out of fold", by votes of a model that was not trained on the label, or "in sample".
    In-sample votes miss wrong labels that the network has memorised. `attrs["checked"]` is the number of labels that
    were judged, `attrs["noise_rate"]` the estimated share of wrong ones, cautiously high.

    Args:
        clf: a classifier; it must be fitted unless X is given.
        X: examples whose labels y to judge out of fold, usually those of fit. `folds` classifiers with the settings of
            `clf` are trained, each on all folds but one: about four times the time of fit. The one that was not trained
            on a label decides how many are listed; the others help to decide which. Without X, existing votes judge the
            training examples: out-of-fold ones if `clf.out_of_fold_` has them.
        y: their labels.
        folds: the number of parts of X.
        ids: names of the rows of X; by default the index of a DataFrame or Series, else 0 … n-1.
        rows: the training examples to check without X, by position in `references_`; by default all.
    """
    if X is None:
        if y is not None or ids is not None:
            raise InputError("y and ids belong to X; give X too, or neither for the training examples of the model")
        return _of_training(clf, rows)
    if rows is not None:
        raise InputError("rows are positions among the training examples; with X, leave out rows of X instead")
    X, y = rows_and_labels(clf, X, y)
    codes, classes = encode_labels(y, count(X))
    votes, seen = votes_of_all(clf, X, y, folds)
    found = _frame(votes, codes, classes, row_ids(X, ids, len(votes)), seen)
    found.attrs.update(judged=OUT_OF_FOLD, folds=folds)
    return found


def votes_of_all(clf: DWACClassifier, X: Any, y: Any, folds: int) -> tuple[Floats, Floats]:
    """(n, K): log class weights out of fold; and (n,): the mean probability of each label by the other classifiers.

    Those were trained on the label, unless its row was a validation row. Its own vote does not count.
    """
    codes, classes = encode_labels(y, count(X))
    votes, seen = np.empty((len(codes), len(classes))), np.zeros(len(codes))
    for inside, outside, other in fold_classifiers(clf, X, y, folds):
        votes[inside] = votes_for(classes, other, take(X, inside))
        seen[outside] += _without_own_vote(other, X, outside, codes, classes) / (folds - 1)
    return votes, seen.clip(0, 1)


def _without_own_vote(other: DWACClassifier, X: Any, rows: Ints, codes: Ints, classes: NDArray[Any]) -> Floats:
    """(r,): the probability of the labels of rows that the classifier was trained on; ids of voters are row numbers."""
    references, found = other.references_, np.zeros(len(codes))
    voters = references.ids.astype(np.int64)
    found[voters] = _own(leave_one_out(references), references.labels.cpu().numpy())
    others = np.setdiff1d(rows, voters)
    if len(others):
        found[others] = _own(votes_for(classes, other, take(X, others)), codes[others])
    return found[rows]


def _own(votes: Floats, labels: Ints) -> Floats:
    """(n,): the probability of each row's label by votes (n, K); 0 without votes."""
    total = np.logaddexp.reduce(votes, axis=1)
    own = votes[np.arange(len(votes)), labels]
    return np.asarray(np.exp(own - np.where(np.isfinite(total), total, 0.0)))


def _of_training(clf: DWACClassifier, rows: NDArray[np.int64] | None) -> pd.DataFrame:
    """The issues of `label_issues`, from votes that need no training."""
    references = clf.references_
    rows = np.arange(len(references)) if rows is None else rows
    known: Any = getattr(clf, "out_of_fold_", None)
    free = known is not None and len(known) == len(references)
    votes = np.asarray(known, dtype=np.float64)[rows] if free else leave_one_out(references, rows)
    found = _frame(votes, references.labels.cpu().numpy()[rows], clf.classes_, references.ids[rows])
    found.attrs["judged"] = OUT_OF_FOLD if free else IN_SAMPLE
    return found


def _frame(
    votes: Floats, labels: NDArray[Any], classes: NDArray[Any], ids: Any, seen: Floats | None = None
) -> pd.DataFrame:
    """The issues among labels (n,), given as codes, by votes (n, K); a row without any vote is not judged."""
    judged = np.isfinite(votes.max(axis=1))
    votes, labels, ids = votes[judged], labels[judged], ids[judged]
    noise = label_noise(votes, labels, None if seen is None else seen[judged])
    listed = noise.issues
    log_p = votes[listed] - np.logaddexp.reduce(votes[listed], axis=1, keepdims=True)
    suggested, each = log_p.argmax(axis=1), np.arange(len(listed))
    own, best = log_p[each, labels[listed]], log_p[each, suggested]
    issues = pd.DataFrame(
        {
            "id": pd.Series(list(ids[listed]), dtype=object),
            "label": classes[labels[listed]],
            "suggested": classes[suggested],
            "probability": np.exp(own),
            "suggested_probability": np.exp(best),
            "log_odds": best - own,
            "wrong": noise.wrong[listed],
        },
        columns=list(COLUMNS),
    )
    issues.attrs.update(checked=len(labels), noise_rate=noise.rate)
    return issues


def leave_one_out(references: ReferenceSet, rows: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """(m, K): log class weights of each reference without its own vote; -inf if it is the only one of its class.

    rows: positions of the references; by default all.

    >>> leave_one_out(ReferenceSet([[0.0], [1.0], [2.0]], [0, 0, 1])).round(2)
    array([[-1.  , -4.  ],
           [-1.  , -1.  ],
           [-0.95,  -inf]])
    """
    h, every = references.embeddings, references.labels.cpu().numpy()
    rows = np.arange(len(every)) if rows is None else rows
    votes = np.array(references.log_class_weights(h[torch.as_tensor(rows, device=h.device)]).cpu().numpy())
    labels, each = every[rows], np.arange(len(rows))
    # The votes of its class in units of its own vote, so that 1 is the example itself.
    own = float(references.voters.log_weights_at(torch.zeros(1, dtype=torch.float64))) + np.log(
        references.weights[rows]
    )
    log_all = votes[each, labels] - np.log(references.class_weights)[labels] - own
    with np.errstate(divide="ignore"):
        others = log_all + np.log(-np.expm1(-np.maximum(log_all, 0))) + own
    doubtful = log_all < np.log1p(_LEAST)
    for label in np.unique(labels[doubtful]):
        mine, asked = np.flatnonzero(every == label), np.flatnonzero(doubtful & (labels == label))
        others[asked] = _without_self(references, mine, np.searchsorted(mine, rows[asked]))
    votes[each, labels] = others + np.log(references.class_weights)[labels]
    return votes


def _without_self(references: ReferenceSet, mine: NDArray[Any], asked: NDArray[Any]) -> NDArray[np.float64]:
    """log Σ w over the other members of a class, for some of its members; exact, in float64."""
    members = references.embeddings[torch.as_tensor(mine, device=references.embeddings.device)].double()
    factors = torch.as_tensor(np.log(references.weights[mine]), device=members.device)
    sums: list[Tensor] = []
    for part in torch.as_tensor(asked, device=members.device).split(max(1, _CELLS // len(mine))):
        log_w = references.voters.log_weights_at(squared_distances(members[part], members)) + factors
        log_w[torch.arange(len(part)), part] = -torch.inf
        sums.append(log_w.logsumexp(dim=1))
    return np.asarray(torch.cat(sums).cpu().numpy())
