"""Sentences of random words: known words without meaning."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dwac import _checks as checks
from dwac.encoders.text import tokenise
from reproduction.datasets.files import DatasetError


def random_sentences(texts: Iterable[str], n: int, seed: int = 0) -> list[str]:
    """n sentences of words drawn uniformly from the vocabulary of `texts`, with lengths drawn from those of `texts`.

    Every distinct word has the same chance, however often it occurs, so frequent words are rare here. The paper has no
    such out-of-distribution texts; we added them. Words are those of `dwac.encoders.text.tokenise`.

    >>> random_sentences(["sort a list", "parse json"], 2)
    ['list json', 'json a']
    """
    checks.positive_int(n, "n")
    if isinstance(texts, str):
        raise DatasetError("texts must be a list of texts; got a single str; put it in a list")
    words = [tokenise(text) for text in texts]
    lengths = [len(found) for found in words if found]
    if not lengths:
        raise DatasetError(f"texts must contain at least one word; got {len(words):,} texts without any")
    vocabulary = sorted({word for found in words for word in found})
    rng = np.random.default_rng(seed)
    drawn = rng.choice(lengths, size=n)
    return [" ".join(vocabulary[i] for i in rng.integers(len(vocabulary), size=length)) for length in drawn]
