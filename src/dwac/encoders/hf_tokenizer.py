"""A Hugging Face tokeniser of unknown origin: its JSON is checked before it is built, and it is tried before use.

The library behind it is not written in Python: it may panic, which is not an Exception, or end the process. So
everything that a few characters of JSON could make huge is compared with what the model needs.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from dwac.errors import DwacError, InputError

MOST_TOKENS = 8192  # per text; no supported encoder was made for more
_DEEPEST = 100  # most levels of JSON
_LONGEST_STRING = 4096  # most characters of a string other than words and tables
_MOST_STEPS = 64  # steps of normalising and splitting
_MOST_GROWTH = 64  # the factor by which these steps may lengthen a text
_LONGEST_WORD = 1000  # most characters looked up as one word
_PROBES = ("a", "The quick brown fox, aged 42, jumps: naïve café 日本語 🦊!", "a" * 200 + "!")


def import_optional(package: str) -> Any:
    """Import an optional package; if it is missing, an error explains how to install it."""
    try:
        return import_module(package)
    except ImportError:
        raise DwacError(f"a Hugging Face encoder needs {package}: pip install 'dwac[text]'") from None


def restore_tokenizer(text: Any, n_words: int) -> Any:
    """The tokeniser described by JSON, tried on a few texts; its ids must be below `n_words`."""
    content = _read_json(text)
    length = _length_of(content)
    _check_steps(content)
    try:
        tokenizer = _guard(lambda: build_tokenizer(json.dumps(content)))
        if _guard(lambda: tokenizer.num_special_tokens_to_add(False)) > length:
            raise InputError(f"it must add at most {length} special tokens, the length of a text; it adds more")
        tokenise_texts(tokenizer, list(_PROBES), n_words)
    except InputError as error:
        raise InputError(f"the tokeniser cannot be used: {error}") from None
    return tokenizer


def tokenise_texts(tokenizer: Any, texts: list[str], n_words: int, source: str = "") -> tuple[Tensor, Tensor]:
    """ids and attention mask, (n, length) int64 each; an error names the rows that cannot be read.

    source: the tokeniser as JSON, from which it is rebuilt after a panic.
    """
    length, encodings = tokenizer.padding["length"], encode_texts(tokenizer, texts, source)
    for row, encoding in enumerate(encodings):
        if len(encoding.ids) != length or len(encoding.attention_mask) != length or max(encoding.ids) >= n_words:
            raise InputError(
                f"row {row}: the tokeniser must give {length} tokens below {n_words}; got {len(encoding.ids)} tokens "
                f"up to {max(encoding.ids, default=0)}; restore the model from a copy"
            )
    masks = [encoding.attention_mask for encoding in encodings]
    return (
        torch.tensor([encoding.ids for encoding in encodings], dtype=torch.int64).view(-1, length),
        torch.tensor(masks, dtype=torch.int64).view(-1, length),
    )


def encode_texts(tokenizer: Any, texts: list[str], source: str = "") -> list[Any]:
    """The library's encoding of each text; an error carries all rows for which it fails or returns no tokens."""
    try:
        encodings = list(_guard(lambda: tokenizer.encode_batch(texts)))
    except InputError:
        encodings = [_encode_alone(tokenizer if not source else build_tokenizer(source), text) for text in texts]
    faults = {row: fault for row, encoding in enumerate(encodings) if (fault := _fault(encoding))}
    if faults:
        row = min(faults)
        raise InputError(f"row {row}: {faults[row]}", rows=faults)
    return encodings


def build_tokenizer(source: str) -> Any:
    """A new tokeniser from JSON; after a panic, an existing one may be broken."""
    return import_optional("tokenizers").Tokenizer.from_str(source)


def _encode_alone(tokenizer: Any, text: str) -> Any:
    """The encoding of one text, or the error that was raised."""
    try:
        return _guard(lambda: tokenizer.encode_batch([text]))[0]
    except InputError as error:
        return error


def _fault(encoding: Any) -> str:
    """What is wrong with an encoding (or the error in its place); "" if nothing is."""
    if isinstance(encoding, InputError):
        return f"the tokeniser cannot read this text ({encoding}); drop or shorten it"
    return "" if any(encoding.attention_mask) else "the tokeniser finds nothing in this text"


def _guard(work: Callable[[], Any]) -> Any:
    """The result of a library call; everything it raises, even a panic, becomes an InputError."""
    try:
        return work()
    except (KeyboardInterrupt, SystemExit, MemoryError, DwacError):
        raise
    except BaseException as error:  # a panic extends BaseException
        raise InputError(f"{type(error).__name__}: {error!s:.200}") from None


