"""How a file of data is laid out: its format, compression and encoding, and the column names of CSV."""

from __future__ import annotations

import codecs
import csv
import io
import json
import lzma
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from dwac.errors import InputError
from dwac.reading.tables import decimal_comma, delimiter_of, named
from dwac.scoring.places import place
from dwac.scoring.records import BLOCK, spans

FORMS = ("parquet", "csv", "tsv", "jsonl")
_SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_SUFFIXES |= {".parquet": "parquet", ".pq": "parquet"}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}
_HEAD = 2**16  # bytes from which the layout is judged; more where the column names are longer
_LONGEST_HEAD = 2**24
_BY_BYTE = ("utf-8", "ascii", "iso8859", "cp125", "koi8", "mac-")  # encodings in which the byte 10 is always a newline


def form_of(name: str) -> str | None:
    """The format that a file name ends in, before any ending of a compression; None if it is none of FORMS."""
    suffix = _suffix(_uncompressed(name))
    return _SUFFIXES.get(suffix)


def compression_of(name: str) -> str | None:
    """How a file is compressed, by its name."""
    return _COMPRESSIONS.get(_suffix(name))


def _suffix(name: str) -> str:
    base = name.rsplit("/", 1)[-1]
    return f".{base.rsplit('.', 1)[-1].lower()}" if "." in base else ""


def _uncompressed(name: str) -> str:
    return name.rsplit(".", 1)[0] if _suffix(name) in _COMPRESSIONS else name


@dataclass(frozen=True)
class Layout:
    """What is known of a CSV or JSON Lines file before its rows are read."""

    url: str
    form: str
    encoding: str
    start: int = 0  # the byte where its rows begin, if it can be divided
    line: int = 0  # how many lines come before
    names: tuple[str, ...] = ()  # columns of CSV; of JSON Lines those that its first lines have
    delimiter: str = ","
    comma: bool = False  # whether decimals have a comma

    @property
    def divisible(self) -> bool:
        """Whether records end at bytes that can be found without reading from the beginning."""
        return compression_of(self.url) is None and self.encoding.startswith(_BY_BYTE)

    @property
    def mark(self) -> bytes | None:
        """The delimiter, as `dwac.scoring.records` takes it."""
        return None if self.form == "jsonl" else self.delimiter.encode()

    def blocks(self) -> Iterator[bytes]:
        """The bytes of the rows, decompressed, in the encoding `stored`."""
        skip = self.start
        with opened(self.url) as stream:
            if self.divisible:
                stream.seek(skip)
                skip = 0
            for block in _transcoded(stream, self.encoding):
                yield block[skip:]
                skip = max(skip - len(block), 0)

    @property
    def stored(self) -> str:
        """The encoding of `blocks`: one in which a byte 10 is always a newline."""
        return self.encoding if self.encoding.startswith(_BY_BYTE) else "utf-8"


def _transcoded(stream: Any, encoding: str) -> Iterator[bytes]:
    if encoding.startswith(_BY_BYTE):
        while block := stream.read(BLOCK):
            yield bytes(block)
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    while block := stream.read(BLOCK):
        yield decoder.decode(bytes(block)).encode()
    yield decoder.decode(b"", final=True).encode()


def layout_of(url: str, form: str, encoding: str, separator: str | None = None, decimal: str | None = None) -> Layout:
    """The layout of a file, judged from its beginning, except for what is known of CSV: separator and decimal mark."""
    encoding, size = _normal(encoding), _HEAD
    while True:
        with opened(url) as stream:
            head = bytes(stream.read(size))
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
    """The layout of CSV from its beginning; None if the column names do not end in it."""
    text = head.decode(known.stored, errors="replace")
    first = next((line for line in text.splitlines() if line.strip()), None)
    if first is None:  # nothing but blanks of all languages
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


@contextmanager
def opened(url: str) -> Iterator[Any]:
    """The bytes of a file, decompressed."""
    there, how = place(url), compression_of(url)
    with there.fs.open(there.path, "rb") as raw:
        if how is None:
            yield raw
            return
        read = lzma.LZMAFile if how == "xz" else lambda raw: pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), how)
        try:
            with read(raw) as stream:
                yield stream
        except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as error:
            raise InputError(f"{url} cannot be decompressed ({how}): {error!s:.200}; copy it again") from None
