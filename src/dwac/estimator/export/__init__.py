"""Export a fitted model with its vote: one ONNX file, or a program of torch.export, checked against Python.

exported = export(clf, "model.onnx")
print(exported)                 # checked on 20 rows, largest difference 3e-08
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from dwac import _checks as checks
from dwac.encoders import ImageEncoder, TabularEncoder, TextEncoder
from dwac.encoders.columns import Column
from dwac.encoders.table_graph import Categories, TableGraph
from dwac.encoders.tabular_networks import UNKNOWN, unlike_training
from dwac.errors import EPSILON, CalibrationWarning, InputError, PrivacyError
from dwac.estimator.export.checking import compare
from dwac.estimator.export.formats import Front, run_onnx, run_program, write_onnx, write_program
from dwac.estimator.export.graph import ModelGraph, ReadImages, ReadTexts
from dwac.estimator.fitted import Fitted
from dwac.estimator.preparation import count, take
from dwac.estimator.readable import ATYPICAL, REFUSE

LARGEST = 64 * 2**20  # bytes of voters in a file
TOLERANCE = 1e-5
_ROWS = 20  # to check the file with
_TEXTS = (
    "texts: the file takes the numbers that clf.encoder_.transform(texts) gives, because no ONNX operator splits words "
    "as the model does"
)


@dataclass(frozen=True)
class Exported:
    """A written file; `str` says how it was checked."""

    path: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bytes: int
    rows: int  # the file was checked with
    difference: float  # the largest from Python
    note: str = ""

    def __str__(self) -> str:
        size = f"{self.bytes / 1e6:.1f} MB" if self.bytes >= 1e6 else f"{self.bytes / 1e3:.0f} kB"
        text = f"{self.path}: {size}, checked on {self.rows} rows, largest difference {self.difference:.0e}"
        return text + (f"\n{self.note}" if self.note else "")


def export(
    estimator: Any, path: str | os.PathLike[str], *, epsilon: float = EPSILON, k: int = 5, X: Any = None
) -> Exported:
    """Write the model to a file .onnx or .pt2; see `DWACEstimator.export`."""
    path, fitted = Path(path), estimator.fitted_
    if path.suffix not in (".onnx", ".pt2"):
        raise InputError(f"the file must end in .onnx or in .pt2, for torch.export; got {str(path)!r}")
    if not path.parent.is_dir():
        raise InputError(f"the folder of the file must exist; there is no {str(path.parent)!r}")
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder; give the name of a file")
    _refuse(fitted, estimator)
    rows, front = _rows_to_check(fitted, X), front_of(fitted, estimator.unknown)
    graph = ModelGraph(fitted, estimator.sets_, front.read, checks.epsilon(epsilon), checks.positive_int(k, "k")).eval()
    _refuse_large(graph)
    write, run = (write_onnx, run_onnx) if path.suffix == ".onnx" else (write_program, run_program)
    inputs = front.tensors(rows)
    with TemporaryDirectory(dir=path.parent, prefix=".dwac-export-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        file = Path(folder) / path.name
        names = write(file, graph, inputs, front, fitted, epsilon)
        difference, worst = compare(graph.outputs, run(file, front, rows, fitted), estimator, rows, epsilon)
        if not difference <= TOLERANCE:
            raise InputError(
                f"the file was not written: its {worst} differs from Python's by {difference:.1e}, more than "
                f"{TOLERANCE:g}; please report it with the model's settings"
            )
        os.replace(file, path)
    return Exported(path, names, tuple(graph.outputs), path.stat().st_size, count(rows), difference, front.note)


def _refuse(fitted: Fitted, estimator: Any) -> None:
    """Raise an error for a model that cannot be exported."""
    encoder, why = fitted.encoder, None
    if fitted.private:
        raise PrivacyError(
            "a model without its training examples cannot be exported: the file would name voters and their exact "
            "shares; export the model that was saved with them"
        )
    if fitted.shards is not None or getattr(encoder, "parts", None):
        why = "its networks were trained on shards; fit without shards=…"
    elif fitted.model.device.type != "cpu":
        why = f"it is on {fitted.model.device}; save it, and load it with dwac.load(folder, device='cpu')"
    elif fitted.references.voters.blocks:
        why = "its voters are read from files; condense() it first"
    elif fitted.within is not None:
        why = "its guarantee is within groups, which the file would not know; fit without within=…"
    elif fitted.shift is not None:
        why = "it is calibrated for rows from elsewhere; export the model before calibrate_for"
    elif estimator.unknown == REFUSE and encoder.kind == "tabular":
        why = "unknown='refuse' rejects rows, which the file cannot; set unknown='atypical' or 'missing'"
    if why is not None:
        raise InputError(f"this model cannot be exported: {why}")


def _refuse_large(graph: nn.Module) -> None:
    size = sum(part.numel() * part.element_size() for part in graph.buffers())
    if size > LARGEST:
        raise InputError(
            f"the voters of an exported model may take {LARGEST / 2**20:.0f} MB; these take {size / 2**20:,.0f} MB; "
            "export a condensed model: clf.condense().export(…), or dwac condense"
        )


def _rows_to_check(fitted: Fitted, X: Any) -> Any:
    """Some training rows, or the first of X."""
    if X is not None:
        if not count(X):
            raise InputError("X has no rows to check the file with; give at least one, or leave X out")
        return take(X, np.arange(min(_ROWS, count(X))))
    ids = list(fitted.voter_ids)
    rows = fitted.examples.rows(ids[:: max(1, len(ids) // _ROWS)][:_ROWS]) if len(fitted.examples) else None
    if rows is None:
        raise InputError("the model holds no training rows to check the file with; give some: export(path, X=rows)")
    return rows["image"].tolist() if fitted.encoder.kind == "image" and hasattr(rows, "columns") else rows


def front_of(fitted: Fitted, unknown: str) -> Front:
    """The inputs of a file, and how they become those of the network."""
    encoder = fitted.encoder
    if isinstance(encoder, TabularEncoder):
        columns = [column for column in encoder.columns if column.n_indices]
        table = TableGraph(encoder, {c.name: _categories(c, fitted, unknown) for c in columns})
        return Front.of_table(table, encoder)
    if isinstance(encoder, ImageEncoder):
        layout = encoder.seen.layout

        def arrange(X: Any) -> tuple[torch.Tensor, ...]:
            images = encoder.transform(X)[0]
            return ({"HW": images[:, 0], "CHW": images}.get(layout, images.movedim(1, -1)).contiguous(),)

        return Front(ReadImages(layout), ("images",), arrange)
    if encoder.kind not in ("text", "huggingface"):
        return Front(None, tuple(f"input_{place}" for place in range(9)), encoder.transform)
    linear = isinstance(encoder, TextEncoder) and encoder.settings["network"] == "linear"
    names: tuple[str, ...] = ("ngrams", "shares", "strange") if linear else ("words", "ngrams", "owners", "strange")
    if not isinstance(encoder, TextEncoder):
        names = ("input_ids", "attention_mask", *names)
    read = ReadTexts(fitted.model.first_network.n_features if linear else 0)
    return Front(read, names, lambda X: encoder.transform(X)[: 3 if linear else None], _TEXTS)


def _categories(column: Column, fitted: Fitted, unknown: str) -> Categories:
    """How the values of a column are read: as `dwac.estimator.readable.judge` does."""
    known = column.indices()
    missing = known.pop(None, UNKNOWN)
    if column.kind != "categorical":
        return Categories(known, UNKNOWN, missing)
    texts, seen = {str(value) for value in known}, fitted.examples.values_of(column.name)
    by_text = all(isinstance(value, str) for value in known)
    rare: dict[Any, int] = {value if by_text else float(value): UNKNOWN for value in sorted(seen - texts)}
    return Categories(known | rare, unlike_training(missing) if unknown == ATYPICAL else missing, missing)
