"""Datasets: official formats read from small files, damage named, downloads that resume; and the real files."""

import gzip
import hashlib
import io
import json
import re
import struct
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac.errors import InputError
from reproduction import datasets
from reproduction.datasets import (
    DatasetError,
    adult,
    amazon,
    cifar,
    covertype,
    download,
    files,
    lending_club,
    mnist,
    texts,
    vectors,
)
from reproduction.datasets.files import Contents, File
from tests.named import named, refuses

SHARED = Path(__file__).parents[3] / "shared" / "data"
TEXT = b"some lines\n" * 1000


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty $DWAC_DATA, and an empty cache."""
    monkeypatch.setenv("DWAC_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "data"


def put(home: Path, folder: str, name: str, data: bytes) -> Path:
    path = home / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def contents(data: bytes) -> Contents:
    return Contents(len(data), sha256(data))


def archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


# --- official formats, in small

ADULT_DATA = b"""39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, United-States, <=50K
54, ?, 180211, Some-college, 10, Married-civ-spouse, ?, Husband, Asian-Pac-Islander, Male, 0, 0, 60, South, >50K
52, Self-emp-inc, 287927, HS-grad, 9, Married-civ-spouse, Exec-managerial, Wife, White, Female, 15024, 0, 40, Trinadad&Tobago, >50K

