"""The worth of each voter for rows with known outcomes, as tables by id or by group.

The values are those of `dwac.worth`; this module defines the value of one vote, and of an empty set of voters.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dwac import worth
from dwac.errors import IdError, InputError, LabelError, PrivacyError, ShapeError
from dwac.estimator.base import DWACEstimator
from dwac.estimator.observed import Observed
from dwac.estimator.preparation import read_known, row_ids
from dwac.estimator.readable import warn_of
from dwac.reference import ReferenceSet
from dwac.tasks import LABELS, NUMBERS
from dwac.training.progress import rows_bar
from dwac.worth import GameValues

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_UNREAD = "outcomes judge nobody"
_COLUMNS = ("id", "worth", "deviation", "standard_error", "if_removed", "relative", "size")
_FEW = 5  # examples of a class; smaller classes are compared together
_PARTS = 5  # of the numbers, sorted


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
    return worth_by(model, _judges(model, X, y, ids), options, groups=groups, show=show)


def worth_by(
    model: DWACEstimator, judges: Judges, options: Options, *, groups: Any = None, show: bool | str = False
) -> pd.DataFrame:
    """The same for rows that are embedded already."""
    references = model.references_
    game = _game(model, references, judges, options)
    members = None if groups is None else _grouped(groups, model)
    names = references.voters.ids if members is None else pd.Index(members.unique(), tupleize_cols=False)
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
        table["relative"] = _relative(tally.mean, _peers(model, references))
        table = table.assign(**_outcomes(model, references))
    else:
        table["examples"] = members.value_counts().reindex(table.index).to_numpy()
    table.attrs.update(options._asdict(), queries=tally.n, error=tally.error)
    return table


def scores_of(model: DWACEstimator, judges: Judges) -> Floats:
    """(n,): the worth of the whole vote for each row: P of the true label; for several labels, the mean P of being
    right; for numbers, minus the squared error in units of the variance. Leave-one-out is how much the mean would fall.
    """
    references, found = model.references_, []
    says = _says(model, references, judges)
    for rows, log_w in worth.vote_blocks(references, judges.h, judges.own):
        shares = torch.softmax(log_w.double(), dim=1)
        found.append(torch.stack([(shares * each).sum(dim=1) for each in says(rows)]))
    means = torch.cat(found, dim=1)
    squared = model.target_.kind == NUMBERS
    return np.asarray((-means.square() if squared else means).mean(dim=0).cpu().numpy())


def _judges(model: DWACEstimator, X: Any, y: Any, ids: Iterable[Hashable] | None) -> Judges:
    observed = X if isinstance(X, Observed) else model.observe(X)
    warn_of(observed.reasons, _UNREAD)
    codes, exact = read_known(model.target_, y, len(observed), strict=False)
    own = np.full(len(observed), -1)
    if ids is not None:
        own = model.references_.voters.ids.get_indexer(row_ids(X, ids, len(observed)))
    kept = observed.readable
    if not kept.any():
        raise InputError("X must have at least one row that can be read; got none")
    return Judges(observed.h, codes[kept], exact[kept], own[kept])


Game = Callable[[Tensor, slice, Tensor | None, int], GameValues]
Says = Callable[[slice], list[Tensor]]  # (b, m): the value that each voter adds to the mean of the vote, for b rows


def _says(model: DWACEstimator, references: ReferenceSet, judges: Judges, label: Any = None) -> Says:
    """The value of each vote: 1 for the true label, the share of correct labels, or the distance to the true number."""
    device = references.labels.device
    if model.target_.kind == NUMBERS:
        assert references.targets is not None
        scale = torch.as_tensor(model.target_.scale[1], device=device)
        says = references.targets / scale
        numbers = torch.as_tensor(judges.exact, dtype=torch.float64, device=device) / scale
        return lambda rows: [says[:, t] - numbers[rows, t, None] for t in range(numbers.shape[1])]
    if model.target_.kind == LABELS:
        asked = _labels(model, label)
        table, true = (
            torch.as_tensor(each[:, asked], dtype=torch.float64, device=device)
            for each in (model.target_.table, judges.exact)
        )
        voters = table[references.labels]
        return lambda rows: [(true[rows] @ voters.T + (1 - true[rows]) @ (1 - voters).T) / voters.shape[1]]
    truths = torch.as_tensor(judges.codes, device=device)
    return lambda rows: [(references.labels == truths[rows, None]).double()]


def _labels(model: DWACEstimator, label: Any) -> Any:
    """The columns of the labels to use: one, or all."""
    if label is None:
        return slice(None)
    place = np.flatnonzero(model.target_.names == label)
    if len(place) == 0:
        raise LabelError(f"label must be one of {model.target_.names.tolist()}; got {label!r}")
    return place


def _game(model: DWACEstimator, references: ReferenceSet, judges: Judges, options: Options) -> Game:
    """The values of voters, or of groups of voters, for a block of rows."""
    if options.method not in worth.METHODS:
        raise InputError(f"method must be one of {', '.join(worth.METHODS)}; got {options.method!r}")
    kind = model.target_.kind
    of = {NUMBERS: _numbers, LABELS: _several}.get(kind, _classes)
    return of(model, references, judges, options)


def _classes(model: DWACEstimator, references: ReferenceSet, judges: Judges, options: Options) -> Game:
    device = references.labels.device
    given: dict[str, Any] = {"method": options.method, "tolerance": options.tolerance}
    prior = torch.as_tensor(np.exp(model.fitted_.log_shares()), device=device)
    truths = torch.as_tensor(judges.codes, device=device)
    says = _says(model, references, judges)

    def game(log_w: Tensor, rows: slice, groups: Tensor | None, n_groups: int) -> GameValues:
        truth = truths[rows]
        if groups is None:
            return worth.of_labels(log_w, references.labels, truth, prior, utility=options.utility, **given)
        if options.utility != "probability":
            raise InputError(f"worth by groups is for utility='probability'; got {options.utility!r}")
        before = torch.where(truth >= 0, prior[truth.clamp_min(0)], 0.0)
        return worth.of_mean(*worth.together(log_w, says(rows)[0], groups, n_groups), before, **given)

    return game


def _several(model: DWACEstimator, references: ReferenceSet, judges: Judges, options: Options) -> Game:
    """The game for several labels: the probability of being right, averaged over labels, or of one label alone."""
    if options.utility != "probability":
        raise InputError(f"utility must be 'probability' for several labels; got {options.utility!r}")
    asked = _labels(model, options.label)
    shares = np.bincount(references.labels.cpu().numpy(), references.weights, references.n_classes)
    usual = shares @ model.target_.table[:, asked] / shares.sum()
    before = np.abs(1 - judges.exact[:, asked] - usual).mean(axis=1)
    empty = torch.as_tensor(before, device=references.labels.device)
    says = _says(model, references, judges, options.label)

    def game(log_w: Tensor, rows: slice, groups: Tensor | None, n_groups: int) -> GameValues:
        alike = says(rows)[0]
        players = (log_w, alike) if groups is None else worth.together(log_w, alike, groups, n_groups)
        return worth.of_mean(*players, empty[rows], method=options.method, tolerance=options.tolerance)

    return game


def _numbers(model: DWACEstimator, references: ReferenceSet, judges: Judges, options: Options) -> Game:
    """The game for numbers: the squared error of the voters' mean, in units of their variance, averaged."""
    assert references.targets is not None
    votes = references.weights * references.class_weights[references.labels.cpu().numpy()]
    weights = torch.as_tensor(votes, device=references.labels.device)
    says = _says(model, references, judges)

    def game(log_w: Tensor, rows: slice, groups: Tensor | None, n_groups: int) -> GameValues:
        found = []
        for apart in says(rows):
            players = (log_w, apart) if groups is None else worth.together(log_w, apart, groups, n_groups)
            empty = apart @ weights / weights.sum()  # the mean of all voters
            found.append(worth.of_squared_error(*players, empty, method=options.method, tolerance=options.tolerance))
        return GameValues(*(torch.stack(column).mean(dim=0) for column in zip(*found, strict=True)))

    return game


