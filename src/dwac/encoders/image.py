"""Images: arrays, tensors, PIL images or files → (n, C, H, W) → a convolutional network.

encoder = ImageEncoder().fit(X)           # (n, H, W), (n, H, W, C), (n, C, H, W), or a list of arrays, pictures, paths
(images,) = encoder.transform(X)          # uint8 stays uint8; the network standardises on the device
features = encoder.network()(images)      # (n, features)
"""

from __future__ import annotations

import importlib
import io
import math
import os
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dwac import _checks as checks
from dwac.encoders import image_networks as networks
from dwac.encoders import image_pretrained
from dwac.encoders.base import Encoder, Recipe, array_of, require_one
from dwac.encoders.image_pretrained import PretrainedImages
from dwac.encoders.likeness import pixel_distances
from dwac.encoders.pretrained import FINE_TUNED, FIXED, FeatureHead, Files, check_layers, choose_layers
from dwac.errors import DwacError, InputError, NonFiniteError, ShapeError
from dwac.nn import Ensemble
from dwac.nn.batches import Inputs
from dwac.nn.ensemble import SharedBackbone

Array = NDArray[Any]
MOST_PIXELS = 50_000_000  # limit for an image file, about 8,000 × 6,000; a file of a few kilobytes can claim any number
MOST_NUMBERS = 2**26  # limit for an image as the network takes it, C × H × W: 256 MiB
_PNG = b"\x89PNG\r\n\x1a\n"  # the first bytes of a PNG file
_DATA = 41  # where the pixels of a PNG written here begin: 33 bytes of header, and 8 that start the chunk of data
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # Pillow's names, by number of channels
_GREY = {"1", "L", "LA", "La", "I;16", "I;16L", "I;16B", "I;16N"}
_SMALLER = f"at most {MOST_PIXELS:,} are allowed; make it smaller"
_ADDRESS = re.compile(r" <_io\.BytesIO object at 0x[0-9a-f]+>")  # in Pillow's messages about images without a file name
_ACCEPTED = "an array (n, H, W), (n, H, W, C) or (n, C, H, W), or a list of arrays, PIL images or file paths"


@dataclass(frozen=True)
class ImageFormat:
    """The image format learned by `fit`; every later X is read accordingly."""

    layout: str  # the axes of one image: "HW", "HWC" or "CHW"
    numbers: str  # "uint8": whole numbers 0 … 255; "whole": other whole numbers; "float"
    shape: networks.Shape
    mean: tuple[float, ...]  # per channel
    std: tuple[float, ...]
    low: float
    high: float
    rows: int
    width: int

    @property
    def lengths(self) -> tuple[int, ...]:
        """The shape of one image in its layout."""
        return tuple(self.shape["CHW".index(axis)] for axis in self.layout)

    @property
    def bytes(self) -> bool:
        """Whether 0 is black and 255 white. Whole numbers far below 255 (such as 0 … 16) would all look black."""
        return self.numbers == "uint8" and self.high >= 128

    def __str__(self) -> str:
        return f"(n, {', '.join(map(str, self.lengths))}) of {self.numbers} numbers {self.low:g} … {self.high:g}"


