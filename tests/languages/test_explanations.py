"""Explanations in another language: every word of them comes from the catalogue, whatever is explained.

In the language of these tests every letter of a message is an ж. All data is written in digits or Greek, so a Latin
letter in an explanation is one that no translator could have seen.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from gettext import NullTranslations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dwac
from dwac import languages, report
from dwac.errors import InputError
from dwac.languages import Language

RNG = np.random.default_rng(0)
N = 60
X = pd.DataFrame(
    {
        "α": RNG.integers(18, 70, N),
        "β": RNG.choice(["ναι", "όχι"], N),
        "γ": RNG.normal(1000, 200, N).round(1),
        "δ": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), "D"),
        7: RNG.choice(np.array([True, False, None]), N),
    }
)
Y = (X["α"] > 40) & (X["β"] == "ναι")
FAST: dict[str, Any] = {"random_state": 0, "epochs": 1, "cross_fit": False}


class Marked(NullTranslations):
    """Every message, with ж for each letter outside its placeholders."""

    def gettext(self, message: str) -> str:
        return re.sub(r"({\w+})|[A-Za-z]", lambda found: found[1] or "ж", message)

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return self.gettext(msgid1 if n == 1 else msgid2)

    def pgettext(self, context: str, message: str) -> str:
        return self.gettext(message)


@pytest.fixture
def marked() -> Iterator[None]:
    token = languages._CURRENT.set(Language("xx", Marked(), str.maketrans({".": ",", ",": "."})))
    yield
    languages._CURRENT.reset(token)


@pytest.fixture(scope="module")
def models() -> dict[str, tuple[Any, Any]]:
    """A model of each kind, and the rows to explain."""
    texts = [" ".join(RNG.permutation(["σπίτι", "δρόμος", "ναι" if y else "όχι", "τώρα"])) for y in Y]
    images = (RNG.random((N, 6, 6)) + Y.to_numpy()[:, None, None]).astype(np.float32)
    labels = pd.DataFrame({"η": Y, "θ": ~Y}).astype(int)
    frame = X.rename(columns=str)
    classes = dwac.DWACClassifier(**FAST).fit(frame, Y.map({True: "ναι", False: "όχι"}))
    numbers = dwac.DWACRegressor(**FAST).fit(frame, X["γ"] * 100 + 1000 * Y)
    return {
        "classes": (classes, frame),
        "condensed": (classes.condense(8), frame),
        "ordered": (dwac.DWACClassifier(ordered=True, **FAST).fit(frame, X["α"] // 20), frame),
        "labels": (dwac.DWACClassifier(**FAST).fit(frame, labels), frame),
        "numbers": (numbers, frame),
        "condensed numbers": (numbers.condense(8), frame),
        "two numbers": (dwac.DWACRegressor(**FAST).fit(frame, pd.DataFrame({"ε": X["γ"], "ζ": X["α"]})), frame),
        "text": (dwac.DWACClassifier(**FAST).fit(texts, Y.astype(int)), texts),
        "image": (dwac.DWACClassifier(**FAST).fit(images, Y.astype(int)), images),
    }


def drawn(figure: Any) -> str:
    """All texts of a picture."""
    return "\n".join(text.get_text() for text in figure.findobj(match=lambda each: hasattr(each, "get_text")))


def latin(text: str) -> list[str]:
    """The words with Latin letters of a text or page; names of our own functions may stay."""
    text = re.sub(r"<style>.*?</style>|<[^>]*>|data:\S+|to_frame\(\)", " ", text, flags=re.S)
    return [
        word
        for word in re.findall(r"[A-Za-z]+", text)
        if word not in ("lt", "gt", "amp", "e", "image", "text", "True", "False")
    ]


@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
@pytest.mark.parametrize("private", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kind",
    [
        "classes",
        "condensed",
        "ordered",
        "labels",
        "numbers",
        "condensed numbers",
        "two numbers",
        "text",
        "image",
    ],
)
def test_every_word_of_an_explanation_comes_from_the_catalogue(
    kind: str, private: bool, models: dict[str, tuple[Any, Any]], marked: None
) -> None:
    clf, rows = models[kind]
    for e in clf.explain(rows[:3], k=2, private=private):
        assert latin(e.to_text(100)) == []
        assert latin(e.to_html()) == []
        for one in e.values() if isinstance(e, Mapping) else [e]:
            assert latin(drawn(one.plot())) == []
            with suppress(InputError):  # perhaps all get one label
                reasons = one.reasons()
                assert latin(reasons.to_text(100) + reasons.to_html() + drawn(reasons.plot())) == []
    wanted: Any = {"labels": "η", "ordered": 3, "numbers": (0, 200_000), "two numbers": {"ε": (0, 900)}}
    if kind not in ("text", "image"):
        for way in clf.recourse(
            rows[:2], wanted.get(kind, wanted["numbers"] if "numbers" in kind else "ναι"), private=private
        ):
            assert latin(way.to_text(100)) == []
            assert latin(way.to_html()) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
@pytest.mark.parametrize(
    "kind", ["classes", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("labels", "numbers", "text"))]
)
def test_every_word_of_a_case_in_a_report_comes_from_the_catalogue(
    kind: str, models: dict[str, tuple[Any, Any]], marked: None, tmp_path: Path
) -> None:
    clf, rows = models[kind]
    truth: Any = {"labels": pd.DataFrame({"η": Y, "θ": ~Y}).astype(int), "numbers": X["γ"] * 100, "text": Y.astype(int)}
    y = truth.get(kind, Y.map({True: "ναι", False: "όχι"}))
    page = report.write(clf, rows, y, tmp_path / "report.html", cases=1, importance=0).read_text()
    cases = re.findall(r"<article.*?</article>", page, flags=re.S)
    assert cases
    assert latin("".join(cases)) == []


@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_german_numbers_have_a_decimal_comma(models: dict[str, tuple[Any, Any]]) -> None:
    clf, rows = models["numbers"]
    e = clf.explain(rows[:1])[0]
    text = e.to_text(100, language="de")
    assert text.startswith("Vorhergesagt wird")
    assert re.search(r"\d,\d %", text)
    assert not re.search(r"\d\.\d(?!\d\d)", text)
    assert e.to_text(100).startswith("Predicted")
