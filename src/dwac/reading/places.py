"""Files on this machine and in object stores, by path or URL, through fsspec; written as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
from fsspec.core import url_to_fs

from dwac.errors import DwacError, InputError
from dwac.storage.files import make_folder, replace_file, replacing, sync_folder, temporary_name

_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "r2"}  # stores where a put is atomic
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
_VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "mtime", "LastModified", "last_modified", "created")


@dataclass(frozen=True)
class File:
    """A file of the data, and a version that changes with it."""

    url: str
    name: str  # its path relative to the data folder, or its own name
    size: int
    version: str  # an ETag, or the time of its last change


@dataclass(frozen=True)
class Place:
    """A file or folder, wherever it is."""

    fs: Any
    path: str

    @property
    def local(self) -> bool:
        """Whether it is on a disk of this machine."""
        return "file" in _protocols(self.fs)

    @property
    def url(self) -> str:
        """Its address, valid on other machines too."""
        return self.path if self.local else str(self.fs.unstrip_protocol(self.path))

    def __truediv__(self, name: str) -> Place:
        return Place(self.fs, f"{self.path.rstrip('/')}/{name}")

    def exists(self) -> bool:
        """Whether the file or folder exists."""
        return bool(self.fs.exists(self.path))

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        """Its bytes, or a range of them."""
        return bytes(self.fs.cat_file(self.path, start=start, end=stop))

    def names(self) -> list[str]:
        """The names of the files in this folder; none if there is no folder."""
        self.fs.invalidate_cache(self.path)  # other processes write too
        try:
            found = self.fs.ls(self.path, detail=False)
        except FileNotFoundError:
            return []
        return sorted(os.path.basename(str(path).rstrip("/")) for path in found)

    def remove(self) -> None:
        """Remove the file, if it exists."""
        with suppress(FileNotFoundError):
            self.fs.rm_file(self.path)

    def write(self, data: bytes) -> None:
        """Replace the file by these bytes, in one step."""
        if self.local:
            make_folder(Path(self.path).parent)
            replace_file(Path(self.path), data)
            return
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "data").write_bytes(data)
            self._put(os.path.join(folder, "data"))

    @contextmanager
    def writing(self) -> Iterator[str]:
        """The path of a temporary file on this machine, which replaces this file once it is completely written."""
        if not self.local:
            with tempfile.TemporaryDirectory() as folder:
                yield os.path.join(folder, "data")
                self._put(os.path.join(folder, "data"))
            return
        make_folder(Path(self.path).parent)
        with replacing(Path(self.path)) as temporary:
            yield str(temporary)
        sync_folder(Path(self.path).parent)

    def _put(self, local: str) -> None:
        if _protocols(self.fs) & _STORES:
            self.fs.put_file(local, self.path)
            return
        parent, name = os.path.split(self.path)
        self.fs.makedirs(parent, exist_ok=True)
        temporary = f"{parent}/{temporary_name()}"
        self.fs.put_file(local, temporary)
        self.fs.mv(temporary, f"{parent}/{name}")


def place(url: str) -> Place:
    """The file or folder at a path or URL; an error says which package a URL scheme needs."""
    kind = url.partition("://")[0] if "://" in url else "file"
    try:
        fs, path = url_to_fs(url)
    except ImportError as error:
        package = _PACKAGES.get(kind, getattr(error, "name", None) or "its fsspec package")
        raise InputError(f"{kind}:// addresses need {package}: pip install {package}") from None
    except ValueError as error:
        known = ", ".join(sorted(name for name in fsspec.available_protocols() if name in {*_PACKAGES, "http", "hdfs"}))
        raise InputError(f"{url!r} is no address that fsspec knows ({error}); use a path, or {known}") from None
    return Place(fs, str(path))


@contextmanager
def reaching(there: Place) -> Iterator[None]:
    """Turn the errors of an unreachable store into a sentence; errors of this machine's disks stay unchanged."""
    try:
        yield
    except (DwacError, KeyboardInterrupt, GeneratorExit):
        raise
    except PermissionError as error:
        raise InputError(f"{there.url}: no permission ({error}); check who may read and write there") from None
    except Exception as error:
        if there.local:
            raise
        raise InputError(
            f"{there.url} cannot be reached ({type(error).__name__}: {error!s:.200}); check the address, the network "
            "and the credentials of its store"
        ) from None


def files_at(data: str, *, without: str) -> list[File]:
    """The files of a path, folder, glob or URL, sorted by name.

    Names that begin with . or _ are left out, as is usual for Parquet, and so is everything below `without`.
    """
    root = place(data)
    with reaching(root):
        return _files_at(root, data, without)


def _files_at(root: Place, data: str, without: str) -> list[File]:
    wild = any(mark in root.path for mark in "*?[")
    try:
        if wild and not root.exists():
            found = root.fs.glob(root.path, detail=True)
            base = os.path.dirname(root.path[: min(root.path.index(mark) for mark in "*?[" if mark in root.path)])
        elif root.fs.isdir(root.path):
            found, base = root.fs.find(root.path, detail=True), root.path
        else:
            found, base = {root.path: root.fs.info(root.path)}, os.path.dirname(root.path)
    except FileNotFoundError:
        raise InputError(f"there is no file or folder {data!r}; check the path") from None
    skip = place(without).path.rstrip("/") + "/"
    files = [
        File(Place(root.fs, path).url, os.path.relpath(path, base or "/"), int(facts["size"] or 0), _version(facts))
        for path, facts in sorted(_followed(root, found).items())
        if facts["type"] == "file" and not path.startswith(skip)
    ]
    one = len(found) == 1
    return [file for file in files if one or not any(part.startswith((".", "_")) for part in file.name.split("/"))]


def _followed(root: Place, found: dict[str, Any]) -> dict[str, Any]:
    """The same files with links on this machine's disks followed: to files, and to the files of folders."""
    kept: dict[str, Any] = {}
    for path, facts in found.items():
        if not (root.local and os.path.islink(path)):
            kept[path] = facts
        elif os.path.isfile(path):
            kept[path] = root.fs.info(os.path.realpath(path))
        else:
            real = os.path.realpath(path)
            kept |= {path + below[len(real) :]: each for below, each in root.fs.find(real, detail=True).items()}
    return kept


def _version(facts: dict[str, Any]) -> str:
    return next((str(facts[name]) for name in _VERSIONS if facts.get(name)), "")


def _protocols(fs: Any) -> set[str]:
    return {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
