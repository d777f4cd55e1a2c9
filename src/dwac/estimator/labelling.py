"""What to label next: the unlabelled rows whose votes would tell the most about other rows.

A row's vote has a worth once its label is known. Before that, the model's probabilities say how likely each label is;
the expected worth averages over them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import InputError
from dwac.estimator.base import DWACEstimator
from dwac.estimator.containers import native
from dwac.estimator.preparation import row_ids
from dwac.estimator.readable import warn_of
from dwac.reference import ReferenceSet
from dwac.tasks import LABELS

_DOUBTFUL = 5  # candidates per requested row
_JUDGES = 1000
_OF_PRIOR = 0.01  # the prior's share of the vote, as in `dwac.worth.of_log`


def next_labels(
    model: DWACEstimator, pool: Any, n: int, judges: Any = None, ids: Iterable[Hashable] | None = None
) -> pd.DataFrame:
    """The table of `DWACClassifier.label_next`."""
    references, n = model.references_, checks.positive_int(n, "n")
    if model.target_.kind == LABELS:
        raise InputError("label_next is for models of one label per row; this one predicts several; ask by margins")
    observed = model.observe(pool)
    h = observed.h
    warn_of(observed.reasons, "labels are not asked for")
    if len(h) == 0:
        raise InputError("the pool must have at least one row that can be read; got none")
    names = row_ids(native(pool), ids, len(observed))[observed.readable]
    votes = torch.as_tensor(observed.votes[observed.readable])
    p = votes.softmax(dim=1)
    margins = _margins(p)
    doubtful = margins.argsort(stable=True)[: _DOUBTFUL * n]
    h_judges, votes_judges = _judging(model, h, votes, judges)
    candidates = h[doubtful.to(h.device)]
    log_w = _votes_of(references, candidates, h_judges) + _class_weight(references, p[doubtful])
    alike = _votes_of(references, candidates, candidates)
    alike = (alike - alike.amax()).exp()
    prior = torch.as_tensor(model.fitted_.log_shares()) + np.log(_OF_PRIOR)
    votes_judges = torch.logaddexp(votes_judges, prior + votes_judges.logsumexp(dim=1, keepdim=True))
    chosen, worth = _one_by_one(log_w, p[doubtful], votes_judges, alike, min(n, len(doubtful)))
    places = doubtful[chosen]
    best, codes = p[places].max(dim=1)
    table = pd.DataFrame(
        {
            "expected_worth": worth.numpy(),
            "prediction": model.target_.outcomes[codes.numpy()],
            "probability": best.numpy(),
            "margin": margins[places].numpy(),
        },
        index=names[places.numpy()].rename("id"),
    )
    table.attrs["judges"] = len(h_judges)
    return table


def expected_worth(log_w: Tensor, p: Tensor, votes: Tensor) -> Tensor:
    """(c,): what the label of each of c rows is expected to be worth to n others, on average.

    With W the votes on another row, P their shares and w the new vote, the new one has a share s = w / (W + w), and the
    shares become P' = (1-s) P + s for its label y, (1-s) P for other labels. Drawing the other row's label from P', its
    log-probability rises by log P' - log P: on average by the divergence of P' from P,

        P'_y log(P'_y / P_y) + (1-s) (1-P_y) log(1-s),

    which is averaged over y with p, the probabilities of the new row. (Averaging the rise of the *probability* would
    say nothing: its expectation is 0.)

    Args:
        log_w: (n, c) logs of new votes. p: (c, K). votes: (n, K) logs of the votes for each label, all of them finite.

    >>> unsure, sure = [0.0, 0.0], [0.0, -5.0]
    >>> votes = torch.tensor([unsure, sure]).double()
    >>> expected_worth(torch.zeros(2, 2).double(), votes.softmax(dim=1), votes).round(decimals=3)
    tensor([0.4840, 0.0350], dtype=torch.float64)
    """
    total = votes.logsumexp(dim=1, keepdim=True)
    log_before = votes - total
    log_stay = torch.nn.functional.logsigmoid(total - log_w)  # log(1-s)
    stay = log_stay.exp()
    share = torch.sigmoid(log_w - total)
    found = log_w.new_zeros(log_w.shape[1])
    for label in range(p.shape[1]):
        before = log_before[:, label, None]
        after = stay * before.exp() + share
        rise = after * (after.log() - before) + stay * -torch.expm1(before) * log_stay
        found += p[:, label] * rise.mean(dim=0)
    return found.clamp(min=0)  # a divergence is not negative, but rounding may make it so


def _one_by_one(log_w: Tensor, p: Tensor, votes: Tensor, alike: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Choose n of c rows greedily, and their worth. Rows chosen before already vote, split by their probabilities.

    alike: (c, c) from 0 to 1. A row similar to a chosen one tells little that is new: only the rest of its worth
    counts.
    """
    chosen: list[int] = []
    worth, new = [], torch.ones(len(p), dtype=torch.float64)
    for _ in range(n):
        found = new * expected_worth(log_w, p, votes)
        found[chosen] = -1.0
        best = int(found.argmax())
        chosen.append(best)
        worth.append(found[best])
        votes = torch.logaddexp(votes, log_w[:, best, None] + p[best].log())
        new = new * (1 - alike[best])
    return torch.tensor(chosen), torch.stack(worth)


def _judging(model: DWACEstimator, h: Tensor, votes: Tensor, judges: Any) -> tuple[Tensor, Tensor]:
    """Embeddings of the rows to improve, and the votes on them; by default the pool itself."""
    if judges is not None:
        h = model.observe(judges).h
        if len(h) == 0:
            raise InputError("X must have at least one row that can be read; got none")
        votes = torch.as_tensor(model.fitted_.votes(h))
    some = torch.linspace(0, len(h) - 1, min(len(h), _JUDGES)).round().long()
    return h[some.to(h.device)], votes[some]


def _votes_of(references: ReferenceSet, h: Tensor, queries: Tensor) -> Tensor:
    """(n, c): logs of the votes that new voters h (c, d) would have on queries, without class weights."""
    labels = np.zeros(len(h), dtype=np.int64)
    look: dict[str, Any] = {"kernel": references.kernel, "look_alikes": references.voters.look_alikes}
    voters = ReferenceSet(h, labels, n_classes=references.n_classes, **look)
    return torch.as_tensor(voters.voters.every_vote(queries)).cpu().double()


def _class_weight(references: ReferenceSet, p: Tensor) -> Tensor:
    """(c,): the log of the expected class weight of each row."""
    return (p @ torch.as_tensor(references.class_weights)).log()


def _margins(p: Tensor) -> Tensor:
    """(n,): the difference between the two largest of the probabilities (n, K)."""
    most, _ = p.topk(2, dim=1)
    return most[:, 0] - most[:, 1]