"""  # noqa: E501
ADULT_TEST = b"|1x3 Cross validator\n" + ADULT_DATA.replace(b"50K\n", b"50K.\n")


@pytest.mark.parametrize("data", [ADULT_DATA, ADULT_TEST], ids=["adult.data", "adult.test"])
def test_adult_drops_the_weight_and_incomplete_rows(data: bytes) -> None:
    X, y = adult.parse(data)
    assert list(X.columns) == [name for name in adult.COLUMNS if name != "fnlwgt"]
    assert X["age"].tolist() == [39, 52]
    assert X["age"].dtype == np.int64
    assert isinstance(X["native-country"].dtype, pd.CategoricalDtype)
    assert X["native-country"].tolist() == ["United-States", "Trinadad&Tobago"]
    assert y.tolist() == [0, 1]


def test_adult_keeps_incomplete_rows_if_asked() -> None:
    X, y = adult.parse(ADULT_TEST, complete=False)
    assert X["workclass"].isna().tolist() == [False, True, False]
    assert X["occupation"].isna().sum() == 1
    assert X.index.tolist() == [0, 1, 2]
    assert y.tolist() == [0, 1, 1]


def test_adult_parts_share_their_categories() -> None:
    one, other = (adult.parse(data)[0] for data in (ADULT_DATA, ADULT_DATA.splitlines(keepends=True)[0]))
    assert (one.dtypes == other.dtypes).all()


def test_covertype_has_named_compact_columns() -> None:
    row = [2596, 51, 3, 258, -7, 510, 221, 232, 148, 6279] + [1] + [0] * 42 + [1]
    lines = "".join(",".join(map(str, [*row, label])) + "\n" for label in (5, 1, 7))
    X, y = covertype.parse(lines.encode())
    assert X.shape == (3, 54)
    assert X.iloc[0].tolist() == row
    assert X.dtypes.value_counts().to_dict() == {np.dtype("uint8"): 44, np.dtype("int16"): 10}
    assert X.columns[[0, 10, 53]].tolist() == ["Elevation", "Wilderness_Area1", "Soil_Type40"]
    assert y.tolist() == [4, 0, 6]


def idx(array: Any) -> bytes:
    array = np.asarray(array, dtype=np.uint8)
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + bytes(array.tobytes())


def test_idx_is_read_by_its_own_head() -> None:
    images = np.random.default_rng(0).integers(256, size=(3, 28, 28)).astype(np.uint8)
    read = mnist.parse(idx(images), "images")
    np.testing.assert_array_equal(read, images)
    assert read.flags.writeable
    assert mnist.parse(idx([3, 1, 9]), "labels").tolist() == [3, 1, 9]


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (b"", ["IDX", "00 00 08"]),
        (b"\x1f\x8b\x08\x00", ["IDX", "00 00 08", "1f 8b 08 00"]),
        (idx([1, 2])[:-1], ["(2,)", 1]),
        (idx([1, 2]) + b"\0", ["(2,)", 3]),
        (b"\0\0\x08\x03\0", ["IDX", "00 00 08 03"]),
    ],
)
def test_what_is_not_idx_is_named(data: bytes, facts: list[object]) -> None:
    with refuses(DatasetError, "t10k", *facts):
        mnist.parse(data, "t10k")


def test_cifar_planes_become_pixels() -> None:
    images = np.random.default_rng(0).integers(256, size=(2, 32, 32, 3)).astype(np.uint8)
    planes = images.transpose(0, 3, 1, 2).reshape(2, -1)
    records = np.concatenate([np.array([[3], [9]], dtype=np.uint8), planes], axis=1).tobytes()
    X, y = cifar.parse(records, "batch", n_classes=10)
    np.testing.assert_array_equal(X, images)
    assert y.tolist() == [3, 9]
    with refuses(DatasetError, "labels", 0, 8):
        cifar.parse(records, "batch", n_classes=9)
    with refuses(DatasetError, "3,073"):
        cifar.parse(records[:-1], "batch", n_classes=10)


def test_cifar100_is_a_test_part_with_fine_labels(home: Path) -> None:
    records = bytes([7, 1]) + bytes(3072) + bytes([7, 0]) + bytes([255]) * 3072
    members = {"cifar-100-binary/test.bin": records, "cifar-100-binary/fine_label_names.txt": b"apple\nbear\n\n"}
    put(home, "cifar100", "cifar-100-binary.tar.gz", archive(members))
    data = datasets.load("cifar100")
    assert len(data.X_train) == len(data.y_train) == 0
    assert data.X_test is not None
    assert data.X_test.shape == (2, 32, 32, 3)
    assert data.classes[data.y_test].tolist() == ["bear", "apple"]


def test_titles_are_one_a_line() -> None:
    X, y = texts.parse_stackoverflow("Qt: 5 \u2028 things\nWhy, Haskell?\n".encode(), b"16\n19\n")
    assert X == ["Qt: 5 \u2028 things", "Why, Haskell?"]
    assert texts.TAGS[y].tolist() == ["qt", "haskell"]
    with refuses(DatasetError, 2, 1, "titles", "labels"):
        texts.parse_stackoverflow(b"a\nb\n", b"1\n")


def test_an_ellipsis_does_not_end_a_sentence() -> None:
    X, y = texts.parse_subjectivity(b"the plot \x85 thickens\n", b"a d\xe9j\xe0 vu .\nfine .\n")
    assert X == ["the plot … thickens", "a déjà vu .", "fine ."]
    assert y.tolist() == [0, 1, 1]


def test_reviews_are_ordered_by_class_and_number() -> None:
    names = ["train/pos/10_9", "train/neg/2_1", "train/pos/9_7", "test/neg/0_4", "test/pos/0_10", "train/unsup/0_0"]
    parts = texts.parse_imdb({f"aclImdb/{name}.txt": name.encode() for name in names})
    assert parts["train"][0] == ["train/neg/2_1", "train/pos/9_7", "train/pos/10_9"]
    assert parts["train"][1].tolist() == [0, 1, 1]
    assert parts["test"][1].tolist() == [0, 1]


def test_too_few_reviews_are_counted(home: Path) -> None:
    put(home, "imdb", "aclImdb_v1.tar.gz", archive({"aclImdb/train/neg/0_1.txt": b"bad"}))
    with refuses(DatasetError, "12,500", 1, 0, "python -m reproduction data get imdb"):
        datasets.load("imdb")


def test_a_review_that_is_no_text_is_altered(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(home, "imdb", "aclImdb_v1.tar.gz", archive({"aclImdb/train/neg/0_1.txt": b"\xff\xfe"}))
    with refuses(DatasetError, "aclImdb_v1.tar.gz", "UTF-8", "python -m reproduction data get imdb"):
        datasets.load("imdb")


REVIEWS = [
    {"reviewerID": "A1", "summary": "Lovely", "reviewText": "It smells\nof roses. ", "overall": 5.0},
    {"reviewerID": "A2", "summary": "", "reviewText": "Dries the skin …", "overall": 2},
    {"reviewerID": "A3", "summary": " ", "reviewText": "", "overall": 1.0},
    {"reviewerID": "A4", "reviewText": "No summary", "overall": 1.0},
]


def reviews(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def test_reviews_become_a_text_and_stars_and_empty_ones_are_counted(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amazon, "N_REVIEWS", 4)
    put(home, "amazon-beauty", "reviews_Beauty_5.json.gz", gzip.compress(reviews(REVIEWS)))
    data = datasets.load("amazon-beauty")
    assert data.X == ["Lovely\n\nIt smells\nof roses.", "Dries the skin …", "No summary"]
    assert data.classes[data.y].tolist() == ["5", "2", "1"]
    assert named(data.description, "1 of 4")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"<html>",
        b"[1]",
        b'{"reviewText": "cut',
        b'{"overall": 1.0}',
        b'{"reviewText": null, "overall": 1.0}',
        b'{"reviewText": "", "summary": 3, "overall": 1.0}',
        b'{"reviewText": "", "overall": 6}',
        b'{"reviewText": "", "overall": NaN}',
        b'{"reviewText": "", "overall": [1]}',
        b"\xff\x00",
    ],
)
def test_a_bad_review_is_named_with_its_file_and_line(home: Path, line: bytes) -> None:
    path = put(home, "amazon-beauty", "reviews_Beauty_5.json", reviews(REVIEWS[:2]) + line + b"\n" + reviews(REVIEWS))
    with refuses(DatasetError, path, "line 3", "JSON", "python -m reproduction data get amazon_beauty"):
        datasets.load("amazon_beauty")


def test_too_few_reviews_of_beauty_are_counted(home: Path) -> None:
    put(home, "amazon-beauty", "reviews_Beauty_5.json.gz", gzip.compress(reviews(REVIEWS)))
    with refuses(DatasetError, "198,502", 4, "python -m reproduction data get amazon_beauty"):
        datasets.load("amazon_beauty")


# --- Lending Club: by hand, in several wrappings

LOAN: dict[str, str] = (
    dict.fromkeys(lending_club.NUMERIC, "1.5")
    | {"id": "7", "desc": '"a loan,\nfor ""me"""', "total_pymnt": "99", "recoveries": "0", "hardship_flag": "N"}
    | {"term": " 36 months", "grade": "B", "sub_grade": "B2", "emp_length": "10+ years", "purpose": "car"}
    | {"application_type": "INDIVIDUAL", "addr_state": "CA", "initial_list_status": "f", "loan_status": "Current"}
)
LOANS: list[dict[str, str]] = [
    {},
    {"loan_status": "Charged Off", "int_rate": " 13.5%", "revol_util": "", "grade": "A"},
    {"loan_status": "Charged Off", "int_rate": "13.5%", "grade": "A"},
    {"loan_status": "Fully Paid"},
    {"loan_status": "Does not meet the credit policy. Status:Charged Off"},
    {"loan_status": "Late (31-120 days)", "mths_since_last_delinq": ""},
    {"loan_status": "Issued", "emp_length": "n/a"},
    {"loan_status": "", "id": "Total amount funded"},
]


