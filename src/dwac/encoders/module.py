"""Your own network on any tensors: an nn.Module that takes X as its arguments.

encoder = ModuleEncoder(my_network).fit(X)     # X: a tensor or array, a tuple of them, or a Dataset
inputs = encoder.transform(X)                  # the arguments of my_network, one row per example
features = encoder.network()(*inputs)          # (n, features)
"""

from __future__ import annotations

import copy
from collections.abc import Sized
from dataclasses import asdict
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from dwac.encoders.base import Encoder, Recipe, require_dense, require_finite
from dwac.errors import DwacError, InputError, ShapeError
from dwac.nn import Ensemble
from dwac.nn.batches import Inputs


class ModuleEncoder(Encoder):
    """X unchanged: a tensor or array (n, …), or a tuple of them, one per argument of the network.

    Fit starts from a copy of the module with its current weights: a pretrained module is fine-tuned, and yours is not
    changed. float64 becomes float32; other types stay. A saved model holds the weights but no code: `dwac.load` needs
    the module again.

    >>> encoder = ModuleEncoder(nn.Bilinear(4, 3, 8)).fit((torch.zeros(5, 4), torch.zeros(5, 3)))
    >>> encoder.network()(*encoder.transform((torch.zeros(2, 4), torch.zeros(2, 3)))).shape
    torch.Size([2, 8])
    """

    kind = "module"

    def __init__(self, module: nn.Module | None = None, *, recipe: Recipe | None = None) -> None:
        if module is not None and not isinstance(module, nn.Module):
            raise InputError(f"module must be an nn.Module; got {type(module).__name__}")
        self.module = module
        self.recipe = recipe or Recipe()
        self._seen: list[dict[str, Any]] | None = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the number, shapes and types of the inputs; y is not used."""
        del y
        inputs = tensors_of(X)
        if len(inputs[0]) == 0:
            raise ShapeError(f"at least 1 example is required; got 0, of shape {tuple(inputs[0].shape)}")
        self._seen = [_describe(part) for part in inputs]
        return self

    def transform(self, X: Any) -> Inputs:
        """The network's arguments, checked against those of fit."""
        if self._seen is None:
            raise DwacError("the encoder is not fitted; call fit first")
        inputs = tensors_of(X)
        if len(inputs) != len(self._seen):
            raise ShapeError(f"X must have {len(self._seen)} inputs, as in training; got {len(inputs)}")
        for i, (part, seen) in enumerate(zip(inputs, self._seen, strict=True)):
            description = _describe(part)
            if description != seen:
                raise ShapeError(
                    f"input {i} must be like the training data: (n, {', '.join(map(str, seen['shape']))}) of "
                    f"{seen['type']}; got (n, {', '.join(map(str, description['shape']))}) of {description['type']}"
                )
        return inputs

    def network(self) -> nn.Module:
        """A copy of the module."""
        if self.module is None:
            raise InputError("this model was trained with a network of your own; pass it: dwac.load(path, module=…)")
        return copy.deepcopy(self.module)

    def ensemble(self, size: int) -> Ensemble:
        """An error: copies of one module would not differ."""
        raise InputError(
            f"ensemble_size={size} copies of your network would all start alike; "
            "give encoder=dwac.nn.Ensemble([…]) with networks that start differently"
        )

    def config(self) -> dict[str, Any]:
        """The recipe and the learned shapes and types; not the module, which is code."""
        return {"recipe": asdict(self.recipe), "seen": copy.deepcopy(self._seen)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Restore the encoder without its module; set `.module` before calling `network`."""
        encoder = cls(recipe=Recipe(**config.get("recipe", {})))
        encoder._seen = config["seen"]
        return encoder

    def check(self) -> None:
        """Raise an error for a description of inputs that fit cannot have written."""
        descriptions: Any = self._seen
        for part in descriptions if isinstance(descriptions, list) and descriptions else [descriptions]:
            if not isinstance(part, dict) or set(part) != {"shape", "type"} or not isinstance(part["type"], str):
                raise InputError(f"inputs must be described by shape and type; got {part!r:.100}")
            if not isinstance(part["shape"], list) or not all(
                type(size) is int and size >= 0 for size in part["shape"]
            ):
                raise InputError(f"an input's shape must be whole numbers; got {part['shape']!r:.100}")

    def records(self, X: Any) -> pd.DataFrame:
        """A frame without columns: tensors of unknown meaning have nothing to show except their ids."""
        return pd.DataFrame(index=range(len(tensors_of(X)[0])))

    def input_distances(self, X_one: Any, X_many: Any) -> NDArray[np.float64]:
        """(n,): Euclidean distance of flattened, standardised inputs, the mean over several inputs.

        Records of tensors are empty: all distances from these are 0.
        """
        if isinstance(X_many, pd.DataFrame) and X_many.shape[1] == 0:
            return np.zeros(len(X_many))
        return super().input_distances(X_one, X_many)


def _describe(part: Tensor) -> dict[str, Any]:
    return {"shape": list(part.shape[1:]), "type": str(part.dtype).removeprefix("torch.")}


def tensors_of(X: Any) -> Inputs:
    """X as a tuple of tensors with the same number of rows, on the CPU."""
    if isinstance(X, Dataset):
        return read_dataset(X)[0]
    inputs = tuple(_to_tensor(part, f"input {i}") for i, part in enumerate(X if isinstance(X, tuple) else (X,)))
    if not inputs or any(part.ndim == 0 for part in inputs):
        raise ShapeError("X must be a tensor or array with one row per example, or a tuple of these")
    lengths = [len(part) for part in inputs]
    if len(set(lengths)) > 1:
        raise ShapeError(f"all inputs must have the same number of rows; got {lengths}")
    return inputs


def _to_tensor(value: Any, name: str) -> Tensor:
    try:
        if isinstance(value, list) and value and all(isinstance(row, Tensor) for row in value):
            tensor = torch.stack(value)
        else:
            array = value if isinstance(value, Tensor) else np.require(np.asarray(value), requirements=["C", "W"])
            tensor = torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name} must be a tensor or an array of numbers; got {type(value).__name__}: {error}"
        ) from None
    require_dense(tensor)
    tensor = tensor.detach().cpu()
    tensor = tensor.float() if tensor.dtype == torch.float64 else tensor
    if tensor.is_floating_point() and tensor.ndim:
        require_finite(tensor, name, name)
    return tensor


def read_dataset(dataset: Dataset[Any]) -> tuple[Inputs, Tensor | None]:
    """Read a map-style Dataset into memory: its inputs, and its labels if items are (x, y) pairs.

    An item is x, (x, y), or ((x1, x2, …), y).
    """
    if not isinstance(dataset, Sized) or len(dataset) == 0:
        raise InputError("a Dataset must have a length of at least 1 and return items by number")
    items = [dataset[i] for i in range(len(dataset))]
    try:
        batch = default_collate(items)
    except (TypeError, RuntimeError, ValueError) as error:
        raise InputError(f"the Dataset's items must be tensors, arrays or numbers of equal shapes: {error}") from None
    labels = None
    if isinstance(batch, list | tuple):
        if len(batch) > 2:
            raise InputError(f"a Dataset's item must be x, (x, y) or ((x1, x2, …), y); got {len(batch)} parts")
        batch, labels = (batch[0], batch[1]) if len(batch) == 2 else (batch[0], None)
    return tensors_of(tuple(batch) if isinstance(batch, list) else batch), labels
