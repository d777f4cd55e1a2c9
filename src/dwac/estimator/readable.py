"""The rows that an encoder can read, and why it cannot read the others. One bad row must not spoil the rest.

rows = sift(encoder, X)
rows.inputs                     # the readable rows, as inputs of the network
rows.reasons                    # (n,): None, or why a row cannot be read

A category that was not in training is read as missing, named in the answer, and counted as novel. A network may be as
certain about a value that it has never seen as about any other. Read as missing, the value makes no prediction more
certain, and no prediction set smaller, than its absence does. Decision 18.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from dwac._checks import warn
from dwac.encoders import Encoder, TabularEncoder
from dwac.encoders.columns import plain_values
from dwac.encoders.tabular_networks import UNKNOWN, unlike_training
from dwac.errors import InputError, KindError, UnreadableWarning
from dwac.estimator.preparation import count, take
from dwac.nn.batches import Inputs
from dwac.tasks.base import Bools, Reasons, readable

ATYPICAL, MISSING, REFUSE = "atypical", "missing", "refuse"
POLICIES = (ATYPICAL, MISSING, REFUSE)


def require_some(rows: Bools) -> None:
    """Raise an error if none of the rows (n,) could be read, and there is nothing to measure."""
    if not rows.any():
        raise InputError(f"at least one row must be readable; none of {len(rows):,} is; unreadable(X) says why")


@dataclass(frozen=True)
class Partial:
    """n rows, some of which could not even become part of X; a classifier still answers for each of the n rows.

    X holds the others, in order; it is None if there are none.
    """

    X: Any
    unreadable: Mapping[int, str]  # row → why it cannot be read


@dataclass(frozen=True, eq=False)
class Sifted:
    """n rows: those that can be read, and why the others cannot."""

    X: Any  # the rows that can be read; None if there are none
    inputs: Inputs  # the same rows, encoded; () if there are none
    reasons: Reasons
    unknown: Reasons  # (n,): None, or the values of a row that were not in training

    @property
    def readable(self) -> Bools:
        """(n,): which rows can be read."""
        return readable(self.reasons)

    def only(self, kept: Bools, why: str) -> Sifted:
        """Drop some readable rows for the reason `why`; `kept` is a mask over the readable rows."""
        reasons = self.reasons.copy()
        reasons[np.flatnonzero(self.readable)[~kept]] = why
        rows = np.flatnonzero(kept)
        inputs = tuple(part[torch.as_tensor(rows)] for part in self.inputs) if len(rows) else ()
        return Sifted(take(self.X, rows) if len(rows) else None, inputs, reasons, self.unknown)


def sift(
    encoder: Encoder,
    X: Any,
    prepared: Callable[[Any], Any] = lambda X: X,
    read: Callable[[Any], Judged] | None = None,
) -> Sifted:
    """Leave out the rows that the encoder's errors name; errors that concern all rows are raised.

    prepared: prepares or checks X first. read: turns rows into inputs; by default the encoder does.
    """
    one_by_one = isinstance(X, Partial)
    early, X = (X.unreadable, X.X) if isinstance(X, Partial) else ({}, X)
    X = None if X is None else prepared(X)
    reasons = np.full((0 if X is None else count(X)) + len(early), None, dtype=object)
    for row, why in early.items():
        reasons[row] = why
    inputs: Inputs = ()
    unknown = np.full(len(reasons), None, dtype=object)
    while X is not None:
        rows = np.flatnonzero(readable(reasons))
        try:
            inputs, notes = (encoder.transform(X), None) if read is None else read(X)
            unknown[rows] = notes
            break
        except InputError as error:
            if not error.rows or (isinstance(error, KindError) and not one_by_one):
                raise
            for row, why in error.rows.items():
                reasons[rows[row]] = why
            stays = np.setdiff1d(np.arange(len(rows)), list(error.rows))
            X = take(X, stays) if len(stays) else None
    return Sifted(X, inputs, reasons, unknown)


def warn_of(reasons: Reasons, answer: str = "answer is None or NaN") -> None:
    """Warn how many rows could not be read, why the first one could not, and what the answer for them is."""
    bad = np.flatnonzero(~readable(reasons))
    if len(bad):
        warn(
            f"{len(bad):,} of {len(reasons):,} rows could not be read (row {bad[0]}: {reasons[bad[0]]}); "
            f"their {answer}; unreadable(X) names them all",
            UnreadableWarning,
        )


# Values that were not in training


class Judged(NamedTuple):
    """Rows as inputs of the network, and the unknown values of each."""

    inputs: Inputs
    notes: Reasons  # (n,): None, or what is unknown: "job=pilot, town=Ys"


def judge(encoder: Encoder, X: Any, inputs: Inputs, policy: str, seen: Callable[[Any], Collection[str]]) -> Judged:
    """Read values that were not in training as missing; if the policy refuses them, an error names their rows.

    seen: the values of a column in the training rows, as text. Rare ones have no index of their own.
    """
    if policy not in POLICIES:  # set after fit
        raise InputError(f"unknown must be {', '.join(map(repr, POLICIES[:-1]))} or {REFUSE!r}; got {policy!r}")
    notes = np.full(len(inputs[0]) if inputs else 0, None, dtype=object)
    if not isinstance(encoder, TabularEncoder) or not bool((inputs[1] == UNKNOWN).any()):
        return Judged(inputs, notes)
    frame, categorical = encoder.records(X), inputs[1].clone()
    reasons: dict[int, str] = {}
    for place, column in enumerate(column for column in encoder.columns if column.n_indices):
        rows = np.flatnonzero((categorical[:, place] == UNKNOWN).numpy())
        if column.kind != "categorical" or len(rows) == 0:
            continue
        known = seen(column.name)
        missing = column.indices().get(None, UNKNOWN)
        values = plain_values(frame[column.name].iloc[rows], column.name)
        for row, value in zip(rows.tolist(), values, strict=True):
            if value is None or str(value) in known:
                continue
            categorical[row, place] = unlike_training(missing) if policy == ATYPICAL else missing
            note = f"{column.name}={value!s:.60}"
            notes[row] = note if notes[row] is None else f"{notes[row]}, {note}"
            reasons.setdefault(row, f"column {column.name!r} must hold a value that training had; got {value!r:.60}")
    if reasons and policy == REFUSE:
        row, why = next(iter(reasons.items()))
        raise InputError(f"{why} in row {row}; unknown='{ATYPICAL}' reads it as missing", rows=reasons)
    return Judged((inputs[0], categorical), notes)
