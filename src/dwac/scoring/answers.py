"""The columns of answers: their Arrow types, which follow from the model and the request, and their values."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from copy import copy
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import logsumexp

from dwac.errors import CalibrationWarning, InputError
from dwac.estimator.evaluation import predict
from dwac.estimator.readable import Partial
from dwac.reading import Estimator, Model
from dwac.reference import ReferenceSet
from dwac.scoring.request import Request
from dwac.tasks import LABELS, NUMBERS
from dwac.tasks.answers import UNKNOWN, UNREADABLE, AnswerColumn, ValueKind, table_columns

_TYPES = {ValueKind.SHARE: pa.float64(), ValueKind.NUMBER: pa.float64()}  # the rest, besides labels, is text


def schema_of(model: Model, request: Request) -> pa.Schema:
    """The columns of the answers, before any row is seen."""
    clf = model.clf
    if request.quantiles and model.task != NUMBERS:
        raise InputError(f"quantiles are for models of numbers; this one predicts {model.task}; leave them out")
    fields = [("id", pa.string() if request.id is not None and request.id_type == "string" else pa.int64())]
    declared, calibrated = clf.target_.columns(request.quantiles), len(clf.calibration_y_) > 0
    for name, column, _ in table_columns(declared, calibrated=calibrated, probabilities=request.probabilities):
        fields.append((name, arrow_type(column)))
    if request.voters:
        fields.append(("voters", _voter_type(clf, request)))
    notes = [UNKNOWN, UNREADABLE] if clf.encoder_.kind == "tabular" else [UNREADABLE]
    return pa.schema([*fields, *((note.name, arrow_type(note)) for note in notes)])


def arrow_type(column: AnswerColumn) -> pa.DataType:
    """The type of a column of answers."""
    match column.kind:
        case ValueKind.LABEL:
            return type_of(column.names)
        case ValueKind.LABELS:
            return pa.list_(type_of(column.names))
        case kind:
            return _TYPES.get(kind, pa.string())


def type_of(values: Iterable[Any]) -> pa.DataType:
    """The type that holds all of these labels or ids: booleans, whole numbers, numbers, or else text."""
    kinds = {type(value) for value in values}
    for accepted, found in (({bool}, pa.bool_()), ({int}, pa.int64()), ({int, float}, pa.float64())):
        if kinds and kinds <= accepted:
            return found
    return pa.string()


def _as(values: Iterable[Any], kind: pa.DataType) -> list[Any]:
    """Values for a column of this type: if it is text, everything as text."""
    return [str(value) for value in values] if pa.types.is_string(kind) else list(values)


# Values


def answered(
    model: Model, X: Any, unreadable: dict[int, str], request: Request, *, quiet: bool = True
) -> dict[str, Any]:
    """Predictions for the rows of X, and entries for rows that could not become part of it: values by column.

    quiet: do not warn that there are few calibration rows; once is enough.
    """
    clf = model.clf
    predictions = predict(clf, Partial(X, unreadable), private=request.private)
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore", CalibrationWarning)
        frame = predictions.frame(request.epsilon, request.quantiles, probabilities=request.probabilities)
    values: dict[str, Any] = {name: frame[name] for name in frame.columns}
    if request.voters:
        values["voters"] = _voters(clf, predictions, request)
    return values


def column(values: Any, kind: pa.DataType) -> pa.Array:
    """Values as a column of this type."""
    values = values.tolist() if isinstance(values, pd.Series) and values.dtype == object else values
    try:
        return pa.array(values, kind, from_pandas=True)  # NaN: a row that could not be read
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # labels of several types become text
        if pa.types.is_list(kind):
            return pa.array([None if held is None else _as(held, kind.value_type) for held in values], kind)
        return pa.array([None if value is None or value != value else str(value) for value in values], kind)


# Voters


def _voter_type(clf: Estimator, request: Request) -> pa.DataType:
    if clf.private_ if request.private is None else request.private:
        raise InputError("voters are training examples, which a private model does not show; leave voters out")
    references = clf.references_
    target = clf.target_
    if target.kind == NUMBERS:
        vote = ("target", pa.float64() if target.single else pa.list_(pa.float64()))
    else:
        label = type_of(target.names.tolist())
        vote = ("label", pa.list_(label) if target.kind == LABELS else label)
    return pa.list_(pa.struct([("id", type_of(references.ids.tolist())), vote, ("share", pa.float64())]))


def _voters(clf: Estimator, found: Any, request: Request) -> pa.Array:
    """The voters with the largest votes for each row, heaviest first; none for rows that could not be read."""
    kind = _voter_type(clf, request)
    readable = found.readable
    held: list[list[dict[str, Any]]] = [[] for _ in readable]
    if not readable.any():
        return pa.array(held, kind)
    references = copy(clf.references_)
    votes, near = references.query(found.h.cpu().numpy(), k=min(request.voters, len(references)))
    shares = np.exp(near.log_weights - logsumexp(votes, axis=1, keepdims=True))
    inner = kind.value_type
    named, said = _as(references.ids.tolist(), inner.field(0).type), _said(clf, references, inner.field(1).type)
    places = _places(references, near.ids)
    vote = inner.field(1).name
    for row, who, how in zip(np.flatnonzero(readable).tolist(), places.tolist(), shares.tolist(), strict=True):
        held[row] = [{"id": named[i], vote: said[i], "share": share} for i, share in zip(who, how, strict=True)]
    return pa.array(held, kind)


def _places(references: ReferenceSet, ids: NDArray[Any]) -> NDArray[np.int64]:
    """(n, k): the positions of these ids among the references."""
    wanted: pd.Index[Any] = pd.Index(ids.ravel(), tupleize_cols=False)
    return np.asarray(references.voters.ids.get_indexer(wanted)).reshape(ids.shape)


def _said(clf: Estimator, references: ReferenceSet, kind: pa.DataType) -> list[Any]:
    """What each reference votes for: its label, its labels, or its number or numbers."""
    target = clf.target_
    if target.kind == NUMBERS:
        assert references.targets is not None
        exact = references.targets.cpu().numpy()
        return list(exact[:, 0].tolist() if target.single else exact.tolist())
    codes = references.labels.cpu().numpy().tolist()
    if target.kind == LABELS:
        sets = [_as(held, kind.value_type) for held in target.outcomes]
        return [sets[code] for code in codes]
    names = _as(target.names.tolist(), kind)
    return [names[code] for code in codes]
