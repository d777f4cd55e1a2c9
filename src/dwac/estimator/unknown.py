"""Categories that were not in training: dwac reads them as missing, names them in the answer, and counts them as novel.

A network may be as certain about a value that it has never seen as about any other. Read as missing, the value makes
no prediction more certain, and no prediction set smaller, than its absence does. Decision 18.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dwac.encoders import Encoder, TabularEncoder
from dwac.encoders.tabular_networks import UNKNOWN, unlike_training
from dwac.errors import InputError
from dwac.nn.batches import Inputs

ATYPICAL, MISSING, REFUSE = "atypical", "missing", "refuse"
POLICIES = (ATYPICAL, MISSING, REFUSE)


class Judged(NamedTuple):
    """Rows as inputs of the network, and the unknown values of each."""

    inputs: Inputs
    notes: NDArray[np.object_]  # (n,): None, or what is unknown: "job=pilot, town=Ys"


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
        for row, value in zip(rows.tolist(), column.values(frame[column.name].iloc[rows]), strict=True):
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
