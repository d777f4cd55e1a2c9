"""JSON rows of requests as rows of a model: one reader per kind of data, which also describes a row in JSON Schema.

reader = reader_of(clf, pixels=2**24)
X = reader.read([{"age": 31, "job": "nurse"}])       # a table; texts are strings, images pictures or nested numbers
rows = reader.sift([{"age": 31, "job": "nurse"}, 7])  # rows that can be read, and why the others cannot

JSON values have types, so nothing is inferred: how a row is read never depends on the others, which may come from
another client. Whether a value fits its column is checked by the encoder, as for files, frames and Arrow.
"""

from __future__ import annotations

import base64
import binascii
import io
import warnings
from abc import ABC, abstractmethod
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac._checks import listed
from dwac.drawing.legend import NO_LEGEND, Legend
from dwac.encoders import Encoder, ImageEncoder, ModuleEncoder, TabularEncoder
from dwac.encoders.columns import Column
from dwac.errors import InputError, NonFiniteError, ShapeError
from dwac.estimator.base import DWACEstimator
from dwac.estimator.readable import Partial

Schema = dict[str, Any]
_LARGEST = 3.4e38  # largest float32
_NESTED = {dict, list}  # JSON values that are not single


class Reader(ABC):
    """Reads the rows of a request."""

    @abstractmethod
    def schema(self) -> Schema:
        """JSON Schema of one row."""

    @abstractmethod
    def example(self) -> Any:
        """A row that can be read, for the documentation."""

    @abstractmethod
    def read_row(self, row: Any) -> Any:
        """One row, checked; raises an error with the reason if it cannot be read."""

    @abstractmethod
    def join(self, items: list[Any]) -> Any:
        """Checked rows as X."""

    def sift(self, rows: list[Any]) -> Partial:
        """The rows as X, except those that cannot be read."""
        items, unreadable = [], {}
        for i, row in enumerate(rows):
            try:
                items.append(self.read_row(row))
            except InputError as error:
                unreadable[i] = str(error)
        return Partial(self.join(items) if items else None, unreadable)

    def read(self, rows: list[Any]) -> Any:
        """All rows as X; an error names the first one that cannot be read."""
        sifted = self.sift(rows)
        for i, why in sifted.unreadable.items():
            raise InputError(f"row {i}: {why}", rows=sifted.unreadable)
        return sifted.X

    def columns(self) -> list[dict[str, Any]] | None:
        """The columns of a table: name, kind and known categories."""
        return None

    def names(self) -> list[Any] | None:
        """The names of the columns, or their places if they have none; None if rows are no rows of a table."""
        return None


def reader_of(model: DWACEstimator, pixels: int, *, private: bool = False) -> Reader:
    """The reader for a model's data. pixels: the most of a picture; private: reveal no value of a training row."""
    encoder: Encoder = model.encoder_
    match encoder:
        case TabularEncoder():
            return TableReader(encoder, private=private, legend=model.legend_)
        case ImageEncoder():
            return ImageReader(encoder, pixels)
        case ModuleEncoder():
            return NumberReader.of_module(encoder)
        case _:
            return TextReader()


class TextReader(Reader):
    """Strings."""

    def schema(self) -> Schema:
        """A string that is not blank."""
        return {"type": "string", "pattern": r"\S", "description": "A text."}

    def example(self) -> Any:
        """Any text."""
        return "A text to ask about"

    def read_row(self, row: Any) -> str:
        """The string as it is."""
        if not isinstance(row, str):
            raise InputError(f"the row must be a string; got {_type_of(row)}")
        return row

    def join(self, items: list[Any]) -> list[str]:
        """A list."""
        return items


