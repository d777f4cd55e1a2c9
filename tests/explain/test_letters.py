"""Letters: they say what reasons and recourse found, hand doubtful cases over, and keep templates in a sandbox."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dwac.drawing.legend import Legend
from dwac.drawing.records import shorten
from dwac.errors import InputError, LabelError, ShapeError
from dwac.explain import Letter
from tests.explain.test_reasons import NEW, classifier, regressor, table
from tests.named import named, refuses

JARGON = re.compile(r"kernel|conformal|konform|epsilon|ε|p-val|log-odds|typicality|Typikalität|embedding|loan 0-", re.I)


def sure(kind: str = "classes", label: str = "good") -> tuple[Any, pd.DataFrame]:
    """A model, and a row that it decides, for another label than this one."""
    clf, rows = classifier(kind), table(40, seed=3)
    answers = clf.predict_set(rows, epsilon=0.2)
    typical = clf.conformal(rows).typicality
    place = next(i for i in range(40) if answers[i].sum() == 1 and typical[i] > 0.1 and clf.predict(rows)[i] != label)
    return clf, rows.iloc[[place]]


@pytest.mark.parametrize("kind", ["classes", pytest.param("ordered", marks=pytest.mark.slow)])
def test_a_letter_says_what_decided_and_what_would_change_it_in_plain_words(kind: str) -> None:
    clf, row = sure(kind)
    letter = clf.letter(row, "good", epsilon=0.2, frozen=["records"], sender="A bank", contact="Ms Lee\n555 0100")
    text, german = letter.to_text(90), letter.to_text(90, language="de")
    assert not letter.handed_over
    assert named(text, clf.predict(row)[0], "A bank", "Ms Lee", "555 0100", row.index[0])
    expected = clf.explain(row, epsilon=0.2)[0].reasons("good")
    parts = [part for part in expected.deciding if part.contribution > 0]
    values = letter.values()
    assert 1 <= len(values["reasons"].points) <= 3
    for part, point in zip(parts, values["reasons"].points, strict=False):
        assert named(point, part.column, expected.cell(part, part.value), expected.cell(part, part.other_value))
    for way in letter.recourse.ways if letter.recourse else ():
        assert "records" not in way.columns
        shown = [p for p in values["changes"].points if named(p, *way.columns)]
        assert way.atypical or shown
    assert "Die Entscheidung" in german
    for each in (text, german, letter.to_html()):
        assert not JARGON.search(each), JARGON.search(each)


def test_a_missing_value_is_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    clf, row = sure()
    monkeypatch.setattr(Legend, "value", lambda *_: shorten(None))
    values = clf.letter(row, "good", epsilon=0.2).values()
    for part in (values["reasons"], values["changes"]):
        assert all("missing" in point and "–" not in point for point in part.points)


def test_a_stranger_and_a_case_with_several_answers_are_left_to_a_person() -> None:
    clf, row = sure()
    decided = clf.letter(row, epsilon=0.2)
    strange = replace(decided, explanation=replace(decided.explanation, typicality=0.01))
    several = clf.letter(row, epsilon=0.0001)
    risky = clf.letter(row, epsilon=0.2, risk=0.0001)
    assert len(several.explanation.label_set) > 1
    for letter in (strange, several, risky):
        values = letter.values()
        assert letter.handed_over
        assert "person" in values["decision"].text
        assert values["reasons"] is values["changes"] is None
    assert named(several.to_text(), *several.explanation.label_set)


def test_a_private_letter_quotes_nobody_else() -> None:
    clf, row = sure()
    letter = clf.letter(row, "good", epsilon=0.2, private=True)
    values = letter.values()
    assert letter.reasons is not None
    assert letter.reasons.precedent is None
    own = {str(part.column): letter.reasons.cell(part, part.value) for part in letter.reasons.contributions}
    assert all(point in {f"{column}: {value}" for column, value in own.items()} for point in values["reasons"].points)
    assert not any(digit in "".join(values["changes"].points) for digit in "0123456789")


def test_a_model_without_its_examples_writes_a_letter_without_reasons(tmp_path: Path) -> None:
    import dwac

    clf, row = sure()
    clf.save(tmp_path / "model", include_examples=False)
    letter = dwac.load(tmp_path / "model").letter(row, "good", epsilon=0.2)
    assert letter.values()["reasons"].points == ()
    assert letter.values()["changes"] is None


def test_letters_of_numbers_and_of_several_labels() -> None:
    reg = regressor()
    row = next(NEW.iloc[[i]] for i in range(len(NEW)) if not reg.letter(NEW.iloc[[i]]).handed_over)
    letter = reg.letter(row, (-1e6, float(reg.predict(row)[0]) - 200))
    assert named(letter.to_text(), reg.explain(row)[0]._outcome_name(float(reg.predict(row)[0])))
    assert letter.values()["changes"].points
    assert reg.letter(row).values()["changes"] is None
    clf = classifier("labels")
    with refuses(InputError, "about", "late", "owner"):
        clf.letter(row)
    about: Any = clf.letter(row, about="late", epsilon=0.4).explanation
    assert set(about.probabilities) == {"late", "not late"}


def test_words_are_yours_and_mistakes_are_named(tmp_path: Path) -> None:
    clf, row = sure()
    label = clf.predict(row)[0]
    file = tmp_path / "words.csv"
    file.write_text(f'label,words\n{label},"No, we cannot."\n')
    assert clf.letter(row, epsilon=0.2, words=file).values()["decision"].text == "No, we cannot."
    with refuses(LabelError, "words", "'grand'", "good"):
        clf.letter(row, words={"grand": "Yes."})
    with refuses(LabelError, "wanted", "'grand'"):
        clf.letter(row, "grand")
    with refuses(ShapeError, "one row", 2):
        clf.letter(table(2, seed=5))


def hostile() -> Letter:
    clf, row = sure()
    letter: Letter = clf.letter(row, epsilon=0.2, sender="<b>*Bank*</b>\n# [x](y)")
    return letter


def test_templates_are_escaped_for_their_form_and_kept_in_a_sandbox(tmp_path: Path) -> None:
    letter, own = hostile(), tmp_path / "own.html"
    own.write_text("<h1>{{ sender }}</h1>{% for point in reasons.points %}<li>{{ point }}{% endfor %}")
    assert letter.render(own).startswith("<h1>&lt;b&gt;*Bank*&lt;/b&gt;\n# [x](y)</h1><li>")
    own.write_text("<p>{{ decision }}</p>")  # a part by its name alone
    assert letter.render(own) == f"<p>{letter.values()['decision'].text}</p>"
    (tmp_path / "OWN.HTM").write_text("<h1>{{ sender }}</h1>")
    assert letter.render(tmp_path / "OWN.HTM").startswith("<h1>&lt;b&gt;")
    assert "&lt;b&gt;" in letter.to_html()
    assert "<b>" not in letter.to_html()
    page = letter.write(tmp_path / "letter.md").read_text()
    assert r"&lt;b&gt;\*Bank\*&lt;/b&gt; \# \[x\](y)" in page
    assert letter.render(None, "text").startswith("<b>*Bank*</b> # [x](y)\n")
    for source, fact in [
        ("{{ decision.__class__.__mro__ }}", "__class__"),
        ("{{ senders }}", "senders"),
        ("{% include 'letter.html' %}", "cannot be used"),
        ("line\n{% for %}", "line 2"),
        ("{{ title | dictsort }}", "items"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "recursion"),
    ]:
        own.write_text(source)
        with refuses(InputError, fact):
            letter.write(tmp_path / "letter.html", own)
    with refuses(InputError, ".html", "letter.pdf"):
        letter.write(tmp_path / "letter.pdf")