class ImageEncoder(Encoder):
    """Images of one size, and a convolutional network for them.

    Fit infers the channel axis: the last one if it has length 1, 3 or 4, else the one after n. If both are possible, as
    in (n, 3, 3, 3), it is the last one, unless `channels` says otherwise. All arrays must have the same size. Files and
    PIL images are turned upright, converted to one mode (grey if all are grey, RGBA if all have an alpha channel, else
    RGB) and resized to `size` without keeping their proportions.

    A pretrained network is read from its own files, which define the size and normalisation of its images: arrays of
    any size are resized on the device. A frozen network reads each training image once, and small networks over its
    features are trained in seconds, without a GPU. In fine-tuning, lower layers learn more slowly than upper ones, and
    all more slowly than new layers. A saved model needs none of the files. Weights are read only from safetensors
    files, and code that comes with a model is never run.

    Args:
        network: "default", a short residual network; "paper", the paper's for Fashion-MNIST; "resnet18";
            "timm:NAME", any network of the timm library; or a pretrained network of transformers or timm: a folder with
            its config.json and safetensors files, an installed package that has such a folder, or its name on the
            Hugging Face hub.
        augment: randomly vary training batches; "auto": for every network except the paper's.
        shift: move each image by up to this many pixels; by default a twelfth of the shorter side.
        flip: also mirror half of them left to right, and predict from each image and its mirror image. Off by default,
            because a mirrored digit or letter means something else. Turn it on for photographs, clothes, animals.
        average_moved: predict also from copies of each image that are moved by a pixel: a little more accurate, and
            three times the work. Not for images that are never moved (`augment=False`).
        cutout: also blank a square whose side is this share of the shorter side; by default 0.3 for images of at least
            16 pixels a side; 0 for none.
        size: (height, width), or one number for both, for files and PIL images; by default that of the first image. A
            pretrained network resizes any images to it; by default to the size it was trained with.
        channels: "last", "first" or "auto".
        width: channels of the default network's first stage; by default 64, or 32 for tiny images or few rows.
        pretrained: download timm's weights for "timm:NAME". Otherwise, and when a saved model is restored, nothing is
            downloaded.
        trained_layers: how many of the upper layers of a pretrained network are fine-tuned, or "all"; 0: none; "auto":
            all on a machine with a GPU if there are 2,000 images or more, else none.
        local_files_only: False allows downloading a pretrained network from the hub.

    >>> encoder = ImageEncoder().fit(np.zeros((5, 28, 28), dtype=np.uint8))
    >>> encoder.transform(np.zeros((2, 28, 28), dtype=np.uint8))[0].shape
    torch.Size([2, 1, 28, 28])
    """

    kind: ClassVar[str] = "image"

    def __init__(
        self,
        network: str | os.PathLike[str] = "default",
        *,
        augment: bool | str = "auto",
        shift: int | None = None,
        flip: bool = False,
        average_moved: bool = False,
        cutout: float | None = None,
        size: int | tuple[int, int] | None = None,
        channels: str = "auto",
        width: int | None = None,
        pretrained: bool = False,
        trained_layers: int | str = "auto",
        local_files_only: bool = True,
    ) -> None:
        network = os.fspath(network) if isinstance(network, os.PathLike) else str(network)
        if trained_layers != "auto" and _is_built_in(network):
            raise InputError(
                f"trained_layers is for a pretrained network from a folder, package or hub; got network={network!r}"
            )
        if not _is_built_in(network) and not image_pretrained.is_place(network):
            raise InputError(
                f"unknown network {network!r}; choose {', '.join(networks.NAMES)} or timm:NAME, "
                "or give the folder of a pretrained network"
            )
        if cutout is not None and (
            isinstance(cutout, bool) or not isinstance(cutout, int | float) or not 0 <= cutout < 1
        ):
            raise InputError(f"cutout must be a share of the image's side in [0, 1); got {cutout!r}")
        self.settings: dict[str, Any] = {
            "network": network,
            "augment": _check_choice(augment, "augment", True, False, "auto"),
            "shift": None if shift is None else checks.positive_int(shift, "shift", minimum=0),
            "flip": _check_choice(flip, "flip", True, False),
            "average_moved": _check_choice(average_moved, "average_moved", True, False),
            "cutout": None if cutout is None else float(cutout),
            "size": _check_size(size),
            "channels": _check_choice(channels, "channels", "last", "first", "auto"),
            "width": None if width is None else checks.positive_int(width, "width"),
            "pretrained": _check_choice(pretrained, "pretrained", True, False),
            "trained_layers": check_layers(trained_layers),
            "local_files_only": _check_choice(local_files_only, "local_files_only", True, False),
        }
        self._seen: ImageFormat | None = None
        self._model: dict[str, Any] | None = None  # of a pretrained network: its description, and how it is trained
        self.recipe = _recipe_of(network, 0)
        self._restored = False

    def __repr__(self) -> str:
        return f"ImageEncoder({', '.join(f'{name}={value!r}' for name, value in self.settings.items())})"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the layout, size, number type, and mean and standard deviation per channel; y is not used."""
        del y
        name, size = self.settings["network"], self.settings["size"]
        if name.startswith("timm:"):
            networks.find_timm(name)
        model = None if _is_built_in(name) else image_pretrained.describe(self._files, size)
        size = size if model is None else model["input"][1:]
        data = read_pictures(X)
        if isinstance(data, list):
            array = _decode(data, _mode_of(data), size)
            layout, numbers = "HWC"[: array.ndim - 1], "uint8"
        else:
            array, layout, numbers = data, _layout_of(data.shape, self.settings["channels"]), _number_type(data)
            _require_size(array.shape[1:])
        images = _tensor(array, layout, numbers)
        channels, height, wide = images.shape[1:]
        if model is None and size not in (None, [height, wide]):
            raise InputError(
                f"size={size} only resizes files and PIL images; got arrays {array.shape}; resize them first"
            )
        least = networks.LEAST_SIDE.get(name, 2)
        if min(height, wide) < least:
            raise ShapeError(
                f"network={name!r} needs at least {least}×{least} pixels; got {height}×{wide} with {channels} channels"
                '; if another axis holds the channels, set channels="first" or "last"'
            )
        small = min(height, wide) <= 12 or len(images) < 5000
        mean, std = _mean_and_deviation(images)
        low, high = float(images.min()), float(images.max())
        width = self.settings["width"] or (32 if small else 64)
        seen = ImageFormat(layout, numbers, (channels, height, wide), mean, std, low, high, len(images), width)
        if model is not None:
            model["trained_layers"] = choose_layers(self.settings["trained_layers"], len(images))
            pretrained = self._new_pretrained(model, seen, self._files)
            model["features"] = image_pretrained.count_features(pretrained, seen.shape)
        self._seen, self._model, self._restored = seen, model, False
        self.recipe = _recipe_of(name, len(images), model)
        return self

    @property
    def seen(self) -> ImageFormat:
        """What fit learned; an error before fit."""
        if self._seen is None:
            raise InputError("the image encoder is not fitted; call fit(X) with training images first")
        return self._seen

    def transform(self, X: Any) -> Inputs:
        """One tensor (n, C, H, W): uint8 if fit saw whole numbers 0 … 255, else float32."""
        return (self._images(read_pictures(X, self.seen.lengths)),)

    def _images(self, data: Array | list[Any]) -> Tensor:
        seen = self.seen
        if not isinstance(data, list):
            if data.shape[1:] != seen.lengths:
                raise ShapeError(f"X must be like the training images, {seen}; got shape {data.shape}")
            _match_numbers(data, seen)
            return _tensor(data, seen.layout, seen.numbers)
        if seen.numbers != "uint8" or seen.shape[0] not in _MODES:
            raise InputError(
                f"X must be arrays like the training images, {seen}; got pictures; convert them in the same way"
            )
        array = _decode(data, _MODES[seen.shape[0]], seen.shape[1:])
        return _tensor(array, "HWC"[: array.ndim - 1], "uint8")

    def network(self) -> nn.Module:
        """A new backbone, (n, C, H, W) → (n, features); its first layer standardises."""
        seen = self.seen
        if self._model is not None:
            return self.ensemble(1) if self._frozen else self._new_pretrained(self._model, seen, self._new_files)
        # A restored encoder gets its weights from the saved model, so there is no need to download others.
        pretrained = self.settings["pretrained"] and not self._restored
        return networks.build(
            self.settings["network"],
            seen.shape,
            seen.mean,
            seen.std,
            width=seen.width,
            pretrained=pretrained,
            **self._views,
        )

    def ensemble(self, size: int) -> Ensemble:
        """Several new networks; with a pretrained one, several small networks over it."""
        if self._model is None:
            return super().ensemble(size)
        shared = self._new_pretrained(self._model, self.seen, self._new_files)
        return SharedBackbone(shared, [FeatureHead(self._model["features"]) for _ in range(size)], fixed=self._frozen)

    def _new_pretrained(self, model: dict[str, Any], seen: ImageFormat, files: Files | None) -> PretrainedImages:
        low, high = (0.0, 255.0) if seen.bytes else (seen.low, seen.high)
        return PretrainedImages(model, low=low, high=high, files=files, **self._views)

    @property
    def _views(self) -> dict[str, bool]:
        """Which views of an image a prediction averages: only those used in training."""
        return {
            "flip": self.settings["flip"] and self._varies,
            "moved": self.settings["average_moved"] and self._varies,
        }

    @property
    def _files(self) -> Files:
        return Files(self.settings["network"], self.settings["local_files_only"])

    @property
    def _new_files(self) -> Files | None:
        """The files with a new network's weights; a restored encoder's come from the saved model."""
        return None if self._restored else self._files

    @property
    def _frozen(self) -> bool:
        """Whether a pretrained network is frozen."""
        return self._model is not None and self._model["trained_layers"] == 0

    @property
    def _varies(self) -> bool:
        """Whether training batches are varied."""
        augment = self.settings["augment"]
        return bool(self.settings["network"] != "paper" if augment == "auto" else augment)

    def augment(self, inputs: Inputs, generator: torch.Generator) -> Inputs:
        """The batch with each image moved, perhaps mirrored and partly blanked; see the arguments of the class."""
        if not self._varies or self._frozen:  # a frozen network reads the images once, and its features are the inputs
            return inputs
        seen, shift = self.seen, self.settings["shift"]
        shift = max(1, round(min(seen.shape[1:]) / 12)) if shift is None else shift
        flip, cutout = self.settings["flip"], self.settings["cutout"]
        cutout = (0.3 if min(seen.shape[1:]) >= 16 else 0.0) if cutout is None else cutout
        return (networks.vary(inputs[0], generator, shift=shift, flip=flip, cutout=cutout, fill=seen.mean),)

    def config(self) -> dict[str, Any]:
        """The settings, and under "seen" what fit learned (None before fit), as JSON values."""
        seen = None if self._seen is None else asdict(self._seen)
        plain = seen and {name: list(value) if isinstance(value, tuple) else value for name, value in seen.items()}
        return {"kind": self.kind, **self.settings, "seen": plain, "model": self._model}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Restore the encoder from its config; nothing is downloaded."""
        settings = {name: value for name, value in config.items() if name not in ("kind", "seen", "model")}
        model = config.get("model")
        if model is not None:  # its folder may be gone
            image_pretrained.check_description(model)
            settings = {**settings, "network": "default", "trained_layers": "auto"}
        try:
            encoder, seen = cls(**settings), config["seen"]
            if model is not None:
                encoder._model = model
                encoder.settings |= {name: config[name] for name in ("network", "trained_layers")}
            if seen is not None:
                listed = {name: tuple(seen[name]) for name in ("shape", "mean", "std")}
                encoder._seen = ImageFormat(**{**seen, **listed})
                encoder.recipe = _recipe_of(config["network"], encoder.seen.rows, model)
        except (KeyError, TypeError) as error:
            raise InputError(f"not the config of an image encoder: {error}") from None
        encoder._restored = True
        return encoder

    def check(self) -> None:
        """Raise an error for values that fit can never have learned."""
        seen = self.seen
        whole = {"rows": seen.rows, "width": seen.width, **dict(zip("CHW", seen.shape, strict=True))}
        for name, size in whole.items():
            checks.positive_int(size, f"images' {name}")
        _require_size(seen.shape)
        floats = (*seen.mean, *seen.std, seen.low, seen.high)
        if any(type(x) not in (int, float) or not abs(x) < 1e38 for x in floats) or min(seen.std, default=0) <= 0:
            raise InputError(f"images must have a finite mean and range and a positive deviation; got {seen!r:.300}")
        one_channel = seen.layout == "HW" and seen.shape[0] == 1
        if not len(seen.mean) == len(seen.std) == seen.shape[0] or not (one_channel or seen.layout in ("HWC", "CHW")):
            raise InputError(f"images must have one mean and deviation per channel, and a layout; got {seen!r:.300}")
        if seen.numbers not in ("uint8", "whole", "float"):
            raise InputError(f"images must hold uint8, whole or float numbers; got {seen.numbers!r:.40}")

    def check_records(self, records: pd.DataFrame) -> None:
        """Raise an error for images that `records` cannot have written: images of another size, even in small files."""
        sides = struct.pack(">II", self.seen.shape[2], self.seen.shape[1])
        for name, png in records["image"].items() if "image" in records else ():
            if not isinstance(png, bytes) or png[:8] != _PNG or png[16:24] != sides:
                raise InputError(
                    f"the record of {name!r:.100} must be a PNG of {self.seen.shape[1:]} pixels; it is not"
                )

    def records(self, X: Any) -> pd.DataFrame:
        """One row per image: "image", a PNG of the pixels the network sees; and "path", if files were given.

        Numbers other than 0 … 255 are stretched to that range from the minimum and maximum of the training images.
        """
        data = read_pictures(X)
        images = self._to_bytes(self._images(data))
        frame = pd.DataFrame({"image": [_write_png(pixels) for pixels in images.permute(0, 2, 3, 1).numpy()]})
        if isinstance(data, list) and any(map(_is_path, data)):
            frame["path"] = [os.fspath(item) if _is_path(item) else None for item in data]
        return frame

    def _to_bytes(self, images: Tensor) -> Tensor:
        """(n, 1, 3 or 4, H, W) uint8: images as a person sees them; other numbers of channels are averaged."""
        seen = self.seen
        if not seen.bytes:
            scale = 255 / ((seen.high - seen.low) or 1.0)
            images = ((images.float() - seen.low) * scale).clamp(0, 255).round().to(torch.uint8)
        if seen.shape[0] not in _MODES:
            images = images.float().mean(dim=1, keepdim=True).round().to(torch.uint8)
        return images

    def input_distances(self, X_one: Any, X_many: Any) -> NDArray[np.float64]:
        """(n,): root mean squared difference of copies pooled to 8 × 8 pixels; see `Encoder.input_distances`.

        The pixels are those that `records` shows, so images and their records give the same distances.
        """
        one, many = self._read_as_shown(X_one), self._read_as_shown(X_many)
        require_one(len(one))
        return pixel_distances(one, many)

    def _read_as_shown(self, X: Any) -> Tensor:
        """(n, C, H, W) uint8: X, or a frame of records, as a person sees it."""
        if not isinstance(X, pd.DataFrame) or "image" not in X:
            return self._to_bytes(self._images(read_pictures(X, self.seen.lengths)))
        channels, height, width = self.seen.shape
        shape = (height, width, channels if channels in _MODES else 1)
        pixels = np.empty((len(X), *shape), dtype=np.uint8)
        for row, png in enumerate(X["image"]):
            pixels[row] = _read_png(png, shape)
        return torch.from_numpy(pixels).movedim(-1, 1).contiguous()


