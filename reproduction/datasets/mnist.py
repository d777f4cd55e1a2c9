"""MNIST and Fashion-MNIST: 28 × 28 grey images in the IDX format."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reproduction.datasets.dataset import Dataset, labels
from reproduction.datasets.files import Contents, DatasetError, File, read

Images = NDArray[np.uint8]

_DIGITS = "https://ossci-datasets.s3.amazonaws.com/mnist/"  # the copy torchvision uses; the original site is gone
_FASHION = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/b2617bb6d3ffa2e429640350f613e3291e10b141/data/fashion/",
)
_PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_SIZES = (47_040_016, 60_008, 7_840_016, 10_008)
_DIGITS_SHA256 = (
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)
_FASHION_SHA256 = (
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)


def _files(dataset: str, bases: tuple[str, ...], digests: tuple[str, ...]) -> tuple[File, ...]:
    return tuple(
        File(dataset, f"{part}.gz", tuple(f"{base}{part}.gz" for base in bases), contents=Contents(size, digest))
        for part, size, digest in zip(_PARTS, _SIZES, digests, strict=True)
    )


MNIST_FILES = _files("mnist", (_DIGITS,), _DIGITS_SHA256)
FASHION_FILES = _files("fashion_mnist", _FASHION, _FASHION_SHA256)
GARMENTS = np.array(
    ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
)


def load_mnist() -> Dataset:
    """Handwritten digits, 60,000 + 10,000."""
    return _load(
        MNIST_FILES,
        np.array([str(i) for i in range(10)]),
        "Handwritten digits, 28 × 28 pixels, 0 (paper) to 255 (ink).",
        "http://yann.lecun.com/exdb/mnist/",
    )


def load_fashion() -> Dataset:
    """Zalando's garments, 60,000 + 10,000."""
    return _load(
        FASHION_FILES,
        GARMENTS,
        "Garments from Zalando's shop, 28 × 28 pixels, 0 (background) to 255. MIT, © 2017 Zalando SE.",
        "https://github.com/zalandoresearch/fashion-mnist",
    )


def _load(files: tuple[File, ...], classes: NDArray[np.str_], description: str, homepage: str) -> Dataset:
    X_train, X_test = (parse(read(file), file.name) for file in files[::2])
    y_train, y_test = (labels(parse(read(file), file.name), len(classes), file.name) for file in files[1::2])
    return Dataset(files[0].dataset, X_train, y_train, X_test, y_test, classes, description, homepage)


def parse(data: bytes, name: str) -> Images:
    """The array of an IDX file of bytes: two zeros, type 8, the number of axes, their sizes, the entries."""
    if len(data) < 4 or data[:3] != b"\0\0\x08" or len(data) < 4 + 4 * data[3]:
        raise DatasetError(
            f"{name} must be an IDX file of bytes, beginning with 00 00 08; it begins with {data[:4].hex(' ')}"
        )
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", count=data[3], offset=4))
    entries = np.frombuffer(data, np.uint8, offset=4 + 4 * data[3])
    if len(entries) != int(np.prod(shape)):
        raise DatasetError(f"{name} must hold {shape} bytes after its header; found {len(entries):,}")
    return entries.reshape(shape).copy()  # a writable array, which torch accepts as it is