class TableReader(Reader):
    """JSON objects with one value per column, or lists in the order of the columns if these have no names."""

    def __init__(self, encoder: TabularEncoder, *, private: bool, legend: Legend = NO_LEGEND) -> None:
        self._columns, self._private, self._legend = encoder.columns, private, legend
        self._names = [column.name for column in encoder.columns]
        self._index, self._known = pd.Index(self._names, tupleize_cols=False), set(self._names)
        self._named = all(isinstance(name, str) for name in self._names)

    def columns(self) -> list[dict[str, Any]]:
        """Name, kind and categories of each column; its title and the meanings of its codes, if it has names."""
        named = self._legend.to_dict()
        return [
            {"name": column.name, "kind": column.kind, "categories": None if self._private else column.categories}
            | named.get(str(column.name), {})
            for column in self._columns
        ]

    def names(self) -> list[Any]:
        """As in training."""
        return self._names

    def _about(self, column: Column) -> str:
        """The kind of a column; its title and codes, if it has names."""
        name = self._legend.names.get(column.name)
        if name is None:
            return column.kind
        codes = ", ".join(f"{code} = {meaning}" for code, meaning in name.codes.items())
        return f"{name}; {column.kind}" + (f"; {codes}" if codes else "")

    def schema(self) -> Schema:
        """Every column must be present; null means unknown."""
        kinds: dict[str, Schema] = {
            "numeric": {"type": ["number", "boolean", "null"]},
            "boolean": {"type": ["boolean", "integer", "null"], "minimum": 0, "maximum": 1},
            "datetime": {"type": ["string", "null"], "format": "date-time"},
        }
        each = [
            {
                **kinds.get(column.kind, {"type": ["string", "number", "boolean", "null"]}),
                "description": self._about(column),
            }
            for column in self._columns
        ]
        if not self._named:
            return {"type": "array", "prefixItems": each, "items": False, "minItems": len(each), "maxItems": len(each)}
        properties = dict(zip(self._names, each, strict=True))
        return {"type": "object", "properties": properties, "required": self._names, "additionalProperties": False}

    def example(self) -> Any:
        """A typical value of each column, its median or a category; null if values of training rows are private."""
        values = [None if self._private else _typical(column) for column in self._columns]
        return dict(zip(self._names, values, strict=True)) if self._named else values

    def join(self, items: list[Any]) -> pd.DataFrame:
        """A frame of objects: pandas infers no common type, so one row cannot change another."""
        shape = len(items), len(self._names)
        cells = np.fromiter(chain.from_iterable(items), dtype=object, count=shape[0] * shape[1])
        return pd.DataFrame(cells.reshape(shape), columns=self._index, dtype=object)

    def read_row(self, row: Any) -> list[Any]:
        """The values in the order of the columns."""
        if self._named and isinstance(row, dict):
            self._check_names(row)
            values = [row[name] for name in self._names]
        elif not self._named and isinstance(row, list):
            values = row
        else:
            wanted = f"an object with the columns {_listed(self._names)}" if self._named else "a list of values"
            raise InputError(f"the row must be {wanted}; got {_type_of(row)}")
        if len(values) != len(self._names):
            raise ShapeError(f"the row must have {len(self._names)} values; got {len(values)}")
        if not _NESTED.isdisjoint(map(type, values)):
            name, value = next(pair for pair in zip(self._names, values, strict=True) if type(pair[1]) in _NESTED)
            raise InputError(f"column {name!r} must be a single value; got {_type_of(value)}")
        return values

    def _check_names(self, row: dict[str, Any]) -> None:
        missing = [name for name in self._names if name not in row]
        if missing:
            raise InputError(
                f"the row lacks the column{'s' * (len(missing) > 1)} {_listed(missing)}; give null for an unknown value"
            )
        if len(row) > len(self._names):
            extra = [name for name in row if name not in self._known]
            raise InputError(f"the row has the column {_listed(extra)}, which the model does not know; leave it out")


