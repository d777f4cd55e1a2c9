"""Whatever stands in a file, it is scored or refused on purpose, and every row is accounted for."""

import json
import logging
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dwac.errors import DwacError
from dwac.scoring.run import score_files

ODD = [
    "",
    "1",
    "7",
    "a",
    "nan",
    ".",
    "-",
    "1e999",
    "1,5",
    "1.234,5",
    '"',
    '""',
    " ",
    "\t",
    "2020-01-01",
    "null",
    "é",
    "\0",
]
CELLS = st.sampled_from(ODD) | st.text(max_size=5)
HEADS = st.permutations(["age", "pay", "town"]) | st.lists(st.sampled_from(["age", "pay", "town", "", "x"]), max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(ODD),
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(st.text(max_size=2), parts, max_size=2),
    max_leaves=4,
)
LINES = st.lists(
    st.fixed_dictionaries({}, optional=dict.fromkeys(("age", "pay", "town", "x"), JSON)) | JSON, max_size=6
)


def separated(mark: str, rows: list[list[str]], end: str) -> bytes:
    return end.join(mark.join(row) for row in rows).encode("utf-8", "replace")


def parquet(columns: dict[str, list[Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue())


TABLES = st.tuples(HEADS, st.lists(st.lists(CELLS, max_size=5), max_size=6)).map(lambda parts: [parts[0], *parts[1]])
COLUMN = st.integers(0, 4).flatmap(
    lambda n: st.one_of(
        *(st.lists(kind, min_size=n, max_size=n) for kind in (st.integers(-(2**62), 2**62), st.floats(), st.booleans()))
        , *(st.lists(st.none() | kind, min_size=n, max_size=n) for kind in (CELLS, st.binary(max_size=3), st.dates())),
    )
)  # fmt: skip
FILES = st.one_of(
    st.builds(lambda rows, end: ("a.csv", separated(",", rows, end)), TABLES, st.sampled_from(["\n", "\r\n", "\r"])),
    st.builds(lambda rows: ("a.tsv", separated("\t", rows, "\n")), TABLES),
    LINES.map(lambda lines: ("a.jsonl", "\n".join(map(json.dumps, lines)).encode())),
    st.tuples(st.sampled_from(["a.csv", "a.jsonl", "a.parquet", "a.csv.gz"]), st.binary(max_size=40)),
    st.builds(
        lambda columns: ("a.parquet", parquet({name: column[: min(map(len, columns))] for name, column in zip(
            ("age", "pay", "town"), columns, strict=True)})),
        st.tuples(COLUMN, COLUMN, COLUMN),
    ),
)  # fmt: skip


@settings(max_examples=20)
@example(("a.csv.gz", b"\x1f\x8b"))
@example(("a.tsv", b"\n\xc2\x85"))
@given(FILES)
@pytest.mark.filterwarnings("ignore::dwac.errors.UnreadableWarning")
def test_any_file_is_scored_or_refused_and_every_row_is_accounted_for(
    folder_of: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, file: tuple[str, bytes]
) -> None:
    name, data = file
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    for old in tmp_path.glob("a.*"):
        old.unlink()
    (tmp_path / name).write_bytes(data)
    caplog.clear()
    with suppress(DwacError), caplog.at_level(logging.ERROR):
        found = score_files(folder_of("classes"), tmp_path / name, tmp_path / "out", device="cpu", workers=1)
        written = sum(len(pd.read_parquet(path)) for path in (tmp_path / "out").glob("part-*"))
        aside = sum(len(path.read_bytes().splitlines()) for path in (tmp_path / "out").glob("_unreadable/*"))
        assert (written, aside) == (found.rows, found.unreadable) or found.failed
    assert not [record for record in caplog.records if record.exc_info]  # nothing but errors on purpose
