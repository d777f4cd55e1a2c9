"""The form of every dataset after reading."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reproduction.datasets.files import DatasetError

Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Examples and labels, in the official training and test parts if they exist.

    `X` is a DataFrame, an array of images (n, height, width) or (n, height, width, 3), or a list of texts. Labels are
    whole numbers 0 … K-1; `classes[y]` are their names. Without an official split, all rows are in `X_train`, and
    `split` makes a test part. A dataset used only for testing has an empty training part.
    """

    name: str
    X_train: Any
    y_train: Labels
    X_test: Any | None
    y_test: Labels | None
    classes: NDArray[np.str_]
    description: str
    homepage: str

    @property
    def X(self) -> Any:  # noqa: N802 - as scikit-learn calls examples
        """All examples: training, then test."""
        return self.X_train if self.X_test is None else _joined([self.X_train, self.X_test])

    @property
    def y(self) -> Labels:
        """The labels of `X`."""
        return self.y_train if self.y_test is None else np.concatenate([self.y_train, self.y_test])

    def split(self, test_size: float = 0.1, seed: int = 0) -> Dataset:
        """The same with a random share of the rows as its test part, reproducible by seed; not stratified."""
        if self.X_test is not None:
            raise DatasetError(
                f"{self.name} has an official test part; use X_test and y_test, or split X and y yourself"
            )
        if not 0 < test_size < 1:
            raise DatasetError(f"test_size must be a share strictly between 0 and 1; got {test_size!r}")
        order = np.random.default_rng(seed).permutation(len(self.y_train))
        n_test = round(test_size * len(order))
        # Each part keeps the rows in their order.
        test, train = np.sort(order[:n_test]), np.sort(order[n_test:])
        X = self.X_train
        return replace(
            self,
            X_train=_rows(X, train),
            y_train=self.y_train[train],
            X_test=_rows(X, test),
            y_test=self.y_train[test],
        )

    def without(self, label: str | int) -> tuple[Dataset, Any]:
        """The same without one class, given by name or number; and the examples of that class (training, then test).

        A classifier of the other classes, now numbered 0 … K-2, should find these examples unfamiliar.

        >>> data, outside = load("covertype").without("Krummholz")  # doctest: +SKIP
        """
        removed = self._number(label)
        parts: list[tuple[Any, Labels]] = [(self.X_train, self.y_train)]
        if self.y_test is not None:
            parts.append((self.X_test, self.y_test))
        inside, outside = [], []
        for X, y in parts:
            kept = np.flatnonzero(y != removed)
            inside.append((_rows(X, kept), y[kept] - (y[kept] > removed)))
            outside.append(_rows(X, np.flatnonzero(y == removed)))
        X_train, y_train = inside[0]
        X_test, y_test = inside[1] if len(inside) > 1 else (None, None)
        rest = replace(
            self,
            X_train=X_train,
            y_train=y_train,
            X_test=X_test,
            y_test=y_test,
            classes=np.delete(self.classes, removed),
            description=f"{self.description} Without the class {self.classes[removed]}.",
        )
        return rest, _joined(outside)

    def _number(self, label: str | int) -> int:
        """The number of a class; an error if it does not exist or is the only one."""
        names: list[str] = self.classes.tolist()
        if len(names) < 2:
            raise DatasetError(f"{self.name} must have at least 2 classes for one to be held out; got {len(names)}")
        if isinstance(label, str) and label in names:
            return names.index(label)
        if isinstance(label, int | np.integer) and not isinstance(label, bool) and 0 <= label < len(names):
            return int(label)
        raise DatasetError(
            f"{self.name} has no class {label!r}; choose a number 0 … {len(names) - 1}, or {', '.join(names)}"
        )

    def __repr__(self) -> str:
        parts = (
            f"{len(self.y_train):,} examples"
            if self.y_test is None
            else (f"{len(self.y_train):,} training and {len(self.y_test):,} test examples")
        )
        return f"<{self.name}: {parts}, {len(self.classes)} classes>"


def _rows(X: Any, rows: NDArray[np.int64]) -> Any:
    if isinstance(X, pd.DataFrame):
        return X.iloc[rows].reset_index(drop=True)
    return X[rows] if isinstance(X, np.ndarray) else [X[i] for i in rows]


def _joined(parts: list[Any]) -> Any:
    """The rows of all parts, concatenated; a single part is returned as it is."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], pd.DataFrame):
        return pd.concat(parts, ignore_index=True)
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else [x for part in parts for x in part]


def labels(y: Any, n_classes: int, file: str) -> Labels:
    """Labels as whole numbers 0 … n_classes-1; an error names their file."""
    array = np.asarray(y).astype(np.int64)
    if len(array) and not (array.min() >= 0 and array.max() < n_classes):
        raise DatasetError(
            f"{file} must hold labels 0 … {n_classes - 1}, counted from 0; got {array.min()} … {array.max()}"
        )
    return array
