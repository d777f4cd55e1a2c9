"""Stack Overflow titles, sentences about films (Subjectivity) and film reviews (IMDB), as lists of strings."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from reproduction.datasets.dataset import Dataset, Labels, labels
from reproduction.datasets.files import Contents, DatasetError, File, find, read, read_members

_TITLES = "https://raw.githubusercontent.com/jacoxu/StackOverflow/7c207f51e649fff9e4736610b9d44431bb7ccf00/rawText/"
STACKOVERFLOW_FILES = (
    File(
        "stackoverflow",
        "title_StackOverflow.txt",
        (_TITLES + "title_StackOverflow.txt",),
        contents=Contents(1_030_059, "56fdb3932c6a2e35c1943b8a3d3c1cf51901fc1139e51b1587091898ffb22e86"),
    ),
    File(
        "stackoverflow",
        "label_StackOverflow.txt",
        (_TITLES + "label_StackOverflow.txt",),
        contents=Contents(51_000, "ac6b52afbf696611680f8ea944be682bcdf1979b62fde2b5fa2a9dcc6ab8d7d3"),
    ),
)
SUBJECTIVITY_FILES = (
    File(
        "subjectivity",
        "rotten_imdb.tar.gz",
        ("https://www.cs.cornell.edu/people/pabo/movie-review-data/rotten_imdb.tar.gz",),
        members={
            "plot.tok.gt9.5000": Contents(669_456, "5ddc9b44dc60d64d651347fcd7bdd489b0c70661e3f768215c16eea36f51204a"),
            "quote.tok.gt9.5000": Contents(630_790, "73a2dcf8dc3cbcc7f068a70ef9f021c86b2a8e4dac81566b7fd015b3e938f2c5"),
        },
    ),
)
IMDB_FILES = (
    File(
        "imdb",
        "aclImdb_v1.tar.gz",
        ("https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",),
        digest="md5:7c2ac02c03563afcf9b574c7e56c153a",
        opens=lambda path: _read_imdb(path),
    ),
)
TAGS = np.array([
    "wordpress", "oracle", "svn", "apache", "excel", "matlab", "visual-studio", "cocoa", "osx", "bash", "spring",
    "hibernate", "scala", "sharepoint", "ajax", "qt", "drupal", "linq", "haskell", "magento",
])  # fmt: skip
_REVIEW = re.compile(r"aclImdb/(train|test)/(neg|pos)/(\d+)_(\d+)\.txt")
_REVIEWS = 12_500  # per part and class


def load_stackoverflow() -> Dataset:
    """20,000 titles of questions, 1,000 per tag; no official split."""
    titles, y = (read(file) for file in STACKOVERFLOW_FILES)
    X, tags = parse_stackoverflow(titles, y)
    return Dataset(
        "stackoverflow",
        X,
        tags,
        None,
        None,
        TAGS,
        "Titles of Stack Overflow questions; which of 20 tags does the question have? No official split. "
        "Xu et al., Short Text Clustering via Convolutional Neural Networks, 2015.",
        "https://github.com/jacoxu/StackOverflow",
    )


def parse_stackoverflow(titles: bytes, tags: bytes) -> tuple[list[str], Labels]:
    """One title and one label, 1 … 20, per line."""
    X, lines = titles.decode("utf-8").removesuffix("\n").split("\n"), tags.split()
    if len(X) != len(lines):
        raise DatasetError(f"one label per title is required; found {len(X):,} titles and {len(lines):,} labels")
    return X, labels(np.array(lines, dtype=np.int64) - 1, len(TAGS), STACKOVERFLOW_FILES[1].name)


def load_subjectivity() -> Dataset:
    """5,000 objective and 5,000 subjective sentences; no official split."""
    members = read_members(SUBJECTIVITY_FILES[0])
    X, y = parse_subjectivity(members["plot.tok.gt9.5000"], members["quote.tok.gt9.5000"])
    return Dataset(
        "subjectivity",
        X,
        y,
        None,
        None,
        np.array(["objective", "subjective"]),
        "Sentences about films, in lower case with spaces between tokens: from plot summaries (objective) or from "
        "reviews (subjective)? All objective ones come first; no official split. Pang and Lee, 2004.",
        "https://www.cs.cornell.edu/people/pabo/movie-review-data/",
    )


def parse_subjectivity(objective: bytes, subjective: bytes) -> tuple[list[str], Labels]:
    """One sentence per line. Only a line feed ends a line: the files are Windows-1252, where 0x85 is an ellipsis."""
    parts = [data.decode("cp1252", "replace").removesuffix("\n").split("\n") for data in (objective, subjective)]
    return parts[0] + parts[1], np.repeat(np.arange(2), [len(part) for part in parts])


def load_imdb() -> Dataset:
    """25,000 + 25,000 film reviews, the negative ones first in each part."""
    parts = _read_imdb(find(IMDB_FILES[0]))
    return Dataset(
        "imdb",
        *parts["train"],
        *parts["test"],
        np.array(["negative", "positive"]),
        "Film reviews with at most 4 (negative) or at least 7 (positive) points of 10, with their <br /> tags; "
        "negative ones come first. Maas et al., 2011.",
        "https://ai.stanford.edu/~amaas/data/sentiment/",
    )


def _read_imdb(path: Path) -> dict[str, tuple[list[str], Labels]]:
    file = IMDB_FILES[0]
    try:
        parts = parse_imdb(read_members(file, lambda name: _REVIEW.fullmatch(name) is not None, path))
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is altered: reviews in UTF-8 required ({error.reason}); {file.remedy}") from None
    for part, (_, y) in parts.items():
        if (found := np.bincount(y, minlength=2).tolist()) != [_REVIEWS, _REVIEWS]:
            raise DatasetError(
                f"{path} must hold {_REVIEWS:,} negative and {_REVIEWS:,} positive reviews in {part}; "
                f"found {found[0]:,} and {found[1]:,}; {file.remedy}"
            )
    return parts


def parse_imdb(members: dict[str, bytes]) -> dict[str, tuple[list[str], Labels]]:
    """Texts and labels of "train" and "test", by class and number, from files PART/CLASS/NUMBER_POINTS.txt."""
    rows: dict[str, list[tuple[int, int, str]]] = {"train": [], "test": []}
    for name, data in members.items():
        if review := _REVIEW.fullmatch(name):
            part, kind, number, _ = review.groups()
            rows[part].append((int(kind == "pos"), int(number), data.decode("utf-8")))
    return {
        part: ([text for _, _, text in sorted(found)], np.array(sorted(y for y, _, _ in found), dtype=np.int64))
        for part, found in rows.items()
    }
