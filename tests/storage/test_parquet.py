"""Parquet files say less than they hold: what they would take is known before it is taken."""

import io
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dwac.storage import parquet
from dwac.storage.parquet import TooLargeError, read_parquet
from tests.named import refuses


def written(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    with pq.ParquetWriter(file, table.schema, compression="zstd", **options) as writer:
        writer.write_table(table)
    return file.getvalue()


def test_every_type_comes_back_as_it_was() -> None:
    n = 100
    table = pa.table(
        {
            "whole": np.arange(n),
            "text": [f"t{i}" for i in range(n)],
            "large": pa.array([None, "x"] * (n // 2), pa.large_string()),
            "bytes": pa.array([b"1", None] * (n // 2), pa.large_binary()),
            "list": [[1, 2]] * n,
            "texts": [["x", "y"]] * n,
            "struct": [{"q": 1, "r": "z"}] * n,
            "category": pa.array(["u", "v"] * (n // 2)).dictionary_encode(),
            "date": pd.date_range("2020-01-01", periods=n),
            "nothing": pa.nulls(n),
            "flag": pa.array([True, None] * (n // 2)),
            "a.b": ["x"] * n,
        }
    )
    assert read_parquet(written(table), "t", most_bytes=2**20).equals(table)
    assert read_parquet(written(table[:0]), "t", most_bytes=2**20).equals(table[:0])


def test_rows_come_in_order_whatever_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"x": np.arange(1000), "t": [f"t{i % 7}" for i in range(1000)]})
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=130)
    monkeypatch.setattr(parquet, "BATCH_ROWS", 37)
    assert read_parquet(file.getvalue(), "t", most_bytes=2**20).equals(table)


@pytest.mark.parametrize(
    ("table", "size"),
    [
        (pa.table({"x": np.zeros(2_000_000)}), "16,000,000"),
        (pa.table({"x": pa.array([b"\0" * 10**6] * 50, pa.binary(10**6))}), "50,000,000"),
        (pa.table({"x": pa.array([[0] * 2_000_000], pa.list_(pa.int64()))}), "8,000,000"),
    ],
)
def test_repeated_values_are_counted_before_they_are_read(table: pa.Table, size: str, monkeypatch: Any) -> None:
    data = written(table)
    assert len(data) < 20_000
    monkeypatch.setattr(pq, "ParquetFile", None)  # nothing is read
    with refuses(TooLargeError, "t", size):
        read_parquet(data, "t", most_bytes=2**22)


def test_one_long_text_many_times_is_refused_though_the_file_does_not_tell() -> None:
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), pa.array(["x" * 10**5]))
    data = written(pa.table({"t": text}), store_schema=False, dictionary_pagesize_limit=2**30)
    assert len(data) < 2000
    assert pq.read_metadata(io.BytesIO(data)).row_group(0).total_byte_size < 2**20
    before = pa.total_allocated_bytes()
    with refuses(TooLargeError, "t", "2,000,080,000", "4,194,304"):
        read_parquet(data, "t", most_bytes=2**22)
    assert pa.total_allocated_bytes() - before < 2**22


def test_too_many_rows_and_columns_are_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(pa.table({"x": np.arange(10), "y": np.arange(10)}))
    monkeypatch.setattr(pq, "ParquetFile", None)
    with refuses(TooLargeError, 9, 10):
        read_parquet(data, "t", most_bytes=2**20, most_rows=9)
    monkeypatch.setattr(parquet, "MOST_COLUMNS", 1)
    with refuses(TooLargeError, "t", 2, 1):
        read_parquet(data, "t", most_bytes=2**20)
