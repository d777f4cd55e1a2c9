"""Images: arrays, tensors, PIL images or files → (n, C, H, W) → a convolutional network.

encoder = ImageEncoder().fit(X)           # (n, H, W), (n, H, W, C), (n, C, H, W), or a list of arrays, pictures, paths
(images,) = encoder.transform(X)          # uint8 stays uint8; the network standardises on the device
features = encoder.network()(images)      # (n, features)
"""

from __future__ import annotations

import os
import struct
from dataclasses import asdict
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dwac import _checks as checks
from dwac.encoders import image_networks as networks
from dwac.encoders import image_pretrained, pictures
from dwac.encoders.base import Encoder, Recipe, require_one
from dwac.encoders.image_pretrained import PretrainedImages
from dwac.encoders.image_tiles import Images
from dwac.encoders.pictures import Array, ImageFormat
from dwac.encoders.pretrained import FINE_TUNED, FIXED, FeatureHead, Files, check_layers, choose_layers
from dwac.errors import InputError, ShapeError
from dwac.nn import Ensemble
from dwac.nn.batches import Inputs
from dwac.nn.ensemble import SharedBackbone


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
        data = pictures.read_pictures(X)
        if isinstance(data, list):
            array = pictures.decode(data, pictures.mode_of(data), size)
            layout, numbers = "HWC"[: array.ndim - 1], "uint8"
        else:
            array, layout = data, pictures.layout_of(data.shape, self.settings["channels"])
            numbers = pictures.number_type(array)
            pictures.require_size(array.shape[1:])
        images = pictures.to_tensor(array, layout, numbers)
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
        few = len(images) < 5000
        mean, std = pictures.mean_and_deviation(images)
        low, high = float(images.min()), float(images.max())
        width = self.settings["width"] or (32 if few or min(height, wide) <= 12 else 64)
        early = few and min(height, wide) in networks.EARLY_POOLS
        seen = ImageFormat(layout, numbers, (channels, height, wide), mean, std, low, high, len(images), width, early)
        if model is not None:
            model["trained_layers"] = choose_layers(self.settings["trained_layers"], len(images))
            pretrained = self._new_pretrained(model, seen, self._files)
            model["features"] = image_pretrained.count_features(pretrained, seen.shape)
        self._seen, self._model, self._restored = seen, model, False
        self.recipe = _recipe_of(name, len(images), model, early)
        return self

    @property
    def seen(self) -> ImageFormat:
        """What fit learned; an error before fit."""
        if self._seen is None:
            raise InputError("the image encoder is not fitted; call fit(X) with training images first")
        return self._seen

    def transform(self, X: Any) -> Inputs:
        """One tensor (n, C, H, W): uint8 if fit saw whole numbers 0 … 255, else float32."""
        return (self._images(pictures.read_pictures(X, self.seen.lengths)),)

    def _images(self, data: Array | list[Any]) -> Tensor:
        seen = self.seen
        if not isinstance(data, list):
            if data.shape[1:] != seen.lengths:
                raise ShapeError(f"X must be like the training images, {seen}; got shape {data.shape}")
            pictures.match_numbers(data, seen)
            return pictures.to_tensor(data, seen.layout, seen.numbers)
        if seen.numbers != "uint8" or seen.shape[0] not in pictures.MODES:
            raise InputError(
                f"X must be arrays like the training images, {seen}; got pictures; convert them in the same way"
            )
        array = pictures.decode(data, pictures.MODES[seen.shape[0]], seen.shape[1:])
        return pictures.to_tensor(array, "HWC"[: array.ndim - 1], "uint8")

    def network(self) -> nn.Module:
        """A new backbone, (n, C, H, W) → (n, features); its first layer standardises."""
        seen = self.seen
        if self._model is not None:
            return self.ensemble(1) if self._frozen else self._new_pretrained(self._model, seen, self._new_files)
        # A restored encoder gets its weights from the saved model, so there is no need to download others.
        pretrained = self.settings["pretrained"] and not self._restored
        layers = networks.build(
            self.settings["network"],
            seen.shape,
            seen.mean,
            seen.std,
            width=seen.width,
            early_pools=seen.early_pools,
            pretrained=pretrained,
            **self._views,
        )
        return Images(layers, seen.shape[1:])

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
                encoder.recipe = _recipe_of(config["network"], encoder.seen.rows, model, encoder.seen.early_pools)
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
        pictures.require_size(seen.shape)
        floats = (*seen.mean, *seen.std, seen.low, seen.high)
        if any(type(x) not in (int, float) or not abs(x) < 1e38 for x in floats) or min(seen.std, default=0) <= 0:
            raise InputError(f"images must have a finite mean and range and a positive deviation; got {seen!r:.300}")
        one_channel = seen.layout == "HW" and seen.shape[0] == 1
        if not len(seen.mean) == len(seen.std) == seen.shape[0] or not (one_channel or seen.layout in ("HWC", "CHW")):
            raise InputError(f"images must have one mean and deviation per channel, and a layout; got {seen!r:.300}")
        if seen.early_pools not in (True, False):
            raise InputError(f"early_pools must be true or false; got {seen.early_pools!r:.40}")
        if seen.numbers not in ("uint8", "whole", "float"):
            raise InputError(f"images must hold uint8, whole or float numbers; got {seen.numbers!r:.40}")

    def check_records(self, records: pd.DataFrame) -> None:
        """Raise an error for images that `records` cannot have written: images of another size, even in small files."""
        sides = struct.pack(">II", self.seen.shape[2], self.seen.shape[1])
        for name, png in records["image"].items() if "image" in records else ():
            if not isinstance(png, bytes) or png[:8] != pictures.PNG or png[16:24] != sides:
                raise InputError(
                    f"the record of {name!r:.100} must be a PNG of {self.seen.shape[1:]} pixels; it is not"
                )

    def records(self, X: Any) -> pd.DataFrame:
        """One row per image: "image", a PNG of the pixels the network sees; and "path", if files were given.

        Numbers other than 0 … 255 are stretched to that range from the minimum and maximum of the training images.
        """
        data = pictures.read_pictures(X)
        images = self._to_bytes(self._images(data))
        frame = pd.DataFrame({"image": [pictures.write_png(pixels) for pixels in images.permute(0, 2, 3, 1).numpy()]})
        if isinstance(data, list) and any(map(pictures.is_path, data)):
            frame["path"] = [os.fspath(item) if pictures.is_path(item) else None for item in data]
        return frame

    def from_record(self, png: Any) -> Any:
        """The image of a record as an X with one example, up to the precision of its 256 shades."""
        seen = self.seen
        if seen.bytes:
            return [png]
        with pictures.open_picture(0, png) as picture:
            shades = np.atleast_3d(np.asarray(picture, dtype=np.float64))
        values = seen.low + shades * (seen.high - seen.low) / 255
        values = values if seen.numbers == "float" else np.round(values).astype(np.int64)
        order = ["HWC".index(axis) for axis in seen.layout]
        return (values.transpose(order) if len(order) == 3 else values[:, :, 0])[None]

    def _to_bytes(self, images: Tensor) -> Tensor:
        """(n, 1, 3 or 4, H, W) uint8: images as a person sees them; other numbers of channels are averaged."""
        seen = self.seen
        if not seen.bytes:
            scale = 255 / ((seen.high - seen.low) or 1.0)
            images = ((images.float() - seen.low) * scale).clamp(0, 255).round().to(torch.uint8)
        if seen.shape[0] not in pictures.MODES:
            images = images.float().mean(dim=1, keepdim=True).round().to(torch.uint8)
        return images

    def input_distances(self, X_one: Any, X_many: Any) -> NDArray[np.float64]:
        """(n,): root mean squared difference of copies pooled to 8 × 8 pixels; see `Encoder.input_distances`.

        The pixels are those that `records` shows, so images and their records give the same distances.
        """
        one, many = self._read_as_shown(X_one), self._read_as_shown(X_many)
        require_one(len(one))
        return pictures.pixel_distances(one, many)

    def _read_as_shown(self, X: Any) -> Tensor:
        """(n, C, H, W) uint8: X, or a frame of records, as a person sees it."""
        if not isinstance(X, pd.DataFrame) or "image" not in X:
            return self._to_bytes(self._images(pictures.read_pictures(X, self.seen.lengths)))
        channels, height, width = self.seen.shape
        shape = (height, width, channels if channels in pictures.MODES else 1)
        pixels = np.empty((len(X), *shape), dtype=np.uint8)
        for row, png in enumerate(X["image"]):
            pixels[row] = pictures.read_png(png, shape)
        return torch.from_numpy(pixels).movedim(-1, 1).contiguous()


def _is_built_in(network: str) -> bool:
    """Whether a network is built into dwac or timm, not one with its own files."""
    return network in networks.NAMES or network.startswith("timm:")


def _recipe_of(network: str, rows: int, model: dict[str, Any] | None = None, early_pools: bool = False) -> Recipe:
    if model is not None:
        return FIXED if model["trained_layers"] == 0 else FINE_TUNED
    if network == "paper":
        return Recipe(50, batch_size=128, learning_rate=1e-3, weight_decay=0.0, patience=5, compiled=True)
    # The examples of a batch vote on each other, so batches are large; small data still get some 25 steps per epoch.
    few = rows < 5000
    batch_size = 2 ** min(8, max(5, round(float(np.log2(max(rows, 1) / 25)))))
    return Recipe(
        epochs=60 if not few else 24 if early_pools else 20,
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


def _check_size(size: Any) -> list[int] | None:
    if size is None:
        return None
    pair = size if isinstance(size, tuple | list) else (size, size)
    if len(pair) != 2:
        raise InputError(f"size must be (height, width) or one number for both; got {size!r}")
    return [checks.positive_int(side, "size") for side in pair]
