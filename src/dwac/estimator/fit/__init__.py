"""Fitting: from X and y to a `Fitted` model that votes and is calibrated.

`rows`: rows in memory, cross-fitted or with some of them held out. `stream`: rows that are read in batches.
`sharded`: networks that each see a part of the rows, for exact deletion.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from dwac.errors import InputError
from dwac.estimator.containers import receive
from dwac.estimator.fit.passes import workspace
from dwac.estimator.fit.rows import fit_rows
from dwac.estimator.fit.sharded import fit_sharded
from dwac.estimator.fit.stream import as_given, fit_stream
from dwac.estimator.fit.streams import Roles, is_stream, open_stream
from dwac.estimator.fitted import Fitted
from dwac.estimator.preparation import without_empty_texts
from dwac.estimator.settings import SMALL_TABLE, FitSettings
from dwac.nn.ranks import sharing

__all__ = ["fit"]


def fit(
    settings: FitSettings,
    X: Any,
    y: Any,
    sample_weight: Any,
    ids: Iterable[Hashable] | None,
    within: Iterable[Hashable] | None = None,
    groups: Iterable[Hashable] | None = None,
) -> Fitted:
    """Train on X and y; arguments as for `DWACRegressor.fit`."""
    X, y = receive(settings.encoder, X, y, ids)
    settings.check()
    with sharing():  # among processes, if there are several (dwac.training.processes)
        if is_stream(X):
            return _fit_batches(settings, X, y, sample_weight, ids, within, groups)
        return _fit_held(settings, X, y, sample_weight, ids, within, groups)


def _fit_held(settings: FitSettings, *given: Any) -> Fitted:
    """Fit on rows in memory."""
    way = fit_rows if settings.shards is None else fit_sharded
    return way(settings, *without_empty_texts(settings.encoder, *given))


def _fit_batches(
    settings: FitSettings, X: Any, y: Any, sample_weight: Any, ids: Any, within: Any, groups: Any
) -> Fitted:
    """Fit on rows that are read in batches; few rows are read at once."""
    if settings.shards is not None:
        raise InputError("shards need rows in memory; got rows that are read in batches; read them first")
    if groups is not None:
        raise InputError(
            "groups need rows in memory; got rows that are read in batches, which are held out one by "
            "one; read them first, or write one row per group"
        )
    with workspace(settings.checkpoint) as folder:
        stream = open_stream(X, Roles(y, ids, sample_weight, within), folder)
        if stream.n - len(stream.left_out) >= SMALL_TABLE:
            return fit_stream(settings, stream, folder)
        rows = stream.kept()  # few rows may be cross-fitted
        names = None if stream.roles.ids is None else rows.ids
        return _fit_held(settings, as_given(settings, stream, rows), rows.y, rows.weights, names, rows.within, None)