def _is_built_in(network: str) -> bool:
    """Whether a network is built into dwac or timm, not one with its own files."""
    return network in networks.NAMES or network.startswith("timm:")


def _recipe_of(network: str, rows: int, model: dict[str, Any] | None = None) -> Recipe:
    if model is not None:
        return FIXED if model["trained_layers"] == 0 else FINE_TUNED
    if network == "paper":
        return Recipe(50, batch_size=128, learning_rate=1e-3, weight_decay=0.0, patience=5, compiled=True)
    # The examples of a batch vote on each other, so batches are large; small data still get some 25 steps per epoch.
    few = rows < 5000
    batch_size = 2 ** min(8, max(5, round(float(np.log2(max(rows, 1) / 25)))))
    return Recipe(
        epochs=20 if few else 60,
        batch_size=batch_size,
        learning_rate=2e-3 if few else 4e-3,
        weight_decay=0.05 if few else 0.2,
        patience=15,
        embedding_size=32,
        auxiliary_weight=1.0,
        ensemble_size=2 if few else 3,
        mixed_precision=True,
        compiled=not network.startswith("timm:"),
    )


def _check_choice(value: Any, name: str, *choices: Any) -> Any:
    if not any(value == choice and type(value) is type(choice) for choice in choices):
        raise InputError(f"{name} must be {' or '.join(map(repr, choices))}; got {value!r}")
    return value


