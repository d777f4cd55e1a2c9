"""Encoded rows in memory-mapped files, which training reads as if they were tensors.

Rows are dealt like cards into piles, one after the other, and the file holds one pile after another. So rows that came
together, such as all of one class, are spread over the file, and each block of it holds rows from everywhere.
"""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.errors import InputError
from dwac.nn.batches import Inputs

Ints = NDArray[np.int64]

_PILES = 256
SPARE = 2**28  # bytes that stay free on the disk
_BLOCK = 2**24  # bytes that are read together
_FEWEST, _MOST = 1024, 2**16  # rows that are read together


@contextmanager
def workspace(checkpoint: str | PathLike[str] | None) -> Iterator[Path]:
    """A folder that exists during a fit: beside the checkpoint, or among the temporary files."""
    beside = None if checkpoint is None else Path(checkpoint).absolute().parent
    with _ended_in_order(), TemporaryDirectory(prefix="dwac-", dir=beside, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Make SIGTERM end the process like an exception, so that its files are removed."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Spool:
    """n encoded rows in files, filled in order; afterwards each part is one tensor.

    Args:
        folder: where the files are.
        n: the number of rows.
        parts: tensors of some rows, by name, which give the types and shapes for all rows.
        written: whether another process has written the files.
    """

    def __init__(self, folder: Path, n: int, parts: dict[str, Tensor], *, written: bool = False) -> None:
        self.n, self.filled = n, 0
        self.row_bytes = sum(part[:1].numel() * part.element_size() for part in parts.values())
        if not written:
            require_room(folder, n * self.row_bytes)
        self._files: dict[str, Any] = {}
        for name, part in parts.items():
            shape = (n, *part.shape[1:])
            kind = part.numpy().dtype
            # A file cannot be empty, and neither can a map of it.
            self._files[name] = (
                np.memmap(folder / f"{name}.rows", kind, "r+" if written else "w+", shape=shape)
                if np.prod(shape)
                else np.zeros(shape, kind)
            )
        sizes = np.array([len(range(pile, n, _PILES)) for pile in range(_PILES)])
        self._starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])

    def places(self, numbers: Ints) -> Ints:
        """The positions of rows in the files, given their numbers in the order of arrival."""
        return np.asarray(self._starts[numbers % _PILES] + numbers // _PILES)

    def write(self, parts: dict[str, Tensor]) -> None:
        """Write the next rows."""
        count = len(next(iter(parts.values())))
        places = self.places(np.arange(self.filled, self.filled + count))
        for name, part in parts.items():
            self._files[name][places] = part.numpy()
        self.filled += count

    def tensor(self, name: str) -> Tensor:
        """One part of all rows, in the order of the files; it stays on disk."""
        return torch.from_numpy(self._files[name])

    def tensors(self, prefix: str) -> Inputs:
        """All parts whose names begin with the prefix, in order."""
        return tuple(self.tensor(name) for name in self._files if name.startswith(prefix))

    def counts(self, name: str, most: int) -> Ints:
        """(most,): how often each of the numbers 0 … most-1 occurs in a part."""
        part = self.tensor(name)
        counts = sum(torch.bincount(part[block], minlength=most) for block in self.blocks())
        return np.asarray(counts)

    @property
    def block_rows(self) -> int:
        """How many rows to read together."""
        return int(np.clip(_BLOCK // max(1, self.row_bytes), _FEWEST, _MOST))

    def blocks(self) -> Iterator[slice]:
        """Slices that cover all rows, in the order of the files."""
        for start in range(0, self.n, self.block_rows):
            yield slice(start, start + self.block_rows)


def require_room(folder: Path, needed: int) -> None:
    """Raise an error unless the disk has room for the needed bytes."""
    free = shutil.disk_usage(folder).free
    if needed + SPARE > free:
        raise InputError(
            f"training on rows that are read in batches writes {needed / 1e9:,.1f} GB to {folder.parent}, where "
            f"{free / 1e9:,.1f} GB are free; free some, or set TMPDIR to a folder on a larger disk"
        )
