"""The words of a text, for comparing and describing texts: plain, quick, and the same for every encoder."""

from __future__ import annotations

import re

# An ideograph or kana is a word of its own; vowel signs and accents belong to their word, though \w excludes many.
_SINGLE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_MARKS = "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0e31-\u0e4e"
_ASCII = re.compile(r"\w+(?:'\w+)?[+#]*")  # don't, c++, c#
_ANY = re.compile(rf"[{_SINGLE}]|[^\W{_SINGLE}](?:[^\W{_SINGLE}]|[{_MARKS}])*(?:'\w+)?[+#]*")


def words(text: str) -> set[str]:
    """The distinct words of a text, in lower case; punctuation is left out.

    >>> sorted(words("Don't sort C++, sort C#!"))
    ['c#', 'c++', "don't", 'sort']
    """
    text = text.lower()
    return set(_ASCII.findall(text) if text.isascii() else _ANY.findall(text.replace("’", "'")))
