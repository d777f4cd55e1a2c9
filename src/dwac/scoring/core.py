"""`score`: Arrow record batches in, Arrow record batches out. Independent of files and engines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dwac._checks import listed
from dwac.errors import InputError
from dwac.reading import Model, Notation
from dwac.reading.features import CellReader
from dwac.reading.roles import Batch, rows_of
from dwac.scoring.answers import answered, column, schema_of
from dwac.scoring.request import Request, columns_asked, model_of, notation_of, request

_MOST_BYTES = 2**26  # of a batch, if that is fewer rows than `rows`: encoded images may be large


def schema(model: str | PathLike[str] | Request, **options: Any) -> pa.Schema:
    """The columns and types of the output of `score`, known before the first row; with the same options."""
    asked = request(model, **options)
    return schema_of(model_of(asked), asked)


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
    asked = request(model, **options)
    loaded = model_of(asked)
    found = checked(loaded, asked)
    return _scored(loaded, found, batches, asked)


def checked(model: Model, asked: Request) -> pa.Schema:
    """The columns of answers; an error if the model cannot give what is requested, a warning if that tells little."""
    found = schema_of(model, asked)
    values = answered(model, None, {0: "nothing was given"}, asked, quiet=False)
    assert set(found.names) == {"id", *values}
    return found


def _scored(model: Model, found: pa.Schema, batches: Any, asked: Request) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in rebatched(record_batches(batches), asked.rows):
        yield answer(model, found, batch, asked, np.arange(first, first + batch.num_rows))
        first += batch.num_rows


def answer(
    model: Model,
    found: pa.Schema,
    given: Batch,
    asked: Request,
    numbers: NDArray[np.int64],
    name: str = "the batch",
    notation: Notation | None = None,
) -> pa.RecordBatch:
    """The answers for one batch, with the columns `found`.

    numbers: its row numbers; name: of its source, for errors; notation: of its cells, by default as in training.
    """
    # These are only some rows of a file: the notation must not be inferred from them.
    cells = CellReader(notation or notation_of(asked, model), judge=False)
    X, unreadable = rows_of(model, given, columns_asked(asked), cells, name)
    values = answered(model, X, unreadable, asked)
    values["id"] = ids_of(given, asked, numbers, name)
    return pa.RecordBatch.from_arrays([column(values[field.name], field.type) for field in found], schema=found)


def ids_of(given: Batch, asked: Request, numbers: NDArray[np.int64], name: str) -> pa.Array:
    """The ids of the rows of a batch: from a column, in the requested type, or else the row numbers."""
    if asked.id is None:
        return pa.array(numbers)
    names = list(given.columns) if isinstance(given, pd.DataFrame) else given.schema.names
    if asked.id not in names:
        raise InputError(f"{name} has no column {asked.id!r} of ids; its columns are {listed(names, 20)}")
    try:
        if not isinstance(given, pd.DataFrame):
            return pc.cast(given.column(names.index(asked.id)), asked.id_type)
        values = [None if value is None or value != value else value for value in given[asked.id].tolist()]
        return column(values, pa.string()) if asked.id_type == "string" else pa.array(values, asked.id_type)
    except pa.ArrowException as error:
        raise InputError(
            f"{name}: the ids in {asked.id!r} must be {asked.id_type}; {error!s:.100}; use id_type='string'"
        ) from None


def record_batches(batches: Any) -> Iterator[pa.RecordBatch]:
    """The record batches of any object that holds them."""
    if isinstance(batches, pa.Table):
        yield from batches.to_batches()
        return
    if isinstance(batches, pa.RecordBatch):
        yield batches
        return
    given: Iterable[Any] = batches.to_batches() if hasattr(batches, "to_batches") else batches  # a Dataset
    for batch in given:
        if isinstance(batch, pa.Table):
            yield from batch.to_batches()
        elif isinstance(batch, pa.RecordBatch):
            yield batch
        else:
            raise InputError(
                f"batches must be pyarrow record batches; got {type(batch).__name__}; "
                "convert it with pyarrow.RecordBatch.from_pandas"
            )


def rebatched(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in order: batches of more than `rows` rows are cut, smaller ones with the same schema joined."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if held and not batch.schema.equals(held[0].schema):
            yield _joined(held)
            held = []
        for start in range(0, batch.num_rows, most := _most(batch, rows)):
            part = batch.slice(start, most)
            if held and sum(each.num_rows for each in held) + part.num_rows > most:
                yield _joined(held)
                held = []
            held.append(part)
    if held:
        yield _joined(held)


def _most(batch: pa.RecordBatch, rows: int) -> int:
    """How many rows of this batch are answered at once."""
    each = batch.nbytes / max(batch.num_rows, 1)
    return max(1, min(rows, int(_MOST_BYTES / max(each, 1))))


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
