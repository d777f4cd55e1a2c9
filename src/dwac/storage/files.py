"""Files that are complete or absent, whenever the process or the machine stops.

A file is written under a temporary name, flushed to disk, and only then renamed: a reader finds the old file or the new
one. A killed process leaves at most a temporary file, which the next writer removes.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dwac.errors import StorageError

if sys.platform != "win32":  # on Windows, writers of one folder do not exclude each other
    import fcntl

TEMPORARY = re.compile(r"\.dwac-[0-9a-f]{16}\.tmp")
_BINARY = getattr(os, "O_BINARY", 0)
_PIECE = 2**26  # bytes per call; some systems refuse to write gigabytes at once


def replace_file(path: Path, data: bytes) -> None:
    """Write `data` to `path`, replacing the old file in one step."""
    with replacing(path) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left[:_PIECE]) :]
        finally:
            os.close(descriptor)


def temporary_name() -> str:
    """A new name for a file that is being written."""
    return f".dwac-{secrets.token_hex(8)}.tmp"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to. The new file then replaces `path` in one step, unless an error occurs."""
    temporary = path.with_name(temporary_name())
    try:
        yield temporary
        descriptor = os.open(temporary, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C leaves nothing behind either
        with suppress(OSError):
            os.unlink(temporary)
        raise


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, each flushed to disk."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    try:
        os.mkdir(folder)
    except FileExistsError:  # another writer was faster
        if not folder.is_dir():
            raise
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, if the system can."""
    with suppress(OSError):  # Windows and some network drives cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Wait until no other dwac process writes to this folder. The lock ends with the process, however it ends."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network drives have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # otherwise a process forked in between would keep the lock
        os.close(descriptor)


def remove_files(folder: Path, pattern: re.Pattern[str], keep: set[str]) -> None:
    """Remove the files whose names match, except those to keep; one that cannot be removed stays."""
    for name in os.listdir(folder):
        if pattern.fullmatch(name) and name not in keep:
            with suppress(OSError):
                os.unlink(folder / name)


def digest_of(path: Path) -> tuple[int, str]:
    """The size and the SHA-256 of a regular file, read piece by piece."""
    _regular(path)
    digest, size = hashlib.sha256(), 0
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            size += len(piece)
    return size, digest.hexdigest()


def _regular(path: Path) -> os.stat_result:
    """The `stat` of a regular file; an error for anything else."""
    facts = os.lstat(path)
    if not stat.S_ISREG(facts.st_mode):
        raise StorageError(
            f"{path} must be a regular file; it is a link, a folder or a device; put the file itself there"
        )
    return facts


def read_file(path: Path, *, largest: int | None = None) -> bytes:
    """The bytes of a regular file; an error for links, pipes, devices, and files larger than `largest`."""
    facts = _regular(path)
    if largest is not None and facts.st_size > largest:
        raise StorageError(
            f"{path} must have at most {largest:,} bytes; got {facts.st_size:,}; was it written by dwac?"
        )
    return path.read_bytes()
