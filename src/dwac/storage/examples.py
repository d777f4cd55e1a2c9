"""Training examples as the bytes of a Parquet file, and back.

Columns keep their type: numbers, booleans, text, bytes, dates, durations, categories, and pandas' nullable and Arrow
types, missing values included. Two things change, on purpose:

- A column of objects whose values differ in type, or that Parquet has no type for, becomes text: `str` of each value.
  Records are there to be shown to people, and a training run should not fail at its end for one odd column.
- In a column of objects, every kind of missing value comes back as None.

Ids (the index) come back as the Python values they were, as JSON text in the first column. What pandas would write
about itself into the file is left out, and ignored on the way back.
"""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dwac.errors import EncodingError, InputError, StorageError
from dwac.storage.parquet import TooLargeError, read_parquet
from dwac.storage.values import decode_value, encode_value

MOST_BYTES = 2**30  # in memory, of the records in a small folder
_KEY = b"dwac.examples"
_ROWS = 2**14  # in a row group: bounds the memory a reader needs where each row holds an image
_TEXT = pd.Series(["a"]).dtype  # what pandas itself makes of text: str since 3, object before
_NULLABLE = {f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
_NULLABLE |= {"Float32", "Float64", "boolean", "string"}
_ONE_TYPE = {bool, int, float, bytes, date, datetime, time, timedelta, Decimal}  # objects Arrow keeps as they are
_FAILURES = (pa.ArrowException, ValueError, TypeError, OverflowError, KeyError, NotImplementedError)


def pack_examples(examples: pd.DataFrame) -> bytes:
    """The bytes of a Parquet file of these records: ids first, then the columns."""
    if not isinstance(examples, pd.DataFrame):
        raise InputError(f"examples must be a pandas DataFrame; got {type(examples).__name__}; wrap it in one")
    names = [str(name) for name in examples.columns]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(
            f"columns of examples must differ in name, as text; {repeated[0]!r} is there more than once; rename it"
        )
    ids = "id"
    while ids in names:
        ids = f"_{ids}"
    arrays, columns = [_pack_ids(examples.index)], []
    for position, name in enumerate(examples.columns):
        array, facts = _pack_column(examples.iloc[:, position])
        arrays.append(array)
        columns.append({"name": encode_value(name), **facts})
    facts = {"version": 1, "columns": columns, "index": _name_of(examples.index)}
    table = pa.Table.from_arrays(arrays, [ids, *(_utf8(name) for name in names)])
    table = table.replace_schema_metadata({_KEY: json.dumps(facts, allow_nan=False)})
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd", row_group_size=_ROWS)
    return file.getvalue()


def unpack_examples(
    data: bytes, name: str, *, most_rows: float = math.inf, most_bytes: int = MOST_BYTES
) -> pd.DataFrame:
    """The records of such bytes, refused beyond so many rows or bytes in memory; `name` is the file's, for messages."""
    again = "restore it from a copy, or save the model again"
    try:
        table = read_parquet(data, name, most_rows=most_rows, most_bytes=most_bytes)
        facts = json.loads((table.schema.metadata or {})[_KEY])
        columns = facts["columns"]
        if facts["version"] != 1 or len(columns) != table.num_columns - 1:
            raise ValueError("its columns are not those that were written")
        index = _unpack_ids(table.column(0), decode_value(facts["index"]))
        values = [_unpack_column(table.column(i + 1), column) for i, column in enumerate(columns)]
        frame = pd.DataFrame(dict(enumerate(values)), index=range(len(index)))
        frame.index = index
        frame.columns = pd.Index([decode_value(column["name"]) for column in columns])
        return frame
    except TooLargeError as error:
        raise StorageError(f"{error}; {again}") from None
    except (*_FAILURES, OSError, AttributeError, RecursionError) as error:
        raise StorageError(
            f"{name} is no table of examples that dwac wrote ({type(error).__name__}: {error!s:.300}); {again}"
        ) from error


def _pack_ids(index: pd.Index) -> pa.Array:
    texts = []
    for position, value in enumerate(index):
        try:
            texts.append(json.dumps(encode_value(value), ensure_ascii=False, allow_nan=False))
        except EncodingError as error:
            raise EncodingError(f"id of row {position}: {error}") from None
    return pa.array(texts, pa.large_string())


def _unpack_ids(texts: pa.ChunkedArray, name: Any) -> pd.Index:
    """An index of the very values: pandas may choose a type of its own only where it gives the same values back."""
    ids = [decode_value(json.loads(text)) for text in texts.to_pylist()]
    kinds = {type(value) for value in ids}
    dtype: Any = object
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in ids):
        dtype = np.int64
    elif kinds == {str}:
        dtype = _TEXT
    index: pd.Index = pd.Index(ids, dtype=dtype, name=name, tupleize_cols=False)
    return index


