"""A model folder gives back what was written, survives being killed at any moment, and says what is wrong with it."""

import datetime as dt
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dwac.errors import DwacError, EncodingError, InputError, StorageError
from dwac.storage import decode_value, encode_value, read_model, write_model
from dwac.storage import folder as folder_module
from tests.named import named, posix, refuses

ROOT = Path(__file__).parents[2]
CONFIG = {"labels": ["a", 1, None, True, 0.5], "nested": {"é": [[], {}]}}
TENSORS = {"w": torch.arange(6.0).reshape(2, 3), "n": torch.tensor(7)}
FRAME = pd.DataFrame({"age": [3, 4], "name": ["Ann", None]}, index=pd.Index(["p1", ("p", 2)], tupleize_cols=False))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", CONFIG, TENSORS, FRAME)


def the(model: Path, pattern: str) -> Path:
    [path] = model.glob(pattern)
    return path


def rewrite(model: Path, change: Any) -> None:
    """Edit model.json."""
    content = json.loads((model / "model.json").read_text())
    change(content)
    (model / "model.json").write_text(json.dumps(content))


def round_trip(folder: Path, frame: pd.DataFrame) -> pd.DataFrame:
    examples = read_model(write_model(folder / "m", {}, {}, frame)).examples
    assert examples is not None
    return examples


# What is written comes back


def test_a_model_comes_back(model):
    stored = read_model(model)
    assert stored.config == CONFIG
    assert stored.tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert torch.equal(stored.tensors[name], tensor)
        assert stored.tensors[name].dtype == tensor.dtype
    assert stored.examples is not None
    pd.testing.assert_frame_equal(stored.examples, FRAME)


def test_the_folder_holds_three_files_named_by_their_content(model):
    assert sorted(path.name.partition("-")[0] for path in model.iterdir()) == ["examples", "model.json", "weights"]
    content = json.loads((model / "model.json").read_text())
    assert (content["format"], content["version"]) == ("dwac-model", 1)
    for part in content["files"].values():
        assert part["sha256"][:16] in part["name"]
        assert (model / part["name"]).stat().st_size == part["size"]


def test_without_examples_no_record_is_on_the_disk(model):
    write_model(model, CONFIG, TENSORS)
    assert read_model(model).examples is None
    assert not list(model.glob("examples*"))


def test_parents_are_created_and_empty_folders_used(tmp_path, monkeypatch):
    assert read_model(write_model(tmp_path / "a" / "b" / "c", {}, TENSORS)).config == {}
    (tmp_path / "empty").mkdir()
    write_model(str(tmp_path / "empty"), {}, {})
    monkeypatch.chdir(tmp_path)
    assert read_model(write_model("relative", {}, {})).tensors == {}


def test_any_layout_of_tensor_comes_back(tmp_path):
    base = torch.randn(4, 6)
    tensors = {
        "transposed": base.T,
        "strided": base[::2, 1:],
        "base": base,
        "view": base.view(-1),
        "expanded": torch.ones(1, 3).expand(5, 3),
        "bf16": base.bfloat16(),
        "half": base.half(),
        "bool": base > 0,
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.empty(0, 3),
        "other empty": torch.empty(2, 0),
        "parameter": torch.nn.Parameter(base[0]),
        "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
        "nan": torch.tensor([float("nan"), float("inf")]),
    }
    back = read_model(write_model(tmp_path / "m", {}, tensors)).tensors
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        torch.testing.assert_close(back[name], tensor.detach().resolve_conj(), rtol=0, atol=0, equal_nan=True)
    back["base"].zero_()  # what comes back may be changed, and shares nothing
    assert torch.equal(back["view"], base.view(-1))


def test_equal_models_have_equal_bytes(tmp_path):
    one, two = (write_model(tmp_path / name, CONFIG, TENSORS, FRAME) for name in ("one", "two"))
    assert {path.name: path.read_bytes() for path in one.iterdir()} == {
        path.name: path.read_bytes() for path in two.iterdir()
    }


def test_writing_the_same_again_heals_a_damaged_file(model):
    the(model, "weights*").write_bytes(b"junk")
    write_model(model, CONFIG, TENSORS, FRAME)
    assert read_model(model).config == CONFIG


