"""The rows that an encoder can read, and why it cannot read the others. One bad row must not spoil the rest.

rows = sift(encoder, X)
rows.inputs                     # the readable rows, as inputs of the network
rows.reasons                    # (n,): None, or why a row cannot be read
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dwac._checks import warn
from dwac.encoders import Encoder
from dwac.errors import InputError, KindError, UnreadableWarning
from dwac.estimator.preparation import count, take
from dwac.estimator.unknown import Judged
from dwac.nn.batches import Inputs

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Reasons = NDArray[np.object_]  # (n,): None, or why a row could not be read


def readable(reasons: Reasons) -> Bools:
    """(n,): which rows can be read."""
    return np.fromiter((why is None for why in reasons), dtype=np.bool_, count=len(reasons))


def require_some(rows: Bools) -> None:
    """Raise an error if none of the rows (n,) could be read, and there is nothing to measure."""
    if not rows.any():
        raise InputError(f"at least one row must be readable; none of {len(rows):,} is; unreadable(X) says why")


def without(labels: NDArray[Any], rows: Bools) -> NDArray[Any]:
    """Labels (n,), None where a row could not be read."""
    return labels if rows.all() else np.where(rows, labels.astype(object), np.array(None, dtype=object))


def masked(values: NDArray[Any], rows: Bools) -> Floats:
    """Numbers (n, …), NaN where a row could not be read."""
    return values if rows.all() else np.where(rows.reshape(-1, *[1] * (values.ndim - 1)), values, np.nan)


def answered(values: Floats) -> Bools:
    """(n,): which rows of numbers (n, …) contain no NaN."""
    return np.asarray(~np.isnan(values.reshape(len(values), -1)).any(axis=1))


def unmasked(votes: Floats) -> Floats:
    """Votes (n, …) to compute with, 0 for rows that could not be read; their answers are masked afterwards."""
    return np.nan_to_num(votes, nan=0.0, posinf=np.inf, neginf=-np.inf)


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
