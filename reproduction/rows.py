"""The rows of a trial: every setting and head of a trial is trained and tested on the same rows."""

from __future__ import annotations

import re
import shutil
import weakref
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac.estimator.preparation import take
from reproduction import datasets, settings
from reproduction.cases import Case, PaperError
from reproduction.variants import TRIED

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Trial:
    """The training rows of a case (including its validation and calibration rows) and its test rows.

    `left_out`: the rows of the class that was left out of training, if any.
    """

    X: Any
    y: Ints
    X_test: Any
    y_test: Ints
    classes: list[str]
    seed: int
    left_out: Any = None

    @cached_property
    def random_words(self) -> list[str]:
        """Sentences of random words, one per test text, drawn once for all models."""
        return datasets.random_sentences(self.X, len(self.y_test), seed=self.seed)


class Library:
    """The datasets of a run, each read once; only one is kept in memory, with its companions."""

    def __init__(self, *, quick: bool = False) -> None:
        self.quick = quick
        self._data: dict[str, datasets.Dataset] = {}
        self._trials: dict[tuple[Any, ...], Trial] = {}
        self._cut: dict[str, Path] = {}

    def load(self, name: str) -> datasets.Dataset:
        """A dataset; a `DatasetError` says what is missing and the command that gets it."""
        if name not in self._data:
            if name in settings.SOURCES:  # done with the one before
                self._data, self._trials = {}, {}
            source = settings.SOURCES.get(name)
            file, options = (name, {}) if source is None or source.options is None else source.options
            self._data[name] = datasets.load(file, **options)
        return self._data[name]

    def vectors(self, name: str) -> Path:
        """The file of "glove 100d", or of "glove 100d, 50 kept": the first 50 dimensions of each vector.

        In a quick run it holds only the most frequent words.
        """
        found = re.fullmatch(r"glove (\d+)d(?:, (\d+) kept)?", name)
        if found is None:
            raise PaperError(f"vectors must be like 'glove 100d' or 'glove 100d, 50 kept'; got {name!r}")
        path, kept = datasets.glove(int(found[1])), found[2] and int(found[2])
        if (self.quick or kept) and name not in self._cut:
            folder = Path(mkdtemp(prefix="dwac-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            self._cut[name] = folder / path.name
            with path.open("rb") as file, self._cut[name].open("wb") as cut:
                for line in islice(file, settings.QUICK_WORDS if self.quick else None):
                    cut.write(b" ".join(line.split(b" ")[: kept + 1]).rstrip() + b"\n" if kept else line)
        return self._cut.get(name, path)

    def trial(self, case: Case) -> Trial:
        """The rows of a case."""
        source = settings.SOURCES[case.dataset]
        variant = TRIED.get(case.variant or "")
        mixed, every_tenth = (variant.mixed, variant.every_tenth) if variant else (False, False)
        official = source.official and not mixed
        seed = 0 if official or every_tenth else case.trial  # these splits are always the same
        key = (case.dataset, seed, case.without, mixed, every_tenth)
        if key not in self._trials:
            self._trials = {known: kept for known, kept in self._trials.items() if known[:2] == key[:2]}
            data = self.load(case.dataset)
            if not official:
                data = _every_tenth(data) if every_tenth else _drawn(data, seed)
            data = _few(data, source.kind, seed) if self.quick else data
            data, left_out = (data, None) if case.without is None else data.without(case.without)
            assert data.y_test is not None
            parts = (data.X_train, data.y_train, data.X_test, data.y_test)
            self._trials[key] = Trial(*parts, data.classes.tolist(), seed, left_out)
        return self._trials[key]

    def sample(self, X: Any, most: int, seed: int) -> Any:
        """At most `most` rows of X, drawn at random; fewer in a quick run."""
        n, most = len(X), min(most, settings.QUICK_SAMPLE) if self.quick else most
        return X if n <= most else rows(X, np.sort(np.random.default_rng(seed).permutation(n)[:most]))


def _drawn(data: datasets.Dataset, seed: int) -> datasets.Dataset:
    """A dataset with a test set drawn from all its rows: as large as the official one, or a tenth."""
    share = settings.TEST_SIZE if data.y_test is None else len(data.y_test) / len(data.y)
    return replace(data, X_train=data.X, y_train=data.y, X_test=None, y_test=None).split(share, seed=seed)


def _every_tenth(data: datasets.Dataset) -> datasets.Dataset:
    """A dataset whose test set is every tenth of its rows, from the first on."""
    test, every = np.arange(0, len(data.y), 10), np.arange(len(data.y))
    train = np.setdiff1d(every, test)
    X, y = data.X, data.y
    return replace(data, X_train=rows(X, train), y_train=y[train], X_test=rows(X, test), y_test=y[test])


def _few(data: datasets.Dataset, kind: str, seed: int) -> datasets.Dataset:
    """A dataset with few rows in each part, about the same number per class."""
    assert data.y_test is not None
    train, test = (
        _some(*part, seed) for part in zip((data.y_train, data.y_test), settings.QUICK_ROWS[kind], strict=True)
    )
    return replace(
        data,
        X_train=rows(data.X_train, train),
        y_train=data.y_train[train],
        X_test=rows(data.X_test, test),
        y_test=data.y_test[test],
    )


def _some(y: Ints, most: int, seed: int) -> Ints:
    order = np.random.default_rng(seed).permutation(len(y))
    share = -(-most // len(np.unique(y)))
    return np.sort(np.concatenate([order[y[order] == label][:share] for label in np.unique(y)]))


def rows(X: Any, chosen: Ints) -> Any:
    """Some rows of X, renumbered from 0."""
    found = take(X, chosen)
    return found.reset_index(drop=True) if isinstance(found, pd.DataFrame) else found
