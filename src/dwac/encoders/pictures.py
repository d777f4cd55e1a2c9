"""Pictures and arrays of pixels: read, decoded, compared, and stored as PNG files."""

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
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from dwac.encoders.base import array_of, require_finite
from dwac.encoders.image_networks import Shape
from dwac.errors import DwacError, InputError, ShapeError

Array = NDArray[Any]
MOST_PIXELS = 50_000_000  # limit for an image file, about 8,000 × 6,000; a file of a few kilobytes can claim any number
MOST_NUMBERS = 2**26  # limit for an image as the network takes it, C × H × W: 256 MiB
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff")  # of image files
PNG = b"\x89PNG\r\n\x1a\n"  # the first bytes of a PNG file
_DATA = 41  # where the pixels of a PNG written here begin: 33 bytes of header, and 8 that start the chunk of data
MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # Pillow's names, by number of channels
_GREY = {"1", "L", "LA", "La", "I;16", "I;16L", "I;16B", "I;16N"}
_SMALLER = f"at most {MOST_PIXELS:,} are allowed; make it smaller"
_ADDRESS = re.compile(r" <_io\.BytesIO object at 0x[0-9a-f]+>")  # in Pillow's messages about images without a file name
_ACCEPTED = "an array (n, H, W), (n, H, W, C) or (n, C, H, W), or a list of arrays, PIL images or file paths"
_SIDE = 8  # pixels per side of the pooled copies of images
_AT_ONCE = 2**24  # numbers of a tensor converted to floats at once


@dataclass(frozen=True)
class ImageFormat:
    """The image format learned by `fit`; every later X is read accordingly."""

    layout: str  # the axes of one image: "HW", "HWC" or "CHW"
    numbers: str  # "uint8": whole numbers 0 … 255; "whole": other whole numbers; "float"
    shape: Shape
    mean: tuple[float, ...]  # per channel
    std: tuple[float, ...]
    low: float
    high: float
    rows: int
    width: int
    early_pools: bool = False  # whether the default network pools before its convolutions, not after them

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


def require_size(shape: tuple[int, ...]) -> None:
    """Raise an error for images so large that only a few would fit into memory."""
    if math.prod(shape) > MOST_NUMBERS:
        raise InputError(
            f"images of {' × '.join(map(str, shape))} numbers are too large; at most {MOST_NUMBERS:,} are allowed; "
            "resize the images; for files, set size=(height, width)"
        )


def is_path(item: Any) -> bool:
    """Whether a picture is given as the path of a file."""
    return isinstance(item, str | os.PathLike)


def _is_picture(item: Any) -> bool:
    pillow: Any = sys.modules.get("PIL.Image")  # if there is a PIL image, PIL has been imported
    return is_path(item) or isinstance(item, bytes) or (pillow is not None and isinstance(item, pillow.Image))


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
    return f"there is no file {os.fspath(item)!r}" if is_path(item) and not os.path.isfile(item) else ""


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


def layout_of(shape: tuple[int, ...], channels: str) -> str:
    """The axes of one image, "HW", "HWC" or "CHW"; channels: "last", "first" or "auto"."""
    if len(shape) == 3:
        return "HW"
    if len(shape) != 4:
        hint = "; one image is X[None], flat pixels are X.reshape(n, H, W)" if len(shape) == 2 else ""
        raise ShapeError(f"X must be {_ACCEPTED}; got shape {shape}{hint}")
    if channels == "last" or (channels == "auto" and shape[3] in MODES):
        return "HWC"
    if channels == "first" or shape[1] in MODES:
        return "CHW"
    raise ShapeError(f'no axis of {shape} has length 1, 3 or 4; set channels="first" or "last"')


def number_type(array: Array) -> str:
    """The type of pixels, as in `ImageFormat.numbers`."""
    if array.dtype.kind not in "biuf":
        raise InputError(f"pixels must be real numbers; got {array.dtype}")
    if array.dtype.kind == "f":
        return "float"
    small = array.dtype.itemsize == 1 or (array.dtype != np.uint16 and int(array.max()) <= 255)
    return "uint8" if small and int(array.min()) >= 0 else "whole"


def match_numbers(array: Array, seen: ImageFormat) -> None:
    """Raise an error if the number type differs from fit: 0 … 1 read as 0 … 255 would be wrong but look right."""
    numbers = number_type(array)
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