def loans(rows: list[dict[str, str]] = LOANS, without: str = "") -> bytes:
    names = [name for name in LOAN if name != without]
    lines = [names, *([(LOAN | row)[name] for name in names] for row in rows)]
    return "".join(",".join(line) + "\n" for line in lines).encode()


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in members.items():
            out.writestr(name, data)
    return buffer.getvalue()


ACCEPTED = "accepted_2007_to_2018Q4.csv"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("loan.csv", loans()),
        ("loan.csv", b"\xef\xbb\xbf" + loans().replace(b"\n", b"\r\n")),
        ("loan.csv.gz", gzip.compress(loans())),
        ("loan.csv.zip", zipped({"readme.txt": b"", "data/loan.csv": loans()})),
        (f"{ACCEPTED}.gz", gzip.compress(loans())),
        (ACCEPTED, loans()),
        ("archive.zip", zipped({"rejected.csv.gz": b"", f"{ACCEPTED}.gz": gzip.compress(loans())})),
    ],
)
def test_loans_are_read_from_every_wrapping(home: Path, name: str, data: bytes) -> None:
    put(home, "lending-club", name, data)
    read = datasets.load("lending_club")
    assert read.classes[read.y].tolist() == ["good", "bad", "bad"]
    assert "3 of 8 rows" in read.description
    assert [str(path.name) for path in datasets.get("lending_club")] == [name]


def test_loans_keep_only_what_is_known_when_granted(home: Path) -> None:
    put(home, "lending-club", "loan.csv", loans())
    X = datasets.load("lending_club").X
    assert list(X.columns) == [*lending_club.NUMERIC, *lending_club.CATEGORICAL]
    assert X["int_rate"].tolist() == [1.5, 13.5, 1.5]
    assert X["term"].tolist() == ["36 months"] * 3
    assert isinstance(X["grade"].dtype, pd.CategoricalDtype)
    assert X["grade"].cat.categories.tolist() == ["A", "B"]
    assert X["mths_since_last_delinq"].isna().tolist() == [False, False, True]
    leaking = re.compile(r"total_rec_|recover|^last_|^next_|out_prncp|hardship|settlement|pymnt|loan_status|_d$")
    assert not [name for name in X.columns if leaking.search(name)]


def test_loans_with_gaps_are_kept_if_asked(home: Path) -> None:
    put(home, "lending-club", "loan.csv", loans())
    data = datasets.load("lending_club", complete=False)
    assert data.classes[data.y].tolist() == ["good", "bad", "bad", "bad", "bad"]
    assert data.X["revol_util"].isna().tolist() == [False, True, False, False, False]
    assert data.X["emp_length"].isna().tolist() == [False, False, False, False, True]


