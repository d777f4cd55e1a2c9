"""CIFAR-10, and the test half of CIFAR-100: 32 × 32 colour images, from the binary versions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reproduction.datasets.dataset import Dataset, Labels, labels
from reproduction.datasets.files import Contents, DatasetError, File, find, read_members

_BASE = "https://www.cs.toronto.edu/~kriz/"
_TEN = "cifar-10-batches-bin/"
_HUNDRED = "cifar-100-binary/"
_BATCH = 30_730_000
_PIXELS = 3 * 32 * 32

CIFAR10_FILES = (
    File(
        "cifar10",
        "cifar-10-binary.tar.gz",
        (_BASE + "cifar-10-binary.tar.gz",),
        size=170_052_171,
        digest="md5:c32a1d4ab5d03f1284b67883e8d87530",
        members={
            _TEN + name: Contents(_BATCH, digest)
            for name, digest in {
                "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            }.items()
        },
    ),
)
CIFAR100_FILES = (
    File(
        "cifar100",
        "cifar-100-binary.tar.gz",
        (_BASE + "cifar-100-binary.tar.gz",),
        size=168_513_733,
        digest="md5:03b5dce01913d631647c71ecec9e9cb8",
        opens=lambda path: _read_cifar100(path),
    ),
)
CLASSES = np.array(["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"])


def load_cifar10() -> Dataset:
    """CIFAR-10, 50,000 + 10,000, as (n, 32, 32, 3)."""
    file = CIFAR10_FILES[0]
    batches = read_members(file)
    train, test = b"".join(batches[name] for name in list(file.members)[:-1]), batches[_TEN + "test_batch.bin"]
    (X_train, y_train), (X_test, y_test) = (parse(data, file.name, n_classes=10) for data in (train, test))
    return Dataset(
        "cifar10",
        X_train,
        y_train,
        X_test,
        y_test,
        CLASSES,
        "Photographs of 10 kinds of things, 32 × 32 pixels in red, green and blue, 0 to 255.",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
    )


def load_cifar100() -> Dataset:
    """The 10,000 test images of CIFAR-100 with fine labels: out-of-distribution for CIFAR-10; no training part."""
    X, y, classes = _read_cifar100(find(CIFAR100_FILES[0]))
    return Dataset(
        "cifar100",
        X[:0],
        y[:0],
        X,
        y,
        classes,
        "Test photographs of 100 kinds of things, 32 × 32 pixels in red, green and blue: out-of-distribution for "
        "CIFAR-10, though a few kinds (bus, pickup_truck, …) are close to its classes.",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
    )


def _read_cifar100(path: Path) -> tuple[NDArray[np.uint8], Labels, NDArray[np.str_]]:
    """X, y and the class names listed in the archive."""
    file = CIFAR100_FILES[0]
    images, names = _HUNDRED + "test.bin", _HUNDRED + "fine_label_names.txt"
    members = read_members(file, (images, names).__contains__, path)
    if lacking := [name for name in (images, names) if name not in members]:
        raise DatasetError(f"{path} must contain {' and '.join(lacking)}; it does not; {file.remedy}")
    classes = np.array(members[names].decode("utf-8", "replace").split())
    try:
        return *parse(members[images], f"{images} in {path}", n_classes=len(classes), label_bytes=2), classes
    except DatasetError as error:
        raise DatasetError(f"{error}; {file.remedy}") from None


def parse(data: bytes, name: str, *, n_classes: int, label_bytes: int = 1) -> tuple[NDArray[np.uint8], Labels]:
    """X (n, 32, 32, 3) and y of records: label bytes, of which the last is used, then red, green and blue planes."""
    record = label_bytes + _PIXELS
    if len(data) == 0 or len(data) % record:
        raise DatasetError(f"{name} must hold records of {record:,} bytes; found {len(data):,} bytes in all")
    records = np.frombuffer(data, np.uint8).reshape(-1, record)
    planes = records[:, label_bytes:].reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels(records[:, label_bytes - 1], n_classes, name)
