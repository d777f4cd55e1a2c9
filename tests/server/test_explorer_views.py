"""What the explorer shows of some points: one in short, a selection, a column, words left out, and new examples."""

import base64
import csv
import io
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from dwac import DWACClassifier, DWACRegressor
from dwac.server.explorer import Explorer
from tests.server.data import AGED, DIGITS, PAID, PEOPLE, SIZES, TAGS
from tests.server.explored import Reader, reading


@pytest.fixture(scope="module")
def page(table: DWACClassifier) -> Iterator[Reader]:
    yield from reading(Explorer.of(table, PEOPLE[200:], AGED[200:]))


@pytest.fixture(scope="module")
def text_page(texts: DWACClassifier) -> Iterator[Reader]:
    yield from reading(Explorer.of(texts, ["a red plum", "some green pear", "red"]))


def posted_csv(page: Reader, points: list[int]) -> list[dict[str, str]]:
    answer = page.ask("POST", "selected.csv", {"points": points})
    assert answer.status == 200, answer.body
    return list(csv.DictReader(io.StringIO(answer.body.decode())))


def test_a_point_in_short_has_its_name_label_prediction_and_record(page: Reader, table: DWACClassifier) -> None:
    found = page.get(f"points/{page.first_row + 3}/brief")
    assert (found["id"], found["part"], found["true"]) == ("person203", "data", AGED[203])
    assert found["predicted"]["label"] == table.predict(PEOPLE[203:204])[0]
    assert f"age {PEOPLE['age'].iloc[203]:g}" in found["text"]
    training = page.get("points/2/brief")
    assert training["id"] == table.references_.ids[2]
    assert training["predicted"] is None  # only rows of data are predicted
    assert page.ask("GET", "points/9999/brief").code == "invalid_input"


def test_a_selection_is_listed_and_exported_with_what_is_known(page: Reader, table: DWACClassifier) -> None:
    chosen = [1, 4, page.first_row, page.first_row + 7]
    found = page.post("selected", points=chosen)
    assert [each["point"] for each in found["examples"]] == chosen
    assert page.post("selected", points=chosen, start=3)["examples"][0]["point"] == chosen[3]
    rows = posted_csv(page, chosen)
    assert [row["part"] for row in rows] == ["training", "training", "data", "data"]
    assert [row["label"] for row in rows] == [
        *(str(table.classes_[table.references_.labels[i]]) for i in (1, 4)), AGED[200], AGED[207],
    ]  # fmt: skip
    assert rows[0]["predicted"] == ""
    assert [row["predicted"] for row in rows[2:]] == table.predict(PEOPLE.iloc[[200, 207]]).tolist()
    for points in ([], [-1], [10**6]):
        assert page.ask("POST", "selected", {"points": points}).status in (400, 422)


def test_a_column_of_the_data_is_that_of_every_point(page: Reader, table: DWACClassifier) -> None:
    names = page.get("start")["data_columns"]
    assert names == PEOPLE.columns.tolist()
    ids = [*table.references_.ids, *PEOPLE.index[200:]]
    numbers = page.get(f"values/{names.index('age')}")["numbers"]
    assert numbers == PEOPLE.loc[ids, "age"].tolist()
    jobs = page.get(f"values/{names.index('job')}")
    shown = [None if code is None else jobs["names"][code] for code in jobs["codes"]]
    assert shown == [None if pd.isna(job) else job for job in PEOPLE.loc[ids, "job"]]
    dates = page.get(f"values/{names.index('since')}")
    days = (pd.to_datetime(PEOPLE.loc[ids, "since"]) - pd.Timestamp(0)) / pd.Timedelta(days=1)
    np.testing.assert_allclose(
        [np.nan if day is None else day for day in dates["numbers"]], days.to_numpy(float), atol=1e-5
    )
    assert dates["ends"][0] == f"{pd.to_datetime(PEOPLE.loc[ids, 'since']).min():%Y-%m-%d}"
    assert page.ask("GET", f"values/{len(names)}").code == "invalid_input"