def _name_of(index: pd.Index) -> Any:
    try:
        return encode_value(index.name)
    except EncodingError:
        return None


def _pack_column(column: pd.Series) -> tuple[pa.Array, dict[str, Any]]:
    """A column as Arrow keeps it, and what pandas must know to have it back."""
    try:
        return _pack_typed(column)
    except _FAILURES:  # a type that Arrow cannot keep: complex numbers, periods, numbers beyond 64 bits, …
        return _pack_text(column.astype(object)), {"kind": "text"}


def _pack_typed(column: pd.Series) -> tuple[pa.Array, dict[str, Any]]:
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return _pack_categories(column.cat)
    if isinstance(dtype, pd.SparseDtype):
        return _pack_typed(column.astype(dtype.subtype))
    if isinstance(dtype, pd.ArrowDtype):
        return pa.array(column), {"kind": "arrow"}
    if str(dtype) in _NULLABLE:
        return pa.array(column), {"kind": str(dtype)}
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return _pack_objects(column)
    if dtype == _TEXT:
        return _pack_text(column.astype(object)), {"kind": "text"}
    if dtype.kind in "mM":
        return pa.array(column), {"kind": "plain", "unit": column.dt.unit}  # Parquet knows no seconds
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return pa.array(column.to_numpy()), {"kind": "plain"}  # an array, not a Series: NaN stays NaN
    raise TypeError(f"no Arrow type keeps {dtype}")


def _pack_categories(column: Any) -> tuple[pa.Array, dict[str, Any]]:
    """The values, so that any reader of Parquet understands them; the list of categories is kept beside."""
    values, facts = _pack_typed(column.categories.to_series())
    facts = {"values": facts, "categories": [encode_value(value) for value in column.categories]}
    facts |= {"kind": "category", "ordered": bool(column.ordered)}
    _unpack_categories(values.dictionary_encode(), facts)  # fails where categories of several types are one as text
    codes = column.codes.to_numpy()
    return values.take(pa.array(codes, mask=codes < 0)), facts


def _pack_objects(column: pd.Series) -> tuple[pa.Array, dict[str, Any]]:
    lost = column.isna().to_numpy()
    values = [None if gone else value for value, gone in zip(column, lost, strict=True)]
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) == 1 and kinds <= _ONE_TYPE:
        return pa.array(values, pa.large_binary() if kinds == {bytes} else None), {"kind": "object"}
    return _pack_text(column), {"kind": "object" if kinds <= {str} else "text"}


def _pack_text(column: pd.Series) -> pa.Array:
    values = [None if gone else _utf8(str(value)) for value, gone in zip(column, column.isna(), strict=True)]
    return pa.array(values, pa.large_string())


def _utf8(text: str) -> str:
    """The text, with what UTF-8 cannot hold (half a surrogate pair) written as an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def _unpack_column(array: pa.ChunkedArray, facts: dict[str, Any]) -> pd.Series:
    kind = facts["kind"]
    if kind == "category":
        return pd.Series(_unpack_categories(array.combine_chunks().dictionary_encode(), facts))
    if kind == "plain":
        values: pd.Series = array.to_pandas(ignore_metadata=True)
        return values.dt.as_unit(facts["unit"]) if "unit" in facts else values
    if kind == "arrow":
        return pd.Series(pd.arrays.ArrowExtensionArray(array))
    if kind in _NULLABLE:
        dtype: Any = pd.api.types.pandas_dtype(kind)
        return pd.Series(dtype.__from_arrow__(array))
    return pd.Series(array.to_pylist(), dtype={"object": object, "text": _TEXT}[kind])


def _unpack_categories(array: Any, facts: dict[str, Any]) -> pd.Categorical:
    """Values become codes by way of Arrow's dictionary, which holds no missing value that would change their type."""
    used = pd.Index(_unpack_column(pa.chunked_array([array.dictionary]), facts["values"]))
    categories = pd.Index([decode_value(value) for value in facts["categories"]], dtype=used.dtype)
    codes = categories.get_indexer(used) if categories.is_unique else np.array([-1])
    if (codes < 0).any():
        raise ValueError("its categories are not those that are listed")
    places = array.indices.fill_null(len(codes)).to_numpy()
    return pd.Categorical.from_codes(np.append(codes, -1)[places], categories, ordered=facts["ordered"])