def _require_size(shape: tuple[int, ...]) -> None:
    """Raise an error for images so large that only a few would fit into memory."""
    if math.prod(shape) > MOST_NUMBERS:
        raise InputError(
            f"images of {' × '.join(map(str, shape))} numbers are too large; at most {MOST_NUMBERS:,} are allowed; "
            "resize the images; for files, set size=(height, width)"
        )


def _check_size(size: Any) -> list[int] | None:
    if size is None:
        return None
    pair = size if isinstance(size, tuple | list) else (size, size)
    if len(pair) != 2:
        raise InputError(f"size must be (height, width) or one number for both; got {size!r}")
    return [checks.positive_int(side, "size") for side in pair]


# Reading: X → one numeric array (n, …), or a list of pictures.


def _is_path(item: Any) -> bool:
    return isinstance(item, str | os.PathLike)


def _is_picture(item: Any) -> bool:
    pillow: Any = sys.modules.get("PIL.Image")  # if there is a PIL image, PIL has been imported
    return _is_path(item) or isinstance(item, bytes) or (pillow is not None and isinstance(item, pillow.Image))


def read_pictures(X: Any, lengths: tuple[int, ...] | None = None) -> Array | list[Any]:
    """X as an array (n, …) of numbers, or as a list of pictures: paths, PIL images, or the bytes of image files.

    lengths: the shape that an image must have, if known.
    """
    if isinstance(X, pd.DataFrame) or _is_picture(X):
        raise InputError(f"X must be {_ACCEPTED}; got one {type(X).__name__}; for a column of paths, pass X['path']")
    X = array_of(X) if isinstance(X, Tensor) else X
    array = np.asarray(X) if hasattr(X, "__array__") else None
    if array is None and not isinstance(X, list | tuple):
        raise InputError(f"X must be {_ACCEPTED}; got {type(X).__name__}")
    if array is None or array.dtype.kind in "OUSTV":
        items = list(X)
        array = None if items and any(map(_is_picture, items)) else _stack(items, lengths)
        if array is None:
            _raise_faults({row: fault for row, item in enumerate(items) if (fault := _fault_of(item))})
            return items
    if not array.size:
        raise InputError(f"X must hold at least one image of at least one pixel; got shape {array.shape}")
    return array


