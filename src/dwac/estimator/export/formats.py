"""The two formats: an ONNX file, and a program of torch.export. Each is written, and run for a check."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from dwac.encoders import TabularEncoder
from dwac.encoders.columns import parts_of
from dwac.encoders.table_graph import TableGraph
from dwac.errors import InputError
from dwac.estimator.export.graph import ModelGraph, ReadTable
from dwac.estimator.fitted import Fitted

Inputs = tuple[Tensor, ...]
_MATRIX = "X"


@dataclass(frozen=True, eq=False)
class Front:
    """The inputs of a file: their names, and what gives their tensors."""

    read: nn.Module | None
    names: tuple[str, ...]
    tensors: Callable[[Any], Inputs]
    note: str = ""
    table: TableGraph | None = None
    encoder: TabularEncoder | None = None

    @classmethod
    def of_table(cls, table: TableGraph, encoder: TabularEncoder) -> Front:
        """Numbers and codes of texts; an ONNX file has an input for each column, or a matrix."""

        def tensors(X: Any) -> Inputs:
            frame = encoder.records(X)
            numbers = [_numbers_of(frame, name, encoder) for name in table.numbers]
            codes = [
                [known.indices.get(value, known.missing if value == "" else known.other) for value in texts]
                for texts, known in ((_texts_of(frame, name), known) for name, known in table.texts.items())
            ]
            parts = ([torch.as_tensor(np.stack(numbers, axis=1))] if numbers else []) + (
                [torch.tensor(codes).T.contiguous()] if codes else []
            )
            return tuple(parts)

        names = tuple(name for name, columns in (("numbers", table.numbers), ("codes", table.texts)) if columns)
        return cls(ReadTable(table), names, tensors, table=table, encoder=encoder)

    @property
    def matrix(self) -> bool:
        """Whether an ONNX file takes the columns of a table as one matrix."""
        return (
            self.table is not None and not self.table.texts and not any(isinstance(n, str) for n in self.table.numbers)
        )

    def feed(self, X: Any) -> dict[str, Any]:
        """The inputs of an ONNX file by name, for rows."""
        if self.table is None or self.encoder is None or self.matrix:
            names = (_MATRIX,) if self.matrix else self.names
            return {name: part.numpy() for name, part in zip(names, self.tensors(X), strict=False)}
        frame = self.encoder.records(X)
        numbers: dict[str, Any] = {str(n): _numbers_of(frame, n, self.encoder) for n in self.table.numbers}
        return numbers | {str(n): np.array(_texts_of(frame, n), dtype=object) for n in self.table.texts}


def _numbers_of(frame: pd.DataFrame, name: Any, encoder: TabularEncoder) -> Any:
    kind = next(column.kind for column in encoder.columns if column.name == name)
    if kind in ("categorical", "empty"):
        return pd.to_numeric(frame[name].astype(object), errors="coerce").to_numpy(np.float64, na_value=np.nan)
    return parts_of(frame[name], name, kind)[0]


def _texts_of(frame: pd.DataFrame, name: Any) -> list[str]:
    return ["" if pd.isna(value) else str(value) for value in frame[name]]


def facts_of(graph: ModelGraph, front: Front, fitted: Fitted, epsilon: float) -> dict[str, Any]:
    """What a file says about itself, as JSON values."""
    names, references = fitted.target.plain_names, fitted.references
    facts: dict[str, Any] = {
        "dwac": importlib.import_module("dwac").__version__,
        "target": fitted.target.kind,
        "names": [name if isinstance(name, str | int | float | bool) else str(name) for name in names],
        "epsilon": epsilon,
        "voters": len(references),
        "examples": round(float(references.sizes.sum())),
        "outputs": graph.outputs,
        "note": front.note,
    }
    if front.table is not None:
        facts["numbers"], facts["dates"] = list(front.table.numbers), front.table.dates
        facts["texts"] = {
            str(name): {"indices": known.indices, "other": known.other, "missing": known.missing}
            for name, known in front.table.texts.items()
        }
    units = {str(column): name.unit for column, name in fitted.legend.names.items() if name.unit}
    return facts | {"units": units}


def _export(graph: ModelGraph, inputs: Inputs) -> Any:
    """The graph as a program of torch.export, for any number of rows."""
    graph.model._frozen, n = None, torch.export.Dim("n", min=1)  # a frozen network has no operators to export
    with torch.no_grad(), warnings.catch_warnings(), _silence():
        warnings.simplefilter("ignore")
        shapes = {"inputs": tuple({0: n} for _ in inputs)}
        try:
            return torch.export.export(graph, inputs, dynamic_shapes=shapes, strict=True)
        except Exception as error:  # a network of your own may do anything
            why = str(error).strip().partition("\n")[0]
            raise InputError(f"this model cannot be exported: torch.export does not take its network: {why}") from error


@contextlib.contextmanager
def _silence() -> Any:
    """PyTorch's exporters print and log their progress."""
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


# torch.export


def write_program(
    file: Path, graph: ModelGraph, inputs: Inputs, front: Front, fitted: Fitted, epsilon: float
) -> tuple[str, ...]:
    """Write the program; labels and voters are numbers, whose names are in its file dwac.json."""
    facts = facts_of(graph, front, fitted, epsilon)
    facts["ids"] = _plain(fitted.references.ids).tolist()
    program = _export(graph, inputs)
    with _silence():
        torch.export.save(program, file, extra_files={"dwac.json": json.dumps(facts)})
    return front.names[: len(inputs)]


