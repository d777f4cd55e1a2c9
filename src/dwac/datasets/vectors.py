"""GloVe: vectors of words, from which a text encoder may start."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

from dwac.datasets.files import DatasetError, File, damaged, find, folders

FILES = (
    File(
        "glove",
        "glove.6B.zip",
        ("https://nlp.stanford.edu/data/glove.6B.zip",),
        size=862_182_613,
        digest="sha256:617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
    ),
)
SIZES = (50, 100, 200, 300)


def glove(size: int = 100) -> Path:
    """The file of GloVe 6B vectors with so many numbers a word, unpacked from the official archive if need be.

    >>> dwac.DWACClassifier(encoder=TextEncoder(vectors=dwac.datasets.glove()))  # doctest: +SKIP
    """
    if size not in SIZES:
        raise DatasetError(f"GloVe 6B has vectors of {', '.join(map(str, SIZES))} numbers; got {size!r}")
    name, file = f"glove.6B.{size}d.txt", FILES[0]
    for folder in folders():
        if (path := folder / file.folder / name).is_file():
            _check(path, size)
            return path
    archive = find(file)
    target = archive.with_name(name)
    part = target.with_name(f"{name}.part")
    try:
        with zipfile.ZipFile(archive) as source, source.open(name) as member, part.open("wb") as out:
            shutil.copyfileobj(member, out, 1 << 20)
    except (zipfile.BadZipFile, KeyError, EOFError, OSError) as error:
        part.unlink(missing_ok=True)
        raise damaged(file, archive, error) from None
    _check(part, size)
    os.replace(part, target)
    return target


def _check(path: Path, size: int) -> None:
    """Raise unless the first and the last line are whole: a word and its numbers."""
    with path.open("rb") as file:
        first = file.readline()
        file.seek(max(0, path.stat().st_size - 16 * (size + 20)))
        last = file.read()
    for line, place in ((first, "first"), (last[last[:-1].rfind(b"\n") + 1 :], "last")):
        if not line.endswith(b"\n") or line.count(b" ") != size:
            raise DatasetError(
                f"{path} is truncated or altered: its {place} line must be a word and {size} numbers; found "
                f"{line.count(b' ')}; remove it, and `dwac data get glove` fetches the archive again"
            )