def test_each_word_is_left_out_and_the_text_predicted_again(text_page: Reader, texts: DWACClassifier) -> None:
    found = text_page.get(f"points/{text_page.first_row}/words")
    code = int(texts.predict_proba(["a red plum"])[0].argmax())
    assert found["subject"] == texts.classes_[code]
    assert found["all"] == texts.predict_proba(["a red plum"])[0, code]
    wanted = texts.predict_proba([" red plum", "a  plum", "a red "])[:, code]
    assert [each["word"] for each in found["words"]] == ["a", "red", "plum"]
    assert [each["without"] for each in found["words"]] == wanted.tolist()
    assert text_page.post("words", row="a red plum") == found  # a new text with the same words
    alone = text_page.get(f"points/{text_page.first_row + 2}/words")
    assert alone["words"] == [{"word": "red", "without": None}]  # nothing is left to read


def test_words_of_a_training_example_are_weighed_without_its_own_vote(text_page: Reader, texts: DWACClassifier) -> None:
    found = text_page.get("points/0/words")
    known = text_page.get("points/0")["explanation"]
    assert found["all"] == pytest.approx(known["probabilities"][found["subject"]], abs=1e-6)  # embedded again
    with_itself = texts.predict_proba([known["record"]["text"]])[0].max()
    assert found["all"] != with_itself


def test_only_texts_have_words(page: Reader) -> None:
    assert page.ask("GET", "points/0/words").code == "invalid_input"


@pytest.mark.slow
def test_an_uploaded_picture_is_read_as_the_training_images_were(digits: DWACClassifier) -> None:
    digit = DIGITS.images[450]
    shades = Image.fromarray(np.round(digit * 255 / 16).astype(np.uint8))
    file = io.BytesIO()
    shades.resize((80, 80), Image.Resampling.NEAREST).convert("RGB").save(file, "PNG")
    sent = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    for page in reading(Explorer.of(digits, DIGITS.images[400:410])):
        found = page.post("ask", picture=sent)["explanation"]
        wanted = digits.explain(digit[None])[0]
        assert found["label"] == wanted.label
        assert [each["id"] for each in found["neighbors"]] == [each.id for each in wanted.neighbors]
        assert page.ask("POST", "ask", {"picture": "no picture"}).code == "invalid_input"
        assert page.ask("POST", "ask", {"picture": sent[:60]}).code == "invalid_input"


def test_a_table_takes_no_picture(page: Reader) -> None:
    assert page.ask("POST", "ask", {"picture": "aGVsbG8="}).code == "invalid_input"


def test_a_private_explorer_gives_no_columns_words_or_records(table: DWACClassifier, texts: DWACClassifier) -> None:
    for page in reading(Explorer.of(table, PEOPLE[200:], private=True)):
        assert page.get("start")["data_columns"] == []
        assert page.ask("GET", "values/0").code == "not_available"
        assert page.get("points/0/brief")["text"] == ""
        assert not re.search("smith|nurse", page.ask("POST", "selected", {"points": [0, 1]}).body.decode())
    for page in reading(Explorer.of(texts, ["a red plum"], private=True)):
        assert page.get("start")["words"] is False
        assert page.ask("GET", "points/0/words").code == "not_available"
        assert page.ask("POST", "words", {"row": "red"}).code == "not_available"


@pytest.mark.slow
def test_selections_of_numbers_and_of_several_labels(
    numbers: DWACRegressor, two_numbers: DWACRegressor, tags: DWACClassifier
) -> None:
    paid, both = numbers.references_.targets, two_numbers.references_.targets
    assert paid is not None
    assert both is not None
    for page in reading(Explorer.of(numbers, SIZES[240:250], PAID[240:250])):
        rows = posted_csv(page, [0, page.first_row])
        assert float(rows[1]["prediction"]) == pytest.approx(numbers.predict(SIZES[240:241])[0])
        assert float(rows[0]["number"]) == pytest.approx(paid[0, 0])
        assert rows[0]["prediction"] == ""
        assert page.get(f"points/{page.first_row}/brief")["true"] == PAID.iloc[240]
    for page in reading(Explorer.of(two_numbers, SIZES[240:250])):
        (row,) = posted_csv(page, [0])
        wanted = both[0].tolist()
        assert [float(row["number_pay"]), float(row["number_months"])] == pytest.approx(wanted)
    for page in reading(Explorer.of(tags, SIZES[240:250], TAGS[240:250])):
        found: Any = page.post("selected", points=[page.first_row, 0])["examples"]
        assert set(found[0]["true"]) == {name for name in TAGS if TAGS[name].iloc[240]}
        assert len(posted_csv(page, [0, page.first_row])) == 2
