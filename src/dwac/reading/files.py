"""Folders with one folder of images per class, image files, and files of texts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import numpy as np

from dwac.errors import InputError, LabelError
from dwac.reading.rows import Rows
from dwac.reading.tables import decoded

PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff")


def read_pictures(folder: Path, *, labelled: bool) -> Rows:
    """The images in folder/CLASS/…; if not `labelled`, all images below the folder. Ids are paths relative to it."""
    found = _pictures(folder)
    paths = [str(folder / path) for path in found]
    stray = [path for path in found if "/" not in path]
    if labelled and stray:
        raise LabelError(
            f"{folder / stray[0]} is in no class; put every image into the folder of its class, {folder}/CLASS/"
        )
    y = np.array([path.partition("/")[0] for path in found], dtype=object) if labelled else None
    return Rows(paths, y, list(found), "image", where=paths.__getitem__)


def _pictures(folder: Path) -> list[str]:
    """The image files below a folder, as sorted relative paths with slashes; hidden files are ignored."""
    found, others = [], Counter[str]()
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(name for name in names if not name.startswith(".")):
            if name.lower().endswith(PICTURES):
                found.append(Path(parent, name).relative_to(folder).as_posix())
            else:
                others[Path(name).suffix or name] += 1
    if not found:
        kinds = ", ".join(f"{n} {kind}" for kind, n in others.most_common(3))
        raise InputError(
            f"{folder} must contain images ({', '.join(PICTURES)}); got {kinds or 'no files'}; give a folder with one "
            "folder of images per class, or a file"
        )
    return found


def read_sentences(data: bytes, name: str, *, encoding: str, labelled: bool, classes: Collection[str] = ()) -> Rows:
    """One text per line; its id is its line number, from 0. If `labelled`: label, tab, text. Blank lines are skipped.

    classes: if every line begins with one of these and a tab, they are labels and not part of the texts.
    """
    lines = [
        (number, line.strip("\r"))
        for number, line in enumerate(decoded(data, name, encoding).split("\n"), start=1)
        if line.strip()
    ]
    numbers = [number for number, _ in lines]
    parts = [line.partition("\t") for _, line in lines]
    if labelled:
        for number, (label, tab, _) in zip(numbers, parts, strict=True):
            if not (label.strip() and tab):
                raise LabelError(f"{name} line {number} must be a label, a tab and a text; got {label[:40]!r}")
    has_label = labelled or all(tab and label.strip() in classes for label, tab, _ in parts)
    texts = [text.strip() if has_label else line.strip() for (_, line), (_, _, text) in zip(lines, parts, strict=True)]
    y = np.array([label.strip() for label, _, _ in parts], dtype=object) if labelled else None
    return Rows(texts, y, [number - 1 for number in numbers], "text", where=lambda row: f"{name} line {numbers[row]}")
