"""GloVe: word vectors from which a text encoder may start."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

from reproduction.datasets.files import DAMAGED, DatasetError, File, damaged, find, folders

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
    """The file of GloVe 6B vectors with `size` numbers per word, unpacked from the official archive if necessary.

    >>> dwac.DWACClassifier(encoder=TextEncoder(vectors=reproduction.datasets.glove()))  # doctest: +SKIP
    """
    if size not in SIZES:
        raise DatasetError(f"GloVe 6B has vectors of {', '.join(map(str, SIZES))} numbers; got {size!r}")
    name, file = f"glove.6B.{size}d.txt", FILES[0]
    for path in (folder / file.folder / name for folder in folders()):
        if path.exists():
            check(path, size)
            return path
    archive = find(file)
    target = archive.with_name(name)
    part = target.with_name(f"{name}.part")
    try:
        with zipfile.ZipFile(archive) as source, source.open(name) as member, part.open("wb") as out:
            shutil.copyfileobj(member, out, 1 << 20)
    except (*DAMAGED, KeyError, OSError) as error:
        part.unlink(missing_ok=True)
        raise damaged(file, archive, error) from None
    check(part, size)
    os.replace(part, target)
    return target


def unpacked() -> dict[int, Path]:
    """The unpacked files of vectors that exist, by size."""
    paths = {
        (size, folder): folder / FILES[0].folder / f"glove.6B.{size}d.txt"
        for size in SIZES
        for folder in reversed(folders())
    }
    return {size: path for (size, _), path in paths.items() if path.exists()}


def check(path: Path, size: int) -> None:
    """Raise an error unless the first and the last line are complete: a word and its numbers."""
    remedy = "remove it, then `python -m reproduction data get glove` downloads the archive again"
    if path.is_dir():
        raise DatasetError(f"{path} must be a file of words with {size} numbers each; it is a folder; {remedy}")
    try:
        with path.open("rb") as file:
            first = file.readline()
            file.seek(max(0, path.stat().st_size - 16 * (size + 20)))
            last = file.read()
    except OSError as error:
        raise damaged(FILES[0], path, error) from None
    for line, place in ((first, "first"), (last[last[:-1].rfind(b"\n") + 1 :], "last")):
        if not line.endswith(b"\n") or line.count(b" ") != size:
            raise DatasetError(
                f"{path} is truncated or altered: its {place} line must be a word and {size} numbers; found "
                f"{line.count(b' ')}; {remedy}"
            )