# What is refused


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("config", "facts"),
    [
        ({"a": {1, 2}}, ["config['a']", "set"]),
        ({"a": [1, (2, 3)]}, ["config['a'][1]", "tuple", "encode_value"]),
        ({"a": float("nan")}, ["finite"]),
        ({"a": np.int64(3)}, ["int64"]),
        ({1: 2}, ["strings"]),
        ({"a": "\ud800"}, ["surrogate"]),
        ({"a": 10**5000}, ["config"]),
        ({"a": ENDLESS}, ["recursion"]),
        ([1], ["mapping"]),
    ],
)
def test_config_that_json_would_change_is_refused_before_anything_is_touched(tmp_path, config, facts):
    with refuses(InputError, *facts):
        write_model(tmp_path / "m", config, TENSORS)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("tensors", "facts"),
    [
        ({"a": np.zeros(3)}, ["a", "ndarray"]),
        ({"a": torch.zeros(3, device="meta")}, ["a", "meta"]),
        ({"a": torch.eye(3).to_sparse()}, ["a", "torch.sparse_coo"]),
        ({3: torch.zeros(3)}, ["strings", 3]),
        ({"__metadata__": torch.zeros(3)}, ["__metadata__"]),
        ({"\ud800": torch.zeros(3)}, ["stored"]),
        ({"a": torch.zeros(3, dtype=torch.complex128)}, ["complex128"]),
    ],
)
def test_tensors_that_cannot_be_kept_are_refused(tmp_path, tensors, facts):
    with refuses(InputError, *facts):
        write_model(tmp_path / "m", {}, tensors)


def test_nothing_of_others_is_overwritten(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    with refuses(StorageError, "file"):
        write_model(file, {}, {})
    with pytest.raises(StorageError):
        write_model(file / "below", {}, {})
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    with refuses(StorageError, "thesis.txt", "empty folder"):
        write_model(folder, {}, {})
    (folder / "model.json").write_text('{"format": "other"}')
    with refuses(StorageError, "model.json", "dwac"):
        write_model(folder, {}, {})
    (folder / "model.json").write_text("{")
    with refuses(StorageError, "model.json", "damaged"):
        write_model(folder, {}, {})
    assert file.read_text() == (folder / "thesis.txt").read_text() == "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "thesis.txt"]


def test_files_beside_a_model_are_left_alone(model):
    (model / "README.md").write_text("mine")
    (model / "weights-old.safetensors").write_text("mine")
    write_model(model, {}, {})
    assert (model / "README.md").read_text() == (model / "weights-old.safetensors").read_text() == "mine"


def test_a_missing_folder_or_manifest_is_named(tmp_path, model):
    with refuses(StorageError, tmp_path / "nowhere", "exist"):
        read_model(tmp_path / "nowhere")
    with refuses(StorageError, model / "model.json", "file"):
        read_model(model / "model.json")
    with refuses(StorageError, tmp_path, "model.json"):
        read_model(tmp_path)
    assert issubclass(StorageError, DwacError)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        "[" * 100_000,
        "\udcff",
        '{"a": 1' + "0" * 5000,
    ],
)
def test_damaged_json_is_named(model, text):
    (model / "model.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with refuses(StorageError, "model.json", "damaged", "restore"):
        read_model(model)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda c: c.update(format="gguf"), ["gguf"]),
        (lambda c: c.update(version=2), [2, 1, "upgrade"]),
        (lambda c: c.update(version="1"), ["version"]),
        (lambda c: c.update(version=True, config=None), ["version"]),
        (lambda c: c.pop("files"), ["files"]),
        (lambda c: c.update(config=[]), ["config"]),
        (lambda c: c["files"].pop("weights"), ["weights"]),
        (lambda c: c["files"].update(code=c["files"]["weights"]), ["weights"]),
        (lambda c: c["files"].update(weights="w"), ["name", "size", "sha256"]),
        (lambda c: c["files"]["weights"].update(name="../model.json"), ["name", "size", "sha256"]),
        (lambda c: c["files"]["weights"].update(name="/etc/passwd"), ["name", "size", "sha256"]),
        (lambda c: c["files"]["weights"].update(size=-1), ["name", "size", "sha256"]),
        (lambda c: c["files"]["weights"].update(size=10**15), ["1,000,000,000,000,000"]),
        (lambda c: c["files"]["weights"].update(sha256="0" * 64), ["name", "size", "sha256"]),
    ],
)
def test_a_manifest_that_is_not_ours_is_refused(model, change, facts):
    rewrite(model, change)
    with refuses(StorageError, *facts):
        read_model(model)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["config"]["labels"].reverse(),
        lambda c: c["config"]["labels"].__setitem__(1, 1.0),
        lambda c: c["config"].update(more=None),
        lambda c: c.pop("config_sha256"),
        lambda c: c.update(config_sha256=["0" * 64]),
    ],
)
def test_an_altered_config_is_named(model, change):
    rewrite(model, lambda c: c.update(config=dict(reversed(c["config"].items()))))
    assert read_model(model).config == CONFIG  # another order of the names is no other config
    rewrite(model, change)
    with refuses(StorageError, "model.json", "config", "SHA-256", "restore"):
        read_model(model)


