"""Classes and ordered labels: one label per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import column_or_1d
from torch import Tensor

from dwac._checks import listed
from dwac.conformal import nonconformity
from dwac.errors import LabelError, ShapeError
from dwac.tasks.answers import TYPICALITY, AnswerColumn, ValueKind
from dwac.tasks.base import (
    CLASSES,
    ORDERED,
    Bools,
    Floats,
    Ints,
    Loss,
    Target,
    VoteSummary,
    averaged_table,
    complete_rows,
    finite,
    log_probabilities,
    narrow_strings,
    set_nan,
    set_none,
    zero_nan,
)


class Classes(Target):
    """A class: the label with the most votes is predicted."""

    kind, cross_entropy = CLASSES, True
    nonconformity = "probability"  # the default score of prediction sets
    ordered = False  # whether the classes have an order

    def read(self, y: Any, n: int, *, strict: bool) -> tuple[Ints, Floats]:
        """(codes (n,), exact (n, 0)) of labels; if not `strict`, an unknown label has code -1."""
        return encode_known(y, n, self.names, strict=strict), np.zeros((n, 0))

    def loss(self, codes: Ints) -> Loss:
        """Cross-entropy: nothing is averaged."""
        del codes
        return Loss(None, None)

    def probabilities(self, votes: Floats) -> Floats:
        """(…, K): P(label given x) from votes (…, K)."""
        return -nonconformity(votes, "probability")

    def predict_proba(self, votes: Floats) -> Floats:
        """(n, K): the same; NaN for a row without votes."""
        return set_nan(self.probabilities(zero_nan(votes)), complete_rows(votes))

    def predict(self, votes: Floats) -> NDArray[Any]:
        """(n,): the label with the most votes (n, K); None for a row without votes."""
        return set_none(np.asarray(self.names[votes.argmax(axis=1)]), complete_rows(votes))

    def correct(self, votes: Floats, y: Any) -> Bools:
        """(n,): whether the label with the most votes is the true one."""
        return np.asarray(votes.argmax(axis=1) == self.read(y, len(votes), strict=False)[0])

    def decision_function(self, votes: Floats) -> Floats:
        """How strongly votes support a class: log-odds (n,) of the second of two classes, else log P (n, K)."""
        if votes.shape[1] == 2:
            return finite(votes[:, 1] - votes[:, 0])
        return finite(votes - np.logaddexp.reduce(zero_nan(votes), axis=1, keepdims=True))

    def same(self, log_p: Floats, full: Floats) -> Bools:
        """(n,): whether two log probabilities (n, K) have the same most probable label."""
        return np.asarray(log_p.argmax(axis=1) == full.argmax(axis=1))

    def summarise(self, votes: Floats) -> VoteSummary:
        """-log of the largest probability, and the code of the label."""
        return VoteSummary(-log_probabilities(votes).max(axis=-1), votes.argmax(axis=-1).astype(np.float64))

    def remaining(self, codes: Ints, exact: Floats, training: Ints) -> tuple[Target, Ints, Floats]:
        """The target without the classes that no row has."""
        del training
        here = np.unique(codes)
        if len(here) == len(self.names):
            return self, codes, exact
        if len(here) < 2:
            raise LabelError(
                "without these rows only one class would be left; a classifier needs two; nothing was forgotten"
            )
        return self._with(self.names[here]), np.searchsorted(here, codes), exact

    def columns(self, levels: Sequence[float] = ()) -> tuple[AnswerColumn, ...]:
        """Label, probabilities, trust and prediction set; levels have no effect."""
        del levels
        share, labels = ValueKind.SHARE, tuple(self.names.tolist())
        return (
            AnswerColumn("label", ValueKind.LABEL, "The label with the most votes.", labels),
            AnswerColumn("probability", share, "Of the label."),
            AnswerColumn(
                "confidence",
                share,
                "1 - the second largest p-value: how firmly other labels are rejected.",
                calibrated=True,
            ),
            AnswerColumn("credibility", share, "The largest p-value: near 0 if no label fits.", calibrated=True),
            TYPICALITY,
            AnswerColumn(
                "label_set",
                ValueKind.LABELS,
                "Prediction set: labels with p > ε. Misses the true one at a rate of at most ε.",
                labels,
                in_tables=("set",),
                calibrated=True,
            ),
            AnswerColumn(
                "probabilities", share, "Per class.", labels, per_name=True, in_tables=("probability",), optional=True
            ),
            AnswerColumn("p_values", share, "Per class.", labels, per_name=True, calibrated=True, evidence=True),
        )

    def _with(self, names: NDArray[Any]) -> Classes:
        return class_target(names)


class Ordered(Classes):
    """Ordered labels: the loss counts how far off a prediction is (ranked probability score)."""

    kind, cross_entropy = ORDERED, False
    nonconformity = "tails"
    ordered = True

    def loss(self, codes: Ints) -> Loss:
        """Ranked probability score: averages whether a label is at most each threshold."""
        return Loss(None, averaged_table(np.tril(np.ones((self.n_codes, self.n_codes)))[:, 1:], codes))

    def summarise(self, votes: Floats) -> VoteSummary:
        """-log of the largest probability, and the mean position in the order."""
        log_p = log_probabilities(votes)
        return VoteSummary(-log_p.max(axis=-1), np.exp(log_p) @ np.arange(self.n_codes))

    def _with(self, names: NDArray[Any]) -> Classes:
        return class_target(narrow_strings(names), ordered=True)


def class_target(names: NDArray[Any], *, ordered: bool = False) -> Classes:
    """Classes, or ordered labels."""
    names = plain_dates(names)
    return (Ordered if ordered else Classes)(names, names, np.zeros((len(names), 0)), np.zeros((2, 0)))


# Reading y


def encode_labels(y: Any, n: int) -> tuple[Ints, NDArray[Any]]:
    """(codes 0 … K-1, classes (K,)) of any hashable labels; classes are sorted."""
    labels = _labels(y, n)
    if labels.dtype.kind == "f" and (labels != np.round(labels)).any():
        raise LabelError(
            f"Unknown label type: continuous; y holds numbers such as {labels[labels != np.round(labels)][0]}, "
            "not classes; predict them with DWACRegressor, or bin them into classes first, e.g. with pandas.cut"
        )
    if labels.dtype.kind != "O" or all(isinstance(label, str) for label in labels):
        classes, codes = np.unique(labels, return_inverse=True)
    else:
        codes, classes = _factorised(labels)
    if len(classes) < 2:
        raise LabelError(f"y must have at least two classes; got only one class, {classes.tolist()[0]!r}")
    check_class_count(len(classes), n)
    return codes.astype(np.int64), classes


def too_many_classes(n_classes: int, n: int) -> bool:
    """Whether n rows are too few for this many classes: more than two classes for every three rows."""
    return 2 * n < 3 * n_classes


def check_class_count(n_classes: int, n: int) -> None:
    """Refuse labels that are probably not classes."""
    if too_many_classes(n_classes, n):
        raise LabelError(
            f"y must have at most two classes for every three rows; got {n_classes:,} classes in {n:,} rows; "
            "is y a column of classes?"
        )


def encode_known(y: Any, n: int, classes: NDArray[Any], *, strict: bool = True) -> Ints:
    """Codes of labels that must be among the known classes; if not `strict`, other labels get -1."""
    labels = _labels(y, n)
    if labels.dtype.kind == classes.dtype.kind and labels.dtype.kind in "mM":
        unit = np.result_type(labels, classes)
        labels, classes = labels.astype(unit), classes.astype(unit)
    place = {label: code for code, label in enumerate(classes.tolist())}
    codes = [place.get(label, -1) for label in labels.tolist()]
    if strict and -1 in codes:
        row = codes.index(-1)
        raise LabelError(
            f"y must hold classes seen in training: {listed(place, most=10)}; row {row} is {labels.tolist()[row]!r}"
        )
    return np.array(codes, dtype=np.int64)


def _labels(y: Any, n: int) -> NDArray[Any]:
    """y as an array (n,) without missing values."""
    if y is None:
        raise LabelError("DWACClassifier requires y to be passed, but the target y is None")
    if isinstance(y, Tensor):
        y = y.detach().cpu().numpy()
    if isinstance(y, pd.Series) and pd.api.types.is_extension_array_dtype(y.dtype) and not y.isna().any():
        # Nullable whole numbers would become floats, which cannot distinguish large ones.
        y = y.to_numpy(dtype=getattr(y.dtype, "numpy_dtype", object))
    if isinstance(y, list) and (
        any(isinstance(label, tuple | frozenset) for label in y) or len({isinstance(label, str) for label in y}) > 1
    ):
        array = np.empty(len(y), dtype=object)
        array[:] = y  # NumPy would turn tuples into rows of a table, and 1 next to "a" into "1"
    else:
        try:
            array = column_or_1d(y, warn=True)
        except ValueError as error:
            raise ShapeError(f"y must have one label per row: {error}") from None
    if len(array) != n:
        raise ShapeError(f"y must have one label per row of X; X has {n} rows; got {len(array)} labels")
    try:
        missing = pd.isna(array)
    except ArithmeticError:  # of a Decimal
        raise LabelError("y must not have missing labels; one is Decimal('sNaN'); drop its row") from None
    if missing.any():
        row = int(missing.argmax())
        raise LabelError(f"y must not have missing labels; row {row} is {array[missing][0]}; drop that row")
    if array.dtype.kind == "f" and np.isinf(array).any():
        raise LabelError(f"y must be finite; row {int(np.isinf(array).argmax())} is infinite; drop that row")
    return plain_dates(array)


def plain_dates(values: NDArray[Any]) -> NDArray[Any]:
    """Dates in days or microseconds, durations in microseconds: of nanoseconds, `tolist` makes integers.

    >>> plain_dates(np.array(["2026-11-19"], "datetime64[ns]")).tolist()
    [datetime.date(2026, 11, 19)]
    """
    for unit in {"M": ("D", "us"), "m": ("us",)}.get(values.dtype.kind, ()):
        plain = values.astype(f"{values.dtype.kind}8[{unit}]")
        if np.array_equal(plain, values):
            return plain
    return values


def _factorised(labels: NDArray[Any]) -> tuple[Ints, NDArray[Any]]:
    try:
        distinct = list(dict.fromkeys(labels.tolist()))
    except TypeError as error:
        raise LabelError(f"labels must be hashable, such as strings, numbers or tuples: {error}") from None
    try:
        distinct = sorted(distinct)
    except TypeError:  # labels of several types
        distinct = sorted(distinct, key=lambda label: (type(label).__name__, repr(label)))
    classes = np.empty(len(distinct), dtype=object)
    classes[:] = distinct
    place = {label: code for code, label in enumerate(distinct)}
    return np.array([place[label] for label in labels.tolist()], dtype=np.int64), classes


def ordered_names(y: Any) -> NDArray[Any] | None:
    """The categories of an ordered pandas Categorical that occur, in their order; None for anything else."""
    dtype = getattr(y, "dtype", None)
    if not isinstance(dtype, pd.CategoricalDtype) or not dtype.ordered:
        return None
    present = pd.unique(pd.Series(y).dropna())
    kept = [name for name in dtype.categories if name in set(present)]
    names = np.empty(len(kept), dtype=object)
    names[:] = kept
    return names.astype(str) if all(isinstance(name, str) for name in kept) else np.asarray(kept)
