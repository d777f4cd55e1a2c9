"""Raw x → tensors → features, one file per modality; `choose` returns the encoder for an X."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor, nn
from torch.utils.data import Dataset

from dwac.encoders.base import Encoder, Recipe
from dwac.encoders.huggingface import HuggingFaceEncoder
from dwac.encoders.image import ImageEncoder
from dwac.encoders.module import ModuleEncoder
from dwac.encoders.pictures import SUFFIXES
from dwac.encoders.tabular import TabularEncoder
from dwac.encoders.text import TextEncoder, is_missing
from dwac.errors import InputError

__all__ = [
    "ENCODERS",
    "Encoder",
    "HuggingFaceEncoder",
    "ImageEncoder",
    "ModuleEncoder",
    "Recipe",
    "TabularEncoder",
    "TextEncoder",
    "choose",
]

ENCODERS: dict[str, type[Encoder]] = {
    encoder.kind: encoder for encoder in (TabularEncoder, ImageEncoder, TextEncoder, HuggingFaceEncoder, ModuleEncoder)
}


def choose(encoder: Any, X: Any) -> Encoder:
    """The encoder that the argument `encoder` selects for this X.

    "auto" looks at X: a DataFrame or 2-D array is a table; 3-D or 4-D arrays, image files and PIL images are images;
    strings are texts. "tabular", "image" and "text" name an encoder; "tabular:paper" or "image:resnet18" also one of
    its networks; "image:FOLDER" or "huggingface:NAME" a pretrained model. An nn.Module or `Encoder` is used directly.

    >>> choose("auto", pd.DataFrame({"age": [31, 52]})).kind, choose("auto", ["a text", "another"]).kind
    ('tabular', 'text')
    >>> sorted(ENCODERS)
    ['huggingface', 'image', 'module', 'tabular', 'text']
    """
    if isinstance(encoder, ModuleEncoder):
        return copy.copy(encoder)  # a copy keeps the module, which is code and therefore not in the config
    if isinstance(encoder, Encoder):
        return type(encoder).from_config(encoder.config())
    if isinstance(encoder, nn.Module):
        return ModuleEncoder(encoder)
    if isinstance(encoder, type):
        raise InputError(f"encoder must be an object; got the class {encoder.__name__}; write {encoder.__name__}(…)")
    if not isinstance(encoder, str):
        raise InputError(f"encoder must be a name, an nn.Module or an Encoder; got {type(encoder).__name__}")
    kind, _, network = encoder.partition(":")
    kind = _kind_of(X) if kind == "auto" else kind
    if kind == "huggingface" and network:
        return HuggingFaceEncoder(network)
    named: dict[str, Callable[..., Encoder]] = {"tabular": TabularEncoder, "image": ImageEncoder, "text": TextEncoder}
    if kind not in named:
        raise InputError(
            f"unknown encoder {encoder!r}; choose auto, {', '.join(named)}, huggingface:NAME, or give an nn.Module"
        )
    return named[kind](network) if network else named[kind]()


def backbone(encoder: Encoder, ensemble_size: int) -> nn.Module:
    """A new network from the encoder, or an ensemble of several."""
    return encoder.network() if ensemble_size == 1 else encoder.ensemble(ensemble_size)


def _kind_of(X: Any) -> str:
    if isinstance(X, pd.DataFrame):
        return "tabular"
    if isinstance(X, Tensor | np.ndarray) and X.ndim in (3, 4):
        return "image"
    if isinstance(X, Dataset) or (isinstance(X, tuple) and X and all(isinstance(part, Tensor) for part in X)):
        raise InputError("a Dataset or tuple of tensors needs a network made for its items; pass encoder=your_module")
    if isinstance(X, list | tuple | pd.Series) or (isinstance(X, np.ndarray) and X.ndim == 1):
        first = next((item for item in X if not is_missing(item)), None)
        if isinstance(first, str):
            return "image" if first.lower().endswith(SUFFIXES) and "\n" not in first else "text"
        if type(first).__module__.partition(".")[0] == "PIL" or hasattr(first, "__fspath__"):
            return "image"
        if isinstance(first, np.ndarray | Tensor) and first.ndim in (2, 3):
            return "image"
    return "tabular"