def test_any_changed_character_of_a_config_is_found(model):
    text = (model / "model.json").read_text()
    start = text.index('"labels"')
    for place in (i for i in range(start, text.rindex("}", 0, text.rindex("}")) - 1) if not text[i].isspace()):
        (model / "model.json").write_text(text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :])
        with refuses(StorageError, "model.json"):
            read_model(model)


def test_too_little_memory_is_a_storage_error(model, monkeypatch):
    def exhausted(*_):
        raise MemoryError("out")

    monkeypatch.setattr(folder_module, "unpack_tensors", exhausted)
    with refuses(StorageError, "memory"):
        read_model(model)


def test_an_absurdly_large_manifest_is_not_read(model):
    with open(model / "model.json", "r+b") as file:
        file.truncate(2**28 + 1)
    with refuses(StorageError, "model.json", "268,435,457"):
        read_model(model)


@pytest.mark.parametrize("part", ["weights", "examples"])
@posix
def test_missing_cut_altered_and_linked_files_are_named(model, tmp_path, part):
    path = the(model, f"{part}*")
    data = path.read_bytes()
    path.unlink()
    with refuses(StorageError, path.name):
        read_model(model)
    path.write_bytes(data[:-1])
    with refuses(StorageError, path.name, f"{len(data) - 1:,}", f"{len(data):,}"):
        read_model(model)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with refuses(StorageError, path.name, "SHA-256"):
        read_model(model)
    (tmp_path / "elsewhere").write_bytes(data)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with refuses(StorageError, path.name, "regular file"):
        read_model(model)
    path.unlink()
    os.mkfifo(path)
    with refuses(StorageError, "regular file"):
        read_model(model)


@posix
def test_a_linked_manifest_is_refused_but_a_link_to_the_folder_is_followed(model, tmp_path):
    (tmp_path / "latest").symlink_to(model)
    assert read_model(tmp_path / "latest").config == CONFIG
    (model / "model.json").rename(tmp_path / "model.json")
    (model / "model.json").symlink_to(tmp_path / "model.json")
    with refuses(StorageError, "regular file"):
        read_model(model)


def forge(model: Path, part: str, data: bytes) -> None:
    """Put other bytes in, with size and checksum that fit: only the format can tell."""
    digest = hashlib.sha256(data).hexdigest()
    name = f"{part}-{digest[:16]}.{ {'weights': 'safetensors', 'examples': 'parquet'}[part] }"
    (model / name).write_bytes(data)
    rewrite(model, lambda c: c["files"].update({part: {"name": name, "size": len(data), "sha256": digest}}))


def the_new(model: Path, part: str) -> str:
    """The name of a part's file, by model.json."""
    return str(json.loads((model / "model.json").read_text())["files"][part]["name"])


def lying_header(**changes) -> bytes:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(8)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"junk",
        (2**62).to_bytes(8, "little") + b"{}",
        lying_header(shape=[3]),
        lying_header(data_offsets=[0, 800]),
        lying_header(data_offsets=[8, 0]),
        lying_header(dtype="PICKLE"),
        lying_header(shape=[2**40, 2**40]),
        lying_header(shape=[-2]),
    ],
)
def test_a_lying_tensor_header_is_refused(model, data):
    forge(model, "weights", data)
    with refuses(StorageError, the_new(model, "weights"), "safetensors"):
        read_model(model)


def parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def with_facts(**facts) -> bytes:
    """One id and one column of numbers, with facts of one's own."""
    table = pa.table({"id": ["1"], "x": [1]})
    columns = [{"name": "x", "kind": "plain"}]
    return parquet(
        table.replace_schema_metadata(
            {"dwac.examples": json.dumps({"version": 1, "columns": columns, "index": None} | facts)}
        )
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PAR1junkPAR1",
        parquet(pa.table({"x": [1]})),
        parquet(pa.Table.from_pandas(pd.DataFrame({"x": [1]}))),
        with_facts(version=2),
        with_facts(columns=[]),
        with_facts(columns=[1]),
        with_facts(columns=[{"name": "x", "kind": "numpy.ndarray"}]),
        with_facts(columns=[{"name": {"eval": "1"}, "kind": "plain"}]),
        with_facts(
            columns=[{"name": "x", "kind": "category", "values": {"kind": "plain"}, "categories": [2], "ordered": 0}]
        ),
        with_facts(
            columns=[{"name": "x", "kind": "category", "values": {"kind": "plain"}, "categories": [1, 1], "ordered": 0}]
        ),
        with_facts(index=[]),
    ],
)
def test_a_table_that_is_not_ours_is_refused(model, data):
    forge(model, "examples", data)
    with refuses(StorageError, the_new(model, "examples"), "table"):
        read_model(model)


def test_a_foreign_table_with_honest_facts_is_read(model):
    forge(model, "examples", with_facts())
    examples = read_model(model).examples
    assert examples is not None
    pd.testing.assert_frame_equal(examples, pd.DataFrame({"x": [1]}, index=[1]))


# Examples


def test_columns_of_every_kind_keep_type_and_missing_values(tmp_path):
    times = pd.DatetimeIndex(["2020-01-01 12:30", pd.NaT, "1969-07-20 00:00"])
    frame = pd.DataFrame(
        {
            "int8": np.array([1, -2, 3], np.int8),
            "uint64": np.array([2**64 - 1, 0, 1], np.uint64),
            "float32": np.array([1.5, np.nan, np.inf], np.float32),
            "float64": [0.1, -0.0, np.nan],
            "bool": [True, False, True],
            "text": ["a", None, "é😀"],
            "string": pd.array(["a", None, ""], dtype="string"),
            "Int64": pd.array([2**62 + 1, None, 3], dtype="Int64"),
            "Float32": pd.array([1.5, None, 3], dtype="Float32"),
            "boolean": pd.array([True, None, False], dtype="boolean"),
            "arrow": pd.Series([1, None, 3], dtype=pd.ArrowDtype(pa.int16())),
            "time": times,
            "time_s": times.as_unit("s"),
            "zone": times.tz_localize("Europe/Paris"),
            "offset": times.tz_localize(dt.timezone(dt.timedelta(hours=-3, minutes=-30))),
            "duration": times - times[0],
            "category": pd.Categorical(["b", None, "a"], categories=["c", "b", "a"], ordered=True),
            "numbers": pd.Categorical([2**60 + 1, None, 2**60], categories=[5, 2**60 + 1, 2**60]),
            "flags": pd.Categorical([True, None, False]),
            "days": pd.Categorical(times),
            "unused": pd.Categorical([None] * 3, categories=["x"]),
            "png": [b"\x89PNG\r\n\x00\xff", None, b""],
            "objects": pd.Series(["a", None, "b"], dtype=object),
            "whole": pd.Series([2**40, None, 3], dtype=object),
            "truth": pd.Series([True, None, False], dtype=object),
            "dates": pd.Series([dt.date(2020, 1, 2), None, dt.date(1, 1, 1)], dtype=object),
            "decimals": pd.Series([Decimal("1.50"), None, Decimal("-2.25")], dtype=object),
            "nothing": pd.Series([None] * 3, dtype=object),
        }
    )
    back = round_trip(tmp_path, frame)
    zone = frame["offset"].dt.tz
    assert back["offset"].dt.tz.utcoffset(None) == zone.utcoffset(None)
    back["offset"] = back["offset"].dt.tz_convert(zone)  # where pytz is installed, Arrow returns its kind of zone
    pd.testing.assert_frame_equal(back, frame)