def to_tensor(array: Array, layout: str, numbers: str) -> Tensor:
    """(n, …) in its layout → (n, C, H, W), uint8 or finite float32."""
    with np.errstate(over="ignore"):  # numbers too large for float32 become infinite, which is detected below
        array = array.astype(np.uint8 if numbers == "uint8" else np.float32, copy=False)
    tensor = torch.from_numpy(np.require(array, requirements=["C", "W"]))
    if numbers == "float":
        require_finite(tensor, "pixels", "the image")
    return {"HW": tensor[:, None], "CHW": tensor}.get(layout, tensor.movedim(-1, 1)).contiguous()


def mean_and_deviation(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel, in float64 and in parts; a constant channel gets a deviation of 1."""
    parts = images.split(max(1, 2**22 // images[0].numel()))
    count = images[:, 0].numel()
    mean = sum(part.double().sum(dim=(0, 2, 3)) for part in parts) / count
    centre = mean.view(1, -1, 1, 1)
    variance = sum((part.double() - centre).square().sum(dim=(0, 2, 3)) for part in parts) / count
    std = variance.sqrt()
    std = torch.where(std > 1e-6 * mean.abs() + 1e-30, std, torch.ones_like(std))
    return tuple(mean.tolist()), tuple(std.tolist())


# Pillow is imported only here, so arrays need only the base installation.


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
    name = repr(os.fspath(item)) if is_path(item) else "given as " + type(item).__name__
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


def mode_of(items: list[Any]) -> str:
    """One mode for all: grey if all are grey, RGBA if all have alpha, else RGB. Reads only the file headers."""
    grey, alpha = True, True
    for row, item in enumerate(items):
        with open_picture(row, item) as image:
            grey &= image.mode in _GREY
            alpha &= image.mode[-1] in "Aa" or "transparency" in image.info
    return "RGBA" if alpha else "L" if grey else "RGB"


def decode(items: list[Any], mode: str, size: Any) -> Array:
    """(n, H, W) or (n, H, W, C) uint8: every picture upright, in one mode and size (the first one's if None)."""
    _import_pillow("Image")
    size = _read_pixels(0, items[0], mode, None).shape[:2] if size is None else size
    channels = {"L": ()}.get(mode, (len(mode),))
    require_size((*size, *channels))
    array = np.empty((len(items), *size, *channels), dtype=np.uint8)
    faults: dict[int, str] = {}

    def fill(row: int) -> None:
        try:
            array[row] = _read_pixels(row, items[row], mode, size)
        except InputError as error:
            faults[row] = _ADDRESS.sub("", str(error).removeprefix(f"row {row}: "))

    # Pillow decodes files without Python's lock. Images that are already open might share a file: one at a time.
    workers = None if all(is_path(item) for item in items) else 1
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


# PNG files, written and read here so that records need no Pillow


def write_png(pixels: Array) -> bytes:
    """(H, W, C) uint8 with C = 1, 3 or 4 as a PNG file."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), dtype=np.uint8)  # each row begins with its filter type: 0, none
    rows[:, 1:] = pixels.reshape(height, -1)
    chunks = (
        (b"IHDR", _png_head(height, width, channels)[16:]),
        (b"IDAT", zlib.compress(rows.tobytes())),
        (b"IEND", b""),
    )
    return PNG + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def _png_head(height: int, width: int, channels: int) -> bytes:
    """The first 29 bytes of a PNG file: its signature and the chunk that describes the pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    return PNG + struct.pack(">I", len(head)) + b"IHDR" + head


def read_png(png: Any, shape: tuple[int, int, int]) -> Array:
    """(H, W, C) uint8 from a file that `write_png` wrote."""
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


# Distances


def pixel_distances(one: Tensor, many: Tensor) -> NDArray[np.float64]:
    """Root mean squared difference of (1, C, H, W) and (n, C, H, W) uint8 images, pooled to at most 8 × 8, in [0, 1].

    Pooling keeps shape, shading and colour, and forgives small shifts and noise, as an eye does.
    """
    apart = _pool(many) - _pool(one)
    return np.asarray(apart.square().mean(dim=(1, 2, 3)).sqrt().double().numpy())


def _pool(images: Tensor) -> Tensor:
    sides = min(images.shape[2], _SIDE), min(images.shape[3], _SIDE)
    parts = images.split(max(1, _AT_ONCE // max(images[0].numel(), 1))) if len(images) else [images]
    return torch.cat([adaptive_avg_pool2d(part.float() / 255, sides) for part in parts])
