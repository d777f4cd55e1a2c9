"""Files, folders and standard input become rows, or one clear sentence."""

import io
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given as given_
from hypothesis import settings
from hypothesis import strategies as st

from dwac import DWACClassifier
from dwac.errors import DwacError, InputError, LabelError, StorageError
from dwac.reading import Columns, Model, layouts, load, parsing, read, tables
from dwac.storage import parquet
from tests.named import named, refuses


def people(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.integers(18, 80, n)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D")
    frame = pd.DataFrame({"name": [f"p{i:03}" for i in range(n)], "age": age, "code": rng.choice(["1", "2", "x"], n)})
    return frame.assign(joined=days.strftime("%Y-%m-%d"), old=np.where(age > 48, "yes", "no"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A table's model, whose column `code` holds categories that may look like numbers."""
    path = tmp_path_factory.mktemp("model") / "people.csv"
    people().to_csv(path, index=False)
    rows = read(path, target="old", ids="name")
    clf = DWACClassifier(epochs=2, random_state=0, device="cpu").fit(rows.X, rows.y, ids=rows.ids)
    return Model(clf, rows.columns)


@pytest.fixture(scope="module")
def text_model() -> Model:
    texts = [f"{word} film with number {i}" for i in range(30) for word in ("good", "bad")]
    clf = DWACClassifier(epochs=1, random_state=0, device="cpu").fit(texts, ["pos", "neg"] * 30)
    return Model(clf, Columns(target="verdict", text="review"))


# Tables


def test_every_format_gives_the_same_rows(given: Any) -> None:
    frame = people(8)
    parquet = io.BytesIO()
    frame.assign(joined=pd.to_datetime(frame["joined"])).to_parquet(parquet, index=False)
    forms = {
        "a.csv": frame.to_csv(index=False),
        "semicolons.csv": frame.to_csv(index=False, sep=";"),
        "a.tsv": frame.to_csv(index=False, sep="\t"),
        "a.jsonl": frame.to_json(orient="records", lines=True),
        "a.parquet": parquet.getvalue(),
        "windows.csv": frame.to_csv(index=False, lineterminator="\r\n").encode("utf-8-sig"),
        "excel.csv": frame.to_csv(index=False, sep="\t").encode("utf-16"),
    }
    for name, content in forms.items():
        rows = given(name, content, target="old", ids="name")
        assert list(rows.X.columns) == ["age", "code", "joined"], name
        assert rows.X["age"].tolist() == frame["age"].tolist()
        assert rows.X["code"].tolist() == frame["code"].tolist()
        assert rows.X["joined"].dt.strftime("%Y-%m-%d").tolist() == frame["joined"].tolist()
        assert rows.y.tolist() == frame["old"].tolist()
        assert rows.ids == frame["name"].tolist()
        assert (rows.kind, rows.columns) == ("tabular", Columns("old", None, "name"))


@pytest.mark.parametrize(
    ("written", "labels"),
    [
        (["0", "1"], [0, 1]),
        (["01", "02"], ["01", "02"]),
        (["1.0", "2.0"], [1.0, 2.0]),
        (["True", "False"], [True, False]),
        (["NA", "None"], ["NA", "None"]),
        ([" a", "b "], ["a", "b"]),
    ],
)
def test_labels_are_what_they_look_like(given: Any, written: list[str], labels: list[Any]) -> None:
    rows = given("a.csv", "x,y\n" + "".join(f"{i},{label}\n" for i, label in enumerate(written)), target="y")
    assert rows.y.tolist() == labels
    assert [type(label) for label in rows.y.tolist()] == [type(label) for label in labels]


def test_ids_keep_their_zeros(given: Any) -> None:
    assert given("a.csv", "i,x,y\n007,1,a\n8,2,b\n", target="y", ids="i").ids == ["007", "8"]


def test_a_nameless_first_column_names_the_rows_as_pandas_writes_them(given: Any) -> None:
    frame = pd.DataFrame({"x": [1, 2], "y": ["a", "b"]}, index=[30, 40])
    assert given("a.csv", frame.to_csv(), target="y").ids == [30, 40]
    data = io.BytesIO()
    frame.to_parquet(data)
    rows = given("a.parquet", data.getvalue(), target="y")
    assert (rows.ids, list(rows.X.columns)) == ([30, 40], ["x"])


def test_decimal_commas_are_numbers_between_semicolons(given: Any) -> None:
    assert given("a.csv", "x;y\n1,5;a\n2,25;b\n", target="y").X["x"].tolist() == [1.5, 2.25]


def test_points_beside_decimal_commas_are_between_thousands(given: Any) -> None:
    rows = given("a.csv", 'people;x;y\n1.500;1,5;a\n850;"2,25";b\n12.300;3;b\n', target="y")
    assert rows.X["people"].tolist() == [1500, 850, 12300]
    assert rows.X["x"].tolist() == [1.5, 2.25, 3]
    assert named(rows.notes[0], "'people'", "commas")
    mixed = given("a.csv", "share;x;y\n0.5;1,5;a\n0.25;2,25;b\n", target="y")  # both marks: each column by itself
    assert (mixed.X["share"].tolist(), mixed.X["x"].tolist()) == ([0.5, 0.25], [1.5, 2.25])


def test_only_a_lone_column_of_sentences_is_a_text(given: Any) -> None:
    lone = given("a.csv", "review,y\na truly good film,1\na truly bad film,0\n", target="y")
    assert (lone.kind, lone.X, lone.columns.text) == ("text", ["a truly good film", "a truly bad film"], "review")
    assert given("b.csv", "town,y\nNew York,1\nRome,0\n", target="y").kind == "tabular"
    beside = "review,stars,y\na truly good film,5,1\na truly bad film,1,0\n"
    assert given("c.csv", beside, target="y").kind == "tabular"
    assert given("c.csv", beside, target="y", text="review").X == lone.X


@pytest.mark.parametrize(
    ("name", "content", "options", "facts"),
    [
        ("a.csv", "age,income\n1,a\n", {"target": "incom"}, ["'incom'", "'income'?"]),
        ("a.csv", "age,income\n1,a\n", {"target": "INCOME"}, ["'INCOME'", "'income'?"]),
        ("a.csv", "age,income\n1,a\n", {}, ["--target COLUMN", "'age', 'income'"]),
        ("a.csv", "39,x,1\n40,y,2\n", {"target": "y"}, ["first line", "names missing?"]),
        ("a.csv", "a,b\n1,x\n2\n", {"target": "b"}, ["a.csv line 3", "1 fields", 2]),
        ("a.csv", 'a,b\n"1\n2",x\n2,y,z\n', {"target": "b"}, ["a.csv line 4", "3 fields"]),
        ("a.csv", "a,b\n1,x\n\n2,\n3,nan\n", {"target": "b"}, ["a.csv line 4", "'b'", "missing", "2 rows"]),
        ("a.csv", "a,b,a\n1,x,2\n", {"target": "b"}, ["'a'", "unique"]),
        ("a.csv", "a,,b\n1,2,x\n", {"target": "b"}, ["column 2", "name"]),
        ("a.csv", "", {"target": "b"}, ["a.csv", "empty"]),
        ("a.csv", " \n\n", {"target": "b"}, ["a.csv", "empty"]),
        ("a.csv", "a,b", {"target": "b"}, ["row"]),
        ("a.csv", "b\nx\n", {"target": "b"}, ["column", "'b'"]),
        ("a.csv", b"a,b\n1,x\n2,caf\xe9\n", {"target": "b"}, ["line 3", "utf-8", "0xe9", "--encoding cp1252"]),
        ("a.csv", b"a,b\n1,\x00\n", {"target": "b"}, ["line 2", "zero byte"]),
        ("a.csv", "a,b\n1,x\n", {"target": "b", "encoding": "utf-9"}, ["encoding", "'utf-9'"]),
        ("a.csv", "a,b\n1,x\n", {"target": "b", "encoding": "rot13"}, ["encoding", "'rot13'"]),
        ("a.csv", "a,b\n1,x\n", {"target": "b", "form": "xml"}, ["format", "'xml'", "csv"]),
        ("a.csv", "i,a,b\n,1,x\n", {"target": "b", "ids": "i"}, ["line 2", "id 'i'"]),
        ("a.csv", "t,b\n ,x\n", {"target": "b", "text": "t"}, ["a.csv", "text", "empty"]),
        ("a.jsonl", '{"a": 1, "b": 2}\n\n{"a":', {"target": "b"}, ["a.jsonl line 3", "JSON"]),
        ("a.jsonl", '{"a": "\\ud800", "b": 2}', {"target": "b"}, ["line 1", "JSON"]),
        ("a.jsonl", "[1, 2]\n", {"target": "b"}, ["line 1", "JSON object"]),
        ("a.jsonl", '{"a": [1], "b": 2}\n', {"target": "b"}, ["line 1", "'a'", "[1]"]),
        ("a.jsonl", "[" * 100_000, {"target": "b"}, ["line 1", "JSON"]),
        ("a.parquet", b"PAR1 nonsense", {"target": "b"}, ["Parquet"]),
        ("a.txt", "pos\tgood\n\nbad\n", {}, ["a.txt line 3", "label", "tab", "'bad'"]),
        ("a.png", b"", {}, ["labels", "image"]),
    ],
)
def test_what_cannot_be_read_is_an_error(given: Any, name: str, content: Any, options: Any, facts: list[Any]) -> None:
    with refuses(DwacError, *facts) as error:
        given(name, content, **options)
    assert name in str(error.value) or {"encoding", "form"} & set(options)


def test_a_file_in_parts_needs_an_encoding_of_text_too(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n1,x\n")
    with refuses(InputError, "encoding", "'rot13'"):
        layouts.layout_of(str(path), "csv", "rot13")


@pytest.mark.parametrize(
    ("name", "content", "first"),
    [("a.csv", "i,t,y\n7,good film,x\n8, ,x\n9,bad film,z\n", 2), ("a.txt", "x\tgood film\nx\t\nz\tbad film\n", 2)],
)
def test_an_empty_text_is_left_out_of_training_and_noted(given: Any, name: str, content: str, first: int) -> None:
    table = name == "a.csv"
    rows = given(name, content, **({"target": "y", "text": "t", "ids": "i"} if table else {}))
    assert (rows.X, rows.y.tolist(), rows.ids) == (["good film", "bad film"], ["x", "z"], [7, 9] if table else [0, 2])
    assert rows.where(1).endswith(f"line {first + 1 + table}")
    (note,) = rows.notes
    assert named(note, "1 of 3")
    assert note.endswith(f"line {first + table}")


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_columns_are_looked_at_a_fixed_number_of_times(given: Any, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"column {i}" for i in range(600)]
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        def strip(self, *_: Any) -> str:
            return self

    layouts.check_names([Name(name) for name in names], "a")
    assert compared <= 2 * len(names)
    frame = pd.DataFrame([[*range(len(names))]] * 3, columns=names)
    file = {"csv": frame.to_csv(index=False), "jsonl": frame.to_json(orient="records", lines=True)}
    content = file[form] if form in file else frame.to_parquet()
    assert given(f"a.{form}", content, target="column 7").X.columns.tolist() == [n for n in names if n != "column 7"]
    monkeypatch.setattr(parquet, "MOST_COLUMNS", 599)
    with refuses(InputError, f"a.{form}", 600, 599):
        given(f"a.{form}", content, target="column 7")


def test_tables_that_would_fill_the_memory_are_refused_unread(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (parsing, tables):
        monkeypatch.setattr(module, "room", lambda: 2**20)
    frame = pd.DataFrame({"x": np.zeros(10**6), "y": "no"})
    with refuses(InputError, "a.parquet", "12,000,000"):
        given("a.parquet", frame.to_parquet(), target="y")
    apart = "\n".join(f'{{"key {i}": 1}}' for i in range(1000))  # a million cells, all but a thousand of them gaps
    with refuses(InputError, "a.jsonl", "1,000 lines", "1,000"):
        given("a.jsonl", apart, target="key 0")


def test_blanks_are_gaps_and_dates_dates_in_every_place(given: Any) -> None:
    csv = given("a.csv", "t,u,d,y\n,NA,2024-01-02,a\nx,,,b\nz,x,2024-01-03,b\n", target="y").X
    assert csv["t"].isna().tolist() == [True, False, False]
    assert csv["u"].tolist()[0] == "NA"
    assert csv["u"].isna().tolist() == [False, True, False]
    lines = '{"d": null, "t": "2024-x", "y": 1}\n{"d": "2024-01-02", "t": "b", "y": 2}\n'
    jsonl = given("a.jsonl", lines, target="y").X
    assert jsonl["d"].tolist()[1] == csv["d"].tolist()[0] == pd.Timestamp("2024-01-02")
    assert jsonl["t"].tolist() == ["2024-x", "b"]
    assert jsonl.columns.tolist() == ["d", "t"]


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with refuses(InputError, "nosuch.csv"):
        read(tmp_path / "nosuch.csv", target="y")


def test_a_missing_number_stays_missing(given: Any) -> None:
    rows = given("a.csv", "x,c,y\n1,red,a\n,,b\nNA,NA,a\n", target="y")
    assert rows.X["x"].isna().tolist() == [False, True, True]
    assert rows.X["c"].isna().tolist() == [False, True, False]  # NA may be a category, such as a country


def test_a_column_that_turns_to_words_late_is_read_whole(given: Any) -> None:
    lines = [f"{i},{'a' * 500}" for i in range(2_500)] + ["x17,b"]  # beyond a megabyte, where types might be decided
    rows = given("a.csv", "c,y\n" + "\n".join(lines), target="y")
    assert rows.X["c"].iloc[[0, -1]].tolist() == ["0", "x17"]


# Sentences, images, standard input


def test_sentences_with_labels(given: Any) -> None:
    rows = given("a.txt", "pos\tgood film\r\n\r\nneg\tbad\tfilm\r\n")
    assert (rows.X, rows.y.tolist(), rows.kind) == (["good film", "bad\tfilm"], ["pos", "neg"], "text")
    assert rows.where(1).endswith("a.txt line 3")
    assert rows.ids == [0, 2]


def images(folder: Path, *paths: str) -> None:
    pillow = pytest.importorskip("PIL.Image")
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        pillow.fromarray(np.zeros((4, 4), dtype=np.uint8)).save(folder / path)


def test_a_folder_of_images_by_class(tmp_path: Path) -> None:
    images(tmp_path, "dog/b.png", "dog/deep/a.jpg", "cat/1.png")
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "dog" / "._b.png").write_text("what some systems leave behind")
    rows = read(tmp_path)
    assert rows.ids == ["cat/1.png", "dog/b.png", "dog/deep/a.jpg"]
    assert np.array_equal(np.asarray(rows.y), ["cat", "dog", "dog"])
    assert [str(tmp_path / name) for name in rows.ids] == rows.X
    assert read(tmp_path / "dog", labelled=False).ids == ["b.png", "deep/a.jpg"]


def test_folders_without_images_or_classes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    with refuses(InputError, "images", "1 .csv"):
        read(tmp_path)
    images(tmp_path, "stray.png", "cat/1.png")
    with refuses(LabelError, "stray.png", "class"):
        read(tmp_path)


@pytest.mark.parametrize(("content", "kind"), [("x,y\n1,a\n2,b\n", "tabular"), ('{"x": 1, "y": "a"}\n', "tabular")])
def test_standard_input_is_known_by_its_looks(monkeypatch: pytest.MonkeyPatch, content: str, kind: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    rows = read("-", target="y")
    assert (rows.kind, rows.y is not None and rows.y[0], rows.where(0)[:14]) == (kind, "a", "standard input")


# For a model


def test_a_model_gets_its_columns_in_any_order_and_of_its_types(given: Any, model: Model) -> None:
    frame = people()
    numbers = frame[frame["code"] != "x"].head(5)  # alone, these codes look like numbers
    mixed = numbers[["joined", "code", "old", "age", "name"]].assign(extra=1)
    for name, content in (
        ("a.csv", mixed.to_csv(index=False)),
        ("a.jsonl", mixed.to_json(orient="records", lines=True)),
    ):
        rows = given(name, content, like=model)
        assert list(rows.X.columns) == ["age", "code", "joined"]
        assert rows.X["code"].tolist() == numbers["code"].tolist()
        assert rows.ids == numbers["name"].tolist()
        assert rows.y is None
        assert given(name, content, like=model, labelled=True).y.tolist() == numbers["old"].tolist()
    every = model.clf.predict_proba(given("all.csv", frame.to_csv(index=False), like=model).X)
    some = model.clf.predict_proba(given("some.csv", mixed.to_csv(index=False), like=model).X)
    np.testing.assert_allclose(some, every[numbers.index], atol=1e-5)


@pytest.mark.parametrize(
    ("content", "facts"),
    [("age,code\n1,x\n", ["missing: 'joined'", "'age', 'code'"]), ("age,code,joined\n", ["a.csv", "row"])],
)
def test_a_model_says_what_does_not_fit(given: Any, model: Model, content: str, facts: list[str]) -> None:
    with refuses(InputError, *facts):
        given("a.csv", content, like=model)


def test_cells_that_do_not_fit_stay_as_written_for_the_model_to_judge(given: Any, model: Model) -> None:
    rows = given("a.csv", "age,code,joined\n1,x,2024-01-01\nold,x,2024-01-01\n2,x,May\n3,,\n", like=model)
    unreadable = model.clf.unreadable(rows.X)
    assert list(unreadable) == [1, 2]
    assert named(unreadable[1], "age", "numbers", "old")
    assert named(unreadable[2], "joined", "dates", "2024-05-31T14:00", "May")
    assert rows.X["age"][[0, 2]].tolist() == [1, 2]


def test_labels_must_be_among_the_classes(given: Any, model: Model) -> None:
    content = people(3).assign(old=["yes", "no", "perhaps"]).to_csv(index=False)
    with refuses(LabelError, "line 4", "perhaps", "old", "no", "yes"):
        given("a.csv", content, like=model, labelled=True)
    with refuses(InputError, "old", "target"):
        given("a.csv", people(3).drop(columns="old").to_csv(index=False), like=model, labelled=True)


def test_labels_are_found_by_how_they_are_written(given: Any) -> None:
    X, y = np.arange(60)[:, None], np.repeat([0, 1], 30)
    clf = DWACClassifier(epochs=1, random_state=0, device="cpu").fit(X, y)  # of an array: columns by position
    for written in ("0\n5,1", "0.0\n5,1.0"):
        rows = given("a.csv", f"x,y\n3,{written}\n", like=Model(clf), target="y", labelled=True)
        assert rows.y.tolist() == [0, 1]
        assert clf.predict(rows.X).shape == (2,)


def test_a_text_model_reads_lines_and_tables(given: Any, text_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    assert given("a.txt", "good film\n\nbad\tfilm\n", like=text_model).X == ["good film", "bad\tfilm"]
    labelled = given("a.txt", "pos\tgood film\nneg\tbad film\n", like=text_model)
    assert (labelled.X, labelled.y) == (["good film", "bad film"], None)
    assert given("a.csv", "verdict,stars,review\npos,5,good film\n", like=text_model).X == ["good film"]
    assert given("a.csv", "stars,words\n5,good film\n", like=text_model).X == ["good film"]
    with refuses(InputError, "--text COLUMN"):
        given("a.csv", "a,b\ngood,film\n", like=text_model)
    for piped, texts in (("a good review\n", ["a good review"]), ("id,review\n1,good film\n", ["good film"])):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped.encode())))
        assert texts == read("-", like=text_model).X


def test_another_kind_of_data_is_refused(given: Any, model: Model, tmp_path: Path) -> None:
    images(tmp_path, "one.png")
    with refuses(InputError, "table", "images", "CSV"):
        read(tmp_path / "one.png", like=model)
    with refuses(InputError, "table", "texts"):
        given("a.txt", "good film\n", like=model)


def test_a_model_remembers_its_columns(model: Model, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "model")
    assert load(folder).columns == Columns("old", None, "name")
    model.clf.save(tmp_path / "plain")
    assert load(tmp_path / "plain").columns == Columns()
    for damaged in ("{", '{"target": 3}', '{"colour": "red"}', "[" * 1000):
        (folder / "columns.json").write_text(damaged)
        with refuses(StorageError, "columns.json"):
            load(folder)


def test_a_model_fitted_in_python_knows_its_target_by_the_name_of_y(given: Any, tmp_path: Path) -> None:
    frame = people()
    clf = DWACClassifier(epochs=1, random_state=0, device="cpu").fit(frame[["age"]], frame["old"])
    clf.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.columns == Columns("old")
    rows = given("new.csv", frame[:5].to_csv(index=False), like=again, labelled=True)
    assert rows.y.tolist() == frame["old"][:5].tolist()
    again.clf.forget(frame.index[:1].tolist()).save(tmp_path / "edited")
    assert load(tmp_path / "edited").columns == Columns("old")
    both = pd.DataFrame({"old": frame["age"] > 50, "young": frame["age"] <= 50})
    clf.fit(frame[["age"]], both).save(tmp_path / "both")
    assert load(tmp_path / "both").columns == Columns(("old", "young"))
    clf.fit(frame[["age"]], both["old"].rename(3)).save(tmp_path / "number")
    assert load(tmp_path / "number").columns == Columns()


def test_a_subset_of_rows_knows_its_origin(given: Any) -> None:
    rows = given("a.csv", "x,y\n1,a\n2,b\n3,c\n", target="y").take(np.array([2, 0]))
    assert (rows.y.tolist(), rows.ids, rows.X["x"].tolist()) == (["c", "a"], [2, 0], [3, 1])
    assert rows.where(0).endswith("a.csv line 4")


@settings(max_examples=150)
@given_(
    data=st.binary(max_size=60) | st.text('ab,"\n\r\t;{}[]:\\1.-é\x00 ', max_size=60).map(str.encode),
    form=st.sampled_from(["csv", "tsv", "jsonl", "parquet", "text"]),
    name=st.sampled_from([None, "a", ""]),
)
def test_whatever_comes_is_read_or_refused_on_purpose(tmp_path: Path, data: bytes, form: str, name: Any) -> None:
    (tmp_path / "a").write_bytes(data)
    with suppress(DwacError):
        rows = read(tmp_path / "a", target=name, form=form)
        assert rows.y is not None
        assert len(rows.y) == len(rows.ids) == len(rows.X) > 0
        rows.where(len(rows) - 1)


def test_categories_that_are_whole_numbers_are_known_when_they_come_as_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    kind = rng.integers(1, 4, 300)
    frame = pd.DataFrame({"kind": pd.Categorical(kind), "size": rng.normal(size=300)})
    clf = DWACClassifier(epochs=5, random_state=0, device="cpu").fit(frame, kind)
    clf.save(tmp_path / "model")
    frame.astype({"kind": str}).to_csv(tmp_path / "rows.csv", index=False)
    rows = read(tmp_path / "rows.csv", like=load(tmp_path / "model", device="cpu"))
    np.testing.assert_allclose(clf.predict_proba(rows.X), clf.predict_proba(frame), atol=1e-9)
