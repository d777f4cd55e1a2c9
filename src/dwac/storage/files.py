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
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dwac.errors import StorageError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

TEMPORARY = re.compile(r"\.dwac-[0-9a-f]{16}\.tmp")
_BINARY = getattr(os, "O_BINARY", 0)
_PIECE = 2**26  # bytes per call; some systems refuse to write gigabytes at once
_WINDOWS = sys.platform == "win32"
_MOMENT = 0.05  # seconds between two attempts


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
        rename(temporary, path)
    except BaseException:  # Ctrl-C leaves nothing behind either
        with suppress(OSError):
            os.unlink(temporary)
        raise


def rename(old: Path, new: Path) -> None:
    """Give a complete file its name. Windows refuses while a program reads the replaced file: try for a second."""
    for left in reversed(range(20 if _WINDOWS else 1)):
        try:
            os.replace(old, new)
            return
        except PermissionError:
            if not left:
                raise
            time.sleep(_MOMENT)


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
def locked(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Whether no other dwac process on this machine writes to this folder; by default wait until none does.

    The lock ends with the process, however it ends.
    """
    descriptor, alone = _open_lock(folder), False
    try:
        while not (alone := _lock(descriptor)) and wait:
            time.sleep(_MOMENT)
        yield alone
    finally:
        with suppress(OSError):
            if alone:
                _unlock(descriptor)  # otherwise a process forked in between would keep the lock
        os.close(descriptor)


if sys.platform == "win32":  # which locks no folders: a file elsewhere stands for it

    def _open_lock(folder: Path) -> int:
        name = hashlib.sha256(os.path.normcase(folder.resolve()).encode()).hexdigest()[:16]
        return os.open(Path(tempfile.gettempdir(), f"dwac-{name}.lock"), os.O_RDWR | os.O_CREAT)

    def _lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:

    def _open_lock(folder: Path) -> int:
        return os.open(folder, os.O_RDONLY)

    def _lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # some network drives have no locks
            pass
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


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
