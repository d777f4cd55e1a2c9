"""Reference sets larger than memory: written block by block to a folder, and queried from there.

with ReferenceWriter("voters", n_classes=10) as writer:
    for embeddings, labels in blocks:
        writer.add(embeddings, labels)
refs = open_references("voters")            # nothing is read yet
refs.log_class_weights(queries)             # reads every block once, and holds one at a time

references.json                 format, version, kernel, number of classes, weights of classes, second kernel
embeddings.safetensors          (m, d) float32 or float64
labels.safetensors              (m,) int64
ids, targets, weights           likewise, if given
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import DwacError, EmptyReferenceError, IdError, InputError, LabelError, ShapeError, StorageError
from dwac.kernels import get_kernel
from dwac.reference import inputs
from dwac.reference.blocks import Ask, BlockVoters
from dwac.reference.references import ReferenceSet, set_of
from dwac.storage import FileRows, RowsWriter, replace_file, tensor_rows

FORMAT, VERSION = "dwac-references", 1
MANIFEST = "references.json"
_COLUMNS = ("embeddings", "labels", "ids", "targets", "weights")
BLOCK = 2**22  # embedding values per block: 32 MiB in float64, and about 3 times that as an index
SMALLEST_BLOCK = 2**12


class ReferenceWriter:
    """Writes a reference set to a folder in batches; it holds one batch at a time.

    The folder can be opened once the writer is closed. If the `with` block raises an error, the files are removed.

    Args:
        path: a folder, new or without a reference set.
        n_classes: K.
        kernel, class_weights, look_alikes: as for `ReferenceSet`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with ReferenceWriter(f"{folder}/voters", n_classes=2) as writer:
    ...         writer.add([[0.0], [1.0]], [0, 0])
    ...         writer.add([[5.0]], [1])
    ...     refs = in_memory(open_references(f"{folder}/voters"))
    >>> len(refs), refs.nearest([[4.0]], k=1).ids
    (3, array([[2]]))
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        n_classes: int,
        *,
        kernel: str = "gaussian",
        class_weights: Any = None,
        look_alikes: tuple[float, float] | None = None,
    ) -> None:
        self.path, self.n_classes = Path(path), checks.positive_int(n_classes, "n_classes")
        factors = inputs.as_class_weights(class_weights, self.n_classes)
        self._near = inputs.as_look_alikes(look_alikes, represents=False)
        self._facts = {"kernel": get_kernel(kernel).name, "n_classes": self.n_classes}
        self._facts |= {"class_weights": factors, "look_alikes": self._near}
        self._files: dict[str, RowsWriter] | None = None
        self._kinds: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}

    def add(self, embeddings: Any, labels: Any, *, ids: Any = None, targets: Any = None, weights: Any = None) -> None:
        """Append examples (n, d) with labels (n,); ids are whole numbers, by default positions in the set.

        ids, targets and weights given with the first examples must be given with all.
        """
        h = checks.float_tensor(embeddings, "embeddings").detach().cpu()
        h = h.to(torch.promote_types(h.dtype, torch.float32))
        y = checks.class_labels(labels, "labels", n=len(h), n_classes=self.n_classes)
        columns = {"embeddings": h, "labels": torch.as_tensor(y)}
        if ids is not None:
            columns["ids"] = _whole_ids(ids, len(h))
        if targets is not None:
            columns["targets"] = inputs.as_targets(targets, len(h))
        if weights is not None:
            inputs.as_look_alikes(self._near, represents=True)
            columns["weights"] = torch.tensor(inputs.as_weights(weights, len(h), "weights"))
        self._write(columns)

    def _write(self, columns: dict[str, Tensor]) -> None:
        kinds = {name: (value.dtype, tuple(value.shape[1:])) for name, value in columns.items()}
        if self._files is None:
            self._files, self._kinds = self._open_files(columns), kinds
        if kinds != self._kinds:
            raise ShapeError(
                f"all examples must have the columns, types and widths of the first: {_describe_columns(self._kinds)}; "
                f"got {_describe_columns(kinds)}"
            )
        for name, value in columns.items():
            self._files[name].add(value)

    def _open_files(self, columns: Iterable[str]) -> dict[str, RowsWriter]:
        if (self.path / MANIFEST).exists():
            raise StorageError(f"{self.path} holds a reference set; choose another folder, or remove it first")
        self.path.mkdir(parents=True, exist_ok=True)
        return {name: RowsWriter(self.path / f"{name}.safetensors", name) for name in columns}

    def close(self) -> None:
        """Complete the folder. It is an error if there are no examples."""
        if self._files is None or self._files["labels"].n_rows == 0:
            self.abandon()
            raise EmptyReferenceError(f"a reference set needs at least one example; none was added to {self.path}")
        for file in self._files.values():
            file.close()
        facts = {"format": FORMAT, "version": VERSION, "columns": list(self._files), **self._facts}
        replace_file(self.path / MANIFEST, json.dumps(facts, indent=2).encode() + b"\n")
        self._files = None

    def abandon(self) -> None:
        """Delete everything that was written."""
        for file in (self._files or {}).values():
            file.abandon()
        self._files = None
        with suppress(OSError):
            self.path.rmdir()  # if it is empty

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the folder, or abandon it after an error."""
        if error is None:
            self.close()
        else:
            self.abandon()


def open_references(path: str | os.PathLike[str], *, ask: Ask = map, check: bool = True) -> ReferenceSet:
    """Open the reference set in a folder that `ReferenceWriter` wrote, to query it block by block.

    Votes and neighbours take the memory of one block, about 200 MB at most; `distribution` maps the file. All queries
    work as for any set. Voters cannot be added or removed, because others may be using the files.

    ask: applies a function to every block, by default one after another, with the built-in `map`; for example
    `ThreadPoolExecutor().map`, or with Dask `lambda f, blocks: client.gather(client.map(f, list(blocks), pure=False))`
    and workers that see the same path. Blocks compute in float64: answers do not depend on how a set is divided.
    check: read all numbers once, to check that they are finite and that labels are in range.
    """
    folder = Path(path)
    try:
        facts = json.loads((folder / MANIFEST).read_bytes())
        if facts["format"] != FORMAT or facts["version"] != VERSION:
            raise ValueError(f"it has format {facts['format']!r:.50}, version {facts['version']!r:.20}")
        names = facts["columns"]
        if not {"embeddings", "labels"} <= set(names) <= set(_COLUMNS):
            raise ValueError(f"its columns are {names!r:.100}")
        rows = {name: tensor_rows(folder / f"{name}.safetensors")[name] for name in names}
        kernel, n_classes = facts["kernel"], facts["n_classes"]
        options = {name: facts[name] for name in ("class_weights", "look_alikes")}
    except FileNotFoundError as error:
        raise StorageError(
            f"{folder} must hold a reference set written by ReferenceWriter; {Path(error.filename).name} is missing"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{folder} must be a reference set written by ReferenceWriter: {error!s:.300}; write it again"
        ) from error
    try:
        return mapped_set(rows, n_classes=n_classes, kernel=kernel, **options, ask=ask, check=check)
    except StorageError:
        raise
    except DwacError as error:
        raise StorageError(f"{folder} cannot be opened: {error}") from error


def mapped_set(
    rows: Mapping[str, FileRows],
    *,
    n_classes: int,
    kernel: str = "gaussian",
    ids: Iterable[Hashable] | None = None,
    class_weights: Any = None,
    look_alikes: tuple[float, float] | None = None,
    ask: Ask = map,
    check: bool = True,
) -> ReferenceSet:
    """A reference set whose rows stay in files: embeddings, labels and, if present, ids, targets, weights and sizes.

    ids: by default those in the files, or positions.
    """
    n_classes, m = checks.positive_int(n_classes, "n_classes"), len(rows["labels"])
    if check:
        _check(rows, m, n_classes)
    columns = {name: value.mapped for name, value in rows.items() if name != "ids"}
    if ids is not None:
        names = inputs.as_ids(ids, m)
    else:
        names = pd.Index(rows["ids"].mapped.numpy(), copy=False) if "ids" in rows else pd.RangeIndex(m)
    step = max(SMALLEST_BLOCK, BLOCK // (columns["embeddings"].shape[1] + 1))
    voters = BlockVoters(
        columns["embeddings"],
        columns["labels"],
        names,
        None,
        n_classes,
        get_kernel(kernel),
        inputs.as_class_weights(class_weights, n_classes),
        columns.get("weights"),
        columns.get("sizes"),
        inputs.as_look_alikes(look_alikes, represents="weights" in columns),
        targets=columns.get("targets"),
        cuts=(*range(0, m, step), m),
        ask=ask,
        files=tuple(rows.values()),
    )
    return set_of(voters)


def in_memory(references: ReferenceSet) -> ReferenceSet:
    """The same set in memory, if it was in files."""
    voters = references.voters
    if not isinstance(voters, BlockVoters):
        return copy(references)
    whole = voters.whole
    return set_of(replace(whole, **whole.columns(Tensor.clone), division=voters.divided))


def _check(rows: Mapping[str, FileRows], m: int, n_classes: int) -> None:
    """Check all numbers in one pass."""
    shapes = {name: value.shape for name, value in rows.items()}
    wide = {"embeddings", "targets"}
    if m == 0 or any(len(s) != 1 + (name in wide) or s[0] != m or 0 in s for name, s in shapes.items()):
        raise ShapeError(f"all columns must have a row for each of {m} examples, at least one; got {shapes}")
    for name, value in rows.items():
        whole = name in ("labels", "ids")
        if whole != (np.dtype(value.dtype).kind == "i"):
            raise InputError(f"{name} must be {'whole' if whole else 'floating-point'} numbers; got {value.dtype}")
        for part in value.split(max(1, BLOCK // max(1, math.prod(value.row_shape)))):
            if name == "labels" and not (int(part.min()) >= 0 and int(part.max()) < n_classes):
                raise LabelError(f"labels must lie in 0 … {n_classes - 1}; got {int(part.min())} … {int(part.max())}")
            if not whole:
                checks.float_tensor(part.view(len(part), -1), name)
            if name in ("weights", "sizes") and not bool((part > 0).all()):
                raise InputError(f"{name} must be above 0; got {float(part.min())}")


def _whole_ids(ids: Any, n: int) -> Tensor:
    values = np.asarray(ids)
    if values.dtype.kind not in "iu" or values.shape != (n,):
        raise IdError(
            f"ids of a set on disk must be {n} whole numbers; got {values.dtype} of shape {values.shape}; number the "
            "examples, and keep their names in a separate table"
        )
    return torch.tensor(values.astype(np.int64))


def _describe_columns(kinds: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name} (n{''.join(f', {w}' for w in width)}) {dtype}" for name, (dtype, width) in kinds.items())
