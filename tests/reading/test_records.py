"""Where records end: exactly where Python's csv says so, however the bytes are cut into blocks."""

import csv
import io

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dwac.reading import layouts
from dwac.reading.layouts import cuts, spans

CELLS = st.text(st.sampled_from('a"\n, '), max_size=4)
TABLES = st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=8)


def rows_of(text: str) -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(text, newline="")) if row]


def blocks(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@given(TABLES, st.integers(1, 9))
def test_a_table_is_cut_between_records(table: list[list[str]], size: int) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(table)
    data = out.getvalue().encode()
    found = list(cuts(blocks(data, size), b","))
    assert b"".join(cut.data for cut in found) == data
    assert [row for cut in found for row in rows_of(cut.data.decode())] == rows_of(out.getvalue())
    for cut in found:
        assert cut.start == data.index(cut.data, cut.start)
        assert cut.rows == len(rows_of(cut.data.decode()))
        assert cut.row == len(rows_of(data[: cut.start].decode()))
        assert cut.line == data.count(b"\n", 0, cut.start)


@given(st.text(st.sampled_from('ab",\n'), max_size=30))
def test_quotes_within_a_field_are_characters_as_for_python(text: str) -> None:
    data = text.encode()
    starts, stops = spans(data, b",")
    found = [rows_of(data[start:stop].decode()) for start, stop in zip(starts, stops, strict=True)]
    assert [row for rows in found for row in rows] == rows_of(text)
    assert all(len(rows) == 1 for rows in found)


def test_a_quote_that_is_never_closed_ends_the_search(monkeypatch) -> None:
    monkeypatch.setattr(layouts, "LONGEST", 100)
    data = b'a,b\nc,"d\n' + b"e,f\n" * 200
    good, rest = cuts(blocks(data, 16), b",")
    assert (good.data, good.whole) == (b"a,b\n", True)
    assert (rest.start, rest.row, rest.line, rest.whole) == (4, 1, 1, False)
    good, short = cuts([b'a,b\nc,"d\ne'], b",")
    assert (good.whole, short.whole, short.rows) == (True, False, 1)


def test_every_line_of_json_is_a_record_and_blank_lines_are_none() -> None:
    data = b'{"a": "\\"x"}\n\n\r\n{"a": 1}'
    assert [cut.rows for cut in cuts(blocks(data, 5), None)][-1] == 1
    starts, stops = spans(data, None)
    assert [data[a:b] for a, b in zip(starts, stops, strict=True)] == [b'{"a": "\\"x"}', b'{"a": 1}']
    assert np.all(stops > starts)