def test_mixed_and_odd_columns_become_text(tmp_path):
    frame = pd.DataFrame(
        {
            "mixed": pd.Series([1, "a", None], dtype=object),
            "lists": [[1], [2, 3], None],
            "numbers": pd.Series([1, 2.5, np.nan], dtype=object),
            "huge": pd.Series([2**70, 1, None], dtype=object),
            "complex": [1j, 2, 3],
            "period": pd.period_range("2020-01", periods=3, freq="M"),
            "interval": pd.cut([1, 2, 3], [0, 2, 4]),
            "category": pd.Categorical([1, "1", None]),
            "half": pd.Series(["\ud800", "b", "c"], dtype=object),
        }
    )
    back = round_trip(tmp_path, frame)
    assert back["mixed"].tolist()[:2] == ["1", "a"]
    assert back["mixed"].isna().tolist() == [False, False, True]
    assert back["lists"].tolist()[:2] == ["[1]", "[2, 3]"]
    assert back["numbers"].tolist()[:2] == ["1", "2.5"]
    assert back["huge"].tolist()[:2] == [str(2**70), "1"]
    assert back["complex"].tolist() == ["1j", "(2+0j)", "(3+0j)"]
    assert back["period"].tolist() == ["2020-01", "2020-02", "2020-03"]
    assert back["interval"].tolist() == ["(0, 2]", "(0, 2]", "(2, 4]"]
    assert back["category"].tolist()[:2] == ["1", "1"]
    assert back["half"].tolist() == ["\\ud800", "b", "c"]


def test_sparse_columns_come_back_dense(tmp_path):
    back = round_trip(tmp_path, pd.DataFrame({"s": pd.arrays.SparseArray([0, 0, 7])}))
    assert back["s"].tolist() == [0, 0, 7]


@pytest.mark.parametrize(
    "ids",
    [
        [3, 1, 2],
        ["a", "b", "c"],
        [("a", 1), ("b", (2, None)), ()],
        [1, "1", 1.0],
        [1, 2.5, 3],
        [1, 2**80, -5],
        [None, float("nan"), pd.NaT],
        [dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), pd.Timestamp("2020-01-01", tz="Asia/Tokyo")],
        [True, False, 2],
        [np.int64(3), np.float32(0.1), np.str_("x")],
        ["x", "x", "x"],
        [b"\xff", "é", "\ud800"],
    ],
    ids=repr,
)
def test_ids_come_back_as_the_values_they_were(tmp_path, ids):
    index = pd.Index(ids, dtype=object, tupleize_cols=False)
    back = round_trip(tmp_path, pd.DataFrame({"x": [1, 2, 3]}, index=index)).index
    assert [(type(one), repr(one)) for one in back] == [(type(one), repr(one)) for one in index]


def test_a_multiindex_comes_back_as_tuples_and_dates_as_timestamps(tmp_path):
    index = pd.MultiIndex.from_tuples([("a", 1), ("b", 2)])
    back = round_trip(tmp_path, pd.DataFrame({"x": [1, 2]}, index=index)).index
    assert list(back) == [("a", 1), ("b", 2)]
    dates = pd.date_range("2020-01-01", periods=2, name="day")
    back = round_trip(tmp_path, pd.DataFrame({"x": [1, 2]}, index=dates)).index
    assert list(back) == list(dates)
    assert back.name == "day"


def test_ids_that_json_cannot_keep_are_named(tmp_path):
    with refuses(EncodingError, "row 1", "object"):
        write_model(tmp_path / "m", {}, {}, pd.DataFrame({"x": [1, 2]}, index=[0, object()]))
    assert not (tmp_path / "m").exists()


def test_column_names_come_back_and_must_differ_as_text(tmp_path):
    names = [0, "id", "_id", ("a", 1), None, 2.5]
    back = round_trip(tmp_path, pd.DataFrame([range(6)], columns=pd.Index(names, tupleize_cols=False)))
    assert list(back.columns) == names
    with refuses(InputError, "'0'"):
        write_model(tmp_path / "m", {}, {}, pd.DataFrame([[1, 2]], columns=[0, "0"]))
    with refuses(InputError, "DataFrame", "dict"):
        write_model(tmp_path / "m", {}, {}, {"a": [1]})  # type: ignore[arg-type]


