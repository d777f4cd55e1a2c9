"""Languages: the texts of explanations in the language of the reader, from one catalogue per language. Internal.

with speaking("de"):
    print(explanation)

The messages in the code are English sentences with named placeholders. `LANGUAGE.po` in this folder translates them,
`python -m tools.messages` updates and compiles these files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from gettext import GNUTranslations, NullTranslations
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from dwac.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")

ENGLISH = "en"
_FOLDER = Path(__file__).parent
_RANGE = re.compile(r"\s*([a-z*]+)[^,;]*(?:;\s*q=([0-9.]+))?", re.IGNORECASE)  # of Accept-Language


class Language(NamedTuple):
    """A language other than English: its name, its messages, and how its numbers are written."""

    name: str
    messages: NullTranslations
    marks: dict[int, str]  # for str.translate: its decimal mark and thousands separator in place of "." and ","


_CURRENT: ContextVar[Language | None] = ContextVar("language", default=None)  # None: English


@cache
def languages() -> tuple[str, ...]:
    """The languages in which explanations can be written."""
    return ENGLISH, *sorted(path.stem for path in _FOLDER.glob("*.mo"))


@cache
def read_language(name: str) -> Language | None:
    """A language by its name, such as "de"; None for English."""
    if name not in languages():
        raise InputError(f"unknown language {name!r}; choose {', '.join(languages())}")
    if name == ENGLISH:
        return None
    with (_FOLDER / f"{name}.mo").open("rb") as file:
        messages = GNUTranslations(file)
    marks = {".": messages.pgettext("decimal mark", "."), ",": messages.pgettext("thousands separator", ",")}
    return Language(name, messages, str.maketrans(marks))


@contextmanager
def speaking(language: str | None) -> Iterator[None]:
    """Write explanations in this language, in this thread or task; None changes nothing.

    >>> with speaking("de"):
    ...     numeral("12,345.6")
    '12.345,6'
    """
    if language is None:
        yield
        return
    token = _CURRENT.set(read_language(language))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def spoken(method: Callable[P, R]) -> Callable[P, R]:
    """Give a method that returns texts an argument `language`: that of these texts, by default the current one."""

    @wraps(method)
    def in_language(*args: P.args, **values: P.kwargs) -> R:
        language: Any = values.pop("language", None)
        with speaking(language):
            return method(*args, **values)

    return in_language


def current() -> str:
    """The name of the current language."""
    language = _CURRENT.get()
    return ENGLISH if language is None else language.name


def preferred(header: str | None) -> str:
    """The first choice of an Accept-Language header among the languages that dwac has; English if it has none of them.

    >>> preferred("fr-CH, de;q=0.8, en;q=0.5"), preferred("fr"), preferred(None)
    ('de', 'en', 'en')
    """
    ranges = [
        (float(found[2] or 1), found[1].lower()) for part in (header or "").split(",") if (found := _RANGE.match(part))
    ]
    known = [(q, name) for q, name in ranges if name in languages() and q > 0]
    return max(known, key=lambda each: each[0], default=(1.0, ENGLISH))[1]


# Messages


def message(text: str) -> str:
    """The same text: marks a message for the catalogue that `say` translates elsewhere."""
    return text


def say(text: str, /, **values: Any) -> str:
    """A message in the current language, with these values in place of its placeholders.

    >>> say("Predicted {label}.", label="good")
    'Predicted good.'
    """
    language = _CURRENT.get()
    text = text if language is None else language.messages.gettext(text)
    return text.format_map(values) if values else text


def say_of(context: str, text: str, /, **values: Any) -> str:
    """The same for a message that has several meanings; context: which it has here."""
    language = _CURRENT.get()
    text = text if language is None else language.messages.pgettext(context, text)
    return text.format_map(values) if values else text


def count(one: str, many: str, n: int, /, **values: Any) -> str:
    """A message about n things: `one` if n is 1, else `many`; the placeholder {n} is the number.

    >>> count("{n} example", "{n} examples", 1_200)
    '1,200 examples'
    """
    language = _CURRENT.get()
    text = (one if n == 1 else many) if language is None else language.messages.ngettext(one, many, n)
    return text.format_map({"n": numeral(f"{n:,}"), **values})


def numeral(text: str) -> str:
    """A number written in the English way, with the marks of the current language."""
    language = _CURRENT.get()
    return text if language is None else text.translate(language.marks)


# Labels


class YesNo(str):
    """The name of a class of examples that have a label, or do not: "sad", "not sad"."""

    text: str
    value: Any

    def __new__(cls, text: str, value: Any) -> YesNo:
        """text: the message that names the class; value: the label."""
        name = super().__new__(cls, text.format(label=value))
        name.text, name.value = text, value
        return name

    def __reduce__(self) -> tuple[type[YesNo], tuple[str, Any]]:
        return YesNo, (self.text, self.value)


def label_name(label: Any) -> str:
    """A label in a sentence."""
    return say(label.text, label=label.value) if isinstance(label, YesNo) else str(label)
