"""Several labels at once: every row has a set of labels, and votes for it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import LabelError, ShapeError
from dwac.tasks.answers import TYPICALITY, AnswerColumn, ValueKind
from dwac.tasks.base import (
    LABELS,
    Bools,
    Floats,
    Ints,
    Loss,
    Target,
    VoteSummary,
    averaged_table,
    complete_rows,
    finite,
    narrow_strings,
    set_nan,
    set_none,
    zero_nan,
)


class Labels(Target):
    """The label sets of the training rows; a label is predicted if it has half of the votes (Brier score)."""

    kind, noun, linear_start = LABELS, "labels", False

    def values(self, y: Any, n: int) -> Floats:
        """(n, L): the labels of rows as 0 and 1; an unknown label is an error."""
        return read_labels(y, n, self.names, listed=self.listed)[0]

    def codes(self, exact: Floats) -> Ints:
        """(n,): the codes of label sets (n, L); -1 for a set that no voter has."""
        return np.array([self._places.get(row.tobytes(), -1) for row in np.ascontiguousarray(exact)], dtype=np.int64)

    @cached_property
    def _places(self) -> dict[bytes, int]:
        """The code of each label set."""
        return {row.tobytes(): code for code, row in enumerate(np.ascontiguousarray(self.table))}

    def loss(self, codes: Ints) -> Loss:
        """Brier score: averages whether an example has each label."""
        return Loss(None, averaged_table(self.table, codes))

    def probabilities(self, votes: Floats) -> Floats:
        """(…, L): P(label given x), the vote share of the voters that have it, from votes (…, K) for label sets.

        The result is the same as with a separate vote on each label.
        """
        shares = np.exp(votes - votes.max(axis=-1, keepdims=True))
        return np.asarray(np.clip(shares @ self.table / shares.sum(axis=-1, keepdims=True), 0.0, 1.0))

    def predict_proba(self, votes: Floats) -> Floats:
        """(n, L): the same; NaN for a row without votes."""
        return set_nan(self.probabilities(zero_nan(votes)), complete_rows(votes))

    def predict(self, votes: Floats) -> NDArray[Any]:
        """The labels with at least half of the votes: (n, L) of 0 and 1, or (n,) tuples if `fit` was given lists.

        A row without votes has NaN, or None.
        """
        rows, has = complete_rows(votes), self.predict_proba(votes) >= 0.5
        if not self.listed:
            return set_nan(has.astype(np.int64), rows)
        labels = np.empty(len(has), dtype=object)
        labels[:] = [tuple(self.names[row].tolist()) for row in has]
        return set_none(labels, rows)

    def correct(self, votes: Floats, y: Any) -> Bools:
        """(n,): whether every label is predicted correctly."""
        has = self.predict_proba(votes) >= 0.5
        return np.asarray((has == self.values(y, len(has))).all(axis=1))

    def decision_function(self, votes: Floats) -> Floats:
        """(n, L): the log-odds of each label."""
        p = self.predict_proba(votes)
        with np.errstate(divide="ignore"):
            return finite(np.log(p) - np.log1p(-p))

    def require_label(self, label: Any) -> None:
        """Raise an error unless this is one of the labels."""
        if label not in self.plain_names:
            raise LabelError(f"label must be one of {checks.listed(self.plain_names)}; got {label!r}")

    def same(self, log_p: Floats, full: Floats) -> Bools:
        """(n,): whether two log probabilities (n, K) of label sets predict the same labels."""
        few, all_ = (np.exp(part) @ self.table >= 0.5 for part in (log_p, full))
        return np.asarray((few == all_).all(axis=1))

    def summarise(self, votes: Floats) -> VoteSummary:
        """Minus the mean certainty of the labels, and the expected number of labels."""
        p = self.probabilities(votes)
        return VoteSummary(-np.maximum(p, 1 - p).mean(axis=-1), p.sum(axis=-1))

    def of_part(self, exact: Floats, training: Ints) -> Labels:
        """The same labels, with the label sets of all these rows (n, L)."""
        del training
        return label_target(self.names, exact, listed=self.listed)

    def remaining(self, codes: Ints, exact: Floats, training: Ints) -> tuple[Labels, Ints, Floats]:
        """The target without the labels that no row has, if rows come with lists of labels."""
        del training
        if not self.listed:
            return label_target(self.names, exact), codes, exact
        has = exact.any(axis=0)
        if not has.any():
            raise LabelError("without these rows no label would be left; nothing was forgotten")
        exact = exact[:, has]
        return label_target(narrow_strings(self.names[has]), exact, listed=True), codes, exact

    def holds(self, exact: Floats) -> bool:
        """Whether all are 0 or 1."""
        return bool(np.isin(exact, (0.0, 1.0)).all())

    def columns(self, levels: Sequence[float] = ()) -> tuple[AnswerColumn, ...]:
        """Labels, the set that misses few, and for each label its probability and the decision on it."""
        del levels
        share, labels = ValueKind.SHARE, tuple(self.names.tolist())
        each: dict[str, Any] = {"names": labels, "per_name": True}
        evidence: dict[str, Any] = {**each, "calibrated": True, "evidence": True}
        return (
            AnswerColumn("labels", ValueKind.LABELS, "Those with a probability of at least one half.", labels),
            TYPICALITY,
            AnswerColumn(
                "label_set",
                ValueKind.LABELS,
                "Labels probable enough that on average at most a share ε of a row's labels is missing.",
                labels,
                in_tables=("set",),
                calibrated=True,
            ),
            AnswerColumn(
                "probabilities", share, "Per label; they need not sum to 1.", in_tables=("probability",), **each
            ),
            AnswerColumn(
                "decisions",
                ValueKind.DECISION,
                "Per label. Of the rows that have a label at most a share ε gets a no, and of those that do not at "
                "most a share ε gets a yes.",
                in_tables=("decision",),
                calibrated=True,
                **each,
            ),
            AnswerColumn("p_yes", share, "Per label: the p-value of having it.", **evidence),
            AnswerColumn("p_no", share, "Per label: the p-value of not having it.", **evidence),
        )

    def with_sets(self, indicators: Floats) -> Labels:
        """The same with more label sets, (n, L) of 0 and 1, after the existing ones."""
        new = np.unique(indicators, axis=0)
        table = np.concatenate([self.table, new[[row.tobytes() not in self._places for row in new]]])
        return label_sets(self.names, table, listed=self.listed)


def label_target(names: NDArray[Any], indicators: Floats, *, listed: bool = False) -> Labels:
    """The target with the label sets of rows (n, L) of 0 and 1."""
    return label_sets(names, np.unique(indicators, axis=0), listed=listed)


def label_sets(names: NDArray[Any], table: Floats, *, listed: bool = False) -> Labels:
    """The target whose codes are these label sets (K, L)."""
    outcomes = np.empty(len(table), dtype=object)
    outcomes[:] = [tuple(names[row > 0].tolist()) for row in table]
    return Labels(outcomes, names, table, np.zeros((2, 0)), listed=listed)


# Reading y


def is_several(y: Any) -> bool:
    """Whether y is several labels at once: a table of 0 and 1, or a list of lists of labels."""
    if isinstance(y, pd.DataFrame):
        return y.shape[1] > 1
    if isinstance(y, pd.Series | np.ndarray) and y.ndim == 1:
        y = y.tolist() if y.dtype == object else []
    if isinstance(y, np.ndarray | Tensor) or hasattr(y, "toarray"):
        return bool(y.ndim == 2 and y.shape[1] > 1)
    if not isinstance(y, list) or len(y) == 0:
        return False
    return all(isinstance(row, list | set | frozenset) or getattr(row, "ndim", 0) == 1 for row in y)


def _rows(y: Any) -> Any:
    """A list of one list per row, if y is rows of labels; a table unchanged."""
    if isinstance(y, pd.Series | np.ndarray) and y.ndim == 1:
        y = y.tolist()
    if not isinstance(y, list):
        return y
    return [row.tolist() if isinstance(row, np.ndarray | Tensor) else row for row in y]


def read_labels(
    y: Any, n: int, known: NDArray[Any] | None = None, *, listed: bool = True
) -> tuple[Floats, NDArray[Any], bool]:
    """(indicators (n, L) of 0 and 1, names of the labels (L,), whether y has lists of labels).

    known: the labels of a fitted model; other labels are an error. listed: whether that model was given lists of
    labels; if not, [0, 1] is a row without the first label and with the second, not a row with labels 0 and 1.
    """
    if hasattr(y, "toarray"):
        y = y.toarray()
    if isinstance(y, Tensor):
        y = y.detach().cpu().numpy()
    y = _rows(y)
    if len(y) != n:
        raise ShapeError(f"y must have one row of labels per row of X; X has {n} rows; got {len(y)}")
    if isinstance(y, list):
        meant = known is not None and not listed and all(_answers(row, len(known)) for row in y)
        if not meant and not _indicates(y):
            return *_from_lists(y, known), True
        y = np.asarray([list(row) for row in y])
    given = np.asarray(y)
    if given.ndim != 2:
        raise ShapeError(
            f"y must be several labels per row, a table (n, L) of 0 and 1 or lists of labels; got shape {given.shape}"
        )
    names = np.asarray(y.columns, dtype=object) if isinstance(y, pd.DataFrame) else np.arange(given.shape[1])
    try:
        table = given.astype(np.float64)
    except (TypeError, ValueError):
        table = np.array([[_float(value) for value in row] for row in given.tolist()])
    if not np.isin(table, (0.0, 1.0)).all():
        row, column = np.argwhere(~np.isin(table, (0.0, 1.0)))[0]
        raise LabelError(
            "y with several columns must hold 0 and 1 alone, 1 where a row has the label; "
            f"row {row} of column {names.tolist()[column]!r} is {given[row].tolist()[column]!r}; "
            "for several numbers use DWACRegressor"
        )
    if known is not None and len(names) != len(known):
        raise ShapeError(f"y must have {len(known)} columns, one per label; got {len(names)}")
    if known is not None and isinstance(y, pd.DataFrame) and names.tolist() != known.tolist():
        raise LabelError(f"the columns of y must be the labels {known.tolist()}; got {names.tolist()}")
    return table, names if known is None else known, False


def _float(value: Any) -> float:
    """The value as a number, or NaN if it is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _answer(value: Any) -> bool:
    return isinstance(value, int | float | np.generic) and value in (0, 1)