@pytest.mark.parametrize("frame", [pd.DataFrame(), pd.DataFrame(index=[1, 2]), pd.DataFrame({"a": [], "b": []})])
def test_frames_without_rows_or_columns_come_back(tmp_path, frame):
    back = round_trip(tmp_path, frame)
    assert back.shape == frame.shape
    assert list(back.index) == list(frame.index)


def test_the_file_holds_nothing_of_pandas_and_others_can_read_it(tmp_path):
    frame = pd.DataFrame({"kind": pd.Categorical(["b", "a"]), "x": [1, 2]})
    path = the(write_model(tmp_path / "m", {}, {}, frame), "examples*")
    table = pq.read_table(path)
    assert set(table.schema.metadata) == {b"dwac.examples"}
    assert table.to_pydict() == {"id": ["0", "1"], "kind": ["b", "a"], "x": [1, 2]}
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"


CELLS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates() | st.datetimes()


@settings(max_examples=40)
@given(st.lists(st.tuples(CELLS, CELLS), max_size=6))
def test_no_column_of_objects_fails(tmp_path_factory, rows):
    frame = pd.DataFrame(rows, columns=["a", "b"], dtype=object)
    back = round_trip(tmp_path_factory.mktemp("m"), frame)
    for name in frame:
        assert back[name].isna().tolist() == frame[name].isna().tolist()
        if len({type(value) for value in frame[name].dropna()}) == 1:
            for one, other in zip(back[name].dropna(), frame[name].dropna(), strict=True):
                assert one == other or one == str(other)  # whole numbers beyond 64 bits become text


# Labels and ids as JSON

ZONES = st.sampled_from([None, dt.UTC, dt.timezone(dt.timedelta(hours=5, minutes=30)), ZoneInfo("Europe/Paris")])
STAMPS = st.builds(
    lambda count, unit, zone: pd.Timestamp(np.datetime64(count, unit)).tz_localize("UTC").tz_convert(zone),
    st.integers(-(2**33), 2**33),
    st.sampled_from(["s", "ms", "us", "ns"]),
    ZONES,
)
NUMPY = st.one_of(
    *(st.integers(np.iinfo(t).min, np.iinfo(t).max).map(t) for t in (np.int8, np.uint8, np.int64, np.uint64)),
    st.floats(width=16).map(np.float16),
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
    st.booleans().map(np.bool_),
    st.text().map(np.str_),
    st.binary().map(np.bytes_),
    st.builds(np.datetime64, st.integers(-(2**40), 2**40), st.sampled_from(["D", "s", "ns", "as"])),
    st.builds(np.timedelta64, st.integers(-(2**40), 2**40), st.sampled_from(["Y", "s", "ns", "as"])),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(2**53, 2**5000),
    st.floats(),
    st.text(st.characters()),
    st.text(st.characters(codec=None, categories=["Cs", "L"])),
    st.binary(),
    st.decimals().filter(lambda value: not value.is_snan()),  # not hashable, so no label
    st.uuids(),
    st.dates(),
    st.datetimes(timezones=ZONES, allow_imaginary=True),
    st.timedeltas(),
    STAMPS,
    st.builds(
        lambda n, unit: pd.Timedelta(np.timedelta64(n, unit)), st.integers(0, 2**40), st.sampled_from(["s", "ns"])
    ),
    st.sampled_from([pd.NaT, pd.NA, pd.Timestamp.max, pd.Timestamp(np.datetime64(2**38, "s"))]),
    st.builds(
        pd.Interval, st.integers(-9, 0), st.integers(1, 9), st.sampled_from(["left", "right", "both", "neither"])
    ),
    NUMPY,
)
LABELS = st.recursive(SCALARS, lambda parts: st.lists(parts, max_size=4).map(tuple), max_leaves=10)


def picture(value: Any) -> Any:
    """Value and type of every part, so that equal pictures mean the same value; nan equals nan here."""
    if isinstance(value, tuple):
        return type(value), [picture(part) for part in value]
    extra = (value.unit, value.fold) if isinstance(value, pd.Timestamp) else getattr(value, "fold", None)
    return type(value), getattr(value, "dtype", None), repr(value), extra


