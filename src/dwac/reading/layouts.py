"""How a file of CSV or JSON Lines is laid out: its encoding, its column names, and where its records end.

A newline ends a CSV record unless it is within quotes. A quote opens a field only at its start: in `5" pipe` it is an
ordinary character. Arrow and Python's csv read files in the same way. So one huge file can be divided exactly.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dwac.errors import InputError
from dwac.reading.places import compression_of, open_file
from dwac.storage.parquet import require_columns

Places = NDArray[np.int64]

FORMS = ("parquet", "csv", "tsv", "jsonl")
INDEX = ""  # the name of the unnamed first column, where pandas writes its index
_DELIMITERS = ",\t;|"
_CELL = r'(?m)(?:^|;)"?-?{}"?(?:;|\r?$)'
_COMMA = re.compile(_CELL.format("[0-9]+,[0-9]+"))
# 1.500 may be 1500, with a point between thousands.
_POINT = re.compile(_CELL.format(r"(?![1-9][0-9]{0,2}\.[0-9]{3}\b)[0-9]+\.[0-9]+"))
BLOCK = 2**22  # bytes read at once, and the size of the smallest pieces
LONGEST = 2**26  # bytes of the longest record; beyond that, a quote was never closed
_QUOTE, _NEWLINE, _RETURN = 34, 10, 13
HEAD = 2**16  # bytes from which the layout is inferred; more if the column names are longer
_LONGEST_HEAD = 2**24
_BY_BYTE = ("utf-8", "ascii", "iso8859", "cp125", "koi8", "mac-")  # encodings in which the byte 10 is always a newline


def check_names(names: list[str], name: str) -> list[str]:
    """Column names without surrounding spaces; an error if one is repeated or empty."""
    require_columns(len(names), name)
    names, earlier = [column.strip() for column in names], set[str]()
    for number, column in enumerate(names, start=1):
        if column == INDEX and number > 1:
            raise InputError(f"{name}: column {number} has no name; the first line must name every column")
        if column in earlier:
            raise InputError(
                f"{name}: column names must be unique; {column!r} appears more than once; rename or drop one of them"
            )
        earlier.add(column)
    return names


def delimiter_of(head: str, form: str) -> str:
    """The field separator of CSV or TSV, inferred from the line with the column names."""
    return "\t" if form == "tsv" else max(_DELIMITERS, key="".join(head.split('"')[::2]).count)


def decimal_comma(text: str, delimiter: str) -> bool:
    """Whether decimals are written with a comma: 3,5 in some cells, and 3.5 in none (1.500 beside them is 1500)."""
    return delimiter == ";" and bool(_COMMA.search(text)) and not _POINT.search(text)


@dataclass(frozen=True)
class FileLayout:
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
        """The delimiter, as `cuts` takes it."""
        return None if self.form == "jsonl" else self.delimiter.encode()

    def blocks(self, size: int | None = None) -> Iterator[bytes]:
        """The bytes of the rows, decompressed, in the encoding `stored`; size: bytes read at once."""
        skip = self.start
        with open_file(self.url) as stream:
            if self.divisible:
                stream.seek(skip)
                skip = 0
            for block in _read_blocks(stream, self.encoding, size or BLOCK):
                yield block[skip:]
                skip = max(skip - len(block), 0)

    @property
    def stored(self) -> str:
        """The encoding of `blocks`: one in which a byte 10 is always a newline."""
        return self.encoding if self.encoding.startswith(_BY_BYTE) else "utf-8"


def _read_blocks(stream: Any, encoding: str, size: int) -> Iterator[bytes]:
    if encoding.startswith(_BY_BYTE):
        while block := stream.read(size):
            yield bytes(block)
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    while block := stream.read(size):
        yield decoder.decode(bytes(block)).encode()
    yield decoder.decode(b"", final=True).encode()


def layout_of(
    url: str, form: str, encoding: str, separator: str | None = None, decimal: str | None = None
) -> FileLayout:
    """The layout of a file, inferred from its beginning; separator and decimal mark of CSV, if known, are kept."""

    def begin(size: int) -> bytes:
        with open_file(url) as stream:
            return bytes(stream.read(size))

    return infer_layout(begin, url, form, encoding, separator, decimal)


def infer_layout(
    begin: Callable[[int], bytes],
    url: str,
    form: str,
    encoding: str,
    separator: str | None = None,
    decimal: str | None = None,
) -> FileLayout:
    """`layout_of` for anything that returns its first bytes; url: its name."""
    encoding, size = encoding_name(encoding), HEAD
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
            return FileLayout(url, form, encoding, start=mark, names=_keys(head[mark:]))
        known = separator if form == "csv" else None
        layout = _csv_layout(FileLayout(url, form, encoding, start=mark), head[mark:], known, decimal, whole=whole)
        if layout is not None:
            return layout
        if size >= _LONGEST_HEAD:
            raise InputError(f"{url}: the first line must name the columns, and does not end; is this CSV?")
        size *= 16


def _csv_layout(
    known: FileLayout, head: bytes, separator: str | None, decimal: str | None, *, whole: bool
) -> FileLayout | None:
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
        names=tuple(check_names(next(csv.reader(io.StringIO(written, newline=""), delimiter=delimiter)), known.url)),
        delimiter=delimiter,
        comma=decimal_comma(text, delimiter) if decimal is None else decimal == ",",
    )


def _keys(head: bytes) -> tuple[str, ...]:
    """The keys of the first lines of JSON Lines, as far as they can be read."""
    keys: dict[str, None] = {}
    for line in head.split(b"\n"):
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            keys |= dict.fromkeys(str(key).strip() for key in row) if isinstance(row, dict) else {}
    return tuple(keys)


def encoding_name(encoding: str) -> str:
    """The name that Python gives an encoding; UTF-8 with a byte order mark is UTF-8."""
    try:
        "".encode(encoding)  # fails for codecs that are no encodings of text, such as rot13
        return codecs.lookup("utf-8" if encoding.lower() in ("utf8", "utf-8-sig") else encoding).name
    except LookupError:
        raise InputError(f"unknown encoding {encoding!r}; use for example utf-8, latin-1 or utf-16") from None


# Records


class Cut(NamedTuple):
    """Bytes of whole records: they start where a record starts and end where one ends."""

    data: bytes
    start: int  # the first byte, counted from the beginning of the stream
    row: int  # number of records before it
    line: int  # number of lines before it
    rows: int  # records in it
    whole: bool = True  # False: the last record has a quote that is never closed


def ends_of(
    data: bytes, delimiter: bytes | None, *, quoted: bool = False, before: int = _NEWLINE
) -> tuple[Places, bool]:
    """The ends of records in some bytes (newlines outside quotes), and whether the bytes end within quotes.

    delimiter: of CSV; None for JSON Lines, where every newline ends a record. quoted: whether the bytes begin within
    quotes; before: the byte before them.

    >>> ends_of(b'a,"b\\nc"\\nd\\n', b",")[0].tolist()
    [7, 9]
    """
    array = np.frombuffer(data, dtype=np.uint8)
    newlines = np.flatnonzero(array == _NEWLINE)
    if delimiter is None:
        return newlines, False
    quotes = np.flatnonzero(array == _QUOTE)
    if len(quotes) == 0:
        return (newlines[:0] if quoted else newlines), quoted
    switches = _switches(array, quotes, delimiter[0], quoted, before)
    inside = (np.searchsorted(switches, newlines) + quoted) % 2 == 1
    return newlines[~inside], bool((len(switches) + quoted) % 2)


def _switches(array: NDArray[np.uint8], quotes: Places, delimiter: int, quoted: bool, before: int) -> Places:
    """The quotes that open or close a field; "" within a field closes and opens it."""
    prior = np.where(quotes > 0, array[quotes - 1], before)
    starts = np.isin(prior, (delimiter, _NEWLINE, _RETURN))
    opening = np.arange(len(quotes)) % 2 == (1 if quoted else 0)
    resumed = quotes[0] == 0 and before == _QUOTE  # the previous block ended with the first half of ""
    doubled = np.append(resumed, np.diff(quotes) == 1)
    if (starts | doubled)[opening].all():
        return quotes
    switches, inside, closed = [], quoted, -1 if resumed else -2
    for place, start in zip(quotes.tolist(), starts.tolist(), strict=True):
        if inside:
            closed = place
        elif not (start or closed == place - 1):
            continue  # an ordinary character in an unquoted field
        inside = not inside
        switches.append(place)
    return np.array(switches, dtype=np.int64)


def spans(data: bytes, delimiter: bytes | None) -> tuple[Places, Places]:
    """(starts, stops) of the records in some bytes, without their newlines; blank lines are not records."""
    ends = ends_of(data, delimiter)[0]
    if not data.endswith(b"\n") or len(ends) == 0 or ends[-1] != len(data) - 1:
        ends = np.append(ends, len(data))
    starts = np.append(0, ends[:-1] + 1)
    kept = ~_are_blank(np.frombuffer(data, dtype=np.uint8), starts, ends)
    return starts[kept], ends[kept]


def _are_blank(array: NDArray[np.uint8], starts: Places, ends: Places) -> NDArray[np.bool_]:
    length = ends - starts
    single = length == 1
    single[single] = array[starts[single]] == _RETURN
    return np.asarray((length == 0) | single)


def cuts(blocks: Iterable[bytes], delimiter: bytes | None, *, start: int = 0, line: int = 0) -> Iterator[Cut]:
    """The bytes of a stream, divided where records end: about one part per block.

    A record longer than LONGEST has a quote that is never closed. The rest of the stream is then one last `Cut` that
    is not whole and holds only the beginning of the data.
    """
    row, rest, quoted = 0, b"", False

    def cut(data: bytes, *, whole: bool = True) -> Cut:
        nonlocal start, row, line
        part = Cut(data, start, row, line, len(spans(data, delimiter)[0]), whole)
        start, row = start + len(data), row + part.rows
        line += data.count(b"\n") + (not data.endswith(b"\n"))
        return part

    for block in blocks:
        ends, quoted = ends_of(block, delimiter, quoted=quoted, before=rest[-1] if rest else _NEWLINE)
        scanned, rest = len(rest), rest + block  # the bytes scanned before contain no end of a record
        if len(ends):
            place = scanned + int(ends[-1]) + 1
            yield cut(rest[:place])
            rest = rest[place:]
        elif len(rest) > LONGEST:
            yield Cut(rest[:LONGEST], start, row, line, 0, whole=False)
            return
    if rest:
        yield cut(rest, whole=not quoted)
