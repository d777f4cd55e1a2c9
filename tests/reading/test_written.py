"""The same table, however it is written: semicolons, commas, days first, Excel, compressed."""

import bz2
import gzip
import io
import lzma
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pytest

from dwac import DWACClassifier
from dwac.errors import DwacError, InputError, LabelError, StorageError
from dwac.reading import Model, check_notation, excel, load, places, read
from tests.named import named, refuses


def sales(n: int = 120) -> pd.DataFrame:
    """Prices, dates, codes and who bought; dates of both halves of the month."""
    rng = np.random.default_rng(0)
    price = np.round(rng.gamma(3, 400, n), 2)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D")
    frame = pd.DataFrame({"price": price, "day": days, "shop": rng.choice(["07", "12", "x"], n)})
    return frame.assign(bought=np.where(price > 1000, "yes", "no"))


def german(frame: pd.DataFrame, **options: Any) -> str:
    """As a German spreadsheet writes it."""
    cells = frame["price"].map(lambda x: f"{x:,.2f}".translate(str.maketrans(",.", ".,")))
    written = frame.assign(price=cells, day=frame["day"].dt.strftime("%d/%m/%Y"))
    return str(written.to_csv(sep=";", index=False, **options))


def workbook(frame: pd.DataFrame, **sheets: pd.DataFrame) -> bytes:
    data = io.BytesIO()
    with pd.ExcelWriter(data, engine="openpyxl") as writer:
        frame.to_excel(writer, sheet_name="Sales", index=False)
        for name, other in sheets.items():
            other.to_excel(writer, sheet_name=name, index=False)
    return data.getvalue()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model that was trained on the German file, saved and loaded."""
    folder = tmp_path_factory.mktemp("sales")
    (folder / "a.csv").write_text(german(sales()))
    rows = read(folder / "a.csv", target="bought")
    clf = DWACClassifier(epochs=1, random_state=0, device="cpu").fit(rows.X, rows.y, ids=rows.ids)
    Model(clf, rows.columns, rows.notation).save(folder / "model")
    return load(folder / "model", device="cpu")


def _zip(data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.csv", data)
    return packed.getvalue()


PACKED = {
    "gz": gzip.compress,
    "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zip": _zip,
}


def test_every_way_of_writing_gives_the_same_table(given: Any) -> None:
    frame = sales()
    plain = given("a.csv", frame.to_csv(index=False), target="bought")
    for name, content in (("b.csv", german(frame)), ("c.csv", german(frame, quoting=1)), ("d.xlsx", workbook(frame))):
        rows = given(name, content, target="bought")
        pd.testing.assert_frame_equal(rows.X, plain.X, check_dtype=False, obj=name)
        assert (rows.y.tolist(), rows.notes) == (plain.y.tolist(), ())


@pytest.mark.parametrize("trained", [german(sales()), sales().to_csv(index=False)], ids=["german", "plain"])
def test_points_beside_decimal_commas_are_between_thousands_for_models_too(given: Any, trained: str) -> None:
    rows = given("a.csv", trained, target="bought")
    clf = DWACClassifier(epochs=1, random_state=0, device="cpu").fit(rows.X, rows.y, ids=rows.ids)
    asked = "price;day;shop;note\n1.500;2020-01-31;07;1,5\n850;2020-01-31;07;2\n"
    found = given("b.csv", asked, like=Model(clf, rows.columns, rows.notation))
    assert found.X["price"].tolist() == [1500, 850]


@pytest.mark.parametrize("ending", PACKED)
def test_compressed_tables_are_read_whatever_they_are_called(given: Any, ending: str) -> None:
    frame, data = sales(30), PACKED[ending](sales(30).to_csv(index=False).encode())
    for name in (f"a.csv.{ending}", "a.csv"):
        assert given(name, data, target="bought").X["price"].tolist() == frame["price"].tolist()


def test_a_compressed_file_that_is_cut_off_or_too_large_is_refused(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = sales(500).to_csv(index=False).encode()
    with refuses(InputError, "a.csv.gz", "gzip"):
        given("a.csv.gz", gzip.compress(data)[:-2000], target="bought")
    two = io.BytesIO()
    with zipfile.ZipFile(two, "w") as archive:
        archive.writestr("a.csv", data)
        archive.writestr("b.csv", data)
    with refuses(InputError, "one file", "'a.csv', 'b.csv'"):
        given("a.zip", two.getvalue(), target="bought")
    monkeypatch.setattr(places, "room", lambda: 1000)
    with refuses(InputError, "1,000"):
        given("a.csv.gz", gzip.compress(data), target="bought")


@pytest.mark.parametrize("kind", [*PACKED, "xlsx"])
def test_damaged_files_are_read_or_refused_on_purpose(given: Any, kind: str) -> None:
    plain = sales(12).to_csv(index=False).encode()
    whole = workbook(sales(12)) if kind == "xlsx" else PACKED[kind](plain)
    rng = np.random.default_rng(0)
    for _ in range(25):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), 4):
            data[place] = rng.integers(256)
        data = data[: rng.integers(len(data) // 2, 2 * len(data))]
        with suppress(DwacError):
            given("a", bytes(data), target="bought", form=None if kind != "xlsx" else "excel")


# What a model learned, and what is said, on later files


def test_a_single_row_that_could_be_either_is_read_as_in_training(given: Any, model: Model) -> None:
    row = "shop;price;day\n07;1,500;01/02/2020\n"
    found = given("new.csv", row, like=model)
    assert found.X.iloc[0].tolist() == [1.5, pd.Timestamp("2020-02-01"), "07"]
    assert found.notes == ()
    said = given("new.csv", row, like=model, notation=check_notation(decimal=".", day_first=False))
    assert said.X.iloc[0].tolist() == [1500, pd.Timestamp("2020-01-02"), "07"]


def test_later_files_may_be_written_otherwise(given: Any, model: Model) -> None:
    frame = sales(20)
    every = [given(name, content, like=model).X for name, content in (
        ("a.csv", german(frame)), ("b.csv", frame.to_csv(index=False)), ("c.xlsx", workbook(frame)),
        ("d.jsonl", frame.assign(day=frame["day"].dt.strftime("%d/%m/%Y")).to_json(orient="records", lines=True)),
    )]  # fmt: skip
    for found in every[1:]:
        pd.testing.assert_frame_equal(found, every[0], check_dtype=False)


def test_cells_that_do_not_fit_stay_for_the_model_to_judge(given: Any, model: Model) -> None:
    found = given("a.csv", "shop;price;day\n07;dear;01/02/2020\n12;1,5;soon\n07;2,5;13/02/2020\n", like=model)
    unreadable = model.clf.unreadable(found.X)
    assert list(unreadable) == [0, 1]
    assert named(unreadable[0], "price", "numbers", "dear")
    assert named(unreadable[1], "day", "dates", "2024-05-31T14:00", "soon")
    assert found.X["price"].tolist()[1:] == [1.5, 2.5]


def test_a_separator_that_is_said_is_used(given: Any) -> None:
    content = "a;b|y\n1;2|u\n3;4|v\n"
    assert given("a.csv", content, target="y", notation=check_notation("|")).X.columns.tolist() == ["a;b"]
    tabs = given("a.csv", "a,b\ty\n1\tu\n2\tv\n", target="y", notation=check_notation("tab"))
    assert tabs.X.columns.tolist() == ["a,b"]


def test_a_damaged_notation_is_reported(model: Model, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "m")
    (folder / "columns.json").write_text('{"target": "y", "notation": {"dates": {"d": "soon"}}}')
    with refuses(StorageError, "columns.json"):
        load(folder)


# Rows and columns that are left aside


def test_rows_without_a_target_are_refused_or_left_out(given: Any) -> None:
    content = "x,y\n1,a\n2,\n3,b\n4,nan\n"
    with refuses(LabelError, "line 3", "y", "2 rows", "--unlabelled drop"):
        given("a.csv", content, target="y")
    rows = given("a.csv", content, target="y", unlabelled="drop")
    assert (rows.y.tolist(), rows.ids, rows.where(1)[-6:]) == (["a", "b"], [0, 2], "line 4")
    (note,) = rows.notes
    assert named(note, "2 of 4", "target")
    with refuses(InputError, "target"):
        given("a.csv", "x,y\n1,\n2,\n", target="y", unlabelled="drop")


def test_ignored_columns_are_not_learned_from(given: Any) -> None:
    rows = given("a.csv", "a,b,y\n1,2,u\n3,4,v\n", target="y", ignore=["a"])
    assert (rows.X.columns.tolist(), list(dict(rows.aside))) == (["b"], ["a"])
    assert named(dict(rows.aside)["a"], "ignored")
    for ignore, fact in ((["c"], "'c'"), (["y"], "'y'"), (["a", "b"], "'a', 'b'")):
        with refuses(InputError, fact):
            given("a.csv", "a,b,y\n1,2,u\n3,4,v\n", target="y", ignore=ignore)


def test_a_code_stays_a_category_if_it_is_said(given: Any) -> None:
    rows = given("a.csv", "zip,y\n00501,u\n90210,v\n", target="y", kinds={"zip": "categories"})
    assert rows.X["zip"].tolist() == ["00501", "90210"]
    with refuses(InputError, "zap", "zip"):
        given("a.csv", "zip,y\n00501,u\n90210,v\n", target="y", kinds={"zap": "numbers"})
    with refuses(InputError, "--ignore", "a.txt", "texts"):
        given("a.txt", "pos\tgood\n", ignore=["a"])


def test_numbers_with_decimal_commas_are_numbers_to_predict(given: Any) -> None:
    rows = given("a.csv", "x;y\n1;1.001,5\n2;2,25\n3;7\n", target="y")
    assert (rows.task, rows.y.tolist()) == ("numbers", [1001.5, 2.25, 7.0])
    assert given("a.csv", "x;y\n1;1,5\n2;1,5\n", target="y", task="classes").y.tolist() == ["1,5", "1,5"]


# Excel


def test_a_sheet_is_chosen_by_name_and_the_first_is_named(given: Any) -> None:
    data = workbook(sales(5), Other=sales(9))
    first = given("a.xlsx", data, target="bought")
    (note,) = first.notes
    assert len(first) == 5
    assert named(note, "'Sales' of 'Sales', 'Other'", "--sheet NAME")
    other = given("a.xlsx", data, target="bought", sheet="Other")
    assert (len(other), other.notes) == (9, ())
    with refuses(InputError, "Third", "'Sales', 'Other'"):
        given("a.xlsx", data, target="bought", sheet="Third")
    with refuses(InputError, "--sheet", "Excel"):
        given("a.csv", "x,y\n1,a\n", target="y", sheet="Other")


def test_a_table_on_a_sheet_may_be_untidy(given: Any) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row in ([], ["code", "x", None, "when", "y"], [7, 1.5, None, "31/01/2020", "a"], [None] * 5,
                ["7b", "#N/A", None, "01/02/2020", "b"], [8, 2, None, None, ""]):  # fmt: skip
        sheet.append(row)
    data = io.BytesIO()
    book.save(data)
    rows = given("a.xlsx", data.getvalue(), target="y", unlabelled="drop")
    assert rows.X.columns.tolist() == ["code", "x", "when"]
    assert rows.X["code"].tolist() == ["7", "7b"]
    assert rows.X["x"].tolist()[0] == 1.5
    assert rows.X["x"].isna().tolist() == [False, True]
    assert rows.X["when"].tolist() == [pd.Timestamp("2020-01-31"), pd.Timestamp("2020-02-01")]
    assert rows.where(1).endswith("sheet 'Sheet' row 5")


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le"), "password"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", ".xls"),
        (b"PK\x03\x04 nonsense", "zip"),
        (b"nonsense", ".xlsx"),
    ],
)
def test_workbooks_that_cannot_be_read_are_refused(given: Any, content: bytes, fact: str) -> None:
    with refuses(InputError, "a.xlsx", fact):
        given("a.xlsx", content, target="y")


def test_without_its_extra_a_workbook_says_what_to_install(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = workbook(sales(3))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with refuses(InputError, "openpyxl", "pip install 'dwac[excel]'", "CSV"):
        given("a.xlsx", data, target="bought")


def test_a_workbook_on_standard_input_is_known_by_its_looks() -> None:
    assert excel.is_workbook(workbook(sales(2)))
    assert not excel.is_workbook(b"x,y\n1,2\n")


def _cells(*rows: tuple[Any, ...], title: str = "Sales", merged: str | None = None) -> bytes:
    """A workbook with these cells, and a second sheet."""
    book = openpyxl.Workbook()
    book.active.title = title
    for row in rows:
        book.active.append(row)
    if merged is not None:
        book.active.merge_cells(merged)
    book.create_sheet("Notes").append(("read", "me"))
    data = io.BytesIO()
    book.save(data)
    return data.getvalue()


def test_an_error_on_a_workbook_names_its_other_sheets(given: Any, model: Model) -> None:
    wrong = _cells(("read", "me"), (1, 2), title="About")
    for options in ({"target": "bought"}, {"like": model}):
        with refuses(InputError, "'read', 'me'", "'About', 'Notes'", "--sheet"):
            given("a.xlsx", wrong, **options)
    with refuses(InputError, "rows", "About"):
        given("a.xlsx", _cells(("read", "me"), title="About"), target="me")


def test_merged_headers_get_advice(given: Any) -> None:
    with refuses(InputError, "column C", "unmerge"):
        given("a.xlsx", _cells(("y", "size", None), (None, "wide", "high"), ("a", 1, 2), merged="B1:C1"), target="y")


def test_formulas_without_stored_values_get_advice(given: Any) -> None:
    data = _cells(("x", "twice", "y"), (1, "=2*A2", "a"), (2, "=2*A3", "b"))
    rows = given("a.xlsx", data, target="y", sheet="Sales")
    assert len(rows.notes) == 1
    assert named(rows.notes[0], "column B", "2 formulas")
    with refuses(LabelError, "twice", "2 rows", "column B", "2 formulas"):
        given("a.xlsx", data, target="twice")
    assert given("a.xlsx", _cells(("x", "y"), (None, "a"), (2, "b")), target="y", sheet="Sales").notes == ()


def test_codes_with_leading_zeros_stay_categories(given: Any) -> None:
    codes, y = ["00123", "90210", "00007", ""], list("abab")
    table = pd.DataFrame({"zip": codes, "n": [1, 2, 3, 4], "y": y})
    book = openpyxl.Workbook()
    book.active.append(("zip", "n", "y"))
    for code, n, label in zip(codes, (1, 2, 3, 4), y, strict=True):
        book.active.append((int(code) if code else None, n, label))
        book.active.cell(n + 1, 1).number_format = "00000"
    shown = io.BytesIO()
    book.save(shown)
    lines = "\n".join(f'{{"zip": "{a}", "n": {n}, "y": "{b}"}}' for a, n, b in table.itertuples(index=False))
    ways = {
        "a.csv": table.to_csv(index=False),
        "b.csv": table.to_csv(index=False, sep=";", quoting=1),
        "c.jsonl": lines,
    }
    for name, content in (ways | {"d.xlsx": workbook(table), "e.xlsx": shown.getvalue()}).items():
        rows = given(name, content, target="y")
        assert rows.X["zip"].tolist()[:3] == codes[:3], name
        assert rows.X["n"].tolist() == [1, 2, 3, 4]
        assert rows.notes
        assert all(named(note, "00123", "categories", "--kind zip=numbers") for note in rows.notes)
        numbers = given(name, content, target="y", kinds={"zip": "numbers"})
        assert numbers.X["zip"].tolist()[:3] == [123, 90210, 7]
        assert given(name, content, target="y", kinds={"zip": "categories"}).notes == ()
    kept = given("f.csv", "x,half,y\n0,0.50,a\n10,00.5,b\n", target="y")  # 0 and fractions are numbers
    assert kept.X.dtypes.map(lambda dtype: dtype.kind).tolist() == ["i", "f"]


def test_what_could_be_thousands_is_not_silently_read_as_in_training(given: Any, model: Model) -> None:
    said = Model(model.clf, model.columns, check_notation(decimal=","))  # --decimal , in training
    english = 'price,day,shop\n"1,500",2020-02-13,x\n'
    for trained in (model, said):
        rows = given("a.csv", english, like=trained)
        assert rows.X["price"].tolist() == [1.5]
        (note,) = rows.notes
        assert named(note, "'price'", "commas", "1,500 is 1.5", "1.500 is 1500", "as in training", "--decimal .")
        meant = given("a.csv", english, like=trained, notation=check_notation(decimal="."))
        assert (meant.X["price"].tolist(), meant.notes) == ([1500.0], ())
        theirs = given("a.csv", english.replace(",", ";").replace("1;500", "1,500"), like=trained)
        assert (theirs.X["price"].tolist(), theirs.notes) == ([1.5], ())  # the file is written as in training
        clear = given("a.csv", english.replace("1,500", "1,5"), like=trained)
        assert (clear.X["price"].tolist(), clear.notes) == ([1.5], ())
