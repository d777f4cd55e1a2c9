"""Training labels that look wrong: examples whose own neighbours vote for another label.

The votes on each training example are counted with its own left out:

    L_k = log Σ_{i≠j} I(y_i=k) w(h_j, h_i)

That is not what a new example would get: the network learned from the label y_j, and h_j may lie where it lies because
of it. So wrong labels that the network learned by heart are not found.

One sweep gives the sums with its own vote in; it weighs w(h_j, h_j) = 1. Taking 1 away is safe where the rest weighs
something too. Where an example's own vote is nearly all that its class has, the difference would be rounding: there the
others are summed directly, in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.estimator.classifier import DWACClassifier
from dwac.kernels import log_weights
from dwac.reference import ReferenceSet

COLUMNS = ("id", "label", "suggested", "probability", "suggested_probability", "log_odds")
_LEAST = 0.25  # the others' weight in units of the own vote, from which on the difference is exact to some 1e-4
_CELLS = 2**22  # weights in memory at once


def label_issues(clf: DWACClassifier, rows: NDArray[np.int64] | None = None) -> pd.DataFrame:
    """The training examples that their neighbours out-vote, the most doubtful first: a row each.

    Columns: `id`; its `label`; the label that the others `suggested`; the `probability` that they give its own label
    and the `suggested_probability`; and by how much they out-vote it, `log_odds` = log of the ratio of these two.

    Not every one is mistaken: an example may be rare, or lie between classes. All of them are worth a look. Nor are all
    mistakes among them: the network learned from every label, and may have moved an example to where its label is.

    rows: which training examples to ask about, by their places in `references_`; by default all.
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
    """(m, K): log class weights of every reference with its own vote left out; -inf for a class it is alone in.

    rows: of which references, by their places; by default all.

    >>> leave_one_out(ReferenceSet([[0.0], [1.0], [2.0]], [0, 0, 1])).round(2)
    array([[-1.  , -4.  ],
           [-1.  , -1.  ],
           [-0.95,  -inf]])
    """
    h, every = references.embeddings, references.labels.cpu().numpy()
    rows = np.arange(len(every)) if rows is None else rows
    votes = np.array(references.log_class_weights(h[torch.as_tensor(rows, device=h.device)]).cpu().numpy())
    labels, each = every[rows], np.arange(len(rows))
    # Of what all votes of its class are in units of its own, 1 is the example itself.
    log_all = votes[each, labels] - np.log(references.class_weights)[labels]
    with np.errstate(divide="ignore"):
        others = log_all + np.log(-np.expm1(-np.maximum(log_all, 0)))
    doubtful = log_all < np.log1p(_LEAST)
    for label in np.unique(labels[doubtful]):
        mine, asked = np.flatnonzero(every == label), np.flatnonzero(doubtful & (labels == label))
        others[asked] = _without_self(references, mine, np.searchsorted(mine, rows[asked]))
    votes[each, labels] = others + np.log(references.class_weights)[labels]
    return votes


def _without_self(references: ReferenceSet, mine: NDArray[Any], asked: NDArray[Any]) -> NDArray[np.float64]:
    """log Σ w over the other members of a class, for some of its members: exactly, in float64."""
    members = references.embeddings[torch.as_tensor(mine, device=references.embeddings.device)].double()
    sums: list[Tensor] = []
    for part in torch.as_tensor(asked, device=members.device).split(max(1, _CELLS // len(mine))):
        log_w = log_weights(members[part], members, references.kernel)
        log_w[torch.arange(len(part)), part] = -torch.inf
        sums.append(log_w.logsumexp(dim=1))
    return np.asarray(torch.cat(sums).cpu().numpy())
