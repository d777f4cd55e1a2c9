"""The worth of each voter for rows with known outcomes, as tables by id or by group; and which rows to label next.

The value of one vote, which depends on the target, is in `dwac.tasks.worth`. An unlabelled row's vote has a worth once
its label is known. Before that, the model's probabilities say how likely each label is, and its expected worth averages
over them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dwac import _checks as checks
from dwac import worth
from dwac.errors import IdError, InputError, PrivacyError, ShapeError
from dwac.estimator.base import DWACEstimator
from dwac.estimator.containers import native
from dwac.estimator.observed import Observed
from dwac.estimator.preparation import read_known, row_ids
from dwac.estimator.readable import warn_of
from dwac.reference import ReferenceSet
from dwac.tasks.worth import Judges, Options, game_of, log_shares
from dwac.training.progress import rows_bar

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_DOUBTFUL = 5  # candidates per requested row
_JUDGES = 1000
_OF_PRIOR = 0.01  # the prior's share of the vote, as in `dwac.worth.of_log`

__all__ = ["Judges", "Options", "column_of_voters", "kept_column", "scores_of", "worth_by", "worth_of"]


def worth_of(
    model: DWACEstimator,
    X: Any,
    y: Any,
    options: Options,
    *,
    groups: Any = None,
    ids: Iterable[Hashable] | None = None,
    show: bool | str = "auto",
) -> pd.DataFrame:
    """The table of `DWACClassifier.worth` and `DWACRegressor.worth`. X: rows, or what the model observed of them."""
    check_is_fitted(model, "fitted_")
    if model.private_:
        raise PrivacyError("a private model shows nothing of single training examples; ask the model it was saved from")
    judges = _judges(model, X, y, ids)
    groups = kept_column(model, groups) if isinstance(groups, str) else groups
    return worth_by(model.fitted_, judges, options, groups=groups, show=show)


def worth_by(
    fitted: Any,
    judges: Judges,
    options: Options,
    *,
    groups: Any = None,
    show: bool | str = False,
    votes: Iterable[tuple[slice, Tensor]] | None = None,
) -> pd.DataFrame:
    """The same for rows that are embedded already, and voters of any model that has references and a target.

    votes: the log of every vote on the rows, if these are known.
    """
    references: ReferenceSet = fitted.references
    options.check()
    game = game_of(fitted, judges, options)
    members = None if groups is None else _grouped(groups, references)
    names = references.voters.ids if members is None else pd.Index(members.unique(), tupleize_cols=False)
    codes = None
    if members is not None:
        codes = torch.as_tensor(names.get_indexer(pd.Index(members)), device=references.labels.device)
    tally = worth.Tally(len(names), references.labels.device)
    with rows_bar("worth", len(judges.h), show=show) as done:
        for rows, log_w in worth.vote_blocks(references, judges.h, judges.own) if votes is None else votes:
            tally.add(game.values(log_w, rows, codes, len(names)))
            done(tally.n)
    table = pd.DataFrame(
        {"worth": tally.mean, "deviation": tally.deviation, "standard_error": tally.standard_error},
        index=names.rename("id" if members is None else "group"),
    )
    if members is None:
        table["relative"] = _relative(tally.mean, game.peers())
        sizes = {"size": references.sizes} if references.voters.represents else {}  # of representatives
        table = table.assign(**game.outcomes(), **sizes)
    else:
        table["examples"] = members.value_counts().reindex(table.index).to_numpy()
    table.attrs.update(options._asdict(), queries=tally.n, error=tally.error)
    return table


def scores_of(fitted: Any, judges: Judges) -> Floats:
    """(n,): the worth of the whole vote for each row: P of the true label; for several labels, the mean P of being
    right; for numbers, minus the squared error in units of the variance. Leave-one-out is how much the mean would fall.
    """
    game, means = game_of(fitted, judges, Options("shapley", "probability", 1e-4)), []
    for rows, log_w in worth.vote_blocks(fitted.references, judges.h, judges.own):
        shares = torch.softmax(log_w.double(), dim=1)
        means.append(torch.stack([(shares * votes).sum(dim=1) for votes in game.votes(rows)]))
    return np.asarray(game.score(torch.cat(means, dim=1)).mean(dim=0).cpu().numpy())


def _judges(model: DWACEstimator, X: Any, y: Any, ids: Iterable[Hashable] | None) -> Judges:
    observed = X if isinstance(X, Observed) else model.observe(X)
    warn_of(observed.reasons, "outcomes do not count")
    codes, exact = read_known(model.target_, y, len(observed), strict=False)
    own = np.full(len(observed), -1)
    if ids is not None:
        own = model.references_.voters.ids.get_indexer(row_ids(X, ids, len(observed)))
    kept = observed.readable
    if not kept.any():
        raise InputError("X must have at least one row that can be read; got none")
    return Judges(observed.h, codes[kept], exact[kept], own[kept])


def kept_column(model: DWACEstimator, column: str, name: str = "groups") -> pd.Series[Any]:
    """A column of the training examples that the model holds, by id; missing values are a group of their own.

    name: the argument's name, for errors.
    """
    return column_of_voters(None if model.private_ else model.examples_.frame(), column, model.references_, name)


def column_of_voters(
    frame: pd.DataFrame | None, column: str, references: ReferenceSet, name: str = "groups"
) -> pd.Series[Any]:
    """The same from a frame of the training examples, by id."""
    if frame is None:
        raise InputError(f"{name} needs a model that holds its training examples; this one keeps none")
    names = {str(each): each for each in frame.columns}
    if column not in names:
        raise InputError(f"{name} must name a column of the training data: {', '.join(names)}; got {column!r}")
    return _or_missing(frame[names[column]].reindex(references.voters.ids).astype(object))


def _grouped(groups: Any, references: ReferenceSet) -> pd.Series[Any]:
    """(m,): the group of each voter; groups are given by id, or in the order of the voters."""
    if isinstance(groups, Mapping):
        groups = pd.Series(list(groups.values()), pd.Index(list(groups), tupleize_cols=False), dtype=object)
    if isinstance(groups, pd.Series):
        return _or_missing(_by_id(groups, references.voters.ids))
    if not isinstance(groups, Iterable):
        raise InputError(f"groups must be a column's name, a Series by id, or one name per voter; got {groups!r}")
    named = list(groups)
    if len(named) != len(references):
        raise ShapeError(f"groups must have one name per voter: {len(references)}; got {len(named)}")
    return _or_missing(pd.Series(named, dtype=object))


def _by_id(groups: pd.Series[Any], ids: pd.Index[Any]) -> pd.Series[Any]:
    missing = ids.difference(groups.index)
    if len(missing):
        raise IdError(f"groups must name the group of each voter by its id; none for {missing.tolist()[0]!r}")
    known = groups[groups.index.isin(ids)]
    if not known.index.is_unique:
        twice = known.index[known.index.duplicated()].tolist()[0]
        raise IdError(f"groups must name each voter once; {twice!r} is named more than once")
    return known.loc[ids]


def _or_missing(groups: pd.Series[Any]) -> pd.Series[Any]:
    """Make missing values a group of their own."""
    known = groups.notna()
    return groups if known.all() else groups.astype(object).where(known, "missing")


def _relative(values: Floats, peers: Ints) -> Floats:
    """(m,): how many standard deviations each value lies above the mean of its peers; 0 where all are equal."""
    each = pd.Series(values).groupby(peers)
    apart, spread = values - each.transform("mean").to_numpy(), each.transform("std", ddof=0).to_numpy()
    small = 1e-9 * np.abs(values).max(initial=0.0)
    return np.where(spread > small, apart / np.maximum(spread, small or 1.0), 0.0)


# What to label next


def next_labels(
    model: DWACEstimator, pool: Any, n: int, judges: Any = None, ids: Iterable[Hashable] | None = None
) -> pd.DataFrame:
    """The table of `DWACClassifier.label_next`."""
    references, n = model.references_, checks.positive_int(n, "n")
    if not model.target_.has_codes:
        raise InputError("label_next needs one label per row; this model predicts several; choose by margin instead")
    observed = model.observe(pool)
    h = observed.h
    warn_of(observed.reasons, "labels are not requested")
    if len(h) == 0:
        raise InputError("the pool must have at least one row that can be read; got none")
    names = row_ids(native(pool), ids, len(observed))[observed.readable]
    votes = torch.as_tensor(observed.votes[observed.readable])
    p = votes.softmax(dim=1)
    margins = _margins(p)
    doubtful = margins.argsort(stable=True)[: _DOUBTFUL * n]
    h_judges, votes_judges = _judging(model, h, votes, judges)
    candidates = h[doubtful.to(h.device)]
    by_class = (p[doubtful] @ torch.as_tensor(references.class_weights)).log()  # the expected class weight of each
    log_w = _votes_of(references, candidates, h_judges) + by_class
    alike = _votes_of(references, candidates, candidates)
    alike = (alike - alike.amax()).exp()
    prior = torch.as_tensor(log_shares(references)) + np.log(_OF_PRIOR)
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
    worth_of_rows = log_w.new_zeros(log_w.shape[1])
    for label in range(p.shape[1]):
        before = log_before[:, label, None]
        after = stay * before.exp() + share
        rise = after * (after.log() - before) + stay * -torch.expm1(before) * log_stay
        worth_of_rows += p[:, label] * rise.mean(dim=0)
    return worth_of_rows.clamp(min=0)  # a divergence is not negative, but rounding may make it so


def _one_by_one(log_w: Tensor, p: Tensor, votes: Tensor, alike: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Choose n of c rows greedily, and their worth. Rows chosen before already vote, split by their probabilities.

    alike: (c, c) from 0 to 1. A row similar to a chosen one tells little that is new: only the rest of its worth
    counts.
    """
    chosen: list[int] = []
    worth, new = [], torch.ones(len(p), dtype=torch.float64)
    for _ in range(n):
        left = new * expected_worth(log_w, p, votes)
        left[chosen] = -1.0
        best = int(left.argmax())
        chosen.append(best)
        worth.append(left[best])
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


def _margins(p: Tensor) -> Tensor:
    """(n,): the difference between the two largest of the probabilities (n, K)."""
    most, _ = p.topk(2, dim=1)
    return most[:, 0] - most[:, 1]
