"""Find where records of CSV and JSON Lines end, in blocks of bytes, so that one huge file can be divided exactly.

A newline ends a CSV record unless it is within quotes. A quote opens a field only at its start: in `5" pipe` it is an
ordinary character. Arrow and Python's csv read files in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]

BLOCK = 2**22  # bytes read at once, and the size of the smallest pieces
LONGEST = 2**26  # bytes of the longest record; beyond that, a quote was never closed
_QUOTE, _NEWLINE, _RETURN = 34, 10, 13


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
    kept, inside, closed = [], quoted, -1 if resumed else -2
    for place, start in zip(quotes.tolist(), starts.tolist(), strict=True):
        if inside:
            closed = place
        elif not (start or closed == place - 1):
            continue  # an ordinary character in an unquoted field
        inside = not inside
        kept.append(place)
    return np.array(kept, dtype=np.int64)


def spans(data: bytes, delimiter: bytes | None) -> tuple[Places, Places]:
    """(starts, stops) of the records in some bytes, without their newlines; blank lines are not records."""
    ends = ends_of(data, delimiter)[0]
    if not data.endswith(b"\n") or len(ends) == 0 or ends[-1] != len(data) - 1:
        ends = np.append(ends, len(data))
    starts = np.append(0, ends[:-1] + 1)
    kept = ~_blank(np.frombuffer(data, dtype=np.uint8), starts, ends)
    return starts[kept], ends[kept]


def _blank(array: NDArray[np.uint8], starts: Places, ends: Places) -> NDArray[np.bool_]:
    length = ends - starts
    single = length == 1
    single[single] = array[starts[single]] == _RETURN
    return np.asarray((length == 0) | single)


@dataclass
class _State:
    start: int
    row: int = 0
    line: int = 0
    quoted: bool = False


def cuts(blocks: Iterable[bytes], delimiter: bytes | None, *, start: int = 0, line: int = 0) -> Iterator[Cut]:
    """The bytes of a stream, divided where records end: about one part per block.

    A record longer than LONGEST has a quote that is never closed. The rest of the stream is then one last `Cut` that
    is not whole and holds only the beginning of the data.
    """
    state, held = _State(start, 0, line), b""
    scanned = 0  # bytes of `held` known to contain no end of a record
    for block in blocks:
        before = held[-1] if held else _NEWLINE
        ends, quoted = ends_of(block, delimiter, quoted=state.quoted, before=before)
        held, scanned, state.quoted = held + block, len(held), quoted
        if len(ends):
            place = scanned + int(ends[-1]) + 1
            yield _taken(state, held[:place], delimiter)
            held = held[place:]
        elif len(held) > LONGEST:
            yield Cut(held[:LONGEST], state.start, state.row, state.line, 0, whole=False)
            return
    if held:
        open_quote = state.quoted
        yield _taken(state, held, delimiter)._replace(whole=not open_quote)


def _taken(state: _State, data: bytes, delimiter: bytes | None) -> Cut:
    """A cut of these bytes; moves the state to their end."""
    rows = len(spans(data, delimiter)[0])
    found = Cut(data, state.start, state.row, state.line, rows)
    state.start += len(data)
    state.row += rows
    state.line += data.count(b"\n") + (not data.endswith(b"\n"))
    return found
