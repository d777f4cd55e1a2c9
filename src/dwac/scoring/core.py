"""`score`: Arrow record batches in, Arrow record batches out. Independent of files and engines.

The columns and their Arrow types follow from the model, the request, and what the task declares.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from copy import copy
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import logsumexp

from dwac._checks import listed
from dwac.errors import CalibrationWarning, InputError
from dwac.estimator.evaluation import predict
from dwac.estimator.readable import Partial
from dwac.reading import Estimator, Model, Notation
from dwac.reading.features import CellReader
from dwac.reading.roles import Batch, rows_of
from dwac.records.log import decisions, write
from dwac.reference import ReferenceSet
from dwac.scoring.request import Request, model_of, notation_of, request_of, requested_columns
from dwac.tasks import LABELS, NUMBERS
from dwac.tasks.answers import UNKNOWN, UNREADABLE, table_columns
from dwac.tasks.arrow import arrow_array, arrow_type, as_type, type_of

_BATCH = "the batch"  # the name of rows that come from no file
_MOST_BYTES = 2**26  # of a batch, if that is fewer rows than `rows`: encoded images may be large


def schema(model: str | PathLike[str] | Request, **options: Any) -> pa.Schema:
    """The columns and types of the output of `score`, known before the first row; with the same options.

    >>> import tempfile
    >>> import pandas as pd
    >>> from dwac import DWACClassifier
    >>> X = pd.DataFrame({"age": range(20, 80)})
    >>> clf = DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, X["age"] < 50)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     columns = schema(clf.save(f"{folder}/model")).names
    >>> columns[:4]
    ['id', 'label', 'probability', 'confidence']
    """
    request = request_of(model, **options)
    return schema_of(model_of(request), request)


def score(model: str | PathLike[str] | Request, batches: Any, **options: Any) -> Iterator[pa.RecordBatch]:
    """Predict batches of rows, and say how far to trust each row: Arrow record batches in and out, in order.

    The model is loaded once per process. Memory is bounded by a batch and the model: at most `rows` rows are answered
    at once, whatever the size of the batches. Small batches are joined, so answers come after that many rows or at
    the end of the input.

    Args:
        model: the path of a model folder, never a model; or a `Request`, which then holds all options.
        batches: record batches with the model's columns, in any order; others are ignored. Also a Table, a Dataset or
            a RecordBatchReader. A text model needs a column of strings, an image model a column of encoded files.
        options: those of `Request`: epsilon, probabilities, voters, quantiles, id, id_type, text, private, device,
            threads, rows.

    Columns: id; for classes label, probability, confidence, credibility, typicality, set; for numbers prediction,
    lower, upper, typicality; for several labels the columns of `dwac predict`; voters if requested; for tables
    unknown, the values that training never had; unreadable, the reason why a row could not be read. The last two are
    null otherwise. `schema` gives their types.
    """
    request = request_of(model, **options)
    loaded = model_of(request)
    return _answer_all(loaded, check_request(loaded, request), batches, request)


def check_request(model: Model, request: Request) -> pa.Schema:
    """The columns of answers; an error if the model cannot give what is requested, a warning if that tells little."""
    schema = schema_of(model, request)
    values = _predict_values(model, schema, None, {0: "there is no row"}, request, quiet=False)
    assert set(schema.names) == {"id", *values}
    return schema


def _answer_all(model: Model, schema: pa.Schema, batches: Any, request: Request) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in rebatch(record_batches(batches), request.rows):
        yield answer(model, schema, batch, request, np.arange(first, first + batch.num_rows))
        first += batch.num_rows


def answer(
    model: Model,
    schema: pa.Schema,
    batch: Batch,
    request: Request,
    numbers: NDArray[np.int64],
    name: str = _BATCH,
    notation: Notation | None = None,
) -> pa.RecordBatch:
    """The answers for one batch, with these columns.

    numbers: its row numbers; name: of its source, for errors; notation: of its cells, by default as in training.
    """
    # These are only some rows of a file: the notation must not be inferred from them.
    cells = CellReader(notation or notation_of(request, model), judge=False)
    X, unreadable = rows_of(model, batch, requested_columns(request), cells, name)
    ids = ids_of(batch, request, numbers, name)
    values = _predict_values(model, schema, X, unreadable, request, ids=_recorded_ids(ids, request, name))
    values["id"] = ids
    return pa.RecordBatch.from_arrays([arrow_array(values[field.name], field.type) for field in schema], schema=schema)


def ids_of(batch: Batch, request: Request, numbers: NDArray[np.int64], name: str) -> pa.Array:
    """The ids of the rows of a batch: from a column, in the requested type, or else the row numbers."""
    if request.id is None:
        return pa.array(numbers)
    names = list(batch.columns) if isinstance(batch, pd.DataFrame) else batch.schema.names
    if request.id not in names:
        raise InputError(f"{name} has no column {request.id!r} of ids; its columns are {listed(names, 20)}")
    try:
        if not isinstance(batch, pd.DataFrame):
            return pc.cast(batch.column(names.index(request.id)), request.id_type)
        values = [None if value is None or value != value else value for value in batch[request.id].tolist()]
        return arrow_array(values, pa.string()) if request.id_type == "string" else pa.array(values, request.id_type)
    except pa.ArrowException as error:
        raise InputError(
            f"{name}: the ids in {request.id!r} must be {request.id_type}; {error!s:.100}; use id_type='string'"
        ) from None


def _recorded_ids(ids: pa.Array, request: Request, name: str) -> list[Any]:
    """The ids of rows in a record of decisions: those of the answers, or file:number."""
    names: list[Any] = ids.to_pylist()
    return names if request.id is not None or name == _BATCH else [f"{os.path.basename(name)}:{i}" for i in names]


def record_batches(batches: Any) -> Iterator[pa.RecordBatch]:
    """The record batches of any object that holds them."""
    if isinstance(batches, pa.RecordBatch):
        yield batches
        return
    # A Table or a Dataset has batches; anything else is an iterable of tables and batches.
    for batch in batches.to_batches() if hasattr(batches, "to_batches") else batches:
        if isinstance(batch, pa.Table):
            yield from batch.to_batches()
        elif isinstance(batch, pa.RecordBatch):
            yield batch
        else:
            raise InputError(
                f"batches must be pyarrow record batches; got {type(batch).__name__}; "
                "convert it with pyarrow.RecordBatch.from_pandas"
            )


def rebatch(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in order: batches of more than `rows` rows are cut, smaller ones with the same schema joined."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if waiting and not batch.schema.equals(waiting[0].schema):
            yield _join(waiting)
            waiting = []
        for start in range(0, batch.num_rows, most := _most(batch, rows)):
            part = batch.slice(start, most)
            if waiting and sum(each.num_rows for each in waiting) + part.num_rows > most:
                yield _join(waiting)
                waiting = []
            waiting.append(part)
    if waiting:
        yield _join(waiting)


def _most(batch: pa.RecordBatch, rows: int) -> int:
    """How many rows of this batch are answered at once."""
    each = batch.nbytes / max(batch.num_rows, 1)
    return max(1, min(rows, int(_MOST_BYTES / max(each, 1))))


def _join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


# The columns of answers, and their values


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


# Values


def _predict_values(
    model: Model,
    schema: pa.Schema,
    X: Any,
    unreadable: dict[int, str],
    request: Request,
    *,
    quiet: bool = True,
    ids: list[Any] | None = None,
) -> dict[str, Any]:
    """Predictions for the rows of X, and entries for rows that could not become part of it: values by column.

    quiet: do not warn that there are few calibration rows; once is enough. ids: of the rows, to record the decisions.
    """
    clf = model.clf
    private = clf.private_ if request.private is None else request.private
    observed = clf.observe(Partial(X, unreadable), private=private, local=request.local)
    predictions = predict(clf, observed, private=private)
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore", CalibrationWarning)
        frame = predictions.frame(request.epsilon, request.quantiles, probabilities=request.probabilities)
    values: dict[str, Any] = {name: frame[name] for name in frame.columns}
    if request.voters:
        values["voters"] = _voters(clf, predictions, request.voters, schema.field("voters").type)
    if request.record is not None and ids is not None:
        options: Any = {"epsilon": request.epsilon, "quantiles": request.quantiles, "private": private}
        write(request.record, decisions(clf, observed, frame, ids, **options))
    return values


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


def _voters(clf: Estimator, predictions: Any, most: int, kind: pa.DataType) -> pa.Array:
    """So many voters with the largest votes for each row, heaviest first; none for rows that could not be read."""
    readable = predictions.readable
    voters: list[list[dict[str, Any]]] = [[] for _ in readable]
    if not readable.any():
        return pa.array(voters, kind)
    references = copy(clf.references_)
    votes, near = references.query(predictions.h.cpu().numpy(), k=min(most, len(references)))
    shares = np.exp(near.log_weights - logsumexp(votes, axis=1, keepdims=True))
    name, vote, _ = kind.value_type
    names = as_type(references.ids.tolist(), name.type)
    votes_for = _votes_of(clf, references, vote.type)
    flat: pd.Index[Any] = pd.Index(near.ids.ravel(), tupleize_cols=False)
    places: NDArray[np.int64] = np.asarray(references.voters.ids.get_indexer(flat)).reshape(near.ids.shape)
    for row, nearest, their_shares in zip(np.flatnonzero(readable), places.tolist(), shares.tolist(), strict=True):
        voters[row] = [
            {"id": names[i], vote.name: votes_for[i], "share": share}
            for i, share in zip(nearest, their_shares, strict=True)
        ]
    return pa.array(voters, kind)


def _votes_of(clf: Estimator, references: ReferenceSet, kind: pa.DataType) -> list[Any]:
    """What each reference votes for: its label, its labels, or its number or numbers."""
    target = clf.target_
    if target.kind == NUMBERS:
        assert references.targets is not None
        exact = references.targets.cpu().numpy()
        return list(exact[:, 0].tolist() if target.single else exact.tolist())
    codes = references.labels.cpu().numpy().tolist()
    if target.kind == LABELS:
        sets = [as_type(labels, kind.value_type) for labels in target.outcomes]
        return [sets[code] for code in codes]
    names = as_type(target.names.tolist(), kind)
    return [names[code] for code in codes]