def run_program(file: Path, front: Front, X: Any, fitted: Fitted) -> list[Any]:
    """The answers of the program."""
    del fitted
    with torch.no_grad(), _silence(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answers = torch.export.load(file).module()(*front.tensors(X))
    return [part.numpy() for part in answers]


# ONNX


def write_onnx(
    file: Path, graph: ModelGraph, inputs: Inputs, front: Front, fitted: Fitted, epsilon: float
) -> tuple[str, ...]:
    """Write the file."""
    onnx = _import("onnx")
    for name in ("onnxscript", "onnxruntime"):
        _import(name)
    facts, program = facts_of(graph, front, fitted, epsilon), _export(graph, inputs)
    names = (_MATRIX,) if front.matrix else front.names[: len(inputs)]
    inner = [f"{name}." if name in ("label", "voter_ids") else name for name in graph.outputs]
    with torch.no_grad(), _silence(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            options: dict[str, Any] = {"input_names": names, "output_names": inner, "opset_version": 18}
            model = torch.onnx.export(program, dynamo=True, verbose=False, **options).model_proto
        except torch.onnx.OnnxExporterError as error:
            why = next(
                (line for line in str(error).splitlines() if "No ONNX function" in line), "an operator is missing"
            )
            raise InputError(f"this model cannot be exported to ONNX: {why}; a file .pt2 may do") from error
    if front.table is not None and not front.matrix:
        names = _add_columns(onnx, model.graph, front.table, graph.outputs)
        model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 3))
    if "label" in graph.outputs:
        _name_values(onnx, model.graph, "label", _plain(fitted.target.plain_names), 1)
    _name_values(onnx, model.graph, "voter_ids", _plain(fitted.references.ids), 2)
    model.producer_name, model.producer_version = "dwac", facts["dwac"]
    onnx.helper.set_model_props(model, {"dwac": json.dumps(facts)})
    onnx.checker.check_model(model)
    onnx.save_model(model, file)
    return names


def _add_columns(onnx: Any, graph: Any, table: TableGraph, outputs: list[str]) -> tuple[str, ...]:
    """Put an input for each column in front of the matrices of numbers and codes."""
    helper, nodes, inputs = onnx.helper, [], []
    for matrix, columns in (("numbers", table.numbers), ("codes", list(table.texts))):
        parts = []
        for place, name in enumerate(columns):
            if str(name) in (*outputs, "numbers", "codes"):
                raise InputError(f"column {name!r} has the name of an output of the file; rename it, and fit again")
            kind = onnx.TensorProto.DOUBLE if matrix == "numbers" else onnx.TensorProto.STRING
            inputs.append(helper.make_tensor_value_info(str(name), kind, ["n"]))
            part = str(name)
            if matrix == "codes":
                known, part = table.texts[name], f"codes/{place}"
                keys = {"": known.missing, **known.indices}
                nodes.append(
                    helper.make_node(
                        "LabelEncoder",
                        [str(name)],
                        [part],
                        domain="ai.onnx.ml",
                        keys_strings=list(keys),
                        values_int64s=list(keys.values()),
                        default_int64=known.other,
                    )
                )
            parts.append(f"{matrix}/{place}/column")
            nodes.append(helper.make_node("Unsqueeze", [part, "dwac/axis"], [parts[-1]]))
        if parts:
            nodes.append(helper.make_node("Concat", parts, [matrix], axis=1))
    graph.initializer.append(helper.make_tensor("dwac/axis", onnx.TensorProto.INT64, [1], [1]))
    del graph.input[:]
    graph.input.extend(inputs)
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])
    return tuple(each.name for each in inputs)


def _name_values(onnx: Any, graph: Any, output: str, values: Any, ndim: int) -> None:
    """Let an output give names instead of their numbers."""
    helper, kinds = onnx.helper, onnx.TensorProto
    kind = {"O": kinds.STRING, "i": kinds.INT64, "f": kinds.DOUBLE, "b": kinds.BOOL}[values.dtype.kind]
    data = [value.encode() for value in values] if values.dtype.kind == "O" else values.tolist()
    graph.initializer.append(helper.make_tensor(f"dwac/{output}", kind, [len(values)], data))
    graph.node.append(helper.make_node("Gather", [f"dwac/{output}", f"{output}."], [output]))
    place = next(place for place, each in enumerate(graph.output) if each.name == f"{output}.")
    shape = ["n", "k"][:ndim]
    graph.output[place].CopyFrom(helper.make_tensor_value_info(output, kind, shape))


def run_onnx(file: Path, front: Front, X: Any, fitted: Fitted) -> list[Any]:
    """The answers of the file, with labels and voters as numbers."""
    runtime = _import("onnxruntime")
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    answers = session.run(None, front.feed(X))
    for place, output in enumerate(session.get_outputs()):
        values = {"label": fitted.target.plain_names, "voter_ids": fitted.references.ids}.get(output.name)
        if values is not None:
            answers[place] = pd.Index(_plain(values)).get_indexer(answers[place].ravel()).reshape(answers[place].shape)
    return list(answers)


def _plain(values: Any) -> Any:
    """Names as an array that a file can hold: whole numbers, numbers, booleans, or else texts."""
    values = list(values)
    for kind, dtype in ((bool, np.bool_), (int, np.int64), (float, np.float64)):
        if all(isinstance(value, kind | np.generic) and isinstance(np.asarray(value).item(), kind) for value in values):
            return np.array(values, dtype=dtype)
    return np.array([str(value) for value in values], dtype=object)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(
            f"a file .onnx needs {name}; install it: pip install 'dwac[onnx]'; a file .pt2 needs nothing else"
        ) from None
