"""The catalogues: every message of the code is translated, with its placeholders, and compiled as it is."""

import io
import re
from typing import Any

import pytest
from babel.messages.mofile import read_mo

from dwac.errors import InputError
from dwac.languages import languages, numeral, preferred, say, speaking
from tools import messages

NAMES = [path.stem for path in messages.FOLDER.glob("*.po")]


def placeholders(text: str) -> set[str]:
    return set(re.findall(r"{(\w+)}", text))


@pytest.fixture(scope="module")
def known() -> set[Any]:
    return {(each.id, each.context) for each in messages.find_messages() if each.id}


@pytest.mark.parametrize("name", NAMES)
def test_a_catalogue_is_complete_and_has_nothing_else(name: str, known: set[Any]) -> None:
    own = {(each.id, each.context) for each in messages.read_catalog(name) if each.id}
    assert own == known, "run python -m tools.messages, and translate what is new"


@pytest.mark.parametrize("name", NAMES)
def test_every_translation_has_the_placeholders_of_its_message(name: str) -> None:
    for each in messages.read_catalog(name):
        for text in messages.forms(each.string) if each.id else ():
            assert text, f"not translated: {each.id}"
            singular, plural = (messages.forms(each.id) * 2)[:2]
            allowed = placeholders(singular) | placeholders(plural)
            assert placeholders(text) <= allowed, text
            assert placeholders(text) >= placeholders(singular) & placeholders(plural), text


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_catalogue_is_current(name: str) -> None:
    stored = (messages.FOLDER / f"{name}.mo").read_bytes()
    written, now = (read_mo(io.BytesIO(data)) for data in (stored, messages.compiled(messages.read_catalog(name))))
    assert [(each.id, each.string) for each in written if each.id] == [
        (each.id, each.string) for each in now if each.id
    ]


def test_german_is_spoken_only_where_it_was_asked_for() -> None:
    assert set(languages()) >= {"en", "de"}
    with speaking("de"):
        assert (say("any number"), numeral("1,234.5 %")) == ("jede Zahl", "1.234,5 %")
        with speaking("en"):
            assert say("any number") == "any number"
        assert say("any number") == "jede Zahl"
    assert say("any number") == "any number"
    with pytest.raises(InputError, match=r"'fr'.*en, de"), speaking("fr"):
        pass


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("de-AT,en;q=0.5", "de"),
        ("en-GB, de;q=0.9", "en"),
        ("*", "en"),
        ("de;q=0, en;q=0.1", "en"),
        ("", "en"),
        ("q=;,", "en"),
    ],
)
def test_a_header_chooses_the_language(header: str, name: str) -> None:
    assert preferred(header) == name
