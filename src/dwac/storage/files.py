"""Files that are whole or absent, whatever moment the process or the machine stops at.

A file is written under a temporary name, forced to the disk, and only then given its name: a reader finds the old
file or the new one. What a killed process leaves is a temporary file, which the next writer removes.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dwac.errors import StorageError

if sys.platform != "win32":  # there, writers of one folder are not kept apart
    import fcntl

TEMPORARY = re.compile(r"\.dwac-[0-9a-f]{16}\.tmp")
_BINARY = getattr(os, "O_BINARY", 0)
_PIECE = 2**26  # bytes a call; some systems refuse to write gigabytes at once


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` under `path`, in place of what was there, in one step."""
    temporary = path.with_name(f".dwac-{secrets.token_hex(8)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left[:_PIECE]) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C too leaves nothing behind
        with suppress(OSError):
            os.unlink(temporary)
        raise


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, each one forced to the disk."""
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
    """Force the names in a folder to the disk, where the system can."""
    with suppress(OSError):  # Windows and some network drives cannot; they keep their own order
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Wait until no other dwac writes into this folder. The lock ends with the process, however that ends."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network drives know no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # else a process forked meanwhile would hold it on
        os.close(descriptor)


def remove_files(folder: Path, pattern: re.Pattern[str], keep: set[str]) -> None:
    """Remove the files whose names match, except those to keep; one that cannot be removed stays."""
    for name in os.listdir(folder):
        if pattern.fullmatch(name) and name not in keep:
            with suppress(OSError):
                os.unlink(folder / name)


def read_file(path: Path, *, largest: int | None = None) -> bytes:
    """The bytes of a plain file: links, pipes and devices are refused, and so is one larger than `largest`."""
    facts = os.lstat(path)
    if not stat.S_ISREG(facts.st_mode):
        raise StorageError(
            f"{path} must be a plain file; it is a link, a folder or a device; put the file itself there"
        )
    if largest is not None and facts.st_size > largest:
        raise StorageError(f"{path} has {facts.st_size:,} bytes; at most {largest:,} are read; is it dwac's?")
    return path.read_bytes()