def _fault_of(item: Any) -> str:
    """What is wrong with one of several pictures; "" if nothing seems to be."""
    if not _is_picture(item):
        return f"it is a {type(item).__name__} among pictures; give pictures only"
    return f"there is no file {os.fspath(item)!r}" if _is_path(item) and not os.path.isfile(item) else ""


def _raise_faults(faults: dict[int, str]) -> None:
    """Raise an error that names the first bad row and carries all of them."""
    for row, fault in faults.items():
        raise InputError(f"row {row}: {fault}", rows=faults)


def _stack(items: list[Any], lengths: tuple[int, ...] | None) -> Array:
    arrays = []
    for row, item in enumerate(items):
        try:
            arrays.append(array_of(item) if isinstance(item, Tensor) else np.asarray(item))
        except ValueError as error:
            fault = f"no image: {error}"
            raise InputError(f"row {row} is {fault}", rows={row: fault}) from None
    shapes = [array.shape for array in arrays]
    wanted = lengths if lengths in shapes else shapes[0] if shapes else ()
    odd = [row for row, shape in enumerate(shapes) if shape != wanted]
    if odd:
        raise ShapeError(
            f"all images must have the same shape, {wanted}; row {odd[0]} has {shapes[odd[0]]}; "
            "resize them, or give PIL images or files, which are resized to size=…",
            rows={row: f"the image must have the shape {wanted}; got {shapes[row]}" for row in odd},
        )
    return np.stack(arrays) if arrays else np.empty(0)


