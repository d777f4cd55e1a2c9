"""Pretrained image networks of transformers or timm, from their own files: weights, input size, normalisation.

model = describe(Files("folder/with/model", local_only=True))     # plain values, which a saved model keeps
network = PretrainedImages(model, shape, low, high, files=files)   # (n, C, H, W) → (n, features)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from dwac import _checks as checks
from dwac.encoders import image_networks as networks
from dwac.encoders import pretrained
from dwac.encoders.pretrained import Files
from dwac.errors import DwacError, InputError

# Models that transformers builds from the configuration alone: without another model, or code from the hub.
# fmt: off
MODEL_TYPES = (
    "beit", "bit", "convnext", "convnextv2", "cvt", "data2vec-vision", "deit", "dinov2", "dinov2_with_registers",
    "efficientnet", "focalnet", "hiera", "mobilenet_v1", "mobilenet_v2", "mobilevit", "mobilevitv2",
    "poolformer", "pvt_v2", "regnet", "resnet", "segformer", "swin", "swinv2", "vit", "vit_msn",
)
# fmt: on
_MEAN, _STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]  # ImageNet's, if a model's files have none
_SIDE = 224
_MOST_SIDE = 2048  # pixels
_MOST = {"layers": 256, "depths": 256, "depth": 256, "blocks": 256, "stages": 16}  # limits of repeated parts
_PICKLED = (".pth", ".pt", ".bin", ".ckpt")
_NOT_PASSED = ("pretrained", "checkpoint", "cache", "scriptable", "exportable", "no_jit", "num_classes", "in_chans")


def is_place(name: str) -> bool:
    """Whether a name may refer to a model: a folder, a file, an installed package, or a name on the hub."""
    return "/" in name or Path(name).exists() or name.endswith(_PICKLED) or bool(Files(name, local_only=True).packages)


def describe(files: Files, size: Sequence[int] | None = None) -> dict[str, Any]:
    """Library, architecture and input of a model, read from its files, as plain values.

    size: (height, width) at which it reads images; by default that of its training.
    """
    _refuse_pickle(files)
    config = files.json("config.json")
    if not isinstance(config, dict):
        raise InputError(f"{files.name} must be a model with a config.json; there is none{files.hint}")
    description = _describe_timm(config) if "architecture" in config else _describe_transformers(files)
    if size is not None:
        description["input"] = [description["input"][0], *size]
    return description


def _describe_timm(config: dict[str, Any]) -> dict[str, Any]:
    """timm's own layout: {"architecture": …, "model_args": {…}, "pretrained_cfg": {"mean": …, "input_size": …}}."""
    model = {"architecture": config["architecture"], "model_args": config.get("model_args") or {}}
    defaults = vars(_new_timm(model)).get("pretrained_cfg") or {}
    settings = {**defaults, **{name: value for name, value in config.items() if name in defaults}}
    settings |= config.get("pretrained_cfg") or {}
    return {
        "library": "timm",
        "model": model,
        "mean": [float(value) for value in settings.get("mean") or _MEAN],
        "std": [float(value) for value in settings.get("std") or _STD],
        "input": [int(value) for value in settings.get("input_size") or (3, _SIDE, _SIDE)],
        "resize": "bicubic" if settings.get("interpolation") == "bicubic" else "bilinear",
    }


def _describe_transformers(files: Files) -> dict[str, Any]:
    config = files.load("AutoConfig")
    pretrained.check_type(config.model_type, files.name, MODEL_TYPES)
    model = pretrained.strip_config(json.loads(config.to_json_string(use_diff=False)))
    settings = files.json("preprocessor_config.json") or {}
    channels = int(getattr(config, "num_channels", 3))
    normal = settings.get("do_normalize", True)
    return {
        "library": "transformers",
        "model": model,
        "mean": [float(value) for value in (settings.get("image_mean") or _MEAN)] if normal else [0.0] * channels,
        "std": [float(value) for value in (settings.get("image_std") or _STD)] if normal else [1.0] * channels,
        "input": [channels, *_sides(settings, getattr(config, "image_size", None))],
        "resize": "bicubic" if settings.get("resample") == 3 else "bilinear",
    }


