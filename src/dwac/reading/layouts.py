"""How a file of data is laid out: its format, compression and encoding, and the column names of CSV."""

from __future__ import annotations

import codecs
import csv
import io
import json
import lzma
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import IO, Any

import pyarrow as pa

from dwac._checks import listed
from dwac._machine import memory
from dwac.errors import InputError
from dwac.reading.places import place
from dwac.reading.records import BLOCK, spans
from dwac.storage.parquet import require_columns

FORMS = ("parquet", "csv", "tsv", "jsonl")
INDEX = ""  # the name of the unnamed first column, where pandas writes its index
SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
SUFFIXES |= {".parquet": "parquet", ".pq": "parquet"}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}
_MARKS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz"}  # first bytes of files
_BZIP2 = b"1AY&SY"  # the start of the first block, after BZh and a digit
_DELIMITERS = ",\t;|"
_CELL = r'(?m)(?:^|;)"?-?{}"?(?:;|\r?$)'
_COMMA = re.compile(_CELL.format("[0-9]+,[0-9]+"))
# 1.500 may be 1500, with a point between thousands.
_POINT = re.compile(_CELL.format(r"(?![1-9][0-9]{0,2}\.[0-9]{3}\b)[0-9]+\.[0-9]+"))
HEAD = 2**16  # bytes from which the layout is inferred; more if the column names are longer
_LONGEST_HEAD = 2**24
_BY_BYTE = ("utf-8", "ascii", "iso8859", "cp125", "koi8", "mac-")  # encodings in which the byte 10 is always a newline


def room() -> int:
    """The most bytes a table may have: a quarter of this machine's memory, as pandas and the model need some too."""
    return memory() // 4


# Names of files and columns


def form_of(name: str) -> str | None:
    """The format by a file name's suffix, ignoring a compression suffix; None if it is not in FORMS."""
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


def named(names: list[str], name: str) -> list[str]:
    """Column names without surrounding spaces; an error if one is repeated or empty."""
    require_columns(len(names), name)
    names, met = [column.strip() for column in names], set[str]()
    for number, column in enumerate(names, start=1):
        if column == INDEX and number > 1:
            raise InputError(f"{name}: column {number} has no name; the first line must name every column")
        if column in met:
            raise InputError(
                f"{name}: column names must be unique; {column!r} appears more than once; rename or drop one of them"
            )
        met.add(column)
    return names


# Compressed files


def compression_of(name: str) -> str | None:
    """The compression of a file, by its name."""
    return _COMPRESSIONS.get(suffix_of(name))


@contextmanager
def decompressing(raw: Any, how: str, name: str) -> Iterator[Any]:
    """A stream of the decompressed bytes of a file."""
    try:
        if how == "xz":
            with lzma.LZMAFile(raw) as stream:
                yield stream
        else:
            with pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), how) as stream:
                yield stream
    except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as error:
        raise InputError(f"{name} cannot be decompressed ({how}): {error!s:.200}; copy it again") from None


def decompressed(data: bytes, name: str) -> tuple[str, bytes]:
    """(name of the file inside, its bytes), recognized by the first bytes; uncompressed data stays unchanged."""
    how = next((how for mark, how in _MARKS.items() if data.startswith(mark)), None)
    if data[:3] == b"BZh" and data[4:10] == _BZIP2:
        how = "bz2"
    if how is None:
        return _from_archive(data, name) if data[:4] == b"PK\x03\x04" else (name, data)
    with decompressing(io.BytesIO(data), how, name) as stream:
        return plain_name(name), _limited(stream, name)


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


@contextmanager
def opened(url: str) -> Iterator[Any]:
    """The bytes of a file, decompressed."""
    there, how = place(url), compression_of(url)
    with there.fs.open(there.path, "rb") as raw:
        if how is None:
            yield raw
        else:
            with decompressing(raw, how, url) as stream:
                yield stream


# Layouts


def delimiter_of(head: str, form: str) -> str:
    """The field separator of CSV or TSV, inferred from the line with the column names."""
    return "\t" if form == "tsv" else max(_DELIMITERS, key="".join(head.split('"')[::2]).count)


def decimal_comma(text: str, delimiter: str) -> bool:
    """Whether decimals are written with a comma: 3,5 in some cells, and 3.5 in none (1.500 beside them is 1500)."""
    return delimiter == ";" and bool(_COMMA.search(text)) and not _POINT.search(text)


