"""Amazon Beauty: how many stars did a buyer give, from what the buyer wrote?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.datasets.dataset import Dataset, Labels
from reproduction.datasets.files import DatasetError, File, find, read

FILES = (
    File(
        "amazon_beauty",
        "reviews_Beauty_5.json.gz",
        ("http://snap.stanford.edu/data/amazon/productGraph/categoryFiles/reviews_Beauty_5.json.gz",),
        opens=lambda path: _read(path),
        about="198,502 reviews, one JSON object per line",
    ),
)
N_REVIEWS = 198_502
CLASSES = np.array(["1", "2", "3", "4", "5"])


def load() -> Dataset:
    """The 198,502 reviews of the 5-core (every buyer and product has 5 or more); no official split.

    A text is the review's summary, then the review, as in the paper's research code (which puts a mark between them,
    left out here); that code uses every tenth review, starting with the first, as its test part. Reviews without words
    are left out. No checksum of the official file is known: its number of reviews is checked instead.
    """
    X, y, n_empty = _read(find(FILES[0]))
    return Dataset(
        "amazon_beauty",
        X,
        y,
        None,
        None,
        CLASSES,
        "Reviews of beauty products on Amazon, 1996 to 2014, the summary first; how many stars, of 5? "
        f"{n_empty:,} of {len(X) + n_empty:,} reviews have no text and are left out. No official split. "
        "McAuley et al., 2015.",
        "https://jmcauley.ucsd.edu/data/amazon/",
    )


def _read(path: Path) -> tuple[list[str], Labels, int]:
    """X, y and the number of reviews left out."""
    file = FILES[0]
    try:
        reviews = list(parse(read(file, path), str(path)))
    except DatasetError as error:
        message = str(error).removesuffix(f"; {file.remedy}")
        raise DatasetError(f"{message}; {file.remedy}") from None
    if len(reviews) != N_REVIEWS:
        raise DatasetError(
            f"{path} is truncated or altered: {N_REVIEWS:,} reviews required, {len(reviews):,} found; {file.remedy}"
        )
    kept = [(text, stars) for text, stars in reviews if text]
    y = np.array([stars - 1 for _, stars in kept], dtype=np.int64)
    return [text for text, _ in kept], y, len(reviews) - len(kept)


def parse(data: bytes, name: str) -> Iterator[tuple[str, int]]:
    """The text and the stars, 1 to 5, of each line: an object with reviewText, overall and perhaps a summary."""
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n") if data else [], start=1):
        try:
            review: Any = json.loads(line)
            summary, text, stars = review.get("summary", ""), review["reviewText"], review["overall"]
            if not (isinstance(summary, str) and isinstance(text, str) and stars in (1, 2, 3, 4, 5)):
                raise TypeError
        except (ValueError, AttributeError, KeyError, TypeError):
            found = line[:40].decode("utf-8", "replace") + ("…" if len(line) > 40 else "")
            raise DatasetError(
                f"{name}, line {number:,}, must be a JSON object with reviewText, a text, and overall, 1 to 5; "
                f"found {found!r}"
            ) from None
        yield "\n\n".join(part for part in (summary.strip(), text.strip()) if part), int(stars)
