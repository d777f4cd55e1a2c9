"""What every voter is worth for rows whose outcomes are known: from rows to tables by id or by group.

The values are those of `dwac.worth`; here is said what a vote is worth, and what nobody's vote is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac import worth
from dwac.errors import IdError, InputError, LabelError, PrivacyError, ShapeError
from dwac.estimator.base import Voting
from dwac.estimator.preparation import count, row_ids
from dwac.estimator.readable import Partial, warn_of
from dwac.estimator.targets import LABELS, NUMBERS
from dwac.reference import ReferenceSet
from dwac.training.progress import rows_bar
from dwac.worth import Values

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_UNREAD = "outcomes judge nobody"


class Judges(NamedTuple):
    """Rows whose outcomes are known, all of which can be read."""

    h: Tensor  # (n, d)
    codes: Ints  # (n,); -1 for a label that no voter has
    exact: Floats  # (n, T) or (n, L)
    own: Ints  # (n,): which voter each of them is; -1 for none


class Options(NamedTuple):
    """How worth is measured."""

    method: str
    utility: str
    tolerance: float
    label: Any = None


def worth_of(
    model: Voting,
    X: Any,
    y: Any,
    options: Options,
    *,
    groups: Any = None,
    ids: Iterable[Hashable] | None = None,
    show: bool | str = "auto",
) -> pd.DataFrame:
    """The table of `DWACClassifier.worth` and `DWACRegressor.worth`."""
    references = model.references_  # an error for a network without votes
    if model.private_:
        raise PrivacyError("a private model shows nothing of single training examples; ask the model it was saved from")
    judges = _judges(model, X, y, ids)
    game = _game(model, references, judges, options)
    members = None if groups is None else _grouped(groups, references)
    names = references.index_of_ids if members is None else pd.Index(members.unique(), tupleize_cols=False)
    codes = None
    if members is not None:
        codes = torch.as_tensor(names.get_indexer(pd.Index(members)), device=references.labels.device)
    tally = worth.Tally(len(names), references.labels.device)
    with rows_bar("worth", len(judges.h), show=show) as done:
        for rows, log_w in worth.vote_blocks(references, judges.h, judges.own):
            tally.add(game(log_w, rows, codes, len(names)))
            done(tally.n)
    table = pd.DataFrame(
        {"worth": tally.mean, "deviation": tally.deviation, "standard_error": tally.standard_error},
        index=names.rename("id" if members is None else "group"),
    )
    if members is None:
        table = table.assign(**_outcomes(model, references))
    else:
        table["examples"] = members.value_counts().reindex(table.index).to_numpy()
    table.attrs.update(options._asdict(), queries=tally.n, error=tally.error)
    return table


def _judges(model: Voting, X: Any, y: Any, ids: Iterable[Hashable] | None) -> Judges:
    rows = model._sift(X)
    n = len(rows.reasons)
    h = torch.zeros(0, model.references_.embeddings.shape[1])
    if rows.inputs:
        rows, h = model._embedded(rows)
    warn_of(rows.reasons, _UNREAD, stacklevel=5)
    codes, exact = model._known(y, n, strict=False)
    own = np.full(n, -1)
    if ids is not None:
        whole = X.X if isinstance(X, Partial) else X
        own = model.references_.index_of_ids.get_indexer(row_ids(whole, ids, count(whole)))
    kept = rows.readable
    if not kept.any():
        raise InputError("X must have at least one row that can be read; got none")
    return Judges(h, codes[kept], exact[kept], own[kept])


Game = Callable[[Tensor, slice, Tensor | None, int], Values]


def _game(model: Voting, references: ReferenceSet, judges: Judges, options: Options) -> Game:
    """Values of voters, or of groups of them, for a block of rows."""
    if options.method not in worth.METHODS:
        raise InputError(f"method must be one of {', '.join(worth.METHODS)}; got {options.method!r}")
    kind = model.target_.kind
    if kind == NUMBERS:
        return _numbers(references, judges, model.target_.scale[1], options)
    if kind == LABELS:
        return _several(model, references, judges, options)
    return _classes(model, references, judges, options)


def _classes(model: Voting, references: ReferenceSet, judges: Judges, options: Options) -> Game:
    device = references.labels.device
    given: dict[str, Any] = {"method": options.method, "tolerance": options.tolerance}
    prior = torch.as_tensor(np.exp(model._log_shares()), device=device)
    truths = torch.as_tensor(judges.codes, device=device)

    def game(log_w: Tensor, rows: slice, groups: Tensor | None, n_groups: int) -> Values:
        truth = truths[rows]
        if groups is None:
            return worth.of_labels(log_w, references.labels, truth, prior, utility=options.utility, **given)
        if options.utility != "probability":
            raise InputError(f"worth by groups is for utility='probability'; got {options.utility!r}")
        right = (references.labels == truth[:, None]).double()
        before = torch.where(truth >= 0, prior[truth.clamp_min(0)], 0.0)
        return worth.of_mean(*worth.together(log_w, right, groups, n_groups), before, **given)

    return game


def _several(model: Voting, references: ReferenceSet, judges: Judges, options: Options) -> Game:
    """Of several labels: the probability that a label is as it is, averaged over labels, or of one label alone."""
    if options.utility != "probability":
        raise InputError(f"utility must be 'probability' for several labels; got {options.utility!r}")
    device, table, true = references.labels.device, model.target_.table, judges.exact
    if options.label is not None:
        place = np.flatnonzero(model.target_.names == options.label)
        if len(place) == 0:
            raise LabelError(f"label must be one of {model.target_.names.tolist()}; got {options.label!r}")
        table, true = table[:, place], true[:, place]
    shares = np.bincount(references.labels.cpu().numpy(), references.weights, references.n_classes)
    usual = shares @ table / shares.sum()
    before = torch.as_tensor(np.abs(1 - true - usual).mean(axis=1), device=device)
    voters, truth = (torch.as_tensor(each, dtype=torch.float64, device=device) for each in (table, true))
    voters = voters[references.labels]

    def game(log_w: Tensor, rows: slice, groups: Tensor | None, n_groups: int) -> Values:
        asked = truth[rows]
        alike = (asked @ voters.T + (1 - asked) @ (1 - voters).T) / voters.shape[1]
        players = (log_w, alike) if groups is None else worth.together(log_w, alike, groups, n_groups)
        return worth.of_mean(*players, before[rows], method=options.method, tolerance=options.tolerance)

    return game


def _numbers(references: ReferenceSet, judges: Judges, spread: Floats, options: Options) -> Game:
    """Of numbers: the squared error of the voters' mean, in units of their variance, averaged over several numbers."""
    device = references.labels.device
    assert references.targets is not None
    votes = references.weights * references.class_weights[references.labels.cpu().numpy()]
    weights = torch.as_tensor(votes, device=device)
    scale = torch.as_tensor(spread, device=device)
    says = references.targets / scale
    usual = weights @ says / weights.sum()
    truth = torch.as_tensor(judges.exact, dtype=torch.float64, device=device) / scale

    def game(log_w: Tensor, rows: slice, groups: Tensor | None, n_groups: int) -> Values:
        true = truth[rows]
        found = []
        for t in range(true.shape[1]):
            apart = says[:, t] - true[:, t, None]
            players = (log_w, apart) if groups is None else worth.together(log_w, apart, groups, n_groups)
            empty = usual[t] - true[:, t]
            found.append(worth.of_squared_error(*players, empty, method=options.method, tolerance=options.tolerance))
        return Values(*(torch.stack(column).mean(dim=0) for column in zip(*found, strict=True)))

    return game


def _grouped(groups: Any, references: ReferenceSet) -> pd.Series[Any]:
    """(m,): the group of each voter, given by id or in the order of the voters."""
    if isinstance(groups, pd.Series):
        missing = references.index_of_ids.difference(groups.index)
        if len(missing):
            raise IdError(f"groups must name the group of each voter by its id; none for {missing.tolist()[0]!r}")
        return groups.loc[references.index_of_ids]
    named = list(groups)
    if len(named) != len(references):
        raise ShapeError(f"groups must have one name per voter: {len(references)}; got {len(named)}")
    return pd.Series(named, dtype=object)


def _outcomes(model: Voting, references: ReferenceSet) -> dict[str, Any]:
    """What each voter votes for, and how many it stands for, if there are such."""
    found: dict[str, Any] = {}
    if model.target_.kind == NUMBERS:
        assert references.targets is not None
        numbers = references.targets.cpu().numpy()
        names = ["number"] if model.target_.single else [str(name) for name in model.target_.names]
        found |= {name: numbers[:, t] for t, name in enumerate(names)}
    else:
        found["label"] = model.target_.outcomes[references.labels.cpu().numpy()]
    return found | ({"size": references.sizes} if references.weighted else {})
