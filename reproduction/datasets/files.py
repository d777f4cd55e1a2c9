"""The official files of datasets: where they are, and what they must contain."""

from __future__ import annotations

import gzip
import hashlib
import os
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dwac.errors import InputError

_BLOCK = 1 << 20
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError, zipfile.BadZipFile)


class DatasetError(InputError):
    """A dataset is unknown, or one of its files is missing, damaged or not available."""


@dataclass(frozen=True)
class Contents:
    """The required size and SHA-256 of some bytes."""

    size: int
    sha256: str

    def fault(self, data: bytes) -> str | None:
        """What is wrong with these bytes, or None."""
        if len(data) != self.size:
            return f"{self.size:,} bytes required, {len(data):,} found"
        digest = hashlib.sha256(data).hexdigest()
        return None if digest == self.sha256 else f"SHA-256 {self.sha256} required, {digest} found"


@dataclass(frozen=True)
class File:
    """One official file: its dataset, its name, its URLs, and what it must contain.

    `contents` describes the uncompressed bytes, `members` those of files in an archive, so both hold however a copy
    was compressed; both are checked whenever the file is read. `digest` ("md5:…" or "sha256:…") is that of the
    official download, checked once after downloading. If none of these is known, `opens` reads the file like the
    loader and raises `DatasetError` if it cannot. `about` describes the file in words, `also` lists other names it may
    have, and `by_hand` names the site that requires an account; `urls` are then pages, not files.
    """

    dataset: str
    name: str
    urls: tuple[str, ...]
    size: int | None = None
    digest: str | None = None
    contents: Contents | None = None
    members: Mapping[str, Contents] = field(default_factory=dict)
    opens: Callable[[Path], object] | None = None
    about: str = ""
    also: tuple[str, ...] = ()
    by_hand: str = ""

    @property
    def folder(self) -> str:
        """The folder of the dataset's files."""
        return self.dataset.replace("_", "-")

    @property
    def remedy(self) -> str:
        """What to do if the file is damaged."""
        if self.by_hand:
            return f"download it again {self._hand}"
        return f"`python -m reproduction data get {self.dataset}` downloads it again"

    @property
    def _hand(self) -> str:
        """How to get a file that no command can download."""
        place = folders()[0] / self.folder
        return f"by hand (it needs a {self.by_hand} account) from {' or '.join(self.urls)} and put it into {place}"

    @property
    def required(self) -> str:
        """What is known about the file, for messages."""
        if self.contents is not None:
            return f"{self.contents.size:,} bytes uncompressed, SHA-256 {self.contents.sha256}"
        facts = ([self.about] if self.about else []) + ([f"{self.size:,} bytes"] if self.size else [])
        facts += [self.digest.replace(":", " ")] if self.digest else []
        return ", ".join(facts) or f"an archive of {' and '.join(self.members) or 'unknown contents'}"


def cache_folder() -> Path:
    """The user's cache folder for dwac, by the conventions of the operating system."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "dwac" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dwac"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dwac"


def folders() -> list[Path]:
    """Where data is searched, in this order: $DWAC_DATA if set, then the cache. Downloads go to the first."""
    named = os.environ.get("DWAC_DATA")
    return [*([Path(named).expanduser()] if named else []), cache_folder()]


def places(file: File) -> list[Path]:
    """Every path the file may have, most likely first."""
    plain = [] if file.name.endswith(".tar.gz") else [file.name.removesuffix(".gz")]
    return [folder / file.folder / name for folder in folders() for name in (file.name, *plain, *file.also)]


def find(file: File) -> Path:
    """The path of the file, compressed as officially offered or not; if there is none, an error says what to do."""
    paths = places(file)
    for path in paths:
        if path.is_file():
            return path
    for path in paths:
        if path.is_dir():
            raise is_folder(file, path)
    looked = " or ".join(str(folder / file.folder) for folder in folders())
    command = f"`python -m reproduction data get {file.dataset}` downloads it"
    remedy = f"download it {file._hand}" if file.by_hand else command
    raise DatasetError(
        f"{file.name} ({file.required}) is not in {looked}; {remedy}, or set $DWAC_DATA to the folder that contains "
        f"{file.folder}/{file.name}"
    )


def read(file: File, path: Path | None = None) -> bytes:
    """The uncompressed bytes of a file, checked; it is searched unless `path` is given."""
    path = path or find(file)
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (*DAMAGED, OSError) as error:
        raise damaged(file, path, error) from None
    if file.contents is not None and (fault := file.contents.fault(data)):
        raise DatasetError(f"{path} is truncated or altered: {fault}; {file.remedy}")
    return data


def read_members(file: File, wanted: Callable[[str], bool] | None = None, path: Path | None = None) -> dict[str, bytes]:
    """The wanted members of a .tar.gz, by default those with known contents; the whole archive is read and checked."""
    path = path or find(file)
    try:
        found = dict(_members(path, wanted or file.members.__contains__))
    except (*DAMAGED, OSError) as error:
        raise damaged(file, path, error) from None
    for name, contents in file.members.items():
        if wanted is None and name not in found:
            raise DatasetError(f"{path} must contain {name} ({contents.size:,} bytes); it does not; {file.remedy}")
        if name in found and (fault := contents.fault(found[name])):
            raise DatasetError(f"{name} in {path} is truncated or altered: {fault}; {file.remedy}")
    return found


def _members(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with gzip.open(path) as raw:
        with tarfile.open(fileobj=raw, mode="r|") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if member.isfile() and wanted(name) and (content := tar.extractfile(member)):
                    yield name, content.read()
        while raw.read(_BLOCK):  # to the end, where gzip stores the checksum
            pass


def check(file: File, path: Path) -> None:
    """Raise `DatasetError` unless the file's contents are right, as far as known."""
    if file.opens is not None:
        file.opens(path)
    elif file.name.endswith(".tar.gz"):
        read_members(file, path=path)
    elif file.name.endswith(".zip"):
        check_download(file, path)
    else:
        read(file, path)


def check_download(file: File, path: Path) -> None:
    """Raise `DatasetError` unless size and digest are those of the official download, as far as known."""
    kind, _, required = (file.digest or "").partition(":")
    try:
        found = path.stat().st_size
        if file.size not in (None, found):
            raise DatasetError(
                f"{path} is truncated or altered: {file.size:,} bytes required, {found:,} found; {file.remedy}"
            )
        if kind:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, kind).hexdigest()
            if digest != required:
                raise DatasetError(f"{path} is altered: {kind} {required} required, {digest} found; {file.remedy}")
    except OSError as error:
        raise damaged(file, path, error) from None


def is_folder(file: File, path: Path) -> DatasetError:
    """The error for a folder where a file is required."""
    return DatasetError(f"{path} must be a file ({file.required}); it is a folder; remove it, then {file.remedy}")


def damaged(file: File, path: Path, error: Exception) -> DatasetError:
    """The error for a file that cannot be read completely."""
    if isinstance(error, OSError) and error.errno is not None:  # a fault of the disk, not of the contents
        return DatasetError(
            f"{error.filename or path}: {error.strerror}; check its permissions and the free space there"
        )
    return DatasetError(f"{path} is truncated or damaged ({error}); {file.required} required; {file.remedy}")