@settings(max_examples=150)
@given(LABELS)
@example(np.str_("a\0"))
def test_labels_and_ids_survive_json(value):
    text = json.dumps(encode_value(value), allow_nan=False, ensure_ascii=False)
    back = decode_value(json.loads(text.encode().decode()))
    assert picture(back) == picture(value)
    assert hash(back) is not None


def test_sets_of_labels_survive_json():
    value = frozenset({1, "a", (2, 3), None})
    assert decode_value(json.loads(json.dumps(encode_value(value)))) == value


def test_a_repeated_hour_keeps_its_place():
    autumn = pd.Timestamp("2020-10-25 01:30", tz="UTC").tz_convert("Europe/Paris")
    assert picture(decode_value(encode_value(autumn))) == picture(autumn)
    second = dt.datetime(2020, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=1)
    assert picture(decode_value(encode_value(second))) == picture(second)


def test_plain_values_stand_for_themselves_in_json():
    for value in (None, True, 3, -1.5, "é"):
        assert encode_value(value) is value
    assert encode_value(np.int64(3)) == {"numpy": ["int64", 3]}
    assert encode_value((1, "a")) == {"tuple": [1, "a"]}
    assert encode_value(float("inf")) == {"float": "inf"}


def deep(levels: int) -> tuple[Any, ...]:
    value: tuple[Any, ...] = ()
    for _ in range(levels):
        value = (value,)
    return value


@pytest.mark.parametrize(
    "value",
    [object(), [1], {"a": 1}, 1j, print, int, deep(40), np.longdouble(1), np.complex64(1), np.void(b"ab")],
    ids=lambda value: type(value).__name__,
)
def test_other_objects_are_refused_as_labels(value):
    with pytest.raises(EncodingError) as caught:
        encode_value(value)
    assert named(caught.value, "nested") or named(caught.value, repr(value), "label")
    with pytest.raises(EncodingError):
        encode_value((1, (value,)))


def test_what_extends_a_plain_type_is_not_taken_for_it():
    class Grade(str):
        pass

    with refuses(EncodingError, "Grade"):
        encode_value(Grade("a"))
    assert decode_value(encode_value(UUID(int=5))) == UUID(int=5)


@pytest.mark.parametrize(
    "encoded",
    [
        [],
        {},
        {"tuple": [], "int": "0x1"},
        {"eval": "1"},
        {"tuple": 3},
        {"int": "one"},
        {"bytes": "***"},
        {"Decimal": "x"},
        {"datetime": ["2020-01-01", "../../etc/passwd", 0]},
        {"datetime": ["2020-01-01", "Nowhere/Else", 0]},
        {"Timestamp": [10**30, "ns", None]},
        {"numpy": ["object", 1]},
        {"numpy": ["int8", 1000]},
        {"numpy": ["O", "x"]},
        {"numpy": ["datetime64[junk]", 1]},
        {"Interval": [2, 1, "left"]},
        {"frozenset": [{"tuple": [{"list": []}]}]},
    ],
    ids=str,
)
def test_json_that_encodes_nothing_is_refused(encoded):
    with pytest.raises(EncodingError):
        decode_value(encoded)


# Whatever moment it is stopped at


def write_version(path: Path, version: int) -> None:
    """Model 0 or 1: every part differs, so that a mixture of the two would show."""
    size = 50 if version else 500
    tensors = {"w": torch.full((size,), float(version))}
    write_model(path, {"version": version}, tensors, pd.DataFrame({"version": [version] * size}))


def read_version(path: Path) -> int:
    """Which of the two models is there, all of it."""
    stored = read_model(path)
    version = stored.config["version"]
    assert stored.examples is not None
    assert len(stored.tensors["w"]) == len(stored.examples) == (50 if version else 500)
    assert bool((stored.tensors["w"] == version).all())
    assert bool((stored.examples["version"] == version).all())
    return int(version)


def leftovers(path: Path) -> list[str]:
    """Files that no model needs."""
    named = {part["name"] for part in json.loads((path / "model.json").read_text())["files"].values()}
    return [name for name in os.listdir(path) if name not in named | {"model.json"}]


OPERATIONS = ["open", "write", "fsync", "close", "replace", "unlink", "mkdir"]


