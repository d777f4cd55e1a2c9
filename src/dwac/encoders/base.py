"""The interface of all encoders: raw X → tensors → a network; everything learned is kept as plain JSON values."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dwac.errors import InputError, NonFiniteError, ShapeError
from dwac.nn import Ensemble
from dwac.nn.batches import Inputs


@dataclass(frozen=True)
class Recipe:
    """Training settings that suit an encoder; the estimator uses those that the user does not set.

    >>> cpu = torch.device("cpu")
    >>> Recipe(ensemble_size=5).networks_on(cpu), Recipe(ensemble_size=5, on_cpu=3).networks_on(cpu)
    (1, 3)
    """

    epochs: int = 50
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    patience: int = 10
    beta2: float = 0.999  # AdamW's β₂
    embedding_size: int | None = None  # None: the number of classes, as in the paper
    penalty: float = 1e-3  # weight of mean ‖h‖² in the loss
    auxiliary_weight: float = 0.0  # weight of a softmax's cross-entropy in the loss
    ensemble_size: int = 1  # networks that vote together on a GPU
    on_cpu: int = 1  # networks that vote together on a CPU
    mixed_precision: bool = False  # on a GPU
    compiled: bool = False  # on a GPU: steps are replayed as a CUDA graph
    threads: int | None = None  # on a CPU: more threads than this do not speed up training; None: all help

    def networks_on(self, device: torch.device) -> int:
        """How many networks to train by default."""
        return self.ensemble_size if device.type == "cuda" else self.on_cpu


class Encoder(ABC):
    """Turns one kind of data into tensors, and builds the network that turns those into features.

    `fit` learns the schema from training rows. `transform` checks any X against it, by name, and returns tensors with
    one row per example. `network` builds the backbone f, which takes these tensors as positional arguments and returns
    (n, features). `augment` randomly varies a training batch on its device. `config` returns all settings and
    everything learned, as JSON values; `from_config` restores the encoder from it without executing anything.

    >>> from dwac.encoders import ENCODERS, TextEncoder
    >>> encoder: Encoder = TextEncoder(min_count=1).fit(["sort a list", "parse json"])
    >>> again = ENCODERS[encoder.kind].from_config(encoder.config())
    >>> bool((again.transform(["sort json"])[0] == encoder.transform(["sort json"])[0]).all())
    True
    """

    kind: ClassVar[str]
    recipe: Recipe = Recipe()
    n_beside: int = 0  # networks that vote in addition to those of an ensemble

    @abstractmethod
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the schema and the preprocessing from training rows X; labels y, one per row, may help."""

    @abstractmethod
    def transform(self, X: Any) -> Inputs:
        """Tensors on the CPU, one row per example; an error names the column or row that does not fit."""

    @abstractmethod
    def network(self) -> nn.Module:
        """A new backbone that maps the tensors of `transform` to (n, features)."""

    def member(self) -> nn.Module:
        """A network for an ensemble, whose members should start differently; by default the same as `network`."""
        return self.network()

    def ensemble(self, size: int) -> Ensemble:
        """Several new networks, as one module."""
        return Ensemble(self.member() for _ in range(size))

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """All settings and everything learned, as JSON values."""

    @classmethod
    @abstractmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Restore the encoder from its config."""

    def check(self) -> None:
        """Raise an error if learned values, from a config of unknown origin, are unusable."""
        return

    def augment(self, inputs: Inputs, generator: torch.Generator) -> Inputs:
        """A random variation of a training batch, on its device; by default the batch itself."""
        del generator
        return inputs

    def attention(self, network: nn.Module, X: Any) -> list[tuple[tuple[str, float], ...]] | None:
        """The words of each example, each with a trained network's attention to it; None for data without words."""
        del network, X
        return None

    @abstractmethod
    def records(self, X: Any) -> pd.DataFrame:
        """The examples as a person would see them, one row each: for explanations and the model folder."""

    def input_distances(self, X_one: Any, X_many: Any) -> NDArray[np.float64]:
        """(n,): how different each of n candidates is from the one example, in the input; smaller means more similar.

        The members of a group of voters are alike to the network, so explanations show those that look like the
        query: tables are compared by columns, texts by words, images by pixels; by default the tensors of `transform`
        are compared. Distances are comparable only within one call. The cost grows with n: for a large group, pass a
        sample of at most a few thousand members.

        X_one: one example, as `transform` takes it. X_many: n of them, or the frame of their `records`.
        """
        one, many = self.transform(X_one), self.transform(X_many)
        require_one(len(one[0]))
        return tensor_distances(one, many)


def require_one(n: int) -> None:
    """Raise an error unless n, the number of examples to compare with others, is 1."""
    if n != 1:
        raise ShapeError(f"X_one must hold exactly one example; got {n}; compare one at a time")


def array_of(tensor: Tensor) -> NDArray[Any]:
    """A tensor as a NumPy array; NumPy has neither sparse arrays nor bfloat16 and similar types."""
    require_dense(tensor)
    small = tensor.is_floating_point() and tensor.itemsize <= 2
    return np.asarray((tensor.float() if small else tensor).numpy(force=True))


def require_dense(tensor: Tensor) -> None:
    """Raise an error for a sparse tensor."""
    if tensor.layout != torch.strided:
        raise InputError(f"tensors must be dense; got one of layout {tensor.layout}; use X.to_dense()")


def require_finite(values: Tensor, name: str, holder: str) -> None:
    """Raise an error that names the rows of (n, …) with NaN or infinity; holder: what one row is, for the reasons."""
    finite = torch.isfinite(values).reshape(len(values), math.prod(values.shape[1:])).all(dim=1)
    if not bool(finite.all()):
        rows = (~finite).nonzero()[:, 0].tolist()
        raise NonFiniteError(
            f"{name} must be finite; row {rows[0]} holds NaN or infinity; drop or repair that row",
            rows=dict.fromkeys(rows, f"{holder} holds NaN or infinity"),
        )


def tensor_distances(one: Inputs, many: Inputs) -> NDArray[np.float64]:
    """Root mean squared difference of each flattened input, in standard deviations of the candidates and the query.

    Several inputs: the mean over them. A feature that does not vary does not count.
    """
    each = [_standardised_distances(a, b) for a, b in zip(one, many, strict=True)]
    return np.asarray(np.mean(each, axis=0))


def _standardised_distances(one: Tensor, many: Tensor) -> NDArray[np.float64]:
    flat = torch.cat([one, many])
    flat = torch.view_as_real(flat) if flat.is_complex() else flat
    flat = flat.reshape(len(flat), math.prod(flat.shape[1:])).double()
    if flat.shape[1] == 0:
        return np.zeros(len(many))
    deviation = flat.std(dim=0, correction=0)
    varied = deviation > 1e-12 * flat.abs().amax(dim=0)
    if not bool(varied.any()):
        return np.zeros(len(many))
    apart = (flat[1:, varied] - flat[:1, varied]) / deviation[varied]
    return np.asarray(apart.square().mean(dim=1).sqrt().numpy())
