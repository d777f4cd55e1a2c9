"""Files on this machine and in object stores, by path or URL, through fsspec; decompressed as they are read.

They are written as a whole or not at all.
"""

from __future__ import annotations

import io
import lzma
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import fsspec
import pyarrow as pa
from fsspec.core import url_to_fs

from dwac._checks import listed
from dwac._machine import memory
from dwac.errors import DwacError, InputError
from dwac.storage.files import make_folder, replacing, sync_folder, temporary_name

SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
SUFFIXES |= {".parquet": "parquet", ".pq": "parquet"}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}
_MARKS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz"}  # first bytes of files
_BZIP2 = b"1AY&SY"  # the start of the first block, after BZh and a digit
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
    def version(self) -> str:
        """An ETag, or the time of the file's last change."""
        return _version(self.fs.info(self.path))

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
            paths = self.fs.ls(self.path, detail=False)
        except FileNotFoundError:
            return []
        return sorted(os.path.basename(str(path).rstrip("/")) for path in paths)

    def remove(self) -> None:
        """Remove the file, if it exists."""
        with suppress(FileNotFoundError):
            self.fs.rm_file(self.path)

    def write(self, data: bytes) -> None:
        """Replace the file by these bytes, in one step."""
        with self.writing() as path:
            Path(path).write_bytes(data)

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
        raise InputError(f"{url!r} is not an address that fsspec knows ({error}); use a path, or {known}") from None
    return Place(fs, str(path))


@contextmanager
def reaching(file: Place) -> Iterator[None]:
    """Turn the errors of an unreachable store into a sentence; errors of this machine's disks stay unchanged."""
    try:
        yield
    except (DwacError, KeyboardInterrupt, GeneratorExit):
        raise
    except PermissionError as error:
        raise InputError(f"{file.url}: no permission ({error}); check who may read and write there") from None
    except Exception as error:
        if file.local:
            raise
        raise InputError(
            f"{file.url} cannot be reached ({type(error).__name__}: {error!s:.200}); check the address, the network "
            "and the credentials of its store"
        ) from None


def files_at(data: str, *, without: str) -> list[File]:
    """The files of a path, folder, glob or URL, sorted by name.

    Names that begin with . or _ are left out, as is usual for Parquet, and so is everything below `without`.
    """
    root, skip = place(data), place(without).path.rstrip("/") + "/"
    marks = [root.path.index(mark) for mark in "*?[" if mark in root.path]
    with reaching(root):
        try:
            if marks and not root.exists():
                paths, base = root.fs.glob(root.path, detail=True), os.path.dirname(root.path[: min(marks)])
            elif root.fs.isdir(root.path):
                paths, base = root.fs.find(root.path, detail=True), root.path
            else:
                paths, base = {root.path: root.fs.info(root.path)}, os.path.dirname(root.path)
        except FileNotFoundError:
            raise InputError(f"there is no file or folder {data!r}; check the path") from None
        files = [
            File(Place(root.fs, path).url, os.path.relpath(path, base or "/"), int(facts["size"] or 0), _version(facts))
            for path, facts in sorted(_follow_links(root, paths).items())
            if facts["type"] == "file" and not path.startswith(skip)
        ]
    one = len(paths) == 1
    return [file for file in files if one or not any(part.startswith((".", "_")) for part in file.name.split("/"))]


def _follow_links(root: Place, paths: dict[str, Any]) -> dict[str, Any]:
    """The same files with links on this machine's disks followed: to files, and to the files of folders."""
    files: dict[str, Any] = {}
    for path, facts in paths.items():
        if not (root.local and os.path.islink(path)):
            files[path] = facts
        elif os.path.isfile(path):
            files[path] = root.fs.info(os.path.realpath(path))
        else:
            real = os.path.realpath(path)
            files |= {path + below[len(real) :]: each for below, each in root.fs.find(real, detail=True).items()}
    return files