def _sides(settings: Mapping[str, Any], default: Any) -> list[int]:
    """(height, width) of the input of a transformers model: after cropping, else resizing, else as configured."""
    cropped = settings.get("crop_size") if settings.get("do_center_crop", True) else None
    for size in (cropped, settings.get("size"), default):
        if isinstance(size, Mapping):
            size = [size["height"], size["width"]] if "height" in size else size.get("shortest_edge")
        if size:
            return [int(side) for side in (size if isinstance(size, list | tuple) else (size, size))]
    return [_SIDE, _SIDE]


def check_description(model: Any) -> None:
    """Raise an error for a stored description, perhaps of unknown origin, that `describe` cannot have written."""
    try:
        channels, height, width = (checks.positive_int(side, "input") for side in model["input"])
        scales = [*model["mean"], *model["std"]]
        right = len(model["mean"]) == len(model["std"]) == channels and min(model["std"]) > 0
        if not right or not all(type(value) in (int, float) and abs(value) < 1e6 for value in scales):
            raise InputError(f"a finite mean and a positive deviation per channel are required; got {scales!r:.100}")
        if max(channels, height, width) > _MOST_SIDE or model["resize"] not in ("bilinear", "bicubic"):
            raise InputError(f"its input must have at most {_MOST_SIDE} pixels per side; got {model['input']!r:.100}")
        checks.positive_int(model["features"], "features")
        pretrained.check_layers(model["trained_layers"], chosen=True)
        pretrained.check_numbers(model["model"], _MOST)
        if model["library"] == "transformers":
            pretrained.check_type(model["model"].get("model_type"), "the saved model", MODEL_TYPES)
        elif model["library"] != "timm":
            raise InputError(f"its library must be timm or transformers; got {model['library']!r:.40}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"not the description of a pretrained network: {error!r:.200}") from None


class PretrainedImages(nn.Module):
    """Images (n, C, H, W) of any size → (n, features) of a pretrained network, preprocessed as in its training.

    Pixels are stretched from low … high to 0 … 1, resized and normalised on the device. One channel is repeated, a
    fourth one (alpha) left out.

    Args:
        model: the result of `describe`, with "trained_layers".
        low, high: the range of the pixels.
        flip, moved: average several views of each image in evaluation; see `image_networks.Averaged`.
        files: where the weights are; without it they start at random, to be replaced by those of a saved model.
    """

    rows_at_once: ClassVar = {"cpu": 1, "cuda": 64}  # on a CPU, larger batches are not faster

    def __init__(
        self, model: Mapping[str, Any], *, low: float, high: float, flip: bool, moved: bool, files: Files | None = None
    ) -> None:
        super().__init__()
        span = (high - low) or 1.0
        mean, std = ([float(value) for value in model[name]] for name in ("mean", "std"))
        self.resize = _Resized(model["input"], model["resize"], low, low + span)
        self.standardise = networks.Standardise([low + span * part for part in mean], [span * part for part in std])
        core = _load(model, files)
        self.body = networks.average_views(core, flip=flip, moved=moved)
        self.rates = pretrained.freeze_layers(self, model["trained_layers"])

    def forward(self, images: Tensor) -> Tensor:
        """(n, features)."""
        features: Tensor = self.body(self.standardise(self.resize(images)))
        return features


class _Resized(nn.Module):
    """Converts images to the channels and the size that a network takes, as float32."""

    def __init__(self, shape: Sequence[int], mode: str, low: float, high: float) -> None:
        super().__init__()
        self.channels, self.size, self.mode = shape[0], tuple(shape[1:]), mode
        self.low, self.high = low, high

    def forward(self, images: Tensor) -> Tensor:
        images = images.float()
        if images.shape[1] != self.channels:
            images = images[:, :1].expand(-1, self.channels, -1, -1) if images.shape[1] == 1 else images[:, :3]
        if images.shape[2:] == self.size:
            return images
        images = F.interpolate(images, self.size, mode=self.mode, antialias=True, align_corners=False)
        return images.clamp(self.low, self.high) if self.mode == "bicubic" else images  # bicubic overshoots at edges


class _Pooled(nn.Module):
    """A network of transformers with one vector per image: from its own pooler, or else the first token.

    A pooler with a linear layer, such as ViT's, belongs to the pretraining task: then the first token is used.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        pooler = getattr(model, "pooler", None)
        self.token = isinstance(pooler, nn.Module) and any(isinstance(part, nn.Linear) for part in pooler.modules())
        if self.token and isinstance(pooler, nn.Module):
            pooler.requires_grad_(False)  # unused: its weights would get no gradient

    def forward(self, images: Tensor) -> Tensor:
        output = self.model(pixel_values=images)
        pooled = None if self.token else getattr(output, "pooler_output", None)
        if pooled is not None:
            return torch.as_tensor(pooled).flatten(1)
        states: Tensor = output.last_hidden_state
        return states[:, 0] if states.ndim == 3 else states.mean(dim=(2, 3))


def _load(model: Mapping[str, Any], files: Files | None) -> nn.Module:
    """The network, with the weights from its files if given."""
    if model["library"] == "transformers":
        if files is not None:
            return _Pooled(files.load("AutoModel", use_safetensors=True).float())
        return _Pooled(pretrained.new_model(model["model"]))
    network = _new_timm(model["model"])
    if files is not None:
        path = files.path("model.safetensors")
        if path is None:
            raise InputError(f"{files.name} must have weights in model.safetensors; there are none{files.hint}")
        try:
            weights = load_file(path)
            missing = network.load_state_dict(weights, strict=False).missing_keys  # the classifier's are not used
        except Exception as error:  # a damaged file, or other shapes
            raise InputError(f"{path} does not hold the weights of {model['model']['architecture']}: {error}") from None
        if missing:
            raise InputError(
                f"{path} does not hold the weights of {model['model']['architecture']}: {len(missing)} are missing, "
                f"such as {missing[0]}; convert them with timm, or name another architecture in config.json"
            )
    return network.float()


def _new_timm(model: Mapping[str, Any]) -> nn.Module:
    """A network of timm with random weights and without its classifier; nothing is downloaded."""
    name, options = model["architecture"], model["model_args"]
    timm = networks.find_timm(f"timm:{name}")
    if not isinstance(options, dict) or any(key.startswith(_NOT_PASSED) for key in options):
        raise InputError(f"model_args may not hold {', '.join(_NOT_PASSED)}; got {options!r:.200}")
    try:
        network: nn.Module = timm.create_model(name, pretrained=False, num_classes=0, **options)
    except Exception as error:  # timm may raise anything
        raise InputError(f"timm cannot build {name!r}: {error}; install another version of timm") from error
    return network


def count_features(network: PretrainedImages, shape: networks.Shape) -> int:
    """The number of features a network returns for images of this shape; an error if it does not accept them."""
    channels = network.resize.channels
    if shape[0] not in (1, channels, channels + 1):
        raise InputError(f"the network takes images with {channels} channels; got {shape[0]}; give images with 1 or 3")
    try:
        with torch.no_grad():
            features = network.eval()(torch.zeros(1, *shape))
    except Exception as error:  # networks may raise anything
        raise InputError(f"the network does not read images of that size: {error}; leave out size=…") from error
    if features.ndim != 2:
        raise DwacError(f"the network must return one vector per image; got shape {tuple(features.shape)}")
    return int(features.shape[1])


def _refuse_pickle(files: Files) -> None:
    """Raise an error for weights in a format that could run code."""
    place = Path(files.source)
    pickled = [place] if place.suffix in _PICKLED else []
    for folder in [place] if place.is_dir() else files.packages:
        if not any(folder.rglob("*.safetensors")):
            pickled += sorted(path for path in folder.rglob("*") if path.suffix in _PICKLED)
    if pickled:
        raise InputError(
            f"{pickled[0]} must be a safetensors file in a folder with the model's config.json: pickled weights can "
            "run code; convert them: from torch import load; from safetensors.torch import save_file; "
            f"weights = load({pickled[0].name!r}, weights_only=True); "
            "save_file({name: part.contiguous() for name, part in weights.items()}, 'model.safetensors')"
        )
