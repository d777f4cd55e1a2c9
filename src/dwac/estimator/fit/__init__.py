"""Fitting: from X and y to a `Fitted` model that votes and is calibrated.

`rows`: rows in memory, cross-fitted or with some of them held out. `stream`: rows that are read in batches.
`sharded`: networks that each see a part of the rows, for exact deletion.
"""

from __future__ import annotations

from dwac.errors import InputError
from dwac.estimator.containers import receive
from dwac.estimator.fit.passes import workspace
from dwac.estimator.fit.rows import fit_rows
from dwac.estimator.fit.sharded import fit_sharded
from dwac.estimator.fit.stream import as_given, fit_stream
from dwac.estimator.fit.streams import Roles, is_stream, open_stream
from dwac.estimator.fitted import Fitted
from dwac.estimator.preparation import FitInput, without_empty_texts
from dwac.estimator.settings import (
    MIDDLE_TABLE,
    SMALL_TABLE,
    SMALL_TEXTS,
    FitSettings,
    other_ways,
)
from dwac.nn.ranks import sharing

__all__ = ["fit"]


def fit(settings: FitSettings, rows: FitInput) -> Fitted:
    """Train on X and y; arguments as for `DWACRegressor.fit`."""
    X, y = receive(settings.encoder, rows.X, rows.y, rows.ids)
    settings.check()
    with sharing():  # among processes, if there are several (dwac.training.processes)
        return (_fit_batches if is_stream(X) else _fit_in_memory)(settings, rows._replace(X=X, y=y))


def _fit_in_memory(settings: FitSettings, rows: FitInput) -> Fitted:
    """Fit on rows in memory."""
    fit_all = fit_rows if settings.shards is None else fit_sharded
    return fit_all(settings, without_empty_texts(settings.encoder, rows))


def _fit_batches(settings: FitSettings, rows: FitInput) -> Fitted:
    """Fit on rows that are read in batches; few rows are read at once."""
    if settings.shards is not None:
        raise InputError("shards need rows in memory; got rows that are read in batches; read them first")
    if rows.apart is not None:
        raise InputError("apart=… needs rows in memory; got rows that are read in batches; read them first")
    if rows.groups is not None:
        raise InputError(
            "groups need rows in memory; got rows that are read in batches, which are held out one by "
            "one; read them first, or write one row per group"
        )
    with workspace(settings.checkpoint) as folder:
        stream = open_stream(rows.X, Roles(rows.y, rows.ids, rows.sample_weight, rows.within), folder)
        texts = stream.texts or str(settings.encoder).startswith("text")
        table = SMALL_TABLE if other_ways(settings) else MIDDLE_TABLE
        if stream.n - len(stream.left_out) >= (SMALL_TEXTS if texts else table):
            return fit_stream(settings, stream, folder)
        kept = stream.read_all()  # few rows may be cross-fitted
        names = None if stream.roles.ids is None else kept.ids
        X = as_given(settings, stream, kept)
        return _fit_in_memory(settings, FitInput(X, kept.y, kept.weights, names, kept.within))