@pytest.mark.parametrize(
    ("name", "data", "facts"),
    [
        ("loan.csv", b"", ["column names", "loan_amnt", "''"]),
        ("loan.csv", b"<!DOCTYPE html>\n<html>", ["column names", "loan_amnt", "'<!DOCTYPE html>'"]),
        ("loan.csv", bytes(range(256)), ["column names", "loan_amnt"]),
        ("loan.csv", loans(without="dti"), ["column names", "lacks dti"]),
        ("loan.csv", loans()[:-30], ["altered", "CSV"]),
        ("loan.csv", loans([*LOANS, {"dti": "high"}]), ["altered", "'high'"]),
        ("loan.csv", loans([*LOANS, {"int_rate": "high"}]), ["altered", "high"]),
        ("loan.csv", loans([*LOANS, {"loan_status": "Gone"}]), ["loan_status", "Current", "'Gone'"]),
        ("loan.csv", loans(LOANS[:1]), ["Current", "both", "bad"]),
        ("loan.csv.gz", gzip.compress(loans(LOANS * 900))[:-2000], ["damaged"]),
        ("loan.csv.zip", zipped({"loan.csv": loans()})[:-50], ["damaged"]),
        ("archive.zip", zipped({"reject.csv": b""}), ["contain", "loan.csv", ACCEPTED.lower()]),
    ],
)
def test_damaged_loans_are_named_with_the_fault_and_the_page(
    home: Path, name: str, data: bytes, facts: list[str]
) -> None:
    path = put(home, "lending-club", name, data)
    page = lending_club.FILES[0].urls[0]
    for use in (datasets.load, datasets.get, datasets.check):
        with refuses(DatasetError, path, *facts, "again", "by hand", page, path.parent) as caught:
            use("lending_club")
        assert "\n" not in str(caught.value)


def test_loans_without_a_complete_row_are_not_an_empty_dataset(home: Path) -> None:
    put(home, "lending-club", "loan.csv", loans([row | {"tot_cur_bal": ""} for row in LOANS]))
    with refuses(DatasetError, "complete=False"):
        datasets.load("lending_club")


def test_loans_are_fetched_by_hand(home: Path) -> None:
    with refuses(DatasetError, "loan.csv", "by hand", "Kaggle", *lending_club.FILES[0].urls, home / "lending-club"):
        datasets.get("lending_club")


# --- word vectors

VECTORS = b"".join(word + b" 0.5" * 50 + b"\n" for word in (b"the", b"of", b"null"))


def test_glove_is_unpacked_once_from_its_archive(home: Path) -> None:
    path = put(home, "glove", "glove.6B.zip", zipped({"glove.6B.50d.txt": VECTORS}))
    assert datasets.glove(50).read_bytes() == VECTORS
    path.unlink()
    assert datasets.glove(50) == home / "glove" / "glove.6B.50d.txt"
    assert not list(home.rglob("*.part"))


def test_truncated_vectors_are_noticed(home: Path) -> None:
    put(home, "glove", "glove.6B.50d.txt", VECTORS[:-30])
    with refuses(DatasetError, 50, "last line"):
        datasets.glove(50)


@pytest.mark.parametrize("cut", [20, 200, 600])
def test_an_archive_of_vectors_with_a_fault_inside_is_named(home: Path, cut: int) -> None:
    data = bytearray(zipped({"glove.6B.50d.txt": np.random.default_rng(0).bytes(1000)}))
    data[cut : cut + 20] = bytes(20)
    put(home, "glove", "glove.6B.zip", bytes(data))
    with refuses(DatasetError, "glove.6B.zip", "python -m reproduction data get glove"):
        datasets.glove(50)
    assert [path.name for path in (home / "glove").iterdir()] == ["glove.6B.zip"]


def test_a_damaged_archive_of_vectors_leaves_nothing_behind(home: Path) -> None:
    put(home, "glove", "glove.6B.zip", b"PK no archive")
    with refuses(DatasetError, "glove.6B.zip", "862,182,613"):
        datasets.glove(50)
    assert [path.name for path in (home / "glove").iterdir()] == ["glove.6B.zip"]
    with refuses(DatasetError, "50, 100, 200, 300", 64):
        datasets.glove(64)


# --- what a Dataset is


def dataset(X: Any, n: int, test: bool = False) -> datasets.Dataset:
    y = np.arange(n)
    X_test, y_test = (X, y) if test else (None, None)
    return datasets.Dataset("letters", X, y, X_test, y_test, np.array(list("abc")), "", "")


@pytest.mark.parametrize("kind", [list, np.array, lambda x: pd.DataFrame({"x": x})], ids=["list", "array", "frame"])
def test_split_keeps_examples_with_their_labels(kind: Any) -> None:
    data = dataset(kind(list(range(100))), 100)
    part = data.split(0.25, seed=3)
    values = [np.asarray(X).ravel().tolist() for X in (part.X_train, part.X_test)]
    assert part.y_test is not None
    assert values == [part.y_train.tolist(), part.y_test.tolist()]
    assert (len(values[0]), len(values[1])) == (75, 25)
    assert sorted(values[0] + values[1]) == list(range(100))
    assert np.asarray(part.X).ravel().tolist() == part.y.tolist() == values[0] + values[1]


def test_split_follows_its_seed_alone() -> None:
    data = dataset(list(range(1000)), 1000)
    assert data.split(seed=1).X_test == data.split(seed=1).X_test
    assert data.split(seed=1).X_test != data.split(seed=2).X_test
    assert len(data.split().X_test or []) == 100


