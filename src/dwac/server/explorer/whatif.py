"""Images in the form that the model takes: one moved or made brighter, and a new one from a file."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dwac.encoders import ImageEncoder
from dwac.encoders.image import open_picture
from dwac.errors import InputError


def changed_image(encoder: ImageEncoder, X: Any, right: int, down: int, brightness: float) -> Any:
    """X, one image, as a new X: shifted (new pixels repeat the edge), and made brighter or darker."""
    seen, image = encoder.seen, X[0] if not hasattr(X, "iloc") else X.iloc[0]
    if isinstance(image, np.ndarray | Tensor):
        first = len(seen.lengths) == 3 and tuple(seen.lengths) == tuple(seen.shape)  # channels first
        values = np.asarray(image)
        return _changed(values, right, down, brightness, (seen.low, seen.high), axes=(-2, -1) if first else (0, 1))[
            None
        ]
    from PIL import Image

    with open_picture(0, image) as picture:
        plain = picture if picture.mode in ("L", "RGB") else picture.convert("RGB")
        return [Image.fromarray(_changed(np.asarray(plain), right, down, brightness, (0, 255), (0, 1)))]


def image_of_record(encoder: ImageEncoder, png: bytes) -> Any:
    """The image of a record as an X with one example, up to the precision of its 256 shades."""
    seen = encoder.seen
    if seen.numbers == "uint8" and seen.high >= 128:
        return [png]
    with open_picture(0, png) as picture:
        shades = np.atleast_3d(np.asarray(picture, dtype=np.float64))
    values = seen.low + shades * (seen.high - seen.low) / 255
    values = values if seen.numbers == "float" else np.round(values).astype(np.int64)
    order = [("HWC".index(axis)) for axis in seen.layout]
    return (values.transpose(order) if len(order) == 3 else values[:, :, 0])[None]


def uploaded_image(encoder: ImageEncoder, data: bytes) -> Any:
    """A PNG or JPEG file as an X with one example; if training used arrays, resized and scaled like them."""
    seen = encoder.seen
    if seen.numbers == "uint8" and seen.high >= 128:
        return [data]
    from PIL import Image

    channels, height, width = seen.shape
    if channels not in (1, 3):
        raise InputError(f"only images with 1 or 3 channels can be uploaded; this model reads {channels}")
    with open_picture(0, data) as picture:
        resized = picture.convert("L" if channels == 1 else "RGB").resize((width, height), Image.Resampling.BOX)
    file = io.BytesIO()
    resized.save(file, "PNG")
    return image_of_record(encoder, file.getvalue())


def _changed(
    values: NDArray[Any], right: int, down: int, brightness: float, ends: tuple[float, float], axes: tuple[int, int]
) -> NDArray[Any]:
    for axis, step in zip(axes, (down, right), strict=True):
        n = values.shape[axis]
        if abs(step) >= n:
            raise InputError(f"an image of {n} pixels can be moved by at most {n - 1}; got {step}")
        values = values.take(np.clip(np.arange(n) - step, 0, n - 1), axis=axis)
    low, high = ends
    brighter = np.clip((values.astype(np.float64) - low) * brightness + low, low, high)
    return np.asarray((np.round(brighter) if values.dtype.kind in "iu" else brighter).astype(values.dtype))