def stop_at(n: int, stop: Any, patch: Any) -> None:
    """From now on, the n-th file operation happens (a write by half) and then `stop` is called."""
    count = 0

    def wrap(real: Any, name: str) -> Any:
        def operation(*args, **kwargs):
            nonlocal count
            count += 1
            now = count == n
            if now and name == "write":
                args = (args[0], args[1][: len(args[1]) // 2])
            result = real(*args, **kwargs)
            if now:
                stop()
            return result

        return operation

    for name in OPERATIONS:
        patch(name, wrap(getattr(os, name), name))


def child(work: Any) -> int:
    """Run `work` in a forked process; its wait status."""
    process = os.fork()
    if process == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(process, 0)[1]


def kill_at_every_operation(path: Path) -> None:
    """Run by `test_killed_at_any_moment`, in a process of its own."""
    for start in ("nothing", "a model"):
        for n in range(1, 200):
            shutil.rmtree(path, ignore_errors=True)
            if start == "a model":
                write_version(path, 0)

            def work(n: int = n) -> None:
                stop_at(n, lambda: os.kill(os.getpid(), signal.SIGKILL), lambda name, new: setattr(os, name, new))
                write_version(path, 1)

            status = child(work)
            if start == "a model" or (path / "model.json").exists():
                read_version(path)
            write_version(path, 1)  # what a killed writer leaves is no obstacle, and is tidied
            assert read_version(path) == 1
            assert leftovers(path) == []
            if status == 0:
                break
            assert os.WTERMSIG(status) == signal.SIGKILL
        assert 20 < n < 199, n
    sys.stdout.write("survived every operation; ")


def kill_at_random(path: Path) -> None:
    """Run by `test_killed_at_any_moment`, in a process of its own."""
    clock = random.Random(0)
    write_version(path, 0)
    seen: set[int] = set()
    kills = 0
    while kills < 60 or seen != {0, 1}:  # ever later, so that a busy machine too comes to write something
        kills += 1
        process = os.fork()
        if process == 0:
            while True:
                for version in (1, 0):
                    write_version(path, version)
        time.sleep(clock.uniform(0.0, 0.02 + 0.001 * kills))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        seen.add(read_version(path))
    write_version(path, 0)
    assert leftovers(path) == []
    sys.stdout.write("survived random moments")


@pytest.mark.slow
@posix
def test_killed_at_any_moment(tmp_path):
    """At every operation, and at random: both in one process, which takes seconds to start."""
    code = "from pathlib import Path; from tests.storage import test_storage as t; "
    code += "; ".join(f"t.kill_at_{when}(Path({str(tmp_path / when)!r}))" for when in ("every_operation", "random"))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.stdout == "survived every operation; survived random moments", done.stderr


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_interrupted_at_every_operation(tmp_path, error):
    path = tmp_path / "m"

    def stop() -> None:
        raise error

    finished = False
    for n in range(1, 200):
        write_version(path, 0)
        with pytest.MonkeyPatch.context() as patch:
            stop_at(n, stop, lambda name, new: patch.setattr(os, name, new))
            try:
                write_version(path, 1)
                finished = error is KeyboardInterrupt or n > 40
            except (KeyboardInterrupt, StorageError):
                pass
        read_version(path)
        for name in leftovers(path):  # whole, and not temporary
            assert hashlib.sha256((path / name).read_bytes()).hexdigest()[:16] in name
        if finished:
            break
    assert finished


def test_a_reader_during_a_write_finds_one_of_the_two(tmp_path, monkeypatch):
    path = tmp_path / "m"
    write_version(path, 0)
    real = folder_module.read_part
    calls: list[int] = []

    def slow(folder, facts):
        if not calls:
            calls.append(1)
            write_version(path, 1)  # just after this reader has read model.json
        return real(folder, facts)

    monkeypatch.setattr(folder_module, "read_part", slow)
    assert read_version(path) == 1


def test_disk_errors_say_that_no_model_was_harmed(tmp_path, monkeypatch):
    path = tmp_path / "m"
    write_version(path, 0)
    monkeypatch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with refuses(StorageError, path, "No space left on device", "unharmed"):
        write_version(path, 1)
    assert read_version(path) == 0
    assert leftovers(path) == []