def test_an_official_split_is_not_split_again() -> None:
    with refuses(DatasetError, "letters", "official"):
        dataset([1, 2], 2, test=True).split()
    with refuses(DatasetError, 0, 1):
        dataset([1, 2], 2).split(1)


@pytest.mark.parametrize("kind", [list, np.array, lambda x: pd.DataFrame({"x": x})], ids=["list", "array", "frame"])
@pytest.mark.parametrize("label", ["b", 1, np.int64(1)])
def test_a_held_out_class_leaves_both_parts_and_the_others_are_renumbered(kind: Any, label: Any) -> None:
    y, y_test = np.array([0, 1, 2, 1, 0]), np.array([2, 1])
    X, X_test = kind([0, 1, 2, 1, 0]), kind([2, 1])
    data, outside = datasets.Dataset("letters", X, y, X_test, y_test, np.array(list("abc")), "Old.", "").without(label)
    assert data.classes.tolist() == ["a", "c"]
    assert data.y_train.tolist() == [0, 1, 0]
    assert data.y_test is not None
    assert data.y_test.tolist() == [1]
    assert np.asarray(data.X).ravel().tolist() == [0, 2, 0, 2]
    assert np.asarray(outside).ravel().tolist() == [1, 1, 1]
    assert type(outside) is type(X)
    assert named(data.description, "Old.", "class b")


def test_a_class_may_be_held_out_before_a_split() -> None:
    data, outside = dataset([0, 1, 2], 3).without("a")
    assert (data.X_train, data.y_train.tolist(), data.X_test, outside) == ([1, 2], [0, 1], None, [0])


@pytest.mark.parametrize("label", ["d", 3, -1, True, 1.0, None])
def test_an_unknown_class_lists_the_known_ones(label: Any) -> None:
    with refuses(DatasetError, "letters", repr(label), 2, "a, b, c"):
        dataset([0, 1, 2], 3).without(label)


def test_the_last_class_cannot_be_held_out() -> None:
    data = dataset([0, 1, 2], 3).without("a")[0].without("b")[0]
    with refuses(DatasetError, 2, 1):
        data.without("c")


def test_random_sentences_have_the_words_and_lengths_of_texts() -> None:
    given = ["Sort a list, please!", "parse json", ""]
    drawn = datasets.random_sentences(given, 4000, seed=1)
    words = [sentence.split(" ") for sentence in drawn]
    counts = pd.Series([word for found in words for word in found]).value_counts()
    assert sorted(counts.index) == ["!", ",", "a", "json", "list", "parse", "please", "sort"]
    assert {len(found) for found in words} == {2, 6}
    assert counts.min() > 0.9 * counts.max()  # uniform over words, whatever their number in texts
    assert drawn == datasets.random_sentences(given, 4000, seed=1)
    assert drawn != datasets.random_sentences(given, 4000, seed=2)


@pytest.mark.parametrize(("texts_", "facts"), [(["", " "], ["2 texts", "word"]), ("one", ["str", "list"])])
def test_random_sentences_need_words(texts_: Any, facts: list[str]) -> None:
    with refuses(DatasetError, *facts):
        datasets.random_sentences(texts_, 3)


def test_a_dataset_says_its_size() -> None:
    assert named(repr(dataset([1, 2], 2)), "letters", "2 examples", "3 classes")
    assert named(repr(dataset([1, 2], 2, test=True)), "letters", "2 training", "2 test", "3 classes")


# --- files: where they lie and what is wrong with them


def test_data_is_looked_for_in_the_named_folder_then_in_the_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = File("fashion_mnist", "x.txt", ())
    cached = put(files.cache_folder(), "fashion-mnist", "x.txt", b"cached")
    assert files.find(file) == cached
    put(home, "fashion-mnist", "x.txt", b"named")
    assert files.read(file) == b"named"
    monkeypatch.delenv("DWAC_DATA")
    assert files.read(file) == b"cached"


def test_a_missing_file_is_named_with_its_size_its_places_and_the_command(home: Path) -> None:
    required = adult.FILES[0].contents
    assert required is not None
    assert required.size == 3_974_305
    places = [home / "adult", files.cache_folder() / "adult"]
    remedies = ["python -m reproduction data get adult", "$DWAC_DATA"]
    facts = ["adult.data", "3,974,305 bytes", required.sha256, *places, *remedies]
    with refuses(DatasetError, *facts):
        datasets.load("adult")
    with pytest.raises(InputError):
        datasets.load("covertype")


@pytest.mark.parametrize("name", datasets.NAMES)
def test_every_dataset_misses_its_files_by_name(home: Path, name: str) -> None:
    file = datasets.sources(name)[0]
    remedy = "by hand" if file.by_hand else f"python -m reproduction data get {name}"
    with refuses(DatasetError, file.name, home / file.folder, remedy, "$DWAC_DATA"):
        datasets.load(name)