class NumberReader(Reader):
    """Nested lists of numbers in one shape."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, low: float, high: float) -> None:
        self._shape, self._dtype = shape, np.dtype(dtype)
        self._low, self._high = low, high

    @classmethod
    def of_module(cls, encoder: ModuleEncoder) -> NumberReader:
        """For your own network, if it takes one numeric input."""
        seen = encoder.config()["seen"]
        if len(seen) != 1 or seen[0]["type"] not in ("float32", "int64", "int32", "uint8"):
            kinds = ", ".join(part["type"] for part in seen)
            raise InputError(
                f"only networks with one numeric input can be served; this one has {len(seen)} inputs: {kinds}"
            )
        dtype = np.dtype(seen[0]["type"])
        low, high = (-_LARGEST, _LARGEST) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return cls(tuple(seen[0]["shape"]), dtype, low, high)

    def names(self) -> list[Any] | None:
        """Places in a list of numbers."""
        return list(range(self._shape[0])) if len(self._shape) == 1 else None

    def schema(self) -> Schema:
        """Nested lists of numbers in the shape of the input."""
        number = "number" if self._dtype.kind == "f" else "integer"
        schema: Schema = {"type": number, "minimum": self._low, "maximum": self._high}
        for length in reversed(self._shape):
            schema = {"type": "array", "items": schema, "minItems": length, "maxItems": length}
        return {**schema, "description": f"Numbers of shape {self._shape}."}

    def example(self) -> Any:
        """All zeros."""
        return np.zeros(self._shape, dtype=self._dtype).tolist()

    def join(self, items: list[Any]) -> NDArray[Any]:
        """(n, *shape)."""
        return np.stack(items)

    def read_row(self, row: Any) -> NDArray[Any]:
        """An array, checked level by level: deep nesting and uneven lengths do no harm."""
        parts = [row]
        for axis, length in enumerate(self._shape):
            if not all(type(part) is list and len(part) == length for part in parts):
                raise ShapeError(f"the row must be numbers of shape {self._shape}; it differs at axis {axis}")
            parts = list(chain.from_iterable(parts))
        if not {*map(type, parts)} <= {int, float}:
            raise InputError("the row must contain only numbers; got something else among them")
        try:
            values = np.array(parts, dtype=np.float64)
        except OverflowError:
            raise NonFiniteError(f"the row must contain numbers up to {self._high:g}") from None
        if not ((values >= self._low) & (values <= self._high)).all():
            raise NonFiniteError(f"the row must contain numbers from {self._low:g} to {self._high:g}")
        if self._dtype.kind != "f":
            if not (values == np.floor(values)).all():
                raise InputError("the row must contain whole numbers, as in training")
            values = np.array([int(part) for part in parts], dtype=self._dtype)
        return values.reshape(self._shape)


class ImageReader(Reader):
    """Pictures as base64 PNG or JPEG if training used such images; or nested numbers, as in training."""

    def __init__(self, encoder: ImageEncoder, pixels: int) -> None:
        seen = encoder.seen
        self._layout = seen.layout
        self._pictures, self._pixels = seen.numbers == "uint8" and seen.shape[0] in (1, 3, 4), pixels
        kind: tuple[Any, float, float] = {
            "uint8": (np.int64, 0, 255),
            "whole": (np.int64, -(2**53), 2**53),
        }.get(seen.numbers, (np.float64, -_LARGEST, _LARGEST))
        self._numbers = NumberReader(seen.lengths, *kind)

    def schema(self) -> Schema:
        """Either form."""
        numbers = self._numbers.schema()
        if not self._pictures:
            return numbers
        about = "A PNG or JPEG file in base64, or a data: URL; it is resized like the training images."
        return {"anyOf": [{"type": "string", "contentEncoding": "base64", "description": about}, numbers]}

    def example(self) -> Any:
        """A black image."""
        return self._numbers.example()

    def read_row(self, row: Any) -> Any:
        """An array, or the bytes of a file; never a path."""
        return self._decode(row) if isinstance(row, str) else self._numbers.read_row(row)

    def join(self, items: list[Any]) -> list[Any]:
        """A list; if there are files, arrays also become pictures, which an encoder reads in the same way."""
        if not any(isinstance(item, bytes) for item in items):
            return items
        return [item if isinstance(item, bytes) else self._picture_of(item) for item in items]

    def _picture_of(self, array: NDArray[Any]) -> Any:
        from PIL import Image

        pixels = array.astype(np.uint8)
        pixels = np.moveaxis(pixels, 0, -1) if self._layout == "CHW" else pixels
        return Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels)

    def _decode(self, row: str) -> bytes:
        if not self._pictures:
            raise InputError("the row must be nested numbers, because the training images were arrays; got a string")
        return picture_bytes(row, self._pixels)


def picture_bytes(row: str, pixels: int) -> bytes:
    """The bytes of a PNG or JPEG file given in base64, or as a data: URL; at most `pixels` pixels."""
    if row.startswith("data:"):
        row = row.partition(",")[2]
    try:
        data = base64.b64decode(row, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"the row must be a picture in base64: {error}") from None
    _check_picture(data, pixels)
    return data


def _check_picture(data: bytes, pixels: int) -> None:
    """Check the header only: a small file may decode to a huge picture."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError("pictures need Pillow on the server, which is not installed; send nested numbers") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
                width, height = image.size
    except Exception:  # Pillow raises many kinds of errors on damaged files
        raise InputError("the row must be a complete PNG or JPEG file in base64; this one cannot be read") from None
    if width * height > pixels:
        raise InputError(f"a picture may have at most {pixels:,} pixels; got {width}×{height}; send a smaller one")


def _typical(column: Column) -> Any:
    """A value that training rows have: the median of a number, a known category, or some date."""
    if column.categories and column.kind == "categorical":
        return next((value for value in column.categories if value is not None), None)
    if column.kind == "datetime":
        return "2024-05-31T14:00:00Z"
    fills = [scale.fill for scale in column.scales if scale is not None]
    return (bool(fills[0]) if column.kind == "boolean" else fills[0]) if fills else None


def _listed(names: list[Any]) -> str:
    return listed(names, 3, lambda name: f"{str(name)!r:.60}")


def _type_of(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