def _layout_of(shape: tuple[int, ...], channels: str) -> str:
    if len(shape) == 3:
        return "HW"
    if len(shape) != 4:
        hint = "; one image is X[None], flat pixels are X.reshape(n, H, W)" if len(shape) == 2 else ""
        raise ShapeError(f"X must be {_ACCEPTED}; got shape {shape}{hint}")
    if channels == "last" or (channels == "auto" and shape[3] in _MODES):
        return "HWC"
    if channels == "first" or shape[1] in _MODES:
        return "CHW"
    raise ShapeError(f'no axis of {shape} has length 1, 3 or 4; set channels="first" or "last"')


def _number_type(array: Array) -> str:
    if array.dtype.kind not in "biuf":
        raise InputError(f"pixels must be real numbers; got {array.dtype}")
    if array.dtype.kind == "f":
        return "float"
    small = array.dtype.itemsize == 1 or (array.dtype != np.uint16 and int(array.max()) <= 255)
    return "uint8" if small and int(array.min()) >= 0 else "whole"


def _match_numbers(array: Array, seen: ImageFormat) -> None:
    """Raise an error if the number type differs from fit: 0 … 1 read as 0 … 255 would be wrong but look right."""
    numbers = _number_type(array)
    if (numbers == "float") != (seen.numbers == "float"):
        raise InputError(f"X must be like the training images, {seen}; got {array.dtype}; prepare X in the same way")
    if seen.numbers == "uint8" and numbers != "uint8":
        outside = ((array < 0) | (array > 255)).reshape(len(array), -1).any(axis=1)
        if outside.any():
            rows = [int(row) for row in np.flatnonzero(outside)]
            raise InputError(
                f"X must be like the training images, {seen}; row {rows[0]} holds numbers outside 0 … 255",
                rows=dict.fromkeys(rows, "the image holds numbers outside 0 … 255"),
            )


