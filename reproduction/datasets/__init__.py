"""The paper's datasets and some related ones, from their official files.

data = reproduction.datasets.load("adult")         # data.X_train, data.y_train, data.X_test, data.y_test, data.classes
data = reproduction.datasets.load("covertype").split(0.1, seed=0)
data, outside = data.without("Krummholz")  # hold a class out, to see whether it is detected as unfamiliar
reproduction.datasets.get("adult")                 # downloads: the only call that uses the network

Files are searched in $DWAC_DATA/NAME, then in the user's cache folder, and checked whenever they are read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from reproduction.datasets import adult, amazon, cifar, covertype, files, lending_club, mnist, texts, vectors
from reproduction.datasets.dataset import Dataset
from reproduction.datasets.download import Progress, fetch
from reproduction.datasets.files import DatasetError, File, folders
from reproduction.datasets.sentences import random_sentences
from reproduction.datasets.vectors import glove

__all__ = [
    "NAMES",
    "Dataset",
    "DatasetError",
    "File",
    "Progress",
    "check",
    "folders",
    "found",
    "get",
    "glove",
    "load",
    "random_sentences",
    "sources",
]

_LOADERS: dict[str, tuple[tuple[File, ...], Callable[..., Dataset]]] = {
    "adult": (adult.FILES, adult.load),
    "covertype": (covertype.FILES, covertype.load),
    "lending_club": (lending_club.FILES, lending_club.load),
    "fashion_mnist": (mnist.FASHION_FILES, mnist.load_fashion),
    "mnist": (mnist.MNIST_FILES, mnist.load_mnist),
    "cifar10": (cifar.CIFAR10_FILES, cifar.load_cifar10),
    "cifar100": (cifar.CIFAR100_FILES, cifar.load_cifar100),
    "stackoverflow": (texts.STACKOVERFLOW_FILES, texts.load_stackoverflow),
    "subjectivity": (texts.SUBJECTIVITY_FILES, texts.load_subjectivity),
    "imdb": (texts.IMDB_FILES, texts.load_imdb),
    "amazon_beauty": (amazon.FILES, amazon.load),
}
NAMES = tuple(_LOADERS)
_OPTIONS = {"adult": {"complete"}, "lending_club": {"complete"}}


def load(name: str, **options: Any) -> Dataset:
    """Read a dataset from its official files, which must exist: nothing is downloaded.

    Args:
        name: one of `NAMES`.
        options: adult and lending_club take `complete=False`, which keeps rows with missing values.

    >>> load("adult")  # doctest: +SKIP
    <adult: 30,162 training and 15,060 test examples, 2 classes>
    """
    key = _key(name)
    if key == "glove":
        raise DatasetError("glove has word vectors, not examples; datasets.glove() returns their file")
    known = _OPTIONS.get(key, set())
    if not set(options) <= known:
        raise DatasetError(f"{key} takes {', '.join(known) or 'no options'}; got {', '.join(options)}")
    return _LOADERS[key][1](**options)


def get(name: str, progress: Progress | None = None) -> list[Path]:
    """Download the official files of a dataset, unless intact copies exist, and return their paths.

    An interrupted download is resumed; a file gets its name only when it is complete and checked.

    Args:
        name: one of `NAMES`, or "glove".
        progress: called with a file's name, the bytes so far and the total bytes (None if unknown).
    """
    return [fetch(file, progress) for file in sources(name)]


def found(name: str) -> list[Path]:
    """The files of a dataset that exist, intact or not; empty files do not count."""
    paths = [next(filter(Path.is_file, files.places(file)), None) for file in sources(name)]
    unpacked = vectors.unpacked().values() if _key(name) == "glove" else ()
    return [path for path in (*paths, *unpacked) if path is not None and path.is_file() and path.stat().st_size]


def check(name: str) -> None:
    """Raise `DatasetError` if an existing file of the dataset is damaged; each is read completely."""
    for file in sources(name):
        if any(path.exists() for path in files.places(file)):
            files.check(file, files.find(file))
    for size, path in vectors.unpacked().items() if _key(name) == "glove" else ():
        vectors.check(path, size)


def sources(name: str) -> tuple[File, ...]:
    """The official files of a dataset: names, URLs, sizes and checksums."""
    key = _key(name)
    return vectors.FILES if key == "glove" else _LOADERS[key][0]


def _key(name: str) -> str:
    key = str(name).replace("-", "_").lower()
    if key not in (*NAMES, "glove"):
        raise DatasetError(f"unknown dataset {name!r}; choose {', '.join(NAMES)} or glove")
    return key
