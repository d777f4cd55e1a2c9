"""Tensors in safetensors files, whole or by rows: only numbers, so there is nothing to execute.

Rows are read when needed, a block at a time, never the whole file. A file is mapped for code that needs a few rows,
and read for code that goes through all of them: touched pages of a mapped file count as the process's memory, while
blocks that were read are freed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from dwac.errors import InputError, StorageError
from dwac.storage.files import rename, temporary_name

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}
_LARGEST_HEADER = 100_000_000  # the limit of the format
_HEADER = 504  # bytes left for the header of a file that is written row by row, so that data starts at byte 512


def plain_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each tensor contiguous, on the CPU, and with its own memory: shared memory is copied."""
    plain: dict[str, Tensor] = {}
    taken = set()
    for name, tensor in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise InputError(f"tensor names must be strings other than '__metadata__'; got {name!r}; rename it")
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
            what = f"{tensor.layout} on {tensor.device}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise InputError(f"{name} must be a dense tensor that holds numbers; got {what}; convert it first")
        own = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        memory = own.untyped_storage()
        if memory.data_ptr() in taken or memory.nbytes() != own.nbytes:
            own = own.clone()
        taken.add(own.untyped_storage().data_ptr())
        plain[name] = own
    return plain


def pack_tensors(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file."""
    try:
        return save(plain_tensors(tensors), metadata)
    except (SafetensorError, KeyError, UnicodeEncodeError) as error:
        raise InputError(f"a tensor cannot be stored as safetensors: {error}; change its dtype or its name") from error


def read_tensors(path: str, *, without: Collection[str]) -> dict[str, Tensor]:
    """The tensors of a file, copied into memory, except those in `without`."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name).clone() for name in file.keys() if name not in without}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise StorageError(f"{path} must be a safetensors file: {error!s:.300}; restore it from a copy") from error


def unpack_tensors(data: bytes, name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors in these bytes, and the metadata; `name` is the file's name, for messages."""
    try:
        tensors = load(data)  # checks that the header is true
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return tensors, header.get("__metadata__", {})
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise StorageError(f"{name} must be a safetensors file: {error!s:.300}; restore it from a copy") from error


@dataclass(frozen=True, eq=False)
class FileRows:
    """Rows start … stop of a tensor in a file. It is small, and can be sent to processes that can read the file."""

    path: str
    dtype: str  # NumPy's name
    row_shape: tuple[int, ...]
    offset: int  # of row 0, in bytes
    start: int
    stop: int

    def __len__(self) -> int:
        """The number of rows."""
        return self.stop - self.start

    def __getitem__(self, rows: slice) -> FileRows:
        """Some of the rows; nothing is read yet."""
        start, stop, _ = rows.indices(len(self))
        return replace(self, start=self.start + start, stop=self.start + max(start, stop))

    def __getstate__(self) -> dict[str, Any]:
        """Where the rows are, not the rows."""
        return {name: value for name, value in self.__dict__.items() if name != "mapped"}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of these rows."""
        return (len(self), *self.row_shape)

    @cached_property
    def mapped(self) -> Tensor:
        """These rows, mapped into memory: only rows that are used are read. It must not be written to."""
        if len(self) == 0:
            return self.read()
        # "c" gives memory that torch accepts; writes to it would never reach the file.
        array = np.memmap(self.path, self.dtype, "c", self._first, self.shape)
        return torch.from_numpy(np.asarray(array))

    def read(self) -> Tensor:
        """These rows, copied into memory."""
        array: NDArray[Any] = np.empty(self.shape, self.dtype)
        try:
            self._fill(array.reshape(-1).view(np.uint8))
        except OSError as error:
            raise StorageError(f"{self.path} can no longer be read: {error}; load what it belongs to again") from error
        return torch.from_numpy(array)

    def _fill(self, view: NDArray[np.uint8]) -> None:
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self._first)
            done = 0
            while done < len(view):
                step = file.readinto(memoryview(view[done:]))  # type: ignore[arg-type]
                if not step:
                    raise StorageError(
                        f"{self.path} must hold {len(view):,} bytes from byte {self._first:,}; it ends after "
                        f"{done:,}; it was cut short while in use; restore it from a copy"
                    )
                done += step

    def split(self, size: int) -> Iterator[Tensor]:
        """All rows in order, in blocks of `size`, each read into memory."""
        for first in range(0, len(self), size):
            yield self[first : first + size].read()

    @property
    def _first(self) -> int:
        return self.offset + self.start * prod(self.row_shape) * np.dtype(self.dtype).itemsize


class RowsWriter:
    """A safetensors file of one tensor, written row by row: the number of rows need not be known in advance.

    It is complete or absent: it has a temporary name until `close`. Space for the header is left at the beginning.
    """

    def __init__(self, path: str | os.PathLike[str], name: str) -> None:
        self.path, self.name, self.n_rows = Path(path), name, 0
        self._temporary = self.path.with_name(temporary_name())
        self._file = open(self._temporary, "xb")  # noqa: SIM115 - open until `close` or `abandon`
        self._file.write(b" " * (8 + _HEADER))
        self._kind: tuple[str, tuple[int, ...]] | None = None

    def add(self, rows: Tensor) -> None:
        """Append rows (n, …), of the same type and width as those before."""
        array = rows.detach().cpu().contiguous().numpy()
        name = next(name for name, kind in _TYPES.items() if np.dtype(kind) == array.dtype)
        kind = (name, array.shape[1:])
        if self._kind not in (None, kind):
            raise InputError(f"rows must be {self._kind}, like those before; got {kind}")
        self._kind = kind
        array.tofile(self._file)
        self.n_rows += len(array)

    def close(self) -> None:
        """Write the header, flush the file to disk and give it its name."""
        dtype, width = self._kind or ("F32", (0,))
        shape = [self.n_rows, *width]
        size = prod(shape) * np.dtype(_TYPES[dtype]).itemsize
        facts = {self.name: {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}
        self._file.seek(0)
        self._file.write(_HEADER.to_bytes(8, "little") + json.dumps(facts).encode().ljust(_HEADER))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        rename(self._temporary, self.path)

    def abandon(self) -> None:
        """Remove the unfinished file."""
        self._file.close()
        self._temporary.unlink(missing_ok=True)


def tensor_rows(path: str | os.PathLike[str]) -> dict[str, FileRows]:
    """The tensors of a safetensors file by name; reads only their positions.

    Tensors without rows, or of types that cannot be read by rows, are left out.
    """
    file = Path(path)
    try:
        with open(file, "rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            if size > _LARGEST_HEADER:
                raise ValueError(f"its header would have {size:,} bytes")
            header = json.loads(stream.read(size))
            end = os.fstat(stream.fileno()).st_size
        header.pop("__metadata__", None)
        tensors = {name: _rows(str(file), facts, 8 + size, end) for name, facts in header.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(f"{file} must be a safetensors file: {error!s:.300}; restore it from a copy") from error
    return {name: rows for name, rows in tensors.items() if rows is not None}


def _rows(path: str, facts: dict[str, Any], base: int, end: int) -> FileRows | None:
    shape, (first, last) = facts["shape"], facts["data_offsets"]
    if facts["dtype"] not in _TYPES or not shape:
        return None
    kind = _TYPES[facts["dtype"]]
    if not all(type(n) is int and n >= 0 for n in [*shape, first, last]) or base + last > end:
        raise ValueError(f"a tensor of shape {shape!r:.50} does not lie within it")
    if last - first != prod(shape) * np.dtype(kind).itemsize:
        raise ValueError(f"a tensor of shape {shape!r:.50} has {last - first:,} bytes")
    return FileRows(path, kind, tuple(shape[1:]), base + first, 0, shape[0])