@dataclass(frozen=True)
class Layout:
    """What is known about a CSV or JSON Lines file before its rows are read."""

    url: str
    form: str
    encoding: str
    start: int = 0  # the byte where its rows begin, if it can be divided
    line: int = 0  # number of lines before the rows
    names: tuple[str, ...] = ()  # columns of CSV; for JSON Lines, the keys of its first lines
    delimiter: str = ","
    comma: bool = False  # whether numbers have decimal commas

    @property
    def divisible(self) -> bool:
        """Whether the ends of records can be found without reading from the beginning."""
        return compression_of(self.url) is None and self.encoding.startswith(_BY_BYTE)

    @property
    def mark(self) -> bytes | None:
        """The delimiter, as `dwac.reading.records` takes it."""
        return None if self.form == "jsonl" else self.delimiter.encode()

    def blocks(self, size: int | None = None) -> Iterator[bytes]:
        """The bytes of the rows, decompressed, in the encoding `stored`; size: bytes read at once."""
        skip = self.start
        with opened(self.url) as stream:
            if self.divisible:
                stream.seek(skip)
                skip = 0
            for block in _transcoded(stream, self.encoding, size or BLOCK):
                yield block[skip:]
                skip = max(skip - len(block), 0)

    @property
    def stored(self) -> str:
        """The encoding of `blocks`: one in which a byte 10 is always a newline."""
        return self.encoding if self.encoding.startswith(_BY_BYTE) else "utf-8"


def _transcoded(stream: Any, encoding: str, size: int) -> Iterator[bytes]:
    if encoding.startswith(_BY_BYTE):
        while block := stream.read(size):
            yield bytes(block)
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    while block := stream.read(size):
        yield decoder.decode(bytes(block)).encode()
    yield decoder.decode(b"", final=True).encode()


def layout_of(url: str, form: str, encoding: str, separator: str | None = None, decimal: str | None = None) -> Layout:
    """The layout of a file, inferred from its beginning; separator and decimal mark of CSV, if known, are kept."""

    def begin(size: int) -> bytes:
        with opened(url) as stream:
            return bytes(stream.read(size))

    return judge_layout(begin, url, form, encoding, separator, decimal)


def judge_layout(
    begin: Callable[[int], bytes],
    url: str,
    form: str,
    encoding: str,
    separator: str | None = None,
    decimal: str | None = None,
) -> Layout:
    """`layout_of` for anything that returns its first bytes; url: its name."""
    encoding, size = _normal(encoding), HEAD
    while True:
        head = begin(size)
        whole = len(head) < size
        if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            encoding = "utf-16"
        if not encoding.startswith(_BY_BYTE):
            head = head.decode(encoding, errors="ignore").encode()
        mark = 3 if head[:3] == codecs.BOM_UTF8 else 0
        if not head[mark:].strip():
            raise InputError(f"{url} is empty; give a file with data, or remove it")
        if form == "jsonl":
            return Layout(url, form, encoding, start=mark, names=_keys(head[mark:]))
        known = separator if form == "csv" else None
        found = _csv_layout(Layout(url, form, encoding, start=mark), head[mark:], known, decimal, whole=whole)
        if found is not None:
            return found
        if size >= _LONGEST_HEAD:
            raise InputError(f"{url}: the first line must name the columns, and does not end; is this CSV?")
        size *= 16


def _csv_layout(
    known: Layout, head: bytes, separator: str | None, decimal: str | None, *, whole: bool
) -> Layout | None:
    """The layout of CSV from its beginning; None if it does not contain all of the column names."""
    text = head.decode(known.stored, errors="replace")
    first = next((line for line in text.splitlines() if line.strip()), None)
    if first is None:  # only whitespace, including Unicode whitespace
        raise InputError(f"{known.url} is empty; give a file with data, or remove it")
    delimiter = separator or delimiter_of(first, known.form)
    starts, stops = spans(head, delimiter.encode())
    if stops[0] >= len(head) and not whole:
        return None
    written = head[starts[0] : stops[0]].decode(known.stored, errors="replace")
    if "\r" in written.rstrip("\r").partition('"')[0]:
        raise InputError(f"{known.url}: its lines end with a carriage return alone; end them with a newline")
    end = min(int(stops[0]) + 1, len(head))
    return replace(
        known,
        start=known.start + end,
        line=head.count(b"\n", 0, end) or 1,
        names=tuple(named(next(csv.reader(io.StringIO(written, newline=""), delimiter=delimiter)), known.url)),
        delimiter=delimiter,
        comma=decimal_comma(text, delimiter) if decimal is None else decimal == ",",
    )


def _keys(head: bytes) -> tuple[str, ...]:
    """The keys of the first lines of JSON Lines, as far as they can be read."""
    found: dict[str, None] = {}
    for line in head.split(b"\n"):
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            found |= dict.fromkeys(str(key).strip() for key in row) if isinstance(row, dict) else {}
    return tuple(found)


def _normal(encoding: str) -> str:
    try:
        return codecs.lookup("utf-8" if encoding.lower() in ("utf8", "utf-8-sig") else encoding).name
    except LookupError:
        raise InputError(f"unknown encoding {encoding!r}; use for example utf-8, latin-1 or utf-16") from None