@pytest.mark.parametrize("name", [*datasets.NAMES, "glove"])
def test_a_folder_in_place_of_a_file_is_an_error(home: Path, name: str) -> None:
    file = datasets.sources(name)[0]
    path = home / file.folder / ("glove.6B.100d.txt" if name == "glove" else file.name)
    path.mkdir(parents=True)
    uses: list[Any] = [datasets.check] if name == "glove" else [datasets.load, datasets.get, datasets.check]
    for use in uses:
        with refuses(DatasetError, path, "folder", "remove"):
            use(name)
    assert datasets.found(name) == []


@pytest.mark.parametrize("name", [*datasets.NAMES, "glove"])
@pytest.mark.parametrize("wrap", [bytes, gzip.compress], ids=["plain", "gz"])
@pytest.mark.parametrize("data", [b"", b"<html>\n<body>404</body>\n</html>\n"], ids=["empty", "html"])
def test_an_error_page_or_nothing_is_no_dataset(home: Path, name: str, data: bytes, wrap: Any) -> None:
    for file in datasets.sources(name):
        put(home, file.folder, "glove.6B.50d.txt" if name == "glove" else file.name, wrap(data))
    remedy = "by hand" if name == "lending_club" else f"python -m reproduction data get {name}"
    uses: list[Any] = [datasets.check, (lambda _: datasets.glove(50)) if name == "glove" else datasets.load]
    for use in uses:
        with refuses(DatasetError, "again", remedy) as caught:
            use(name)
        assert str(caught.value).startswith(str(home))
        assert "\n" not in str(caught.value)


def test_an_archive_lacking_what_its_loader_needs_is_not_intact(home: Path) -> None:
    put(home, "cifar100", "cifar-100-binary.tar.gz", archive({"cifar-100-binary/train.bin": b""}))
    put(home, "imdb", "aclImdb_v1.tar.gz", archive({"aclImdb/README": b""}))
    for file, fault in (
        (cifar.CIFAR100_FILES[0], "cifar-100-binary/test.bin"),
        (texts.IMDB_FILES[0], "12,500"),
    ):
        for use in (datasets.check, datasets.load):
            with refuses(DatasetError, file.name, fault, f"python -m reproduction data get {file.dataset}"):
                use(file.dataset)


def test_images_of_cifar100_that_are_cut_name_their_archive(home: Path) -> None:
    members = {"cifar-100-binary/test.bin": bytes(100), "cifar-100-binary/fine_label_names.txt": b"apple\n"}
    path = put(home, "cifar100", "cifar-100-binary.tar.gz", archive(members))
    with refuses(DatasetError, "test.bin", path, "python -m reproduction data get cifar100"):
        datasets.load("cifar100")


def test_found_files_are_those_with_bytes(home: Path) -> None:
    one = put(home, "adult", "adult.data", b"x")
    put(home, "adult", "adult.test", b"")
    assert datasets.found("adult") == [one]
    assert datasets.found("glove") == []
    assert datasets.found("GloVe") == [] == datasets.found("fashion-mnist")
    vectors_ = [put(home, "glove", f"glove.6B.{size}d.txt", VECTORS) for size in (50, 300)]
    assert datasets.found("glove") == vectors_
    datasets.check("mnist")  # what is not here is not damaged


@pytest.mark.parametrize("compressed", [True, False])
def test_gz_and_plain_files_are_both_read(home: Path, compressed: bool) -> None:
    file = File("mnist", "x.gz", (), contents=contents(TEXT))
    put(home, "mnist", "x.gz" if compressed else "x", gzip.compress(TEXT) if compressed else TEXT)
    assert files.read(file) == TEXT


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (gzip.compress(TEXT)[:-20], ["damaged"]),
        (gzip.compress(TEXT[:-1]), ["altered", "11,000 bytes", "10,999"]),
        (gzip.compress(b"S" + TEXT[1:]), ["altered", "SHA-256", sha256(TEXT), sha256(b"S" + TEXT[1:])]),
        (b"<html>not found</html>", ["altered", "11,000 bytes", 22]),
        (b"", ["altered", "11,000 bytes", 0]),
    ],
    ids=["cut", "short", "altered", "html", "empty"],
)
def test_a_damaged_file_is_named_with_its_fault_and_the_command(home: Path, data: bytes, facts: list[object]) -> None:
    path = put(home, "mnist", "x.gz", data)
    with refuses(DatasetError, path, *facts, "python -m reproduction data get mnist"):
        files.read(File("mnist", "x.gz", (), contents=contents(TEXT)))


