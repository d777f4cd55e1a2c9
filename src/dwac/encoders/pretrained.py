"""The common part of pretrained networks for texts and for images: their files, and how they are trained."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dwac import _checks as checks
from dwac.encoders.base import Recipe
from dwac.encoders.hf_tokenizer import import_optional, numbers_of
from dwac.errors import InputError

FINE_TUNED = Recipe(epochs=5, batch_size=64, learning_rate=5e-4, weight_decay=1e-2, patience=5, mixed_precision=True)
FIXED = Recipe(epochs=40, batch_size=128, weight_decay=1e-2, patience=8, penalty=1e-2, ensemble_size=4, on_cpu=4)
FEW = 2000  # examples: with fewer, frozen features work better
_TOP, _DECAY = 0.1, 0.9  # learning rates: of the uppermost layer relative to new layers, and from layer to layer
_LAYER = re.compile(r"\b(?:layers?|blocks?|stages?)\.?(\d+)(?:\.(?:layers?|blocks?))?(?:\.(\d+))?\.")
# Dropped from a configuration: a user's path, foreign code, parts fetched from the hub, and labels.
_DROPPED = re.compile(
    r"_.*|.*implementation.*|.*backbone.*|auto_map|quantization_config|transformers_version|num_labels|id2label|label2id"
)
_LARGEST = 2**24  # limit of any number in a configuration


@dataclass(frozen=True)
class Files:
    """The files of a model: in a folder, in an installed package, or on the Hugging Face hub."""

    name: str
    local_only: bool  # whether nothing may be downloaded

    @property
    def source(self) -> str:
        """A folder, possibly in an installed package of that name, or else the name on the hub."""
        for place in () if Path(self.name).is_dir() else self.packages:
            for config in sorted(place.rglob("config.json")):
                if any(config.parent.glob("*.safetensors")):
                    return str(config.parent)
        return self.name

    @property
    def packages(self) -> list[Path]:
        """The folders of an installed package of that name; its code is not run."""
        package = self.name.replace("-", "_")
        spec = find_spec(package) if package.isidentifier() else None
        return [Path(place) for place in (spec and spec.submodule_search_locations) or ()]

    def path(self, file: str) -> Path | None:
        """The path of a file; None if there is none."""
        source = self.source
        if Path(source).is_dir():
            return Path(source, file) if Path(source, file).is_file() else None
        try:
            hub = import_module("huggingface_hub")
            return Path(hub.hf_hub_download(source, file, local_files_only=self.local_only))
        except (ImportError, OSError, ValueError):
            return None

    def json(self, file: str) -> Any:
        """The content of a JSON file; None if there is none."""
        path = self.path(file)
        try:
            return None if path is None else json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def load(self, what: str, **options: Any) -> Any:
        """A part of the model, loaded by a class of transformers; code that comes with the model is never run."""
        transformers = import_optional("transformers")
        try:
            with _quiet(transformers):
                return getattr(transformers, what).from_pretrained(
                    self.source, local_files_only=self.local_only, trust_remote_code=False, **options
                )
        except (OSError, ValueError) as error:
            raise InputError(f"{self.name} must be a readable model; {what} failed: {error}{self.hint}") from None

    @property
    def hint(self) -> str:
        """What to do if files are missing."""
        return "; give a folder, or set local_files_only=False to download it" if self.local_only else ""


def new_model(description: dict[str, Any]) -> nn.Module:
    """A network of transformers with random weights, from its plain configuration; nothing is downloaded."""
    transformers = import_optional("transformers")
    options = {name: value for name, value in description.items() if name != "model_type"}
    config = transformers.AutoConfig.for_model(description["model_type"], **options)
    kind = transformers.MODEL_MAPPING[type(config)]
    attention = "sdpa" if getattr(kind, "_supports_sdpa", False) else "eager"  # other kinds may be downloaded
    model: nn.Module = transformers.AutoModel.from_config(
        config, trust_remote_code=False, attn_implementation=attention
    )
    return model


def strip_config(config: Any) -> Any:
    """A configuration without entries that are private or refer elsewhere, at every depth."""
    if isinstance(config, list):
        return [strip_config(value) for value in config]
    if not isinstance(config, dict):
        return config
    return {name: strip_config(value) for name, value in config.items() if not _DROPPED.fullmatch(name)}


def check_numbers(config: Any, limits: dict[str, int]) -> None:
    """Raise an error for a stored configuration whose numbers ask for far more time or memory than its weights.

    limits: suffixes of names, and the limit of such numbers; all others share one limit.
    """
    for name, value in numbers_of(config):
        most = next((most for ending, most in limits.items() if name.endswith(ending)), _LARGEST)
        if abs(value) > most:
            raise InputError(f"the saved model's {name} must be at most {most:,}; got {value!r:.40}")


def check_type(model_type: Any, name: str, known: Sequence[str]) -> None:
    """Raise an error for a kind of model that is not among the known ones."""
    if model_type not in known:
        raise InputError(f"{name} is of type {model_type!r}; choose a model of type {', '.join(known)}")


def check_layers(trained_layers: Any, *, chosen: bool = False) -> Any:
    """The argument `trained_layers`, or the value chosen for it, checked: a whole number or "all"."""
    if trained_layers not in (("all",) if chosen else ("auto", "all")):
        checks.positive_int(trained_layers, "trained_layers", minimum=0)
    return trained_layers


def choose_layers(trained_layers: int | str, rows: int) -> int | str:
    """How many layers to train: "auto" means all on a machine with a GPU if there are 2,000 examples, else none."""
    if trained_layers != "auto":
        return trained_layers
    return "all" if torch.cuda.is_available() and rows >= FEW else 0


def freeze_layers(module: nn.Module, trained_layers: int | str) -> dict[str, float]:
    """Freeze all but the upper `trained_layers`; returns learning rates of parameters, relative to new layers."""
    depths = _depths([name for name, _ in module.named_parameters()])
    for name, part in module.named_parameters():
        if trained_layers != "all" and depths[name] >= int(trained_layers):
            part.requires_grad_(False)
    return {name: _TOP * _DECAY**depth for name, depth in depths.items()}


def _depths(names: list[str]) -> dict[str, int]:
    """How far below the top the layer of each parameter is: 0 in the uppermost layer and above it.

    >>> _depths(["stem.weight", "stages.0.blocks.0.bias", "stages.1.bias", "stages.1.blocks.0.bias", "norm.bias"])
    {'stem.weight': 3, 'stages.0.blocks.0.bias': 2, 'stages.1.bias': 1, 'stages.1.blocks.0.bias': 0, 'norm.bias': 0}
    """
    layers = {name: (int(at[1]), int(at[2] or -1)) for name in names if (at := _LAYER.search(name))}
    ranks = {layer: rank for rank, layer in enumerate(sorted(set(layers.values())))}
    first = next((number for number, name in enumerate(names) if name in layers), 0)
    below = {name for number, name in enumerate(names) if number < first or "embedding" in name}
    depths = {name: len(ranks) if name in below else 0 for name in names}
    return depths | {name: len(ranks) - 1 - ranks[layer] for name, layer in layers.items()}


class FeatureHead(nn.Module):
    """(n, width) → (n, width + 256): standardised features of a pretrained network, and a layer over them.

    In training, a fifth of the features is dropped: several heads then differ, and vote better together.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.standardise = nn.Sequential(nn.LayerNorm(width, elementwise_affine=False), nn.Dropout(0.2))
        self.layer = nn.Sequential(nn.Linear(width, 256), nn.GELU(), nn.Dropout(0.3))

    def forward(self, features: Tensor) -> Tensor:
        """The standardised features and the layer's, side by side."""
        features = self.standardise(features)
        return torch.cat([features, self.layer(features)], dim=1)


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Hide progress bars of quick operations."""
    log = transformers.utils.logging
    shown = log.is_progress_bar_enabled()
    log.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            log.enable_progress_bar()
