"""Names that people know: titles, units and meanings of codes on every surface, and errors in the file of names."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac import DWACClassifier, load
from dwac.drawing.legend import Legend
from dwac.errors import InputError
from dwac.reading.requests import reader_of
from dwac.report import write

RNG = np.random.default_rng(0)
X = pd.DataFrame(
    {"dir": RNG.uniform(10, 60, 80).round(1), "dmi": RNG.integers(0, 2, 80), "age": RNG.integers(18, 70, 80)}
)
Y = np.where(X["dmi"] == 1, "denied", "granted")
FILE = "column,title,unit,codes\ndir,debt-to-income ratio,%,\ndmi,insurance denied,,0=no; 1=yes\n"


@pytest.fixture(scope="module")
def clf(tmp_path_factory: pytest.TempPathFactory) -> DWACClassifier:
    path = tmp_path_factory.mktemp("names") / "columns.csv"
    path.write_text(FILE)
    fast: dict[str, Any] = {"random_state": 0, "epochs": 8, "cross_fit": False}
    return DWACClassifier(**fast).fit(X, Y, names=path)


def shown(clf: DWACClassifier) -> list[str]:
    """The texts and pages of a row's explanation, its reasons, its recourse and the importance of columns."""
    row = X[X["dmi"] == 1][:1]
    e = clf.explain(row, k=3)[0]
    recourse = clf.recourse(row, "granted")[0]
    importance = clf.importance(row)
    return [
        str(e),
        e.to_html(),
        str(e.reasons()),
        e.reasons().to_html(),
        str(recourse),
        recourse.to_html(),
        repr(importance),
    ]


def test_every_text_uses_titles_and_meanings(clf: DWACClassifier) -> None:
    for text in shown(clf):
        assert "insurance denied" in text
        assert "dmi" not in text
    assert "insurance denied yes" in shown(clf)[0]
    assert any("insurance denied always" in str(text) for text in clf.descriptions_ or [])


def test_plain_values_keep_the_names_of_the_data_and_add_titles(clf: DWACClassifier) -> None:
    values = json.loads(json.dumps(clf.explain(X[:1])[0].to_dict()))
    assert set(values["record"]) == {"dir", "dmi", "age"}
    assert values["columns"]["dir"] == {"title": "debt-to-income ratio (%)"}
    assert values["columns"]["dmi"] == {"title": "insurance denied", "codes": {"0": "no", "1": "yes"}}
    first = clf.explain(X[:1])[0].reasons().to_dict()["contributions"][0]
    assert (first["column"], first["title"]) == ("dmi", "insurance denied")


def test_a_folder_keeps_the_names(clf: DWACClassifier, tmp_path: Path) -> None:
    clf.save(tmp_path / "model")
    assert shown(load(tmp_path / "model")) == shown(clf)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"dirr": "ratio"}, ["'dirr'", "did you mean 'dir'"]),
        ({"dmi": {"title": "denied", "codes": {9: "never"}}}, ["'9'", "'dmi'", "'0', '1'"]),
        ({"dir": "ratio", "age": "ratio"}, ["'dir'", "'age'", "'ratio'"]),
        ({"dir": "age"}, ["'dir'", "'age'"]),
        ({"dmi": {"title": "denied", "codes": {0: "no", 1: "no"}}}, ["'dmi'", "'no'"]),
        (pd.DataFrame({"column": ["dir"], "label": ["x"]}), ["column and title", "'label'"]),
        ("missing.csv", ["missing.csv"]),
    ],
)
def test_an_error_says_what_is_wrong_with_names(names: Any, words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        Legend.read(names).of(X.columns, X)
    for word in words:
        assert word in str(error.value)


def test_columns_of_arrays_are_named_by_their_numbers() -> None:
    legend = Legend.read(pd.DataFrame({"column": ["1"], "title": ["income"], "codes": ["2=low"]}))
    known = legend.of(range(2), pd.DataFrame([[1, 2.0]]))
    assert (known.title(1), known.title(0), known.value(1, 2.0)) == ("income", "column 0", "low")


@pytest.mark.slow
def test_pictures_the_service_and_the_report_use_titles_and_meanings(clf: DWACClassifier, tmp_path: Path) -> None:
    row = X[X["dmi"] == 1][:1]
    for figure in (clf.explain(row)[0].plot(), clf.explain(row)[0].reasons().plot()):
        drawn = [text.get_text() for text in figure.findobj(match=lambda each: hasattr(each, "get_text"))]
        assert any("insurance denied" in text for text in drawn)
        assert not any("dmi" in text for text in drawn)
    columns = reader_of(clf, pixels=0).columns() or []
    assert (columns[0]["name"], columns[0]["title"]) == ("dir", "debt-to-income ratio (%)")
    assert columns[1]["codes"] == {"0": "no", "1": "yes"}
    page = write(clf, X, Y, tmp_path / "report.html", importance=4, cases=1, epsilon=0.2, by=["dmi"]).read_text()
    assert "insurance denied" in page
    assert "dmi" not in page
