"""The rows of a trial: every setting and head of a trial learns from the same rows and is tested on the same."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac import datasets
from dwac.paper import settings
from dwac.paper.cases import Case
from dwac.preparation import take

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Trial:
    """What a case learns from (its validation and calibration rows included) and is tested on.

    `strangers`: the rows of the class that was left out of training, if one was.
    """

    X: Any
    y: Ints
    X_test: Any
    y_test: Ints
    classes: list[str]
    seed: int
    strangers: Any = None

    @cached_property
    def random_words(self) -> list[str]:
        """As many sentences of random words as there are test texts, drawn once for all models."""
        return datasets.random_sentences(self.X, len(self.y_test), seed=self.seed)


class Library:
    """The datasets of a run, each read once; one at a time is kept in memory, with its companions."""

    def __init__(self, *, quick: bool = False) -> None:
        self.quick = quick
        self._data: dict[str, datasets.Dataset] = {}
        self._trials: dict[tuple[Any, ...], Trial] = {}

    def load(self, name: str) -> datasets.Dataset:
        """A dataset; a `DatasetError` says what is missing and the command that gets it."""
        if name not in self._data:
            if name in settings.DATASETS:  # done with the one before
                self._data, self._trials = {}, {}
            self._data[name] = datasets.load(name)
        return self._data[name]

    def trial(self, case: Case) -> Trial:
        """The rows of a case."""
        source = settings.DATASETS[case.dataset]
        seed = 0 if source.official and not self.quick else case.trial  # an official division is always the same
        key = (case.dataset, seed, case.without)
        if key not in self._trials:
            self._trials = {known: kept for known, kept in self._trials.items() if known[:2] == key[:2]}
            data = self.load(case.dataset)
            data = data if source.official else data.split(settings.TEST_SIZE, seed=seed)
            self._trials[key] = self._divided(data, seed, case.without)
        return self._trials[key]

    def _divided(self, data: datasets.Dataset, seed: int, without: int | None) -> Trial:
        assert data.y_test is not None
        X, y, X_test, y_test = data.X_train, data.y_train, data.X_test, data.y_test
        classes, strangers = data.classes.tolist(), None
        if self.quick:
            few, few_test = (some(*part, seed) for part in zip((y, y_test), _few(data.name), strict=True))
            X, y, X_test, y_test = rows(X, few), y[few], rows(X_test, few_test), y_test[few_test]
        if without is not None:
            strangers = joined(rows(X, np.flatnonzero(y == without)), rows(X_test, np.flatnonzero(y_test == without)))
            (X, y), (X_test, y_test) = (_left(*part, without) for part in ((X, y), (X_test, y_test)))
            del classes[without]
        return Trial(X, y, X_test, y_test, classes, seed, strangers)

    def sample(self, X: Any, most: int, seed: int) -> Any:
        """At most so many rows of X, drawn at random; in a quick run fewer."""
        n, most = len(X), min(most, 60) if self.quick else most
        return X if n <= most else rows(X, np.sort(np.random.default_rng(seed).permutation(n)[:most]))


def _few(dataset: str) -> tuple[int, int]:
    return settings.QUICK_ROWS[settings.DATASETS[dataset].kind]


def some(y: Ints, most: int, seed: int) -> Ints:
    """At most about so many rows, as many of each class as there are, up to an equal share."""
    order = np.random.default_rng(seed).permutation(len(y))
    share = -(-most // len(np.unique(y)))
    return np.sort(np.concatenate([order[y[order] == label][:share] for label in np.unique(y)]))


def rows(X: Any, chosen: Ints) -> Any:
    """Some rows of X, numbered anew."""
    found = take(X, chosen)
    return found.reset_index(drop=True) if isinstance(found, pd.DataFrame) else found


def joined(a: Any, b: Any) -> Any:
    """The rows of both."""
    if isinstance(a, pd.DataFrame):
        return pd.concat([a, b], ignore_index=True)
    return np.concatenate([a, b]) if isinstance(a, np.ndarray) else [*a, *b]


def _left(X: Any, y: Ints, without: int) -> tuple[Any, Ints]:
    """The rows of other classes, which are numbered anew."""
    kept = np.flatnonzero(y != without)
    return rows(X, kept), y[kept] - (y[kept] > without)
