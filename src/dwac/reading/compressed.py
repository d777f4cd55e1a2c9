"""Compressed files, known by their first bytes: gzip, Zstandard, bzip2, xz, and a zip archive with one file."""

from __future__ import annotations

import io
import lzma
import zipfile
from pathlib import PurePath
from typing import IO, Any

import pyarrow as pa

from dwac._checks import listed
from dwac.errors import InputError
from dwac.reading.tables import room

SUFFIXES = (".gz", ".zst", ".bz2", ".xz", ".zip")
_MARKS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz"}
_BZIP2 = b"1AY&SY"  # begins its first block, after BZh and a digit


def plain_name(name: str) -> str:
    """A file name without the ending of a compression.

    >>> plain_name("rows.csv.gz"), plain_name("rows.csv")
    ('rows.csv', 'rows.csv')
    """
    path = PurePath(name)
    return str(path.with_suffix("")) if path.suffix.lower() in SUFFIXES else name


def decompressed(data: bytes, name: str) -> tuple[str, bytes]:
    """(name of what is inside, its bytes); what is not compressed stays as it is."""
    how = next((how for mark, how in _MARKS.items() if data.startswith(mark)), None)
    if data[:3] == b"BZh" and data[4:10] == _BZIP2:
        how = "bz2"
    if how is None and data[:4] == b"PK\x03\x04":
        return _from_archive(data, name)
    if how is None:
        return name, data
    try:
        with _stream(data, how) as stream:
            return plain_name(name), _limited(stream, name)
    except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as error:
        raise InputError(f"{name} cannot be decompressed ({how}): {error!s:.200}; copy it again") from None


def _stream(data: bytes, how: str) -> Any:
    return lzma.LZMAFile(io.BytesIO(data)) if how == "xz" else pa.CompressedInputStream(pa.BufferReader(data), how)


def _from_archive(data: bytes, name: str) -> tuple[str, bytes]:
    """The only file of a zip archive. A workbook is an archive too, and stays as it is."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            inside = archive.namelist()
            if "[Content_Types].xml" in inside or "mimetype" in inside:
                return name, data
            files = [file for file in inside if not file.endswith("/") and not file.startswith("__MACOSX/")]
            if len(files) != 1:
                raise InputError(f"{name} must hold one file; it holds {listed(files) or 'none'}; unpack it first")
            with archive.open(files[0]) as stream:
                return f"{plain_name(name)}/{files[0]}", _limited(stream, name)
    except InputError:
        raise
    except Exception as error:  # a damaged archive may make zipfile raise anything
        if "password" in str(error):
            raise InputError(f"{name} is protected by a password; unpack it first") from None
        raise InputError(f"{name} is not a readable zip archive: {error!s:.200}; copy it again") from None


def _limited(stream: IO[bytes], name: str) -> bytes:
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