def _answers(row: Any, n_labels: int) -> bool:
    """Whether a row has a 0 or 1 for each of n_labels labels."""
    return isinstance(row, list | tuple) and len(row) == n_labels and all(map(_answer, row))


def _indicates(y: list[Any]) -> bool:
    """Whether rows have a 0 or 1 for each label, rather than lists of labels, in which none could occur twice."""
    ordered = all(isinstance(row, list | tuple) for row in y)
    if not ordered or len({len(row) for row in y}) != 1 or len(y[0]) < 2:
        return False
    return all(_answers(row, len(y[0])) for row in y) and (len(y[0]) > 2 or any(len(set(row)) < len(row) for row in y))


def _from_lists(y: list[Any], known: NDArray[Any] | None) -> tuple[Floats, NDArray[Any]]:
    for number, held in enumerate(y):
        _check_held(held, number)
    labels = sorted({label for row in y for label in row}, key=lambda label: (type(label).__name__, label))
    if known is not None:
        unknown = [label for label in labels if label not in known.tolist()]
        if unknown:
            raise LabelError(f"y must hold labels seen in training; {unknown[0]!r} is not one of {known.tolist()[:10]}")
        labels = known.tolist()
    if not labels:
        raise LabelError("y must have at least one label in some row; every list is empty")
    names = np.empty(len(labels), dtype=object)
    names[:] = labels
    if all(isinstance(label, str) for label in labels):
        names = names.astype(str)
    place = {label: column for column, label in enumerate(labels)}
    table = np.zeros((len(y), len(labels)))
    for row, held in enumerate(y):
        table[row, [place[label] for label in held]] = 1.0
    return table, names