def _tensor(array: Array, layout: str, numbers: str) -> Tensor:
    """(n, …) in its layout → (n, C, H, W), uint8 or finite float32."""
    with np.errstate(over="ignore"):  # numbers too large for float32 become infinite, which is detected below
        array = array.astype(np.uint8 if numbers == "uint8" else np.float32, copy=False)
    if numbers == "float":
        finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
        if not finite.all():
            rows = [int(row) for row in np.flatnonzero(~finite)]
            raise NonFiniteError(
                f"pixels must be finite; row {rows[0]} holds NaN or infinity; drop or repair that row",
                rows=dict.fromkeys(rows, "the image holds NaN or infinity"),
            )
    tensor = torch.from_numpy(np.require(array, requirements=["C", "W"]))
    return {"HW": tensor[:, None], "CHW": tensor}.get(layout, tensor.movedim(-1, 1)).contiguous()


def _mean_and_deviation(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel, in float64 and in parts; a constant channel gets a deviation of 1."""
    parts = images.split(max(1, 2**22 // images[0].numel()))
    count = images[:, 0].numel()
    mean = sum(part.double().sum(dim=(0, 2, 3)) for part in parts) / count
    centre = mean.view(1, -1, 1, 1)
    variance = sum((part.double() - centre).square().sum(dim=(0, 2, 3)) for part in parts) / count
    std = variance.sqrt()
    std = torch.where(std > 1e-6 * mean.abs() + 1e-30, std, torch.ones_like(std))
    return tuple(mean.tolist()), tuple(std.tolist())


# Pictures: Pillow is imported only here, so arrays need only the base installation.


def _import_pillow(module: str) -> Any:
    try:
        return importlib.import_module(f"PIL.{module}")
    except ImportError:
        raise InputError("image files and PIL images need Pillow; install it: pip install 'dwac[image]'") from None


@contextmanager
def open_picture(row: int, item: Any) -> Iterator[Any]:
    """A path, the bytes of a file or a PIL image, as a PIL image that is safe to decode.

    An image with too many pixels, several frames or numbers of unknown range is refused before it is decoded. Every
    error raised while it is open names the row and the file.
    """
    pillow = _import_pillow("Image")
    name = repr(os.fspath(item)) if _is_path(item) else "given as " + type(item).__name__
    try:
        if isinstance(item, pillow.Image):
            _check_picture(row, name, item)
            yield item
            return
        with pillow.open(io.BytesIO(item) if isinstance(item, bytes) else item) as image:
            _check_picture(row, name, image)
            # The second image of an MPO file is a camera's preview or depth map.
            if getattr(image, "is_animated", False) and image.format != "MPO":
                raise InputError(f"row {row}: the image {name} has several frames; save only the one that matters")
            yield image
    except DwacError:
        raise
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning):
        raise InputError(f"row {row}: the image {name} has too many pixels; {_SMALLER}") from None
    except Exception as error:  # a broken file can make Pillow raise anything
        raise InputError(f"row {row}: the image {name} cannot be read: {error}; repair or drop it") from None


def _check_picture(row: int, name: str, image: Any) -> None:
    """Raise an error if the header of a picture rules it out."""
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise InputError(f"row {row}: the image {name} has {width}×{height} pixels; {_SMALLER}")
    if not width * height:
        raise InputError(f"row {row}: the image {name} has no pixels ({width}×{height}); drop it")
    if image.mode in ("I", "F"):
        raise InputError(
            f"row {row}: the image {name} has Pillow's mode {image.mode}, whose range is unknown; give arrays instead"
        )


def _mode_of(items: list[Any]) -> str:
    """One mode for all: grey if all are grey, RGBA if all have alpha, else RGB. Reads only the file headers."""
    grey, alpha = True, True
    for row, item in enumerate(items):
        with open_picture(row, item) as image:
            grey &= image.mode in _GREY
            alpha &= image.mode[-1] in "Aa" or "transparency" in image.info
    return "RGBA" if alpha else "L" if grey else "RGB"


def _decode(items: list[Any], mode: str, size: Any) -> Array:
    """(n, H, W) or (n, H, W, C) uint8: every picture upright, in one mode and size (the first one's if None)."""
    _import_pillow("Image")
    size = _read_pixels(0, items[0], mode, None).shape[:2] if size is None else size
    channels = {"L": ()}.get(mode, (len(mode),))
    _require_size((*size, *channels))
    array = np.empty((len(items), *size, *channels), dtype=np.uint8)
    faults: dict[int, str] = {}

    def fill(row: int) -> None:
        try:
            array[row] = _read_pixels(row, items[row], mode, size)
        except InputError as error:
            faults[row] = _ADDRESS.sub("", str(error).removeprefix(f"row {row}: "))

    # Pillow decodes files without Python's lock. Images that are already open might share a file: one at a time.
    workers = None if all(_is_path(item) for item in items) else 1
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(fill, range(len(items))):
            pass
    _raise_faults(dict(sorted(faults.items())))
    return array


def _read_pixels(row: int, item: Any, mode: str, size: Any) -> Array:
    with open_picture(row, item) as image:
        image = _import_pillow("ImageOps").exif_transpose(image)
        if image.mode.startswith("I;16"):  # take the upper byte; Pillow would clip at 255
            image = _import_pillow("Image").fromarray((np.asarray(image) >> 8).astype(np.uint8))
        elif "transparency" in image.info:
            image = image.convert("RGBA")
        image = image.convert(mode)
        if size is not None and image.size != (size[1], size[0]):
            image = image.resize((size[1], size[0]), _import_pillow("Image").Resampling.BILINEAR)
        return np.asarray(image)


def _write_png(pixels: Array) -> bytes:
    """(H, W, C) uint8 with C = 1, 3 or 4 as a PNG file; written here so that records need no Pillow."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), dtype=np.uint8)  # each row begins with its filter type: 0, none
    rows[:, 1:] = pixels.reshape(height, -1)
    chunks = (
        (b"IHDR", _png_head(height, width, channels)[16:]),
        (b"IDAT", zlib.compress(rows.tobytes())),
        (b"IEND", b""),
    )
    return _PNG + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def _png_head(height: int, width: int, channels: int) -> bytes:
    """The first 29 bytes of a PNG file: its signature and the chunk that describes the pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    return _PNG + struct.pack(">I", len(head)) + b"IHDR" + head


def _read_png(png: Any, shape: tuple[int, int, int]) -> Array:
    """(H, W, C) uint8 from a file that `_png` wrote; it is read here so that records need no Pillow."""
    height, width, channels = shape
    stride = 1 + width * channels
    unreadable = f"a record must be a PNG of {height} × {width} pixels and {channels} channels written by dwac"
    if not isinstance(png, bytes) or png[:29] != _png_head(*shape):
        raise InputError(f"{unreadable}; got {png!r:.60}; give the frame that records returned")
    try:
        rows = zlib.decompressobj().decompress(png[_DATA:], height * stride)
    except zlib.error as error:
        raise InputError(f"{unreadable}; it is damaged: {error}") from None
    if len(rows) != height * stride or any(rows[::stride]):
        raise InputError(f"{unreadable}; this one is written in another way; give the frame that records returned")
    return np.frombuffer(rows, np.uint8).reshape(height, stride)[:, 1:].reshape(shape)