def _version(facts: dict[str, Any]) -> str:
    return next((str(facts[name]) for name in _VERSIONS if facts.get(name)), "")


def _protocols(fs: Any) -> set[str]:
    return {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)


# Names and compression


def form_of(name: str) -> str | None:
    """The format that a file name's suffix stands for, below a compression suffix; None if it is unknown."""
    return SUFFIXES.get(suffix_of(plain_name(name)))


def suffix_of(name: str) -> str:
    """The suffix of a file name in lower case: ".csv"."""
    base = name.rsplit("/", 1)[-1]
    return f".{base.rsplit('.', 1)[-1].lower()}" if "." in base else ""


def plain_name(name: str) -> str:
    """A file name without its compression suffix.

    >>> plain_name("rows.csv.gz"), plain_name("rows.csv")
    ('rows.csv', 'rows.csv')
    """
    return name.rsplit(".", 1)[0] if suffix_of(name) in {*_COMPRESSIONS, ".zip"} else name


def room() -> int:
    """The most bytes a table may have: a quarter of this machine's memory, as pandas and the model need some too."""
    return memory() // 4


def compression_of(name: str) -> str | None:
    """The compression of a file, by its name."""
    return _COMPRESSIONS.get(suffix_of(name))


@contextmanager
def decompressing(raw: Any, compression: str, name: str) -> Iterator[Any]:
    """A stream of the decompressed bytes of a file."""
    try:
        if compression == "xz":
            with lzma.LZMAFile(raw) as stream:
                yield stream
        else:
            with pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), compression) as stream:
                yield stream
    except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as error:
        raise InputError(f"{name} cannot be decompressed ({compression}): {error!s:.200}; copy it again") from None


def decompress(data: bytes, name: str) -> tuple[str, bytes]:
    """(name of the file inside, its bytes), recognized by the first bytes; uncompressed data stays unchanged."""
    compression = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    if data[:3] == b"BZh" and data[4:10] == _BZIP2:
        compression = "bz2"
    if compression is None:
        return _from_archive(data, name) if data[:4] == b"PK\x03\x04" else (name, data)
    with decompressing(io.BytesIO(data), compression, name) as stream:
        return plain_name(name), _read_limited(stream, name)


def _from_archive(data: bytes, name: str) -> tuple[str, bytes]:
    """The only file in a zip archive. A workbook is also an archive, and stays unchanged."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            inside = archive.namelist()
            if "[Content_Types].xml" in inside or "mimetype" in inside:
                return name, data
            files = [file for file in inside if not file.endswith("/") and not file.startswith("__MACOSX/")]
            if len(files) != 1:
                raise InputError(f"{name} must hold one file; it holds {listed(files) or 'none'}; unpack it first")
            with archive.open(files[0]) as stream:
                return f"{plain_name(name)}/{files[0]}", _read_limited(stream, name)
    except InputError:
        raise
    except Exception as error:  # a damaged archive may make zipfile raise anything
        if "password" in str(error):
            raise InputError(f"{name} is protected by a password; unpack it first") from None
        raise InputError(f"{name} is not a readable zip archive: {error!s:.200}; copy it again") from None


def _read_limited(stream: IO[bytes], name: str) -> bytes:
    """All bytes of a stream, unless they would fill the memory."""
    parts, size, most = [], 0, room()
    while part := stream.read(2**20):
        parts.append(bytes(part))
        size += len(part)
        if size > most:
            raise InputError(
                f"{name} takes more than {most:,} bytes when decompressed; give fewer rows at a time, or a machine "
                "with more memory"
            )
    return b"".join(parts)


@contextmanager
def open_file(url: str) -> Iterator[Any]:
    """The bytes of a file, decompressed."""
    file, compression = place(url), compression_of(url)
    with file.fs.open(file.path, "rb") as raw:
        if compression is None:
            yield raw
        else:
            with decompressing(raw, compression, url) as stream:
                yield stream