# Checks of the JSON


def _read_json(text: Any) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the tokeniser must be JSON; got {error!s:.100}") from None
    if not isinstance(content, dict):
        raise InputError(f"the tokeniser must be a JSON object; got {content!r:.40}")
    content["decoder"] = None  # ids are never decoded to text
    for depth, _, _ in _nodes(content):
        if depth > _DEEPEST:
            raise InputError(f"the tokeniser must be nested at most {_DEEPEST} levels deep; it is nested deeper")
    return content


def numbers_of(content: Any) -> Iterator[tuple[str, float]]:
    """(key, number) of all numbers within a JSON value."""
    for _, key, value in _nodes(content):
        if isinstance(value, int | float):
            yield key, value


def _nodes(value: Any) -> Iterator[tuple[int, str, Any]]:
    """(depth, key, value) of all values within a JSON value, without recursion."""
    left: list[tuple[int, str, Any]] = [(0, "", value)]
    while left:
        depth, key, value = left.pop()
        yield depth, key, value
        if isinstance(value, dict):
            left.extend((depth + 1, name, part) for name, part in value.items())
        elif isinstance(value, list):
            left.extend((depth + 1, key, part) for part in value)


def _length_of(content: dict[str, Any]) -> int:
    """The number of tokens to which every text is cut or padded, as set by `fit`."""
    cut, padding = content.get("truncation"), content.get("padding")
    try:
        length = padding["strategy"]["Fixed"]  # type: ignore[index]
        same = cut["max_length"] == length and not cut["stride"] and not padding["pad_to_multiple_of"]  # type: ignore[index]
    except (TypeError, KeyError):
        length, same = None, False
    if not same or type(length) is not int or not 1 <= length <= MOST_TOKENS:
        raise InputError(
            f"the tokeniser must cut and pad to one length, 1 … {MOST_TOKENS}; "
            f"got truncation {cut!r:.100} and padding {padding!r:.100}"
        )
    return length


def _check_steps(content: dict[str, Any]) -> None:
    """Raise an error for steps that make texts far longer, or that need much more memory than the JSON."""
    steps, growth = 0, 1.0
    for part in ("normalizer", "pre_tokenizer"):
        for _, key, value in _nodes(content.get(part)):
            if key == "precompiled_charsmap":
                _check_table(value)
            elif isinstance(value, str) and len(value) > _LONGEST_STRING:
                raise InputError(f"the tokeniser's {part} has a string of {len(value):,} characters; it is too long")
            if isinstance(value, dict) and "type" in value:
                steps, growth = steps + 1, growth * _growth_of(value)
    if steps > _MOST_STEPS or growth > _MOST_GROWTH:
        raise InputError(
            f"the tokeniser must take at most {_MOST_STEPS} steps and make texts at most {_MOST_GROWTH} times as long; "
            f"got {steps} steps and {growth:g} times"
        )
    model = content.get("model")
    for key, value in model.items() if isinstance(model, dict) else ():
        if isinstance(value, str) and len(value) > _LONGEST_STRING:
            raise InputError(
                f"the tokeniser's {key} must have at most {_LONGEST_STRING:,} characters; got {len(value):,}"
            )
        if key == "max_input_chars_per_word" and (type(value) is not int or not 0 < value <= _LONGEST_WORD):
            raise InputError(f"the tokeniser's {key} must be 1 … {_LONGEST_WORD}; got {value!r:.40}")


def _growth_of(step: dict[str, Any]) -> float:
    """The factor by which a step may lengthen a text."""
    kind, content, pattern = step["type"], step.get("content", step.get("prepend")), step.get("pattern")
    if kind == "Precompiled":
        return 8.0  # its table may hold anything; SentencePiece's rarely maps one character to up to 18
    if not isinstance(content, str):
        return 2.0 if kind == "ByteLevel" else 1.0
    replaced = pattern.get("String") if isinstance(pattern, dict) else None
    return max(len(content) / len(replaced), 1.0) if isinstance(replaced, str) and replaced else len(content) + 1.0


def _check_table(table: Any) -> None:
    """Check that a compiled table states a valid size: that much memory is reserved before reading."""
    try:
        data = base64.b64decode(table, validate=True)
    except (TypeError, ValueError, binascii.Error):
        data = b""
    if len(data) < 4 or int.from_bytes(data[:4], "little") > len(data) - 4:
        raise InputError("the tokeniser's precompiled_charsmap must be a valid table; it is not")