def test_a_file_that_may_not_be_read_is_not_called_damaged(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    path = put(home, "mnist", "x.gz", gzip.compress(TEXT))
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with refuses(DatasetError, path, "Permission denied"):
        files.read(File("mnist", "x.gz", ()))


ARCHIVE = File("imdb", "x.tar.gz", (), members={"one": contents(TEXT), "two": contents(b"2")})


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (archive({"one": TEXT}), ["contain two", "1 bytes"]),
        (archive({"one": TEXT[1:], "two": b"2"}), ["one", "altered", "11,000 bytes", "10,999"]),
        (archive({"one": TEXT, "two": b"3"}), ["two", "altered", "SHA-256", sha256(b"2"), sha256(b"3")]),
        (archive({"one": TEXT, "two": b"2"})[:-1], ["damaged"]),
        (archive({"one": TEXT, "two": b"2"})[:80], ["damaged"]),
        (b"no archive", ["damaged"]),
    ],
    ids=["lacking", "short", "altered", "cut at the end", "cut early", "other"],
)
def test_a_damaged_archive_is_named_with_its_fault(home: Path, data: bytes, facts: list[str]) -> None:
    path = put(home, "imdb", "x.tar.gz", data)
    with refuses(DatasetError, path, *facts, "python -m reproduction data get imdb"):
        files.read_members(ARCHIVE)


def test_a_whole_archive_gives_its_members(home: Path) -> None:
    put(home, "imdb", "x.tar.gz", archive({"./one": TEXT, "else": b"", "two": b"2"}))
    assert files.read_members(ARCHIVE) == {"one": TEXT, "two": b"2"}


def test_unknown_names_and_options_are_refused() -> None:
    with refuses(DatasetError, "iris", "adult", "covertype"):
        datasets.load("iris")
    with refuses(DatasetError, "mnist", "complete"):
        datasets.load("mnist", complete=True)
    with refuses(DatasetError, "datasets.glove("):
        datasets.load("glove")


def test_every_file_has_an_official_address_and_a_way_to_be_checked() -> None:
    for name in (*datasets.NAMES, "glove"):
        for file in datasets.sources(name):
            assert file.dataset == name
            assert file.urls
            assert all(url.endswith(file.name) for url in file.urls) or file.by_hand
            assert file.contents or file.members or file.digest or file.opens


# --- downloads, from a server that can misbehave


class Handler(BaseHTTPRequestHandler):
    server: "Server"

    def do_GET(self) -> None:
        server, span = self.server, self.headers.get("Range")
        server.asked.append((self.path, span))
        data = server.files.get(self.path)
        if data is None:
            return self.send_error(404)
        start = int(span.removeprefix("bytes=").rstrip("-")) if span and server.ranges else 0
        if start >= len(data) > 0:
            return self.send_error(416)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        stop = server.breaks.pop(0) if server.breaks else len(data)
        self.wfile.write(data[start : start + stop])
        return None

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.breaks: list[int] = []  # bytes after which each answer in turn breaks off
        self.ranges = True

    def file(self, data: bytes = TEXT, *names: str, **facts: Any) -> File:
        names = names or ("/x.txt",)
        urls = tuple(f"http://127.0.0.1:{self.server_port}{name}" for name in names)
        return File("adult", "x.txt", urls, **(facts or {"contents": contents(data)}))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as running:
        running.files["/x.txt"] = TEXT
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def left(home: Path) -> list[str]:
    return sorted(path.name for path in home.rglob("*") if path.is_file())


