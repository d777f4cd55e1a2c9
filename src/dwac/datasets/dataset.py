"""What every dataset is once read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac.datasets.files import DatasetError

Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Examples and labels, in the official training and test parts where there are such.

    `X` is what suits the data: a DataFrame, an array of images (n, height, width) or (n, height, width, 3), a list of
    texts. Labels are whole numbers 0 … K-1; `classes[y]` are their names. Without an official split all rows are in
    `X_train`, and `split` sets a test part aside. A dataset kept for testing alone has an empty training part.
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
        if self.X_test is None:
            return self.X_train
        if isinstance(self.X_train, pd.DataFrame):
            return pd.concat([self.X_train, self.X_test], ignore_index=True)
        if isinstance(self.X_train, np.ndarray):
            return np.concatenate([self.X_train, self.X_test])
        return [*self.X_train, *self.X_test]

    @property
    def y(self) -> Labels:
        """The labels of `X`."""
        return self.y_train if self.y_test is None else np.concatenate([self.y_train, self.y_test])

    def split(self, test_size: float = 0.1, seed: int = 0) -> Dataset:
        """The same with a random share of the rows as its test part, the same for the same seed; not stratified."""
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


def labels(y: Any, n_classes: int, file: str) -> Labels:
    """Labels as whole numbers 0 … n_classes-1, or an error that names their file."""
    array = np.asarray(y).astype(np.int64)
    if len(array) and not (array.min() >= 0 and array.max() < n_classes):
        raise DatasetError(f"{file} must hold {n_classes} classes; found label {array.min()} … {array.max()} from 0")
    return array
