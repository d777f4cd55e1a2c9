"""Training labels that look wrong: examples whose neighbours vote for another label.

The votes on each training example exclude its own:

    L_k = log Σ_{i≠j} I(y_i=k) w(h_j, h_i)

A new example would be treated differently: the network was trained on the label y_j, which may have shaped h_j. So
wrong labels that the network has memorised are not found.

One sweep gives the sums including the own vote, w(h_j, h_j) = 1. Subtracting 1 is safe if the others weigh enough. If
an example's own vote is nearly all the weight of its class, the difference would be rounding error: then the others are
summed directly, in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.estimator.classifier import DWACClassifier
from dwac.kernels import squared_distances
from dwac.reference import ReferenceSet

COLUMNS = ("id", "label", "suggested", "probability", "suggested_probability", "log_odds")
_LEAST = 0.25  # of the own vote: if the others weigh more, the difference is exact to about 1e-4
_CELLS = 2**22  # weights in memory at once


def label_issues(clf: DWACClassifier, rows: NDArray[np.int64] | None = None) -> pd.DataFrame:
    """Training examples that are outvoted by their neighbours, the most doubtful first; one row per example.

    Columns: `id`; its `label`; the label `suggested` by the others; the `probability` that they give to its own label;
    the `suggested_probability`; and `log_odds`, the log of the ratio of the suggested and the own probability.

    Not every one is mislabelled: an example may be rare, or lie between classes. Each is worth a look. Nor is every
    wrong label listed: the network was trained on all labels, and may have memorised some wrong ones.

    rows: which training examples to check, by position in `references_`; by default all.
    """
    references = clf.references_
    rows = np.arange(len(references)) if rows is None else rows
    votes = leave_one_out(references, rows)
    labels = references.labels.cpu().numpy()[rows]
    suggested, each = votes.argmax(axis=1), np.arange(len(rows))
    log_p = votes - np.logaddexp.reduce(votes, axis=1, keepdims=True)
    own, best = log_p[each, labels], log_p[each, suggested]
    issues = pd.DataFrame(
        {
            "id": pd.Series(list(references.ids[rows]), dtype=object),
            "label": clf.classes_[labels],
            "suggested": clf.classes_[suggested],
            "probability": np.exp(own),
            "suggested_probability": np.exp(best),
            "log_odds": best - own,
        },
        columns=list(COLUMNS),
    )
    outvoted: pd.DataFrame = issues[best > own]
    return outvoted.sort_values("log_odds", ascending=False, kind="stable", ignore_index=True)


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
    own = float(references.log_weights_at(torch.zeros(1, dtype=torch.float64))) + np.log(references.weights[rows])
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
        log_w = references.log_weights_at(squared_distances(members[part], members)) + factors
        log_w[torch.arange(len(part)), part] = -torch.inf
        sums.append(log_w.logsumexp(dim=1))
    return np.asarray(torch.cat(sums).cpu().numpy())