def kept_column(model: DWACEstimator, column: str, name: str = "groups") -> pd.Series[Any]:
    """A column of the training examples that the model holds, by id; missing values are a group of their own.

    name: the argument's name, for errors.
    """
    frame = None if model.private_ else model.examples_.frame()
    if frame is None:
        raise InputError(f"{name} needs a model that holds its training examples; this one keeps none")
    names = {str(each): each for each in frame.columns}
    if column not in names:
        raise InputError(f"{name} must name a column of the training data: {', '.join(names)}; got {column!r}")
    return _or_missing(frame[names[column]].reindex(model.references_.voters.ids).astype(object))


def _grouped(groups: Any, model: DWACEstimator) -> pd.Series[Any]:
    """(m,): the group of each voter; groups are given by id, as the name of a column, or in the order of the voters."""
    references = model.references_
    groups = kept_column(model, groups) if isinstance(groups, str) else groups
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
    found = groups[groups.index.isin(ids)]
    if not found.index.is_unique:
        twice = found.index[found.index.duplicated()].tolist()[0]
        raise IdError(f"groups must name each voter once; {twice!r} is there more than once")
    return found.loc[ids]


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


def _peers(model: DWACEstimator, references: ReferenceSet) -> Ints:
    """(m,): the peers of each voter: voters with its class or labels; for numbers, voters in the same fifth.

    A vote for an outcome that is rare among the judges is wrong for most of them. So a whole class may be worth less
    than 0, which says nothing about its examples.
    """
    if model.target_.kind == NUMBERS:
        assert references.targets is not None
        numbers = (references.targets.cpu().numpy() / model.target_.scale[1]).mean(axis=1)
        return np.asarray(np.searchsorted(np.quantile(numbers, np.arange(1, _PARTS) / _PARTS), numbers))
    codes: Ints = references.labels.cpu().numpy()
    return np.where(np.bincount(codes)[codes] < _FEW, -1, codes)


def _apart(name: str) -> str:
    """A target's name, made different from those of the other columns."""
    return f"{name}_target" if name in _COLUMNS else name


def _outcomes(model: DWACEstimator, references: ReferenceSet) -> dict[str, Any]:
    """What each voter votes for and, for representatives, how many examples it represents."""
    found: dict[str, Any] = {}
    if model.target_.kind == NUMBERS:
        assert references.targets is not None
        numbers = references.targets.cpu().numpy()
        names = ["number"] if model.target_.single else [_apart(str(name)) for name in model.target_.names]
        found |= {name: numbers[:, t] for t, name in enumerate(names)}
    else:
        found["label"] = model.target_.outcomes[references.labels.cpu().numpy()]
    return found | ({"size": references.sizes} if references.voters.weighted else {})