def test_a_download_comes_whole_and_reports_progress(server: Server, home: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    path = download.fetch(server.file(), lambda *step: seen.append(step))
    assert path == home / "adult" / "x.txt"
    assert path.read_bytes() == TEXT
    assert seen[-1] == ("x.txt", 11_000, 11_000)
    assert left(home) == ["x.txt"]


def test_an_intact_file_is_not_fetched_again(server: Server) -> None:
    first = download.fetch(server.file())
    assert download.fetch(server.file()) == first
    assert len(server.asked) == 1


def test_a_damaged_file_is_replaced(server: Server, home: Path) -> None:
    path = put(home, "adult", "x.txt", TEXT[:-1])
    assert download.fetch(server.file()) == path
    assert path.read_bytes() == TEXT


def test_an_interrupted_transfer_resumes_where_it_stopped(server: Server) -> None:
    server.breaks = [4000]
    assert download.fetch(server.file()).read_bytes() == TEXT
    assert [span for _, span in server.asked] == [None, "bytes=4000-"]


def test_a_later_call_resumes(server: Server, home: Path) -> None:
    server.breaks = [1000, 1000, 1000]
    with refuses(DatasetError, "3,000", "11,000", "kept"):
        download.fetch(server.file())
    assert left(home) == ["x.txt.part"]
    assert download.fetch(server.file()).read_bytes() == TEXT
    assert server.asked[-1][1] == "bytes=3000-"
    assert left(home) == ["x.txt"]


def test_a_server_without_ranges_starts_again(server: Server, home: Path) -> None:
    server.ranges = False
    put(home, "adult", "x.txt.part", TEXT[:5000])
    assert download.fetch(server.file()).read_bytes() == TEXT


@pytest.mark.parametrize("stale", [b"other version", b"x" * 20_000], ids=["shorter", "longer"])
def test_the_rest_of_another_version_is_thrown_away(server: Server, home: Path, stale: bytes) -> None:
    put(home, "adult", "x.txt.part", stale)
    assert download.fetch(server.file()).read_bytes() == TEXT


def test_a_whole_part_is_checked_and_named_without_the_network(server: Server, home: Path) -> None:
    put(home, "adult", "x.txt.part", TEXT)
    download.fetch(server.file(size=len(TEXT), contents=contents(TEXT)))
    assert server.asked == []
    assert left(home) == ["x.txt"]


@pytest.mark.parametrize("digest", ["md5:" + "0" * 32, "sha256:" + "0" * 64])
def test_an_altered_download_is_refused_and_removed(server: Server, home: Path, digest: str) -> None:
    with refuses(DatasetError, "altered", *digest.split(":"), hashlib.new(digest.split(":")[0], TEXT).hexdigest()):
        download.fetch(server.file(digest=digest))
    with refuses(DatasetError, "altered", "SHA-256", sha256(b"S" + TEXT[1:]), sha256(TEXT)):
        download.fetch(server.file(b"S" + TEXT[1:]))
    with refuses(DatasetError, 12, "11,000"):
        download.fetch(server.file(size=12))
    assert left(home) == []


def test_an_absent_file_is_named_with_its_address(server: Server, home: Path) -> None:
    with refuses(DatasetError, "gone", 404, "x.txt"):
        download.fetch(server.file(TEXT, "/gone"))
    assert left(home) == []


def test_the_next_address_is_tried(server: Server) -> None:
    assert download.fetch(server.file(TEXT, "/gone", "/x.txt")).read_bytes() == TEXT
    assert [path for path, _ in server.asked] == ["/gone", "/x.txt"]


def test_no_connection_is_an_error(server: Server) -> None:
    file = server.file()
    server.server_close()
    with refuses(DatasetError, "x.txt", "http://127.0.0.1:9/x.txt", "refused"):
        download.fetch(File("adult", "x.txt", ("http://127.0.0.1:9/x.txt",), contents=file.contents))


def test_a_folder_that_cannot_be_written_is_named(server: Server, home: Path) -> None:
    home.parent.mkdir(exist_ok=True)
    home.write_text("a file where the folder should be")
    with refuses(DatasetError, "$DWAC_DATA"):
        download.fetch(server.file())


def test_a_folder_is_not_overwritten(server: Server, home: Path) -> None:
    (home / "adult" / "x.txt").mkdir(parents=True)
    with refuses(DatasetError, "x.txt", "11,000", "folder", "remove"):
        download.fetch(server.file())
    assert server.asked == []


def test_a_download_that_cannot_be_opened_is_refused(server: Server, home: Path) -> None:
    def opens(path: Path) -> None:
        raise DatasetError(f"{path} has no reviews; `python -m reproduction data get adult` downloads it again")

    with refuses(DatasetError, "x.txt", "reviews"):
        download.fetch(server.file(opens=opens))
    assert left(home) == []


def test_get_downloads_every_file_of_a_dataset(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = (server.file(), server.file())
    monkeypatch.setattr(datasets, "sources", lambda name: wanted)
    assert [path.read_bytes() for path in datasets.get("adult")] == [TEXT, TEXT]
    assert len(server.asked) == 1


# --- the real files


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (SHARED / "prepare.py").exists():
        pytest.skip("the official files are not beside this checkout")
    folder = tmp_path_factory.mktemp("real")
    command = [
        sys.executable,
        str(SHARED / "prepare.py"),
        str(folder),
        "adult",
        "stackoverflow",
        "subjectivity",
        "mnist",
    ]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize(
    ("name", "n_train", "n_test", "counts"),
    [
        ("adult", 30_162, 15_060, [34_014, 11_208]),
        ("stackoverflow", 20_000, None, [1000] * 20),
        ("subjectivity", 10_000, None, [5000, 5000]),
        ("mnist", 60_000, 10_000, [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]),
    ],
)
def test_the_official_files_hold_what_is_published(
    real: Path, monkeypatch: pytest.MonkeyPatch, name: str, n_train: int, n_test: int | None, counts: list[int]
) -> None:
    monkeypatch.setenv("DWAC_DATA", str(real))
    data = datasets.load(name)
    assert len(data.X_train) == len(data.y_train) == n_train
    assert (None if data.y_test is None else len(data.y_test)) == n_test
    assert np.bincount(data.y).tolist() == counts
    assert len(data.X) == len(data.y)


def test_adult_has_every_row_if_asked(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DWAC_DATA", str(real))
    data = datasets.load("adult", complete=False)
    missing = data.X_train.isna().sum()
    assert missing[missing > 0].to_dict() == {"workclass": 1836, "occupation": 1843, "native-country": 583}
    assert data.y.tolist().count(1) == 7841 + 3846
    assert set(vectors.SIZES) == {50, 100, 200, 300}
