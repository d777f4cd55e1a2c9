"""The target of a model: learned from y, or restored from stored values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac import _checks as checks
from dwac.errors import InputError, StorageError
from dwac.tasks.base import CLASSES, LABELS, NUMBERS, ORDERED, Floats, Ints, Target
from dwac.tasks.classes import class_target, encode_known, encode_labels, ordered_names
from dwac.tasks.labels import check_several, is_several, label_sets, label_target, read_labels
from dwac.tasks.numbers import number_bins, number_target, read_numbers

_STRATA = 20  # parts of the range of numbers that validation rows are spread over


class TargetValues(NamedTuple):
    """The target values of n rows, as read from y."""

    exact: Floats  # (n, T) numbers, or (n, L) labels as 0 and 1; (n, 0) for classes
    strata: Ints  # (n,) strata for validation rows: the codes, except for numbers
    target: Callable[[Ints], Target]  # given the training rows


def read_target(y: Any, n: int, *, regression: bool, ordered: bool | str = "auto") -> TargetValues:
    """Read y (n rows); ordered: as for `DWACClassifier`."""
    if regression:
        exact, columns, single = read_numbers(y, n)
        first = pd.Series(exact[:, 0]).rank(method="first").to_numpy()
        strata = ((first - 1) * min(_STRATA, max(1, n // 5)) // n).astype(np.int64)
        return TargetValues(exact, strata, lambda rows: number_target(exact[rows], columns, single=single))
    if is_several(y):
        if ordered is True:
            raise InputError("ordered=True is for one label per row; y has several; leave ordered at 'auto'")
        table, labels, listed = read_labels(y, n)
        for note in check_several(table, labels):
            checks.warn(note)
        several = label_target(labels, table, listed=listed)
        return TargetValues(table, several.codes(table), lambda _: several)
    codes, names = encode_labels(y, n)
    order = None if ordered is False else ordered_names(y)
    if order is not None:
        codes, names = encode_known(y, n, order), order
    target = class_target(names, ordered=ordered is True or order is not None)
    return TargetValues(np.zeros((n, 0)), codes, lambda _: target)


def restore_target(
    kind: Any, names: NDArray[Any], table: Floats, scale: Floats, *, listed: bool, single: bool
) -> Target:
    """The target with these values, which may come from anywhere; an error if they do not fit together."""
    if kind in (CLASSES, ORDERED):
        return class_target(names, ordered=kind == ORDERED)
    if kind not in (LABELS, NUMBERS):
        raise StorageError(f"its task must be classes, ordered, labels or numbers; got {kind!r:.50}")
    width = len(names) if kind == NUMBERS else 0
    if table.ndim != 2 or len(table) == 0 or table.shape[1] != len(names) or scale.shape != (2, width):
        raise StorageError(
            f"its table of targets must have {len(names)} columns and a scale for each; got shapes {table.shape} and "
            f"{scale.shape}"
        )
    if kind == LABELS:
        target: Target = label_sets(names, table, listed=listed)
    else:
        target = number_bins(names.tolist(), table, scale, single=single and len(names) == 1)
    if not target.holds(table) or not np.isfinite(scale).all() or (scale[1] <= 0).any():
        raise StorageError("its table of targets must hold finite numbers, of labels 0 and 1 alone; it does not")
    return target
