"""What a message names. Tests hold these facts still; the sentence around them is free to become better English."""

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

posix = pytest.mark.skipif(os.name == "nt", reason="needs signals or links as POSIX systems have them")


def named(message: object, *facts: object) -> bool:
    """Whether a message names every fact as a word of its own: a value, a column, a row, an option that helps.

    >>> named("row 12: 'age' must be a number; got 'old'; drop it, or use --kind age=text", "age", "old", 12, "--kind")
    True
    >>> named("row 12: 'age' must be a number", 1)
    False
    """
    return not missing(message, *facts)


def missing(message: object, *facts: object) -> list[str]:
    """The facts that a message does not name."""
    text = " ".join(str(message).split())
    return [fact for fact in map(str, facts) if not re.search(rf"(?<!\w){re.escape(fact)}(?!\w)", text)]


@contextmanager
def refuses(
    error: type[BaseException] | tuple[type[BaseException], ...], *facts: object
) -> Iterator[pytest.ExceptionInfo[Any]]:
    """The block raises this error, and its message names the facts."""
    with pytest.raises(error) as caught:
        yield caught
    assert not missing(caught.value, *facts), f"{missing(caught.value, *facts)} not named in: {caught.value}"


@contextmanager
def warns(
    category: type[Warning] | tuple[type[Warning], ...], *facts: object
) -> Iterator[list[warnings.WarningMessage]]:
    """The block gives a warning of this category that names the facts."""
    with pytest.warns(category) as caught:
        yield caught.list
    texts = [str(one.message) for one in caught.list if issubclass(one.category, category)]
    assert any(named(text, *facts) for text in texts), f"no warning names {facts}: {texts}"