def _check_held(held: Any, row: int) -> None:
    """Refuse anything but a list of labels."""
    if not isinstance(held, list | tuple | set | frozenset):
        raise LabelError(f"y must be a list of labels for each row; row {row} is {held!r:.60}; write [] for no label")
    for label in held:
        if not isinstance(label, Hashable) or label is None or label is pd.NA or label != label:
            raise LabelError(
                f"the labels of a row must be texts, numbers or the like; row {row} has {label!r:.60}; leave it out"
            )


def check_several(table: Floats, names: NDArray[Any]) -> list[str]:
    """Notes on several labels before training, as sentences; an error if nothing can be learned."""
    shares = table.mean(axis=0)
    constant = np.flatnonzero((shares == 0) | (shares == 1))
    if len(constant) == table.shape[1]:
        raise LabelError("y must have a label that some rows have and others have not; every column of y is constant")
    notes = []
    if len(constant):
        first, n_others = constant[0], len(constant) - 1
        have = "no row has" if shares[first] == 0 else "every row has"
        others = f", and {n_others} other label{'s are' if n_others > 1 else ' is'} as constant" if n_others else ""
        notes.append(
            f"{have} the label {names[first]!r}{others}: it is predicted so for everyone, and nothing about it is "
            "learned; drop the column, or add rows that differ"
        )
    none = int((table.sum(axis=1) == 0).sum())
    if none:
        notes.append(f"{none:,} of {len(table):,} rows have no label at all; they vote for none")
    return notes
